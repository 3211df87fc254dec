"""RISC-V trap causes: mcause and scause.

Source: The RISC-V Instruction Set Manual, Volume II: Privileged Architecture, "Machine Cause
Register", its table of causes after a trap, with those of the hypervisor extension.
"""

from __future__ import annotations

from decoded import Decoded, unknown

SOURCE = "RISC-V Privileged Architecture, Machine Cause Register"


def decode_mcause(value: int) -> Decoded:
    """Take mcause or scause apart; 32 or 64 bits wide."""
    width = 64 if value >> 32 else 32
    is_interrupt = bool(value >> (width - 1) & 1)
    code = value & ((1 << (width - 1)) - 1)
    kind = "interrupt" if is_interrupt else "exception"
    what = (_INTERRUPTS if is_interrupt else _EXCEPTIONS).get(code)
    fields = {"Interrupt": str(int(is_interrupt)), "Exception Code": str(code)}
    if what is None and is_interrupt and code >= 16:
        what = f"interrupt {code}, whose meaning the platform defines"
    elif what is None and not is_interrupt and (24 <= code <= 31 or 48 <= code <= 63):
        what = f"exception {code}, whose meaning the core's own manual defines"
    if what is None:
        return unknown("mcause", value, f"{kind} code {code}", SOURCE)
    return Decoded("mcause", value, True, f"{what[0].upper()}{what[1:]}.", SOURCE, fields)


_EXCEPTIONS = {
    0: "instruction address misaligned",
    1: "instruction access fault",
    2: "illegal instruction",
    3: "breakpoint",
    4: "load address misaligned",
    5: "load access fault",
    6: "store or AMO address misaligned",
    7: "store or AMO access fault",
    8: "environment call from U-mode",
    9: "environment call from S-mode",
    10: "environment call from VS-mode",
    11: "environment call from M-mode",
    12: "instruction page fault",
    13: "load page fault",
    15: "store or AMO page fault",
    16: "double trap",
    18: "software check",
    19: "hardware error",
    20: "instruction guest-page fault",
    21: "load guest-page fault",
    22: "virtual instruction",
    23: "store or AMO guest-page fault",
}
_INTERRUPTS = {
    1: "supervisor software interrupt",
    2: "virtual supervisor software interrupt",
    3: "machine software interrupt",
    5: "supervisor timer interrupt",
    6: "virtual supervisor timer interrupt",
    7: "machine timer interrupt",
    9: "supervisor external interrupt",
    10: "virtual supervisor external interrupt",
    11: "machine external interrupt",
    12: "supervisor guest external interrupt",
    13: "counter overflow interrupt",
}
