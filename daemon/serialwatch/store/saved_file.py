"""One log file with its index, read beside a writer that may go on writing it."""

from __future__ import annotations

import errno
import os
import re
from bisect import bisect_right
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from types import TracebackType

from serialwatch.line import Line
from serialwatch.lines import LINE
from serialwatch.plain import plain
from serialwatch.store.log_format import (
    HEADER_BYTES,
    LINE_START,
    RECORD_BYTES,
    Header,
    Kind,
    Record,
    begun_by_name,
    unpack_header,
    unpack_record,
)

Sizes = tuple[int, int]  # bytes of a log and of its index

_BLOCK = 64 * 1024  # bytes of log read at once
_RECORDS = 100  # records read at once
_NEAR = 32  # records in which 64 KiB are looked for at first
_BACK = 32 * 1024  # bytes of log that a step backwards goes at least
_NOTED = 20_000  # records that are looked through at once
_POINTS = bytes([Kind.POINT]) * _NOTED
_NO_POINT = re.compile(rb"[^\x01]", re.DOTALL)


@dataclass(frozen=True, slots=True)
class LineStart:
    """A place in a log where a line starts for sure."""

    offset: int
    seq: int
    index: int  # of its POINT; 0 for the start of the file


class SavedFile:
    """What is known of a log file of one size; `open` it to read lines.

    A file that grows gets a new object, which is told what the old one had found.
    """

    __slots__ = (
        "_begun_utc_ns", "_head", "_notes", "_read_records", "_sizes",
        "first_seq", "folder", "name", "port", "rebuilt",
    )  # fmt: skip

    def __init__(
        self, folder: Path, name: str, first_seq: int, port: str, sizes: Sizes | None = None
    ) -> None:
        """Take what its name tells; `sizes` None: it has ended, they are looked up when needed."""
        self.folder = folder
        self.name = name
        self.port = port
        self.first_seq = first_seq
        self.rebuilt = b""  # the index, where there is none that can be used
        self._sizes = sizes
        self._begun_utc_ns: int | None = None
        self._head: Header | None = None
        self._notes: list[tuple[int, Record]] | None = None  # all but POINTs, as far as read
        self._read_records = 0

    @property
    def path(self) -> Path:
        """The log itself."""
        return self.folder / self.name

    @property
    def begun_utc_ns(self) -> int:
        """When it was begun, as its name says."""
        if self._begun_utc_ns is None:
            self._begun_utc_ns = begun_by_name(self.name)
        return self._begun_utc_ns

    @property
    def sizes(self) -> Sizes:
        """Bytes of log and index."""
        if self._sizes is None:
            self._sizes = sizes_of(os.fspath(self.folder), self.name)
        return self._sizes

    @property
    def log_bytes(self) -> int:
        """Bytes of the log; 0 too for one that is gone."""
        return self.sizes[0]

    @property
    def index_bytes(self) -> int:
        """Bytes of the index."""
        return self.sizes[1]

    def head(self) -> Header | None:
        """Return the head of the index, None if there is none that can be used."""
        if self._head is None:
            try:
                with self.path.with_suffix(".idx").open("rb", buffering=0) as file:
                    self._head = unpack_header(file.read(HEADER_BYTES))
            except FileNotFoundError:
                pass
        return self._head

    def goes_on_from(self, earlier: SavedFile) -> None:
        """Take over what was found when the file was shorter."""
        if not earlier.rebuilt and earlier.index_bytes <= self.index_bytes:
            self._notes = list(earlier._notes or ())
            self._read_records = earlier._read_records

    def open(self) -> OpenFile:
        """Open the file.

        Raises:
            FileNotFoundError: it is gone, e.g. because it was old, or has no byte.

        """
        if not self.log_bytes:
            raise FileNotFoundError(errno.ENOENT, "nothing in it", self.name)
        return OpenFile(self)

    def notes(self, opened: OpenFile) -> list[tuple[int, Record]]:
        """Return the records that are no POINTs, in their order, each with its index."""
        if self._notes is None:
            self._notes = []
        while self._read_records < opened.record_count:
            first = self._read_records
            data = opened.read_records(first, min(first + _NOTED, opened.record_count))
            kinds = data[::RECORD_BYTES]
            if not _POINTS.startswith(kinds):
                for match in _NO_POINT.finditer(kinds):
                    at = match.start() * RECORD_BYTES
                    record = unpack_record(data[at : at + RECORD_BYTES])
                    if record is not None:
                        self._notes.append((first + match.start(), record))
            self._read_records = min(first + _NOTED, opened.record_count)
        return self._notes


def sizes_of(folder: str, name: str) -> Sizes:
    """Return the bytes of a log file and its index, 0 for what is not there."""
    # The index first: it is written after the bytes.
    index_bytes = _size(f"{folder}/{name.removesuffix('.log')}.idx")
    return _size(f"{folder}/{name}"), index_bytes


def _size(path: str) -> int:
    try:
        return os.stat(path).st_size
    except FileNotFoundError:
        return 0


class OpenFile:
    """A log file and its index, open for reading. Use it in a `with`."""

    def __init__(self, file: SavedFile) -> None:
        self.file = file
        self._log_fd = os.open(file.path, os.O_RDONLY | os.O_CLOEXEC)
        self._index_fd = -1
        try:
            self.header = self._open_index()
        except BaseException:
            self.close()
            raise
        size = len(file.rebuilt) if file.rebuilt else file.index_bytes
        self.record_count = max(size - HEADER_BYTES, 0) // RECORD_BYTES
        self._line = LINE[self.header.eol]

    def __enter__(self) -> OpenFile:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        exc: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.close()

    def close(self) -> None:
        """Close both files."""
        os.close(self._log_fd)
        if self._index_fd >= 0:
            os.close(self._index_fd)
            self._index_fd = -1

    def read_records(self, first: int, stop: int) -> bytes:
        """Return the bytes of records `first` to before `stop`."""
        at, size = HEADER_BYTES + first * RECORD_BYTES, (stop - first) * RECORD_BYTES
        if self.file.rebuilt:
            return self.file.rebuilt[at : at + size]
        return os.pread(self._index_fd, size, at)

    def record(self, index: int) -> Record | None:
        """Return a record, None if it is torn."""
        return unpack_record(self.read_records(index, index + 1))

    def records_from(self, index: int) -> Iterator[tuple[int, Record]]:
        """Yield the records from `index` on, each with its index; torn ones are left out."""
        while index < self.record_count:
            data = self.read_records(index, min(index + _RECORDS, self.record_count))
            for at in range(0, len(data), RECORD_BYTES):
                record = unpack_record(data[at : at + RECORD_BYTES])
                if record is not None:
                    yield index, record
                index += 1
            if not data:
                return

    def last_record(self, kinds: tuple[Kind, ...]) -> Record | None:
        """Return the last record of one of these kinds."""
        for index in range(self.record_count - 1, -1, -1):
            record = self.record(index)
            if record is not None and record.kind in kinds:
                return record
        return None

    def last_point(
        self, is_before: Callable[[Record], bool], low: int = 0, high: int | None = None
    ) -> int:
        """Return the index of the last POINT that is before something, -1 if none is.

        Only records from `low` to before `high` are looked at, by bisection.
        """
        found = -1
        high = self.record_count if high is None else high
        while low < high:
            middle = index = (low + high) // 2
            point = self._point(index)
            while point is None and index > low:
                index -= 1
                point = self._point(index)
            if point is None:
                low = middle + 1
            elif is_before(point):
                found, low = index, middle + 1
            else:
                high = index
        return found

    def clock_settings(self) -> list[int]:
        """Return the indexes of the records from which on the wall clock had been set, in order.

        The whole index is looked through, a few ms for a million records: a clock that was set back
        and forth shows nowhere else.
        """
        return [index for index, note in self.file.notes(self) if note.kind is Kind.CLOCK]

    def line_start(self, index: int) -> LineStart:
        """Return the nearest start of a line that record `index` or one before it marks."""
        while index >= 0:
            point = self._point(index)
            if point is not None and point.flags & LINE_START:
                return LineStart(point.offset, point.seq, index)
            index -= 1
        return LineStart(0, self.file.first_seq, 0)

    def start_of(self, seq: int) -> LineStart:
        """Return where to begin to look for line `seq`."""
        return self.line_start(self.last_point(lambda point: point.seq <= seq))

    def step_back(self, start: LineStart) -> LineStart:
        """Return a place some 32 KiB earlier, at most the start of the file."""
        wanted = start.offset - _BACK
        return self.line_start(self.last_point(lambda point: point.offset <= wanted))

    def parts(
        self, first: int, last: int, reverse: bool = False
    ) -> Iterator[tuple[LineStart, LineStart | None]]:
        """Yield neighbouring parts of some 64 KiB that hold lines `first` to `last`.

        Each begins with a line; the second of a pair is where the next one begins, None at the end.
        """
        if not reverse:
            start: LineStart | None = self.start_of(first)
            while start is not None and start.seq <= last:
                after = self._step_on(start)
                yield start, after
                start = after
            return
        begin = self.start_of(last)
        yield begin, self._step_on(begin)
        while begin.seq > first and begin.offset:
            end, step = begin, _BLOCK
            while begin.offset == end.offset:  # until a line starts there
                wanted = max(end.offset - step, 0)
                begin = self.line_start(self.last_point(partial(_is_up_to, wanted)))
                step *= 2
            yield begin, end

    def holds(self, start: LineStart, end: LineStart | None, words: Sequence[bytes]) -> bool:
        """Return whether one of some lower-case words stands, or is seen, between two places."""
        stop = self.file.log_bytes if end is None else end.offset
        data = os.pread(self._log_fd, stop - start.offset, start.offset)
        lower = data.lower()
        if any(word in lower for word in words):
            return True
        seen = plain(data)  # where a board colours parts of a line, its text is in pieces
        if len(seen) == len(data):
            return False
        lower = seen.lower()
        return any(word in lower for word in words)

    def _step_on(self, start: LineStart) -> LineStart | None:
        """Return a place some 64 KiB later, None if the file ends before."""
        step = _BLOCK
        while (wanted := start.offset + step) < self.file.log_bytes:
            stop = start.index + _NEAR
            while stop < self.record_count and not self._is_behind(stop, wanted):
                stop += stop - start.index
            stop = min(stop, self.record_count)
            found = self.line_start(self.last_point(partial(_is_up_to, wanted), start.index, stop))
            if found.offset > start.offset:
                return found
            step *= 2  # one very long line, or few points
        return None

    def _is_behind(self, index: int, offset: int) -> bool:
        point = self._point(index)
        return point is not None and point.offset > offset

    def lines(self, start: LineStart, boots: list[tuple[int, int]]) -> Iterator[Line]:
        """Yield the lines from `start` on; `boots`: (first line, number), in order."""
        clock = _Clock(self.records_from(start.index), self.file.begun_utc_ns)
        first_lines = [seq for seq, _ in boots]
        seq = start.seq
        for at, end, data, is_complete in self._scan(start.offset):
            raw = data.rstrip(b"\r\n")
            utc_ns, mono_ns = clock.at(at)
            last_utc_ns, _ = clock.at(end - 1)
            known = bisect_right(first_lines, seq)
            boot = boots[known - 1][1] if known else 0
            yield Line(
                self.file.port,
                seq,
                raw,
                boot,
                utc_ns,
                last_utc_ns,
                mono_ns,
                is_complete,
                data[len(raw) :],
            )
            seq += 1

    def last_seq(self) -> int:
        """Return the last line that has a byte in the file, complete or not."""
        start = self.line_start(self.record_count - 1)
        return start.seq - 1 + sum(1 for _ in self._scan(start.offset))

    def _open_index(self) -> Header:
        file = self.file
        if not file.rebuilt:
            try:
                self._index_fd = os.open(file.path.with_suffix(".idx"), os.O_RDONLY | os.O_CLOEXEC)
            except FileNotFoundError:
                header = None
            else:
                header = unpack_header(os.pread(self._index_fd, HEADER_BYTES, 0))
            if header is not None:
                return header
            from serialwatch.store.log_recovery import rebuilt_index  # seldom needed

            file.rebuilt = rebuilt_index(file.path, file.port)
        header = unpack_header(file.rebuilt)
        assert header is not None
        return header

    def _point(self, index: int) -> Record | None:
        record = self.record(index)
        if record is None or record.kind is not Kind.POINT:
            return None
        # A crash of the host may leave an index that is longer than its log. And no line is shorter
        # than a byte: a number beyond that is garbage.
        lines = record.seq - self.file.first_seq
        is_right = record.offset < self.file.log_bytes and 0 <= lines <= record.offset
        return record if is_right else None

    def _scan(self, offset: int) -> Iterator[tuple[int, int, bytes, bool]]:
        """Yield start, end, bytes and completeness of each line from the line start `offset` on."""
        rest, size = b"", self.file.log_bytes
        at = offset  # of `rest`
        while True:
            want = min(_BLOCK, size - at - len(rest))
            block = os.pread(self._log_fd, want, at + len(rest)) if want > 0 else b""
            data = rest + block
            end = 0
            # Not `finditer`: it would look for a line from each byte of an unfinished one.
            while (match := self._line.match(data, end)) is not None:
                if match.end() == len(data) and block and data[-1] != 10:
                    break  # more CRs or an LF may follow
                start, end = match.span()
                yield at + start, at + end, match.group(), True
            rest, at = data[end:], at + end
            if not block:
                break
        if rest:
            yield at, at + len(rest), rest, False


def _is_up_to(offset: int, point: Record) -> bool:
    return point.offset <= offset


class _Clock:
    """When each byte of a log came. Between two POINTs bytes came evenly, across none."""

    def __init__(self, records: Iterator[tuple[int, Record]], begun_utc_ns: int) -> None:
        self._records = (r for _, r in records if r.kind in (Kind.POINT, Kind.CUT))
        # The bytes of this moment may be there before their first record is.
        begun = Record(Kind.POINT, 0, 0, 0, 0, begun_utc_ns, 0)
        self._point = next(self._records, begun)
        self._next = next(self._records, None)

    def at(self, offset: int) -> tuple[int, int]:
        """Return UTC and monotonic time of the byte at `offset`, which may never go back."""
        while self._next is not None and self._next.offset <= offset:
            self._point, self._next = self._next, next(self._records, None)
        point, following = self._point, self._next
        passed_ns = 0
        if following is not None and (span := following.offset - 1 - point.offset) > 0:
            if following.kind is Kind.CUT:
                lasted_ns = max(following.mono_ns - point.mono_ns, 0)
            else:
                lasted_ns = following.aux * 1000
            passed_ns = lasted_ns * max(offset - point.offset, 0) // span
        return point.utc_ns + passed_ns, point.mono_ns + passed_ns
