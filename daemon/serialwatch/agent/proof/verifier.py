"""Check in code that a report claims nothing beyond what was read.

Codes of a rejection:

    G1  malformed: no text, too long, or an id twice
    G2  a cited line was not read in this run, or does not exist
    G3  the quote is not in the cited line, nor in its neighbours
    G4  the quote says nothing: too short, or only digits
    G5  the claimed class or cause is not one that this incident shows
    G6  a number or name in the text occurs in nothing that is cited
    G7  a cause that comes after its effect
    G8  a cause from another boot
    G9  it rests on a claim that does not hold, or on itself
    G10 a command or address that no knowledge page has, or a step that harms a board, or acts on
        one as L1
    G11 what is known speaks against it: of silence, of resets, of the first time
    G12 a time finer than capture can tell
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

from serialwatch.agent.proof.claim_sources import Sources, counts_of, facts_of, spans_s_of
from serialwatch.agent.proof.contradictions import contradiction
from serialwatch.agent.proof.quotes import empty_quote, find_quote
from serialwatch.agent.proof.step_words import (
    damaging,
    is_order,
    least_risk,
    strange_address,
    strange_command,
    strange_order,
)
from serialwatch.agent.text.device_text import MAX_SHOWN, readable, shortened
from serialwatch.records import (
    OWN_PORT,
    Claims,
    Conclusion,
    Evidence,
    Hypothesis,
    Incident,
    Line,
    NextStep,
    Report,
    TimelineEntry,
    Verdict,
)
from serialwatch.titles import duration

Ledger = Mapping[tuple[str, int], Line]

TOGETHER_NS = 1_000_000_000  # clocks of ports agree, but bytes may wait for so long
MAX_CLAIM = 240  # characters
MAX_UNCONFIRMED = 0.6  # confidence without a verified cause
MAX_INCONCLUSIVE = 0.3


@dataclass(frozen=True, slots=True)
class Rejection:
    """Something a report said and may not say."""

    id: str  # of the conclusion, or "title", "class", "step 1", ...
    code: str  # G1 .. G12
    why: str


@dataclass(frozen=True, slots=True)
class Verified:
    """A report of which every word has been checked."""

    report: Report
    dropped: tuple[Rejection, ...]  # one a claim that is gone
    changed: tuple[Rejection, ...]  # what was weakened, moved or replaced


def verify(
    draft: Report,
    ledger: Ledger,
    results: Mapping[str, object],
    incident: Incident | None,
    known_pages: Mapping[str, str],
    port: str = "",
) -> Verified:
    """Return `draft` without what its evidence does not carry.

    `ledger` has the lines read in this run, `results` what its skills answered by id (JSON
    values), `known_pages` the text of the knowledge pages by id. Without an incident the draft
    answers a question about `port`, and a title that does not hold becomes "".
    """
    return _Check(ledger, results, incident, known_pages, port).report(draft)


class _Rejected(Exception):  # noqa: N818  (a verdict, not an error of ours)
    def __init__(self, code: str, why: str) -> None:
        super().__init__(why)
        self.code = code
        self.why = why


class _Check:
    def __init__(
        self,
        ledger: Ledger,
        results: Mapping[str, object],
        incident: Incident | None,
        pages: Mapping[str, str],
        port: str,
    ) -> None:
        self.ledger = ledger
        self.results = results
        self.incident = incident
        self.pages = pages
        self.facts = facts_of(incident) if incident else ""
        self.port = incident.port if incident else port  # that `L12` alone means
        self._is_own = self.port == OWN_PORT
        self.held: dict[int, Conclusion] = {}  # by their place in the draft
        self.dropped: list[Rejection] = []
        self.changed: list[Rejection] = []

    def report(self, draft: Report) -> Verified:
        kept = self._conclusions(draft.conclusions)
        whole = self._sources(kept)
        wide = self._wide(whole)
        verdict, confidence = self._verdict(draft, kept)
        fault_class = self._fault_class(draft, kept)
        report = replace(
            draft,
            title=self._title(draft.title, whole),
            fault_class=fault_class,
            verdict=verdict,
            confidence=confidence,
            conclusions=tuple(kept),
            hypotheses=self._hypotheses(draft.hypotheses, wide, verdict),
            timeline=self._timeline(draft.timeline),
            unknowns=self._texts("unknown", draft.unknowns, wide),
            next_steps=self._steps(draft.next_steps, wide),
            not_checked=self._texts("not checked", draft.not_checked, wide),
            claims=Claims(verified=len(kept), dropped=len(self.dropped)),
        )
        return Verified(report, tuple(self.dropped), tuple(self.changed))

    def _conclusions(self, said: Sequence[Conclusion]) -> list[Conclusion]:
        """Return the claims that hold, each judged after those that it rests on."""
        waiting = list(enumerate(said))
        while waiting:
            open_ids = {conclusion.id for _, conclusion in waiting}
            ready = [(at, c) for at, c in waiting if not open_ids.intersection(c.rests_on)]
            # What is left when nothing is ready goes round in a circle.
            for at, conclusion in ready or waiting:
                try:
                    self.held[at] = self._conclusion(conclusion, is_circle=not ready)
                except _Rejected as no:
                    self.dropped.append(Rejection(conclusion.id, no.code, no.why))
            done = {at for at, _ in ready or waiting}
            waiting = [(at, c) for at, c in waiting if at not in done]
        return [self.held[at] for at in sorted(self.held)]

    def _conclusion(self, said: Conclusion, *, is_circle: bool) -> Conclusion:
        claim = " ".join(said.claim.split())
        if not claim or len(claim) > MAX_CLAIM or not claim.isprintable():
            raise _Rejected("G1", f"a claim has 1 to {MAX_CLAIM} printable characters")
        if any(said.id == held.id for held in self.held.values()):
            raise _Rejected("G1", f"there is a {said.id} already")
        grounds = self._grounds(said, is_circle=is_circle)
        checked = replace(
            said,
            claim=claim,
            rests_on=tuple(ground.id for ground in grounds),
            evidence=self._evidence(said, has_grounds=bool(grounds)),
            knowledge=tuple(page for page in said.knowledge if page in self.pages),
            results=tuple(name for name in said.results if name in self.results),
        )
        below = [checked, *self._below(grounds)]
        cited = [evidence for conclusion in below for evidence in conclusion.evidence]
        self._supported(claim, self._sources(below))
        if is_order(claim) and (strange := self._strange_order(claim)):
            raise _Rejected(
                "G10", f"a claim says what is so; no page has {shortened(strange, 80)!r}"
            )
        if against := contradiction(claim, cited, self.ledger, self.incident):
            raise _Rejected("G11", against)
        return self._cause(checked, cited) if checked.kind == "cause" else checked

    def _grounds(self, said: Conclusion, *, is_circle: bool) -> list[Conclusion]:
        """Return the claims that one rests on, as far as they hold."""
        held = {conclusion.id: conclusion for conclusion in self.held.values()}
        found = [held[name] for name in dict.fromkeys(said.rests_on) if name in held]
        if len(found) == len(set(said.rests_on)) and not is_circle:
            return found
        why = "it rests on itself in the end" if is_circle else "what it rests on does not hold"
        if not said.evidence:
            raise _Rejected("G9", why)
        self.changed.append(Rejection(said.id, "G9", f"left out: {why}"))
        return [] if is_circle else found

    def _below(self, grounds: Sequence[Conclusion]) -> list[Conclusion]:
        """Return claims and all that they rest on."""
        held = {conclusion.id: conclusion for conclusion in self.held.values()}
        found: dict[str, Conclusion] = {}
        todo = list(grounds)
        while todo:
            ground = todo.pop()
            if ground.id not in found:
                found[ground.id] = ground
                todo += [held[name] for name in ground.rests_on]
        return list(found.values())

    def _evidence(self, said: Conclusion, *, has_grounds: bool) -> tuple[Evidence, ...]:
        good: list[Evidence] = []
        bad: list[_Rejected] = []
        for cited in said.evidence:
            try:
                found = self._cited(cited, said.id)
            except _Rejected as no:
                bad.append(no)
            else:
                if found not in good:
                    good.append(found)
        if not good and not bad and has_grounds and said.kind != "observation":
            return ()  # it ends in the lines of what it rests on
        if not good and not bad and any(map(self._tells_of_itself, said.results)):
            return ()  # the daemon prints no lines: what it knows of itself stands in their place
        if not good:
            raise bad[0] if bad else _Rejected("G2", "no line is cited")
        self.changed += [Rejection(said.id, no.code, f"left out: {no.why}") for no in bad]
        return tuple(good)

    def _tells_of_itself(self, name: str) -> bool:
        """Tell whether a result is what the daemon knows of itself, where the fault is its own."""
        found = self.results.get(name)
        return self._is_own and isinstance(found, Mapping) and found.get("port") == OWN_PORT

    def _cited(self, cited: Evidence, claim_id: str) -> Evidence:
        line = self.ledger.get((cited.port, cited.seq))
        if line is None:
            raise _Rejected("G2", f"{cited.ref} was not read in this run")
        if why := empty_quote(cited, line):
            raise _Rejected("G4", f"{cited.ref}: {why}")
        found = find_quote(cited, self.ledger)
        if found is None:
            raise _Rejected("G3", f"the quote is not in {cited.ref}")
        if found.how:
            self.changed.append(Rejection(claim_id, "G3", f"{cited.ref}: {found.how}"))
        return found.evidence

    def _cause(self, said: Conclusion, cited: Sequence[Evidence]) -> Conclusion:
        """Return the claim, as an inference only where it cannot be a cause."""
        incident = self.incident
        if incident is None or (self._is_own and not cited):
            return said
        here = [e for e in cited if e.port == incident.port]
        lines = [self.ledger[e.port, e.seq] for e in cited if e.port != incident.port]
        fault = self.ledger.get((incident.port, incident.first_seq))
        problem: tuple[str, str] | None = None
        if not here:
            problem = ("G5", f"no line of {incident.port} is cited")
        elif incident.block_first and not any(
            incident.block_first <= e.seq <= _end(incident) for e in here
        ):
            problem = ("G5", "no line of the fault itself is cited")
        elif min(e.seq for e in here) > _end(incident):
            problem = ("G7", "what it cites comes after the effect")
        elif fault is not None and any(
            line.told_utc_ns > fault.told_utc_ns + TOGETHER_NS and fault.utc_ns for line in lines
        ):
            problem = ("G7", "what it cites of another port comes after the fault")
        elif all(self.ledger[e.port, e.seq].boot != incident.boot for e in here):
            problem = ("G8", f"what it cites is not of boot {incident.boot}")
        if problem is None:
            return said
        self.changed.append(Rejection(said.id, problem[0], f"no cause, {problem[1]}"))
        return replace(said, kind="inference")

    def _supported(self, text: str, sources: Sources) -> None:
        """Raise unless each number, line and mixed name in `text` is in `sources`."""
        if address := strange_address(text, [*self.pages.values(), sources.text]):
            raise _Rejected("G10", f"{shortened(address, 80)!r} is in nothing that is known")
        rest = text
        for ref in _LINE_REF.finditer(text):
            port = ref.group("port") or self.port
            is_level = _CACHE_LEVEL.fullmatch(ref.group()) and sources.has_name(ref.group())
            if (port, int(ref.group("seq"))) not in self.ledger and not is_level:
                raise _Rejected("G2", f"{ref.group()} was not read in this run")
            rest = rest.replace(ref.group(), " ")
        rest = self._without_names(rest)
        if unsupported := sources.missing(rest):
            raise _Rejected("G6", f"{unsupported!r} is in nothing that is cited")
        if _TOO_FINE.search(rest) and _TOO_FINE.search(sources.text) is None:
            raise _Rejected("G12", "times are known to about a millisecond")

    def _orders_nothing(self, text: str) -> None:
        """Raise if a reader would take something for an address or command of ours."""
        if strange := self._strange_order(text):
            raise _Rejected("G10", f"no page has {shortened(strange, 80)!r}")

    def _strange_order(self, text: str) -> str:
        return strange_order(text, list(self.pages.values()))

    def _without_names(self, text: str) -> str:
        """Return `text` without the incidents and boots it names.

        Raises:
            _Rejected: one of them is not known here.

        """
        incident = self.incident
        boots = {line.boot for line in self.ledger.values()}
        names = [(_BOOT_NAME, boots)]
        incidents: set[int] = set()
        if incident is not None:  # else a number of an incident is one like any other
            boots.add(incident.boot)
            incidents = {incident.id, *incident.seen_before, *incident.linked}
            names.append((_INCIDENT_NAME, incidents))
        for pattern, known in names:
            for found in pattern.finditer(text):
                if int(found.group("number")) not in known:
                    raise _Rejected("G6", f"{found.group()!r} is not known here")
            text = pattern.sub(" ", text)
        for number in incidents:  # "#17"; another "#63" may be the board's own name for something
            text = re.sub(rf"(?<!\w)#{number}\b", " ", text)
        return text

    def _sources(self, conclusions: Sequence[Conclusion]) -> Sources:
        cited = {
            (e.port, e.seq): self.ledger[e.port, e.seq] for c in conclusions for e in c.evidence
        }
        texts = [self.facts]
        texts += [readable(line.raw) for line in cited.values()]
        texts += [
            json.dumps(self.results[name], ensure_ascii=False, default=str)
            for name in {name for c in conclusions for name in c.results}
        ]
        texts += [line.port for line in cited.values()]
        counts, spans_s = counts_of(cited.values(), self.ledger), spans_s_of(cited.values())
        pages = {page for c in conclusions for page in c.knowledge}
        return Sources(texts, counts, spans_s, [self.pages[page] for page in pages])

    def _verdict(self, draft: Report, kept: Sequence[Conclusion]) -> tuple[Verdict, float]:
        confidence = min(max(draft.confidence, 0.0), 1.0)
        if not kept:
            return "inconclusive", min(confidence, MAX_INCONCLUSIVE)
        if any(c.kind == "cause" for c in kept):
            return draft.verdict, confidence
        weaker: Verdict = "likely" if draft.verdict == "confirmed" else draft.verdict
        return weaker, min(confidence, MAX_UNCONFIRMED)

    def _fault_class(self, draft: Report, kept: Sequence[Conclusion]) -> str:
        incident = self.incident
        if incident is None:
            return "unknown"
        shown = {incident.trigger, "unknown", *(hit.trigger for hit in incident.hits)}
        shown |= {t for c in kept if c.kind == "cause" for t in self._triggers(c.results)}
        if draft.fault_class in shown:
            return draft.fault_class
        self.changed.append(
            Rejection("class", "G5", f"{shortened(draft.fault_class, 60)!r} was not seen here")
        )
        return incident.trigger

    def _triggers(self, results: Sequence[str]) -> Iterator[str]:
        """Yield what other incidents are, that a cause rests on."""
        for name in results:
            found = self.results[name]
            rows = found.get("incidents") if isinstance(found, Mapping) else None
            yield from (str(row.get("trigger")) for row in rows or () if isinstance(row, Mapping))

    def _title(self, title: str, whole: Sources) -> str:
        one_line = shortened(" ".join(title.split()), 120)
        try:
            if not one_line or not one_line.isprintable():
                raise _Rejected("G1", "no title")
            self._supported(one_line, whole)
            self._orders_nothing(one_line)
            cited = [e for c in self.held.values() for e in c.evidence]
            if against := contradiction(one_line, cited, self.ledger, self.incident):
                raise _Rejected("G11", against)
        except _Rejected as no:
            self.changed.append(Rejection("title", no.code, no.why))
            return self.incident.title if self.incident else ""
        return one_line

    def _hypotheses(
        self, said: Sequence[Hypothesis], wide: Sources, verdict: Verdict
    ) -> tuple[Hypothesis, ...]:
        kept: list[Hypothesis] = []
        for hypothesis in said:
            if not self._passes(f"hypothesis {len(kept) + 1}", hypothesis.text, wide):
                continue
            score = min(max(hypothesis.score, 0.0), 1.0)
            if hypothesis.status == "confirmed" and verdict != "confirmed":
                hypothesis = replace(hypothesis, status="open")  # noqa: PLW2901
            kept.append(replace(hypothesis, score=score))
        return tuple(kept)

    def _timeline(self, said: Sequence[TimelineEntry]) -> tuple[TimelineEntry, ...]:
        """Take text and time of an entry from the line itself; leave out lines not read.

        Of one that stood unfinished the note says when its last byte came.
        """
        kept = {}
        for entry in said:
            line = self.ledger.get((entry.port, entry.seq))
            if line is not None:
                text = shortened(readable(line.raw), MAX_SHOWN)
                note = _LAST_BYTE.sub("", entry.note)
                if line.stood_s:
                    note = f"{note}, {_last_byte(line)}" if note else _last_byte(line)
                kept[entry.port, entry.seq] = replace(
                    entry, utc_ns=line.utc_ns, text=text, note=note
                )
        return tuple(sorted(kept.values(), key=lambda e: (e.utc_ns, e.port, e.seq)))

    def _texts(self, name: str, said: Sequence[str], wide: Sources) -> tuple[str, ...]:
        return tuple(text for text in said if self._passes(name, text, wide))

    def _steps(self, said: Sequence[NextStep], wide: Sources) -> tuple[NextStep, ...]:
        kept: list[NextStep] = []
        for step in said:
            name = f"step {len(kept) + 1}"
            if not self._passes(name, step.text, wide):
                continue
            if strange := strange_command(step.text, list(self.pages.values())):
                self.changed.append(Rejection(name, "G10", f"no page has {strange!r}"))
                continue
            if harm := damaging(step.text):
                self.changed.append(Rejection(name, "G10", f"cannot be taken back: {harm!r}"))
                continue
            risk = max(step.risk, least_risk(step.text))
            if risk != step.risk:
                self.changed.append(Rejection(name, "G10", f"it acts on a board: {risk}"))
            kept.append(replace(step, risk=risk))
        return tuple(kept)

    def _wide(self, whole: Sources) -> Sources:
        """Return what side remarks may use: all that was read, and the incident's page."""
        page = self.pages.get(self.incident.knowledge, "") if self.incident else ""
        results = json.dumps(list(self.results.values()), ensure_ascii=False, default=str)
        return whole.with_texts([page, results])

    def _passes(self, name: str, text: str, wide: Sources) -> bool:
        """Tell whether a side remark may stay."""
        try:
            if not text.strip() or not text.isprintable() or len(text) > 2 * MAX_CLAIM:
                raise _Rejected("G1", "no text, or too long")
            self._supported(text, wide)
            self._orders_nothing(text)
        except _Rejected as no:
            self.changed.append(Rejection(name, no.code, no.why))
            return False
        return True


_LINE_REF = re.compile(r"\b(?:(?P<port>[a-z0-9][a-z0-9_-]{0,31}):)?L(?P<seq>\d{1,15})\b")
_CACHE_LEVEL = re.compile(r"L[1-4]")  # as in "L2 cache", where a cited line says so
_BOOT_NAME = re.compile(r"\b[Bb]oot #?(?P<number>\d{1,9})\b")
_INCIDENT_NAME = re.compile(r"\b[Ii]ncident #?(?P<number>\d{1,9})\b")
_TOO_FINE = re.compile(r"\d ?(?:µs|us|ns|microseconds?|nanoseconds?)\b")


_LAST_BYTE = re.compile(r"(?:^|, )last byte [\d.]+ (?:s|min|h|d)(?: \d+ (?:s|min|h))? later$")


def _last_byte(line: Line) -> str:
    """Return how long after its first byte, which its time is, the last byte of a line came."""
    return f"last byte {duration(line.stood_s)} later"


def _end(incident: Incident) -> float:
    """Return the last line that can belong to the fault itself."""
    ends = [incident.outcome_seq - 1] if incident.outcome_seq else []
    if incident.is_settled and incident.last_seq:
        ends.append(incident.last_seq)
    return min(ends, default=math.inf)
