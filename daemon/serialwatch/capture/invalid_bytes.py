"""Counts bytes that are no text: noise on the wire, or another bit rate."""

from __future__ import annotations

import codecs

_decoder = codecs.getincrementaldecoder("utf-8")


class InvalidBytes:
    """Counts the bytes of a port that are no part of any UTF-8 character, in chunks of any size."""

    def __init__(self) -> None:
        self._decoder = _decoder(errors="ignore")
        self._held = 0  # bytes of a character whose rest is still to come

    def fed(self, data: bytes) -> int:
        """Return how many bytes turned out to be invalid with this chunk."""
        if not self._held and data.isascii():  # nearly always
            return 0
        valid = len(self._decoder.decode(data).encode())
        held, self._held = self._held, len(self._decoder.getstate()[0])
        return held + len(data) - valid - self._held
