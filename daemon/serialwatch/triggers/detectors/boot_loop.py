"""A device that starts over and over."""

from __future__ import annotations

from collections import Counter, deque

from serialwatch.titles import duration
from serialwatch.triggers.boots import Start
from serialwatch.triggers.detectors.fault import Fault
from serialwatch.triggers.moments import Moment
from serialwatch.triggers.ruleset import BootLoopDetector

_KEPT = 50  # starts
_CAUSES = {
    "power_on": "after a power-on or an external reset",
    "commanded": "after a reset by its own software",
    "watchdog": "after a watchdog reset",
    "panic": "after a crash",
    "brownout": "after a brownout",
    "sleep_wake": "after a sleep",
    "unknown": "for no printed reason",
}


class BootLoop:
    """Fires once a loop: at enough unexpected starts in the time, or in a row without ready."""

    def __init__(self, told: BootLoopDetector) -> None:
        self.told = told
        self._starts: deque[Start] = deque(maxlen=_KEPT)
        self._in_a_row = 0  # starts since the board was last ready
        self._has_fired = False

    def go_on_from(self, earlier: BootLoop) -> None:
        """Take up the starts so far; other numbers may have been told to look for."""
        self._starts, self._in_a_row = earlier._starts, earlier._in_a_row
        self._has_fired = earlier._has_fired

    def started(self, start: Start) -> Fault | None:
        """Take a start that is told now."""
        told = self.told
        if start.is_expected:
            self._forget()
            return None
        last = self._starts[-1].at if self._starts else None
        if last and not start.at.is_within(max(told.in_s, told.not_ready_in_s), last):
            self._forget()
        elif last and not start.at.is_within(told.not_ready_in_s, last):
            self._in_a_row = 0
        self._starts.append(start)
        self._in_a_row += 1
        near = self._near(start.at)
        count = max(len(near), self._in_a_row)
        if self._has_fired or count < told.starts:
            return None
        self._has_fired = True
        return self._fault(list(self._starts)[-count:])

    def ready(self) -> None:
        """Note that the board finished a boot."""
        self._in_a_row = 0

    def _forget(self) -> None:
        self._starts.clear()
        self._in_a_row = 0
        self._has_fired = False

    def _near(self, at: Moment) -> list[Start]:
        return [start for start in self._starts if at.is_within(self.told.in_s, start.at)]

    def _fault(self, starts: list[Start]) -> Fault:
        first, last = starts[0].at, starts[-1].at
        causes = Counter(start.cause for start in starts)
        why = " or ".join(_CAUSES[cause] for cause, _ in causes.most_common(2))
        took_s = (last.mono_ns - first.mono_ns) / 1e9
        span = duration(took_s) if took_s >= 1 else f"{last.seq - first.seq + 1} lines"
        return Fault(
            detector=self.told,
            severity=self.told.severity,
            title=f"the board restarts over and over: {len(starts)} starts in {span}, {why}",
            seq=last.seq,
            first_seq=first.seq,
            fields={
                "starts": str(len(starts)),
                "cause": causes.most_common(1)[0][0],
                "seconds": f"{took_s:.1f}",
            },
        )
