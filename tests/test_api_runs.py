"""The agent's runs over the API, and answers to what they ask."""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import aiohttp
import pytest_asyncio

from bench_api import FakeBench, client, serving
from serialwatch.service.runs import ServiceRuns, answer_waiting, take_inquiry
from serialwatch.store.database import Database
from serialwatch.store.inquiries import load_inquiries
from serialwatch.store.runs import (
    ResultRow,
    RoundRow,
    RunRow,
    SessionRow,
    Trace,
    load_queue,
    save_trace,
)
from serialwatch.wire import Json

NOW = 1_782_100_692_000_000_000
ASKED = {"run_id": "run000000001", "question": "Which board?", "known": "an oops", "missing": "it"}


def trace(number: int, port: str = "dut1", status: str = "done") -> Trace:
    run = RunRow(
        f"run{number:09d}", f"incident-{number}", "model", "settled", number, port, "log-detective",
        "tiny", "http://x", NOW + number, NOW + number + 5, status, "", [{"step": 1}], ["R1 read"],
        2, 240, {"inquiries": [{"question": "Which board?", "answer": ""}]},
    )  # fmt: skip
    session = SessionRow(run.session_id, "", run.role, number, port, NOW, NOW, status, "an oops")
    rounds = [RoundRow(1, "act", "native", [], {"text": "x"}, 100, 20, 9, "success")]
    return Trace(session, run, rounds, results=[ResultRow("R1", {"a": 1})])


class Bench:
    """The API over a database with two runs, the first of which waits."""

    def __init__(self, bench: FakeBench, db: Database, session: aiohttp.ClientSession) -> None:
        self.db, self.session, self.bench = db, session, bench
        self.orders: list[tuple[int, Json]] = []
        self.ids = itertools.count(70)
        in_thread: Any = asyncio.to_thread
        bench.runs = ServiceRuns(db, in_thread, lambda: next(self.ids), self._told, bench.audit)

    def _told(self, queue_id: int, order: Json) -> None:
        self.orders.append((queue_id, order))

    async def get(self, path: str) -> Json:
        async with self.session.get(path) as answer:
            assert answer.status == 200, await answer.text()
            body: Json = await answer.json()
            return body

    async def answers(self, run_id: str, text: object = "the left one") -> tuple[int, Json]:
        async with self.session.post(f"/v1/runs/{run_id}/answer", json={"text": text}) as answer:
            return answer.status, await answer.json()


@pytest_asyncio.fixture
async def bench(tmp_path: Path) -> AsyncIterator[Bench]:
    db = Database(tmp_path / "serialwatch.db")
    db.start()
    async with serving(tmp_path) as fake, client(tmp_path) as session:
        await db.run(lambda d: save_trace(d, trace(1, status="waiting")))
        await db.run(lambda d: save_trace(d, trace(2, "dut2")))
        await take_inquiry(db, ASKED)
        yield Bench(fake, db, session)
    await db.stop()


async def test_runs_are_listed_newest_first_and_by_port_and_incident(bench: Bench) -> None:
    every = (await bench.get("/v1/runs"))["runs"]

    assert [run["id"] for run in every] == ["run000000002", "run000000001"]
    assert every[1]["question"] == "Which board?"
    assert "state" not in every[0]
    assert [r["id"] for r in (await bench.get("/v1/runs?port=dut1"))["runs"]] == ["run000000001"]
    assert [r["id"] for r in (await bench.get("/v1/runs?incident=2"))["runs"]] == ["run000000002"]
    assert len((await bench.get("/v1/runs?limit=1"))["runs"]) == 1


async def test_a_run_is_shown_whole(bench: Bench) -> None:
    body = await bench.get("/v1/runs/run000000001")

    assert body["run"]["plan"] == [{"step": 1}]
    assert body["run"]["started"] == "2026-06-22T03:58:12.000000Z"
    assert body["rounds"][0]["response"] == {"text": "x"}
    assert body["results"] == [{"id": "R1", "body": {"a": 1}}]
    assert body["inquiries"][0]["question"] == "Which board?"


async def test_an_answer_is_stored_queued_audited_and_handed_on(bench: Bench) -> None:
    status, body = await bench.answers("run000000001")

    assert (status, body["question"]) == (200, "Which board?")
    (inquiry,) = await bench.db.run(lambda d: load_inquiries(d, "run000000001"))
    assert inquiry.answer == "the left one"
    (item,) = await bench.db.run(load_queue)
    assert (item.id, item.kind, item.phase, item.incident_id) == (70, "incident", "answered", 1)
    ((queue_id, order),) = bench.orders
    assert queue_id == 70
    assert order["kind"] == "answered"
    assert (order["run_id"], order["text"]) == ("run000000001", "the left one")
    assert await answer_waiting(bench.db, item) == order  # as another daemon would send it
    (entry,) = bench.bench.audits
    assert (entry.action, entry.detail["run"]) == ("answer", "run000000001")


async def test_what_waits_for_nothing_takes_no_answer(bench: Bench) -> None:
    await bench.answers("run000000001")

    status, body = await bench.answers("run000000001")
    assert (status, body["error"]["code"]) == (409, "not_now")
    assert (await bench.answers("run000000002"))[0] == 409
    status, body = await bench.answers("nothing")
    assert (status, body["error"]["hint"]) == (404, "`serialwatch runs list` lists them")
    assert (await bench.answers("run000000001", ""))[0] == 400
    assert (await bench.answers("run000000001", 7))[0] == 400
    assert len(bench.orders) == 1
