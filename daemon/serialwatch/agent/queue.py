"""What the agent has to do next: which work may start now, and in which order."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Literal

from serialwatch.records import SEVERITIES, Incident

Phase = Literal["opened", "settled", "outcome"]
Kind = Literal["baseline", "model"]

MAX_BASELINES = 8  # at once
MAX_MODELS = 2  # at once, and one a port
MAX_WAITING = 1024


@dataclass(frozen=True, slots=True)
class Answered:
    """What a person answered to a run."""

    inquiry_id: int
    text: str
    user: str


@dataclass(frozen=True, slots=True)
class Work:
    """One investigation: by the offline analyst, or by a model after it."""

    kind: Kind
    phase: Phase
    incident: Incident
    queue_ids: tuple[int, ...] = ()  # rows of the core's queue that end with this work
    run_id: str = ""  # of a run to go on with, "" for a new one
    answer: Answered | None = None  # of a person, for which that run has waited


class WorkQueue:
    """Work that waits and work that runs.

    Two works of one incident never run at once as long as both are of one kind, so that its
    revisions stay in order. What waits for an incident is replaced by a later phase of it. When
    full, a new work takes the place of the mildest that waits, or is refused.
    """

    def __init__(self) -> None:
        self._waiting: list[Work] = []
        self._running: list[Work] = []
        self._held: list[str] = []  # ports of models that run for no incident
        self.refused = 0

    def __len__(self) -> int:
        return len(self._waiting)

    @property
    def running(self) -> tuple[Work, ...]:
        """Return what was taken and is not done yet."""
        return tuple(self._running)

    def add(self, work: Work) -> Work | None:
        """Put work in; return the work that was refused for lack of room, None normally."""
        for at, other in enumerate(self._waiting):
            if other.kind == work.kind and other.incident.id == work.incident.id:
                self._waiting[at] = replace(
                    work,
                    queue_ids=other.queue_ids + work.queue_ids,
                    run_id=work.run_id or other.run_id,
                    answer=work.answer or other.answer,
                )
                return None
        self._waiting.append(work)
        if len(self._waiting) <= MAX_WAITING:
            return None
        self.refused += 1
        mildest = max(self._waiting, key=_order)
        self._waiting.remove(mildest)
        return mildest

    def take(self) -> Work | None:
        """Return the next work that may start now, None if none may."""
        for work in sorted(self._waiting, key=_order):
            if self._may_start(work):
                self._waiting.remove(work)
                self._running.append(work)
                return work
        return None

    def done(self, work: Work) -> None:
        """Note that a work that was taken has ended."""
        self._running.remove(work)

    def hold(self, port: str) -> bool:
        """Take a model's place for a run about no incident; False if none is free.

        An incident that could have the place comes first. `port` is "" for a run about none.
        """
        if any(w.kind == "model" and self._may_start(w) for w in self._waiting):
            return False
        if not self._has_place(port):
            return False
        self._held.append(port)
        return True

    def release(self, port: str) -> None:
        """Give up a place that was held."""
        self._held.remove(port)

    def _may_start(self, work: Work) -> bool:
        same = [w for w in self._running if w.kind == work.kind]
        if any(w.incident.id == work.incident.id for w in same):
            return False
        if work.kind == "baseline":
            return len(same) < MAX_BASELINES
        return self._has_place(work.incident.port)

    def _has_place(self, port: str) -> bool:
        """Tell whether another model may run, about that port."""
        ports = [w.incident.port for w in self._running if w.kind == "model"] + self._held
        return len(ports) < MAX_MODELS and (not port or port not in ports)


def _order(work: Work) -> tuple[bool, int, int]:
    """Baselines first, then the worst, then the oldest."""
    severity = SEVERITIES.index(work.incident.severity)
    return work.kind == "model", -severity, work.incident.id
