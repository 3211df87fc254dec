"""Reads the configuration again, in a thread of its own: where it lies, nothing may answer."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Sequence
from concurrent.futures import Future
from typing import TypeVar

T = TypeVar("T")

SLOW_S = 10.0  # then somebody has to know


async def read_again(load: Callable[[], T], tell: Callable[[Sequence[str]], None]) -> T:
    """Return what `load` returns or raise what it raises; if it blocks, `tell` so once."""
    read: Future[T] = Future()
    read.set_running_or_notify_cancel()

    def work() -> None:
        try:
            read.set_result(load())
        except BaseException as exc:  # noqa: BLE001 -- whoever waits for it gets it
            read.set_exception(exc)

    threading.Thread(target=work, name="config", daemon=True).start()
    words = [f"it is still being read after {SLOW_S:g} s"]
    slow = asyncio.get_running_loop().call_later(SLOW_S, tell, words)
    try:
        return await asyncio.wrap_future(read)
    finally:
        slow.cancel()
