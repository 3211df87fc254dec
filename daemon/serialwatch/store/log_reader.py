"""The saved log of one port by line number and time, read beside the writer."""

from __future__ import annotations

import contextlib
import operator
import os
import time
from bisect import bisect_right
from collections import deque
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Literal

from serialwatch.line import Line
from serialwatch.store import log_boots
from serialwatch.store.log_format import Kind, Place, Record, in_order
from serialwatch.store.saved_file import LineStart, OpenFile, SavedFile, sizes_of

_SETTLED_NS = 2_000_000_000  # the clocks of file systems are coarse: two changes may have one time
_MANY = 1000  # names of which a list takes its time
_RELIST = 20  # times as long as that takes, such a folder is left alone if it looks unchanged
_OPEN_FILES = 2  # the newest may grow: a writer begins a file before it ends the one before

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
        self._names: set[str] = set()  # of the folder's logs, when it was listed last
        self._changed_ns = -1  # of the folder then
        self._is_settled = False  # whatever has come since has changed it
        self._again_s = 0.0  # until it is listed again if it has not
        self._growing: list[tuple[int, str]] = []  # (first line, name) of files that may grow
        self.refresh()

    def refresh(self) -> None:
        """See what was written since; of files that have ended nothing is looked at again."""
        self._look_into_folder()
        self._look_at_files()
        while self._files and not self._files[0].log_bytes:  # it tells where the log begins
            del self._files[0]

    def _look_at_files(self) -> None:
        open_before = self._files[-_OPEN_FILES:]
        files = self._looked_at({file.name: file for file in open_before})
        if len(files) == len(open_before) and all(map(operator.is_, files, open_before)):
            return
        ended = self._files[:-_OPEN_FILES]
        if ended and files and files[0].first_seq < ended[-1].first_seq:  # somebody put it there
            ended, files = [], sorted([*ended, *files], key=lambda file: file.first_seq)
        self._files = [*ended, *files]
        self._last_seq = 0
        if files := self._files[-_OPEN_FILES:]:
            oldest = files[0].first_seq, files[0].name
            self._growing = [each for each in self._growing if each >= oldest]

    def _look_into_folder(self) -> None:
        """List the folder if something may have come or gone in it: it may hold 100,000 files."""
        now_s, now_ns = time.monotonic(), time.time_ns()
        try:
            changed_ns = os.stat(self.folder).st_mtime_ns
        except OSError:
            changed_ns = -1
        is_due = len(self._names) < _MANY or now_s >= self._again_s
        if changed_ns == self._changed_ns and (self._is_settled or not is_due):
            return
        self._list_folder()
        self._changed_ns, self._is_settled = changed_ns, 0 <= changed_ns < now_ns - _SETTLED_NS
        self._again_s = now_s + _RELIST * (time.monotonic() - now_s)

    def _list_folder(self) -> None:
        """Take notice of log files that are new or gone."""
        try:
            names = [name for name in os.listdir(self.folder) if name.endswith(".log")]
        except (FileNotFoundError, NotADirectoryError):
            names = []
        fresh = [name for name in names if name not in self._names]
        if len(names) - len(fresh) < len(self._names):
            self._names.intersection_update(names)
            self._files = [file for file in self._files if file.name in self._names]
            self._last_seq = 0
            newest = [(file.first_seq, file.name) for file in self._files[-_OPEN_FILES:]]
            kept = {each for each in self._growing if each[1] in self._names}
            self._growing = sorted(kept.union(newest))
        self._names.update(fresh)
        self._growing = sorted([*self._growing, *in_order(fresh)])

    def _looked_at(self, known: Mapping[str, SavedFile]) -> list[SavedFile]:
        """Return the files that may have grown, those that are as they were as they are known.

        Of many that are new only the newest may grow: into the others nobody looks before he needs
        them.
        """
        files: list[SavedFile] = []  # newest first
        folder = os.fspath(self.folder)
        for first_seq, name in reversed(self._growing):
            file = known.get(name)
            if file is None and len(files) >= _OPEN_FILES:
                files.append(SavedFile(self.folder, name, first_seq, self.port))
                continue
            sizes = sizes_of(folder, name)
            if not sizes[0]:
                continue
            if file is None or file.sizes != sizes:
                earlier = file
                file = SavedFile(self.folder, name, first_seq, self.port, sizes)
                if earlier is not None:
                    file.goes_on_from(earlier)
            files.append(file)
        return files[::-1]

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
        has_boots: bool = True,
    ) -> Iterator[Line]:
        """Yield the lines from `first` to `last`, at most `limit`; newest first if `reverse`.

        Numbers that were never used or are gone are left out. Nothing is read before it is asked
        for, so the end of a log costs the same however long it is. To know the boot of a line its
        file's index is read as a whole; without `has_boots` it is 0.
        """
        low = 0 if first is None else first
        high = 2**63 if last is None else last
        walk = self._backward if reverse else self._forward
        found = walk(low, high, has_boots=has_boots)
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

    def newest_from(self, last: int, count: int) -> int:
        """Return the first of the newest `count` lines up to line `last`, which is 1 at least."""
        for index in range(self._index_of(last), -1, -1):
            file = self._files[index]
            with contextlib.suppress(FileNotFoundError), file.open() as opened:
                end = min(last, opened.last_seq())
                if end - file.first_seq + 1 >= count:
                    return end - count + 1
                count -= max(end - file.first_seq + 1, 0)
            last = file.first_seq - 1
        return self._files[0].first_seq if self._files else 1

    def line(self, seq: int) -> Line | None:
        """Return line `seq`, None if there is none of this number."""
        return next(self.lines(first=seq, last=seq), None)

    def seq_at(self, utc_ns: int) -> int | None:
        """Return the first line that came at or after a time, None if all are older.

        One that stood unfinished then, e.g. a prompt, came when it was completed.

        Where the wall clock was set, each stretch between is looked at by itself, oldest first.
        """
        files = self._files
        for first, stop in _runs(files):
            begin = bisect_right(files, utc_ns, first, stop, key=lambda file: file.begun_utc_ns) - 1
            # One file more: the last bytes of it came in the second in which the next was begun,
            # or later, if the clock was set back.
            for file in files[max(begin - 1, first) : stop]:
                with contextlib.suppress(FileNotFoundError), file.open() as opened:
                    seq = _seq_in(opened, utc_ns)
                    if seq is not None:
                        return seq
        return None

    def last_seq_at(self, utc_ns: int) -> int | None:
        """Return the last line whose first byte came at or before a time, None if all are later.

        Where the wall clock was set, each stretch between is looked at by itself, newest first.
        """
        files = self._files
        for first, stop in reversed(list(_runs(files))):
            begin = bisect_right(files, utc_ns, first, stop, key=lambda file: file.begun_utc_ns) - 1
            # The last file, and the one after: in these the clock may have been set back. The one
            # before: the last bytes of it came in the second in which the next was begun.
            near = {stop - 1, begin + 1, begin, begin - 1}.intersection(range(first, stop))
            for index in sorted(near, reverse=True):
                with contextlib.suppress(FileNotFoundError), files[index].open() as opened:
                    seq = _last_seq_in(opened, utc_ns)
                    if seq is not None:
                        return seq
        return None

    def boot_range(self, wanted: int) -> tuple[int, int | None] | None:
        """Return the first and the last line of a boot, None if it is not in the log.

        `wanted`: its number, 0 the newest, -1 the one before. No last line: it is the newest. Of a
        boot whose beginning is gone it is the rest.
        """
        return log_boots.boot_range(self._files, wanted)

    def boot_numbers(self) -> tuple[int, int] | None:
        """Return the numbers of the oldest and the newest boot, None if there is none."""
        return log_boots.boot_numbers(self._files)

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

    def _boots_of(self, index: int, opened: OpenFile, *, has_boots: bool) -> list[tuple[int, int]]:
        return log_boots.boots_of(self._files, index, opened) if has_boots else []

    def _forward(self, low: int, high: int, *, has_boots: bool) -> Iterator[Line]:
        files = self._files
        for index in range(max(self._index_of(low), 0), len(files)):
            if files[index].first_seq > high:
                return
            with contextlib.suppress(FileNotFoundError), files[index].open() as opened:
                boots = self._boots_of(index, opened, has_boots=has_boots)
                for line in self._lines_of(opened, index, opened.start_of(low), boots):
                    if line.seq > high:
                        return
                    if line.seq >= low:
                        yield line

    def _backward(self, low: int, high: int, *, has_boots: bool) -> Iterator[Line]:
        for index in range(self._index_of(high), -1, -1):
            with contextlib.suppress(FileNotFoundError), self._files[index].open() as opened:
                boots = self._boots_of(index, opened, has_boots=has_boots)
                yield from self._backward_in(opened, index, low, high, boots)
            if self._files[index].first_seq <= low:
                return

    def _backward_in(
        self, opened: OpenFile, index: int, low: int, high: int, boots: list[tuple[int, int]]
    ) -> Iterator[Line]:
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


def _runs(files: Sequence[SavedFile]) -> Iterator[tuple[int, int]]:
    """Yield (first, stop) of neighbouring files of which each was begun later than the one before.

    Nearly always that is one; more where the clock was set back.
    """
    first = 0
    for index in range(1, len(files) + 1):
        if index == len(files) or files[index].begun_utc_ns < files[index - 1].begun_utc_ns:
            yield first, index
            first = index


def _seq_in(opened: OpenFile, utc_ns: int) -> int | None:
    """Return the first line of a file at or after a time, in the first stretch that has one."""
    clocks = opened.clock_settings()
    for low, high in zip([0, *clocks], [*clocks, opened.record_count], strict=True):
        if high == opened.record_count:
            last = opened.last_record((Kind.POINT, Kind.CUT))
            if last is not None and last.utc_ns < utc_ns:
                break  # nothing is later than that
        before = opened.last_point(lambda point: point.utc_ns < utc_ns, low, high)
        start = opened.line_start(max(before, low))
        end = opened.record(high) if high < opened.record_count else None
        for line in opened.lines(start, []):
            if end is not None and line.seq > end.seq:
                break
            if line.told_utc_ns >= utc_ns:
                return line.seq
    return None


def _last_seq_in(opened: OpenFile, utc_ns: int) -> int | None:
    """Return the last line of a file at or before a time, in the last stretch that has one."""
    clocks = opened.clock_settings()
    stretches = zip([0, *clocks], [*clocks, opened.record_count], strict=True)
    for low, high in reversed(list(stretches)):
        point = opened.last_point(lambda point: point.utc_ns <= utc_ns, low, high)
        begun = opened.record(point) if point >= 0 else None
        if begun is None and low:
            continue
        found = None
        for line in opened.lines(opened.line_start(point), []):
            if line.utc_ns <= utc_ns:
                found = line.seq
            elif begun is None or line.seq > begun.seq:
                break
        if found is not None:
            return found
    return None


def _has_cut(opened: OpenFile) -> bool:
    end = opened.last_record((Kind.POINT, Kind.CUT))
    return end is not None and end.kind is Kind.CUT
