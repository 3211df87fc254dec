"""A board of the lab: it prints numbered lines into an emulated adapter, and counts what it gets."""

from __future__ import annotations

import contextlib
import socket
import threading
from pathlib import Path

EVERY_S = 0.01  # a line
CONNECT_LIMIT_S = 5.0


class Board:
    """The far end of an adapter's cable; `path` is the socket of QEMU's chardev.

    It prints `boot 3 line 17` and so on: a number that is missing was lost. What QEMU does not take
    at once waits, as with flow control, so that nothing is lost before it reaches the adapter.
    """

    def __init__(self, path: Path) -> None:
        self.boot = 0
        self.received = bytearray()  # what the PC has sent, in all
        self._path = path
        self._off = threading.Event()
        self._thread: threading.Thread | None = None

    def power_on(self) -> None:
        """Begin a boot and print until it is switched off."""
        self.boot += 1
        self._off.clear()
        cable = socket.socket(socket.AF_UNIX)
        cable.settimeout(CONNECT_LIMIT_S)
        cable.connect(str(self._path))
        cable.setblocking(False)
        self._thread = threading.Thread(target=self._print, args=(cable,), name=self._path.stem)
        self._thread.start()

    def power_off(self) -> None:
        """Stop printing; what was on its way in the cable is gone."""
        if self._thread is not None:
            self._off.set()
            self._thread.join()
            self._thread = None

    def _print(self, cable: socket.socket) -> None:
        waiting = b""
        n = 0
        with cable:
            while not self._off.wait(EVERY_S):
                if not waiting:
                    n += 1
                    waiting = b"boot %d line %d: all is well\r\n" % (self.boot, n)
                with contextlib.suppress(BlockingIOError):
                    waiting = waiting[cable.send(waiting) :]
                with contextlib.suppress(BlockingIOError):
                    self.received += cable.recv(65536)
