from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

import eval_streams


def found(*rules: str, severity: str = "critical", line: int = 30, boots: int = 1) -> Any:
    incidents = [
        {"rule": rule, "severity": severity, "first_line": line, "block_first": line - 3,
         "last_line": line + 9}
        for rule in rules
    ]  # fmt: skip
    return {"lines": 200, "boots": boots, "incidents": incidents}


def judged(told: Any, expected: str, line: str = "30") -> Any:
    score = eval_streams.Score()
    row = {"id": "x", "expected": expected, "first_fault_line": line, "boots": "1"}
    eval_streams.judge(row, told, score)
    return score


def test_a_fault_that_is_found_in_its_place_counts_everywhere() -> None:
    score = judged(found("linux.oops"), "linux.oops,linux.panic")

    assert score.misses == []
    assert score.row("x") | {"family": ""} == {
        "family": "", "streams": 1, "recall": 1.0, "primary": 1.0, "precision": 1.0,
        "first_line": 1.0, "boots": 1.0, "clean_lines": 0, "alarms_per_100k": None,
    }  # fmt: skip


@pytest.mark.parametrize(
    ("told", "expected", "miss"),
    [
        (found(), "linux.oops", "x: linux.oops was not found"),
        (found("linux.oops", line=90), "linux.oops", "x: found in line 90, not 30"),
        (found("linux.oops", boots=2), "linux.oops", "x: 2 boots, not 1"),
        (
            found("linux.oops", "linux.bug"),
            "linux.oops",
            "x: linux.bug (line 30) is not expected",
        ),
        (found("user.core", severity="warning"), "none", "x: user.core in a healthy stream"),
    ],
)
def test_what_goes_wrong_is_named(told: Any, expected: str, miss: str) -> None:
    assert judged(told, expected).misses == [miss]


def test_alarms_in_healthy_streams_are_told_by_the_line() -> None:
    score = judged(found("linux.oops", "linux.bug"), "none", "-")

    assert score.row("x")["alarms_per_100k"] == 1000.0
    assert score.row("x")["precision"] == 0.0


def test_a_note_is_no_alarm() -> None:
    assert judged(found("linux.oops", severity="note"), "none", "-").misses == []


def test_it_runs_on_a_folder_of_streams(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "a.log").write_text("[    1.000000] irq 33: nobody cared (try booting)\n")
    told = eval_streams.analyze([tmp_path / "a.log"])

    assert [i["rule"] for i in told[tmp_path / "a.log"]["incidents"]] == ["linux.irq_nobody_cared"]
