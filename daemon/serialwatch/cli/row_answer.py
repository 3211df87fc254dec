"""An answer of the daemon that comes row by row: HTTP/1.1 as far as the daemon speaks it.

It is read by hand, for `logs` would spend more time on importing the standard library's client
than on all the rest.
"""

from __future__ import annotations

import re
import socket
from collections.abc import Iterator

_MAX_HEAD = 64 * 1024  # bytes of status and headers
_CHUNK_SIZE = re.compile(rb"[0-9A-Fa-f]{1,7}")


class RowAnswer:
    """The answer to one request; `sock` stays the caller's."""

    def __init__(self, sock: socket.socket, method: str, address: str, body: str | None) -> None:
        """Ask, and wait for the head of the answer.

        Raises:
            OSError: the other end does not answer, has gone, or speaks something else.

        """
        data = (body or "").encode()
        head = [f"{method} {address} HTTP/1.1", "Host: localhost", "Connection: close"]
        if body is not None:
            head.append(f"Content-Length: {len(data)}")
        sock.sendall("\r\n".join([*head, "\r\n"]).encode() + data)
        self._file = sock.makefile("rb")
        status = self._file.readline(_MAX_HEAD).split(maxsplit=2)
        if len(status) < 2 or not status[0].startswith(b"HTTP/1.") or not status[1].isdigit():
            raise ConnectionError("no answer in HTTP")
        self.status = int(status[1])
        headers = dict(self._headers())
        self._is_chunked = headers.get(b"transfer-encoding") == b"chunked"
        length = headers.get(b"content-length", b"")
        self._length = int(length) if length.isdigit() else -1  # up to the end of the connection

    def read(self) -> bytes:
        """Return all of it."""
        return b"".join(self._parts())

    def rows(self) -> Iterator[bytes]:
        """Yield row by row, as they come."""
        rest = b""
        for part in self._parts():
            *rows, rest = (rest + part).split(b"\n")
            yield from rows
        if rest:
            yield rest

    def close(self) -> None:
        """Read no more."""
        self._file.close()

    def _headers(self) -> Iterator[tuple[bytes, bytes]]:
        size = 0
        while size < _MAX_HEAD and (line := self._file.readline(_MAX_HEAD)).strip():
            size += len(line)
            name, _, value = line.partition(b":")
            yield name.strip().lower(), value.strip().lower()

    def _parts(self) -> Iterator[bytes]:
        if not self._is_chunked:
            yield self._file.read(self._length)
            return
        while size := self._chunk_size():
            part = self._file.read(size)
            if len(part) < size:
                raise ConnectionError("the answer ends within")
            yield part
            self._file.readline(_MAX_HEAD)

    def _chunk_size(self) -> int:
        line = self._file.readline(_MAX_HEAD).partition(b";")[0].strip()
        if _CHUNK_SIZE.fullmatch(line) is None:
            raise ConnectionError("the answer ends within")
        return int(line, 16)
