"""A matcher for text that is there before it is judged: it is scanned once, as a whole."""

from __future__ import annotations

from bisect import bisect_right

from serialwatch.lines import count_lines
from serialwatch.triggers.matcher import Matcher, end_of


class MatcherAhead(Matcher):
    """Scans a text, then answers for its pieces; asked for something else, it scans that.

    Most matches in a healthy log are lines that rules only ask for when they have found something
    themselves. Where no rule has, and none can reach back so far, they are left out.
    """

    def __init__(self, matcher: Matcher) -> None:
        self.__dict__.update(matcher.__dict__)  # rules and tables are the same
        self._scans = matcher
        self._on = matcher.asked_on
        self._calm_lines = 0  # since something was found that acts
        self.view = b""  # the newest text without escapes
        self._at = 0  # where the next piece starts in it
        self._ahead: list[tuple[int, int]] = []  # in order of their ends
        self._next = 0

    def look(self, text: bytes) -> list[tuple[int, int]]:
        """Scan the next complete lines; return the matches that matter."""
        self.view = view = self._scans.strip(text)
        self._at = self._next = 0
        hits = sorted(self._scans.scan(view), key=end_of)
        if not self._scans.is_idle(hits):
            self._calm_lines = 0
        else:
            if hits and self._calm_lines > self._on:
                hits = self._scans.latest(view, hits)
            if self._calm_lines <= self._on:
                self._calm_lines += count_lines(view)
        self._ahead = hits
        return hits

    def scan(self, text: bytes) -> list[tuple[int, int]]:
        """Return the matches in the next piece of the text, as it is without escapes."""
        start = self._at
        if not self.view.startswith(text, start):
            return self._scans.scan(text)
        self._at = end = start + len(text)
        first = self._next
        self._next = behind = bisect_right(self._ahead, end, first, key=end_of)
        found = self._ahead[first:behind]
        return [(pattern, at - start) for pattern, at in found] if start else found
