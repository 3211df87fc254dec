"""The database for those who only read: the agent, and commands without a daemon."""

from __future__ import annotations

import sqlite3
from contextlib import closing
from pathlib import Path
from typing import TypeVar
from urllib.parse import quote

import sqlite_utils

from serialwatch.store.database import Job, StoreError
from serialwatch.store.sqlite_file import BUSY_S, is_damage

T = TypeVar("T")


def open_readonly(path: Path) -> sqlite_utils.Database:
    """Open the database beside a daemon that writes it, or without one; close it when done.

    It may be used in the thread that opened it only.

    Raises:
        StoreError: there is none, or it cannot be read.

    """
    if not path.exists():
        raise StoreError(path, "there is no database (has serialwatch run with this state_dir?)")
    try:
        return _open(path, "mode=ro")
    except sqlite3.Error as exc:
        # Readers share memory through a file beside the database. Where that cannot be made, the
        # database can still be read as long as nobody writes it.
        if is_damage(exc) or path.with_name(path.name + "-wal").exists():
            raise StoreError(path, f"cannot be read: {exc}") from exc
    try:
        return _open(path, "mode=ro&immutable=1")
    except sqlite3.Error as exc:
        raise StoreError(path, f"cannot be read: {exc}") from exc


def read_once(path: Path, fn: Job[T]) -> T:
    """Return what `fn` finds in the database, which nobody may have made yet: None is changed.

    Raises:
        StoreError: there is none, or it cannot be read.

    """
    with closing(open_readonly(path)) as db:
        try:
            return fn(db)
        except sqlite3.Error as exc:
            raise StoreError(path, f"cannot be read: {exc}") from exc


def _open(path: Path, how: str) -> sqlite_utils.Database:
    conn = sqlite3.connect(f"file:{quote(str(path.absolute()))}?{how}", timeout=BUSY_S, uri=True)
    try:
        conn.execute("SELECT count(*) FROM sqlite_schema").fetchone()
        return sqlite_utils.Database(conn, execute_plugins=False)
    except BaseException:
        conn.close()
        raise
