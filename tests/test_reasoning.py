"""What the analyst concludes beyond the dump, each with the lines it rests on."""

from __future__ import annotations

import asyncio
import re
from pathlib import Path
from typing import Any

import pytest

from agent_case import Case, Told, told
from bench_analysis import get_ready
from serialwatch.agent.knowledge import load_knowledge
from serialwatch.agent.offline.resets import meaning_of
from serialwatch.bundled import bundled_dir
from serialwatch.incidents.open_incident import is_any
from serialwatch.records import Conclusion, Report
from serialwatch.triggers.rules import load_rules

UBOOT = "\n\nU-Boot 2023.04 (May 02 2024 - 09:11:40 +0000)\nReset cause: {cause}\nDRAM:  512 MiB\n"
LINUX = """
[    0.000000] Booting Linux on physical CPU 0x0
[    0.000000] Linux version 6.1.55 (oe-user@oe-host) (gcc 12.3.0) #1 SMP PREEMPT
[    1.402210] EXT4-fs (mmcblk2p2): mounted filesystem with ordered data mode.
[    1.502331] Run /sbin/init as init process
heron login: root
root@heron:~#
"""
OOPS = """
[   71.303201] Unable to handle kernel NULL pointer dereference at virtual address 00000024
[   71.315001] Internal error: Oops: 5 [#1] PREEMPT SMP ARM
[   71.339761] PC is at adc_read+0x2c/0x90
[   71.403112] ---[ end trace 0000000000000000 ]---
"""
GOES_ON = "@@ wait 75\n[  150.220113] canopend[288]: heartbeat 120\n"


@pytest.fixture(scope="module", autouse=True)
def ready() -> None:
    """Load everything once."""
    get_ready()


def explained(folder: Path, log: str, about: str = "", **others: str) -> Told:
    """Return what the analyst says of what boards print; `others` by port."""
    case = Case("made", "made", (), about, "dut1", {"dut1": log, **others}, {}, (), {"class": ""})
    return asyncio.run(told(case, folder))


def report_of(seen: Told) -> Report:
    assert seen.report is not None
    assert seen.report.claims.dropped == 0
    return seen.report


def claim(report: Report, words: str) -> Conclusion:
    """Return the conclusion that says so."""
    found = [c for c in report.conclusions if re.search(words, c.claim)]
    assert found, f"{words!r} is in none of {[c.claim for c in report.conclusions]}"
    return found[0]


def cited(seen: Told, conclusion: Conclusion) -> str:
    lines = {(x.port, x.seq): x.raw.decode() for p in seen.played.lines.values() for x in p}
    return "\n".join(lines[e.port, e.seq] for e in conclusion.evidence)


def test_a_reset_is_not_believed_where_the_boards_clock_goes_on(tmp_path: Path) -> None:
    log = f"{LINUX}[   70.1] adc: on\nBrownout detector was triggered\n{OOPS}{GOES_ON}"
    seen = explained(tmp_path, log.replace("[   70.1]", "[   70.100000]"))
    report = report_of(seen)

    assert report.fault_class == "linux.oops"
    assert "adc_read" in report.title
    why = claim(report, "is not the root: the board's own clock goes on")
    assert "Brownout" in cited(seen, why)
    assert "[   71.303201]" in cited(seen, why)
    assert "esp.brownout" in {h.fault_class for h in report.hypotheses if h.status == "refuted"}


def test_a_real_brownout_is_believed(tmp_path: Path) -> None:
    log = (
        "ets Jul 29 2019 12:21:46\nrst:0x1 (POWERON_RESET),boot:0x13\nI (900) app: motor on\n"
        "Brownout detector was triggered\nets Jul 29 2019 12:21:46\n"
        "rst:0xf (RTCWDT_BROWN_OUT_RESET),boot:0x13\nI (900) app: ready\n"
    )
    report = report_of(explained(tmp_path, log))

    assert report.fault_class == "esp.brownout"
    assert not any(h.status == "refuted" for h in report.hypotheses)


ERROR = "[    4.1] EXT4-fs error (device mmcblk2p7): ext4_orphan_get:1393: comm mount: bad orphan\n"
REBOOT = "@@ wait 400\nroot@heron:~# reboot\n[  410.420113] reboot: Restarting system\n"


def booted(cause: str = "POR") -> str:
    return UBOOT.format(cause=cause) + LINUX.lstrip("\n")


def test_an_error_of_every_boot_is_not_the_root_of_a_worse_fault(tmp_path: Path) -> None:
    once = booted().replace("heron login", ERROR + "heron login")
    last = once.partition("heron login")[0]
    seen = explained(tmp_path, f"{once}{REBOOT}{once}{REBOOT}{last}{OOPS}")
    report = report_of(seen)

    assert report.fault_class == "linux.oops"
    why = claim(report, r"is not the root: the same came in an earlier boot that went on \(#\d+")
    assert "ext4_orphan_get" in cited(seen, why)
    assert why.results
    about_the_other = [
        c.claim for c in report.conclusions if re.search("Seen before|boots", c.claim)
    ]
    assert about_the_other == []


def test_the_only_fault_of_an_incident_stays_its_root_however_often_it_came(tmp_path: Path) -> None:
    once = booted() + ERROR + "@@ wait 80\nroot@heron:~#\n"
    report = report_of(explained(tmp_path, f"{once}{REBOOT}{once}{REBOOT}{once}"))

    assert report.fault_class == "linux.ext4_error"
    assert not any(h.status == "refuted" for h in report.hypotheses)


CARD = "[   50.1] mmc2: Timeout waiting for hardware interrupt.\n"
HUNG = "[  245.7] INFO: task rsync:611 blocked for more than 120 seconds.\n"


def test_a_known_cause_that_came_minutes_before_is_the_root(tmp_path: Path) -> None:
    log = f"{booted()}{CARD}@@ wait 190\n{HUNG}{GOES_ON}"
    seen = explained(tmp_path, log, "linux.hung_task")
    report = report_of(seen)

    assert report.fault_class == "linux.mmc_timeout"
    assert report.title.startswith("task rsync")
    assert "after mmc2 has trouble" in report.title
    led = claim(report, "mmc2 .* came before and can lead to it: storage stopped answering")
    assert led.kind == "cause"
    assert "mmc2: Timeout" in cited(seen, led)
    assert "rsync:611" in cited(seen, led)
    assert report.hypotheses[0].fault_class == "linux.mmc_timeout"


def test_a_fault_of_another_device_is_no_cause(tmp_path: Path) -> None:
    kernel = booted().partition("[    1.402210]")[0]
    log = (
        f"{kernel}[    1.4] mmc1: error -110 whilst initialising SD card\n"
        '[    2.1] VFS: Cannot open root device "mmcblk2p2" or unknown-block(0,0): error -6\n'
        "[    2.2] Kernel panic - not syncing: VFS: Unable to mount root fs on unknown-block(0,0)\n"
    )
    other = report_of(explained(tmp_path, log))
    same = report_of(explained(tmp_path, log.replace("mmc1", "mmc2")))

    assert not any("came before and can lead" in c.claim for c in other.conclusions)
    assert claim(same, "mmc2 .* came before and can lead to it")


def test_a_milder_fault_of_another_device_is_not_the_root_though_it_came_first(
    tmp_path: Path,
) -> None:
    kernel = booted().partition("[    1.402210]")[0]
    log = (
        f"{kernel}[    1.4] mmc1: error -84 whilst initialising SD card\n"
        '[    2.1] VFS: Cannot open root device "mmcblk2p2" or unknown-block(0,0): error -6\n'
        "[    2.2] Kernel panic - not syncing: VFS: Unable to mount root fs on unknown-block(0,0)\n"
    )
    report = report_of(explained(tmp_path, log))

    assert report.fault_class == "linux.panic_vfs_root"
    assert claim(report, "mmc1 .* is not the root: it is of another device")


def test_what_came_in_another_boot_or_long_ago_is_no_cause(tmp_path: Path) -> None:
    long_ago = f"{booted()}{CARD}@@ wait 1200\n{HUNG}{GOES_ON}"
    other_boot = f"{booted()}{CARD}{REBOOT}{booted()}@@ wait 150\n{HUNG}{GOES_ON}"

    for log in (long_ago, other_boot):
        report = report_of(explained(tmp_path, log, "linux.hung_task"))
        assert report.fault_class == "linux.hung_task"
        assert not any("came before and can lead" in c.claim for c in report.conclusions)


def test_a_chain_is_followed_to_its_first_link(tmp_path: Path) -> None:
    log = (
        f"{booted()}[   40.1] hwmon hwmon1: Undervoltage detected!\n{CARD}"
        "[   50.2] I/O error, dev mmcblk2, sector 12 op 0x1:(WRITE) flags 0x800 phys_seg 4\n"
        f"{GOES_ON}"
    )
    seen = explained(tmp_path, log)
    report = report_of(seen)

    assert report.fault_class == "linux.undervoltage"
    assert "Undervoltage" in cited(seen, claim(report, "As a consequence of it: mmc2"))


def test_a_cause_whose_sign_is_seen_rises_and_one_that_is_refuted_falls(tmp_path: Path) -> None:
    beats = "".join(f"[   {n}.000000] canopend[288]: heartbeat {n}\n" for n in range(20, 60))
    seen = explained(tmp_path, f"{booted()}{beats}{booted('WDOG')}")
    report = report_of(seen)
    status = {h.text.partition(":")[0]: (h.status, h.score) for h in report.hypotheses}

    assert report.fault_class == "linux.unexpected_reboot"
    assert status["a hardware watchdog expired because the kernel or its daemon hung"][1] > 0.8
    assert status["the power was cut or dipped"][0] == "refuted"
    assert "WDOG" in cited(seen, claim(report, "A line speaks for a known cause"))
    assert claim(report, "The board itself names the reset: WDOG, its watchdog")


def test_a_decoded_register_confirms_one_known_cause_and_refutes_others(tmp_path: Path) -> None:
    log = (
        "\n\nU-Boot 2023.01 (Jun 22 2026 - 08:38:07 +0000)\n\nDRAM:  128 MiB\n"
        '=> md.l 0xffffffffff000000 4\n"Synchronous Abort" handler, esr 0x96000004\n'
        "elr: 0000000000081104 lr : 0000000000081054 (reloc)\nResetting CPU ...\n\nresetting ...\n"
    )
    report = report_of(explained(tmp_path, log))
    refused = report_of(explained(tmp_path, log.replace("96000004", "96000010")))

    def status(of: Report, words: str) -> str:
        return next(h.status for h in of.hypotheses if h.text.startswith(words))

    assert status(report, "an access to an address that is not mapped") == "confirmed"
    assert status(report, "the bus refused the access") == "refuted"
    assert status(refused, "the bus refused the access") == "confirmed"
    assert status(refused, "an access to an address that is not mapped") == "refuted"


def test_the_cause_of_an_earlier_start_says_nothing_of_this_one(tmp_path: Path) -> None:
    beats = "".join(f"[   {n}.000000] canopend[288]: heartbeat {n}\n" for n in range(20, 60))
    second = booted("").replace("Reset cause: \n", "")
    report = report_of(explained(tmp_path, f"{booted('WDOG')}{beats}{second}"))

    assert not any("speaks for" in c.claim for c in report.conclusions)
    assert not any(h.status == "refuted" for h in report.hypotheses)
    assert report.verdict == "inconclusive"
    assert any("not enough information" in text for text in report.unknowns)


@pytest.mark.parametrize(
    ("text", "meaning"),
    [
        ("IWDG", "its watchdog"),
        ("WDOG", "its watchdog"),
        ("BOR", "its supply dipped"),
        ("brownout", "its supply dipped"),
        ("POR", "a power-on: the supply had been off, or somebody cut it"),
        ("PIN", "the reset pin"),
        ("software", "its software"),
        ("POR|BOR", ""),  # a chip that cannot tell them apart
        ("0x14", ""),
        ("importer", ""),
    ],
)
def test_a_printed_reset_cause_is_read_only_where_it_means_one_thing(
    text: str, meaning: str
) -> None:
    assert meaning_of(text) == meaning


HEAP = (120880, 98112, 76240, 53980, 31544, 9212)


def heap_log(values: tuple[int, ...]) -> str:
    lines = "".join(f"I ({n}0100) http: 200, free heap {v}\n" for n, v in enumerate(values, 1))
    return (
        "ets Jul 29 2019 12:21:46\nrst:0x1 (POWERON_RESET),boot:0x13\nentry 0x400805f0\n"
        f"@@ every 4000\n{lines}@@ every 20\nabort() was called at PC 0x400dc1f3 on core 0\n"
        "Rebooting...\nets Jul 29 2019 12:21:46\nrst:0xc (SW_CPU_RESET),boot:0x13\n"
    )


def test_a_number_that_only_falls_until_the_fault_is_told_with_its_ends(tmp_path: Path) -> None:
    seen = explained(tmp_path, heap_log(HEAP))
    fell = claim(report_of(seen), "free heap fell from 120880 to 9212 without going back once")

    assert "free heap 120880" in cited(seen, fell)
    assert "free heap 9212" in cited(seen, fell)


@pytest.mark.parametrize(
    "values", [(120880, 98112, 99000, 53980, 9212), (120880, 119000, 118000, 117000), HEAP[:3]]
)
def test_a_number_that_goes_back_or_hardly_moves_is_no_trend(
    tmp_path: Path, values: tuple[int, ...]
) -> None:
    report = report_of(explained(tmp_path, heap_log(values)))

    assert not any("free heap" in c.claim for c in report.conclusions)


def test_next_steps_tell_the_open_causes_apart_and_leave_out_the_refuted(tmp_path: Path) -> None:
    beats = "".join(f"[   {n}.000000] canopend[288]: heartbeat {n}\n" for n in range(20, 60))
    report = report_of(explained(tmp_path, f"{booted()}{beats}{booted('WDOG')}"))
    steps = [step.text for step in report.next_steps]

    assert (
        "read the reset cause that the boot loader prints, and the watchdog's bootstatus" in steps
    )
    assert not any("other boards on the same supply" in text for text in steps)
    assert steps[-1].startswith("do not ")


def test_where_a_boot_parts_from_the_last_good_one_is_told_with_both_lines(tmp_path: Path) -> None:
    good = booted().replace("[    1.402210]", "[    1.1] mmc2: new HS400 MMC card\n[    1.402210]")
    bad = good.partition("[    1.1] mmc2")[0] + (
        "[    1.2] mmc2: error -84 whilst initialising MMC card\n"
        "[    2.6] Kernel panic - not syncing: VFS: Unable to mount root fs on unknown-block(0,0)\n"
    )
    seen = explained(tmp_path, f"{good}{REBOOT}{good}{REBOOT}{bad}")
    parted = claim(report_of(seen), "Where the last good boot went on with")

    assert "mmc2: new HS400" in cited(seen, parted)
    assert "error -84" in cited(seen, parted)
    assert parted.results


def test_the_first_report_does_not_wait_for_a_comparison(tmp_path: Path) -> None:
    seen = explained(tmp_path, f"{booted()}{REBOOT}{booted()}{OOPS}{GOES_ON}")
    assert seen.tools is not None

    assert "boot-compare" in {call.skill for call in seen.tools.calls}


def test_a_fault_always_after_the_same_words_is_told_so(tmp_path: Path) -> None:
    boot = "ets Jul 29 2019 12:21:46\nrst:0xf (RTCWDT_BROWN_OUT_RESET),boot:0x13\nentry 0x40080\n"
    once = f"{boot}I (4011) vent: motor on\nBrownout detector was triggered\n"
    first = once.replace("0xf (RTCWDT_BROWN_OUT_RESET)", "0x1 (POWERON_RESET)")
    seen = explained(tmp_path, first + once * 2 + boot)
    before = claim(report_of(seen), "Each time the last words before it were like .*motor on")

    assert cited(seen, before).count("motor on") >= 2


@pytest.mark.parametrize(
    ("gaps", "words"),
    [((60, 60, 60, 60), "at equal intervals"), ((40, 75, 52, 61), "at varying intervals")],
)
def test_restarts_are_called_regular_only_if_they_are(
    tmp_path: Path, gaps: tuple[int, ...], words: str
) -> None:
    boot = "\n\nU-Boot 2023.04 (May 02 2024 - 09:11:40 +0000)\nDRAM:  512 MiB\n"
    log = "".join(f"{boot}{LINUX}@@ wait {gap}\n[   55.1] canopend: beat\n" for gap in gaps)
    seen = explained(tmp_path, log + boot, "linux.unexpected_reboot")

    assert "U-Boot" in cited(seen, claim(report_of(seen), words))


def test_in_how_many_boots_and_how_regularly_a_fault_came_is_told(tmp_path: Path) -> None:
    faulty = f"{booted()}@@ wait 10\n{OOPS}{GOES_ON}@@ wait 400\n"
    healthy = f"{booted()}@@ wait 500\n"
    again = "root@heron:~# reboot\n[  410.420113] reboot: Restarting system\n"
    seen = explained(tmp_path, again.join([faulty, healthy, faulty, faulty]))
    report = report_of(seen)

    assert claim(report, "It came in 3 of 4 boots, this one included").results
    assert claim(report, r"It came 3 times, \d+\.\d to \d+\.\d s apart: irregular").results


def test_pasted_text_is_told_before_an_overrun(tmp_path: Path) -> None:
    paste = "".join(f"> export VAR{n}=/opt/bench/lib{n}\n" for n in range(6))
    overrun = "[   61.2] ttymxc0: 31 input overrun(s)\n"
    seen = explained(tmp_path, f"{booted()}@@ wait 30\n{paste}{overrun}{GOES_ON}")
    slowly = f"{booted()}@@ wait 30\n@@ every 4000\n{paste}{overrun}{GOES_ON}"
    by_hand = report_of(explained(tmp_path, slowly))

    assert "VAR5" in cited(seen, claim(report_of(seen), "faster than the board takes them"))
    assert not any("faster than the board takes them" in c.claim for c in by_hand.conclusions)


def test_words_that_somebody_typed_are_not_confirmed(tmp_path: Path) -> None:
    log = (
        f'{booted()}root@heron:~# echo "Kernel panic - not syncing: a test" > /dev/kmsg\n'
        f"[   60.2] Kernel panic - not syncing: a test\n{GOES_ON}"
    )
    seen = explained(tmp_path, log)
    report = report_of(seen)

    assert report.verdict == "likely"
    assert "echo" in cited(seen, claim(report, "holds the very words of this line: an echo"))


def test_boards_that_vanish_together_point_at_their_hub(tmp_path: Path) -> None:
    talk = "@@ at 20\n@@ every 1000\n@@ repeat 9 heartbeat {n}\n@@ at 30\n@@ lost\n"
    report = report_of(explained(tmp_path, talk, dut2=talk, dut3=talk))

    assert claim(report, r"It was not this board alone: dut\d, dut\d failed")
    assert any("the USB hub" in h.text for h in report.hypotheses)
    assert any("hang on one hub" in step.text for step in report.next_steps)


def test_a_supply_that_dips_on_a_board_beside_it_is_the_root(tmp_path: Path) -> None:
    esp = "ets Jul 29 2019 12:21:46\nrst:0x1 (POWERON_RESET),boot:0x13\nentry 0x400805f0\n"
    dips = f"{esp}@@ at 61.5\nBrownout detector was triggered\n{esp}"
    log = f"{booted()}@@ at 60\n[   44.1] canopend: beat\n@@ at 62\n{booted()}"
    seen = explained(tmp_path, log, "linux.unexpected_reboot", dut2=dips)
    report = report_of(seen)

    assert report.fault_class == "esp.brownout"
    assert "Brownout" in cited(seen, claim(report, "on dut2 came before"))
    assert any("measure the supply that these boards share" in s.text for s in report.next_steps)


def test_signs_in_pages_name_rules_that_exist() -> None:
    rules = load_rules([bundled_dir("config/rules")])
    known: set[Any] = {rule.id for rule in (*rules.rules, *rules.detectors)}
    pages = load_knowledge([bundled_dir("config/knowledge")]).pages.values()
    named = {(p.id, rule) for p in pages for cause in p.causes for rule in cause.rules}

    assert len(named) > 100
    assert {(page, rule) for page, rule in named if rule not in known} == set()
    assert {(page, rule) for page, rule in named if page == rule.replace(".", "/")} == set()


def test_a_crash_is_led_by_rules_that_exist_and_by_what_its_page_knows() -> None:
    rules = load_rules([bundled_dir("config/rules")])
    every = (*rules.rules, *rules.detectors)
    known = {x for each in every for x in (each.id, f"{each.id.partition('.')[0]}.*", "*")}
    errors = {rule.id for rule in rules.rules if rule.severity == "error"}
    pages = load_knowledge([bundled_dir("config/knowledge")])
    for rule in rules.rules:
        if rule.leads_after is None:
            continue
        assert set(rule.leads_after) <= known, rule.id
        page = pages.get(rule.knowledge)
        causes = [r for c in page.causes for r in c.rules] if page else []
        missing = [r for r in causes if r in errors and not is_any(r, rule.leads_after)]
        assert missing == [], rule.id
