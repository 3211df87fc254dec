"""A bench for tests of the API: real ptys and real log files, and nothing that thinks."""

from __future__ import annotations

import asyncio
import os
import time
from collections.abc import AsyncIterator, Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any, Literal, TypeVar

import aiohttp

from bench_cable import Cable
from serialwatch.api.attached import Limits
from serialwatch.api.bench import (
    AuditEntry,
    BenchError,
    IncidentFilter,
    IncidentView,
    PortView,
    Reset,
    Runs,
    Who,
)
from serialwatch.api.rights import Policy
from serialwatch.api.server import ApiPlaces, ApiServer
from serialwatch.records import SEVERITIES, HitCount, Incident, Marker, Report
from serialwatch.wire import Json

T = TypeVar("T")

STARTED_UTC_NS = 1_782_100_692_000_000_000  # 2026-06-22T03:58:12Z
LOG_NAME = "20260622T035812Z-000000000001.log"
NOT_A_DAEMON = 2**22 + 7  # a pid that nobody has: nobody descends from it


class BenchPort:
    """A port on a cable: what the board prints is logged, kept and told to the API."""

    def __init__(self, name: str, cable: Cable, log_dir: Path) -> None:
        self.name = name
        self.cable = cable
        self.view = PortView(
            name=name,
            device=f"/dev/serial/by-id/usb-Test_{name}",
            state="up",
            since_utc_ns=STARTED_UTC_NS,
            bit_rate=115200,
            may_write=True,
            boot=7,
            next_seq=1,
            open_incidents=0,
        )
        self.recent = bytearray()
        self.log_path = log_dir / name / LOG_NAME
        self.log_path.parent.mkdir(parents=True)
        self.fd = os.open(cable.path, os.O_RDWR | os.O_NOCTTY | os.O_NONBLOCK)

    def read(self) -> bytes:
        """Return what the board has printed since the last call."""
        data = os.read(self.fd, 65536)
        with self.log_path.open("ab") as log:
            log.write(data)
        self.recent = (self.recent + data)[-256 * 1024 :]
        lines = data.count(b"\n")
        self.view = replace(
            self.view,
            rx_bytes=self.view.rx_bytes + len(data),
            rx_lines=self.view.rx_lines + lines,
            next_seq=self.view.next_seq + lines,
            last_rx_utc_ns=time.time_ns(),
        )
        return data


class NoRuns:
    """An agent that has done nothing."""

    async def list_runs(self, port: str, incident: int | None, limit: int) -> list[Json]:
        return []

    async def trace(self, run_id: str) -> Json | None:
        return None

    async def answer(self, run_id: str, text: str, who: Who) -> Json:
        raise BenchError("not_found", f"no run {run_id!r}")


class NoApprovals:
    """An agent that has proposed nothing."""

    async def find(self, *wanted: object) -> list[Json]:
        return []

    async def get(self, id: str) -> Json | None:
        return None

    async def decide(self, id: str, *said: object) -> Json:
        raise BenchError("not_found", f"no action {id!r}")


class FakeBench:
    """Everything behind the API; `fault` is raised by the next question about incidents."""

    def __init__(self, log_dir: Path) -> None:
        self.log_dir = log_dir
        self.by_name: dict[str, BenchPort] = {}
        self.kept: dict[int, IncidentView] = {}
        self.reports: dict[tuple[int, int], Report] = {}
        self.runs: Runs = NoRuns()
        self.approvals: Any = NoApprovals()  # bench_approvals has real ones
        self.audits: list[AuditEntry] = []
        self.markers: list[Marker] = []
        self.lines: list[tuple[str, bool | None, bool | None]] = []
        self.breaks: list[tuple[str, float]] = []
        self.resets: list[str] = []
        self.lost: dict[str, int] = {}
        self.wrong: list[str] = []
        self.fault: Exception | None = None
        self.server: ApiServer | None = None
        self._threads = ThreadPoolExecutor(1, "render")

    def add_port(self, name: str, cable: Cable) -> BenchPort:
        """Watch one more board."""
        port = self.by_name[name] = BenchPort(name, cable, self.log_dir)
        asyncio.get_running_loop().add_reader(port.fd, self._read, port)
        return port

    def change(self, name: str, **what: object) -> None:
        """Change how a port stands, and tell the API."""
        port = self.by_name[name]
        port.view = replace(port.view, **what)  # type: ignore[arg-type]
        assert self.server is not None
        self.server.on_state(name)

    def close(self) -> None:
        """Let go of everything."""
        for port in self.by_name.values():
            asyncio.get_running_loop().remove_reader(port.fd)
            os.close(port.fd)
        self._threads.shutdown()

    def ports(self) -> Sequence[PortView]:
        return [port.view for port in self.by_name.values()]

    def port(self, name: str) -> PortView | None:
        return self.by_name[name].view if name in self.by_name else None

    def recent(self, port: str) -> bytes:
        return bytes(self.by_name[port].recent)

    def problems(self) -> Sequence[str]:
        return self.wrong

    def lost_at_client(self, port: str, lost_bytes: int) -> None:
        self.lost[port] = self.lost.get(port, 0) + lost_bytes

    async def render(self, work: Callable[[], T]) -> T:
        return await asyncio.get_running_loop().run_in_executor(self._threads, work)

    async def metrics(self) -> tuple[bytes, str]:
        return b"serialwatch_port_state 1\n", "text/plain; version=0.0.4; charset=utf-8"

    async def incidents(self, wanted: IncidentFilter) -> Sequence[IncidentView]:
        if self.fault is not None:
            raise self.fault
        found = [
            view
            for view in self.kept.values()
            if wanted.port in {"", view.incident.port}
            and view.incident.state in wanted.states
            and view.incident.opened_utc_ns >= wanted.since_utc_ns
            and SEVERITIES.index(view.incident.severity) >= SEVERITIES.index(wanted.severity)
        ]
        return sorted(found, key=lambda view: -view.incident.id)[: wanted.limit]

    async def incident(self, incident_id: int) -> IncidentView | None:
        return self.kept.get(incident_id)

    async def report(self, incident_id: int, revision: int | None) -> Report | None:
        known = [r for i, r in self.reports if i == incident_id]
        return self.reports.get((incident_id, revision or max(known, default=0)))

    async def write(self, port: str, data: bytes, source: Literal["attach", "send"]) -> int:
        found = self.by_name[port]
        if found.view.state != "up":
            raise BenchError("not_now", f"{port} is {found.view.state}")
        os.write(found.fd, data)
        return found.view.next_seq

    async def set_lines(self, port: str, *, dtr: bool | None, rts: bool | None) -> None:
        self.lines.append((port, dtr, rts))

    async def send_break(self, port: str, duration_s: float) -> None:
        self.breaks.append((port, duration_s))

    async def reset(self, port: str, who: Who) -> Reset:
        if port == "dut2":
            raise BenchError("not_allowed", "dut2 has no reset", "set reset in [port.dut2]")
        self.resets.append(port)
        return Reset(self.by_name[port].view.next_seq, "RTS for 100 ms")

    async def mark(self, port: str, kind: str, text: str, who: Who) -> Marker:
        seq = self.by_name[port].view.next_seq
        marker = Marker(len(self.markers) + 1, port, seq, kind, text, who.user, 0, time.time_ns())
        self.markers.append(marker)
        assert self.server is not None
        self.server.on_marker(marker)
        return marker

    async def resolve(self, incident_id: int, who: Who) -> IncidentView:
        return self._become(incident_id, state="resolved", resolved_by=who.user)

    async def mute(self, incident_id: int, until_utc_ns: int | None, who: Who) -> IncidentView:
        return self._become(incident_id, state="muted", muted_until_utc_ns=until_utc_ns or 0)

    async def unmute(self, incident_id: int, who: Who) -> IncidentView:
        return self._become(incident_id, state="open", muted_until_utc_ns=None)

    def audit(self, entry: AuditEntry) -> None:
        self.audits.append(entry)

    def _become(self, incident_id: int, **what: object) -> IncidentView:
        view = self.kept[incident_id]
        changed = replace(view, incident=replace(view.incident, **what))  # type: ignore[arg-type]
        self.kept[incident_id] = changed
        return changed

    def _read(self, port: BenchPort) -> None:
        data = port.read()
        if self.server is not None:
            self.server.on_bytes(port.name, data)


@asynccontextmanager
async def serving(
    tmp_path: Path,
    *,
    policy: Policy | None = None,
    limits: Limits | None = None,
    listen: str = "",
    token: str = "",
) -> AsyncIterator[FakeBench]:
    """Run the API over a bench with the ports dut1 and dut2; the socket is `tmp_path / "sw"`."""
    bench = FakeBench(tmp_path / "log")
    cables = [Cable(tmp_path, "board1"), Cable(tmp_path, "board2")]
    for number, cable in enumerate(cables, 1):
        bench.add_port(f"dut{number}", cable)
    own = policy or Policy(is_system=False, uid=os.geteuid(), pid=NOT_A_DAEMON)
    places = ApiPlaces(tmp_path / "sw", listen=listen, token=token)
    bench.server = ApiServer(bench, places, own, "20260622T035812Z", limits)
    await bench.server.start()
    try:
        yield bench
    finally:
        await bench.server.stop()
        bench.close()
        for cable in cables:
            cable.close()


@asynccontextmanager
async def client(tmp_path: Path) -> AsyncIterator[aiohttp.ClientSession]:
    """Connect to the API's socket; addresses begin with `http://sw`."""
    connector = aiohttp.UnixConnector(str(tmp_path / "sw"))
    async with aiohttp.ClientSession("http://sw", connector=connector) as session:
        yield session


def incident(number: int = 17, **what: object) -> Incident:
    """Return an incident of dut1."""
    hit = HitCount(
        "uboot.sync_abort",
        "critical",
        "specific",
        '"Synchronous Abort" handler, esr 0x96000004',
        48212,
        48212,
        STARTED_UTC_NS,
        STARTED_UTC_NS,
        1,
        (48212,),
        {"esr": "0x96000004"},
    )
    made = Incident(
        id=number,
        port="dut1",
        state="open",
        trigger="uboot.sync_abort",
        severity="critical",
        tier="specific",
        title="U-Boot took a synchronous abort in `md.l` and reset",
        key="0x96000004",
        fingerprint="f00d",
        ecosystem="uboot",
        knowledge="uboot/sync_abort",
        fields={"esr": "0x96000004"},
        boot=6,
        first_seq=48212,
        block_first=48211,
        last_seq=48236,
        opened_mono_ns=1,
        opened_utc_ns=STARTED_UTC_NS,
        last_mono_ns=1,
        last_utc_ns=STARTED_UTC_NS,
        count=1,
        hits=(hit,),
    )
    return replace(made, **what)  # type: ignore[arg-type]
