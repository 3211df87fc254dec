"""What the agent has published of each incident, and how the next report goes on from it."""

from __future__ import annotations

import asyncio
from collections import OrderedDict
from dataclasses import dataclass, field, replace

from serialwatch.agent.offline.case import MAX_TIMELINE
from serialwatch.records import Claims, Conclusion, Cost, Incident, Report

MAX_KEPT = 500  # incidents; those worked on longest ago are forgotten


@dataclass(slots=True)
class Standing:
    """One incident as it stands with us."""

    incident: Incident  # as the core told it last
    report: Report | None = None  # published last
    baseline: Report | None = None  # the offline analyst's last one, published or not
    is_settled: bool = False  # and all that follows from that was begun
    asked: str = ""  # what a person was asked and has not answered, as a report says it
    late: list[str] = field(default_factory=list)  # jobs that ended after their run, likewise
    publishing: asyncio.Lock = field(default_factory=asyncio.Lock)  # one revision after another


class Standings:
    """The incidents worked on lately."""

    def __init__(self) -> None:
        self._kept: OrderedDict[int, Standing] = OrderedDict()

    def update(self, incident: Incident) -> None:
        """Note how an incident stands with the core."""
        self.of(incident).incident = incident

    def of(self, incident: Incident) -> Standing:
        """Return the standing of an incident, made if there is none."""
        standing = self._kept.setdefault(incident.id, Standing(incident))
        self._kept.move_to_end(incident.id)
        while len(self._kept) > MAX_KEPT:
            self._kept.popitem(last=False)
        return standing

    def incident(self, number: int) -> Incident | None:
        """Return an incident by its number, None if it is not known here."""
        kept = self._kept.get(number)
        return kept.incident if kept else None


def is_by_model(report: Report) -> bool:
    """Tell whether a model made the report."""
    return report.made_by.startswith("model ")


def says_the_same(report: Report, other: Report) -> bool:
    """Tell whether two reports differ in nothing but number and cost."""
    if report.cost.reason != other.cost.reason:
        return False
    same = {"revision": 0, "cost": Cost()}
    return replace(report, **same) == replace(other, **same)  # type: ignore[arg-type]


def carried_on(standing: Report, before: Report | None, now: Report) -> Report:
    """Return a model's report with what the offline analyst found out since.

    `before` and `now` are the analyst's reports of the phase before and of this one.
    """
    known = {c.claim for c in (before.conclusions if before else ())}
    known |= {c.claim for c in standing.conclusions}
    fresh = [c for c in now.conclusions if c.claim not in known]
    conclusions = [*standing.conclusions]
    for conclusion in fresh:
        # The ids of results belong to one run, and this report to another.
        conclusions.append(replace(conclusion, id=_free_id(conclusions), results=()))
    entries = {(t.port, t.seq): t for t in (*now.timeline, *standing.timeline)}
    timeline = sorted(entries.values(), key=lambda t: (t.utc_ns, t.port, t.seq))
    gone = set(before.unknowns if before else ()) - set(now.unknowns)
    return replace(
        standing,
        conclusions=tuple(conclusions),
        timeline=tuple(timeline[-2 * MAX_TIMELINE :]),
        unknowns=tuple(u for u in standing.unknowns if u not in gone),
        claims=Claims(standing.claims.verified + len(fresh), standing.claims.dropped),
    )


def _free_id(conclusions: list[Conclusion]) -> str:
    taken = {c.id for c in conclusions}
    return next(f"c{n}" for n in range(1, 1000) if f"c{n}" not in taken)
