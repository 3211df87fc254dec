"""An ear for tests: what a port has pushed, and how late the loop was meanwhile."""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

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
    """Measure how late a beat of `step_s` comes while the block runs.

    Time in which the thread waited for a core does not count: that is others' doing.
    """
    loop = asyncio.get_running_loop()
    waits = Path(f"/proc/self/task/{threading.get_native_id()}/schedstat")
    seen = Lateness()

    def had_s() -> float:
        return time.monotonic() - waited_s(waits)

    due = [had_s() + step_s]

    def beat() -> None:
        now = had_s()
        seen.worst_s = max(seen.worst_s, now - due[0])
        due[0] = now + step_s
        handle[0] = loop.call_later(step_s, beat)

    handle = [loop.call_later(step_s, beat)]
    try:
        yield seen
    finally:
        handle[0].cancel()
        seen.worst_s = max(seen.worst_s, had_s() - due[0])


def waited_s(schedstat: Path) -> float:
    """Return how long a thread has waited for a core, 0 if the kernel does not say."""
    try:
        return int(schedstat.read_text().split()[1]) / 1e9
    except (OSError, IndexError):
        return 0.0
