"""Xtensa exception cause: EXCCAUSE, as ESP32, ESP32-S2, ESP32-S3 and ESP8266 print it.

Source: Xtensa Instruction Set Architecture Reference Manual, table "Exception Causes"; codes 7, 10
and 11 from Tensilica's corebits.h. What ESP-IDF's panic handler puts into the same register when no
exception happened: esp-idf components/xtensa/include/esp_private/panic_reason.h.
"""

from __future__ import annotations

from decoded import Decoded, unknown

SOURCE = "Xtensa ISA Reference Manual, Exception Causes"


def decode_exccause(value: int) -> Decoded:
    """Say what an exception cause means."""
    if 32 <= value <= 39:
        name, text = (
            f"Coprocessor{value - 32}Disabled",
            f"coprocessor {value - 32} was off when used",
        )
    elif value in _CAUSES:
        name, text = _CAUSES[value]
    else:
        return unknown("exccause", value, f"exception cause {value}", SOURCE)
    fields = {"cause": f"{value}: {name}"}
    meaning = f"{name}: {text}"
    if value in _ESP_IDF:
        fields["esp_idf"] = (
            f"in a panic that no exception caused ESP-IDF puts {value} here for: {_ESP_IDF[value]}"
        )
        meaning += f" (or, if the panic reason says so, ESP-IDF's own {value}: {_ESP_IDF[value]})"
    return Decoded("exccause", value, True, f"{meaning}.", SOURCE, fields)


_CAUSES = {
    0: ("IllegalInstruction", "an illegal instruction"),
    1: ("Syscall", "a SYSCALL instruction"),
    2: ("InstructionFetchError", "the processor could not fetch an instruction"),
    3: ("LoadStoreError", "a load or store failed, as of a byte where only words are allowed"),
    4: ("Level1Interrupt", "a level-1 interrupt"),
    5: ("Alloca", "a MOVSP while the caller's registers were not in the register file"),
    6: ("IntegerDivideByZero", "an integer division by zero"),
    7: ("PCValueError", "a next PC value that is illegal"),
    8: ("Privileged", "a privileged operation outside privileged mode"),
    9: ("LoadStoreAlignment", "a load or store at an unaligned address"),
    10: ("ExternalRegisterPrivilege", "an external register access without the privilege"),
    11: ("ExclusiveError", "an exclusive load or store where it is not supported"),
    12: ("InstrPIFDataError", "a data error on the bus at an instruction fetch"),
    13: ("LoadStorePIFDataError", "a data error on the bus at a load or store"),
    14: ("InstrPIFAddrError", "an address error on the bus at an instruction fetch"),
    15: ("LoadStorePIFAddrError", "an address error on the bus at a load or store"),
    16: ("InstTLBMiss", "no translation for an instruction fetch"),
    17: ("InstTLBMultiHit", "several translations for an instruction fetch"),
    18: ("InstFetchPrivilege", "an instruction fetch without the privilege"),
    20: ("InstFetchProhibited", "an instruction fetch from where no code may run"),
    24: ("LoadStoreTLBMiss", "no translation for a load or store"),
    25: ("LoadStoreTLBMultiHit", "several translations for a load or store"),
    26: ("LoadStorePrivilege", "a load or store without the privilege"),
    28: ("LoadProhibited", "a load from an address that may not be read"),
    29: ("StoreProhibited", "a store to an address that may not be written"),
}
_ESP_IDF = {
    1: "a debug exception, such as a stack watchpoint",
    2: "a double exception",
    3: "a kernel exception",
    4: "a coprocessor exception",
    5: "the interrupt watchdog on CPU 0",
    6: "the interrupt watchdog on CPU 1",
    7: "a cache error, such as flash access while the cache is disabled",
}
