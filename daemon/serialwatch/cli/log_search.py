"""The lines of a log that match a regular expression, without reading all that cannot."""

from __future__ import annotations

import re
import signal
from collections import deque
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from types import FrameType
from typing import TYPE_CHECKING

from serialwatch.api.logs import LogQuery
from serialwatch.cli.errors import WRONG_USE, CliError
from serialwatch.cli.escapes import line_text
from serialwatch.line import Line

if TYPE_CHECKING:
    from serialwatch.cli.log_source import LogSource

_LEAST = 3  # characters of a text that is worth looking for
_STEP = 20_000  # lines that are asked for at first, from the end; then ever more
_MOST_AT_ONCE = 10_000_000
LIMIT_S = 1.0  # of CPU time for one line, to twice of it: a million times what one takes


class LinePattern:
    """A person's regular expression: tried on a line's bytes and on what is shown of them.

    For the main thread: there a search that never ends can be ended.
    """

    def __init__(self, pattern: re.Pattern[bytes], text: str) -> None:
        self.pattern = pattern
        self._text = text
        self._is_searching = False
        self._searched = 0  # lines
        self._searched_before = 0  # when the timer rang last

    @contextmanager
    def limited(self) -> Iterator[None]:
        """Let no line take much longer than `LIMIT_S`."""
        before = signal.signal(signal.SIGVTALRM, self._rung)
        signal.setitimer(signal.ITIMER_VIRTUAL, LIMIT_S, LIMIT_S)
        try:
            yield
        finally:
            signal.setitimer(signal.ITIMER_VIRTUAL, 0)
            signal.signal(signal.SIGVTALRM, before)

    def matches(self, line: Line) -> bool:
        """Tell whether a line matches.

        Raises:
            CliError: that takes too long.

        """
        self._searched += 1
        self._is_searching = True
        try:
            return self._is_in(line.raw)
        except _TooSlowError:
            raise CliError(
                f"--grep {self._text}: takes too long on {line.port}:L{line.seq}, a line of "
                f"{len(line.raw):,} bytes: avoid repeats within repeats, such as (a+)+",
                WRONG_USE,
            ) from None
        finally:
            self._is_searching = False

    def _is_in(self, raw: bytes) -> bool:
        if self.pattern.search(raw):
            return True
        if raw.isascii() and raw.decode("ascii").isprintable():
            return False  # it is shown as it is
        return self.pattern.search(line_text(raw, colour=False).encode()) is not None

    def _rung(self, _number: int, _frame: FrameType | None) -> None:
        if self._is_searching and self._searched == self._searched_before:
            raise _TooSlowError
        self._searched_before = self._searched


class _TooSlowError(Exception):
    """A search was ended."""


def matching(
    source: LogSource, port: str, query: LogQuery, pattern: LinePattern, limit: int | None
) -> Iterator[Line]:
    """Yield the newest `limit` lines that match, or all of them; oldest first."""
    wanted = replace(query, text=required_text(pattern.pattern))
    if limit is None:
        yield from filter(pattern.matches, source.lines(port, wanted))
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
        found.extendleft(reversed(deque(filter(pattern.matches, lines), limit - len(found))))
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
