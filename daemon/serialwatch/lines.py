"""Where lines end: a function of the bytes alone, so that live, saved and rebuilt logs agree."""

from __future__ import annotations

import re
from typing import Literal

from serialwatch.redraws import AUTO_CR_AFTER, LOOK_AFTER, Redraws

Eol = Literal["lf", "cr"]

MAX_LINE = 16 * 1024  # bytes; longer lines are cut, each piece has its own number
YOUNG_BYTES = 16 * 1024  # of a port that was opened: the parts of a line that begins in them count
AUTO_LF_AFTER = 4  # lines that end with LF, one after the other: it was no console of CRs

# One line with its end. What no pattern matches at the end of a log is the unfinished line. The
# bytes without the end are `match.group().rstrip(b"\r\n")`.
LINE: dict[Eol, re.Pattern[bytes]] = {
    "lf": re.compile(rb"[^\n]{0,%d}+\n|[^\n]{%d}\r*+\n?+" % (MAX_LINE - 1, MAX_LINE)),
    "cr": re.compile(
        rb"[^\r\n]{0,%d}+(?:\r++\n?+|\n)|[^\r\n]{%d}\r*+\n?+" % (MAX_LINE - 1, MAX_LINE)
    ),
}
_REST_OF_END = re.compile(rb"\r*+\n?+")
_CR_END = re.compile(rb"\r++\n?+|\n")
_LONE_CR = re.compile(rb"\r(?=[^\r\n])")
_LONE_CR_OR_LF = re.compile(rb"\r(?=[^\r\n])|[^\r\n]\r*+\n")


class Splitter:
    """Cut the bytes of one log file into lines.

    With `eol` "lf", LF ends a line and all CRs directly before it belong to the end. With "cr", a
    run of CRs ends a line, an LF directly after it belongs to the end, and a lone LF ends one too.
    A line of `MAX_LINE` bytes is cut there; CRs and one LF right after the cut go with the piece.

    On an "auto" console ask `turn` what the bytes say of its line ends.
    """

    def __init__(self, eol: Eol = "lf", turns: int = 0) -> None:
        """Begin at the start of a line; `turns`: so often the console turned out to be another."""
        self.eol: Eol = eol
        self._turns = turns or int(eol == "cr")
        self._tail: list[bytes] = []  # the unfinished line
        self._tail_bytes = 0
        self._is_in_end = False  # the last line is complete, more CRs or an LF may belong to it
        # What `turn` has seen: with "lf" the unfinished line, with "cr" how the newest lines ended.
        self._is_first = not self._turns  # no LF has come yet
        self._young_bytes = 0 if self._turns else YOUNG_BYTES  # still to come
        self._is_old = False  # no line will be young
        self._redraws: Redraws | None = None  # None: the line is short as yet
        self._lf_lines = 0
        self._open_end = b""  # of a line whose end is not all there: its last byte, a CR

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
            return text, count_lines(text)
        text = b"".join(self._cut(data))
        return text, count_lines(text)

    @property
    def is_in_first_line(self) -> bool:
        """Whether nothing that `turn` has seen has ended a line with LF."""
        return self._is_first

    def turn(self, data: bytes) -> int | None:
        """Return after how many bytes of `data` an "auto" console turns out to end lines otherwise.

        None (nearly always): not within `data`. Ask once for all that is fed, before `feed`; feed
        only up to there, then go on with `turned`.
        """
        if self.eol == "cr":
            return self._turn_to_lf(data)
        if self._is_old and self._redraws is None:
            size, tail_bytes = len(data), self._tail_bytes
            if tail_bytes + size <= AUTO_CR_AFTER:
                return None
            in_time = max(AUTO_CR_AFTER - tail_bytes, 0)
            if size <= AUTO_CR_AFTER and data.find(b"\n", 0, in_time) >= 0:
                return None  # the line ends in time, and what follows is shorter
        return self._turn_to_cr(data)

    def turned(self) -> Splitter:
        """Return a splitter for a console of the other line ends."""
        return Splitter("cr" if self.eol == "lf" else "lf", self._turns + 1)

    def _turn_to_cr(self, data: bytes) -> int | None:
        """Find where the parts of a line, see `Redraws`, turn out to be lines."""
        size = len(data)
        # Where the current line starts, seen from `data`, and where lines are no longer young.
        start = _end_of_end(data, 0) if self._is_in_end else -self._tail_bytes
        old = self._young_bytes
        self._is_old = not self._is_first and start >= old
        self._young_bytes = -MAX_LINE if self._is_old else old - size
        redraws, self._redraws = self._redraws, None
        while start < size:
            if not self._is_first:
                look_after = LOOK_AFTER if start < old else AUTO_CR_AFTER
                if start + look_after >= size:
                    break
                lf = data.rfind(b"\n", max(start, 0), max(start + look_after, 0))
                if lf >= 0:  # every line up to here was short
                    start, redraws = lf + 1, None
                    continue
            if redraws is None:
                redraws = Redraws(is_first=self._is_first, only_by_size=start >= old)
                if start < 0:
                    redraws.turn(self.partial())
            limit = min(start + MAX_LINE, size)
            lf = data.find(b"\n", max(start, 0), limit)
            stop = lf if lf >= 0 else limit
            turn = redraws.turn(data[max(start, 0) : stop])
            if turn is not None:
                return max(start, 0) + turn
            if stop == size and stop < start + MAX_LINE:
                self._redraws = redraws
                break
            self._is_first, redraws = False, None
            start = lf + 1 if lf >= 0 else _end_of_end(data, stop)
        return None

    def _turn_to_lf(self, data: bytes) -> int | None:
        """Find where LF has ended so many lines, without a CR between, that CR ended none."""
        seen = self._open_end + data
        if b"\n" not in data:
            if _LONE_CR.search(seen):
                self._lf_lines = 0
        else:
            for match in _LONE_CR_OR_LF.finditer(seen):
                self._lf_lines = self._lf_lines + 1 if match.group().endswith(b"\n") else 0
                if self._lf_lines == AUTO_LF_AFTER ** ((self._turns + 1) // 2):
                    return match.end() - len(self._open_end)
        text = seen.rstrip(b"\r")
        has_text = bool(text) and not text.endswith(b"\n")
        self._open_end = (b"x" if has_text else b"") + (b"\r" if text != seen else b"")
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


def count_lines(text: bytes) -> int:
    """Return how many LFs a text has, in half the time of `count` and less."""
    return len(text) - len(text.replace(b"\n", b""))


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
