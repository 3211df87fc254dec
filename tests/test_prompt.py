"""A prompt is made of the state alone, fits its budget, and never cuts a round in two."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from bench_analysis import get_ready, skills
from bench_incident import incident_at, lines_of
from bench_model import NONCE, role
from serialwatch.agent.models.tokens import Estimator
from serialwatch.agent.offline.case import Case, Recalled
from serialwatch.agent.proof.verifier import Rejection
from serialwatch.agent.run.controls import control_tools
from serialwatch.agent.run.goal import Goal, goal_of
from serialwatch.agent.run.plan import default_plan, suspicions_of
from serialwatch.agent.run.prompt import Prompt, PromptTooLongError, Scene, build_prompt
from serialwatch.agent.run.run_state import Inquiry, PlanStep, RunState, Turn
from serialwatch.agent.skills.choice import choose
from serialwatch.agent.skills.when import Situation
from serialwatch.records import Hypothesis, Report

LINES = [f"[   {n}.000000] a line of the kernel, number {n}, at 0x{n:016x}" for n in range(60)]
FAULT = "[   60.000000] Unable to handle kernel NULL pointer dereference"
BASELINE = Report(
    incident=17, revision=1, made_by="offline analyst", title="an oops", fault_class="linux.oops",
    severity="critical", verdict="likely", confidence=0.6,
    hypotheses=(Hypothesis("linux.oops", "a driver used a pointer that was NULL", 0.5, "open"),),
)  # fmt: skip


@pytest.fixture(scope="module", autouse=True)
def ready() -> None:
    get_ready()
    role()


def goal(**more: Any) -> Goal:
    lines = lines_of("\n".join([*LINES, FAULT, *LINES]))
    incident = incident_at(lines, "NULL pointer", trigger="linux.oops", title="an oops")
    made = goal_of(Case(incident, "settled", tuple(lines)), BASELINE)
    return replace(made, **more)


def prompt(
    state: RunState, about: Goal | None = None, *, context: int = 6144, **more: Any
) -> Prompt:
    about = about or goal()
    usable = [s for s in skills().skills.values() if s.name in role().skills]
    offer = choose(usable, "log-detective", Situation(trigger="linux.oops"), about.text)
    scene = Scene(role(), about, offer, tuple(control_tools(state, offer)), False, **more)
    return build_prompt(state, scene, Estimator(), context)


def fresh() -> RunState:
    state = RunState(nonce=NONCE, rounds=1, suspicions=suspicions_of(goal()))
    state.plan = default_plan(state, goal(), {"log-read", "report-write"})
    return state


def turn(n: int, lines: int) -> Turn:
    text = "\n".join(f"{NONCE}:dut1:L{n}| {'x' * 60}" for _ in range(lines))
    call = {"id": f"c{n}", "type": "function", "function": {"name": "log-read", "arguments": "{}"}}
    return Turn((
        {"role": "assistant", "content": None, "tool_calls": [call]},
        {"role": "tool", "tool_call_id": f"c{n}", "content": text},
    ))  # fmt: skip


def text_of(made: Prompt) -> str:
    return "\n".join(m["content"] or "" for m in made.messages)


def test_the_same_state_gives_the_same_prompt() -> None:
    assert prompt(fresh()) == prompt(fresh())


def test_a_first_prompt_fits_with_all_of_its_parts() -> None:
    made = prompt(fresh())

    assert 1500 < made.tokens < 0.9 * 6144
    shown = text_of(made)
    assert "You are at step 1 of 2." in shown
    assert f"{NONCE}:h1| [open] a driver used a pointer" in shown
    assert "Set a plan of at most 5 steps" in shown


def test_rounds_are_dropped_whole_when_they_do_not_fit() -> None:
    state = fresh()
    for n in range(3):
        state.add_turn(turn(n, 45))  # about 1600 tokens each
    made = prompt(state)
    answers = [m["tool_call_id"] for m in made.messages if m["role"] == "tool"]
    calls = [c["id"] for m in made.messages for c in m.get("tool_calls", ())]

    assert made.tokens <= 0.9 * 6144
    assert answers == calls
    assert answers == ["c2"]
    assert [m["role"] for m in prompt(state, context=60_000).messages].count("tool") == 3


def test_the_last_round_is_kept_at_the_cost_of_the_window() -> None:
    state = fresh()
    state.add_turn(turn(1, 80))
    made = prompt(state)

    assert [m["tool_call_id"] for m in made.messages if m["role"] == "tool"] == ["c1"]
    assert text_of(made).count("a line of the kernel") < text_of(prompt(fresh())).count(
        "a line of the kernel"
    )


def test_what_does_not_fit_at_all_is_not_sent() -> None:
    with pytest.raises(PromptTooLongError, match=r"context_tokens"):
        prompt(fresh(), context=2000)


def test_of_many_memories_the_weightiest_and_the_newest_are_shown_within_their_budget() -> None:
    memories = tuple(
        Recalled(f"memory {n}", "what was found then " * 3, "9 d ago", "", "model",
                 priority=n % 6, updated=f"2026-06-{n + 1:02d}")
        for n in range(28)
    )  # fmt: skip
    shown = text_of(prompt(fresh(), goal(recalled=memories)))
    lines = [line for line in shown.split("\n") if ":memory| " in line]

    assert 5 <= len(lines) <= 10
    assert sum(map(len, lines)) <= 400 * 2.2
    assert "memory 23:" in lines[0] or "memory 5:" in lines[0]  # priority 5
    assert any("memory 27:" in line for line in lines)  # the newest


def test_a_failed_step_and_what_is_missing_are_told() -> None:
    state = fresh()
    state.plan = [PlanStep(1, "decode", state="failed"), PlanStep(2, "read")]
    state.missing = ["memory has not been asked"]
    shown = text_of(prompt(state))

    assert "You are at step 2 of 2." in shown
    assert "Step 1 failed: go on without it, or change the plan." in shown
    assert "Not looked at yet: memory has not been asked." in shown


def test_the_two_reflections_are_asked_for() -> None:
    state = fresh()
    assert "Which hypothesis is refuted, and by which line?" in text_of(
        prompt(state, reflects=True)
    )
    state.rejections = [Rejection("c1", "G2", "dut1:L9 was not read in this run")]
    shown = text_of(prompt(state))
    assert f"{NONCE}:rejected| c1: G2: dut1:L9 was not read in this run" in shown
    assert "does another line that was read carry the claim?" in shown


def test_an_answer_of_a_person_is_shown_beside_its_question() -> None:
    state = fresh()
    state.inquiries = [Inquiry("Which revision?", "", "", 1, "B2,\nsince May", "ada")]

    assert "ada answered: B2, since May" in text_of(prompt(state))


def test_a_question_is_a_goal_too() -> None:
    lines = tuple(lines_of("one\ntwo"))
    asked = Goal("question", "what happened to dut3 last night?", replace(BASELINE, incident=0),
                 port="dut3", ports=("dut1", "dut3"), shown=lines)  # fmt: skip
    shown = text_of(prompt(RunState(nonce=NONCE), asked))

    assert f"{NONCE}:question| what happened to dut3 last night?" in shown
    assert f"{NONCE}:dut1:L2| two" in shown


def test_the_guess_follows_what_the_endpoint_counts() -> None:
    guess = Estimator()
    messages = [{"role": "user", "content": "word " * 400}]
    first = guess.request(messages, (), NONCE)
    for _ in range(20):
        guess.learn(messages, (), NONCE, round(first * 1.5))
    assert guess.request(messages, (), NONCE) == pytest.approx(first * 1.5, rel=0.02)
    guess.learn(messages, (), NONCE, 10)  # an endpoint that cut the prompt tells nothing
    assert guess.request(messages, (), NONCE) == pytest.approx(first * 1.5, rel=0.02)


def test_device_text_and_schemas_cost_what_they_cost() -> None:
    guess = Estimator()
    prose = guess.text("x" * 380, NONCE)
    device = guess.text(f"{NONCE}:dut1:L1| " + "x" * 380, NONCE)

    assert device > 1.6 * prose
    assert guess.request([], [{"x": "y" * 380}], NONCE) > 100
