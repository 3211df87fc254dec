"""A skill that acts on a board: rehearsed and proposed first, and it gets no further by itself."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
import pytest_asyncio

from serialwatch.agent.skills.results import error_code
from serialwatch.agent.workers.worker import Workers
from serialwatch.records import SkillResult
from skill_maker import make_skill
from skill_run import opened_run

SEND = "told = await ctx.console.send('ls\\r')\n"
DONE = "return SkillResult('success', dict(told))"
TEXT = {
    "type": "object",
    "additionalProperties": False,
    "properties": {"why": {"type": "string"}, "evidence": {"type": "array"}},
}


@pytest_asyncio.fixture
async def workers() -> AsyncIterator[Workers]:
    made = Workers()
    async with made:
        yield made


class Core:
    """Takes proposals and steps; `refused` is what it says to them."""

    def __init__(self) -> None:
        self.proposed: list[dict[str, Any]] = []
        self.steps: list[dict[str, Any]] = []
        self.refused = ""

    async def propose(self, body: dict[str, Any]) -> dict[str, Any]:
        if self.refused:
            return {"refused": self.refused}
        self.proposed.append(body)
        return {"id": "7F3K", "state": "pending", "effect": ["send exactly 3 bytes to dut1"]}

    async def act(self, body: dict[str, Any]) -> dict[str, Any]:
        if self.refused:
            return {"refused": self.refused}
        self.steps.append(body)
        return {"port": body["port"], "bytes": 3, "before_seq": 9}


@pytest.fixture
def core() -> Core:
    return Core()


async def run(
    workers: Workers, core: Core, root: Path, params: dict[str, Any] | None = None, **more: Any
) -> SkillResult:
    grant = more.pop("grant", "")
    about = {"port": "dut1", "propose": core.propose, "act": core.act, **more}
    with opened_run([root], **about) as ctx:
        return await workers.run("a-b", params or {}, ctx, grant=grant)


async def test_what_it_would_do_is_proposed_and_not_done(
    workers: Workers, core: Core, tmp_path: Path
) -> None:
    code = SEND + "await ctx.port.set_lines(dtr=True)\nawait ctx.port.send_break(250)\n"
    code += "await ctx.port.reset()\nawait ctx.mark('here')\n"
    marks: list[object] = []

    async def mark(body: dict[str, Any]) -> dict[str, Any]:
        marks.append(body)
        return {}

    make_skill(tmp_path, "a-b", code + DONE, risk="L3", schema=TEXT)
    params = {"why": "to see", "evidence": ["dut1:L3"]}
    result = await run(workers, core, tmp_path, params, set_mark=mark)

    assert (result.status, result.output["action"]) == ("require_more", "7F3K")
    assert result.metadata["need"] == {"kind": "approval", "approval_id": "7F3K"}
    (body,) = core.proposed
    assert body["steps"] == [
        {"op": "console.send", "hex": "6c730d"},
        {"op": "port.set_lines", "dtr": True, "rts": None},
        {"op": "port.send_break", "ms": 250},
        {"op": "port.reset"},
    ]
    assert (body["skill"], body["port"], body["why"], body["evidence"]) == (
        "a-b", "dut1", "to see", [],  # nobody has read that line
    )  # fmt: skip
    assert (core.steps, marks) == ([], [])


async def test_with_a_grant_each_step_goes_to_the_core_with_what_it_is_bound_to(
    workers: Workers, core: Core, tmp_path: Path
) -> None:
    make_skill(tmp_path, "a-b", SEND + DONE, risk="L3")
    result = await run(workers, core, tmp_path, grant="7F3K", propose=None)

    assert result.output == {"port": "dut1", "bytes": 3, "before_seq": 9, "is_rehearsal": False}
    (step,) = core.steps
    assert step.pop("sha")
    assert step == {
        "grant": "7F3K", "run_id": "run-1", "skill": "a-b", "port": "dut1",
        "step": {"op": "console.send", "hex": "6c730d"},
    }  # fmt: skip
    assert core.proposed == []


async def test_what_the_core_refuses_ends_it(workers: Workers, core: Core, tmp_path: Path) -> None:
    make_skill(tmp_path, "a-b", SEND + DONE, risk="L3")
    core.refused = "step 1 is not the approved one"
    done = await run(workers, core, tmp_path, grant="7F3K")
    proposed = await run(workers, core, tmp_path)

    assert (done.status, error_code(done)) == ("failure", "denied")
    assert done.metadata["error"]["detail"] == core.refused
    assert (error_code(proposed), proposed.metadata["error"]["detail"]) == (
        "precondition", core.refused,
    )  # fmt: skip


@pytest.mark.parametrize(
    ("code", "why"),
    [
        ("await ctx.console.send('x', port='dut2')", "this run is about dut1"),
        ("await ctx.console.send('')", "0 bytes to send"),
        ("await ctx.console.send('x' * 2000)", "2000 bytes to send"),
        ("await ctx.port.send_break(0)", "ms: a whole number"),
        ("await ctx.port.set_lines()", "neither DTR nor RTS"),
        ("for n in range(9):\n    await ctx.console.send(str(n))", "8 steps at most"),
        ("await ctx.accept('takes long')", "cannot be a long job"),
        ("raise ValueError((await ctx.call('c-d', {})).metadata)", "may only read beside that"),
        ("ctx._link.ask('port.erase', {})", "may not use port.erase"),
    ],
)
async def test_what_makes_no_sense_is_not_proposed(
    workers: Workers, core: Core, tmp_path: Path, code: str, why: str
) -> None:
    make_skill(tmp_path, "c-d", risk="L2")
    make_skill(
        tmp_path, "a-b", f"{code}\nreturn SkillResult('success', {{}})", risk="L3", long_s="9"
    )
    result = await run(workers, core, tmp_path)

    assert why in result.metadata["error"]["detail"]
    assert core.proposed == []
    assert core.steps == []


async def test_no_skill_of_lower_risk_gets_at_a_board(
    workers: Workers, core: Core, tmp_path: Path
) -> None:
    make_skill(tmp_path, "a-b", "await ctx.call('c-d', {})\n" + SEND + DONE, risk="L2")
    make_skill(tmp_path, "c-d", SEND + DONE, risk="L3")
    result = await run(workers, core, tmp_path, grant="7F3K")

    assert "may not use console.send" in result.metadata["error"]["detail"]
    assert (core.proposed, core.steps) == ([], [])


async def test_without_a_place_for_proposals_it_is_refused(
    workers: Workers, core: Core, tmp_path: Path
) -> None:
    make_skill(tmp_path, "a-b", SEND + DONE, risk="L3")
    result = await run(workers, core, tmp_path, propose=None)

    assert error_code(result) == "denied"
    assert "can propose nothing" in result.metadata["error"]["detail"]
    assert core.steps == []


async def test_a_skill_that_states_no_risk_is_one_that_acts(
    workers: Workers, core: Core, tmp_path: Path
) -> None:
    folder = make_skill(tmp_path, "a-b", SEND + DONE)
    text = (folder / "SKILL.md").read_text()
    (folder / "SKILL.md").write_text(text.replace('  risk: "L1"\n', ""))

    assert (await run(workers, core, tmp_path)).output["action"] == "7F3K"
