"""Everything that happens on the bench, in order, for whoever follows it."""

from __future__ import annotations

import asyncio
import json
from collections import deque
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import takewhile
from typing import Any, Literal

from serialwatch.wire import iso

KEPT = 10_000  # events; who asks for older ones is told to start over

EventKind = Literal[
    "port.state",
    "hit",
    "incident.opened",
    "incident.changed",
    "report.published",
    "run.step",
    "approval.pending",
    "marker",
]


@dataclass(frozen=True, slots=True)
class Event:
    """One event; `text` is the JSON that followers get."""

    n: int  # counts from 1 per daemon start
    text: str


class Events:
    """The newest events of this daemon run.

    Followers hold a position, not a queue: a slow one costs nothing and, when it falls out of what
    is kept, is told so.
    """

    def __init__(self, started: str, kept: int = KEPT) -> None:
        self._started = started  # unique for this run of the daemon
        self._events: deque[Event] = deque(maxlen=kept)
        self._n = 0
        self._waiting: list[asyncio.Future[None]] = []

    @property
    def last(self) -> int:
        """Return the number of the newest event, 0 before the first."""
        return self._n

    def add(self, kind: EventKind, port: str, at_utc_ns: int, data: Mapping[str, Any]) -> None:
        """Take in an event and wake the followers."""
        self._n += 1
        body = {
            "v": 1,
            "id": self._id(self._n),
            "at": iso(at_utc_ns),
            "kind": kind,
            "port": port,
            "data": data,
        }
        self._events.append(Event(self._n, json.dumps(body, separators=(",", ":"))))
        waiting, self._waiting = self._waiting, []
        for follower in waiting:
            if not follower.done():  # it may have given up
                follower.set_result(None)

    def position(self, event_id: str) -> int | None:
        """Return the number of the event called `event_id`, None if what follows it is not kept."""
        started, _, n = event_id.rpartition("-")
        if started != self._started or not n.isascii() or not n.isdigit():
            return None
        number = int(n)
        return number if self._oldest() - 1 <= number <= self._n else None

    def after(self, n: int) -> Sequence[Event] | None:
        """Return what came after event `n`, None if some of that is gone."""
        if n < self._oldest() - 1:
            return None
        fresh = [*takewhile(lambda event: event.n > n, reversed(self._events))]
        return fresh[::-1]

    def reset_text(self, at_utc_ns: int) -> str:
        """Return the message that tells a follower to read everything anew, then go on here."""
        body = {"v": 1, "id": self._id(self._n), "at": iso(at_utc_ns), "kind": "reset", "port": ""}
        return json.dumps(body | {"data": {}}, separators=(",", ":"))

    async def wait(self) -> None:
        """Return when another event has come."""
        follower = asyncio.get_running_loop().create_future()
        self._waiting.append(follower)
        try:
            await follower
        finally:
            if follower in self._waiting:
                self._waiting.remove(follower)

    def _id(self, n: int) -> str:
        return f"{self._started}-{n}"

    def _oldest(self) -> int:
        return self._events[0].n if self._events else self._n + 1
