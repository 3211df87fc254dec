"""The ports of the bench: read from the first moment, numbered and searched as soon as possible."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import time
from collections import deque
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import Protocol

from serialwatch.api.bench import HostMessage
from serialwatch.capture.invalid_bytes import InvalidBytes
from serialwatch.capture.reader import Reader
from serialwatch.capture.ring import Ring, RingBudget
from serialwatch.config import PortConfig
from serialwatch.records import Boot, Finding, Hit, Lines, Marker, Ready
from serialwatch.service.faults import Faults
from serialwatch.service.look_up import InThread, look_up
from serialwatch.store import boots as boot_rows
from serialwatch.store import ports as port_rows
from serialwatch.store.database import Database, StoreError
from serialwatch.store.log_left import left_behind
from serialwatch.store.log_reader import PortLog
from serialwatch.store.log_recovery import recover
from serialwatch.store.log_writer import LogWriter
from serialwatch.triggers.detectors.counter import Counters
from serialwatch.triggers.matcher import Matcher
from serialwatch.triggers.watch import PortWatch, WatchOptions
from serialwatch_drivers.port import PortError, PortOptions, UartCounters

log = logging.getLogger(__name__)

RESERVE_AHEAD = port_rows.SEQ_BLOCK // 2  # numbers left when the next block is reserved
MAX_CATCH_UP = 1024 * 1024  # bytes of log that are searched again at a start
SEARCHED_AT_ONCE = 50  # pieces of what has waited: a few ms
MAX_WAITING = 1024 * 1024  # bytes of a port that wait for the rules to be compiled
HOST_MESSAGES = 20  # of the PC's kernel that are kept, a port
KERNEL_NS = 10_000_000_000  # a message of the kernel explains what happens to the link so long
QUIET_NS = 10_000_000_000  # what waits for a port that is longer quiet is not in a hurry
QUIET_TICK_NS = 900_000_000  # between its ticks: idle ports would else cost more than all others
LEARNED_BOOTS = 20  # that tell how long a board needs to get ready


class PortListener(Protocol):
    """Whoever wants to know about ports; may neither block nor raise."""

    def on_bytes(self, port: str, data: bytes) -> None:
        """Take what a board printed."""

    def on_state(self, port: str) -> None:
        """Learn that the state of a port has changed."""


@dataclass(slots=True)
class BenchPort:
    """A port and what belongs to it while the daemon runs."""

    config: PortConfig
    ring: Ring
    reader: Reader
    invalid: InvalidBytes = field(default_factory=InvalidBytes)
    watch: PortWatch | None = None  # None: the rules are not compiled yet
    waiting: list[Lines] = field(default_factory=list)  # for the rules
    waiting_bytes: int = 0
    reserved_seq: int = 0
    matched_seq: int = 0  # as an earlier run left it
    first_seq: int = 0  # of this run
    is_numbered: bool = False
    others: str = ""  # programs that have the device open too
    host_messages: deque[HostMessage] = field(default_factory=lambda: deque(maxlen=HOST_MESSAGES))
    state_ns: int = 0  # CLOCK_MONOTONIC when the port came into its state
    task: asyncio.Task[None] | None = None


class Ports:
    """All ports. The sink of their readers: what they read is searched here, on the loop."""

    def __init__(
        self,
        log_dir: Path,
        db: Database,
        writer: LogWriter,
        faults: Faults,
        listener: PortListener,
        in_thread: InThread,
    ) -> None:
        self._log_dir = log_dir
        self._db = db
        self._writer = writer
        self._faults = faults
        self._listener = listener
        self._in_thread = in_thread
        self._budget = RingBudget()
        self._ports: dict[str, BenchPort] = {}
        self._matcher: Matcher | None = None
        self.lent: dict[str, str] = {}  # by port: to whom and for what
        self._kernel: dict[str, tuple[int, str]] = {}  # by port: when it said what last
        self._loud: dict[str, BenchPort] = {}  # that said something within `QUIET_NS`
        self._all_ticked_ns = 0
        self.unsearched_lines = 0  # too many waited for the rules

    def __iter__(self) -> Iterator[BenchPort]:
        return iter(self._ports.values())

    def __len__(self) -> int:
        return len(self._ports)

    def get(self, name: str) -> BenchPort | None:
        """Return a port, None if there is none of that name."""
        return self._ports.get(name)

    def add(self, config: PortConfig, tasks: asyncio.TaskGroup) -> None:
        """Begin to read a port; its bytes wait in the ring until `number` is done."""
        port = self._read(config, Ring(config.name, self._budget))
        self._writer.attach(port.ring)
        self._begin(port, tasks)

    def change(self, config: PortConfig, tasks: asyncio.TaskGroup) -> None:
        """Read a closed port in another way; its numbers, log and scrollback just go on."""
        before = self._ports[config.name]
        port = self._read(config, before.ring)
        port.reader.go_on_from(before.reader)
        port.is_numbered = True
        port.reserved_seq = before.reserved_seq
        port.first_seq = port.reader.next_seq
        port.matched_seq = port.first_seq - 1
        self._take_up(port)
        self._begin(port, tasks)

    async def lend(self, name: str, words: str) -> None:
        """Close a port so that another program may have it until `take_back`.

        Raises:
            PortError: it cannot be closed.

        """
        port = self._ports[name]
        self.lent[name] = words
        port.reader.lend(words)
        await self.close([name])
        if port.reader.state != "released":
            raise PortError(port.config.device, port.reader.problem)

    def take_back(self, name: str, tasks: asyncio.TaskGroup) -> None:
        """Read a lent port again."""
        del self.lent[name]
        if (port := self._ports.get(name)) is not None:
            port.reader.take_back()
            self._begin(port, tasks)

    def _begin(self, port: BenchPort, tasks: asyncio.TaskGroup) -> None:
        name = port.config.name
        if words := self.lent.get(name):
            port.reader.lend(words)
        else:
            port.task = tasks.create_task(self._keep_open(port), name=f"port {name}")

    def _read(self, config: PortConfig, ring: Ring) -> BenchPort:
        options = PortOptions(
            bit_rate=config.bit_rate,
            dtr=config.dtr,
            rts=config.rts,
            line_errors=config.line_errors,
            allow_unstable=config.allow_unstable,
            open_delay_s=config.open_delay_s,
        )
        reader = Reader(config.name, config.device, options, config.eol, ring, self)
        port = BenchPort(config, ring, reader)
        self._ports[config.name] = port
        self._loud.pop(config.name, None)
        return port

    async def close(self, names: Iterable[str] | None = None) -> None:
        """Close ports (None: all of them), all at once: one that hangs holds up no other."""
        wanted = self._ports if names is None else names
        tasks = [t for name in wanted if (t := self._ports[name].task) is not None]
        for task in tasks:
            task.cancel()
        if tasks:
            await asyncio.wait(tasks)

    async def remove(self, name: str) -> None:
        """Write what is left of a closed port, and note that its end was in order."""
        port = self._ports[name]
        await self._writer.detach(name)
        if left_bytes := port.ring.unwritten_bytes:
            log.error("%s: the last %d bytes are not in the log", name, left_bytes)
        ends = {name: self._end(port)}
        self._db.post(lambda db: port_rows.close_clean(db, ends))
        port.ring.close()
        self._loud.pop(name, None)
        del self._ports[name]

    async def number(self, ports: Sequence[BenchPort]) -> None:
        """Give lines their numbers: from here on they are logged and searched."""
        for port in ports:
            name, device = port.config.name, port.config.device
            left = await self._in_thread(partial(left_behind, self._log_dir / name))
            if left is not None:
                lost_bytes = left.gap.lost_bytes
                log.warning("%s: the last run could not write %d bytes", name, lost_bytes)
                port.ring.lost_before(lost_bytes)
                port.reader.stats.lost_bytes["log"] = port.ring.lost_bytes
            logged = await self._in_thread(partial(recover, self._log_dir / name, name))
            find = partial(port_rows.find_port, name=name, device=device, logged_seq=logged)
            try:
                row = await look_up(self._db, find, self._in_thread)
            except StoreError as exc:
                # What an earlier run had reserved is unknown; it is in reach of what it logged.
                log.error("%s: lines are numbered from the log alone: %s", name, exc)
                row = port_rows.unknown_port(name, device, logged)
            if logged and not row.boot:
                boot = await self._in_thread(partial(_last_boot, self._log_dir / name, name))
                row = replace(row, boot=boot)
            try:
                await self._db.run(partial(port_rows.take_up, row=row))
            except StoreError:
                self._db.post(partial(port_rows.take_up, row=row))
            port.first_seq = row.next_seq
            port.reserved_seq = row.reserved_seq
            port.matched_seq = row.matched_seq
            port.is_numbered = True
            port.reader.number_from(row.next_seq, row.boot)

    async def search_with(self, matcher: Matcher) -> None:
        """Search with these rules: what the last run left unsearched, what waits, what comes."""
        first = self._matcher is None
        self._matcher = matcher
        for port in list(self._ports.values()):
            if port.watch is not None:
                port.watch.swap(matcher)
            elif port.is_numbered:
                await self._begin_search(port, matcher)
        if first and self.unsearched_lines:
            log.warning("%d lines came before the rules were ready", self.unsearched_lines)

    @property
    def matcher(self) -> Matcher | None:
        """Return the rules in use, None before the first."""
        return self._matcher

    @property
    def is_calm(self) -> bool:
        """Tell whether no port has said anything for a while."""
        return not self._loud

    def tick(self, mono_ns: int, utc_ns: int) -> None:
        """Let time pass for every port, some 20 times a second; for those long quiet once."""
        due = dict(self._loud)
        if mono_ns - self._all_ticked_ns >= QUIET_TICK_NS:
            self._all_ticked_ns = mono_ns
            due.update(self._ports)
        for name, port in due.items():
            if mono_ns - port.reader.heard_ns > QUIET_NS:
                self._loud.pop(name, None)
            port.reader.tick(mono_ns)
            if port.watch is not None:
                self._found(port, port.watch.tick(mono_ns, utc_ns))

    def marked(self, marker: Marker) -> None:
        """Note a marker in the log's index and open its expected window."""
        port = self._ports[marker.port]
        port.reader.mark(marker.id)
        if port.watch is not None:
            port.watch.marked(marker.kind, marker.mono_ns)

    def wrote(self, name: str, data: bytes) -> None:
        """Note what somebody sent: its echo is no fault."""
        port = self._ports[name]
        if port.watch is not None:
            port.watch.wrote(data, time.monotonic_ns())

    def ends(self) -> dict[str, port_rows.PortEnd]:
        """Return how each numbered port ends, for a clean end."""
        return {p.config.name: self._end(p) for p in self._ports.values() if p.is_numbered}

    def host_said(self, name: str, text: str) -> None:
        """Note what the PC's kernel says of a port's adapter: it explains hits of the link."""
        self._kernel[name] = (time.monotonic_ns(), text)

    def read_by(self, name: str, others: str) -> None:
        """Tell the triggers that other programs read from a port too."""
        port = self._ports[name]
        if port.watch is not None:
            self._found(port, port.watch.read_by(others, time.monotonic_ns(), time.time_ns()))

    # The sink of the readers

    def on_lines(self, reader: Reader, lines: Lines) -> None:
        """Search complete lines, or let them wait for the rules."""
        port = self._ports[reader.name]
        if port.watch is not None:
            self._search(port, port.watch, lines)
        elif port.waiting_bytes < MAX_WAITING:
            port.waiting.append(lines)
            port.waiting_bytes += len(lines.text)
        else:
            self.unsearched_lines += lines.count
        if lines.first_seq + lines.count > port.reserved_seq - RESERVE_AHEAD:
            self._reserve(port, lines.first_seq + lines.count)

    def on_partial(self, reader: Reader, seq: int, text: bytes, mono_ns: int, utc_ns: int) -> None:
        """Search an unfinished line that stands for 100 ms."""
        port = self._ports[reader.name]
        if port.watch is not None:
            self._found(port, port.watch.partial(seq, text, mono_ns, utc_ns))

    def on_bytes(self, reader: Reader, data: bytes, mono_ns: int) -> None:
        """Hand bytes to whoever is attached."""
        port = self._ports[reader.name]
        self._loud.setdefault(reader.name, port)
        if invalid := port.invalid.fed(data):
            reader.stats.invalid_bytes += invalid
        self._listener.on_bytes(reader.name, data)

    def on_state(self, reader: Reader) -> None:
        """Tell the triggers and people that a port is there or gone."""
        port = self._ports[reader.name]
        port.state_ns = time.monotonic_ns()
        if port.watch is not None:
            self._tell_state(port, port.watch)
        self._listener.on_state(reader.name)

    def _tell_state(self, port: BenchPort, watch: PortWatch) -> None:
        reader = port.reader
        device = reader.port.device if reader.port else ""
        since_ns = port.state_ns or time.monotonic_ns()  # rules may come long after the open
        utc_ns = time.time_ns() - (time.monotonic_ns() - since_ns)
        self._found(port, watch.port_state(reader.state, reader.problem, device, since_ns, utc_ns))

    def on_counters(self, reader: Reader, counters: UartCounters) -> None:
        """Search the UART's error counters."""
        port = self._ports[reader.name]
        if port.watch is not None:
            told = Counters(
                overrun=counters.overrun,
                framing=counters.framing,
                parity=counters.parity,
                breaks=counters.breaks,
                buffer_overrun=counters.buffer_overrun,
            )
            self._found(port, port.watch.counters(told, time.monotonic_ns(), time.time_ns()))

    async def _keep_open(self, port: BenchPort) -> None:
        await port.reader.keep_open()

    async def _begin_search(self, port: BenchPort, matcher: Matcher) -> None:
        config = port.config
        blocks: list[Lines] = []
        boot = port.reader.boot
        if port.matched_seq + 1 < port.first_seq:
            folder = self._log_dir / config.name
            blocks = await self._in_thread(
                partial(_left_unsearched, folder, config.name, port.matched_seq, port.first_seq)
            )
        if blocks:
            # Boots that are found again in these lines get the numbers that they had.
            find = partial(
                boot_rows.boot_before, port=config.name, seq=blocks[0].first_seq, newest=boot
            )
            with contextlib.suppress(StoreError):
                boot = await look_up(self._db, find, self._in_thread)
        booted: list[boot_rows.BootRow] = []
        with contextlib.suppress(StoreError):
            find_boots = partial(boot_rows.load_boots, port=config.name, limit=LEARNED_BOOTS)
            booted = await look_up(self._db, find_boots, self._in_thread)
        watch = PortWatch(
            config.name,
            matcher,
            WatchOptions(
                expect_faults=config.expect_faults,
                ready=config.ready if config.ready in matcher.ready else "",
                packs=tuple(config.rules),
                bit_rate=config.bit_rate if port.reader.has_bit_rate else None,
                can_vanish=port.reader.can_vanish,
            ),
            boot,
            boots_took_s=[
                (row.ready_utc_ns - row.utc_ns) / 1e9
                for row in reversed(booted)
                if row.ready_utc_ns is not None
            ],
        )
        await self._catch_up(port, watch, blocks)
        self._tell_state(port, watch)
        while port.waiting:  # more of them come meanwhile
            waiting, port.waiting, port.waiting_bytes = port.waiting, [], 0
            await self._catch_up(port, watch, waiting)
        port.watch = watch

    async def _catch_up(self, port: BenchPort, watch: PortWatch, blocks: list[Lines]) -> None:
        """Search what has waited, and let the ports be read now and then."""
        for number, lines in enumerate(blocks, 1):
            self._search(port, watch, lines)
            if number % SEARCHED_AT_ONCE == 0:
                await asyncio.sleep(0)

    def _search(self, port: BenchPort, watch: PortWatch, lines: Lines) -> None:
        findings = watch.fed(lines, may_wait=True)
        if findings:
            self._note_boots(port, findings)
        self._faults.lines(lines, port.config.name, findings)
        # Only now: stored with the first finding, it would hide the others from a restart.
        self._faults.judged(port.config.name, watch.judged_seq)

    def _found(self, port: BenchPort, findings: Sequence[Finding]) -> None:
        if findings:
            findings = [self._explained(finding) for finding in findings]
            self._note_boots(port, findings)
            self._faults.found(findings)
        if port.watch is not None and (seq := port.watch.judged_seq):
            self._faults.judged(port.config.name, seq)

    def _explained(self, finding: Finding) -> Finding:
        """Add what the kernel said of the adapter to a hit about the link."""
        if not isinstance(finding, Hit) or not finding.trigger.startswith("link."):
            return finding
        at_ns, text = self._kernel.get(finding.port, (-KERNEL_NS, ""))
        if time.monotonic_ns() - at_ns > KERNEL_NS:
            return finding
        return replace(finding, fields={**finding.fields, "kernel": text})

    def _note_boots(self, port: BenchPort, findings: Sequence[Finding]) -> None:
        for finding in findings:
            if isinstance(finding, Boot):
                port.reader.booted(finding.number, finding.seq)
                port.reader.stats.boots += 1
                self._db.post(partial(boot_rows.save_boot, boot=finding))
            elif isinstance(finding, Ready):
                self._db.post(partial(boot_rows.save_ready, ready=finding))

    def _reserve(self, port: BenchPort, used: int) -> None:
        name, upto = port.config.name, used + port_rows.SEQ_BLOCK
        port.reserved_seq = upto
        self._db.post(lambda db: port_rows.reserve(db, name, upto))

    def store_anew(self) -> None:
        """Tell a database that was begun anew what it has to know for the next start."""
        for port in self._ports.values():
            if port.is_numbered:
                self._take_up(port)

    def _take_up(self, port: BenchPort) -> None:
        end = self._end(port)
        row = port_rows.PortRow(
            port.config.name,
            port.config.device,
            end.next_seq,
            port.reserved_seq,
            end.matched_seq,
            end.boot,
            is_clean=False,
        )
        self._db.post(partial(port_rows.take_up, row=row))

    def _end(self, port: BenchPort) -> port_rows.PortEnd:
        name = port.config.name
        searched = self._faults.incidents.matched(name, self._faults.searched.get(name, 0))
        return port_rows.PortEnd(port.reader.next_seq, searched, port.reader.boot)


def _left_unsearched(folder: Path, name: str, matched_seq: int, first_seq: int) -> list[Lines]:
    """Return the lines after `matched_seq` that an earlier run logged, at most the newest 1 MiB."""
    found: list[Lines] = []
    size = 0
    now_mono_ns, now_utc_ns = time.monotonic_ns(), time.time_ns()
    try:
        reader = PortLog(folder, name)
        for line in reader.lines(first=matched_seq + 1, last=first_seq - 1, reverse=True):
            size += len(line.raw) + 1
            if size > MAX_CATCH_UP:
                log.warning("%s: only the newest 1 MiB of what was not searched is searched", name)
                break
            ago_ns = max(0, now_utc_ns - line.last_utc_ns)  # the clock of that run is not ours
            text = line.raw.replace(b"\n", b" ") + b"\n"
            found.append(Lines(line.seq, 1, text, max(0, now_mono_ns - ago_ns), line.last_utc_ns))
    except OSError as exc:
        log.error("%s: not all of the last run can be searched: %s", name, exc)
    found.reverse()
    return found


def _last_boot(folder: Path, name: str) -> int:
    """Return the number of the newest boot that the log of a port tells of, 0 if of none."""
    try:
        newest = next(PortLog(folder, name).lines(reverse=True), None)
    except OSError as exc:
        log.error("%s: the number of the boot is not known: %s", name, exc)
        return 0
    return newest.boot if newest else 0
