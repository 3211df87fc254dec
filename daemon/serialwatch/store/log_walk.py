"""A walk through a log file that knows the line of each byte, with no index."""

from __future__ import annotations

from pathlib import Path

from serialwatch.lines import Splitter
from serialwatch.store.log_format import Header


class LogWalk:
    """A walk through a log that knows the line of each byte."""

    def __init__(self, path: Path, header: Header, offset: int = 0, seq: int = 0) -> None:
        """Begin at the start of the file, or where line `seq` starts."""
        self.size = path.stat().st_size
        self.offset = offset
        self.next_seq = seq or header.first_seq
        self._splitter = Splitter(header.eol)
        self._file = path.open("rb")
        self._file.seek(offset)

    def go(self, offset: int) -> None:
        """Go on to `offset`, which is never behind."""
        while self.offset < offset:
            data = self._file.read(min(offset - self.offset, 65536))
            if not data:
                break
            self.offset += len(data)
            self.next_seq += self._splitter.feed(data)[1]

    def line(self) -> tuple[int, bool]:
        """Return the line of the next byte, and whether that is its first."""
        byte = self._file.peek(1)[:1]
        filled = self._splitter.filled
        belongs_to_end = filled < 0 and byte in (b"\r", b"\n")
        return self.next_seq - belongs_to_end, filled == 0 or (filled < 0 and not belongs_to_end)

    @property
    def last_seq(self) -> int:
        """The last line with a byte so far."""
        return self.next_seq - (self._splitter.partial_bytes == 0)

    def close(self) -> None:
        """Close the log."""
        self._file.close()
