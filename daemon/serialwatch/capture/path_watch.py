"""Looks at the path of a device in a thread: a stat may hang."""

from __future__ import annotations

import asyncio
import contextlib
import os
import threading
from collections.abc import Callable

PRESENCE_S = 0.25  # between two looks for a device that is not there
IDENTITY_S = 1.0  # between two looks whether a path still leads to what is open


async def appears(path: str, name: str) -> None:
    """Return when there is something at `path`, 0.25 s from now at the earliest."""
    await _until(lambda: os.path.exists(path), PRESENCE_S, f"path {name}")


async def leads_elsewhere(path: str, opened: str, name: str) -> None:
    """Return when `path` leads to another device than the one that `opened` leads to now.

    If the path is gone but not the device that is open, its link is on its way: nothing changes.
    """
    first = _Identity(path, opened)
    await _until(first.has_changed, IDENTITY_S, f"path {name}")


class _Identity:
    def __init__(self, path: str, opened: str) -> None:
        self._path = path
        self._opened = opened
        self._known: tuple[int, int, int] | None = None

    def has_changed(self) -> bool:
        """Tell whether the device is another one than at the first call."""
        if self._known is None:
            self._known = _identity(self._opened)
        now = _identity(self._path) or _identity(self._opened)
        return now is None or now != self._known


def _identity(path: str) -> tuple[int, int, int] | None:
    """Return what tells a device node from another, None if there is none."""
    try:
        found = os.stat(path)
    except OSError:
        return None
    return found.st_dev, found.st_ino, found.st_rdev


async def _until(is_so: Callable[[], bool], every_s: float, name: str) -> None:
    """Return when `is_so` says so. It is asked in a thread, first now, and counts from later on."""
    loop = asyncio.get_running_loop()
    told = asyncio.Event()
    stop = threading.Event()

    def look() -> None:
        is_so()
        while not stop.wait(every_s):
            if is_so():
                with contextlib.suppress(RuntimeError):  # the loop is closed
                    loop.call_soon_threadsafe(told.set)
                return

    # A daemon: a hung stat must not keep the process.
    threading.Thread(target=look, name=name, daemon=True).start()
    try:
        await told.wait()
    finally:
        stop.set()
