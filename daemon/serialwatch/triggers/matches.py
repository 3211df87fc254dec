"""The lines of a chunk, and the parts of a line, in which something matches."""

from __future__ import annotations

from collections.abc import Iterable, Iterator


def lines_with(
    view: bytes, hits: Iterable[tuple[int, int]]
) -> list[tuple[int, int, int, list[int]]]:
    """Return where the lines in which something was found start and end, the first hit, all ids."""
    found: list[tuple[int, int, int, list[int]]] = []
    line_end = -1
    for first, (number, end) in enumerate(hits):
        if end > line_end:
            start = view.rfind(b"\n", line_end if found else 0, end) + 1
            line_end = view.find(b"\n", end)
            ids = [number]
            found.append((start, line_end, first, ids))
        else:
            ids.append(number)
    return found


def parts_with(
    view: bytes, start: int, line_end: int, hits: Iterable[tuple[int, int]]
) -> Iterator[tuple[slice, int, list[tuple[int, int]]]]:
    """Cut a line at its CRs: a console that is not known yet to end lines so has many in one.

    Each part in which something was found comes with its number and what was found there.
    """
    begun, number = start, 0
    part_end = -1
    there: list[tuple[int, int]] = []
    for hit in hits:
        end = hit[1]
        if end - 1 > part_end:  # a `$` takes the CR behind it
            if there:
                yield slice(begun, part_end), number, there
            next_begun = max(begun, view.rfind(b"\r", begun, end - 1) + 1)
            number += view.count(b"\r", begun, next_begun)
            begun, there = next_begun, []
            part_end = view.find(b"\r", end - 1, line_end)
            part_end = line_end if part_end < 0 else part_end
        there.append(hit)
    if there:
        yield slice(begun, part_end), number, there
