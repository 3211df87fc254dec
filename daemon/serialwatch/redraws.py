"""Tells lines that end with CR from one line that is drawn again and again: by the bytes alone."""

from __future__ import annotations

import re
from dataclasses import dataclass

AUTO_CR_AFTER = 4 * 1024  # bytes of one line with CRs: so long no line is drawn again
LOOK_AFTER = 256  # bytes of a line after which its parts count; those of the first count at once
FIRST_LINES = 3  # parts of the first line, one behind the other, each of which says something else
LATER_LINES = 6  # the same of a later line: one before it has ended with LF

_BEHIND_CR = re.compile(rb"\r(?=[^\r\n])")
_COLOUR = re.compile(rb"\x1b\[[0-9;]*m")
_NO_TEXT = re.compile(rb"[^ -~\t]")
# Counts, sizes, times, addresses; not what they are called before a colon.
_WITH_DIGIT = re.compile(rb"([A-Za-z]{3,}:)?[^ \t]*[0-9][^ \t]*")
_WORD = re.compile(rb"[A-Za-z]{3,}")
# Whoever writes the time before what it says logs lines: a kernel, a logger.
_STAMP = re.compile(
    rb"(?:<[0-9]{1,3}>)?\[ {0,7}[0-9]{1,7}\.[0-9]{6}\]"
    rb"|[\[(]?(?:20[0-9]{2}[-/][0-9]{2}[-/][0-9]{2}[ T])?[0-9]{2}:[0-9]{2}:[0-9]{2}[.,][0-9]{3}"
)
_MAX_PART = 256  # bytes of a part that are looked at


@dataclass(frozen=True, slots=True)
class _Part:
    text: bytes
    words: frozenset[bytes]

    def repeats(self, earlier: _Part) -> bool:
        """Tell whether it is much the same, or the same and more, or less."""
        if self.text.startswith(earlier.text) or earlier.text.startswith(self.text):
            return True
        common = len(self.words & earlier.words)
        return 2 * common > min(len(self.words), len(earlier.words))


class Redraws:
    """The parts into which CRs cut one unfinished line.

    A progress bar, a countdown or a command that is edited says the same again with other numbers.
    A console that ends its lines with CR says something else each time.
    """

    def __init__(self, *, is_first: bool, only_by_size: bool = False) -> None:
        """Begin with a line; `is_first`: LF has ended none yet."""
        self._least = FIRST_LINES if is_first else LATER_LINES
        self._least_bytes = 0 if is_first else LOOK_AFTER
        self._only_by_size = only_by_size
        self._size = 0  # bytes of the line
        self._part = b""  # the newest part as far as it is looked at
        self._is_behind_cr = False
        self._different: list[_Part] = []  # the newest such parts

    def turn(self, data: bytes) -> int | None:
        """Take the next bytes of the line; return after how many its parts turn out to be lines.

        That is behind a CR, before something else than CR and LF. None: it is one line as yet.
        """
        if self._is_behind_cr and data and data[0] not in b"\r\n":
            self._ended(b"")
            if self._are_lines(0):
                return 0
        at = 0
        for match in _BEHIND_CR.finditer(data):
            self._ended(data[at : match.start()])
            at = match.end()
            if self._are_lines(at):
                return at
        self._size += len(data)
        self._is_behind_cr = data.endswith(b"\r") if data else self._is_behind_cr
        self._part = (self._part + data[at : at + _MAX_PART])[:_MAX_PART]
        return None

    def _ended(self, rest: bytes) -> None:
        """Compare a part that has ended with those before it."""
        seen, self._part = (self._part + rest[:_MAX_PART])[:_MAX_PART], b""
        if self._only_by_size:
            return
        text = _COLOUR.sub(b"", seen.rstrip(b"\r"))
        if b"\x1b[" in text:  # it moves the cursor or erases: a screen, whatever it says
            self._different.clear()
            return
        part = _Part(text, frozenset(_WORD.findall(_WITH_DIGIT.sub(rb"\1", text))))
        if not part.words or _NO_TEXT.search(text):
            return
        before, repeated = self._different[1 - self._least :], 0
        if not _STAMP.match(text):
            for number, earlier in enumerate(before, 1):
                if part.repeats(earlier):
                    repeated = number
        self._different = [*before[repeated:], part]

    def _are_lines(self, at: int) -> bool:
        size = self._size + at
        if size >= AUTO_CR_AFTER:
            return True
        return len(self._different) == self._least and size >= self._least_bytes
