"""Skills in the agent's process: long jobs that are delivered, folders that change."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest

from bench_incident import incident_at
from chat_server import ChatServer, Say
from fake_core import Board, FakeCore
from serialwatch.records import Incident
from serialwatch.store.late_results import late_result_from_json
from skill_maker import make_skill

ABORT = """
=> md.l 0xffffffffff000000 4
"Synchronous Abort" handler, esr 0x96000004
elr: 000000000000f8c4 lr : 000000000000f8a0
resetting ...
"""
NOTHING = ("log-stats", {"port": "dut1"})


@pytest.fixture
def board(tmp_path: Path) -> Board:
    made = Board(tmp_path / "state")
    made.prints(ABORT)
    return made


def _core(root: Path, server: ChatServer) -> FakeCore:
    core = FakeCore(root / "state", base_url=server.base_url, model="tiny")
    core.skill_dirs.insert(0, root / "own")
    return core


async def test_a_long_job_is_delivered_to_the_core(tmp_path: Path, board: Board) -> None:
    code = "await ctx.accept('counts')\nreturn SkillResult('success', {'count': 7})"
    make_skill(tmp_path / "own", "long-count", code, long_s="60", roles="log-detective")
    async with (
        ChatServer([Say("", [("long-count", {})]), Say("", [NOTHING])]) as server,
        _core(tmp_path, server) as core,
    ):
        core.wake("settled", _incident(board))
        await core.until(lambda: any(op == "late" for op, _ in core.asked))
        (sent,) = (body for op, body in core.asked if op == "late")

    late = late_result_from_json(sent, 1)
    assert late.skill == "long-count"
    assert late.body["output"] == {"count": 7}
    assert late.body["status"] == "success"
    assert late.run_id in core.runs


async def test_a_skill_that_was_added_meanwhile_is_offered(
    tmp_path: Path, board: Board, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("serialwatch.agent.skills.watch.LOOK_S", 0.05)
    async with (
        ChatServer([Say("no report from me")]) as server,
        _core(tmp_path, server) as core,
    ):
        await core.finished(core.wake("settled", _incident(board)))
        await core.until(lambda: len(core.traces) == 2)
        before = len(server.requests)
        make_skill(
            tmp_path / "own", "abort-count", when="trigger in (uboot.*)", roles="log-detective"
        )
        kept = tmp_path / "state" / "skills"
        await core.until(lambda: list(kept.glob("*/abort-count/SKILL.md")))
        other = replace(_incident(board), id=18, fingerprint="another fault")
        await core.finished(core.wake("settled", other))
        await core.until(lambda: len(server.requests) > before)

    assert "abort-count" not in json.dumps(server.requests[0])
    assert "abort-count" in json.dumps(server.requests[before])


def _incident(board: Board) -> Incident:
    return incident_at(
        board.lines,
        "Synchronous Abort",
        trigger="uboot.sync_abort",
        title="U-Boot took an exception: Synchronous Abort (esr 0x96000004)",
        last="resetting",
        fields={"kind": "Synchronous Abort", "esr": "0x96000004"},
    )
