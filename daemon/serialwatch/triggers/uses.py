"""What the patterns of a matcher stand for."""

from __future__ import annotations

from dataclasses import dataclass, field

from serialwatch.triggers.patterns import Pattern
from serialwatch.triggers.ruleset import (
    BootMarker,
    Ignore,
    LineDetector,
    ReadyMarker,
    ResetCause,
    Rule,
    Shutdown,
)


@dataclass(frozen=True, slots=True)
class RulePatterns:
    """A rule with its patterns compiled; sets hold pattern ids."""

    rule: Rule
    matches: frozenset[int]
    fields: tuple[Pattern, ...]
    unless: tuple[Pattern, ...]
    when: tuple[Pattern | None, ...]  # one an entry of `severity_when`
    starts: frozenset[int]
    ends: frozenset[int]
    needs: frozenset[int]
    needy: frozenset[int]  # matches that need one of these
    near: frozenset[int]
    ancestors: frozenset[str]  # ids of the vaguer rules


@dataclass(slots=True)
class Uses:
    """What a pattern stands for; most have one use."""

    pattern: Pattern
    rules: list[RulePatterns] = field(default_factory=list)
    boots: list[BootMarker] = field(default_factory=list)
    causes: list[ResetCause] = field(default_factory=list)
    ready: list[ReadyMarker] = field(default_factory=list)
    ignores: list[Ignore] = field(default_factory=list)
    shutdowns: list[Shutdown] = field(default_factory=list)
    detectors: list[LineDetector] = field(default_factory=list)
    is_remembered: bool = False  # other rules ask where it was last seen

    @property
    def acts(self) -> bool:
        """Tell whether it means something where nothing else was found."""
        return bool(
            self.rules
            or self.boots
            or self.causes
            or self.ready
            or self.ignores
            or self.shutdowns
            or self.detectors
        )
