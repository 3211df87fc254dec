"""UART error counters of the PC that rise."""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass

from serialwatch.records import Severity
from serialwatch.titles import duration
from serialwatch.triggers.detectors.fault import Fault
from serialwatch.triggers.moments import S
from serialwatch.triggers.ruleset import CounterDetector

_AGAIN_NS = 10 * S  # a rise that goes on is told so often
_WORDS = {
    "overrun": "receive overrun",
    "buffer_overrun": "input buffer overrun",
    "framing": "framing error",
    "parity": "parity error",
    "breaks": "break",
}


@dataclass(frozen=True, slots=True)
class Counters:
    """Error counters of a UART as the driver has them; None: this driver does not count it."""

    overrun: int | None = None
    framing: int | None = None
    parity: int | None = None
    breaks: int | None = None
    buffer_overrun: int | None = None


class CounterRise:
    """Fires when counters rise by enough within the time; a smaller value is a new beginning."""

    def __init__(self, told: CounterDetector) -> None:
        self.told = told
        self._before: Counters | None = None
        self._rises: deque[tuple[int, str, int]] = deque()  # of the last minute: when, which, by
        self._fired_ns: int | None = None
        self._fired: Severity = told.severity

    def reset(self) -> None:
        """Take the next values as the base: the port was opened or the board restarted."""
        self._before = None
        self._rises.clear()

    def counted(self, counters: Counters, mono_ns: int, *, is_quiet: bool) -> Fault | None:
        """Take the counters; `is_quiet`: errors are to be expected now."""
        before, self._before = self._before, counters
        if before is None:
            return None
        rises = self._rises
        for name in self.told.counters:
            old, new = getattr(before, name), getattr(counters, name)
            if old is not None and new is not None and new > old and not is_quiet:
                rises.append((mono_ns, name, new - old))
        while rises and rises[0][0] <= mono_ns - 60 * S:
            rises.popleft()
        return self._judge(mono_ns) if rises and rises[-1][0] == mono_ns else None

    def _judge(self, mono_ns: int) -> Fault | None:
        told = self.told
        recent: dict[str, int] = {}
        for at_ns, name, by in self._rises:
            if at_ns > mono_ns - told.in_s * S:
                recent[name] = recent.get(name, 0) + by
        if sum(recent.values()) < told.min_events:
            return None
        per_min = sum(by for _, _, by in self._rises)
        severity = told.severity
        if told.error_per_min is not None and per_min > told.error_per_min:
            severity = "error"
        is_worse = severity != self._fired and severity == "error"
        if self._fired_ns is not None and mono_ns - self._fired_ns < _AGAIN_NS and not is_worse:
            return None
        self._fired_ns, self._fired = mono_ns, severity
        what = " and ".join(
            f"{n} {_WORDS[name]}{'s' if n > 1 else ''}" for name, n in recent.items()
        )
        return Fault(
            detector=told,
            severity=severity,
            title=f"the PC's UART counted {what} in {duration(told.in_s)}",
            fields={**{name: str(n) for name, n in recent.items()}, "per_min": str(per_min)},
        )
