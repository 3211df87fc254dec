"""A real U-Boot in QEMU through the whole daemon: it crashes, and the report is right."""

import asyncio
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from running_daemon import RunningDaemon, running
from serialwatch.demo.uboot import CRASH, UBoot, missing

pytestmark = [pytest.mark.real, pytest.mark.skipif(bool(missing()), reason=missing())]


class Powered:
    """U-Boot with its console on a pty, for tests that run without a loop."""

    def __init__(self, folder: Path) -> None:
        self._runner = asyncio.Runner()
        self._board = UBoot()
        self._runner.run(self._board.start(folder))
        self.device = self._board.device

    def power_on(self) -> None:
        self._runner.run(self._board.power_on())

    def close(self) -> None:
        self._runner.run(self._board.stop())
        self._runner.close()


@pytest.fixture
def board(tmp_path: Path) -> Iterator[Powered]:
    made = Powered(tmp_path)
    yield made
    made.close()


def typed(daemon: RunningDaemon, text: str) -> None:
    status, body = daemon.post("/v1/ports/uboot/send", {"text": text + "\r"})
    assert status == 200, body


def crashed(daemon: RunningDaemon) -> Any:
    return next((i for i in daemon.incidents("uboot") if i["trigger"] == "uboot.sync_abort"), None)


def test_a_synchronous_abort_is_found_explained_and_cited(board: Powered, tmp_path: Path) -> None:
    with running(tmp_path, {"uboot": board.device}) as daemon:
        daemon.wait_for(lambda: daemon.get("/v1/ports")["ports"][0]["state"] == "up", "port")
        board.power_on()
        daemon.wait_for(lambda: b"stop autoboot" in daemon.saved("uboot"), "countdown")
        typed(daemon, "")
        daemon.wait_for(lambda: daemon.saved("uboot").endswith(b"=> "), "prompt")
        typed(daemon, CRASH)
        daemon.wait_for(lambda: daemon.saved("uboot").count(b"stop autoboot") == 2, "reboot")
        typed(daemon, "")
        incident = daemon.wait_for(lambda: crashed(daemon), "incident")
        settled = daemon.wait_for(
            lambda: (i := crashed(daemon)) and i["is_settled"] and i["outcome"] and i, "outcome"
        )
        daemon.wait_for(
            lambda: not daemon.rows("SELECT 1 FROM queue WHERE state != 'done'"), "end of the work"
        )
        report = daemon.get(f"/v1/reports/{incident['id']}")
        lines = daemon.saved("uboot").split(b"\n")

    fault = lines[settled["first_seq"] - 1]
    assert b'"Synchronous Abort" handler, esr 0x96000004' in fault
    assert CRASH.encode() in lines[settled["first_seq"] - 2]
    assert settled["severity"] == "critical"
    assert settled["outcome"] == "rebooted"
    assert settled["outcome_cause"] == "panic"
    assert report["class"] == "uboot.sync_abort"
    assert report["verdict"] == "confirmed", report
    assert any(e["note"].startswith("the command, sent by ") for e in report["timeline"])
    claims = " ".join(c["claim"] for c in report["conclusions"])
    assert "ata abort" in claims
    assert "0xffffffffff000000" in claims
    for conclusion in report["conclusions"]:
        assert conclusion["evidence"], conclusion
        for evidence in conclusion["evidence"]:
            line = lines[evidence["seq"] - 1].decode(errors="backslashreplace")
            assert " ".join(evidence["quote"].split()) in " ".join(line.split())


def test_watching_it_boot_sends_nothing(board: Powered, tmp_path: Path) -> None:
    """One key would stop the autoboot: a board that nobody disturbs boots on by itself."""
    with running(tmp_path, {"uboot": board.device}) as daemon:
        daemon.wait_for(lambda: daemon.get("/v1/ports")["ports"][0]["state"] == "up", "port")
        board.power_on()
        daemon.wait_for(lambda: b"scanning bus for devices" in daemon.saved("uboot"), "autoboot")
        said = daemon.saved("uboot")

    assert b"\x08\x08\x08 0 \r\n" in said  # the countdown ran out
    assert b"=> " not in said[: said.index(b"scanning bus")]
