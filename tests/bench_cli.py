"""Commands for tests: run as a person runs them, beside an API that lives in a thread."""

from __future__ import annotations

import asyncio
import os
import pty
import signal
import sys
import termios
import threading
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TypeVar

import pytest

from bench_api import FakeBench, serving
from bench_cable import within_s
from serialwatch.cli.main import run_cli

T = TypeVar("T")

COMMAND = [sys.executable, "-c", "from serialwatch.cli.main import main; main()"]


@dataclass
class Result:
    """What a command did."""

    code: int
    out: str
    err: str


class Cli:
    """Runs commands against the daemon at `socket`, as in a pipe."""

    def __init__(self, socket: Path, capsys: pytest.CaptureFixture[str]) -> None:
        self.socket = socket
        self._capsys = capsys

    def __call__(self, *args: str) -> Result:
        """Run one command."""
        self._capsys.readouterr()
        code = run_cli(args)
        out, err = self._capsys.readouterr()
        return Result(code, out, err)


class ThreadedBench:
    """A bench with its API in a thread; `do` runs something on its loop."""

    def __init__(self, bench: FakeBench, loop: asyncio.AbstractEventLoop) -> None:
        self.bench = bench
        self._loop = loop

    def do(self, what: Callable[[], T]) -> T:
        """Run `what` on the loop of the bench and return what it returns."""

        async def done() -> T:
            return what()

        return asyncio.run_coroutine_threadsafe(done(), self._loop).result(5)

    def prints(self, data: bytes, port: str = "dut1") -> None:
        """Let a board print, and wait until the bench has it."""
        found = self.bench.by_name[port]
        found.cable.prints(data)
        deadline = threading.Event()
        while not self.do(lambda: bytes(found.recent)).endswith(data):
            deadline.wait(0.005)


@contextmanager
def threaded_bench(tmp_path: Path) -> Iterator[ThreadedBench]:
    """Serve a bench from a thread; its socket is `tmp_path / "sw"`."""
    ready: list[ThreadedBench] = []
    is_ready = threading.Event()
    stop: list[Callable[[], None]] = []

    async def serve() -> None:
        async with serving(tmp_path) as bench:
            loop = asyncio.get_running_loop()
            end = asyncio.Event()
            stop.append(lambda: loop.call_soon_threadsafe(end.set) and None)
            ready.append(ThreadedBench(bench, loop))
            is_ready.set()
            await end.wait()

    thread = threading.Thread(target=asyncio.run, args=(serve(),))
    thread.start()
    assert is_ready.wait(10)
    try:
        yield ready[0]
    finally:
        stop[0]()
        thread.join()


class Terminal:
    """A person's terminal with a command in it."""

    def __init__(self, fd: int, slave: int, child: asyncio.subprocess.Process) -> None:
        self.fd = fd
        self.slave = slave
        self.child = child
        self.seen = b""

    def type(self, keys: bytes) -> None:
        """Press keys."""
        os.write(self.fd, keys)

    async def until(self, text: str, limit_s: float = 20) -> bytes:
        """Wait until `text` is on the screen; return all that came since the last call."""
        wanted = text.encode()
        async with asyncio.timeout(limit_s):
            while wanted not in self.seen:
                self.seen += await self.read()
        end = self.seen.index(wanted) + len(wanted)
        found, self.seen = self.seen[:end], self.seen[end:]
        return found

    async def read(self) -> bytes:
        """Return what the command writes next."""
        loop = asyncio.get_running_loop()
        ready = loop.create_future()
        loop.add_reader(self.fd, lambda: ready.done() or ready.set_result(None))
        try:
            await ready
        finally:
            loop.remove_reader(self.fd)
        return os.read(self.fd, 65536)

    async def exit_code(self) -> int:
        """Wait for the command to end."""
        return await within_s(10, self.child.wait())

    def settings(self) -> list[object]:
        """Return the terminal's settings."""
        return termios.tcgetattr(self.slave)


@asynccontextmanager
async def in_terminal(
    *args: str, columns: int = 80, env: dict[str, str] | None = None
) -> AsyncIterator[Terminal]:
    """Run a command in a terminal of its own."""
    master, slave = pty.openpty()
    termios.tcsetwinsize(slave, (24, columns))
    environ = os.environ | {"TERM": "xterm-256color"} | (env or {})
    environ.pop("COLUMNS", None)
    environ.pop("NO_COLOR", None)
    child = await asyncio.create_subprocess_exec(
        *COMMAND,
        *args,
        stdin=slave,
        stdout=slave,
        stderr=slave,
        env=environ,
        start_new_session=True,
    )
    try:
        yield Terminal(master, slave, child)
    finally:
        if child.returncode is None:
            os.kill(child.pid, signal.SIGCONT)
            child.kill()
            await child.wait()
        os.close(master)
        os.close(slave)
