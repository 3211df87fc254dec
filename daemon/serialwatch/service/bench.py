"""The bench as the API sees it."""

from __future__ import annotations

import asyncio
import os
import shlex
import time
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import Executor
from dataclasses import asdict, replace
from functools import partial
from pathlib import Path
from typing import TypeVar

from serialwatch.api.bench import (
    AuditEntry,
    BenchError,
    HostMessage,
    IncidentFilter,
    IncidentView,
    PortView,
    Reset,
    Who,
    WriteSource,
)
from serialwatch.config import ResetCommand, ResetStep
from serialwatch.metrics import CONTENT_TYPE, Metrics
from serialwatch.records import SEVERITIES, Incident, IncidentChange, Marker, Report
from serialwatch.service.agent_desk import AgentDesk
from serialwatch.service.approvals import Approvals
from serialwatch.service.faults import Faults
from serialwatch.service.loans import Lent, Loans
from serialwatch.service.memories import ServiceMemories
from serialwatch.service.ports import BenchPort, Ports
from serialwatch.service.questions import Questions
from serialwatch.service.runs import ServiceRuns
from serialwatch.service.sent import Sent, SentLines
from serialwatch.service.which_device import device_words
from serialwatch.store import audit as audit_rows
from serialwatch.store import boots as boot_rows
from serialwatch.store import incidents as incident_rows
from serialwatch.store import reports as report_rows
from serialwatch.store.database import Database, StoreError
from serialwatch.store.log_writer import LogWriter
from serialwatch.wire import Json, show
from serialwatch_drivers.port import PortError, PortWriteError

T = TypeVar("T")

STORED_LIMIT_S = 0.1  # for a marker to be stored before its number is told
RESET_LIMIT_S = 30.0  # of a command that resets a board
MAX_HOST_MESSAGES = 5
HOST_MESSAGES_NS = 3_600_000_000_000  # what the kernel said before is history
XOFF = b"\x13"  # Ctrl-S


class ServiceBench:
    """What people and programs may see and do; see `serialwatch.api.bench.Bench`."""

    def __init__(
        self,
        log_dir: Path,
        db: Database,
        writer: LogWriter,
        ports: Ports,
        faults: Faults,
        desk: AgentDesk,
        metrics: Metrics,
        renderer: Executor,
        problems: Callable[[], Sequence[str]],
        marked: Callable[[Marker], None],
        stepped: Callable[[str, Json], None],
        loans: Loans,
    ) -> None:
        self._log_dir = log_dir
        self._db = db
        self._writer = writer
        self._ports = ports
        self._faults = faults
        self._desk = desk
        self._metrics = metrics
        self._renderer = renderer
        self._problems = problems
        self._marked = marked
        self._loans = loans
        self.approvals: Approvals  # made by whoever knows agent and consoles
        loans.mark = self.mark
        self.tty_of: Callable[[str], str] = lambda port: ""  # what terminal programs open
        self.runs = ServiceRuns(db, self.render, faults.take_queue_id, desk.go_on, self.audit)
        self.memories = ServiceMemories(db, self.render, log_dir, desk.count_memories, self.audit)
        self.questions = desk.questions = Questions(
            db, writer, faults.take_queue_id, desk.link.send, stepped
        )
        self.next_marker_id = int(time.time())  # until the database tells
        self._sent = SentLines()

    @property
    def log_dir(self) -> Path:
        """Where the logs lie: one folder a port."""
        return self._log_dir

    def ports(self) -> Sequence[PortView]:
        """Return every port, in the order of the configuration."""
        return [self._view(port) for port in self._ports]

    def port(self, name: str) -> PortView | None:
        """Return one port, None if there is none of that name."""
        port = self._ports.get(name)
        return self._view(port) if port else None

    def recent(self, port: str) -> bytes:
        """Return the newest bytes of a port, at most 256 KiB."""
        found = self._ports.get(port)
        return found.ring.recent() if found else b""

    def problems(self) -> Sequence[str]:
        """Return what is wrong with the daemon itself; empty while it is healthy."""
        return self._problems()

    def lost_at_client(self, port: str, lost_bytes: int) -> None:
        """Count bytes that an attached client was too slow for."""
        found = self._ports.get(port)
        if found is not None:
            lost = found.reader.stats.lost_bytes
            lost["client"] = lost.get("client", 0) + lost_bytes

    async def render(self, work: Callable[[], T]) -> T:
        """Run `work` in the thread for large answers."""
        return await asyncio.get_running_loop().run_in_executor(self._renderer, work)

    async def metrics(self) -> tuple[bytes, str]:
        """Return the metrics and their content type."""
        return await self.render(self._metrics.render), CONTENT_TYPE

    async def incidents(self, wanted: IncidentFilter) -> Sequence[IncidentView]:
        """Return incidents, the newest first."""
        alive = {i.id: i for i in self._faults.incidents.open() if _is_wanted(i, wanted)}
        found = dict(alive)
        revisions: dict[int, int] = {}
        try:
            stored = await self._db.run(
                partial(
                    incident_rows.load_incidents,
                    port=wanted.port,
                    states=wanted.states,
                    severity=wanted.severity,
                    since_utc_ns=wanted.since_utc_ns,
                    limit=wanted.limit,
                )
            )
            for incident in stored:
                if self._faults.incidents.get(incident.id) is None:
                    found.setdefault(incident.id, incident)
            ids = list(found)
            revisions = await self._db.run(lambda db: report_rows.count_revisions(db, ids))
        except StoreError:
            pass  # what is in memory can be shown all the same
        newest = sorted(found.values(), key=lambda i: -i.id)[: wanted.limit]
        return [await self._incident_view(i, revisions.get(i.id, 0)) for i in newest]

    async def incident(self, incident_id: int) -> IncidentView | None:
        """Return one incident, None if there is none."""
        incident = self._faults.incidents.get(incident_id)
        revisions = 0
        try:
            if incident is None:
                incident = await self._db.run(partial(incident_rows.load_incident, id=incident_id))
            counted = await self._db.run(lambda db: report_rows.count_revisions(db, [incident_id]))
            revisions = counted.get(incident_id, 0)
        except StoreError as exc:
            if incident is None:
                raise BenchError("failed", str(exc)) from exc
        return await self._incident_view(incident, revisions) if incident else None

    async def report(self, incident_id: int, revision: int | None) -> Report | None:
        """Return a report of an incident, the newest revision for None."""
        unstored = {r: report for (i, r), report in self._desk.unstored.items() if i == incident_id}
        if revision is not None and revision in unstored:
            return unstored[revision]
        try:
            stored = await self._db.run(
                lambda db: report_rows.load_report(db, incident_id, revision)
            )
        except StoreError as exc:
            if not unstored:
                raise BenchError("failed", str(exc)) from exc
            stored = None
        if revision is None and unstored:
            newest = unstored[max(unstored)]
            if stored is None or newest.revision > stored.revision:
                return newest
        return stored

    async def write(self, port: str, data: bytes, source: WriteSource) -> int:
        """Send `data` to the device; return the number of the line it may be answered from."""
        found = self._writable(port)
        before_seq = found.reader.next_seq
        if source == "send":
            self._sent.wrote(port, before_seq)
        self._ports.wrote(port, data)
        try:
            await found.reader.write(data, source)
        except PortWriteError as exc:
            raise BenchError("failed", str(exc), sent=exc.sent) from exc
        return before_seq

    async def set_lines(self, port: str, *, dtr: bool | None, rts: bool | None) -> None:
        """Set modem lines; None leaves one alone."""
        found = self._wired(port)
        try:
            await found.reader.set_lines(dtr=dtr, rts=rts)
        except PortError as exc:
            raise BenchError("failed", str(exc)) from exc

    async def send_break(self, port: str, duration_s: float) -> None:
        """Send a break condition."""
        found = self._wired(port)
        try:
            await found.reader.send_break(duration_s)
        except PortError as exc:
            raise BenchError("failed", str(exc)) from exc

    async def reset(self, port: str, who: Who) -> Reset:
        """Reset the board in the way its configuration says."""
        found = self._known(port)
        how = found.config.reset
        if not how:
            raise BenchError(
                "not_allowed",
                f"port {port}: its configuration does not say how to reset it",
                "add e.g. reset = [{rts = true, ms = 100}, {rts = false}]",
            )
        if not isinstance(how, ResetCommand):
            self._wired(port)
        await self.mark(port, "reset", "reset", who)
        before_seq = found.reader.next_seq
        if isinstance(how, ResetCommand):
            await _run_command(port, how.command)
            return Reset(before_seq, f"ran {how.command[0]}")
        done = []
        for step in how:
            try:
                await found.reader.set_lines(dtr=step.dtr, rts=step.rts)
            except PortError as exc:
                raise BenchError("failed", str(exc)) from exc
            await asyncio.sleep(step.ms / 1000)
            done.append(_reset_words(step))
        return Reset(before_seq, ", ".join(done))

    def how_reset(self, port: str) -> str:
        """Return how a port would be reset, "" if its configuration does not say."""
        found = self._ports.get(port)
        how = found.config.reset if found else ()
        if isinstance(how, ResetCommand):
            return f"runs {shlex.join(how.command)}"
        return ", ".join(map(_reset_words, how))

    async def device_of(self, port: str) -> str:
        """Return which device a port has open, "" if none: the same words for the same one."""
        found = self._ports.get(port)
        opened = found.reader.port if found else None
        return await self.render(partial(device_words, opened))

    async def release(self, port: str, who: Who, words: str, ttl_s: float | None) -> Lent:
        """Close a port and keep it closed: for `ttl_s`, or until `give_back`."""
        return await self._loans.lend(port, who, words, ttl_s)

    def note_command(self, port: str, who: Who, pid: int) -> None:
        """Note the command for which a port was released."""
        self._loans.note_command(port, who, pid)

    def give_back(self, loan: Lent) -> None:
        """Note that a borrower is done: the port is opened again."""
        self._loans.give_back(loan)

    def leave(self, loan: Lent) -> None:
        """Note that a borrower is out of sight, not done."""
        self._loans.leave(loan)

    async def take_back(self, port: str, who: Who) -> None:
        """Open a released port again, whoever has it."""
        await self._loans.take_back(port, who)

    async def mark(self, port: str, kind: str, text: str, who: Who) -> Marker:
        """Set a marker before the next line; it says if it is not on disk yet."""
        found = self._known(port)
        marker = Marker(
            id=self.next_marker_id,
            port=port,
            seq=found.reader.next_seq,
            kind=kind,
            text=text,
            who=who.user,
            mono_ns=time.monotonic_ns(),
            utc_ns=time.time_ns(),
        )
        self.next_marker_id += 1
        self._ports.marked(marker)
        save = partial(boot_rows.save_marker, marker=marker)
        stored = self._db.keep(save, f"marker {marker.id}")
        self._marked(marker)
        # Who is told of it may rely on it; a database that another program holds is no reason to
        # keep anybody waiting.
        await asyncio.wait([stored], timeout=STORED_LIMIT_S)
        return replace(marker, is_on_disk=stored.done() and not stored.cancelled())

    async def resolve(self, incident_id: int, who: Who) -> IncidentView:
        """Mark an incident as resolved."""
        incidents = self._faults.incidents
        return await self._judged(
            incident_id, lambda: incidents.resolve(incident_id, who.user, time.time_ns())
        )

    async def mute(self, incident_id: int, until_utc_ns: int | None, who: Who) -> IncidentView:
        """Count this fault silently from now on; None: until unmuted."""
        incidents = self._faults.incidents
        view = await self._judged(
            incident_id,
            lambda: incidents.mute(incident_id, who.user, until_utc_ns, time.time_ns()),
        )
        fingerprint = view.incident.fingerprint
        self._db.post(
            lambda db: incident_rows.save_mute(db, fingerprint, until_utc_ns or 0, who.user)
        )
        return view

    async def unmute(self, incident_id: int, who: Who) -> IncidentView:
        """Undo `mute`."""
        incidents = self._faults.incidents
        view = await self._judged(
            incident_id, lambda: incidents.unmute(incident_id, who.user, time.time_ns())
        )
        fingerprint = view.incident.fingerprint
        self._db.post(lambda db: incident_rows.delete_mute(db, fingerprint))
        return view

    def sent(self, port: str) -> Sequence[Sent]:
        """Return what was sent to a port lately, the newest last."""
        return self._sent.of(port)

    def audit(self, entry: AuditEntry) -> None:
        """Store durably who did what."""
        if entry.action == "send":
            self._sent.ended(entry.port, entry.who.user, has_sent=entry.bytes > 0)
        row = audit_rows.AuditRow(
            utc_ns=time.time_ns(),
            uid=entry.who.uid,
            user=entry.who.user,
            pid=entry.who.pid,
            action=entry.action,
            port=entry.port,
            bytes=entry.bytes,
            detail=dict(entry.detail),
            result=entry.result,
        )
        job = partial(audit_rows.save_audit, row=row)
        self._db.keep(job, f"audit {time.monotonic_ns()}", durable=True)

    async def _judged(
        self, incident_id: int, judge: Callable[[], list[IncidentChange]]
    ) -> IncidentView:
        changes = judge()
        self._faults.changed(changes)
        if not changes:
            view = await self.incident(incident_id)
            if view is None:
                raise BenchError("not_found", f"incident {incident_id}: there is none")
            raise BenchError("not_now", f"incident {incident_id} is {view.incident.state} already")
        return await self._incident_view(changes[0].incident, 0)

    async def _incident_view(self, incident: Incident, revisions: int) -> IncidentView:
        kept = [r for (i, r) in self._desk.unstored if i == incident.id]
        started_utc_ns = 0
        try:
            boot = await self._db.run(
                partial(boot_rows.load_boot, port=incident.port, number=incident.boot)
            )
            started_utc_ns = boot.utc_ns if boot else 0
        except StoreError:
            pass
        return IncidentView(
            incident,
            boot_started_utc_ns=started_utc_ns,
            revisions=max([revisions, *kept]),
            is_on_disk=not kept and not self._db.is_unsaved(f"incident {incident.id}"),
        )

    def _known(self, name: str) -> BenchPort:
        port = self._ports.get(name)
        if port is None:
            raise BenchError("not_found", f"port {name}: there is none of that name")
        return port

    def _writable(self, name: str) -> BenchPort:
        port = self._known(name)
        if not port.config.write:
            raise BenchError("not_allowed", f"port {name}: its configuration says write = false")
        if port.reader.state != "up":
            raise BenchError("not_now", f"port {name} is {port.reader.state}")
        return port

    def _wired(self, name: str) -> BenchPort:
        """Return a port that has modem lines and a break, as far as its device tells."""
        port = self._writable(name)
        if not port.reader.has_bit_rate:
            words = f"port {name}: {port.config.device} has no DTR, RTS or break"
            raise BenchError("not_allowed", words, "a reset needs {command = [...]} there")
        return port

    def _view(self, port: BenchPort) -> PortView:
        reader, stats = port.reader, port.reader.stats
        name = port.config.name
        opened = reader.port
        return PortView(
            name=name,
            device=port.config.device,
            state=reader.state,
            since_utc_ns=reader.since_utc_ns,
            bit_rate=port.config.bit_rate if reader.has_bit_rate else None,
            may_write=port.config.write,
            boot=reader.boot,
            next_seq=reader.next_seq if port.is_numbered else 0,
            open_incidents=self._faults.incidents.count_open(name).total(),
            problem=reader.problem,
            holder=reader.holder,
            opened=opened.device if opened else "",
            far_end=(opened.far_end or "") if opened else "",
            eol=port.config.eol,
            last_rx_utc_ns=stats.last_rx_utc_ns,
            rx_bytes=stats.rx_bytes,
            rx_lines=stats.rx_lines,
            tx_bytes=dict(stats.tx_bytes),
            boots=stats.boots,
            reconnects=stats.reconnects,
            lost_bytes=dict(stats.lost_bytes),
            uart_errors=dict(stats.uart_errors),
            log_problem=self._writer.problems.get(name, ""),
            tty=self.tty_of(name),
            back_utc_ns=self._loans.back_utc_ns(name),
            others=port.others,
            board=port.config.board,
            host_messages=_lately(port.host_messages),
            modem_lines=asdict(reader.modem_lines) if reader.modem_lines else {},
            is_stopped=reader.last_sent == XOFF,
            unended=show(reader.unended),
        )


def _lately(messages: Iterable[HostMessage]) -> Sequence[HostMessage]:
    """Return the newest messages of the last hour."""
    from_ns = time.time_ns() - HOST_MESSAGES_NS
    return tuple(m for m in messages if m.utc_ns >= from_ns)[-MAX_HOST_MESSAGES:]


def _is_wanted(incident: Incident, wanted: IncidentFilter) -> bool:
    return (
        incident.port == (wanted.port or incident.port)
        and incident.state in wanted.states
        and SEVERITIES.index(incident.severity) >= SEVERITIES.index(wanted.severity)
        and incident.opened_utc_ns >= wanted.since_utc_ns
    )


def _reset_words(step: ResetStep) -> str:
    lines = [
        f"{name} {'on' if value else 'off'}"
        for name, value in (("DTR", step.dtr), ("RTS", step.rts))
        if value is not None
    ]
    return " and ".join(lines) + (f" for {step.ms} ms" if step.ms else "")


async def _run_command(port: str, command: Sequence[str]) -> None:
    """Run the program that resets a board.

    Raises:
        BenchError: it cannot be started, fails, or does not end in time.

    """
    try:
        process = await asyncio.create_subprocess_exec(
            *command,
            stdin=asyncio.subprocess.DEVNULL,
            stdout=asyncio.subprocess.DEVNULL,
            stderr=asyncio.subprocess.DEVNULL,
        )
    except OSError as exc:
        words = f"port {port}: {command[0]}: {os.strerror(exc.errno or 0)}"
        raise BenchError("failed", words) from exc
    try:
        async with asyncio.timeout(RESET_LIMIT_S):
            status = await process.wait()
    except TimeoutError:
        words = f"port {port}: {command[0]} still runs after {RESET_LIMIT_S:.0f} s"
        raise BenchError("failed", words) from None
    finally:
        if process.returncode is None:
            process.kill()
            await process.wait()
    if status:
        raise BenchError("failed", f"port {port}: {command[0]} ended with status {status}")
