"""A port's log on disk, as the daemon leaves it behind."""

from __future__ import annotations

from pathlib import Path

from serialwatch.records import Line
from serialwatch.store.log_format import Header, Kind, Place, log_name, pack_header, pack_record
from serialwatch.store.log_index import Indexer

START_NS = 1_782_100_692_000_000_000  # 2026-06-22 03:58:12 UTC
S = 1_000_000_000


class SavedLog:
    """One log file with its index; `log_dir` has a folder a port."""

    def __init__(self, log_dir: Path, port: str = "dut1", first_seq: int = 1) -> None:
        folder = log_dir / port
        folder.mkdir(parents=True, exist_ok=True)
        self._log = folder / log_name(START_NS, first_seq)
        self._index = self._log.with_suffix(".idx")
        self._index.write_bytes(pack_header(Header(port, "lf", first_seq, 0)))
        self._log.touch()
        self._indexer = Indexer("lf", first_seq)
        self._at_ns = 0

    @property
    def next_seq(self) -> int:
        return self._indexer.next_seq

    def add(self, *lines: str | bytes, after_s: float = 0.1) -> int:
        """Append lines, each `after_s` after the one before; return the number of the first."""
        first = self.next_seq
        for line in lines:
            data = (line.encode() if isinstance(line, str) else line) + b"\n"
            self._at_ns += int(after_s * S)
            records = self._indexer.add(
                data, self._at_ns, self._at_ns + 1000, START_NS + self._at_ns
            )
            _append(self._log, data)
            _append(self._index, records)
        return first

    def add_block(self, data: bytes, took_s: float) -> None:
        """Append lines that came in one block, which is much quicker for many."""
        self._at_ns += int(took_s * S)
        records = self._indexer.add(data, self._at_ns, self._at_ns + 1000, START_NS + self._at_ns)
        _append(self._log, data)
        _append(self._index, records)

    def boot(self, number: int) -> None:
        """Say that the next line begins a boot."""
        self._note(Kind.BOOT, 0, number)

    def gap(self, lost_bytes: int) -> None:
        """Say that bytes are missing here."""
        self._note(Kind.GAP, Place.UART, lost_bytes)

    def _note(self, kind: Kind, flags: int, aux: int) -> None:
        offset = self._indexer.offset
        at = START_NS + self._at_ns
        _append(self._index, pack_record(kind, flags, aux, offset, self.next_seq, at, self._at_ns))


def line(seq: int, raw: bytes, port: str = "dut1", boot: int = 0, at_s: float = 0.0) -> Line:
    """Return a line in memory."""
    at = START_NS + int(at_s * S)
    return Line(port, seq, raw, boot, at, at + 1000, int(at_s * S))


def _append(path: Path, data: bytes) -> None:
    with path.open("ab") as file:
        file.write(data)
