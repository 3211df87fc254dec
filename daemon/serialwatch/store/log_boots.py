"""Where the boots of a log are: the head of an index knows the boot that was before it."""

from __future__ import annotations

import contextlib
from bisect import bisect_left
from collections.abc import Iterator, Sequence
from itertools import takewhile

from serialwatch.store.log_format import Kind, Record
from serialwatch.store.saved_file import OpenFile, SavedFile


def boot_range(files: Sequence[SavedFile], wanted: int) -> tuple[int, int | None] | None:
    """Return the first and the last line of a boot, None if it is not in the log.

    `wanted`: its number, 0 the newest, -1 the one before. No last line: it is the newest. Of a
    boot whose beginning is gone it is the rest.
    """
    if wanted <= 0:
        newest = _newest(files)
        if not newest:
            return None
        wanted += newest
    first = None
    for number, seq in _boots_from(files, wanted):
        if first is not None:
            return first, seq - 1
        if number > wanted:
            return None
        if number == wanted:
            first = seq
    return None if first is None else (first, None)


def boot_numbers(files: Sequence[SavedFile]) -> tuple[int, int] | None:
    """Return the numbers of the oldest and the newest boot, None if there is none."""
    oldest = next(_boots_from(files, 0), None)
    return None if oldest is None else (oldest[0], _newest(files))


def boots_of(files: Sequence[SavedFile], index: int, opened: OpenFile) -> list[tuple[int, int]]:
    """Return (first line, number) of the boots of a file that is open, in order."""
    notes = _own(files, index, opened)
    if index + 1 < len(files):
        # A boot is told a moment after its line: perhaps when the next file had begun.
        following = files[index + 1]
        with contextlib.suppress(FileNotFoundError), following.open() as other:
            notes += [n for n in _own(files, index + 1, other) if n.seq < following.first_seq]
    return [(0, opened.header.boot), *sorted((note.seq, note.aux) for note in notes)]


def _own(files: Sequence[SavedFile], index: int, opened: OpenFile) -> list[Record]:
    """Return the records of boots in an index, which may be large: none are looked for in vain."""
    if index + 1 < len(files):
        head = files[index + 1].head()
        if head is not None and any(head.boot_id) and head.boot == opened.header.boot:
            return _first_notes(opened)
    return [note for _, note in opened.file.notes(opened) if note.kind is Kind.BOOT]


def _first_notes(opened: OpenFile) -> list[Record]:
    """Return the records of boots before the first byte: the head of the index knows them, too."""
    records = (record for _, record in opened.records_from(0))
    notes = takewhile(lambda record: record.kind is not Kind.POINT, records)
    return [note for note in notes if note.kind is Kind.BOOT]


def _boots_from(files: Sequence[SavedFile], number: int) -> Iterator[tuple[int, int]]:
    """Yield number and first line of the boots from `number` on, and perhaps of some before it."""
    begin = max(bisect_left(range(len(files)), number, key=lambda n: _before(files, n)) - 1, 0)
    known = 0
    if begin == 0 and (known := _before(files, 0)):
        yield known, files[0].first_seq
    for index in range(begin, len(files)):
        with contextlib.suppress(FileNotFoundError), files[index].open() as opened:
            for note in _own(files, index, opened):
                if note.aux != known:
                    yield note.aux, note.seq


def _newest(files: Sequence[SavedFile]) -> int:
    """Return the number of the newest boot, 0 if there is none."""
    for index in range(len(files) - 1, -1, -1):
        with contextlib.suppress(FileNotFoundError), files[index].open() as opened:
            notes = _own(files, index, opened)
            if notes or opened.header.boot:
                return notes[-1].aux if notes else opened.header.boot
    return 0


def _before(files: Sequence[SavedFile], index: int) -> int:
    """Return the boot that was the newest when a file began, as far as that is known."""
    for earlier in range(index, -1, -1):
        head = files[earlier].head()
        if head is not None and head.boot:
            return head.boot
    return 0
