"""Lines that say nothing new: a saved log printed again on the console, a line printed twice."""

from __future__ import annotations

import re
from collections.abc import Iterator
from itertools import groupby
from typing import Literal

from serialwatch.triggers.recent import Recent

Copied = Literal["no", "perhaps", "yes"]

_MOST_BACK = 2000  # lines of a listing that are looked at; more are not kept anyway
_PAIRS = 3  # before a doubled line, whose console then doubles all lines,
_FEW_PAIRS = 2  # or perhaps does,
_PAIR_LINES = 16  # so far back
_STATUS_LINES = 10  # of the journal that a status shows, below
_STATUS_OTHERS = 16  # such as `Active: …` and the processes
_OTHERS = 4  # lines in a row that a listing may hold, or that stand before it, of another form
_HOSTS_STAMP = rb"(?:\[(?:tio )?[\d:. TZ-]{8,32}\] )?(?:<\d{1,3}>)?"
_SENDER = rb"(?:[\w.-]+ )?[\w./()-]+(?:\[\d+\])?: "
_LISTED = re.compile(
    _HOSTS_STAMP + rb"(?:"
    # /var/log/messages, journalctl; logread
    rb"(?:[A-Z][a-z]{2} )?[A-Z][a-z]{2} [ \d]\d \d\d:\d\d:\d\d(?:\.\d{1,6})? (?:\d{4} \w+\.\w+ )?"
    + _SENDER
    # rsyslog's kern.log, journalctl -o short-iso
    + rb"|\d{4}-\d\d-\d\d[ T]\d\d:\d\d:\d\d(?:[.,]\d{1,6})?(?:Z|[+-]\d\d:?\d\d)? "
    + _SENDER
    # dmesg -T, dmesg -e
    + rb"|\[(?:[A-Z][a-z]{2} [A-Z][a-z]{2} [ \d]\d \d\d:\d\d:\d\d \d{4}|[A-Z][a-z]{2} ?\d\d? "
    rb"\d\d:\d\d|  \+\d+[.,]\d{6})\] )"
)
_ASKS = re.compile(
    rb"\b(?:dmesg|logread|journalctl|syslog|messages|kern\.log|kernel\.log|debug\.log)\b"
)
_SHOWS_STATUS = re.compile(rb"^([^\n]{0,80}?[#$>]) ?(?:sudo )?systemctl\b[^|\n]{0,80}? status\b")
_FOLLOWS = re.compile(rb"\btail +-\w*[fF]| -\w*[fwW]\w*\b|--follow")


def is_of_listing(line: bytes) -> bool:
    """Tell whether a line has the form in which loggers save it."""
    return _LISTED.match(line) is not None


class Replays:
    """The saved logs that somebody has had printed on one console."""

    def __init__(self, recent: Recent) -> None:
        self._recent = recent
        self._seq = 0  # of the newest line that was of the form of a listing,
        self._was_asked_for = False  # and whether a command had asked for it

    def is_listed(self, line: bytes, seq: int, offset: int) -> bool:
        """Tell whether a line, at `offset` of the newest chunk, was printed by `cat kern.log`.

        Such a line has the form in which loggers save it, and a command stands before the first.
        """
        if not _LISTED.match(line):
            return False
        if self._is_of_status(offset):
            return True
        self._was_asked_for = self._is_asked_for(seq, offset)
        self._seq = seq
        return self._was_asked_for

    def _is_of_status(self, offset: int) -> bool:
        """Tell whether it is of the few lines of the journal that `systemctl status` ends with."""
        before = self._recent.lines_before(offset, _STATUS_OTHERS + _STATUS_LINES)
        for at in range(len(before) - 1, -1, -1):
            if asked := _SHOWS_STATUS.match(before[at]):
                below = before[at + 1 :]
                listed = sum(map(is_of_listing, below))
                is_over = any(line.startswith(asked[1]) for line in below)
                return listed < _STATUS_LINES and not is_over
        return False

    def _is_asked_for(self, seq: int, offset: int) -> bool:
        back = min(seq - self._seq, _MOST_BACK)
        others = 0
        for line in reversed(self._recent.lines_before(offset, back)):
            if _LISTED.match(line):
                others = 0
                continue
            others += 1
            if _ASKS.search(line) and not _FOLLOWS.search(line):
                return True
            if others > _OTHERS:
                return False
        # The start of the log, or a line that was asked about before.
        return self._was_asked_for and self._seq > 0


def copied(recent: Recent, line: bytes, offset: int) -> Copied:
    """Tell whether a line is the one before again, on a console that prints all lines twice.

    The newest pairs before it tell, of lines that differ: a board that says one thing again and
    again need print no copies. "perhaps": too few for a fault to be one, but it is no start.
    """
    if recent.lines_before(offset, 1) != [line]:
        return "no"
    before = recent.lines_before(offset, 1 + _PAIR_LINES)[-2::-1]
    found: list[bytes] = []
    is_mixed = False
    for second, first in zip(before[::2], before[1::2], strict=False):
        if first != second:
            is_mixed = True
            break
        found.append(second)
    others = [(each, times) for each, times in _runs(found) if each.strip() and each != line]
    pairs = {each for each, times in others if times == 1}
    if is_mixed and len(pairs) < _FEW_PAIRS:
        return "no"
    if len(pairs) >= _PAIRS and found[0] != line:
        return "yes"
    return "perhaps" if others or not b"".join(before).strip() else "no"


def prints_twice(recent: Recent, offset: int) -> bool:
    """Tell whether a console prints all lines twice, by those before an offset."""
    before = recent.lines_before(offset, _PAIR_LINES)[::-1]
    pairs = list(zip(before[::2], before[1::2], strict=False))
    said = {second for second, _ in pairs if second.strip()}
    return len(said) >= _FEW_PAIRS and all(second == first for second, first in pairs)


def _runs(found: list[bytes]) -> Iterator[tuple[bytes, int]]:
    return ((each, len(list(same))) for each, same in groupby(found))
