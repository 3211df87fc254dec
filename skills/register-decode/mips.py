"""MIPS Cause register: its exception code, as Linux prints `Cause : 00800008 (ExcCode 02)`.

Source: MIPS32 Architecture For Programmers, Volume III, "Cause Register", table of ExcCode values.
"""

from __future__ import annotations

from decoded import Decoded, unknown

SOURCE = "MIPS32 Architecture Vol. III, Cause Register"

_CODES = {
    0: ("Int", "an interrupt"),
    1: ("Mod", "a store to a page that is mapped read-only"),
    2: ("TLBL", "a load or fetch from where nothing is mapped"),
    3: ("TLBS", "a store to where nothing is mapped"),
    4: ("AdEL", "a load or fetch from an unaligned or forbidden address"),
    5: ("AdES", "a store to an unaligned or forbidden address"),
    6: ("IBE", "a bus error at an instruction fetch"),
    7: ("DBE", "a bus error at a load or store"),
    8: ("Sys", "a system call"),
    9: ("Bp", "a breakpoint"),
    10: ("RI", "a reserved instruction"),
    11: ("CpU", "a coprocessor that is off"),
    12: ("Ov", "an arithmetic overflow"),
    13: ("Tr", "a trap instruction"),
    14: ("MSAFPE", "a floating-point exception of the MSA unit"),
    15: ("FPE", "a floating-point exception"),
    19: ("TLBRI", "a read of a page that may not be read"),
    20: ("TLBXI", "a fetch from a page that may not be executed"),
    23: ("WATCH", "a watched address"),
    24: ("MCheck", "a machine check, as of two equal entries in the TLB"),
    30: ("CacheErr", "a cache error"),
}


def decode_cause(value: int) -> Decoded:
    """Take the Cause register apart."""
    code = value >> 2 & 0x1F
    if (known := _CODES.get(code)) is None:
        return unknown("mips_cause", value, f"exception code {code}", SOURCE)
    name, text = known
    fields = {"ExcCode": f"{code}: {name}"}
    if value >> 31 & 1:
        fields["BD"] = "1: in a branch delay slot; the branch is at EPC"
    return Decoded("mips_cause", value, True, f"{text[0].upper()}{text[1:]}.", SOURCE, fields)
