"""A saved log through the same pipeline as a live port: bytes, lines, hits, incidents, report."""

from __future__ import annotations

import re
import time
from bisect import bisect_right
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from typing import Protocol

from serialwatch.agent.knowledge import Knowledge
from serialwatch.agent.offline.analyst import investigate
from serialwatch.agent.skills.registry import Registry
from serialwatch.agent.workers.direct import DirectTools
from serialwatch.incidents.incidents import Incidents
from serialwatch.lines import MAX_LINE, Eol, Splitter
from serialwatch.records import (
    SEVERITIES,
    Boot,
    Finding,
    Hit,
    Incident,
    IncidentChange,
    Line,
    Lines,
    Report,
)
from serialwatch.redraws import AUTO_CR_AFTER
from serialwatch.saved.clock import LogClock, kernel_stamps_first
from serialwatch.triggers.ahead import MatcherAhead
from serialwatch.triggers.matcher import Matcher
from serialwatch.triggers.ruleset import (
    BootLoopDetector,
    ExpectDetector,
    InterruptStormDetector,
    NotFinishedDetector,
    RateDetector,
    RuleSet,
    SilenceDetector,
    StormDetector,
)
from serialwatch.triggers.watch import PortWatch, WatchOptions

PORT = "log"  # the name of the port in a report on a saved log
CHUNK = 64 * 1024  # bytes
BEFORE_LINES = 400  # of an incident that its report may read
AFTER_LINES = 300
MOST_LINES = 2000  # of an incident itself, from its start on
BESIDE_LINES = 20  # beside each line in which something was found
MOST_JOINED = 4 * MAX_LINE  # bytes of a cut line that a report may read

_S = 1_000_000_000
_PUTTY = b"\n=~=~=~=~=~=~=~=~=~=~=~= PuTTY log "  # it begins to log, and appends
_GOES_ON = re.compile(rb"\r(?=[^\r\n])")
_FEW_LF = 2  # LFs that a log of CRs alone may have, of the program that began it
_CR_PER_LF = 20
_SPAN = re.compile(r" in \d+ s\b")


class Source(Protocol):
    """A log that can be read twice."""

    def read(self, size: int, /) -> bytes:
        """Return the next bytes, so many unless the log ends."""
        ...

    def seek(self, offset: int, /) -> int:
        """Go back to the start, 0."""
        ...


@dataclass(frozen=True, slots=True)
class Analysis:
    """What was found in one log; line numbers are the file's own."""

    lines: int
    size: int  # bytes
    boots: int  # first-stage starts, commanded ones and sleep wake-ups included
    ecosystems: tuple[str, ...]
    incidents: tuple[Incident, ...]  # in the order of their first line
    report: Report | None  # on the most severe one
    around: tuple[Line, ...]  # lines around the fault that the report is on
    seconds: float
    damage: str = ""  # why only a part of it could be read
    line: int = 0  # at which the report was asked for; 0: on the most severe incident

    @property
    def reported(self) -> Incident | None:
        """Return the incident that the report is on, None if there is none (at that line)."""
        return incident_to_report(self.incidents, self.line)


@dataclass(slots=True)
class _Numbers:
    """Which line of the file a numbered piece stands in: pieces of a cut line share one."""

    cuts: list[int] = field(default_factory=list)  # numbers of pieces that continue a line

    def line_of(self, seq: int) -> int:
        """Return the line of the file."""
        return seq - bisect_right(self.cuts, seq)


class Pipeline:
    """Reads one log from front to back."""

    def __init__(self, matcher: Matcher, first_id: int = 1) -> None:
        self._matcher = MatcherAhead(matcher)
        self._of_starts = matcher.of_starts
        self._watch = PortWatch(PORT, self._matcher, WatchOptions(is_saved=True))
        self._incidents = Incidents(first_id)
        self._clock = LogClock()
        self._timing = _Timing.of(matcher.ruleset)
        self._found: dict[int, Incident] = {}
        self._splitter = Splitter("lf")
        self._numbers = _Numbers()
        self.next_seq = 1
        self.size = 0
        self._starts: list[int] = []  # numbers of the lines that began a boot

    def read(self, source: Source, progress: Callable[[int], None]) -> None:
        """Read all of it; `progress` gets the number of bytes of each step."""
        first = source.read(CHUNK)
        self._splitter = Splitter(eol_of(first))
        chunk = first
        while chunk:
            self.size += len(chunk)
            self._feed(chunk)
            progress(len(chunk))
            chunk = source.read(CHUNK)
        if rest := self._splitter.partial():
            self._take(rest + b"\n")
        self._end()

    def incidents(self) -> tuple[Incident, ...]:
        """Return what was found, numbered as the pieces are, in order."""
        return tuple(sorted(self._found.values(), key=lambda i: (i.block_first, i.id)))

    def line_of(self, seq: int) -> int:
        """Return the line of the file that a numbered piece stands in."""
        return self._numbers.line_of(seq)

    def in_file(self, incident: Incident) -> Incident:
        """Return the incident with the file's own line numbers."""
        line_of = self._numbers.line_of
        hits = tuple(
            replace(
                h,
                first_seq=line_of(h.first_seq),
                last_seq=line_of(h.last_seq),
                samples=tuple(map(line_of, h.samples)),
            )
            for h in incident.hits
        )
        return replace(
            incident,
            first_seq=line_of(incident.first_seq),
            block_first=line_of(incident.block_first),
            last_seq=line_of(incident.last_seq),
            outcome_seq=line_of(incident.outcome_seq),
            hits=hits,
        )

    @property
    def lines(self) -> int:
        """How many lines the file has."""
        return self._numbers.line_of(self.next_seq - 1)

    @property
    def boots(self) -> int:
        """How many first-stage starts it shows."""
        return len(self._starts)

    def boot_of(self, seq: int) -> int:
        """Return the number of the boot that a line belongs to, 0 before the first."""
        return bisect_right(self._starts, seq)

    @property
    def ecosystems(self) -> tuple[str, ...]:
        """What the banners in the log show."""
        return tuple(sorted(self._watch.ecosystems))

    def _feed(self, chunk: bytes) -> None:
        """Feed a chunk; line by line where a line may be so long that it is cut."""
        if not self._may_be_cut(chunk):
            text, count = self._splitter.feed(chunk)
            if count:
                self._take(text)
            return
        for part in chunk.splitlines(keepends=True):
            text, count = self._splitter.feed(part)
            if not count:
                continue
            ends = part.endswith((b"\n", b"\r")) and not self._splitter.partial_bytes
            first_of_line = self.next_seq
            self._take(text)
            pieces = count if ends else count + 1
            self._numbers.cuts += range(first_of_line + 1, first_of_line + pieces)

    def _may_be_cut(self, chunk: bytes) -> bool:
        """Tell whether a line is, with what is there of it, longer than lines may be."""
        start = -self._splitter.partial_bytes  # of a line, seen from the chunk
        while start + MAX_LINE <= len(chunk):
            room = max(start, 0), start + MAX_LINE
            end = chunk.rfind(b"\n", *room)
            if self._splitter.eol == "cr":
                end = max(end, chunk.rfind(b"\r", *room))
            if end < 0:
                return True
            start = end + 1
        return False

    def _take(self, text: bytes) -> None:
        """Take complete lines; at a header of PuTTY nobody had listened before."""
        start = 0
        while (header := text.find(_PUTTY, start)) >= 0:
            self._pass(text[start : header + 1])
            self._tell(self._watch.lost(self._clock.now_ns))
            self._clock.interrupted()
            start = header + 1
        self._pass(text[start:] if start else text)

    def _pass(self, text: bytes) -> None:
        hits = self._matcher.look(text)
        timed = kernel_stamps_first(self._matcher.view, [end for _, end in hits])
        self._clock.look(timed)
        starts = [end for pattern, end in hits if pattern in self._of_starts]
        pieces = (
            piece
            for section in _sections(timed, _line_ends(self._matcher.view, starts, timed))
            for piece in self._clock.passed(section, is_exact=bool(starts))
        )
        for part, mono_ns in pieces if timed is text else _same_lines(text, pieces):
            lines = part.count(b"\n")
            begun_ns = self._clock.begun_ns
            self._tell(self._watch.tick(begun_ns, begun_ns))
            fed = Lines(self.next_seq, lines, part, mono_ns, mono_ns)
            boot = self._watch.boot
            self._tell(self._watch.fed(fed, begun_ns))
            if self._watch.boot != boot:  # it is told later, when its cause is known
                self._clock.restarted()
            self._incidents.lines(PORT, lines, mono_ns)
            self._note(self._incidents.tick(mono_ns, mono_ns))
            self.next_seq += lines

    def _end(self) -> None:
        """Let what is open settle; what the board did after the end of the log is not known."""
        for step in range(1, 17):  # a vague match waits 10 s for a better one, then settles
            now_ns = self._clock.now_ns + step * _S
            self._tell(self._watch.tick(now_ns, now_ns))
            self._note(self._incidents.tick(now_ns, now_ns))

    def _tell(self, findings: list[Finding]) -> None:
        for finding in findings:
            told: Finding | None = finding
            if isinstance(finding, Boot):
                self._starts.append(finding.seq)
            elif isinstance(finding, Hit) and not self._clock.is_known:
                told = self._timing.untimed(finding)
            if told is not None:
                self._note(self._incidents.found(told))

    def _note(self, changes: list[IncidentChange]) -> None:
        for change in changes:
            self._found[change.incident.id] = change.incident


def _line_ends(view: bytes, matches: Sequence[int], timed: bytes) -> Iterator[int]:
    """Return where in `timed` the lines end in which matches end in `view`; they have the same."""
    at = seen = 0
    for match in matches:
        end = view.find(b"\n", max(match - 1, 0)) + 1
        if end <= seen:
            continue
        for _ in range(view.count(b"\n", seen, end)):
            at = timed.find(b"\n", at) + 1
        seen = end
        yield at


def _sections(text: bytes, starts: Iterator[int]) -> Iterator[bytes]:
    """Cut a text behind each line that starts a boot: the board's clock may begin anew there."""
    begun = 0
    for start in starts:
        yield text[begun:start]
        begun = start
    if begun < len(text):
        yield text[begun:] if begun else text


def _same_lines(text: bytes, pieces: Iterator[tuple[bytes, int]]) -> Iterator[tuple[bytes, int]]:
    """Return the pieces of a text of which something shorter was cut, at the same lines."""
    start = 0
    for piece, mono_ns in pieces:
        end = start
        if text.startswith(piece, start):
            yield piece, mono_ns
            start += len(piece)
            continue
        for _ in range(piece.count(b"\n")):
            end = text.find(b"\n", end) + 1
        yield text[start:end], mono_ns
        start = end


@dataclass(frozen=True, slots=True)
class _Timing:
    """Which detectors tell of time; where no stamp tells it, they have nothing to tell."""

    rates: frozenset[str]  # ids of those that say how often or how long
    loops: frozenset[str]  # and of those that also say it

    @classmethod
    def of(cls, ruleset: RuleSet) -> _Timing:
        """Return the detectors of a rule set."""
        rates = (
            StormDetector, SilenceDetector, InterruptStormDetector, RateDetector, ExpectDetector,
            NotFinishedDetector,
        )  # fmt: skip
        return cls(
            frozenset(d.id for d in ruleset.detectors if isinstance(d, rates)),
            frozenset(d.id for d in ruleset.detectors if isinstance(d, BootLoopDetector)),
        )

    def untimed(self, hit: Hit) -> Hit | None:
        """Return a hit without the time it would tell, None if that is all it tells."""
        if hit.trigger in self.rates and hit.fields.get("per_s") != "0":
            return None
        if hit.trigger in self.loops:
            lines = f" in {hit.seq - hit.block_first + 1} lines"
            fields = {name: value for name, value in hit.fields.items() if name != "seconds"}
            return replace(hit, title=_SPAN.sub(lines, hit.title), fields=fields)
        return hit


def eol_of(first: bytes) -> Eol:
    """Return how the lines of a log end, judged by its first bytes."""
    lfs, crs = first.count(b"\n"), first.count(b"\r")
    if crs <= lfs:
        return "lf"
    if b"\n" not in first[: max(AUTO_CR_AFTER, first.find(b"\r") + 2)]:
        return "cr"
    alone = len(_GOES_ON.findall(first))
    return "cr" if alone >= _CR_PER_LF * max(lfs - _FEW_LF, 1) else "lf"


async def analyze(
    source: Source,
    matcher: Matcher,
    registry: Registry,
    knowledge: Knowledge,
    progress: Callable[[int], None] = lambda _: None,
) -> Analysis:
    """Analyze a log that can be read twice; memory does not grow with its size."""
    began_s = time.monotonic()
    pipeline = read_log(source, matcher, progress)
    return await report_on(pipeline, source, registry, knowledge, began_s)


def read_log(source: Source, matcher: Matcher, progress: Callable[[int], None]) -> Pipeline:
    """Read a log to its end; `progress` gets the bytes of each step, and may raise to stop it."""
    pipeline = Pipeline(matcher)
    pipeline.read(source, progress)
    return pipeline


async def report_on(
    pipeline: Pipeline,
    source: Source,
    registry: Registry,
    knowledge: Knowledge,
    began_s: float,
    line: int = 0,
) -> Analysis:
    """Report on what was found in a log (at `line`), with the lines read again from its start."""
    found = pipeline.incidents()
    in_file = tuple(map(pipeline.in_file, found))
    report: Report | None = None
    around: tuple[Line, ...] = ()
    if chosen := incident_to_report(in_file, line):
        source.seek(0)
        lines = _window(source, found[in_file.index(chosen)], pipeline)
        async with DirectTools(PORT, lines, registry, knowledge) as tools:
            report = await investigate(chosen, tools.open("analyze"), "settled", None)
        at = chosen.first_seq or chosen.block_first
        around = tuple(line for line in lines if abs(line.seq - at) <= BESIDE_LINES)
    return Analysis(
        lines=pipeline.lines,
        size=pipeline.size,
        boots=pipeline.boots,
        ecosystems=pipeline.ecosystems,
        incidents=in_file,
        report=report,
        around=around,
        seconds=time.monotonic() - began_s,
        line=line,
    )


def incident_to_report(incidents: Sequence[Incident], line: int = 0) -> Incident | None:
    """Return the incident at a line (the shortest one there), without a line the most severe."""
    if not line:
        return most_severe(incidents)
    there = (i for i in incidents if i.block_first <= line <= i.end_seq)
    return min(there, key=lambda i: i.end_seq - i.block_first, default=None)


def most_severe(incidents: Sequence[Incident]) -> Incident | None:
    """Return the incident to report on: the most severe one, the first of them."""
    return max(incidents, key=lambda i: SEVERITIES.index(i.severity), default=None)


def _window(source: Source, incident: Incident, pipeline: Pipeline) -> list[Line]:
    """Return the lines around an incident, read again from the start of the log."""
    ranges = _ranges(incident)
    found: list[Line] = []
    chunk = source.read(CHUNK)
    splitter = Splitter(eol_of(chunk))
    seq = 1
    while ranges:
        text, count = splitter.feed(chunk)
        if not chunk and splitter.partial_bytes:
            text, count = splitter.partial() + b"\n", 1
        if seq + count > ranges[0][0]:
            found += _lines(text, seq, ranges, pipeline.boot_of)
        seq += count
        ranges = [(first, last) for first, last in ranges if last >= seq]
        if not chunk:
            break
        chunk = source.read(CHUNK)
    return _joined(found, pipeline.line_of)


def _ranges(incident: Incident) -> list[tuple[int, int]]:
    """Return which lines a report may want, in order: an incident may span the whole log."""
    first, last = incident.block_first, max(incident.last_seq, incident.outcome_seq)
    wanted = [
        (first - BEFORE_LINES, min(last, first + MOST_LINES) + AFTER_LINES),
        (last - AFTER_LINES, last + AFTER_LINES),
    ]
    seen = {incident.first_seq, incident.last_seq, incident.outcome_seq}
    for hit in incident.hits:
        seen.update((hit.first_seq, hit.last_seq, *hit.samples))
    wanted += [(seq - BESIDE_LINES, seq + BESIDE_LINES) for seq in seen if seq]
    merged: list[tuple[int, int]] = []
    for start, end in sorted(wanted):
        if merged and start <= merged[-1][1] + 1:
            merged[-1] = (merged[-1][0], max(end, merged[-1][1]))
        else:
            merged.append((start, end))
    return merged


def _lines(
    text: bytes, seq: int, ranges: Sequence[tuple[int, int]], boot_of: Callable[[int], int]
) -> Iterator[Line]:
    for number, raw in enumerate(text.split(b"\n")[:-1], seq):
        if any(first <= number <= last for first, last in ranges):
            yield Line(PORT, number, raw.rstrip(b"\r"), boot_of(number), 0, 0, 0)


def _joined(pieces: Sequence[Line], line_of: Callable[[int], int]) -> list[Line]:
    """Return pieces as lines of the file; of a very long line the rest is left out."""
    lines: list[Line] = []
    for piece in pieces:
        number = line_of(piece.seq)
        if not lines or lines[-1].seq != number:
            lines.append(replace(piece, seq=number))
        elif len(lines[-1].raw) + len(piece.raw) <= MOST_JOINED:
            lines[-1] = replace(lines[-1], raw=lines[-1].raw + piece.raw)
    return lines
