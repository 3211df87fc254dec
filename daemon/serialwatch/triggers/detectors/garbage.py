"""Bytes that are no text: another bit rate, noise, or a boot ROM with a rate of its own."""

from __future__ import annotations

import re
from collections import deque
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from typing import Literal

from serialwatch.records import Lines
from serialwatch.titles import readable
from serialwatch.triggers.detectors.bit_rate import Guess, guess, prepare
from serialwatch.triggers.detectors.fault import Fault
from serialwatch.triggers.moments import S
from serialwatch.triggers.patterns import LineView, compile_pattern
from serialwatch.triggers.ruleset import BitRateDetector, GarbageDetector

_CONTROLS = bytes({*range(0x20), 0x7F} - set(b"\a\b\t\n\r\x1b"))
_LOST = "\ufffd"  # what stands for bytes that a program before us could not read
_LOST_RAW = _LOST.encode()
_PER_ESCAPE = 12  # bytes that an escape has at most, or else the text is looked at closely
_MOST = 4096  # bytes of a line that are looked at
_BAD = 0.3  # part of a line that is no text: garbage
_CLEAN = 0.1  # at most: text
_BAD_LEAST = 3  # characters; fewer are a glitch
_CLEAN_LEAST = 8  # without spaces
_WORD = re.compile(
    rb"(?:^|[\s\[(<>=,:;\"'-])(?:[A-Za-z]?[a-z]{2,}|[A-Z]{4,})(?=[\s\])<>=,:;.\"'!?-]|$)"
)
_WORDLESS = 3  # such lines in a row end garbage: what is no text may look like one by chance
_SAMPLE = 1024  # bytes
_BURST = 600  # bytes: more than any boot ROM prints before it hands over
_NULS = 0.9  # part of the bytes: a a line held low, or one that is kept alive
_NULS_PER_S = 20
_ROM_LEAST = 40  # bytes that are worth a guess
_ROM_RATE = 74_880  # bit/s: 115,200 by a crystal of 26 MHz where 40 are expected
_SAVED_AT = 115_200  # bit/s; a saved log does not say how it was read
_MIXED_BAD, _MIXED_OF = 12, 40  # lines
_FEW_GOOD = 3  # lines with words by chance, among those
_HANDOVER_LINES = 3
_TOLD = ("rate", "believed", "real")  # groups of a hand-over's pattern
_ASKED_NS = 10 * S
_STAMP = re.compile(
    rb"\[?(?:\d{4}-\d\d-\d\d[ T])?(\d\d):(\d\d):(\d\d)(?:[.,:](\d{1,6}))?\]?(?: ?->)?:? ?"
)
_WORDS = re.compile(rb"[\x80-\xaf\xc0-\xff]{3,}")  # letters of the 8-bit alphabets
_WIDE = ("gb18030", "shift_jis", "euc_kr", "big5")
_FOREIGN_LEAST = 12  # bytes: less is valid in some encoding by chance

Before = Callable[[int, int], list[tuple[int, bytes]]]  # seq, count: the last lines before it


@dataclass(frozen=True, slots=True)
class _Judged:
    kind: Literal["bad", "clean", "neither"]
    bad: int  # characters
    total: int
    lost: int  # of the bad ones, before us
    body: bytes  # without what a logger put before it
    stamp_s: float | None  # of that logger


@dataclass(slots=True)
class _Stretch:
    """Lines that are no text, one after the other."""

    first_seq: int
    first_ns: int
    raw: bytes
    last_ns: int
    first_stamp_s: float | None = None
    last_stamp_s: float | None = None
    bad: int = 0
    total: int = 0
    lost: int = 0
    sample: bytearray = field(default_factory=bytearray)
    handover: tuple[int, bytes] | None = None  # the line before it: number, text
    told_rate: int | None = None  # bit/s, as that line tells
    is_asked_for: bool = False
    has_fired: bool = False

    def add(self, judged: _Judged, mono_ns: int) -> None:
        self.last_ns = mono_ns
        self.bad += judged.bad
        self.total += judged.total
        self.lost += judged.lost
        if len(self.sample) < _SAMPLE:
            self.sample += judged.body[:_SAMPLE] + b"\n"
        if judged.stamp_s is not None:
            if self.first_stamp_s is None:
                self.first_stamp_s = judged.stamp_s
            self.last_stamp_s = judged.stamp_s

    @property
    def span_s(self) -> float:
        """How long it lasts, by our clock or by that of the logger."""
        stamped_s = 0.0
        if self.first_stamp_s is not None and self.last_stamp_s is not None:
            stamped_s = (self.last_stamp_s - self.first_stamp_s) % 86_400
        return max((self.last_ns - self.first_ns) / S, stamped_s)


class Garbage:
    """Fires once for each stretch of garbage that lasts; text ends a stretch.

    A short burst before text is a start: the line floats, or a ROM speaks at its own rate.
    """

    def __init__(
        self, noise: GarbageDetector, rate: BitRateDetector | None, bit_rate: int | None
    ) -> None:
        self._noise = noise
        self._rate = rate
        self._bit_rate = bit_rate
        self._handovers = [compile_pattern(p) for p in rate.handovers] if rate else []
        self._asked_for = [compile_pattern(p) for p in noise.asked_for]
        self._stretch: _Stretch | None = None
        self._partial: tuple[int, _Judged] | None = None
        self._mixed: deque[tuple[int, int, int]] = deque(maxlen=_MIXED_BAD)  # seq, ns, bad
        self._mixed_sample = bytearray()
        self._mixed_good = 0  # lines with words since the first of them
        self._wordless = 0  # lines in a row that may be text
        self._has_mixed = False  # told, and has not ended yet
        self._asked_ns: int | None = None  # when binary data that somebody asked for last came
        self._knows_rom = False
        self._preparing: Iterator[None] | None = None

    @property
    def is_open(self) -> bool:
        """Tell whether there is garbage that no text has followed yet."""
        return self._stretch is not None

    def reset(self) -> None:
        """Forget what came: the port is gone, or was opened anew."""
        self._stretch = self._partial = self._asked_ns = None
        self._mixed.clear()

    def lines(self, lines: Lines, before: Before, quiet_from: int) -> Iterator[Fault]:
        """Judge complete lines in which something is not plain text, or after such lines.

        From line `quiet_from` on garbage is to be expected now.
        """
        self._partial = None
        for index, raw in enumerate(lines.text.split(b"\n")[:-1]):
            if not self._stretch and raw.isascii() and raw.translate(None, _CONTROLS) == raw:
                continue  # plain text, and nothing that it ends
            judged = _judged(raw)
            seq = lines.first_seq + index
            is_quiet = seq >= quiet_from
            if self._is_text(judged):
                self._mixed_good += 1
                yield from self._text_came()
            elif judged.kind == "bad" or self._stretch:
                stretch = self._stretch or self._begin(seq, lines.mono_ns, judged, before)
                stretch.add(judged, lines.mono_ns)
                if stretch.is_asked_for:
                    self._asked_ns = lines.mono_ns
                if judged.kind == "bad" and not stretch.is_asked_for and not is_quiet:
                    yield from self._mix(seq, lines.mono_ns, judged)
                yield from self.judge(lines.mono_ns, is_quiet=is_quiet)

    def _is_text(self, judged: _Judged) -> bool:
        """Tell whether a line ends garbage: it has words, or is one of several that look so."""
        if judged.kind != "clean":
            self._wordless = 0
            return False
        self._wordless += 1
        if len(self._mixed_sample) < _SAMPLE:
            self._mixed_sample += judged.body[:_SAMPLE] + b"\n"
        return self._wordless >= _WORDLESS or _WORD.search(judged.body) is not None

    def partial(self, seq: int, text: bytes, mono_ns: int, before: Before) -> None:
        """Note an unfinished line; it comes again when it grows or ends."""
        judged = _judged(text)
        if judged.kind == "bad":
            stretch = self._stretch or self._begin(seq, mono_ns, judged, before)
            stretch.last_ns = mono_ns
            self._partial = (seq, judged)

    def prompted(self) -> None:
        """Note that the board waits at a prompt: what came before it is over."""
        self._stretch = self._partial = self._asked_ns = None

    def tick(self, mono_ns: int, *, is_quiet: bool) -> Iterator[Fault]:
        """Let time pass while there is garbage."""
        if self._preparing is None:
            self._preparing = prepare(self._read_at)
        next(self._preparing, None)
        yield from self.judge(mono_ns, is_quiet=is_quiet)

    def judge(self, mono_ns: int, *, is_quiet: bool) -> Iterator[Fault]:
        """Tell of the stretch if it lasts long enough and nothing explains it."""
        stretch = self._stretch
        if not stretch or stretch.has_fired or stretch.is_asked_for or is_quiet:
            return
        total, bad = stretch.total, stretch.bad
        if self._partial:
            total += self._partial[1].total
            bad += self._partial[1].bad
        least = self._rate.min_bytes if stretch.handover and self._rate else self._noise.min_bytes
        lasts_ns = self._noise.lasting_s * S
        is_over = mono_ns - stretch.last_ns >= lasts_ns
        lasts = stretch.span_s >= self._noise.lasting_s or (is_over and stretch.handover)
        if not (lasts or (is_over and total >= _BURST)) or total < least or bad < _BAD * total:
            return
        sample = self._sample(stretch)
        is_nul = sample.count(0) >= _NULS * len(sample)
        if is_nul and total < _NULS_PER_S * max(1.0, stretch.span_s):
            return
        what = self._what(stretch, sample)
        if not lasts and what.bit_rate == _ROM_RATE:
            return  # the ROM of an ESP8266 whose program says nothing
        stretch.has_fired = True
        yield self._fault(stretch, what, bad, total)

    def _text_came(self) -> Iterator[Fault]:
        stretch, self._stretch = self._stretch, None
        if not stretch or stretch.has_fired or self._knows_rom or not self._rate:
            return
        if stretch.total < _ROM_LEAST or stretch.lost or stretch.is_asked_for:
            return
        what = guess(bytes(stretch.sample), self._read_at)
        if what.bit_rate != _ROM_RATE:
            return
        self._knows_rom = True
        yield Fault(
            detector=self._rate,
            severity="note",
            title=f"the boot ROM talks at {_ROM_RATE} bit/s: unreadable, as for every ESP8266",
            key="rom",
            seq=stretch.first_seq,
            raw=stretch.raw,
            fields={"likely_bit_rate": str(_ROM_RATE)},
        )

    def _begin(self, seq: int, mono_ns: int, judged: _Judged, before: Before) -> _Stretch:
        stretch = self._stretch = _Stretch(seq, mono_ns, judged.body, mono_ns)
        if self._asked_ns is not None and mono_ns - self._asked_ns <= _ASKED_NS:
            stretch.is_asked_for = True  # a program also holds some text
        for number, line in reversed(before(seq, _HANDOVER_LINES)):
            view = LineView(line[:_MOST])
            stretch.is_asked_for |= view.has(self._asked_for)
            for pattern in self._handovers:
                if not stretch.handover and (match := view.search(pattern)):
                    stretch.handover = (number, line)
                    stretch.told_rate = self._told_rate(match)
        return stretch

    def _told_rate(self, match: re.Match[bytes]) -> int | None:
        """Return the bit rate that a line before the garbage tells, or its clocks."""
        told = match.groupdict()
        numbers = {name: int(told[name]) for name in _TOLD if (told.get(name) or b"").isdigit()}
        if rate := numbers.get("rate"):
            return rate
        if (believed := numbers.get("believed")) and (real := numbers.get("real")):
            return self._read_at * real // believed
        return None

    def _mix(self, seq: int, mono_ns: int, judged: _Judged) -> Iterator[Fault]:
        """Tell of garbage in many lines with text in between: noise."""
        mixed = self._mixed
        if mixed and seq - mixed[-1][0] > _MIXED_OF:
            mixed.clear()
            self._has_mixed = False
        if not mixed:
            self._mixed_sample.clear()
            self._mixed_good = 0
        mixed.append((seq, mono_ns, judged.bad))
        if len(self._mixed_sample) < _SAMPLE:
            self._mixed_sample += judged.body[:_SAMPLE] + b"\n"
        first_seq = mixed[0][0]
        is_much = sum(bad for _, _, bad in mixed) >= self._noise.min_bytes * _BAD
        if len(mixed) < _MIXED_BAD or seq - first_seq > _MIXED_OF or not is_much:
            return
        stretch = self._stretch
        if stretch is None or stretch.first_seq <= first_seq:
            return  # all of it is one stretch
        if self._has_mixed:
            return
        mixed_sample = bytes(self._mixed_sample[:_SAMPLE])
        is_read = _LOST_RAW not in mixed_sample
        what = guess(mixed_sample, self._read_at) if is_read else Guess()
        if what.bit_rate == _ROM_RATE:
            return
        self._has_mixed = stretch.has_fired = True
        if what.bit_rate and self._mixed_good < _FEW_GOOD:
            bad = sum(bad for _, _, bad in mixed)
            told = self._fault(stretch, what, bad, len(mixed_sample))
            yield replace(told, seq=first_seq, first_seq=first_seq)
            return
        count = seq - first_seq + 1
        good = ", with good lines in between: noise" if self._mixed_good else ": noise, or data"
        yield Fault(
            detector=self._noise,
            severity=self._noise.severity,
            title=f"{_MIXED_BAD} of {count} lines are no text{good}",
            key="noise",
            seq=first_seq,
            raw=judged.body,
            fields={"lines": str(_MIXED_BAD), "of": str(count)},
        )

    @property
    def _read_at(self) -> int:
        return self._bit_rate or _SAVED_AT

    def _sample(self, stretch: _Stretch) -> bytes:
        unfinished = self._partial[1].body if self._partial else b""
        return (bytes(stretch.sample) + unfinished)[:_SAMPLE]

    def _what(self, stretch: _Stretch, sample: bytes) -> Guess:
        if stretch.told_rate and stretch.told_rate != self._read_at:
            return Guess(stretch.told_rate)
        if stretch.lost * 20 > stretch.total:
            return Guess()  # too little of it is left
        if not self._bit_rate and _is_nul(sample):
            return Guess()  # of a saved log nobody knows whether it was on the line at all
        return guess(sample, self._read_at)

    def _fault(self, stretch: _Stretch, what: Guess, bad: int, total: int) -> Fault:
        fields = {"bytes": str(total), "bad": f"{bad / total:.0%}"}
        told: GarbageDetector | BitRateDetector = self._noise
        is_rate = what.bit_rate or what.parity or stretch.handover
        if self._rate and is_rate:
            told, words = self._rate, self._rate_words(stretch, what)
            fields["bit_rate"] = str(self._read_at)
            if what.bit_rate:
                fields["likely_bit_rate"] = str(what.bit_rate)
        elif _is_nul(stretch.sample):
            words = f"{total} NULs, as from a line that is held low or a file that was not written"
        else:
            words = f"noise, or data that is none: {bad / total:.0%} of {total} characters"
        return Fault(
            detector=told,
            severity=told.severity,
            title=f"what the board sends is no text: {words}",
            key="bit_rate" if told is self._rate else "noise",
            seq=stretch.first_seq,
            first_seq=stretch.handover[0] if stretch.handover else stretch.first_seq,
            raw=stretch.raw,
            fields=fields,
        )

    def _rate_words(self, stretch: _Stretch, what: Guess) -> str:
        read_at = f"the port reads at {self._read_at}"
        if not self._bit_rate:
            read_at = f"if this was read at {_SAVED_AT}"
        if what.parity:
            return f"it seems to have 7 data bits and {what.parity} parity"
        if what.bit_rate:
            other = f" or {what.other}" if what.other else ""
            less = " or less" if what.is_at_most else " or more" if what.is_at_least else ""
            return f"it seems to talk at {what.bit_rate}{other} bit/s{less}, {read_at}"
        assert stretch.handover is not None
        line = readable(stretch.handover[1])
        return f"another bit rate than before: {line}"


def _is_nul(sample: bytes | bytearray) -> bool:
    return not sample.strip(b"\0\r\n")


def is_plain(text: bytes, view: bytes) -> bool:
    """Tell quickly whether lines are text; `view` is the text without escapes and controls.

    Nearly always it is one look at the whole chunk.
    """
    if not text.isascii():
        if _LOST_RAW in text:
            return False
        try:
            text.decode()
        except UnicodeDecodeError:
            return False
    return view is text or len(text) - len(view) <= _PER_ESCAPE * text.count(b"\x1b")


def _judged(raw: bytes) -> _Judged:
    if len(raw) < _BAD_LEAST:
        return _Judged("neither", 0, len(raw), 0, raw, None)
    raw = raw[:_MOST]
    stamp = _STAMP.match(raw)
    body = raw[stamp.end() :] if stamp else raw
    stamp_s = None
    if stamp:
        hours, minutes, seconds, part = stamp.groups(b"0")
        stamp_s = int(hours) * 3600 + int(minutes) * 60 + float(b"%b.%b" % (seconds, part))
    controls = len(body) - len(body.translate(None, _CONTROLS))
    text = body.decode("utf-8", errors="replace").rstrip("\r")
    unreadable = text.count(_LOST)
    lost = body.count(_LOST_RAW)
    total = len(text)
    if unreadable and not controls and not lost and _is_foreign(body.rstrip(b"\r")):
        return _Judged("neither", 0, total, 0, body, stamp_s)
    bad = controls + unreadable
    kind: Literal["bad", "clean", "neither"] = "neither"
    if bad >= _BAD_LEAST and bad > _BAD * total:
        kind = "bad"
    elif bad <= _CLEAN * total and len("".join(text.split())) - bad >= _CLEAN_LEAST:
        kind = "clean"
    return _Judged(kind, bad, total, lost, body, stamp_s)


def _is_foreign(body: bytes) -> bool:
    """Tell whether it is text in another encoding than UTF-8, as some boards print it."""
    if len(body) < _FOREIGN_LEAST:
        return False
    high = sum(byte > 0x7F for byte in body)
    if sum(map(len, _WORDS.findall(body))) >= 0.8 * high:
        return True
    for encoding in _WIDE:
        try:
            body.decode(encoding)
        except UnicodeDecodeError:
            continue
        return True
    return False
