"""Lines that a board never printed in a good boot: learned and looked for in the logs, in samples.

A boot is good if it became ready and nothing from warning up was found in it. Of each good boot the
lines up to `GOOD_AFTER_S` after it became ready are learned. From the second good boot on a line of
a shape that none of them had is told, once: then it is known too.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, field
from itertools import zip_longest

from serialwatch.agent.ctx.log_query import LogView
from serialwatch.agent.text.device_text import readable
from serialwatch.agent.text.templates import Templates
from serialwatch.records import Line

GOOD_BOOTS = 2  # before anything is new
GOOD_AFTER_S = 60.0  # after ready: the services of a board go on talking for a while
MAX_LEARNED = 3000  # lines of one boot
LEARN_LINES = 300  # at once
LOOK_LINES = 100  # at once: of a flood this is a sample
MAX_TOLD = 5  # new shapes of one boot
GARBAGE = 0.3  # share of characters that are no text
_S = 1_000_000_000
_ESCAPES = re.compile(rb"\x1b\[[0-?]*[ -/]*[@-~]")


@dataclass(frozen=True, slots=True)
class BootSeen:
    """A boot as the database has it."""

    number: int
    seq: int
    ready_seq: int | None
    ready_utc_ns: int | None
    has_fault: bool  # an incident from warning up belongs to it


@dataclass(frozen=True, slots=True)
class Novel:
    """A line that is like none of the good boots'."""

    line: Line
    text: str  # readable


@dataclass(slots=True)
class _Learning:
    number: int
    next_seq: int
    last_seq: int
    left: int = MAX_LEARNED
    texts: list[str] = field(default_factory=list)


class PortNovelty:
    """What one port has printed so far. Each `look` costs a few milliseconds."""

    def __init__(self, known: Sequence[str] = (), good_boots: int = 0) -> None:
        self.templates = Templates(known)
        self.good_boots = good_boots
        self._learned_boot = 0  # the newest boot that was learned or was not good
        self._looked_to = 0  # last line that was looked at
        self._learning: _Learning | None = None
        self._told: dict[int, int] = {}  # boot -> new shapes told

    def look(self, log: LogView, boots: Sequence[BootSeen], now_utc_ns: int) -> list[Novel]:
        """Look at the newest lines and learn; `boots` are the newest ones, oldest first."""
        bounds = log.bounds()
        if bounds is None:
            return []
        first = self._looked_to + 1 if self._looked_to else bounds[1]
        newest = [x for x in log.lines(first, None, LOOK_LINES, reverse=True) if x.is_complete]
        if newest:
            self._looked_to = newest[0].seq
        self._learn(log, boots, self._looked_to, now_utc_ns)
        found: list[Novel] = []
        if self.good_boots < GOOD_BOOTS or self._learning is not None:
            return []
        for line in reversed(newest):
            text = readable(line.raw)
            if _is_garbage(line.raw) or self.templates.knows(text):
                continue
            told = self._told.get(line.boot, 0)
            if told >= MAX_TOLD:
                continue
            self._told = {line.boot: told + 1}
            self.templates.learn(text)
            found.append(Novel(line, text))
        return found

    def flashed(self) -> None:
        """Note that other firmware runs now: what it prints is new and no fault."""
        self.good_boots = 0
        self._learning = None

    def _learn(self, log: LogView, boots: Sequence[BootSeen], last: int, now_utc_ns: int) -> None:
        """Go on with the boot that is being learned, or begin with the next one that is over."""
        if self._learning is None:
            self._learning = self._next(boots, last, now_utc_ns)
        learning = self._learning
        if learning is None:
            return
        lines = list(log.lines(first=learning.next_seq, last=learning.last_seq, limit=LEARN_LINES))
        learning.texts += [readable(line.raw) for line in lines if not _is_garbage(line.raw)]
        learning.left -= len(lines)
        if lines:
            learning.next_seq = lines[-1].seq + 1
        if len(lines) == LEARN_LINES and learning.left > 0:
            return
        self._learning = None
        self._learned_boot = learning.number
        for text in learning.texts:
            self.templates.learn(text)
        self.good_boots += 1

    def _next(self, boots: Sequence[BootSeen], last: int, now_utc_ns: int) -> _Learning | None:
        for boot, after in zip_longest(boots, boots[1:]):
            if boot.number <= self._learned_boot:
                continue
            is_over = after is not None or (
                boot.ready_utc_ns is not None
                and now_utc_ns - boot.ready_utc_ns >= GOOD_AFTER_S * _S
            )
            if not is_over:
                return None
            if boot.ready_seq is None or boot.has_fault:
                self._learned_boot = boot.number
                continue
            return _Learning(boot.number, boot.seq, after.seq - 1 if after else last)
        return None


def _is_garbage(raw: bytes) -> bool:
    text = _ESCAPES.sub(b"", raw).decode("utf-8", errors="replace")
    odd = sum(1 for char in text if char == "\ufffd" or not (char.isprintable() or char in "\t\r"))
    return odd > GARBAGE * len(text)
