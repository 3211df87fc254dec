"""Rules, markers and detectors as the matcher uses them, loaded and checked.

Patterns are kept as they were written; `patterns.py` turns them into what Hyperscan and `re` want.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Literal

from serialwatch.records import BootCause, Severity, Tier

DeviceState = Literal["boot", "kernel", "user", "shutdown"]
DEVICE_STATES: tuple[DeviceState, ...] = ("boot", "kernel", "user", "shutdown")
# "software" is what a chip prints for a reset that its own program asked for: whether it was a
# panic or a command, the lines before it decide.
PrintedCause = BootCause | Literal["software"]


@dataclass(frozen=True, slots=True)
class Block:
    """Which lines around a hit are its evidence."""

    start: tuple[str, ...] = ()  # an earlier line that opens the dump
    back_lines: int = 5  # how far back `start` is looked for
    end: tuple[str, ...] = ()
    max_lines: int = 200


@dataclass(frozen=True, slots=True)
class Needs:
    """A hit counts only if another line within this distance, either way, matches."""

    match: tuple[str, ...]
    within_lines: int
    only: tuple[str, ...]  # those of `match` of the rule that need it; none: all


@dataclass(frozen=True, slots=True)
class Near:
    """A hit does not count if a line nearby, or the line itself, matches."""

    match: tuple[str, ...]
    before: int  # lines
    after: int  # lines


@dataclass(frozen=True, slots=True)
class Count:
    """Only every `n`th hit within `in_s` seconds counts."""

    n: int
    in_s: float


@dataclass(frozen=True, slots=True)
class SeverityWhen:
    """Another severity in a state of the device, or for lines that match; None: any."""

    severity: Severity
    state: DeviceState | None
    match: str | None


@dataclass(frozen=True, slots=True)
class Rule:
    """What a fault looks like in one line, and what belongs to it."""

    id: str
    title: str  # with {field} placeholders
    severity: Severity
    tier: Tier
    ecosystem: tuple[str, ...]  # not empty: the port must have shown one of them
    match: tuple[str, ...]
    fields: tuple[str, ...]
    unless: tuple[str, ...]
    block: Block | None
    parent: str
    continues: bool
    led_by: tuple[str, ...] | None  # as it is written; see `leads_after`
    needs: Needs | None
    unless_near: Near | None
    count: Count | None
    severity_when: tuple[SeverityWhen, ...]  # the first that fits
    key: tuple[str, ...]  # names of fields; empty: the title without its numbers
    holdoff_s: float
    knowledge: str
    examples: tuple[str, ...]
    counterexamples: tuple[str, ...]
    source: str  # "rules.d/mine.toml:22"

    def scanned(self) -> Iterator[str]:
        """Return every pattern of it that is looked for in the lines."""
        yield from self.match
        if self.block:
            yield from (*self.block.start, *self.block.end)
        if self.needs:
            yield from self.needs.match
        if self.unless_near:
            yield from self.unless_near.match

    @property
    def leads_after(self) -> tuple[str, ...] | None:
        """Return which lesser faults may have led to it, None if any: it is no crash then."""
        if self.led_by is not None:
            return self.led_by
        is_crash = self.block is not None or self.tier == "family"
        return () if self.severity == "critical" and is_crash else None

    @property
    def pack(self) -> str:
        """Return what stands before the dot."""
        return self.id.partition(".")[0]

    @property
    def family(self) -> str:
        """Return the ecosystem of a hit: the first one named, else the pack."""
        return self.ecosystem[0] if self.ecosystem else self.pack


@dataclass(frozen=True, slots=True)
class BootMarker:
    """A banner of a starting device."""

    ecosystem: str
    match: tuple[str, ...]
    stage: int  # 0 resets itself, 1 first, 2 firmware, 3 loader, 4 kernel or app, 5 user space
    is_start_alone: bool  # even if nothing was seen before
    window_s: float  # later stages of the same start come within it; 0: whenever they like
    state: DeviceState | None
    cause: BootCause | None
    fields: tuple[str, ...]  # with a group `cause`
    causes: tuple[tuple[str, PrintedCause], ...]  # whole-value pattern -> class, first wins
    unless_after: tuple[str, ...]  # in the 3 lines before: not a start (typed `version`)
    again_after: tuple[str, ...]  # comes once more in the same start after one of these ecosystems
    is_makeshift: bool  # a start only where nothing is known to run that has banners
    source: str


@dataclass(frozen=True, slots=True)
class ResetCause:
    """A line that tells why the device started, printed soon after its banner."""

    ecosystem: str
    match: tuple[str, ...]
    fields: tuple[str, ...]
    causes: tuple[tuple[str, PrintedCause], ...]
    source: str


@dataclass(frozen=True, slots=True)
class ReadyMarker:
    """A line, or an unfinished one, that ends a boot well."""

    ecosystem: str
    match: tuple[str, ...]
    source: str


@dataclass(frozen=True, slots=True)
class Prompt:
    """An unfinished line that waits for a person: it ends blocks, silence after it is natural."""

    ecosystem: str
    match: tuple[str, ...]
    is_ready: bool  # the boot is finished, too
    source: str


@dataclass(frozen=True, slots=True)
class Ignore:
    """Lines that are no fault whatever they say."""

    match: tuple[str, ...]
    rules: tuple[str, ...]  # only for these rules; empty: for all
    source: str


@dataclass(frozen=True, slots=True)
class Shutdown:
    """A line after which a restart, silence or a sleep is meant."""

    ecosystem: str
    match: tuple[str, ...]
    leads_to: Literal["restart", "off", "sleep", "halt"]  # halt: by a fault
    after: tuple[str, ...]  # only if one of the 3 lines before matches one of these
    source: str


@dataclass(frozen=True, slots=True)
class Told:
    """What every detector says of itself."""

    id: str
    severity: Severity
    holdoff_s: float
    knowledge: str
    source: str


@dataclass(frozen=True, slots=True)
class CounterDetector(Told):
    """Error counters of the UART rise: at least `min_events` in `in_s` seconds."""

    counters: tuple[str, ...]  # overrun, framing, parity, breaks, buffer_overrun
    min_events: int
    in_s: float
    error_per_min: int | None  # above it the severity is error


@dataclass(frozen=True, slots=True)
class BootLoopDetector(Told):
    """`starts` unexpected starts within `in_s`, or in a row without getting ready."""

    starts: int
    in_s: float
    not_ready_in_s: float  # the starts in a row are at most so far apart


@dataclass(frozen=True, slots=True)
class StormDetector(Told):
    """One line over and over, or a port full to the brim."""

    lines_per_s: int  # of one shape, for `shape_s`
    shape_s: int
    load: float  # part of the bit rate, for `load_s`
    load_s: int


@dataclass(frozen=True, slots=True)
class InterruptStormDetector(Told):
    """An interrupt counter rises too fast, a line about one repeats, or the kernel says so."""

    match: tuple[str, ...]  # lines that print a counter
    fields: tuple[str, ...]  # with groups `irq` and `count` (one or more numbers, added up)
    per_s: int
    baseline: float  # times its own earlier rate
    baseline_per_s: int  # and then at least so much
    lines_per_s: int
    rules: tuple[str, ...]  # kernel messages: `rule_hits` of one interrupt within 60 s
    rule_hits: int

    def scanned(self) -> Iterator[str]:
        """Return every pattern of it that is looked for in the lines."""
        yield from self.match


@dataclass(frozen=True, slots=True)
class SilenceDetector(Told):
    """A board that was talking says nothing any more."""

    limit_s: float  # at least
    times: float  # of the longest pause that is usual
    stuck_after: tuple[str, ...]  # last lines after which nobody stays silent
    stuck_s: float
    stuck_severity: Severity


@dataclass(frozen=True, slots=True)
class NovelDetector(Told):
    """A line that no good boot of its board had; the agent looks for them."""


@dataclass(frozen=True, slots=True)
class GarbageDetector(Told):
    """What the board sends is no text, and no other bit rate explains it."""

    min_bytes: int
    lasting_s: float
    asked_for: tuple[str, ...]  # lines after which binary data is meant


@dataclass(frozen=True, slots=True)
class BitRateDetector(Told):
    """What the board sends is no text because it talks at another bit rate; names that rate."""

    min_bytes: int  # behind one of `handovers`; elsewhere as for noise
    # Lines after which another stage talks, at a rate of its own. Groups may tell it: `rate` in
    # bit/s, or `believed` and `real`, the crystal's frequency in any unit.
    handovers: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class UnexpectedBootDetector(Told):
    """A board that was running starts anew, and nothing tells that somebody wanted it."""

    ecosystem: tuple[str, ...]  # that was running; empty: any that no other such detector names
    states: tuple[DeviceState, ...]  # that it was in; empty: any
    causes: tuple[BootCause, ...]
    up_s: float  # since the start before; shorter is a boot that failed, or a loop
    # A watchdog or brownout that the start prints counts at once, but for these ecosystems, whose
    # own rules tell it.
    told_by_rules: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class NotFinishedDetector(Told):
    """A boot that does not get ready in the time that this board needs as a rule."""

    limit_s: float  # for a kernel that has not come to user space, where nothing is learned
    learned: int  # boots that got ready, to know how long they take
    times: float  # of the time in which nearly all of them were ready
    least_s: float  # a board with an operating system is given at least so long,
    least_mcu_s: float  # any other so long


@dataclass(frozen=True, slots=True)
class RateDetector(Told):
    """The same rule hits so often within a time that it is a fault of its own."""

    title: str
    rules: tuple[str, ...]
    hits: int
    in_s: float


@dataclass(frozen=True, slots=True)
class ExpectDetector(Told):
    """After one line another one must follow within a time, and it did not."""

    title: str
    after: tuple[str, ...]
    match: tuple[str, ...]
    within_s: float

    def scanned(self) -> Iterator[str]:
        """Return every pattern of it that is looked for in the lines."""
        yield from (*self.after, *self.match)


@dataclass(frozen=True, slots=True)
class GaugeDetector(Told):
    """A number that the board prints leaves its limits."""

    title: str
    name: str  # of the metric
    unit: str
    match: tuple[str, ...]
    fields: tuple[str, ...]  # with a group `value`
    above: float | None
    below: float | None
    readings: int  # in a row that must be beyond a limit

    def scanned(self) -> Iterator[str]:
        """Return every pattern of it that is looked for in the lines."""
        yield from self.match


@dataclass(frozen=True, slots=True)
class VanishedDetector(Told):
    """The device of a port is gone: for a board with native USB that is how a crash looks."""

    gone_s: float  # so long it may take to come back before it is told
    talked_s: float  # a board behind an adapter must have said something so recently


@dataclass(frozen=True, slots=True)
class FlappingDetector(Told):
    """A port comes and goes, over and over."""


@dataclass(frozen=True, slots=True)
class SecondReaderDetector(Told):
    """Another program reads from the port: both get parts of what the board sends."""


@dataclass(frozen=True, slots=True)
class AutobootDetector(Told):
    """A loader's count-down is stopped `within_s` of an open, though nobody wrote."""

    match: tuple[str, ...]
    within_s: float

    def scanned(self) -> Iterator[str]:
        """Return every pattern of it that is looked for in the lines."""
        yield from self.match


# Each looks at some lines.
LineDetector = InterruptStormDetector | ExpectDetector | GaugeDetector | AutobootDetector
Detector = (
    LineDetector
    | BitRateDetector
    | BootLoopDetector
    | CounterDetector
    | FlappingDetector
    | GarbageDetector
    | NotFinishedDetector
    | NovelDetector
    | RateDetector
    | SecondReaderDetector
    | SilenceDetector
    | StormDetector
    | UnexpectedBootDetector
    | VanishedDetector
)


@dataclass(frozen=True, slots=True)
class RuleSet:
    """Everything that was loaded, in the order of the files."""

    rules: tuple[Rule, ...] = ()
    boots: tuple[BootMarker, ...] = ()
    causes: tuple[ResetCause, ...] = ()
    ready: tuple[ReadyMarker, ...] = ()
    prompts: tuple[Prompt, ...] = ()
    ignores: tuple[Ignore, ...] = ()
    shutdowns: tuple[Shutdown, ...] = ()
    detectors: tuple[Detector, ...] = ()
    problems: tuple[str, ...] = ()  # packs and rules that were left out, and why
    replaced: tuple[tuple[str, str], ...] = ()  # ids that stand for another's, and where that stood

    def scanned(self) -> Iterator[str]:
        """Return every pattern that is looked for in the lines, in a fixed order."""
        for rule in self.rules:
            yield from rule.scanned()
        for table in (self.boots, self.causes, self.ready, self.ignores):
            for marker in table:
                yield from marker.match
        for shutdown in self.shutdowns:
            yield from shutdown.match
        for detector in self.detectors:
            if isinstance(detector, LineDetector):
                yield from detector.scanned()

    def rule(self, rule_id: str) -> Rule | None:
        """Return the rule of this id."""
        return next((rule for rule in self.rules if rule.id == rule_id), None)

    def replacements(self) -> Iterator[str]:
        """Tell which rules and detectors took the place of others that had their id."""
        where = dict(self.replaced)
        for rule in self.rules:
            if rule.id in where:
                yield f"rule {rule.id} ({rule.source}): replaces {rule.id} ({where[rule.id]})"
        for each in self.detectors:
            if each.id in where:
                yield f"detector {each.id} ({each.source}): replaces {each.id} ({where[each.id]})"

    def detector(self, detector_id: str) -> Detector | None:
        """Return the detector of this id."""
        return next((d for d in self.detectors if d.id == detector_id), None)
