"""A real U-Boot in QEMU through the whole daemon: it crashes, and the report is right."""

import asyncio
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from real_bench import RealBench

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


def crashed(bench: RealBench) -> Any:
    found = bench.daemon.incidents("uboot")
    return next((i for i in found if i["trigger"] == "uboot.sync_abort"), None)


def test_a_synchronous_abort_is_found_explained_and_cited(board: Powered, bench: RealBench) -> None:
    with bench.plugged({"uboot": board.device}):
        board.power_on()
        bench.printed("uboot", b"stop autoboot")
        bench.type("uboot", "")
        bench.daemon.wait_for(lambda: bench.daemon.saved("uboot").endswith(b"=> "), "prompt")
        bench.type("uboot", CRASH)
        bench.printed("uboot", b"stop autoboot", 2)
        bench.type("uboot", "")
        bench.daemon.wait_for(lambda: (i := crashed(bench)) and i["outcome"], "outcome")
        bench.settled(["uboot"])
    incident = crashed(bench)
    report = bench.report(incident)

    first = incident["first_seq"]
    assert b'"Synchronous Abort" handler, esr 0x96000004' in bench.line("uboot", first)
    assert CRASH.encode() in bench.line("uboot", first - 1)
    assert incident["severity"] == "critical"
    assert incident["outcome"] == "rebooted"
    assert incident["outcome_cause"] == "panic"
    assert report["class"] == "uboot.sync_abort"
    assert report["verdict"] == "confirmed", report
    assert any(e["note"].startswith("the command, sent by ") for e in report["timeline"])
    claims = " ".join(c["claim"] for c in report["conclusions"])
    assert "ata abort" in claims
    assert "0xffffffffff000000" in claims


def test_watching_it_boot_sends_nothing(board: Powered, bench: RealBench) -> None:
    """One key would stop the autoboot: a board that nobody disturbs boots on by itself."""
    with bench.plugged({"untouched": board.device}):
        board.power_on()
        bench.printed("untouched", b"scanning bus for devices")
    said = bench.daemon.saved("untouched")

    assert b"\x08\x08\x08 0 \r\n" in said  # the countdown ran out
    assert b"=> " not in said[: said.index(b"scanning bus")]


def test_a_script_reaches_it_whole_though_a_command_throws_away_what_is_typed(
    board: Powered, bench: RealBench
) -> None:
    """`sleep` looks for Ctrl-C and eats every other character."""
    script = "setenv first 1\nsleep 1\nsetenv second 2\nprintenv first second\r"
    with bench.plugged({"script": board.device}):
        board.power_on()
        bench.printed("script", b"stop autoboot")
        bench.type("script", "")
        bench.daemon.wait_for(lambda: bench.daemon.saved("script").endswith(b"=> "), "prompt")
        status, told = bench.daemon.post(
            "/v1/ports/script/send", {"text": script, "wait_echo": True}
        )
        bench.printed("script", b"\nsecond=2\r\n")

    assert (status, told["echoed"]) == (200, len(script))
    assert b"printenv first second\r\nfirst=1\r\nsecond=2\r\n" in bench.daemon.saved("script")
