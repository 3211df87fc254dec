"""A number that a board prints, with limits."""

from __future__ import annotations

import math

from serialwatch.triggers.detectors.fault import Fault
from serialwatch.triggers.moments import Moment
from serialwatch.triggers.patterns import LineView, compile_pattern
from serialwatch.triggers.ruleset import GaugeDetector


class Gauge:
    """Fires once when enough readings in a row are beyond a limit; a good one arms it again."""

    def __init__(self, told: GaugeDetector) -> None:
        self.told = told
        self.value: float | None = None  # the newest reading
        self._fields = [compile_pattern(source) for source in told.fields]
        self._beyond = 0
        self._first_seq = 0

    def line(self, view: LineView, at: Moment) -> Fault | None:
        """Take a line that shows a reading."""
        value = self._reading(view)
        if value is None:
            return None
        self.value = value
        limit = self._limit(value)
        if limit is None:
            self._beyond = 0
            return None
        self._beyond += 1
        if self._beyond == 1:
            self._first_seq = at.seq
        return self._fault(value, limit, at) if self._beyond == self.told.readings else None

    def _reading(self, view: LineView) -> float | None:
        for pattern in self._fields:
            if match := view.search(pattern):
                try:
                    value = float(match["value"])
                except (ValueError, TypeError):
                    return None
                return value if math.isfinite(value) else None
        return None

    def _limit(self, value: float) -> str | None:
        told = self.told
        if told.above is not None and value > told.above:
            return f"above {told.above:g}"
        if told.below is not None and value < told.below:
            return f"below {told.below:g}"
        return None

    def _fault(self, value: float, limit: str, at: Moment) -> Fault:
        told = self.told
        unit = f" {told.unit}" if told.unit else ""
        return Fault(
            detector=told,
            severity=told.severity,
            title=told.title or f"{told.name} is {value:g}{unit}, {limit}{unit}",
            key=told.name,
            seq=at.seq,
            first_seq=self._first_seq,
            fields={"name": told.name, "value": f"{value:g}", "limit": limit},
        )
