from __future__ import annotations

from functools import cache
from pathlib import Path

import pytest

from serialwatch.bundled import bundled_dir
from serialwatch.records import Boot, Finding, Hit, Lines, PortState
from serialwatch.tomlfile import TomlError
from serialwatch.triggers.detectors.counter import Counters
from serialwatch.triggers.detectors.silence import Silence
from serialwatch.triggers.detectors.storm import LineRates
from serialwatch.triggers.matcher import Matcher
from serialwatch.triggers.rules import load_rules, parse_rules
from serialwatch.triggers.ruleset import SilenceDetector
from serialwatch.triggers.watch import PortWatch, WatchOptions

S = 1_000_000_000
ESP_ROM = "ets Jun  8 2016 00:22:57"
WATCHDOG = "rst:0x10 (RTCWDT_RTC_RESET),boot:0x13 (SPI_FAST_FLASH_BOOT)"
SLEEP = "rst:0x5 (DEEPSLEEP_RESET),boot:0x13 (SPI_FAST_FLASH_BOOT)"
SOFT = "rst:0xc (SW_CPU_RESET),boot:0x13 (SPI_FAST_FLASH_BOOT)"
U_BOOT = "U-Boot 2023.01 (Jun 22 2026 - 08:38:07 +0000)"
KERNEL = "[    0.000000] Linux version 6.1.20 (build@host) #1 SMP"
INIT = "[    2.500000] Run /sbin/init as init process"
LOGIN = "board login: "
ZEPHYR = "*** Booting Zephyr OS build v3.4.0 ***"
UNPLUGGED = "hung up"
THIEF = "ready, but nothing to read: second reader? (`fuser -v /dev/ttyUSB0` names it)"
OWN = r"""
[[rule]]
id = "mine.retry"
title = "pump {n} is tried again"
severity = "warning"
match = 'pump \d+ again'
fields = 'pump (?P<n>\d+)'

[[detector]]
id = "mine.retries"
kind = "rate"
severity = "error"
rules = ["mine.retry"]
hits = 5
in_s = 10

[[detector]]
id = "mine.no_answer"
kind = "expect"
severity = "error"
title = "the modem does not answer"
after = ['AT> ', 'at> ']
match = ['^OK']
within_s = 5

[[detector]]
id = "mine.supply"
kind = "gauge"
severity = "warning"
name = "supply_volts"
unit = "V"
match = ['vdd=\d']
fields = 'vdd=(?P<value>[\d.e]+)'
above = 3.6
below = 3.0
readings = 2

[[boot]]
ecosystem = "mine"
match = ['^MINE ROM']
stage = 1
"""


@cache
def bundled() -> Matcher:
    return Matcher(load_rules([bundled_dir("config/rules")]))


class Bench:
    """One port with a clock; keeps what the detectors told."""

    def __init__(self, options: WatchOptions | None = None, matcher: Matcher | None = None) -> None:
        self.watch = PortWatch("dut1", matcher or bundled(), options)
        self.now = 1000 * S
        self.seq = 1
        self.found: list[Finding] = []

    def says(self, *lines: str, after_s: float = 0.0) -> Bench:
        self.now += round(after_s * S)
        text = "".join(f"{line}\r\n" for line in lines).encode()
        self.found += self.watch.fed(Lines(self.seq, len(lines), text, self.now, self.now))
        self.seq += len(lines)
        return self

    def prompts(self, text: str) -> Bench:
        self.found += self.watch.partial(self.seq, text.encode(), self.now, self.now)
        return self

    def waits(self, seconds: float) -> Bench:
        end = self.now + round(seconds * S)
        while self.now < end:
            self.now += S // 10
            self.found += self.watch.tick(self.now, self.now)
        return self

    def is_port(self, state: PortState, problem: str = "", device: str = "/dev/ttyUSB0") -> Bench:
        self.found += self.watch.port_state(state, problem, device, self.now, self.now)
        return self

    def counts(self, after_s: float = 1.0, **counters: int) -> Bench:
        self.now += round(after_s * S)
        self.found += self.watch.counters(Counters(**counters), self.now, self.now)
        return self

    def talks(self, seconds: int, every_s: float = 1.0) -> Bench:
        for number in range(round(seconds / every_s)):
            self.says(f"sensor {number}: 23.4 C").waits(every_s)
        return self

    def hits(self, trigger: str) -> list[Hit]:
        return [f for f in self.found if isinstance(f, Hit) and f.trigger == trigger]


# UART counters


def test_an_overrun_is_told_with_its_number_and_no_line() -> None:
    bench = Bench().says("x").counts(overrun=4).counts(overrun=4).counts(overrun=7)
    hit = bench.hits("link.rx_overrun_host")[0]

    assert (hit.severity, hit.seq, hit.title) == (
        "warning",
        0,
        "the PC's UART counted 3 receive overruns in 10 s",
    )
    assert hit.fields["overrun"] == "3"
    assert hit.knowledge == "link/rx_overrun_host"


def test_the_first_values_are_the_base_and_a_smaller_value_begins_anew() -> None:
    bench = Bench().counts(overrun=50).counts(overrun=2).counts(overrun=2)

    assert bench.hits("link.rx_overrun_host") == []
    assert len(bench.counts(overrun=3).hits("link.rx_overrun_host")) == 1


def test_an_unsupported_counter_never_fires() -> None:
    bench = Bench()
    for _ in range(5):
        bench.counts()

    assert bench.found == []
    assert bench.counts(overrun=900).counts().counts(overrun=1900).found == []


def test_a_rise_that_goes_on_is_told_now_and_then_and_becomes_an_error() -> None:
    bench = Bench().counts(overrun=0)
    for total in range(1, 31):
        bench.counts(overrun=total)
    severities = [hit.severity for hit in bench.hits("link.rx_overrun_host")]

    assert severities[0] == "warning"
    assert severities[1] == "error", "at once when more than 10 a minute"
    assert len(severities) <= 4


def test_two_framing_errors_are_a_glitch_and_three_in_ten_seconds_are_not() -> None:
    glitches = Bench().counts(framing=0, breaks=0).counts(framing=2, breaks=0)
    slow = glitches.counts(after_s=11, framing=4, breaks=0)

    assert slow.hits("link.framing_errors") == []
    hit = glitches.counts(framing=4, breaks=1).hits("link.framing_errors")[0]
    assert hit.title == "the PC's UART counted 2 framing errors and 1 break in 10 s"


def test_line_noise_right_after_a_start_or_an_open_is_natural_but_an_overrun_is_not() -> None:
    bench = Bench().counts(framing=0, overrun=0).says(U_BOOT)
    bench.counts(after_s=1, framing=9, overrun=1)

    assert bench.hits("link.framing_errors") == []
    assert len(bench.hits("link.rx_overrun_host")) == 1
    bench.watch.opened(bench.now)
    bench.counts(framing=90, overrun=1).counts(after_s=0.5, framing=95, overrun=1)
    assert bench.hits("link.framing_errors") == []
    assert bench.counts(after_s=3, framing=99, overrun=1).hits("link.framing_errors")


# Boot loops


def test_three_unexpected_starts_in_two_minutes_are_a_loop_told_once() -> None:
    bench = Bench()
    for _ in range(6):
        bench.says(ESP_ROM, "", WATCHDOG, "invalid header: 0xffffffff", after_s=1)
    loop = bench.hits("boot.loop")

    assert len(loop) == 1
    assert (loop[0].severity, loop[0].seq, loop[0].block_first) == ("critical", 9, 1)
    assert loop[0].title == (
        "the board restarts over and over: 3 starts in 2 s, after a watchdog reset"
    )
    assert loop[0].fields["cause"] == "watchdog"


def test_the_loop_itself_is_no_crash_that_explains_the_next_start() -> None:
    bench = Bench()
    for _ in range(6):
        bench.says(U_BOOT, "x", after_s=5).waits(1)

    assert {f.cause for f in bench.found if isinstance(f, Boot)} == {"unknown"}


def test_a_loop_that_stopped_and_comes_back_is_told_again() -> None:
    bench = Bench()
    for pause_s in (1, 1, 1, 600, 1, 1):
        bench.says(ESP_ROM, WATCHDOG, after_s=pause_s)

    assert [hit.boot for hit in bench.waits(1).hits("boot.loop")] == [3, 6]


def test_other_rules_do_not_forget_the_starts_of_a_loop() -> None:
    bench = Bench()
    for _ in range(6):
        bench.says(ESP_ROM, WATCHDOG, after_s=1)
        bench.watch.swap(bundled())

    assert [hit.boot for hit in bench.hits("boot.loop")] == [3]


def test_a_banner_that_comes_again_is_a_start_under_other_rules_as_well(tmp_path: Path) -> None:
    def rules(*names: str) -> Matcher:
        told = "[[boot]]\necosystem = \"mine\"\nmatch = ['^{} ROM']\nstage = 1\n"
        (tmp_path / "mine.toml").write_text("".join(told.format(name) for name in names))
        return Matcher(load_rules([tmp_path]))

    bench = Bench(matcher=rules("MINE"))
    bench.says("MINE ROM", "x", after_s=8)
    bench.watch.swap(rules("AAA", "MINE"))
    bench.says("MINE ROM", "x", after_s=8)
    assert bench.watch.boot == 2

    bench.watch.swap(rules("AAA"))  # the number that MINE had stands for another banner now
    bench.watch.swap(rules("AAA", "MINE"))
    bench.says("AAA ROM", after_s=8)
    assert bench.watch.boot == 2
    bench.says("AAA ROM", after_s=8)
    assert bench.watch.boot == 3


def test_in_a_saved_log_a_loop_is_seen_by_its_lines() -> None:
    near, far = Bench(), Bench()
    for _ in range(3):
        near.says(ESP_ROM, WATCHDOG, *["x"] * 100)
        far.says(ESP_ROM, WATCHDOG, *["x"] * 5000)

    assert near.hits("boot.loop")[0].title.startswith(
        "the board restarts over and over: 3 starts in 205 lines"
    )
    assert far.hits("boot.loop") == []


def test_deep_sleep_cycles_and_commanded_restarts_are_no_loop() -> None:
    sleeping, commanded, flashed = Bench(), Bench(), Bench()
    for _ in range(8):
        sleeping.says("Entering deep sleep").says(ESP_ROM, SLEEP, after_s=5)
        commanded.says("reboot: Restarting system").says(U_BOOT, after_s=5)
        flashed.watch.marked("flash", flashed.now)
        flashed.says(ESP_ROM, WATCHDOG, after_s=5)

    for bench in (sleeping, commanded, flashed):
        assert bench.watch.boot == 8
        assert bench.hits("boot.loop") == []


def test_a_program_that_restarts_itself_over_and_over_is_a_loop() -> None:
    bench = Bench()
    for _ in range(3):
        bench.says(ESP_ROM, SOFT, "I (90) app: no network, restarting", after_s=8)

    assert "after a reset by its own software" in bench.hits("boot.loop")[0].title


def test_slow_starts_in_a_row_that_never_get_ready_are_a_loop() -> None:
    never, ready = Bench(), Bench()
    for _ in range(3):
        never.says(U_BOOT, after_s=100).waits(1)
        ready.says(U_BOOT, after_s=100).waits(1).says("board login: ")

    assert len(never.hits("boot.loop")) == 1
    assert ready.hits("boot.loop") == []


# Storms


def storm(bench: Bench, line: str, per_s: int, seconds: int) -> Bench:
    for number in range(per_s * seconds):
        bench.says(line.format(number), after_s=1 / per_s)
    return bench.waits(1.2)


def test_one_line_over_and_over_is_a_storm_told_once() -> None:
    bench = storm(Bench(), "pump: dry run, pressure {} at 0x3ffb12c0", per_s=90, seconds=8)
    hits = bench.hits("rate.flood")

    assert len(hits) == 1
    assert hits[0].severity == "warning"
    assert hits[0].title.startswith("one line 9")
    assert "times a second: pump: dry run, pressure" in hits[0].title
    assert hits[0].raw.startswith(b"pump: dry run")
    assert 0 < hits[0].block_first <= hits[0].seq


@pytest.mark.parametrize(("per_s", "seconds"), [(40, 8), (90, 2)])
def test_too_slow_or_too_short_is_no_storm(per_s: int, seconds: int) -> None:
    assert storm(Bench(), "pump: dry run {}", per_s, seconds).hits("rate.flood") == []


def test_many_lines_of_many_shapes_are_no_storm() -> None:
    words = [f"{chr(97 + a)}{chr(97 + b)}ore probe" for a in range(26) for b in range(26)]
    bench = Bench(WatchOptions(bit_rate=9600))
    for number in range(900):
        bench.says(f"{words[number % 676]} of driver", after_s=0.01)

    assert bench.waits(2).hits("rate.flood") == []


@pytest.mark.parametrize("lines_a_chunk", [1, 3, 7, 50, 100])
def test_the_line_of_a_storm_is_named_however_lines_come_in_chunks(lines_a_chunk: int) -> None:
    lines = [
        b"pump %d is dry\n" % n if n % 3 else b"valve %c\n" % (97 + n % 26) for n in range(100)
    ]
    rates = LineRates()
    for first in range(0, len(lines), lines_a_chunk):
        chunk = lines[first : first + lines_a_chunk]
        rates.fed(first + 1, len(chunk), b"".join(chunk), 5 * S)
    second = rates.tick(6 * S)

    assert second
    assert (second.line, second.seq, second.shape) == (b"pump 8 is dry", 9, b"pump # is dry")
    assert second.rx_bytes == sum(map(len, lines))


def test_a_slow_port_full_of_one_line_is_a_storm() -> None:
    line = "pump: dry run, pressure {} is far below the limit of the supervisor, valve closed"
    bench = storm(Bench(WatchOptions(bit_rate=9600)), line, per_s=11, seconds=8)

    assert "of the bit rate" in bench.hits("rate.flood")[0].title


def test_a_storm_after_a_flash_is_expected() -> None:
    bench = Bench()
    bench.watch.marked("flash", bench.now)

    assert storm(bench, "erasing sector {}", per_s=90, seconds=8).hits("rate.flood") == []


# Interrupt storms


def test_a_counter_that_the_board_prints_and_that_rises_too_fast_is_a_storm() -> None:
    bench = Bench().says("irq 37: 1234567", after_s=1).says("irq 37: 1279567", after_s=1)
    hit = bench.hits("rate.interrupt_storm")[0]

    assert (hit.title, hit.key, hit.seq, hit.block_first) == (
        "interrupt 37 fires 45,000 times a second",
        "37",
        2,
        1,
    )
    assert hit.severity == "error"
    assert hit.raw == b"irq 37: 1279567"


def test_the_columns_of_proc_interrupts_are_added_up() -> None:
    def table(count: int) -> list[str]:
        return [
            "           CPU0       CPU1",
            f" 37:   {count}     {count}   GICv2  65 Level     uart-pl011",
            " 38:     1200          0   GICv2  66 Level     eth0",
            "IPI0:      4711       4712  Rescheduling interrupts",
        ]

    bench = Bench().says(*table(100_000), after_s=5).says(*table(115_000), after_s=1)

    assert [hit.key for hit in bench.hits("rate.interrupt_storm")] == ["37"]
    slow = Bench().says(*table(100_000), after_s=5).says(*table(115_000), after_s=10)
    assert slow.hits("rate.interrupt_storm") == []


def test_the_boards_own_clock_measures_better_than_ours() -> None:
    bench = Bench().says("[   10.000000] irq 5: 100000", "[   11.000000] irq 5: 150000")

    assert bench.hits("rate.interrupt_storm")[0].fields["per_s"] == "50000"


def test_ten_times_the_usual_rate_is_a_storm_too() -> None:
    bench = Bench()
    for count in (1000, 1300, 1600, 5600):
        bench.says(f"irq 9: {count}", after_s=1)

    assert "fires 4,000 times a second, 300 before" in bench.hits("rate.interrupt_storm")[0].title


def test_a_counter_that_went_back_or_is_read_twice_at_once_says_nothing() -> None:
    bench = Bench().says("irq 9: 900000").says("irq 9: 100", after_s=1).says("irq 9: 90000")

    assert bench.hits("rate.interrupt_storm") == []


def test_one_line_about_an_interrupt_over_and_over_is_an_interrupt_storm() -> None:
    bench = storm(Bench(), "gpio7: spurious irq, count {}", per_s=90, seconds=6)

    assert len(bench.hits("rate.interrupt_storm")) == 1
    assert bench.hits("rate.flood") == []


def test_a_kernel_message_that_comes_again_and_again_feeds_the_detector() -> None:
    line = "[  100.000000] serial8250: too much work for irq4"
    once, often = Bench().says(line), Bench().says(line, after_s=1).says(line, after_s=1)

    assert once.hits("rate.interrupt_storm") == []
    hit = often.says(line, after_s=1).hits("rate.interrupt_storm")[0]
    assert (hit.severity, hit.key, hit.seq) == ("warning", "4", 3)


# Silence


def test_a_board_that_was_talking_and_stops_is_silent_once() -> None:
    bench = Bench().talks(150).waits(90)
    hits = bench.hits("link.silence")

    assert len(hits) == 1
    assert hits[0].severity == "warning"
    assert hits[0].seq == bench.seq - 1
    assert hits[0].title == "no line for 30 s from a board that was talking"


def test_a_silence_of_months_in_a_saved_log_is_not_told_in_seconds() -> None:
    told = bundled().ruleset.detector("link.silence")
    assert isinstance(told, SilenceDetector)
    silence = Silence(told)
    for second in range(150):
        silence.heard(second * S)

    fault = silence.judge(b"meter 3: 21.4", 150, (149 + 5_198_400) * S)
    assert fault
    assert fault.title == "no line for 60 d 4 h from a board that was talking"


def test_ten_times_the_usual_pause_is_waited_for() -> None:
    bench = Bench().talks(400, every_s=8.0).waits(70)

    assert bench.hits("link.silence") == []
    assert len(bench.waits(20).hits("link.silence")) == 1


def test_speaking_again_ends_a_silence_and_the_next_one_counts_anew() -> None:
    bench = Bench().talks(150).waits(40).talks(150).waits(400)

    assert len(bench.hits("link.silence")) == 2


def test_a_board_that_never_talked_much_is_not_silent() -> None:
    assert Bench().says("hello").waits(600).hits("link.silence") == []
    assert Bench().says(U_BOOT, *["x"] * 500).waits(600).hits("link.silence") == []
    assert Bench().waits(600).found == []


@pytest.mark.parametrize(
    "last",
    [
        "Starting kernel ...",
        "[    0.000000] Booting Linux on physical CPU 0x0",
        "entry 0x400805f0",
        "[   12.345678] ",
        "[    2.500000] Run /sbin/init as init process",
    ],
)
def test_after_some_lines_nobody_stays_silent(last: str) -> None:
    bench = Bench().says(U_BOOT, last).waits(40)
    hit = bench.hits("link.silence")[0]

    assert (hit.severity, hit.seq) == ("error", 2)
    assert hit.title.startswith("the board went silent after: ")


def test_a_stamp_without_text_at_the_end_is_a_sign_of_death() -> None:
    assert Bench().says(U_BOOT, "x").prompts("[   12.345678] ").waits(40).hits("link.silence")


@pytest.mark.parametrize(
    "line",
    [
        "reboot: Power down",
        "reboot: System halted",
        "Entering deep sleep",
        "reboot: Restarting system",
    ],
)
def test_silence_that_was_announced_is_expected(line: str) -> None:
    assert Bench().talks(150).says(line).waits(600).hits("link.silence") == []


@pytest.mark.parametrize("prompt", ["root@dut:~# ", "=> ", "board login: ", "odd-shell$ "])
def test_a_board_that_waits_for_a_person_is_not_silent(prompt: str) -> None:
    assert Bench().talks(150).prompts(prompt).waits(600).hits("link.silence") == []


def test_a_fault_explains_the_silence_behind_it() -> None:
    bench = (
        Bench().talks(150).says("Kernel panic - not syncing: x", "Run /sbin/init as init process")
    )

    assert bench.waits(600).hits("link.silence") == []


def test_a_fault_that_a_board_got_over_explains_no_silence() -> None:
    bench = Bench().talks(150).says("Kernel panic - not syncing: x").talks(90, every_s=2.0)

    assert len(bench.waits(600).hits("link.silence")) == 1


def test_a_port_that_is_gone_is_not_silent() -> None:
    bench = Bench().talks(150)
    bench.watch.lost(bench.now)

    assert bench.waits(600).hits("link.silence") == []


def test_silence_after_a_reset_mark_is_expected() -> None:
    bench = Bench().talks(150)
    bench.watch.marked("reset", bench.now)

    assert bench.waits(29).hits("link.silence") == []


# Starts that nobody wanted


def linux(bench: Bench, up_s: float = 100.0) -> Bench:
    return bench.says(U_BOOT, KERNEL, INIT, LOGIN, "x", after_s=1).waits(up_s)


def test_linux_that_starts_anew_without_a_word_is_told_with_its_last_line() -> None:
    bench = linux(Bench()).says("[  101.500000] eth0: link up").says(U_BOOT, after_s=1).waits(1)
    hits = bench.hits("linux.unexpected_reboot")

    assert [(hit.severity, hit.seq, hit.key) for hit in hits] == [("error", 7, "unknown")]
    assert hits[0].title == "the board restarted while it was running: no reason is printed"
    assert hits[0].fields["last_line"] == "[  101.500000] eth0: link up"
    assert bench.hits("boot.unexpected_reboot") == []


def test_a_kernel_that_is_reset_while_it_boots_is_told_too() -> None:
    bench = Bench().says(U_BOOT, KERNEL).says(U_BOOT, "Reset cause: WDOG", after_s=4).waits(1)

    assert "a watchdog reset" in bench.hits("linux.unexpected_reboot")[0].title


@pytest.mark.parametrize(
    "line",
    ["reboot: Restarting system", "Kernel panic - not syncing: x", "Requesting system reboot"],
)
def test_a_restart_that_was_announced_or_follows_a_crash_is_not_unexpected(line: str) -> None:
    bench = linux(Bench()).says(line).says(U_BOOT, after_s=5).waits(1)

    assert [h for h in bench.found if isinstance(h, Hit) and "unexpected" in h.trigger] == []


@pytest.mark.parametrize(
    ("runs", "halts"),
    [
        (
            [U_BOOT, KERNEL, INIT, LOGIN],
            "---[ end Kernel panic - not syncing: Fatal exception ]---",
        ),
        ([U_BOOT], "### ERROR ### Please RESET the board ###"),
        (["*** Booting Zephyr OS build v3.6.0 ***"], "E: Halting system"),
        ([ESP_ROM], "CPU halted."),
    ],
)
def test_a_board_that_had_halted_was_not_running_when_it_starts_again(
    runs: list[str], halts: str
) -> None:
    fault = "Kernel panic - not syncing: Fatal exception" if INIT in runs else "x"
    bench = Bench().says(*runs).waits(40).says(fault, halts).waits(900)
    bench.says(runs[0], after_s=1).waits(1)

    assert len([found for found in bench.found if isinstance(found, Boot)]) == 2
    assert [h for h in bench.found if isinstance(h, Hit) and "unexpected" in h.trigger] == []


def test_a_reset_or_flash_mark_a_new_open_or_a_typed_reset_explains_a_start() -> None:
    marked, opened, typed, first = (linux(Bench()) for _ in range(4))
    marked.watch.marked("reset", marked.now)
    opened.watch.opened(opened.now)
    typed.watch.wrote(b"reboot\n", typed.now)
    for bench in (marked, opened, typed):
        assert bench.says(U_BOOT, after_s=2).waits(1).hits("linux.unexpected_reboot") == []

    assert first.hits("linux.unexpected_reboot") == [], "the first start ends no run that was seen"


def test_a_loader_that_starts_again_was_running_nothing() -> None:
    bench = Bench().says(U_BOOT).says(U_BOOT, after_s=60).waits(1)

    assert bench.hits("linux.unexpected_reboot") == []


def test_a_microcontroller_that_ran_for_a_while_and_starts_anew_is_told() -> None:
    bench = Bench().says(ZEPHYR).waits(40).says(ZEPHYR).waits(1)

    assert [hit.seq for hit in bench.hits("boot.unexpected_reboot")] == [2]


def test_a_start_so_soon_that_it_never_ran_or_by_a_finger_on_reset_is_not_told() -> None:
    soon = Bench().says(ZEPHYR).waits(20).says(ZEPHYR).waits(1)
    button = Bench().says(ESP_ROM).waits(40)
    button.says(ESP_ROM, "rst:0x1 (POWERON_RESET),boot:0x13 (SPI_FAST_FLASH_BOOT)").waits(1)

    assert soon.hits("boot.unexpected_reboot") == []
    assert button.hits("boot.unexpected_reboot") == []


# Boots that do not end


def boots(bench: Bench, times: int = 2, took_s: float = 30.0) -> Bench:
    for _ in range(times):
        bench.says(U_BOOT, KERNEL, INIT, after_s=1).waits(took_s).says(LOGIN)
        bench.says("reboot: Restarting system", after_s=5)
    return bench


def test_a_kernel_that_does_not_come_to_user_space_is_not_finished_after_three_minutes() -> None:
    bench = Bench().says(U_BOOT, KERNEL, "[    1.0] Waiting for root device...").waits(179)
    assert bench.hits("boot.not_finished") == []

    hits = bench.waits(300).hits("boot.not_finished")
    assert [(hit.severity, hit.seq, hit.block_first) for hit in hits] == [("error", 3, 1)]
    assert hits[0].title == "the boot is not finished after 3 min"
    assert hits[0].raw == b"[    1.0] Waiting for root device..."


def test_three_times_the_boards_own_time_is_waited_for_once_it_is_known() -> None:
    bench = boots(Bench()).says(U_BOOT, KERNEL, INIT, "[   3.1] net: waiting", after_s=5)

    assert bench.waits(89).hits("boot.not_finished") == []
    hit = bench.waits(2).hits("boot.not_finished")[0]
    assert hit.title == "the boot is not finished after 1 min 30 s, 30 s as a rule"


def test_what_earlier_runs_learned_of_a_board_counts() -> None:
    watch = PortWatch("dut1", bundled(), boots_took_s=[24.0, 25.0, 40.0])
    bench = Bench()
    bench.watch = watch
    bench.says(U_BOOT, KERNEL, INIT)

    assert bench.waits(119).hits("boot.not_finished") == []
    assert "40 s as a rule" in bench.waits(2).hits("boot.not_finished")[0].title


def test_a_board_that_never_shows_a_ready_line_is_not_expected_to() -> None:
    bench = Bench().says(U_BOOT, KERNEL, INIT, "app: started").waits(600)

    assert bench.hits("boot.not_finished") == []
    assert Bench().says(ZEPHYR, "app: started").waits(600).hits("boot.not_finished") == []


def test_a_fault_a_person_at_the_prompt_a_shutdown_or_a_lost_port_explains_an_unfinished_boot() -> (
    None
):
    faulty, stopped, down, lost, flashed = (boots(Bench()).says(U_BOOT, KERNEL) for _ in range(5))
    faulty.says("[    2.0] Kernel panic - not syncing: x")
    stopped.prompts("=> ")
    down.says("reboot: System halted")
    lost.watch.lost(lost.now)
    flashed.watch.marked("flash", flashed.now)

    for bench in (faulty, stopped, down, lost):
        assert bench.waits(600).hits("boot.not_finished") == []
    assert flashed.waits(119).hits("boot.not_finished") == []


def test_a_kernel_that_a_person_starts_at_the_prompt_must_get_ready_all_the_same() -> None:
    bench = Bench().says(U_BOOT).prompts("=> ").waits(600).says("=> boot", KERNEL).waits(181)

    assert bench.hits("boot.not_finished")[0].title == "the boot is not finished after 3 min"


# Hits, answers and numbers of one's own


def own() -> Bench:
    return Bench(matcher=Matcher(parse_rules(OWN)))


def test_a_rule_that_hits_too_often_is_a_fault_of_its_own() -> None:
    slow, fast = own(), own()
    for number in range(12):
        slow.says(f"pump {number} again", after_s=3)
        fast.says(f"pump {number} again", after_s=1)
    hits = fast.hits("mine.retries")

    assert slow.hits("mine.retries") == []
    assert [(hit.seq, hit.block_first, hit.severity) for hit in hits] == [
        (5, 1, "error"),
        (10, 6, "error"),
    ]
    assert hits[0].title == "5 times in 10 s: pump 4 is tried again"


def test_a_rate_of_a_rule_that_does_not_exist_is_a_problem() -> None:
    with pytest.raises(TomlError, match=r"detector mine\.retries .*mine\.other is no rule"):
        parse_rules(OWN.replace('rules = ["mine.retry"]', 'rules = ["mine.other"]'))


def test_what_does_not_follow_in_time_is_told_once_at_the_line_that_asked() -> None:
    bench = own().says("x", "AT> CSQ").waits(4)
    assert bench.hits("mine.no_answer") == []

    hits = bench.waits(60).hits("mine.no_answer")
    assert [(hit.title, hit.seq, hit.raw) for hit in hits] == [
        ("the modem does not answer", 2, b"AT> CSQ")
    ]


def test_an_answer_in_time_or_a_new_start_ends_the_wait_and_a_late_answer_does_not() -> None:
    good = own().says("AT> CSQ").says("OK", after_s=4).waits(60)
    late = own().says("AT> CSQ").says("OK", after_s=6).waits(60)
    started = own().says("AT> CSQ").says("MINE ROM", after_s=1).waits(60)
    twice = own().says("AT> A", "at> B").says("OK", after_s=2).waits(60)

    assert [len(b.hits("mine.no_answer")) for b in (good, late, started, twice)] == [0, 1, 0, 0]


def test_a_number_beyond_its_limit_is_told_once_until_it_is_good_again() -> None:
    bench = own().says("vdd=3.30").says("vdd=2.91", after_s=1)
    assert bench.hits("mine.supply") == [], "one reading may be a glitch"

    bench.says("vdd=2.89", "vdd=2.80", after_s=1)
    hits = bench.hits("mine.supply")
    assert [(hit.title, hit.seq, hit.block_first) for hit in hits] == [
        ("supply_volts is 2.89 V, below 3 V", 3, 2)
    ]
    assert bench.watch.gauges == {"mine.supply": 2.8}
    bench.says("vdd=3.3", "vdd=3.7", "vdd=3.8", after_s=1)
    assert [hit.fields["limit"] for hit in bench.hits("mine.supply")] == ["below 3", "above 3.6"]


@pytest.mark.parametrize("text", ["vdd=1e999", "vdd=3.3.3", "vdd=5e", "vdd=" + "9" * 400])
def test_what_is_no_number_is_no_reading(text: str) -> None:
    bench = own().says(text, text)

    assert (bench.watch.gauges, bench.hits("mine.supply")) == ({}, [])


def test_own_detectors_are_quiet_after_a_flash() -> None:
    bench = own()
    bench.watch.marked("flash", bench.now)
    bench.says("vdd=1", "vdd=1", "AT> X", *["pump 1 again"] * 6).waits(60)

    assert [f.trigger for f in bench.found if isinstance(f, Hit)] == ["mine.retry"] * 6


@pytest.mark.parametrize(
    ("before", "after", "problem"),
    [
        ("(?P<value>", "(?P<volts>", "`fields` must have a group"),
        ("below = 3.0", "below = 3.6", "`below` must be less than `above`"),
        ("within_s = 5", "within_s = 0", "within_s"),
        ('name = "supply_volts"', 'name = "Supply volts"', "name"),
    ],
)
def test_a_detector_that_cannot_work_is_refused(before: str, after: str, problem: str) -> None:
    with pytest.raises(TomlError) as told:
        parse_rules(OWN.replace(before, after))

    assert problem in str(told.value)


# The port itself


def tty(state: PortState = "up", device: str = "/dev/ttyUSB0") -> Bench:
    return Bench(WatchOptions(bit_rate=115200, can_vanish=True)).is_port(state, device=device)


def port_hits(bench: Bench) -> list[tuple[str, str]]:
    return [(f.trigger, f.severity) for f in bench.found if isinstance(f, Hit)]


def test_an_adapter_that_vanishes_from_a_talking_board_is_told_once() -> None:
    bench = tty().says("x", after_s=9).is_port("absent", UNPLUGGED, "").waits(1)
    assert port_hits(bench) == []

    bench.waits(60).is_port("absent", "no such file", "").waits(600)
    hit = bench.hits("link.port_vanished")[0]
    assert port_hits(bench) == [("link.port_vanished", "warning")]
    assert (hit.title, hit.seq) == ("the serial adapter vanished and was not back 2 s later", 1)
    assert hit.fields == {"problem": UNPLUGGED, "device": "/dev/ttyUSB0", "gone_s": "2.0"}


def test_native_usb_that_goes_and_comes_back_is_a_reset_of_the_board() -> None:
    bench = tty(device="/dev/ttyACM3").waits(900).is_port("absent", UNPLUGGED, "").waits(0.8)
    hit = bench.is_port("up", device="/dev/ttyACM3").hits("link.port_vanished")[0]

    assert hit.severity == "warning", "though it was silent"
    assert hit.title == "the board's own USB vanished and came back 0.8 s later"


def test_an_adapter_of_a_board_that_was_silent_is_only_noted() -> None:
    bench = tty().says("x").waits(90).is_port("absent", UNPLUGGED, "").waits(9)

    assert port_hits(bench) == [("link.port_vanished", "note")]


def test_a_server_that_is_gone_is_no_adapter_that_vanished() -> None:
    bench = tty(device="rfc2217://lab2:3001").says("x", after_s=9)
    bench.is_port("absent", "the peer closed the connection", "").waits(60)

    hit = bench.hits("link.port_vanished")[0]
    assert hit.title == "the connection to the port's server was lost and was not back 2 s later"


def test_a_raw_connection_has_no_bit_rate_and_is_missed_all_the_same() -> None:
    bench = Bench(WatchOptions(can_vanish=True)).is_port("up", device="socket://lab2:3001")
    bench.says("x", after_s=9).is_port("absent", "the far end closed the connection", "").waits(1)
    bench.is_port("up", device="socket://lab2:3001")

    hit = bench.hits("link.port_vanished")[0]
    assert hit.title == "the connection to the port's server was lost and came back 1 s later"
    assert (hit.severity, hit.fields["device"]) == ("warning", "socket://lab2:3001")


def test_a_released_port_that_comes_and_goes_has_not_vanished() -> None:
    bench = tty().says("x", after_s=9).is_port("released", "lent to jo", "").waits(60)
    bench.is_port("opening", "", "").is_port("absent", UNPLUGGED, "").waits(60)

    assert port_hits(bench) == []


def test_a_port_that_was_never_there_or_leaves_on_purpose_has_not_vanished() -> None:
    never = tty("absent").waits(9).is_port("busy", "in use").waits(9)
    down = tty().says("reboot: Power down").is_port("absent", UNPLUGGED, "").waits(9)
    flashed = tty().says("x")
    flashed.watch.marked("flash", flashed.now)
    flashed.is_port("absent", UNPLUGGED, "").waits(9)
    released = tty().says("x").is_port("released").waits(9)
    program = Bench().is_port("up").says("x").is_port("absent", "ended: 0").waits(9)

    for bench in (never, down, flashed, released, program):
        assert port_hits(bench) == []


def test_flapping_is_told_when_the_reader_says_so_and_again_only_after_it_was_steady() -> None:
    bench = tty().says("x").is_port("flapping", "hung up: 10 times within 30 s")
    bench.waits(5).is_port("flapping", "hung up: 10 times within 30 s").waits(60)
    assert port_hits(bench) == [("link.flapping", "error")]

    bench.is_port("up").is_port("flapping", "hung up: 10 times within 30 s")
    assert len(bench.hits("link.flapping")) == 2


def test_a_second_reader_is_named_and_is_neither_a_vanished_port_nor_garbage() -> None:
    bench = tty().says("x").is_port("absent", THIEF, "").waits(0.3).is_port("up").waits(9)

    assert port_hits(bench) == [("link.second_reader", "error")]
    assert "fuser -v /dev/ttyUSB0" in bench.hits("link.second_reader")[0].fields["problem"]


STOPPED = "Hit any key to stop autoboot:  3 \b\b\b 2 "
RAN_OUT = "Hit any key to stop autoboot:  2 \b\b\b 1 \b\b\b 0 "


def test_autoboot_that_stops_after_an_open_without_a_key_is_told() -> None:
    bench = tty().says(U_BOOT, "DRAM:  1 GiB", STOPPED, after_s=1).prompts("=> ")
    bench.says("=> help", STOPPED, after_s=1)  # once an open

    assert [(hit.severity, hit.seq, hit.title) for hit in bench.hits("link.autoboot_stopped")] == [
        ("warning", 3, "autoboot was stopped 1 s after the port was opened, and nobody typed")
    ]


@pytest.mark.parametrize(
    ("line", "after_s", "typed"),
    [(RAN_OUT, 1, b""), (STOPPED, 11, b""), (STOPPED, 1, b" ")],
    ids=["ran out", "long after the open", "somebody typed"],
)
def test_autoboot_that_runs_or_is_stopped_by_somebody_is_no_fault(
    line: str, after_s: float, typed: bytes
) -> None:
    bench = tty()
    if typed:
        bench.watch.wrote(typed, bench.now)
    bench.says(U_BOOT, line, after_s=after_s)

    assert bench.hits("link.autoboot_stopped") == []


def test_other_rules_do_not_make_the_port_forget_its_state() -> None:
    bench = tty().says("x")
    bench.watch.swap(bundled())
    bench.is_port("absent", UNPLUGGED, "").waits(9)

    assert port_hits(bench) == [("link.port_vanished", "warning")]
