from __future__ import annotations

import asyncio
import socket
import sys
from collections.abc import AsyncIterator
from dataclasses import replace
from pathlib import Path

import pytest

from bench_incident import incident_at
from chat_server import ChatServer, Fail, Hang, Say
from fake_core import Board, FakeCore
from serialwatch.agent.offline.analyst import investigate
from serialwatch.records import Incident

BOOT = "U-Boot 2023.01 (Jun 22 2026 - 08:38:07 +0000)"
ABORT = f"""
{BOOT}
DRAM:  128 MiB
=> md.l 0xffffffffff000000 4
"Synchronous Abort" handler, esr 0x96000004
elr: 0000000000081104 lr : 0000000000081054 (reloc)
x22: ffffffffff000000 x23: 0000000047fa830e
Resetting CPU ...
resetting ...
"""


@pytest.fixture
def board(tmp_path: Path) -> Board:
    """Return a board that took a synchronous abort; it has not come up again yet."""
    made = Board(tmp_path)
    made.prints(ABORT, b"U-Boot")
    return made


@pytest.fixture
async def core(tmp_path: Path, board: Board) -> AsyncIterator[FakeCore]:
    """Return a core with a running agent and no model."""
    async with FakeCore(tmp_path) as made:
        yield made


def abort(board: Board, after: int = 0, **more: object) -> Incident:
    """Return the incident of the first abort that the board printed after that many lines."""
    incident = incident_at(
        board.lines[after:],
        "Synchronous Abort",
        trigger="uboot.sync_abort",
        title="U-Boot took an exception: Synchronous Abort (esr 0x96000004)",
        last="resetting",
        fields={"kind": "Synchronous Abort", "esr": "0x96000004"},
    )
    return replace(incident, **more)  # type: ignore[arg-type]


async def test_a_wake_becomes_a_report_on_the_boards_own_lines(
    core: FakeCore, board: Board
) -> None:
    row = core.wake("settled", abort(board))

    assert await core.finished(row)
    (report,) = core.reports
    assert report.title == "U-Boot took a synchronous abort in `md.l` and announced a reset"
    assert (report.incident, report.revision, report.made_by) == (17, 1, "offline analyst")
    assert report.cost.reason == "none configured"
    assert report.cost.skills >= 5
    assert report.unknowns[0].endswith("the port had no writer attached through serialwatch")
    lines = {line.seq: line.raw.decode() for line in board.lines}
    for conclusion in report.conclusions:
        assert conclusion.evidence
        assert all(e.quote in lines[e.seq] for e in conclusion.evidence)


async def test_a_report_comes_for_each_phase_that_brings_news(core: FakeCore, board: Board) -> None:
    await core.finished(core.wake("opened", abort(board, is_settled=False, last_seq=4)))
    await core.finished(core.wake("settled", abort(board)))
    board.prints(f"\n\n{BOOT}\nDRAM:  128 MiB", b"U-Boot")
    outcome = abort(board, outcome="rebooted", outcome_seq=board.lines[-2].seq)
    await core.finished(core.wake("outcome", outcome))
    await core.finished(core.wake("outcome", outcome))

    assert [r.revision for r in core.reports] == [1, 2, 3]
    assert [r.verdict for r in core.reports] == ["likely", "confirmed", "confirmed"]
    assert core.reports[-1].timeline[-1].note == "boot #2"


async def test_a_settled_incident_is_remembered_with_its_sources(
    core: FakeCore, board: Board
) -> None:
    await core.finished(core.wake("settled", abort(board)))

    (memory,) = core.memories
    assert memory["type"] == "task_result"
    assert memory["body"].startswith("Confirmed: A read from 0xffffffffff000000")
    assert memory["fingerprint"] == "uboot.sync_abort-print"
    assert "dut1:L4" in memory["evidence"]
    assert {link["source_skill"] for link in memory["links"]} >= {"log-read", "register-decode"}
    run = core.traces[0].run.id
    assert all(link["source_step"].startswith(f"{run}/R") for link in memory["links"])


async def test_a_memory_is_found_again_by_the_next_agent(tmp_path: Path, board: Board) -> None:
    async with FakeCore(tmp_path) as first:
        await first.finished(first.wake("settled", abort(board)))
    printed = len(board.lines)
    board.prints(ABORT, b"U-Boot")
    async with FakeCore(tmp_path) as second:
        again = abort(board, printed, id=18, seen_before=(17,))
        await second.finished(second.wake("settled", again))

    claims = [c.claim for c in second.reports[0].conclusions]
    assert any(c.startswith("Seen before: 1 time on this bench (#17)") for c in claims)
    assert any(c.startswith("Remembered") and "was not mapped" in c for c in claims)
    assert second.reports[0].claims.dropped == 0


async def test_a_new_agent_goes_on_with_the_revisions_of_the_last(
    tmp_path: Path, board: Board
) -> None:
    async with FakeCore(tmp_path) as first:
        await first.finished(first.wake("opened", abort(board, is_settled=False)))
    async with FakeCore(tmp_path) as second:
        await second.finished(second.wake("settled", abort(board)))

    assert [r.revision for r in first.reports + second.reports] == [1, 2]


async def test_the_run_is_kept_step_by_step(core: FakeCore, board: Board) -> None:
    await core.finished(core.wake("settled", abort(board)))

    (trace,) = core.traces
    assert (trace.run.kind, trace.run.phase, trace.run.exit_status) == (
        "baseline", "settled", "done",
    )  # fmt: skip
    assert trace.session.session_id == trace.run.session_id == "incident-17"
    calls = {call.skill: call for call in trace.skill_calls}
    assert {"log-read", "log-stats", "knowledge-query", "memory-search"} <= calls.keys()
    assert all(call.version and call.sha and call.status == "success" for call in calls.values())
    assert {call.result_id for call in calls.values()} <= {r.id for r in trace.results}


async def test_many_incidents_at_once_all_get_their_report(core: FakeCore, board: Board) -> None:
    rows = [core.wake("settled", abort(board, id=number)) for number in range(1, 13)]
    for row in rows:
        assert await core.finished(row)

    assert sorted(r.incident for r in core.reports) == list(range(1, 13))


async def test_a_bug_in_the_analysis_still_leaves_a_report(
    core: FakeCore, board: Board, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def broken(*args: object) -> None:
        raise ZeroDivisionError

    monkeypatch.setattr("serialwatch.agent.investigation.investigate", broken)
    await core.finished(core.wake("settled", abort(board)))
    monkeypatch.setattr("serialwatch.agent.investigation.investigate", investigate)
    await core.finished(core.wake("settled", abort(board, id=18)))

    bare, good = core.reports
    assert bare.title == abort(board).title
    assert bare.not_checked == ("everything but the rule that matched: ZeroDivisionError",)
    assert bare.verdict == "inconclusive"
    assert good.verdict == "confirmed"
    assert core.traces[0].run.exit_status == "failed"


async def test_a_report_that_the_core_refuses_is_not_called_done(
    core: FakeCore, board: Board
) -> None:
    core.refuses = {"report"}
    row = core.wake("settled", abort(board))
    assert not await core.finished(row)
    core.refuses = set()
    row = core.wake("settled", abort(board))
    assert await core.finished(row)

    assert [r.revision for r in core.reports] == [1]


async def test_a_memory_or_trace_that_is_refused_costs_no_report(
    core: FakeCore, board: Board
) -> None:
    core.refuses = {"memory", "run", "ports"}
    row = core.wake("settled", abort(board))

    assert await core.finished(row)
    assert len(core.reports) == 1


async def test_a_fault_whose_line_is_not_written_yet_is_waited_for(
    core: FakeCore, board: Board
) -> None:
    later = replace(abort(board), first_seq=11, block_first=11, last_seq=11, trigger="mine.late")
    row = core.wake("opened", later)
    await core.until(lambda: ("ports", {}) in core.asked)
    board.prints("a line\nanother line\nthe late fault of mine")
    await core.finished(row)

    read = next(r.body for r in core.traces[0].results if "lines" in r.body)
    assert read["lines"][-1]["text"] == "the late fault of mine"


async def test_ping_is_answered_and_the_beat_goes_on(core: FakeCore) -> None:
    core.send({"kind": "ping", "id": 7})
    await core.until(lambda: core.pongs == [7] and core.beats >= 2)


async def test_an_order_that_makes_no_sense_is_passed_over(core: FakeCore, board: Board) -> None:
    core.send({"kind": "dance"})
    core.send({"kind": "hello", "state_dir": "/"})

    assert await core.finished(core.wake("settled", abort(board)))


async def test_a_port_without_a_log_gets_a_report_too(core: FakeCore, board: Board) -> None:
    elsewhere = replace(abort(board), port="dut9")
    row = core.wake("settled", elsewhere)

    assert await core.finished(row)
    assert core.reports[0].verdict == "inconclusive"
    assert "the lines of the fault: the log could not be read" in core.reports[0].not_checked


async def test_neighbours_that_the_core_links_are_told(tmp_path: Path, board: Board) -> None:
    other = Board(tmp_path, "dut2")
    other.prints("watchdog: reset of everything")
    there = incident_at(other.lines, "watchdog", trigger="mine.dog", id=18)
    async with FakeCore(tmp_path) as core:
        await core.finished(core.wake("settled", there))
        await core.finished(core.wake("settled", abort(board, linked=(18,))))

    assert any("dut2 failed within the same second" in c.claim for c in core.reports[1].conclusions)


GOOD = {
    "title": "A read of an unmapped address made U-Boot abort",
    "class": "uboot.sync_abort",
    "verdict": "confirmed",
    "confidence": 0.9,
    "conclusions": [
        {
            "id": "c1",
            "kind": "cause",
            "claim": "md.l read 0xffffffffff000000, and the CPU answered with esr 0x96000004.",
            "evidence": [
                {"port": "dut1", "seq": 3, "quote": "md.l 0xffffffffff000000 4"},
                {"port": "dut1", "seq": 4, "quote": "handler, esr 0x96000004"},
            ],
        }
    ],
}
READ = ("log-read", {"port": "dut1", "first": 1, "last": 9})
ORACLE = [Say("", [READ]), Say("", [("report-write", GOOD)])]


async def test_a_model_is_asked_when_the_incident_has_settled(tmp_path: Path, board: Board) -> None:
    async with (
        ChatServer(ORACLE) as server,
        FakeCore(tmp_path, base_url=server.base_url, model="tiny") as core,
    ):
        await core.finished(core.wake("opened", abort(board, is_settled=False)))
        assert server.requests == []
        assert core.reports[0].cost.reason == "a model is asked once the incident has settled"
        await core.finished(core.wake("settled", abort(board)))
        await core.until(lambda: len(core.traces) == 3)

        assert [r.made_by for r in core.reports] == [
            "offline analyst", "offline analyst", "model tiny",
        ]  # fmt: skip
        assert [r.revision for r in core.reports] == [1, 2, 3]
        last = core.reports[-1]
        assert last.title == GOOD["title"]
        assert (last.cost.model_calls, last.cost.tokens, last.cost.reason) == (2, 240, "")
        trace = core.traces[-1]
        assert (trace.run.kind, trace.run.model, trace.run.tokens) == ("model", "tiny", 240)
        assert [r.n for r in trace.rounds] == [1, 2]
        assert {h for r in trace.rounds for h in r.prompt} == {m.hash for m in trace.messages}
        assert any(call.round == 2 and call.skill == "report-write" for call in trace.skill_calls)
        assert [m["source"] for m in core.memories] == ["model"]


async def test_a_model_that_fails_leaves_the_baseline_marked(tmp_path: Path, board: Board) -> None:
    async with (
        ChatServer([Fail(401, "bad key")]) as server,
        FakeCore(tmp_path, base_url=server.base_url, model="tiny") as core,
    ):
        await core.finished(core.wake("settled", abort(board)))
        await core.until(lambda: len(core.traces) == 2)

        first, second = core.reports
        assert first.conclusions == second.conclusions
        assert second.made_by == "offline analyst"
        assert "HTTP 401: bad key" in second.cost.reason
        assert core.traces[-1].run.reason == second.cost.reason
        assert core.traces[-1].run.exit_status == "baseline"
        assert [m["source"] for m in core.memories] == ["rule"]


async def test_an_endpoint_that_fails_for_good_is_left_alone_and_that_is_told(
    tmp_path: Path, board: Board
) -> None:
    async with (
        ChatServer([Fail(401, "bad key")]) as server,
        FakeCore(tmp_path, base_url=server.base_url, model="tiny") as core,
    ):
        await core.finished(core.wake("settled", abort(board)))
        await core.until(lambda: len(core.traces) == 2)
        other = replace(abort(board, id=18), fingerprint="another fault")
        await core.finished(core.wake("settled", other))

        assert len(server.requests) == 1
        assert [body for op, body in core.asked if op == "breaker"] == [{"is_open": True}]
        assert "HTTP 401: bad key" in core.reports[-1].cost.reason
        assert "left alone for 600 s more" in core.reports[-1].cost.reason


async def test_an_endpoint_that_is_no_url_leaves_the_baseline_marked(
    tmp_path: Path, board: Board
) -> None:
    async with FakeCore(tmp_path, base_url="http://[", model="tiny") as core:
        await core.finished(core.wake("settled", abort(board)))
        await core.until(lambda: len(core.traces) == 2)

        assert core.reports[-1].cost.reason.endswith(
            "base_url is no URL such as http://127.0.0.1:8080/v1"
        )
        await core.finished(core.wake("outcome", abort(board, outcome="halted")))
        assert core.reports[-1].cost.reason.endswith(
            "base_url is no URL such as http://127.0.0.1:8080/v1"
        )


async def test_the_same_fault_is_not_shown_to_a_model_twice(tmp_path: Path, board: Board) -> None:
    async with (
        ChatServer(ORACLE) as server,
        FakeCore(tmp_path, base_url=server.base_url, model="tiny") as core,
    ):
        await core.finished(core.wake("settled", abort(board)))
        await core.until(lambda: len(core.traces) == 2)
        await core.finished(core.wake("settled", abort(board, id=18)))

        assert len(server.requests) == 2
        assert core.reports[-1].incident == 18
        assert "less than 30 minutes ago" in core.reports[-1].cost.reason


async def test_a_fault_that_no_model_has_seen_is_shown_to_it_the_next_time(
    tmp_path: Path, board: Board
) -> None:
    answers = iter([Fail(400, "loading"), *ORACLE])
    async with (
        ChatServer(lambda _: next(answers)) as server,
        FakeCore(tmp_path, base_url=server.base_url, model="tiny") as core,
    ):
        await core.finished(core.wake("settled", abort(board)))
        await core.until(lambda: len(core.traces) == 2)
        await core.finished(core.wake("settled", abort(board, id=18)))
        await core.until(lambda: len(core.traces) == 4)

        assert core.reports[-1].incident == 18
        assert core.reports[-1].made_by == "model tiny"


async def test_what_a_model_took_in_vain_stays_in_the_later_revisions(
    tmp_path: Path, board: Board
) -> None:
    async with (
        ChatServer([Say("I see nothing.")]) as server,
        FakeCore(tmp_path, base_url=server.base_url, model="tiny") as core,
    ):
        await core.finished(core.wake("settled", abort(board)))
        await core.until(lambda: len(core.traces) == 2)
        vain = core.reports[-1].cost
        await core.finished(core.wake("outcome", abort(board, outcome="halted")))
        last = core.reports[-1]

        assert vain.model_calls
        assert last.made_by == "offline analyst"
        assert (last.cost.model_calls, last.cost.tokens) == (vain.model_calls, vain.tokens)
        assert last.cost.reason == vain.reason


async def test_the_outcome_is_added_to_a_models_report(tmp_path: Path, board: Board) -> None:
    async with (
        ChatServer(ORACLE) as server,
        FakeCore(tmp_path, base_url=server.base_url, model="tiny") as core,
    ):
        await core.finished(core.wake("settled", abort(board)))
        await core.until(lambda: len(core.traces) == 2)
        board.prints(f"\n\n{BOOT}\nDRAM:  128 MiB", b"U-Boot")
        outcome = abort(board, outcome="rebooted", outcome_seq=board.lines[-2].seq)
        await core.finished(core.wake("outcome", outcome))

        last = core.reports[-1]
        assert (last.made_by, last.title, last.revision) == ("model tiny", GOOD["title"], 3)
        assert last.timeline[-1].note == "boot #2"
        assert last.conclusions[0].claim.startswith("md.l read")
        assert len({c.id for c in last.conclusions}) == len(last.conclusions)


async def test_an_outcome_that_overtakes_loses_nothing(tmp_path: Path, board: Board) -> None:
    async with (
        ChatServer(ORACLE) as server,
        FakeCore(tmp_path, base_url=server.base_url, model="tiny") as core,
    ):
        rows = [
            core.wake("opened", abort(board, is_settled=False)),
            core.wake("settled", abort(board)),
            core.wake("outcome", abort(board, outcome="halted")),
        ]
        assert [await core.finished(row) for row in rows] == [True] * 3
        await core.until(lambda: core.traces and core.traces[-1].run.kind == "model")

        assert core.reports[-1].made_by == "model tiny"
        assert [r.revision for r in core.reports] == list(range(1, len(core.reports) + 1))
        assert len(core.memories) == 1


async def test_stopping_does_not_wait_for_a_model(tmp_path: Path, board: Board) -> None:
    async with (
        ChatServer([Hang()]) as server,
        FakeCore(tmp_path, base_url=server.base_url, model="tiny") as core,
    ):
        await core.finished(core.wake("settled", abort(board)))
        async with asyncio.timeout(10):
            while not server.requests:
                await core.until(lambda: core.beats > 0)
                core.beats = 0
        # The model never answers, and leaving the core's block has a limit of its own.


async def test_the_agent_runs_as_a_process_of_its_own(tmp_path: Path, board: Board) -> None:
    core = FakeCore(tmp_path)
    ours, theirs = socket.socketpair()
    with theirs:
        agent = await asyncio.create_subprocess_exec(
            sys.executable, "-m", "serialwatch.agent", "--fd", str(theirs.fileno()),
            pass_fds=[theirs.fileno()],
        )  # fmt: skip
    reader = await core.connect(ours)
    listening = asyncio.create_task(core._listen(reader))
    row = core.wake("settled", abort(board))
    await core.until(lambda: core.reports, 20)
    assert await core.finished(row)
    core.close()  # no `stop`: the core is gone

    async with asyncio.timeout(10):
        assert await agent.wait() == 0
        await listening


async def test_a_wrong_descriptor_is_told_in_one_line() -> None:
    agent = await asyncio.create_subprocess_exec(
        sys.executable, "-m", "serialwatch.agent", "--fd", "999", stderr=asyncio.subprocess.PIPE
    )
    _, said = await agent.communicate()

    assert agent.returncode == 2
    assert said == b"serialwatch.agent: --fd 999: Bad file descriptor\n"
