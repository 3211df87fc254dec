"""AArch32 fault status: DFSR and IFSR, as Linux, U-Boot and OP-TEE print them.

Source: ARM Architecture Reference Manual ARMv7-A/R, DDI 0406, B3.13.3 (short-descriptor, table
B3-23) and B3.13.4 (long-descriptor, table B3-24); B4.1.52 DFSR, B4.1.96 IFSR. Bit 31 is none of the
register: Linux sets it to mark a prefetch abort (arch/arm/mm/fault.h, FSR_LNX_PF).
"""

from __future__ import annotations

from decoded import Decoded, unknown

SOURCE = "ARM ARM DDI 0406, DFSR/IFSR"


def decode_fsr(value: int) -> Decoded:
    """Take a fault status apart; `value` may carry Linux's mark of a prefetch abort."""
    is_long = bool(value >> 9 & 1)
    status = value & 0x3F if is_long else (value >> 6 & 0x10) | (value & 0xF)
    what = (_LONG if is_long else _SHORT).get(status)
    if what is None:
        return unknown("fsr", value, f"fault status 0x{status:02x}", SOURCE)
    is_prefetch = bool(value >> 31 & 1)
    how = "an instruction fetch" if is_prefetch else "a write" if value >> 11 & 1 else "a read"
    fields = {
        "STATUS" if is_long else "FS": f"0x{status:02x}: {what}",
        "LPAE": "1: long-descriptor format" if is_long else "0: short-descriptor format",
    }
    if not is_prefetch:
        fields["WnR"] = "1: a write" if value >> 11 & 1 else "0: a read"
    if not is_long and status in (0x09, 0x0B, 0x0D, 0x0F):
        fields["Domain"] = str(value >> 4 & 0xF)
    if value >> 12 & 1:
        fields["ExT"] = "1: external abort type bit"
    if value >> 13 & 1 and not is_prefetch:
        fields["CM"] = "1: cache maintenance"
    article = "an" if what[0] in "aeiou" else "a"
    meaning = f"{how[0].upper()}{how[1:]} met {article} {what}."
    if status in (0x16, 0x18) and not is_long:
        meaning = (
            f"{what[0].upper()}{what[1:]}: late, so that PC and address are not the culprit's."
        )
    bits = tuple(name for name, bit in (("WnR", 11), ("ExT", 12), ("CM", 13)) if value >> bit & 1)
    return Decoded("fsr", value, True, meaning, SOURCE, fields, bits)


_SHORT = {
    0x01: "alignment fault",
    0x02: "debug event",
    0x03: "access flag fault, first level (section)",
    0x04: "fault on instruction cache maintenance",
    0x05: "translation fault, first level (section): nothing is mapped there",
    0x06: "access flag fault, second level (page)",
    0x07: "translation fault, second level (page): nothing is mapped there",
    0x08: "synchronous external abort",
    0x09: "domain fault, first level (section)",
    0x0B: "domain fault, second level (page)",
    0x0C: "synchronous external abort on a table walk, first level",
    0x0D: "permission fault, first level (section)",
    0x0E: "synchronous external abort on a table walk, second level",
    0x0F: "permission fault, second level (page)",
    0x10: "TLB conflict abort",
    0x14: "implementation defined fault (lockdown)",
    0x16: "asynchronous external abort",
    0x18: "asynchronous parity error on memory access",
    0x19: "synchronous parity error on memory access",
    0x1A: "implementation defined fault (coprocessor abort)",
    0x1C: "synchronous parity error on a table walk, first level",
    0x1E: "synchronous parity error on a table walk, second level",
}
_LONG = {
    **{
        4 + level: f"translation fault, level {level}: nothing is mapped there"
        for level in (1, 2, 3)
    },
    **{8 + level: f"access flag fault, level {level}" for level in (1, 2, 3)},
    **{12 + level: f"permission fault, level {level}" for level in (1, 2, 3)},
    0x10: "synchronous external abort",
    0x11: "asynchronous external abort",
    **{0x14 + n: f"synchronous external abort on a table walk, level {n}" for n in (1, 2, 3)},
    0x18: "synchronous parity error on memory access",
    0x19: "asynchronous parity error on memory access",
    **{0x1C + n: f"synchronous parity error on a table walk, level {n}" for n in (1, 2, 3)},
    0x21: "alignment fault",
    0x22: "debug event",
    0x30: "TLB conflict abort",
}
