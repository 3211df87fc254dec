"""A model's run played again from what the store keeps of it."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

import pytest

from bench_analysis import Seen, get_ready, knowledge, skills, watched
from bench_model import Result, investigated, role
from chat_server import Fail, Say, Script
from serialwatch.agent.run.replay import Replayed, ReplayError, replay
from serialwatch.agent.run.trace import RunRecord, RunStatus, session_of_incident
from serialwatch.agent.workers.tools import page_texts
from serialwatch.store.runs import Trace, trace_from_json, trace_to_json
from test_loop import ABORT, BAD, DECODE, GOOD, READ

SEARCH = ("memory-search", {"query": "abort"})
PLAN = (
    "plan-set",
    {"steps": [{"task": "look", "skill_hint": "log-read"}], "why": "it may be the script"},
)


@pytest.fixture(scope="module")
def seen() -> Seen:
    """Return the abort as the daemon sees it."""
    get_ready()
    return watched(ABORT)


def stored(got: Result, seen: Seen) -> Trace:
    """Return the run as it comes back from the store."""
    incident = seen.of("uboot.sync_abort")
    record = RunRecord("run-1", "model", "settled", session_of_incident(incident), 1, "tiny", "x")
    run = got.run
    trace = record.trace(
        got.tools.calls, got.tools.results, RunStatus.DONE, 2, run.state, run.rounds
    )
    return trace_from_json(json.loads(json.dumps(trace_to_json(trace))))


async def again(trace: Trace, seen: Seen, **more: Any) -> Replayed:
    given = {"skills": tuple(skills().skills.values()), "role": role(), "redactor": None, **more}
    return await replay(trace, seen.lines, pages=page_texts(knowledge()), **given)


@pytest.mark.parametrize(
    "script",
    [
        [Say("", [READ, DECODE]), Say("", [("report-write", GOOD)])],
        [Say("", [PLAN, READ]), Say("", [READ, SEARCH]), Say("", [("report-write", GOOD)])],
        [Say("", [("report-write", BAD)]), Say("", [("report-write", GOOD)])],
        [Say("hm"), Say("", [("no-such-skill", {})]), Say("", [("report-write", GOOD)])],
        [Say("", [("log-read", {"port": "dut1", "limit": "many"})]), Say("", [READ])],
        [Say("", [READ])],
        [Say("", [READ, DECODE]), Say("", [READ, DECODE]), Say("", [("report-write", GOOD)])],
        [Say("", [READ]), Say("", [READ, DECODE]), Say("", [("report-write", GOOD)])],
    ],
    ids=[
        "plain",
        "planned",
        "redrafted",
        "nudged",
        "bad parameters",
        "looping",
        "repeated",
        "mixed",
    ],
)
async def test_a_recorded_run_comes_out_the_same(script: Script, seen: Seen) -> None:
    trace = stored(await investigated(seen, script), seen)
    played = await again(trace, seen)

    assert played.differences == []
    assert played.same == played.rounds == len(trace.rounds) >= 2


async def test_a_run_in_json_mode_comes_out_the_same(seen: Seen) -> None:
    def answer(body: Any) -> Say | Fail:
        if "tools" in body:
            return Fail(400, "registry/tiny does not support tools")
        name, params = READ if len(seen_bodies) == 0 else ("report-write", GOOD)
        seen_bodies.append(body)
        return Say(json.dumps({"reasoning": "so", "next_action": "call_skill",
                               "skill_name": name, "parameters": params}))  # fmt: skip

    seen_bodies: list[Any] = []
    trace = stored(await investigated(seen, answer), seen)
    played = await again(trace, seen)

    assert (trace.rounds[0].mode, played.differences, played.same) == ("json", [], 2)


async def test_another_role_text_is_told_with_its_line(seen: Seen) -> None:
    trace = stored(await investigated(seen, [Say("", [("report-write", GOOD)])]), seen)
    core = f"{role().sections['core']}\nAnd be quick."
    played = await again(
        trace, seen, role=replace(role(), sections={**role().sections, "core": core})
    )

    first = played.differences[0]
    assert (played.same, first.round, first.now) == (0, 1, "And be quick.")
    assert first.where.startswith("message 1 (system), line ")


async def test_a_result_that_was_changed_is_told(seen: Seen) -> None:
    script = [Say("", [READ]), Say("", [("report-write", GOOD)])]
    trace = stored(await investigated(seen, script), seen)
    ref = next(call.result_id for call in trace.skill_calls if call.round == 1)
    text = json.dumps(next(r.body for r in trace.results if r.id == ref))
    forged = json.loads(text.replace("0x96000004", "0x96000005"))
    results = [replace(r, body=forged) if r.id == ref else r for r in trace.results]
    played = await again(replace(trace, results=results), seen)

    assert played.differences[0].round == 2
    assert "0x96000004" in played.differences[0].recorded
    assert "0x96000005" in played.differences[0].now


async def test_lines_that_are_gone_are_missed(seen: Seen) -> None:
    trace = stored(await investigated(seen, [Say("", [("report-write", GOOD)])]), seen)
    given: Any = {"skills": (), "role": role(), "pages": {}, "redactor": None}

    assert (await replay(trace, [], **given)).differences


async def test_a_run_without_a_model_has_no_prompts(seen: Seen) -> None:
    trace = stored(await investigated(seen, [Say("", [("report-write", GOOD)])]), seen)

    with pytest.raises(ReplayError, match="no model was asked"):
        await again(replace(trace, rounds=[]), seen)
    with pytest.raises(ReplayError, match="kept too little"):
        await again(replace(trace, run=replace(trace.run, state={})), seen)
