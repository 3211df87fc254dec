"""Real boards that fail while nobody is at the keyboard: boot loops and a microcontroller."""

from __future__ import annotations

import struct
from collections.abc import Iterator
from contextlib import ExitStack

import pytest
from machine import Machine
from mcu_board import firmware, mcu_board
from real_bench import RealBench
from uboot_board import device_tree, uboot_board

from serialwatch.demo.uboot import CRASH, missing

pytestmark = [pytest.mark.real, pytest.mark.skipif(bool(missing()), reason=missing())]

MAX_STARTS = 20


def hits(bench: RealBench, port: str) -> set[str]:
    return {hit["trigger"] for i in bench.daemon.incidents(port) for hit in i["hits"]}


@pytest.fixture(scope="module")
def boards(
    bench: RealBench, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[dict[str, Machine]]:
    """Let the three boards fail side by side: the microcontroller needs ten seconds for it."""
    folder = tmp_path_factory.mktemp("unattended")
    image = folder / "firmware"
    image.write_bytes(firmware())
    tree = device_tree(
        folder, {"bootcmd": CRASH.encode() + b"\0", "bootdelay": struct.pack(">I", 0)}
    )
    calls = {
        "mcu": mcu_board(image),
        "resets": uboot_board("-nic", "none"),
        "crashes": uboot_board("-nic", "none", "-dtb", tree),
    }
    with ExitStack() as stack:
        made = {}
        for port, call in calls.items():
            made[port] = Machine(folder, port, call)
            stack.callback(made[port].close)
        stack.enter_context(bench.plugged({port: made[port].device for port in made}))
        made["mcu"].run()
        _reset_over_and_over(bench, made["resets"])
        made["crashes"].run()
        bench.daemon.wait_for(lambda: "boot.loop" in hits(bench, "crashes"), "boot loop")
        made["crashes"].pause()
        bench.printed("mcu", b" LR=")
        bench.daemon.wait_for(lambda: len(bench.daemon.incidents("mcu")) > 1, "second incident")
        bench.settled(made)
        yield made


def _reset_over_and_over(bench: RealBench, board: Machine) -> None:
    """Push the button until it is noticed; starts right after the port was opened do not count."""
    board.run()
    for start in range(1, MAX_STARTS + 1):
        bench.printed("resets", b"stop autoboot", start)
        if "boot.loop" in hits(bench, "resets"):
            break
        board.reset()
    board.pause()


@pytest.mark.parametrize("port", ["mcu", "resets", "crashes"])
def test_the_log_holds_what_the_board_printed(
    bench: RealBench, boards: dict[str, Machine], port: str
) -> None:
    assert bench.daemon.saved(port) == boards[port].printed()


def test_resets_that_nobody_announced_are_a_boot_loop(
    bench: RealBench, boards: dict[str, Machine]
) -> None:
    (incident,) = bench.daemon.incidents("resets")

    assert (incident["trigger"], incident["severity"]) == ("boot.loop", "critical")
    assert incident["fields"]["starts"] == "3"
    assert bench.line("resets", incident["first_seq"]).startswith(b"U-Boot 20")
    bench.report(incident)


def test_a_boot_command_that_crashes_is_the_root_cause_of_its_boot_loop(
    bench: RealBench, boards: dict[str, Machine]
) -> None:
    (incident,) = bench.daemon.incidents("crashes")

    assert (incident["trigger"], incident["severity"]) == ("uboot.sync_abort", "critical")
    assert "boot.loop" in hits(bench, "crashes")
    assert b"esr 0x96000004" in bench.line("crashes", incident["first_seq"])
    claims = " ".join(c["claim"] for c in bench.report(incident)["conclusions"])
    assert "over and over" in claims


def test_an_interrupt_storm_and_a_later_hard_fault_are_two_incidents(
    bench: RealBench, boards: dict[str, Machine]
) -> None:
    storm, fault = sorted(bench.daemon.incidents("mcu"), key=lambda i: i["id"])

    assert (storm["trigger"], storm["severity"]) == ("rate.interrupt_storm", "error")
    assert bench.line("mcu", storm["first_seq"]).startswith(b"irq 5: ")
    bench.report(storm)
    assert (fault["trigger"], fault["severity"]) == ("cortexm.hardfault_dump", "critical")
    assert bench.line("mcu", fault["first_seq"]) == b"HardFault\r"
    claims = " ".join(c["claim"] for c in bench.report(fault)["conclusions"])
    assert "jump to an address without the Thumb bit" in claims
    assert "NULL pointer" in claims
