"""`serialwatch skills`: list, show, lint, new, run and test."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from bench_cli import Cli
from saved_log import SavedLog
from serialwatch.agent.skills.registry import load_skills
from serialwatch.agent.skills.resting import NAME, Resting, write_resting
from skill_maker import make_skill

RULES = """
[[boot]]
ecosystem = "toy"
match = ['^ToyBoot \\d']
stage = 1
"""
READ = "return SkillResult('success', await ctx.log.lines(boot=params.get('boot')))"
BOOT = {
    "type": "object",
    "additionalProperties": False,
    "properties": {"boot": {"description": "Boot.", "type": "integer", "examples": [-1]}},
    "examples": [{"boot": -1}],
}


@pytest.fixture
def cli(tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> Cli:
    """Run commands where there are an own and a bundled folder of skills, and one rule."""
    folders = {
        "skills": [tmp_path / "own", tmp_path / "bundled"],
        "rules": [tmp_path / "rules"],
        "knowledge": [],
    }
    (tmp_path / "rules").mkdir()
    (tmp_path / "rules" / "toy.toml").write_text(RULES)
    for module in ("cli.skills", "cli.skills_load", "cli.skills_new", "cli.rules_load",
                   "saved.skill_trial"):  # fmt: skip
        monkeypatch.setattr(f"serialwatch.{module}.search_path", folders.__getitem__)
    return Cli(tmp_path / "sw", capsys)


def test_both_versions_are_listed_and_why_one_is_used(tmp_path: Path, cli: Cli) -> None:
    make_skill(tmp_path / "own", "log-read", version="2.0.0")
    make_skill(tmp_path / "bundled", "log-read", version="1.2.0")
    config = tmp_path / "sw.toml"
    config.write_text('[agent]\nskill_versions = {"log-read" = "1.2.0"}\n')
    by_order = json.loads(cli("skills", "list", "--json").out)["skills"]
    by_name = json.loads(cli("skills", "list", "-c", str(config), "--json").out)["skills"]
    listed = cli("skills", "list", "-c", str(config)).out

    assert [(s["version"], s["is_used"], s["status"]) for s in by_order] == [
        ("2.0.0", True, f"in use: {tmp_path / 'own'} comes first"),
        ("1.2.0", False, f"not in use: {tmp_path / 'own'} comes first"),
    ]
    assert [(s["version"], s["status"]) for s in by_name] == [
        ("1.2.0", "in use: named by agent.skill_versions"),
        ("2.0.0", "not in use: named by agent.skill_versions"),
    ]
    assert listed.count("log-read") == 2


def test_a_version_that_is_not_there_is_warned_about(tmp_path: Path, cli: Cli) -> None:
    make_skill(tmp_path / "bundled", "log-read", version="1.2.0")
    config = tmp_path / "sw.toml"
    config.write_text('[agent]\nskill_versions = {"log-read" = "9.9.9", "a-b" = "1.0.0"}\n')
    result = cli("skills", "list", "-c", str(config))

    assert result.code == 0
    assert f"names log-read 9.9.9: there is no such version, only 1.2.0 in {tmp_path}" in result.err
    assert "1.2.0 is used" in result.err
    assert "names a-b 1.0.0: there is no such skill" in result.err


def test_a_skill_is_shown_as_the_model_sees_it(tmp_path: Path, cli: Cli) -> None:
    make_skill(tmp_path / "own", "a-b", READ, schema=BOOT, head="allowed-tools: log.lines\n")
    shown = cli("skills", "show", "a-b").out
    told = json.loads(cli("skills", "show", "a-b", "--json").out)

    assert "a-b 1.0.0 · L1 · in use" in shown
    assert "may use     log.lines" in shown
    assert "boot        integer. Boot. E.g. -1." in shown
    assert f"The model sees, in about {told['tokens']} tokens" in shown
    assert told["tool"]["function"]["name"] == "a-b"
    assert told["hints"] == {"denied": "go on without."}


def test_an_unknown_skill_is_told_with_similar_names(tmp_path: Path, cli: Cli) -> None:
    make_skill(tmp_path / "own", "log-read")
    result = cli("skills", "show", "logread")

    assert (result.code, result.err) == (
        2,
        "serialwatch: no skill 'logread': did you mean log-read?\n",
    )


def test_a_broken_skill_is_told_by_name_and_by_folder(tmp_path: Path, cli: Cli) -> None:
    folder = make_skill(tmp_path / "own", "a-b")
    (folder / "schema.json").write_text("{")
    results = [cli("skills", "show", name) for name in ("a-b", str(folder))]

    assert [r.code for r in results] == [1, 1]
    assert all(f"{folder}: broken: no JSON Schema" in r.err for r in results)
    listed = cli("skills", "list").out
    assert "broken: no JSON Schema" in listed
    assert "a daemon that runs stays with the last version that was in order" in listed


def test_lint_says_file_line_code_and_what_to_do(tmp_path: Path, cli: Cli) -> None:
    path = make_skill(tmp_path / "own", "a-b") / "SKILL.md"
    path.write_text(path.read_text().replace('version: "1.0.0"', 'version: "1"'))
    result = cli("skills", "lint")

    assert result.code == 2
    assert f"{path}:6: error SW007: metadata version: no semantic version: state" in result.err
    assert json.loads(cli("skills", "lint", "--json").out)[0]["line"] == 6


def test_a_warning_fails_the_strict_lint_only(tmp_path: Path, cli: Cli) -> None:
    folder = make_skill(tmp_path / "own", "a-b")
    (folder / "evals" / "evals.json").unlink()

    assert cli("skills", "lint").code == 0
    assert "warning SW060" in cli("skills", "lint").err
    assert cli("skills", "lint", "--strict").code == 2


def test_one_skill_is_linted_by_its_folder(tmp_path: Path, cli: Cli) -> None:
    good = make_skill(tmp_path / "own", "a-b")
    (make_skill(tmp_path / "own", "c-d") / "main.py").write_text("x")

    assert cli("skills", "lint", str(good)).out == "1 skill, no findings\n"
    assert cli("skills", "lint", str(tmp_path / "own")).code == 2


def test_a_link_that_leads_out_is_found_in_a_folder_named_from_here(
    tmp_path: Path, cli: Cli, monkeypatch: pytest.MonkeyPatch
) -> None:
    outside = make_skill(tmp_path / "elsewhere", "a-b")
    (tmp_path / "own").mkdir()
    (tmp_path / "own" / "a-b").symlink_to(outside)
    monkeypatch.chdir(tmp_path)
    result = cli("skills", "lint", "own")

    assert result.code == 2
    assert "a link that leads out" in result.err


def test_a_new_skill_lints_clean_and_passes_its_test(tmp_path: Path, cli: Cli) -> None:
    made = cli("skills", "new", "uart-triage")
    linted = cli("skills", "lint", "--strict")
    tested = cli("skills", "test", "uart-triage")

    assert (made.code, (tmp_path / "own" / "uart-triage" / "main.py").is_file()) == (0, True)
    assert "an administrator copies it to /etc/serialwatch/skills" in made.out
    elsewhere = cli("skills", "new", "uart-other", "--dir", str(tmp_path / "mine"))
    assert "administrator" not in elsewhere.out
    assert (linted.code, linted.out) == (0, "1 skill, no findings\n")
    assert (tested.code, tested.out.splitlines()[-1]) == (0, "2 of 2 cases passed")


@pytest.mark.parametrize("name", ["uart", "Uart-x", "a_b-c", "../a-b", "a--b", "a-" + "b" * 60])
def test_a_name_that_cannot_be_is_refused(cli: Cli, tmp_path: Path, name: str) -> None:
    result = cli("skills", "new", name)

    assert result.code == 2
    assert "<domain>-<action>" in result.err
    assert not (tmp_path / "own").exists()


def test_a_new_skill_says_what_it_hides_and_replaces_nothing(tmp_path: Path, cli: Cli) -> None:
    make_skill(tmp_path / "bundled", "a-b")
    first = json.loads(cli("skills", "new", "a-b", "--json").out)
    again = cli("skills", "new", "a-b")

    assert first["hides"] == str(tmp_path / "bundled" / "a-b")
    assert again.code == 2
    assert "is there already" in again.err


def test_a_skill_runs_on_a_saved_log(tmp_path: Path, cli: Cli) -> None:
    make_skill(tmp_path / "own", "a-b", READ, schema=BOOT)
    log = tmp_path / "saved.log"
    log.write_bytes(b"ToyBoot 1\r\none\r\nToyBoot 1\r\ntwo \x1b[31m\r\nend")
    result = cli("skills", "run", "a-b", "--args", '{"boot": -1}', "--log", str(log))
    told = json.loads(cli("skills", "run", "a-b", "--log", str(log), "--json").out)

    assert result.code == 0
    assert [line.partition(":")[2] for line in result.out.splitlines()[1:4]] == [
        "dut1:L3| ToyBoot 1", "dut1:L4| two ", "dut1:L5| end"
    ]  # fmt: skip
    assert [line["seq"] for line in told["output"]["lines"]] == [1, 2, 3, 4, 5]


def test_a_skill_runs_on_the_daemons_state(tmp_path: Path, cli: Cli) -> None:
    make_skill(tmp_path / "own", "a-b", READ, schema=BOOT)
    state = tmp_path / "state"
    SavedLog(state / "log").add("hello")
    result = cli("skills", "run", "a-b", "--port", "dut1", "--state", str(state))
    missing = cli("skills", "run", "a-b", "--port", "dut9", "--state", str(state))

    assert "dut1:L1| hello" in result.out
    assert missing.code == 1
    assert "no log of port 'dut9': there are dut1" in missing.err


def test_what_a_skill_writes_is_shown_and_goes_nowhere(tmp_path: Path, cli: Cli) -> None:
    code = "return SkillResult('success', await ctx.report.submit({'title': 'x'}))"
    make_skill(tmp_path / "own", "a-b", code, risk="L2")
    told = json.loads(cli("skills", "run", "a-b", "--json").out)

    assert told["output"]["accepted"] is True
    assert told["wrote"] == [{"what": "report", "body": {"title": "x"}}]
    assert "would write (report)" in cli("skills", "run", "a-b").out


def test_a_skill_that_acts_on_a_board_shows_what_it_would_propose(tmp_path: Path, cli: Cli) -> None:
    code = "await ctx.console.send('reboot\\r', port='dut1')\nreturn SkillResult('success', {})"
    make_skill(tmp_path / "own", "a-b", code, risk="L3", roles="bench-assistant")
    result = cli("skills", "run", "a-b")

    assert result.code == 0
    assert "send exactly 7 bytes to dut1" in result.out
    assert "would propose (action)" in result.out


def test_a_long_job_is_waited_for(tmp_path: Path, cli: Cli) -> None:
    code = "await ctx.accept('x')\nreturn SkillResult('success', {'n': 7})"
    make_skill(tmp_path / "own", "a-b", code, long_s="60")

    assert json.loads(cli("skills", "run", "a-b", "--json").out)["output"] == {"n": 7}


@pytest.mark.parametrize(
    ("args", "says"),
    [
        (("--args", "{"), '--args: no JSON: Expecting property name enclosed in double quotes'),
        (("--args", "[1]"), '--args: must be a JSON object; for example {"boot": -1}'),
        (("--log", "x.log", "--state", "."), "exclude each other"),
    ],
)  # fmt: skip
def test_wrong_use_is_told(
    tmp_path: Path, cli: Cli, args: tuple[str, ...], says: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "x.log").write_text("")
    make_skill(tmp_path / "own", "a-b", READ, schema=BOOT)
    result = cli("skills", "run", "a-b", *args)

    assert result.code == 2
    assert says in result.err


def test_a_case_that_fails_is_told_and_fails_the_test(tmp_path: Path, cli: Cli) -> None:
    folder = make_skill(tmp_path / "own", "a-b", READ, schema=BOOT)
    cases = [
        {"name": "good", "log": ["ToyBoot 1", "x"], "args": {"boot": 1}, "expect": {
            "contains": {"/lines/1/text": "x"}}},
        {"name": "bad", "log": ["ToyBoot 1"], "args": {"boot": 1}, "expect": {
            "contains": {"/lines/0/text": "SheepBoot"}}},
    ]  # fmt: skip
    (folder / "evals" / "evals.json").write_text(json.dumps({"cases": cases}))
    result = cli("skills", "test")
    told = json.loads(cli("skills", "test", "a-b", "--json").out)

    assert result.code == 1
    assert "FAIL a-b: bad\n       /lines/0/text: 'ToyBoot 1' does not contain" in result.out
    assert result.out.splitlines()[-1] == "1 of 2 cases passed"
    assert [row["ok"] for row in told["cases"]] == [True, False]


def test_skills_without_cases_and_with_bad_ones_are_told(tmp_path: Path, cli: Cli) -> None:
    (make_skill(tmp_path / "own", "a-b") / "evals" / "evals.json").unlink()
    (make_skill(tmp_path / "own", "c-d") / "evals" / "evals.json").write_text("[")
    result = cli("skills", "test")

    assert result.code == 1
    assert "FAIL c-d: evals.json" in result.out
    assert "a-b: no test cases" in result.err


def test_a_skill_that_rests_is_shown_with_why_and_what_to_do(tmp_path: Path, cli: Cli) -> None:
    folder = make_skill(tmp_path / "own", "a-b")
    make_skill(tmp_path / "own", "c-d")
    config = tmp_path / "sw.toml"
    config.write_text(f'[daemon]\nstate_dir = "{tmp_path}/state"\n')
    sha = load_skills([tmp_path / "own"]).skills["a-b"].sha
    why = "failed 3 times within 10 minutes (crashed, crashed, timeout)"
    row = Resting("a-b", "1.0.0", sha, why, "2026-06-22T08:38:07.000000Z")
    write_resting(tmp_path / "state" / "skills" / NAME, [row])
    listed = json.loads(cli("skills", "list", "-c", str(config), "--json").out)["skills"]
    shown = " ".join(cli("skills", "show", "a-b", "-c", str(config)).out.split())

    assert [bool(skill["rests"]) for skill in listed] == [True, False]
    assert why in " ".join(cli("skills", "list", "-c", str(config)).out.split())
    assert f"not called rests since 2026-06-22 08:38: {why}; mend it" in shown
    assert f"`touch {folder}/main.py`" in shown
    (folder / "main.py").write_text("# another\n" + (folder / "main.py").read_text())
    assert "rests since" not in cli("skills", "list", "-c", str(config)).out
