"""Saved lines by number, time, boot or text: for the API, and for `logs --state` with no daemon."""

from __future__ import annotations

import base64
import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import islice
from pathlib import Path
from typing import Protocol

from serialwatch.line import Line
from serialwatch.plain import holds
from serialwatch.spelling import Json, iso, show

MAX_HELD = 10_000  # lines that a search from the end holds in memory
PAGE_BYTES = 128 * 1024  # of JSON, about; one turn of the render thread
PAGE_LINES = 1000
FIRST_LINES = 20  # of the first page: it should be there at once
_REST = 32  # stretches of some 64 KiB that one turn looks through at most
_READ = 8  # stretches that take as long as to read the lines of one


class PlaceError(Exception):
    """There is no such boot or marker; if `is_failure`, that cannot be looked up."""

    def __init__(self, message: str, *, is_failure: bool = False) -> None:
        super().__init__(message)
        self.is_failure = is_failure


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
        has_boots: bool = True,
    ) -> Iterator[Line]:
        """Return lines in order of their numbers, or against it; without boots that is sooner."""

    def bounds(self) -> tuple[int, int] | None:
        """Return the first and the last number, that of an unfinished line too; None if empty."""

    def stretches(
        self, words: Sequence[bytes], first: int, last: int, reverse: bool = False
    ) -> Iterator[tuple[int, int, bool]]:
        """Yield (first line, last line, whether one of `words` may stand there), side by side."""

    def newest_from(self, last: int, count: int) -> int:
        """Return the first of the newest `count` lines up to line `last`."""

    def seq_at(self, utc_ns: int) -> int | None:
        """Return the first line at or after a time."""

    def last_seq_at(self, utc_ns: int) -> int | None:
        """Return the last line at or before a time."""

    def boot_range(self, wanted: int) -> tuple[int, int | None] | None:
        """Return first and last line of a boot (0: the newest), None if it is not there."""

    def boot_numbers(self) -> tuple[int, int] | None:
        """Return the numbers of the oldest and the newest boot, None if there is none."""


@dataclass(frozen=True, slots=True)
class LogQuery:
    """Which lines are wanted; what is None does not limit."""

    first: int | None = None
    last: int | None = None
    newest: int | None = None  # only so many, from the end
    since_utc_ns: int | None = None
    until_utc_ns: int | None = None
    boot: int | None = None  # 0: the current one, -1: the one before
    text: bytes = b""  # lines that hold it, in their bytes or as they are shown
    marker: str = ""  # from that one on: its number, or a part of its text
    has_boots: bool = True  # False: the boot of a line may be 0, which is sooner known
    has_ends: bool = False  # how each line ended is asked for, too


@dataclass(frozen=True, slots=True)
class Page:
    """Some lines as JSON, one a row."""

    rows: bytes
    last: int  # number of the last complete line that was looked at; 0: none was
    partial: bytes  # the unfinished line at the end of the log as a row; b"" if there is none


def select(log: SavedLog, query: LogQuery) -> Iterator[Line | None]:
    """Return the lines that `query` asks for, oldest first.

    A None comes after some milliseconds of search in vain: others may have their turn.

    Raises:
        PlaceError: there is no such boot.

    """
    first, last = _range(log, query)
    if first > last:
        return iter(())
    if query.newest == 0:
        return iter(())
    if query.text:
        if query.newest is None:
            return _search(log, first, last, query)
        return _newest_holding(log, first, last, query, query.newest)
    if query.newest is not None:
        first = max(first, log.newest_from(last, query.newest))
    return log.lines(first=first, last=last, has_boots=query.has_boots)


def from_marker(query: LogQuery, state: Path, port: str) -> LogQuery:
    """Return `query` with the first line that its marker asks for. Blocks for the database.

    Raises:
        PlaceError: there is no such marker.

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
        raise PlaceError(f"markers cannot be looked up: {exc}", is_failure=True) from exc
    if found is None:
        newest = "; ".join(f"{each.id} {show(each.text.encode())!r}" for each in known)
        raise PlaceError(
            f"no marker {query.marker!r}: "
            + (f"the newest are {newest}" if newest else "it has none"),
        )
    return replace(query, first=max(found.seq, query.first or 0), marker="")


def line_to_json(line: Line, *, has_end: bool = False) -> Json:
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
    if has_end:
        body["end"] = line.end.decode("ascii")
    return body


def next_page(
    lines: Iterator[Line | None],
    text: bytes = b"",
    most: int = PAGE_LINES,
    *,
    has_ends: bool = False,
) -> Page | None:
    """Take some lines, keep those that hold `text`; None at the end."""
    rows: list[bytes] = []
    partial = b""
    size = last = looked_at = 0
    for line in islice(lines, most):
        looked_at += 1
        if line is None:
            break
        if not line.is_complete:
            partial = _row(line, has_end=has_ends) if holds(line.raw, text) else b""
            continue
        last = line.seq
        if holds(line.raw, text):
            rows.append(row := _row(line, has_end=has_ends))
            size += len(row)
            if size >= PAGE_BYTES:
                break
    return Page(b"".join(rows), last, partial) if looked_at else None


def fresh_page(saved: SavedLog, first: int, wanted: LogQuery) -> Page:
    """Look at the log again and take lines from `first` on."""
    saved.refresh()
    lines = saved.lines(first=first, has_boots=wanted.has_boots)
    return next_page(lines, wanted.text, has_ends=wanted.has_ends) or Page(b"", 0, b"")


def last_complete(saved: SavedLog) -> int:
    """Return the number of the newest line that is complete, 0 for an empty log."""
    bounds = saved.bounds()
    if bounds is None:
        return 0
    newest = next(saved.lines(first=bounds[1], last=bounds[1], has_boots=False), None)
    return bounds[1] if newest is None or newest.is_complete else bounds[1] - 1


def _row(line: Line, *, has_end: bool) -> bytes:
    body = line_to_json(line, has_end=has_end)
    return json.dumps(body, separators=(",", ":")).encode() + b"\n"


def _search(
    log: SavedLog, first: int, last: int, query: LogQuery, *, reverse: bool = False
) -> Iterator[Line | None]:
    """Yield the lines that hold the text, and None after a while in vain."""
    looked_at, text = 0, query.text
    for low, high, may_be in log.stretches([text.lower()], first, last, reverse):
        if may_be:
            lines = log.lines(low, high, reverse=reverse, has_boots=query.has_boots)
            yield from (line for line in lines if holds(line.raw, text))
        looked_at += _READ if may_be else 1
        if looked_at >= _REST:
            looked_at = 0
            yield None


def _newest_holding(
    log: SavedLog, first: int, last: int, query: LogQuery, newest: int
) -> Iterator[Line | None]:
    """Yield the newest lines that hold the text, found from the end."""
    held: list[Line] = []
    count, oldest = 0, last
    for line in _search(log, first, last, query, reverse=True):
        if line is None:
            yield None
            continue
        count, oldest = count + 1, line.seq
        if count <= MAX_HELD:
            held.append(line)
        if count == newest:
            break
    if count <= MAX_HELD:
        yield from reversed(held)
        return
    held.clear()
    yield from _search(log, oldest, last, query)


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
    if query.until_utc_ns is not None:
        # Not up to the first line that is later: the clock may have been set back after that.
        until = log.last_seq_at(query.until_utc_ns)
        last = first - 1 if until is None else min(last, until)
    if query.boot is not None:
        boot_first, boot_last = _boot_range(log, query.boot)
        first = max(first, boot_first)
        last = last if boot_last is None else min(last, boot_last)
    return first, last


def _boot_range(log: SavedLog, wanted: int) -> tuple[int, int | None]:
    found = log.boot_range(wanted)
    if found is not None:
        return found
    numbers = log.boot_numbers()
    if numbers is None:
        raise PlaceError("no boot was seen in this log")
    oldest, newest = numbers
    if wanted > 0:
        raise PlaceError(f"no boot #{wanted} in this log: it has #{oldest} to #{newest}")
    raise PlaceError(f"no boot {wanted} in this log: it has #{oldest} to #{newest}, which is 0")
