"""A line that must follow another one within a time."""

from __future__ import annotations

from serialwatch.titles import duration, readable
from serialwatch.triggers.detectors.fault import Fault
from serialwatch.triggers.moments import Moment, S
from serialwatch.triggers.ruleset import ExpectDetector


class Expect:
    """Fires when nothing followed in time; each `after` that is not answered counts once."""

    def __init__(self, told: ExpectDetector) -> None:
        self.told = told
        self._after: tuple[Moment, bytes] | None = None  # the first that was not answered

    def line(self, source: str, at: Moment, raw: bytes) -> Fault | None:
        """Take a line in which the pattern `source` was found."""
        fault = self.tick(at.mono_ns)
        if source in self.told.match:
            self._after = None
        elif self._after is None:
            self._after = (at, raw)
        return fault

    @property
    def is_waiting(self) -> bool:
        """Tell whether something must follow."""
        return self._after is not None

    def stop(self) -> None:
        """Expect nothing: the board starts anew, goes down or is gone."""
        self._after = None

    def tick(self, mono_ns: int) -> Fault | None:
        """Let time pass."""
        if self._after is None:
            return None
        after, raw = self._after
        told = self.told
        if mono_ns - after.mono_ns <= told.within_s * S:
            return None
        self._after = None
        line = readable(raw)
        return Fault(
            detector=told,
            severity=told.severity,
            title=told.title or f"nothing followed within {duration(told.within_s)}: {line}",
            key=told.id,
            seq=after.seq,
            first_seq=after.seq,
            raw=raw,
            fields={"seconds": f"{told.within_s:g}", "line": line[:120]},
        )
