"""When time passes for the ports: twenty times a second, and once while nothing happens."""

from __future__ import annotations

import asyncio

from serialwatch.seconds import until_next

TICK_S = 0.05
CALM_TICK_S = 1.0


class Pulse:
    """The ticks of one loop."""

    def __init__(self) -> None:
        self._due_s = 0.0  # loop time
        self._calm: asyncio.Future[None] | None = None  # a wait that need not go on

    async def next(self, *, is_calm: bool) -> float:
        """Wait for the next tick; return how late it comes."""
        loop = asyncio.get_running_loop()
        if not is_calm:
            due_s = self._due_s = max(self._due_s + TICK_S, loop.time())
            await asyncio.sleep(due_s - loop.time())
            return max(0.0, loop.time() - due_s)
        due_s = loop.time() + until_next(CALM_TICK_S, loop.time())
        calm = self._calm = loop.create_future()
        timer = loop.call_at(due_s, self.hurry)
        try:
            await calm
        finally:
            self._calm = None
            timer.cancel()
        self._due_s = min(due_s, loop.time())
        return max(0.0, loop.time() - due_s)

    def hurry(self) -> None:
        """End a long wait: something happens."""
        if self._calm is not None and not self._calm.done():
            self._calm.set_result(None)
