"""What a log is made from: a port's bytes and what happened between them, in order."""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Protocol

from serialwatch.lines import Eol
from serialwatch.store.log_format import Cut, Kind, Place


@dataclass(slots=True)
class Chunk:
    """Bytes as they were read. Made for every read, hence not frozen: that is twice as fast."""

    data: bytes  # never empty
    mono_ns: int  # of the first byte
    last_mono_ns: int  # of the last byte
    utc_ns: int  # of the first byte
    seq: int  # the line that is unfinished at the first byte; 0: not numbered yet
    filled: int  # `Splitter.filled` before `data`


@dataclass(frozen=True, slots=True)
class NewFile:
    """The file so far ends here; what follows begins another one, with line `seq`."""

    why: Cut
    seq: int
    boot: int
    eol: Eol
    mono_ns: int
    utc_ns: int


@dataclass(frozen=True, slots=True)
class Gap:
    """Bytes are missing here. Those missing in the log alone (`Place.LOG`) end the file."""

    place: Place
    lost_bytes: int  # 0: unknown
    seq: int  # the line that the first of them belongs to
    mono_ns: int
    utc_ns: int


@dataclass(frozen=True, slots=True)
class Note:
    """A boot or a marker."""

    kind: Kind
    number: int
    seq: int
    mono_ns: int
    utc_ns: int


@dataclass(frozen=True, slots=True)
class Turned:
    """The lines of the file end otherwise than was thought, from its first byte on."""

    eol: Eol
    chunks: tuple[Chunk, ...]  # all that is in the file
    seq: int  # its first line
    next_seq: int  # the unfinished line behind the chunks
    boot: int


Item = Chunk | NewFile | Gap | Note | Turned


class LogSource(Protocol):
    """Where the writer takes a port's items from; `capture.ring.Ring` is one.

    The writer calls from its own thread. Nothing here waits for longer than a few microseconds.
    """

    name: str
    signal: threading.Event | None  # set when there is something to take
    log_bytes: int  # size of the port's log on disk: the writer says it here

    @property
    def put_bytes(self) -> int:
        """All bytes that were ever put in."""

    @property
    def lost_bytes(self) -> int:
        """Bytes that will never be in the log."""

    @property
    def unwritten_bytes(self) -> int:
        """Bytes that wait for the writer or are in its hand."""

    def take(self) -> deque[Item]:
        """Return all items, oldest first. They count as unwritten until `settle`."""

    def put_back(self, items: Iterable[Item]) -> None:
        """Return what could not be written, oldest first."""

    def settle(self, *, written_bytes: int = 0, lost_bytes: int = 0) -> None:
        """Note that taken bytes are in the log, or will never be."""
