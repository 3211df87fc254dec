"""A serial port of this PC: opened and closed in a thread of its own, read on the loop.

pyserial-asyncio 0.6 opens, drains and closes on the loop; pyserial throws away what has arrived
before its open and sets DTR and RTS each time. `BenchSerial` does none of it.
"""

from __future__ import annotations

import asyncio
import contextlib
import errno
import fcntl
import grp
import os
import stat
import termios
import threading
import time
from collections.abc import Callable
from typing import Any

import serial
import serial_asyncio

from serialwatch_drivers import opening, uart
from serialwatch_drivers.descriptors import READ_BYTES, WRITE_LIMIT_S, FdWriter
from serialwatch_drivers.holder import find_holder, find_readers
from serialwatch_drivers.identity import Identity, identify, refuse_ambiguous, resolve
from serialwatch_drivers.port import (
    ModemLines,
    OnBytes,
    OnLost,
    OpenProblem,
    PortLostError,
    PortOpenError,
    PortOptions,
    PortWriteError,
    UartCounters,
)
from serialwatch_drivers.port_thread import PortThread, open_in_thread

LINE_BYTES = 4096  # the kernel's line discipline holds no more,
FULL_READ = LINE_BYTES - 1  # and gives one less
CLOSE_DRAIN_LIMIT_S = 1.0  # what write() has handed over may still leave, at 9600 bit/s 960 bytes

_SECOND_READER = "ready, but nothing to read: second reader?"

_NO_PORTS = {"5:0": "it is the terminal of who opens it", "5:2": "it makes new ptys"}
_KINDS: dict[int, OpenProblem] = {
    errno.ENOENT: "absent",
    errno.ENODEV: "absent",
    errno.ENXIO: "absent",
    errno.EACCES: "denied",
    errno.EPERM: "denied",
    errno.EBUSY: "busy",
    errno.EAGAIN: "busy",  # flock
}


async def open_tty(
    device: str, options: PortOptions, on_bytes: OnBytes, on_lost: OnLost
) -> TtyPort:
    """Open a tty (a path, `usb:` or `usbid:`) and push what arrives, 1 to 65536 bytes a call.

    Bytes that wait in the kernel already are kept; nothing is sent and no line is touched, unless
    `options` says so.

    Raises:
        PortOpenError: absent, busy, denied or broken; `kind` says which.

    """
    thread, line = await open_in_thread(
        device, lambda thread: _open(device, options, thread), _close_late
    )
    port = TtyPort(device, line, thread, on_bytes, on_lost)
    try:
        await port.start()
    except BaseException:
        port.close()
        raise
    return port


class BenchSerial(serial.Serial):
    """A serial port that leaves the board alone, with its open and close off the loop."""

    def __init__(self, path: str, options: PortOptions, thread: PortThread) -> None:
        super().__init__(baudrate=options.bit_rate)
        self.port = path
        self.counting = uart.find_counting_driver(path, line_errors=options.line_errors)
        self._options = options
        self._thread = thread

    def open(self) -> None:
        """Open the port, keeping what has arrived. Blocks: in the port's thread only.

        Raises:
            OSError: it cannot be opened, or another program has it.
            ValueError: it cannot do the bit rate.

        """
        assert self.port is not None
        settings = uart.raw_settings(self.baudrate, line_errors=self._options.line_errors)
        fd = opening.open_raw(self.port, settings)
        try:
            uart.check_rate(fd, self.baudrate)
            with contextlib.suppress(OSError):  # where there is none, the opener's lock has to do
                fcntl.ioctl(fd, termios.TIOCEXCL)
            uart.set_no_closing_wait(fd)
            uart.set_modem_lines(fd, dtr=self._options.dtr, rts=self._options.rts)
        except BaseException:
            os.close(fd)
            raise
        self.fd, self.is_open = fd, True

    def read(self, size: int = 1) -> bytes:
        """Return what is there, at once.

        Raises:
            serial.SerialException: the port is gone; its text says how.

        """
        # pyserial's own read asks select() first, which refuses descriptors from 1024 up.
        assert self.fd is not None
        try:
            data = os.read(self.fd, min(size, LINE_BYTES))
        except BlockingIOError:
            return b""
        except OSError as exc:
            problem = "hung up" if exc.errno == errno.EIO else f"read failed: {exc.strerror}"
            raise serial.SerialException(problem) from exc
        if not data:
            raise serial.SerialException(self._why_empty())
        if len(data) < FULL_READ:
            return data
        return self._with_more(data, size)

    def _with_more(self, data: bytes, size: int) -> bytes:
        """Read on: the kernel has more behind a full read, and to ask the loop first costs more."""
        assert self.fd is not None
        parts = [data]
        got = len(data)
        while len(parts[-1]) >= FULL_READ and got + LINE_BYTES <= size:
            try:
                part = os.read(self.fd, LINE_BYTES)
            except OSError:  # nothing is there yet, or the port is gone: the next read tells
                break
            if not part:
                break
            parts.append(part)
            got += len(part)
        return b"".join(parts)

    def flush(self) -> None:
        """Do nothing: tcdrain can block for ever, and the transport calls this on the loop."""

    def close(self) -> None:
        """Close the port in its thread, which ends with that."""
        fd = self.give_up_fd()
        if fd is not None:
            self._thread.end(lambda: close_fd(fd))

    def give_up_fd(self) -> int | None:
        """Return the descriptor, which the caller closes; the port counts as closed."""
        if not self.is_open:
            return None
        fd, self.fd, self.is_open = self.fd, None, False
        return fd

    def _reconfigure_port(self, force_update: bool = False) -> None:
        """Do nothing: the transport sets timeouts on the loop, which would set the port up anew."""

    def _why_empty(self) -> str:
        assert self.fd is not None
        try:
            termios.tcgetattr(self.fd)
        except termios.error:
            return "hung up"
        # Still a tty: somebody has set VMIN to 0 and reads what should be ours.
        return _SECOND_READER


class TtyPort(asyncio.Protocol):
    """An open tty."""

    def __init__(
        self,
        device: str,
        line: BenchSerial,
        thread: PortThread,
        on_bytes: OnBytes,
        on_lost: OnLost,
        write_limit_s: float = WRITE_LIMIT_S,
    ) -> None:
        assert line.fd is not None
        assert line.port is not None
        self._asked = device
        self._path = os.path.realpath(line.port)
        self._line = line
        self._fd = line.fd
        self._thread = thread
        self._on_bytes = on_bytes
        self._on_lost = on_lost
        self._writer = FdWriter(line.fd, device, write_limit_s)
        self._transport: Any = None  # serial_asyncio is not annotated
        self._is_open = True
        self._is_closing = False
        self._leave_break = threading.Event()
        self._identity = identify(line.fd)

    async def start(self) -> None:
        """Begin to read. No byte is pushed before this returns."""
        loop = asyncio.get_running_loop()
        self._transport, _ = await serial_asyncio.connection_for_serial(
            loop, lambda: self, self._line
        )
        self._transport._max_read_size = READ_BYTES  # private in 0.6, hence the pin on it
        await asyncio.sleep(0)  # the transport has begun when this returns: pause() works

    @property
    def device(self) -> str:
        """The path that was opened, links and identities resolved."""
        return self._path

    @property
    def identity(self) -> Identity | None:
        """What tells the device that is open from another at the same path."""
        return self._identity

    @property
    def far_end(self) -> None:
        """None: the other side is a board."""
        return None

    async def write(self, data: bytes) -> None:
        """Hand `data` to the kernel; see `Port.write`."""
        await self._writer.write(data)

    async def set_lines(self, *, dtr: bool | None = None, rts: bool | None = None) -> None:
        """Set modem lines, both in the same moment; None leaves one alone.

        Raises:
            PortWriteError: the port is closed or gone.

        """
        await self._run(
            "setting DTR and RTS", lambda: uart.set_modem_lines(self._fd, dtr=dtr, rts=rts)
        )

    async def modem_lines(self) -> ModemLines | None:
        """Return how the modem lines stand, None where there are none."""
        if not self._is_open:
            return None
        return await self._thread.run(lambda: uart.read_modem_lines(self._fd))

    async def send_break(self, duration_s: float = 0.25) -> None:
        """Hold the line in break, between two writes. Closing the port cuts it short.

        Raises:
            PortWriteError: the port is closed or gone.

        """

        def hold() -> None:
            uart.start_break(self._fd)
            try:
                self._leave_break.wait(duration_s)
            finally:
                uart.end_break(self._fd)

        async with self._writer.turn:
            await self._run("break", hold)

    async def counters(self) -> UartCounters | None:
        """Return the driver's error counters, None where it has none that mean something."""
        driver = self._line.counting
        if driver is None or not self._is_open:
            return None
        return await self._thread.run(lambda: uart.read_counters(self._fd, driver))

    def pause(self) -> None:
        """Stop reading; the kernel's buffer fills."""
        self._transport.pause_reading()

    def resume(self) -> None:
        """Read again."""
        self._transport.resume_reading()

    def close(self) -> None:
        """Begin to close; no callback comes after this. Never blocks."""
        self._is_closing = True
        self._end()
        if self._transport is not None and not self._transport.is_closing():
            self._transport.abort()  # close() would wait for a far end that does not read
        self._line.close()

    async def wait_closed(self) -> None:
        """Return when the descriptor is closed and the device may be opened again."""
        await self._thread.ended()

    def data_received(self, data: bytes) -> None:
        """Push what the transport has read."""
        self._on_bytes(data, time.monotonic_ns())

    def connection_lost(self, exc: Exception | None) -> None:
        """Tell the loss, once. The transport closes the port after this."""
        if not self._is_open:
            return
        self._end()
        if str(exc) == _SECOND_READER and self._identity is not None:
            number = self._identity.number
            self._thread.post(lambda: find_readers({number}).get(number, ""), self._lost_to)
        else:
            self._on_lost(PortLostError(self._asked, str(exc)))

    def _lost_to(self, others: str) -> None:
        """Tell that others, as far as they can be seen, have read what was ours."""
        if not self._is_closing:
            who = others or f"(`fuser -v {self._line.port}` names it)"
            self._on_lost(PortLostError(self._asked, f"{_SECOND_READER} {who}"))

    def _end(self) -> None:
        self._is_open = False
        self._writer.close()
        self._leave_break.set()

    async def _run(self, what: str, job: Callable[[], None]) -> None:
        if not self._is_open:
            raise PortWriteError(self._asked, f"{what} failed: the port is closed", 0)
        try:
            await self._thread.run(job)
        except OSError as exc:
            raise PortWriteError(self._asked, f"{what} failed: {exc.strerror}", 0) from exc


def close_fd(fd: int) -> None:
    """Close a tty. Blocks: a second for output that does not leave, and what the driver adds."""
    try:
        deadline = time.monotonic() + CLOSE_DRAIN_LIMIT_S
        while uart.unsent_bytes(fd) and time.monotonic() < deadline:
            time.sleep(0.01)
        if uart.unsent_bytes(fd):
            termios.tcflush(fd, termios.TCOFLUSH)  # else close() may wait 30 s for it
        # It would outlive us as long as somebody else has the tty open, and lock us out.
        fcntl.ioctl(fd, termios.TIOCNXCL)
    except (OSError, termios.error):
        pass  # hung up: there is nothing to wait for
    with contextlib.suppress(OSError):  # EIO from a driver; the descriptor is closed all the same
        os.close(fd)


def _close_late(line: BenchSerial) -> None:
    fd = line.give_up_fd()
    if fd is not None:
        close_fd(fd)


def _open(device: str, options: PortOptions, thread: PortThread) -> BenchSerial:
    with contextlib.suppress(OSError):
        opening.start_opener()  # so that it is there when a port that is absent appears
    path = resolve(device)
    if options.bit_rate <= 0:  # termios would take 0 for "hang up" and drop DTR
        raise PortOpenError(device, "broken", f"open failed: a bit rate of {options.bit_rate}")
    try:
        _refuse_what_is_no_tty(device, path)
        refuse_ambiguous(path, allow_unstable=options.allow_unstable)
        line = BenchSerial(path, options, thread)
        line.open()
    except OSError as exc:  # pyserial's own exception is one
        raise _open_error(device, path, exc.errno or errno.EIO) from exc
    except termios.error as exc:
        raise _open_error(device, path, exc.args[0]) from exc
    except ValueError as exc:
        raise PortOpenError(device, "broken", f"open failed: {exc}") from exc
    return line


def _refuse_what_is_no_tty(device: str, path: str) -> None:
    # Before the open: to open a /dev/watchdog by mistake would arm it.
    if problem := why_no_tty(path):
        raise PortOpenError(device, "broken", f"open failed: {problem}")


def why_no_tty(path: str) -> str:
    """Return why what is at a path is no serial device, "" if it may be one.

    Raises:
        OSError: nothing is there, or it cannot be looked at.

    """
    found = os.stat(path)
    if not stat.S_ISCHR(found.st_mode):
        return "not a serial device (a saved log is replay:FILE)"
    number = f"{os.major(found.st_rdev)}:{os.minor(found.st_rdev)}"
    if number in _NO_PORTS:
        return f"not a serial device: {_NO_PORTS[number]}"
    subsystem = os.path.realpath(f"/sys/dev/char/{number}/subsystem")
    if os.path.exists(subsystem) and os.path.basename(subsystem) != "tty":  # ptys are not in there
        return f"not a serial device: the kernel counts it as {os.path.basename(subsystem)!r}"
    return ""


def _open_error(device: str, path: str, number: int) -> PortOpenError:
    kind = _KINDS.get(number, "broken")
    reason = os.strerror(number)
    holder = ""
    if kind == "absent":
        remedy = " (is it plugged in and powered?)"
    elif kind == "denied":
        remedy = f" (is the user in group {_group_of(path)}?)"
    elif kind == "busy":
        holder = find_holder(path)
        reason = f"in use by {holder}" if holder else reason
        remedy = "" if holder else f" (`sudo fuser -v {path}` names who has it)"
    else:
        remedy = ""
    return PortOpenError(device, kind, f"open failed: {reason}{remedy}", holder)


def _group_of(path: str) -> str:
    try:
        return grp.getgrgid(os.stat(path).st_gid).gr_name
    except (OSError, KeyError):
        return "dialout"
