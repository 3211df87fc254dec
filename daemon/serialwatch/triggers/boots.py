"""Count the starts of a device by its banners, and tell why it started."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass

from serialwatch.records import BootCause
from serialwatch.triggers.moments import Moment
from serialwatch.triggers.ruleset import BootMarker, DeviceState, PrintedCause

COMMANDED_S = 120.0  # a start so long after a command is its doing
OPENED_S = 3.0  # opening a port toggles DTR on many adapters, which resets many boards
PANIC_S = 120.0  # a board may wait before it restarts itself after a panic
_SAME_BANNER_S = 0.5  # banners of one start that come in any order
_SAME_BANNER_LINES = 5
_LAST_THAT_STARTS = 4  # stages: user space alone is no start


@dataclass(frozen=True, slots=True)
class Banner:
    """A boot marker that was found in a line."""

    pattern: int  # id
    marker: BootMarker
    cause: PrintedCause | None  # printed in the same line


@dataclass(frozen=True, slots=True)
class Start:
    """A start of the device; its number is given once."""

    number: int
    at: Moment
    ecosystem: str
    cause: BootCause
    is_expected: bool


class Boots:
    """The starts of one port.

    A banner of a later stage belongs to the start it follows; one of an earlier stage, or the same
    one again, is a new start. Nothing is known at first, so any banner but that of user space then
    is one.
    """

    def __init__(self, number: int) -> None:
        self.number = number
        self.state: DeviceState = "user"
        self.is_ready = False
        self._stage = 0  # the highest that was reached; 0: no start seen yet
        self._family: str = ""
        self._seen: set[int] = set()  # pattern ids of this start
        self._passed: set[str] = set()  # ecosystems of this start
        self._started: Moment | None = None
        self._last: Moment | None = None  # banner
        self._told: Start | None = None
        self._printed: PrintedCause | None = None
        self._command: Moment | None = None
        self._panic: Moment | None = None
        self._is_asleep = False
        self._expected_until_ns = -1

    def banner(self, found: Sequence[Banner], at: Moment) -> bool:
        """Take the banners of one line, lowest stage first; tell whether a new start began."""
        first = found[0]
        starts = self._is_start(first, at)
        if starts:
            self._start(first, at)
        elif self._is_same_banner(at) and first.marker.stage < self._stage:
            # Banners of one start out of order: what was seen of later stages comes again.
            self._stage = first.marker.stage
            self._seen = set()
        self._stage = max(self._stage, first.marker.stage)
        self._seen.update(banner.pattern for banner in found)
        self._passed.update(banner.marker.ecosystem for banner in found)
        self._last = at
        for banner in found:
            if banner.cause:
                self.printed(banner.cause)
        if first.marker.state:
            self.state = first.marker.state
        elif starts:
            self.state = "boot"
        return starts

    def printed(self, cause: PrintedCause) -> None:
        """Take the cause that the device itself gave; the first that says something counts."""
        if self._printed in (None, "unknown"):
            self._printed = cause

    def start(self) -> Start | None:
        """Return the newest start with what is known of it by now."""
        if not self._started:
            return None
        cause, is_expected = self._cause(self._started)
        return Start(self.number, self._started, self._family, cause, is_expected)
