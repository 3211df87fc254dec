"""An answer to a question as it grows: sentences with the lines they rest on, then checked."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime, tzinfo
from typing import Any

from serialwatch.agent.offline.case import cite
from serialwatch.agent.proof.claim_sources import Sources
from serialwatch.agent.proof.verifier import Rejection, verify
from serialwatch.agent.questions.yes_no import with_answer
from serialwatch.agent.text.device_text import readable, shortened
from serialwatch.agent.workers.tools import Tools
from serialwatch.records import (
    Claims,
    Conclusion,
    ConclusionKind,
    Hypothesis,
    Line,
    NextStep,
    Report,
    Severity,
    TimelineEntry,
    Verdict,
)

RULES = "rules"  # who made it
MAX_CLAIM = 240  # characters
MAX_MARKS = 14  # lines shown
_FACTS = "facts"  # the result that stands for what rules have worked out


@dataclass(slots=True)
class AnswerDraft:
    """What rules have to say to a question; times are told in `zone`."""

    zone: tzinfo | None
    now: datetime
    title: str = ""
    reply: str = ""  # the word that answers a question for yes or no, e.g. "No"
    severity: Severity = "note"
    verdict: Verdict = "likely"
    confidence: float = 0.7
    fault_class: str = "unknown"
    conclusions: list[Conclusion] = field(default_factory=list)
    hypotheses: list[Hypothesis] = field(default_factory=list)
    unknowns: list[str] = field(default_factory=list)
    steps: list[NextStep] = field(default_factory=list)
    not_checked: list[str] = field(default_factory=list)
    _marks: dict[tuple[str, int], tuple[Line, str]] = field(default_factory=dict)
    _facts: list[str] = field(default_factory=list)

    def say(
        self,
        claim: str,
        lines: Iterable[Line | None] = (),
        *,
        results: Iterable[str] = (),
        knowledge: Iterable[str] = (),
        kind: ConclusionKind = "observation",
    ) -> None:
        """Add a sentence; one without a line must rest on results or pages."""
        there = [line for line in lines if line is not None and readable(line.raw).strip()]
        refs = tuple(dict.fromkeys(ref for ref in results if ref))
        pages = tuple(dict.fromkeys(knowledge))
        if not there and not refs and not pages:
            return
        evidence = tuple(dict.fromkeys(cite(line) for line in there))
        number = len(self.conclusions) + 1
        text = shortened(" ".join(claim.split()), MAX_CLAIM)
        self.conclusions.append(Conclusion(f"c{number}", kind, text, evidence, pages, refs))
        for line in there:
            self.mark(line)

    def mark(self, line: Line | None, note: str = "") -> None:
        """Show a line; the first note that is not empty stays."""
        if line is not None:
            kept = self._marks.get((line.port, line.seq))
            self._marks[line.port, line.seq] = (line, (kept[1] if kept else "") or note)

    def know(self, *facts: object) -> None:
        """Note what was worked out by code and may stand in a sentence."""
        self._facts += [str(fact) for fact in facts]

    def at(self, utc_ns: int) -> str:
        """Return a time as it is told here, and know it."""
        when = datetime.fromtimestamp(utc_ns / 1e9, UTC).astimezone(self.zone)
        days = (self.now.date() - when.date()).days
        if days == 0:
            text = f"{when:%H:%M}"
        elif 0 < days < 7:
            text = f"{when:%a %H:%M}"
        else:
            text = f"{when:%Y-%m-%d %H:%M}"
        self.know(text)
        return text

    def count(self, number: int, one: str, more: str = "") -> str:
        """Return a number with its noun, and know it."""
        self.know(number)
        return f"{number:,} {one if number == 1 else more or one + 's'}"

    def checked(self, tools: Tools, port: str) -> tuple[Report, tuple[Rejection, ...]]:
        """Return the report of which every sentence holds, and what was dropped.

        Sentences with lines pass the verifier. Those without rest on what the daemon itself
        knows: each number in them must stand in what they cite, and they say so.
        """
        results = {**tools.results, _FACTS: self._facts}
        cited = [c for c in self.conclusions if c.evidence]
        draft = replace(self._draft(), conclusions=tuple(_with_facts(c) for c in cited))
        checked = verify(draft, tools.ledger, results, None, tools.pages, port)
        held = {c.id: c for c in checked.report.conclusions}
        dropped = list(checked.dropped)
        for bare in self.conclusions:
            if bare.evidence:
                continue
            if missing := _sources(bare, results, tools.pages).missing(bare.claim):
                dropped.append(Rejection(bare.id, "G6", f"{missing!r} is in nothing it cites"))
            else:
                held[bare.id] = bare
        kept = [held[c.id] for c in self.conclusions if c.id in held]
        title = checked.report.title or self._title(results, kept)
        answer = with_answer(self.reply, title)
        kept = [  # where a sentence is the title, it stays so
            replace(c, claim=answer) if c.claim.rstrip(".") == title.rstrip(".") else c
            for c in kept
        ]
        report = replace(
            checked.report,
            title=answer,
            fault_class=self.fault_class,
            verdict=self.verdict if kept else "inconclusive",
            confidence=self.confidence if kept else min(self.confidence, 0.3),
            conclusions=tuple(replace(c, results=_without_facts(c)) for c in kept),
            claims=Claims(len(kept), len(dropped)),
        )
        return report, tuple(dropped)

    def _draft(self) -> Report:
        return Report(
            incident=0,
            revision=1,
            made_by=RULES,
            title=self.title,
            fault_class="unknown",
            severity=self.severity,
            verdict=self.verdict,
            confidence=self.confidence,
            hypotheses=tuple(self.hypotheses),
            timeline=tuple(self._timeline()),
            unknowns=tuple(dict.fromkeys(self.unknowns)),
            next_steps=tuple(self.steps),
            not_checked=tuple(dict.fromkeys(self.not_checked)),
        )

    def _timeline(self) -> list[TimelineEntry]:
        marks = [
            TimelineEntry(line.port, line.seq, line.utc_ns, shortened(readable(line.raw)), note)
            for line, note in self._marks.values()
        ]
        return sorted(marks, key=lambda m: (m.utc_ns, m.port, m.seq))[-MAX_MARKS:]

    def _title(self, results: Mapping[str, Any], kept: list[Conclusion]) -> str:
        """Return the title if each number in it was found out, else the first sentence."""
        text = json.dumps(results, ensure_ascii=False, default=str)
        if self.title and not Sources([text], frozenset(), ()).missing(self.title):
            return shortened(self.title, 120)
        return shortened(kept[0].claim, 120) if kept else "Not enough information."


def _with_facts(conclusion: Conclusion) -> Conclusion:
    return replace(conclusion, results=(*conclusion.results, _FACTS))


def _without_facts(conclusion: Conclusion) -> tuple[str, ...]:
    return tuple(ref for ref in conclusion.results if ref != _FACTS)


def _sources(
    conclusion: Conclusion, results: Mapping[str, Any], pages: Mapping[str, str]
) -> Sources:
    cited = [results[ref] for ref in (*conclusion.results, _FACTS) if ref in results]
    texts = [json.dumps(each, ensure_ascii=False, default=str) for each in cited]
    return Sources(texts, frozenset(), (), [pages[p] for p in conclusion.knowledge if p in pages])
