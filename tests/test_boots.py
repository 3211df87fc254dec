from __future__ import annotations

from functools import cache

import pytest

from serialwatch.bundled import bundled_dir
from serialwatch.records import Boot, Finding, Hit, Lines
from serialwatch.triggers.matcher import Matcher
from serialwatch.triggers.rules import load_rules
from serialwatch.triggers.watch import PortWatch

S = 1_000_000_000

ESP_ROM = "ets Jun  8 2016 00:22:57"
ESP_POWER = "rst:0x1 (POWERON_RESET),boot:0x13 (SPI_FAST_FLASH_BOOT)"
ESP_SOFT = "rst:0xc (SW_CPU_RESET),boot:0x13 (SPI_FAST_FLASH_BOOT)"
ESP_SLEEP = "rst:0x5 (DEEPSLEEP_RESET),boot:0x13 (SPI_FAST_FLASH_BOOT)"
ESP_STAGE_2 = "I (28) boot: ESP-IDF v4.4.5 2nd stage bootloader"
GURU = "Guru Meditation Error: Core  0 panic'ed (LoadProhibited). Exception was unhandled."
SPL = "U-Boot SPL 2023.01 (Jun 22 2026 - 08:38:07 +0000)"
U_BOOT = "U-Boot 2023.01 (Jun 22 2026 - 08:38:07 +0000)"
BL31 = "NOTICE:  BL31: v2.8(release):v2.8.0"
KERNEL = "[    0.000000] Linux version 6.1.20 (build@host) #1 SMP"
KERNEL_CPU = "[    0.000000] Booting Linux on physical CPU 0x0000000000 [0x410fd034]"
INIT = "[    2.500000] Run /sbin/init as init process"
LOGIN = "board login: "
PANIC = "[   71.402118] Kernel panic - not syncing: Fatal exception"
ZEPHYR = "*** Booting Zephyr OS build v3.4.0 ***"


@cache
def bundled() -> Matcher:
    return Matcher(load_rules([bundled_dir("config/rules")]))


class Board:
    """Prints lines into a watch and remembers what it found."""

    def __init__(self) -> None:
        self.watch = PortWatch("dut1", bundled())
        self.now = 1000 * S
        self.seq = 1
        self.found: list[Finding] = []

    def says(self, *lines: str, after_s: float = 0.0) -> Board:
        self.now += round(after_s * S)
        text = "".join(f"{line}\r\n" for line in lines).encode()
        self.found += self.watch.fed(Lines(self.seq, len(lines), text, self.now, self.now))
        self.seq += len(lines)
        return self

    def waits(self, seconds: float) -> Board:
        end = self.now + round(seconds * S)
        while self.now < end:
            self.now += S // 20
            self.found += self.watch.tick(self.now, self.now)
        return self

    def boots(self) -> list[Boot]:
        self.found += self.watch.lost(self.now)
        return [f for f in self.found if isinstance(f, Boot)]

    def unexpected(self) -> list[int]:
        return [f.seq for f in self.found if isinstance(f, Hit) and "unexpected" in f.trigger]

    def seqs(self) -> list[int]:
        return [boot.seq for boot in self.boots()]

    def causes(self) -> list[str]:
        return [boot.cause for boot in self.boots()]

    def expected(self) -> list[bool]:
        return [boot.is_expected for boot in self.boots()]


def test_one_boot_to_linux_is_one_start() -> None:
    board = Board().says(
        SPL, "Trying to boot from MMC1", BL31, "I/TC: OP-TEE version: 3.20", U_BOOT
    )
    board.says(*["x"] * 30, "Starting kernel ...", KERNEL_CPU, KERNEL, after_s=70).says(INIT, LOGIN)

    assert board.seqs() == [1]
    assert board.watch.boot == 1
    assert {"uboot", "tfa", "optee", "linux"} <= board.watch.ecosystems


@pytest.mark.parametrize(
    "banner", [SPL, U_BOOT, KERNEL, ESP_ROM, ESP_POWER, ZEPHYR, "OpenSBI v1.2"]
)
def test_the_first_banner_that_is_seen_at_all_is_a_start(banner: str) -> None:
    assert Board().says("noise", banner).seqs() == [2]


@pytest.mark.parametrize(
    "banner", [BL31, ESP_STAGE_2, INIT, "I/TC: OP-TEE version: 3.20", "Welcome to Debian"]
)
def test_a_later_stage_alone_is_no_start(banner: str) -> None:
    assert Board().says(banner).seqs() == []


@pytest.mark.parametrize(
    "banner",
    ["U-Boot 1.1.3 (Nov  4 2019 - 16:02:11)", "RouterBOOT booter 3.41", "CFE version 1.0.37 for B"],
)
def test_the_old_loaders_of_routers_start_them(banner: str) -> None:
    assert Board().says(banner, KERNEL, LOGIN).says(banner, KERNEL, after_s=90).seqs() == [1, 4]


@pytest.mark.parametrize("before", ["EFI stub: Booting Linux Kernel...", "Welcome to GRUB!"])
def test_what_announces_the_first_kernel_seen_was_no_run_of_linux(before: str) -> None:
    board = Board().says(before, "", KERNEL, INIT).waits(1)

    assert board.seqs() == [3]
    assert board.unexpected() == []


def test_a_welcome_of_firmware_does_not_make_it_linux() -> None:
    board = Board().says("Welcome to Boiler Control", ZEPHYR)

    assert "linux" not in board.watch.ecosystems


def test_a_line_of_the_kernel_that_is_printed_twice_is_one_start() -> None:
    twice = [line for line in (KERNEL_CPU, KERNEL, INIT) for _ in range(2)]

    assert Board().says(U_BOOT, *twice).seqs() == [1]
    assert Board().says(KERNEL, "x", KERNEL).seqs() == [1, 3]


def test_coreboot_that_starts_in_the_midst_of_linux_is_a_restart_even_without_its_bootblock() -> (
    None
):
    romstage = "coreboot-24.05 Mon May 20 10:00:00 UTC 2024 x86_32 romstage starting..."
    board = Board().says(U_BOOT, KERNEL, INIT, LOGIN)
    board.says(romstage, *["x"] * 9, "SeaBIOS (version 1.16)", KERNEL, after_s=90).waits(1)

    assert board.seqs() == [1, 5]
    assert board.unexpected() == [5]


def test_a_printed_reset_cause_tells_no_ecosystem() -> None:
    board = Board().says(U_BOOT, "Reset cause: WDOG", "reset reason: watchdog")

    assert board.watch.ecosystems == {"uboot"}
    assert board.causes() == ["watchdog"]


def test_a_loader_without_spl_and_a_kernel_without_loader_start_again() -> None:
    assert Board().says(U_BOOT, KERNEL, INIT, U_BOOT, KERNEL).seqs() == [1, 4]
    assert Board().says(KERNEL, INIT, LOGIN, KERNEL, INIT).seqs() == [1, 4]


def test_a_loader_whose_spl_line_was_lost_is_a_start_all_the_same() -> None:
    assert Board().says(SPL, U_BOOT, KERNEL, "x", U_BOOT, KERNEL).seqs() == [1, 5]


def test_a_kernel_that_a_person_boots_hours_later_is_no_new_start() -> None:
    assert Board().says(SPL, U_BOOT).says("=> boot", KERNEL, after_s=7200).seqs() == [1]


def test_a_kernel_log_printed_anew_on_the_real_console_is_no_start() -> None:
    board = Board().says(U_BOOT, KERNEL_CPU, KERNEL, "[    0.1] printk: console [ttyS0] enabled")
    board.says("[    0.100000] printk: bootconsole [uart0] disabled", KERNEL_CPU, KERNEL)

    assert board.seqs() == [1]


def test_two_spls_of_one_start_around_the_secure_firmware_are_one_but_a_third_is_a_new_one() -> (
    None
):
    assert Board().says(SPL, BL31, SPL, U_BOOT).seqs() == [1]
    assert Board().says(SPL, BL31, SPL, U_BOOT, SPL, BL31, SPL, U_BOOT).seqs() == [1, 5]


def test_tpl_spl_and_loader_are_one_start() -> None:
    assert Board().says("U-Boot TPL 2023.01 (Jun 22)", SPL, BL31, U_BOOT, KERNEL).seqs() == [1]


def test_a_typed_version_is_no_reset() -> None:
    assert Board().says(SPL, U_BOOT, "=> version", U_BOOT, "", "gcc 12").seqs() == [1]
    assert Board().says(SPL, U_BOOT, "x", U_BOOT).seqs() == [1, 4]


@pytest.mark.parametrize("typed", ["root@dut:~# dmesg", "# cat /proc/version", "$ uname -a"])
def test_a_kernel_banner_that_was_asked_for_is_no_reset(typed: str) -> None:
    assert Board().says(U_BOOT, KERNEL, INIT, typed, KERNEL).seqs() == [1]


def test_rom_banner_and_reset_cause_are_one_start_with_its_cause() -> None:
    board = Board().says(ESP_ROM, "", ESP_POWER, "configsip: 0", "entry 0x400805f0", ESP_STAGE_2)

    assert board.seqs() == [1]
    assert board.causes() == ["power_on"]
    assert board.boots()[0].marker == ESP_ROM


def test_every_round_of_an_esp_boot_loop_is_counted() -> None:
    watchdog = "rst:0x10 (RTCWDT_RTC_RESET),boot:0x13 (SPI_FAST_FLASH_BOOT)"
    board = Board()
    for _ in range(5):
        board.says(ESP_ROM, "", watchdog, "invalid header: 0xffffffff", after_s=0.6)

    assert board.seqs() == [1, 5, 9, 13, 17]
    assert set(board.causes()) == {"watchdog"}


def test_a_garbled_rom_banner_loses_no_start() -> None:
    board = Board().says(ESP_ROM, ESP_POWER, "x").says("\ufffd\ufffd", ESP_POWER, "x", after_s=2)
    board.says(ESP_ROM, "rst:0x1 (POWE\ufffd", after_s=2).says(ESP_ROM, ESP_POWER, after_s=2)

    assert board.seqs() == [1, 5, 7, 9]


def test_a_software_reset_is_a_crash_behind_a_panic_and_else_the_programs_own() -> None:
    crashed = Board().says(ESP_ROM, ESP_POWER, GURU, "Rebooting...", ESP_ROM, ESP_SOFT)
    restarted = Board().says(ESP_ROM, ESP_POWER, "I (9) ota: done", ESP_ROM, ESP_SOFT)

    assert crashed.causes() == ["power_on", "panic"]
    assert restarted.causes() == ["power_on", "commanded"]
    assert crashed.expected() == [False, False]


def test_a_reset_that_the_chip_says_the_host_asked_for_is_expected() -> None:
    by_usb = "rst:0x15 (USB_UART_CHIP_RESET),boot:0x8 (SPI_FAST_FLASH_BOOT)"
    board = Board().says("ESP-ROM:esp32c3-api1-20210207", "Build:Feb  7 2021", by_usb)

    assert (board.causes(), board.expected()) == (["commanded"], [True])


def test_waking_up_from_deep_sleep_is_an_expected_start() -> None:
    board = Board().says(ESP_ROM, ESP_POWER)
    for _ in range(4):
        board.says("Entering deep sleep").says(ESP_ROM, ESP_SLEEP, after_s=10)

    assert board.causes() == ["power_on"] + ["sleep_wake"] * 4
    assert board.expected() == [False, True, True, True, True]
    assert not [f for f in board.found if isinstance(f, Hit) and f.severity != "note"]


def test_a_restart_after_a_shutdown_line_was_commanded() -> None:
    board = Board().says(U_BOOT, KERNEL, LOGIN, "[  640.004410] reboot: Restarting system")
    board.says(U_BOOT, KERNEL, after_s=8)

    assert board.causes() == ["unknown", "commanded"]
    assert board.expected() == [False, True]


def test_a_command_explains_one_start_and_not_for_ever() -> None:
    twice = Board().says(U_BOOT, "[  640.004410] reboot: Restarting system", U_BOOT, U_BOOT)
    late = Board().says(U_BOOT, "[  640.004410] reboot: Restarting system")
    late.says(U_BOOT, after_s=121)

    assert twice.expected() == [False, True, False]
    assert late.expected() == [False, False]


def test_resetting_was_commanded_only_behind_a_typed_reset() -> None:
    typed = Board().says(SPL, U_BOOT, "=> reset", "resetting ...", SPL, U_BOOT)
    crashed = Board().says(SPL, U_BOOT, "x", "resetting ...", SPL, U_BOOT)

    assert typed.expected() == [False, True]
    assert crashed.expected() == [False, False]


def test_what_we_wrote_marked_or_opened_explains_a_start() -> None:
    wrote, marked, opened = Board().says(U_BOOT), Board().says(U_BOOT), Board()
    wrote.watch.wrote(b"reset\n", wrote.now)
    wrote.says(U_BOOT, after_s=20)
    marked.watch.marked("reset", marked.now)
    marked.says(U_BOOT, after_s=20).says(U_BOOT, after_s=20)
    opened.watch.opened(opened.now)
    opened.says(ESP_ROM, ESP_POWER, after_s=1).says(ESP_ROM, ESP_POWER, after_s=9)

    assert wrote.expected() == [False, True]
    assert marked.expected() == [False, True, False]
    assert opened.expected() == [True, False]


def test_a_board_that_loops_right_after_the_opening_is_not_excused() -> None:
    board = Board()
    board.watch.opened(board.now)
    for _ in range(6):
        board.says(U_BOOT, "DRAM:  128 MiB", after_s=0.15)

    assert board.expected() == [True, True, False, False, False, False]
    assert "boot.loop" in {f.trigger for f in board.found if isinstance(f, Hit)}


def test_a_boot_loop_is_of_the_boot_whose_banner_shows_it() -> None:
    board = Board().says(*[U_BOOT, "DRAM:  128 MiB"] * 5)
    numbers = {boot.seq: boot.number for boot in board.boots()}
    (loop,) = [f for f in board.found if isinstance(f, Hit) and f.trigger == "boot.loop"]

    assert loop.boot == numbers[loop.seq]


def test_the_cause_printed_some_lines_later_belongs_to_the_start() -> None:
    board = Board().says(U_BOOT, "", "CPU:   Freescale i.MX6Q", "Reset cause: WDOG", "DRAM:  1 GiB")

    assert board.causes() == ["watchdog"]


@pytest.mark.parametrize(
    ("cause", "banner"),
    [
        ("Reset cause: WDOG", SPL),
        ("Reset Status: WDOG3", U_BOOT),
        ("INFO:    IWDG2 Reset (rcc_mp_sclrr 0x200)", "NOTICE:  CPU: STM32MP157CAC Rev.B"),
        ("reset cause: watchdog", ZEPHYR),
        ("Boot reason: WDT", "DDR Version V1.04 20190222"),
        ("last reset: watchdog", "[35]HELLO! BOOT0 is starting!"),
        ("Restart reason: watchdog timeout", "BootROM - 1.41"),
        ("Reset reason: WDT reset", "MicroPython v1.24.1 on 2024-11-29; Pico with RP2040"),
        ("rst:0x8 (TG1WDT_SYS_RST),boot:0x8", "ESP-ROM:esp32c3-api1-20210207"),
        ("rst:0x8 (TG1WDT_SYS_RST)", ESP_STAGE_2),
    ],
)
def test_a_cause_printed_before_the_banner_is_that_of_the_start(cause: str, banner: str) -> None:
    board = Board().says(U_BOOT, KERNEL, INIT, LOGIN, *["x"] * 20)
    board.says(cause, "", banner, "y", after_s=90)

    assert board.causes() == ["unknown", "watchdog"]
    assert Board().says(cause, "", banner).causes() == ["watchdog"]


def test_each_round_of_a_loop_has_the_cause_before_its_banner() -> None:
    board = Board()
    for cause in ("Reset cause: POR", "Reset cause: WDOG", "Reset cause: WDOG"):
        board.says(cause, SPL, "Trying to boot from MMC1", U_BOOT, after_s=3)

    assert board.causes() == ["power_on", "watchdog", "watchdog"]


def test_a_cause_behind_the_banner_is_not_that_of_the_next_start_too() -> None:
    board = Board().says(ZEPHYR, "<inf> app: reset cause: watchdog", "x").says(ZEPHYR, after_s=2)

    assert board.causes() == ["watchdog", "unknown"]


def test_a_cause_far_before_a_banner_is_of_no_start_that_follows() -> None:
    far = Board().says(SPL, *["x"] * 20, "Reset cause: WDOG", *["x"] * 10, SPL)
    early = Board().says(SPL, *["x"] * 20, "Reset cause: WDOG").says(SPL, after_s=4)

    assert (far.causes()[1], early.causes()[1]) == ("unknown", "unknown")


def test_the_banners_own_cause_counts_more_than_one_before_it() -> None:
    board = Board().says(ESP_ROM, ESP_POWER, *["x"] * 20, "reset cause: watchdog", ESP_SLEEP)

    assert board.causes() == ["power_on", "sleep_wake"]


def test_a_control_character_of_a_fault_is_seen_in_its_title() -> None:
    board = Board().says(U_BOOT, KERNEL, f"{PANIC} \u009b5n gone").waits(3)
    titles = [f.title for f in board.found if isinstance(f, Hit) and f.trigger == "linux.panic"]

    assert titles == ["kernel panic: Fatal exception \\x9b5n gone"]


def test_a_panic_explains_the_restart_behind_it() -> None:
    assert Board().says(U_BOOT, KERNEL, PANIC).says(U_BOOT, after_s=10).causes()[1] == "panic"


def test_a_start_is_told_with_its_cause_or_when_that_is_late() -> None:
    by_time = Board().says(U_BOOT)
    assert by_time.found == []
    assert by_time.waits(0.35).seqs() == [1]
    by_lines = Board().says(U_BOOT, *["x"] * 16)
    assert [f.seq for f in by_lines.found if isinstance(f, Boot)] == [1]


def test_zephyr_behind_mcuboot_is_one_start_even_if_both_print_the_zephyr_banner() -> None:
    mcuboot = [
        "*** Booting MCUboot v2.1.0 ***",
        "*** Using Zephyr OS build v3.7 ***",
        "I: Starting bootloader",
    ]
    old = [
        ZEPHYR,
        "I: Starting bootloader",
        "I: Image index: 0",
        "I: Jumping to the first image slot",
        ZEPHYR,
    ]

    assert Board().says(*mcuboot, "I: Jumping", ZEPHYR).seqs() == [1]
    assert Board().says(*old).says(*old, after_s=5).seqs() == [1, 6]
    assert Board().says(ZEPHYR, "x").says(ZEPHYR, after_s=60).seqs() == [1, 3]


def test_a_kernel_reboot_typed_in_the_zephyr_shell_was_commanded() -> None:
    board = Board().says(ZEPHYR, "uart:~$ kernel reboot cold").says(ZEPHYR, after_s=1)

    assert board.expected() == [False, True]


def test_a_device_that_resets_itself_without_any_banner_is_counted_all_the_same() -> None:
    abort = '"Error" handler, esr 0xbf000002'
    board = Board()
    for _ in range(3):
        board.says("Resetting CPU ...", "", abort, "elr: 0000000000000000 lr : 0000000000000000")
    board.says("Resetting CPU ...")

    assert board.seqs() == [1, 5, 9, 13]


def test_a_reset_that_is_announced_and_then_seen_is_one_start_at_its_banner() -> None:
    board = Board().says(SPL, U_BOOT, '"Synchronous Abort" handler, esr 0x96000004')
    board.says("Resetting CPU ...", "", "resetting ...", SPL, U_BOOT, after_s=1)

    assert board.seqs() == [1, 7]
    assert board.causes()[1] == "panic"


def test_numbers_go_on_where_they_were() -> None:
    watch = PortWatch("dut1", bundled(), boot=6)
    found = watch.fed(Lines(90, 1, f"{ESP_POWER}\n".encode(), S, S))

    assert [f.number for f in found if isinstance(f, Boot)] == [7]
    assert watch.boot == 7


def test_a_bios_that_restarts_in_silence_is_counted() -> None:
    assert Board().says("SecStartup").says(">>>>SecStartup", after_s=9).seqs() == [1, 2]


@pytest.mark.parametrize("last", [[KERNEL, PANIC], [KERNEL, INIT], [PANIC], []])
def test_each_round_of_a_fast_loop_through_secure_firmware_begins_at_its_first_line(
    last: list[str],
) -> None:
    boot = [SPL, "DRAM init", BL31, U_BOOT, *last]
    board = Board()
    for _ in range(4):
        board.says(*boot, after_s=2.6)

    assert board.seqs() == [1 + len(boot) * boot_nr for boot_nr in range(4)]


WATCHDOG_LINES = ["WATCHDOG RESET!", "System reset by watchdog", "[BOOT] reset reason: WDT"]


@pytest.mark.parametrize("reset", WATCHDOG_LINES)
def test_a_board_without_banner_that_only_prints_its_resets_loops_too(reset: str) -> None:
    board = Board()
    for _ in range(3):
        board.says("ACME drive 2.1", reset, "clock ok", "speed 1000", after_s=4)

    assert board.causes() == ["watchdog"] * 3
    assert "boot.loop" in {f.trigger for f in board.found if isinstance(f, Hit)}


@pytest.mark.parametrize("reset", WATCHDOG_LINES)
def test_where_banners_are_known_a_printed_reset_is_no_start_of_its_own(reset: str) -> None:
    board = Board().says(ZEPHYR, reset, "x").says(*["y"] * 30, reset, after_s=900)

    assert board.seqs() == [1]
    assert board.causes() == ["watchdog"]


@pytest.mark.parametrize(
    ("cause", "title"),
    [
        ("watchdog", "a watchdog reset"),
        ("brownout", "a brownout"),
        ("0x24", "the reason that it prints is not known here"),
        ("pin", None),
    ],
)
@pytest.mark.parametrize("ran_s", [4, 40])
def test_the_cause_that_a_start_prints_is_the_reason_that_is_told(
    cause: str, title: str | None, ran_s: int
) -> None:
    board = Board().says(ZEPHYR, "<inf> app: fine").says("<inf> app: fine", after_s=ran_s)
    board.says(ZEPHYR, f"<inf> main: reset cause: {cause}", "<inf> app: fine").waits(1)
    told = [f.title for f in board.found if isinstance(f, Hit) and f.trigger.startswith("boot.")]

    is_told = title is not None and (ran_s >= 30 or cause in ("watchdog", "brownout"))
    assert told == [f"the board restarted while it was running: {title}"] * is_told


def test_a_cause_that_a_slow_start_prints_without_a_pause_is_still_its_own() -> None:
    board = Board().says(ZEPHYR, "<inf> app: fine", PANIC).waits(5).says(ZEPHYR)
    for line in ("<inf> clk: 1", "<inf> clk: 2", "<inf> clk: 3", "<inf> app: reset cause: WDT"):
        board.waits(0.2).says(line)
    late = Board().says(ZEPHYR).waits(0.4).says("<inf> app: reset cause: watchdog")

    assert board.causes() == ["unknown", "watchdog"]
    assert late.causes() == ["unknown"]
