"""A limit for Python's `re`, whose time on a hostile line nobody can foretell.

`re` holds the interpreter while it matches, but looks for signals every few thousand steps. A timer
that raises there ends a match that takes too long. It counts the CPU time of this process: what
other programs take from us must change no finding. It works in the main thread, which is where the
event loop judges lines; elsewhere only so much of a line is searched as surely takes no long time.
"""

from __future__ import annotations

import gc
import re
import signal
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from types import FrameType
from typing import AnyStr

LIMIT_S = 0.02  # of CPU time for one search: 10,000 times what an ordinary one takes
SLOW_S = 0.001  # of CPU time: a search that takes longer is counted;
SLOW_SPAN_S = 60.0  # within so long,
MOST_SLOW_S = 0.04  # if they take more than this together, the pattern is given up
GIVEN_UP_S = 600.0  # and then tried again: a board must not switch a rule off for ever
LONG_LINE = 256  # bytes; below it a pattern with one repeat takes microseconds


class Patience:
    """What one pattern may still take; once that is used up, it finds nothing for a while."""

    __slots__ = ("_over_until_s", "_slow_s", "_until_s")

    def __init__(self) -> None:
        self._over_until_s = 0.0
        self._slow_s = 0.0
        self._until_s = 0.0

    @property
    def is_over(self) -> bool:
        """Tell whether the pattern is given up now."""
        return self._over_until_s > 0 and time.monotonic() < self._over_until_s

    def renew(self) -> None:
        """Begin anew: the rules were loaded again."""
        self._over_until_s = 0.0
        self._slow_s = 0.0

    def search(
        self,
        search: Callable[[AnyStr], re.Match[AnyStr] | None],
        text: AnyStr,
        surely_quick: int = 0,
    ) -> re.Match[AnyStr] | None:
        """Search, but not for longer than `LIMIT_S`; so many bytes of it never take longer."""
        if self.is_over:
            _unanswered[0] += 1
            return None
        if threading.get_ident() != threading.main_thread().ident:
            if len(text) > surely_quick:
                _unanswered[0] += 1
            return search(text[:surely_quick]) if surely_quick else None
        is_collecting = gc.isenabled()
        gc.disable()  # may take longer than all searches, and is not the pattern's fault
        began_s = 0.0
        try:
            for _ in range(2):  # the timer counts what our other threads took within the first, too
                began_s = time.thread_time()  # not what other programs take from us
                with suppress(_TooSlowError):
                    return _within_limit(search, text)
            _unanswered[0] += 1
            return None
        finally:
            if (took_s := time.thread_time() - began_s) > SLOW_S:
                self._count(took_s)
            if is_collecting:
                gc.enable()

    def _count(self, took_s: float) -> None:
        now_s = time.monotonic()
        if now_s > self._until_s:
            self._until_s = now_s + SLOW_SPAN_S
            self._slow_s = 0.0
        self._slow_s += took_s
        if self._slow_s > MOST_SLOW_S:
            self._over_until_s = now_s + GIVEN_UP_S
            _newest[0] = self._over_until_s
            self._slow_s = 0.0


_unanswered = [0]


def unanswered() -> int:
    """Return how many searches were not made, or were ended, since the start."""
    return _unanswered[0]


_newest = [0.0]  # until when the pattern is given up that was given up last


def is_any_over() -> bool:
    """Tell whether any pattern is given up now."""
    return time.monotonic() < _newest[0]


class _TooSlowError(Exception):
    """A search was ended."""


_is_searching = False
_is_set = False  # asking for it at each search would take longer than most searches


def _within_limit(
    search: Callable[[AnyStr], re.Match[AnyStr] | None], text: AnyStr
) -> re.Match[AnyStr] | None:
    global _is_searching, _is_set
    if not _is_set:
        signal.signal(signal.SIGVTALRM, _rung)
        _is_set = True
    _is_searching = True
    signal.setitimer(signal.ITIMER_VIRTUAL, LIMIT_S)
    try:
        return search(text)
    finally:
        _is_searching = False
        signal.setitimer(signal.ITIMER_VIRTUAL, 0)


def _rung(_number: int, _frame: FrameType | None) -> None:
    # A timer that rings when the search is over already must not end what comes next.
    if _is_searching:
        raise _TooSlowError
