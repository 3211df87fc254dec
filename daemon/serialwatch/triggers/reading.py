"""What a line says by itself, whoever printed it and when; a line that comes again is known."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TypeVar

from serialwatch.titles import normalise, readable
from serialwatch.triggers.mentions import is_mention
from serialwatch.triggers.patience import unanswered
from serialwatch.triggers.patterns import LineView, Pattern, compile_pattern
from serialwatch.triggers.recent import kernel_stamp_s
from serialwatch.triggers.replays import is_of_listing
from serialwatch.triggers.ruleset import (
    BootMarker,
    Ignore,
    LineDetector,
    PrintedCause,
    ReadyMarker,
    ResetCause,
    Rule,
    Shutdown,
)
from serialwatch.triggers.typed import is_text_command
from serialwatch.triggers.uses import RulePatterns, Uses

MAX_KNOWN = 1024  # bytes of a line that is kept
MOST_KNOWN = 2048  # lines; up to twice as many are kept
MAX_TITLE = 160  # characters
_MAX_FIELD = 120
_MARK = b"[-- "  # of conserver: the time, or who looks on
_STAMP, _COMMAND = object(), object()  # questions

_SMALL_LOGGER = re.compile(  # its level: `[W] can0:`, `E (4411) spi:`, `<err> can:`
    rb"(?:\[[\d:.,TZ -]{5,32}\] )?(?:\[[EWID]\] |[EWIDV] \(\d{1,10}\) \w|<(?:err|wrn|inf|dbg)> \w)"
)

_T = TypeVar("_T")


@dataclass(frozen=True, slots=True)
class Told:
    """What a rule reads in a line."""

    fields: Mapping[str, str]
    title: str
    key: str  # what tells one fault of the rule from another


class Reading:
    """One line: what matches in it, and all that follows from its bytes alone."""

    __slots__ = (
        "_answers",
        "boots",
        "causes",
        "detectors",
        "ids",
        "ignores",
        "is_of_listing",
        "patterns",
        "ready",
        "remembered",
        "rules",
        "shutdowns",
        "uses",
        "view",
    )

    def __init__(
        self, view: LineView, uses: Sequence[tuple[int, Uses]], ids: tuple[int, ...]
    ) -> None:
        self.view = view
        self.uses = uses  # by pattern id, in the order of ids
        self.ids = ids  # as Hyperscan found them
        self.is_of_listing = bool(uses) and is_of_listing(view.text)
        self.patterns = frozenset([number for number, _ in uses])
        self.rules: list[RulePatterns] = []
        self.boots: list[tuple[int, Uses]] = []
        self.causes: list[ResetCause] = []
        self.ready: list[ReadyMarker] = []
        self.ignores: list[Ignore] = []
        self.shutdowns: list[Shutdown] = []
        self.detectors: list[tuple[LineDetector, str]] = []
        self.remembered: list[int] = []
        for number, use in uses:
            self.rules += use.rules
            if use.is_remembered:
                self.remembered.append(number)
            if use.boots:
                self.boots.append((number, use))
            self.causes += use.causes
            self.ready += use.ready
            self.ignores += use.ignores
            self.shutdowns += use.shutdowns
            self.detectors += [(each, use.pattern.source) for each in use.detectors]
        self._answers: dict[object, object] = {}

    def is_vetoed(self, compiled: RulePatterns) -> bool:
        """Tell whether the line holds what its rule must not have, or only mentions the fault."""
        if self.has_unless(compiled):
            return True
        return self._answer(("veto", compiled.rule.id), lambda: self._is_no_report(compiled))

    def has_unless(self, compiled: RulePatterns) -> bool:
        """Tell whether the line holds what its rule must not have."""
        unless = compiled.unless
        if not unless:
            return False
        return self._answer(("unless", compiled.rule.id), lambda: self.view.has(unless))

    def _is_no_report(self, compiled: RulePatterns) -> bool:
        if compiled.rule.family == "linux" and self._is_of_small_system:
            return True
        patterns = (use.pattern for number, use in self.uses if number in compiled.matches)
        return is_mention(self.view, patterns)

    def has(self, pattern: Pattern) -> bool:
        """Tell whether another pattern matches."""
        return self._answer(("has", pattern.source), lambda: self.view.search(pattern) is not None)

    def told(self, compiled: RulePatterns) -> Told:
        """Return what a rule reads in all of the line."""
        return self._answer(compiled.rule.id, lambda: told(self.view, compiled))

    def printed_cause(self, marker: BootMarker | ResetCause) -> PrintedCause | None:
        """Return why the device started, if it says so in this line."""
        return self._answer(id(marker), lambda: _printed_cause(marker, self.view))

    @property
    def stamp_s(self) -> float | None:
        """Return the kernel time in front of it."""
        return self._answer(_STAMP, lambda: kernel_stamp_s(self.view.text))

    @property
    def _is_of_small_system(self) -> bool:
        """Tell whether a logger of firmware without an operating system has printed it."""
        return _SMALL_LOGGER.match(self.view.text) is not None and self.stamp_s is None

    @property
    def is_text_command(self) -> bool:
        """Tell whether it is a typed command that only handles text."""
        return self._answer(_COMMAND, lambda: is_text_command(self.view.text))

    def _answer(self, question: object, find: Callable[[], _T]) -> _T:
        """Return what was found before, else find it; a search that was ended is no answer."""
        known: dict[object, _T] = self._answers  # type: ignore[assignment]  # a type a question
        try:
            return known[question]
        except KeyError:
            before = unanswered()
            answer = find()
            if unanswered() == before:
                known[question] = answer
            return answer


class Readings:
    """The lines in which something was looked at last; boards print the same ones at each start."""

    def __init__(self) -> None:
        self._newer: dict[tuple[bytes, tuple[int, ...]], Reading] = {}
        self._older: dict[tuple[bytes, tuple[int, ...]], Reading] = {}
        self._others: dict[tuple[bytes, tuple[str, ...]], bool] = {}

    def get(self, text: bytes, ids: tuple[int, ...]) -> Reading | None:
        """Return what a line says in which Hyperscan found these patterns, if it is known."""
        known = self._newer.get((text, ids))
        if known is None and (known := self._older.get((text, ids))) is not None:
            self.keep(text, known)
        return known

    def keep(self, text: bytes, reading: Reading) -> None:
        """Know a line from now on."""
        if len(self._newer) >= MOST_KNOWN:
            self._older, self._newer = self._newer, {}
        self._newer[text, reading.ids] = reading

    def has(self, line: bytes, sources: tuple[str, ...]) -> bool:
        """Tell whether one of the patterns matches in a line of which nothing else is asked."""
        known = self._others.get((line, sources))
        if known is None:
            before = unanswered()
            known = LineView(line).has(map(compile_pattern, sources))
            if len(line) <= MAX_KNOWN and unanswered() == before:
                if len(self._others) >= MOST_KNOWN:
                    self._others.clear()
                self._others[line, sources] = known
        return known


def told(view: LineView, compiled: RulePatterns) -> Told:
    """Return what a rule reads in a line, or in a part of it."""
    fields: dict[str, str] = {}
    for pattern in compiled.fields:
        if match := view.search(pattern):
            for name, value in match.groupdict().items():
                if value is not None and name not in fields:
                    fields[name] = readable(value)[:_MAX_FIELD]
    title = _title(compiled.rule, fields)
    key = "|".join(fields.get(name, "") for name in compiled.rule.key)
    return Told(fields, title, key or normalise(title))


def _printed_cause(marker: BootMarker | ResetCause, view: LineView) -> PrintedCause | None:
    for source in marker.fields:
        if match := view.search(compile_pattern(source)):
            value = (match.groupdict().get("cause") or b"").strip()
            for pattern, cause in marker.causes:
                if compile_pattern(pattern).is_all_of(value):
                    return cause
            if value and isinstance(marker, ResetCause):
                return "unknown"  # it says why, in a word that is not known here
    return None


class _Missing(dict[str, str]):
    def __missing__(self, name: str) -> str:
        return "?"


def _title(rule: Rule, fields: Mapping[str, str]) -> str:
    return rule.title.format_map(_Missing(fields))[:MAX_TITLE]


def says_something(line: bytes) -> bool:
    """Tell whether there is more in a line than the stamp of a logger, or its mark."""
    return not line.startswith(_MARK) and bool(LineView(line).shortest().strip())
