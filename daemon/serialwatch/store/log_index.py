"""Makes the index of a log from its bytes and their times."""

from __future__ import annotations

import re

from serialwatch.lines import MAX_LINE, Eol, Splitter, first_line_start
from serialwatch.store.log_format import LINE_START, PAUSE_NS, POINT_EVERY, Kind, pack_record

POINT_EVERY_NS = 250_000_000  # so that the end of a log that still grows has good times too
CLOCK_STEP_NS = 200_000_000  # the wall clock was set if it moved more against the monotonic one
_CR_START = re.compile(rb"[\r\n](?=[^\r\n])")


class Indexer:
    """Numbers the lines of one file and says which records belong to its bytes.

    Where a POINT is due it is put to the start of a line if there is one in reach: from there a
    reader can number the lines. Where there is none, at least each cut of a long line has one.
    """

    def __init__(self, eol: Eol, first_seq: int, offset: int = 0, flags: int = 0) -> None:
        self.offset = offset  # in the log, of the next byte
        self.next_seq = first_seq  # of the unfinished line
        self.last_mono_ns = 0  # of the last byte
        self.last_utc_ns = 0
        self._splitter = Splitter(eol)
        self._flags = flags
        self._point_at = -POINT_EVERY  # offset of the newest POINT
        self._point_mono_ns = 0
        self._start_at = offset  # offset of the newest POINT at the start of a line
        self._utc_offset_ns: int | None = None  # against the monotonic clock, at the newest record

    @property
    def filled(self) -> int:
        """`Splitter.filled` before the next byte."""
        return self._splitter.filled

    @property
    def last_seq(self) -> int:
        """The last line that has a byte in the file, complete or not."""
        return self.next_seq - (self._splitter.partial_bytes == 0)

    def add(self, data: bytes, mono_ns: int, last_mono_ns: int, utc_ns: int) -> bytes:
        """Take the next bytes of the file, never none; return the records to append."""
        records: list[bytes] = []
        base = self.offset
        pace = (last_mono_ns - mono_ns) / len(data)  # ns a byte

        def point(at: int) -> None:
            mono = mono_ns + int(at * pace)
            before = self.last_mono_ns if at == 0 else mono_ns + int((at - 1) * pace)
            records.append(self._point(data[at], base + at, before, mono, utc_ns + mono - mono_ns))

        if (clock := self._clock(data[0], mono_ns, utc_ns)) is not None:
            records.append(clock)
        if (
            mono_ns - self.last_mono_ns >= PAUSE_NS
            or mono_ns - self._point_mono_ns >= POINT_EVERY_NS
            or self._point_at < 0
        ):
            point(0)
        at = 0
        while (found := self._next_point(data, at, base)) is not None:
            self._count(data[at:found])
            at = found
            point(at)
        self._count(data[at:])
        self.offset = base + len(data)
        self.last_mono_ns = last_mono_ns
        self.last_utc_ns = utc_ns + last_mono_ns - mono_ns
        return b"".join(records)

    def _next_point(self, data: bytes, at: int, base: int) -> int | None:
        """Return where in `data`, from `at` on, the next POINT goes; `at` is the next byte."""
        size = len(data)
        if size <= self._start_at + POINT_EVERY - base:
            return None  # that is not later than one is due anyway
        limit = self._point_at + POINT_EVERY - base
        start = self._line_start(data, at, min(limit + 1, size), base)
        if start is not None:
            return start
        cut = at + MAX_LINE - self._splitter.partial_bytes
        if at < cut < min(limit, size):
            return cut
        return limit if limit < size else None

    def _line_start(self, data: bytes, at: int, stop: int, base: int) -> int | None:
        """Return where in `data[at:stop]` a line starts that has no POINT yet."""
        if self._splitter.filled < 0:
            start = first_line_start(data[at:stop], -1, self._splitter.eol)
            if start is not None and base + at + start > self._point_at:
                return at + start
        if self._splitter.eol == "lf":
            return data.rfind(b"\n", at, stop - 1) + 1 or None
        found = None
        for match in _CR_START.finditer(data, at, stop):
            found = match.end()
        return found

    def _count(self, data: bytes) -> None:
        self.next_seq += self._splitter.feed(data)[1]

    def _seq_of(self, byte: int) -> int:
        """Return the line of the next byte."""
        belongs_to_end = self._splitter.filled < 0 and byte in b"\r\n"
        return self.next_seq - belongs_to_end

    def _point(self, byte: int, offset: int, before_ns: int, mono_ns: int, utc_ns: int) -> bytes:
        flags = self._flags
        filled = self._splitter.filled
        if filled == 0 or (filled < 0 and byte not in b"\r\n"):
            flags |= LINE_START
            self._start_at = offset
        aux = 0 if self._point_at < 0 else max(before_ns - self._point_mono_ns, 0) // 1000
        self._point_at, self._point_mono_ns = offset, mono_ns
        self._utc_offset_ns = utc_ns - mono_ns
        return pack_record(Kind.POINT, flags, aux, offset, self._seq_of(byte), utc_ns, mono_ns)

    def _clock(self, byte: int, mono_ns: int, utc_ns: int) -> bytes | None:
        offset_ns, before = utc_ns - mono_ns, self._utc_offset_ns
        if before is None or abs(offset_ns - before) <= CLOCK_STEP_NS:
            return None
        self._utc_offset_ns = offset_ns
        return pack_record(Kind.CLOCK, 0, 0, self.offset, self._seq_of(byte), utc_ns, mono_ns)
