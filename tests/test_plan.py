from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import pytest

from bench_incident import incident_at, lines_of
from serialwatch.agent.offline.case import Case, Surroundings
from serialwatch.agent.run.controls import control
from serialwatch.agent.run.goal import Goal, goal_of
from serialwatch.agent.run.guards import call_key, is_stuck, note_key, note_outcome
from serialwatch.agent.run.plan import (
    default_plan,
    judge_steps,
    missing_of,
    read_plan,
    suspicions_of,
)
from serialwatch.agent.run.run_state import PlanStep, RunState
from serialwatch.agent.skills.choice import Offer
from serialwatch.agent.workers.tools import Call
from serialwatch.records import Hypothesis, Incident, Line, Report, SkillResult

TEXT = "one\ntwo\nthree\nfour\nInternal error: Oops: 96000045\nesr = 0x96000045\nend"
ALL = {"log-read", "register-decode", "knowledge-query", "memory-search", "boot-compare"}
BASELINE = Report(
    incident=17, revision=1, made_by="offline analyst", title="an oops", fault_class="linux.oops",
    severity="critical", verdict="likely", confidence=0.6,
    hypotheses=(Hypothesis("linux.oops", "a NULL pointer", 0.5, "open"),),
)  # fmt: skip


class Done:
    """Tools after some calls."""

    def __init__(self) -> None:
        self.ledger: dict[tuple[str, int], Line] = {}
        self.calls: list[Call] = []
        self.results: Mapping[str, object] = {}
        self.pages = {"linux/oops": "a page"}

    def called(self, skill: str, output: Any = None, *, good: bool = True, round: int = 1) -> None:
        result = SkillResult("success" if good else "failure", output or {})
        n = len(self.calls) + 1
        self.calls.append(Call(n, round, skill, "", "", {}, result, f"R{n}", 0))

    def read(self, lines: Sequence[Line]) -> None:
        self.ledger |= {(line.port, line.seq): line for line in lines}

    async def call(self, skill: str, params: Mapping[str, Any], round: int = 0) -> Call:
        raise NotImplementedError

    async def newest(self, port: str) -> int:
        return 0

    def at_step(self, step: int) -> None:
        """Nothing."""

    def take_late(self) -> list[Call]:
        return []


LINES = lines_of(TEXT)
INCIDENT = replace(
    incident_at(LINES, "Internal error", trigger="linux.oops", last="end"),
    knowledge="linux/oops",
    boot=3,
)


def goal(incident: Incident = INCIDENT, *neighbours: Incident) -> Goal:
    around = Surroundings(neighbours)
    return goal_of(Case(incident, "settled", tuple(LINES), around=around), BASELINE)


def test_everything_is_missing_at_first_and_nothing_in_the_end() -> None:
    tools = Done()
    other = replace(INCIDENT, id=18, port="dut2")
    about = goal(INCIDENT, other)
    missing = missing_of(about, tools, ALL)
    assert len(missing) == 7

    tools.read(LINES)
    tools.read([replace(LINES[0], port="dut2")])
    tools.called("register-decode")
    tools.called("register-decode")
    tools.called("knowledge-query", {"page": {"id": "linux/oops"}})
    tools.called("memory-search")
    tools.called("boot-compare")
    assert missing_of(about, tools, ALL) == []


def test_a_skill_that_nobody_has_is_not_missed() -> None:
    assert not any("compared" in text for text in missing_of(goal(), Done(), {"log-read"}))


def test_the_first_boot_has_no_good_one_before_it() -> None:
    first = goal(replace(INCIDENT, boot=1))

    assert not any("compared" in text for text in missing_of(first, Done(), ALL))


def test_the_plan_of_a_silent_model_tests_the_top_hypothesis_and_fills_the_gaps() -> None:
    state = RunState(suspicions=suspicions_of(goal()))
    state.missing = missing_of(goal(), Done(), ALL)
    plan = default_plan(state, goal(), ALL)

    assert len(plan) == 5
    assert plan[0].task == "find the line that confirms or refutes h1"
    assert plan[-1].done_when == "report-accepted"
    assert [step.step for step in plan] == [1, 2, 3, 4, 5]


def test_steps_are_done_when_code_sees_it() -> None:
    tools = Done()
    state = RunState(plan=[
        PlanStep(1, "read it", "log-read", "block-read"),
        PlanStep(2, "stats", "log-stats", "skill-answered"),
        PlanStep(3, "report", "report-write", "report-accepted"),
    ])  # fmt: skip
    tools.called("log-stats")  # too early to count for step 2
    judge_steps(state, goal(), tools, 0)
    assert [s.state for s in state.plan] == ["open", "open", "open"]

    tools.read(LINES)
    judge_steps(state, goal(), tools, 1)
    tools.called("log-stats")
    judge_steps(state, goal(), tools, 1)
    assert [s.state for s in state.plan] == ["done", "done", "open"]
    assert state.current is state.plan[2]


def test_a_step_whose_calls_fail_twice_has_failed() -> None:
    tools = Done()
    state = RunState(plan=[PlanStep(1, "decode", "register-decode"), PlanStep(2, "read")])
    tools.called("register-decode", good=False)
    assert judge_steps(state, goal(), tools, 0) == []
    tools.called("register-decode", good=False)

    assert judge_steps(state, goal(), tools, 1) == [state.plan[0]]
    assert state.current is state.plan[1]


@pytest.mark.parametrize(
    "params",
    [{}, {"steps": []}, {"steps": [{}] * 6}, {"steps": [{"why": "x"}]}, {"steps": "read"}],
)
def test_a_plan_that_is_none_is_sent_back(params: dict[str, Any]) -> None:
    assert read_plan(params)[1]


def test_a_model_sets_its_plan_and_judges_hypotheses() -> None:
    state = RunState(suspicions=suspicions_of(goal()))
    params = {
        "steps": ["read it", {"task": "decode\x1b[2J it", "skill_hint": "register-decode"}],
        "why": "first things first",
        "hypotheses": [{"id": "h1", "status": "refuted"}, {"id": "h9", "status": "open"}, "x"],
    }
    done = control("plan-set", params, state, Offer((), ()), {})

    assert done.outcome == "ok"
    assert [s.task for s in state.plan] == ["read it", "decode it"]
    assert state.suspicions[0].status == "refuted"


def test_a_result_is_read_on_in_parts_and_by_a_word() -> None:
    state = RunState(nonce="a1b2")
    results = {"R1": {"rows": [f"row {n} of many" for n in range(200)]}}
    first = control("result-read", {"id": "R1"}, state, Offer((), ()), results)
    found = control("result-read", {"id": "R1", "match": "row 150"}, state, Offer((), ()), results)

    assert "next: start=1300" in first.text
    assert "row 150 of many" in found.text
    assert all(x.startswith("a1b2:R1| ") for x in found.text.split("\n")[1:])
    assert control("result-read", {"id": "R9"}, state, Offer((), ()), results).outcome == (
        "invalid_args"
    )


def test_the_same_call_has_the_same_key_until_the_port_says_more() -> None:
    closed = {"port": "dut1", "first": 1, "last": 9}

    assert call_key("log-read", closed, 9) == call_key(
        "log-read", dict(reversed(closed.items())), 50
    )
    assert call_key("log-read", {"first": 1}, 9) == call_key("log-read", {"first": 1}, 9)
    assert call_key("log-read", {"first": 1}, 9) != call_key("log-read", {"first": 1}, 50)


def test_calls_in_turn_are_noticed_at_the_fourth() -> None:
    state = RunState()

    assert [note_key(state, key) for key in "abab"] == [False, False, False, True]
    assert not any(note_key(RunState(), key) for key in "aaaa")


def test_a_skill_that_fails_three_times_in_a_row_is_withdrawn() -> None:
    state = RunState()
    for outcome in (False, False, True, False, False):
        note_outcome(state, "log-read", outcome)
    assert state.withdrawn == []
    note_outcome(state, "log-read", False)
    assert state.withdrawn == ["log-read"]
    assert is_stuck(state)  # five failures in all
