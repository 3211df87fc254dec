"""What the core does with the agent's results."""

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import pytest_asyncio

from serialwatch.metrics import Metrics
from serialwatch.records import Conclusion, Evidence, Hit, IncidentChange, Report
from serialwatch.service.agent_desk import AgentDesk
from serialwatch.service.faults import Faults
from serialwatch.store.database import Database
from serialwatch.store.ports import load_port
from serialwatch.store.templates import PortTemplates, load_templates
from serialwatch.triggers.ruleset import NovelDetector, Told
from serialwatch.wire import report_to_json

RULES: dict[str, Told] = {"log.novel": NovelDetector("log.novel", "warning", 300.0, "", "x")}


class Log:
    """A log that is on disk or not, in place of the writer with its threads."""

    def __init__(self) -> None:
        self.problems: dict[str, str] = {}
        self.is_on_disk = True

    async def synced(self, port: str, seq: int) -> bool:
        return self.is_on_disk


class Desk:
    """A desk over a real database, with one incident."""

    def __init__(self, db: Database) -> None:
        self.db = db
        self.log = Log()
        self.told: list[Report] = []
        metrics = self.metrics = Metrics("1", list)
        writer: Any = self.log
        views: Any = lambda: [SimpleNamespace(name="dut1")]  # noqa: E731
        self.desk = AgentDesk(db, writer, metrics, self, dict, views, lambda _: {}, RULES.get)
        self.desk.faults = Faults(db, metrics, self, self.desk.wake)
        fault = Hit(
            port="dut1", trigger="linux.oops", severity="critical", tier="specific", title="oops",
            key="", seq=6, block_first=6, boot=0, mono_ns=10**9, utc_ns=10**18,
        )  # fmt: skip
        self.desk.faults.found([fault])
        (self.incident,) = self.desk.faults.incidents.open()

    def on_report(self, port: str, report: Report) -> None:
        self.told.append(report)

    def on_hit(self, hit: Hit) -> None:
        """Hear it."""

    def on_incident(self, change: IncidentChange) -> None:
        """Hear it."""

    async def submits(self) -> Any:
        evidence = Evidence("dut1", 6, "a line that is long enough")
        report = Report(
            incident=self.incident.id, revision=1, made_by="offline analyst", title="oops",
            fault_class="linux.oops", severity="critical", verdict="likely", confidence=0.6,
            conclusions=(Conclusion("c1", "observation", "It did.", (evidence,)),),
        )  # fmt: skip
        return await self.desk._answer("report", {"report": report_to_json(report), "run_id": "r1"})

    async def stored(self) -> int:
        return await self.db.run(lambda d: d.execute("SELECT count(*) FROM reports").fetchone()[0])


@pytest_asyncio.fixture
async def desk(tmp_path: Path) -> AsyncIterator[Desk]:
    db = Database(tmp_path / "serialwatch.db")
    db.start()
    await db.run(lambda d: load_port(d, "dut1", "/dev/x"))
    yield Desk(db)
    await db.stop()


async def test_a_report_is_stored_when_its_lines_are_on_disk(desk: Desk) -> None:
    answer = await desk.submits()

    assert answer == {"revision": 1, "is_on_disk": True}
    assert await desk.stored() == 1
    assert desk.desk.unstored == {}


async def test_a_report_whose_lines_are_not_on_disk_waits_visibly(desk: Desk) -> None:
    desk.log.is_on_disk = False
    answer = await desk.submits()
    await desk.desk.store_logged()

    assert answer["is_on_disk"] is False
    assert len(desk.told) == 1
    assert list(desk.desk.unstored) == [(desk.incident.id, 1)]
    assert await desk.stored() == 0


async def test_it_is_stored_once_they_are(desk: Desk) -> None:
    desk.log.is_on_disk = False
    await desk.submits()
    desk.log.problems = {"dut1": "No space left on device"}
    await desk.desk.store_logged()
    assert await desk.stored() == 0
    desk.log.is_on_disk, desk.log.problems = True, {}
    await desk.desk.store_logged()

    assert await desk.stored() == 1
    await asyncio.wait_for(_emptied(desk), 5)


async def _emptied(desk: Desk) -> None:
    while desk.desk.unstored:
        await asyncio.sleep(0)


async def test_whether_the_model_is_left_alone_is_in_the_metrics(desk: Desk) -> None:
    def shown() -> float | None:
        return desk.metrics.registry.get_sample_value("serialwatch_breaker_state")

    await desk.desk._answer("breaker", {"is_open": True})
    assert shown() == 1
    desk.desk.link._hello()  # a new agent has asked nothing yet

    assert shown() == 0


NOVEL: dict[str, Any] = {
    "port": "dut1", "seq": 90, "boot": 3, "mono_ns": 90 * 10**9, "at_ns": 10**18,
    "text": "pump: pressure 17 is odd",
}  # fmt: skip


async def test_a_line_that_is_new_to_a_board_becomes_a_hit(desk: Desk) -> None:
    await desk.desk._answer("novel", NOVEL)
    assert desk.desk.faults
    newest = desk.desk.faults.incidents.open()[-1]

    assert (newest.trigger, newest.first_seq) == ("log.novel", 90)
    assert newest.title == "never printed in a good boot: pump: pressure 17 is odd"
    assert newest.key == "pump: pressure NUM is odd"


async def test_a_new_line_of_no_port_is_refused(desk: Desk) -> None:
    with pytest.raises(ValueError, match="no such port: 'dut9'"):
        await desk.desk._answer("novel", NOVEL | {"port": "dut9"})


async def test_what_a_port_prints_in_good_boots_is_stored(desk: Desk) -> None:
    body = {"port": "dut1", "good_boots": 2, "texts": ["eth0: <*> up"]}
    await desk.desk._answer("templates", body)
    await desk.desk._answer("templates", body | {"good_boots": 3})

    stored = await desk.db.run(lambda db: load_templates(db, "dut1"))
    assert stored == PortTemplates("dut1", 3, ["eth0: <*> up"])
    assert await desk.db.run(lambda db: load_templates(db, "dut2")) is None


async def test_what_makes_no_sense_is_refused(desk: Desk) -> None:
    with pytest.raises(ValueError, match="erase the flash"):
        await desk.desk._answer("erase the flash", {})
