"""Cortex-M fault status: CFSR with its parts MMFSR, BFSR and UFSR, and HFSR.

Source: ARMv7-M Architecture Reference Manual, DDI 0403, B3.2.15 (CFSR) and B3.2.16 (HFSR); UFSR
bit 4 (STKOF) from the ARMv8-M Architecture Reference Manual, DDI 0553.
"""

from __future__ import annotations

from decoded import Decoded, flags, stray, unknown

SOURCE = "ARMv7-M ARM DDI 0403, B3.2.15 and B3.2.16"


def decode_cfsr(value: int) -> Decoded:
    """Take the configurable fault status register apart."""
    return _status("cfsr", value, _CFSR)


def decode_mmfsr(value: int) -> Decoded:
    """Take the MemManage part apart, printed on its own."""
    return _status("mmfsr", value, _MMFSR)


def decode_bfsr(value: int) -> Decoded:
    """Take the BusFault part apart, printed on its own."""
    return _status("bfsr", value, _BFSR)


def decode_ufsr(value: int) -> Decoded:
    """Take the UsageFault part apart, printed on its own."""
    return _status("ufsr", value, _UFSR)


def decode_hfsr(value: int) -> Decoded:
    """Take the HardFault status register apart."""
    return _status("hfsr", value, _HFSR)


_MMFSR = {
    0: ("IACCVIOL", "an instruction was fetched from where it may not"),
    1: ("DACCVIOL", "data was read or written where it may not"),
    3: ("MUNSTKERR", "unstacking at the end of an exception was not permitted"),
    4: ("MSTKERR", "stacking at an exception was not permitted, as at a stack overflow"),
    5: ("MLSPERR", "lazy saving of floating-point registers was not permitted"),
    7: ("MMARVALID", "MMFAR holds the address"),
}
_BFSR = {
    0: ("IBUSERR", "the bus answered an instruction fetch with an error"),
    1: ("PRECISERR", "the bus answered a data access with an error; the stacked PC is the culprit"),
    2: ("IMPRECISERR", "the bus reported an earlier write late; the stacked PC is not the culprit"),
    3: ("UNSTKERR", "the bus failed at unstacking from an exception"),
    4: ("STKERR", "the bus failed at stacking for an exception, as with a bad stack pointer"),
    5: ("LSPERR", "the bus failed at lazy saving of floating-point registers"),
    7: ("BFARVALID", "BFAR holds the address"),
}
_UFSR = {
    0: ("UNDEFINSTR", "an undefined instruction"),
    1: ("INVSTATE", "an invalid state, as after a jump to an address without the Thumb bit"),
    2: ("INVPC", "an invalid return value was loaded into PC (EXC_RETURN)"),
    3: ("NOCP", "a coprocessor instruction, as floating point while the FPU is off"),
    4: ("STKOF", "the stack went below its limit (ARMv8-M)"),
    8: ("UNALIGNED", "an unaligned access"),
    9: ("DIVBYZERO", "a division by zero"),
}
_CFSR = {
    **_MMFSR,
    **{8 + bit: known for bit, known in _BFSR.items()},
    **{16 + bit: known for bit, known in _UFSR.items()},
}
_HFSR = {
    1: ("VECTTBL", "the bus failed at reading the vector table"),
    30: ("FORCED", "another fault was escalated: read CFSR for which"),
    31: ("DEBUGEVT", "a debug event while debugging was off, as a BKPT instruction"),
}
_VALID = ("MMARVALID", "BFARVALID")  # say where the address is, not what happened


def _status(register: str, value: int, known: dict[int, tuple[str, str]]) -> Decoded:
    found = flags(value, known)
    rest = stray(value, sum(1 << bit for bit in known))
    if not found and value:
        return unknown(register, value, f"bits 0x{value:x}", SOURCE)
    happened = [text for name, text in found.items() if name not in _VALID]
    where = [text for name, text in found.items() if name in _VALID]
    meaning = "; ".join([*happened, *where, *([rest] if rest else [])]) or "no fault is recorded"
    fields = {name: f"1: {text}" for name, text in found.items()}
    return Decoded(
        register, value, True, f"{meaning[0].upper()}{meaning[1:]}.", SOURCE, fields, tuple(found)
    )
