"""Makes an index right from its log, and keeps what is right in it: it alone knows times."""

from __future__ import annotations

import os
from dataclasses import replace
from pathlib import Path

from serialwatch.lines import Eol, Splitter
from serialwatch.store.log_agreement import Agreement, place_of
from serialwatch.store.log_format import (
    ESTIMATED,
    HEADER_BYTES,
    LINE_START,
    POINT_EVERY,
    RECORD_BYTES,
    Cut,
    Header,
    Kind,
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

_GUESS_BYTES = 64 * 1024


def repair(path: Path, port: str) -> int:
    """Make the index of `path` anew from its log; return how many records were kept.

    Records that are whole and agree with the log are kept: they alone know when bytes came. Times
    in between are estimated, and flagged so. A right index stays as it is, byte for byte. The log
    itself is never touched. Blocks.

    Raises:
        OSError: the index cannot be written.

    """
    index_path = path.with_suffix(".idx")
    try:
        index = index_path.read_bytes()
    except FileNotFoundError:
        index = None
    is_newest = log_files(path.parent)[-1:] == [path]
    mended, kept = mended_index(path, port, index or b"", has_end=not is_newest)
    if mended != index:
        replace_index(index_path, mended)
    return kept


def mended_index(path: Path, port: str, index: bytes, *, has_end: bool) -> tuple[bytes, int]:
    """Return an index that agrees with the log, and how many records of the old one are in it.

    `has_end`: it is to say how the file ended, even if the old one does not.
    """
    found = records_in(index)
    header, numbers = _reading(path, port, unpack_header(index), found)
    records = _filled(path, header, _joined(found, numbers))
    if has_end and not any(record.kind is Kind.CUT for record in records):
        records.append(_end_of(path, header, records))
    is_same = header == unpack_header(index)
    head = index[:HEADER_BYTES] if is_same else pack_header(header)
    return head + packed(records), len(numbers)


def guessed_header(path: Path, port: str) -> Header:
    """Return the head of an index that is gone, as far as the log tells it."""
    first_seq = first_seq_of(path)
    assert first_seq is not None
    with path.open("rb") as file:
        head = file.read(_GUESS_BYTES)
    eol: Eol = "lf" if Splitter().turn(head) is None else "cr"
    return Header(port, eol, first_seq, boot=0)


def is_head_of(header: Header, path: Path, port: str) -> bool:
    """Tell whether a head is that of this log's index."""
    is_ours = header.port == port and header.first_seq == first_seq_of(path)
    return is_ours and header.before_seq < header.first_seq


def records_in(index: bytes) -> list[Record | None]:
    """Return the records of an index, None for damaged ones; a torn end is left out."""
    last = len(index) - RECORD_BYTES
    starts = range(HEADER_BYTES, last + 1, RECORD_BYTES)
    return [unpack_record(index[at : at + RECORD_BYTES]) for at in starts]


def packed(records: list[Record]) -> bytes:
    """Return the bytes of records."""
    return b"".join(
        pack_record(r.kind, r.flags, r.aux, r.offset, r.seq, r.utc_ns, r.mono_ns) for r in records
    )


def replace_index(path: Path, data: bytes) -> None:
    """Put an index in the place of another one, on the disk before it has its name."""
    fresh = path.with_suffix(".idx.new")
    try:
        fd = os.open(fresh, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o640)
        with open(fd, "wb") as file:
            owner = path.with_suffix(".log").stat()
            if os.geteuid() == 0:  # the daemon must read it, whoever repairs
                os.fchown(fd, owner.st_uid, owner.st_gid)
            file.write(data)
            file.flush()
            os.fsync(fd)
        fresh.replace(path)
    except OSError:
        fresh.unlink(missing_ok=True)  # on a full disk it would take the last room
        raise


def _reading(
    path: Path, port: str, head: Header | None, found: list[Record | None]
) -> tuple[Header, list[int]]:
    """Return how to read the log, and the numbers of the records that agree with it, in order.

    A head has no checksum: how lines end is what most records say. One that names another port or
    line is believed if all records agree with this log, as in a folder that was renamed.
    """
    points = [number for number, record in enumerate(found) if _is_point(record)]
    guessed = guessed_header(path, port)
    header = guessed
    if head is not None:
        header = replace(head, port=port, first_seq=guessed.first_seq)
    kept = _agreeing(path, header, found)
    if 2 * len(kept & set(points)) < len(points):
        other = replace(header, eol="cr" if header.eol == "lf" else "lf")
        others = _agreeing(path, other, found)
        if len(others & set(points)) > len(kept & set(points)):
            header, kept = other, others
    if head is not None and not is_head_of(head, path, port):
        if not points or not kept.issuperset(points):
            return guessed, []
        header = replace(header, before_seq=0)
    return header, sorted(kept, key=lambda number: _place_in(found, number))


def _is_point(record: Record | None) -> bool:
    return record is not None and record.kind is Kind.POINT


def _place_in(found: list[Record | None], number: int) -> tuple[int, int]:
    record = found[number]
    assert record is not None
    return place_of(record)


def _agreeing(path: Path, header: Header, found: list[Record | None]) -> set[int]:
    """Return the numbers of the records that agree with the log."""
    whole = [number for number, record in enumerate(found) if record is not None]
    kept: set[int] = set()
    with Agreement(path, header) as agreement:
        for number in sorted(whole, key=lambda number: _place_in(found, number)):
            record = found[number]
            if record is not None and not agreement.fault(record):
                kept.add(number)
    return kept


def _joined(found: list[Record | None], kept: list[int]) -> list[Record]:
    """Return the kept records; a POINT has the time of those that are gone before it, too."""
    records: list[Record] = []
    known = set(kept)
    number_before, before = 0, None
    for number in kept:
        record = found[number]
        assert record is not None
        if record.kind is Kind.POINT:
            if before is not None:
                between = (found[n] for n in range(number_before + 1, number) if n not in known)
                if any(_may_be_between(gone, before, record) for gone in between):
                    aux = (record.mono_ns - before.mono_ns) // 1000
                    record = replace(record, aux=aux, flags=record.flags | ESTIMATED)
            number_before, before = number, record
        records.append(record)
    return records


def _may_be_between(gone: Record | None, before: Record, after: Record) -> bool:
    return gone is None or (gone.kind is Kind.POINT and before.offset < gone.offset < after.offset)


def _filled(path: Path, header: Header, kept: list[Record]) -> list[Record]:
    """Put estimated POINTs where those that were there are gone."""
    records: list[Record] = []
    marks = [record for record in kept if record.kind in (Kind.POINT, Kind.CUT)]
    begin = before = anchor = _begin_of(path, header, marks)
    if not marks or marks[-1].kind is Kind.POINT:
        marks = [*marks, _end_of(path, header, marks or [begin])]
    for mark in marks:
        record = mark
        is_first = before is begin and record.offset > 0
        if is_first or record.offset - before.offset > POINT_EVERY + 1:
            made = _estimated(path, header, anchor, before, record, with_first=before is begin)
            records += made
            if made and record.kind is Kind.POINT:
                last_ns = _at(before, record, record.offset - 1).mono_ns
                aux = max(last_ns - made[-1].mono_ns, 0) // 1000
                record = replace(record, aux=aux, flags=record.flags | ESTIMATED)
        if record.kind is Kind.POINT:
            before = record
            if record.flags & LINE_START:
                anchor = record
            records.append(record)
    others = (record for record in kept if record.kind is not Kind.POINT)
    return sorted([*records, *others], key=place_of)


def _begin_of(path: Path, header: Header, marks: list[Record]) -> Record:
    """Return the POINT that is due at the start of a log."""
    begun_ns = begun_utc_ns(path)
    mono_ns = 0
    if marks:
        first = marks[0]
        begun_ns = min(begun_ns or first.utc_ns, first.utc_ns)
        passed_ns = first.utc_ns - begun_ns
        mono_ns = min(first.mono_ns, max(first.mono_ns - passed_ns, 0))
    flags = ESTIMATED | LINE_START
    return Record(Kind.POINT, flags, 0, 0, header.first_seq, begun_ns, mono_ns)


def _end_of(path: Path, header: Header, records: list[Record]) -> Record:
    """Return the CUT at the end of a log whose own is gone."""
    with Agreement(path, header) as agreement:
        agreement.walk.go(agreement.walk.size)
        size, seq = agreement.walk.size, agreement.walk.last_seq + 1
    points = [record for record in records if record.kind is Kind.POINT]
    last = points[-1] if points else _begin_of(path, header, [])
    lasted_ns = max(path.stat().st_mtime_ns - last.utc_ns, 0)
    utc_ns, mono_ns = last.utc_ns + lasted_ns, last.mono_ns + lasted_ns
    return Record(Kind.CUT, ESTIMATED, Cut.CRASH, size, seq, utc_ns, mono_ns)


def _estimated(
    path: Path, header: Header, anchor: Record, after: Record, before: Record, *, with_first: bool
) -> list[Record]:
    """Return POINTs between two records; lines are counted from `anchor` on."""
    with path.open("rb") as file:
        file.seek(anchor.offset)
        data = file.read(before.offset - anchor.offset)
    if not data:
        return []
    found = records_in(
        bytes(HEADER_BYTES)
        + Indexer(header.eol, anchor.seq, anchor.offset, ESTIMATED).add(data, 0, 0, 0)
    )
    made: list[Record] = []
    lowest = after.offset + (not with_first)
    for record in found:
        if record is None or not lowest <= record.offset < before.offset:
            continue
        now = _at(after, before, record.offset)
        previous = made[-1] if made else after
        last_ns = _at(after, before, max(record.offset - 1, 0)).mono_ns
        aux = max(last_ns - previous.mono_ns, 0) // 1000 if record.offset else 0
        made.append(replace(record, aux=aux, utc_ns=now.utc_ns, mono_ns=now.mono_ns))
    return made


def _at(after: Record, before: Record, offset: int) -> Record:
    """Return `after` at a byte between it and another record, as if bytes had come evenly."""
    span, at = before.offset - after.offset, offset - after.offset
    utc_ns = after.utc_ns + (before.utc_ns - after.utc_ns) * at // span
    mono_ns = after.mono_ns + (before.mono_ns - after.mono_ns) * at // span
    return replace(after, utc_ns=utc_ns, mono_ns=mono_ns)
