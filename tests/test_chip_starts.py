from __future__ import annotations

from functools import cache

from serialwatch.bundled import bundled_dir
from serialwatch.records import Boot, Finding, Hit, Lines
from serialwatch.triggers.matcher import Matcher
from serialwatch.triggers.rules import load_rules
from serialwatch.triggers.watch import PortWatch

S = 1_000_000_000  # ns
ESP8266 = " ets Jan  8 2013,rst cause:{}, boot mode:(3,6)"
ESP32 = "ESP-ROM:esp32c6-20220919\nBuild:Sep 19 2022\nrst:{},boot:0x6c (SPI_FAST_FLASH_BOOT)"
REPL = "MicroPython v1.24.1 on 2024-11-29; Raspberry Pi Pico with RP2040"
RELOAD = "Auto-reload is on. Simply save files over USB to run them or enter REPL to disable."


@cache
def matcher() -> Matcher:
    return Matcher(load_rules([bundled_dir("config/rules")]))


def test_an_esp8266_that_wakes_through_its_reset_pin_was_asleep() -> None:
    found = _watched(ESP8266.format(1), "up", "going to deep sleep for 60 s", ESP8266.format(2))

    assert _causes(found) == ["power_on", "sleep_wake"]


def test_an_esp8266_that_starts_after_an_exception_had_a_panic() -> None:
    found = _watched(ESP8266.format(1), "Exception (28):", "<<<stack<<<", ESP8266.format(2))

    assert _causes(found) == ["power_on", "panic"]


def test_the_hardware_watchdog_of_an_esp8266_is_told_by_the_rom_and_by_the_core() -> None:
    found = _watched(ESP8266.format(1), "up", ESP8266.format(4), "wdt reset")

    assert _causes(found) == ["power_on", "watchdog"]
    assert _triggers(found) == ["esp8266.wdt_reset", "esp8266.wdt_reset"]


def test_wdt_reset_typed_to_a_boot_loader_is_no_fault_of_an_esp8266() -> None:
    found = _watched("U-Boot 2024.01 (Jan 08 2024)", "=> wdt list", "wdt reset")

    assert _triggers(found) == []


def test_a_brownout_is_known_by_its_number_whatever_the_chip_calls_it() -> None:
    found = _watched(ESP32.format("0x1 (POWERON)"), "up", ESP32.format("0xf (LP_BOD_SYS)"))

    assert _causes(found) == ["power_on", "brownout"]
    assert _triggers(found) == ["esp.brownout"]


def test_the_application_may_tell_the_cause_if_the_rom_was_not_heard() -> None:
    found = _watched("ESP-ROM:esp8684-api2-20220127\nI (310) app: reset by ESP_RST_TASK_WDT")

    assert _causes(found) == ["watchdog"]


def test_the_repl_that_follows_the_end_of_main_py_is_no_start() -> None:
    died = 'Traceback (most recent call last):\n  File "main.py", line 9, in read\nOSError: 5'

    assert _causes(_watched("co2 512", died, REPL)) == []
    assert len(_causes(_watched("co2 512", REPL))) == 1


def test_a_soft_reboot_of_circuitpython_is_no_start() -> None:
    found = _watched(RELOAD, "code.py output:", "1", "soft reboot", "", RELOAD, "code.py output:")

    assert len(_causes(found)) == 1


def test_safe_mode_by_the_button_is_no_fault_and_after_a_crash_it_is() -> None:
    safe = "Running in safe mode! Not running saved code.\n\nYou are in safe mode because:"
    wanted = _watched("up", safe, "You pressed the BOOT button at start up", "", "", "")
    crashed = _watched("up", safe, "CircuitPython core code crashed hard. Whoops!", "", "", "")

    assert _triggers(wanted) == []
    assert set(_triggers(crashed)) == {"circuitpython.safe_mode"}


def test_a_program_that_a_person_stopped_is_no_fault() -> None:
    trace = 'Traceback (most recent call last):\n  File "main.py", line 9, in wait'

    assert _triggers(_watched(trace, "KeyboardInterrupt: ", ">>> 1", "1")) == []
    assert set(_triggers(_watched(trace, "ValueError: 9", ">>> 1", "1"))) == {
        "python.traceback",
        "python.exception",
    }


def test_three_failing_transfers_within_half_a_minute_are_a_fault_of_the_bus() -> None:
    failed = "E (5120) i2c.master: I2C transaction timeout detected"

    assert _triggers(_watched(failed, "ok", failed)) == []
    assert _triggers(_watched(failed, "ok", failed, failed)) == ["esp.i2c"]


def _watched(*texts: str) -> list[Finding]:
    """Feed texts a second apart and close the port."""
    watch = PortWatch("dut1", matcher())
    found: list[Finding] = []
    seq = 1
    for number, text in enumerate(texts, start=1):
        count = text.count("\n") + 1
        found += watch.fed(Lines(seq, count, f"{text}\n".encode(), number * S, number * S))
        seq += count
    return found + watch.lost((len(texts) + 5) * S)


def _causes(found: list[Finding]) -> list[str]:
    return [f.cause for f in found if isinstance(f, Boot)]


def _triggers(found: list[Finding]) -> list[str]:
    return [f.trigger for f in found if isinstance(f, Hit) and f.severity != "note"]
