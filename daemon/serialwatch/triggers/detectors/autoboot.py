"""A loader that was stopped though nobody typed: the tty echoed into it while it was opened."""

from __future__ import annotations

from serialwatch.titles import duration
from serialwatch.triggers.detectors.fault import Fault
from serialwatch.triggers.moments import Moment, S
from serialwatch.triggers.ruleset import AutobootDetector


class Autoboot:
    """Fires once an open. A saved log has none, and what people write is no fault."""

    def __init__(self, told: AutobootDetector) -> None:
        self.told = told
        self._opened_ns: int | None = None

    def opened(self, mono_ns: int) -> None:
        """Note that the port was opened."""
        self._opened_ns = mono_ns

    def wrote(self) -> None:
        """Note that somebody writes to the board."""
        self._opened_ns = None

    def line(self, at: Moment, raw: bytes) -> Fault | None:
        """Take a line in which a count-down ended before its end."""
        opened_ns, self._opened_ns = self._opened_ns, None
        if opened_ns is None or at.mono_ns - opened_ns > self.told.within_s * S:
            return None
        passed = duration((at.mono_ns - opened_ns) / S)
        return Fault(
            detector=self.told,
            severity=self.told.severity,
            title=f"autoboot was stopped {passed} after the port was opened, and nobody typed",
            key=self.told.id,
            seq=at.seq,
            first_seq=at.seq,
            raw=raw,
            fields={"after": passed},
        )
