"""The agent's queue and its runs."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest
from sqlite_utils import Database

from serialwatch.store.runs import (
    MessageRow,
    ResultRow,
    RoundRow,
    RunRow,
    SessionRow,
    SkillCallRow,
    Trace,
    enqueue,
    finish,
    load_queue,
    load_run,
    load_runs,
    load_trace,
    message_hash,
    next_queue_id,
    resume,
    save_trace,
    start,
    take,
    trace_from_json,
    trace_to_json,
)
from serialwatch.store.sqlite_file import open_file

UTC = 1_782_000_000_123_456_000

SESSION = SessionRow("s1", "ann", "log-detective", 3, "dut1", UTC, UTC + 1000, "done", "a panic")
RUN = RunRow(
    "r1", "s1", "model", "settled", 3, "dut1", "log-detective", "m", "http://x", UTC, UTC + 1000,
    "reported", "", [{"step": 1, "task": "read"}], ["note"], 2, 800,
)  # fmt: skip
HASH = message_hash("user", "dut1:L5")
TRACE = Trace(
    SESSION,
    RUN,
    [RoundRow(1, "act", "native", [HASH], {"content": "…"}, 500, 30, 900, "ok")],
    [MessageRow(HASH, "user", "dut1:L5")],
    [SkillCallRow(1, 0, "log-read", "1.0.0", "abc", {"first": 5}, "success", "", "R1", 12)],
    [ResultRow("R1", {"lines": [1, 2]}), ResultRow("R2", {})],
)


@pytest.fixture
def db(tmp_path: Path) -> Iterator[Database]:
    opened = open_file(tmp_path / "serialwatch.db")
    yield opened
    opened.close()


def test_work_is_taken_by_kind_then_age(db: Database) -> None:
    enqueue(db, "digest")
    question = enqueue(db, "question", body={"text": "why?"}, port="dut1")
    first = enqueue(db, "incident", phase="opened", incident_id=1, port="dut1")
    second = enqueue(db, "incident", phase="opened", incident_id=2, port="dut2")
    taken = [take(db) for _ in range(5)]

    assert [t and t.kind for t in taken] == ["incident", "incident", "question", "digest", None]
    assert [t.id for t in taken[:3] if t] == [first, second, question]
    assert taken[2] is not None
    assert (taken[2].body, taken[2].state) == ({"text": "why?"}, "running")
    assert next_queue_id(db) == 5


def test_what_was_running_is_queued_again_after_a_restart(db: Database) -> None:
    one = enqueue(db, "incident", phase="opened", incident_id=1)
    two = enqueue(db, "incident", phase="settled", incident_id=1)
    three = enqueue(db, "incident", phase="outcome", incident_id=1)
    start(db, one)
    start(db, two)
    finish(db, one, is_ok=True)
    finish(db, one, is_ok=False)  # told twice: the first time counts

    assert resume(db) == 1
    assert [q.id for q in load_queue(db)] == [two, three]
    (done,) = load_queue(db, states=["done", "failed"])
    assert (done.id, done.state) == (one, "done")
    assert done.ended_utc_ns is not None
    start(db, one)
    assert len(load_queue(db, states=["running"])) == 0


def test_a_run_comes_back_step_by_step(db: Database) -> None:
    save_trace(db, TRACE)

    assert load_trace(db, "r1") == TRACE
    assert load_run(db, "r1") == RUN
    assert load_run(db, "r2") is None
    assert load_trace(db, "r2") is None


def test_a_run_that_goes_on_is_brought_up_to_date(db: Database) -> None:
    begun = replace(RUN, ended_utc_ns=None, exit_status="running", model_calls=0)
    save_trace(db, Trace(SESSION, begun, skill_calls=TRACE.skill_calls))
    save_trace(db, replace(TRACE, skill_calls=()))

    assert load_trace(db, "r1") == TRACE


def test_a_message_is_stored_once(db: Database) -> None:
    save_trace(db, TRACE)
    save_trace(db, replace(TRACE, run=replace(RUN, id="r2")))

    assert db.execute("SELECT count(*) FROM messages").fetchone() == (1,)
    assert message_hash("user", {"b": 1, "a": 2}) == message_hash("user", {"a": 2, "b": 1})
    assert message_hash("user", "x") != message_hash("tool", "x")


def test_runs_are_found_newest_first(db: Database) -> None:
    for n, port in enumerate(("dut1", "dut2", "dut1")):
        run = replace(RUN, id=f"r{n}", port=port, incident_id=n, started_utc_ns=UTC + n * 1000)
        save_trace(db, Trace(SESSION, run))

    assert [r.id for r in load_runs(db)] == ["r2", "r1", "r0"]
    assert [r.id for r in load_runs(db, port="dut1", limit=1)] == ["r2"]
    assert [r.id for r in load_runs(db, incident_id=1)] == ["r1"]


def test_a_trace_travels_as_json() -> None:
    body = json.loads(json.dumps(trace_to_json(TRACE)))

    assert trace_from_json(body) == TRACE
    with pytest.raises(TypeError):
        trace_from_json(body | {"run": {"id": "r1"}})
    with pytest.raises(KeyError):
        trace_from_json({})
