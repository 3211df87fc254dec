"""The lines of a log that match a regular expression, without reading all that cannot."""

from __future__ import annotations

import re
from collections import deque
from collections.abc import Iterator
from dataclasses import replace
from typing import TYPE_CHECKING

from serialwatch.api.logs import LogQuery
from serialwatch.line import Line

if TYPE_CHECKING:
    from serialwatch.cli.log_source import LogSource

_LEAST = 3  # characters of a text that is worth looking for
_STEP = 20_000  # lines that are asked for at first, from the end; then ever more
_MOST_AT_ONCE = 10_000_000


def matching(
    source: LogSource, port: str, query: LogQuery, pattern: re.Pattern[bytes], limit: int | None
) -> Iterator[Line]:
    """Yield the newest `limit` lines that match, or all of them; oldest first."""
    wanted = replace(query, text=required_text(pattern))
    if limit is None:
        yield from _of(source.lines(port, wanted), pattern)
        return
    oldest = next(iter(source.lines(port, query)), None)
    newest = next(iter(source.lines(port, replace(query, newest=1))), None)
    if oldest is None or newest is None:
        return
    found: deque[Line] = deque()
    last, step = newest.seq, _STEP
    while last >= oldest.seq and len(found) < limit:
        first = max(oldest.seq, last - step + 1)
        lines = source.lines(port, replace(wanted, first=first, last=last))
        found.extendleft(reversed(deque(_of(lines, pattern), limit - len(found))))
        last, step = first - 1, min(step * 4, _MOST_AT_ONCE)
    yield from found


def required_text(pattern: re.Pattern[bytes]) -> bytes:
    """Return a text that every match holds, b"" if none is known: to look for it is quick."""
    from serialwatch.triggers.pattern_tree import PatternError, parse

    if pattern.flags & (re.IGNORECASE | re.VERBOSE):
        return b""
    try:
        tree = parse(pattern.pattern.decode())
    except (PatternError, UnicodeDecodeError):
        return b""
    if len(tree.root.branches) != 1:
        return b""
    runs = [""]
    for item in tree.root.branches[0]:
        character = "" if item.repeat else getattr(item.what, "literal", "")
        if character:
            runs[-1] += character
        else:
            runs.append("")
    longest = max(runs, key=len)
    return longest.encode() if len(longest) >= _LEAST else b""


def _of(lines: Iterator[Line], pattern: re.Pattern[bytes]) -> Iterator[Line]:
    return (line for line in lines if pattern.search(line.raw))
