"""A time in which logs cannot be written: what the daemon says, and what it knows of it."""

from __future__ import annotations

from collections.abc import Mapping

import pytest

from serialwatch.service.outage import TRIGGER, Outage, PortBytes

S = 10**9
START_NS = 1_780_000_000 * S
FULL = "/state/log/dut1: write failed: No space left on device"
DB_FULL = "cannot be written: database or disk is full (make room on that disk)"


class Bench:
    """Ports whose logs are written or not; time is a number."""

    def __init__(self) -> None:
        self.held: dict[str, int] = {"dut1": 0, "dut2": 0}
        self.lost: dict[str, int] = {"dut1": 500, "dut2": 0}  # before there was anything
        self.faults: list[str] = []
        self.looks_s: list[float] = []
        self.now_s = 0.0
        self.outage = Outage(self.ports, self.own_fault, self.look_again)

    def ports(self) -> list[PortBytes]:
        return [PortBytes(name, self.held[name], self.lost[name]) for name in self.held]

    def own_fault(self, trigger: str, title: str) -> None:
        assert trigger == TRIGGER
        self.faults.append(title)

    def look_again(self, trigger: str) -> None:
        assert trigger == TRIGGER
        self.looks_s.append(self.now_s)

    def at(self, now_s: float, logs: Mapping[str, str] | None = None, database: str = "") -> None:
        self.now_s = now_s
        self.outage.note(logs or {}, database, now_s, START_NS + int(now_s * S))


@pytest.fixture
def bench() -> Bench:
    return Bench()


def told(caplog: pytest.LogCaptureFixture) -> list[str]:
    return [record.getMessage() for record in caplog.records]


def test_a_full_disk_is_told_once_each_minute_and_when_it_is_over(
    bench: Bench, caplog: pytest.LogCaptureFixture
) -> None:
    for second in range(100):
        bench.held["dut1"] = 1000 * second
        bench.at(second, {"dut1": FULL, "dut2": FULL.replace("dut1", "dut2")}, DB_FULL)
    bench.lost["dut2"] = 77
    bench.at(100)
    bench.at(101)

    assert told(caplog) == [
        f"dut1: nothing is written to the log: {FULL}; nor to dut2",
        f"for 60 s nothing is written to the logs of dut1, dut2: {FULL};"
        " 60000 bytes wait in memory, 0 were given up",
        "the logs are written again, after 100 s: bytes that were given up: 77 of dut2",
    ]
    assert bench.faults == [f"log of dut1: {FULL}"]


def test_its_facts_say_since_when_until_when_and_what_it_has_cost(bench: Bench) -> None:
    bench.at(10, {"dut1": FULL}, DB_FULL)
    bench.held["dut1"], bench.lost["dut1"] = 4000, 700
    facts = bench.outage.facts()
    assert (facts["since"], facts["until"]) == ("2026-05-28T20:26:50.000000Z", None)
    assert (facts["held"], facts["lost"]) == ({"dut1": 4000}, {"dut1": 200})
    assert (facts["logs"], facts["problem"], facts["database"]) == (["dut1"], FULL, DB_FULL)

    bench.held["dut1"] = 0
    bench.at(40)
    bench.lost["dut1"] = 9000  # for another reason
    facts = bench.outage.facts()
    assert (facts["until"], facts["lasted_s"]) == ("2026-05-28T20:27:20.000000Z", 30)
    assert (facts["held"], facts["lost"]) == ({}, {"dut1": 200})


def test_it_is_looked_at_again_when_it_is_over_and_the_database_can_be_written(
    bench: Bench,
) -> None:
    bench.at(1, {"dut1": FULL}, DB_FULL)
    bench.at(2, {}, DB_FULL)
    assert bench.looks_s == []

    for second in range(3, 200):
        bench.at(second)
    assert bench.looks_s == [3]


def test_while_it_costs_bytes_it_is_looked_at_ever_more_seldom(bench: Bench) -> None:
    for second in range(3600):
        bench.lost["dut1"] += 1000
        bench.at(second, {"dut1": FULL})

    assert bench.looks_s[0] == 60
    assert 5 < len(bench.looks_s) < 15


def test_one_that_comes_and_goes_is_one_and_its_last_end_is_looked_at(
    bench: Bench, caplog: pytest.LogCaptureFixture
) -> None:
    for second in range(0, 50, 2):
        bench.lost["dut1"] += 10
        bench.at(second, {"dut1": FULL})
        bench.at(second + 1)
    for second in range(50, 200):
        bench.at(second)

    assert len(bench.faults) == 1
    assert len(told(caplog)) == 2
    assert bench.looks_s == [1, 61]
    facts = bench.outage.facts()
    assert (facts["lasted_s"], facts["lost"]) == (49, {"dut1": 240})


def test_a_report_that_says_it_is_over_is_made_anew_when_it_begins_again(bench: Bench) -> None:
    bench.at(1, {"dut1": FULL})
    bench.at(2)
    bench.at(100, {"dut1": FULL})

    assert bench.looks_s == [2, 100]
    assert bench.outage.facts()["since"] == "2026-05-28T20:28:20.000000Z"
    assert bench.outage.facts()["until"] is None


def test_a_database_that_another_program_holds_is_no_outage_of_the_logs(bench: Bench) -> None:
    bench.at(1, {}, "cannot be written: database is locked")

    assert bench.outage.facts()["since"] is None
    assert bench.faults == []
