"""Where lines end: a function of the bytes alone, so that live, saved and rebuilt logs agree."""

from __future__ import annotations

import re
from typing import Literal

Eol = Literal["lf", "cr"]

MAX_LINE = 16 * 1024  # bytes; longer lines are cut, each piece has its own number
AUTO_CR_AFTER = 4 * 1024  # bytes with CRs and no LF: this console ends its lines with CR

# One line with its end. What no pattern matches at the end of a log is the unfinished line. The
# bytes without the end are `match.group().rstrip(b"\r\n")`.
LINE: dict[Eol, re.Pattern[bytes]] = {
    "lf": re.compile(rb"[^\n]{0,%d}+\n|[^\n]{%d}\r*+\n?+" % (MAX_LINE - 1, MAX_LINE)),
    "cr": re.compile(
        rb"[^\r\n]{0,%d}+(?:\r++\n?+|\n)|[^\r\n]{%d}\r*+\n?+" % (MAX_LINE - 1, MAX_LINE)
    ),
}
_REST_OF_END = re.compile(rb"\r*+\n?+")
_BEHIND_CR = re.compile(rb"\r(?=[^\r\n])")
_CR_END = re.compile(rb"\r++\n?+|\n")


class Splitter:
    """Cut the bytes of one log file into lines.

    With `eol` "lf", LF ends a line and all CRs directly before it belong to the end. With "cr", a
    run of CRs ends a line, an LF directly after it belongs to the end, and a lone LF ends one too.
    A line of `MAX_LINE` bytes is cut there; CRs and one LF right after the cut go with the piece.
    """

    def __init__(self, eol: Eol = "lf") -> None:
        self.eol: Eol = eol
        self._tail: list[bytes] = []  # the unfinished line
        self._tail_bytes = 0
        self._is_in_end = False  # the last line is complete, more CRs or an LF may belong to it

    @classmethod
    def resumed(cls, eol: Eol, filled: int) -> Splitter:
        """Return a splitter that goes on where one with this `filled` was, its text forgotten."""
        splitter = cls(eol)
        splitter.feed(bytes(filled if filled >= 0 else MAX_LINE))
        return splitter

    @property
    def filled(self) -> int:
        """All that matters for the bytes to come: the size of the unfinished line.

        -1: the last line is complete, but more CRs or an LF may still belong to its end.
        """
        return -1 if self._is_in_end else self._tail_bytes

    @property
    def partial_bytes(self) -> int:
        """How many bytes the unfinished line has."""
        return self._tail_bytes

    def partial(self) -> bytes:
        """Return the unfinished line, e.g. a prompt."""
        return b"".join(self._tail)

    def feed(self, data: bytes) -> tuple[bytes, int]:
        """Take the next bytes; return the lines they complete, each ended by one LF, and how many.

        CRs before an LF are kept; an end by CR or by a cut becomes LF.
        """
        if self.eol == "lf" and not self._is_in_end and self._tail_bytes + len(data) < MAX_LINE:
            # Nearly always: nothing can be cut, LF is all that counts.
            end = data.rfind(b"\n") + 1
            if not end:
                self._keep(data)
                return b"", 0
            text = self._take(data[:end])
            if end < len(data):
                self._keep(data[end:])
            return text, text.count(b"\n")
        text = b"".join(self._cut(data))
        return text, text.count(b"\n")

    def cr_switch(self, data: bytes) -> int | None:
        """Return after how many bytes of `data` an "auto" console turns out to end lines by CR.

        That is where a line of `AUTO_CR_AFTER` bytes or more goes on behind a CR with something
        else than CR or LF. None (nearly always): not within `data`. Ask before `feed`; feed only
        up to there, then go on with a new splitter of `eol` "cr".
        """
        size = len(data)
        if self.eol == "cr" or self._tail_bytes + size <= AUTO_CR_AFTER:
            return None
        if size <= AUTO_CR_AFTER and data.find(b"\n", 0, AUTO_CR_AFTER - self._tail_bytes) >= 0:
            return None  # the line ends in time, and what follows is shorter
        is_after_cr = bool(self._tail) and self._tail[-1].endswith(b"\r")
        if not is_after_cr and b"\r" not in data:
            return None
        # Where the current line starts, seen from `data`.
        start = _end_of_end(data, 0) if self._is_in_end else -self._tail_bytes
        while start + AUTO_CR_AFTER < size:
            at = max(start + AUTO_CR_AFTER, 0)
            lf = data.rfind(b"\n", max(start, 0), at)
            if lf >= 0:  # every line up to here was short
                start = lf + 1
                continue
            limit = min(start + MAX_LINE, size)
            lf = data.find(b"\n", at, limit)
            stop = lf if lf >= 0 else limit
            if at == 0 and is_after_cr and data[0] not in b"\r\n":
                return 0
            goes_on = _BEHIND_CR.search(data, max(at - 1, 0), stop)
            if goes_on is not None:
                return goes_on.end()
            if stop == size:
                return None
            start = lf + 1 if lf >= 0 else _end_of_end(data, stop)
        return None

    def _keep(self, data: bytes) -> None:
        self._tail.append(data)
        self._tail_bytes += len(data)

    def _take(self, rest: bytes) -> bytes:
        """Return the unfinished line completed by `rest`."""
        if not self._tail:
            return rest
        text = b"".join((*self._tail, rest))
        self._tail.clear()
        self._tail_bytes = 0
        return text

    def _cut(self, data: bytes) -> list[bytes]:
        parts: list[bytes] = []
        at, size = 0, len(data)
        while at < size:
            if self._is_in_end:
                at = _end_of_end(data, at)
                self._is_in_end = at == size and not data.endswith(b"\n")
                continue
            # No line that ends within the room can be too long.
            room = at + MAX_LINE - self._tail_bytes
            end = data.rfind(b"\n", at, room) + 1
            if self.eol == "cr":
                end = max(end, data.rfind(b"\r", at, room) + 1)
            if end:
                text = self._take(data[at:end])
                if self.eol == "cr":
                    self._is_in_end = text.endswith(b"\r")
                    text = _CR_END.sub(b"\n", text)
                parts.append(text)
                at = end
            elif size < room:
                self._keep(data[at:])
                break
            else:
                parts.append(self._take(data[at:room]) + b"\n")
                self._is_in_end = True
                at = room
        return parts


def first_line_start(data: bytes, filled: int, eol: Eol) -> int | None:
    """Return where the first line starts in `data`, None if none does.

    `filled` is `Splitter.filled` before `data`.
    """
    if filled == 0:
        return 0
    if filled < 0:
        start = _end_of_end(data, 0)
    else:
        line = LINE[eol].match(bytes(filled) + data)
        if line is None:
            return None
        start = line.end() - filled
    return start if start < len(data) else None


def _end_of_end(data: bytes, at: int) -> int:
    """Return where the CRs and the LF stop that belong to an end before `at`."""
    match = _REST_OF_END.match(data, at)
    assert match is not None  # it may be empty
    return match.end()
