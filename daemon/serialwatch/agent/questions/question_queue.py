"""Questions that wait and those that are being answered: fair to all who ask."""

from __future__ import annotations

import itertools
from dataclasses import dataclass

AT_ONCE = 4  # questions that are answered at the same time, one for each user
MAX_WAITING = 64


@dataclass(frozen=True, slots=True)
class AskedQuestion:
    """A question as the core hands it on."""

    queue_id: int
    session_id: str
    text: str
    port: str  # "" if none was named beside it
    user: str
    at_utc_ns: int
    utc_offset_s: int  # of whoever asks


class QuestionQueue:
    """Gives each user their turn: who was served longest ago comes first."""

    def __init__(self) -> None:
        self._waiting: list[AskedQuestion] = []
        self._running: list[AskedQuestion] = []
        self._turns = itertools.count(1)
        self._served: dict[str, int] = {}  # by user: their last turn

    def add(self, asked: AskedQuestion) -> bool:
        """Put a question in; False if there is no room for it. The same one is taken once."""
        if any(x.session_id == asked.session_id for x in (*self._waiting, *self._running)):
            return True
        if len(self._waiting) >= MAX_WAITING:
            return False
        self._waiting.append(asked)
        return True

    def take(self) -> AskedQuestion | None:
        """Return the next question that may be answered now, None if none may."""
        busy = {asked.user for asked in self._running}
        free = [asked for asked in self._waiting if asked.user not in busy]
        if not free or len(self._running) >= AT_ONCE:
            return None
        chosen = min(free, key=lambda x: (self._served.get(x.user, 0), x.queue_id))
        self._waiting.remove(chosen)
        self._running.append(chosen)
        self._served[chosen.user] = next(self._turns)
        return chosen

    def done(self, asked: AskedQuestion) -> None:
        """Note that a question that was taken needs nothing any more."""
        self._running.remove(asked)
        users = {x.user for x in (*self._waiting, *self._running)}
        if not users:
            self._served.clear()  # nobody waits: turns of the past are of no use

    def drop(self, session_id: str) -> AskedQuestion | None:
        """Take a waiting question out; return it, None if it does not wait."""
        found = next((x for x in self._waiting if x.session_id == session_id), None)
        if found is not None:
            self._waiting.remove(found)
        return found
