"""The logs in the state folder of a daemon; apart, for `logs` imports only where it reads from."""

from __future__ import annotations

import os
import time
from collections.abc import Collection, Iterator
from pathlib import Path

from serialwatch.api.logs import LogQuery, PlaceError, from_marker, select
from serialwatch.cli.errors import CliError
from serialwatch.line import Line
from serialwatch.plain import holds
from serialwatch.store.log_reader import PortLog

LOOK_S = 0.2  # how often a saved log is looked at while it is followed


class SavedLogs:
    """Lines in the state folder of a daemon, which need not run."""

    def __init__(self, state: Path) -> None:
        self._state = state
        self._folder = state / "log"

    def lines(self, port: str, query: LogQuery) -> Iterator[Line]:
        """See log_source.LogSource."""
        try:
            saved = self._open(port)
            found = select(saved, from_marker(query, self._state, port))
            yield from (line for line in found if line is not None)
        except PlaceError as exc:
            raise CliError(f"{port}: {exc}") from exc
        except OSError as exc:
            raise unreadable(self._folder / port, exc) from exc

    def follow(
        self, port: str, first: int, text: bytes, *, has_ends: bool = False
    ) -> Iterator[Line]:
        """See log_source.LogSource; a line here always has its end."""
        saved = self._open(port)
        unfinished = b""
        while True:
            try:
                for line in saved.lines(first=first):
                    if line.is_complete:
                        first = line.seq + 1
                    elif line.raw == unfinished:
                        continue
                    unfinished = b"" if line.is_complete else line.raw
                    if holds(line.raw, text):
                        yield line
                time.sleep(LOOK_S)
                saved.refresh()
            except OSError as exc:
                raise unreadable(self._folder / port, exc) from exc

    def problems(self, ports: Collection[str]) -> dict[str, str]:
        """See log_source.LogSource: whether a daemon writes here is not known."""
        return dict.fromkeys(ports, "")

    def _open(self, port: str) -> PortLog:
        folder = self._folder / port
        there = saved_ports(self._folder)
        if port not in there:
            if not there:
                raise CliError(
                    f"{self._folder}: no saved logs: is its parent a state folder, such as "
                    "/var/lib/serialwatch or ~/.local/state/serialwatch?"
                )
            from serialwatch.cli.tables import safe  # here, for it takes long to import

            raise CliError(f"{folder}: no saved log: there are {', '.join(map(safe, there))}")
        try:
            return PortLog(folder, port)
        except OSError as exc:
            raise unreadable(folder, exc) from exc


def saved_ports(folder: Path) -> list[str]:
    """Return the ports that have a folder for their log.

    Raises:
        CliError: it may not be looked at.

    """
    try:
        return sorted(each.name for each in os.scandir(folder) if each.is_dir())
    except (FileNotFoundError, NotADirectoryError):
        return []
    except OSError as exc:
        raise unreadable(folder, exc) from exc


def unreadable(folder: Path, exc: OSError) -> CliError:
    """Return the error that tells what of a log cannot be read, and who may."""
    from serialwatch.cli.tables import safe  # here, for it takes long to import

    remedy = " (is this user in group serialwatch?)" if isinstance(exc, PermissionError) else ""
    return CliError(f"{safe(exc.filename or folder)}: cannot be read: {exc.strerror}{remedy}")
