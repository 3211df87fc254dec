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
from serialwatch.agent.analyst import bare_report, investigate
from serialwatch.agent.case import Surroundings
from serialwatch.agent.context import Submit
from serialwatch.agent.direct import DirectTools
from serialwatch.agent.results import failure
from serialwatch.agent.tools import Call, RunTools
from serialwatch.agent.verifier import verify
from serialwatch.records import Conclusion, HitCount, Line, Report, SkillResult

LOGS = Path(__file__).parent / "logs"

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
    assert [h.status for h in report.hypotheses][:2] == ["confirmed", "open"]
    assert report.claims.dropped == 0


async def test_who_sent_a_command_is_told_and_not_asked() -> None:
    seen = watched(REAL_ABORT.encode())
    incident = seen.of("uboot.sync_abort")
    prompt = incident.first_seq - 1
    report, _ = await reported(seen, incident, Surroundings(writer="", sent={prompt: "ada"}))

    assert notes(report)["the command, sent by ada"].startswith("=> md.l")
    assert report.unknowns == ()


async def test_a_variable_in_a_command_is_followed_to_where_it_was_set() -> None:
    seen = watched(LOGS / "uboot-sync-abort-reset.log")
    report, _ = await reported(seen, seen.of("uboot.sync_abort"))

    assert "A read from 0xa00000000 was not mapped" in claims(report, "cause")[0]
    assert "setenv base" in said(seen, claim(report, "base had been set to 0x0a00000000"))


async def test_an_oops_names_function_module_task_panic_and_reset() -> None:
    seen = watched(LOGS / "linux-oops-panic-reboot.log")
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
    seen = watched(LOGS / "linux-init-killed.log")
    report, _ = await reported(seen, seen.of("linux.panic_init_killed"))

    assert "Init ended by itself with status 2" in claims(report, "cause")[0]
    assert report.title == "Kernel panic: init ended, then halted"
    assert any("cannot open verified root" in entry.text for entry in report.timeline)


async def test_an_interrupt_storm_names_line_handler_and_what_the_kernel_did() -> None:
    seen = watched(LOGS / "linux-rx-overrun-irq-storm.log")
    report, _ = await reported(seen, seen.of("rate.interrupt_storm"))

    assert "391207     irq#63" in said(seen, claim(report, "irq 63 came most often, 391207 times"))
    off = claim(report, "Interrupts kept coming on IRQ 63 and no handler claimed them")
    assert "Disabling IRQ #63" in said(seen, off)
    assert claim(report, "The device behind pca953x_irq_handler gets no interrupts any more")
    rate = said(seen, claim(report, "Too often"))
    assert rate.count("irq 63: ") == 2


async def test_a_boot_loop_of_an_esp_names_the_pointer_and_the_loop() -> None:
    seen = watched(LOGS / "esp32-guru-boot-loop.log")
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
    seen = watched(LOGS / "esp32-brownout.log")
    report, _ = await reported(seen, seen.of("esp.brownout"))

    assert claims(report, "cause") == [
        "By the board's own words: brownout: the supply voltage dipped."
    ]
    assert notes(report)["the line before"].endswith("pump relay on")


async def test_a_bus_fault_in_zephyr_names_address_instruction_and_thread() -> None:
    seen = watched(LOGS / "zephyr-bus-fault.log")
    report, _ = await reported(seen, seen.of("zephyr.cpu_fault"))

    assert report.title == "Zephyr: bus fault at 0x50000308, then halted"
    assert claims(report, "cause") == ["A bus fault: precise data bus error at address 0x50000308."]
    assert claim(report, "The dump names the instruction at 0x08004dfa, in thread adc_sampler.")
    assert "Halting" in said(seen, claim(report, "its software does not restart it"))


async def test_a_hard_fault_dump_is_told_by_its_cfsr() -> None:
    seen = watched(LOGS / "cortexm-hardfault.log")
    report, _ = await reported(seen, seen.of("cortexm.hardfault_dump"))

    assert claims(report, "cause") == ["A hard fault: an unaligned access."]
    assert "CFSR = 0x01000000" in said(seen, report.conclusions[0])


@pytest.mark.parametrize("path", sorted(LOGS.glob("*.log")), ids=lambda p: p.stem)
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
    for path in sorted(LOGS.glob("*.log")):
        seen = watched(path)
        for incident in seen.incidents:
            report, tools = await reported(seen, incident)
            for true in report.conclusions:
                for lie in _lies(true):
                    draft = replace(report, conclusions=(lie,))
                    told = verify(draft, tools.ledger, tools.results, incident, tools.pages)
                    kept = told.report.conclusions
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


async def test_an_incident_whose_lines_are_gone_still_gets_a_report() -> None:
    lines = lines_of("a fault of long ago", first=500)
    gone = incident_at(lines, "fault", trigger="linux.oops", title="kernel oops: NULL pointer")
    report, _ = await reported(Seen(lines_of("hello", first=9000), []), gone)

    assert report.title == "kernel oops: NULL pointer"
    assert report.verdict == "inconclusive"
    assert report.conclusions == ()
    assert "the lines of the fault: the log could not be read" in report.not_checked


async def test_other_boards_that_failed_in_the_same_second_are_named() -> None:
    lines = [*lines_of("panic here"), *lines_of("panic there", "dut2")]
    here = incident_at(lines, "here", trigger="mine.panic", linked=(18,))
    there = incident_at(lines, "there", trigger="mine.panic", id=18)

    class Both(DirectTools):
        def open(
            self, run_id: str, incident: int | None = None, submit: Submit | None = None
        ) -> RunTools:
            tools = super().open(run_id, incident, submit)
            tools._ctx.ledger["dut2", 1] = lines[1]
            return tools

    async with Both("dut1", lines[:1], skills(), knowledge()) as direct:
        around = Surroundings(neighbours=(there,))
        report = await investigate(here, direct.open("r"), "settled", None, around)

    shared = claim(report, "It was not this board alone: dut2 failed within the same second.")
    assert [e.ref for e in shared.evidence] == ["dut1:L1", "dut2:L1"]


async def test_a_fault_seen_before_is_counted() -> None:
    lines = lines_of("kernel panic of mine")
    again = incident_at(lines, "panic", trigger="mine.panic", seen_before=(9, 4), count=3)
    report, _ = await reported(Seen(lines, [again]), again)

    assert claim(report, "Seen before: 2 times on this bench (#9, #4).").results
    assert claim(report, "It was reported 3 times in this incident.")


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
    pool = [raw for path in sorted(LOGS.glob("*.log")) for raw in path.read_bytes().split(b"\n")]
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
