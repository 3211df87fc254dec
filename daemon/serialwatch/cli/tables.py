"""Columns for people: no boxes, colour for severity only, and 80 columns are enough."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from dataclasses import dataclass

from rich.cells import cell_len, set_cell_size
from rich.console import Console
from rich.text import Text

from serialwatch.spelling import show

SEVERITY_STYLES = {"critical": "bold red", "error": "red", "warning": "yellow", "note": ""}

KEPT_SPACE = "\N{NO-BREAK SPACE}"  # where `wrapped` must not break; it prints a common one

_GAP = "  "
_LEAST_AT_ALL = 8  # columns that every column keeps


@dataclass(frozen=True, slots=True)
class Column:
    """A column; in a narrow terminal it may become shorter, or go."""

    title: str
    is_right: bool = False  # numbers
    least: int = 0  # characters it may be shortened to; 0: it is not
    leaves: int = 0  # order in which columns are left out, 1 first; 0: never


@dataclass(frozen=True, slots=True)
class Row:
    """A row, perhaps with a line of its own below it."""

    cells: tuple[str, ...]
    note: str = ""
    styles: tuple[str, ...] = ()  # of the cells; shorter than them: the rest has none


def console() -> Console:
    """Return the terminal or pipe that a command prints to: colour only where it can be seen."""
    return Console(file=sys.stdout, highlight=False, markup=False, emoji=False, soft_wrap=True)


def say(words: str) -> None:
    """Print a sentence, in a terminal broken between words."""
    out = console()
    for line in wrapped("", words, width_of(out)):
        out.print(line)


def width_of(out: Console) -> int | None:
    """Return how many columns there are, None in a pipe, where nothing is cut."""
    return out.width if out.is_terminal else None


def table(columns: Sequence[Column], rows: Sequence[Row], width: int | None) -> list[Text]:
    """Lay out a table with its headings; None for `width`: as wide as it gets."""
    kept = list(range(len(columns)))
    widths = _natural(columns, rows)
    while width is not None and _total(kept, widths) > width:
        over = _total(kept, widths) - width
        if _shorten(columns, kept, widths, over):
            continue
        if _leave_out(columns, kept):
            widths = _natural(columns, rows)  # what it leaves may be more than is needed
        elif not _shorten_widest(kept, widths, over):
            break
    lines = [_line(columns, kept, widths, tuple(c.title for c in columns), ())]
    for row in rows:
        lines.append(_line(columns, kept, widths, row.cells, row.styles))
        if row.note:
            lines += wrapped(" " * (widths[0] + len(_GAP)), row.note, width)
    return lines


def amount(number: int) -> str:
    """Return a number in four characters or so: `812`, `48.2k`, `1.9M`."""
    for limit, unit in ((1_000_000_000, "G"), (1_000_000, "M"), (1000, "k")):
        if number >= 100 * limit:
            return f"{number // limit}{unit}"
        if number >= limit:
            return f"{number / limit:.1f}{unit}"
    return str(number)


def counted(number: int, thing: str) -> str:
    """Return e.g. `1,204 lines`."""
    return f"{number:,} {plural(number, thing)}"


def plural(number: int, thing: str) -> str:
    """Return the word for so many of a thing."""
    return thing if number == 1 else f"{thing}s"


def safe(text: object) -> str:
    """Return text that came from elsewhere without anything that could steer a terminal."""
    try:
        raw = str(text).encode("utf-8", errors="surrogateescape")  # a file's name may be any bytes
    except UnicodeEncodeError:
        raw = str(text).encode("utf-8", errors="backslashreplace")
    return show(raw)


def shorten(text: str, width: int) -> str:
    """Return text in at most `width` cells, the last one an ellipsis if something is missing."""
    if cell_len(text) <= width:
        return text
    return set_cell_size(text, width - 1).rstrip() + "…"


def wrapped(first: str, text: str, width: int | None, style: str = "") -> list[Text]:
    """Lay out text behind `first`, further lines under its beginning; None: in one line."""
    indent = cell_len(first)
    if width is None:
        return [Text.assemble(first, (text.replace(KEPT_SPACE, " "), style))]
    rows: list[str] = [""]
    for word in text.split(" "):
        longer = f"{rows[-1]} {word}" if rows[-1] else word
        if rows[-1] and cell_len(longer.rstrip()) > width - indent:
            rows.append(word)
        else:
            rows[-1] = longer
    starts = [first, *[" " * indent] * (len(rows) - 1)]
    return [
        Text.assemble(start, (row.rstrip().replace(KEPT_SPACE, " "), style))
        for start, row in zip(starts, rows, strict=True)
    ]


def _natural(columns: Sequence[Column], rows: Sequence[Row]) -> list[int]:
    return [
        max([cell_len(column.title), *(cell_len(row.cells[i]) for row in rows)])
        for i, column in enumerate(columns)
    ]


def _total(kept: Sequence[int], widths: Sequence[int]) -> int:
    return sum(widths[i] for i in kept) + len(_GAP) * (len(kept) - 1)


def _shorten(columns: Sequence[Column], kept: Sequence[int], widths: list[int], over: int) -> bool:
    """Take from the columns that may be shorter; tell whether one could give something."""
    for i in kept:
        least = columns[i].least
        if least and widths[i] > least:
            widths[i] = max(least, widths[i] - over)
            return True
    return False


def _shorten_widest(kept: Sequence[int], widths: list[int], over: int) -> bool:
    widest = max(kept, key=lambda i: widths[i])
    if widths[widest] <= _LEAST_AT_ALL:
        return False
    widths[widest] = max(_LEAST_AT_ALL, widths[widest] - over)
    return True


def _leave_out(columns: Sequence[Column], kept: list[int]) -> bool:
    leaving = [i for i in kept if columns[i].leaves]
    if not leaving:
        return False
    kept.remove(min(leaving, key=lambda i: columns[i].leaves))
    return True


def _line(
    columns: Sequence[Column],
    kept: Sequence[int],
    widths: Sequence[int],
    cells: Sequence[str],
    styles: Sequence[str],
) -> Text:
    line = Text()
    for place, i in enumerate(kept):
        cell = shorten(cells[i], widths[i])
        pad = " " * (widths[i] - cell_len(cell))
        is_last = place == len(kept) - 1
        if columns[i].is_right:
            line.append(pad)
        line.append(cell, styles[i] if i < len(styles) else "")
        if not columns[i].is_right and not is_last:
            line.append(pad)
        if not is_last:
            line.append(_GAP)
    return line
