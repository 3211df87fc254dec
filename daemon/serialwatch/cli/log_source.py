"""Where `logs` reads from. The folder in which a daemon has saved them is `cli/saved_logs.py`."""

from __future__ import annotations

import base64
from collections.abc import Collection, Iterator, Mapping
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

    def follow(
        self, port: str, first: int, text: bytes, *, has_ends: bool = False
    ) -> Iterator[Line]:
        """Return line `first` and all that come; an unfinished one again when it has grown."""

    def problems(self, ports: Collection[str]) -> dict[str, str]:
        """Return of each port why what it prints now is not in its log, "" if it is."""


class DaemonLogs:
    """Lines that a daemon serves."""

    def __init__(self, daemon: Daemon) -> None:
        self._daemon = daemon

    def lines(self, port: str, query: LogQuery) -> Iterator[Line]:
        """See LogSource."""
        parameters = _parameters(query)
        return map(line_from_json, self._daemon.rows(f"/v1/logs/{part(port)}", parameters))

    def follow(
        self, port: str, first: int, text: bytes, *, has_ends: bool = False
    ) -> Iterator[Line]:
        """See LogSource."""
        wanted = LogQuery(first=first, text=text, has_ends=has_ends)
        parameters = _parameters(wanted) | {"follow": 1}
        yield from map(line_from_json, self._daemon.rows(f"/v1/logs/{part(port)}", parameters))
        raise CliError(f"the daemon at {self._daemon.path} has stopped")

    def problems(self, ports: Collection[str]) -> dict[str, str]:
        """See LogSource."""
        views = [view for answer in self._daemon.rows("/v1/ports") for view in answer["ports"]]
        told = {view["name"]: str(view["log_problem"] or "") for view in views}
        return {port: told.get(port, "it is not in the configuration any more") for port in ports}


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
        end=row.get("end", "").encode(),
    )


def _parameters(query: LogQuery) -> dict[str, str | int | None]:
    since, until = query.since_utc_ns, query.until_utc_ns
    try:
        grep, grep_hex = query.text.decode(), None
    except UnicodeDecodeError:  # no text at all: addresses hold nothing but text
        grep, grep_hex = "", query.text.hex()
    return {
        "first": query.first,
        "last": query.last,
        "n": query.newest,
        "since": None if since is None else iso(since),
        "until": None if until is None else iso(until),
        "boot": query.boot,
        "grep": grep or None,
        "grep_hex": grep_hex,
        "marker": query.marker or None,
        "boots": None if query.has_boots else 0,
        "ends": 1 if query.has_ends else None,
    }
