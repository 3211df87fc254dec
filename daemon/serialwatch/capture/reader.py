"""Keeps one port open and numbers its lines."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import random
import re
import time
from collections import deque
from collections.abc import Callable
from dataclasses import fields, replace
from pathlib import Path
from typing import Literal, Protocol

from serialwatch.capture.path_watch import PRESENCE_S, appears, is_replaced, leads_elsewhere
from serialwatch.capture.ring import Ring
from serialwatch.lines import Eol, Splitter
from serialwatch.plain import plain
from serialwatch.records import Lines, PortState, PortStats
from serialwatch.store.log_format import Cut, Kind, Place
from serialwatch.store.log_items import Chunk, Gap, Item, NewFile, Note, Turned
from serialwatch.titles import readable
from serialwatch_drivers.device import REMOTE, parse_device
from serialwatch_drivers.find import find_opener
from serialwatch_drivers.identity import DEV, SYSFS, Identified
from serialwatch_drivers.port import (
    ModemLines,
    Opener,
    Port,
    PortError,
    PortLostError,
    PortOpenError,
    PortOptions,
    PortWriteError,
    UartCounters,
    WithModemLines,
)

log = logging.getLogger(__name__)

FULL_READ = 4095  # bytes: the kernel's line discipline holds no more; others are behind them
GATHER_BYTES = 32 * 1024  # full reads are put together up to so many,
GATHER_S = 0.005  # and for so long: each costs as much as its bytes do
PARTIAL_NS = 100_000_000  # an unfinished line is shown when it stands still for so long
UNTOLD_NS = 250_000_000  # so long it may stay open how lines end: three of them at 9600 bit/s
FIRST_WAIT_S = 0.25  # before the next try to open; doubles up to the last
BUSY_WAIT_S = 1.0  # the first wait if another program has the port: it will not be done at once
LAST_WAIT_S = 5.0
REMOTE_WAIT_S = 2.0  # the longest before the next try to connect: nothing tells when to
RIGHTS_S = 2.0  # udev sets group and mode of a device some time after it has appeared
RIGHTS_RETRY_S = 0.1
POLL_S = 1.0  # between two readings of the error counters
CALM_POLL_S = 5.0  # the same for a port that has none
POLL_SLOT_S = 0.05  # readings of many ports fall into the same turns of the loop,
CALM_SLOT_S = 1.0  # the more so those that find nothing
POLL_LIMIT_S = 5.0
SILENT_NS = 10_000_000_000  # of a port that is silent for so long the modem lines are looked at
CLOSE_LIMIT_S = 5.0
FLAPS = 10  # losses within `FLAP_S`: the port is flapping
FLAP_S = 30.0
FLAP_WAIT_S = 5.0  # a flapping port that said nothing is left alone so long after each loss
LAST_BYTES = 4096  # of what a program printed, to find its last words in
MAX_LAST_WORDS = 120  # characters
MAX_UNENDED = 200  # bytes
STEADY_S = 10.0  # open for so long it is no longer flapping
# Enter, and the keys by which a line editor drops what is there: Ctrl-C, Ctrl-D, Ctrl-U, Ctrl-Z.
ENDS_LINE = re.compile(rb"[\r\n\x03\x04\x15\x1a]")
_TTYS = ("tty", "usb", "usbid")


class Sink(Protocol):
    """Who gets what a port prints. Everything is called on the loop; nothing may block."""

    def on_bytes(self, reader: Reader, data: bytes, mono_ns: int) -> None:
        """Take bytes as they come."""

    def on_lines(self, reader: Reader, lines: Lines) -> None:
        """Take complete lines."""

    def on_partial(self, reader: Reader, seq: int, text: bytes, mono_ns: int, utc_ns: int) -> None:
        """Take an unfinished line that stands still, e.g. a prompt; once for each growth."""

    def on_state(self, reader: Reader) -> None:
        """Learn that `state`, `problem` or `holder` changed."""

    def on_counters(self, reader: Reader, counters: UartCounters) -> None:
        """Take the driver's error counters, each second while there are any."""


class Reader:
    """One port: opened again and again, its bytes put to the ring, its lines to the sink.

    Bytes count from the first moment; lines have numbers from `number_from` on.
    """

    def __init__(
        self,
        name: str,
        device: str,
        options: PortOptions,
        eol: Literal["auto", "lf", "cr"],
        ring: Ring,
        sink: Sink,
        open_device: Opener | None = None,
        *,
        sysfs: Path = SYSFS,
        dev: Path = DEV,
    ) -> None:
        self.name = name
        self.device = device
        self.state: PortState = "opening"
        self.problem = ""  # why it is not up
        self.holder = ""  # of a busy port
        self.since_utc_ns = time.time_ns()  # of the state
        self.stats = PortStats()
        self.next_seq = 0  # of the unfinished line; 0: not numbered yet
        self.boot = 0  # for the index
        self.port: Port | None = None
        self.beat_s = 0.0  # loop time of the last sign of life of an open port
        self.last_sent = b""  # byte
        self.unended = b""  # what was sent for a line that no Enter has ended, its last bytes
        self._options = options
        self._is_auto = eol == "auto"
        self._eol: Eol = "cr" if eol == "cr" else "lf"
        self._ring = ring
        self._sink = sink
        self._open_device = open_device
        self._sysfs = sysfs
        self._dev = dev
        self._splitter = Splitter(self._eol)
        # The first chunks of a file, while LF has ended no line and nobody was told of one: if CR
        # ends the lines, these can still be cut into them. None: it is too late for that.
        self._first: list[Chunk] | None = self._no_first()
        self._last_mono_ns = 0  # of the last byte
        self._last_utc_ns = 0
        self._gathered: list[bytes] = []  # full reads
        self._gathered_bytes = 0
        self._gathered_from_ns = 0
        self._gather_end: asyncio.TimerHandle | None = None
        self._lines: ModemLines | None = None  # as they stood in the silence
        self._lines_after_ns = -1  # after this last byte
        self._shown = (0, 0)  # the unfinished line as it was shown: number, size
        self._lost: asyncio.Future[str] | None = None  # of the open port; its result says why
        self._losses: deque[float] = deque(maxlen=FLAPS)
        self._is_flapping = False
        self._rx_before = 0  # bytes that came before the last try to open
        self._was_lost = False
        self._down_since_s = time.monotonic()
        self._appeared_s = -RIGHTS_S  # when the device was there again
        self._tries = 0  # since the port was up

    @property
    def has_bit_rate(self) -> bool:
        """Whether the device is a serial port, which has one, and not a program or a file."""
        return self._scheme in (*_TTYS, "rfc2217")

    @property
    def can_vanish(self) -> bool:
        """Whether a loss is a fault: a program or a file may end."""
        return self._scheme in (*_TTYS, *REMOTE)

    @property
    def modem_lines(self) -> ModemLines | None:
        """How the modem lines stand while the port is silent; None: not known, or it is not."""
        is_silent = self.port is not None and self._lines_after_ns == self._last_mono_ns
        return self._lines if is_silent else None

    @property
    def _scheme(self) -> str:
        return parse_device(self.device).scheme

    def partial(self) -> bytes:
        """Return the unfinished line."""
        return self._splitter.partial()

    async def keep_open(self) -> None:
        """Keep the port open until cancelled. A raise from here is a fault of our own."""
        try:
            while True:
                port = await self._opened()
                try:
                    await self._serve(port)
                finally:
                    self.port = None
                    await self._closed(port)
                await asyncio.sleep(self._pause_s())
        finally:
            self._end_file(Cut.STOP)

    def lend(self, words: str) -> None:
        """Note that another program is to have the device; `keep_open` ends, or has ended."""
        self._down_since_s = time.monotonic()
        self._set_state("released", words)

    def take_back(self) -> None:
        """Note that `keep_open` begins again."""
        self._tries = 0
        self._set_state("opening")

    def number_from(self, seq: int, boot: int) -> None:
        """Give lines their numbers: first those that came already, then all that come."""
        self.next_seq = seq
        self.boot = boot
        early = self._ring.unhold()
        self._ring.requeue([self._new_file(Cut.STOP)])
        for item in early:
            if isinstance(item, Chunk):
                self._number(item, self._requeue)
                continue
            self._stay()
            if isinstance(item, NewFile):
                self._close_line()
                self._ring.requeue([self._new_file(item.why)])
            else:
                self._ring.requeue([replace(item, seq=self.next_seq)])
        self._stay()

    def go_on_from(self, earlier: Reader) -> None:
        """Give lines the numbers after those of a reader that has ended, and count on."""
        self.next_seq, self.boot, self.stats = earlier.next_seq, earlier.boot, earlier.stats
        self._ring.put(self._new_file(Cut.STOP))

    @property
    def heard_ns(self) -> int:
        """When the last byte came, CLOCK_MONOTONIC; 0: none has."""
        return self._last_mono_ns

    def tick(self, mono_ns: int) -> None:
        """Hand on an unfinished line that stands still. Call it every 20 to 50 ms."""
        if self._first and mono_ns - self._first[0].mono_ns >= UNTOLD_NS:
            self._stay()
        size = self._splitter.partial_bytes
        shown = (self.next_seq, size)
        is_still = bool(size) and mono_ns - self._last_mono_ns >= PARTIAL_NS
        if is_still and shown != self._shown and not self._may_be_several():
            self._stay()  # what is shown as one line is one
            self._shown = shown
            self._sink.on_partial(
                self, self.next_seq, self.partial(), self._last_mono_ns, self._last_utc_ns
            )
        self.stats.lost_bytes["log"] = self._ring.lost_bytes
        self.stats.log_bytes = self._ring.log_bytes

    def mark(self, marker_id: int) -> None:
        """Note in the index that a marker stands before the next line."""
        self._take_gathered()
        self._note(Kind.MARK, marker_id, self.next_seq)

    def booted(self, number: int, seq: int) -> None:
        """Note in the index that line `seq` began a boot."""
        self.boot = number
        self.unended = b""
        self._note(Kind.BOOT, number, seq)

    async def write(self, data: bytes, source: str) -> None:
        """Send `data` to the device and count it under `source`.

        Raises:
            PortWriteError: it is not open, or did not take all of it.

        """
        sent = 0
        try:
            await self._open_port().write(data)
            sent = len(data)
        except PortWriteError as exc:
            sent = exc.sent
            raise
        finally:
            self.stats.tx_bytes[source] = self.stats.tx_bytes.get(source, 0) + sent
            self.last_sent = data[:sent][-1:] or self.last_sent
            self.unended = ENDS_LINE.split(self.unended + data[:sent])[-1][-MAX_UNENDED:]

    async def set_lines(self, *, dtr: bool | None = None, rts: bool | None = None) -> None:
        """Set modem lines; None leaves one alone.

        Raises:
            PortWriteError: the port is not open.

        """
        await self._open_port().set_lines(dtr=dtr, rts=rts)

    async def send_break(self, duration_s: float = 0.25) -> None:
        """Send a break condition.

        Raises:
            PortWriteError: the port is not open.

        """
        await self._open_port().send_break(duration_s)

    # Bytes and lines

    def _on_bytes(self, data: bytes, mono_ns: int) -> None:
        size = self._gathered_bytes + len(data)
        if len(data) >= FULL_READ and size < GATHER_BYTES:
            if not self._gathered:
                self._gathered_from_ns = mono_ns
                loop = asyncio.get_running_loop()
                self._gather_end = loop.call_later(GATHER_S, self._take_gathered)
            self._gathered.append(data)
            self._gathered_bytes = size
            self._last_mono_ns = mono_ns
        elif self._gathered:
            self._gathered.append(data)
            self._last_mono_ns = mono_ns
            self._take_gathered()
        else:
            self._take(data, mono_ns, mono_ns)

    def _take_gathered(self) -> None:
        if self._gather_end is None:
            return
        self._gather_end.cancel()
        self._gather_end = None
        parts, self._gathered, self._gathered_bytes = self._gathered, [], 0
        self._take(b"".join(parts), self._gathered_from_ns, self._last_mono_ns)

    def _take(self, data: bytes, mono_ns: int, last_mono_ns: int) -> None:
        try:
            offset_ns = time.time_ns() - time.monotonic_ns()
            self.stats.rx_bytes += len(data)
            self.stats.last_rx_utc_ns = self._last_utc_ns = offset_ns + last_mono_ns
            self._last_mono_ns = last_mono_ns
            self._ring.remember(data)
            self._sink.on_bytes(self, data, last_mono_ns)
            chunk = Chunk(data, mono_ns, last_mono_ns, offset_ns + mono_ns, 0, 0)
            if self.next_seq:
                self._number(chunk, self._ring.put)
            else:
                self._ring.put(chunk)
        except Exception as exc:  # noqa: BLE001  keep_open raises it
            self._fail(exc)

    def _number(self, chunk: Chunk, queue: Callable[[Item], None]) -> None:
        if self._is_auto:
            while (at := self._splitter.turn(chunk.data)) is not None:  # hardly ever
                self._turn(chunk, at, queue)
        if chunk.data:
            self._number_part(chunk, queue)

    def _turn(self, chunk: Chunk, at: int, queue: Callable[[Item], None]) -> None:
        """Cut lines otherwise from byte `at` on, while that can be from the file's first one on."""
        splitter, first = self._splitter, self._first
        if first is None or not splitter.is_in_first_line:
            if at:
                self._number_part(replace(chunk, data=chunk.data[:at]), queue)
            self._close_line()
            chunk.data = chunk.data[at:]
            first = []
        self._splitter, self._first = splitter.turned(), None
        self._eol = self._splitter.eol
        if first:
            queue(self._turned(first))
        else:
            queue(self._new_file(Cut.EOL))
        log.info("%s: the console ends its lines with %s", self.name, self._eol.upper())
        for early in first:  # the log has them
            self._number(replace(early), lambda _: None)

    def _turned(self, first: list[Chunk]) -> Turned:
        counted = Splitter(self._eol)
        count = sum(counted.feed(chunk.data)[1] for chunk in first)
        seq = self.next_seq
        return Turned(self._eol, tuple(first), seq, seq + count, self.boot)

    def _number_part(self, chunk: Chunk, queue: Callable[[Item], None]) -> None:
        splitter = self._splitter
        chunk.seq = self.next_seq
        chunk.filled = splitter.filled
        text, count = splitter.feed(chunk.data)
        if self._first is not None:
            if count:
                self._first = None
            else:
                self._first.append(chunk)
        queue(chunk)
        if count:
            last_ns = chunk.last_mono_ns
            lines = Lines(
                self.next_seq, count, text, last_ns, chunk.utc_ns + last_ns - chunk.mono_ns
            )
            self.next_seq += count
            self.stats.rx_lines += count
            self._sink.on_lines(self, lines)

    def _may_be_several(self) -> bool:
        """Tell whether it is open yet if the unfinished line is one."""
        return bool(self._first) and b"\r" in self.partial()

    def _no_first(self) -> list[Chunk] | None:
        return [] if self._is_auto and self._eol == "lf" else None

    def _stay(self) -> None:
        """Let the unfinished line be one, whatever comes: somebody was told of it."""
        if self._first:
            self._first = None

    def _close_line(self) -> None:
        """Complete the unfinished line: what follows is not its rest."""
        text = self._splitter.partial()
        self._splitter = Splitter(self._eol)
        self._first = self._no_first()
        if text:
            lines = Lines(self.next_seq, 1, text + b"\n", self._last_mono_ns, self._last_utc_ns)
            self.next_seq += 1
            self.stats.rx_lines += 1
            self._sink.on_lines(self, lines)

    def _end_file(self, why: Cut) -> None:
        self._take_gathered()
        self._stay()
        if self.next_seq:
            self._close_line()
        self._ring.put(self._new_file(why))

    def _new_file(self, why: Cut) -> NewFile:
        now_mono_ns, now_utc_ns = time.monotonic_ns(), time.time_ns()
        return NewFile(why, self.next_seq, self.boot, self._eol, now_mono_ns, now_utc_ns)

    def _requeue(self, item: Item) -> None:
        self._ring.requeue([item])

    def _note(self, kind: Kind, number: int, seq: int) -> None:
        self._stay()
        self._ring.put(Note(kind, number, seq, time.monotonic_ns(), time.time_ns()))

    # The port

    def _open_port(self) -> Port:
        if self.port is None:
            reason = f"{self.state}: {self.problem}" if self.problem else self.state
            raise PortWriteError(self.device, f"the port is not open ({reason})", 0)
        return self.port

    def _pause_s(self) -> float:
        """Return how long a lost port is left alone: a board that speaks in between is heard."""
        has_spoken = self.can_vanish and self.stats.rx_bytes > self._rx_before
        return FLAP_WAIT_S if self._is_flapping and not has_spoken else FIRST_WAIT_S

    async def _opened(self) -> Port:
        """Try until the port is open."""
        wait_s = FIRST_WAIT_S
        refused = ""
        while True:
            self._lost = asyncio.get_running_loop().create_future()
            self._rx_before = self.stats.rx_bytes
            self._tries += 1
            try:
                opener = self._open_device or find_opener(self.device)
                port = await opener(self.device, self._options, self._on_bytes, self._on_lost)
            except PortOpenError as exc:
                self._count_open(exc.kind)
                if exc.kind == "denied" and time.monotonic() - self._appeared_s < RIGHTS_S:
                    await asyncio.sleep(RIGHTS_RETRY_S)
                    continue
                if exc.kind != refused:
                    wait_s = BUSY_WAIT_S if exc.kind == "busy" else FIRST_WAIT_S
                refused = exc.kind
                if time.monotonic() - self._down_since_s > FLAP_S:
                    self._is_flapping = False  # now it is simply gone
                if not self._is_flapping:
                    self._set_state(exc.kind, exc.problem, exc.holder)
                is_remote = self._scheme in REMOTE
                if exc.kind == "absent" and not is_remote:
                    await self._wait_until_there()
                else:
                    await self._wait_to_try(wait_s * random.uniform(0.9, 1.1))
                    wait_s = min(2 * wait_s, REMOTE_WAIT_S if is_remote else LAST_WAIT_S)
                continue
            self._count_open("ok")
            return port

    async def _wait_to_try(self, wait_s: float) -> None:
        """Wait so long, but for another device only until it is there."""
        if self._scheme not in _TTYS:
            await asyncio.sleep(wait_s)
            return
        async with asyncio.TaskGroup() as tasks:
            another = tasks.create_task(
                is_replaced(self.device, self._sysfs, self._dev), name=f"path {self.name}"
            )
            wait = tasks.create_task(asyncio.sleep(wait_s), name=f"wait {self.name}")
            await asyncio.wait((another, wait), return_when=asyncio.FIRST_COMPLETED)
            another.cancel()
            wait.cancel()
        if not another.cancelled():
            self._appeared_s = time.monotonic()
            await asyncio.sleep(self._options.open_delay_s)

    async def _wait_until_there(self) -> None:
        if self._scheme not in _TTYS:
            await asyncio.sleep(PRESENCE_S)
            return
        await appears(self.device, self.name, self._sysfs, self._dev)
        self._appeared_s = time.monotonic()
        await asyncio.sleep(self._options.open_delay_s)

    async def _serve(self, port: Port) -> None:
        """Return when the port is lost."""
        self.port = port
        if self._was_lost:  # and not lent, or closed to be read in another way
            self.stats.reconnects += 1
            self._was_lost = False
        if not self._is_flapping:
            self._set_up(port)
        assert self._lost is not None
        async with asyncio.TaskGroup() as tasks:
            jobs = (
                tasks.create_task(self._poll(port), name=f"poll {self.name}"),
                tasks.create_task(self._watch_path(port), name=f"path {self.name}"),
            )
            try:
                problem = await self._lost
            finally:
                for job in jobs:
                    job.cancel()
        self._note_loss(problem)

    def _on_lost(self, exc: PortLostError) -> None:
        """Act on the loss at once; `_serve` goes on with it a moment later."""
        if self._lost is None or self._lost.done():
            return
        self.port = None
        try:
            self._end_file(Cut.LOST)
        except Exception as fault:  # noqa: BLE001  keep_open raises it
            self._fail(fault)
        else:
            self._lost.set_result(exc.problem)

    def _fail(self, fault: Exception) -> None:
        """End `keep_open` with a fault of ours; whoever called us would log it and go on."""
        if self._lost is None or self._lost.done():
            raise fault
        self._lost.set_exception(fault)

    def _note_loss(self, problem: str) -> None:
        now_s = self._down_since_s = time.monotonic()
        self._tries = 0
        self._was_lost = True
        self._losses.append(now_s)
        if len(self._losses) == FLAPS and now_s - self._losses[0] <= FLAP_S:
            self._is_flapping = True
        often = f"{problem}: {FLAPS} times within {FLAP_S:g} s"
        if not self._is_flapping:
            self._set_state("absent", problem)
        elif self._scheme != "command":
            self._set_state("flapping", often)
        else:  # a program that ends at once is no plug with a bad contact
            if self.state == "up":
                # What it says is no loss of the link: its words are told of a port that is down.
                self._set_state("absent", problem)
            remedy = f"run it by hand to see why; it is started again every {FLAP_WAIT_S:g} s"
            self._set_state("broken", f"{often}{self._last_words()}; {remedy}")

    def _last_words(self) -> str:
        """Return the last line that the program has printed since its start, "" if none."""
        count = min(self.stats.rx_bytes - self._rx_before, LAST_BYTES)
        said = plain(self._ring.recent()[-count:]) if count else b""
        rows = reversed(said.replace(b"\r", b"\n").split(b"\n"))
        words = next((text for row in rows if (text := readable(row))), "")[-MAX_LAST_WORDS:]
        return f', its last words "{words}"' if words else ""

    async def _closed(self, port: Port) -> None:
        port.close()
        try:
            async with asyncio.timeout(CLOSE_LIMIT_S):
                await port.wait_closed()
        except TimeoutError:
            self._set_state("broken", "close does not return (plug the adapter in again)")
            task = asyncio.current_task()
            if task is not None and not task.cancelling():
                await port.wait_closed()

    async def _poll(self, port: Port) -> None:
        """Each second, read the error counters and see whether the port is steady."""
        opened_s = time.monotonic()
        self._lines_after_ns = -1
        before: UartCounters | None = None
        loop = asyncio.get_running_loop()
        every_s = POLL_S
        while True:
            self.beat_s = loop.time()
            slot_s = CALM_SLOT_S if every_s == CALM_POLL_S else POLL_SLOT_S
            await asyncio.sleep(every_s - self.beat_s % slot_s)
            if self._is_flapping and time.monotonic() - opened_s >= STEADY_S:
                self._is_flapping = False
                self._losses.clear()
                self._set_up(port)
            counters = None
            every_s = POLL_S
            with contextlib.suppress(TimeoutError, PortError):
                async with asyncio.timeout(POLL_LIMIT_S):
                    counters = await port.counters()
                if counters is None and not self._is_flapping:
                    every_s = CALM_POLL_S
                await self._look_at_lines(port, opened_s)
            if counters is not None:
                self._count_errors(before or counters, counters)
                before = counters
                self._sink.on_counters(self, counters)

    async def _look_at_lines(self, port: Port, opened_s: float) -> None:
        """Once in each silence: a board that waits for CTS or XON is none that hangs."""
        last_ns = self._last_mono_ns
        silent_ns = time.monotonic_ns() - max(last_ns, round(opened_s * 1e9))
        if silent_ns < SILENT_NS or self._lines_after_ns == last_ns:
            return
        if isinstance(port, WithModemLines):
            async with asyncio.timeout(POLL_LIMIT_S):
                self._lines = await port.modem_lines()
            self._lines_after_ns = last_ns

    def _count_errors(self, before: UartCounters, now: UartCounters) -> None:
        for field in fields(UartCounters):
            new, old = getattr(now, field.name), getattr(before, field.name)
            if new is None or old is None:
                continue
            grown = new - old if new >= old else new  # it may begin anew with the device
            self.stats.uart_errors[field.name] = self.stats.uart_errors.get(field.name, 0) + grown
            place = {"overrun": Place.UART, "buffer_overrun": Place.TTY}.get(field.name)
            if place is not None and grown:
                where = place.name.lower()
                self.stats.lost_bytes[where] = self.stats.lost_bytes.get(where, 0) + grown
                now_ns, utc_ns = time.monotonic_ns(), time.time_ns()
                self._stay()
                self._ring.put(Gap(place, 0, self.next_seq, now_ns, utc_ns))

    async def _watch_path(self, port: Port) -> None:
        """Give up the port if its path leads to another device."""
        if self._scheme not in _TTYS:
            return
        name = parse_device(self.device)
        path = name.body if name.scheme == "tty" else port.device
        identity = port.identity if isinstance(port, Identified) else None
        await leads_elsewhere(path, port.device, identity, self._sysfs)
        self._on_lost(PortLostError(self.device, "the path leads to another device now"))

    def _set_up(self, port: Port) -> None:
        tries = f" after {self._tries} tries" if self._tries > 1 else ""
        if self.state == "flapping":
            log.info("%s: steady again on %s", self.name, port.device)
        elif self.stats.opens["ok"] > 1:
            down = _duration(time.monotonic() - self._down_since_s)
            log.info("%s: back on %s, down %s%s", self.name, port.device, down, tries)
        else:
            log.info("%s: up on %s%s", self.name, port.device, tries)
        self._set_state("up")

    def _set_state(self, state: PortState, problem: str = "", holder: str = "") -> None:
        if (state, problem, holder) == (self.state, self.problem, self.holder):
            return
        # Of an absent port it is enough to know it once, and of one that is lost over and over.
        is_known = state == self.state and (state == "absent" or self._is_flapping)
        if state == "released":
            log.info("%s: %s: %s", self.name, state, problem)
        elif state not in ("up", "opening") and not is_known:
            log.warning("%s: %s: %s", self.name, state, problem)
        if state != self.state:
            self.since_utc_ns = time.time_ns()
        self.state, self.problem, self.holder = state, problem, holder
        self._sink.on_state(self)

    def _count_open(self, result: str) -> None:
        self.stats.opens[result] = self.stats.opens.get(result, 0) + 1


def _duration(seconds: float) -> str:
    """Return a time as people say it, e.g. `3 min 12 s`."""
    if seconds < 60:
        return f"{seconds:.1f} s"
    minutes, rest = divmod(round(seconds), 60)
    return f"{minutes} min {rest} s"
