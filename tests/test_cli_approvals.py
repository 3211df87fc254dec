"""`serialwatch approvals` as a person types it."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from bench_api import NoApprovals, incident
from bench_cli import Cli, ThreadedBench, threaded_bench
from serialwatch.api.bench import BenchError, IncidentView, Who
from serialwatch.store.approvals import approval_to_json
from serialwatch.wire import Json
from test_completion import completed
from test_store_approvals import ROW


class Actions(NoApprovals):
    """Actions that are done when they are looked at after a yes; `said` is what people said."""

    def __init__(self) -> None:
        self.said: list[tuple[str, str, str]] = []
        self.rows = {
            action: approval_to_json(replace(ROW, id=action, **more))  # type: ignore[arg-type]
            for action, more in (
                ("7F3K", {}),
                ("7G22", {"port": "dut2"}),
                ("7FAA", {"state": "done", "decided_by": "ann", "result": "sent exactly 1 byte"}),
            )
        }
        for row in self.rows.values():
            row["expires"] = "2126-06-21T00:15:00.123456Z"

    async def find(self, states: Any, port: str, *wanted: object) -> list[Json]:
        rows = self.rows.values()
        return [r for r in rows if r["state"] in states and port in ("", r["port"])]

    async def get(self, id: str) -> Json | None:
        row = self.rows.get(id)
        if row is not None and row["state"] == "approved":
            row |= {"state": "done", "result": "sent exactly 1 byte"}
        return row

    async def decide(self, id: str, decision: str, note: str, who: Who) -> Json:
        if id not in self.rows:
            raise BenchError("not_found", f"no action {id!r}")
        if self.rows[id]["state"] != "pending":
            raise BenchError("not_now", f"{id} is done already by ann")
        self.said.append((id, decision, note))
        self.rows[id] |= {"state": "approved" if decision == "approve" else "denied"}
        return self.rows[id]


@pytest.fixture
def bench(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[ThreadedBench]:
    monkeypatch.setenv("SERIALWATCH_SOCKET", str(tmp_path / "sw"))
    with threaded_bench(tmp_path) as made:
        made.bench.approvals = Actions()
        yield made


@pytest.fixture
def cli(bench: ThreadedBench, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> Cli:
    return Cli(tmp_path / "sw", capsys)


def test_what_waits_is_listed_and_the_rest_on_demand(cli: Cli) -> None:
    waiting, both = cli("approvals").out, cli("approvals", "list", "--all").out

    assert "7F3K  pending" in waiting
    assert "7FAA" not in waiting
    assert "7FAA  done" in both
    assert "sent exactly 1 byte" in both
    assert [row["id"] for row in json.loads(cli("approvals", "--json").out)] == ["7F3K", "7G22"]


def test_the_beginning_of_an_id_is_enough_in_any_case(cli: Cli, bench: ThreadedBench) -> None:
    assert "7G22  pending" in cli("approvals", "show", "7g").out
    assert cli("approvals", "show", "7f").out.startswith("7F3K")  # the one that waits
    many = cli("approvals", "deny", "7")
    assert (many.code, "more than one action begins so: 7F3K, 7G22" in many.err) == (2, True)
    none = cli("approvals", "deny", "ZZ")
    assert (none.code, "no action 'ZZ'" in none.err) == (1, True)
    short = cli("approvals", "approve", "7F3")
    assert (short.code, "takes the whole ID" in short.err) == (2, True)
    assert bench.bench.approvals.said == []


def test_a_yes_tells_what_came_of_it(cli: Cli, bench: ThreadedBench) -> None:
    done = cli("approvals", "approve", "7f3k", "-m", "go on")

    assert (done.code, done.out) == (0, "7F3K done: sent exactly 1 byte\n")
    assert bench.bench.approvals.said == [("7F3K", "approve", "go on")]
    again = cli("approvals", "approve", "7F3K")
    assert (again.code, "7F3K is done already by ann" in again.err) == (1, True)


def test_a_yes_whose_action_failed_exits_with_one(cli: Cli, bench: ThreadedBench) -> None:
    actions = bench.bench.approvals

    async def get(id: str) -> Json:
        return actions.rows[id] | {"state": "failed", "result": "nothing was sent: gone"}

    actions.get = get
    told = cli("approvals", "approve", "7F3K", "--json")

    assert (told.code, json.loads(told.out)["result"]) == (1, "nothing was sent: gone")


def test_ctrl_c_after_a_yes_says_that_it_is_done_all_the_same(
    cli: Cli, bench: ThreadedBench, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def get(id: str) -> Json:
        return bench.bench.approvals.rows[id] | {"state": "executing"}

    def ctrl_c(_: float) -> None:
        raise KeyboardInterrupt

    bench.bench.approvals.get = get
    clock = SimpleNamespace(monotonic=lambda: 0.0, sleep=ctrl_c)
    monkeypatch.setattr("serialwatch.cli.approvals.time", clock)
    told = cli("approvals", "approve", "7F3K")

    assert told.code == 130
    assert "7F3K is approved and will be done all the same" in told.err
    assert "`serialwatch approvals deny 7F3K` takes it back" in told.err


def test_a_no_says_that_nothing_was_sent(cli: Cli, bench: ThreadedBench) -> None:
    told = cli("approvals", "deny", "7F3K", "-m", "not on a Friday")

    assert (told.code, told.out) == (0, "7F3K denied: nothing was sent\n")
    assert bench.bench.approvals.said == [("7F3K", "deny", "not on a Friday")]


def test_an_incident_tells_that_an_action_waits(cli: Cli, bench: ThreadedBench) -> None:
    bench.bench.kept = {17: IncidentView(incident(17)), 18: IncidentView(incident(18))}
    del bench.bench.approvals.rows["7G22"]
    rows = cli("incidents").out.split("\n")

    told = [n for n, row in enumerate(rows) if "an action waits for you" in row]
    assert [rows[n - 1].split()[0] for n in told] == ["17"]
    assert "`serialwatch approvals show 7F3K`" in rows[told[0]]


@pytest.mark.usefixtures("bench")
def test_a_shell_completes_what_waits() -> None:
    assert completed("approvals", "approve", "") == ["7F3K", "7G22"]
    assert completed("approvals", "show", "7f") == ["7F3K"]
    assert completed("approvals", "list", "--port", "") == ["dut1", "dut2"]
