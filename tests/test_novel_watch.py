"""New lines over a real log and a real database."""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping
from pathlib import Path
from typing import Any

import pytest_asyncio
from sqlite_utils import Database

from saved_log import START_NS, S, SavedLog
from serialwatch.agent.archive import Archive, logs_below
from serialwatch.agent.novel.novel_watch import NovelWatch
from serialwatch.records import Boot, Marker, Ready
from serialwatch.store.boots import save_boot, save_marker, save_ready
from serialwatch.store.migrations import migrations
from serialwatch.store.ports import load_port
from serialwatch.store.templates import PortTemplates, load_templates, save_templates

LINES = ["Booting Linux", "eth0: link is up", "app: ready"]


class Bench:
    """A port's log, the database, and a core that keeps what it is told."""

    def __init__(self, state: Path) -> None:
        self.state = state
        self.log = SavedLog(state / "log")
        self.db = Database(state / "serialwatch.db")
        migrations.apply(self.db)
        load_port(self.db, "dut1", "/dev/x")
        self.told: list[dict[str, Any]] = []
        self.boots = 0
        self.watches: list[tuple[NovelWatch, Archive]] = []
        self.watch = self.new_watch()

    def new_watch(self) -> NovelWatch:
        archive = Archive(logs_below(self.state / "log"), self.state / "serialwatch.db")
        watch = NovelWatch(archive, self.state / "log", self)
        self.watches.append((watch, archive))
        return watch

    async def ask(self, op: str, body: Mapping[str, Any], limit_s: float = 1.0) -> object:
        if op == "templates":
            templates = PortTemplates(body["port"], body["good_boots"], body["texts"])
            with self.db.conn:
                save_templates(self.db, templates, START_NS)
        else:
            self.told.append(dict(body))
        return None

    async def starts(self) -> None:
        self.boots += 1
        self.log.boot(self.boots)
        seq = self.log.add(*LINES)
        at = START_NS + self.boots * S
        boot = Boot("dut1", self.boots, seq, "linux", "power_on", "Booting Linux", 0, at, False)
        with self.db.conn:
            save_boot(self.db, boot)
            save_ready(self.db, Ready("dut1", seq + 2, self.boots, 0, at))
        await self.look()

    async def look(self) -> None:
        for _ in range(3):
            await self.watch.look("dut1")


@pytest_asyncio.fixture
async def bench(tmp_path: Path) -> AsyncIterator[Bench]:
    made = Bench(tmp_path)
    made.log.add("power on", "half a line")
    await made.look()
    for _ in range(3):
        await made.starts()
    yield made
    for _, archive in made.watches:
        archive.close()
    made.db.close()


async def test_a_new_line_is_told_with_its_number(bench: Bench) -> None:
    seq = bench.log.add("pump: pressure 17 is odd", "eth0: link is up")
    await bench.look()

    (told,) = bench.told
    assert (told["port"], told["seq"], told["boot"]) == ("dut1", seq, 3)
    assert told["text"] == "pump: pressure 17 is odd"


async def test_the_next_agent_knows_what_this_one_learned(bench: Bench) -> None:
    stored = load_templates(bench.db, "dut1")
    assert stored is not None
    assert stored.good_boots >= 2
    bench.watch = bench.new_watch()
    await bench.look()
    bench.log.add("eth0: link is up", "pump: pressure 17 is odd")
    await bench.look()

    assert [told["text"] for told in bench.told] == ["pump: pressure 17 is odd"]


async def test_after_a_flash_new_lines_are_expected(bench: Bench) -> None:
    marker = Marker(1, "dut1", bench.log.next_seq, "flash", "v2", "alice", 0, START_NS)
    with bench.db.conn:
        save_marker(bench.db, marker)
    bench.log.add("pump: pressure 17 is odd")
    await bench.look()

    assert bench.told == []


async def test_a_new_agent_does_not_learn_from_the_boots_before_a_flash(bench: Bench) -> None:
    marker = Marker(1, "dut1", bench.log.next_seq, "flash", "v2", "alice", 0, START_NS)
    with bench.db.conn:
        save_marker(bench.db, marker)
    await bench.look()
    bench.watch = bench.new_watch()
    await bench.look()
    bench.log.add("pump: pressure 17 is odd")
    await bench.look()

    assert bench.told == []


async def test_a_port_without_a_log_is_no_trouble(bench: Bench) -> None:
    await bench.watch.look("dut9")

    assert bench.told == []
