"""Where `logs` reads from: a daemon, or the folder in which one has saved them."""

from __future__ import annotations

import base64
import time
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, Protocol

from serialwatch.api.bench import BenchError
from serialwatch.api.logs import LogQuery, from_marker, select
from serialwatch.cli.client import Daemon, part
from serialwatch.cli.errors import CliError
from serialwatch.cli.tables import safe
from serialwatch.records import Line
from serialwatch.store.log_reader import PortLog
from serialwatch.wire import iso, utc_ns

LOOK_S = 0.2  # how often a saved log is looked at while it is followed


class LogSource(Protocol):
    """Lines of ports. Every method raises CliError where there is no such port."""

    def lines(self, port: str, query: LogQuery) -> Iterator[Line]:
        """Return what `query` asks for, oldest first."""

    def follow(self, port: str, first: int, text: bytes) -> Iterator[Line]:
        """Return line `first` and all that come; an unfinished one again when it has grown."""


class DaemonLogs:
    """Lines that a daemon serves."""

    def __init__(self, daemon: Daemon) -> None:
        self._daemon = daemon

    def lines(self, port: str, query: LogQuery) -> Iterator[Line]:
        """See LogSource."""
        parameters = _parameters(query)
        return map(line_from_json, self._daemon.rows(f"/v1/logs/{part(port)}", parameters))

    def follow(self, port: str, first: int, text: bytes) -> Iterator[Line]:
        """See LogSource."""
        parameters = _parameters(LogQuery(first=first, text=text)) | {"follow": 1}
        yield from map(line_from_json, self._daemon.rows(f"/v1/logs/{part(port)}", parameters))
        raise CliError(f"the daemon at {self._daemon.path} has stopped")


class SavedLogs:
    """Lines in the state folder of a daemon, which need not run."""

    def __init__(self, state: Path) -> None:
        self._state = state
        self._folder = state / "log"

    def lines(self, port: str, query: LogQuery) -> Iterator[Line]:
        """See LogSource."""
        try:
            saved = self._open(port)
            yield from select(saved, from_marker(query, self._state, port))
        except BenchError as exc:
            raise CliError(f"{port}: {exc.message}") from exc

    def follow(self, port: str, first: int, text: bytes) -> Iterator[Line]:
        """See LogSource."""
        saved = self._open(port)
        unfinished = b""
        while True:
            for line in saved.lines(first=first):
                if line.is_complete:
                    first = line.seq + 1
                elif line.raw == unfinished:
                    continue
                unfinished = b"" if line.is_complete else line.raw
                if text in line.raw:
                    yield line
            time.sleep(LOOK_S)
            saved.refresh()

    def _open(self, port: str) -> PortLog:
        folder = self._folder / port
        there = sorted(each.name for each in self._folder.glob("*/"))
        if port not in there:
            if not there:
                raise CliError(
                    f"{self._folder}: no saved logs: is its parent a state folder, such as "
                    "/var/lib/serialwatch or ~/.local/state/serialwatch?"
                )
            raise CliError(f"{folder}: no saved log: there are {', '.join(map(safe, there))}")
        return PortLog(folder, port)


def line_from_json(row: Mapping[str, Any]) -> Line:
    """Return the line of a row of `GET /v1/logs/PORT`."""
    raw = row.get("raw_base64")
    return Line(
        port=row["port"],
        seq=row["seq"],
        raw=row["text"].encode() if raw is None else base64.b64decode(raw),
        boot=row["boot"],
        utc_ns=utc_ns(row["at"]),
        last_utc_ns=utc_ns(row["last_at"]),
        mono_ns=0,
        is_complete=row["complete"],
    )


def _parameters(query: LogQuery) -> dict[str, str | int | None]:
    since, until = query.since_utc_ns, query.until_utc_ns
    return {
        "first": query.first,
        "last": query.last,
        "n": query.newest,
        "since": None if since is None else iso(since),
        "until": None if until is None else iso(until),
        "boot": query.boot,
        "grep": query.text.decode("utf-8", errors="surrogateescape") or None,
        "marker": query.marker or None,
    }
