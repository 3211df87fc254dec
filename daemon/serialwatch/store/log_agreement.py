"""Which records of an index agree with its log. Any field of a record may be garbage."""

from __future__ import annotations

from pathlib import Path

from serialwatch.store.log_format import LINE_START, Header, Kind, Record
from serialwatch.store.log_walk import LogWalk

_SLACK_NS = 10**9  # between what two neighbouring records say of the time between them


def place_of(record: Record) -> tuple[int, int]:
    """Return where a record stands in an index: at its byte, what comes before that byte first."""
    if record.kind is Kind.POINT:
        return record.offset, 1
    return record.offset, 2 if record.kind is Kind.CUT else 0


class Agreement:
    """Holds records against the log, one after the other. Close it."""

    def __init__(self, path: Path, header: Header, offset: int = 0, seq: int = 0) -> None:
        """Begin at the start of the file, or where line `seq` starts."""
        self.walk = LogWalk(path, header, offset, seq)
        self.point: Record | None = None  # the last of those that agree
        self._place = (0, 0)  # of the last that agrees
        self._is_ended = False

    def __enter__(self) -> Agreement:
        return self

    def __exit__(self, *exc_info: object) -> None:
        self.walk.close()

    def fault(self, record: Record) -> str:
        """Return what a record says that the log and those before it do not, "" if they agree."""
        if problem := self._misplaced(record) or self._mistimed(record) or self._misread(record):
            return problem
        self._place = place_of(record)
        self._is_ended = record.kind is Kind.CUT
        if record.kind is Kind.POINT:
            self.point = record
        return ""

    def _misplaced(self, record: Record) -> str:
        size = self.walk.size
        if record.offset > size or (record.offset == size and record.kind is Kind.POINT):
            missing = record.offset - size + (record.kind is Kind.POINT)
            return f"it is at byte {record.offset}: the log ends {missing} bytes before"
        if self._is_ended:
            return "it stands behind the end of the file"
        place = place_of(record)
        is_again = record.kind is Kind.POINT and place == self._place
        if place < self._place or is_again or record.offset < self.walk.offset:
            before = max(self._place[0], self.walk.offset)
            return f"it is at byte {record.offset}, one before it at {before}"
        if record.kind is Kind.CUT and record.offset != size:
            return f"the file ends there, but has {size - record.offset} bytes more"
        return ""

    def _mistimed(self, record: Record) -> str:
        if self.point is None or record.kind not in (Kind.POINT, Kind.CUT):
            return ""
        passed_ns = record.mono_ns - self.point.mono_ns
        if passed_ns < 0:
            return "its time is before that of the record before"
        if record.kind is Kind.POINT and record.aux * 1000 > passed_ns + _SLACK_NS:
            return "the bytes before it took longer than there was time"
        return ""

    def _misread(self, record: Record) -> str:
        walk = self.walk
        walk.go(record.offset)
        if record.kind is Kind.CUT:
            if record.seq != walk.last_seq + 1:
                return (
                    f"it says that L{record.seq - 1} is the last line, the log says {walk.last_seq}"
                )
            return ""
        if record.kind is not Kind.POINT:  # boots and markers are told a while after their line
            if record.seq > walk.last_seq + 1:
                return f"it is of L{record.seq}, where the log has L{walk.last_seq}"
            return ""
        seq, is_start = walk.line()
        if record.seq != seq:
            return f"it says L{record.seq} where the log has L{seq}"
        if bool(record.flags & LINE_START) and not is_start:
            return f"it says that L{seq} begins at byte {record.offset}, where none does"
        return ""
