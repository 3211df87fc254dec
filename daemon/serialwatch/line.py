"""A line of a console, the record that all others are about."""

from __future__ import annotations

from dataclasses import dataclass, field

_STOOD_NS = 1_000_000_000  # longer than any line takes by itself


@dataclass(frozen=True, slots=True)
class Line:
    """One console line of one port. Its time, wherever it is shown, is that of its first byte."""

    port: str
    seq: int  # counts from 1 per port, never reused: evidence cites it
    raw: bytes  # without the line ending; may hold any byte 0..255
    boot: int  # 0: before the first boot seen
    utc_ns: int  # of its first byte
    last_utc_ns: int  # of its last byte
    mono_ns: int  # of its first byte; of the daemon run that read it
    is_complete: bool = True  # False: the partial line at the end of the log
    end: bytes = field(default=b"", compare=False)  # CR, LF; b"" for a part of a very long line

    @property
    def stood_s(self) -> float:
        """How long it stood unfinished, as a prompt does, until its last byte; 0: it did not."""
        stood_ns = self.last_utc_ns - self.utc_ns
        return stood_ns / 1e9 if stood_ns > _STOOD_NS else 0.0

    @property
    def told_utc_ns(self) -> int:
        """When it told what it tells: if it stood unfinished, as behind a prompt, its last byte.

        To reckon with, as what came before what. What is shown is `utc_ns`.
        """
        return self.last_utc_ns if self.stood_s else self.utc_ns
