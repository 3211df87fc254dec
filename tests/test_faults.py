"""Incidents while the daemon runs: what is stored, and when."""

from collections.abc import AsyncIterator
from dataclasses import replace
from pathlib import Path

import pytest
import pytest_asyncio

from serialwatch.metrics import Metrics
from serialwatch.records import Hit, Incident, IncidentChange, Lines
from serialwatch.service.faults import Faults, Phase
from serialwatch.store.database import Database
from serialwatch.store.ports import load_port


class Bench:
    """Faults over a real database, and who listens."""

    def __init__(self, db: Database) -> None:
        self.db = db
        self.changes: list[IncidentChange] = []
        self.woken: list[tuple[int, Phase]] = []
        self.faults = Faults(db, Metrics("1", list), self, self.wake)

    def on_hit(self, hit: Hit) -> None:
        """Hear it."""

    def on_incident(self, change: IncidentChange) -> None:
        self.changes.append(change)

    def wake(self, incident: Incident, phase: Phase, queue_id: int) -> None:
        self.woken.append((incident.id, phase))

    async def matched(self) -> int:
        return await self.db.run(
            lambda db: db.execute("SELECT matched_seq FROM ports").fetchone()[0]
        )


@pytest_asyncio.fixture
async def bench(tmp_path: Path) -> AsyncIterator[Bench]:
    db = Database(tmp_path / "serialwatch.db")
    db.start()
    await db.run(lambda d: load_port(d, "dut1", "/dev/x"))
    yield Bench(db)
    await db.stop()


def hit(seq: int, trigger: str = "linux.oops") -> Hit:
    return Hit(
        port="dut1", trigger=trigger, severity="critical", tier="specific", title=trigger,
        key="", seq=seq, block_first=seq, boot=0, mono_ns=10**9, utc_ns=10**18,
    )  # fmt: skip


def block(first: int, count: int) -> Lines:
    return Lines(first, count, b"x\n" * count, 10**9, 10**18)


async def test_a_position_hides_no_later_hit_of_its_block_from_a_restart(bench: Bench) -> None:
    bench.faults.lines(block(1, 4), "dut1", [])
    bench.faults.judged("dut1", 4)
    bench.faults.lines(block(5, 10), "dut1", [hit(6), hit(9, "uboot.sync_abort")])
    bench.faults.judged("dut1", 14)

    assert await bench.matched() == 4  # as it is stored with the first of the two
    bench.faults.store_positions()
    assert await bench.matched() == 14


async def test_the_agent_is_woken_at_once_and_for_a_muted_fault_not(bench: Bench) -> None:
    bench.faults.found([hit(6)])
    (incident,) = bench.faults.incidents.open()
    bench.faults.changed(bench.faults.incidents.mute(incident.id, "ada", None, 10**18))
    bench.faults.changed(bench.faults.incidents.tick(20 * 10**9, 10**18))

    assert bench.woken == [(incident.id, "opened")]
    assert [c.what for c in bench.changes][:2] == ["opened", "muted"]


async def test_without_earlier_numbers_new_ones_meet_none_of_them(bench: Bench) -> None:
    bench.faults.found([hit(6)])

    (incident,) = bench.faults.incidents.open()
    assert incident.id > 10**9
    assert (
        await bench.db.run(lambda d: d.execute("SELECT id FROM incidents").fetchone()[0])
        == incident.id
    )


async def test_the_journal_tells_once_that_an_open_incident_got_worse(
    bench: Bench, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level("INFO")
    bench.faults.found([replace(hit(6, "uboot.env_bad_crc"), severity="warning")])
    panic = replace(hit(9, "linux.panic"), mono_ns=2 * 10**9)
    bench.faults.found([panic, replace(panic, seq=11), replace(panic, seq=12)])
    bench.faults.changed(bench.faults.incidents.tick(20 * 10**9, 10**18))

    told = [r.getMessage().partition(" incident ")[2] for r in caplog.records if "now" in r.msg]
    (incident,) = bench.faults.incidents.open()
    assert told == [
        f"{incident.id} is now linux.panic, critical, at L9; it was uboot.env_bad_crc, warning"
    ]
