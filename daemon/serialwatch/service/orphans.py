"""What the programs that we run leave behind: it stays below us, and we take leave of it.

A process whose parent has ended goes to pid 1 as a rule, and nobody could tell any more that it was
started here. So the kernel is asked to hand it to us (`PR_SET_CHILD_SUBREAPER`).
"""

from __future__ import annotations

import asyncio
import os
import signal
from contextlib import suppress
from pathlib import Path

from serialwatch.agent.workers.sandbox import adopt_orphans

SETTLE_S = 5.0  # who has started a child takes leave of it within milliseconds


class Orphans:
    """Those that were handed to us. Whoever has started a child of ours waits for it himself."""

    def __init__(self, settle_s: float = SETTLE_S, tasks: Path = Path("/proc/self/task")) -> None:
        self._settle_s = settle_s
        self._tasks = tasks
        self._loop = asyncio.get_running_loop()
        self._ended: frozenset[int] = frozenset()  # that nobody had waited for at the last look
        self._look: asyncio.TimerHandle | None = None

    def adopt(self) -> None:
        """Have them handed to us from now on. Only the main thread can."""
        adopt_orphans()
        self._loop.add_signal_handler(signal.SIGCHLD, self._look_soon)

    def close(self) -> None:
        """Look after them no more."""
        self._loop.remove_signal_handler(signal.SIGCHLD)
        if self._look is not None:
            self._look.cancel()

    def _look_soon(self) -> None:
        if self._look is None:
            self._look = self._loop.call_later(self._settle_s, self._take_leave)

    def _take_leave(self) -> None:
        """Wait for those that had ended at the last look, too: they are nobody else's."""
        self._look = None
        ended = frozenset(pid for pid in self._children() if _has_ended(pid))
        for pid in ended & self._ended:
            with suppress(ChildProcessError):
                os.waitpid(pid, os.WNOHANG)
        self._ended = ended - self._ended
        if self._ended:
            self._look_soon()

    def _children(self) -> list[int]:
        found: list[int] = []
        for task in self._tasks.glob("*/children"):  # a child belongs to the thread that made it
            with suppress(OSError):
                found += map(int, task.read_text().split())
        return found


def _has_ended(pid: int) -> bool:
    try:
        return os.waitid(os.P_PID, pid, os.WEXITED | os.WNOHANG | os.WNOWAIT) is not None
    except ChildProcessError:
        return False
