"""`socket://HOST:PORT`: a raw TCP port, e.g. of ser2net, a terminal server or an emulator.

Here is also what every port behind a network shares: why it cannot be reached, and that a peer
which has gone without a word is noticed.
"""

from __future__ import annotations

import errno
import os
import re
import select
import socket
from urllib.parse import urlsplit

from serialwatch_drivers.descriptors import WRITE_LIMIT_S, BytesPort, FdReader, FdWriter
from serialwatch_drivers.port import (
    OnBytes,
    OnLost,
    OpenProblem,
    PortLostError,
    PortOpenError,
    PortOptions,
)
from serialwatch_drivers.port_thread import PortThread, open_in_thread

CONNECT_LIMIT_S = 4.0  # for one address of the host
OPEN_LIMIT_S = 12.0  # for finding and trying all of them
REMEDY = "is the network up, and its name server?"
GREETING_S = 0.1  # in which a server says that the port is taken, and closes
KEEP_IDLE_S = 10  # of silence; then the peer is asked
KEEP_EVERY_S = 3  # between two questions
KEEP_TRIES = 3  # without an answer: the peer is gone
_UNSENT_LIMIT_S = 20  # for bytes of ours that the peer does not confirm

_NO_WAY = {errno.EHOSTUNREACH, errno.ENETUNREACH, errno.ENETDOWN, errno.EHOSTDOWN}
# What servers print instead of serving; anything else that comes is the board's.
_REFUSAL = re.compile(rb"(?i)already in use|in use by|open failure|unable to open|port busy|denied")
_MAX_REFUSAL = 300  # bytes


async def open_socket(
    device: str, options: PortOptions, on_bytes: OnBytes, on_lost: OnLost
) -> TcpPort:
    """Connect and push what comes. A bit rate, DTR and RTS are matters of the far side.

    Raises:
        PortOpenError: nobody listens or the host is not there (`absent`), somebody else is
            connected (`busy`), a firewall forbids it (`denied`), or the address is none (`broken`).

    """
    host, port = split_address(device)
    thread, sock = await open_in_thread(
        device,
        lambda _thread: _connect(device, host, port),
        socket.socket.close,
        OPEN_LIMIT_S,
        REMEDY,
    )
    thread.end()
    return TcpPort(device, sock, thread, on_bytes, on_lost)


class TcpPort(BytesPort):
    """A connection that stands for a port."""

    def __init__(
        self,
        device: str,
        sock: socket.socket,
        thread: PortThread,
        on_bytes: OnBytes,
        on_lost: OnLost,
        write_limit_s: float = WRITE_LIMIT_S,
    ) -> None:
        self._sock = sock
        self._thread = thread
        self._on_lost = on_lost
        self._is_open = True
        sock.setblocking(False)
        super().__init__(
            device,
            FdReader(sock.fileno(), on_bytes, on_end=self._ended),
            FdWriter(sock.fileno(), device, write_limit_s),
        )
        self._reader.resume()

    @property
    def far_end(self) -> None:
        """None: the other side is on the network."""
        return None

    def close(self) -> None:
        """Close the connection; no callback comes after this."""
        if self._is_open:
            self._is_open = False
            self._reader.close()
            self._writer.close()
            self._sock.close()

    async def wait_closed(self) -> None:
        """Return at once: closing a connection does not wait."""
        await self._thread.ended()

    def _ended(self) -> None:
        problem = why_lost(self._reader.error)
        self.close()
        self._on_lost(PortLostError(self._device, problem))


def split_address(device: str) -> tuple[str, int]:
    """Return host and port of `SCHEME://HOST:PORT`.

    Raises:
        PortOpenError: it is written in another way (`broken`).

    """
    try:
        parts = urlsplit(device)
        host, port = parts.hostname, parts.port
    except ValueError:
        host, port = None, None
    if not host or not port or device != f"{parts.scheme}://{parts.netloc}" or "@" in parts.netloc:
        scheme = device.partition(":")[0]
        raise PortOpenError(
            device,
            "broken",
            f"no address: must be {scheme}://HOST:PORT such as {scheme}://lab2:3001",
        )
    return host, port


def keep_alive(sock: socket.socket) -> None:
    """Have the kernel notice within some 20 s that the peer is gone, silent or not."""
    sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
    sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPIDLE, KEEP_IDLE_S)
    sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPINTVL, KEEP_EVERY_S)
    sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPCNT, KEEP_TRIES)
    sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT, _UNSENT_LIMIT_S * 1000)


def connect_error(device: str, exc: OSError) -> PortOpenError:
    """Return why there is no connection, and what to do about it."""
    kind: OpenProblem = "absent"
    if isinstance(exc, socket.gaierror):
        if exc.errno == socket.EAI_AGAIN:
            words = "no name server answers (is the network up?)"
        else:
            words = f"the name of the host is not known: {exc.strerror} (is it spelled right?)"
    elif isinstance(exc, TimeoutError):
        words = f"no answer within {CONNECT_LIMIT_S:g} s (is the host up?)"
    elif isinstance(exc, ConnectionRefusedError):
        words = f"{exc.strerror} (does its server run, and on this port?)"
    elif exc.errno in _NO_WAY:
        words = f"{exc.strerror} (is the host up, and the network between?)"
    elif isinstance(exc, PermissionError):
        kind, words = "denied", f"{exc.strerror} (a firewall of this PC?)"
    else:
        kind, words = "broken", exc.strerror or str(exc)
    return PortOpenError(device, kind, f"connect failed: {words}")


def refusal_error(device: str, said: bytes) -> PortOpenError:
    """Return the error for a server that closes at once; `said`: what it printed before."""
    if not said:
        return PortOpenError(device, "absent", "connect failed: the peer closed at once")
    text = said.strip().decode(errors="backslashreplace")
    kind: OpenProblem = "busy" if b"in use" in said.lower() or b"busy" in said.lower() else "absent"
    return PortOpenError(device, kind, f"connect failed: the peer closed at once, saying {text!r}")


def is_refusal(said: bytes) -> bool:
    """Tell whether this is all a server says that does not serve, and nothing of a board."""
    return not said or (len(said) <= _MAX_REFUSAL and _REFUSAL.search(said) is not None)


def why_lost(error: int) -> str:
    """Return why a connection ended: `error` is an errno, 0 if the peer has closed it."""
    if not error:
        return "the peer closed the connection"
    if error == errno.ETIMEDOUT:
        return "the peer does not answer any more"
    return f"the connection broke: {os.strerror(error)}"


def _connect(device: str, host: str, port: int) -> socket.socket:
    try:
        sock = socket.create_connection((host, port), CONNECT_LIMIT_S)
    except OSError as exc:
        raise connect_error(device, exc) from exc
    try:
        keep_alive(sock)
        _refuse_what_closes(device, sock)
    except BaseException as exc:
        sock.close()
        if isinstance(exc, OSError):
            raise connect_error(device, exc) from exc
        raise
    return sock


def _refuse_what_closes(device: str, sock: socket.socket) -> None:
    poll = select.poll()
    poll.register(sock, select.POLLRDHUP)
    if poll.poll(GREETING_S * 1000):
        said = sock.recv(_MAX_REFUSAL + 1, socket.MSG_PEEK)
        if is_refusal(said):
            raise refusal_error(device, said)
