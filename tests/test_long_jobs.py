"""Skills that say that they are long jobs, and their results that come late."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
import pytest_asyncio

from bench_cable import within_s
from serialwatch.agent.skills.results import error_code
from serialwatch.agent.workers.tools import RunTools
from serialwatch.agent.workers.worker import MAX_LONG, Late, Workers
from skill_maker import make_skill
from skill_run import opened_run

LONG = "await ctx.accept('reads it all')\n"


class Bench:
    """Workers, and what they delivered late."""

    def __init__(self) -> None:
        self.late: asyncio.Queue[Late] = asyncio.Queue()
        self.workers = Workers(on_late=self.late.put_nowait)
        self.is_free = asyncio.Event()

    async def ports(self) -> dict[str, object]:
        """Hold a skill that asks for the ports until the test lets it go on."""
        await self.is_free.wait()
        return {}


@pytest_asyncio.fixture
async def bench() -> AsyncIterator[Bench]:
    made = Bench()
    async with made.workers:
        yield made


async def test_the_caller_goes_on_and_the_result_comes_late(bench: Bench, tmp_path: Path) -> None:
    code = LONG + "await ctx.ports()\nreturn SkillResult('success', {'n': 7})"
    make_skill(tmp_path, "a-b", code, long_s="60")
    with opened_run([tmp_path], ask_ports=bench.ports) as ctx:
        at_once = await bench.workers.run("a-b", {}, ctx)
        bench.is_free.set()
        late = await within_s(5, bench.late.get())

    job = at_once.metadata["accepted"]
    assert at_once.status == "success"
    assert at_once.output == {"job": job, "what": "reads it all", "limit_s": 60.0}
    assert (late.job_id, late.run_id, late.skill) == (job, "run-1", "a-b")
    assert late.result.output == {"n": 7}
    assert ctx.results[late.result.metadata["result"]] == {"n": 7}


async def test_a_job_that_is_done_soon_answers_at_once(bench: Bench, tmp_path: Path) -> None:
    make_skill(tmp_path, "a-b", "return SkillResult('success', {'n': 7})", long_s="60")
    with opened_run([tmp_path]) as ctx:
        result = await bench.workers.run("a-b", {}, ctx)

    assert result.output == {"n": 7}
    assert "accepted" not in result.metadata
    assert bench.late.empty()


async def test_a_long_job_outlives_its_first_limit(bench: Bench, tmp_path: Path) -> None:
    code = """
    import time
    first = ctx.deadline_s
    await ctx.accept('waits until it would have been killed')
    while time.monotonic() < first + 0.1:
        await asyncio.sleep(0.02)
    return SkillResult('success', {'more_s': ctx.deadline_s - first})
    """
    make_skill(tmp_path, "a-b", code, long_s="60", timeout_s="1.5")
    with opened_run([tmp_path]) as ctx:
        await bench.workers.run("a-b", {}, ctx)
        late = await within_s(10, bench.late.get())

    assert late.result.output["more_s"] > 50


async def test_a_long_job_is_killed_at_its_own_limit(bench: Bench, tmp_path: Path) -> None:
    make_skill(tmp_path, "a-b", LONG + "while True: pass", long_s="1")
    with opened_run([tmp_path]) as ctx:
        await bench.workers.run("a-b", {}, ctx)
        late = await within_s(5, bench.late.get())

    assert error_code(late.result) == "timeout"
    assert "limit 1 s" in late.result.metadata["error"]["detail"]


async def test_two_at_a_time_and_then_again(bench: Bench, tmp_path: Path) -> None:
    make_skill(tmp_path, "a-b", LONG + "await ctx.ports()\n"
               "return SkillResult('success', {})", long_s="60")  # fmt: skip
    with opened_run([tmp_path], ask_ports=bench.ports) as ctx:
        first = [await bench.workers.run("a-b", {}, ctx) for _ in range(MAX_LONG + 1)]
        bench.is_free.set()
        for _ in range(MAX_LONG):
            await within_s(5, bench.late.get())
        again = await bench.workers.run("a-b", {}, ctx)
        await within_s(5, bench.late.get())

    assert ["accepted" in result.metadata for result in first] == [True, True, False]
    assert error_code(first[-1]) == "precondition"
    assert "long jobs run already" in first[-1].metadata["error"]["detail"]
    assert "accepted" in again.metadata


async def test_a_skill_that_states_no_limit_cannot_be_long(bench: Bench, tmp_path: Path) -> None:
    make_skill(tmp_path, "a-b", LONG)
    with opened_run([tmp_path]) as ctx:
        result = await bench.workers.run("a-b", {}, ctx)

    assert error_code(result) == "denied"
    assert "states no long-s" in result.metadata["error"]["detail"]


async def test_a_skill_that_another_calls_cannot_be_long(bench: Bench, tmp_path: Path) -> None:
    make_skill(tmp_path, "a-b", "return await ctx.call('c-d', {})")
    make_skill(tmp_path, "c-d", LONG, long_s="60")
    with opened_run([tmp_path]) as ctx:
        result = await bench.workers.run("a-b", {}, ctx)

    assert error_code(result) == "denied"
    assert "another skill called it" in result.metadata["error"]["detail"]


async def test_accepting_twice_is_accepting_once(bench: Bench, tmp_path: Path) -> None:
    code = "a = await ctx.accept('x')\nb = await ctx.accept('y')\n"
    make_skill(tmp_path, "a-b", code + "return SkillResult('success', {'same': a['job'] == b['job']})",
               long_s="60")  # fmt: skip
    with opened_run([tmp_path]) as ctx:
        await bench.workers.run("a-b", {}, ctx)

        assert (await within_s(5, bench.late.get())).result.output == {"same": True}


async def test_stopping_ends_a_long_job_too(tmp_path: Path) -> None:
    late: list[Late] = []
    workers = Workers(on_late=late.append)
    make_skill(tmp_path, "a-b", LONG + "await asyncio.sleep(60)", long_s="60")
    with opened_run([tmp_path]) as ctx:
        await workers.run("a-b", {}, ctx)
        await within_s(5, workers.stop())

    assert workers.alive == 0
    assert late == []


async def test_a_cancelled_caller_ends_what_was_not_accepted(bench: Bench, tmp_path: Path) -> None:
    make_skill(tmp_path, "a-b", "await asyncio.sleep(60)", long_s="60")
    with opened_run([tmp_path]) as ctx:
        running = asyncio.ensure_future(bench.workers.run("a-b", {}, ctx))
        while not bench.workers.alive:
            await asyncio.sleep(0)
        running.cancel()
        with pytest.raises(asyncio.CancelledError):
            await running
        async with asyncio.timeout(5):
            while bench.workers.alive:
                await asyncio.sleep(0)


FACT = {"type": "fact", "title": "its flash is worn", "body": "Writes take long.", "priority": 2}
REMEMBERS = f"return SkillResult('success', {{'n': 7}}, ({FACT!r},))"


class Shelf:
    """Takes memories."""

    def __init__(self) -> None:
        self.taken: list[dict[str, Any]] = []

    async def write(self, memory: dict[str, Any]) -> dict[str, Any]:
        self.taken.append(memory)
        return {"id": len(self.taken), "is_new": True}


async def test_what_a_late_job_wants_remembered_is_written_and_confirmed(
    bench: Bench, tmp_path: Path
) -> None:
    shelf = Shelf()
    make_skill(tmp_path, "a-b", LONG + REMEMBERS, long_s="60")
    with opened_run([tmp_path], write_memory=shelf.write, session_id="incident-3") as ctx:
        await bench.workers.run("a-b", {}, ctx)
        late = await within_s(5, bench.late.get())

    (memory,) = shelf.taken
    assert (memory["title"], memory["session_id"]) == ("its flash is worn", "incident-3")
    assert memory["links"] == [{"source_skill": "a-b", "source_step": "run-1:0"}]
    assert late.result.output == {"n": 7, "remembered": [{"id": 1, "is_new": True}]}


async def test_what_a_late_job_may_not_remember_is_said(bench: Bench, tmp_path: Path) -> None:
    shelf = Shelf()
    owned = REMEMBERS.replace("'priority': 2", "'source': 'human'")
    make_skill(tmp_path, "a-b", LONG + owned, long_s="60")
    with opened_run([tmp_path], write_memory=shelf.write) as ctx:
        await bench.workers.run("a-b", {}, ctx)
        late = await within_s(5, bench.late.get())

    assert shelf.taken == []
    assert late.result.output["remembered"] == [{"refused": "source: filled in by the agent"}]


async def test_what_a_called_skill_wants_remembered_is_written_once(
    bench: Bench, tmp_path: Path
) -> None:
    shelf = Shelf()
    make_skill(tmp_path, "a-b", "return await ctx.call('c-d', {})")
    make_skill(tmp_path, "c-d", REMEMBERS)
    with opened_run([tmp_path], write_memory=shelf.write) as ctx:
        tools = RunTools(ctx, {}, lambda name, params: bench.workers.run(name, params, ctx))
        call = await tools.call("a-b", {}, 1)

    (memory,) = shelf.taken
    assert memory["links"] == [{"source_skill": "c-d", "source_step": "run-1:0"}]
    assert call.result.output == {"n": 7, "remembered": [{"id": 1, "is_new": True}]}
