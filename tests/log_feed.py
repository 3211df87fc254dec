"""Console bytes for tests of the log, put into a ring as a reader does it, with times of our own."""

from __future__ import annotations

import itertools
import random

from serialwatch.capture.ring import MAX_UNWRITTEN_IN_ALL, Ring, RingBudget
from serialwatch.lines import MAX_LINE, Eol, Splitter
from serialwatch.store.log_format import (
    HEADER_BYTES,
    RECORD_BYTES,
    Cut,
    Record,
    unpack_record,
)
from serialwatch.store.log_items import Chunk, NewFile, Turned

UTC_NS = 1_782_100_692_000_000_000  # 2026-06-22T03:58:12Z
MS = 1_000_000


class Feed:
    """A port that prints into `ring`; its clocks stand still unless they are moved."""

    def __init__(
        self,
        seq: int = 1,
        eol: Eol = "lf",
        boot: int = 0,
        name: str = "dut1",
        limit_bytes: int = MAX_UNWRITTEN_IN_ALL,
    ) -> None:
        self.ring = Ring(name, RingBudget(limit_bytes))
        self.next_seq = seq
        self.boot = boot
        self.mono_ns = 1_000 * 10**9
        self.utc_ns = UTC_NS
        self.lines: dict[int, bytes] = {}  # that were completed
        self.sent = bytearray()
        self._splitter = Splitter(eol)
        self.ring.unhold()
        self.new_file(Cut.STOP)

    def prints(self, data: bytes, after_ms: float = 0) -> None:
        """Put bytes that come `after_ms` after the ones before."""
        self.mono_ns += int(after_ms * MS)
        self.utc_ns += int(after_ms * MS)
        filled = self._splitter.filled
        chunk = Chunk(data, self.mono_ns, self.mono_ns, self.utc_ns, self.next_seq, filled)
        self._in_file.append(chunk)
        self.ring.put(chunk)
        self.sent += data
        text, _ = self._splitter.feed(data)
        for line in text.split(b"\n")[:-1]:
            self._completed(line)

    def new_file(self, why: Cut, eol: Eol | None = None) -> None:
        """End the file, and with it the unfinished line."""
        if self._splitter.partial_bytes:
            self._completed(self._splitter.partial())
        self._splitter = Splitter(eol or self._splitter.eol)
        self._in_file: list[Chunk] = []
        self._first_seq = self.next_seq
        self.ring.put(
            NewFile(why, self.next_seq, self.boot, self._splitter.eol, self.mono_ns, self.utc_ns)
        )

    def turn(self, eol: Eol) -> None:
        """Let lines have ended otherwise since the first byte of the file."""
        self._splitter, self.next_seq = Splitter(eol), self._first_seq
        for chunk in self._in_file:
            for line in self._splitter.feed(chunk.data)[0].split(b"\n")[:-1]:
                self._completed(line)
        chunks = tuple(self._in_file)
        self.ring.put(Turned(eol, chunks, self._first_seq, self.next_seq, self.boot))

    @property
    def partial(self) -> bytes:
        """The unfinished line."""
        return self._splitter.partial()

    def _completed(self, line: bytes) -> None:
        self.lines[self.next_seq] = line.rstrip(b"\r")
        self.next_seq += 1


def records_in(index: bytes) -> list[Record]:
    """Return the records behind the header of an index; torn ones are left out."""
    starts = range(HEADER_BYTES, len(index), RECORD_BYTES)
    found = (unpack_record(index[at : at + RECORD_BYTES]) for at in starts)
    return [record for record in found if record is not None]


def console(rng: random.Random) -> bytes:
    """Return console bytes of every unpleasant kind, never none, mostly some 10 KB."""
    out = bytearray(b"U-Boot\r\n")
    for _ in range(rng.randrange(1, 30)):
        kind = rng.randrange(8)
        if kind == 0:
            out += rng.randbytes(rng.randrange(300))
        elif kind == 1:
            sizes = [1, 5, MAX_LINE - 1, MAX_LINE, MAX_LINE + 1, 17000]
            out += bytes([rng.choice(b"x\x00\r")]) * rng.choice(sizes)
        elif kind == 2:
            out += b"\r#" * rng.randrange(3000)
        else:
            out += b"z" * rng.randrange(80) + rng.choice([b"\n", b"\r\n", b"\r\r\n", b"\r", b""])
    return bytes(out)


def chunked(rng: random.Random, data: bytes) -> list[bytes]:
    """Cut `data` into random chunks, often right at CRs and LFs."""
    cuts = {rng.randrange(len(data) + 1) for _ in range(rng.choice([1, 10, 200]))}
    ends = [at + rng.randrange(2) for at, byte in enumerate(data) if byte in b"\r\n"]
    cuts.update(rng.sample(ends, min(len(ends), 50)))
    marks = sorted(cuts | {0, len(data)})
    return [data[a:b] for a, b in itertools.pairwise(marks) if a < b]
