"""A model's run that was cut short, or has waited for a person, goes on from what was stored."""

from __future__ import annotations

import asyncio
import json
import socket
import sys
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from bench_analysis import knowledge
from bench_model import role
from chat_server import Answer, ChatServer, Hang, Say
from fake_core import Board, FakeCore
from serialwatch.agent.models.redaction import Redactor
from serialwatch.agent.run.replay import replay
from serialwatch.agent.run.run_state import state_from_json
from serialwatch.agent.skills.registry import load_skills
from serialwatch.agent.workers.tools import page_texts
from serialwatch.store.late_results import load_late_results
from serialwatch.store.runs import Trace, save_trace
from skill_maker import make_skill
from skill_run import bundled_registry
from test_agent_process import ABORT, GOOD, ORACLE, abort

Json = dict[str, Any]
READ = ("log-read", {"port": "dut1", "first": 1, "last": 9})
DECODE = ("register-decode", {"register": "esr", "value": "0x96000004"})
REPORT = ("report-write", GOOD)
NO_SUCH = ("no-such-skill", {})


@pytest.fixture
def board(tmp_path: Path) -> Board:
    """Return a board that took a synchronous abort."""
    made = Board(tmp_path)
    made.prints(ABORT, b"U-Boot")
    return made


def played(script: list[Answer], asked: list[Json]) -> Any:
    """Return a script that notes what it was asked; its last answer repeats."""

    def answer(body: Json) -> Answer:
        asked.append(body)
        return script[min(len(asked), len(script)) - 1]

    return answer


async def killed_in_the_middle(tmp_path: Path, board: Board, url: str, asked: list[Json]) -> None:
    """Run an agent in a process of its own until it has asked twice, and kill it then."""
    core = FakeCore(tmp_path, base_url=url, model="tiny")
    ours, theirs = socket.socketpair()
    with theirs:
        agent = await asyncio.create_subprocess_exec(
            sys.executable, "-m", "serialwatch.agent", "--fd", str(theirs.fileno()),
            pass_fds=[theirs.fileno()],
        )  # fmt: skip
    listening = asyncio.create_task(core._listen(await core.connect(ours)))
    row = core.wake("settled", abort(board))
    await core.until(lambda: core.done, 20)
    assert await core.finished(row)
    await core.until(lambda: len(asked) == 2, 20)
    agent.kill()
    await agent.wait()
    await listening
    core.close()


async def test_a_killed_run_is_taken_up_where_it_was(tmp_path: Path, board: Board) -> None:
    asked: list[Json] = []
    script = played([Say("", [READ, DECODE]), Hang(), Say("", [REPORT])], asked)
    async with ChatServer(script) as server:
        await killed_in_the_middle(tmp_path, board, server.base_url, asked)
        async with FakeCore(tmp_path, base_url=server.base_url, model="tiny") as core:
            await core.until(lambda: core.traces)
            (trace,) = core.traces
            state = state_from_json(trace.run.state)

            assert core.reports[-1].made_by == "model tiny"
            assert core.reports[-1].revision == 2
            assert (trace.run.exit_status, trace.run.kind) == ("done", "model")
            assert (state.resumed, state.rounds, state.answered) == (1, 3, 2)
            assert trace.run.tokens == 240
            assert [r.n for r in trace.rounds] == [1, 3]
            told = json.dumps(asked[2]["messages"])
            assert 'L4| \\"Synchronous Abort\\" handler' in told  # its reading is still shown
            assert "register-decode(register=esr" in told
            calls = [c.skill for c in trace.skill_calls if c.round]
            assert calls == ["log-read", "register-decode", "report-write"]
            assert len({c.n for c in trace.skill_calls}) == len(trace.skill_calls)
            assert len({c.result_id for c in trace.skill_calls}) == len(trace.skill_calls)


async def test_a_run_that_was_stopped_in_order_goes_on_too(tmp_path: Path, board: Board) -> None:
    asked: list[Json] = []
    script = played([Say("", [READ]), Hang(), Say("", [REPORT])], asked)
    async with ChatServer(script) as server:
        async with FakeCore(tmp_path, base_url=server.base_url, model="tiny") as first:
            await first.finished(first.wake("settled", abort(board)))
            await first.until(lambda: len(asked) == 2)
        async with FakeCore(tmp_path, base_url=server.base_url, model="tiny") as second:
            await second.until(lambda: second.traces)

            assert len(second.runs) == 1
            assert second.runs.keys() < first.runs.keys()  # it is the same run
            assert second.reports[-1].title == GOOD["title"]
            assert second.traces[0].run.exit_status == "done"


@pytest.mark.parametrize(
    ("age_s", "resumed", "why"),
    [
        (2 * 3600, 0, "it was cut short more than an hour ago"),
        (60, 2, "it was cut short 3 times"),
    ],
)
async def test_a_run_that_cannot_go_on_is_closed_with_the_baseline(
    tmp_path: Path, board: Board, age_s: int, resumed: int, why: str
) -> None:
    asked: list[Json] = []
    async with ChatServer(played([Hang()], asked)) as server:
        async with FakeCore(tmp_path, base_url=server.base_url, model="tiny") as first:
            await first.finished(first.wake("settled", abort(board)))
            await first.until(lambda: len(asked) == 1)
            (left,) = [t[-1] for t in first.runs.values() if t[-1].run.kind == "model"]
        second = FakeCore(tmp_path, base_url=server.base_url, model="tiny")
        started = time.time_ns() - age_s * 1_000_000_000
        old = replace(
            left.run, started_utc_ns=started, state={**left.run.state, "resumed": resumed}
        )
        save_trace(second._db, Trace(left.session, old))
        async with second:
            await second.until(lambda: second.traces)

            assert len(asked) == 1
            (trace,) = second.traces
            assert (trace.run.exit_status, trace.run.reason) == ("cut short", why)
            assert second.reports[-1].made_by == "offline analyst"
            assert second.reports[-1].cost.reason == why


async def test_two_invalid_calls_become_a_question_and_the_answer_goes_on(
    tmp_path: Path, board: Board
) -> None:
    asked: list[Json] = []
    script = played([Say("", [READ]), Say("", [NO_SUCH]), Say("", [NO_SUCH]), Say("", [REPORT])],
                    asked)  # fmt: skip
    async with (
        ChatServer(script) as server,
        FakeCore(tmp_path, base_url=server.base_url, model="tiny") as core,
    ):
        await core.finished(core.wake("settled", abort(board)))
        await core.until(lambda: len(core.traces) == 2)
        waiting = core.traces[-1].run

        assert waiting.exit_status == "waiting"
        (inquiry,) = core.inquiries
        assert inquiry["run_id"] == waiting.id
        assert "asked twice for what cannot be done (no-such-skill" in inquiry["question"]
        assert inquiry["known"].startswith("U-Boot took a synchronous abort")
        stands = core.reports[-1]
        assert stands.made_by == "offline analyst"
        assert stands.unknowns[0].startswith("The model asked twice")
        assert f"serialwatch runs answer {waiting.id}" in stands.unknowns[0]
        assert core.memories == []

        core.send(
            {
                "kind": "answered",
                "queue_id": 99,
                "run_id": waiting.id,
                "inquiry_id": 1,
                "text": "look at the command",
                "user": "ada",
            }
        )
        assert await core.finished(99)
        await core.until(lambda: core.traces[-1].run.exit_status == "done")

        assert "ada answered: look at the command" in json.dumps(asked[3]["messages"])
        last = core.reports[-1]
        assert (last.made_by, last.title) == ("model tiny", GOOD["title"])
        assert not any("asked twice" in text for text in last.unknowns)
        trace = core.traces[-1]
        assert trace.run.id == waiting.id
        assert [r.n for r in trace.rounds] == [1, 2, 3, 4]
        assert len(core.memories) == 1

        again = await replay(
            trace,
            board.lines,
            skills=tuple(bundled_registry().skills.values()),
            role=role(),
            pages=page_texts(knowledge()),
            redactor=Redactor(()),
        )

        assert again.differences == []
        assert again.same == 4


async def test_a_skill_that_asks_a_person_makes_the_run_wait(tmp_path: Path, board: Board) -> None:
    question = {
        "question": "Which revision is the board?",
        "known": "It took an abort.",
        "missing": "What is mapped there.",
    }
    asked: list[Json] = []
    script = played([Say("", [READ, ("human-ask", question), DECODE]), Say("", [REPORT])], asked)
    async with (
        ChatServer(script) as server,
        FakeCore(tmp_path, base_url=server.base_url, model="tiny") as core,
    ):
        await core.finished(core.wake("settled", abort(board)))
        await core.until(lambda: len(core.traces) == 2)
        trace = core.traces[-1]
        state = state_from_json(trace.run.state)

        assert (trace.run.exit_status, len(asked)) == ("waiting", 1)
        assert core.inquiries == [{"run_id": trace.run.id, **question}]
        assert core.reports[-1].cost.reason == (
            "it waits for an answer: Which revision is the board?"
        )
        assert state.pending is not None
        assert state.pending.id == 1
        assert [c.skill for c in trace.skill_calls if c.round] == ["log-read", "human-ask"]
        (turn,) = state.turns
        told = [m["content"] for m in turn.messages if m["role"] == "tool"]
        assert told[2] == "Nothing ran: a person is asked first."


async def test_an_answer_to_an_unknown_run_is_passed_over(tmp_path: Path, board: Board) -> None:
    async with (
        ChatServer(ORACLE) as server,
        FakeCore(tmp_path, base_url=server.base_url, model="tiny") as core,
    ):
        core.send({"kind": "answered", "queue_id": 5, "run_id": "nothing", "inquiry_id": 1,
                   "text": "x", "user": "ada"})  # fmt: skip

        assert not await core.finished(5)
        assert await core.finished(core.wake("settled", abort(board)))


LONG = """
await ctx.accept('reads the flash')
while (await ctx.ports())['ports']['dut1'].get('writer') != 'nobody':
    await asyncio.sleep(0.02)
return SkillResult('success', {'verdict': 'block 7 is worn'})
"""


def with_long_skill(core: FakeCore, tmp_path: Path) -> FakeCore:
    """Let the agent have a long job that ends when `core.ports` says so."""
    make_skill(
        tmp_path / "skills-of-ours",
        "flash-check",
        LONG,
        long_s="60",
        roles="log-detective",
    )
    core.skill_dirs = [*core.skill_dirs, tmp_path / "skills-of-ours"]
    return core


async def test_a_job_that_ends_after_its_run_is_kept_and_told_by_the_report(
    tmp_path: Path, board: Board
) -> None:
    script = played([Say("", [("flash-check", {}), READ]), Say("", [REPORT])], [])
    async with ChatServer(script) as server:
        core = FakeCore(tmp_path, base_url=server.base_url, model="tiny")
        async with with_long_skill(core, tmp_path):
            await core.finished(core.wake("settled", abort(board)))
            await core.until(lambda: len(core.traces) == 2)
            run_id = core.traces[-1].run.id
            before = core.reports[-1]
            core.ports = {"dut1": {"state": "up", "writer": "nobody"}}
            await core.until(lambda: core.reports[-1].revision == before.revision + 1)

            told = core.reports[-1].unknowns[0]
            assert told.startswith("what the long job of flash-check found: it ended after")
            assert told.endswith(f"(success); `serialwatch runs show {run_id}`")
            assert core.reports[-1].conclusions == before.conclusions
            await core.finished(core.wake("outcome", abort(board, outcome="rebooted")))
            assert told in core.reports[-1].unknowns  # also in what follows

            (late,) = load_late_results(core._db, run_id)
            assert late.body["output"] == {"verdict": "block 7 is worn"}


async def test_a_job_that_ends_while_its_run_waits_reaches_it_with_the_answer(
    tmp_path: Path, board: Board
) -> None:
    asked: list[Json] = []
    question = {"question": "Which revision is it?", "known": "An abort.", "missing": "The map."}
    script = played(
        [Say("", [("flash-check", {}), READ, ("human-ask", question)]), Say("", [REPORT])], asked
    )
    async with ChatServer(script) as server:
        core = FakeCore(tmp_path, base_url=server.base_url, model="tiny")
        async with with_long_skill(core, tmp_path):
            await core.finished(core.wake("settled", abort(board)))
            await core.until(lambda: len(core.traces) == 2)
            run_id = core.traces[-1].run.id
            core.ports = {"dut1": {"state": "up", "writer": "nobody"}}
            await core.until(lambda: load_late_results(core._db, run_id))
            core.send(
                {"kind": "answered", "queue_id": 99, "run_id": run_id, "inquiry_id": 1}
                | {"text": "revision B", "user": "ada"}
            )
            assert await core.finished(99)
            await core.until(lambda: core.traces[-1].run.exit_status == "done")
            trace = core.traces[-1]

            told = asked[1]["messages"][-1]["content"]
            assert "A long job has ended:" in told
            assert "block 7 is worn" in told
            skills = list(bundled_registry().skills.values())
            skills += load_skills([tmp_path / "skills-of-ours"]).skills.values()
            again = await replay(
                trace,
                board.lines,
                skills=skills,
                role=role(),
                pages=page_texts(knowledge()),
                redactor=Redactor(()),
            )
            assert again.differences == []
