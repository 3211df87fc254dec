"""A board that was talking and says nothing any more."""

from __future__ import annotations

from collections import deque

from serialwatch.records import Severity
from serialwatch.titles import duration, readable
from serialwatch.triggers.detectors.fault import Fault
from serialwatch.triggers.moments import S
from serialwatch.triggers.patterns import LineView, compile_pattern
from serialwatch.triggers.ruleset import SilenceDetector

_PAUSE_NS = S // 2  # shorter gaps are no pauses
_KEPT = 200  # pauses
_TALKING_S = 30  # seconds with output in this state of the board, and
_TALKING_FOR_S = 120  # so long from the first to the last of them
_USUAL = 0.99


class Silence:
    """Fires once a silence; learns by state how long the usual pauses are."""

    def __init__(self, told: SilenceDetector) -> None:
        self.told = told
        self._stuck_after = [compile_pattern(source) for source in told.stuck_after]
        self._shortest_ns = round(min(told.limit_s, told.stuck_s) * S)
        self._last_ns: int | None = None
        self._has_fired = False
        self._pauses: deque[int] = deque(maxlen=_KEPT)
        self._first_second = self._second = -1
        self._seconds = 0  # with output

    def heard(self, mono_ns: int) -> None:
        """Note that the board said something."""
        if self._last_ns is not None and mono_ns - self._last_ns >= _PAUSE_NS:
            self._pauses.append(mono_ns - self._last_ns)
        self._last_ns = mono_ns
        self._has_fired = False
        second = mono_ns // S
        if second != self._second:
            if self._first_second < 0:
                self._first_second = second
            self._second = second
            self._seconds += 1

    def stop(self) -> None:
        """Stop listening until something is heard: the port is gone."""
        self._last_ns = None

    def learn_anew(self) -> None:
        """Forget the usual pauses: the board is in another state now."""
        self._pauses.clear()
        self._first_second = self._second = -1
        self._seconds = 0

    def is_due(self, mono_ns: int) -> bool:
        """Tell whether it has been quiet long enough to be worth a closer look."""
        return (
            self._last_ns is not None
            and not self._has_fired
            and mono_ns - self._last_ns >= self._shortest_ns
        )

    def judge(self, last_line: bytes, last_seq: int, mono_ns: int) -> Fault | None:
        """Judge a silence that is due and that nothing explains."""
        if self._last_ns is None:
            return None
        quiet_s = (mono_ns - self._last_ns) / S
        told = self.told
        line = readable(last_line)
        if quiet_s >= told.stuck_s and LineView(last_line).has(self._stuck_after):
            self._has_fired = True
            title = f"the board went silent after: {line}"
            return self._fault("stuck", told.stuck_severity, title, last_line, last_seq, quiet_s)
        if not self._is_talking() or quiet_s < max(told.limit_s, told.times * self._usual_s()):
            return None
        self._has_fired = True
        title = f"no line for {duration(quiet_s)} from a board that was talking"
        return self._fault("quiet", told.severity, title, last_line, last_seq, quiet_s)

    def _fault(
        self, key: str, severity: Severity, title: str, line: bytes, seq: int, quiet_s: float
    ) -> Fault:
        return Fault(
            detector=self.told,
            severity=severity,
            title=title,
            key=key,
            seq=seq,
            first_seq=seq,
            raw=line,
            fields={"seconds": f"{quiet_s:.0f}"},
        )

    def _is_talking(self) -> bool:
        span_s = self._second - self._first_second
        return self._seconds >= _TALKING_S and span_s >= _TALKING_FOR_S

    def _usual_s(self) -> float:
        if not self._pauses:
            return 0.0
        pauses = sorted(self._pauses)
        return pauses[min(len(pauses) - 1, int(len(pauses) * _USUAL))] / S
