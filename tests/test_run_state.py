from __future__ import annotations

import json

from serialwatch.agent.proof.verifier import Rejection
from serialwatch.agent.run.run_state import (
    MAX_RECENT,
    Decision,
    Inquiry,
    PlanStep,
    RunState,
    Suspicion,
    Turn,
    ranges_of,
    state_from_json,
    state_to_json,
)


def test_a_state_comes_back_from_the_store_as_it_was() -> None:
    state = RunState(
        mode="json", rounds=3, tokens=900, plan=[PlanStep(1, "read", "log-read", state="done")],
        suspicions=[Suspicion("h1", "linux.oops", "a driver", "refuted")],
        decisions=[Decision(1, "act", "log-read", "to see", "success")],
        inquiries=[Inquiry("Which board?", "nothing", "the board", 4, "the left one", "ada")],
        rejections=[Rejection("c1", "G2", "not read")], seen={"k": "R1"}, best={"title": "x"},
        ledger=[("dut1", 4, 9)],
    )  # fmt: skip
    state.add_turn(Turn(({"role": "user", "content": "x"},)))

    assert state_from_json(json.loads(json.dumps(state_to_json(state)))) == state


def test_what_another_version_wrote_is_left_out() -> None:
    assert state_from_json({"rounds": 2, "of_tomorrow": True}).rounds == 2


def test_only_the_last_rounds_are_kept_word_by_word() -> None:
    state = RunState()
    for n in range(MAX_RECENT + 2):
        state.add_turn(Turn(({"n": n},)))

    assert [turn.messages[0]["n"] for turn in state.turns] == [2, 3, 4]


def test_lines_are_kept_as_ranges() -> None:
    lines = [("b", 5), ("a", 2), ("a", 1), ("a", 4), ("b", 6)]

    assert ranges_of(lines) == [("a", 1, 2), ("a", 4, 4), ("b", 5, 6)]


def test_an_inquiry_is_pending_until_it_is_answered() -> None:
    state = RunState(inquiries=[Inquiry("a?", "", "", 1, "yes"), Inquiry("b?", "", "", 2)])
    assert state.pending is state.inquiries[1]
    state.inquiries[1].answer = "no"
    assert state.pending is None
