"""An ear for tests: what a port has pushed, and how late the loop was meanwhile."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Iterator
from contextlib import contextmanager

from serialwatch_drivers.port import PortLostError


class Ear:
    """Takes a port's callbacks. Make it on the loop."""

    def __init__(self) -> None:
        self.data = bytearray()
        self.pieces: list[int] = []  # bytes a call
        self.stamps_ns: list[int] = []
        self.losses: list[PortLostError] = []
        self._news = asyncio.Event()

    def on_bytes(self, data: bytes, mono_ns: int) -> None:
        self.data += data
        self.pieces.append(len(data))
        self.stamps_ns.append(mono_ns)
        self._news.set()

    def on_lost(self, error: PortLostError) -> None:
        self.losses.append(error)
        self._news.set()

    async def hears(self, count: int, limit_s: float = 5.0) -> bytes:
        """Wait until `count` bytes have come in all; return all there are."""
        async with asyncio.timeout(limit_s):
            while len(self.data) < count:
                await self._next()
        return bytes(self.data)

    async def loses(self, limit_s: float = 5.0) -> PortLostError:
        """Wait until the port is lost."""
        async with asyncio.timeout(limit_s):
            while not self.losses:
                await self._next()
        return self.losses[0]

    async def _next(self) -> None:
        self._news.clear()
        await self._news.wait()


class Lateness:
    """How late the loop was, at worst."""

    def __init__(self) -> None:
        self.worst_s = 0.0


@contextmanager
def watched_loop(step_s: float = 0.005) -> Iterator[Lateness]:
    """Measure how late a beat of `step_s` comes while the block runs."""
    loop = asyncio.get_running_loop()
    seen = Lateness()
    due = [time.monotonic() + step_s]

    def beat() -> None:
        now = time.monotonic()
        seen.worst_s = max(seen.worst_s, now - due[0])
        due[0] = now + step_s
        handle[0] = loop.call_later(step_s, beat)

    handle = [loop.call_later(step_s, beat)]
    try:
        yield seen
    finally:
        handle[0].cancel()
        seen.worst_s = max(seen.worst_s, time.monotonic() - due[0])
