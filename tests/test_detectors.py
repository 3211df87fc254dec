from __future__ import annotations

from functools import cache

import pytest

from serialwatch.bundled import bundled_dir
from serialwatch.records import Boot, Finding, Hit, Lines
from serialwatch.triggers.detectors.counter import Counters
from serialwatch.triggers.matcher import Matcher
from serialwatch.triggers.rules import load_rules
from serialwatch.triggers.watch import PortWatch, WatchOptions

S = 1_000_000_000
ESP_ROM = "ets Jun  8 2016 00:22:57"
WATCHDOG = "rst:0x10 (RTCWDT_RTC_RESET),boot:0x13 (SPI_FAST_FLASH_BOOT)"
SLEEP = "rst:0x5 (DEEPSLEEP_RESET),boot:0x13 (SPI_FAST_FLASH_BOOT)"
SOFT = "rst:0xc (SW_CPU_RESET),boot:0x13 (SPI_FAST_FLASH_BOOT)"
U_BOOT = "U-Boot 2023.01 (Jun 22 2026 - 08:38:07 +0000)"


@cache
def bundled() -> Matcher:
    return Matcher(load_rules([bundled_dir("config/rules")]))


class Bench:
    """One port with a clock; keeps what the detectors told."""

    def __init__(self, options: WatchOptions | None = None) -> None:
        self.watch = PortWatch("dut1", bundled(), options)
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

    assert [hit.boot for hit in bench.hits("boot.loop")] == [3, 6]


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


def test_a_port_that_is_gone_is_not_silent() -> None:
    bench = Bench().talks(150)
    bench.watch.lost(bench.now)

    assert bench.waits(600).hits("link.silence") == []


def test_silence_after_a_reset_mark_is_expected() -> None:
    bench = Bench().talks(150)
    bench.watch.marked("reset", bench.now)

    assert bench.waits(29).hits("link.silence") == []
