"""The tables of a rule pack as they stand in its file, each checked by itself.

Each names its patterns: those that are looked for in the stream of lines (`scanned`), and those
that are only read in a line that was found (`read`).
"""

from __future__ import annotations

import string
from collections.abc import Iterable, Iterator
from typing import Annotated, Any, Literal

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field

from serialwatch.records import BootCause, Severity, Tier
from serialwatch.triggers import ruleset as rs
from serialwatch.triggers.pattern_tree import PatternError
from serialwatch.triggers.patterns import compile_pattern

_Named = tuple[str, str]  # the key it stands under, the pattern
_Id = Annotated[str, Field(pattern=r"^[a-z0-9_]+\.[a-z0-9_]+$", max_length=64)]


def _one_or_many(value: object) -> object:
    return [value] if isinstance(value, str) else value


_Strings = Annotated[tuple[str, ...], BeforeValidator(_one_or_many)]
_SomeStrings = Annotated[tuple[str, ...], Field(min_length=1), BeforeValidator(_one_or_many)]
_Causes = dict[str, BootCause | Literal["software"]]
_Seconds = Annotated[float, Field(ge=0, le=604_800)]
_Away = Annotated[int, Field(ge=0, le=1000)]  # lines


class Table(BaseModel):
    """Any table."""

    model_config = ConfigDict(extra="forbid")

    def scanned(self) -> Iterator[_Named]:
        """Return the patterns that are looked for in all lines."""
        yield from ()

    def read(self) -> Iterator[_Named]:
        """Return the patterns that are read in lines that were found."""
        yield from ()

    def check(self) -> None:
        """Raise PatternError if what is in it does not fit together."""

    def made(self, source: str) -> Any:
        """Return what it stands for; `source` is its file and line."""
        raise NotImplementedError


class _Block(Table):
    start: _Strings = ()
    back_lines: _Away = 5
    end: _Strings = ()
    max_lines: Annotated[int, Field(ge=1, le=5000)] = 200


class _Needs(Table):
    match: _SomeStrings
    within_lines: _Away = 20
    only: _Strings = ()


class _Near(Table):
    match: _SomeStrings
    before: _Away = 5
    after: _Away = 5


class _Count(Table):
    n: Annotated[int, Field(ge=2, le=100_000)]
    in_s: _Seconds


class _SeverityWhen(Table):
    severity: Severity
    state: rs.DeviceState | None = None
    match: str | None = None


class RuleTable(Table):
    """`[[rule]]`: a fault that a line shows."""

    id: _Id
    title: Annotated[str, Field(min_length=1, max_length=160)]
    severity: Severity
    tier: Tier = "specific"
    ecosystem: _Strings = ()
    match: _SomeStrings
    fields: _Strings = ()
    unless: _Strings = ()
    block: _Block | None = None
    parent: str = ""
    continues: bool = False
    led_by: _Strings | None = None
    needs: _Needs | None = None
    unless_near: _Near | None = None
    count: _Count | None = None
    severity_when: tuple[_SeverityWhen, ...] = ()
    key: _Strings = ()
    holdoff_s: _Seconds = 300.0
    knowledge: str = ""
    examples: _Strings = ()
    counterexamples: _Strings = ()

    def scanned(self) -> Iterator[_Named]:
        """Return the patterns that are looked for in all lines."""
        yield from _named("match", self.match)
        if self.block:
            yield from _named("block", (*self.block.start, *self.block.end))
        if self.needs:
            yield from _named("needs", self.needs.match)
        if self.unless_near:
            yield from _named("unless_near", self.unless_near.match)

    def read(self) -> Iterator[_Named]:
        """Return the patterns that are read in lines that were found."""
        yield from _named("fields", self.fields)
        yield from _named("unless", self.unless)
        yield from _named("severity_when", [w.match for w in self.severity_when if w.match])

    def check(self) -> None:
        """Raise PatternError if what is in it does not fit together."""
        groups = {name for p in self.fields for name in compile_pattern(p).names}
        for source in self.needs.only if self.needs else ():
            if source not in self.match:
                raise PatternError(f"needs.only: {source!r} is none of the patterns of `match`")
        for name in (*_placeholders(self.title), *self.key):
            if name not in groups:
                raise PatternError(
                    f"{{{name}}} is no field: give `fields` a group `(?P<{name}>...)`"
                )

    def made(self, source: str) -> rs.Rule:
        """Return what it stands for; `source` is its file and line."""
        block, needs, near, count = self.block, self.needs, self.unless_near, self.count
        when = tuple(rs.SeverityWhen(w.severity, w.state, w.match) for w in self.severity_when)
        plain = self.model_dump(exclude={"block", "needs", "unless_near", "count", "severity_when"})
        return rs.Rule(
            **plain,
            block=rs.Block(**block.model_dump()) if block else None,
            needs=rs.Needs(**needs.model_dump()) if needs else None,
            unless_near=rs.Near(**near.model_dump()) if near else None,
            count=rs.Count(**count.model_dump()) if count else None,
            severity_when=when,
            source=source,
        )


class BootTable(Table):
    """`[[boot]]`: a banner of a starting device."""

    match: _SomeStrings
    ecosystem: str
    stage: Annotated[int, Field(ge=0, le=5)]
    alone: bool = False
    window_s: _Seconds = 10.0
    state: rs.DeviceState | None = None
    cause: BootCause | None = None
    fields: _Strings = ()
    causes: _Causes = {}
    unless_after: _Strings = ()
    again_after: _Strings = ()
    makeshift: bool = False

    def scanned(self) -> Iterator[_Named]:
        """Return the patterns that are looked for in all lines."""
        yield from _named("match", self.match)

    def read(self) -> Iterator[_Named]:
        """Return the patterns that are read in lines that were found."""
        yield from _named("fields", self.fields)
        yield from _named("causes", self.causes)
        yield from _named("unless_after", self.unless_after)

    def check(self) -> None:
        """Raise PatternError if what is in it does not fit together."""
        _check_causes(self.fields, self.causes)

    def made(self, source: str) -> rs.BootMarker:
        """Return what it stands for; `source` is its file and line."""
        plain = self.model_dump(exclude={"alone", "causes", "makeshift"})
        return rs.BootMarker(
            **plain,
            is_start_alone=self.alone or self.stage == 1,
            is_makeshift=self.makeshift,
            causes=tuple(self.causes.items()),
            source=source,
        )


class CauseTable(Table):
    """`[[cause]]`: a line that tells why a device started."""

    match: _SomeStrings
    ecosystem: str
    fields: _SomeStrings
    causes: Annotated[_Causes, Field(min_length=1)]

    def scanned(self) -> Iterator[_Named]:
        """Return the patterns that are looked for in all lines."""
        yield from _named("match", self.match)

    def read(self) -> Iterator[_Named]:
        """Return the patterns that are read in lines that were found."""
        yield from _named("fields", self.fields)
        yield from _named("causes", self.causes)

    def check(self) -> None:
        """Raise PatternError if what is in it does not fit together."""
        _check_causes(self.fields, self.causes)

    def made(self, source: str) -> rs.ResetCause:
        """Return what it stands for; `source` is its file and line."""
        causes = tuple(self.causes.items())
        return rs.ResetCause(self.ecosystem, self.match, self.fields, causes, source)


class ReadyTable(Table):
    """`[[ready]]`: a line that ends a boot."""

    match: _SomeStrings
    ecosystem: str

    def scanned(self) -> Iterator[_Named]:
        """Return the patterns that are looked for in all lines."""
        yield from _named("match", self.match)

    def made(self, source: str) -> rs.ReadyMarker:
        """Return what it stands for; `source` is its file and line."""
        return rs.ReadyMarker(self.ecosystem, self.match, source)


class PromptTable(Table):
    """`[[prompt]]`: an unfinished line that waits for somebody."""

    match: _SomeStrings
    ecosystem: str
    ready: bool

    def read(self) -> Iterator[_Named]:
        """Return the patterns that are read in lines that were found."""
        yield from _named("match", self.match)

    def made(self, source: str) -> rs.Prompt:
        """Return what it stands for; `source` is its file and line."""
        return rs.Prompt(self.ecosystem, self.match, self.ready, source)


class IgnoreTable(Table):
    """`[[ignore]]`: lines that are no fault."""

    match: _SomeStrings
    rules: _Strings = ()

    def scanned(self) -> Iterator[_Named]:
        """Return the patterns that are looked for in all lines."""
        yield from _named("match", self.match)

    def made(self, source: str) -> rs.Ignore:
        """Return what it stands for; `source` is its file and line."""
        return rs.Ignore(self.match, self.rules, source)


class ShutdownTable(Table):
    """`[[shutdown]]`: a line after which an end or a restart is meant."""

    match: _SomeStrings
    ecosystem: str
    leads_to: Literal["restart", "off", "sleep", "halt"]
    after: _Strings = ()

    def scanned(self) -> Iterator[_Named]:
        """Return the patterns that are looked for in all lines."""
        yield from _named("match", self.match)

    def read(self) -> Iterator[_Named]:
        """Return the patterns that are read in lines that were found."""
        yield from _named("after", self.after)

    def made(self, source: str) -> rs.Shutdown:
        """Return what it stands for; `source` is its file and line."""
        return rs.Shutdown(self.ecosystem, self.match, self.leads_to, self.after, source)


class DetectorTable(Table):
    """`[[detector]]`: a fault that no single line shows."""

    id: _Id
    kind: str
    severity: Severity
    holdoff_s: _Seconds = 300.0
    knowledge: str = ""


class CounterTable(DetectorTable):
    """Error counters of the UART."""

    counters: Annotated[
        tuple[Literal["overrun", "framing", "parity", "breaks", "buffer_overrun"], ...],
        Field(min_length=1),
    ]
    min_events: Annotated[int, Field(ge=1)] = 1
    in_s: _Seconds = 10.0
    error_per_min: Annotated[int, Field(ge=1)] | None = None


class BootLoopTable(DetectorTable):
    """Starts that follow one another."""

    starts: Annotated[int, Field(ge=2)] = 3
    in_s: _Seconds = 120.0
    not_ready_in_s: _Seconds = 180.0


class StormTable(DetectorTable):
    """One line over and over."""

    lines_per_s: Annotated[int, Field(ge=1)] = 50
    shape_s: Annotated[int, Field(ge=1, le=60)] = 3
    load: Annotated[float, Field(gt=0, le=1)] = 0.8
    load_s: Annotated[int, Field(ge=1, le=60)] = 5


class InterruptStormTable(DetectorTable):
    """Interrupts that come too fast."""

    match: _SomeStrings
    fields: _SomeStrings
    per_s: Annotated[int, Field(ge=1)] = 20_000
    baseline: Annotated[float, Field(gt=1)] = 10.0
    baseline_per_s: Annotated[int, Field(ge=1)] = 2_000
    lines_per_s: Annotated[int, Field(ge=1)] = 50
    rules: _Strings = ()
    rule_hits: Annotated[int, Field(ge=1)] = 3

    def scanned(self) -> Iterator[_Named]:
        """Return the patterns that are looked for in all lines."""
        yield from _named("match", self.match)

    def read(self) -> Iterator[_Named]:
        """Return the patterns that are read in lines that were found."""
        yield from _named("fields", self.fields)

    def check(self) -> None:
        """Raise PatternError if what is in it does not fit together."""
        for pattern in self.fields:
            if not {"irq", "count"} <= set(compile_pattern(pattern).names):
                raise PatternError("`fields` must have the groups `irq` and `count`")


class SilenceTable(DetectorTable):
    """A board that says nothing more."""

    limit_s: _Seconds = 30.0
    times: Annotated[float, Field(ge=1)] = 10.0
    stuck_after: _Strings = ()
    stuck_s: _Seconds = 30.0
    stuck_severity: Severity = "error"

    def read(self) -> Iterator[_Named]:
        """Return the patterns that are read in lines that were found."""
        yield from _named("stuck_after", self.stuck_after)


class GarbageTable(DetectorTable):
    """What is no text."""

    min_bytes: Annotated[int, Field(ge=16, le=100_000)] = 96
    lasting_s: Annotated[float, Field(gt=0, le=3600)] = 2.0
    asked_for: _Strings = ()

    def read(self) -> Iterator[_Named]:
        """Return the patterns that are read in lines that were found."""
        yield from _named("asked_for", self.asked_for)


class BitRateTable(DetectorTable):
    """What is no text because of another bit rate."""

    min_bytes: Annotated[int, Field(ge=16, le=100_000)] = 24
    handovers: _Strings = ()

    def read(self) -> Iterator[_Named]:
        """Return the patterns that are read in lines that were found."""
        yield from _named("handovers", self.handovers)


class UnexpectedBootTable(DetectorTable):
    """A start that nobody wanted."""

    ecosystem: _Strings = ()
    states: tuple[rs.DeviceState, ...] = ()
    causes: Annotated[tuple[BootCause, ...], Field(min_length=1)]
    up_s: _Seconds = 0.0
    told_by_rules: _Strings = ()


class NotFinishedTable(DetectorTable):
    """A boot that does not get ready."""

    limit_s: _Seconds = 180.0
    learned: Annotated[int, Field(ge=1, le=20)] = 2
    times: Annotated[float, Field(ge=1)] = 3.0
    least_s: _Seconds = 60.0
    least_mcu_s: _Seconds = 20.0


class RateTable(DetectorTable):
    """A rule that hits too often."""

    title: Annotated[str, Field(max_length=160)] = ""
    rules: _SomeStrings
    hits: Annotated[int, Field(ge=2, le=10_000)]
    in_s: Annotated[float, Field(gt=0, le=604_800)]


class ExpectTable(DetectorTable):
    """A line that must follow another one."""

    title: Annotated[str, Field(max_length=160)] = ""
    after: _SomeStrings
    match: _SomeStrings
    within_s: Annotated[float, Field(gt=0, le=604_800)]

    def scanned(self) -> Iterator[_Named]:
        """Return the patterns that are looked for in all lines."""
        yield from _named("after", self.after)
        yield from _named("match", self.match)


class GaugeTable(DetectorTable):
    """A number with limits."""

    title: Annotated[str, Field(max_length=160)] = ""
    name: Annotated[str, Field(pattern=r"^[a-z][a-z0-9_]*$", max_length=64)]
    unit: Annotated[str, Field(max_length=16)] = ""
    match: _SomeStrings
    fields: _SomeStrings
    above: float | None = None
    below: float | None = None
    readings: Annotated[int, Field(ge=1, le=1000)] = 2

    def scanned(self) -> Iterator[_Named]:
        """Return the patterns that are looked for in all lines."""
        yield from _named("match", self.match)

    def read(self) -> Iterator[_Named]:
        """Return the patterns that are read in lines that were found."""
        yield from _named("fields", self.fields)

    def check(self) -> None:
        """Raise PatternError if what is in it does not fit together."""
        for pattern in self.fields:
            if "value" not in compile_pattern(pattern).names:
                raise PatternError("`fields` must have a group `(?P<value>...)`, the number")
        if self.below is not None and self.above is not None and self.below >= self.above:
            raise PatternError("`below` must be less than `above`: good values lie between them")


class VanishedTable(DetectorTable):
    """A port that is gone."""

    gone_s: Annotated[float, Field(ge=0, le=3600)] = 2.0
    talked_s: _Seconds = 60.0


class FlappingTable(DetectorTable):
    """A port that comes and goes."""


class AutobootTable(DetectorTable):
    """A loader that was stopped right after an open."""

    match: _SomeStrings
    within_s: _Seconds = 10.0

    def scanned(self) -> Iterator[_Named]:
        """Return the patterns that are looked for in all lines."""
        yield from _named("match", self.match)


class SecondReaderTable(DetectorTable):
    """Another program at the port."""


class NovelTable(DetectorTable):
    """Lines that are new to a board."""


DETECTORS: dict[str, tuple[type[DetectorTable], type[rs.Told]]] = {
    "autoboot": (AutobootTable, rs.AutobootDetector),
    "bit_rate": (BitRateTable, rs.BitRateDetector),
    "boot_loop": (BootLoopTable, rs.BootLoopDetector),
    "counter": (CounterTable, rs.CounterDetector),
    "expect": (ExpectTable, rs.ExpectDetector),
    "flapping": (FlappingTable, rs.FlappingDetector),
    "garbage": (GarbageTable, rs.GarbageDetector),
    "gauge": (GaugeTable, rs.GaugeDetector),
    "interrupt_storm": (InterruptStormTable, rs.InterruptStormDetector),
    "not_finished": (NotFinishedTable, rs.NotFinishedDetector),
    "novel": (NovelTable, rs.NovelDetector),
    "rate": (RateTable, rs.RateDetector),
    "second_reader": (SecondReaderTable, rs.SecondReaderDetector),
    "silence": (SilenceTable, rs.SilenceDetector),
    "storm": (StormTable, rs.StormDetector),
    "unexpected_boot": (UnexpectedBootTable, rs.UnexpectedBootDetector),
    "vanished": (VanishedTable, rs.VanishedDetector),
}
TABLES: dict[str, type[Table]] = {
    "rule": RuleTable,
    "detector": DetectorTable,
    "boot": BootTable,
    "cause": CauseTable,
    "ready": ReadyTable,
    "prompt": PromptTable,
    "ignore": IgnoreTable,
    "shutdown": ShutdownTable,
}


def _named(key: str, patterns: Iterable[str]) -> Iterator[_Named]:
    for pattern in patterns:
        yield key, pattern


def _placeholders(title: str) -> list[str]:
    try:
        parts = list(string.Formatter().parse(title))
    except ValueError as exc:
        raise PatternError(f"title: {exc}; write {{{{ for a brace") from exc
    for _, name, spec, conversion in parts:
        if name is not None and (not name.isidentifier() or spec or conversion):
            raise PatternError(f"title: {{{name}}} must be the plain name of a field")
    return [name for _, name, _, _ in parts if name]


def _check_causes(fields: Iterable[str], causes: _Causes) -> None:
    has_group = any("cause" in compile_pattern(p).names for p in fields)
    if causes and not has_group:
        raise PatternError("`causes` needs `fields` with a group `(?P<cause>...)`")
