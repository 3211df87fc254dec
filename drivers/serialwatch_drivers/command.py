"""`command:PROG ARGS`: what a program prints is what the board prints (an emulator, RTT, adb).

Its words are split as a shell does, but no shell runs.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import shlex
import signal
import subprocess
import threading

from serialwatch_drivers.descriptors import WRITE_LIMIT_S, BytesPort, FdReader, FdWriter
from serialwatch_drivers.device import parse_device
from serialwatch_drivers.port import (
    OnBytes,
    OnLost,
    PortLostError,
    PortOpenError,
    PortOptions,
)
from serialwatch_drivers.port_thread import PortThread, open_in_thread

KILL_AFTER_S = 2.0
_LAST_BYTES = 1 << 20  # most that a pipe can hold when its program has ended


async def open_command(
    device: str, options: PortOptions, on_bytes: OnBytes, on_lost: OnLost
) -> CommandPort:
    """Start a program and push what it prints, errors too. The port is lost when it ends.

    Raises:
        PortOpenError: the program is not there (`absent`), may not be run (`denied`), or its words
            make no sense (`broken`).

    """
    words = _split(device)
    thread, process = await open_in_thread(
        device, lambda _thread: _start(device, words), _kill_late
    )
    return CommandPort(device, process, thread, on_bytes, on_lost)


class CommandPort(BytesPort):
    """A running program."""

    def __init__(
        self,
        device: str,
        process: subprocess.Popen[bytes],
        thread: PortThread,
        on_bytes: OnBytes,
        on_lost: OnLost,
        write_limit_s: float = WRITE_LIMIT_S,
        kill_after_s: float = KILL_AFTER_S,
    ) -> None:
        assert process.stdin is not None
        assert process.stdout is not None
        self._process = process
        self._stdin = process.stdin
        self._stdout = process.stdout
        self._thread = thread
        self._on_lost = on_lost
        self._kill_after_s = kill_after_s
        self._kill: asyncio.TimerHandle | None = None
        self._loop = asyncio.get_running_loop()
        self._is_open = True
        self._is_reaped = False  # then its process group may be somebody else's
        self._reaping = threading.Lock()
        for pipe in (self._stdin, self._stdout):
            os.set_blocking(pipe.fileno(), False)
        super().__init__(
            device,
            FdReader(self._stdout.fileno(), on_bytes, on_end=_wait_for_the_exit),
            FdWriter(self._stdin.fileno(), device, write_limit_s),
        )
        self._reader.resume()
        thread.end(self._reap)

    @property
    def far_end(self) -> None:
        """None: the other side is the program."""
        return None

    def close(self) -> None:
        """Ask the program and its children to end; in 2 s they are killed. No callback comes."""
        if not self._is_open:
            return
        self._close_pipes()
        self._signal(signal.SIGTERM)
        self._kill = self._loop.call_later(self._kill_after_s, self._signal, signal.SIGKILL)

    async def wait_closed(self) -> None:
        """Return when the program has ended."""
        await self._thread.ended()

    def _reap(self) -> None:
        """Wait for the program's end, in the port's thread; take along what it leaves behind."""
        os.waitid(os.P_PID, self._process.pid, os.WEXITED | os.WNOWAIT)
        with self._reaping:  # as a zombie it still keeps its group's number from others
            _signal_group(self._process, signal.SIGKILL)
            self._process.wait()
            self._is_reaped = True
        with contextlib.suppress(RuntimeError):  # the loop is closed: nobody is left to tell
            self._loop.call_soon_threadsafe(self._ended)

    def _ended(self) -> None:
        if self._kill is not None:
            self._kill.cancel()
        if not self._is_open:
            return
        self._reader.drain(_LAST_BYTES)
        if self._is_open:  # what was pushed may have made the caller close us
            self._close_pipes()
            status = _describe(self._process.returncode)
            self._on_lost(PortLostError(self._device, f"the program ended: {status}"))

    def _close_pipes(self) -> None:
        self._is_open = False
        self._reader.close()
        self._writer.close()
        self._stdin.close()
        self._stdout.close()

    def _signal(self, number: signal.Signals) -> None:
        with self._reaping:
            if not self._is_reaped:
                _signal_group(self._process, number)


def _split(device: str) -> list[str]:
    try:
        words = shlex.split(parse_device(device).body)
    except ValueError as exc:
        raise PortOpenError(device, "broken", f"not a command: {exc}") from exc
    if not words:
        raise PortOpenError(device, "broken", "no program named (write command:PROG ARGS)")
    return words


def _start(device: str, words: list[str]) -> subprocess.Popen[bytes]:
    try:
        return subprocess.Popen(
            words,
            bufsize=0,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )
    except FileNotFoundError as exc:
        problem = f"start failed: {words[0]!r}: {exc.strerror} (is it installed?)"
        raise PortOpenError(device, "absent", problem) from exc
    except PermissionError as exc:
        problem = f"start failed: {words[0]!r}: {exc.strerror} (is it executable?)"
        raise PortOpenError(device, "denied", problem) from exc
    except (OSError, ValueError) as exc:  # ValueError: a NUL in a word
        raise PortOpenError(device, "broken", f"start failed: {words[0]!r}: {exc}") from exc


def _kill_late(process: subprocess.Popen[bytes]) -> None:
    """Undo a start that nobody waits for any more. Blocks."""
    with process:
        _signal_group(process, signal.SIGKILL)


def _signal_group(process: subprocess.Popen[bytes], number: signal.Signals) -> None:
    # It may have ended, or have become another user (sudo).
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.killpg(process.pid, number)


def _wait_for_the_exit() -> None:
    """Do nothing at the end of stdout: the port is lost when the program ends, with its status."""


def _describe(return_code: int) -> str:
    if return_code >= 0:
        return f"exit status {return_code}"
    try:
        return f"killed by {signal.Signals(-return_code).name}"
    except ValueError:
        return f"killed by signal {-return_code}"
