"""Where `logs` reads from. The folder in which a daemon has saved them is `cli/saved_logs.py`."""

from __future__ import annotations

import base64
from collections.abc import Iterator, Mapping
from typing import Any, Protocol

from serialwatch.api.logs import LogQuery
from serialwatch.cli.client import Daemon, part
from serialwatch.cli.errors import CliError
from serialwatch.line import Line
from serialwatch.spelling import iso, utc_ns


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
        "boots": None if query.has_boots else 0,
    }
