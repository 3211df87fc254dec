"""Reset reasons that Espressif's ROMs print: `rst:0x..` (ESP32 family), `rst cause:` (ESP8266).

Source: esp-idf components/esp_rom/*/rom/rtc.h and components/soc/*/soc/reset_reasons.h; ESP8266
Arduino core, doc/boards.rst, "rst cause" and "boot mode". Where chips differ, each reading is named
with its chips unless the name that the ROM prints decides.
"""

from __future__ import annotations

from decoded import Decoded, unknown

SOURCE = "esp-idf rom/rtc.h and soc/reset_reasons.h"
SOURCE_8266 = "esp8266/Arduino doc/boards.rst"


def decode_rst(value: int, name: str = "") -> Decoded:
    """Say what `rst:0x..` means; `name` is what the ROM printed beside it."""
    fields = {"reason": f"0x{value:02x}"}
    if name:
        fields["printed"] = name
    readings = [r for r in _REASONS.get(value, ()) if not name or not r[0] or r[0] in name]
    if not readings:
        return unknown("rst", value, f"reset reason 0x{value:x}", SOURCE)
    fields["class"] = "/".join(dict.fromkeys(kind for _, kind, _ in readings))
    meaning = ", or ".join(text for _, _, text in readings)
    return Decoded("rst", value, True, f"{meaning[0].upper()}{meaning[1:]}.", SOURCE, fields)


def decode_rst_cause(value: int, boot_mode: int | None = None) -> Decoded:
    """Say what the ESP8266's `rst cause:` means; `boot_mode` is the first of `boot mode:(3,6)`."""
    if (what := _CAUSES_8266.get(value)) is None:
        return unknown("rst_cause", value, f"reset cause {value}", SOURCE_8266)
    fields = {"cause": f"{value}: {what}"}
    meaning = f"{what[0].upper()}{what[1:]}"
    if boot_mode is not None:
        mode = _MODES_8266.get(boot_mode, "unknown, the manual does not define it")
        fields["boot_mode"] = f"{boot_mode}: {mode}"
        if boot_mode == 1:
            meaning += "; it stays in the UART loader, because GPIO0 is low"
    return Decoded("rst_cause", value, True, f"{meaning}.", SOURCE_8266, fields)


# Per value: a part of the printed name that decides ("" for any), the class, the meaning.
_REASONS: dict[int, tuple[tuple[str, str, str], ...]] = {
    0x01: (("", "power_on", "power was applied, or the EN pin was released"),),
    0x03: (("", "software", "software reset the digital core"),),
    0x04: (("", "watchdog", "the legacy watchdog reset the digital core (ESP32)"),),
    0x05: (("", "sleep_wake", "wake-up from deep sleep"),),
    0x06: (
        ("SDIO", "host", "the SDIO host reset the digital core (ESP32, ESP32-C6)"),
        ("PWR", "sleep_wake", "power-down of the CPU by the power unit (ESP32-P4)"),
    ),
    0x07: (("", "watchdog", "the timer group 0 watchdog reset the digital core"),),
    0x08: (("", "watchdog", "the timer group 1 watchdog reset the digital core"),),
    0x09: (("", "watchdog", "the RTC watchdog reset the digital core"),),
    0x0A: (("INTRUSION", "intrusion", "the intrusion detector reset the CPU"),),
    0x0B: (("", "watchdog", "the timer group watchdog reset the CPU"),),
    0x0C: (("", "software", "software reset the CPU, as esp_restart() and a panic do"),),
    0x0D: (("", "watchdog", "the RTC watchdog reset the CPU"),),
    0x0E: (("", "software", "the PRO CPU reset the APP CPU (ESP32)"),),
    0x0F: (("", "brownout", "the supply voltage dropped too low (brownout)"),),
    0x10: (
        (
            "",
            "watchdog",
            "the RTC watchdog reset the chip with its RTC part "
            "(early ESP32 print this at power-on too)",
        ),
    ),
    0x11: (("", "watchdog", "the timer group 1 watchdog reset the CPU"),),
    0x12: (("", "watchdog", "the super watchdog reset the chip"),),
    0x13: (
        ("GLITCH", "power", "a glitch on the clock (ESP32-S2, S3, C3) or on the supply (ESP32-P4)"),
    ),
    0x14: (("", "efuse", "an eFuse CRC error"),),
    0x15: (("", "host", "the host reset it through USB serial (DTR/RTS)"),),
    0x16: (("", "host", "the host reset it through USB JTAG"),),
    0x17: (
        ("GLITCH", "power", "a glitch on the supply (ESP32-S3, C3)"),
        ("USB", "host", "the host reset it through USB serial (ESP32-P4)"),
    ),
    0x18: (("", "host", "a debugger reset it through JTAG"),),
    0x1A: (("", "lockup", "the CPU locked up: an exception inside the exception handler"),),
}
_CAUSES_8266 = {  # a crash or a restart by software leaves 1 and 2 as they were
    0: "undefined",
    1: "power was applied, and a crash or restart by software since then does not show",
    2: "the reset pin was pulled, and a crash or restart by software since then does not show",
    3: "software reset it",
    4: "the hardware watchdog reset it",
}
_MODES_8266 = {1: "UART download", 3: "boot from flash"}
