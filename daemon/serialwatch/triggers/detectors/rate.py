"""A rule that hits so often that it is a fault of its own."""

from __future__ import annotations

from collections import deque

from serialwatch.records import Hit
from serialwatch.titles import duration
from serialwatch.triggers.detectors.fault import Fault
from serialwatch.triggers.moments import Moment
from serialwatch.triggers.ruleset import RateDetector


class HitRate:
    """Fires when one of its rules has hit often enough, and then needs as many hits again."""

    def __init__(self, told: RateDetector) -> None:
        self.told = told
        self._hits: dict[str, deque[Moment]] = {
            rule: deque(maxlen=told.hits) for rule in told.rules
        }

    def rule_hit(self, hit: Hit, at: Moment) -> Fault | None:
        """Take the hit of a rule."""
        told = self.told
        hits = self._hits.get(hit.trigger)
        if hits is None:
            return None
        hits.extend([at] * hit.count)
        if len(hits) < told.hits or not at.is_within(told.in_s, hits[0]):
            return None
        first = hits[0]
        hits.clear()
        title = told.title or f"{told.hits} times in {duration(told.in_s)}: {hit.title}"
        return Fault(
            detector=told,
            severity=told.severity,
            title=title,
            key=hit.trigger,
            seq=at.seq,
            first_seq=first.seq,
            raw=hit.raw,
            fields={"rule": hit.trigger, "hits": str(told.hits), "seconds": f"{told.in_s:g}"},
        )
