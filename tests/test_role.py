from __future__ import annotations

import json
from pathlib import Path

import pytest
from click.testing import CliRunner

from serialwatch.agent.process import usable_roles
from serialwatch.agent.role import (
    CORE_TOKENS,
    SECTION_TOKENS,
    RoleError,
    check_skills,
    load_role,
    load_roles,
    read_role,
    tokens_in,
)
from serialwatch.agent.setup import Setup
from serialwatch.agent.skills.registry import load_skills
from serialwatch.bundled import bundled_dir
from serialwatch.cli.roles import roles as roles_command

ROLES = bundled_dir("config/roles")
BUNDLED = ("log-detective", "bench-assistant")
GOOD = """---
name: mine
description: Looks.
origin: questions
skills: log-read report-write
risk: L2
memory-read: bench port
memory-write: bench
limits: {rounds: 4}
---

## core

Look.

## method

Slowly.

## style

Short.
"""


def written(folder: Path, text: str, name: str = "mine") -> Path:
    (folder / name).mkdir(parents=True)
    path = folder / name / "ROLE.md"
    path.write_text(text)
    return path


@pytest.mark.parametrize("name", BUNDLED)
def test_the_roles_that_ship_fit_their_budget(name: str) -> None:
    role = load_role([ROLES], name)

    assert tokens_in(role.sections["core"]) <= CORE_TOKENS
    for phase in ("method", "style"):
        assert tokens_in(role.text(phase, ["linux.oops", "linux"])) < 600


@pytest.mark.parametrize("name", BUNDLED)
def test_the_roles_that_ship_say_what_they_do_not_do(name: str) -> None:
    core = " ".join(load_role([ROLES], name).sections["core"].split())

    for limit in ("Do not guess", "damage hardware", "not enough information", "cannot write"):
        assert limit in core


@pytest.mark.parametrize("name", BUNDLED)
def test_the_roles_that_ship_have_skills_that_exist(name: str) -> None:
    role = load_role([ROLES], name)
    skills = load_skills([bundled_dir("skills")]).skills

    assert not check_skills(
        role, {n: s.risk for n, s in skills.items()}, {n: s.roles for n, s in skills.items()}
    )
    assert "report-write" in role.skills


def test_the_two_roles_have_skills_and_memories_of_their_own() -> None:
    detective, assistant = (load_role([ROLES], name) for name in BUNDLED)

    assert {"register-decode", "human-ask"} <= set(detective.skills) - set(assistant.skills)
    assert assistant.memory_read - detective.memory_read == {"user"}
    assert detective.memory_write - assistant.memory_write == {"port", "board"}
    assert not detective.origin & assistant.origin


def test_sections_come_by_phase_and_by_incident() -> None:
    role = load_role([ROLES], "log-detective")
    method = role.text("method", ["linux.oops", "linux"])
    style = role.text("style", ["boot.loop", "boot"])

    assert role.sections["core"] in method
    assert role.sections["core"] in style
    assert role.sections["method"] in method
    assert role.sections["on:linux"] in method
    assert role.sections["style"] not in method
    assert role.sections["on:boot.loop"] in style


def test_an_own_role_comes_before_the_bundled_one(tmp_path: Path) -> None:
    own = GOOD.replace("name: mine", "name: log-detective")
    path = written(tmp_path, own, "log-detective")
    roles = load_roles([tmp_path, ROLES])

    assert roles.found["log-detective"].path == path
    assert [role.path.parent.parent for role in roles.shadowed] == [ROLES]


def test_a_broken_own_role_is_told_and_the_bundled_one_is_used(tmp_path: Path) -> None:
    path = written(tmp_path, "---\nname: log-detective\n---\n", "log-detective")
    roles = load_roles([tmp_path, ROLES])

    assert roles.found["log-detective"].path.parent.parent == ROLES
    assert roles.problems
    assert all(problem.path == path for problem in roles.problems)


def test_the_agent_starts_without_a_broken_role_and_says_so(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    path = written(tmp_path, GOOD.replace("risk: L2", "risk: L9"))
    hello = {"state_dir": str(tmp_path), "roles_dirs": [str(tmp_path), str(ROLES)]}
    roles = usable_roles(Setup.of(hello, {}))

    assert set(roles.found) == set(BUNDLED)
    assert f"{path}:6: risk: L1, L2 or L3, not 'L9'" in caplog.text


def test_an_own_role_for_the_same_comes_before_those_that_ship(tmp_path: Path) -> None:
    written(tmp_path, GOOD.replace("name: mine", "name: zoe"), "zoe")
    taker = load_roles([tmp_path, ROLES]).for_origin("questions")

    assert taker is not None
    assert taker.name == "zoe"


def test_limits_of_a_role_can_only_be_narrower(tmp_path: Path) -> None:
    role, _ = read_role(written(tmp_path, GOOD))

    assert role is not None
    assert role.limit("rounds", 8) == 4
    assert role.limit("rounds", 3) == 3
    assert role.limit("tokens", 48_000) == 48_000


@pytest.mark.parametrize(
    ("old", "new", "line", "told"),
    [
        ("---\nname: mine", "name: mine", 1, "the first line must be `---`"),
        ("name: mine", "name: [a", 3, ""),
        ("name: mine", "name: other", 2, "its folder is 'mine'"),
        ("description: Looks.\n", "", 1, "description: is missing"),
        ("origin: questions", "origin: everything", 4, "'everything' is none of incidents"),
        ("skills: log-read report-write", "skills: log-read", 5, "report-write is missing"),
        ("risk: L2", "risk: L4", 6, "risk: L1, L2 or L3, not 'L4'"),
        ("memory-read: bench port", "memory-read: moon", 7, "'moon' is none of bench"),
        ("limits: {rounds: 4}", "limits: {rounds: 99}", 9, "rounds: 2 to 8, not 99"),
        ("limits: {rounds: 4}", "limits: {money: 1}", 9, "'money' is none of rounds"),
        ("limits: {rounds: 4}", "model: big", 9, "unknown key 'model'"),
        ("## method", "## methods", 16, "section 'methods'"),
        ("## method\n\nSlowly.\n", "", 19, "a section `## method` is missing"),
        ("Slowly.\n", "", 16, "section method is empty"),
        ("## style", "## method", 20, "a second section method"),
        ("Look.\n", "Look. " * 300 + "\n", 12, "250 at most: shorten it"),
        ("Slowly.\n", "Slowly. " * 300 + "\n", 16, f"{SECTION_TOKENS} at most: shorten it"),
    ],
)
def test_what_is_wrong_with_a_role_has_its_line(
    tmp_path: Path, old: str, new: str, line: int, told: str
) -> None:
    assert old in GOOD
    path = written(tmp_path, GOOD.replace(old, new, 1))
    role, problems = read_role(path)

    assert role is None
    assert any(p.line == line and told in p.text for p in problems), problems
    assert all(p.words.startswith(f"{path}:{p.line}: ") for p in problems)


def test_a_role_that_is_no_text_is_told(tmp_path: Path) -> None:
    path = written(tmp_path, "")
    path.write_bytes(b"\xff\xfe")

    assert "not UTF-8" in read_role(path)[1][0].text


def test_skills_that_a_role_may_not_have_are_told_with_their_line(tmp_path: Path) -> None:
    role, _ = read_role(written(tmp_path, GOOD.replace("risk: L2", "risk: L1")))

    assert role is not None
    problems = check_skills(role, {"log-read": "L1", "report-write": "L2"}, {"log-read": {"other"}})
    assert [(p.line, p.text.partition(" (")[0]) for p in problems] == [
        (5, "skills: log-read is not for this role"),
        (5, "skills: report-write is L2, and the role's risk is L1 at most"),
    ]


def test_a_role_that_is_not_there_is_named(tmp_path: Path) -> None:
    with pytest.raises(RoleError, match=r"nobody/ROLE\.md: no such role"):
        load_role([tmp_path], "nobody")


def test_the_check_names_file_and_line_and_exits_with_two(tmp_path: Path) -> None:
    path = written(tmp_path, GOOD.replace("risk: L2", "risk: L9"))
    found = CliRunner().invoke(roles_command, ["check", str(tmp_path)], standalone_mode=False)

    assert found.return_value == 2
    assert f"serialwatch: {path}:6: risk: L1, L2 or L3" in found.stderr
    assert "0 roles in order, 1 problem" in found.stdout


def test_the_roles_that_ship_pass_the_check() -> None:
    found = CliRunner().invoke(roles_command, ["check", str(ROLES)], standalone_mode=False)

    assert found.return_value == 0
    assert found.stdout == "2 roles in order, no problems\n"


def test_roles_are_listed_and_shown_as_json() -> None:
    listed = json.loads(CliRunner().invoke(roles_command, ["list", "--json"]).stdout)
    shown = json.loads(
        CliRunner().invoke(roles_command, ["show", "bench-assistant", "--json"]).stdout
    )

    assert {role["name"] for role in listed["roles"]} >= set(BUNDLED)
    assert shown["origin"] == ["digest", "questions", "schedules"]
    assert [s["name"] for s in shown["sections"]] == ["core", "method", "style"]


def test_an_unknown_role_names_those_that_there_are() -> None:
    found = CliRunner().invoke(roles_command, ["show", "nobody"])

    assert isinstance(found.exception, Exception)
    assert "there are bench-assistant, log-detective" in str(found.exception)
