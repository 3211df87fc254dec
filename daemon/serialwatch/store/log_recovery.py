"""What a crash leaves behind: indexes that are torn or gone are made whole from their logs."""

from __future__ import annotations

import logging
import os
from collections.abc import Iterable
from pathlib import Path

from serialwatch.lines import Eol, Splitter
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
    pack_record,
    unpack_header,
    unpack_record,
)
from serialwatch.store.log_index import Indexer
from serialwatch.store.log_walk import LogWalk

log = logging.getLogger(__name__)

_GUESS_BYTES = 64 * 1024
_UNSYNCED_BYTES = 8 * 1024 * 1024  # more cannot be on its way to the disk when a PC crashes


def recover(folder: Path, port: str) -> int:
    """Repair the log of a port whose last run may have crashed; return the highest line number.

    0 if nothing was ever written. `folder` is the port's own. Only the newest files can be torn:
    a writer begins one before it ends the one before. Blocks, for a second at most. What cannot be
    repaired, on a disk that is read-only, stays as it is.
    """
    highest = 0
    for path in log_files(folder)[-2:]:
        try:
            highest = max(highest, _recover_file(path, port))
        except OSError as exc:
            highest = max(highest, first_seq_of(path) or 0)
            log.error("%s: cannot be read: %s", path, exc.strerror)
    return highest


def rebuilt_index(path: Path, port: str) -> bytes:
    """Return an index for a log that has none. Its records are flagged as estimated.

    Bytes are taken to have come evenly between the time in the log's name and its last change.
    """
    first_seq = first_seq_of(path)
    assert first_seq is not None
    data = path.read_bytes()
    head = data[:_GUESS_BYTES]
    eol: Eol = "lf" if Splitter().cr_switch(head) is None else "cr"
    header = pack_header(Header(port, eol, first_seq, boot=0))
    if not data:
        return header
    begun_ns = begun_utc_ns(path)
    lasted_ns = max(path.stat().st_mtime_ns - begun_ns, 0)
    indexer = Indexer(eol, first_seq, flags=ESTIMATED)
    return header + indexer.add(data, 0, lasted_ns, begun_ns)


def replace_index(path: Path, data: bytes) -> None:
    """Put an index in the place of another one, on the disk before it has its name."""
    fresh = path.with_suffix(".idx.new")
    fd = os.open(fresh, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o640)
    with open(fd, "wb") as file:
        file.write(data)
        file.flush()
        os.fsync(fd)
    fresh.replace(path)


def _recover_file(path: Path, port: str) -> int:
    index_path = path.with_suffix(".idx")
    size = path.stat().st_size
    try:
        index = index_path.read_bytes()
    except FileNotFoundError:
        index = b""
    header = unpack_header(index)
    if header is None:
        index = rebuilt_index(path, port)
        header = unpack_header(index)
        assert header is not None
    whole = _without_wrong_end(path, header, _without_torn_end(index, size))
    last = _last_of(whole, Kind.CUT, Kind.POINT)
    if last is not None and last.kind is Kind.CUT:
        return last.seq - 1  # it ended in order
    indexer, records = _index_rest(path, header, whole, size)
    try:
        replace_index(index_path, whole + records)
        _sync(path)
    except OSError as exc:
        log.warning("%s: not repaired: %s", index_path, exc.strerror)
    return indexer.last_seq


def _index_rest(path: Path, header: Header, index: bytes, size: int) -> tuple[Indexer, bytes]:
    """Return the records that are missing behind `index`, and how the log ends."""
    start = _last_of(index, Kind.POINT, flags=LINE_START)
    last = _last_of(index, Kind.POINT)
    if start is None or last is None:
        begun_ns = begun_utc_ns(path)
        start = last = Record(Kind.POINT, 0, 0, 0, header.first_seq, begun_ns, 0)
        known = -1
    else:
        known = last.offset
    with path.open("rb") as file:
        file.seek(start.offset)
        before = file.read(last.offset - start.offset)
        rest = file.read(size - last.offset)
    lasted_ns = max(path.stat().st_mtime_ns - last.utc_ns, 0)
    indexer = Indexer(header.eol, start.seq, start.offset, ESTIMATED)
    made = b""
    if before:
        made += indexer.add(before, last.mono_ns, last.mono_ns, last.utc_ns)
    if rest:
        made += indexer.add(rest, last.mono_ns, last.mono_ns + lasted_ns, last.utc_ns)
    records = b"".join(
        raw
        for at in range(0, len(made), RECORD_BYTES)
        if (record := unpack_record(raw := made[at : at + RECORD_BYTES])) is not None
        and record.offset > known
    )
    ends = (size, indexer.last_seq + 1, last.utc_ns + lasted_ns, last.mono_ns + lasted_ns)
    # What had been read and not yet written is lost with a crash; nobody knows how much it was.
    gap = pack_record(Kind.GAP, Place.LOG, 0, *ends)
    cut = pack_record(Kind.CUT, ESTIMATED, Cut.CRASH, *ends)
    return indexer, records + gap + cut


def _without_torn_end(index: bytes, log_bytes: int) -> bytes:
    count = (len(index) - HEADER_BYTES) // RECORD_BYTES
    while count:
        end = HEADER_BYTES + count * RECORD_BYTES
        record = unpack_record(index[end - RECORD_BYTES : end])
        is_whole = record is not None and (
            record.offset < log_bytes
            or (record.offset == log_bytes and record.kind is not Kind.POINT)
        )
        if is_whole:
            break
        count -= 1
    return index[: HEADER_BYTES + count * RECORD_BYTES]


def _without_wrong_end(path: Path, header: Header, index: bytes) -> bytes:
    """Cut off what speaks of bytes that a crash of the PC has kept from the disk.

    A file may come back with its size, and zeros where its newest bytes should be. Lines are
    missing then, so that the last number tells whether the others need to be looked at.
    """
    last = _last_of(index, Kind.CUT, Kind.POINT)
    if last is None:
        return index
    begin, start = _start_up_to(index, last.offset - _UNSYNCED_BYTES)
    if _agrees(path, header, start, [(0, last)]) is None:
        return index
    records = (
        (at, record)
        for at in range(begin, len(index), RECORD_BYTES)
        if index[at] in (Kind.POINT, Kind.CUT)
        and (record := unpack_record(index[at : at + RECORD_BYTES]))
    )
    return index[: _agrees(path, header, start, records)]


def _agrees(
    path: Path, header: Header, start: Record | None, records: Iterable[tuple[int, Record]]
) -> int | None:
    """Return where the first record is that numbers a line as the log does not; None if all do."""
    walk = LogWalk(path, header, start.offset, start.seq) if start else LogWalk(path, header)
    try:
        for at, record in records:
            walk.go(walk.size if record.kind is Kind.CUT else record.offset)
            if record.kind is Kind.CUT:
                seq, is_start = walk.last_seq + 1, True
            else:
                seq, is_start = walk.line()
            if record.seq != seq or (record.flags & LINE_START and not is_start):
                return at
    finally:
        walk.close()
    return None


def _start_up_to(index: bytes, offset: int) -> tuple[int, Record | None]:
    """Return place and content of the last POINT up to an offset that begins a line.

    By bisection, for an index may have a million records; the first one and None if there is none.
    """
    found: tuple[int, Record | None] = (HEADER_BYTES, None)
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
            found, low = (at, record), middle + 1
        else:
            high = number
    return found


def _last_of(index: bytes, *kinds: Kind, flags: int = 0) -> Record | None:
    for at in range(len(index) - RECORD_BYTES, HEADER_BYTES - 1, -RECORD_BYTES):
        record = unpack_record(index[at : at + RECORD_BYTES])
        if record is not None and record.kind in kinds and record.flags & flags == flags:
            return record
    return None


def _sync(path: Path) -> None:
    for each, flags in ((path, os.O_RDONLY), (path.parent, os.O_RDONLY | os.O_DIRECTORY)):
        fd = os.open(each, flags | os.O_CLOEXEC)
        try:
            os.fsync(fd)
        finally:
            os.close(fd)
