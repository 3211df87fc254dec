"""The agent's process and its model: caps, prices and secrets, from a wake to the trace."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from bench_incident import incident_at
from chat_server import ChatServer, Say
from fake_core import Board, FakeCore
from serialwatch.records import Incident
from serialwatch.wire import Json

LOG = """
U-Boot 2023.01 (Jun 22 2026 - 08:38:07 +0000)
DRAM:  128 MiB
=> setenv wifi_psk=hunter2000
=> md.l 0xffffffffff000000 4
"Synchronous Abort" handler, esr 0x96000004
resetting ...
"""
REPORT: Json = {
    "title": "A read of an unmapped address made U-Boot abort",
    "class": "uboot.sync_abort",
    "verdict": "likely",
    "confidence": 0.7,
    "conclusions": [
        {
            "id": "c1",
            "kind": "observation",
            "claim": "Before the abort somebody set wifi_psk=<secret-1>.",
            "evidence": [{"port": "dut1", "seq": 3, "quote": "setenv wifi_psk=<secret-1>"}],
        }
    ],
}
READ = Say("", [("log-read", {"port": "dut1", "first": 1, "last": 6})], tokens=(1000, 100))
WRITE = Say("", [("report-write", REPORT)], tokens=(2000, 200))


@pytest.fixture
def board(tmp_path: Path) -> Board:
    """Return a board whose log holds a secret and a fault."""
    made = Board(tmp_path)
    made.prints(LOG, b"U-Boot")
    return made


def abort(board: Board, **more: Any) -> Incident:
    incident = incident_at(
        board.lines,
        "Synchronous Abort",
        trigger="uboot.sync_abort",
        title="U-Boot took an exception",
        last="resetting",
        fields={"kind": "Synchronous Abort", "esr": "0x96000004"},
    )
    return replace(incident, **more)


def bench(path: Path, server: ChatServer, **agent: Any) -> FakeCore:
    return FakeCore(path, base_url=server.base_url, model="tiny", **agent)


async def test_a_secret_reaches_neither_the_model_nor_the_stored_prompt_but_the_report(
    tmp_path: Path, board: Board
) -> None:
    async with ChatServer([READ, WRITE]) as server, bench(tmp_path, server) as core:
        await core.finished(core.wake("settled", abort(board)))
        await core.until(lambda: any(t.run.kind == "model" and t.rounds for t in core.traces))
        await core.until(lambda: any(r.cost.model for r in core.reports))

        assert "hunter2000" not in str(server.requests)
        assert "wifi_psk=<secret-1>" in str(server.requests[0]["messages"])
        stored = [t for t in core.traces if t.run.kind == "model"][-1]
        assert "hunter2000" not in str(stored.messages)
        assert "hunter2000" not in str([r.response for r in stored.rounds])
        (conclusion,) = core.reports[-1].conclusions
        assert conclusion.evidence[0].quote == "setenv wifi_psk=hunter2000"


async def test_the_price_of_a_report_is_told_and_what_was_spent(
    tmp_path: Path, board: Board
) -> None:
    prices = {"price_in": 1.0, "price_out": 10.0}
    async with ChatServer([READ, WRITE]) as server, bench(tmp_path, server, **prices) as core:
        await core.finished(core.wake("settled", abort(board)))
        await core.until(lambda: any(r.cost.model for r in core.reports))
        await core.until(lambda: sum(b["calls"] for op, b in core.asked if op == "spent") == 2)

        cost = core.reports[-1].cost
        assert (cost.tokens, cost.price) == (3300, pytest.approx(0.006))
        spent = [body for op, body in core.asked if op == "spent"]
        assert sum(body["prompt_tokens"] for body in spent) == 3000
        assert sum(body["cost"] for body in spent) == pytest.approx(0.006)


async def test_over_the_cap_of_the_hour_the_baseline_stands_and_says_so(
    tmp_path: Path, board: Board
) -> None:
    caps = {"incidents_per_hour": 1}
    async with ChatServer([READ, WRITE]) as server, bench(tmp_path, server, **caps) as core:
        await core.finished(core.wake("settled", abort(board)))
        await core.until(lambda: any(r.cost.model for r in core.reports))
        other = abort(board, id=18, fingerprint="another fault")
        await core.finished(core.wake("settled", other))

        assert len(server.requests) == 2
        last = core.reports[-1]
        assert (last.incident, last.made_by) == (18, "offline analyst")
        assert last.cost.reason == "a model was asked about 1 incidents within the last hour"


async def test_a_day_that_is_spent_up_in_the_middle_of_a_run_ends_it(
    tmp_path: Path, board: Board
) -> None:
    caps = {"tokens_per_day": 4000}
    async with ChatServer([READ]) as server, bench(tmp_path, server, **caps) as core:
        await core.finished(core.wake("settled", abort(board)))
        await core.until(lambda: any(r.revision == 2 for r in core.reports))

        last = core.reports[-1]
        assert last.made_by == "offline analyst"
        assert "the budget of 4000 tokens a day is spent" in last.cost.reason
        assert last.cost.tokens == 1100 * len(server.requests)
