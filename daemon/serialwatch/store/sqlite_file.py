"""The SQLite file itself: opened, checked, brought up to date, moved aside when damaged."""

from __future__ import annotations

import contextlib
import logging
import os
import sqlite3
import time
from contextlib import closing
from pathlib import Path

import sqlite_utils

from serialwatch.store.migrations import migrations
from serialwatch.wire import iso

log = logging.getLogger(__name__)

BUSY_S = 5.0  # to wait for another process that writes
CHECKED_BYTES = 64 * 1024 * 1024  # a larger file is checked only after an unclean end

_RIGHTS = "is the directory there, and writable for the user that runs serialwatch?"
_HELD = "another program holds it: close what has it open for writing"
_REMEDIES = {  # by SQLite's primary result code: what is wrong with the file, not with a job
    sqlite3.SQLITE_BUSY: _HELD,
    sqlite3.SQLITE_LOCKED: _HELD,
    sqlite3.SQLITE_READONLY: _RIGHTS,
    sqlite3.SQLITE_CANTOPEN: _RIGHTS,
    sqlite3.SQLITE_PERM: _RIGHTS,
    sqlite3.SQLITE_FULL: "make room on that disk",
    sqlite3.SQLITE_IOERR: "the disk failed: see dmesg",
    sqlite3.SQLITE_CORRUPT: "",
    sqlite3.SQLITE_NOTADB: "",
}


class DamagedError(Exception):
    """The file is no database, or one that cannot be trusted any more."""


class NewerError(Exception):
    """A newer serialwatch wrote the file."""

    def __init__(self, step: str) -> None:
        super().__init__(
            f"written by a newer serialwatch (its step {step} is unknown here):"
            " install that version again, or set [daemon] state_dir to another place"
        )


def open_file(path: Path) -> sqlite_utils.Database:
    """Open the file for writing, made if missing, with all tables.

    The connection commits each statement by itself unless a transaction was begun.

    Raises:
        DamagedError: its content is broken.
        NewerError: a newer serialwatch wrote it.
        OSError, sqlite3.Error: it cannot be opened or written.

    """
    wal = path.with_name(path.name + "-wal")
    is_unclean = wal.exists() and wal.stat().st_size > 0
    is_new = not path.exists() or path.stat().st_size == 0
    if not path.exists():  # it holds prompts and answers: as closed as the logs
        with contextlib.suppress(OSError):  # SQLite says what is wrong
            os.close(os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o640))
    conn = sqlite3.connect(path, timeout=BUSY_S, isolation_level=None)
    try:
        if is_new:
            conn.execute("PRAGMA auto_vacuum=INCREMENTAL")  # only before the first table
        conn.execute("PRAGMA journal_mode=WAL")
        conn.execute("PRAGMA synchronous=NORMAL")
        conn.execute("PRAGMA foreign_keys=ON")
        if is_unclean or path.stat().st_size <= CHECKED_BYTES:
            _check(conn)
        db = sqlite_utils.Database(conn, execute_plugins=False)
        _bring_up_to_date(db, path)
    except sqlite3.Error as exc:
        conn.close()
        if is_damage(exc):
            raise DamagedError(str(exc)) from exc
        raise
    except BaseException:
        conn.close()
        raise
    return db


def move_aside(path: Path) -> Path:
    """Rename a damaged file, with its journal, to `<name>.corrupt-<time>`; return that."""
    stamp = iso(time.time_ns())[:19].replace("-", "").replace(":", "") + "Z"
    aside = path.with_name(f"{path.name}.corrupt-{stamp}")
    number = 1
    while aside.exists():
        number += 1
        aside = path.with_name(f"{path.name}.corrupt-{stamp}-{number}")
    for end in ("-wal", "-shm", ""):
        part = path.with_name(path.name + end)
        if part.exists():
            part.rename(aside.with_name(aside.name + end))
    return aside


def is_sick(exc: sqlite3.Error) -> bool:
    """Tell whether the file is at fault (locked, read-only, full, broken), not the statement."""
    return _code(exc) in _REMEDIES


def is_damage(exc: sqlite3.Error) -> bool:
    """Tell whether the content of the file is broken."""
    return _code(exc) in {sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_NOTADB}


def is_held(exc: sqlite3.Error) -> bool:
    """Tell whether only another program is in the way."""
    return _code(exc) in {sqlite3.SQLITE_BUSY, sqlite3.SQLITE_LOCKED}


def problem_of(exc: sqlite3.Error | OSError) -> str:
    """Return what to tell people, with a remedy."""
    if isinstance(exc, OSError):
        return f"cannot be opened: {exc.strerror} ({_RIGHTS})"
    remedy = _REMEDIES.get(_code(exc), "")
    return f"cannot be written: {exc} ({remedy})" if remedy else f"cannot be written: {exc}"


def _check(conn: sqlite3.Connection) -> None:
    found = conn.execute("PRAGMA quick_check(1)").fetchone()
    if found != ("ok",):
        raise DamagedError(str(found[0]) if found else "the check gave no answer")


def _bring_up_to_date(db: sqlite_utils.Database, path: Path) -> None:
    with closing(sqlite_utils.Database(memory=True)) as empty:
        known = {step.name for step in migrations.pending(empty)}
    applied = [step.name for step in migrations.applied(db)]
    if newer := [name for name in applied if name not in known]:
        raise NewerError(newer[-1])
    if applied and len(applied) < len(known):
        log.info("%s: brought up to date from %s", path, applied[-1])
    migrations.apply(db)


def _code(exc: sqlite3.Error) -> int:
    """Return SQLite's primary result code, 0 where there is none."""
    return getattr(exc, "sqlite_errorcode", 0) & 0xFF
