"""How long the first report takes when eight boards fail at once, with much log behind them."""

from __future__ import annotations

import asyncio
import sys
import tempfile
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from run import Figure

from bench_incident import incident_at
from fake_core import FakeCore
from own_streams import LOGS
from saved_log import SavedLog
from serialwatch.records import Incident
from serialwatch.store.log_reader import PortLog

BOARDS = 8
BEHIND = 100_000_000  # bytes of log of the first board
BEHIND_OTHERS = 2_000_000
BOOT_LINES = 15_000
FAULT = LOGS / "linux" / "linux-oops-panic-reboot.log"


def first_reports() -> Iterator[Figure]:
    """Wake the agent for eight incidents at once, then for the same once they have settled."""
    with tempfile.TemporaryDirectory(prefix="serialwatch-reports-") as name:
        folder = Path(name)
        incidents = [_failed(folder, number) for number in range(BOARDS)]
        opened_s, settled_s = asyncio.run(_reported(folder, incidents))
    label = f"{BOARDS} incidents at once: wake to"
    yield Figure(f"{label} first report", max(opened_s), "s", "< 1", max(opened_s) < 1)
    yield Figure(f"{label} report when settled", max(settled_s), "s", "", True)


def _failed(folder: Path, number: int) -> Incident:
    """Make the log of a board that has just failed; return its incident."""
    port = f"dut{number + 1}"
    log = SavedLog(folder / "log", port)
    line = b"[ %10.6f] usb 1-1: ordinary line number %d of a board that works\n"
    boot = b"".join(line % (n / 100, n) for n in range(BOOT_LINES))
    for n in range((BEHIND_OTHERS if number else BEHIND) // len(boot)):
        log.boot(n + 1)
        log.add_block(boot, BOOT_LINES / 100)
    first = log.add(*FAULT.read_bytes().split(b"\n"), after_s=0.01)
    lines = list(PortLog(folder / "log" / port, port).lines(first))
    fault = "Unable to handle kernel NULL"
    incident = incident_at(lines, fault, trigger="linux.oops", title="kernel oops: NULL pointer")
    return replace(incident, id=17 + number, port=port, linked=())


async def _reported(folder: Path, incidents: list[Incident]) -> tuple[list[float], list[float]]:
    async with FakeCore(folder) as core:
        await core.until(lambda: core.beats >= 1)
        await _woken(core, "opened", [replace(incidents[0], id=1, is_settled=False)])  # starts up
        opened = await _woken(core, "opened", [replace(i, is_settled=False) for i in incidents])
        return opened, await _woken(core, "settled", incidents)


async def _woken(core: FakeCore, phase: str, incidents: list[Incident]) -> list[float]:
    """Return when each report came, in seconds after the wakes."""
    before, took_s = len(core.reports), []
    began_s = time.monotonic()
    for incident in incidents:
        core.wake(phase, incident)
    for count in range(1, len(incidents) + 1):
        await core.until(lambda count=count: len(core.reports) >= before + count, 60)  # type: ignore[misc]
        took_s.append(time.monotonic() - began_s)
    return took_s
