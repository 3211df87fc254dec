"""Holds the index of a log against the log, and makes it right again.

What can be checked is what both say: the checksum of each record, where it points to, and which
line stands there. A log has no checksum of its own: bits that changed in it show only where a line
end came or went.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from pathlib import Path

from serialwatch.store.log_format import (
    ESTIMATED,
    HEADER_BYTES,
    LINE_START,
    POINT_EVERY,
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
from serialwatch.store.log_recovery import rebuilt_index, replace_index
from serialwatch.store.log_walk import LogWalk

_OPEN_FILES = 2  # a writer begins a file before it ends the one before


@dataclass(slots=True)
class CheckedFile:
    """What was found in one log file and its index."""

    path: Path
    log_bytes: int = 0
    records: int = 0
    first_seq: int = 0
    last_seq: int = 0
    faults: list[str] = field(default_factory=list)  # what is wrong
    notes: list[str] = field(default_factory=list)  # what is told but is in order
    is_open: bool = False  # a daemon is writing it
    is_ended: bool = False  # it has a CUT


def check_port(folder: Path, port: str, *, is_live: bool) -> Iterator[CheckedFile]:
    """Check the log files of one port, oldest first.

    Args:
        folder: that of the port.
        port: its name, as the indexes have it.
        is_live: a daemon writes: the newest files may be ahead of their indexes.

    """
    paths = log_files(folder)
    before: CheckedFile | None = None
    for number, path in enumerate(paths):
        is_newest = number == len(paths) - 1
        is_open = is_live and number >= len(paths) - _OPEN_FILES
        try:
            found = _check(path, port, is_open=is_open)
        except FileNotFoundError:
            continue  # pruned meanwhile
        except OSError as exc:
            found = CheckedFile(path, faults=[f"cannot be read: {exc.strerror}"])
            yield found
            before = None
            continue
        if not found.is_ended and not found.is_open and not is_newest:
            found.faults.append("the index does not say how the file ended")
        if before is not None:
            _compare(before, found)
        yield found
        before = found
    for path in sorted(folder.glob("*.idx")):
        if not path.with_suffix(".log").exists():
            yield CheckedFile(path, faults=["an index without its log"])


def repair(path: Path, port: str) -> int:
    """Make the index of `path` anew from its log; return how many records were kept.

    Records that are whole and agree with the log are kept: they alone know when bytes came. Times
    in between are estimated, and flagged so. The log itself is never touched. Blocks.

    Raises:
        OSError: the index cannot be written.

    """
    index, kept = _mended(path, port)
    replace_index(path.with_suffix(".idx"), index)
    return kept


def _check(path: Path, port: str, *, is_open: bool) -> CheckedFile:
    first_seq = first_seq_of(path)
    assert first_seq is not None
    found = CheckedFile(path, path.stat().st_size, first_seq=first_seq, is_open=is_open)
    try:
        index = path.with_suffix(".idx").read_bytes()
    except FileNotFoundError:
        index = b""
        found.faults.append("there is no index: when its bytes came is not known")
    header = _header(index, path, port, found)
    if header is None:
        header = unpack_header(rebuilt_index(path, port))
        assert header is not None
        index = b""
    place = LogWalk(path, header)
    try:
        _compare_records(index, place, found)
        place.go(place.size)
        found.last_seq = place.last_seq
    finally:
        place.close()
    return found


def _header(index: bytes, path: Path, port: str, found: CheckedFile) -> Header | None:
    header = unpack_header(index)
    if header is None:
        if index and not (found.is_open and len(index) < HEADER_BYTES):
            found.faults.append("the head of the index is damaged")
        return None
    if header.port != port:
        found.faults.append(f"the index is of port {header.port!r}")
        return None
    if header.first_seq != found.first_seq:
        found.faults.append(f"the index begins with L{header.first_seq}, the log's name says other")
        return None
    return header


def _compare_records(index: bytes, place: LogWalk, found: CheckedFile) -> None:
    """Walk through log and index at once and note what does not agree."""
    damaged: list[int] = []
    lost: Counter[str] = Counter()
    crashes = 0
    point: Record | None = None
    torn = (len(index) - HEADER_BYTES) % RECORD_BYTES if index else 0
    for number, record in _records(index):
        found.records += 1
        if record is None:
            damaged.append(number)
            continue
        if fault := _fault_of(record, point, place):
            found.faults.append(f"record {number} ({record.kind.name}): {fault}")
        elif record.kind is Kind.POINT:
            if not damaged:
                _note_distance(point, record.offset, found)
            point = record
        elif record.kind is Kind.CUT:
            found.is_ended = True
            crashes += record.aux == Cut.CRASH
        elif record.kind is Kind.GAP:
            lost[_place(record.flags)] += record.aux
            if not record.aux:
                found.notes.append(f"bytes were lost at L{record.seq}, it is not known how many")
    if damaged:
        found.faults.append(
            f"{len(damaged)} of {found.records} records are damaged, the first is {damaged[0]}"
        )
    if torn and not found.is_open:
        found.faults.append(f"the last record is torn ({torn} bytes of {RECORD_BYTES})")
    if index and not damaged and not found.is_open:
        _note_distance(point, place.size, found)
    found.notes += [f"{count} bytes were lost ({where})" for where, count in lost.items() if count]
    if crashes:
        found.notes.append("the daemon or the PC crashed at its end")


def _fault_of(record: Record, point: Record | None, place: LogWalk) -> str:
    """Return what a whole record says that the log does not, "" if they agree."""
    if record.offset > place.size or (record.offset == place.size and record.kind is Kind.POINT):
        missing = record.offset - place.size + (record.kind is Kind.POINT)
        return f"it is at byte {record.offset}: the log ends {missing} bytes before"
    if record.kind not in (Kind.POINT, Kind.CUT):
        return ""  # boots and markers are told a while after their line
    if record.offset < place.offset:
        return f"it is at byte {record.offset}, one before it at {place.offset}"
    if point is not None and record.kind is Kind.POINT and record.mono_ns < point.mono_ns:
        return "its time is before that of the record before"
    place.go(record.offset)
    if record.kind is Kind.CUT:
        if record.offset != place.size:
            return f"the file ends there, but has {place.size - record.offset} bytes more"
        if record.seq != place.last_seq + 1:
            return f"it says that L{record.seq - 1} is the last line, the log says {place.last_seq}"
        return ""
    seq, is_start = place.line()
    if record.seq != seq:
        return f"it says L{record.seq} where the log has L{seq}"
    if bool(record.flags & LINE_START) and not is_start:
        return f"it says that L{seq} begins at byte {record.offset}, where none does"
    return ""


def _note_distance(point: Record | None, offset: int, found: CheckedFile) -> None:
    behind = offset - (point.offset if point else 0)
    if behind > POINT_EVERY + 1:
        at = point.offset if point else 0
        found.faults.append(f"{behind} bytes from byte {at} on have no record: times are missing")


def _compare(before: CheckedFile, after: CheckedFile) -> None:
    """Note what does not fit between two files."""
    due = before.last_seq + 1
    if after.first_seq < due:
        after.faults.append(
            f"it begins with L{after.first_seq}, the file before ends with L{before.last_seq}"
        )
    elif after.first_seq > due:
        after.notes.append(f"L{due} to L{after.first_seq - 1} are not in the log")


def _mended(path: Path, port: str) -> tuple[bytes, int]:
    """Return an index that agrees with the log, and how many records of the old one are in it."""
    try:
        index = path.with_suffix(".idx").read_bytes()
    except FileNotFoundError:
        index = b""
    first_seq = first_seq_of(path)
    header = unpack_header(index)
    if header is not None and (header.port != port or header.first_seq != first_seq):
        index, header = b"", None
    fresh = rebuilt_index(path, port)
    made = unpack_header(fresh)
    assert made is not None
    if header is not None:
        made = header
    kept = _agreeing(path, made, index)
    if not any(record.kind is Kind.POINT for record in kept):
        estimated = [record for _, record in _records(fresh) if record is not None]
        records = sorted([*estimated, *kept], key=lambda record: record.offset)
    else:
        records = _filled(path, made, kept)
    body = b"".join(
        pack_record(r.kind, r.flags, r.aux, r.offset, r.seq, r.utc_ns, r.mono_ns) for r in records
    )
    return pack_header(made) + body + _end(path, made, records), len(kept)


def _agreeing(path: Path, header: Header, index: bytes) -> list[Record]:
    """Return the records that are whole and right."""
    place, point = LogWalk(path, header), None
    kept: list[Record] = []
    try:
        for _, record in _records(index):
            if record is None or _fault_of(record, point, place):
                continue
            kept.append(record)
            if record.kind is Kind.POINT:
                point = record
    finally:
        place.close()
    return kept


def _filled(path: Path, header: Header, kept: list[Record]) -> list[Record]:
    """Put estimated POINTs where those that were there are gone."""
    first = next(record for record in kept if record.kind is Kind.POINT)
    begun = min(begun_utc_ns(path), first.utc_ns)
    anchor = Record(
        Kind.POINT, 0, 0, 0, header.first_seq, begun, first.mono_ns - (first.utc_ns - begun)
    )
    before, records = anchor, []
    size, changed_ns = path.stat().st_size, path.stat().st_mtime_ns
    last = max(kept, key=lambda record: record.mono_ns)
    ended_ns = last.mono_ns + max(changed_ns - last.utc_ns, 0)
    ends = [record for record in kept if record.kind is Kind.CUT][:1]
    stop = Record(Kind.CUT, 0, 0, size, 0, 0, ended_ns)
    for old in [*(record for record in kept if record.kind is not Kind.CUT), stop]:
        record = old
        is_end = record.kind is Kind.CUT
        if is_end or record.kind is Kind.POINT:
            at_start = before is anchor and record.offset > 0
            if record.offset - before.offset > POINT_EVERY + 1 or (at_start and not is_end):
                made = _estimated(path, header, anchor, before, record, with_first=at_start)
                records += made
                if made and record.kind is Kind.POINT:
                    lasted_us = max(record.mono_ns - made[-1].mono_ns, 0) // 1000
                    record = replace(record, aux=lasted_us, flags=record.flags | ESTIMATED)
            if record.kind is Kind.POINT:
                before = record
                if record.flags & LINE_START:
                    anchor = record
        records.append(record)
    return [*records[:-1], *ends]


def _estimated(
    path: Path, header: Header, anchor: Record, after: Record, before: Record, *, with_first: bool
) -> list[Record]:
    """Return POINTs between `after` and `before`; lines are counted from `anchor` on."""
    with path.open("rb") as file:
        file.seek(anchor.offset)
        data = file.read(before.offset - anchor.offset)
    indexer = Indexer(header.eol, anchor.seq, anchor.offset, ESTIMATED)
    lasts_ns = max(before.mono_ns, anchor.mono_ns)
    made = indexer.add(data, anchor.mono_ns, lasts_ns, anchor.utc_ns)
    lowest = after.offset - with_first
    found = (
        unpack_record(made[at : at + RECORD_BYTES]) for at in range(0, len(made), RECORD_BYTES)
    )
    return [r for r in found if r is not None and lowest < r.offset < before.offset]


def _end(path: Path, header: Header, records: list[Record]) -> bytes:
    """Return the record that ends the file if there is none."""
    if any(record.kind is Kind.CUT for record in records):
        return b""
    place = LogWalk(path, header)
    try:
        place.go(place.size)
        seq = place.last_seq + 1
    finally:
        place.close()
    points = [record for record in records if record.kind is Kind.POINT]
    last = points[-1] if points else Record(Kind.POINT, 0, 0, 0, 0, begun_utc_ns(path), 0)
    lasted_ns = max(path.stat().st_mtime_ns - last.utc_ns, 0)
    return pack_record(
        Kind.CUT,
        ESTIMATED,
        Cut.CRASH,
        place.size,
        seq,
        last.utc_ns + lasted_ns,
        last.mono_ns + lasted_ns,
    )


def _records(index: bytes) -> Iterator[tuple[int, Record | None]]:
    """Yield the records of an index with their numbers, None for damaged ones."""
    for number in range((len(index) - HEADER_BYTES) // RECORD_BYTES):
        at = HEADER_BYTES + number * RECORD_BYTES
        yield number, unpack_record(index[at : at + RECORD_BYTES])


def _place(flags: int) -> str:
    try:
        return {
            Place.UART: "in the UART",
            Place.TTY: "in the kernel",
            Place.LOG: "on the way to the disk",
            Place.CLIENT: "on the way to a viewer",
        }[Place(flags)]
    except ValueError:
        return "somewhere"
