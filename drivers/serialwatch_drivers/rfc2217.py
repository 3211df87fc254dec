"""`rfc2217://HOST:PORT`: a serial port of another machine, with its bit rate, lines and break.

pyserial's client, which blocks, in the port's thread. Its own reader takes single bytes from a
queue and its open sets DTR and RTS and purges what has come; `RemoteSerial` does none of it. And it
speaks first, which a raw port would hand to its board: so we wait for the server's word, unless the
address ends with `?ask=1`.
"""

from __future__ import annotations

import asyncio
import contextlib
import re
import socket
import threading
import time
from collections import deque
from collections.abc import Callable
from typing import TypeVar

from serial import SerialException
from serial.rfc2217 import (
    COM_PORT_OPTION,
    SERVER_NOTIFY_LINESTATE,
    SERVER_SET_LINESTATE_MASK,
    SET_LINESTATE_MASK,
    Serial,
)

from serialwatch_drivers.descriptors import WRITE_LIMIT_S
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
from serialwatch_drivers.tcp import (
    OPEN_LIMIT_S,
    REMEDY,
    connect_error,
    is_refusal,
    keep_alive,
    refusal_error,
    split_address,
    why_lost,
)
from serialwatch_drivers.telnet import IAC, Telnet, doubled

_READ_BYTES = 65536
_MAX_UNTAKEN = 32  # reads that the loop has not taken yet; then no more is read
GREETING_S = 2.0  # for a server to say that it speaks telnet: most do at once
_ASK = "?ask=1"  # of an address: its server waits to be asked
_GREETING = re.compile(rb"\xff[\xfb-\xfe][\x00-\x31]")  # a board's garbage seldom begins so
_GREETING_BYTES = 3
_END_LIMIT_S = 2.0  # for the reading thread
_LOOK_S = 1.0
_OVERRUN, _PARITY, _FRAMING, _BREAK = 0x02, 0x04, 0x08, 0x10  # of a line state
_ERRORS = _OVERRUN | _PARITY | _FRAMING | _BREAK

T = TypeVar("T")

OnRead = Callable[[bytes, int], None]
OnEnd = Callable[[str], None]


async def open_rfc2217(
    device: str, options: PortOptions, on_bytes: OnBytes, on_lost: OnLost
) -> Rfc2217Port:
    """Connect, set the bit rate and push what comes. DTR and RTS stay unless `options` sets them.

    Raises:
        PortOpenError: as `open_socket`; also if the server does not speak RFC 2217 (`broken`).

    """
    split_address(device.removesuffix(_ASK))
    port = Rfc2217Port(device, on_bytes, on_lost)
    thread, line = await open_in_thread(
        device,
        lambda _thread: _open(device, options, port.read_in_thread, port.ended_in_thread),
        RemoteSerial.close,
        OPEN_LIMIT_S,
        REMEDY,
    )
    port.start(thread, line)
    return port


class RemoteSerial(Serial):
    """pyserial's client, which leaves the lines alone and hands on what it reads in chunks."""

    _socket: socket.socket | None
    _thread: threading.Thread | None
    _write_lock: threading.Lock

    def __init__(self, device: str, options: PortOptions, on_read: OnRead, on_end: OnEnd) -> None:
        super().__init__(baudrate=options.bit_rate)
        self.port = device.removesuffix(_ASK)
        self._may_speak = threading.Event()
        if device.endswith(_ASK):
            self._may_speak.set()
        self._unanswered: deque[tuple[bytes, bytes]] = deque()  # what was said before that
        self._first = b""  # what the server said first
        self._options = options
        self._on_read = on_read
        self._on_end = on_end
        self._is_opening = False
        self._telnet = Telnet(self._answer, self._take_setting)
        self.early = b""  # what came while it was opened
        self.is_refused = False  # the server has closed it by itself
        self.may_read = threading.Event()
        self.may_read.set()
        self.room = threading.Semaphore(_MAX_UNTAKEN)
        self.error_counts: UartCounters | None = None  # None: the server tells none
        if options.dtr is not None:
            self.dtr = options.dtr
        if options.rts is not None:
            self.rts = options.rts

    def open(self) -> None:
        """Connect and agree on the settings. Blocks: in the port's thread only."""
        self._is_opening = True
        try:
            super().open()
        finally:
            self._is_opening = False
        assert self._socket is not None
        keep_alive(self._socket)
        self.rfc2217_send_subnegotiation(SET_LINESTATE_MASK, bytes((_ERRORS,)))

    def close(self) -> None:
        """Close the connection. Blocks for a moment: in the port's thread only."""
        self.is_open = False
        self.hang_up()
        self.may_read.set()
        thread, self._thread = self._thread, None
        if thread is not None and thread.ident is not None:
            thread.join(_END_LIMIT_S)
        sock, self._socket = self._socket, None
        if sock is not None:
            sock.close()

    def hang_up(self) -> None:
        """End the connection: whoever waits for it goes on. Never blocks."""
        sock = self._socket
        if sock is not None:
            with contextlib.suppress(OSError):  # it is broken already
                sock.shutdown(socket.SHUT_RDWR)

    def telnet_send_option(self, action: bytes, option: bytes) -> None:
        """Send a command, but nothing before it is known that no board gets it."""
        if not self._may_speak.is_set() and not self._may_speak.wait(GREETING_S):
            if not (self._unanswered and _GREETING.match(self._first)):
                raise SerialException("the server does not seem to support RFC 2217: it is silent")
            self._speak()
        super().telnet_send_option(action, option)

    def send(self, data: bytes, limit_s: float) -> int:
        """Send `data` and return how much of it went out in the time."""
        assert self._socket is not None
        rest = memoryview(doubled(data))
        deadline = time.monotonic() + limit_s
        with self._write_lock:
            while rest:
                self._socket.settimeout(max(0.001, deadline - time.monotonic()))
                try:
                    rest = rest[self._socket.send(rest) :]
                except TimeoutError:
                    break
                finally:
                    self._socket.settimeout(_LOOK_S)
        sent = doubled(data)[: len(doubled(data)) - len(rest)]
        if sent.count(IAC) % 2:  # half of a doubled byte: nothing that follows would be right
            self.hang_up()
        return len(sent) - (sent.count(IAC) + 1) // 2

    def _update_dtr_state(self) -> None:
        """Leave DTR as found at open: that must not reset a board."""
        if not self._is_opening or self._options.dtr is not None:
            super()._update_dtr_state()  # type: ignore[misc]  # private: not in the stubs

    def _update_rts_state(self) -> None:
        """Leave RTS as found at open."""
        if not self._is_opening or self._options.rts is not None:
            super()._update_rts_state()  # type: ignore[misc]  # likewise

    def reset_input_buffer(self) -> None:
        """Keep what has come: the first lines of a boot."""

    def reset_output_buffer(self) -> None:
        """Keep what is on its way to the board."""

    def _telnet_read_loop(self) -> None:
        """Read until the connection ends; in pyserial's thread."""
        problem = ""
        sock = self._socket
        assert sock is not None
        while self.is_open or self._is_opening:  # a refusal is read to its end
            self.may_read.wait()
            if not self.room.acquire(timeout=_LOOK_S):
                continue
            try:
                data = sock.recv(_READ_BYTES)
            except TimeoutError:
                self.room.release()
                continue
            except OSError as exc:
                problem = why_lost(exc.errno or 0)
                break
            if not data:
                problem = why_lost(0)
                break
            mono_ns = time.monotonic_ns()
            if len(self._first) < _GREETING_BYTES:
                self._first += data[:_GREETING_BYTES]
            plain = self._telnet.feed(data)
            if self._is_opening:
                self.early += plain
            if plain:
                self._on_read(plain, mono_ns)
            else:
                self.room.release()
        self.is_refused = self.is_open
        self._may_speak.set()  # nobody is there: whoever waits learns it
        self._on_end(problem)

    def _take_setting(self, suboption: bytes) -> None:
        if suboption[:1] == COM_PORT_OPTION:
            if suboption[1:2] in (SERVER_SET_LINESTATE_MASK, SERVER_NOTIFY_LINESTATE):
                self.error_counts = self.error_counts or UartCounters(0, 0, 0, 0, None)
            if suboption[1:2] == SERVER_NOTIFY_LINESTATE and len(suboption) > 2:
                self._count(self.error_counts, suboption[2])
        self._telnet_process_subnegotiation(suboption)  # type: ignore[attr-defined]  # likewise

    def _count(self, counts: UartCounters | None, state: int) -> None:
        if counts is not None and state & _ERRORS:
            self.error_counts = UartCounters(
                overrun=(counts.overrun or 0) + bool(state & _OVERRUN),
                framing=(counts.framing or 0) + bool(state & _FRAMING),
                parity=(counts.parity or 0) + bool(state & _PARITY),
                breaks=(counts.breaks or 0) + bool(state & _BREAK),
                buffer_overrun=None,
            )

    def _answer(self, command: bytes, option: bytes) -> None:
        if not self._may_speak.is_set():
            self._unanswered.append((command, option))
            if option == COM_PORT_OPTION or self._may_speak.is_set():
                self._speak()
            return
        self._negotiate(command, option)

    def _speak(self) -> None:
        """Answer from now on, also what was said before."""
        self._may_speak.set()
        while self._unanswered:
            self._negotiate(*self._unanswered.popleft())

    def _negotiate(self, command: bytes, option: bytes) -> None:
        with contextlib.suppress(OSError):  # the connection has ended: reading tells it
            self._telnet_negotiate_option(command, option)  # type: ignore[attr-defined]  # likewise


class Rfc2217Port:
    """An open port of another machine."""

    def __init__(self, device: str, on_bytes: OnBytes, on_lost: OnLost) -> None:
        self._device = device
        self._on_bytes = on_bytes
        self._on_lost = on_lost
        self._loop = asyncio.get_running_loop()
        self._turn = asyncio.Lock()
        self._leave_break = threading.Event()
        self._early: list[tuple[bytes, int]] | None = []  # None: started
        self._early_end: str | None = None
        self._is_open = False
        self._thread: PortThread
        self._line: RemoteSerial

    def start(self, thread: PortThread, line: RemoteSerial) -> None:
        """Push what has come and what comes."""
        self._thread, self._line = thread, line
        self._is_open = True
        self._loop.call_soon(self._begin)

    @property
    def device(self) -> str:
        """The device as it was asked for."""
        return self._device

    @property
    def far_end(self) -> None:
        """None: the other side is a board."""
        return None

    async def write(self, data: bytes) -> None:
        """Hand `data` to the network; see `Port.write`."""
        async with self._turn:
            sent = await self._run("write", 0, lambda: self._line.send(data, WRITE_LIMIT_S))
        if sent < len(data):
            problem = (
                f"write failed: {sent} of {len(data)} bytes were taken in {WRITE_LIMIT_S:g} s"
                " (does the far end read?)"
            )
            raise PortWriteError(self._device, problem, sent)

    async def set_lines(self, *, dtr: bool | None = None, rts: bool | None = None) -> None:
        """Set modem lines; None leaves one alone.

        Raises:
            PortWriteError: the port is gone, or its server does not do it.

        """

        def change() -> None:
            if dtr is not None:
                self._line.dtr = dtr
            if rts is not None:
                self._line.rts = rts

        await self._run("setting DTR and RTS", None, change)

    async def send_break(self, duration_s: float = 0.25) -> None:
        """Hold the line in break, between two writes. Closing the port cuts it short.

        Raises:
            PortWriteError: the port is gone, or its server does not do it.

        """

        def hold() -> None:
            self._line.break_condition = True
            try:
                self._leave_break.wait(duration_s)
            finally:
                self._line.break_condition = False

        async with self._turn:
            await self._run("break", None, hold)

    async def counters(self) -> UartCounters | None:
        """Return how often the server told of errors since the open, None if it tells none."""
        return self._line.error_counts

    def pause(self) -> None:
        """Stop reading; the kernel's buffer fills, then the server waits."""
        self._line.may_read.clear()

    def resume(self) -> None:
        """Read again."""
        self._line.may_read.set()

    def close(self) -> None:
        """Begin to close; no callback comes after this. Never blocks."""
        if self._is_open:
            self._end()

    async def wait_closed(self) -> None:
        """Return when the connection is closed."""
        await self._thread.ended()

    def read_in_thread(self, data: bytes, mono_ns: int) -> None:
        """Take what was read."""
        self._tell(lambda: self._read(data, mono_ns))

    def ended_in_thread(self, problem: str) -> None:
        """Learn that nothing more is read."""
        self._tell(lambda: self._lost(problem))

    def _tell(self, what: Callable[[], None]) -> None:
        with contextlib.suppress(RuntimeError):  # the loop is closed
            self._loop.call_soon_threadsafe(what)

    def _begin(self) -> None:
        early, self._early = self._early or [], None
        for data, mono_ns in early:
            self._read(data, mono_ns)
        if self._early_end is not None:
            self._lost(self._early_end)

    def _read(self, data: bytes, mono_ns: int) -> None:
        if self._early is not None:
            self._early.append((data, mono_ns))
        elif self._is_open:
            self._line.room.release()
            self._on_bytes(data, mono_ns)

    def _lost(self, problem: str) -> None:
        if self._early is not None:
            self._early_end = problem
        elif self._is_open:
            self._end()
            self._on_lost(PortLostError(self._device, problem))

    def _end(self) -> None:
        self._is_open = False
        self._leave_break.set()
        self._line.hang_up()
        self._thread.end(self._line.close)

    async def _run(self, what: str, sent: T, job: Callable[[], T]) -> T:
        problem = "the port is closed"
        if self._is_open:
            try:
                return await self._thread.run(job)
            except (OSError, ValueError, AssertionError) as exc:  # SerialException is an OSError
                problem = str(exc) or type(exc).__name__
        raise PortWriteError(self._device, f"{what} failed: {problem}", 0)


def _open(device: str, options: PortOptions, on_read: OnRead, on_end: OnEnd) -> RemoteSerial:
    line = RemoteSerial(device, options, on_read, on_end)
    try:
        line.open()
    except BaseException as exc:
        line.close()
        if not isinstance(exc, (OSError, ValueError)):
            raise
        cause = exc.__context__
        if isinstance(cause, OSError) and not isinstance(cause, SerialException):
            raise connect_error(device, cause) from exc
        raise _open_error(device, line, exc) from exc
    return line


def _open_error(device: str, line: RemoteSerial, exc: Exception) -> PortOpenError:
    if line.is_refused or isinstance(exc, ConnectionError):
        return refusal_error(device, line.early if is_refusal(line.early) else b"")
    if "does not seem to support" in str(exc):
        raw = "a raw port is socket://HOST:PORT"
        if device.endswith(_ASK):
            words = f"its server does not answer in RFC 2217 ({raw})"
        else:
            ask = f"one that waits to be asked is rfc2217://HOST:PORT{_ASK}"
            words = f"its server does not speak RFC 2217 ({raw}; {ask})"
    elif "does not accept parameter change" in str(exc):
        words = "its server does not take the bit rate, or 8N1"
    else:
        words = str(exc)
    return PortOpenError(device, "broken", f"open failed: {words}")
