"""The saved log of one port by line number and time, read beside the writer."""

from __future__ import annotations

import contextlib
from bisect import bisect_right
from collections import deque
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Literal

from serialwatch.records import Line
from serialwatch.store.log_format import Kind, Place, Record, log_files
from serialwatch.store.saved_file import LineStart, OpenFile, SavedFile

GapPlace = Literal["uart", "tty", "log", "client"]


@dataclass(frozen=True, slots=True)
class LogGap:
    """Bytes that are missing in a log."""

    seq: int  # the line that the first of them belonged to
    place: GapPlace  # where they were lost
    lost_bytes: int  # 0: unknown
    utc_ns: int


class PortLog:
    """What one port has printed, as far as it is on disk. `folder` is the port's own.

    The answers are those of the last `refresh`, whatever is written meanwhile. A file that is
    deleted is left out. For one thread at a time; all of it blocks, for a few milliseconds a call.
    """

    def __init__(self, folder: Path, port: str) -> None:
        self.folder = folder
        self.port = port
        self._files: list[SavedFile] = []  # none of them empty
        self._last_seq = 0  # 0: not looked up yet
        self.refresh()

    def refresh(self) -> None:
        """See what was written since."""
        known = {file.path: file for file in self._files}
        files: list[SavedFile] = []
        for path in log_files(self.folder):
            try:
                # The index first: it is written after the bytes.
                index_bytes = _size(path.with_suffix(".idx"))
                log_bytes = path.stat().st_size
            except FileNotFoundError:
                continue
            if not log_bytes:
                continue
            file = known.get(path)
            if file is None or (file.log_bytes, file.index_bytes) != (log_bytes, index_bytes):
                earlier = file
                file = SavedFile(path, self.port, log_bytes, index_bytes)
                if earlier is not None:
                    file.goes_on_from(earlier)
            files.append(file)
        self._files = files
        self._last_seq = 0

    def bounds(self) -> tuple[int, int] | None:
        """Return the first and the last line number, None if there is no line.

        An unfinished line at the end counts.
        """
        if not self._files:
            return None
        if not self._last_seq:
            for file in reversed(self._files):
                with contextlib.suppress(FileNotFoundError), file.open() as opened:
                    self._last_seq = opened.last_seq()
                    break
        return self._files[0].first_seq, self._last_seq

    def lines(
        self,
        first: int | None = None,
        last: int | None = None,
        limit: int | None = None,
        reverse: bool = False,
    ) -> Iterator[Line]:
        """Yield the lines from `first` to `last`, at most `limit`; newest first if `reverse`.

        Numbers that were never used or are gone are left out. Nothing is read before it is asked
        for, so the end of a log costs the same however long it is.
        """
        low = 0 if first is None else first
        high = 2**63 if last is None else last
        found = self._backward(low, high) if reverse else self._forward(low, high)
        for count, line in enumerate(found):
            if limit is not None and count >= limit:
                return
            yield line

    def stretches(
        self, words: Sequence[bytes], first: int, last: int, reverse: bool = False
    ) -> Iterator[tuple[int, int, bool]]:
        """Yield (first line, last line, whether one of `words` may stand there), side by side.

        All lines from `first` to `last` are in one of them. `words` are in lower case. Lines are
        not made for this, which makes it a hundred times as fast as reading them.
        """
        begin, end = max(self._index_of(first), 0), self._index_of(last)
        for index in range(end, begin - 1, -1) if reverse else range(begin, end + 1):
            with contextlib.suppress(FileNotFoundError), self._files[index].open() as opened:
                for start, after in opened.parts(first, last, reverse):
                    stop = after.seq - 1 if after else last
                    if after is None and index + 1 < len(self._files):
                        stop = min(stop, self._files[index + 1].first_seq - 1)
                    low, high = max(start.seq, first), min(stop, last)
                    if low <= high:
                        yield low, high, opened.holds(start, after, words)

    def line(self, seq: int) -> Line | None:
        """Return line `seq`, None if there is none of this number."""
        return next(self.lines(first=seq, last=seq), None)

    def seq_at(self, utc_ns: int) -> int | None:
        """Return the first line whose first byte came at or after a time, None if all are older.

        Where the wall clock was set, each stretch between is looked at by itself, oldest first.
        """
        for file in self._files:
            with contextlib.suppress(FileNotFoundError), file.open() as opened:
                end = opened.last_record((Kind.POINT, Kind.CUT))
                may_go_on = file is self._files[-1] and not _has_cut(opened)
                if end is not None and end.utc_ns < utc_ns and not may_go_on:
                    continue
                seq = _seq_in(opened, utc_ns)
                if seq is not None:
                    return seq
        return None

    def boots(self) -> list[tuple[int, int, int]]:
        """Return (number, first line, UTC ns) of each boot, oldest first."""
        found = [(r.aux, r.seq, r.utc_ns) for r in self._notes(Kind.BOOT)]
        return sorted(found, key=lambda boot: boot[1])

    def gaps(self) -> list[LogGap]:
        """Return what is missing, oldest first."""
        places: dict[int, GapPlace] = {
            Place.UART: "uart",
            Place.TTY: "tty",
            Place.LOG: "log",
            Place.CLIENT: "client",
        }
        return [
            LogGap(r.seq, places.get(r.flags, "log"), r.aux, r.utc_ns)
            for r in self._notes(Kind.GAP)
        ]

    def _notes(self, kind: Kind) -> Iterator[Record]:
        for file in self._files:
            with contextlib.suppress(FileNotFoundError), file.open() as opened:
                yield from (note for _, note in file.notes(opened) if note.kind is kind)

    def _index_of(self, seq: int) -> int:
        """Return the index of the file that holds line `seq` if one does."""
        return bisect_right(self._files, seq, key=lambda file: file.first_seq) - 1

    def _forward(self, low: int, high: int) -> Iterator[Line]:
        files = self._files
        for index in range(max(self._index_of(low), 0), len(files)):
            if files[index].first_seq > high:
                return
            with contextlib.suppress(FileNotFoundError), files[index].open() as opened:
                boots = self._boots_of(opened, index)
                for line in self._lines_of(opened, index, opened.start_of(low), boots):
                    if line.seq > high:
                        return
                    if line.seq >= low:
                        yield line

    def _backward(self, low: int, high: int) -> Iterator[Line]:
        for index in range(self._index_of(high), -1, -1):
            with contextlib.suppress(FileNotFoundError), self._files[index].open() as opened:
                yield from self._backward_in(opened, index, low, high)
            if self._files[index].first_seq <= low:
                return

    def _backward_in(self, opened: OpenFile, index: int, low: int, high: int) -> Iterator[Line]:
        boots = self._boots_of(opened, index)
        start = opened.start_of(high)
        while True:
            block: deque[Line] = deque()
            for line in self._lines_of(opened, index, start, boots):
                if line.seq > high:
                    break
                if line.seq >= low:
                    block.appendleft(line)
            yield from block
            if start.seq <= low or start.offset == 0:
                return
            high = start.seq - 1
            start = opened.step_back(start)

    def _lines_of(
        self, opened: OpenFile, index: int, start: LineStart, boots: list[tuple[int, int]]
    ) -> Iterator[Line]:
        """Yield lines of a file; an unfinished one is complete if the file has ended."""
        is_newest = index == len(self._files) - 1
        for line in opened.lines(start, boots):
            if line.is_complete or (is_newest and not _has_cut(opened)):
                yield line
            else:
                yield replace(line, is_complete=True)

    def _boots_of(self, opened: OpenFile, index: int) -> list[tuple[int, int]]:
        """Return (first line, number) of the boots of a file, in order."""
        notes = [note for _, note in opened.file.notes(opened)]
        if index + 1 < len(self._files):
            # A boot is told a moment after its line: perhaps when the next file had begun.
            following = self._files[index + 1]
            with contextlib.suppress(FileNotFoundError), following.open() as other:
                notes += [n for _, n in following.notes(other) if n.seq < following.first_seq]
        found = [(note.seq, note.aux) for note in notes if note.kind is Kind.BOOT]
        return [(0, opened.header.boot), *sorted(found)]


def _seq_in(opened: OpenFile, utc_ns: int) -> int | None:
    """Return the first line of a file at or after a time, in the first stretch that has one."""
    clocks = [index for index, note in opened.file.notes(opened) if note.kind is Kind.CLOCK]
    for low, high in zip([0, *clocks], [*clocks, opened.record_count], strict=True):
        before = opened.last_point(lambda point: point.utc_ns < utc_ns, low, high)
        start = opened.line_start(max(before, low))
        end = opened.record(high) if high < opened.record_count else None
        for line in opened.lines(start, []):
            if end is not None and line.seq > end.seq:
                break
            if line.utc_ns >= utc_ns:
                return line.seq
    return None


def _has_cut(opened: OpenFile) -> bool:
    end = opened.last_record((Kind.POINT, Kind.CUT))
    return end is not None and end.kind is Kind.CUT


def _size(path: Path) -> int:
    try:
        return path.stat().st_size
    except FileNotFoundError:
        return 0
