"""The person's terminal while attached: raw keys in, and a screen that may be slow."""

from __future__ import annotations

import asyncio
import os
import select
import signal
import socket
import termios
import threading
import tty
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from itertools import pairwise
from typing import Any

_MAX_WAITING = 64 * 1024  # bytes not on the screen yet; then the daemon is not read either
_PART = 4096  # bytes a write
_LAST_WORDS_S = 1.0  # for what is still to be shown when we leave
_READY = b"!"  # what the guard says when nothing can kill it by mistake
_WELL = b"."  # what it is told when all is well


class RawKeys:
    """A terminal that lets every key through as it is, Ctrl-C too."""

    def __init__(self, fd: int) -> None:
        self._fd = fd
        self._before = termios.tcgetattr(fd)

    def set(self) -> None:
        """Let every key through."""
        tty.setraw(self._fd, termios.TCSANOW)

    def restore(self) -> None:
        """Put the terminal back."""
        # TCSANOW: a screen that hangs must not keep the terminal in raw mode.
        termios.tcsetattr(self._fd, termios.TCSANOW, self._before)

    def suspend(self) -> None:
        """Stop this process, as `kill -TSTP` asks for, with the terminal put back meanwhile."""
        self.restore()
        os.kill(os.getpid(), signal.SIGSTOP)
        self.set()


@contextmanager
def raw_keys(fd: int, restore: bytes) -> Iterator[RawKeys]:
    """Let every key through; put the terminal back at the end, even if we are killed.

    `restore` is written to the terminal in that case.
    """
    keys = RawKeys(fd)
    try:
        keys.set()
        with guarded(fd, keys.restore, restore):
            yield keys
    finally:
        keys.restore()


@contextmanager
def guarded(fd: int, restore: Callable[[], None], words: bytes) -> Iterator[None]:
    """Let another process put the terminal back if this one dies within."""
    raw = termios.tcgetattr(fd)  # read here: while the guard starts, somebody may change it
    here, there = socket.socketpair()
    pid = os.fork()
    if pid == 0:
        try:
            _guard(fd, raw, there, restore, words)
        finally:
            os._exit(0)
    there.close()
    here.recv(1)  # from now on what kills us leaves it alone; nothing comes if it is dead already
    try:
        yield
    finally:
        with suppress(BrokenPipeError):  # somebody has killed the guard
            here.send(_WELL)
        here.close()
        with suppress(ChildProcessError):
            os.waitpid(pid, 0)


def _guard(
    fd: int, raw: list[Any], watched: socket.socket, restore: Callable[[], None], words: bytes
) -> None:
    """Wait until the process that we were split from ends; if it died, do what it cannot."""
    signal.pthread_sigmask(signal.SIG_BLOCK, signal.valid_signals())  # they are meant for it
    os.setsid()  # and what kills its whole group must not kill us
    # Nothing else may stay open here: the daemon would take its client for alive.
    edges = (-1, *sorted((fd, watched.fileno())), os.sysconf("SC_OPEN_MAX"))
    for low, high in pairwise(edges):
        if low + 1 < high:  # of no descriptor at all it would make every one
            os.closerange(low + 1, high)
    told = b""
    with suppress(ConnectionError):  # it is dead already
        watched.send(_READY)
        told = watched.recv(1)
    if told == _WELL or termios.tcgetattr(fd) != raw:
        return  # it has put the terminal back, or the shell has
    restore()
    # Opened anew, for a terminal that is stopped must not hold us, nor the shell find it changed.
    terminal = os.open(os.ttyname(fd), os.O_WRONLY | os.O_NOCTTY | os.O_NONBLOCK)
    os.write(terminal, words)


async def read_keys(fd: int) -> bytes:
    """Return what is typed next, b"" when the terminal has gone."""
    loop = asyncio.get_running_loop()
    ready: asyncio.Future[None] = loop.create_future()
    loop.add_reader(fd, _set, ready)
    try:
        await ready
    finally:
        loop.remove_reader(fd)
    try:
        return os.read(fd, 4096)
    except OSError:
        return b""


def _set(ready: asyncio.Future[None]) -> None:
    if not ready.done():
        ready.set_result(None)


class Screen:
    """Writes to a terminal from a thread, for one that is stopped or slow may block for long.

    Its descriptor is never made non-blocking: the shell that started us shares it.
    """

    def __init__(self, fd: int) -> None:
        self._fd = fd
        self._parts: deque[bytes] = deque()
        self._waiting = 0  # bytes
        self._more = threading.Condition()
        self._is_closing = False
        self._loop = asyncio.get_running_loop()
        self._room = asyncio.Event()
        self._room.set()
        self.gone = asyncio.Event()  # nobody is behind the terminal any more
        self._thread = threading.Thread(target=self._write_parts, name="screen", daemon=True)
        self._thread.start()

    def show(self, data: bytes) -> None:
        """Show this, sooner or later."""
        with self._more:
            self._parts.append(data)
            self._waiting += len(data)
            if self._waiting > _MAX_WAITING:
                self._room.clear()
            self._more.notify()

    async def has_room(self) -> None:
        """Return when the terminal has caught up."""
        await self._room.wait()

    def close(self) -> None:
        """Show what is left, but wait only a moment for that."""
        with self._more:
            self._is_closing = True
            self._more.notify()
        self._thread.join(_LAST_WORDS_S)

    def _write_parts(self) -> None:
        while (part := self._next()) is not None:
            view = memoryview(part)
            while view:
                try:
                    view = view[os.write(self._fd, view[:_PART]) :]
                except BlockingIOError:  # somebody else has made it non-blocking
                    select.select([], [self._fd], [], 1.0)
                except OSError:
                    self._tell(self.gone)
                    return
            self._written(len(part))

    def _next(self) -> bytes | None:
        with self._more:
            while not self._parts:
                if self._is_closing:
                    return None
                self._more.wait()
            return self._parts.popleft()

    def _written(self, count: int) -> None:
        with self._more:
            self._waiting -= count
            has_room = self._waiting <= _MAX_WAITING // 2
        if has_room:
            self._tell(self._room)

    def _tell(self, event: asyncio.Event) -> None:
        try:
            self._loop.call_soon_threadsafe(event.set)
        except RuntimeError:
            return  # the loop has ended: we are leaving
