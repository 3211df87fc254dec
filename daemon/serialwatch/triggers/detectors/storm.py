"""One line over and over, and a port full to the brim with it."""

from __future__ import annotations

import re
from collections import Counter
from dataclasses import dataclass

from serialwatch.titles import readable
from serialwatch.triggers.detectors.fault import Fault
from serialwatch.triggers.moments import S
from serialwatch.triggers.ruleset import StormDetector

_FIRST, _LAST = 8, 40  # which lines of a second are looked at: a sample of 32
_SAMPLE = _LAST - _FIRST
_BITS_PER_BYTE = 10  # start, eight, stop
_MOST = 0.5  # part of the lines that makes a full port a storm of one line
_NO_SHAPE = b"0123456789abcdefABCDEFxX#"  # lines of one shape agree in all the rest
# Tried once a run: a line may be 16 KiB of one letter.
_NUMBER = re.compile(rb"(?<![0-9a-fA-F])(?:0x)?[a-fA-F]*+[0-9][0-9a-fA-F]*+")
_ABOUT_INTERRUPTS = re.compile(rb"(?i)(?:\b|_)irqs?(?:\b|_|#)|\binterrupts?\b")


@dataclass(frozen=True, slots=True)
class Second:
    """What came in one second, judged by a sample of its lines."""

    number: int  # CLOCK_MONOTONIC, whole seconds
    rx_bytes: int
    shape: bytes  # of the most frequent line, numbers left out
    line: bytes  # one of these, as it was
    seq: int  # of that one
    lines_per_s: float  # of that shape
    share: float  # of all lines

    @property
    def is_about_interrupts(self) -> bool:
        """Tell whether the most frequent line speaks of interrupts."""
        return bool(_ABOUT_INTERRUPTS.search(self.line))


class LineRates:
    """Counts lines by the second; most seconds cost two additions a chunk."""

    def __init__(self) -> None:
        self.least_per_s = 0.0  # lines of one shape; below that nobody wants to know
        self._number = -1
        self._lines = 0
        self._bytes = 0
        self._sample: list[bytes] = []  # lines,
        self._seqs: list[int] = []  # and where each of them stands

    def fed(self, first_seq: int, count: int, view: bytes, mono_ns: int) -> Second | None:
        """Take a chunk; return the second before it if that is over and worth a look."""
        over = None
        number = mono_ns // S
        if number != self._number:
            over = self._close()
            self._number = number
        before = self._lines
        self._lines = after = before + count
        self._bytes += len(view)
        if before < _LAST and after > _FIRST:
            skipped = max(0, _FIRST - before)
            end = min(count, _LAST - before)
            self._sample += view.split(b"\n", end)[skipped:end]
            self._seqs += range(first_seq + skipped, first_seq + end)
        return over

    def tick(self, mono_ns: int) -> Second | None:
        """Return the second that is over and worth a look, once."""
        if self._lines and mono_ns // S != self._number:
            return self._close()
        return None

    def _close(self) -> Second | None:
        lines, rx_bytes, sample, seqs = self._lines, self._bytes, self._sample, self._seqs
        if not lines:
            return None
        self._lines = self._bytes = 0
        if not sample:
            return None
        self._sample, self._seqs = [], []
        size = len(sample)
        kinds = set(b"\n".join(sample).translate(None, _NO_SHAPE).split(b"\n"))
        most = (size - len(kinds) + 1) / size
        if most < _MOST and most * lines <= self.least_per_s:
            return None  # a cheap look is enough, nearly always
        shapes = [_NUMBER.sub(b"#", line) for line in sample]
        shape, times = Counter(shapes).most_common(1)[0]
        index, share = shapes.index(shape), times / size
        return Second(
            self._number, rx_bytes, shape, sample[index], seqs[index], share * lines, share
        )


class Storm:
    """Fires once a storm."""

    def __init__(self, told: StormDetector, bit_rate: int | None) -> None:
        self.told = told
        self._bit_rate = bit_rate
        self._shape = b""
        self._repeating_s = 0
        self._full_s = 0
        self._last = -1
        self._first_seq = 0
        self._has_fired = False

    def passed(self, second: Second, *, is_quiet: bool) -> Fault | None:
        """Take a second that had lines worth a look."""
        told = self.told
        if second.number != self._last + 1 or second.shape != self._shape:
            self._begin(second)
        self._last = second.number
        load = second.rx_bytes * _BITS_PER_BYTE / self._bit_rate if self._bit_rate else 0.0
        self._repeating_s = self._repeating_s + 1 if second.lines_per_s > told.lines_per_s else 0
        is_full = load >= told.load and second.share >= _MOST
        self._full_s = self._full_s + 1 if is_full else 0
        if not (self._repeating_s or self._full_s):
            self._begin(second)
        is_storm = self._repeating_s >= told.shape_s or self._full_s >= told.load_s
        if not is_storm or self._has_fired or is_quiet:
            return None
        self._has_fired = True
        return self._fault(second, load)

    def _begin(self, second: Second) -> None:
        self._shape = second.shape
        self._first_seq = second.seq
        self._repeating_s = self._full_s = 0
        self._has_fired = False

    def _fault(self, second: Second, load: float) -> Fault:
        line = readable(second.line)
        full = f", {load:.0%} of the bit rate" if load >= self.told.load else ""
        return Fault(
            detector=self.told,
            severity=self.told.severity,
            title=f"one line {second.lines_per_s:.0f} times a second{full}: {line}",
            key=second.shape.decode("ascii", errors="replace")[:120],
            seq=second.seq,
            first_seq=self._first_seq,
            raw=second.line,
            fields={"line": line[:120], "per_s": f"{second.lines_per_s:.0f}"},
        )
