"""A trouble that lasts or comes again: told when it begins, once a minute, and when it is over."""

from __future__ import annotations

from typing import Literal

AGAIN_S = 60.0  # the same words are told at most so often

Turn = Literal["", "begins", "lasts", "ends"]


class Trouble:
    """Knows when to say that something is wrong; it reads no clock and says nothing itself.

    What comes and goes many times a minute is told once a minute, each time with its end.
    """

    def __init__(self) -> None:
        self.lasted_s = 0.0  # so far, or until it ended
        self._since_s: float | None = None  # None: all is well
        self._told_s: dict[str, float] = {}  # by words: when they were told last
        self._telling = ""  # what was told last since it began

    def note(self, words: str, now_s: float) -> Turn:
        """Note what is wrong, "" for nothing; return what is to be told of it now, "" for nothing.

        Other words begin anew. `now_s`: CLOCK_MONOTONIC.
        """
        if self._since_s is not None:
            self.lasted_s = now_s - self._since_s
        if not words:
            told, self._telling = self._telling, ""
            self._since_s = None
            return "ends" if told else ""
        if self._since_s is None:
            self._since_s, self.lasted_s = now_s, 0.0
        self._told_s = {told: at_s for told, at_s in self._told_s.items() if now_s < at_s + AGAIN_S}
        if words in self._told_s:
            return ""
        self._told_s[words] = now_s
        before, self._telling = self._telling, words
        return "lasts" if before == words else "begins"
