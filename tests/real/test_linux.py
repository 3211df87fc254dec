"""A real Linux kernel in QEMU through the whole daemon: it breaks in seven ways, each is found."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import dataclass

import pytest
from linux_board import linux_board, make_initramfs, missing
from machine import Machine
from real_bench import RealBench

pytestmark = [pytest.mark.real, pytest.mark.skipif(bool(missing()), reason=missing())]

READY = b"Please press Enter to activate this console"
DEAD = b"Rebooting in 1 seconds.."


@dataclass(frozen=True, slots=True)
class Fault:
    """A way to break the board, and what is to come of it."""

    port: str
    typed: str  # at its shell
    last: bytes  # what the board prints when it has happened
    trigger: str
    severity: str
    first: bytes  # in the first line of the incident


TYPED = (
    Fault(
        "sysrq", "echo c > /proc/sysrq-trigger", READY,
        "linux.panic", "critical", b"Kernel panic - not syncing: sysrq triggered crash",
    ),
    Fault(
        "oom", "tail /dev/zero", b"Out of memory: Killed process",
        "linux.oom_kill", "error", b"tail invoked oom-killer",
    ),
    Fault(
        "segfault", "crash", b"Segmentation fault",
        "linux.user_segfault", "error", b"]: segfault at 0 ip ",
    ),
    Fault(
        "overrun", "sleep 1.1; flood; sleep 1", b" input overrun(s)",
        "linux.tty_input_overrun", "warning", b"ttyS0: 1 input overrun(s)",
    ),
)  # fmt: skip
STORM = Fault(  # not from the saved state: QEMU does not save `edu`
    "storm", "storm", b"Disabling IRQ #",
    "linux.irq_nobody_cared", "critical", b": nobody cared (try booting",
)  # fmt: skip
BOOTS = (
    Fault(
        "init", "", DEAD,
        "linux.panic_init_killed", "critical", b"Attempted to kill init! exitcode=0x00007f00",
    ),
    Fault(
        "no-root", "", DEAD,
        "linux.panic_vfs_root", "critical", b'VFS: Cannot open root device "vda1"',
    ),
)  # fmt: skip
FAULTS = (*TYPED, STORM, *BOOTS)


@pytest.fixture(scope="module")
def boards(
    bench: RealBench, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[dict[str, Machine]]:
    """Let every fault happen once, a board each; most of them go on from one clean boot."""
    folder = tmp_path_factory.mktemp("linux")
    initramfs, booted = folder / "initramfs", folder / "booted"
    initramfs.write_bytes(make_initramfs())
    calls = {
        "storm": linux_board(initramfs=initramfs),
        "init": linux_board(initramfs=initramfs, line="rdinit=/bin/start"),
        "no-root": linux_board(initramfs=None, line="root=/dev/vda1"),
    }
    calls |= {f.port: linux_board("-incoming", "defer", initramfs=initramfs) for f in TYPED}
    with ExitStack() as stack:
        made = {}
        for port, call in calls.items():
            made[port] = Machine(folder, port, call)
            stack.callback(made[port].close)
        stack.enter_context(bench.plugged({port: made[port].device for port in made}))
        made["storm"].run()
        bench.printed("storm", READY)
        made["storm"].save(booted)
        for fault in TYPED:
            made[fault.port].load(booted)
            _break(bench, made[fault.port], fault)
        for fault in BOOTS:
            made[fault.port].run()
            bench.printed(fault.port, fault.last)
            made[fault.port].pause()
        _break(bench, made["storm"], STORM)
        bench.settled(made)
        yield made


def _break(bench: RealBench, board: Machine, fault: Fault) -> None:
    board.run()
    for typed, answer in (("", b"/ # "), (fault.typed, fault.last)):
        bench.type(fault.port, typed)
        bench.printed(fault.port, answer)
    board.pause()


def test_a_clean_boot_is_no_incident(bench: RealBench, boards: dict[str, Machine]) -> None:
    boot, ready, _ = bench.daemon.saved("storm").partition(READY)  # seconds before its storm

    assert b"Linux version" in boot
    assert ready
    assert all(i["first_seq"] > boot.count(b"\n") + 1 for i in bench.daemon.incidents("storm"))


@pytest.mark.parametrize("port", [f.port for f in FAULTS])
def test_the_log_holds_what_the_board_printed(
    bench: RealBench, boards: dict[str, Machine], port: str
) -> None:
    assert bench.daemon.saved(port) == boards[port].printed()


@pytest.mark.parametrize("fault", FAULTS, ids=lambda f: f.port)
def test_a_fault_is_found_explained_and_cited(
    bench: RealBench, boards: dict[str, Machine], fault: Fault
) -> None:
    incidents = bench.daemon.incidents(fault.port)

    assert [i["trigger"] for i in incidents] == [fault.trigger]
    assert incidents[0]["severity"] == fault.severity
    assert fault.first in bench.line(fault.port, incidents[0]["first_seq"])
    report = bench.report(incidents[0])
    assert report["class"] == fault.trigger
    assert "earlier fault" not in " ".join(c["claim"] for c in report["conclusions"])


@pytest.mark.parametrize("fault", TYPED[:3], ids=lambda f: f.port)
def test_the_command_that_broke_the_board_is_named_and_who_sent_it(
    bench: RealBench, boards: dict[str, Machine], fault: Fault
) -> None:
    report = bench.report(bench.daemon.incidents(fault.port)[0])
    claims = [c["claim"] for c in report["conclusions"]]
    notes = {e["text"]: e["note"] for e in report["timeline"]}

    assert f"It came right after `{fault.typed}` was typed." in claims
    assert notes[f"/ # {fault.typed}"].startswith("the command, sent by ")


def test_the_boot_after_a_panic_is_its_outcome(
    bench: RealBench, boards: dict[str, Machine]
) -> None:
    (incident,) = bench.daemon.incidents("sysrq")

    assert (incident["outcome"], incident["outcome_cause"]) == ("rebooted", "panic")
