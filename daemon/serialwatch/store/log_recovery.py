"""What a crash leaves behind: indexes that are torn or gone are made whole from their logs."""

from __future__ import annotations

import logging
import os
from contextlib import suppress
from dataclasses import replace
from pathlib import Path

from serialwatch.store.log_agreement import Agreement, place_of
from serialwatch.store.log_format import (
    ESTIMATED,
    HEADER_BYTES,
    LINE_START,
    RECORD_BYTES,
    Cut,
    Header,
    Kind,
    Place,
    Record,
    begun_utc_ns,
    first_seq_of,
    log_files,
    pack_header,
    unpack_header,
    unpack_record,
)
from serialwatch.store.log_index import Indexer
from serialwatch.store.log_items import Gap
from serialwatch.store.log_left import Left, left_behind, take_up
from serialwatch.store.log_repair import (
    guessed_header,
    is_head_of,
    mended_index,
    packed,
    records_in,
    replace_index,
)

log = logging.getLogger(__name__)

_UNSYNCED_BYTES = 8 * 1024 * 1024  # more cannot be on its way to the disk when a PC crashes


def recover(folder: Path, port: str) -> int:
    """Repair the log of a port whose last run may have crashed; return the highest line number.

    0 if nothing was ever written. `folder` is the port's own. Only the newest files can be torn:
    a writer begins one before it ends the one before. What a run could not write at its end gets
    its place in the index. Blocks, for a second at most. What cannot be repaired, on a disk that is
    read-only, stays as it is.
    """
    highest = 0
    files = log_files(folder)
    for path in files[-2:]:
        with suppress(OSError):
            path.with_suffix(".idx.new").unlink(missing_ok=True)  # of a repair that crashed
        left = left_behind(folder) if path == files[-1] else None
        try:
            highest = max(highest, _recover_file(path, port, left))
        except OSError as exc:
            highest = max(highest, first_seq_of(path) or 0)
            log.error("%s: cannot be read: %s", path, exc.strerror)
    return highest


def last_seq_before(folder: Path, port: str) -> int:
    """Return the last line of the newest file of a log, 0 if there is none. Blocks.

    An index that has no end yet gets one: at the start the disk may have been full.
    """
    files = log_files(folder)
    if not files:
        return 0
    try:
        with files[-1].with_suffix(".idx").open("rb") as file:
            at = file.seek(0, os.SEEK_END) - RECORD_BYTES
            file.seek(max(at, 0))
            end = unpack_record(file.read(RECORD_BYTES))
    except OSError:
        end = None
    is_known = end is not None and end.kind is Kind.CUT and left_behind(folder) is None
    return end.seq - 1 if end is not None and is_known else recover(folder, port)


def rebuilt_index(path: Path, port: str) -> bytes:
    """Return an index for a log that has none. Its records are flagged as estimated.

    Bytes are taken to have come evenly between the time in the log's name and its last change.
    """
    header = guessed_header(path, port)
    data = path.read_bytes()
    if not data:
        return pack_header(header)
    changed_ns = path.stat().st_mtime_ns
    begun_ns = begun_utc_ns(path) or changed_ns
    indexer = Indexer(header.eol, header.first_seq, flags=ESTIMATED)
    made = indexer.add(data, 0, max(changed_ns - begun_ns, 0), begun_ns)
    return pack_header(header) + made


def _recover_file(path: Path, port: str, left: Left | None) -> int:
    index_path = path.with_suffix(".idx")
    size = path.stat().st_size
    try:
        index = index_path.read_bytes()
    except FileNotFoundError:
        index = b""
    whole, header = _without_torn_end(index, size), unpack_header(index)
    if header is None or not is_head_of(header, path, port) or not _is_right(path, header, whole):
        whole, _ = mended_index(path, port, index, has_end=False)
        header = unpack_header(whole)
        assert header is not None
    at = _last_at(whole, Kind.CUT, Kind.POINT)
    last = unpack_record(whole[at : at + RECORD_BYTES])
    if last is not None and last.kind is Kind.CUT:  # it ended in order
        last_seq = last.seq - 1
        if left is not None:
            whole = whole[:at] + packed([*_gaps(left, last), last])
    else:
        last_seq, whole = _with_end(path, header, whole, size, left)
    if whole != index:
        try:
            replace_index(index_path, whole)
            _sync(path)
        except OSError as exc:
            log.warning("%s: not repaired: %s", index_path, exc.strerror)
            return last_seq
    if left is not None:
        take_up(path.parent)
    return last_seq


def _with_end(
    path: Path, header: Header, index: bytes, size: int, left: Left | None
) -> tuple[int, bytes]:
    """Return the last line, and the index with what is missing behind it and how the log ends."""
    at = _last_at(index, Kind.POINT)
    last = unpack_record(index[at : at + RECORD_BYTES])
    start_at = _last_at(index, Kind.POINT, flags=LINE_START)
    start = unpack_record(index[start_at : start_at + RECORD_BYTES])
    known = -1
    if start is None or last is None:
        begun_ns = begun_utc_ns(path) or path.stat().st_mtime_ns
        start = last = Record(Kind.POINT, 0, 0, 0, header.first_seq, begun_ns, 0)
        index, notes = index[:HEADER_BYTES], index
    else:
        known = last.offset
        index, notes = index[: at + RECORD_BYTES], bytes(HEADER_BYTES) + index[at + RECORD_BYTES :]
    with path.open("rb") as file:
        file.seek(start.offset)
        before = file.read(last.offset - start.offset)
        rest = file.read(size - last.offset)
    lasted_ns = max(path.stat().st_mtime_ns - last.utc_ns, 0)
    indexer = Indexer(header.eol, start.seq, start.offset, ESTIMATED)
    made = bytes(HEADER_BYTES)
    if before:
        made += indexer.add(before, last.mono_ns, last.mono_ns, last.utc_ns)
    if rest:
        made += indexer.add(rest, last.mono_ns, last.mono_ns + lasted_ns, last.utc_ns)
    records = [record for record in records_in(made) if record and record.offset > known]
    records += [record for record in records_in(notes) if record and record.offset <= size]
    utc_ns, mono_ns = last.utc_ns + lasted_ns, last.mono_ns + lasted_ns
    end = Record(Kind.CUT, ESTIMATED, Cut.CRASH, size, indexer.last_seq + 1, utc_ns, mono_ns)
    if left is not None and left.is_all:  # only its index could not say that it ended
        end = replace(end, aux=Cut.STOP)
    records = [*sorted(records, key=place_of), *_gaps(left, end), end]
    return indexer.last_seq, index + packed(records)


def _gaps(left: Left | None, end: Record) -> list[Record]:
    """Return the records of what was lost behind the last byte of a log."""
    gaps = [left.gap] if left is not None else []
    if left is None or not left.is_all:
        # What had been read and not yet written is lost with a crash; nobody knows how much it was.
        gaps.append(Gap(Place.LOG, 0, end.seq, end.mono_ns, end.utc_ns))
    return [
        Record(
            Kind.GAP, g.place, g.lost_bytes, end.offset, min(g.seq, end.seq), g.utc_ns, g.mono_ns
        )
        for g in gaps
    ]


def _without_torn_end(index: bytes, log_bytes: int) -> bytes:
    count = (len(index) - HEADER_BYTES) // RECORD_BYTES
    while count > 0:
        end = HEADER_BYTES + count * RECORD_BYTES
        record = unpack_record(index[end - RECORD_BYTES : end])
        is_whole = record is not None and (
            record.offset < log_bytes
            or (record.offset == log_bytes and record.kind is not Kind.POINT)
        )
        if is_whole:
            break
        count -= 1
    return index[: HEADER_BYTES + max(count, 0) * RECORD_BYTES]


def _is_right(path: Path, header: Header, index: bytes) -> bool:
    """Tell whether the end of an index speaks of what a crash of the PC has left on the disk.

    A file may come back with its size, and zeros where its newest bytes should be. Lines are
    missing then, so that the last number tells whether the others need to be looked at.
    """
    at = _last_at(index, Kind.CUT, Kind.POINT)
    last = unpack_record(index[at : at + RECORD_BYTES])
    if last is None:
        return True
    start_at = _last_at(index, Kind.POINT, flags=LINE_START)
    start = unpack_record(index[start_at : start_at + RECORD_BYTES])
    early = _start_up_to(index, last.offset - _UNSYNCED_BYTES)
    offset, seq = (early.offset, early.seq) if early is not None else (0, 0)
    with Agreement(path, header, offset, seq) as agreement:
        if start is not None and start_at != at and agreement.fault(start):
            return False
        return not agreement.fault(last)


def _start_up_to(index: bytes, offset: int) -> Record | None:
    """Return the last POINT up to an offset that begins a line, None if there is none.

    By bisection, for an index may have a million records.
    """
    found: Record | None = None
    low, high = 0, (len(index) - HEADER_BYTES) // RECORD_BYTES
    while low < high:
        middle = number = (low + high) // 2
        while number >= low:
            at = HEADER_BYTES + number * RECORD_BYTES
            record = unpack_record(index[at : at + RECORD_BYTES])
            if record and record.kind is Kind.POINT and record.flags & LINE_START:
                break
            number -= 1
        else:
            low = middle + 1
            continue
        if record.offset <= offset:
            found, low = record, middle + 1
        else:
            high = number
    return found


def _last_at(index: bytes, *kinds: Kind, flags: int = 0) -> int:
    """Return where the last record of some kinds begins; the end of the index if there is none."""
    for at in range(len(index) - RECORD_BYTES, HEADER_BYTES - 1, -RECORD_BYTES):
        record = unpack_record(index[at : at + RECORD_BYTES])
        if record is not None and record.kind in kinds and record.flags & flags == flags:
            return at
    return len(index)


def _sync(path: Path) -> None:
    for each, flags in ((path, os.O_RDONLY), (path.parent, os.O_RDONLY | os.O_DIRECTORY)):
        fd = os.open(each, flags | os.O_CLOEXEC)
        try:
            os.fsync(fd)
        finally:
            os.close(fd)
