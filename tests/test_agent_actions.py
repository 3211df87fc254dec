"""What the agent does with a person's word on an action, in a run and after it."""

from __future__ import annotations

import json
import time
from pathlib import Path
from typing import Any

import pytest

from bench_analysis import knowledge
from bench_model import role
from chat_server import Answer, ChatServer, Say
from fake_core import Board, FakeCore
from serialwatch.agent.models.redaction import Redactor
from serialwatch.agent.run.replay import replay
from serialwatch.agent.run.run_state import state_from_json
from serialwatch.agent.workers.tools import page_texts
from serialwatch.store.approvals import (
    ApprovalRow,
    add_approval,
    approval_hash,
    approval_to_json,
    load_approval,
)
from serialwatch.store.late_results import load_late_results
from serialwatch.wire import Json
from skill_run import bundled_registry
from test_agent_process import ABORT, GOOD, abort

FIND = ("skill-find", {"query": "console-send type a line"})
SEND = ("console-send", {"text": "md 0", "why": "to see what is there"})
READ = ("log-read", {"port": "dut1", "first": 1, "last": 9})
REPORT = ("report-write", GOOD)


class Core(FakeCore):
    """A core with a table of actions; `proposed` is the newest."""

    def __init__(self, state_dir: Path, **agent: Any) -> None:
        super().__init__(state_dir, **agent)
        self.proposed: Json = {}
        self.steps: list[Json] = []
        self.answers = {
            "propose": self._propose, "act": self._act, "executed": self._executed,
        }  # fmt: skip

    def decide(self, state: str, **more: str) -> None:
        """Let a person, or time, decide on the newest."""
        assert self._db
        action = self.proposed["id"]
        self._db.execute(
            "UPDATE approvals SET state = ?, decided_by = ?, note = ? WHERE id = ?",
            [state, more.get("by", ""), more.get("note", ""), action],
        )
        self._db.conn.commit()
        row = load_approval(self._db, action)
        assert row
        kind = "execute" if state == "executing" else "decided"
        self.send({"kind": kind, "approval": approval_to_json(row)})

    def _propose(self, body: Json) -> Json:
        now = time.time_ns()
        row = ApprovalRow(
            id="", state="pending", role=body["role"], run_id=body["run_id"],
            incident_id=body["incident"], port=body["port"], skill=body["skill"],
            version=body["version"], sha=body["sha"], args=body["args"], steps=body["steps"],
            hash=approval_hash(body["skill"], body["sha"], body["port"], body["steps"]),
            effect=["send exactly 5 bytes to dut1"], why=body["why"], evidence=body["evidence"],
            device="x", boot=1, any_boot=False, created_utc_ns=now, expires_utc_ns=now + 10**12,
        )  # fmt: skip
        self.proposed = approval_to_json(add_approval(self._db, row))
        self._db.conn.commit()
        return self.proposed

    def _act(self, body: Json) -> Json:
        self.steps.append(body)
        return {"port": "dut1", "bytes": 5, "before_seq": 3}

    def _executed(self, body: Json) -> Json:
        self._db.execute(
            "UPDATE approvals SET state = 'done', result = ? WHERE id = ?",
            [body["said"], body["grant"]],
        )
        self._db.conn.commit()
        row = load_approval(self._db, body["grant"])
        assert row
        return approval_to_json(row)


@pytest.fixture
def board(tmp_path: Path) -> Board:
    made = Board(tmp_path)
    made.prints(ABORT, b"U-Boot")
    return made


@pytest.fixture
def asked() -> list[Json]:
    return []


def script(asked: list[Json], *answers: Answer) -> Any:
    def answer(body: Json) -> Answer:
        asked.append(body)
        return answers[min(len(asked), len(answers)) - 1]

    return answer


def shown(request: Json) -> str:
    return json.dumps(request["messages"], ensure_ascii=False)


async def test_a_no_reaches_the_model_while_it_works(
    tmp_path: Path, board: Board, asked: list[Json]
) -> None:
    core: list[Core] = []

    def denied(body: Json) -> Answer:
        asked.append(body)
        if len(asked) == 3:
            core[0].decide("denied", by="ann", note="not on a Friday")
        steps = [FIND, SEND, READ, REPORT]
        return Say("", [steps[min(len(asked), 4) - 1]])

    async with (
        ChatServer(denied) as server,
        Core(tmp_path, base_url=server.base_url, model="tiny") as made,
    ):
        core.append(made)
        await made.finished(made.wake("settled", abort(board)))
        await made.until(lambda: len(made.traces) == 2)
        action = made.proposed["id"]

        assert f"action {action} is proposed, a person decides" in shown(asked[2])
        assert "A person has decided" in shown(asked[3])
        assert "denied by ann: not on a Friday" in shown(asked[3])
        (late,) = load_late_results(made._db, made.traces[-1].run.id)
        assert (late.job_id, late.body["status"]) == (f"A{action}", "failure")
        assert made.reports[-1].made_by == "model tiny"
        assert any(f"action {action}" in text for text in made.reports[-1].not_checked)
        assert made.steps == []
        again = await replay(
            made.traces[-1],
            board.lines,
            skills=tuple(bundled_registry().skills.values()),
            role=role(),
            pages=page_texts(knowledge()),
            redactor=Redactor(()),
        )
        assert again.differences == []
        assert again.same == 4


async def test_the_report_waits_for_nobody_and_tells_later_what_came_of_it(
    tmp_path: Path, board: Board, asked: list[Json]
) -> None:
    answers = script(asked, Say("", [FIND]), Say("", [SEND]), Say("", [REPORT]))
    async with (
        ChatServer(answers) as server,
        Core(tmp_path, base_url=server.base_url, model="tiny") as core,
    ):
        await core.finished(core.wake("settled", abort(board)))
        await core.until(lambda: len(core.traces) == 2)
        action, first = core.proposed["id"], core.reports[-1]
        assert first.next_steps[0].risk == "L3"
        assert first.next_steps[0].text == (
            f"decide on action {action} (send exactly 5 bytes to dut1): "
            f"`serialwatch approvals show {action}`"
        )
        assert core.steps == []
        core.decide("executing", by="ann")
        await core.until(lambda: core.reports[-1].revision == first.revision + 1, 20)
        last = core.reports[-1]

        (step,) = core.steps
        assert (step["grant"], step["step"]) == (
            action,
            {"op": "console.send", "hex": "6d6420300d"},
        )
        assert last.unknowns[0].startswith(f"what action {action} (send exactly 5 bytes")
        assert not any("decide on action" in step.text for step in last.next_steps)
        (late,) = load_late_results(core._db, core.proposed["run"])
        assert late.body["output"]["lines"][0]["seq"] == 3
        assert late.body["metadata"]["result"] == f"A{action}"


async def test_a_skill_that_has_changed_since_is_not_run(
    tmp_path: Path, board: Board, asked: list[Json]
) -> None:
    answers = script(asked, Say("", [FIND]), Say("", [SEND]), Say("", [REPORT]))
    async with (
        ChatServer(answers) as server,
        Core(tmp_path, base_url=server.base_url, model="tiny") as core,
    ):
        await core.finished(core.wake("settled", abort(board)))
        await core.until(lambda: len(core.traces) == 2)
        core._db.execute("UPDATE approvals SET sha = 'another'")
        core.decide("executing", by="ann")
        await core.until(lambda: any(op == "executed" for op, _ in core.asked))

        said = next(body["said"] for op, body in core.asked if op == "executed")
        assert said == "the skill console-send has changed since it was proposed"
        assert core.steps == []


@pytest.mark.parametrize("approvals", ["queue", "deny"])
async def test_where_actions_are_switched_off_none_is_offered(
    tmp_path: Path, board: Board, asked: list[Json], approvals: str
) -> None:
    answers = script(asked, Say("", [FIND]), Say("", [SEND]), Say("", [REPORT]))
    async with (
        ChatServer(answers) as server,
        Core(tmp_path, base_url=server.base_url, model="tiny", approvals=approvals) as core,
    ):
        await core.finished(core.wake("settled", abort(board)))
        await core.until(lambda: len(core.traces) == 2)
        names = [tool["function"]["name"] for tool in asked[1]["tools"]]

        assert ("console-send" in names) is (approvals == "queue")
        assert bool(core.proposed) is (approvals == "queue")
        assert state_from_json(core.traces[-1].run.state).setup["may_propose"] is (
            approvals == "queue"
        )
        assert core.steps == []
