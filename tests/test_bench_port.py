"""A port of the service without a device: what the rules are told once they are there."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable
from pathlib import Path
from types import SimpleNamespace
from typing import Any, TypeVar, cast

import pytest

from bench_cable import within_s
from serialwatch.capture.ring import Ring, RingBudget
from serialwatch.config import PortConfig
from serialwatch.records import Boot, Finding, Lines
from serialwatch.service import ports as ports_module
from serialwatch.service.faults import Faults
from serialwatch.service.ports import BenchPort, Ports
from serialwatch.store.database import Database, StoreError
from serialwatch.store.log_writer import LogWriter
from serialwatch.triggers.matcher import Matcher
from serialwatch.triggers.rules import load_rules

T = TypeVar("T")

S = 1_000_000_000


class Heard:
    """Stands for the incidents: keeps what was found."""

    def __init__(self) -> None:
        self.found_all: list[Finding] = []
        self.judged_seq = 0

    def lines(self, lines: Lines, port: str, findings: Iterable[Finding]) -> None:
        self.found_all += findings

    def found(self, findings: Iterable[Finding]) -> None:
        self.found_all += findings

    def judged(self, port: str, seq: int) -> None:
        self.judged_seq = seq


class NoDatabase:
    """A database that cannot be read."""

    path = Path("none.db")

    async def run(self, job: object) -> None:
        raise StoreError(self.path, "none")

    def post(self, job: object) -> None: ...


async def in_thread(work: Callable[[], T]) -> T:
    raise StoreError(NoDatabase.path, "none")


@pytest.fixture
def matcher(tmp_path: Path) -> Matcher:
    (tmp_path / "mine.toml").write_text(
        "[[boot]]\necosystem = \"mine\"\nmatch = ['^MINE ROM']\nstage = 1\n"
    )
    return Matcher(load_rules([tmp_path]))


def bench_of(tmp_path: Path, heard: Heard) -> tuple[Ports, BenchPort]:
    """Return a bench with one port whose lines have numbers."""
    listener: Any = SimpleNamespace(on_bytes=lambda *_: None, on_state=lambda *_: None)
    ports = Ports(
        tmp_path,
        cast(Database, NoDatabase()),
        cast(LogWriter, None),
        cast(Faults, heard),
        listener,
        cast(Any, in_thread),
    )
    port = ports._read(PortConfig(device="/dev/null", name="dut1"), Ring("dut1", RingBudget()))
    port.is_numbered, port.first_seq, port.reserved_seq = True, 1, 1 << 20
    return ports, port


async def test_ports_that_are_slow_to_close_are_closed_at_the_same_time(tmp_path: Path) -> None:
    ports, _ = bench_of(tmp_path, Heard())
    asked: set[str] = set()
    are_all_asked = asyncio.Event()

    async def open_port(name: str) -> None:
        try:
            await asyncio.Event().wait()
        finally:
            asked.add(name)
            if len(asked) == 3:
                are_all_asked.set()
            await are_all_asked.wait()  # one after the other would wait here for ever

    for name in ("a", "b", "c"):
        port = ports._read(PortConfig(device="/dev/null", name=name), Ring(name, RingBudget()))
        port.task = asyncio.create_task(open_port(name), name=f"port {name}")
    await asyncio.sleep(0)
    await within_s(20, ports.close())

    assert asked == {"a", "b", "c"}


async def test_the_grace_after_an_open_begins_with_the_open_not_with_the_rules(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, matcher: Matcher
) -> None:
    now = SimpleNamespace(ns=1000 * S)
    clock = SimpleNamespace(monotonic_ns=lambda: now.ns, time_ns=lambda: now.ns)
    monkeypatch.setattr(ports_module, "time", clock)
    heard = Heard()
    ports, port = bench_of(tmp_path, heard)
    reader = port.reader

    def boots(seq: int, after_s: int) -> None:
        now.ns = (1000 + after_s) * S
        text = b"MINE ROM\nx\nx\n"
        ports.on_lines(reader, Lines(seq, 3, text, now.ns, now.ns))

    reader.state = "up"
    ports.on_state(reader)
    boots(1, after_s=2)  # the open may have reset the board
    now.ns = 1004 * S
    await ports.search_with(matcher)
    boots(4, after_s=6)
    ports.tick(1010 * S, 1010 * S)

    told = [found for found in heard.found_all if isinstance(found, Boot)]
    assert [boot.is_expected for boot in told] == [True, False]


async def test_a_quiet_port_ticks_once_a_second_and_a_loud_one_each_time(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    ports, port = bench_of(tmp_path, Heard())
    ticks: list[int] = []
    monkeypatch.setattr(port.reader, "tick", ticks.append)
    for step in range(60):
        ports.tick(1000 * S + step * S // 20, 0)
    assert ports.is_calm
    assert len(ticks) in (3, 4)

    ports.on_bytes(port.reader, b"x", 0)
    assert not ports.is_calm
    ticks.clear()
    ports.tick(1003 * S - S // 20, 0)
    assert len(ticks) == 1


async def test_ports_are_read_while_what_has_waited_for_the_rules_is_searched(
    tmp_path: Path, matcher: Matcher
) -> None:
    heard = Heard()
    ports, port = bench_of(tmp_path, heard)

    def prints(seq: int) -> None:
        text = b"MINE ROM\n" if seq % 100 == 0 else b"text\n"
        ports.on_lines(port.reader, Lines(seq, 1, text, seq * S, seq * S))

    seqs = iter(range(1, 100_000))
    for _ in range(1000):
        prints(next(seqs))
    searching = asyncio.create_task(ports.search_with(matcher))
    turns = 0
    while not searching.done():
        prints(next(seqs))
        await asyncio.sleep(0)
        turns += 1
    for _ in range(100):
        prints(next(seqs))
    await asyncio.sleep(0)
    last = next(seqs) - 1

    assert turns >= 1000 // ports_module.SEARCHED_AT_ONCE
    told = [found.seq for found in heard.found_all if isinstance(found, Boot)]
    assert told == list(range(100, last + 1, 100))  # none missing, in order


async def test_lines_that_wait_count_as_searched_once_they_are_judged(
    tmp_path: Path, matcher: Matcher
) -> None:
    heard = Heard()
    ports, port = bench_of(tmp_path, heard)
    await ports.search_with(matcher)

    for seq in (1, 2, 3):
        ports.on_lines(port.reader, Lines(seq, 1, b"text\n", S + seq, S + seq))
    assert heard.judged_seq == 1, "a restart has to search the others"
    ports.on_bytes(port.reader, b"text\n", S)
    ports.tick(2 * S, 2 * S)
    assert heard.judged_seq == 3
