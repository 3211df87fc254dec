"""`serialwatch runs` over a state folder that the real agent has filled."""

from __future__ import annotations

import asyncio
import json
import re
from collections.abc import Sequence
from functools import partial
from pathlib import Path

import pytest

from bench_cli import Cli, Result, threaded_bench
from chat_server import Answer, ChatServer, Say
from fake_core import Board, FakeCore
from serialwatch.api.bench import Who
from serialwatch.cli.show_run import run_lines
from serialwatch.cli.times import local_now
from serialwatch.store.read import read_once
from serialwatch.store.run_json import content_hash, read_run, read_runs
from serialwatch.wire import Json
from test_agent_process import ABORT, GOOD, abort
from test_loop import BAD

READ = ("log-read", {"port": "dut1", "first": 1, "last": 9})
WRONG = ("log-read", {"port": "dut1", "limit": "many"})
PLAN = ("plan-set", {"steps": [{"task": "look", "skill_hint": "log-read"}], "why": "a script?"})
SCRIPT = [
    Say("", [PLAN, READ, WRONG]),
    Say("", [("report-write", BAD)]),
    Say("", [("report-write", GOOD)]),
]
HOSTILE = "wifi password=Tr0ub4dor&3x \x1b]8;;http://evil\x07click\x1b]8;;\x07 \u202etxt"


async def _filled(folder: Path, script: list[Answer]) -> None:
    board = Board(folder)
    board.prints(f"{HOSTILE}\n{ABORT}", b"U-Boot")
    async with (
        ChatServer(script) as server,
        FakeCore(folder, base_url=server.base_url, model="tiny") as core,
    ):
        row = core.wake("settled", abort(board, 1))
        assert await core.finished(row)
        await core.until(lambda: len(core.traces) == 2)


@pytest.fixture(scope="module")
def state(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return the state folder of a bench whose model was sent back once."""
    folder = tmp_path_factory.mktemp("state")
    asyncio.run(_filled(folder, SCRIPT))
    return folder


@pytest.fixture
def cli(state: Path, capsys: pytest.CaptureFixture[str]) -> Cli:
    """Run commands."""
    return Cli(state, capsys)


def run(cli: Cli, *args: str) -> Result:
    return cli("runs", *args, "--state", str(cli.socket))


def model_run(cli: Cli) -> str:
    runs = json.loads(run(cli, "list", "--json").out)
    return str(next(r["id"] for r in runs if r["kind"] == "model"))


def test_runs_are_listed_with_whose_they_are_and_what_they_took(cli: Cli) -> None:
    lines = run(cli, "list").out.splitlines()

    assert lines[0].split() == (
        ["RUN", "WHEN", "PORT", "ABOUT", "BY", "ROUNDS", "TOKENS", "TIME", "ENDED"]
    )
    model, baseline = lines[1], lines[2]
    assert "incident 17" in model
    assert "log-detective, tiny" in model
    assert re.search(r"  3 +360  .* done$", model)
    assert "offline analyst" in baseline
    assert run(cli, "list", "--incident", "99").out.startswith("no runs of incident 99 yet")
    assert len(json.loads(run(cli, "list", "-n", "1", "--json").out)) == 1


def test_a_run_is_shown_step_by_step(cli: Cli) -> None:
    shown = run(cli, "show", model_run(cli)[:6]).out

    assert "done: report accepted; 3 rounds" in shown
    assert "`serialwatch report 17 --revision 2`" in shown
    assert "Plan  a script?" in shown
    assert re.search(r"1\. done +look \(log-read, skill-answered\)", shown)
    assert re.search(r"log-read port=dut1 first=1 last=9 +dut1:L1-L9, 9 lines", shown)
    assert "invalid_args: " in shown
    assert "2. act: require_more   100 + 20 tokens" in shown
    assert "3. redraft: success" in shown
    assert "draft 1, c2: G2 dropped: dut1:L99999 was not read in this run" in shown
    assert "\x1b" not in shown
    assert "\u202e" not in shown


def test_calls_made_at_once_are_shown_in_the_order_of_their_results(cli: Cli) -> None:
    body = json.loads(run(cli, "show", model_run(cli), "--json").out)
    first = [call for call in body["skill_calls"] if call["round"] == 0]
    body["skill_calls"] = [*reversed(first), *body["skill_calls"][len(first) :]]
    shown = "\n".join(text.plain for text in run_lines(body, local_now(), None))
    numbers = [int(n) for n in re.findall(r"^  R(\d+) ", shown, re.MULTILINE)]

    assert len(first) > 1
    assert numbers == list(range(1, len(first) + 1))


def test_prompts_are_shown_as_they_were_sent_each_once(cli: Cli) -> None:
    shown = run(cli, "show", model_run(cli), "--prompts").out

    assert "Tr0ub4dor" not in shown
    assert re.search(r"\[1\] system [0-9a-f]{32}$", shown, re.MULTILINE)
    assert re.search(r"\[1\] system [0-9a-f]{32}: as in round 1", shown)
    assert "You are" in shown
    assert "\x1b" not in shown


def test_an_export_holds_everything_once_under_one_id(cli: Cli) -> None:
    run_id = model_run(cli)
    text = run(cli, "export", run_id).out
    body = json.loads(text)
    short = run(cli, "export", run_id, "--json").out

    assert (json.loads(short), short.count("\n")) == (body, 1)
    assert body["id"] == body["run"]["id"] == run_id
    assert {h for r in body["rounds"] for h in r["prompt"]} == set(body["messages"])
    for hash_, message in body["messages"].items():
        assert content_hash([message["role"], message["content"]]) == hash_
    for result in body["results"]:
        assert content_hash(result["body"]) == result["hash"]
    assert {c["result_id"] for c in body["skill_calls"]} <= {r["id"] for r in body["results"]}
    assert body["reports"] == [{"incident": 17, "revision": 2, "title": GOOD["title"]}]
    assert "Tr0ub4dor" not in text


def test_a_stored_run_plays_again_and_tells_where_it_differs(cli: Cli, tmp_path: Path) -> None:
    run_id = model_run(cli)
    strict = run(cli, "replay", run_id)
    again = run(cli, "replay", run_id, "--mode", "skills")

    assert (strict.code, strict.out) == (
        0,
        f"run {run_id}: 3 rounds played again, each prompt is the same\n",
    )
    assert again.code == 1  # what the run itself led to is remembered now
    assert re.findall(r"(\S+): differs: (.*)", again.out) == [
        ("memory-search", "first at memories")
    ]
    assert f"run {run_id}: 6 of 10 calls gave the same again, 1 gave something else" in again.out
    assert "report-write: not run: it is L2" in again.out
    assert json.loads(run(cli, "replay", run_id, "--json").out)["differences"] == []


def test_what_cannot_be_shown_or_played_says_why(cli: Cli, tmp_path: Path) -> None:
    runs = json.loads(run(cli, "list", "--json").out)
    baseline = next(r["id"] for r in runs if r["kind"] == "baseline")

    assert run(cli, "show", "nope").err == (
        "serialwatch: no run 'nope': `serialwatch runs list` lists them\n"
    )
    assert "no model was asked in it" in run(cli, "replay", baseline).err
    assert run(cli, "replay", baseline).code == 1
    assert "there is no database" in cli("runs", "list", "--state", str(tmp_path)).err


@pytest.mark.parametrize("width", [60, 80, 120])
def test_a_run_fits_the_terminal(state: Path, cli: Cli, width: int) -> None:
    run_id = model_run(cli)
    body = read_once(state / "serialwatch.db", lambda db: read_run(db, run_id))
    assert body is not None
    lines = [line.plain for line in run_lines(body, local_now(), width)]

    long = [line for line in lines if len(line) > width and " " in line.strip()]
    assert [line for line in long if "http" not in line and "`" not in line] == []


class StoredRuns:
    """The runs of a state folder, as the daemon gives them to its API."""

    def __init__(self, state: Path) -> None:
        self._path = state / "serialwatch.db"
        self.answers: list[tuple[str, str]] = []

    async def list_runs(self, port: str, incident: int | None, limit: int) -> Sequence[Json]:
        job = partial(read_runs, incident_id=incident, port=port, limit=limit)
        return await asyncio.to_thread(read_once, self._path, job)

    async def trace(self, run_id: str) -> Json | None:
        return await asyncio.to_thread(read_once, self._path, partial(read_run, run_id=run_id))

    async def answer(self, run_id: str, text: str, who: Who) -> Json:
        self.answers.append((run_id, text))
        return {"run": run_id, "question": "Which board?", "answer": text}


def test_a_daemon_tells_the_same_and_takes_answers(
    state: Path, cli: Cli, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    run_id = model_run(cli)
    stored = StoredRuns(state)
    with threaded_bench(tmp_path) as board:
        board.bench.runs = stored
        asked = ("--socket", str(tmp_path / "sw"))

        assert cli("runs", "list", *asked).out == run(cli, "list").out
        assert cli("runs", "show", run_id[:8], *asked).out == run(cli, "show", run_id).out
        assert cli("runs", "export", run_id, *asked).out == run(cli, "export", run_id).out
        told = cli("runs", "answer", run_id, "the left one", *asked)
        assert told.out.splitlines()[0] == "answered: Which board?"
        assert stored.answers == [(run_id, "the left one")]
        assert cli("runs", "answer", run_id, " ", *asked).code == 2
        assert cli("runs", "show", "ffffffffffff", *asked).code == 1


def test_a_run_that_waited_for_a_person_plays_again(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    asyncio.run(_asked(tmp_path))
    cli = Cli(tmp_path, capsys)
    shown = run(cli, "show", model_run(cli)).out
    told = run(cli, "replay", model_run(cli))

    assert "human-ask" in shown
    assert told.out.endswith("rounds played again, each prompt is the same\n"), told.out


async def _asked(folder: Path) -> None:
    board = Board(folder)
    board.prints(ABORT, b"U-Boot")
    question = {"question": "Which board is it?", "known": "an abort", "missing": "its name"}
    script: list[Answer] = [
        Say("", [READ, ("human-ask", question)]), Say("", [("report-write", GOOD)])
    ]  # fmt: skip
    async with (
        ChatServer(script) as server,
        FakeCore(folder, base_url=server.base_url, model="tiny") as core,
    ):
        assert await core.finished(core.wake("settled", abort(board)))
        await core.until(lambda: len(core.traces) == 2)
        waiting = core.traces[-1].run
        assert waiting.exit_status == "waiting"
        core.send({"kind": "answered", "queue_id": 99, "run_id": waiting.id, "inquiry_id": 1,
                   "text": "the left one", "user": "ada"})  # fmt: skip
        assert await core.finished(99)
        await core.until(lambda: core.traces[-1].run.exit_status == "done")
