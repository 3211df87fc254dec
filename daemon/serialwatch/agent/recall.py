"""What the bench remembers, brought to bear on a case: told with its source, held against lines.

A memory is a conclusion of another day. Code looks whether the lines of today speak against it:
then it is told as refuted, with the line. What a person has said of the same fault, and lines do
not refute, is where an investigation begins: the checks that led to it need not be done again.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from serialwatch.agent.models.tokens import DEVICE_CHARS
from serialwatch.agent.offline.case import Case, Recalled, Story, name
from serialwatch.agent.text.device_text import readable, shortened
from serialwatch.records import Hypothesis, Incident, Line, Report

ASKED = 2 * 5  # memories: the newest and the weightiest of them go into a prompt
PROMPT_TOKENS = 400  # of all memories in a prompt
PROMPT_EACH = 5  # the newest so many, and the weightiest so many
MARK_CHARS = 16  # that the mark in front of each takes
MAX_TOLD = 2  # in a report of the offline analyst
MAX_QUOTED = 130  # characters of a memory in a claim
BELIEVED = 4  # priority of what a person has confirmed
SETTLED_SCORE = 0.7  # of the hypothesis that a person's word is
CHECKED = frozenset({"log-stats", "boot-compare"})  # what need not be repeated for a known fault


@dataclass(frozen=True, slots=True)
class Refutation:
    """Why a memory does not hold today, and the line that shows it."""

    line: Line
    why: str


def query_for(incident: Incident) -> dict[str, Any]:
    """Return the parameters of `memory-search`: our own words, never what a board printed."""
    triggers = [incident.trigger, *(hit.trigger for hit in incident.hits[1:3])]
    words = re.findall(r"[a-z0-9]{2,}", " ".join([*triggers, incident.ecosystem]).lower())
    return {"query": " ".join(dict.fromkeys(words)), "port": incident.port, "limit": ASKED}


def recalled_of(row: Mapping[str, Any]) -> Recalled:
    """Return a memory as `memory-search` answers it."""
    incident = row.get("incident")
    return Recalled(
        title=str(row.get("title", "")),
        body=str(row.get("body", "")),
        age=str(row.get("age", "")),
        fingerprint=str(row.get("fingerprint", "")),
        source=str(row.get("source", "")),
        evidence=tuple(map(str, row.get("evidence", ()))),
        priority=int(row.get("priority") or 0),
        updated=str(row.get("updated", "")),
        id=int(row.get("id") or 0),
        type=str(row.get("type", "")),
        status=str(row.get("status", "active")),
        by=str(row.get("by", "")),
        incident=incident if isinstance(incident, int) else 0,
        port=str(row.get("scope_name", "")) if row.get("scope") == "port" else "",
        is_disputed=bool(row.get("is_disputed")),
        learned=int(row.get("learned") or 1),
    )


def for_prompt(found: Sequence[Recalled]) -> tuple[Recalled, ...]:
    """Return the memories for a prompt: the weightiest and the newest, as many as fit."""
    newest = sorted(found, key=lambda m: m.updated, reverse=True)[:PROMPT_EACH]
    weightiest = sorted(found, key=lambda m: -m.priority)[:PROMPT_EACH]
    left = int(PROMPT_TOKENS * DEVICE_CHARS)
    kept: list[Recalled] = []
    for memory in dict.fromkeys([*weightiest, *newest]):
        size = len(in_prompt(memory)) + MARK_CHARS
        if size <= left:
            kept.append(memory)
            left -= size
    return tuple(kept)


def in_prompt(memory: Recalled) -> str:
    """Return a memory in one line, with how far it can be trusted."""
    facts = [memory.type.replace("_", " ") or "memory", memory.age, _source(memory)]
    if memory.is_disputed:
        facts.append("contradicted by another")
    told = ", ".join(fact for fact in facts if fact)
    return f"M{memory.id} [{told}] {memory.title}: {memory.body}"


def worth_telling(incident: Incident, recalled: Sequence[Recalled]) -> list[Recalled]:
    """Return the memories that an incident's report tells, a person's first.

    Those are what was learned of the same fault in another incident, and facts that a person has
    noted.
    """
    own = f"{incident.port}:L{incident.first_seq}"
    found = [
        memory
        for memory in recalled
        if memory.incident != incident.id
        and (memory.source == "human" or own not in memory.evidence)
        and (
            memory.fingerprint == incident.fingerprint
            or (memory.source == "human" and memory.type != "preference")
        )
    ]
    found.sort(key=lambda m: (m.source != "human", m.fingerprint != incident.fingerprint))
    return found[:MAX_TOLD]


def known_cause(incident: Incident, recalled: Sequence[Recalled]) -> Recalled | None:
    """Return what a person has said of this very fault, None if nobody has."""
    return next(
        (
            memory
            for memory in worth_telling(incident, recalled)
            if memory.source == "human"
            and memory.priority >= BELIEVED
            and memory.fingerprint == incident.fingerprint
        ),
        None,
    )


def needs_no_check(
    incident: Incident, recalled: Sequence[Recalled], case: Case | None = None
) -> frozenset[str]:
    """Return the skills that need not look again, because a person has found the cause.

    Once the lines are read, `case` tells whether they speak against it.
    """
    known = known_cause(incident, recalled)
    if known is None or (case is not None and refutation(known, case) is not None):
        return frozenset()
    return CHECKED


def tell_memories(case: Case, story: Story) -> None:
    """Tell first what is remembered, with its source; and which of it the lines refute."""
    fault = case.fault or next((x for x in case.lines if readable(x.raw).strip()), None)
    if fault is None:
        return
    for memory in worth_telling(case.incident, case.recalled):
        words = name(memory.body, MAX_QUOTED)
        refuted = refutation(memory, case)
        if refuted is not None:
            claim = f"{_where_from(memory, case.incident)}: {words} Not this time: {refuted.why}."
            story.mark(refuted.line, f"speaks against M{memory.id}" if memory.id else "")
            lines = [refuted.line]
        else:
            claim = f"{_where_from(memory, case.incident)}: {words}"
            lines = [fault]
        story.conclude("observation", shortened(claim), lines, results=[case.recalled_result])
        if memory.source == "human" or refuted is not None:
            story.hypotheses.append(
                Hypothesis(
                    case.incident.trigger,
                    words,
                    0.05 if refuted else SETTLED_SCORE,
                    "refuted" if refuted else "open",
                )
            )


def with_memories(report: Report, case: Case) -> Report:
    """Return a model's report with what is remembered at its beginning, as the rules tell it."""
    story = Story(case)
    tell_memories(case, story)
    told = {c.claim for c in report.conclusions}
    taken = {c.id for c in report.conclusions}
    free = (f"m{n}" for n in range(1, 100) if f"m{n}" not in taken)
    first = [replace(c, id=next(free)) for c in story.conclusions if c.claim not in told]
    refuted = [h for h in story.hypotheses if h.status == "refuted"]
    return replace(
        report,
        conclusions=(*first, *report.conclusions),
        hypotheses=(*report.hypotheses, *refuted),
    )


def tell_what_settles_it(case: Case, story: Story) -> None:
    """Put what a person found last time in the place of the usual causes and checks."""
    memory = known_cause(case.incident, case.recalled)
    if memory is None or refutation(memory, case) is not None:
        return
    words = name(memory.body, MAX_QUOTED)
    story.hypotheses[:] = [h for h in story.hypotheses if h.status != "open" or h.text == words]
    of = f" in #{memory.incident}" if memory.incident else ""
    who = name(memory.by, 32) or "a person"
    story.steps.clear()
    story.step(f"see whether it is what {who} found{of}: {words}")
    story.step(f'if it is not, say so: `serialwatch memory correct {memory.id} "..."`')
    for text in case.page.never[:1] if case.page else ():
        story.step(f"do not {text}")


def refutation(memory: Recalled, case: Case) -> Refutation | None:
    """Return which line speaks against a memory, None if none does as far as code can see."""
    text = _positive(f"{memory.title}. {memory.body}")
    return _other_unit(memory, text, case) or _other_reset(text, case)


def _where_from(memory: Recalled, incident: Incident) -> str:
    """Return who says so and since when, as the beginning of a claim."""
    on = f" on {memory.port}" if memory.port and memory.port != incident.port else ""
    age = f", {memory.age}" if memory.age else ""
    if memory.source == "human":
        who = name(memory.by, 32) or "a person"
        if memory.incident and memory.fingerprint != incident.fingerprint:
            return f"Noted by {who}{on} for another fault, #{memory.incident}{age}"
        if memory.incident:
            return f"Seen before: #{memory.incident}{on}, corrected by {who}{age}"
        return f"Noted by {who}{on}{age}"
    of = f"#{memory.incident}{on}" if memory.incident else on.strip()
    unverified = "unverified" if memory.status == "proposed" else ""
    facts = ", ".join(fact for fact in (of, memory.age, unverified) if fact)
    return f"Remembered ({facts})" if facts else "Remembered"


def _source(memory: Recalled) -> str:
    if memory.source == "human":
        verb = "corrected" if memory.incident else "noted"
        of = f" in incident {memory.incident}" if memory.incident else ""
        return f"{verb} by {memory.by or 'a person'}{of}"
    return "unverified" if memory.status == "proposed" else "believed"


def _positive(text: str) -> str:
    """Return a text without what it denies: "the regulator, not software"."""
    return _DENIED.sub(" ", text)


def _other_unit(memory: Recalled, text: str, case: Case) -> Refutation | None:
    """It speaks of one unit (mmc0, IRQ 33), and the fault's lines name another of that kind."""
    if memory.fingerprint and memory.fingerprint == case.incident.fingerprint:
        return None  # the same fault by all that tells faults apart
    fault = case.fault
    if fault is None:
        return None
    lines = [fault, *(line for line in case.block if line is not fault)]
    named = dict(_units(text))
    for line in lines:
        here = dict(_units(readable(line.raw)))
        for stem, numbers in here.items():
            if stem in named and not numbers & named[stem]:
                other, said = sorted(numbers)[0], sorted(named[stem])[0]
                return Refutation(line, f"it speaks of {stem}{said}, this is {stem}{other}")
    return None


def _units(text: str) -> Iterator[tuple[str, set[str]]]:
    found: dict[str, set[str]] = {}
    for unit in _UNIT.finditer(text.lower()):
        if (stem := unit["stem"].rstrip("-_ ")) not in _NO_UNITS:
            found.setdefault(stem, set()).add(unit["number"])
    yield from found.items()


def _other_reset(text: str, case: Case) -> Refutation | None:
    """It speaks of one kind of reset, and the board itself names another one."""
    said = next((told for told in _RESETS if told.said.search(text)), None)
    if said is None:
        return None
    for line in _from_fault(case):
        words = readable(line.raw)
        for shown in _RESETS:
            if shown.kind in said.excludes and (found := shown.printed.search(words)):
                return Refutation(line, f"the board itself says {name(found.group(), 60)}")
        if said.own.search(words):
            return None  # what is printed first counts
    return None


def _from_fault(case: Case) -> list[Line]:
    first = case.incident.block_first or case.incident.first_seq
    return [line for line in case.lines if line.seq >= first]


@dataclass(frozen=True, slots=True)
class _Reset:
    """A kind of reset: how memories speak of it, and how boards print it.

    `printed` is how a board names it as the cause of its reset; `own` is all that bears it out.
    """

    kind: str
    said: re.Pattern[str]
    printed: re.Pattern[str]
    own: re.Pattern[str]
    excludes: frozenset[str]


def _reset(kind: str, said: str, printed: str, more: str, excludes: Sequence[str]) -> _Reset:
    says, prints, own = (
        re.compile(pattern, re.IGNORECASE) for pattern in (said, printed, f"{printed}|{more}")
    )
    return _Reset(kind, says, prints, own, frozenset(excludes))


_CAUSE = r"(?:reset|reboot|rst)[ _](?:cause|reason|status|source)\W{1,4}(?:\w+[ _-]){0,3}?"

# A weak supply may well make software fail: only one that was gone excludes another reset. A board
# that was switched off and on tells nothing of what was before.
_RESETS = (
    _reset(
        "supply",
        r"brown-?out|power (?:loss|cut|cycle|fail)|lost (?:its )?power",
        rf"brown-?out|RTCWDT_BROWN_OUT_RESET|{_CAUSE}(?:brown|bor\b)",
        r"POWERON_RESET|under-?voltage",
        ("watchdog", "software"),
    ),
    _reset(
        "watchdog",
        r"watchdog|\bwdt\b",
        rf"\b(?!RTCWDT_BROWN)\w*WDT\w*_(?:RESET|RST|SYS\w*)\b|{_CAUSE}(?:watchdog|w?dog|wdt)\w*"
        r"|watchdog (?:reset|bite|expired|time-?out|got triggered)",
        r"watchdog",
        ("supply",),
    ),
    _reset(
        "software",
        r"(?:software|firmware|own) reset|reset (?:itself|by software)|panic|stack overflow",
        rf"\bSW_(?:CPU_)?RESET\b|RTC_SW_\w+|{_CAUSE}(?:software|sw\b|soft)",
        r"panic|stack overflow|Rebooting in \d+ seconds",
        ("supply",),
    ),
)

_DENIED = re.compile(
    r"\b(?:not|no|never|nor|isn't|wasn't|rather than|instead of|without)\b(?:\s+[\w'/-]+){1,4}",
    re.IGNORECASE,
)
_UNIT = re.compile(r"(?<![\w.:-])(?P<stem>[a-z]{2,12}[-_ ]?)(?P<number>\d{1,3})(?![\w.]*\w)")
_NO_UNITS = frozenset({
    "cpu", "core", "boot", "line", "pid", "code", "rev", "ver", "the", "is", "in", "at", "of",
    "to", "by", "for", "utf", "arm", "after", "about", "than", "least", "most", "every", "only",
    "takes", "times", "error", "count", "level", "step", "and", "or", "was", "with", "from", "has",
    "task", "thread", "ret", "err", "size", "len", "seq", "incident", "exit", "status",
})  # fmt: skip
