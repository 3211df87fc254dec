"""Where the API may listen: a socket that nobody else serves, and nothing but the loopback."""

from __future__ import annotations

import ipaddress
import os
import socket
import struct
from pathlib import Path


class ApiBindError(Exception):
    """The API cannot listen where it was told to; `place` is the path or HOST:PORT."""

    def __init__(self, place: str, problem: str) -> None:
        super().__init__(f"{place}: {problem}")
        self.place = place


class SocketBusy(Exception):  # noqa: N818 - it is no fault: another daemon does the work
    """Another daemon answers at the socket; `pid` is 0 where it cannot be told."""

    def __init__(self, path: Path, pid: int) -> None:
        owner = f"serialwatch with pid {pid}" if pid else "another daemon"
        super().__init__(f"{path}: in use: {owner} answers there (or give this one a run_dir)")
        self.path = path
        self.pid = pid


def refuse_served(path: Path) -> None:
    """Raise SocketBusy if somebody answers at `path`."""
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as probe:
        probe.setblocking(False)
        try:
            probe.connect(str(path))
        except BlockingIOError:
            raise SocketBusy(path, 0) from None  # its queue is full: somebody is behind
        except OSError:
            return
        peer = probe.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, _PEER.size)
    raise SocketBusy(path, _PEER.unpack(peer)[0])


_PEER = struct.Struct("3i")  # pid, uid, gid of whoever listens


def bind_socket(path: Path, gid: int | None) -> socket.socket:
    """Return a listening socket at `path` with mode 0660, in place of one that nobody serves.

    Raises:
        ApiBindError: somebody serves it, or it cannot be made.

    """
    if _is_served(path):
        raise ApiBindError(str(path), "another daemon answers there")
    if path.exists() and not path.is_socket():
        raise ApiBindError(str(path), "is there and is no socket")
    fresh = path.with_name(f".{path.name}.{os.getpid()}")
    sock = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    try:
        fresh.unlink(missing_ok=True)
        sock.bind(str(fresh))
        fresh.chmod(0o660)
        if gid is not None:
            os.chown(fresh, -1, gid)
        sock.listen(128)
        fresh.replace(path)  # with its final mode from the first moment on
    except OSError as exc:
        sock.close()
        fresh.unlink(missing_ok=True)
        raise ApiBindError(str(path), f"cannot listen: {exc.strerror or exc}") from exc
    sock.setblocking(False)
    return sock


def loopback(listen: str) -> tuple[str, int]:
    """Return host and port of a HOST:PORT on the loopback interface.

    Raises:
        ApiBindError: it would be open to the network, or is no such address.

    """
    host, _, port = listen.rpartition(":")
    host = host.removeprefix("[").removesuffix("]")
    try:
        is_loopback = host == "localhost" or ipaddress.ip_address(host).is_loopback
    except ValueError:
        is_loopback = False
    if not port.isascii() or not port.isdigit() or int(port) > 65535:
        raise ApiBindError(listen, "must be HOST:PORT such as 127.0.0.1:9808")
    if not is_loopback:
        raise ApiBindError(
            listen,
            "open to the network without TLS: use 127.0.0.1, and a proxy that asks who comes",
        )
    return ("127.0.0.1" if host == "localhost" else host), int(port)


def remove_socket(path: Path) -> None:
    """Remove our socket unless another daemon has put its own there."""
    if not _is_served(path):
        path.unlink(missing_ok=True)


def _is_served(path: Path) -> bool:
    try:
        refuse_served(path)
    except SocketBusy:
        return True
    return False
