"""Makes the log of one port from what comes out of its ring."""

from __future__ import annotations

import contextlib
import errno
import os
from collections import deque
from collections.abc import Iterable
from dataclasses import dataclass, replace
from pathlib import Path

from serialwatch.lines import Eol, Splitter, first_line_start
from serialwatch.store.log_file import LogFile, make_folder
from serialwatch.store.log_format import (
    MAX_AUX,
    PAUSE_NS,
    Cut,
    Header,
    Kind,
    Place,
    log_files,
    log_name,
    pack_header,
    pack_record,
)
from serialwatch.store.log_index import CLOCK_STEP_NS, POINT_EVERY_NS, Indexer
from serialwatch.store.log_items import Chunk, Gap, Item, LogSource, NewFile, Note, Turned
from serialwatch.store.log_left import Left, leave_behind, left_behind, take_up
from serialwatch.store.log_recovery import last_seq_before

LOOK_S = 1.0  # how often a file is looked for where it should be
RETRY_S = 1.0  # between two tries on a disk that failed
_SIZE_S = 10.0  # how often the size of a log is looked up
_MAX_PARTS = 512  # of one writev; the kernel takes 1024
_MAX_WRITE = 1024 * 1024  # bytes of one writev
_MAX_UNTOLD = 8  # files that have ended and whose index the disk has not taken yet


@dataclass(frozen=True, slots=True)
class _Reached:
    """How far a log has come."""

    put_bytes: int  # of its source
    next_seq: int  # the first line without a byte in it, or the unfinished one
    last_seq: int  # the last line with a byte in it


class LogAppender:
    """The log of one port. `write` is for the writer's thread, `sync` for the other one."""

    def __init__(self, folder: Path, source: LogSource, boot_id: bytes, rotate_bytes: int) -> None:
        self.source = source
        self.is_leaving = False
        self.is_gone = False
        self.is_ended = False  # after the last write
        self.left_bytes = 0  # that it could not write
        self._folder = folder
        self._boot_id = boot_id
        self._rotate_bytes = rotate_bytes
        self._file: LogFile | None = None
        self._indexer = Indexer("lf", 1)
        self._header = Header("", "lf", 1, 0)  # of the file,
        self._head_bytes = 0  # and what of its index comes before its first byte
        self._seq = 1  # of the next file, if there is none
        self._boot = 0
        self._eol: Eol = "lf"
        self._gaps: list[Gap] = []  # since the last file
        self._early: list[Note | Gap] = []  # came while there was no file
        self._told: list[Note | Gap] = []  # noted in a file that has no byte yet
        self._reached = _Reached(0, 0, 0)
        self._durable = _Reached(0, 0, 0)
        self._closed: deque[LogFile] = deque()  # to be synced and closed
        self._missing: deque[range] = deque(maxlen=1000)  # lines that were not written
        self._unsafe: deque[range] = deque(maxlen=1000)  # lines that may not have reached the disk
        self._write_problem = ""
        self._sync_problem = ""
        self._retry_at_s = 0.0
        self._look_at_s = 0.0
        self._size_at_s = 0.0
        self._has_count = False  # of what is not written, for the next run
        self._last_seq: int | None = None  # of the newest file that has ended, None: not looked up

    @property
    def problem(self) -> str:
        """Why nothing is written or safe; "" if all is well."""
        return self._write_problem or self._sync_problem

    def is_durable(self, seq: int, put_bytes: int) -> bool | None:
        """Return whether line `seq` is on disk, None while that cannot be known.

        `put_bytes`: so much had come when line `seq` was seen.
        """
        durable = self._durable
        if seq >= durable.next_seq and durable.put_bytes < put_bytes:
            return None
        lost = [*self._missing, *self._unsafe]  # a copy: other threads add to them
        is_lost = any(seq in lines for lines in lost)
        return seq <= durable.last_seq and not is_lost

    def write(self, now_s: float, *, is_last: bool, gives_up: bool = True) -> None:
        """Write all there is; what the disk does not take stays in the source.

        If it `is_last` the file ends with that, once all is written or it `gives_up`.
        """
        gives_up = gives_up or self.is_leaving
        is_last = is_last or self.is_leaving
        if self.is_ended or (now_s < self._retry_at_s and not is_last):
            return
        put_bytes = self.source.put_bytes
        items = self.source.take()
        try:
            if self._file is not None:
                if now_s >= self._look_at_s:
                    self._look_at_s = now_s + LOOK_S
                    self._file.look(self._indexer.offset)
                self._file.write_index()  # records that the disk did not take last time
            while items:
                self._write_next(items)
            if self._file is not None:
                self._file.write_index()
        except OSError as exc:
            self._failed(exc, now_s)
            self._keep_count(items)
            self.source.put_back(items)
        else:
            self._write_problem = ""
            self._forget_count()
            if self._file is not None:
                next_seq, last_seq = self._indexer.next_seq, self._indexer.last_seq
            else:
                next_seq, last_seq = self._seq, self._seq - 1
            self._reached = _Reached(put_bytes, next_seq, last_seq)
        if is_last and (gives_up or not self._write_problem):
            self._give_up(self.source.take())
            self._end(Cut.STOP)
            self.is_ended = True

    def sync(self, now_s: float) -> None:
        """Bring to the disk what has been written, and close the files that are done."""
        is_ended = self.is_ended
        reached = self._reached
        file = self._file  # before `_closed`: what leaves here is there
        files = [self._closed.popleft() for _ in range(len(self._closed))]
        closed = set(files)
        if file is not None and file not in closed:
            files.append(file)
        problem = ""
        untold: list[LogFile] = []
        for each in files:
            is_told = each not in closed or each.is_told()
            try:
                each.sync()
            except OSError as exc:
                problem = f"{self._folder}: fsync failed: {exc.strerror}"
            if not is_told and not is_ended and len(untold) < _MAX_UNTOLD:
                untold.append(each)
            elif each in closed:
                if each.is_unsafe:
                    first = max(each.first_seq, self._durable.next_seq)
                    self._unsafe.append(range(first, each.last_seq + 1))
                each.close()
        self._closed.extend(untold)
        if file is None or not file.is_unsafe:
            self._durable = reached
            self._sync_problem = problem
        elif problem:
            self._sync_problem = problem
        if now_s >= self._size_at_s:
            self._size_at_s = now_s + _SIZE_S
            self.source.log_bytes = _size_of(self._folder)
        self.is_gone = is_ended

    def _give_up(self, items: deque[Item]) -> None:
        """Count what cannot be written any more, and keep the number for the next run."""
        if not self._indexer.offset:
            self._end(Cut.STOP)  # its file goes, and what that was to tell is told here
        gap = self._lost(items)
        if gap is None:
            self._forget_count()
            return
        self.left_bytes = sum(len(item.data) for item in items if isinstance(item, Chunk))
        self.source.settle(lost_bytes=self.left_bytes)
        self._gaps.clear()
        try:
            self._look_back()
            make_folder(self._folder)
            if self._gaps:  # of an earlier run, which could not tell it
                gap = replace(gap, lost_bytes=gap.lost_bytes + self._gaps[0].lost_bytes)
            leave_behind(self._folder, Left(gap, is_all=True))
        except OSError:
            if self._file is not None:
                self._note(self._file, gap)

    def _keep_count(self, items: deque[Item]) -> None:
        """Keep how much is not written, so that it is known even if we are killed."""
        gap = self._lost(items)
        if gap is None or self._last_seq is None:
            self._forget_count()
            return
        with contextlib.suppress(OSError):
            leave_behind(self._folder, Left(gap, is_all=False))
            self._has_count = True

    def _forget_count(self) -> None:
        if self._has_count:
            self._has_count = False
            with contextlib.suppress(OSError):
                take_up(self._folder)

    def _lost(self, items: Iterable[Item]) -> Gap | None:
        """Return what is missing if these items are never written, None if nothing is."""
        lost = [
            item
            for item in (*self._gaps, *items)
            if isinstance(item, Chunk) or (isinstance(item, Gap) and item.place is Place.LOG)
        ]
        sizes = [len(item.data) if isinstance(item, Chunk) else item.lost_bytes for item in lost]
        if not any(sizes):
            return None
        first = lost[0]
        return Gap(Place.LOG, sum(sizes), first.seq, first.mono_ns, first.utc_ns)

    def _write_next(self, items: deque[Item]) -> None:
        item = items[0]
        if isinstance(item, Chunk):
            if self._file is None:
                if self._trim(items):
                    self._begin(items)
            elif (
                self._file.is_moved
                or self._file.is_unsafe
                or self._indexer.offset >= self._rotate_bytes
            ):
                self._rotate(self._file, items)
            else:
                self._write_chunks(self._file, items)
            return
        if isinstance(item, NewFile):
            self._end(item.why)
            self._seq, self._boot, self._eol = item.seq, item.boot, item.eol
        elif isinstance(item, Turned):
            self._turn(item)
        elif isinstance(item, Gap) and item.place is Place.LOG:
            self._end(Cut.GAP)
            self._gaps.append(item)
        else:
            if isinstance(item, Note) and item.kind is Kind.BOOT:
                self._boot = item.number
            if self._file is None:
                self._early.append(item)
            else:
                self._note(self._file, item)
        items.popleft()

    def _trim(self, items: deque[Item]) -> bool:
        """Drop what no file can begin with: the rest of a line. Return False if that was all."""
        chunk = _first_chunk(items)
        start = first_line_start(chunk.data, chunk.filled, self._eol)
        if start == 0:
            return True
        lost = len(chunk.data) if start is None else start
        if self._gaps:
            gap = self._gaps[-1]
            self._gaps[-1] = replace(gap, lost_bytes=gap.lost_bytes + lost)
        else:
            self._gaps.append(Gap(Place.LOG, lost, chunk.seq, chunk.mono_ns, chunk.utc_ns))
        self.source.settle(lost_bytes=lost)
        items.popleft()
        if start is None:
            return False
        items.appendleft(_halves(chunk, start, self._eol)[1])
        return True

    def _begin(self, items: deque[Item]) -> None:
        """Create the file that begins with the first chunk."""
        chunk = _first_chunk(items)
        file = self._create(chunk.utc_ns, chunk.seq)
        if self._gaps:
            self._missing.append(range(self._gaps[0].seq, chunk.seq))
        for item in (*self._gaps, *self._early):
            self._note(file, item)
        self._gaps.clear()
        self._early.clear()

    def _create(self, utc_ns: int, seq: int) -> LogFile:
        before_seq = self._look_back()
        make_folder(self._folder)
        while (path := self._folder / log_name(utc_ns, seq)).exists():
            utc_ns += 10**9  # nothing could be written to that one
        file = LogFile(path, seq)
        self._header = Header(
            self.source.name, self._eol, seq, self._boot, self._boot_id, min(before_seq, seq - 1)
        )
        file.index_rest += pack_header(self._header)
        self._told = []
        self._file = file
        self._indexer = Indexer(self._eol, seq)
        return file

    def _turn(self, item: Turned) -> None:
        """Number the lines of the file anew; its bytes stay as they are."""
        file = self._file
        is_whole = self._indexer.offset == sum(len(chunk.data) for chunk in item.chunks)
        if file is None or file.first_seq != item.seq or not is_whole:
            self._end(Cut.EOL)  # the disk has failed meanwhile, or the queue was too long
            self._seq, self._boot, self._eol = item.next_seq, item.boot, item.eol
            return
        header = replace(self._header, eol=item.eol)
        file.begin_index_anew(pack_header(header), self._head_bytes)
        self._header, self._eol = header, item.eol
        self._indexer = Indexer(item.eol, item.seq)
        self._index(file, list(item.chunks))
        file.last_seq = self._indexer.last_seq

    def _look_back(self) -> int:
        """Return the last line of the file before; what an earlier run could not tell is told."""
        if self._last_seq is None:
            last_seq = last_seq_before(self._folder, self.source.name)
            if (left := left_behind(self._folder)) is not None:
                take_up(self._folder)
                self._gaps.insert(0, left.gap)
            self._last_seq = last_seq
        return self._last_seq

    def _note(self, file: LogFile, item: Note | Gap) -> None:
        if not self._indexer.offset:
            self._told.append(item)
        if isinstance(item, Note):
            kind, flags, rest = item.kind, 0, item.number
        else:
            kind, flags, rest = Kind.GAP, item.place, item.lost_bytes
        while True:  # a record holds less than 4 GiB
            aux = min(rest, MAX_AUX)
            file.index_rest += pack_record(
                kind, flags, aux, self._indexer.offset, item.seq, item.utc_ns, item.mono_ns
            )
            rest -= aux
            if not rest:
                break
        file.is_dirty = True

    def _rotate(self, old: LogFile, items: deque[Item]) -> None:
        """Go on in a new file if a line starts here; else write up to where one does."""
        chunk = _first_chunk(items)
        indexer = self._indexer
        start = first_line_start(chunk.data, indexer.filled, self._eol)
        if start == 0:
            # The new file first: as long as there is none, the old one is the place to go on.
            self._last_seq = indexer.last_seq
            self._create(chunk.utc_ns, indexer.next_seq)
            if old.is_moved:
                self._missing.append(range(old.first_seq, indexer.next_seq))
            self._finish(old, indexer, Cut.MOVED if old.is_moved or old.is_unsafe else Cut.SIZE)
            return
        if start is not None:
            items.popleft()
            items.extendleft(reversed(_halves(chunk, start, self._eol)))
        self._write_chunks(old, items, most=1)

    def _write_chunks(self, file: LogFile, items: deque[Item], most: int = _MAX_PARTS) -> None:
        file.write_index()  # a file has its header before its first byte
        if not self._indexer.offset:
            self._head_bytes = os.fstat(file.index_fd).st_size
        chunk = _first_chunk(items)
        room = self._rotate_bytes - self._indexer.offset
        if 0 < room < len(chunk.data):  # a file ends where its bytes say, not where a chunk does
            items.popleft()
            items.extendleft(reversed(_halves(chunk, room, self._eol)))
        chunks: list[Chunk] = []
        size = 0
        for item in items:
            if not isinstance(item, Chunk) or len(chunks) == most:
                break
            size += len(item.data)
            if chunks and (size > _MAX_WRITE or size > room):
                break
            chunks.append(item)
        written = os.writev(file.log_fd, [chunk.data for chunk in chunks])
        file.is_dirty = True
        self.source.settle(written_bytes=written)
        done: list[Chunk] = []
        for chunk in chunks:
            items.popleft()
            if written < len(chunk.data):
                begun, rest = _halves(chunk, written, self._eol)
                items.appendleft(rest)
                if written:
                    done.append(begun)
                break
            done.append(chunk)
            written -= len(chunk.data)
            if not written:
                break
        self._index(file, done)
        file.last_seq = self._indexer.last_seq

    def _index(self, file: LogFile, chunks: list[Chunk]) -> None:
        """Index what was written. Chunks that no pause parts are looked at as one."""
        at = 0
        while at < len(chunks):
            first = last = chunks[at]
            offset_ns = first.utc_ns - first.mono_ns
            end = at + 1
            while (
                end < len(chunks)
                and (chunk := chunks[end]).mono_ns - last.last_mono_ns < PAUSE_NS
                and chunk.mono_ns - first.mono_ns < POINT_EVERY_NS
                and abs(chunk.utc_ns - chunk.mono_ns - offset_ns) < CLOCK_STEP_NS
            ):
                last = chunk
                end += 1
            data = b"".join([chunk.data for chunk in chunks[at:end]])
            file.index_rest += self._indexer.add(
                data, first.mono_ns, last.last_mono_ns, first.utc_ns
            )
            at = end

    def _end(self, why: Cut) -> None:
        """End the file, if there is one."""
        if self._file is not None:
            self._seq = self._indexer.last_seq + 1
            self._finish(self._file, self._indexer, why)
            self._leave(self._file)

    def _leave(self, file: LogFile) -> None:
        """Have no file. What one without a byte was to tell is told by the next."""
        self._file = None
        if self._indexer.offset or not self._told:
            return
        try:
            file.delete()
        except OSError:
            if not file.index_rest:
                return  # it stays, and tells it
            file.index_rest.clear()
        for item in self._told:
            is_end = isinstance(item, Gap) and item.place is Place.LOG
            (self._gaps if is_end else self._early).append(item)  # type: ignore[arg-type]
        self._told = []

    def _finish(self, file: LogFile, indexer: Indexer, why: Cut) -> None:
        if indexer.offset:
            self._last_seq = indexer.last_seq
        file.index_rest += pack_record(
            Kind.CUT,
            0,
            why,
            indexer.offset,
            indexer.last_seq + 1,
            indexer.last_utc_ns,
            indexer.last_mono_ns,
        )
        file.is_dirty = True
        file.is_told()  # else it is tried again before it is closed
        self._closed.append(file)

    def _failed(self, exc: OSError, now_s: float) -> None:
        self._write_problem = f"{self._folder}: write failed: {exc.strerror}"
        self._retry_at_s = now_s + RETRY_S
        if exc.errno not in (errno.ENOSPC, errno.EDQUOT) and self._file is not None:
            # The descriptor may be of no use for ever, e.g. if the disk was taken out.
            self._end(Cut.MOVED)


def _first_chunk(items: deque[Item]) -> Chunk:
    chunk = items[0]
    assert isinstance(chunk, Chunk)
    return chunk


def _halves(chunk: Chunk, at: int, eol: Eol) -> tuple[Chunk, Chunk]:
    """Return the chunk in two, the second from byte `at` on."""
    middle_ns = chunk.mono_ns + (chunk.last_mono_ns - chunk.mono_ns) * at // len(chunk.data)
    splitter = Splitter.resumed(eol, chunk.filled)
    seq = chunk.seq + splitter.feed(chunk.data[:at])[1]
    rest = Chunk(
        chunk.data[at:],
        middle_ns,
        chunk.last_mono_ns,
        chunk.utc_ns + middle_ns - chunk.mono_ns,
        seq,
        splitter.filled,
    )
    return replace(chunk, data=chunk.data[:at], last_mono_ns=middle_ns), rest


def _size_of(folder: Path) -> int:
    size = 0
    with contextlib.suppress(OSError):  # it is for people only
        for path in log_files(folder):
            size += path.stat().st_size + path.with_suffix(".idx").stat().st_size
    return size
