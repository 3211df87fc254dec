"""Questions about a port's log, answered within limits of time and size."""

from __future__ import annotations

import re
import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from typing import Protocol

from serialwatch.agent.text.device_text import readable, shortened
from serialwatch.agent.text.line_shape import Remembered, level_of, shape, untimed
from serialwatch.records import SEVERITIES, Line, Severity
from serialwatch.store.log_reader import LogGap

MAX_SCANNED = 200_000  # lines looked at for one answer
MAX_SERVED = 2_000  # lines in one answer, folded ones included
MAX_SHAPES = 5_000  # told apart; what comes later is counted as a line only
MAX_CHARS = 500  # of a line in an answer
SCAN_S = 1.0  # for numbers
PAGE_S = 0.3  # for lines, which come in pages: other runs wait no longer for theirs

_CHECK = 256  # lines between two looks at the clock


class LogView(Protocol):
    """A port's log, as `serialwatch.store.log_reader.PortLog` has it."""

    def refresh(self) -> None:
        """See what was written since."""

    def bounds(self) -> tuple[int, int] | None:
        """Return the first and the last line number, None if there is no line."""

    def lines(
        self,
        first: int | None = None,
        last: int | None = None,
        limit: int | None = None,
        reverse: bool = False,
    ) -> Iterator[Line]:
        """Yield lines in order of their numbers, or against it."""

    def stretches(
        self, words: Sequence[bytes], first: int, last: int, reverse: bool = False
    ) -> Iterator[tuple[int, int, bool]]:
        """Yield (first, last, whether one of `words` may stand there), side by side, in order."""

    def seq_at(self, utc_ns: int) -> int | None:
        """Return the number of the first line at or after a time."""

    def last_seq_at(self, utc_ns: int) -> int | None:
        """Return the number of the last line at or before a time."""

    def boots(self) -> list[tuple[int, int, int]]:
        """Return (number, first line, UTC ns) of each boot, oldest first."""

    def gaps(self) -> list[LogGap]:
        """Return where bytes are missing, oldest first."""


@dataclass(frozen=True, slots=True)
class LineFilter:
    """Which lines of a range are meant."""

    level: Severity | None = None
    alternatives: tuple[tuple[bytes, ...], ...] = ()  # lower-case words; all of one must occur
    level_of: Remembered[Severity] = field(
        default_factory=lambda: Remembered(_level_of), compare=False, repr=False
    )

    def passes(self, line: Line) -> bool:
        """Return whether the line is meant."""
        if self.alternatives:
            raw = line.raw.lower()
            if not any(all(word in raw for word in words) for words in self.alternatives):
                return False
        if self.level is None:
            return True
        raw = line.raw[:MAX_CHARS]
        # A level such as <3> is a digit that tells.
        level = _level_of(raw) if b"<" in raw else self.level_of(raw)
        return SEVERITIES.index(level) >= SEVERITIES.index(self.level)

    @property
    def telling(self) -> tuple[bytes, ...]:
        """Return words of which a line that is meant has at least one."""
        return tuple(max(words, key=len) for words in self.alternatives)


@dataclass(frozen=True, slots=True)
class LogRange:
    """Lines `first` to `last`; read from the end if only the end matters."""

    first: int
    last: int
    is_backward: bool


@dataclass(frozen=True, slots=True)
class Row:
    """A line of an answer, or several that say the same."""

    seq: int
    last_seq: int
    times: int
    boot: int
    utc_ns: int  # of the first byte of the first line
    text: str
    last_utc_ns: int = 0  # of the last byte of a line that stood unfinished, as a prompt does


@dataclass(frozen=True, slots=True)
class LogSlice:
    """Lines that were asked for, oldest first."""

    rows: tuple[Row, ...]
    lines: tuple[Line, ...]  # every line behind the rows
    scanned: int
    next_first: int | None = None  # go on here: there is more after it
    next_last: int | None = None  # or before this one


@dataclass(frozen=True, slots=True)
class Shape:
    """Lines that differ in numbers only."""

    text: str
    count: int
    level: Severity  # of the first one that was met
    first: Line
    last: Line


@dataclass(frozen=True, slots=True)
class LogStats:
    """Numbers of a range."""

    first: int
    last: int
    lines: int
    bytes: int
    seconds: float
    peak_lines: int  # within one second
    peak_utc_ns: int  # beginning of that second
    silence_s: float  # the longest pause between two lines
    silence_after: int  # the line before it
    levels: dict[Severity, int]
    shapes: tuple[Shape, ...]  # most frequent first
    boots: tuple[tuple[int, int], ...]  # (boot, first line of it that was counted)
    is_complete: bool  # False: the limits ended it, `first` and `last` say where


def parse_match(match: str) -> tuple[tuple[bytes, ...], ...]:
    """Return the alternatives of a `match` text: words between spaces, `|` between alternatives."""
    split = (part.lower().split() for part in match.split("|"))
    return tuple(tuple(word.encode() for word in words) for words in split if words)


def parse_since(text: str, now_utc_ns: int, utc_ns: Callable[[str], int]) -> int:
    """Return a time given as `-10m` before now (s, m, h, d) or, through `utc_ns`, as a date.

    Raises:
        ValueError: neither.

    """
    if found := re.fullmatch(r"-(\d{1,6})([smhd])", text.strip()):
        seconds = int(found[1]) * {"s": 1, "m": 60, "h": 3600, "d": 86400}[found[2]]
        return now_utc_ns - seconds * 1_000_000_000
    return utc_ns(text)


def read_lines(view: LogView, where: LogRange, wanted: LineFilter, limit: int) -> LogSlice:
    """Return up to `limit` rows of the range."""
    rows: list[Row] = []
    served: list[Line] = []
    scanned, at = 0, None
    for line, seq in _looked_at(view, where, wanted):
        if line is not None:
            row = _row(line)
            if rows and _is_repeat(rows[-1], row):
                rows[-1] = _folded(rows[-1], row)
            elif len(rows) >= limit:
                break
            else:
                rows.append(row)
            served.append(line)
        scanned += abs(seq - at) if at is not None else 1
        at = seq
        if len(served) >= MAX_SERVED:
            break
    if where.is_backward:
        rows.reverse()
        served.reverse()
    more = at is not None and at != (where.first if where.is_backward else where.last)
    return LogSlice(
        tuple(rows),
        tuple(served),
        scanned,
        next_first=at + 1 if more and at and not where.is_backward else None,
        next_last=at - 1 if more and at and where.is_backward else None,
    )


def _looked_at(
    view: LogView, where: LogRange, wanted: LineFilter
) -> Iterator[tuple[Line | None, int]]:
    """Yield the lines that are meant, and (None, number) for what was looked at in vain.

    It ends with the range or when the limits are reached.
    """
    clock = _Clock(PAGE_S)
    back = where.is_backward
    whole = [(where.first, where.last, True)]
    stretches = (
        view.stretches(wanted.telling, where.first, where.last, back) if wanted.telling else whole
    )
    number = 0
    for first, last, may_be in stretches:
        lines = view.lines(first, last, reverse=back) if may_be else ()
        for line in lines:
            if number >= MAX_SCANNED or (number and number % _CHECK == 0 and clock.is_over()):
                return
            number += 1
            yield (line if wanted.passes(line) else None), line.seq
        yield None, first if back else last
        if clock.is_over():
            return


def read_stats(view: LogView, where: LogRange, wanted: LineFilter, limit: int) -> LogStats:
    """Return the numbers of the range, with its `limit` most frequent shapes."""
    tally = _Tally()
    clock = _Clock(SCAN_S)
    scanned, at = 0, None
    is_complete = True
    for line in view.lines(where.first, where.last, reverse=where.is_backward):
        if scanned >= MAX_SCANNED or (scanned % _CHECK == 0 and clock.is_over()):
            is_complete = False
            break
        if wanted.passes(line):
            tally.add(line)
        scanned, at = scanned + 1, line.seq
    first, last = where.first, where.last
    if not is_complete and at is not None:
        first, last = (at, last) if where.is_backward else (first, at)
    return tally.stats(first, last, limit, is_complete)


class _Clock:
    def __init__(self, limit_s: float) -> None:
        self._end = time.monotonic() + limit_s

    def is_over(self) -> bool:
        return time.monotonic() > self._end


@dataclass(slots=True)
class _Tally:
    lines: int = 0
    bytes: int = 0
    levels: Counter[Severity] = field(default_factory=Counter)
    seconds: Counter[int] = field(default_factory=Counter)  # lines by second
    shapes: dict[str, Shape] = field(default_factory=dict)
    shape_of: Remembered[str] = field(default_factory=lambda: Remembered(_shape_of))
    boots: dict[int, int] = field(default_factory=dict)
    silence_ns: int = 0
    silence_after: int = 0
    oldest: Line | None = None
    newest: Line | None = None
    previous: Line | None = None

    def add(self, line: Line) -> None:
        self.lines += 1
        self.bytes += len(line.raw) + 1
        self.seconds[line.utc_ns // 1_000_000_000] += 1
        self.boots[line.boot] = min(line.seq, self.boots.get(line.boot, line.seq))
        self._shape(line)
        if self.previous is not None:
            self._pause(*sorted((self.previous, line), key=lambda x: x.seq))
        self.previous = line
        if self.oldest is None or line.seq < self.oldest.seq:
            self.oldest = line
        if self.newest is None or line.seq > self.newest.seq:
            self.newest = line

    def _shape(self, line: Line) -> None:
        form = self.shape_of(line.raw[:MAX_CHARS])
        if (known := self.shapes.get(form)) is not None:
            # Lines come in one order: the new one is at one of the ends.
            first, last = (line, known.last) if line.seq < known.first.seq else (known.first, line)
            self.shapes[form] = Shape(form, known.count + 1, known.level, first, last)
            self.levels[known.level] += 1
            return
        level = level_of(readable(line.raw[:MAX_CHARS]))
        self.levels[level] += 1
        if form and len(self.shapes) < MAX_SHAPES:
            self.shapes[form] = Shape(form, 1, level, line, line)

    def _pause(self, before: Line, after: Line) -> None:
        pause = after.utc_ns - before.last_utc_ns
        if (pause, -before.seq) > (self.silence_ns, -self.silence_after):
            self.silence_ns, self.silence_after = pause, before.seq

    def stats(self, first: int, last: int, limit: int, is_complete: bool) -> LogStats:
        span = 0
        if self.oldest and self.newest:
            span = max(self.newest.last_utc_ns - self.oldest.utc_ns, 0)
        peak, peak_lines = max(self.seconds.items(), key=lambda s: (s[1], -s[0]), default=(0, 0))
        shapes = sorted(self.shapes.values(), key=lambda s: (-s.count, s.first.seq))
        return LogStats(
            first=first,
            last=last,
            lines=self.lines,
            bytes=self.bytes,
            seconds=round(span / 1e9, 3),
            peak_lines=peak_lines,
            peak_utc_ns=peak * 1_000_000_000,
            silence_s=round(self.silence_ns / 1e9, 3),
            silence_after=self.silence_after,
            levels={s: self.levels[s] for s in SEVERITIES if self.levels[s]},
            shapes=tuple(shapes[:limit]),
            boots=tuple(sorted(self.boots.items())),
            is_complete=is_complete,
        )


def _level_of(raw: bytes) -> Severity:
    return level_of(readable(raw))


def _shape_of(raw: bytes) -> str:
    return shape(readable(raw))


def _row(line: Line) -> Row:
    text = shortened(readable(line.raw), MAX_CHARS)
    last_utc_ns = line.last_utc_ns if line.stood_s else 0
    return Row(line.seq, line.seq, 1, line.boot, line.utc_ns, text, last_utc_ns)


def _is_repeat(before: Row, row: Row) -> bool:
    return before.boot == row.boot and untimed(before.text) == untimed(row.text)


def _folded(before: Row, row: Row) -> Row:
    early, late = sorted((before, row), key=lambda r: r.seq)
    return replace(early, last_seq=late.last_seq, times=before.times + row.times)
