"""Leaves an endpoint alone that keeps failing: reports do not wait for it again and again."""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable

FAILURES = 5  # in a row
RECENT = 10  # requests, of which
RECENT_FAILURES = 5  # may not fail
RECENT_S = 60.0
FIRST_PAUSE_S = 30.0  # doubles with each probe that fails
LAST_PAUSE_S = 600.0


def _nobody(is_open: bool) -> None: ...


class Breaker:
    """Opens after failures; each pause over, one request may go out and see.

    `on_change` is told whether it is open. Times are those of `clock`, in seconds.
    """

    def __init__(
        self,
        on_change: Callable[[bool], None] = _nobody,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._on_change = on_change
        self._clock = clock
        self._failures = 0  # in a row
        self._recent: deque[tuple[float, bool]] = deque(maxlen=RECENT)  # when, whether it was good
        self._why = ""
        self._pause_s = FIRST_PAUSE_S
        self._probe_at_s: float | None = None  # of the next probe; None: not open

    @property
    def is_open(self) -> bool:
        """Tell whether the endpoint is left alone, but for probes."""
        return self._probe_at_s is not None

    def refusal(self) -> str:
        """Return why nothing may be asked now; "" if it may."""
        left_s = (self._probe_at_s or 0.0) - self._clock()
        if not self.is_open or left_s <= 0:
            return ""
        return f"{self._why} (left alone for {max(1, round(left_s))} s more)"

    def asking(self) -> None:
        """Note that a request goes out. If it is a probe, no other follows before its pause."""
        if self.is_open:
            self._probe_at_s = self._clock() + self._pause_s

    def succeeded(self) -> None:
        """Note a good answer."""
        self._failures = 0
        self._recent.append((self._clock(), True))
        if self.is_open:
            self._probe_at_s = None
            self._pause_s = FIRST_PAUSE_S
            self._recent.clear()
            self._on_change(False)

    def failed(self, why: str, *, is_final: bool = False) -> None:
        """Note a request without a usable answer; after a final one no other is tried for long."""
        self._failures += 1
        self._recent.append((self._clock(), False))
        self._why = why
        if is_final:
            self._pause_s = LAST_PAUSE_S
        elif self.is_open:
            self._pause_s = min(2 * self._pause_s, LAST_PAUSE_S)
        elif not self._is_enough():
            return
        was_open = self.is_open
        self._probe_at_s = self._clock() + self._pause_s
        if not was_open:
            self._on_change(True)

    def _is_enough(self) -> bool:
        if self._failures >= FAILURES:
            return True
        fresh = [good for at_s, good in self._recent if self._clock() - at_s <= RECENT_S]
        return len(fresh) == RECENT and fresh.count(False) >= RECENT_FAILURES
