"""Which bit rate a sender has, told from what a receiver of another rate makes of its text.

A receiver of the wrong rate sees the same edges and samples them elsewhere. What comes out is
typical for the ratio of the two rates: half as fast gives bytes whose bits come in pairs, ten times
too slow gives nothing but NULs. So a piece of text is sent at each usual rate, on paper, and the
rate whose bytes look most like those that were received is the likely one.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import lru_cache

# Usual rates, bit/s, and how much more usual one is than another, as a logarithm.
_RATES = {
    1200: 0.0,
    2400: 0.0,
    4800: 0.0,
    9600: 1.0,
    19200: 0.3,
    38400: 0.3,
    57600: 0.7,
    74880: 0.7,
    115200: 2.0,
    230400: 0.3,
    250000: 0.0,
    460800: 0.3,
    500000: 0.0,
    921600: 0.5,
    1000000: 0.0,
    1500000: 0.5,
}
_LEAST_RATIO, _MOST_RATIO = 1 / 9.5, 14.0  # of rates that can be told from others
_NUL_RATIO = 1 / 8  # below it each low bit of the sender is a NUL for the receiver
_ALL_NUL = 0.97  # of the bytes
_CLOCKS = (-0.012, -0.004, 0.004, 0.012)  # how far apart they may be: each meets other bits
_SEEN = 0.94  # of the bytes a model of noise explains; the rest may be anything
_AS_TEXT, _AS_ANY, _AS_NOISE = 0.7, 0.25, 0.05  # of what the model of a rate explains, by what
_UNSEEN = 0.3  # how often a byte that the model lacks is taken to occur
_SURE = 4.0  # logarithm of the odds against the next best,
_SURE_PER_BYTE = 0.05  # and as much a byte: no model is exact,
_SURE_OF_FASTER = 0.1  # least that of a faster sender, whose bits are not all seen
_WORSE = 0.3  # a byte, than the model fits its own text: then the sender has no usual rate,
_CLEAR = 0.2  # but if it fits so much better than the next best
_MANY = 5  # times faster: what is told may be more still
_AGAINST_NOISE = 8.0  # a rate is likelier than that all of it is noise
_TEXT_NOISE = (0.25, 0.5)  # part of a text that is changed by noise
_TEXT = (
    b"\r\n[    1.204518] mmc0: new high speed SDHC card at address 0007\r\n"
    b"U-Boot 2023.04 (Apr 12 2023 - 09:31:44 +0000)\r\nDRAM:  512 MiB\r\n"
    b"I (312) wifi: mode: sta, channel 6, rssi -57\r\n"
    b"[00:00:03.120,000] <inf> app: temperature 23.4 C, uptime 3 s\r\n"
    b"root@board:~# ls /dev/tty*\r\nHit any key to stop autoboot:  0 \r\n"
    b"[    2.880014] Freeing unused kernel memory: 1024K\r\n"
)
_ANY = b"".join(  # whatever can be printed, as dumps and tables have it
    bytes(0x21 + (at * at * 31 + at * 17) % 94 for at in range(row, row + 29)) + b" \r\n"
    for row in range(0, 986, 29)
)
_FRAME = [bytes([0, *(byte >> bit & 1 for bit in range(8)), 1]) for byte in range(256)]
_BITS = [1 << bit for bit in range(8)]
_PARITY = bytes(byte.bit_count() & 1 for byte in range(256))
_PLAIN = bytes([9, 10, 13, *range(0x20, 0x7F)])

Model = tuple[float, ...]  # logarithm of the probability of each byte


@dataclass(frozen=True, slots=True)
class Guess:
    """What unreadable bytes most likely are."""

    bit_rate: int | None = None  # of the sender; None: noise, or nothing that has a rate
    other: int | None = None  # a rate that is nearly as likely
    parity: str = ""  # "even" or "odd": text of seven bits with a parity bit
    is_at_most: bool = False  # any rate below them looks the same
    is_at_least: bool = False  # rates above it look much the same


def guess(sample: bytes, read_at: int) -> Guess:
    """Tell what a sample of unreadable bytes is that was read at `read_at` bit/s."""
    if not sample:
        return Guess()
    if parity := _parity(sample):
        return Guess(parity=parity)
    if sample.count(0) >= _ALL_NUL * len(sample):
        return _at_most([rate for rate in _RATES if rate < read_at * _NUL_RATIO])
    counts = Counter(sample)
    odds = sorted(
        (
            max((_fit(counts, _model(rate, read_at, a)) + usual, rate, a) for a in _CLOCKS)
            for rate, usual in _others(read_at)
        ),
        reverse=True,
    )
    noise = max(_fit(counts, model) for model in _noise_models())
    if not odds or odds[0][0] < noise - _AGAINST_NOISE:
        return Guess()
    best, rate, apart = odds[0]
    is_faster = rate > read_at
    if best < noise + _AGAINST_NOISE and read_at * 2 > rate:
        return Guess()
    is_clear = len(odds) > 1 and best - odds[1][0] > _CLEAR * len(sample)
    is_bad = best < (_expected(rate, read_at, apart) - _WORSE) * len(sample)
    if is_faster and is_bad and not is_clear:
        return Guess()
    sure = _SURE_OF_FASTER if is_faster else _SURE_PER_BYTE
    least = best - max(_SURE, sure * len(sample))
    likely = [rate for fit, rate, _ in odds if fit > least]
    if is_faster and len(likely) > 2:
        return Guess()
    first, second = [*sorted(likely[:2], key=_usual, reverse=True), None][:2]
    return Guess(first, second, is_at_least=min(likely[:2]) > _MANY * read_at)


def _at_most(rates: Sequence[int]) -> Guess:
    """Return the most usual of rates that cannot be told from each other, and the highest."""
    if not rates:
        return Guess()
    usual, highest = max(rates, key=_usual), max(rates)
    return Guess(usual, highest if highest != usual else None, is_at_most=True)


def _usual(rate: int) -> tuple[float, int]:
    """Rank rates by how often they are met; of two that are met as often, the higher one."""
    return _RATES[rate], rate


def prepare(read_at: int) -> Iterator[None]:
    """Work out what a guess will need, one piece a step: each takes some milliseconds."""
    for rate, _ in _others(read_at):
        for apart in _CLOCKS:
            _model(rate, read_at, apart)
            yield


def received(data: bytes, sent_at: float, read_at: float) -> bytes:
    """Return what a receiver makes of bytes that are sent without pause, 8N1 on both sides."""
    line = b"\1" * 4 + b"".join(map(_FRAME.__getitem__, data)) + b"\1"
    step = sent_at / read_at  # bits of the sender to one of the receiver
    tick = step / 16
    middles = [step * (1.5 + bit) for bit in range(9)]
    out = bytearray()
    at = 0.0
    last = len(line) - 10 * step - 1  # where the last whole byte can begin
    while at < last:
        if line[int(at)]:
            start = line.find(0, int(at))
            if start < 0 or start >= last:
                break
            at = math.ceil(start / tick) * tick  # it looks for a start so often
        if line[int(at + step / 2)]:
            at += tick  # too short for a start
            continue
        out.append(
            sum(bit for bit, middle in zip(_BITS, middles, strict=False) if line[int(at + middle)])
        )
        has_stop = line[int(at + middles[8])]
        at += 9.5 * step
        if not has_stop:
            at = max(at, math.ceil(line.find(1, int(at)) / tick) * tick)
    return bytes(out)


def _parity(sample: bytes) -> str:
    """Tell whether it is text as soon as the highest bit, its parity, is taken away."""
    high = sum(byte > 0x7F for byte in sample)
    if not 0.2 < high / len(sample) < 0.8:
        return ""
    low = bytes(byte & 0x7F for byte in sample)
    if len(low.translate(None, _PLAIN)) > len(low) // 20:
        return ""
    odd = sum(sample.translate(_PARITY))
    if odd <= len(sample) // 20:
        return "even"
    return "odd" if odd >= len(sample) - len(sample) // 20 else ""


def _others(read_at: int) -> Iterator[tuple[int, float]]:
    """Return the rates that can be told from `read_at`, and how usual each is."""
    for rate, usual in _RATES.items():
        if _LEAST_RATIO < rate / read_at < _MOST_RATIO and rate != read_at:
            yield rate, usual


def _fit(counts: Counter[int], model: Model) -> float:
    return sum(count * model[byte] for byte, count in counts.items())


@lru_cache(maxsize=1024)
def _model(sent_at: int, read_at: int, apart: float) -> Model:
    times = min(6, max(1, sent_at // read_at // 2))  # a slow receiver sees little of it
    parts = [(_AS_NOISE, [1 / 256] * 256)]
    for part, sent in ((_AS_TEXT, _TEXT), (_AS_ANY, _ANY)):
        counts = Counter(received(sent * times, sent_at * (1 + apart), read_at))
        total = counts.total() + 256 * _UNSEEN
        parts.append((part, [(counts[byte] + _UNSEEN) / total for byte in range(256)]))
    return tuple(math.log(sum(part * odds[byte] for part, odds in parts)) for byte in range(256))


@lru_cache(maxsize=1024)
def _expected(sent_at: int, read_at: int, apart: float) -> float:
    """Return what a byte adds to the odds of a model on the average, if it is the right one."""
    return sum(math.exp(odds) * odds for odds in _model(sent_at, read_at, apart))


@lru_cache(maxsize=1)
def _noise_models() -> tuple[Model, ...]:
    text = Counter(_TEXT)
    flipped = Counter(byte ^ bit for byte in _TEXT for bit in _BITS)
    changed = (_smooth(text, 1 - part) for part in _TEXT_NOISE)
    return (_smooth(Counter(), 0.0), _smooth(flipped, _SEEN), *changed)


def _smooth(counts: Counter[int], seen: float) -> Model:
    total = counts.total() + 256 * _UNSEEN
    return tuple(
        math.log(seen * (counts[byte] + _UNSEEN) / total + (1 - seen) / 256) for byte in range(256)
    )
