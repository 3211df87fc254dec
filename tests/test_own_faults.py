"""Faults of the daemon itself: what the report of a disk that takes nothing says."""

from __future__ import annotations

import contextlib
import os
import subprocess
from collections.abc import Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from bench_analysis import get_ready, knowledge
from bench_cable import Cable
from running_daemon import running
from serialwatch.agent.ctx.context import CtxServer
from serialwatch.agent.offline.analyst import bare_report, investigate
from serialwatch.agent.proof.verifier import verify
from serialwatch.agent.workers.tools import RunTools, page_texts
from serialwatch.bundled import bundled_dir
from serialwatch.records import OWN_PORT, Conclusion, Incident, Report, SkillResult
from serialwatch.service.outage import TRIGGER
from serialwatch.store.room import room_of
from skill_run import opened_run, run_skill
from test_context import incident

SINCE, UNTIL, AT = ("2026-05-28T20:26:50.4Z", "2026-05-28T20:27:20.1Z", "2026-05-28T20:27:00.9Z")
DISK = {
    "folder": "/srv/watch/state",
    "mount": "/srv/watch",
    "type": "ext4",
    "is_read_only": False,
    "total_bytes": 40_000_000,
    "free_bytes": 0,
    "used_percent": 100,
    "free_files": 1000,
    "parts": [{"name": "log/dut1", "bytes": 30_000_000}, {"name": "serialwatch.db", "bytes": 4096}],
    "more_parts_bytes": 0,
    "others_bytes": 9_995_904,
}
STATE: dict[str, Any] = {
    "at": AT,
    "since": SINCE,
    "until": None,
    "lasted_s": 10,
    "logs": ["dut1", "dut2"],
    "problem": "/srv/watch/state/log/dut1: write failed: No space left on device",
    "database": "cannot be written: database or disk is full (make room on that disk)",
    "held": {"dut1": 17_000_000, "dut2": 900},
    "lost": {"dut1": 235_431_984},
    "unsaved": 13,
    "disk": DISK,
}


@pytest.fixture(scope="module", autouse=True)
def ready() -> None:
    """Load everything once."""
    get_ready()


@pytest.fixture
def state() -> dict[str, Any]:
    return dict(STATE)


@pytest.fixture
def ctx(state: dict[str, Any]) -> Iterator[CtxServer]:
    async def ports() -> Mapping[str, Any]:
        return {}

    async def daemon() -> Mapping[str, Any]:
        return state

    with opened_run(
        [bundled_dir("skills")],
        knowledge=knowledge(),
        port=OWN_PORT,
        incident=1,
        ask_ports=ports,
        ask_daemon=daemon,
    ) as made:
        yield made


async def reported(ctx: CtxServer) -> Report:
    async def run(name: str, params: Mapping[str, Any]) -> SkillResult:
        result = await run_skill(ctx, name, **params)
        return replace(result, metadata={**result.metadata, "result": ctx.keep(result)})

    tools = RunTools(ctx, page_texts(knowledge()), run)
    return await investigate(own_fault(), tools, "settled", None)


def own_fault() -> Incident:
    return replace(
        incident(1, TRIGGER),
        port=OWN_PORT,
        title=f"log of dut1: {STATE['problem']}",
        knowledge="daemon/log_not_written",
        first_seq=0,
        block_first=0,
        last_seq=0,
        hits=(),
        is_settled=True,
    )


def claims(report: Report) -> list[str]:
    return [conclusion.claim for conclusion in report.conclusions]


async def test_a_full_disk_is_told_with_what_fills_it_what_waits_and_what_is_lost(
    ctx: CtxServer,
) -> None:
    report = await reported(ctx)

    assert report.title == "The disk is full: the logs of dut1 and dut2 cannot be written"
    assert claims(report) == [
        "The logs of dut1 and dut2 cannot be written since 2026-05-28 20:26:50 UTC, for 10 s when"
        " this was written: No space left on device.",
        "Nor can the database: database or disk is full (make room on that disk).",
        "The file system is full: /srv/watch (ext4).",
        "0 bytes of 40 MB are free there (100 % used).",
        "The largest parts of /srv/watch/state: log/dut1 30 MB and serialwatch.db 4.1 kB; files of"
        " others take 10 MB of that file system.",
        "Ports are still read: 17 MB wait in memory (17 MB of dut1 and 900 bytes of dut2), and 13"
        " incidents and reports.",
        "Given up so far, since memory was full: 235431984 bytes of dut1.",
    ]
    assert report.claims.dropped == 0
    assert all(conclusion.results for conclusion in report.conclusions)
    assert report.verdict == "confirmed"
    assert report.next_steps[0].text == "make room at /srv/watch: log/dut1 takes most, 30 MB"
    assert report.not_checked == report.unknowns == ()
    assert [h.text for h in report.hypotheses if h.status == "open"] == []


async def test_when_it_is_over_the_report_says_until_when_and_what_it_has_cost(
    ctx: CtxServer, state: dict[str, Any]
) -> None:
    free = {**DISK, "free_bytes": 9_995_904, "used_percent": 75, "others_bytes": 0}
    state |= {
        "until": UNTIL,
        "lasted_s": 30,
        "held": {},
        "lost": {},
        "logs": ["dut1"],
        "disk": free,
    }
    report = await reported(ctx)

    assert report.title == "The disk was full: the log of dut1 could not be written"
    assert claims(report)[0] == (
        "The log of dut1 could not be written from 2026-05-28 20:26:50 UTC to 2026-05-28 20:27:20"
        " UTC, for 30 s: No space left on device."
    )
    assert "10 MB of 40 MB are free there by now (75 % used)." in claims(report)
    assert claims(report)[-1] == "No byte was given up in that time."
    assert report.claims.dropped == 0


async def test_a_read_only_disk_is_told_as_such(ctx: CtxServer, state: dict[str, Any]) -> None:
    state["problem"] = "/srv/watch/state/log/dut1: write failed: Read-only file system"
    report = await reported(ctx)

    assert report.title.startswith("The disk is read-only: ")
    assert report.next_steps[0].text == "look in the PC's own `dmesg` why /srv/watch is read-only"


async def test_what_nobody_can_name_is_no_cause_and_the_page_guesses(
    ctx: CtxServer, state: dict[str, Any]
) -> None:
    state["problem"] = "/srv/watch/state/log/dut1: write failed: Not a directory"
    report = await reported(ctx)

    assert all(conclusion.kind != "cause" for conclusion in report.conclusions)
    assert any("its owner changed" in h.text for h in report.hypotheses)


async def test_a_claim_about_the_daemon_needs_its_result(
    ctx: CtxServer, state: dict[str, Any]
) -> None:
    state["since"] = None  # nothing is known
    report = await reported(ctx)

    assert report.conclusions == ()
    assert report.verdict == "inconclusive"


def test_a_claim_rests_on_a_result_alone_only_if_that_is_of_the_daemon_itself() -> None:
    claim = Conclusion("c1", "observation", "No byte was given up.", results=("R1",))
    draft = replace(bare_report(own_fault(), None, ""), conclusions=(claim,))

    def kept(result: object, about: Incident) -> int:
        return len(verify(draft, {}, {"R1": result}, about, {}).report.conclusions)

    assert kept({"port": OWN_PORT}, own_fault()) == 1
    assert kept({"port": "dut1"}, own_fault()) == 0
    assert kept({"port": OWN_PORT}, incident(1, TRIGGER)) == 0


async def test_port_status_of_the_daemon_fits_with_many_ports(
    ctx: CtxServer, state: dict[str, Any]
) -> None:
    names = [f"board-with-a-long-name-{n:03}" for n in range(300)]
    state |= {"logs": names, "held": dict.fromkeys(names, 9), "lost": dict.fromkeys(names, 9)}
    found = await run_skill(ctx, "port-status")

    assert found.status == "success"
    assert found.output["held_in_all"] == "2.7 kB"


def test_room_is_that_of_the_folders_file_system_with_its_largest_parts(tmp_path: Path) -> None:
    (tmp_path / "log" / "dut1").mkdir(parents=True)
    (tmp_path / "log" / "dut1" / "a.log").write_bytes(os.urandom(50_000))
    (tmp_path / "serialwatch.db").write_bytes(os.urandom(20_000))
    room = room_of(tmp_path)

    assert [part["name"] for part in room["parts"]] == ["log/dut1", "serialwatch.db"]
    assert room["parts"][0]["bytes"] >= 50_000
    assert tmp_path.is_relative_to(room["mount"])
    assert 0 < room["free_bytes"] < room["total_bytes"]
    assert not room["is_read_only"]


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    """A disk of 16 MiB."""
    place = tmp_path / "disk"
    place.mkdir()
    mount = ["mount", "-t", "tmpfs", "-o", "size=16m", "none", str(place)]
    if os.geteuid() != 0 or subprocess.run(mount, capture_output=True, check=False).returncode:
        pytest.skip("mounting a small disk needs root")
    yield place
    subprocess.run(["umount", "-l", str(place)], check=True)


def test_a_daemon_whose_disk_was_full_says_it_once_and_reports_when_there_is_room(
    cable: Cable, small_disk: Path
) -> None:
    def title() -> str:
        (found,) = daemon.incidents(OWN_PORT)
        return str(daemon.get(f"/v1/reports/{found['id']}").get("title", ""))

    with running(small_disk, {"dut1": str(cable.path)}) as daemon:
        cable.prints(b"hello\r\n")
        daemon.wait_for(lambda: daemon.saved("dut1"), "a log")
        ballast = small_disk / "ballast"
        with contextlib.suppress(OSError), ballast.open("wb", 0) as file:
            while file.write(bytes(4096)):
                pass
        cable.prints(b"is there any room?\r\n" * 1000)
        daemon.wait_for(lambda: daemon.incidents(OWN_PORT), "an incident")
        daemon.wait_for(lambda: title().startswith("The disk is full: "), "a report")
        _, marker = daemon.post("/v1/ports/dut1/mark", {"text": "no room for it"})
        ballast.unlink()
        daemon.wait_for(lambda: title().startswith("The disk was full: "), "its end")
        daemon.wait_for(lambda: daemon.rows("SELECT 1 FROM reports WHERE incident_id = 1"), "rows")
        texts = "SELECT text FROM markers"
        daemon.wait_for(lambda: ("no room for it",) in daemon.rows(texts), "the marker")
        _, later = daemon.post("/v1/ports/dut1/mark", {"text": "room"})
        said = daemon.log()

    assert (marker["on_disk"], later["on_disk"]) == (False, True)
    assert said.count("nothing is written to the log") == 1
    assert said.count("database or disk is full") == 1
    assert said.count("the logs are written again") == 1
    assert "agent asked" not in said
    assert "is not stored" not in said
