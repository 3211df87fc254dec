"""Where lines end: a function of the bytes alone, so that live, saved and rebuilt logs agree."""

from __future__ import annotations

from typing import Literal

Eol = Literal["lf", "cr"]

MAX_LINE = 16 * 1024  # bytes; longer lines are cut, each piece has its own number
AUTO_CR_AFTER = 4 * 1024  # bytes of one line with CRs and no LF: the console ends lines with CR


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
        self._has_cr = False  # in the tail
        self._after_end = False  # a CR of an end (or a cut) may still be followed by its rest

    def feed(self, data: bytes) -> tuple[bytes, int]:
        """Take the next bytes; return the lines they complete, each ended by one LF, and how many.

        CRs before an LF are kept; an end by CR or by a cut becomes LF.
        """
        if (
            self.eol == "lf"
            and not self._after_end
            and self._tail_bytes + len(data) <= MAX_LINE
        ):
            # The common case: no cut is possible, LF is all that counts.
            end = data.rfind(b"\n") + 1
            if not end:
                self._keep(data)
                return b"", 0
            text = b"".join((*self._tail, data[:end])) if self._tail else data[:end]
            self._tail.clear()
            self._tail_bytes = 0
            if end < len(data):
                self._keep(data[end:])
            return text, text.count(b"\n")
        return self._feed_slowly(data)

    def partial(self) -> bytes:
        """Return the unfinished line, e.g. a prompt."""
        return b"".join(self._tail)

    @property
    def partial_bytes(self) -> int:
        """How many bytes the unfinished line has."""
        return self._tail_bytes

    def cr_switch(self, data: bytes) -> int | None:
        """Return after how many bytes of `data` an "auto" console turns out to end lines by CR.

        None (nearly always): not within `data`. Ask before `feed`; feed only up to there, then go
        on with a new splitter of `eol` "cr".
        """
        if self.eol == "cr" or self._tail_bytes + len(data) < AUTO_CR_AFTER:
            return None
        at = -self._tail_bytes  # where the current line starts, seen from `data`
        has_cr = self._tail_bytes > 0 and any(b"\r" in part for part in self._tail)
        while at + AUTO_CR_AFTER <= len(data):
            end = at + AUTO_CR_AFTER
            if (lf := data.rfind(b"\n", max(at, 0), end)) >= 0:
                at, has_cr = lf + 1, False
                continue
            if has_cr or b"\r" in data[max(at, 0) : end]:
                # CRs that end the 4 KiB may be the first half of CR LF: decide one byte later.
                if end >= len(data):
                    return None
                if data[end : end + 1] != b"\n" and data[end : end + 1] != b"\r":
                    return end
            lf = data.find(b"\n", end)
            if lf < 0:
                return None
            at, has_cr = lf + 1, False
        return None

    def _keep(self, data: bytes) -> None:
        self._tail.append(data)
        self._tail_bytes += len(data)

    def _feed_slowly(self, data: bytes) -> tuple[bytes, int]:
        raise NotImplementedError
