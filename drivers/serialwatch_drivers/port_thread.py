"""A thread for each port, for calls that may hang: open, close, ioctl."""

from __future__ import annotations

import asyncio
import contextlib
import queue
import threading
from collections.abc import Callable
from concurrent.futures import Future
from typing import TypeVar

from serialwatch_drivers.port import PortOpenError

T = TypeVar("T")
_Job = Callable[[], object]

OPEN_LIMIT_S = 5.0  # a USB control transfer gives up after 5 s; nothing healthy takes longer


class PortThread:
    """Runs one job after another off the loop. A daemon: a hung driver must not keep us alive.

    Made and asked on the loop.
    """

    def __init__(self, device: str) -> None:
        self._loop = asyncio.get_running_loop()
        self._ended = asyncio.Event()
        self._is_ended = False
        self._jobs: queue.SimpleQueue[_Job | None] = queue.SimpleQueue()
        threading.Thread(target=self._work, name=f"port {device}", daemon=True).start()

    @property
    def is_ended(self) -> bool:
        """Whether all its jobs are done and no more come."""
        return self._is_ended

    async def run(self, job: Callable[[], T], undo: Callable[[T], object] | None = None) -> T:
        """Return what `job` returns, or raise what it raises.

        If the caller is cancelled the job goes on; `undo` gets its result, in the thread.
        """
        outcome: Future[T] = Future()
        woken = self._loop.create_future()

        def wake() -> None:
            if not woken.done():
                woken.set_result(None)

        def work() -> None:
            try:
                result = job()
            except Exception as exc:  # noqa: BLE001  the waiting coroutine raises it
                if outcome.set_running_or_notify_cancel():
                    outcome.set_exception(exc)
            else:
                if outcome.set_running_or_notify_cancel():
                    outcome.set_result(result)
                elif undo is not None:
                    undo(result)
            self._tell(wake)

        self._jobs.put(work)
        try:
            await woken
        except asyncio.CancelledError:
            # Whoever comes first decides: this cancel, or the thread that hands over.
            if not outcome.cancel() and undo is not None and outcome.exception() is None:
                late = outcome.result()
                self._jobs.put(lambda: undo(late))
            raise
        return outcome.result()

    def post(self, job: Callable[[], T], done: Callable[[T], None]) -> None:
        """Run `job`, then `done` with its result on the loop. Never blocks; `job` may not raise."""

        def work() -> None:
            result = job()
            self._tell(lambda: done(result))

        self._jobs.put(work)

    def end(self, last: _Job | None = None) -> None:
        """Run what is queued, then `last`, then end. Never blocks."""
        if last is not None:
            self._jobs.put(last)
        self._jobs.put(None)

    async def ended(self) -> None:
        """Return when the thread has done all its jobs."""
        await self._ended.wait()

    def _work(self) -> None:
        try:
            while (job := self._jobs.get()) is not None:
                job()
        finally:
            self._is_ended = True
            self._tell(self._ended.set)

    def _tell(self, what: Callable[[], None]) -> None:
        with contextlib.suppress(RuntimeError):  # the loop is closed, and with it whoever waited
            self._loop.call_soon_threadsafe(what)


_hung: dict[str, PortThread] = {}  # by device: an open that nobody waits for any more


async def open_in_thread(
    device: str,
    job: Callable[[PortThread], T],
    undo: Callable[[T], object],
    limit_s: float | None = None,  # None: as for a device of this PC
    remedy: str = "plug the adapter in again",
) -> tuple[PortThread, T]:
    """Run the opening `job` in a new thread for `device`; return both if it is done in time.

    What it opens later goes to `undo`, and until then the device is not tried again.

    Raises:
        PortOpenError: whatever `job` says, or `broken` if it hangs.

    """
    limit_s = OPEN_LIMIT_S if limit_s is None else limit_s
    earlier = _hung.get(device)
    if earlier is not None and not earlier.is_ended:
        raise PortOpenError(device, "broken", "open failed: an earlier open still hangs")
    _hung.pop(device, None)
    thread = PortThread(device)
    try:
        async with asyncio.timeout(limit_s):
            return thread, await thread.run(lambda: job(thread), undo)
    except TimeoutError as exc:
        _give_up(device, thread)
        problem = f"open failed: no answer within {limit_s:g} s ({remedy})"
        raise PortOpenError(device, "broken", problem) from exc
    except asyncio.CancelledError:
        _give_up(device, thread)
        raise
    except BaseException:
        thread.end()
        raise


def _give_up(device: str, thread: PortThread) -> None:
    thread.end()
    _hung[device] = thread
