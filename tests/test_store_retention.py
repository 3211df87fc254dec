"""What is deleted by age, and how large the tables are."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest
from sqlite_utils import Database

from serialwatch.store.audit import AuditRow, load_audit, save_audit
from serialwatch.store.incidents import load_incidents, save_change
from serialwatch.store.retention import DAY_NS, database_bytes, prune_rows, table_sizes
from serialwatch.store.runs import (
    MessageRow,
    RoundRow,
    enqueue,
    finish,
    load_runs,
    load_trace,
    message_hash,
    save_trace,
)
from serialwatch.store.sqlite_file import open_file
from test_store_incidents import incident
from test_store_runs import RUN, SESSION, TRACE, UTC


@pytest.fixture
def db(tmp_path: Path) -> Iterator[Database]:
    opened = open_file(tmp_path / "serialwatch.db")
    yield opened
    opened.close()


def counts(db: Database) -> dict[str, int]:
    return {size.name: size.rows for size in table_sizes(db)}


def save_run(db: Database, id: str, session: str, days_ago: int, *texts: str) -> None:
    at_ns = UTC - days_ago * DAY_NS
    hashes = [message_hash("user", text) for text in texts]
    save_trace(
        db,
        replace(
            TRACE,
            session=replace(SESSION, session_id=session, started_utc_ns=at_ns),
            run=replace(RUN, id=id, session_id=session, started_utc_ns=at_ns),
            rounds=[RoundRow(1, "act", "native", hashes, {}, 0, 0, 0, "ok")],
            messages=[MessageRow(h, "user", t) for h, t in zip(hashes, texts, strict=True)],
        ),
    )


def test_old_runs_go_with_all_that_belongs_to_them_alone(db: Database) -> None:
    save_run(db, "old", "s1", 31, "shared", "old only")
    save_run(db, "new", "s2", 29, "shared", "new only")
    kept = load_trace(db, "new")

    assert prune_rows(db, 30, UTC) == 7  # run, session, round, call, two results, message
    assert [run.id for run in load_runs(db)] == ["new"]
    assert load_trace(db, "new") == kept
    assert (counts(db)["messages"], counts(db)["sessions"]) == (2, 1)
    assert prune_rows(db, 30, UTC) == 0


def test_a_session_that_goes_on_stays(db: Database) -> None:
    save_run(db, "new", "s1", 5, "text")
    save_run(db, "old", "s1", 31, "text")  # the session began then

    prune_rows(db, 30, UTC)
    assert load_trace(db, "new") is not None


def test_old_deeds_and_finished_work_go_and_incidents_stay(db: Database) -> None:
    save_change(db, incident(1, opened_utc_ns=UTC - 900 * DAY_NS))
    for days in (31, 29):
        save_audit(db, AuditRow(UTC - days * DAY_NS, 0, "ann", 1, "send", "dut1", 1, {}, "ok"))
    finish(db, enqueue(db, "incident", phase="opened", incident_id=1), is_ok=True)
    enqueue(db, "question")

    assert prune_rows(db, 30, UTC) == 1
    assert len(load_audit(db)) == 1
    assert len(load_incidents(db)) == 1
    assert counts(db)["queue"] == 2
    assert prune_rows(db, 30, UTC + 10_000 * DAY_NS) == 2  # the other deed, the work that is done
    assert counts(db)["queue"] == 1


def test_room_goes_back_to_the_disk(db: Database) -> None:
    for n in range(50):
        save_run(db, f"r{n}", "s1", 31, f"{n}" + "x" * 20_000)
    before = database_bytes(db)
    prune_rows(db, 30, UTC)

    assert before > 1_000_000
    assert database_bytes(db) < before / 4


def test_sizes_are_told_largest_first(db: Database) -> None:
    save_run(db, "r", "s1", 1, "x" * 100_000)
    sizes = table_sizes(db)

    assert sizes[0].name == "messages"
    assert sizes[0].rows == 1
    assert 100_000 < sizes[0].bytes < 130_000
    assert sum(size.bytes for size in sizes) <= database_bytes(db)
    assert "memories" in counts(db)
