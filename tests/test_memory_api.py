"""Memories over the API and on the command line, with a real daemon behind them."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from bench_cable import Cable
from bench_cli import Cli, Result
from running_daemon import RunningDaemon, running
from serialwatch.cli.show_memory import memory_row, memory_table
from serialwatch.cli.times import local_now

Json = dict[str, Any]

OOPS = (
    b"[    0.000000] Linux version 6.6.1\r\n"
    b"[   12.000001] Unable to handle kernel NULL pointer dereference at virtual address 0010\r\n"
    b"[   12.000101] Internal error: Oops: 0000000096000004 [#1] SMP\r\n"
    b"[   12.000201] pc : foo_irq+0x14/0x80\r\n"
)
RAIL = "The 5 V rail dips when the radio sends."


@pytest.fixture(scope="module")
def board(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cable]:
    """Return a board that is silent until somebody lets it print."""
    cable = Cable(tmp_path_factory.mktemp("cable"))
    yield cable
    cable.close()


@pytest.fixture(scope="module")
def daemon(board: Cable, tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningDaemon]:
    """Run one daemon for all of them."""
    with running(tmp_path_factory.mktemp("memory"), {"dut1": str(board.path)}) as found:
        yield found


@pytest.fixture
def cli(daemon: RunningDaemon, capsys: pytest.CaptureFixture[str]) -> Cli:
    """Run `serialwatch memory` against it."""
    return MemoryCli(daemon.socket, capsys)


class MemoryCli(Cli):
    def __call__(self, *args: str) -> Result:
        where = () if "--state" in args else ("--socket", str(self.socket))
        return super().__call__("memory", *args, *where)


def add(daemon: RunningDaemon, text: str, **more: Any) -> Json:
    status, body = daemon.post("/v1/memories", {"text": text, **more})
    assert status == 200, body
    return dict(body)


def listed(daemon: RunningDaemon, query: str = "") -> list[Json]:
    return list(daemon.get(f"/v1/memories{query}")["memories"])


def test_an_empty_memory_says_what_would_make_something_appear(cli: Cli) -> None:
    shown = cli("list")

    assert (shown.code, shown.err) == (0, "")
    assert shown.out.startswith("nothing is remembered yet: an incident that has settled leaves")
    assert json.loads(cli("list", "--json").out) == []
    assert cli("search", "rail").out.startswith("nothing is remembered about rail")


def test_what_a_person_adds_is_confirmed_found_audited_and_told_in_the_next_report(
    daemon: RunningDaemon, board: Cable, cli: Cli
) -> None:
    said = cli("add", "--port", "dut1", "--priority", "5", RAIL)
    assert (said.code, said.out) == (0, "remembered as M1\n")
    (memory,) = json.loads(cli("list", "--port", "dut1", "--json").out)
    assert (memory["body"], memory["scope_name"], memory["status"]) == (RAIL, "dut1", "active")
    assert memory["by"]
    rows = daemon.wait_for(
        lambda: daemon.rows("SELECT user, port, detail_json FROM audit WHERE action = 'remember'")
    )
    assert rows == [(memory["by"], "dut1", json.dumps({"memory": "1", "text": RAIL}))]

    board.prints(OOPS)
    (incident,) = daemon.wait_for(lambda: daemon.incidents("dut1"), "incident")
    number = incident["id"]
    daemon.wait_for(lambda: daemon.rows("SELECT 1 FROM reports WHERE incident_id = ?", number))
    report = daemon.get(f"/v1/reports/{number}")
    assert report["conclusions"][0]["claim"] == f"Noted by {memory['by']}, just now: {RAIL}"
    assert report["claims"]["dropped"] == 0
    why = daemon.wait_for(
        lambda: (w := daemon.get("/v1/memories/1"))["memory"]["used"] and w, "use"
    )
    assert [use["incident"] for use in why["uses"]] == [number]


def test_a_correction_takes_its_place_and_why_shows_both(daemon: RunningDaemon, cli: Cli) -> None:
    old = add(daemon, "The crystal of dut1 is off.", port="dut1", title="Clock of dut1")
    done = cli("correct", f"M{old['id']}", "The PLL of dut1 is set up wrongly.")
    new = json.loads(cli("search", "PLL", "--json").out)[0]

    assert done.out == f"M{new['id']} takes the place of M{old['id']}\n"
    assert (new["priority"], new["source"], new["title"]) == (5, "human", "Clock of dut1")
    shown = cli("why", str(new["id"])).out
    assert shown.startswith(f"M{new['id']} · fact · dut1 · priority 5, active\nClock of dut1\n")
    assert f"supersedes M{old['id']}" in shown
    assert f"superseded by M{new['id']}" in cli("why", str(old["id"])).out
    again = cli("correct", str(old["id"]), "No, it is the fuse.")
    assert (again.code, again.out) == (2, "")
    assert f"correct M{new['id']} instead" in again.err
    assert all(m["id"] != old["id"] for m in listed(daemon))
    assert old["id"] in {m["id"] for m in listed(daemon, "?status=superseded")}


def test_two_persons_words_under_one_title_contradict_each_other(
    daemon: RunningDaemon, cli: Cli
) -> None:
    one = add(daemon, "It wants a pull-up.", title="SDA of the bench")
    said = cli("add", "--title", "SDA of the bench", "Nothing is soldered there.")

    assert said.out.endswith(f"; it contradicts M{one['id']}: correct or forget what is wrong\n")
    assert "contradicted by another" in cli("search", "SDA", "bench").out


def test_what_is_known_of_a_board_is_told_of_the_port_that_it_is_on(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    cable = Cable(tmp_path)
    with (
        closing(cable),
        running(tmp_path, {"dut2": str(cable.path)}, 'board = "evk-7"\n') as daemon,
    ):
        cli = MemoryCli(daemon.socket, capsys)
        assert cli("add", "--board", "evk-7", "--priority", "5", RAIL).code == 0
        assert cli("add", "--board", "evk-8", "--priority", "5", "Its clock is slow.").code == 0
        for query in ("?port=dut2", "?port=dut2&q=rail", "?board=evk-7&q=rail"):
            assert [m["scope_name"] for m in listed(daemon, query)] == ["evk-7"], query
        for given in (("list", "--board", "evk-7"), ("search", "--board", "evk-7", "rail")):
            assert [m["body"] for m in json.loads(cli(*given, "--json").out)] == [RAIL]
        assert daemon.get("/v1/ports")["ports"][0]["board"] == "evk-7"
        shown = Cli(daemon.socket, capsys)("ports", "--socket", str(daemon.socket)).out
        assert re.search(r"PORT +BOARD +STATE", shown)
        assert re.search(r"dut2 +evk-7 +up", shown)

        cable.prints(OOPS)
        (incident,) = daemon.wait_for(lambda: daemon.incidents("dut2"), "incident")
        number = incident["id"]
        daemon.wait_for(lambda: daemon.rows("SELECT 1 FROM reports WHERE incident_id = ?", number))
        claims = [c["claim"] for c in daemon.get(f"/v1/reports/{number}")["conclusions"]]
        assert claims[0].endswith(f", just now: {RAIL}")
        assert not any("clock" in claim for claim in claims)


def test_a_forgotten_memory_is_gone_and_stays_in_the_audit(daemon: RunningDaemon, cli: Cli) -> None:
    old = add(daemon, "Fans are loud.", type="preference", scope="user")
    assert old["scope"] == "user"

    assert cli("forget", str(old["id"])).out == f"M{old['id']} is forgotten: Fans are loud.\n"
    gone = cli("forget", str(old["id"]))
    assert gone.code == 1
    assert gone.err == (
        f"serialwatch: no memory '{old['id']}': `serialwatch memory list` lists them\n"
    )
    kept = daemon.wait_for(
        lambda: daemon.rows("SELECT detail_json FROM audit WHERE action = 'forget'")
    )
    assert json.loads(kept[0][0])["text"] == "Fans are loud.: Fans are loud."


@pytest.mark.parametrize(
    ("body", "problem"),
    [
        ({}, "text must be 1 to 400 characters"),
        ({"text": " "}, "text must be"),
        ({"text": "x" * 401}, "text must be"),
        ({"text": "x", "type": "task_result"}, "type must be one of preference, fact"),
        ({"text": "x", "priority": 6}, "priority must be a number from 0 to 5"),
        ({"text": "x", "priority": True}, "priority must be"),
        ({"text": "x", "port": "dut1", "board": "b"}, "not both"),
        ({"text": "x", "scope": "port"}, "name the port"),
        ({"text": "x", "scope": "bench", "port": "dut1"}, "about no port"),
        ({"text": "x", "board": "a b"}, "board must be a name"),
        ({"text": "x", "source": "model"}, "unknown parameter 'source'"),
    ],
)
def test_what_makes_no_sense_is_refused_by_name(
    daemon: RunningDaemon, body: Json, problem: str
) -> None:
    status, answer = daemon.post("/v1/memories", body)

    assert status == 400
    assert problem in answer["error"]["message"]


def test_unknown_ports_numbers_and_filters_are_named(daemon: RunningDaemon, cli: Cli) -> None:
    assert daemon.post("/v1/memories", {"text": "x", "port": "dut9"})[0] == 404
    assert daemon.post("/v1/memories/99/correct", {"text": "x"})[0] == 404
    assert daemon.post("/v1/memories/x/forget")[0] == 404
    assert "type must be" in daemon.get("/v1/memories?type=x")["error"]["message"]
    assert "unknown parameter" in daemon.get("/v1/memories?who=x")["error"]["message"]
    assert cli("why", "x").code == 2
    assert cli("why", "999").code == 1
    assert cli("add", "x", "--port", "dut1", "--mine").code == 2


def test_hostile_words_come_out_harmless(daemon: RunningDaemon, cli: Cli) -> None:
    said = add(daemon, "sensor \x1b]0;x\x07 \u202e one\ntwo", title="\x1b[31mred")
    shown = cli("list").out + cli("why", str(said["id"])).out

    assert "\x1b" not in shown
    assert "\u202e" not in shown
    assert said["body"].endswith("one two")


def test_without_a_daemon_the_state_folder_is_read(
    daemon: RunningDaemon, cli: Cli, tmp_path: Path
) -> None:
    state = str(daemon.state)
    there = cli("list", "--state", state, "--json")
    assert json.loads(there.out) == json.loads(cli("list", "--json").out)
    found = json.loads(cli("search", "rail", "radio", "--state", state, "--json").out)
    assert [m["body"] for m in found] == [RAIL]
    why = cli("why", "M1", "--state", state)
    assert why.code == 0
    memory = json.loads(cli("why", "M1", "--state", state, "--json").out)["memory"]
    used = memory["used"]
    assert used >= 1
    runs = "1 run" if used == 1 else f"{used} runs"
    assert f"in {runs} that led to a report or an answer" in why.out
    assert cli("why", "999", "--state", state).code == 1
    nothing = cli("list", "--state", str(tmp_path))
    assert nothing.code == 1
    assert "there is no database" in nothing.err


def test_the_table_fits_eighty_columns(daemon: RunningDaemon) -> None:
    rows = [memory_row(body, local_now()) for body in listed(daemon, "?status=all")]
    lines = memory_table(rows, 80)

    assert max(line.cell_len for line in lines) <= 80
    assert lines[0].plain.split()[:2] == ["ID", "WHAT"]
