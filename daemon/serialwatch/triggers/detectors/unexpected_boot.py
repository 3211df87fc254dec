"""A board that starts anew although it was running and nobody asked for it."""

from __future__ import annotations

from collections.abc import Iterable

from serialwatch.titles import readable
from serialwatch.triggers.boots import Start
from serialwatch.triggers.detectors.fault import Fault
from serialwatch.triggers.ruleset import UnexpectedBootDetector

_CAUSES = {
    "power_on": "a power-on or an external reset",
    "watchdog": "a watchdog reset",
    "brownout": "a brownout",
    "unknown": "no reason is printed",
}
_FAULTS = ("watchdog", "brownout")


class UnexpectedBoot:
    """Fires at such a start; one after a crash is the crash's outcome and none of ours."""

    def __init__(self, told: UnexpectedBootDetector, named: Iterable[str]) -> None:
        """Judge starts; `named` are the ecosystems that have such a detector of their own."""
        self.told = told
        self._named = frozenset(named)

    def started(self, start: Start, last_line: bytes) -> Fault | None:
        """Take a start that is told now, and the last line before it."""
        told = self.told
        if start.is_expected or start.was_panic or start.interrupted in (None, "shutdown"):
            return None
        if start.cause not in told.causes:
            return None
        is_told = start.printed not in _FAULTS or not start.ran.isdisjoint(told.told_by_rules)
        if start.had_run_s < told.up_s and is_told:
            return None
        if told.states and start.interrupted not in told.states:
            return None
        if told.ecosystem:
            if start.ran.isdisjoint(told.ecosystem):
                return None
        elif not start.ran.isdisjoint(self._named):
            return None
        why = _CAUSES.get(start.cause, start.cause)
        if start.printed == "unknown":
            why = "the reason that it prints is not known here"
        line = readable(last_line)
        return Fault(
            detector=told,
            severity=told.severity,
            title=f"the board restarted while it was running: {why}",
            key=start.cause,
            seq=start.at.seq,
            first_seq=max(1, start.at.seq - 1),
            fields={"cause": start.cause, "last_line": line[:120]},
        )
