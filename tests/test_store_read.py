"""Reading the database beside the daemon, and without one."""

from __future__ import annotations

import os
import sqlite3
import subprocess
import sys
import tempfile
from contextlib import closing
from pathlib import Path

import pytest

from serialwatch.store.database import Database, StoreError
from serialwatch.store.incidents import load_incidents, save_change
from serialwatch.store.read import open_readonly, read_once
from serialwatch.store.sqlite_file import open_file
from test_store_incidents import incident

READ = """
import os, sys
from pathlib import Path
from serialwatch.store.incidents import load_incidents
from serialwatch.store.read import open_readonly
if os.geteuid() == 0:  # root may write everywhere
    os.setgroups([])
    os.setgid(65534)
    os.setuid(65534)
print([i.id for i in load_incidents(open_readonly(Path(sys.argv[1])))])
"""


async def test_a_reader_sees_what_the_daemon_stored_a_moment_ago(tmp_path: Path) -> None:
    path = tmp_path / "serial watch?#%.db"
    db = Database(path)
    db.start()
    await db.run(lambda conn: save_change(conn, incident(1)))
    with closing(open_readonly(path)) as reader:
        assert [i.id for i in load_incidents(reader)] == [1]
        await db.run(lambda conn: save_change(conn, incident(2)))
        assert [i.id for i in load_incidents(reader)] == [2, 1]
    await db.stop()


def test_a_reader_cannot_write(tmp_path: Path) -> None:
    path = tmp_path / "serialwatch.db"
    open_file(path).close()
    with (
        closing(open_readonly(path)) as reader,
        pytest.raises(sqlite3.OperationalError, match="readonly"),
    ):
        save_change(reader, incident(1))


def test_a_missing_database_is_told_and_not_made(tmp_path: Path) -> None:
    with pytest.raises(StoreError, match="there is no database"):
        open_readonly(tmp_path / "serialwatch.db")

    assert list(tmp_path.iterdir()) == []


def test_what_is_no_database_is_told(tmp_path: Path) -> None:
    path = tmp_path / "serialwatch.db"
    path.write_bytes(b"this is no database, " * 1000)

    with pytest.raises(StoreError, match="cannot be read: file is not a database"):
        open_readonly(path)


def test_who_may_only_read_can_read_without_a_daemon() -> None:
    with tempfile.TemporaryDirectory() as name:  # pytest's own is closed to other users
        path = Path(name) / "serialwatch.db"
        db = open_file(path)
        save_change(db, incident(7))
        db.close()
        path.chmod(0o444)
        os.chmod(name, 0o555)
        script = [sys.executable, "-c", READ, str(path)]
        done = subprocess.run(script, stdout=subprocess.PIPE, text=True, check=True)
        os.chmod(name, 0o755)

    assert done.stdout == "[7]\n"


async def test_what_locks_the_database_hinders_no_look(tmp_path: Path) -> None:
    path = tmp_path / "serialwatch.db"
    db = Database(path)
    db.start()
    await db.run(lambda conn: save_change(conn, incident(7)))
    await db.stop()
    with closing(sqlite3.connect(path, isolation_level=None)) as other:
        other.execute("BEGIN EXCLUSIVE")

        assert [i.id for i in read_once(path, load_incidents)] == [7]


def test_a_look_that_fails_says_so(tmp_path: Path) -> None:
    path = tmp_path / "serialwatch.db"
    with closing(sqlite3.connect(path)) as other:
        other.execute("CREATE TABLE something (x)")

    with pytest.raises(StoreError, match="no such table"):
        read_once(path, load_incidents)
