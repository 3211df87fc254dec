"""An interrupt that fires too often, as far as a console shows it."""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass

from serialwatch.records import Severity
from serialwatch.titles import readable
from serialwatch.triggers.detectors.fault import Fault
from serialwatch.triggers.detectors.storm import Second
from serialwatch.triggers.moments import Moment, S
from serialwatch.triggers.ruleset import InterruptStormDetector

_LEAST_S = 0.2  # between two readings of a counter
_MOST_S = 3600.0  # an older reading says nothing
_HITS_IN_S = 60.0
_AGAIN_NS = 60 * S
_LINE_S = 3  # seconds in a row in which one line about an interrupt repeats
_KEPT = 256  # interrupts of which a counter is remembered


@dataclass(frozen=True, slots=True)
class _Reading:
    at: Moment
    stamp_s: float | None  # the board's own clock, if the line had a stamp
    count: int
    per_s: float | None  # at the reading before


class InterruptStorm:
    """Fires when a printed counter rises too fast, a line repeats, or the kernel complains."""

    def __init__(self, told: InterruptStormDetector) -> None:
        self.told = told
        self._readings: dict[str, _Reading] = {}
        self._hits: dict[tuple[str, str], deque[Moment]] = {}
        self._fired_ns: dict[str, int] = {}
        self._shape = b""
        self._shape_s = 0
        self._last_second = -1

    def counter(self, irq: str, count: int, at: Moment, stamp_s: float | None) -> Fault | None:
        """Take a counter that the board printed."""
        before = self._readings.get(irq)
        if before is None or count < before.count:
            self._remember(irq, _Reading(at, stamp_s, count, None))
            return None
        passed_s = _passed_s(before, at, stamp_s)
        if passed_s is None:
            return None
        per_s = (count - before.count) / passed_s
        self._remember(irq, _Reading(at, stamp_s, count, per_s))
        usual = before.per_s
        told = self.told
        is_jump = (
            usual is not None
            and per_s > told.baseline_per_s
            and per_s > told.baseline * max(usual, 1.0)
        )
        if per_s <= told.per_s and not is_jump:
            return None
        was = f", {usual:,.0f} before" if is_jump and usual is not None else ""
        title = f"interrupt {irq} fires {per_s:,.0f} times a second{was}"
        return self._fault(irq, title, told.severity, at, before.at.seq, per_s)

    def passed(self, second: Second) -> Fault | None:
        """Take a second whose most frequent line is about interrupts."""
        is_on = second.lines_per_s > self.told.lines_per_s
        follows = second.number == self._last_second + 1 and second.shape == self._shape
        self._shape_s = (self._shape_s + 1 if follows else 1) if is_on else 0
        self._shape, self._last_second = second.shape, second.number
        if self._shape_s != _LINE_S:
            return None
        line = readable(second.line)
        at = Moment(second.seq, second.number * S, 0)
        title = f"a line about an interrupt {second.lines_per_s:.0f} times a second: {line}"
        return self._fault("", title, self.told.severity, at, second.seq, second.lines_per_s)

    def rule_hit(self, rule: str, irq: str, at: Moment) -> Fault | None:
        """Take a kernel message about an interrupt; one alone is its own rule's business."""
        if rule not in self.told.rules:
            return None
        if len(self._hits) >= _KEPT:
            self._hits.clear()
        hits = self._hits.setdefault((rule, irq), deque(maxlen=self.told.rule_hits))
        hits.append(at)
        if len(hits) < self.told.rule_hits or not at.is_within(_HITS_IN_S, hits[0]):
            return None
        which = f"interrupt {irq}" if irq else "an interrupt"
        title = f"the kernel complains of {which} again and again"
        fault = self._fault(irq, title, "warning", at, hits[0].seq, 0.0)
        hits.clear()
        return fault

    def _remember(self, irq: str, reading: _Reading) -> None:
        if len(self._readings) >= _KEPT and irq not in self._readings:
            self._readings.clear()
        self._readings[irq] = reading

    def _fault(
        self, irq: str, title: str, severity: Severity, at: Moment, first_seq: int, per_s: float
    ) -> Fault | None:
        fired_ns = self._fired_ns.get(irq)
        if fired_ns is not None and at.mono_ns - fired_ns < _AGAIN_NS:
            return None
        if len(self._fired_ns) >= _KEPT:
            self._fired_ns.clear()
        self._fired_ns[irq] = at.mono_ns
        return Fault(
            detector=self.told,
            severity=severity,
            title=title,
            key=irq,
            seq=at.seq,
            first_seq=first_seq,
            fields={"irq": irq, "per_s": f"{per_s:.0f}"},
        )


def _passed_s(before: _Reading, at: Moment, stamp_s: float | None) -> float | None:
    """Return the time between two readings; the board's own clock knows it best."""
    if stamp_s is not None and before.stamp_s is not None and stamp_s > before.stamp_s:
        passed_s = stamp_s - before.stamp_s
    else:
        passed_s = (at.mono_ns - before.at.mono_ns) / S
    return passed_s if _LEAST_S <= passed_s <= _MOST_S else None
