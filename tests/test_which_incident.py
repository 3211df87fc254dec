"""Questions on a board with several incidents: which of them leads, and how many there are."""

from __future__ import annotations

from collections.abc import AsyncIterator
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from bench_incident import incident_at
from fake_core import Board, FakeCore
from serialwatch.records import Incident, Report
from serialwatch.store.incidents import save_change
from test_answering import answered, ask, refs

MINUTE_NS = 60 * 10**9
# What is printed, how many minutes after the first line, and what stands there for an incident.
LINES = """
== PumpCtl v3.2.1
pump: hello
stack overflow in task modbus
== PumpCtl v3.2.1
pump: motor stall 3
pump: motor stall 4
Unable to handle kernel NULL pointer dereference at 00000014
== PumpCtl v3.2.1
Brownout detector was triggered
== PumpCtl v3.2.1
mmc0: Timeout waiting for hardware interrupt.
"""
FAULTS: list[tuple[int, str, str, dict[str, Any]]] = [
    (4, "stack overflow", "freertos.stack_overflow", {"outcome": "rebooted", "severity": "error"}),
    (5, "motor stall 3", "mine.flood", {"title": "2 times in 1 min: unless"}),
    (8, "kernel NULL", "linux.oops", {"outcome": "rebooted", "title": "Kernel oops"}),
    (9, "Brownout", "esp.brownout", {"outcome": "rebooted", "title": "brownout", "severity": "error"}),
    (10, "Timeout waiting", "linux.mmc_timeout", {"severity": "error", "title": "card timeout"}),
]  # fmt: skip


@pytest.fixture
async def core(tmp_path: Path) -> AsyncIterator[FakeCore]:
    """Return a core that knows five incidents of a board, a minute and more apart."""
    board = board_in(tmp_path)
    async with FakeCore(tmp_path) as made:
        for incident in incidents_of(board):
            save_change(made._db, incident)
        yield made


def board_in(folder: Path) -> Board:
    made = Board(folder)
    for line in LINES.strip().split("\n"):
        made._log._at_ns += MINUTE_NS
        made.prints(line, b"== PumpCtl")
    return made


def incidents_of(board: Board) -> list[Incident]:
    lines = board.lines
    return [
        incident_at(lines, fault, trigger=trigger, id=number, **more)
        for number, fault, trigger, more in FAULTS
    ]


async def told(core: FakeCore, text: str, number: int = 900) -> Report:
    board = _Saved(core.state_dir)
    report, _ = await answered(core, ask(core, board, text, number))
    assert report.claims.dropped == 0, text
    return report


class _Saved(Board):
    """The board that is there already."""

    def __init__(self, folder: Path) -> None:
        self.port = "dut1"
        self._log_dir = folder / "log"


def clock(core: FakeCore, fault: str) -> str:
    """Return the time of a line as a question names it."""
    lines = _Saved(core.state_dir).lines
    line = next(line for line in lines if fault.encode() in line.raw)
    return f"{datetime.fromtimestamp(line.utc_ns / 1e9, UTC):%H:%M}"


async def test_of_several_incidents_the_one_at_the_time_that_is_named_leads(core: FakeCore) -> None:
    at = clock(core, "stack overflow")
    why = await told(core, f"why did dut1 reset at {at}?")
    happened = await told(core, f"what happened to dut1 at {at}?", 901)

    assert why.title.startswith(f"{at}: freertos.stack_overflow")
    assert any("After it, " in c.claim and "Kernel oops" in c.claim for c in why.conclusions)
    assert happened.title.startswith(f"{at}: freertos.stack_overflow; the nearest of 5 incidents")
    assert "(± 10 min)" in happened.title
    assert "freertos.stack_overflow" in happened.conclusions[0].claim
    assert any("(#8)" in c.claim for c in happened.conclusions)  # the worst


async def test_the_first_and_the_last_time_are_found(core: FakeCore) -> None:
    first = await told(core, "why did dut1 reset the first time?")
    last = await told(core, "when did dut1 crash last?", 901)

    assert "freertos.stack_overflow" in first.title
    assert last.title.startswith(
        f"{clock(core, 'kernel NULL')}: Kernel oops; the last of 3 crashes"
    )


async def test_an_incident_counts_by_its_own_lines_whatever_its_title(core: FakeCore) -> None:
    stalls = await told(core, "how many motor stalls on dut1?")
    brownouts = await told(core, "how many brownouts since 00:00?", 901)
    oops = await told(core, "has dut1 ever had an oops?", 902)
    none = await told(core, "has dut1 ever had a lockup?", 903)

    assert stalls.title.startswith("2 lines on dut1 in the last 24 hours with 'motor stall', 1 inc")
    assert "dut1:L5" in refs(stalls)
    assert brownouts.title.startswith("1 line on dut1 since 00:00 with 'brownout', 1 incident")
    assert oops.title.endswith("as far back as is known with 'oops', 1 incident.")
    assert none.title == "No: nothing on dut1 as far back as is known has 'lockup'."


async def test_the_worst_is_told_and_nothing_as_bad_is_called_milder(core: FakeCore) -> None:
    board = _Saved(core.state_dir)
    worst = next(i for i in incidents_of(board) if i.trigger == "linux.oops")
    for number in range(20, 24):
        save_change(core._db, replace(worst, id=number, trigger="mine.flood", title="flood"))
    report = await told(core, "what happened to dut1?")

    assert "9 incidents on dut1 in the last 24 hours; 6 of them critical, such as: Kernel oops" in (
        report.title
    )
    left = next(text for text in report.not_checked if "more incident" in text)
    assert left.startswith("4 more incidents (1 critical, 3 error): ")
    assert report.next_steps[0].text == "`serialwatch report 8` has the details"


async def test_a_reset_without_a_fault_is_not_told_as_a_fault_some_minutes_off(
    core: FakeCore,
) -> None:
    board = _Saved(core.state_dir)
    with core._db.atomic():
        for table, number in (("hits", "incident_id"), ("incidents", "id")):
            core._db.execute(f"DELETE FROM {table} WHERE {number} IN (4, 5, 8)")
    starts = [line for line in board.lines if line.raw.startswith(b"== PumpCtl")]
    at = datetime.fromtimestamp(starts[1].utc_ns / 1e9, UTC)
    report = await told(core, f"why did dut1 reset at {at:%H:%M}?")

    assert report.title == f"dut1 booted at {at:%H:%M}, and no fault was noticed before it."
    assert f"dut1:L{starts[1].seq}" in refs(report)


async def test_boards_that_rebooted_are_told_by_their_boots(core: FakeCore) -> None:
    report = await told(core, "which boards rebooted today?")

    assert report.title.startswith("dut1 booted today")
    assert any(c.claim.startswith("dut1 booted 4 times today") for c in report.conclusions)


async def test_what_was_printed_and_what_a_rule_is_are_understood(core: FakeCore) -> None:
    stall = await told(core, "what was printed about motor stall on dut1?")
    rule = await told(core, "what is linux.oops?", 901)

    assert stall.title == "dut1 printed 2 lines with 'motor stall'."
    assert rule.conclusions[0].knowledge == ("linux/oops",)
    assert any("(#8)" in c.claim for c in rule.conclusions)
