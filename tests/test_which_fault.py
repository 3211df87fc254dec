"""Which fault a restart, a root and a range of lines belong to, where an incident has several."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from bench_analysis import Seen, get_ready, reported, watched
from serialwatch.cli.main import run_cli
from serialwatch.records import Conclusion, Report

ESP_BOOT = """ESP-ROM:esp32s3-20210327
Build:Mar 27 2021
rst:{rst},boot:0x8 (SPI_FAST_FLASH_BOOT)
entry 0x403c8914
I (26) boot: ESP-IDF v5.2.1 2nd stage bootloader
I (292) main_task: Calling app_main()
I (900) pump: running
"""
GURU = """Guru Meditation Error: Core  0 panic'ed (LoadProhibited). Exception was unhandled.
Core  0 register dump:
EXCVADDR: 0x00000018  LBEG    : 0x400570e8  LEND    : 0x400570f3  LCOUNT  : 0x00000000

Backtrace: 0x42009a39:0x3fca1f70 0x4200a1b1:0x3fca1fa0

Rebooting...
"""
ABORT = """
abort() was called at PC 0x4037d8eb on core 0

Backtrace: 0x40375e2e:0x3fc97e10 0x4037d8f5:0x3fc97e30

Rebooting...
"""
POWER_ON, PANIC, BROWNOUT = "0x1 (POWERON)", "0xc (RTC_SW_CPU_RST)", "0xf (BROWNOUT_RST)"
SEVERAL = (
    ESP_BOOT.format(rst=POWER_ON)
    + GURU
    + ESP_BOOT.format(rst=PANIC)
    + "Brownout detector was triggered\n\n"
    + ESP_BOOT.format(rst=BROWNOUT)
    + ABORT
    + ESP_BOOT.format(rst=PANIC)
)


@pytest.fixture(scope="module", autouse=True)
def ready() -> None:
    """Load everything before a loop runs."""
    get_ready()


def claim(report: Report, words: str) -> Conclusion:
    """Return the conclusion that says so."""
    return next(c for c in report.conclusions if words in c.claim)


def numbers(seen: Seen, text: str) -> list[int]:
    """Return the lines that have a text."""
    return [line.seq for line in seen.lines if text in line.raw.decode()]


async def test_a_fault_that_came_once_between_others_does_not_come_over_and_over() -> None:
    seen = watched(SEVERAL.encode())
    report, _ = await reported(seen, seen.of("esp.guru"))

    assert "over and over" not in report.title
    assert claim(report, "The board restarted 3 times")


async def test_the_reset_that_is_told_is_the_one_after_the_fault() -> None:
    seen = watched(SEVERAL.encode())
    last_start = numbers(seen, "ESP-ROM")[-1]
    incident = replace(seen.of("esp.guru"), outcome="rebooted", outcome_seq=last_start)
    report, _ = await reported(seen, incident)
    own = claim(report, "The chip's own panic handler restarted it")

    assert numbers(seen, "Rebooting...")[0] in [e.seq for e in own.evidence]


def test_a_crash_is_not_named_after_a_lesser_fault_of_another_kind_before_it() -> None:
    seen = watched(b"""clock 168 MHz
[E] HAL_I2C_Master_Transmit failed, status 2
[I] pump: retry
HardFault_Handler
pc  = 0x08004a20
CFSR = 0x00008200
HFSR = 0x40000000
BFAR = 0x40026410
""")

    assert [i.trigger for i in seen.incidents] == ["cortexm.hardfault_dump"]


def test_a_panic_a_minute_after_a_lesser_fault_of_another_system_is_one_of_its_own() -> None:
    quiet = b"".join(b"[   %d.000000] pump: turn %d\n" % (n, n) for n in range(12, 22))
    seen = watched(
        b"[   11.100000] systemd[1]: pump.service: Failed with result 'exit-code'.\n"
        + quiet
        + b"[   22.200000] Kernel panic - not syncing: Attempted to kill init! exitcode=0x0000000b\n",
        line_ms=2000,
    )

    assert [i.trigger for i in seen.incidents] == ["systemd.unit_failed", "linux.panic_init_killed"]


async def test_what_was_over_before_a_worse_fault_came_is_not_its_root() -> None:
    seen = watched(b"""[    0.000000] Linux version 6.1.55 (oe@host) (gcc 12.3.0) #1 SMP
[   58.118003] mcp251xfd spi1.0 can0: bus-off, scheduling restart in 100 ms
[   58.221003] mcp251xfd spi1.0 can0: restarted
[   59.303201] Unable to handle kernel NULL pointer dereference at virtual address 00000024
[   59.315001] Internal error: Oops: 5 [#1] PREEMPT SMP ARM
[   59.339761] PC is at adc_read+0x2c/0x90
[   59.403112] ---[ end trace 0000000000000000 ]---
""")
    report, _ = await reported(seen, seen.of("linux.oops"))

    assert report.fault_class == "linux.oops"
    assert "can0" not in report.title
    assert any("it was over before" in h.text for h in report.hypotheses if h.status == "refuted")


def test_the_lines_of_an_incident_reach_to_the_last_that_is_told_of_it(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    log = tmp_path / "pump.log"
    log.write_text("""
U-Boot 2023.04 (May 02 2024 - 09:11:40 +0000)
*** Warning - bad CRC, using default environment
[    0.000000] Linux version 6.1.55 (oe@host) (gcc 12.3.0) #1 SMP
[    0.900000] mmc2: Timeout waiting for hardware interrupt.
[    1.100000] blk_update_request: I/O error, dev mmcblk2, sector 8 op 0x0:(READ) flags 0x0
[   11.100000] mmc2: Timeout waiting for hardware interrupt.
[   11.400000] EXT4-fs error (device mmcblk2p2): ext4_find_entry:1455: inode #2: comm init
""")
    run_cli(["analyze", str(log)])
    out = capsys.readouterr().out

    assert "    5–8  mmc2 has trouble" in out
    assert "└ before it: U-Boot's saved environment is not valid" in out
