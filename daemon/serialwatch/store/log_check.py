"""Holds the index of a log against the log, and each file against the one before.

What can be checked is what both say: the checksum of each record, where it points to, and which
line stands there. A log has no checksum of its own: bits that changed in it show only where a line
end came or went.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

from serialwatch.store.log_agreement import Agreement
from serialwatch.store.log_format import (
    HEADER_BYTES,
    POINT_EVERY,
    RECORD_BYTES,
    Cut,
    Header,
    Kind,
    Place,
    first_seq_of,
    log_files,
    unpack_header,
)
from serialwatch.store.log_left import left_behind
from serialwatch.store.log_repair import guessed_header, records_in

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
    missing: list[str] = field(default_factory=list)  # what is wrong between it and the one before
    notes: list[str] = field(default_factory=list)  # what is told but is in order
    is_open: bool = False  # a daemon is writing it
    is_unreadable: bool = False
    before_seq: int = 0  # the last line of the file before it, as it knows; 0: it does not
    is_hole_told: bool = False  # by what it says of its end
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
            before = None  # pruned meanwhile, as perhaps was the one before
            continue
        except OSError as exc:
            told = [f"cannot be read: {exc.strerror}"]
            found = CheckedFile(path, faults=told, is_unreadable=True)
            yield found
            before = None
            continue
        if not found.is_ended and not found.is_open and not is_newest:
            found.faults.append("the index does not say how the file ended")
        if before is not None:
            _compare(before, found)
        if is_newest and not is_live and (left := left_behind(folder)) is not None:
            found.notes.append(f"{left.gap.lost_bytes} bytes were lost behind it")
        yield found
        before = found
    for path in sorted(folder.glob("*.idx")):
        if not path.with_suffix(".log").exists():
            yield CheckedFile(path, faults=["an index without its log"])


def _check(path: Path, port: str, *, is_open: bool) -> CheckedFile:
    first_seq = first_seq_of(path)
    assert first_seq is not None
    found = CheckedFile(path, path.stat().st_size, first_seq=first_seq, is_open=is_open)
    try:
        index = path.with_suffix(".idx").read_bytes()
    except FileNotFoundError:
        index = None
    header = _header(index, port, found)
    with Agreement(path, header or guessed_header(path, port)) as agreement:
        if header is not None and index is not None:
            found.before_seq = header.before_seq
            _compare_records(index, agreement, found)
        agreement.walk.go(agreement.walk.size)
        found.last_seq = agreement.walk.last_seq
    return found


def _header(index: bytes | None, port: str, found: CheckedFile) -> Header | None:
    """Return the head of an index, None if it is not that of the log."""
    header = unpack_header(index or b"")
    if header is None:
        if not index:
            # A file has its head before its first byte. Nothing of it is on the disk yet, or any
            # more: a crash of the PC leaves files that are empty.
            if found.log_bytes:
                what = "there is no index" if index is None else "the index is empty"
                found.faults.append(f"{what}: when its bytes came is not known")
        elif found.log_bytes or not found.is_open:
            found.faults.append("the head of the index is damaged")
        return None
    if header.port != port:
        found.faults.append(f"the index is of port {header.port!r}")
        return None
    if header.first_seq != found.first_seq:
        found.faults.append(f"the index begins with L{header.first_seq}, the log's name says other")
        return None
    if header.before_seq >= header.first_seq:
        found.faults.append("the head of the index is damaged")
        return None
    return header


def _compare_records(index: bytes, agreement: Agreement, found: CheckedFile) -> None:
    """Walk through log and index at once and note what does not agree."""
    damaged: list[int] = []
    lost: Counter[str] = Counter()
    crashes = 0
    for number, record in enumerate(records_in(index)):
        found.records += 1
        if record is None:
            damaged.append(number)
            continue
        known = _known_bytes(agreement)
        if fault := agreement.fault(record):
            found.faults.append(f"record {number} ({record.kind.name}): {fault}")
        elif record.kind is Kind.POINT:
            if not damaged:
                _note_distance(known, record.offset, found)
        elif record.kind is Kind.CUT:
            found.is_ended = True
            crashes += record.aux == Cut.CRASH
            found.is_hole_told |= record.aux in (Cut.CRASH, Cut.GAP)
        elif record.kind is Kind.GAP:
            lost[_place(record.flags)] += record.aux
            found.is_hole_told |= record.flags == Place.LOG
            if not record.aux:
                found.notes.append(
                    f"bytes may have been lost before L{record.seq}, it is not known how many"
                )
    if damaged:
        found.faults.append(
            f"{len(damaged)} of {found.records} records are damaged, the first is {damaged[0]}"
        )
    torn = (len(index) - HEADER_BYTES) % RECORD_BYTES
    if torn and not found.is_open:
        found.faults.append(f"the last record is torn ({torn} bytes of {RECORD_BYTES})")
    if not damaged and not found.is_open:
        _note_distance(_known_bytes(agreement), agreement.walk.size, found)
    found.notes += [f"{count} bytes were lost ({where})" for where, count in lost.items() if count]
    if crashes:
        found.notes.append("the daemon or the PC crashed at its end")


def _known_bytes(agreement: Agreement) -> int:
    """Return up to where records tell when bytes came, -1 if no byte has one."""
    return -1 if agreement.point is None else agreement.point.offset


def _note_distance(known: int, offset: int, found: CheckedFile) -> None:
    first = max(known, 0)
    if offset - first > POINT_EVERY + 1 or (known < 0 and offset > 0):
        found.faults.append(
            f"{offset - first} bytes from byte {first} on have no record: times are missing"
        )


def _compare(before: CheckedFile, after: CheckedFile) -> None:
    """Note what does not fit between two files."""
    due = before.last_seq + 1
    if after.first_seq < due:
        after.missing.append(
            f"it begins with L{after.first_seq}, the file before ends with L{before.last_seq}"
        )
    elif after.before_seq > before.last_seq:
        after.missing.append(
            f"L{due} to L{after.before_seq} are missing: a file before it was deleted or cut"
        )
    elif after.first_seq > due:
        lines = f"L{due} to L{after.first_seq - 1} are not in the log"
        if not after.before_seq and not before.is_hole_told and not after.is_hole_told:
            lines += ": a file between them was lost, or the daemon crashed"
        after.notes.append(lines)


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
