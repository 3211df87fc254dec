"""`replay:FILE?bit_rate=115200&loop=0`: a capture, pushed as fast as the wire would.

`bit_rate=0` is as fast as the loop takes it; `loop=1` begins again at the end of the file.
"""

from __future__ import annotations

import asyncio
import os
import stat
import time
from typing import BinaryIO

from serialwatch_drivers.device import split_options
from serialwatch_drivers.port import (
    OnBytes,
    OnLost,
    PortLostError,
    PortOpenError,
    PortOptions,
    PortWriteError,
    UartCounters,
)
from serialwatch_drivers.port_thread import PortThread, open_in_thread

BITS_A_BYTE = 10  # 8N1: a start bit and a stop bit
_TICK_S = 0.01
_PUSH_BYTES = 65536
_AHEAD_BYTES = 65536  # read from disk before it is due


async def open_replay(
    device: str, options: PortOptions, on_bytes: OnBytes, on_lost: OnLost
) -> ReplayPort:
    """Open a capture and push it. At its end the port stays open and silent.

    Without `bit_rate=` the port's own rate counts. Lost only if the disk fails.

    Raises:
        PortOpenError: the file is missing, may not be read or is no file, or an option is wrong.

    """
    path, chosen = split_options(device, {"bit_rate": options.bit_rate, "loop": 0})
    thread, file = await open_in_thread(
        device, lambda _thread: _open(device, path), lambda file: file.close()
    )
    port = ReplayPort(
        device,
        file,
        thread,
        on_bytes,
        on_lost,
        bit_rate=chosen["bit_rate"],
        is_endless=chosen["loop"] != 0,
    )
    port.resume()
    return port


class ReplayPort:
    """A capture on its way. Silent until `resume`."""

    def __init__(
        self,
        device: str,
        file: BinaryIO,
        thread: PortThread,
        on_bytes: OnBytes,
        on_lost: OnLost,
        *,
        bit_rate: int,
        is_endless: bool,
    ) -> None:
        self._device = device
        self._file = file
        self._thread = thread
        self._on_bytes = on_bytes
        self._on_lost = on_lost
        self._bit_rate = bit_rate
        self._is_endless = is_endless
        self._loop = asyncio.get_running_loop()
        self._ahead = bytearray()
        self._is_reading = False
        self._is_at_end = False
        self._is_running = False
        self._is_closed = False
        self._since_ns = 0  # CLOCK_MONOTONIC: the wire has run from here
        self._pushed = 0  # bytes since then
        self._next: asyncio.Handle | None = None

    @property
    def device(self) -> str:
        """The device as it was asked for."""
        return self._device

    @property
    def far_end(self) -> None:
        """None: a file has no other side."""
        return None

    async def write(self, data: bytes) -> None:
        """Refuse.

        Raises:
            PortWriteError: always.

        """
        raise PortWriteError(self._device, "write failed: a replay takes no input", 0)

    async def set_lines(self, *, dtr: bool | None = None, rts: bool | None = None) -> None:
        """Do nothing: a file has no modem lines."""

    async def send_break(self, duration_s: float = 0.25) -> None:
        """Do nothing: a file has no break."""

    async def counters(self) -> UartCounters | None:
        """Return None: a file counts nothing."""
        return None

    def pause(self) -> None:
        """Stop the wire."""
        self._is_running = False
        if self._next is not None:
            self._next.cancel()
            self._next = None

    def resume(self) -> None:
        """Let the wire go on from where it was stopped."""
        if not self._is_running and not self._is_closed:
            self._is_running = True
            self._since_ns = time.monotonic_ns()
            self._pushed = 0
            self._next = self._loop.call_soon(self._push)

    def close(self) -> None:
        """Begin to close; no callback comes after this."""
        if not self._is_closed:
            self.pause()
            self._is_closed = True
            self._thread.end(self._file.close)

    async def wait_closed(self) -> None:
        """Return when the file is closed."""
        await self._thread.ended()

    def _push(self) -> None:
        self._next = None
        due = self._due()
        data = bytes(self._ahead[: min(due, _PUSH_BYTES)])
        if data:
            del self._ahead[: len(data)]
            self._pushed += len(data)
            self._on_bytes(data, time.monotonic_ns())
        if not self._is_running:  # `on_bytes` may pause or close us
            return
        if len(self._ahead) < _AHEAD_BYTES and not self._is_reading and not self._is_at_end:
            self._is_reading = True
            self._thread.post(self._read, self._take)
        if not self._ahead:
            return  # `_take` goes on
        if due > len(data):
            self._next = self._loop.call_soon(self._push)
        else:
            # Counted from the start of the wire, so that late ticks add up to nothing.
            self._next = self._loop.call_later(self._tick_s(), self._push)

    def _due(self) -> int:
        if self._bit_rate == 0:
            return len(self._ahead)
        run_ns = time.monotonic_ns() - self._since_ns
        return run_ns * self._bit_rate // (BITS_A_BYTE * 1_000_000_000) - self._pushed

    def _tick_s(self) -> float:
        return 0.0 if self._bit_rate == 0 else max(_TICK_S, BITS_A_BYTE / self._bit_rate)

    def _read(self) -> bytes | OSError:
        """Read on, in the port's thread; nothing is the end."""
        try:
            data = self._file.read(_AHEAD_BYTES)
            if not data and self._is_endless:
                self._file.seek(0)
                data = self._file.read(_AHEAD_BYTES)
        except OSError as exc:
            return exc
        return data

    def _take(self, data: bytes | OSError) -> None:
        self._is_reading = False
        if self._is_closed:
            return
        if isinstance(data, OSError):
            self.close()
            self._on_lost(PortLostError(self._device, f"read failed: {data.strerror}"))
            return
        self._is_at_end = not data
        self._ahead += data
        if self._is_running and self._next is None and data:
            self._next = self._loop.call_soon(self._push)


def _open(device: str, path: str) -> BinaryIO:
    try:
        # Without O_NONBLOCK the open of a FIFO would wait for its writer.
        fd = os.open(path, os.O_RDONLY | os.O_NONBLOCK)
    except FileNotFoundError as exc:
        raise PortOpenError(device, "absent", f"open failed: {exc.strerror}") from exc
    except PermissionError as exc:
        raise PortOpenError(device, "denied", f"open failed: {exc.strerror}") from exc
    except (OSError, ValueError) as exc:  # ValueError: a NUL in the name
        raise PortOpenError(device, "broken", f"open failed: {exc}") from exc
    if not stat.S_ISREG(os.fstat(fd).st_mode):
        os.close(fd)
        raise PortOpenError(device, "broken", "open failed: not a file")
    return os.fdopen(fd, "rb", buffering=0)
