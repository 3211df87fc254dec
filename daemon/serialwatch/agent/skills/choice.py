"""Which skills a model is shown in full, which it may only find, and what that costs in tokens.

A skill scores 3 if its `when` holds, 2 for each tag that it shares with the case, and up to 2 for
the words of the case: the BM25 of its name, tags and description, the best one's being 2. Reading
lines, without which nothing can be quoted, scores 2 more. The report can always be handed in.
"""

from __future__ import annotations

import json
import math
import re
from collections import Counter
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

from serialwatch.agent.skills.skill import Skill
from serialwatch.agent.skills.when import Situation
from serialwatch.wire import Json

REPORT_SKILL = "report-write"
READ_SKILL = "log-read"
MAX_FULL = 6  # skills shown in full, the report not counted
BUDGET_TOKENS = 1400  # of all that are shown in full
MAX_WORDS = 40  # of a case
CHARS_A_TOKEN = 3.8  # of JSON and English

Detail = Literal["outline", "brief", "plain", "examples"]  # of parameters: the least first


@dataclass(frozen=True, slots=True)
class Offer:
    """What a model may use in a round."""

    full: tuple[Skill, ...]  # best first, the report last
    findable: tuple[Skill, ...]  # best first
    details: Mapping[str, Detail] = field(default_factory=dict)  # by skill; else plain

    @property
    def tools(self) -> list[Json]:
        """Return the skills that are shown in full, as functions to call."""
        return [tool_of(s, self.details.get(s.name, "plain")) for s in self.full]

    @property
    def tokens(self) -> int:
        """Return about what `tools` cost in every prompt."""
        return sum(map(tokens_of, self.tools))


def choose(
    skills: Iterable[Skill],
    role: str,
    now: Situation,
    terms: str = "",
    budget_tokens: int = BUDGET_TOKENS,
    found: Collection[str] = (),
) -> Offer:
    """Return the skills of `role` that fit, within the budget, and the rest.

    `terms` are words of the case, such as its title; `found` names skills that were asked for by
    name: they come first.
    """
    usable = [s for s in skills if _is_for(s, role)]
    words = _Words(usable)
    asked = _split(terms)[:MAX_WORDS]
    by_words = {s.name: words.score(s, asked) for s in usable if s.name != REPORT_SKILL}
    best = max(by_words.values(), default=0.0) or 1.0

    def rank(skill: Skill) -> tuple[bool, float, str]:
        score = 3.0 * skill.when.holds(now) + 2.0 * len(skill.tags & now.tags)
        score += 2.0 * by_words[skill.name] / best + 2.0 * (skill.name == READ_SKILL)
        return (skill.name not in found, -score, skill.name)

    report = tuple(s for s in usable if s.name == REPORT_SKILL)
    others = sorted((s for s in usable if s.name != REPORT_SKILL and s.has_main), key=rank)
    details = _within(others, report, budget_tokens)
    full = tuple(s for s in others if s.name in details)
    rest = tuple(s for s in others if s.name not in details)
    return Offer((*full, *report), rest, details)


def find(skills: Iterable[Skill], query: str, limit: int = 4) -> tuple[Skill, ...]:
    """Return the skills that fit the words of `query`, best first."""
    known = tuple(skills)
    words, asked = _Words(known), _split(query)[:MAX_WORDS]
    scored = [(words.score(skill, asked), skill) for skill in known]
    fitting = sorted((x for x in scored if x[0] > 0), key=lambda x: (-x[0], x[1].name))
    return tuple(skill for _, skill in fitting[:limit])


def catalogue_line(skill: Skill) -> str:
    """Return a skill in one line, for those that are not shown in full."""
    first = skill.description.split(". ", maxsplit=1)[0].rstrip(".")
    return f"{skill.name}: {first if len(first) <= 120 else first[:119] + '…'}"


def tool_of(skill: Skill, detail: Detail = "plain") -> Json:
    """Return a skill as a function that a model may call."""
    return {
        "type": "function",
        "function": {
            "name": skill.name,
            "description": skill.description,
            "parameters": _shown(skill.params, detail),
        },
    }


def tokens_of(tool: Mapping[str, Any]) -> int:
    """Return about how many tokens a function costs in a prompt."""
    text = json.dumps(tool, separators=(",", ":"), ensure_ascii=False)
    return math.ceil(len(text) / CHARS_A_TOKEN)


def _is_for(skill: Skill, role: str) -> bool:
    return "*" in skill.roles or role in skill.roles


def _within(others: Sequence[Skill], report: Sequence[Skill], budget: int) -> dict[str, Detail]:
    """Return which skills fit beside the report, and how much is said about their parameters.

    As many as fit in brief; then the best ones get their descriptions, and then their examples.
    The report, by far the longest, is an outline until nothing else is offered.
    """
    details: dict[str, Detail] = {}
    left = budget
    if others:
        for skill in report:
            details[skill.name] = "outline"
            left -= tokens_of(tool_of(skill, "outline"))
    fitting: list[Skill] = []
    for skill in others[:MAX_FULL]:
        left -= tokens_of(tool_of(skill, "brief"))
        if left < 0:
            left += tokens_of(tool_of(skill, "brief"))
            break
        details[skill.name] = "brief"
        fitting.append(skill)
    steps: tuple[tuple[Detail, Detail], ...] = (("brief", "plain"), ("plain", "examples"))
    for before, after in steps:
        for skill in fitting:
            more = tokens_of(tool_of(skill, after)) - tokens_of(tool_of(skill, before))
            if details[skill.name] == before and more <= left:
                details[skill.name] = after
                left -= more
    return details


_LEFT_OUT: Mapping[Detail, frozenset[str]] = {
    "examples": frozenset(),
    "plain": frozenset({"examples"}),
    "brief": frozenset({"examples", "description"}),
    "outline": frozenset(
        {"examples", "description", "pattern", "additionalProperties", "minLength", "maxLength",
         "minimum", "maximum", "minItems", "maxItems"}
    ),
}  # fmt: skip


def _shown(schema: Mapping[str, Any], detail: Detail) -> Json:
    """Return a schema as the model gets it: no whole calls, and of the rest what `detail` says."""
    shown = {k: v for k, v in schema.items() if k not in ("$schema", "examples")}
    if "properties" in shown:
        shown["properties"] = {
            name: _lean(about, detail) for name, about in shown["properties"].items()
        }
    return shown


def _lean(about: Any, detail: Detail) -> Any:
    """Return the schema of one parameter, with one example at most."""
    if not isinstance(about, Mapping):
        return about
    lean = {k: v for k, v in about.items() if k not in _LEFT_OUT[detail]}
    if isinstance(examples := lean.get("examples"), list):
        lean["examples"] = examples[:1]
    if isinstance(lean.get("properties"), Mapping):
        lean["properties"] = {n: _lean(a, detail) for n, a in lean["properties"].items()}
    if "items" in lean:
        lean["items"] = _lean(lean["items"], detail)
    return lean


class _Words:
    """The words of skills, for BM25."""

    def __init__(self, skills: Iterable[Skill]) -> None:
        self._of = {skill.name: Counter(_split(_text(skill))) for skill in skills}
        self._spread = Counter(word for words in self._of.values() for word in words)
        self._mean = sum(w.total() for w in self._of.values()) / max(len(self._of), 1) or 1.0

    def score(self, skill: Skill, asked: Iterable[str]) -> float:
        words, count = self._of[skill.name], len(self._of)
        length = 1.2 * (0.25 + 0.75 * words.total() / self._mean)
        score = 0.0
        for word in dict.fromkeys(asked):
            if times := words[word]:
                rare = math.log(1 + (count - self._spread[word] + 0.5) / (self._spread[word] + 0.5))
                score += rare * times * 2.2 / (times + length)
        return score


def _text(skill: Skill) -> str:
    """Return what a skill is about: not what it is not for."""
    use = re.split(r"do not use", skill.description, maxsplit=1, flags=re.IGNORECASE)[0]
    return f"{skill.name} {' '.join(skill.tags)} {use}"


def _split(text: str) -> list[str]:
    """Return the words of a text without their plural s."""
    return [w.removesuffix("s") if len(w) > 3 else w for w in re.findall(r"[a-z0-9]+", text.lower())
            if len(w) > 1]  # fmt: skip
