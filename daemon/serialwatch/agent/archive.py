"""The bench's past, read-only: logs and SQLite, read by one thread so that the loop never waits."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import TypeVar

from sqlite_utils import Database

from serialwatch.agent.ctx.log_query import LogView
from serialwatch.agent.skills.results import RefusedError
from serialwatch.store.database import StoreError
from serialwatch.store.log_reader import PortLog
from serialwatch.store.read import open_readonly

T = TypeVar("T")

OpenLog = Callable[[str], LogView | None]  # of a port, None if it has none


class Archive:
    """Logs and database of one state folder, or of a file that is being analysed.

    Everything but `ask` and `close` may be called in the work given to `ask` only.
    """

    def __init__(self, open_log: OpenLog, db_path: Path | None = None) -> None:
        self._open_log = open_log
        self._db_path = db_path
        self._logs: dict[str, LogView] = {}
        self._db: Database | None = None
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="archive")

    async def ask(self, work: Callable[[Archive], T]) -> T:
        """Return what `work` answers; it runs in the thread and is to end within a second."""
        return await asyncio.get_running_loop().run_in_executor(self._thread, work, self)

    def log(self, port: str) -> LogView:
        """Return the log of a port, up to date.

        Raises:
            RefusedError: there is none.

        """
        log = self._logs.get(port)
        if log is None:
            log = self._open_log(port)
            if log is None:
                raise RefusedError("precondition", f"there is no log of a port {port!r}")
            self._logs[port] = log
        log.refresh()
        return log

    @property
    def database(self) -> Database | None:
        """Return the database, None if there is none (yet)."""
        if self._db is None and self._db_path is not None and self._db_path.is_file():
            try:
                self._db = open_readonly(self._db_path)
            except StoreError as exc:
                raise RefusedError("precondition", "the database cannot be read now") from exc
        return self._db

    def close(self) -> None:
        """Close the database and end the thread."""
        self._thread.submit(self._close_database)
        self._thread.shutdown()

    def _close_database(self) -> None:
        if self._db is not None:
            self._db.close()
            self._db = None


def logs_below(log_dir: Path) -> OpenLog:
    """Return what opens `<log_dir>/<port>`, the folders of the log store."""

    def open_log(port: str) -> LogView | None:
        folder = log_dir / port
        if "/" in port or port.startswith(".") or not folder.is_dir():
            return None
        return PortLog(folder, port)

    return open_log
