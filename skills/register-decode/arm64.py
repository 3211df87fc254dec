"""AArch64 exception syndrome: ESR_EL1, ESR_EL2, ESR_EL3.

Source: Arm Architecture Reference Manual for A-profile, DDI 0487, D24.2 "ESR_ELx": the tables of EC
and the ISS encodings of Data Abort, Instruction Abort, SError, SVC/HVC/SMC and BRK.
"""

from __future__ import annotations

from decoded import Decoded, unknown

SOURCE = "Arm ARM DDI 0487, ESR_ELx"


def decode_esr(value: int) -> Decoded:
    """Take an ESR_ELx apart into class, length bit and syndrome."""
    ec, il, iss = value >> 26 & 0x3F, value >> 25 & 1, value & 0x1FFFFFF
    if (name := _CLASSES.get(ec)) is None:
        return unknown("esr", value, f"exception class 0x{ec:02x}", SOURCE)
    fields = {
        "EC": f"0x{ec:02x}: {name}",
        "IL": "1: a 32-bit instruction" if il else "0: a 16-bit instruction",
        "ISS": f"0x{iss:07x}",
    }
    bits: tuple[str, ...] = ()
    meaning = f"{_first_upper(name)}."
    if ec in _INSTRUCTION_ABORTS:
        more, bits, what = _abort(iss, is_data=False)
        fields |= more
        meaning = f"{_first_upper(name)}: {what}."
    elif ec in _DATA_ABORTS:
        more, bits, what = _abort(iss, is_data=True)
        fields |= more
        how = "write" if iss >> 6 & 1 and not iss >> 8 & 1 else "read"
        if iss >> 8 & 1:
            how = "cache maintenance or address translation instruction"
        meaning = f"{_first_upper(name)}: a {how} met {what}."
    elif ec == 0x2F:
        more, what = _serror(iss)
        fields |= more
        meaning = f"SError interrupt, an asynchronous bus or memory error: {what}."
    elif ec in _IMMEDIATE:
        fields["imm16"] = f"0x{iss & 0xFFFF:x}"
        meaning = f"{_first_upper(name)} with the number 0x{iss & 0xFFFF:x}."
    return Decoded("esr", value, True, meaning, SOURCE, fields, bits)


_CLASSES = {
    0x00: "unknown reason, as for an undefined instruction",
    0x01: "trapped WFI or WFE instruction",
    0x03: "trapped AArch32 MCR or MRC (coproc 15)",
    0x04: "trapped AArch32 MCRR or MRRC (coproc 15)",
    0x05: "trapped AArch32 MCR or MRC (coproc 14)",
    0x06: "trapped AArch32 LDC or STC",
    0x07: "access to SVE, SIMD or floating point trapped",
    0x08: "trapped AArch32 VMRS (ID group)",
    0x09: "trapped pointer authentication instruction",
    0x0A: "trapped LD64B or ST64B* or another instruction of that class",
    0x0C: "trapped AArch32 MRRC (coproc 14)",
    0x0D: "branch target exception (BTI)",
    0x0E: "illegal execution state",
    0x11: "SVC instruction in AArch32",
    0x12: "HVC instruction in AArch32",
    0x13: "SMC instruction in AArch32",
    0x15: "SVC instruction in AArch64",
    0x16: "HVC instruction in AArch64",
    0x17: "SMC instruction in AArch64",
    0x18: "trapped MSR, MRS or system instruction",
    0x19: "access to SVE trapped",
    0x1A: "trapped ERET, ERETAA or ERETAB",
    0x1C: "pointer authentication failure",
    0x1D: "access to SME trapped",
    0x1F: "implementation defined exception to EL3",
    0x20: "instruction abort from a lower exception level",
    0x21: "instruction abort at the same exception level",
    0x22: "PC alignment fault",
    0x24: "data abort from a lower exception level",
    0x25: "data abort at the same exception level",
    0x26: "SP alignment fault",
    0x27: "memory copy or memory set instruction exception",
    0x28: "trapped floating-point exception of AArch32",
    0x2C: "trapped floating-point exception of AArch64",
    0x2D: "guarded control stack exception",
    0x2F: "SError interrupt",
    0x30: "breakpoint from a lower exception level",
    0x31: "breakpoint at the same exception level",
    0x32: "software step from a lower exception level",
    0x33: "software step at the same exception level",
    0x34: "watchpoint from a lower exception level",
    0x35: "watchpoint at the same exception level",
    0x38: "BKPT instruction in AArch32",
    0x3A: "vector catch of AArch32",
    0x3C: "BRK instruction in AArch64",
}
_INSTRUCTION_ABORTS = (0x20, 0x21)
_DATA_ABORTS = (0x24, 0x25)
_IMMEDIATE = (0x11, 0x12, 0x15, 0x16, 0x17, 0x38, 0x3C)

_STATUS = {
    **{level: f"an address size fault, level {level}" for level in range(4)},
    **{4 + level: f"a translation fault, level {level}" for level in range(4)},
    **{8 + level: f"an access flag fault, level {level}" for level in range(4)},
    **{12 + level: f"a permission fault, level {level}" for level in range(4)},
    0x10: "a synchronous external abort",
    0x11: "a synchronous tag check fault",
    0x12: "a synchronous external abort on a table walk, level -2",
    0x13: "a synchronous external abort on a table walk, level -1",
    **{0x14 + n: f"a synchronous external abort on a table walk, level {n}" for n in range(4)},
    0x18: "a synchronous parity or ECC error",
    0x1B: "a synchronous parity or ECC error on a table walk, level -1",
    **{0x1C + n: f"a synchronous parity or ECC error on a table walk, level {n}" for n in range(4)},
    0x21: "an alignment fault",
    0x22: "a granule protection fault on a table walk, level -2",
    0x23: "a granule protection fault on a table walk, level -1",
    **{0x24 + n: f"a granule protection fault on a table walk, level {n}" for n in range(4)},
    0x28: "a granule protection fault",
    0x29: "an address size fault, level -1",
    0x2A: "a translation fault, level -2",
    0x2B: "a translation fault, level -1",
    0x2C: "an address size fault, level -2",
    0x30: "a TLB conflict abort",
    0x31: "an unsupported atomic hardware update fault",
    0x34: "an implementation defined fault (lockdown)",
    0x35: "an implementation defined fault (unsupported exclusive or atomic access)",
}
_DATA_ONLY = (0x11, 0x21, 0x34, 0x35)
_HINTS = {
    1: "nothing is mapped at the address",
    3: "the mapping does not permit this access",
}  # by the upper bits of the status code


def _abort(iss: int, *, is_data: bool) -> tuple[dict[str, str], tuple[str, ...], str]:
    """Return fields, flags and what happened, for an instruction or a data abort."""
    status = iss & 0x3F
    what = _STATUS.get(status)
    if what is None or (not is_data and status in _DATA_ONLY):
        what = f"fault status 0x{status:02x}, which the manual does not define"
    name = "DFSC" if is_data else "IFSC"
    fields = {name: f"0x{status:02x}: {what.removeprefix('an ').removeprefix('a ')}"}
    flags = [("FnV", 10, "FAR holds no valid address"), ("EA", 9, "external abort type"),
             ("S1PTW", 7, "on a stage 2 walk for stage 1")]  # fmt: skip
    if is_data:
        fields["WnR"] = "1: a write" if iss >> 6 & 1 else "0: a read"
        flags.append(("CM", 8, "cache maintenance or address translation"))
        if iss >> 24 & 1:
            fields |= _access(iss)
    set_flags = [(flag, text) for flag, bit, text in flags if iss >> bit & 1]
    fields |= {flag: f"1: {text}" for flag, text in set_flags}
    hint = _HINTS.get(status >> 2, "") if status < 0x10 else ""
    names = tuple(flag for flag, _ in set_flags)
    if is_data and iss >> 6 & 1:
        names = ("WnR", *names)
    if iss >> 10 & 1 and status == 0x10:
        hint = "FAR does not hold the address"
    return fields, names, f"{what} ({hint})" if hint else what


def _access(iss: int) -> dict[str, str]:
    size = ("1 byte", "2 bytes", "4 bytes", "8 bytes")[iss >> 22 & 3]
    return {
        "ISV": "1: the access is described",
        "SAS": size,
        "SRT": f"register {'x' if iss >> 15 & 1 else 'w'}{iss >> 16 & 0x1F}",
    }


def _serror(iss: int) -> tuple[dict[str, str], str]:
    if iss >> 24 & 1:
        return {"IDS": "1: implementation defined syndrome"}, (
            f"the syndrome 0x{iss & 0xFFFFFF:06x} is defined by the CPU's own manual"
        )
    fields = {"IDS": "0"}
    status = iss & 0x3F
    if status == 0:
        return fields | {"DFSC": "0x00: uncategorised"}, "uncategorised"
    if status != 0x11:
        text = f"0x{status:02x}: not defined by the manual"
        return fields | {"DFSC": text}, f"status 0x{status:02x}, which the manual does not define"
    severity = _SERROR.get(iss >> 10 & 7, "reserved")
    return fields | {"DFSC": "0x11: asynchronous SError", "AET": severity}, severity


_SERROR = {
    0: "uncontainable",
    1: "unrecoverable state",
    2: "restartable state",
    3: "recoverable state",
    6: "corrected",
}


def _first_upper(text: str) -> str:
    return text[:1].upper() + text[1:]
