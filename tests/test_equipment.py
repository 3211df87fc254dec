from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from serialwatch.agent.archive import Archive
from serialwatch.agent.core_link import CoreError
from serialwatch.agent.equipment import CALLS_A_MINUTE, MAX_RUNS, Equipment
from serialwatch.agent.workers.worker import Late
from serialwatch.records import SkillResult

RESULT = SkillResult("success", {"a": 1}, metadata={"result": "R1"})


class Link:
    """The core, which notes what it is asked."""

    def __init__(self) -> None:
        self.asked: list[tuple[str, Mapping[str, Any]]] = []
        self.is_gone = False

    async def ask(self, op: str, body: Mapping[str, Any], limit_s: float = 1) -> Any:
        if self.is_gone:
            raise CoreError("gone")
        self.asked.append((op, body))


async def submit(body: dict[str, Any]) -> dict[str, Any]:
    return {}


def equipment() -> tuple[Equipment, Link]:
    link: Any = Link()
    return Equipment(link, Archive(lambda _: None)), link


async def test_a_late_result_is_stored_and_reaches_the_run_that_still_goes_on() -> None:
    made, link = equipment()
    tools = made.tools("run1", submit=submit)
    await made.take_late(Late("job1", "run1", "flash-check", RESULT))

    (call,) = tools.take_late()
    assert (call.skill, call.id, call.result.output) == ("flash-check", "R1", {"a": 1})
    assert tools.take_late() == []
    ((op, body),) = link.asked
    assert (op, body["job_id"], body["body"]["output"]) == ("late", "job1", {"a": 1})


async def test_a_late_result_of_a_run_that_is_over_is_only_stored() -> None:
    made, link = equipment()
    tools = made.tools("run1", submit=submit)
    made.forget("run1")
    await made.take_late(Late("job1", "run1", "flash-check", RESULT))
    link.is_gone = True
    await made.take_late(Late("job2", "run1", "flash-check", RESULT))

    assert tools.take_late() == []
    assert len(link.asked) == 1


async def test_runs_that_nobody_ends_do_not_pile_up() -> None:
    made, _ = equipment()
    for n in range(MAX_RUNS + 3):
        made.tools(f"run{n}", submit=submit)

    assert len(made._runs) == MAX_RUNS


async def test_only_the_calls_of_rounds_count_against_the_quota() -> None:
    made, _ = equipment()
    tools = made.tools("run1", submit=submit)
    await tools.call("no-such", {})
    assert tools._ctx.quota is None
    await tools.call("no-such", {}, 1)
    quota = tools._ctx.quota

    assert quota is not None
    assert [quota.take(1.0) for _ in range(CALLS_A_MINUTE + 1)].count(False) == 1
