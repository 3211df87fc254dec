from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

import pytest

from serialwatch.agent.questions.question import Question, parse_question
from serialwatch.agent.questions.yes_no import (
    Asks,
    of_board,
    of_boards,
    of_incidents,
    with_answer,
)

NOW = datetime(2026, 6, 22, 9, 30, tzinfo=UTC)


def parsed(text: str) -> Question:
    found = parse_question(text, ["dut1", "dut3"], NOW)
    assert isinstance(found, Question), text
    return found


@pytest.mark.parametrize(
    ("text", "asks"),
    [
        ("is dut1 all right?", "good"),
        ("is dut1 still working?", "good"),
        ("are all boards ok?", "good"),
        ("is dut1 up?", "up"),
        ("is dut1 alive?", "up"),
        ("is dut1 down?", "down"),
        ("is dut1 dead?", "down"),
        ("is dut1 silent?", "silent"),
        ("is dut1 in trouble?", "bad"),
        ("is the cable bad on dut3?", "bad link"),
        ("is the cable of dut3 ok?", "good link"),
        ("did dut1 crash?", "any"),
        ("has dut1 ever had an oops?", "any"),
        ("is there anything wrong with dut1?", "any"),
        ("anything new?", "any"),
        ('did dut1 print "oops" today?', "any"),
        ("how is dut1?", ""),
        ("status", ""),
        ("what happened to dut1?", ""),
        ("why did dut1 crash?", ""),
        ("when did dut1 crash?", ""),
        ("how often did dut1 crash?", ""),
        ("which boards are down?", ""),
    ],
)
def test_what_wants_a_yes_or_a_no_is_known(text: str, asks: Asks) -> None:
    assert parsed(text).asks == asks


def board(state: str = "up", age_s: float | None = 5.0, *severities: str, **verdict: Any) -> Any:
    return {
        "state": state,
        "last_rx_age_s": age_s,
        "incidents": [{"severity": severity} for severity in severities],
        "verdict": {"place": "nothing", "text": "", "is_weak": True} | verdict,
    }


STRONG: Any = {"place": "cable", "is_weak": False}
WEAK: Any = {"place": "board", "is_weak": True}


@pytest.mark.parametrize(
    ("asks", "status", "word"),
    [
        ("good", board(), "Yes"),
        ("good", board("up", 5, "critical"), "No"),
        ("good", board("up", 5, "note"), "Yes"),
        ("good", board("absent"), "No"),
        ("good", board("released"), "Not known"),
        ("good", board("up", None), "Not known"),
        ("good", board("up", 300), "Yes, as far as is known"),
        ("good", board(**STRONG), "No"),
        ("bad", board("up", 5, "critical"), "Yes"),
        ("bad", board("up", 300), "No, as far as is known"),
        ("up", board("up", 5, "error"), "Yes"),
        ("up", board("absent"), "No"),
        ("down", board("absent"), "Yes"),
        ("down", board(), "No"),
        ("silent", board("up", 300), "Yes"),
        ("silent", board("up", 5), "No"),
        ("silent", board("absent"), "Not known"),
        ("bad link", board(**STRONG), "Yes"),
        ("good link", board(**STRONG), "No"),
        ("bad link", board(), "No, as far as is known"),
        ("good link", board(), "Yes, as far as is known"),
        ("bad link", board("up", 300, **WEAK), "Not known"),
    ],
)
def test_a_board_is_so_or_not_or_it_is_not_known(asks: Asks, status: Any, word: str) -> None:
    assert of_board(asks, status, has_halted=False) == word


def test_a_board_that_halted_is_not_up() -> None:
    assert of_board("up", board(), has_halted=True) == "No"
    assert of_board("down", board(), has_halted=True) == "Yes"


def test_several_boards_are_so_if_all_are_or_if_any_is() -> None:
    up = {"state": "up", "open_incidents": 0}
    failed, gone = up | {"open_incidents": 1}, up | {"state": "absent"}

    assert of_boards("good", [up, up], is_any=False) == "Yes, as far as is known"
    assert of_boards("good", [up, failed], is_any=False) == "No"
    assert of_boards("up", [up, failed], is_any=False) == "Yes, as far as is known"
    assert of_boards("up", [up, gone], is_any=False) == "No"
    assert of_boards("down", [up, gone], is_any=True) == "Yes"
    assert of_boards("down", [up, gone], is_any=False) == ""  # neither all nor none


def test_what_is_resolved_is_so_no_more() -> None:
    rows = [{"state": "resolved"}]

    assert of_incidents(rows, is_now=True) == "Not any more"
    assert of_incidents(rows, is_now=False) == "Yes"
    assert of_incidents([*rows, {"state": "open"}], is_now=True) == "Yes"
    assert of_incidents([], is_now=True) == "No"


def test_the_answer_comes_first_and_the_sentence_goes_on() -> None:
    assert with_answer("No", "No crash was noticed.") == "No: no crash was noticed."
    assert with_answer("Yes", "U-Boot took an exception") == "Yes: U-Boot took an exception"
    assert with_answer("", "dut1 is up.") == "dut1 is up."
