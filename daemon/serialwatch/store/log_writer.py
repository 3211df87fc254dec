"""Writes what the ports print to their logs, in two threads: one writes, one calls fsync.

A disk that is full or broken stops the log, never the capture: the bytes wait in the rings, are
tried again each second, and what had to be dropped is a GAP record with its exact size.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from serialwatch.seconds import until_next
from serialwatch.store.log_appender import RETRY_S, LogAppender
from serialwatch.store.log_format import kernel_boot_id
from serialwatch.store.log_items import LogSource

log = logging.getLogger(__name__)

ROTATE_BYTES = 64 * 1024 * 1024
GATHER_S = 0.02  # what comes within it is written together
SYNC_S = 1.0
SYNC_LIMIT_S = 2.0  # for `synced`
STOP_LIMIT_S = 10.0
LAST_TRIES_S = 2.0  # so long a disk that fails is tried again at the end
LAST_RETRY_S = 0.1

OnProblem = Callable[[str, str], None]  # port, what is wrong; "" when it is over


class LogWriter:
    """The logs of all ports.

    `on_problem` is called on the loop, once for a problem and once, with "", when it is over.
    """

    def __init__(
        self, log_dir: Path, on_problem: OnProblem, rotate_bytes: int = ROTATE_BYTES
    ) -> None:
        self._log_dir = log_dir
        self._on_problem = on_problem
        self._rotate_bytes = rotate_bytes
        self._boot_id = kernel_boot_id()
        self._ports: dict[str, LogAppender] = {}
        self._told: dict[str, str] = {}
        self._wake = threading.Event()  # there is something to write
        self._hurry = threading.Event()  # somebody waits for it
        self._sync_now = threading.Event()
        self._is_stopping = False
        self._last_try_s = 0.0  # time.monotonic() of it
        self._is_written = False  # after the last write
        self._waiters: list[_Waiter] = []
        self._loop: asyncio.AbstractEventLoop | None = None
        self._has_ended = asyncio.Event()
        self._threads = (
            threading.Thread(target=self._write_all, name="log-writer", daemon=True),
            threading.Thread(target=self._sync_all, name="log-fsync", daemon=True),
        )

    @property
    def problems(self) -> dict[str, str]:
        """Why nothing is written, by port; ports that are well are not in it."""
        return dict(self._told)

    def attach(self, source: LogSource) -> None:
        """Write the log of one more port."""
        port = LogAppender(self._log_dir / source.name, source, self._boot_id, self._rotate_bytes)
        self._ports = {**self._ports, source.name: port}
        source.signal = self._wake
        self._wake.set()

    async def detach(self, name: str) -> None:
        """Write what is left of a port and end its file. Its ring may be thrown away then."""
        port = self._ports[name]
        port.is_leaving = True
        with contextlib.suppress(TimeoutError):
            await self._wait_for(lambda: port.is_gone or None)
        port.source.signal = None
        _tell_left(name, port)
        self._ports = {other: p for other, p in self._ports.items() if other != name}
        self._told.pop(name, None)

    def start(self) -> None:
        """Begin to write. Call it on the loop."""
        self._loop = asyncio.get_running_loop()
        for thread in self._threads:
            thread.start()

    async def stop(self) -> None:
        """Write and sync all that is there, end the files and the threads; 10 s at most."""
        if self._loop is None:
            return
        self._last_try_s = time.monotonic() + LAST_TRIES_S
        self._is_stopping = True
        self._hurry.set()
        self._wake.set()
        try:
            async with asyncio.timeout(STOP_LIMIT_S):
                await self._has_ended.wait()
        except TimeoutError:
            log.error("the logs are not complete: the disk takes too long")
            for name, port in self._ports.items():
                if unwritten := port.source.unwritten_bytes:
                    log.error("%s: the last %d bytes are not in the log", name, unwritten)
            return
        for thread in self._threads:
            thread.join()
        for name, port in self._ports.items():
            if port.left_bytes:
                _tell_left(name, port)
            elif port.problem:
                log.error("%s: the log is not complete: %s", name, port.problem)

    async def synced(self, port: str, seq: int) -> bool:
        """Bring the log of `port` to the disk; return whether line `seq` is there.

        False after 2 s at most: the disk does not take it, or the line was lost.
        """
        state = self._ports.get(port)
        if state is None or self._loop is None:
            return False
        put_bytes = state.source.put_bytes
        try:
            return await self._wait_for(lambda: state.is_durable(seq, put_bytes))
        except TimeoutError:
            return False

    async def _wait_for(
        self, answer: Callable[[], bool | None], limit_s: float = SYNC_LIMIT_S
    ) -> bool:
        """Return what `answer` says after a sync, as soon as that is not None."""
        if (known := answer()) is not None:
            return known
        waiter = _Waiter(asyncio.get_running_loop().create_future(), answer)
        self._waiters.append(waiter)
        self._hurry.set()
        self._wake.set()
        try:
            async with asyncio.timeout(limit_s):
                return await waiter.future
        finally:
            self._waiters.remove(waiter)

    def _answer(self) -> None:
        for waiter in self._waiters:
            known = waiter.answer()
            if known is not None and not waiter.future.done():
                waiter.future.set_result(known)
        for name, port in self._ports.items():
            problem = port.problem
            if problem == self._told.get(name, ""):
                continue
            if problem:
                self._told[name] = problem
            else:
                del self._told[name]
            self._on_problem(name, problem)

    def _write_all(self) -> None:
        while not self._is_written:
            is_well = not any(port.problem for port in self._ports.values())
            retry_s = LAST_RETRY_S if self._is_stopping else RETRY_S
            self._wake.wait(None if is_well else retry_s)
            if not self._is_stopping:
                self._hurry.wait(GATHER_S)
            is_last = self._is_stopping
            gives_up = not is_last or time.monotonic() >= self._last_try_s
            is_hurried = self._hurry.is_set()
            self._hurry.clear()
            self._wake.clear()
            has_news = False
            for port in self._ports.values():
                before = port.problem
                port.write(time.monotonic(), is_last=is_last, gives_up=gives_up)
                has_news |= port.problem != before
            self._is_written = is_last and all(port.is_ended for port in self._ports.values())
            if is_hurried or self._is_written or has_news:
                self._sync_now.set()

    def _sync_all(self) -> None:
        assert self._loop is not None
        is_last = False
        while not is_last:
            self._sync_now.wait(until_next(SYNC_S, time.monotonic()))
            self._sync_now.clear()
            is_last = self._is_written
            for port in self._ports.values():
                port.sync(time.monotonic())
            problems = {name: port.problem for name, port in self._ports.items() if port.problem}
            if self._waiters or problems != self._told:
                self._tell(self._answer)
        self._tell(self._has_ended.set)

    def _tell(self, what: Callable[[], None]) -> None:
        assert self._loop is not None
        with contextlib.suppress(RuntimeError):  # the loop is closed, and with it whoever waited
            self._loop.call_soon_threadsafe(what)


def _tell_left(name: str, port: LogAppender) -> None:
    if port.left_bytes:
        log.error(
            "%s: the last %d bytes are not in the log: %s", name, port.left_bytes, port.problem
        )


@dataclass(frozen=True, slots=True)
class _Waiter:
    future: asyncio.Future[bool]
    answer: Callable[[], bool | None]
