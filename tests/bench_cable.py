"""A cable for tests: a pty pair whose slave stands in for the serial device of a board."""

from __future__ import annotations

import asyncio
import os
import tty
from collections.abc import Awaitable
from pathlib import Path
from typing import TypeVar

T = TypeVar("T")


async def within_s(limit_s: float, what: Awaitable[T]) -> T:
    """Wait for `what`, at most `limit_s`."""
    async with asyncio.timeout(limit_s):
        return await what


class Cable:
    """A board's side (`board`, a pty master) and the device that a daemon opens (`path`).

    `path` is a link, as `/dev/serial/by-id/...` is: unplug and plug in again, and it leads to
    another pty.
    """

    def __init__(self, folder: Path, name: str = "usb-Test_UART_0001-if00-port0") -> None:
        self.path = folder / name
        self.board = -1
        self._slave = -1
        self.plug()

    def plug(self) -> None:
        """Connect (again): a new pty under the same link."""
        self.board, self._slave = os.openpty()
        tty.setraw(self._slave)
        os.set_blocking(self.board, False)
        target = os.ttyname(self._slave)
        fresh = self.path.with_suffix(".new")
        fresh.symlink_to(target)
        fresh.replace(self.path)

    def detach_own(self) -> None:
        """Give up our own hold of the slave, so that only the daemon keeps it open."""
        if self._slave >= 0:
            os.close(self._slave)
            self._slave = -1

    def prints(self, data: bytes) -> None:
        """Let the board print. At most 4 KiB a call fit for sure while nobody reads."""
        os.write(self.board, data)

    async def prints_all(self, data: bytes, limit_s: float = 30.0) -> None:
        """Let the board print any amount, as fast as it is read."""
        loop = asyncio.get_running_loop()
        view = memoryview(data)
        async with asyncio.timeout(limit_s):
            while view:
                try:
                    view = view[os.write(self.board, view) :]
                except BlockingIOError:
                    free = loop.create_future()
                    loop.add_writer(self.board, lambda f=free: f.done() or f.set_result(None))
                    try:
                        await free
                    finally:
                        loop.remove_writer(self.board)

    def received(self) -> bytes:
        """Return what the board has received since the last call."""
        got = bytearray()
        while True:
            try:
                part = os.read(self.board, 65536)
            except (BlockingIOError, OSError):
                return bytes(got)
            if not part:
                return bytes(got)
            got += part

    def unplug(self) -> None:
        """Pull the cable: the daemon's side hangs up and the link leads nowhere."""
        self.path.unlink(missing_ok=True)
        self.detach_own()
        if self.board >= 0:
            os.close(self.board)
            self.board = -1

    def close(self) -> None:
        """Put the cable away."""
        self.unplug()
