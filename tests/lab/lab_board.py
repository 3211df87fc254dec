"""A board of the lab: it prints numbered lines into an emulated adapter, and counts what it gets."""

from __future__ import annotations

import contextlib
import fcntl
import socket
import struct
import termios
import threading
from collections.abc import Callable
from pathlib import Path

EVERY_S = 0.01  # a line
CONNECT_LIMIT_S = 5.0


class Board:
    """The far end of an adapter's cable; `path` is the socket of QEMU's chardev.

    It prints `boot 3 line 17` and so on: a number that is missing was lost. What it prints before
    its adapter was opened is only counted, since a real one drops it at the open, and QEMU's a part
    of it. `resets` tells how often adapters were opened. From then on what QEMU does not take at
    once waits, as with flow control: nothing is lost before it reaches the adapter.
    """

    def __init__(self, path: Path, resets: Callable[[], int]) -> None:
        self.boot = 0
        self.received = bytearray()  # what the PC has sent, in all
        self.asked = 0  # so many bytes of it somebody has asked for
        self._path = path
        self._resets = resets
        self._off = threading.Event()
        self._thread: threading.Thread | None = None

    @property
    def unasked(self) -> int:
        """How many bytes it got that nobody had asked for."""
        return len(self.received) - self.asked

    def power_on(self) -> None:
        """Begin a boot and print until it is switched off."""
        self.boot += 1
        self._off.clear()
        cable = self._connected()
        self._thread = threading.Thread(target=self._print, args=(cable,), name=self._path.stem)
        self._thread.start()

    def power_off(self) -> None:
        """Stop printing; what was on its way in the cable is gone."""
        if self._thread is not None:
            self._off.set()
            self._thread.join()
            self._thread = None

    def _connected(self) -> socket.socket:
        cable = socket.socket(socket.AF_UNIX)
        cable.settimeout(CONNECT_LIMIT_S)
        cable.connect(str(self._path))
        cable.setblocking(False)
        return cable

    def _print(self, cable: socket.socket | None) -> None:
        n = 0
        before = self._resets()
        is_heard = False
        while not self._off.wait(EVERY_S):
            try:
                if cable is None:
                    cable = self._connected()
                    before, is_heard = self._resets(), False
                self._receive(cable)
                is_heard = is_heard or self._resets() > before
                if is_heard and _untaken(cable):
                    continue
                n += 1
                if is_heard:
                    cable.send(b"boot %d line %d: all is well\r\n" % (self.boot, n))
            except (ConnectionError, FileNotFoundError):  # the PC has no power: the board goes on
                n += 1
                if cable is not None:
                    cable.close()
                cable = None
        if cable is not None:
            cable.close()

    def _receive(self, cable: socket.socket) -> None:
        with contextlib.suppress(BlockingIOError):
            data = cable.recv(65536)
            if not data:
                raise ConnectionResetError
            self.received += data


def _untaken(cable: socket.socket) -> int:
    """Return whether something that was sent is not taken yet (of a local socket: not how much)."""
    told: int = struct.unpack("i", fcntl.ioctl(cable, termios.TIOCOUTQ, bytes(4)))[0]
    return told
