"""Saved lines by number, time, boot or text: for the API, and for `logs --state` with no daemon."""

from __future__ import annotations

import base64
import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import islice
from pathlib import Path
from typing import Protocol

from serialwatch.api.bench import BenchError
from serialwatch.records import Line
from serialwatch.wire import Json, iso, show

MAX_NEWEST = 100_000  # lines that "the newest n" may hold in memory
PAGE_BYTES = 128 * 1024  # of JSON, about; one turn of the render thread
PAGE_LINES = 1000


class SavedLog(Protocol):
    """What is asked of a port's log; `store.log_reader.PortLog` is one."""

    def refresh(self) -> None:
        """Take notice of what was written since."""

    def lines(
        self,
        first: int | None = None,
        last: int | None = None,
        limit: int | None = None,
        reverse: bool = False,
    ) -> Iterator[Line]:
        """Return lines in order of their numbers, or against it."""

    def bounds(self) -> tuple[int, int] | None:
        """Return the first and the last number, that of an unfinished line too; None if empty."""

    def seq_at(self, utc_ns: int) -> int | None:
        """Return the first line at or after a time."""

    def boots(self) -> Sequence[tuple[int, int, int]]:
        """Return (number, first line, time) of each boot, oldest first."""


@dataclass(frozen=True, slots=True)
class LogQuery:
    """Which lines are wanted; what is None does not limit."""

    first: int | None = None
    last: int | None = None
    newest: int | None = None  # only so many, from the end
    since_utc_ns: int | None = None
    until_utc_ns: int | None = None
    boot: int | None = None  # 0: the current one, -1: the one before
    text: bytes = b""  # lines that hold it
    marker: str = ""  # from that one on: its number, or a part of its text


@dataclass(frozen=True, slots=True)
class Page:
    """Some lines as JSON, one a row."""

    rows: bytes
    last: int  # number of the last complete line that was looked at; 0: none was
    partial: bytes  # the unfinished line at the end of the log as a row; b"" if there is none


def select(log: SavedLog, query: LogQuery) -> Iterator[Line]:
    """Return the lines that `query` asks for, oldest first.

    Raises:
        BenchError: there is no such boot.

    """
    first, last = _range(log, query)
    if first > last:
        return iter(())
    if query.newest is None:
        return _holding(log.lines(first=first, last=last), query.text)
    newest = min(query.newest, MAX_NEWEST)
    if query.text:
        found = _holding(log.lines(first=first, last=last, reverse=True), query.text)
        lines = list(islice(found, newest))
    else:
        lines = list(log.lines(first=first, last=last, limit=newest, reverse=True))
    return reversed(lines)


def from_marker(query: LogQuery, state: Path, port: str) -> LogQuery:
    """Return `query` with the first line that its marker asks for. Blocks for the database.

    Raises:
        BenchError: there is no such marker.

    """
    if not query.marker:
        return query
    # Here, for `logs` without a marker starts sooner without a database.
    from serialwatch.store.boots import find_marker, load_markers
    from serialwatch.store.database import StoreError
    from serialwatch.store.read import read_once

    try:
        found, known = read_once(
            state / "serialwatch.db",
            lambda db: (find_marker(db, port, query.marker), load_markers(db, port, limit=5)),
        )
    except StoreError as exc:
        raise BenchError("failed", f"markers cannot be looked up: {exc}") from exc
    if found is None:
        newest = "; ".join(f"{each.id} {show(each.text.encode())!r}" for each in known)
        raise BenchError(
            "not_found",
            f"no marker {query.marker!r} of {port}: "
            + (f"the newest are {newest}" if newest else "it has none"),
        )
    return replace(query, first=max(found.seq, query.first or 0), marker="")


def line_to_json(line: Line) -> Json:
    """Return a line; `raw_base64` is there only where `text` does not show all its bytes."""
    text = show(line.raw)
    body: Json = {
        "port": line.port,
        "seq": line.seq,
        "at": iso(line.utc_ns),
        "last_at": iso(line.last_utc_ns),
        "boot": line.boot,
        "text": text,
        "complete": line.is_complete,
    }
    if text.encode() != line.raw:
        body["raw_base64"] = base64.b64encode(line.raw).decode()
    return body


def next_page(lines: Iterator[Line], text: bytes = b"") -> Page | None:
    """Take some lines, keep those that hold `text`; None at the end."""
    rows: list[bytes] = []
    partial = b""
    size = last = looked_at = 0
    for line in islice(lines, PAGE_LINES):
        looked_at += 1
        if not line.is_complete:
            partial = _row(line) if text in line.raw else b""
            continue
        last = line.seq
        if text in line.raw:
            rows.append(row := _row(line))
            size += len(row)
            if size >= PAGE_BYTES:
                break
    return Page(b"".join(rows), last, partial) if looked_at else None


def fresh_page(saved: SavedLog, first: int, text: bytes) -> Page:
    """Look at the log again and take lines from `first` on."""
    saved.refresh()
    return next_page(saved.lines(first=first), text) or Page(b"", 0, b"")


def last_complete(saved: SavedLog) -> int:
    """Return the number of the newest line that is complete, 0 for an empty log."""
    bounds = saved.bounds()
    if bounds is None:
        return 0
    newest = next(saved.lines(first=bounds[1], last=bounds[1]), None)
    return bounds[1] if newest is None or newest.is_complete else bounds[1] - 1


def _row(line: Line) -> bytes:
    return json.dumps(line_to_json(line), separators=(",", ":")).encode() + b"\n"


def _holding(lines: Iterator[Line], text: bytes) -> Iterator[Line]:
    return (line for line in lines if text in line.raw) if text else lines


def _range(log: SavedLog, query: LogQuery) -> tuple[int, int]:
    """Return first and last number; first > last if nothing can match."""
    bounds = log.bounds()
    if bounds is None:
        return 1, 0
    first, last = bounds
    if query.first is not None:
        first = max(first, query.first)
    if query.last is not None:
        last = min(last, query.last)
    if query.since_utc_ns is not None:
        since = log.seq_at(query.since_utc_ns)
        first = last + 1 if since is None else max(first, since)
    if query.until_utc_ns is not None and (after := log.seq_at(query.until_utc_ns + 1)) is not None:
        last = min(last, after - 1)
    if query.boot is not None:
        boot_first, boot_last = _boot_range(log.boots(), query.boot)
        first = max(first, boot_first)
        last = last if boot_last is None else min(last, boot_last)
    return first, last


def _boot_range(boots: Sequence[tuple[int, int, int]], wanted: int) -> tuple[int, int | None]:
    if not boots:
        raise BenchError("not_found", "no boot was seen in this log")
    number = boots[-1][0] + wanted if wanted <= 0 else wanted
    for index, (boot, seq, _) in enumerate(boots):
        if boot == number:
            last = boots[index + 1][1] - 1 if index + 1 < len(boots) else None
            return seq, last
    raise BenchError(
        "not_found", f"no boot #{number} in this log: it has #{boots[0][0]} to #{boots[-1][0]}"
    )
