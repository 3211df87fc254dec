"""The thread that owns SQLite, over real files."""

from __future__ import annotations

import asyncio
import os
import random
import sqlite3
import subprocess
import sys
import tempfile
import threading
from collections.abc import AsyncIterator, Callable
from contextlib import closing
from pathlib import Path

import pytest
import pytest_asyncio
import sqlite_utils

from bench_cable import within_s
from bench_ear import watched_loop
from serialwatch.store import database, sqlite_file
from serialwatch.store.database import Database, SchemaTooNewError, StoreError

HOLD = """
import sqlite3, sys, time
conn = sqlite3.connect(sys.argv[1], isolation_level=None)
conn.execute("BEGIN EXCLUSIVE")
print("held", flush=True)
if sys.argv[2:]:
    time.sleep(float(sys.argv[2]))
else:
    sys.stdin.readline()
conn.execute("COMMIT")
"""

WRITE = """
import asyncio, sys
from pathlib import Path
from serialwatch.store.database import Database, SchemaTooNewError, StoreError
async def main():
    db = Database(Path(sys.argv[1]))
    db.start()
    for number in range(int(sys.argv[2]), 10**9):
        def add(conn, number=number):
            conn.execute("INSERT INTO mutes VALUES (?, NULL, 'x', 'y')", [f"{number}"])
            conn.execute("INSERT INTO mutes VALUES (?, NULL, 'x', ?)", [f"{number}b", "z" * 3000])
        await db.run(add)
        print(number, flush=True)
asyncio.run(main())
"""

AS_NOBODY = """
import asyncio, os, sys
from pathlib import Path
from serialwatch.store.database import Database, SchemaTooNewError, StoreError
import sqlite_utils.plugins, encodings.idna
async def main():
    if os.geteuid() == 0:  # root may write everywhere
        os.setgroups([])
        os.setgid(65534)
        os.setuid(65534)
    db = Database(Path(sys.argv[1]))
    db.start()
    try:
        await db.opened()
    except StoreError as exc:
        print(exc)
    print(db.healthy)
    await db.stop()
asyncio.run(main())
"""


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "serialwatch.db"


@pytest_asyncio.fixture
async def db(path: Path) -> AsyncIterator[Database]:
    opened = Database(path)
    opened.start()
    yield opened
    await opened.stop()


def add(name: str) -> Callable[[sqlite_utils.Database], None]:
    def job(db: sqlite_utils.Database) -> None:
        db.execute("INSERT INTO mutes VALUES (?, NULL, 'x', 'y')", [name])

    return job


def names(db: sqlite_utils.Database) -> list[str]:
    return [row[0] for row in db.execute("SELECT fingerprint FROM mutes ORDER BY rowid")]


async def turned(what: Callable[[], bool]) -> None:
    """Wait until `what` holds."""
    async with asyncio.timeout(10):
        while not what():
            await asyncio.sleep(0.01)


class Holder:
    """Another process that writes to the database and does not come to an end."""

    def __init__(self, path: Path, *args: str) -> None:
        self.process = subprocess.Popen(
            [sys.executable, "-c", HOLD, str(path), *args],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
        )

    async def held(self) -> None:
        stdout = self.process.stdout
        assert stdout is not None
        assert await asyncio.to_thread(stdout.readline) == b"held\n"

    async def let_go(self) -> None:
        await asyncio.to_thread(self.process.communicate, b"\n")


# A healthy database


async def test_a_job_runs_in_the_thread_and_its_result_comes_back(db: Database) -> None:
    result = await db.run(lambda _: threading.current_thread().name)

    assert result == "sqlite"
    assert db.healthy
    assert db.problem == ""


async def test_the_tables_are_made_and_the_file_reads_by_itself(db: Database, path: Path) -> None:
    await db.run(add("one"))

    with closing(sqlite3.connect(path)) as other:
        assert other.execute("SELECT fingerprint FROM mutes").fetchall() == [("one",)]
        assert other.execute("PRAGMA journal_mode").fetchone() == ("wal",)
        assert other.execute("PRAGMA auto_vacuum").fetchone() == (2,)


async def test_only_owner_and_group_can_read_it(tmp_path: Path) -> None:
    before = os.umask(0o022)
    try:
        db = sqlite_file.open_file(tmp_path / "sw.db")
    finally:
        os.umask(before)
    modes = {each.name: each.stat().st_mode & 0o777 for each in tmp_path.iterdir()}
    db.close()

    assert modes == {"sw.db": 0o640, "sw.db-wal": 0o640, "sw.db-shm": 0o640}


async def test_what_a_job_raises_undoes_it_and_reaches_its_caller(db: Database) -> None:
    def job(conn: sqlite_utils.Database) -> None:
        add("one")(conn)
        raise ValueError("no")

    with pytest.raises(ValueError, match="no"):
        await db.run(job)

    assert await db.run(names) == []
    assert db.healthy


async def test_a_wrong_statement_is_the_caller_s_fault_not_the_file_s(db: Database) -> None:
    with pytest.raises(sqlite3.OperationalError, match="no such table"):
        await db.run(lambda conn: conn.execute("SELECT * FROM nowhere"))
    with pytest.raises(sqlite3.IntegrityError):
        await db.run(lambda conn: conn.execute("INSERT INTO hits (incident_id) VALUES (1)"))

    assert db.healthy


async def test_a_row_of_no_incident_is_refused(db: Database) -> None:
    sql = "INSERT INTO memory_links VALUES (99, 'log-read', '1')"
    with pytest.raises(sqlite3.IntegrityError, match="FOREIGN KEY"):
        await db.run(lambda conn: conn.execute(sql))


async def test_jobs_run_in_the_order_in_which_they_came(db: Database) -> None:
    for number in range(50):
        db.post(add(f"post {number}"))
        db.keep(add(f"keep {number}"), f"k{number}")
    found = await db.run(names)

    assert found == [f"{kind} {n}" for n in range(50) for kind in ("post", "keep")]


async def test_what_is_kept_durably_is_synced(db: Database) -> None:
    def level(conn: sqlite_utils.Database) -> int:
        return int(conn.execute("PRAGMA synchronous").fetchone()[0])

    assert await db.keep(level, "audit 1", durable=True) == 2  # FULL
    assert await db.keep(level, "incident 1") == 1  # NORMAL


async def test_a_durable_job_is_synced_and_the_next_one_is_not(db: Database) -> None:
    def level(conn: sqlite_utils.Database) -> int:
        return int(conn.execute("PRAGMA synchronous").fetchone()[0])

    assert await db.run(level, durable=True) == 2  # FULL
    assert await db.run(level) == 1  # NORMAL


async def test_a_kept_job_tells_when_it_is_stored(db: Database) -> None:
    stored = db.keep(lambda _: 42, "incident 1")
    assert db.is_unsaved("incident 1")

    assert await within_s(5, stored) == 42
    assert not db.is_unsaved("incident 1")
    assert db.unsaved == 0


async def test_a_kept_job_that_is_wrong_is_logged_and_let_go(
    db: Database, caplog: pytest.LogCaptureFixture
) -> None:
    wrong = db.keep(lambda conn: conn.execute("SELECT nothing"), "incident 7")
    await db.run(names)

    assert wrong.cancelled()
    assert db.dropped_keeps == 1
    assert "incident 7 is not stored" in caplog.text


async def test_a_caller_that_gave_up_does_no_harm(db: Database) -> None:
    task = asyncio.create_task(db.run(add("one")))
    await asyncio.sleep(0)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task

    assert await db.run(names) == ["one"]


async def test_stop_does_what_waits_and_leaves_one_file(path: Path) -> None:
    db = Database(path)
    db.start()
    for number in range(200):
        db.post(add(str(number)))
    await db.stop()

    with closing(sqlite3.connect(path)) as other:
        assert other.execute("SELECT count(*) FROM mutes").fetchone() == (200,)
    assert [p.name for p in path.parent.iterdir()] == ["serialwatch.db"]
    assert not any(t.name == "sqlite" for t in threading.enumerate())


async def test_a_stopped_database_refuses(path: Path) -> None:
    db = Database(path)
    await db.stop()
    db.start()
    await db.stop()
    await db.stop()

    with pytest.raises(StoreError, match="closed"):
        await db.run(names)
    assert not db.post(add("one"))
    assert db.keep(add("one"), "k").cancelled()
    assert not db.healthy
    assert (db.dropped_posts, db.dropped_keeps) == (1, 1)


async def test_a_second_start_finds_what_the_first_left(path: Path) -> None:
    for number in range(3):
        db = Database(path)
        db.start()
        await db.run(add(str(number)))
        await db.stop()

    with closing(sqlite3.connect(path)) as other:
        assert other.execute("SELECT count(*) FROM mutes").fetchone() == (3,)


# Somebody else writes


async def test_the_loop_turns_while_another_process_holds_the_file(
    db: Database, path: Path
) -> None:
    await db.opened()
    holder = Holder(path, "1.5")
    await holder.held()

    with watched_loop() as loop:
        await db.run(add("one"))
    await holder.let_go()
    assert await db.run(names) == ["one"]
    assert loop.worst_s < 0.3
    assert db.healthy


async def test_a_file_held_for_long_fails_runs_and_keeps_the_rest(
    db: Database, path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    await db.opened()
    await db.run(lambda conn: conn.execute("PRAGMA busy_timeout = 100"))
    holder = Holder(path)
    await holder.held()

    db.post(add("post"))
    kept = db.keep(add("keep"), "incident 1")
    with pytest.raises(StoreError, match=r"locked \(another program holds it"):
        await db.run(add("run"))
    assert not db.healthy
    assert "another program holds it" in db.problem
    with pytest.raises(StoreError):  # at once
        await within_s(0.05, db.run(add("run")))
    assert db.unsaved == 1
    await turned(lambda: db._retry_s > 1)  # tried again, more than once

    await holder.let_go()
    await within_s(10, kept)
    assert await db.run(names) == ["post", "keep"]
    assert db.healthy
    told = [r.levelname for r in caplog.records if r.name == "serialwatch.store.database"]
    assert told == ["ERROR", "WARNING"]


async def test_a_reader_does_not_hinder_writing(db: Database, path: Path) -> None:
    await db.run(add("one"))
    with closing(sqlite3.connect(path)) as reader:
        reader.execute("BEGIN")
        assert reader.execute("SELECT count(*) FROM mutes").fetchone() == (1,)
        await db.run(add("two"))
        assert reader.execute("SELECT count(*) FROM mutes").fetchone() == (1,)


# What waits is bounded


@pytest_asyncio.fixture
async def ill(tmp_path: Path) -> AsyncIterator[Database]:
    """A database whose folder is missing."""
    made = Database(tmp_path / "missing" / "serialwatch.db")
    made.start()
    with pytest.raises(StoreError):
        await made.opened()
    yield made
    await made.stop()


async def test_posts_beyond_the_limit_are_counted(
    ill: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(database, "MAX_WAITING", 10)

    assert [ill.post(add(str(n))) for n in range(12)] == [True] * 10 + [False] * 2
    assert ill.dropped_posts == 2


async def test_256_incidents_are_kept_and_more_are_counted(ill: Database) -> None:
    kept = [ill.keep(add(str(n)), f"incident {n}") for n in range(258)]
    more = ill.keep(add("again"), "incident 3")

    assert [k.cancelled() for k in kept] == [False] * 256 + [True] * 2
    assert not more.cancelled()
    assert (ill.unsaved, ill.dropped_keeps) == (256, 2)


async def test_of_replaceable_jobs_with_one_key_only_the_newest_waits(ill: Database) -> None:
    first = ill.keep(add("1"), "incident 1")
    second = ill.keep(add("2"), "incident 1", replaces=True)
    third = ill.keep(add("3"), "incident 1", replaces=True)
    await asyncio.sleep(0)
    await asyncio.sleep(0)
    assert second.cancelled()
    ill.path.parent.mkdir()

    await within_s(10, asyncio.gather(first, third))
    assert await ill.run(names) == ["1", "3"]


async def test_what_could_not_be_stored_by_the_end_is_counted_and_told(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    db = Database(tmp_path / "missing" / "serialwatch.db")
    db.start()
    kept = db.keep(add("1"), "incident 1")
    db.post(add("2"))
    await db.stop()

    assert kept.cancelled()
    assert (db.dropped_keeps, db.dropped_posts) == (1, 1)
    assert "not stored: 1 incidents or reports, 1 other rows" in caplog.text


# Trouble with the file


async def test_a_missing_folder_is_told_with_a_remedy_and_heals(ill: Database) -> None:
    assert ill.problem == (
        "cannot be written: unable to open database file"
        " (is the directory there, and writable for the user that runs serialwatch?)"
    )
    ill.post(add("posted"))
    ill.path.parent.mkdir()
    await turned(lambda: ill.healthy)

    assert await ill.run(names) == ["posted"]


def test_a_folder_that_cannot_be_written_is_told_with_a_remedy() -> None:
    with tempfile.TemporaryDirectory() as name:  # pytest's own is closed to other users
        Path(name).chmod(0o555)
        script = [sys.executable, "-c", AS_NOBODY, f"{name}/serialwatch.db"]
        done = subprocess.run(script, stdout=subprocess.PIPE, text=True, check=True)
        Path(name).chmod(0o755)

    assert "serialwatch.db: cannot be written: unable to open database file (is the" in done.stdout
    assert done.stdout.endswith("\nFalse\n")


def test_a_file_that_cannot_be_written_is_told_with_a_remedy() -> None:
    with tempfile.TemporaryDirectory() as name:
        path = Path(name) / "serialwatch.db"
        sqlite_file.open_file(path).conn.close()
        path.chmod(0o444)
        Path(name).chmod(0o555)
        script = [sys.executable, "-c", AS_NOBODY, str(path)]
        done = subprocess.run(script, stdout=subprocess.PIPE, text=True, check=True)
        Path(name).chmod(0o755)

    assert "cannot be written: " in done.stdout
    assert "writable for the user that runs serialwatch?" in done.stdout
    assert done.stdout.endswith("\nFalse\n")


async def test_a_full_disk_is_told_and_heals(
    db: Database, caplog: pytest.LogCaptureFixture
) -> None:
    def fill(conn: sqlite_utils.Database) -> None:
        conn.execute("INSERT INTO mutes VALUES (?, NULL, 'x', 'y')", ["z" * 100_000])

    pages = await db.run(lambda conn: conn.execute("PRAGMA page_count").fetchone()[0])
    await db.run(lambda conn: conn.execute(f"PRAGMA max_page_count = {pages}").fetchone())
    kept = db.keep(fill, "incident 1")

    await within_s(10, kept)  # the limit went with the connection
    assert "database or disk is full (make room on that disk)" in caplog.text
    assert db.healthy


async def test_a_full_disk_is_told_once_however_many_rows_it_refuses(
    db: Database, caplog: pytest.LogCaptureFixture
) -> None:
    def fill(conn: sqlite_utils.Database) -> None:
        conn.execute("INSERT INTO mutes VALUES (?, NULL, 'x', 'y')", ["z" * 100_000])

    async def refuse() -> None:
        pages = await db.run(lambda conn: conn.execute("PRAGMA page_count").fetchone()[0])
        await db.run(lambda conn: conn.execute(f"PRAGMA max_page_count = {pages}").fetchone())
        with pytest.raises(StoreError):
            await db.run(fill)

    for _ in range(3):  # what is small still fits in: it heals, and is full again
        await refuse()
        with pytest.raises(StoreError):
            await db.run(add("one"))
        await within_s(10, db.keep(lambda _: None, "incident 1"))
    messages = [record.getMessage() for record in caplog.records]

    assert sum("database or disk is full" in text for text in messages) == 1
    assert sum("written again" in text for text in messages) == 1


async def test_what_is_no_database_is_moved_aside(
    path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    path.write_bytes(b"this is no database, " * 1000)
    db = Database(path)
    db.start()
    await db.run(add("one"))
    await db.stop()

    (aside,) = path.parent.glob("serialwatch.db.corrupt-2*Z")
    assert aside.read_bytes().startswith(b"this is no database")
    assert db.moved_aside == (aside,)
    assert f"moved to {aside}" in caplog.text


async def test_a_damaged_page_is_found_at_the_start(path: Path) -> None:
    fill(path)
    damage(path)
    db = Database(path)
    db.start()

    assert await db.run(names) == []
    assert len(db.moved_aside) == 1
    await db.stop()


async def test_a_damaged_page_found_later_does_not_stop_the_daemon(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    fill(path)
    damage(path)
    monkeypatch.setattr(sqlite_file, "CHECKED_BYTES", 0)
    db = Database(path)
    db.start()
    await db.opened()
    assert db.moved_aside == ()

    assert await db.run(names) == []  # run again, on the fresh one
    assert len(db.moved_aside) == 1
    await db.run(add("one"))
    await db.stop()


async def test_two_damaged_files_in_a_second_are_both_kept(path: Path) -> None:
    for _ in range(2):
        path.write_bytes(b"this is no database, " * 1000)
        db = Database(path)
        db.start()
        await db.opened()
        await db.stop()

    assert len(list(path.parent.glob("serialwatch.db.corrupt-*"))) == 2


async def test_a_newer_schema_is_refused_and_left_alone(path: Path) -> None:
    made = sqlite_file.open_file(path)
    made.execute(
        "INSERT INTO _sqlite_migrations (migration_set, name, applied_at)"
        " VALUES ('serialwatch', 'm999_future', 'x')"
    )
    made.conn.close()
    db = Database(path)
    db.start()

    with pytest.raises(SchemaTooNewError, match=r"a newer serialwatch \(its step m999_future"):
        await db.opened()
    assert not db.healthy
    await db.stop()
    assert [p.name for p in path.parent.iterdir()] == ["serialwatch.db"]


def test_no_acknowledged_row_is_lost_by_kill_9(path: Path) -> None:
    rng = random.Random(3)
    acknowledged: set[str] = set()
    for turn in range(6):
        script = [sys.executable, "-c", WRITE, str(path), str(turn * 1_000_000)]
        with subprocess.Popen(script, stdout=subprocess.PIPE, text=True) as process:
            assert process.stdout is not None
            acknowledged |= {process.stdout.readline().strip() for _ in range(rng.randint(1, 300))}
            process.kill()
            rest = process.stdout.read()
        acknowledged |= set(rest[: rest.rfind("\n") + 1].split())

        with closing(sqlite3.connect(path)) as conn:
            assert conn.execute("PRAGMA integrity_check").fetchone() == ("ok",)
            found = {row[0] for row in conn.execute("SELECT fingerprint FROM mutes")}
        assert acknowledged <= found
        assert len(found) == 2 * len({name.removesuffix("b") for name in found})  # both or none


def fill(path: Path) -> None:
    made = sqlite_file.open_file(path)
    with made.atomic():
        for number in range(2000):
            made.execute(
                "INSERT INTO mutes VALUES (?, NULL, 'x', ?)", [f"{number:032}", "filler " * 20]
            )
    made.conn.close()


def damage(path: Path) -> None:
    """Overwrite most of the file, not its first pages."""
    size = path.stat().st_size
    with path.open("r+b") as file:
        file.seek(size // 2)
        file.write(os.urandom(size // 3))


def test_the_thread_module_starts_nothing_by_itself() -> None:
    script = "import serialwatch.store.database, threading; print(threading.active_count())"
    done = subprocess.run(
        [sys.executable, "-c", script], stdout=subprocess.PIPE, text=True, check=True
    )

    assert done.stdout == "1\n"


async def test_an_end_waits_for_no_other_program_for_long(tmp_path: Path) -> None:
    path = tmp_path / "serialwatch.db"
    db = Database(path)
    db.start()
    await db.opened()
    with closing(sqlite3.connect(path, isolation_level=None)) as other:
        other.execute("BEGIN EXCLUSIVE")

        await within_s(3, db.stop())
