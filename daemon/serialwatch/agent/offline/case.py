"""What is known of an incident when the reasoning begins, and the report as it grows."""

from __future__ import annotations

import re
from bisect import bisect_left
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from serialwatch.agent.knowledge import Page
from serialwatch.agent.queue import Phase
from serialwatch.agent.text.device_text import normal, readable, shortened
from serialwatch.records import (
    OWN_PORT,
    Conclusion,
    ConclusionKind,
    Evidence,
    Hypothesis,
    Incident,
    Line,
    NextStep,
    Risk,
    TimelineEntry,
)

MAX_QUOTE = 120  # characters of a line that a conclusion quotes
MAX_TIMELINE = 14


@dataclass(frozen=True, slots=True)
class Decoded:
    """What a fault register of the dump says, by its manual."""

    name: str  # as `register-decode` has it: esr, cfsr, exccause, rst, exitcode, ...
    value: str
    line: Line
    meaning: str  # one sentence
    fields: Mapping[str, str]
    result: str  # id of the skill's result

    @property
    def claim(self) -> str:
        """Return the meaning as a claim of a report."""
        return f"{self.name} {self.value} says: {self.meaning}"


@dataclass(frozen=True, slots=True)
class Recalled:
    """A memory that fits."""

    title: str
    body: str
    age: str  # e.g. "9 d ago", "" if unknown
    fingerprint: str
    source: str  # human, rule or model
    evidence: tuple[str, ...] = ()  # e.g. dut1:L48213
    priority: int = 0  # 0..5
    updated: str = ""  # ISO 8601, "" if unknown
    id: int = 0
    type: str = ""  # preference, fact, task_result or snapshot
    status: str = "active"  # proposed: nobody has confirmed it
    by: str = ""  # the person who said it
    incident: int = 0  # from which it was learned, 0: from none
    port: str = ""  # that it is about, "" for the bench
    is_disputed: bool = False  # another memory says something else
    learned: int = 1  # how often


@dataclass(frozen=True, slots=True)
class Earlier:
    """An incident of the same port, from before."""

    id: int
    trigger: str
    title: str
    first_seq: int
    boot: int
    opened_utc_ns: int
    outcome: str  # "" if none is known
    fingerprint: str


@dataclass(frozen=True, slots=True)
class Recurrence:
    """How often the same fault came, and at what intervals."""

    times: int
    shortest_s: float
    median_s: float
    longest_s: float
    boots_with: int = 0  # in how many boots it came, 0 if that is not known
    boots_of: int = 0  # from the first of them to the last


@dataclass(frozen=True, slots=True)
class History:
    """What `incident-history` answered about the port."""

    earlier: tuple[Earlier, ...] = ()  # newest first, none later than the incident
    recurrence: Recurrence | None = None  # of the incident's own fault
    result: str = ""  # id of the result that has them


@dataclass(frozen=True, slots=True)
class Compared:
    """How the boot of the fault differs from an earlier one, up to the fault."""

    base: int  # number of the other boot
    is_good: bool  # it is known to have gone well
    new: tuple[Line, ...] = ()  # lines that only this boot has, the most telling first
    missing: tuple[Line, ...] = ()  # lines of the other boot that are missing here
    parting: tuple[Line, Line] | None = None  # where they part: this boot's line, the other's
    result: str = ""


@dataclass(frozen=True, slots=True)
class Surroundings:
    """What the daemon knows beside the log."""

    neighbours: tuple[Incident, ...] = ()  # of other ports, linked to this one
    writer: str | None = None  # who may type now; "" nobody, None not known
    sent: Mapping[int, str] = field(default_factory=dict)  # by line: who sent it, not attached


@dataclass(frozen=True, slots=True)
class OwnState:
    """How the daemon itself stood, as `port-status` tells it; {} where it was not asked."""

    facts: Mapping[str, Any] = field(default_factory=dict)
    result: str = ""  # id of the result that has them


@dataclass(frozen=True, slots=True)
class Match:
    """A line in which a pattern was found."""

    line: Line
    text: str
    groups: Mapping[str, str]

    def __getitem__(self, name: str) -> str:
        return self.groups.get(name) or ""


@dataclass(frozen=True, slots=True)
class Case:
    """One incident and what was read about it."""

    incident: Incident
    phase: Phase
    lines: tuple[Line, ...]  # of the incident's port, oldest first
    page: Page | None = None
    decoded: tuple[Decoded, ...] = ()
    recalled: tuple[Recalled, ...] = ()
    recalled_result: str = ""  # id of the result that has them
    neighbour_lines: Mapping[int, Line] = field(default_factory=dict)  # by incident
    neighbour_results: Mapping[int, str] = field(default_factory=dict)  # that show it, likewise
    around: Surroundings = Surroundings()
    pages: Mapping[str, Page] = field(default_factory=dict)  # by trigger, those that were read
    history: History = History()
    earlier_lines: Mapping[int, Line] = field(default_factory=dict)  # by incident
    compared: Compared | None = None
    own: OwnState = OwnState()  # where the fault is one of the daemon itself

    @property
    def fault(self) -> Line | None:
        """Return the fault line, None where no line carries the fault or it was not read."""
        return self.line(self.incident.first_seq)

    def line(self, seq: int) -> Line | None:
        """Return the line with that number, None if it was not read."""
        at = bisect_left(self.lines, seq, key=lambda line: line.seq)
        if at < len(self.lines) and self.lines[at].seq == seq:
            return self.lines[at]
        return None

    @property
    def next_boot(self) -> Line | None:
        """Return the first line with text of the boot after the fault's."""
        incident = self.incident
        outcome = self.line(incident.outcome_seq) if incident.outcome == "rebooted" else None
        after = incident.first_seq or incident.last_seq
        boot = fault.boot if (fault := self.fault) else incident.boot
        later = (x for x in self.lines if x.seq > after and x.boot > boot)
        first = next((x for x in later if readable(x.raw).strip()), None)
        if first is None or outcome is None or first.seq >= outcome.seq:
            return outcome or first
        # The board may have restarted for other reasons since then.
        is_start = self.line(first.seq - 1) is not None
        return first if is_start else outcome

    @property
    def fault_boot(self) -> tuple[Line, ...]:
        """Return the lines that were read of the boot in which the fault came."""
        end = boot.seq if (boot := self.next_boot) else None
        return tuple(line for line in self.lines if end is None or line.seq < end)

    @property
    def block(self) -> tuple[Line, ...]:
        """Return the lines of the fault, up to the next boot."""
        first, last = self.incident.block_first, self.incident.last_seq
        if not self.incident.is_settled:  # its end was not known yet
            last = max((line.seq for line in self.lines), default=last)
        return tuple(line for line in self.fault_boot if first <= line.seq <= last)

    def find(self, pattern: re.Pattern[str], lines: Sequence[Line] | None = None) -> Match | None:
        """Return the first of `lines` (of the fault's block) that has the pattern."""
        return next(self.find_all(pattern, lines), None)

    def find_all(
        self, pattern: re.Pattern[str], lines: Sequence[Line] | None = None
    ) -> Iterator[Match]:
        """Yield each of `lines` (of the fault's block) that has the pattern."""
        for line in self.block if lines is None else lines:
            text = readable(line.raw)
            if found := pattern.search(text):
                groups = {k: v for k, v in found.groupdict().items() if v is not None}
                yield Match(line, text, groups)

    def register(self, name: str) -> Decoded | None:
        """Return the first decoded register of that name in the fault's block."""
        block = {line.seq for line in self.block}
        return next((d for d in self.decoded if d.name == name and d.line.seq in block), None)

    @property
    def command(self) -> Match | None:
        """Return the command typed right before the fault, None if there was none."""
        first = self.incident.block_first or self.incident.first_seq
        before = [line for line in self.lines if first - 4 <= line.seq <= self.incident.first_seq]
        for line in reversed(before):
            text = readable(line.raw)
            if found := _COMMAND.match(text):
                return Match(line, text, {"command": found.group("command").strip()})
        return None

    @property
    def shown_by(self) -> Match | None:
        """Return the command that shows logs, if it is the last one typed before the fault."""
        first = self.incident.block_first or self.incident.first_seq
        before = [
            line for line in self.lines if line.seq < first and line.boot == self.incident.boot
        ]
        for line in reversed(before):
            text = readable(line.raw)
            if found := _COMMAND.match(text):
                command = found.group("command").strip()
                is_shown = _SHOWS_LOGS.search(command)
                return Match(line, text, {"command": command}) if is_shown else None
        return None


@dataclass(slots=True)
class Story:
    """A report as it grows: reflexes add to it, `analyst` makes the report."""

    case: Case
    headline: str = ""
    certainty: float = 0.0  # of the class, before the verifier
    conclusions: list[Conclusion] = field(default_factory=list)
    hypotheses: list[Hypothesis] = field(default_factory=list)
    unknowns: list[str] = field(default_factory=list)
    steps: list[NextStep] = field(default_factory=list)
    not_checked: list[str] = field(default_factory=list)
    _marks: dict[tuple[str, int], tuple[Line, str]] = field(default_factory=dict)

    def conclude(
        self,
        kind: ConclusionKind,
        claim: str,
        lines: Iterable[Line],
        *,
        decoded: Iterable[Decoded] = (),
        knowledge: bool = False,
        results: Iterable[str] = (),
        pages: Iterable[str] = (),
    ) -> None:
        """Add a claim with the lines it rests on; without a line that says anything, none.

        Of the daemon itself no line tells: there it may rest on results alone.
        `knowledge`: it uses words of the fault's own page; `pages` are further ones.
        """
        evidence = tuple(cite(line) for line in _distinct(lines))
        results = list(results)
        if not evidence and not (results and self.case.incident.port == OWN_PORT):
            return
        registers = list(decoded)
        page = self.case.page
        claim = _ENDED_TWICE.sub(r"\1", claim)
        self.conclusions.append(
            Conclusion(
                id=f"c{len(self.conclusions) + 1}",
                kind=kind,
                claim=claim,
                evidence=evidence,
                knowledge=tuple(
                    dict.fromkeys([*((page.id,) if knowledge and page else ()), *pages])
                ),
                results=tuple(dict.fromkeys([*(d.result for d in registers), *results])),
            )
        )

    def mark(self, line: Line | None, note: str = "") -> None:
        """Put a line into the timeline; the first note that is not empty stays."""
        if line is not None:
            kept = self._marks.get((line.port, line.seq))
            self._marks[line.port, line.seq] = (line, (kept[1] if kept else "") or note)

    def step(self, text: str, risk: Risk = "L1") -> None:
        """Add something a person could do, once."""
        if all(step.text != text for step in self.steps):
            self.steps.append(NextStep(text, risk))

    @property
    def timeline(self) -> tuple[TimelineEntry, ...]:
        """Return the marked lines in the order of time; of many, those with a note."""
        marks = sorted(self._marks.values(), key=lambda m: (not m[1], m[0].utc_ns, m[0].seq))
        return tuple(
            TimelineEntry(line.port, line.seq, line.utc_ns, shortened(readable(line.raw)), note)
            for line, note in sorted(
                marks[:MAX_TIMELINE], key=lambda m: (m[0].utc_ns, m[0].port, m[0].seq)
            )
        )


def cite(line: Line) -> Evidence:
    """Return a line as evidence: the whole of it, or its beginning."""
    return Evidence(line.port, line.seq, normal(readable(line.raw))[:MAX_QUOTE].strip())


def name(text: str, limit: int = 60) -> str:
    """Return a word or command of the board, short enough to stand in a sentence.

    What it prints in the form of our own citations is left out: it would be taken for one. It is
    never cut in a number, which would be another one then.
    """
    whole = _LIKE_OURS.sub("[…]", normal(text))
    short = shortened(whole, limit)
    if short != whole and whole[limit - 1 : limit].isalnum():
        short = f"{_CUT_NUMBER.sub('', short[:-1]).rstrip()}…"
    return short


def _distinct(lines: Iterable[Line]) -> Iterable[Line]:
    """Drop lines given twice, and those without anything to quote."""
    return {(x.port, x.seq): x for x in lines if readable(x.raw).strip()}.values()


_SHOWS_LOGS = re.compile(
    r"(?:^|[;&|] *|sudo )"
    r"(?:dmesg|journalctl|logread|z?cat|z?grep|egrep|rg|less|more|tail|head|strings)"
    r"(?: (?!/dev/(?:zero|u?random)\b)|$)"
)
_LIKE_OURS = re.compile(
    r"\b[a-z0-9][a-z0-9_-]{0,31}:L\d+\b|\bL\d{2,}\b|\b[Bb]oot #\d+|\b[Ii]ncident #\d+"
)
_CUT_NUMBER = re.compile(r"(?<=[^\w.])[\w.]*\d[\w.]*$")
_ENDED_TWICE = re.compile(r"([.!?…])\.$")  # what a board says may end a sentence by itself

# A prompt and what was typed at it: U-Boot, a shell, an RTOS console. Lines that only look like it:
# comments of test programs (`# Totals: pass:3`, `# ok 2 name`, `# selftests: net`), the channel
# of an RTT viewer (`00> `), what carries a kernel's time.
_COMMAND = re.compile(
    r"^(?:\[(?![ \d.:]+\])[^\]]*\] ?)?"
    r"(?:=>|(?!\d+>)[\w.-]{1,24}>|(?:\w[\w.-]*@)?[\w.~/:@-]{1,48} ?[#$]|[#$]|uart:~\$|nsh>"
    r"|msh ?/?>)"
    r" +(?!(?:[\w-]{1,24}:|(?:not )?ok \d|\d+\.\.\d|SKIP|TODO)(?:\s|\d|$)|[#=*-]{2}|\[)"
    r"(?P<command>\S.{0,200})"
)
