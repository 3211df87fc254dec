"""Non-blocking descriptors on the loop: bytes are pushed, a write has a deadline."""

from __future__ import annotations

import asyncio
import os
import time
from collections.abc import Callable

from serialwatch_drivers.port import OnBytes, PortWriteError, UartCounters

READ_BYTES = 65536
WRITE_LIMIT_S = 5.0
_WRITE_BYTES = 4096  # a call: the loop gets its turn between two


class FdReader:
    """Pushes what arrives at `fd`, 1 to 65536 bytes a call, and tells its end once.

    Begins with `resume`.
    """

    def __init__(self, fd: int, on_bytes: OnBytes, on_end: Callable[[], None]) -> None:
        self._fd = fd
        self._on_bytes = on_bytes
        self._on_end = on_end
        self._loop = asyncio.get_running_loop()
        self._is_watching = False
        self._is_closed = False
        self.error = 0  # errno with which it ended; 0: the far end is gone

    def resume(self) -> None:
        """Read (again)."""
        if not self._is_closed and not self._is_watching:
            self._loop.add_reader(self._fd, self._read_ready)
            self._is_watching = True

    def pause(self) -> None:
        """Stop reading; the kernel's buffer fills."""
        if self._is_watching:
            self._loop.remove_reader(self._fd)
            self._is_watching = False

    def drain(self, limit_bytes: int) -> None:
        """Push what is there now, paused or not."""
        while limit_bytes > 0 and not self._is_closed:
            taken = self._read_ready()
            if not taken:
                return
            limit_bytes -= taken

    def close(self) -> None:
        """Push nothing any more. The descriptor stays open: it is its owner's."""
        self.pause()
        self._is_closed = True

    def _read_ready(self) -> int:
        try:
            data = os.read(self._fd, READ_BYTES)
        except BlockingIOError:
            return 0
        except OSError as exc:
            data = b""  # EIO: the far end is gone
            self.error = exc.errno or 0
        if data:
            self._on_bytes(data, time.monotonic_ns())
        else:
            self.close()
            self._on_end()
        return len(data)


class FdWriter:
    """Writes to `fd` whole and in order; a write that is not done in time is an error."""

    def __init__(self, fd: int, device: str, limit_s: float = WRITE_LIMIT_S) -> None:
        self._fd = fd
        self._device = device
        self._limit_s = limit_s
        self._loop = asyncio.get_running_loop()
        self._turn = asyncio.Lock()
        self._free: asyncio.Future[None] | None = None  # somebody waits for room
        self._is_closed = False

    @property
    def turn(self) -> asyncio.Lock:
        """Held during a write; whoever takes it keeps others from writing."""
        return self._turn

    async def write(self, data: bytes) -> None:
        """Hand all of `data` to the kernel; another writer's bytes come before or after it.

        Raises:
            PortWriteError: it was not taken in time, or the port is closed or gone.

        """
        rest = memoryview(data)
        try:
            async with asyncio.timeout(self._limit_s), self._turn:
                while rest:
                    if self._is_closed:
                        problem = "write failed: the port is closed"
                        raise PortWriteError(self._device, problem, len(data) - len(rest))
                    try:
                        rest = rest[os.write(self._fd, rest[:_WRITE_BYTES]) :]
                    except BlockingIOError:
                        await self._wait_for_room()
                    else:
                        if rest:
                            await asyncio.sleep(0)
        except TimeoutError as exc:
            sent = len(data) - len(rest)
            problem = (
                f"write failed: {sent} of {len(data)} bytes were taken in {self._limit_s:g} s"
                " (does the far end read?)"
            )
            raise PortWriteError(self._device, problem, sent) from exc
        except OSError as exc:
            problem = f"write failed: {exc.strerror}"
            raise PortWriteError(self._device, problem, len(data) - len(rest)) from exc

    def close(self) -> None:
        """Fail whoever is writing. The descriptor may be closed right after this."""
        self._is_closed = True
        self._stop_waiting()

    async def _wait_for_room(self) -> None:
        free = self._free = self._loop.create_future()
        self._loop.add_writer(self._fd, self._stop_waiting)
        try:
            await free
        finally:
            # After close() the number of our descriptor may belong to another port: hands off.
            if self._free is free:
                self._stop_waiting()

    def _stop_waiting(self) -> None:
        free, self._free = self._free, None
        if free is None:
            return
        self._loop.remove_writer(self._fd)
        if not free.done():
            free.set_result(None)


class BytesPort:
    """What ports share that carry bytes and nothing else: no modem line, break or counter."""

    def __init__(self, device: str, reader: FdReader, writer: FdWriter) -> None:
        self._device = device
        self._reader = reader
        self._writer = writer

    @property
    def device(self) -> str:
        """The device as it was asked for."""
        return self._device

    async def write(self, data: bytes) -> None:
        """Hand `data` to the kernel; see `Port.write`."""
        await self._writer.write(data)

    async def set_lines(self, *, dtr: bool | None = None, rts: bool | None = None) -> None:
        """Do nothing: there are no modem lines."""

    async def send_break(self, duration_s: float = 0.25) -> None:
        """Do nothing: there is no break."""

    async def counters(self) -> UartCounters | None:
        """Return None: nothing is lost on the way, and nothing is counted."""
        return None

    def pause(self) -> None:
        """Stop reading; the kernel's buffer fills, then the far end waits."""
        self._reader.pause()

    def resume(self) -> None:
        """Read again."""
        self._reader.resume()
