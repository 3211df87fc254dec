from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from sqlite_utils import Database

from serialwatch.agent.workers.worker import Workers
from serialwatch.store.late_results import (
    MAX_BODY,
    LateResult,
    late_result_from_json,
    load_done_calls,
    load_late_results,
    save_late_result,
)
from serialwatch.store.runs import ResultRow, RunRow, SessionRow, SkillCallRow, Trace, save_trace
from serialwatch.store.sqlite_file import open_file
from skill_maker import make_skill
from skill_run import opened_run

UTC = 1_782_000_000_123_456_000
BODY = {"status": "success", "output": {"n": 7}, "metadata": {}}


@pytest.fixture
def db(tmp_path: Path) -> Iterator[Database]:
    opened = open_file(tmp_path / "serialwatch.db")
    yield opened
    opened.close()


def test_late_results_come_back_by_run_oldest_first(db: Database) -> None:
    late = [LateResult(f"J{n}", "r1", "a-b", BODY, UTC - n * 1000) for n in range(2)]
    for each in (*late, LateResult("J9", "r2", "a-b", BODY, UTC)):
        save_late_result(db, each)

    assert load_late_results(db, "r1") == [late[1], late[0]]


def test_the_same_job_is_stored_once(db: Database) -> None:
    for n in (1, 2):
        save_late_result(db, LateResult("J1", "r1", "a-b", {"n": n}, UTC))

    assert [late.body for late in load_late_results(db, "r1")] == [{"n": 2}]


def test_a_result_without_end_is_refused(db: Database) -> None:
    with pytest.raises(ValueError, match="'J1': more than"):
        save_late_result(db, LateResult("J1", "r1", "a-b", {"t": "x" * MAX_BODY}, UTC))


def test_what_the_agent_sends_is_read() -> None:
    sent = {"job_id": "J1", "run_id": "r1", "skill": "a-b", "body": BODY}

    assert late_result_from_json(sent, UTC) == LateResult("J1", "r1", "a-b", BODY, UTC)
    with pytest.raises(KeyError):
        late_result_from_json({"job_id": "J1"}, UTC)


def test_done_calls_are_the_successful_ones_of_the_run(db: Database) -> None:
    _store_calls(db)

    (call,) = load_done_calls(db, "run-1", "a-b")

    assert (call.args, call.result_id, call.body) == ({"n": 1}, "R4", {"count": 9})
    assert load_done_calls(db, "run-2", "a-b") == []


async def test_a_call_that_wrote_is_not_done_again_by_the_next_agent(
    db: Database, tmp_path: Path
) -> None:
    _store_calls(db)
    make_skill(
        tmp_path / "skills",
        "a-b",
        "return SkillResult('success', {'count': 0})",
        schema={
            "type": "object",
            "additionalProperties": False,
            "properties": {"n": {"type": "integer"}},
        },
        risk="L2",
    )
    async with Workers() as workers:
        with opened_run([tmp_path / "skills"], db_path=tmp_path / "serialwatch.db") as ctx:
            done = await workers.run("a-b", {"n": 1}, ctx)
            failed_before = await workers.run("a-b", {"n": 2}, ctx)

    assert (done.output, done.metadata["result"]) == ({"count": 9}, "R4")
    assert done.metadata["repeated"] is True
    assert failed_before.output == {"count": 0}


def _store_calls(db: Database) -> None:
    session = SessionRow("s1", "", "log-detective", 3, "dut1", UTC, None, "", "a panic")
    run = RunRow("run-1", "s1", "model", "settled", 3, "dut1", "log-detective", "m", "http://x",
                 UTC, None, "", "")  # fmt: skip
    calls = [
        SkillCallRow(1, 1, "a-b", "1.0.0", "abc", {"n": 1}, "success", "", "R4", 12),
        SkillCallRow(2, 1, "a-b", "1.0.0", "abc", {"n": 2}, "failure", "crashed", "R5", 12),
        SkillCallRow(3, 1, "c-d", "1.0.0", "abc", {"n": 1}, "success", "", "R6", 12),
    ]
    save_trace(db, Trace(session, run, [], [], calls, [ResultRow("R4", {"count": 9})]))
