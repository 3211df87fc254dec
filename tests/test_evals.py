"""The test cases that a skill brings along: how they are read and judged."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from serialwatch.agent.skills.evals import EvalsError, at_pointer, read_cases
from serialwatch.agent.skills.results import failure
from serialwatch.records import SkillResult

OUTPUT = {"port": "dut1", "lines": [{"seq": 7, "text": "a panic"}], "a/b": {"~": 1}, "n": 3}


def test_a_log_is_lines_a_text_or_a_file_of_the_folder(tmp_path: Path) -> None:
    (tmp_path / "evals").mkdir()
    (tmp_path / "evals" / "boot.log").write_bytes(b"\xffx\n")
    logs: list[object] = [["a", "b"], "a\nb", "evals/boot.log", None]
    _write(tmp_path, *[{"name": str(n), "log": log, "expect": {"no_data": True}}
                       for n, log in enumerate(logs)])  # fmt: skip

    assert [case.log for case in read_cases(tmp_path)] == [b"a\nb\n", b"a\nb", b"\xffx\n", b""]


def test_a_skill_without_the_file_has_no_cases(tmp_path: Path) -> None:
    assert read_cases(tmp_path) == []


@pytest.mark.parametrize(
    ("case", "says"),
    [
        ({}, "name"),
        ({"name": "x"}, "expect"),
        ({"name": "x", "expect": {}}, "expects something"),
        ({"name": "x", "expect": {"status": "fine"}}, "success or failure or require_more"),
        ({"name": "x", "expect": {"error": "lost"}}, "no code of a failure"),
        ({"name": "x", "expect": {"no_data": 1}}, "true or false"),
        ({"name": "x", "expect": {"contains": {"port": "x"}}}, "JSON pointer"),
        ({"name": "x", "expect": {"matches": {"/port": "("}}}, "expect matches: '('"),
        ({"name": "x", "expect": {"matches": {"/port": "(a+)+b"}}}, "slow"),
        ({"name": "x", "expect": {"output": 1}}, "unknown key 'output'"),
        ({"name": "x", "file": "y", "expect": {"status": "success"}}, "unknown key 'file'"),
        ({"name": "x", "args": [], "expect": {"status": "success"}}, "args"),
        ({"name": "x", "log": 7, "expect": {"status": "success"}}, "log: a list of lines"),
        ({"name": "x", "log": "../up.log", "expect": {"status": "success"}}, "not in the skill's"),
        ({"name": "x", "log": "gone.log", "expect": {"status": "success"}}, "No such file"),
        (7, "must be an object"),
    ],
)
def test_what_cannot_be_read_is_told(tmp_path: Path, case: object, says: str) -> None:
    _write(tmp_path, case)

    with pytest.raises(EvalsError, match="case ") as told:
        read_cases(tmp_path)
    assert says in str(told.value)
    assert str(told.value).startswith(str(tmp_path / "evals" / "evals.json"))


@pytest.mark.parametrize("text", ["{", "[]", '{"cases": []}', '{"cases": 7}'])
def test_a_file_without_cases_is_told(tmp_path: Path, text: str) -> None:
    _write(tmp_path)
    (tmp_path / "evals" / "evals.json").write_text(text)

    with pytest.raises(EvalsError):
        read_cases(tmp_path)


def test_two_cases_of_one_name_are_told(tmp_path: Path) -> None:
    _write(tmp_path, *[{"name": "x", "expect": {"no_data": True}}] * 2)

    with pytest.raises(EvalsError, match="case x: a second one"):
        read_cases(tmp_path)


@pytest.mark.parametrize(
    ("expect", "problem"),
    [
        ({"status": "success", "no_data": False}, ""),
        ({"contains": {"/lines/0/text": "panic", "/lines/-1/seq": 7, "/a~1b/~0": 1}}, ""),
        ({"contains": {"": {"port": "dut1", "n": 3}, "/lines": OUTPUT["lines"][0]}}, ""),  # type: ignore[index]
        ({"matches": {"/port": "^dut[0-9]$", "/n": "^3$", "/lines": "panic"}}, ""),
        ({"status": "failure"}, "status: failure expected, success came"),
        ({"error": "timeout"}, "error: timeout expected, none came"),
        ({"no_data": True}, "no_data: nothing expected, data came"),
        ({"contains": {"/lines/1/text": "x"}}, "/lines/1/text: nothing is there"),
        ({"contains": {"/port/x": "x"}}, "/port/x: nothing is there"),
        ({"contains": {"/port": "dut2"}}, "/port: 'dut1' does not contain 'dut2'"),
        ({"contains": {"/n": True}}, "/n: '3' does not contain True"),
        ({"contains": {"/n": 3.0}}, "/n: '3' does not contain 3.0"),
        ({"matches": {"/port": "^x"}}, "/port: 'dut1' does not match '^x'"),
    ],
)
def test_a_result_is_judged(tmp_path: Path, expect: dict[str, Any], problem: str) -> None:
    _write(tmp_path, {"name": "x", "expect": expect})
    (case,) = read_cases(tmp_path)

    problems = case.problems(SkillResult("success", OUTPUT))

    assert problems == ([problem] if problem else [])


def test_a_failure_that_was_not_expected_says_which(tmp_path: Path) -> None:
    _write(tmp_path, {"name": "x", "expect": {"status": "success"}})
    (case,) = read_cases(tmp_path)

    (problem,) = case.problems(failure("timeout", "limit 5 s"))

    assert problem == "status: success expected, failure came (timeout: limit 5 s)"


def test_nothing_found_is_told_by_output_or_metadata(tmp_path: Path) -> None:
    _write(tmp_path, {"name": "x", "expect": {"no_data": True}})
    (case,) = read_cases(tmp_path)

    assert case.problems(SkillResult("success", {"no_data": True})) == []
    assert case.problems(SkillResult("success", {}, metadata={"no_data": True})) == []
    assert len(case.problems(SkillResult("success", {}))) == 1


def test_pointers_go_where_they_say() -> None:
    assert at_pointer(OUTPUT, "") == OUTPUT
    with pytest.raises(LookupError):
        at_pointer(OUTPUT, "/lines/text")


def _write(folder: Path, *cases: object) -> None:
    (folder / "evals").mkdir(exist_ok=True)
    (folder / "evals" / "evals.json").write_text(json.dumps({"cases": cases}))
