from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from serialwatch.agent.skills.choice import (
    BUDGET_TOKENS,
    MAX_FULL,
    Offer,
    catalogue_line,
    choose,
    find,
    tokens_of,
    tool_of,
)
from serialwatch.agent.skills.registry import load_skills
from serialwatch.agent.skills.skill import Skill
from serialwatch.agent.skills.when import Situation
from serialwatch.bundled import bundled_dir
from skill_maker import make_skill

NOWHERE = Situation()


def test_the_best_come_first_and_the_rest_can_be_found(tmp_path: Path) -> None:
    for name in "abcdefgh":
        make_skill(tmp_path, f"{name}-skill", tags="uart" if name == "h" else "")
    make_skill(tmp_path, "z-first", when="trigger in (linux.oops)", tags="uart")
    now = Situation(trigger="linux.oops", tags=frozenset({"uart"}))

    offer = choose(_skills(tmp_path), "log-detective", now)

    assert [s.name for s in offer.full[:2]] == ["z-first", "h-skill"]
    assert len(offer.full) == MAX_FULL
    assert len(offer.findable) == 9 - MAX_FULL
    assert len({s.name for s in (*offer.full, *offer.findable)}) == 9


def test_words_of_the_case_choose_too(tmp_path: Path) -> None:
    for name in ("a-skill", "b-skill", "c-skill"):
        make_skill(tmp_path, name)
    path = make_skill(tmp_path, "d-skill") / "SKILL.md"
    path.write_text(path.read_text().replace("Does something", "Decodes mmc timeouts"))

    assert choose(_skills(tmp_path), "any", NOWHERE, "mmc0: timeout").full[0].name == "d-skill"


def test_what_it_is_not_for_does_not_choose_a_skill(tmp_path: Path) -> None:
    make_skill(tmp_path, "a-skill")
    path = make_skill(tmp_path, "b-skill") / "SKILL.md"
    path.write_text(path.read_text().replace("Do NOT use elsewhere", "Do NOT use for mmc timeouts"))

    assert choose(_skills(tmp_path), "any", NOWHERE, "mmc timeout").full[0].name == "a-skill"


def test_what_was_found_is_offered_first(tmp_path: Path) -> None:
    for name in "abcdefgh":
        make_skill(tmp_path, f"{name}-skill")

    offer = choose(_skills(tmp_path), "any", NOWHERE, found=["h-skill"])

    assert offer.full[0].name == "h-skill"


def test_the_report_is_always_offered_last_and_as_an_outline(tmp_path: Path) -> None:
    schema = _schema(8)
    make_skill(tmp_path, "report-write", risk="L2", schema=schema)
    for name in "abcdefgh":
        make_skill(tmp_path, f"{name}-skill", schema=schema)

    offer = choose(_skills(tmp_path), "any", NOWHERE, budget_tokens=900)

    assert offer.full[-1].name == "report-write"
    assert "description" not in json.dumps(offer.tools[-1]["function"]["parameters"])
    alone = Offer(offer.full[-1:], ())
    assert "description" in json.dumps(alone.tools[0]["function"]["parameters"])


@pytest.mark.parametrize(
    ("budget", "details"),
    [
        (9999, ["examples"] * 6),
        (6, ["plain"] * 6),
        (5, ["plain", "plain", "plain", "brief", "brief", "brief"]),
        (2, ["brief", "brief", "brief"]),
    ],
)
def test_the_budget_buys_skills_first_and_then_detail_for_the_best(
    tmp_path: Path, budget: int, details: list[str]
) -> None:
    for name in "abcdefgh":
        make_skill(tmp_path, f"{name}-skill", schema=_schema(4))
    skills = _skills(tmp_path)
    tokens = budget * tokens_of(tool_of(skills[0], "plain"))

    offer = choose(skills, "any", NOWHERE, budget_tokens=tokens)

    assert [offer.details[s.name] for s in offer.full] == details
    assert offer.tokens <= tokens


def test_a_skill_of_another_role_is_not_offered(tmp_path: Path) -> None:
    make_skill(tmp_path, "a-skill", roles="bench-assistant")
    make_skill(tmp_path, "c-skill")

    offer = choose(_skills(tmp_path), "log-detective", NOWHERE)

    assert [s.name for s in (*offer.full, *offer.findable)] == ["c-skill"]


def test_whole_calls_are_never_sent(tmp_path: Path) -> None:
    make_skill(tmp_path, "a-skill", schema={**_schema(2), "examples": [{"p0": "whole"}]})

    for detail in ("examples", "plain", "brief"):
        assert "whole" not in json.dumps(tool_of(_skills(tmp_path)[0], detail))  # type: ignore[arg-type]


def test_a_parameter_called_description_is_kept(tmp_path: Path) -> None:
    schema = _schema(0)
    schema["properties"]["description"] = {"description": "Text.", "type": "string"}
    make_skill(tmp_path, "a-skill", schema=schema)

    shown = tool_of(_skills(tmp_path)[0], "brief")["function"]["parameters"]

    assert shown["properties"] == {"description": {"type": "string"}}


def test_skills_are_found_by_words(tmp_path: Path) -> None:
    make_skill(tmp_path, "a-skill")
    make_skill(tmp_path, "backtrace-decode", tags="elf,symbols")

    assert [s.name for s in find(_skills(tmp_path), "which symbol is this?")] == [
        "backtrace-decode"
    ]
    assert find(_skills(tmp_path), "zzz") == ()


def test_a_line_names_the_skill_and_its_first_sentence(tmp_path: Path) -> None:
    make_skill(tmp_path, "a-skill")

    assert catalogue_line(_skills(tmp_path)[0]) == "a-skill: Does something"


@pytest.mark.parametrize("trigger", ["linux.oops", "rate.flood", "boot.loop", ""])
def test_the_bundled_skills_fit_the_budget(trigger: str) -> None:
    skills = load_skills([bundled_dir("skills")]).skills.values()
    offer = choose(skills, "log-detective", Situation(trigger=trigger), "what happened")

    assert offer.tokens <= BUDGET_TOKENS
    assert len(offer.full) >= 5
    assert offer.full[-1].name == "report-write"
    assert "log-read" in {s.name for s in offer.full}


def _skills(root: Path) -> list[Skill]:
    return list(load_skills([root]).skills.values())


def _schema(count: int) -> dict[str, Any]:
    about = {"description": "What is meant by this one.", "type": "string", "examples": ["mmc0"]}
    names = {f"p{n}": about for n in range(count)}
    return {"type": "object", "additionalProperties": False, "properties": names}
