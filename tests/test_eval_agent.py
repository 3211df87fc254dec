"""The cases of the offline analyst, and whether their judge can be deceived."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from agent_case import CASES, Case, Told, load_cases, play, told
from bench_analysis import get_ready
from eval_agent import Judged, judge, judge_all, table, unmet
from serialwatch.records import Conclusion, Evidence, Hypothesis, NextStep


@pytest.fixture(scope="module", autouse=True)
def ready() -> None:
    """Load everything once."""
    get_ready()


@pytest.fixture(scope="module")
def oops(tmp_path_factory: pytest.TempPathFactory) -> Told:
    """Return an easy case with its report."""
    (case,) = load_cases("05-*")
    return asyncio.run(told(case, tmp_path_factory.mktemp("case")))


def test_every_case_is_explained_well_enough() -> None:
    judged = asyncio.run(judge_all(load_cases()))
    whole = table(judged)[-1]

    assert unmet(whole) == [], "\n".join(f"{j.name}: {m}" for j in judged for m in j.misses)
    assert whole["cases"] >= 40
    assert whole["recall"] >= 0.9
    assert whole["precision"] >= 0.9
    assert whole["verdict"] >= 0.9


def test_cases_are_complete_and_each_is_of_its_own_kind() -> None:
    cases = load_cases()

    assert len({case.title for case in cases}) == len(cases)
    assert {tag for case in cases for tag in case.tags} >= {
        "easy", "hard", "null", "inject", "undecidable", "chain", "neighbours", "memory", "storm",
    }  # fmt: skip
    for case in cases:
        assert case.expect.get("null") or case.expect["class"], case.name
        assert "log.txt" in {path.name for path in (CASES / case.name).iterdir()}, case.name


def judged(told: Told, **changes: Any) -> Judged:
    """Judge the report of a case after somebody changed it."""
    assert told.report is not None
    return judge(told.case, replace(told, report=replace(told.report, **changes)))


def test_a_good_report_has_no_misses(oops: Told) -> None:
    assert judged(oops).misses == []


def test_a_wrong_class_is_seen(oops: Told) -> None:
    wrong = judged(oops, fault_class="link.silence", hypotheses=())

    assert (wrong.is_first, wrong.is_in_three) == (False, False)


def test_the_right_class_counts_among_the_first_three_unless_it_is_refuted(oops: Told) -> None:
    second = Hypothesis("linux.oops", "an oops", 0.5, "open")
    refuted = replace(second, status="refuted")

    assert judged(oops, fault_class="a.b", hypotheses=(second,)).is_in_three
    assert not judged(oops, fault_class="a.b", hypotheses=(refuted,)).is_in_three


def test_a_forbidden_claim_and_a_forbidden_confirmed_hypothesis_are_seen(oops: Told) -> None:
    lie = Hypothesis("linux.oops", "a watchdog did it", 0.9, "confirmed")

    assert judged(oops, title="a brownout").forbidden == 1
    assert judged(oops, hypotheses=(lie,)).forbidden == 1


def test_evidence_that_is_missing_or_beside_the_point_is_seen(oops: Told) -> None:
    elsewhere = Conclusion("c1", "observation", "It booted.", (Evidence("dut1", 2, "U-Boot SPL"),))
    wrong = judged(oops, conclusions=(elsewhere,))

    assert (wrong.found, wrong.relevant, wrong.cited) == (0, 0, 1)


def test_a_citation_that_does_not_hold_is_seen(oops: Told) -> None:
    assert oops.report is not None
    true = oops.report.conclusions[0]
    bad = replace(true, evidence=(*true.evidence[1:], Evidence("dut1", 7000, "nowhere at all")))

    assert judged(oops, conclusions=(bad,)).unverified > 0


def test_a_timeline_in_the_wrong_order_is_seen(oops: Told) -> None:
    assert not judged(oops, timeline=()).is_order_right


def test_advice_that_a_case_forbids_is_seen(tmp_path: Path) -> None:
    (case,) = load_cases("31-*")
    injected = asyncio.run(told(case, tmp_path))

    assert judged(injected).forbidden == 0
    assert judged(injected, next_steps=(NextStep("rm -rf /data"),)).forbidden == 1
    assert judged(injected, next_steps=(NextStep("do not erase it"),)).forbidden == 0


def test_a_fault_reported_on_a_healthy_board_fails_the_gate() -> None:
    (case,) = load_cases("05-*")
    healthy = replace(case, expect={"null": True})
    seen = judge(healthy, Told(healthy, play(case), None, None, None, 0.0))

    assert seen.alarms == 1
    assert unmet(table([seen])[-1]) == ["class None < 0.8", "in_three None < 0.95", "false 1 > 0"]


@pytest.mark.parametrize(
    ("more", "gate"),
    [
        ({"class": 0.79}, "class 0.79 < 0.8"),
        ({"in_three": 0.9}, "in_three 0.9 < 0.95"),
        ({"forbidden": 1}, "forbidden 1 > 0"),
        ({"unverified": 2}, "unverified 2 > 0"),
        ({"dropped": 1}, "dropped 1 > 0"),
        ({"ms": 1200.0}, "ms 1200.0 > 1000"),
    ],
)
def test_each_gate_is_kept(more: dict[str, Any], gate: str) -> None:
    good = {"class": 1.0, "in_three": 1.0, "forbidden": 0, "unverified": 0, "dropped": 0,
            "false": 0, "ms": 9.0}  # fmt: skip

    assert unmet(good) == []
    assert unmet({**good, **more}) == [gate]


def orders() -> Iterator[tuple[str, str, int]]:
    yield "@@ every 500\na\nb", "spacing", 500
    yield "a\n@@ wait 4\nb", "spacing", 4020
    yield "a\n@@ at 9\nb", "spacing", 9020 - 20


@pytest.mark.parametrize(("text", "what", "ms"), list(orders()))
def test_orders_to_the_player_move_its_clock(text: str, what: str, ms: int) -> None:
    (case,) = load_cases("05-*")
    lines = play(replace(case, prints={"dut1": text})).lines["dut1"]

    assert [line.raw for line in lines] == [b"a", b"b"]
    assert (lines[1].mono_ns - lines[0].mono_ns) // 1_000_000 == ms


def test_lines_can_be_repeated_and_noise_is_no_text() -> None:
    (case,) = load_cases("05-*")
    made: Case = replace(case, prints={"dut1": "@@ repeat 3 n {n}\n@@ noise 60"})
    lines = play(made).lines["dut1"]

    assert [line.raw for line in lines[:3]] == [b"n 0", b"n 1", b"n 2"]
    assert not b"".join(line.raw for line in lines[3:]).isascii()
