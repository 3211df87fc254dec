from __future__ import annotations

import asyncio
import random
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from bench_analysis import Seen, get_ready, knowledge, reported, skills, watched
from bench_incident import incident_at, lines_of
from own_streams import LOGS
from serialwatch.agent.ctx.context import Submit
from serialwatch.agent.offline.analyst import bare_report, investigate
from serialwatch.agent.offline.case import Surroundings
from serialwatch.agent.offline.reading import _pages_of, _tells_another_boot
from serialwatch.agent.proof.verifier import verify
from serialwatch.agent.run.trace import memory_of
from serialwatch.agent.skills.results import failure
from serialwatch.agent.workers.direct import DirectTools
from serialwatch.agent.workers.tools import Call, RunTools
from serialwatch.records import Conclusion, HitCount, Line, Outcome, Report, SkillResult

# What U-Boot 2023.01 of Debian prints in QEMU.
REAL_ABORT = """
U-Boot 2023.01+dfsg-2+deb12u3 (Jun 22 2026 - 08:38:07 +0000)

DRAM:  128 MiB
Hit any key to stop autoboot:  2 \b\b\b 0
=> md.l 0xffffffffff000000 4
"Synchronous Abort" handler, esr 0x96000004
elr: 0000000000081104 lr : 0000000000081054 (reloc)
elr: 0000000047f78104 lr : 0000000047f78054
x20: 0000000000000004 x21: 0000000000000004
x22: ffffffffff000000 x23: 0000000047fa830e

Code: 2a0403f3 17ffffcb 7100129f 54000181 (b94002c3)
Resetting CPU ...

resetting ...


U-Boot 2023.01+dfsg-2+deb12u3 (Jun 22 2026 - 08:38:07 +0000)

DRAM:  128 MiB
"""


@pytest.fixture(scope="module", autouse=True)
def ready() -> None:
    """Load everything before a loop runs."""
    get_ready()


def claims(report: Report, kind: str = "") -> list[str]:
    return [c.claim for c in report.conclusions if kind in ("", c.kind)]


def claim(report: Report, words: str) -> Conclusion:
    """Return the conclusion that says so."""
    return next(c for c in report.conclusions if words in c.claim)


def said(seen: Seen, conclusion: Conclusion) -> str:
    """Return the lines that it cites."""
    return "\n".join(seen.lines[e.seq - 1].raw.decode() for e in conclusion.evidence)


def notes(report: Report) -> dict[str, str]:
    return {entry.note: entry.text for entry in report.timeline}


async def test_a_real_abort_in_uboot_is_explained() -> None:
    seen = watched(REAL_ABORT.encode())
    incident = seen.of("uboot.sync_abort")
    report, _ = await reported(seen, incident, Surroundings(writer=""))

    assert report.title == "U-Boot took a synchronous abort in `md.l` and reset"
    assert (report.verdict, report.confidence) == ("confirmed", 0.9)
    assert claims(report, "cause") == [
        "A read from 0xffffffffff000000 was not mapped: the abort came right after the command "
        "`md.l 0xffffffffff000000 4`."
    ]
    assert "=> md.l" in said(seen, report.conclusions[0])
    decoded = claim(report, "translation fault, level 0")
    assert decoded.knowledge == ("uboot/sync_abort",)
    assert decoded.results
    assert said(seen, claim(report, "x22 holds that very address")).startswith("x22:")
    own = claim(report, "The reset was U-Boot's own, not a watchdog's.")
    assert "resetting" in said(seen, own)
    assert notes(report)["first fault line"].startswith('"Synchronous Abort" handler')
    assert notes(report)["boot #2"].startswith("U-Boot 2023.01")
    assert report.unknowns == (
        "who typed the command: the port had no writer attached through serialwatch",
    )
    assert report.next_steps[-1].text.startswith("do not repeat the access")
    assert [h.status for h in report.hypotheses][:2] == ["confirmed", "confirmed"]
    assert report.hypotheses[1].text.startswith("an access to an address that is not mapped: L")
    assert report.hypotheses[-1].status == "refuted"
    assert report.claims.dropped == 0


async def test_who_sent_a_command_is_told_and_not_asked() -> None:
    seen = watched(REAL_ABORT.encode())
    incident = seen.of("uboot.sync_abort")
    prompt = incident.first_seq - 1
    report, _ = await reported(seen, incident, Surroundings(writer="", sent={prompt: "ada"}))

    assert notes(report)["the command, sent by ada"].startswith("=> md.l")
    assert report.unknowns == ()


async def test_a_variable_in_a_command_is_followed_to_where_it_was_set() -> None:
    seen = watched(LOGS / "uboot/uboot-sync-abort-reset.log")
    report, _ = await reported(seen, seen.of("uboot.sync_abort"))

    assert "A read from 0xa00000000 was not mapped" in claims(report, "cause")[0]
    assert "setenv base" in said(seen, claim(report, "base had been set to 0x0a00000000"))


async def test_two_restarts_are_no_loop() -> None:
    log = (LOGS / "esp/esp32-guru-boot-loop.log").read_bytes().splitlines(keepends=True)
    starts = [at for at, line in enumerate(log) if line.startswith(b"rst:0x")]
    seen = watched(b"".join(log[: starts[3] - 2]))
    report, _ = await reported(seen, seen.of("esp.guru"))

    assert "over and over" not in report.title
    assert claim(report, "The board restarted 2 times")


async def test_an_oops_names_function_module_task_panic_and_reset() -> None:
    seen = watched(LOGS / "linux/linux-oops-panic-reboot.log")
    report, _ = await reported(seen, seen.of("linux.oops"))

    assert report.title == (
        "Kernel oops: NULL pointer dereference in fpga_dma_complete, then panic and reset"
    )
    assert "fpga_dma_complete (module larch_fpga)" in claims(report, "cause")[0]
    assert "a member of a structure at 0" in claims(report, "cause")[0]
    assert claim(report, "swapper/2 was running (PID 0) on CPU 2")
    assert "Kernel panic" in said(seen, claim(report, "The oops became a panic"))
    assert "Rebooting in 5" in said(seen, claim(report, "its panic time-out was 5 s"))
    assert sum("translation fault" in c for c in claims(report)) == 1


async def test_an_init_that_was_killed_has_its_exit_code_decoded() -> None:
    seen = watched(LOGS / "linux/linux-init-killed.log")
    report, _ = await reported(seen, seen.of("linux.panic_init_killed"))

    assert "Init ended by itself with status 2" in claims(report, "cause")[0]
    assert report.title == "Kernel panic: init ended, then halted"
    assert any("cannot open verified root" in entry.text for entry in report.timeline)


async def test_an_interrupt_storm_names_line_handler_and_what_the_kernel_did() -> None:
    seen = watched(LOGS / "linux/linux-rx-overrun-irq-storm.log")
    report, _ = await reported(seen, seen.of("rate.interrupt_storm"))

    assert "391207     irq#63" in said(seen, claim(report, "irq 63 came most often, 391207 times"))
    off = claim(report, "Interrupts kept coming on IRQ 63 and no handler claimed them")
    assert "Disabling IRQ #63" in said(seen, off)
    assert claim(report, "The device behind pca953x_irq_handler gets no interrupts any more")
    rate = said(seen, claim(report, "Too often"))
    assert rate.count("irq 63: ") == 2


async def test_a_boot_loop_of_an_esp_names_the_pointer_and_the_loop() -> None:
    seen = watched(LOGS / "esp/esp32-guru-boot-loop.log")
    report, _ = await reported(seen, seen.of("esp.guru"))

    assert report.title == (
        "ESP panic: write through a NULL pointer (StoreProhibited), over and over"
    )
    assert "A write through a pointer near NULL, at 0x00000010" in claims(report, "cause")[0]
    assert "EXCVADDR" in said(seen, report.conclusions[0])
    assert claim(report, "exccause 0x0000001d says: StoreProhibited").results
    assert claim(report, "The board restarted")
    reset = said(seen, claim(report, "panic handler restarted it, in software"))
    assert "Rebooting..." in reset
    assert "rst:0xc" in reset


async def test_a_brownout_is_believed() -> None:
    seen = watched(LOGS / "esp/esp32-brownout.log")
    report, _ = await reported(seen, seen.of("esp.brownout"))

    assert claims(report, "cause") == [
        "By the board's own words: brownout: the supply voltage dipped."
    ]
    assert notes(report)["the line before"].endswith("pump relay on")


async def test_a_bus_fault_in_zephyr_names_address_instruction_and_thread() -> None:
    seen = watched(LOGS / "zephyr/zephyr-bus-fault.log")
    report, _ = await reported(seen, seen.of("zephyr.cpu_fault"))

    assert report.title == "Zephyr: bus fault at 0x50000308, then halted"
    assert claims(report, "cause") == ["A bus fault: precise data bus error at address 0x50000308."]
    assert claim(report, "The dump names the instruction at 0x08004dfa, in thread adc_sampler.")
    assert "Halting" in said(seen, claim(report, "its software does not restart it"))


async def test_a_hard_fault_dump_is_told_by_its_cfsr() -> None:
    seen = watched(LOGS / "cortexm/cortexm-hardfault.log")
    report, _ = await reported(seen, seen.of("cortexm.hardfault_dump"))

    assert claims(report, "cause") == ["A hard fault: an unaligned access."]
    assert "CFSR = 0x01000000" in said(seen, report.conclusions[0])


@pytest.mark.parametrize("path", sorted(LOGS.rglob("*.log")), ids=lambda p: p.stem)
async def test_every_word_of_every_report_stands_a_second_check(path: Path) -> None:
    seen = watched(path)
    for incident in seen.incidents:
        report, tools = await reported(seen, incident)
        again = verify(report, tools.ledger, tools.results, incident, tools.pages)

        assert report.claims.dropped == 0
        assert again.dropped == again.changed == ()
        assert report.conclusions


async def test_altered_claims_and_citations_are_caught() -> None:
    """Seed each report with one lie after another: a changed number, line or quote."""
    lies = caught = 0
    for path in sorted(LOGS.rglob("*.log")):
        seen = watched(path)
        for incident in seen.incidents:
            report, tools = await reported(seen, incident)
            for true in report.conclusions:
                for lie in _lies(true):
                    draft = replace(report, conclusions=(lie,))
                    told = verify(draft, tools.ledger, tools.results, incident, tools.pages)
                    kept = told.report.conclusions
                    await asyncio.sleep(0)  # thousands of checks: let the loop turn
                    lies += 1
                    caught += not kept or not _is_in(lie, true, kept[0])

    assert lies > 60
    assert caught == lies


def _is_in(lie: Conclusion, true: Conclusion, kept: Conclusion) -> bool:
    """Tell whether what was false in `lie` is still in what the verifier kept of it."""
    if lie.claim != true.claim:
        return kept.claim == lie.claim
    return bool((set(lie.evidence) - set(true.evidence)) & set(kept.evidence))


def _lies(true: Conclusion) -> Iterator[Conclusion]:
    for number in re.finditer(r"\d{2,}", true.claim):
        if "exitcode" in true.claim or "L" in true.claim[number.start() - 1 : number.start()]:
            continue
        digits = number.group()
        other = digits.translate(str.maketrans("0123456789", "7382915064"))
        yield replace(true, claim=true.claim.replace(digits, other))
    for at, evidence in enumerate(true.evidence):
        for wrong in (
            replace(evidence, seq=evidence.seq + 4000),
            replace(evidence, port="dut9"),
            replace(evidence, quote="watchdog: this line was never printed"),
        ):
            yield replace(true, evidence=(wrong,) if at == 0 else (*true.evidence[:at], wrong))


async def test_a_fault_without_a_line_is_told_by_its_neighbours_in_time() -> None:
    lines = lines_of("one went well\ntwo went well\nthree went well\nfour went well")
    counted = replace(
        incident_at(lines, "two", trigger="link.rx_overrun_host"),
        first_seq=0,
        block_first=0,
        last_seq=0,
        title="the PC's UART counted 3 receive overruns in 10 s",
        severity="warning",
    )
    report, _ = await reported(Seen(lines, [counted]), counted)

    assert claims(report) == [
        "the PC's UART counted 3 receive overruns in 10 s: around these lines."
    ]
    assert [e.seq for e in report.conclusions[0].evidence] == [2, 3]
    assert report.verdict == "likely"
    assert "what the bytes were: what a UART drops is gone" in report.not_checked


async def test_silence_after_a_hand_over_is_told_by_the_last_line() -> None:
    lines = lines_of("U-Boot 2023.01\nLoading the kernel\nStarting kernel ...")
    quiet = incident_at(lines, "Starting", trigger="link.silence", tier="specific")
    report, _ = await reported(Seen(lines, [quiet]), quiet)

    assert report.verdict == "likely"
    assert claims(report)[0] == (
        "It went silent right after `Starting kernel ...`: what was started there never printed."
    )


async def test_silence_out_of_nothing_stays_inconclusive() -> None:
    lines = lines_of("tick 1\ntick 2\ntick 3")
    quiet = incident_at(lines, "tick 3", trigger="link.silence")
    report, _ = await reported(Seen(lines, [quiet]), quiet)

    assert report.verdict == "inconclusive"
    assert claims(report) == ["This was the last line before the silence."]


async def test_a_rule_that_nobody_thought_about_gets_a_report_too() -> None:
    lines = lines_of("lab$ ./flash --fast\nwidget: the frobnicator jammed at 12 rpm")
    odd = incident_at(
        lines, "jammed", trigger="mine.jammed", title="the frobnicator jammed", knowledge=""
    )
    report, _ = await reported(Seen(lines, [odd]), odd)

    assert claims(report) == [
        "The board reports: the frobnicator jammed.",
        "It came right after `./flash --fast` was typed.",
    ]
    assert "what usually causes this: there is no knowledge page for it" in report.unknowns
    assert report.verdict == "likely"


@pytest.mark.parametrize(
    ("command", "later_s", "told"),
    [
        ("./flash --fast", 0.5, ["It came right after `./flash --fast` was typed."]),
        ("./flash --fast", 9, ["It came 9 s after `./flash --fast` was typed."]),
        ("./flash --fast", 400, []),
        ("logcat -v threadtime &", 0.5, []),
        ("tail /dev/zero", 0.5, ["It came right after `tail /dev/zero` was typed."]),
    ],
)
@pytest.mark.parametrize("is_saved", [False, True])
async def test_a_command_is_told_if_the_fault_came_soon_after_it(
    command: str, later_s: float, told: list[str], *, is_saved: bool
) -> None:
    text = f"[    1.000000] up\nlab$ {command}\n[{1 + later_s:12.6f}] widget: jammed"
    lines = lines_of(text)
    if is_saved:
        lines = [replace(x, utc_ns=0, last_utc_ns=0, mono_ns=0) for x in lines]
    else:
        at_ns = lines[1].utc_ns + round(later_s * 1e9)
        lines[2] = replace(lines[2], utc_ns=at_ns, last_utc_ns=at_ns)
    odd = incident_at(lines, "jammed", trigger="mine.jammed", title="jammed", knowledge="")
    report, _ = await reported(Seen(lines, [odd]), odd)

    told = [words.replace("9 s after", "after") for words in told] if is_saved else told
    assert [c for c in claims(report) if c.startswith("It came")] == told


async def test_of_a_reset_after_which_the_board_went_on_no_report_speaks() -> None:
    lines = lines_of(
        "[   35.3] EXT4-fs error (device mmcblk0p11): bad\n[ 4635.3] reboot: Restarting system\n"
        "U-Boot 2023.01 (Jun 22 2026)",
        boot_at="^U-Boot",
    )
    odd = incident_at(
        lines, "EXT4", trigger="linux.ext4_error", title="bad file system", outcome="continued"
    )
    report, _ = await reported(Seen(lines, [odd]), odd)

    assert report.title == "bad file system"
    assert "reset" not in " ".join(claims(report)).lower()


@pytest.mark.parametrize(
    ("printed", "told"),
    [
        (
            "INFO:    Reset reason (0x1014):\nINFO:      IWDG2 Reset (rst_iwdg2)",
            "The next boot names the watchdog reset: IWDG2 Reset (rst_iwdg2).",
        ),
        ("last reset: trap", "The next boot names the reset: trap."),
    ],
)
async def test_the_reset_cause_is_read_as_boards_print_it(printed: str, told: str) -> None:
    lines = lines_of(f"pump jammed\nZED 1.2\n{printed}\nready", boot_at="^ZED")
    odd = incident_at(
        lines, "jammed", trigger="mine.jammed", title="jammed", outcome="rebooted", outcome_at="ZED"
    )
    report, _ = await reported(Seen(lines, [odd]), odd)

    assert told in claims(report)
    assert not any("what reset the board" in unknown for unknown in report.unknowns)


async def test_a_page_is_cited_for_registers_that_it_speaks_of() -> None:
    text = "hwmon: Undervoltage detected!\nUnhandled fault: page fault (0x005)\nfsr: 0x00000005"
    lines = lines_of(text)
    low = incident_at(
        lines,
        "Undervoltage",
        last="fsr",
        trigger="linux.undervoltage",
        title="undervoltage",
        knowledge="linux/undervoltage",
    )
    report, _ = await reported(Seen(lines, [low]), low)

    assert claim(report, "fsr 0x00000005 says").knowledge == ()


async def test_a_mips_oops_names_its_function() -> None:
    lines = lines_of(
        "CPU 1 Unable to handle kernel paging request at virtual address 00000004\nOops[#1]:\n"
        "epc   : 8f2e1c94 mt76_tx+0x64/0x1f4 [mt76]"
    )
    oops = incident_at(lines, "Unable", last="epc", trigger="linux.oops", title="kernel oops")
    report, _ = await reported(Seen(lines, [oops]), oops)

    assert report.title == "Kernel oops: NULL pointer dereference in mt76_tx"


async def test_many_overruns_are_not_told_as_the_first_of_them() -> None:
    lines = lines_of("tty ttyS1: 1 input overrun(s)\ntty ttyS1: 3 input overrun(s)")
    lost = incident_at(
        lines,
        "1 input",
        trigger="linux.tty_input_overrun",
        title="ttyS1 lost received characters (input overruns: 1)",
    )
    report, _ = await reported(Seen(lines, [lost]), replace(lost, count=2))

    assert report.title == "ttyS1 lost received characters"
    assert not any("once" in told for told in claims(report))


async def test_a_memory_says_neither_that_no_boot_came_nor_which_line_was_the_last() -> None:
    lines = lines_of("Kernel panic - not syncing: out of cheese\nlast words of this board")
    panic = incident_at(lines, "panic", trigger="linux.panic", title="panic", outcome="halted")
    report, _ = await reported(Seen(lines, [panic]), panic)
    quiet = incident_at(lines, "last", trigger="link.silence", title="no line for 60 s")
    silence, _ = await reported(Seen(lines, [quiet]), quiet)

    assert report.title.endswith(", then silent")
    assert memory_of(panic, report, "r1", ())["title"] == "Kernel panic: out of cheese"
    told = memory_of(quiet, silence, "r2", ())
    assert told["body"] == "Inconclusive: The log did not tell why."
    said = lines_of("cheese out of stock here")
    short = replace(report.conclusions[0], claim="It reports: cheese out of stock here.")
    body = memory_of(panic, replace(report, conclusions=(short,)), "r3", (), said)["body"]
    assert body == "Confirmed: It reports."


@pytest.mark.parametrize(
    ("line", "is_of_another"),
    [
        ("INFO:      IWDG2 Reset (rst_iwdg2)", True),
        ("INFO:      System reset generated by MPU (MPSYSRST)", True),
        ("Brownout detector was triggered", True),
        ("rst:0xc (RTC_SW_CPU_RST),boot:0x8 (SPI_FAST_FLASH_BOOT)", True),
        ("stm32mp1 login: [   93.7] random: crng init done", True),
        ("[    0.6] mmc0: error -110 whilst initialising SD card", False),
        ("[    1.2] reset-controller: registered 3 lines", False),
    ],
)
def test_how_the_boot_before_ended_is_no_difference_of_a_boot(
    line: str, *, is_of_another: bool
) -> None:
    assert _tells_another_boot(lines_of(line)[0]) == is_of_another


async def test_an_incident_whose_lines_are_gone_still_gets_a_report() -> None:
    lines = lines_of("a fault of long ago", first=500)
    gone = incident_at(lines, "fault", trigger="linux.oops", title="kernel oops: NULL pointer")
    report, _ = await reported(Seen(lines_of("hello", first=9000), []), gone)

    assert report.title == "kernel oops: NULL pointer"
    assert report.verdict == "inconclusive"
    assert report.conclusions == ()
    assert "the lines of the fault: the log could not be read" in report.not_checked


async def with_neighbour(
    trigger: str, other: str, *, line_later_s: float = 0, fault_later_s: float = 0
) -> Report:
    lines = [*lines_of("panic here"), *lines_of("panic there", "dut2")]
    here = incident_at(lines, "here", trigger=trigger, linked=(18,))
    there = incident_at(lines, "there", trigger=other, id=18)
    hits = [
        replace(hit, first_utc_ns=here.fault_utc_ns + round(fault_later_s * 1e9))
        for hit in there.hits
    ]
    there = replace(there, hits=tuple(hits))
    at_ns = lines[0].utc_ns + round(line_later_s * 1e9)
    lines[1] = replace(lines[1], utc_ns=at_ns, last_utc_ns=at_ns)

    class Both(DirectTools):
        def open(
            self, run_id: str, incident: int | None = None, submit: Submit | None = None
        ) -> RunTools:
            tools = super().open(run_id, incident, submit)
            tools._ctx.ledger["dut2", 1] = lines[1]
            return tools

    async with Both("dut1", lines[:1], skills(), knowledge()) as direct:
        around = Surroundings(neighbours=(there,))
        return await investigate(here, direct.open("r"), "settled", None, around)


@pytest.mark.parametrize(
    ("trigger", "other"),
    [
        ("mine.panic", "mine.panic"),
        ("linux.unexpected_reboot", "esp.brownout"),
        ("link.port_vanished", "boot.unexpected_reboot"),
    ],
)
async def test_other_boards_that_failed_in_the_same_second_are_named(
    trigger: str, other: str
) -> None:
    report = await with_neighbour(trigger, other)

    shared = claim(report, "It was not this board alone: dut2 failed within the same second.")
    assert [e.ref for e in shared.evidence] == ["dut1:L1", "dut2:L1"]


async def test_what_failed_in_another_way_in_the_same_second_is_no_common_cause() -> None:
    report = await with_neighbour("mine.panic", "esp.brownout")

    claim(report, "dut2 failed within the same second, but in another way: perhaps by chance.")
    assert not any("the boards share" in h.text for h in report.hypotheses)


@pytest.mark.parametrize(
    ("line_later_s", "fault_later_s", "near", "note"),
    [
        (0.9, 0.9, "within the same second", "same second"),
        (4.2, 4.2, "within 4.2 s of it", "4.2 s later"),
        (-2.6, 0, "within the same second, in lines that began 2.6 s apart", "2.6 s earlier"),
        (0, 3, "in lines that began within the same second", "same second"),
    ],
)
async def test_how_near_another_board_failed_is_true_of_the_times_that_are_shown(
    line_later_s: float, fault_later_s: float, near: str, note: str
) -> None:
    later = {"line_later_s": line_later_s, "fault_later_s": fault_later_s}
    report = await with_neighbour("mine.panic", "mine.panic", **later)
    chance = await with_neighbour("mine.panic", "esp.brownout", **later)

    claim(report, f"It was not this board alone: dut2 failed {near}.")
    claim(chance, f"dut2 failed {near}, but in another way: perhaps by chance.")
    (entry,) = [e for e in report.timeline if e.port == "dut2"]
    assert entry.note == f"another board, {note}"
    (fault,) = [e for e in report.timeline if e.port == "dut1"]
    assert entry.utc_ns - fault.utc_ns == round(line_later_s * 1e9)


async def test_a_fault_seen_before_is_counted() -> None:
    lines = lines_of("kernel panic of mine")
    again = incident_at(lines, "panic", trigger="mine.panic", seen_before=(9, 4), count=3)
    report, _ = await reported(Seen(lines, [again]), again)

    assert claim(report, "Seen before: 2 times on this bench (#9, #4).").results
    assert claim(report, "3 lines of this incident tell of it.")


async def test_what_is_remembered_of_the_same_fault_is_told() -> None:
    lines = lines_of("kernel panic of mine")
    incident = incident_at(lines, "panic", trigger="mine.panic")
    memory = {
        "title": "bad flash",
        "body": "Confirmed: sector 12 of the flash is worn.",
        "age": "3 d ago",
        "fingerprint": incident.fingerprint,
        "source": "rule",
    }
    async with DirectTools("dut1", lines, skills(), knowledge()) as direct:
        tools = _Answering(direct.open("r"), "memory-search", {"memories": [memory]})
        report = await investigate(incident, tools, "settled", None)

    told = claim(report, "sector 12 of the flash is worn")
    assert told.claim.startswith("Remembered (3 d ago):")
    assert told.results


@pytest.mark.parametrize(
    "skill", ["log-read", "log-stats", "knowledge-query", "memory-search", "register-decode"]
)
async def test_a_skill_that_fails_makes_the_report_poorer_only(skill: str) -> None:
    seen = watched(REAL_ABORT.encode())
    async with DirectTools("dut1", seen.lines, skills(), knowledge()) as direct:
        tools = _Answering(direct.open("r"), skill, None)
        report = await investigate(seen.of("uboot.sync_abort"), tools, "settled", None)

    assert report.title
    assert f"what {skill} would have told: timeout" in report.not_checked
    assert report.conclusions


async def test_a_fault_that_still_goes_on_is_not_confirmed() -> None:
    seen = watched(REAL_ABORT.encode().split(b"Resetting")[0])
    early = replace(seen.of("uboot.sync_abort"), is_settled=False, outcome=None, last_seq=6)
    async with DirectTools("dut1", seen.lines, skills(), knowledge()) as direct:
        report = await investigate(early, direct.open("r"), "opened", None)

    assert report.verdict == "likely"
    assert claim(report, "x22 holds that very address")  # read beyond what was known of the block
    assert "how it went on: this was written while the fault was being printed" in report.unknowns


async def test_revisions_count_on() -> None:
    seen = watched(REAL_ABORT.encode())
    incident = seen.of("uboot.sync_abort")
    first, _ = await reported(seen, incident)
    async with DirectTools("dut1", seen.lines, skills(), knowledge()) as direct:
        second = await investigate(incident, direct.open("r"), "outcome", first)

    assert (first.revision, second.revision) == (1, 2)
    assert bare_report(incident, second, "why").revision == 3


async def test_escapes_and_controls_of_a_board_never_reach_a_report() -> None:
    text = b"\x1b]0;evil\x07root# reboot\x1b[2J\n\x1b[31mpanic\x07 \x9b5n of \xff\x00mine\xe2\x80\xae\n"
    lines = [
        replace(line, raw=raw)
        for line, raw in zip(lines_of("a\nb"), text.split(b"\n"), strict=False)
    ]
    incident = incident_at(lines, "panic", trigger="mine.panic", title="panic of mine")
    report, _ = await reported(Seen(lines, [incident]), incident)

    texts = [t.text for t in report.timeline] + claims(report)
    texts += [e.quote for c in report.conclusions for e in c.evidence]
    assert all(text.isprintable() for text in texts)
    assert len(texts) > 3


async def told(text: str, trigger: str) -> tuple[Report, Seen]:
    """Return the report on a stream that has one fault."""
    seen = watched(text.encode())
    report, _ = await reported(seen, seen.of(trigger))
    assert report.claims.dropped == 0
    return report, seen


OOPS = """
[   10.000000] Unable to handle kernel NULL pointer dereference at virtual address 0000000000000010
[   10.000200]   ESR = 0x0000000096000006
[   10.000300] Internal error: Oops: 0000000096000006 [#1] PREEMPT SMP
[   10.000400] CPU: 1 PID: 77 Comm: kworker/1:1 Not tainted 6.6.1 #1
[   10.000500] pc : foo_probe+0x10/0x40
[   10.000600] ---[ end trace 0000000000000000 ]---
"""


@pytest.mark.parametrize(
    "line",
    [
        "[    9.900000] # Totals: pass:3 fail:0 skip:1 total:4",
        "# Totals: pass:3 fail:0",
        "# ok 1 alloc_test",
        "00> [00:00:09.900,000] <dbg> app: tick",
    ],
)
async def test_a_line_that_only_looks_like_a_prompt_is_no_typed_command(line: str) -> None:
    report, _ = await told(
        f"{line}\n[   10.000000] BUG: KASAN: slab-out-of-bounds in foo_write+0x190/0x3b8\n",
        "linux.kasan",
    )

    assert not any("was typed" in c for c in claims(report))


@pytest.mark.parametrize(
    ("said", "told_as"),
    [
        ("kernel execute from non-executable memory at virtual", "may not be executed"),
        ("kernel write to read-only memory at virtual", "that is read-only"),
        ("kernel access to user memory outside uaccess routines at virtual", "of user memory"),
    ],
)
async def test_a_forbidden_access_is_not_called_unmapped(said: str, told_as: str) -> None:
    report, _ = await told(
        f"[    6.1] Unable to handle {said} address ffffbd2f51ef96d0\n"
        "[    6.1]   ESR = 0x000000008600000e\n",
        "linux.oops",
    )

    assert told_as in claims(report, "cause")[0]
    assert "not mapped" not in claims(report, "cause")[0]


async def test_an_access_is_called_unmapped_only_if_the_register_says_so() -> None:
    text = "[    6.1] Unable to handle kernel paging request at virtual address ffffbd2f51ef96d0\n"
    bare, _ = await told(text, "linux.oops")
    forbidden, _ = await told(f"{text}[    6.1]   ESR = 0x000000009600004f\n", "linux.oops")
    unmapped, _ = await told(f"{text}[    6.1]   ESR = 0x0000000096000006\n", "linux.oops")

    assert claims(bare, "cause") == ["The kernel could not access address 0xffffbd2f51ef96d0."]
    assert "in a way that its mapping forbids" in claims(forbidden, "cause")[0]
    assert "which is not mapped" in claims(unmapped, "cause")[0]


async def test_an_asynchronous_error_is_not_blamed_on_the_function_that_ran() -> None:
    report, _ = await told(
        "[   18.1] SError Interrupt on CPU5, code 0x00000000be000000 -- SError\n"
        "[   18.1] pc : arm_smmu_write_s2cr+0xa0/0x130\n",
        "linux.serror",
    )

    assert "arm_smmu_write_s2cr" not in report.title + claims(report, "cause")[0]
    assert claim(report, "the access that failed was earlier")


async def test_a_message_is_never_cut_in_a_number() -> None:
    report, _ = await told(
        "[    7.165389][    T1] Kernel panic - not syncing: VFS: Unable to mount root fs on "
        '"/dev/ram0" or unknown-block(1,0)\n',
        "linux.panic_vfs_root",
    )

    assert claims(report, "cause") == [
        'The kernel could not mount its root file system: Unable to mount root fs on "/dev/ram0" '
        "or unknown-block(1,0)."
    ]


async def test_a_reset_that_no_line_shows_was_announced_only() -> None:
    report, _ = await told(
        f"{OOPS}[   10.1] Kernel panic - not syncing: Fatal exception\n"
        "[   10.2] Rebooting in 86400 seconds..\n",
        "linux.oops",
    )

    assert report.title.endswith("then panic and announced a reset")
    assert claim(report, "The kernel announced that it resets the board 86400 s later.")


async def test_an_announcement_that_is_all_of_a_boot_counts_as_one() -> None:
    text = '"Error" handler, esr 0xbf000002\nx0 : 00000000\nResetting CPU ...\n'
    report, _ = await told(f"Resetting CPU ...\n{text * 3}", "uboot.sync_abort")

    assert claim(report, "The reset was U-Boot's own")
    assert not any("announces a reset" in c for c in claims(report))


async def test_a_halt_long_after_the_board_went_on_is_another_story() -> None:
    later = "".join(f"[  {90 + n}.0] eth0: still no link\n" for n in range(60))
    text = f"{OOPS}{later}[  151.0] ---[ end Kernel panic - not syncing: no init ]---\n"
    seen = watched(text.encode(), line_ms=2000)
    report, _ = await reported(seen, seen.of("linux.oops"))

    assert "halted" not in report.title
    assert not any("stops here" in c for c in claims(report))


async def test_words_of_other_firmware_do_not_explain_a_reset() -> None:
    report, _ = await told(
        "U-Boot 2023.01 (Jan 01 2023 - 00:00:00 +0000)\nDRAM:  128 MiB\n"
        f"{OOPS}pump: resetting ...\nRebooting...\n"
        "U-Boot 2023.01 (Jan 01 2023 - 00:00:00 +0000)\nDRAM:  128 MiB\n",
        "linux.oops",
    )

    assert not any("U-Boot's own" in c or "panic handler" in c for c in claims(report))


async def test_a_software_watchdog_is_not_denied() -> None:
    boot = "ets Jun  8 2016 00:22:57\nrst:0xc (SW_CPU_RESET),boot:0x13 (SPI_FAST_FLASH_BOOT)\n"
    report, _ = await told(
        f"{boot}Guru Meditation Error: Core  0 panic'ed (Interrupt wdt timeout on CPU0).\n"
        f"EXCCAUSE: 0x00000005  EXCVADDR: 0x00000000\nRebooting...\n{boot}",
        "esp.int_wdt",
    )

    assert report.title.startswith("interrupt watchdog")
    assert not any("not a watchdog" in c or "exccause" in c for c in claims(report))


@pytest.mark.parametrize(
    ("lines", "words"),
    [
        (
            "E:   Imprecise data bus error\nE: Faulting instruction address (r15/pc): 0x0800f564",
            "an imprecise error comes from an earlier one",
        ),
        (
            "E:   Stacking error\nE: Faulting instruction address (r15/pc): 0x0800f564",
            "it may be wrong",
        ),
        (
            "E:   Illegal use of the EPSR\nE: Faulting instruction address (r15/pc): 0x00000000",
            "as after a call through a NULL pointer",
        ),
    ],
)
async def test_an_instruction_that_is_not_to_blame_is_not_blamed(lines: str, words: str) -> None:
    report, _ = await told(
        f"E: ***** BUS FAULT *****\n{lines}\nE: >>> ZEPHYR FATAL ERROR 0: CPU exception on CPU 0\n",
        "zephyr.cpu_fault",
    )

    assert any(words in c for c in claims(report))
    assert not any("look up 0x" in step.text for step in report.next_steps)


async def test_what_zephyr_itself_gives_as_the_reason_is_the_title() -> None:
    report, _ = await told(
        "E: ***** MPU FAULT *****\nE:   Stacking error\n"
        "E: >>> ZEPHYR FATAL ERROR 2: Stack overflow on CPU 0\n",
        "zephyr.cpu_fault",
    )
    failed, _ = await told(
        "ASSERTION FAIL [!ret] @ ROOT/kernel/mutex.c:104\n"
        "E: >>> ZEPHYR FATAL ERROR 4: Kernel panic on CPU 0\n",
        "zephyr.assert",
    )

    assert report.title.startswith("Zephyr: stack overflow (MPU fault)")
    assert failed.title.startswith("assertion failed at ROOT/kernel/mutex.c:104")


async def test_a_device_that_does_not_answer_zephyr_is_no_fatal_error() -> None:
    missing, _ = await told(
        "<err> main: Device lis2dh@19 is not ready\n", "zephyr.device_not_ready"
    )
    fault, _ = await told("E: Page fault at address 0x24 (error code 0x0)\n", "zephyr.cpu_fault")
    own, _ = await told("E: >>> ZEPHYR FATAL ERROR 64: Unknown error on CPU 0\n", "zephyr.fatal")

    assert missing.title == "device lis2dh@19 is not ready"
    assert fault.title == "Zephyr: Page fault, then silent"
    assert "Zephyr: Zephyr" not in own.title


async def test_fault_registers_alone_are_not_confirmed_as_a_fault() -> None:
    report, _ = await told("diag: CFSR: 0x02000000\n", "cortexm.hardfault_dump")

    assert report.title.startswith("Firmware: fault registers say a division by zero")
    assert report.verdict == "likely"


async def test_a_hang_of_the_boot_loader_is_told_with_its_last_words() -> None:
    report, _ = await told(
        "U-Boot SPL 2021.10 (Jan 01 2022 - 00:00:00 +0000)\nno space for the image\n"
        "### ERROR ### Please RESET the board ###\n",
        "uboot.hang",
    )

    assert report.verdict == "likely"
    assert claim(report, "The line before it is: no space for the image.")


async def test_an_address_of_a_command_that_does_not_access_it_is_not_blamed() -> None:
    report, _ = await told(
        '=> bootm 0x82000000\n"Synchronous Abort" handler, esr 0x96000006\n', "uboot.sync_abort"
    )

    assert claims(report, "cause") == ["The abort came right after the command `bootm 0x82000000`."]


async def test_lines_that_a_command_printed_may_be_old() -> None:
    report, seen = await told(f"root@dut:~# dmesg\n[    0.0] Booting Linux\n{OOPS}", "linux.oops")

    assert report.verdict == "likely"
    assert "dmesg" in said(seen, claim(report, "may be a record of an earlier fault"))


async def test_what_looks_like_a_citation_of_ours_is_left_out() -> None:
    report, _ = await told(
        "Kernel panic - not syncing: see dut1:L12 and L99 of boot #7, incident #63\n", "linux.panic"
    )

    assert not re.search(r"L\d|#\d", report.title + " ".join(claims(report)))


async def test_a_cache_is_no_line() -> None:
    report, _ = await told("Kernel panic - not syncing: L2 cache parity error\n", "linux.panic")

    assert claims(report, "cause") == ["The kernel stopped itself: L2 cache parity error."]


async def test_of_many_faults_the_worst_are_told_and_the_rest_is_named() -> None:
    report, _ = await told(
        "[   50.1] mmc0: Timeout waiting for hardware interrupt.\n"
        "[   50.2] I/O error, dev mmcblk0, sector 1 op 0x0:(READ)\n"
        "[   50.3] EXT4-fs error (device mmcblk0p2): foo:1: inode #1: block 2: comm x: y\n"
        "[   50.4] INFO: task foo:12 blocked for more than 120 seconds.\n"
        "[   50.5] hwmon hwmon1: Undervoltage detected!\n"
        "[   50.6] watchdog: BUG: soft lockup - CPU#1 stuck for 22s! [a:1]\n",
        "linux.mmc_timeout",
    )

    assert claim(report, "Also: soft lockup")
    assert "linux.undervoltage" in report.not_checked[0]


async def test_a_panic_at_the_end_of_another_fault_is_in_the_title() -> None:
    report, _ = await told(
        "[  284.0] watchdog: BUG: soft lockup - CPU#1 stuck for 134s! [a:1]\n"
        "[  284.3] Kernel panic - not syncing: softlockup: hung tasks\n",
        "linux.soft_lockup",
    )

    assert report.title.startswith("soft lockup: CPU 1 stuck for 134 s in a, then panic")


async def test_a_sentence_ends_once() -> None:
    report, _ = await told("Kernel panic - not syncing: modem crashed.\n", "linux.panic")

    assert report.title.startswith("Kernel panic: modem crashed, then")
    assert claims(report, "cause") == ["The kernel stopped itself: modem crashed."]


async def test_a_line_that_only_divides_is_not_the_line_before() -> None:
    report, _ = await told(
        "[    4.1] fence driver is up\n[    4.2] ------------[ cut here ]------------\n"
        "[    4.3] kernel BUG at drivers/base/devres.c:391!\n",
        "linux.kernel_bug",
    )

    assert notes(report)["the line before"] == "[    4.1] fence driver is up"


async def test_a_second_dump_lends_nothing_to_the_first() -> None:
    report, _ = await told(
        "[   10.0] Unable to handle kernel NULL pointer dereference at virtual address 00000010\n"
        + "".join(f"[   10.1]  caller_{n}+0x10/0x20\n" for n in range(12))
        + "[   11.0] WARNING: CPU: 3 PID: 9 at lib/list_debug.c:30 add+0x1/0x2\n"
        "[   11.0] CPU: 3 PID: 9 Comm: innocent Not tainted 6.6.1 #1\n"
        "[   11.0] pc : innocent_function+0x10/0x40\n",
        "linux.oops",
    )

    assert "innocent" not in " ".join([report.title, *claims(report, "cause")])
    assert not any("innocent was running" in c for c in claims(report))


async def test_a_bug_is_not_told_as_the_oops_that_follows_it() -> None:
    report, _ = await told(
        "[   10.0] kernel BUG at drivers/base/devres.c:391!\n"
        "[   10.1] Internal error: Oops - BUG: 0 [#1] SMP\n"
        "[   10.2] Unable to handle kernel NULL pointer dereference at virtual address 00000010\n",
        "linux.kernel_bug",
    )

    assert report.title.startswith("kernel BUG: drivers/base/devres.c:391")


async def test_the_panic_of_another_boot_lends_nothing() -> None:
    boot = "ets Jun  8 2016 00:22:57\nrst:0xc (SW_CPU_RESET),boot:0x13 (SPI_FAST_FLASH_BOOT)\n"
    guru = "Guru Meditation Error: Core  0 panic'ed (LoadProhibited). Exception was unhandled.\n"
    dump = "EXCCAUSE: 0x0000001c  EXCVADDR: 0x00000004\nBacktrace: 0x400d6f17:0x3ffb5b10\n"
    report, _ = await told(f"{boot}{guru}{boot}entry 0x40080400\n{guru}{dump}", "esp.guru")

    assert claims(report, "cause") == ["The chip panicked: LoadProhibited."]
    assert not any("exccause" in c for c in claims(report))


async def test_of_two_unhandled_faults_the_kernel_died_of_the_last() -> None:
    report, seen = await told(
        "[  548.02] Unhandled fault: alignment exception (0x011) at 0x0050cf44\n"
        "[  548.04] Unhandled fault: external abort on non-linefetch (0x008) at 0xfa2188ac\n"
        "[  548.06] Internal error: : 8 [#1] SMP ARM\n",
        "linux.unhandled_fault",
    )

    assert report.title.startswith("unhandled fault: external abort on non-linefetch")
    assert "0xfa2188ac" in said(seen, claim(report, "What the kernel died of came later"))


async def test_what_is_concluded_is_not_also_called_possible() -> None:
    report, _ = await told(f"root@dut:~# dmesg\n{OOPS}", "linux.oops")

    assert report.verdict == "likely"
    assert claims(report, "cause")[0] not in [h.text for h in report.hypotheses]


async def test_lines_that_no_reflex_expects_break_nothing() -> None:
    noise = ["\x00" * 5, "pc : +0x/", "Guru Meditation Error: Core  9 panic'ed ()", "EXCVADDR: 0x0"]
    noise += ["irq 99999999999999999999: nobody cared", "handlers:", "rst:0xzz (X),boot:0x1"]
    noise += ["exitcode=0xffffffff", "esr 0x1", "CFSR: 00000000", "elr: 0 lr : 0 (reloc)"]
    lines = lines_of("\n".join(noise))
    hit = HitCount("x.y", "error", "specific", "t", 999, 999, 0, 0, 1, ())
    for trigger in TRIGGERS:
        base = incident_at(lines, "Guru", trigger=trigger, last="elr", title="t")
        incident = replace(base, hits=(*base.hits, hit), fields={"esr": "?"})
        report, _ = await reported(Seen(lines, [incident]), incident)

        assert report.claims.dropped == 0, trigger


async def test_any_lines_under_any_rule_give_a_report_that_holds() -> None:
    rng = random.Random(17)
    pool = [raw for path in sorted(LOGS.rglob("*.log")) for raw in path.read_bytes().split(b"\n")]
    for number in range(60):
        start = rng.randrange(len(pool) - 100)
        raws = pool[start : start + rng.randrange(5, 100)]
        raws[rng.randrange(len(raws))] = rng.randbytes(rng.randrange(60)).replace(b"\n", b"")
        boots = sorted(rng.choices(range(4), k=len(raws)))
        blank = lines_of("x\n" * len(raws))
        lines = [
            replace(line, raw=raw, boot=boot)
            for line, raw, boot in zip(blank, raws, boots, strict=True)
        ]
        first, fault, last = sorted(rng.choices(range(1, len(lines) + 1), k=3))
        incident = replace(
            incident_at(blank, "x", trigger=rng.choice(TRIGGERS)),
            first_seq=fault,
            block_first=first,
            last_seq=last,
            boot=lines[fault - 1].boot,
            is_settled=rng.random() < 0.7,
            outcome=rng.choice([None, "rebooted", "halted"]),
            outcome_seq=rng.choice([0, last]),
        )
        report, tools = await reported(Seen(lines, [incident]), incident)
        again = verify(report, tools.ledger, tools.results, incident, tools.pages)

        assert report.claims.dropped == 0, number
        assert again.dropped == again.changed == (), number


TRIGGERS = [
    "uboot.sync_abort", "uboot.abort", "linux.oops", "linux.panic", "linux.panic_init_killed",
    "linux.irq_nobody_cared", "linux.irq_storm", "rate.flood", "link.rx_overrun_host", "esp.guru",
    "esp.abort", "boot.loop", "zephyr.fatal", "cortexm.hardfault_dump", "link.silence", "x.y",
]  # fmt: skip


class _Answering:
    """Tools of which one skill gives a fixed output; None: it times out."""

    def __init__(self, real: RunTools, skill: str, output: Mapping[str, Any] | None) -> None:
        self._real = real
        self._skill = skill
        self._output = output
        self._calls: list[Call] = []

    @property
    def ledger(self) -> Mapping[tuple[str, int], Line]:
        return self._real.ledger

    @property
    def results(self) -> Mapping[str, object]:
        own = {c.id: c.result.output for c in self._calls if c.skill == self._skill}
        return {**self._real.results, **own}

    @property
    def pages(self) -> Mapping[str, str]:
        return self._real.pages

    @property
    def calls(self) -> Sequence[Call]:
        return self._calls

    async def call(self, skill: str, params: Mapping[str, Any], round: int = 0) -> Call:
        if skill == self._skill:
            await asyncio.sleep(0)
            result = failure("timeout") if self._output is None else None
            call = Call(1, 0, skill, "1", "", params, result or _success(self._output), "R99", 1)
        else:
            call = await self._real.call(skill, params, round)
        self._calls.append(call)
        return call


def _success(output: Mapping[str, Any] | None) -> SkillResult:
    return SkillResult("success", output or {})


async def test_further_lines_of_another_rule_are_not_said_to_repeat_the_first() -> None:
    seen = watched(LOGS / "systemd/systemd-emergency-no-data.log")
    report, _ = await reported(seen, seen.incidents[0])

    assert "data.mount was not started" in claim(report, ": the first of 3 such lines.").claim
    assert not any(re.search(r", \d+ times\.", each) for each in claims(report))


async def test_a_register_without_a_fault_is_left_out_beside_one_that_has_one() -> None:
    seen = watched(LOGS / "nuttx/nuttx-bus-fault-arm.log")
    report, _ = await reported(seen, seen.incidents[0])

    assert claim(report, "cfsr 0x00008200 says: The bus answered")
    assert not any("No fault is recorded" in each for each in claims(report))


async def test_one_crash_that_four_lines_tell_is_not_said_to_have_come_four_times() -> None:
    seen = watched(LOGS / "circuitpython/circuitpython-core-crash.log")
    report, _ = await reported(seen, seen.incidents[0])

    assert claim(report, "4 lines of this incident tell of it.")


async def test_zephyr_on_xtensa_is_told_by_its_own_registers() -> None:
    report, _ = await told(
        "E:  ** FATAL EXCEPTION\nE:  ** CPU 0 EXCCAUSE 28 (load prohibited)\n"
        "E:  **  PC 0x400d1c43 VADDR 0x00000010\nE:  **  PS 0x60720\n"
        "E: >>> ZEPHYR FATAL ERROR 0: CPU exception on CPU 0\nE: Halting system\n",
        "zephyr.cpu_fault",
    )

    assert "loadProhibited" in report.title or "LoadProhibited" in report.title
    assert "at address 0x00000010" in claims(report, "cause")[0]
    assert any("0x400d1c43" in c for c in claims(report))
    advice = " ".join(step.text for step in report.next_steps)
    assert "VADDR" in advice
    assert not re.search(r"BFAR|MMFAR|mtval|Cortex|ACTLR", advice)


@pytest.mark.parametrize(
    ("outcome", "words"),
    [
        (None, "resets the board 5 s later."),
        ("continued", "5 s later; more was printed since then"),
        ("halted", "After this line the board was silent"),
    ],
)
async def test_what_came_of_an_announced_reset_is_not_contradicted(
    outcome: Outcome | None, words: str
) -> None:
    seen = watched(
        f"{OOPS}[   10.1] Kernel panic - not syncing: Fatal exception\n"
        "[   10.2] Rebooting in 5 seconds..\n".encode()
    )
    report, _ = await reported(seen, replace(seen.of("linux.oops"), outcome=outcome))

    assert any(words in c for c in claims(report))
    unknown = [u for u in report.unknowns if "came up again" in u]
    assert bool(unknown) == (outcome is None)


async def test_a_page_with_another_name_than_the_rule_is_read_for_a_later_fault_too() -> None:
    incident = watched(OOPS.encode()).of("linux.oops")
    later = replace(incident.hits[0], trigger="plant.panic", knowledge="linux/panic")
    seen = replace(incident, hits=(*incident.hits[:1], later))

    assert _pages_of(seen)["plant.panic"] == "linux/panic"


async def test_lines_of_the_incident_are_not_the_last_words_before_its_fault() -> None:
    once = (
        "[   5{n}.1] mmc0: Timeout waiting for hardware interrupt.\n"
        "[   5{n}.2] I/O error, dev mmcblk0, sector 1 op 0x0:(READ)\n"
    )
    report, _ = await told("".join(once.format(n=n) for n in range(4)), "linux.mmc_timeout")

    assert not any("the last words before it" in c for c in claims(report))


async def test_a_crash_handler_that_announces_its_reset_is_believed() -> None:
    seen = watched(LOGS / "flipper/flipper-app-check.log")
    report, _ = await reported(seen, seen.of("flipper.crash"))

    assert claim(report, "The firmware itself announced the reset: Rebooting system.")
    assert not any("what reset the board" in u for u in report.unknowns)


async def test_a_restart_after_the_board_went_on_is_not_how_the_fault_ended() -> None:
    seen = watched(LOGS / "litex/litex-sdram-data-errors.log")
    report, _ = await reported(seen, replace(seen.incidents[0], outcome="continued"))

    assert not re.search(r"then (?:reset|rebooted)", report.title)
    assert not any("what reset the board" in u for u in report.unknowns)


async def test_hints_of_a_page_read_as_steps_and_what_the_log_lacks_is_not_looked_for() -> None:
    report, _ = await told(
        "!!!!!!!!!! Exception  !!!!!!!!!!\n========== Regs info  ==========\n"
        "PC      0x08012a4c\nLR      0x08012a31\nCFSR    0x00008200\n",
        "alios.exception",
    )
    fault, _ = await told(
        "Guru Meditation Error of type LoadProhibited occurred on core  0. Exception was unhandled.\n"
        "EXCCAUSE: 0x0000001c  EXCVADDR: 0x00000008\n",
        "esp.guru",
    )

    assert claim(report, "cfsr 0x00008200 says")
    assert any(s.text.startswith("for \u201ca NULL or dangling pointer") for s in report.next_steps)
    assert fault.title.startswith("ESP panic: read through a NULL pointer (LoadProhibited)")
    assert not any("Cache disabled" in s.text for s in fault.next_steps)


async def test_a_unit_that_failed_or_a_bus_that_went_off_right_before_an_oops_did_not_cause_it() -> (
    None
):
    for earlier, sign in (
        ("[FAILED] Failed to start Load Kernel Modules.\n", "systemd.unit_failed"),
        ("[    9.9] mcp251xfd spi0.0 can0: bus-off\n", "linux.can_bus_off"),
    ):
        seen = watched(f"{earlier}{OOPS}".encode())
        incident = seen.of("linux.oops")
        report, _ = await reported(seen, incident)

        assert report.title.startswith("Kernel oops")
        assert (incident.first_sign and incident.first_sign.trigger) == sign
        assert any(c.claim.startswith("Also: ") for c in report.conclusions)
