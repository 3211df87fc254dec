"""What one client has yet to be sent: bounded, so that a slow client costs only itself."""

from __future__ import annotations

from collections import deque

LIMIT = 256 * 1024  # bytes kept for a client; then its oldest go
_FRAME = 32 * 1024  # chunks are joined up to this size
_MAX_TEXTS = 1000  # control messages kept; a client that far behind is as good as gone


class Backlog:
    """Bytes and control messages for one client, in order.

    What does not fit is dropped from the old end; in its place stands one notice of how much.
    """

    def __init__(self, limit: int = LIMIT) -> None:
        self._limit = limit
        self._items: deque[bytes | str] = deque()
        self._older: deque[str] = deque()  # control messages from before the dropped bytes
        self._bytes = 0
        self._texts = 0
        self._lost = 0

    @property
    def size(self) -> int:
        """Return how many bytes wait."""
        return self._bytes

    @property
    def is_full(self) -> bool:
        """Tell whether even control messages have piled up."""
        return self._texts > _MAX_TEXTS

    def put(self, data: bytes) -> int:
        """Take in bytes of the board; return how many older ones had to go."""
        self._items.append(data)
        self._bytes += len(data)
        return self._drop() if self._bytes > self._limit else 0

    def put_text(self, text: str) -> None:
        """Take in a control message."""
        self._items.append(text)
        self._texts += 1

    def take(self) -> bytes | str | int | None:
        """Return what comes next: bytes, a control message, a number of lost bytes, or None."""
        if self._older:
            self._texts -= 1
            return self._older.popleft()
        if self._lost:
            lost, self._lost = self._lost, 0
            return lost
        if not self._items:
            return None
        first = self._items.popleft()
        if isinstance(first, str):
            self._texts -= 1
            return first
        return self._join(first)

    def _join(self, first: bytes) -> bytes:
        parts, size = [first], len(first)
        while self._items and isinstance(part := self._items[0], bytes):
            if size + len(part) > _FRAME:
                break
            parts.append(part)
            size += len(part)
            self._items.popleft()
        self._bytes -= size
        return b"".join(parts) if len(parts) > 1 else first

    def _drop(self) -> int:
        dropped = 0
        while (over := self._bytes - self._limit) > 0:
            item = self._items.popleft()
            if isinstance(item, str):
                self._older.append(item)
                continue
            gone = min(over, len(item))
            if gone < len(item):
                self._items.appendleft(item[gone:])
            self._bytes -= gone
            dropped += gone
        self._lost += dropped
        return dropped
