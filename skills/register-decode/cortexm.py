"""Cortex-M fault status: CFSR with its parts MMFSR, BFSR and UFSR, HFSR, SFSR and EXC_RETURN.

Source: ARMv7-M Architecture Reference Manual, DDI 0403, B3.2.15 (CFSR), B3.2.16 (HFSR) and B1.5.8
(EXC_RETURN); UFSR bit 4 (STKOF), SFSR and bits 6, 5 and 0 of EXC_RETURN from the ARMv8-M
Architecture Reference Manual, DDI 0553.
"""

from __future__ import annotations

from decoded import Decoded, flags, stray, unknown

SOURCE = "ARMv7-M ARM DDI 0403, B3.2.15 and B3.2.16"
SOURCE_8 = "ARMv8-M ARM DDI 0553, SFSR"


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


def decode_sfsr(value: int) -> Decoded:
    """Take the SecureFault status register of ARMv8-M apart."""
    return _status("sfsr", value, _SFSR, SOURCE_8)


def decode_exc_return(value: int) -> Decoded:
    """Say where an exception was taken from, by the value it left in LR."""
    if value >> 8 != 0xFFFFFF or value & 0x82 != 0x80:
        return unknown("exc_return", value, f"0x{value:08x} as EXC_RETURN", SOURCE)
    mode = "thread mode" if value & 8 else "handler mode: an exception interrupted another one"
    stack = "the process stack (PSP)" if value & 4 else "the main stack (MSP)"
    fields = {
        "Mode": f"{value >> 3 & 1}: {mode}",
        "SPSEL": f"{value >> 2 & 1}: the frame is on {stack}",
        "FType": f"{value >> 4 & 1}: floating-point registers are {'not ' * (value >> 4 & 1)}in it",
    }
    meaning = f"The exception came in {mode}; its registers are on {stack}."
    return Decoded("exc_return", value, True, meaning, SOURCE, fields)


_SFSR = {
    0: ("INVEP", "the Secure state was entered elsewhere than at an SG instruction"),
    1: ("INVIS", "the integrity signature of a stack frame is wrong"),
    2: ("INVER", "a wrong return from an exception"),
    3: ("AUVIOL", "code that is not Secure touched what is Secure"),
    4: ("INVTRAN", "a branch out of the Secure state without leave"),
    5: ("LSPERR", "lazy saving of floating-point registers was not permitted"),
    6: ("SFARVALID", "SFAR holds the address"),
    7: ("LSERR", "an error in the state of lazy saving"),
}
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
_VALID = ("MMARVALID", "BFARVALID", "SFARVALID")  # say where the address is, not what happened


def _status(
    register: str, value: int, known: dict[int, tuple[str, str]], source: str = SOURCE
) -> Decoded:
    found = flags(value, known)
    rest = stray(value, sum(1 << bit for bit in known))
    if not found and value:
        return unknown(register, value, f"bits 0x{value:x}", source)
    happened = [text for name, text in found.items() if name not in _VALID]
    where = [text for name, text in found.items() if name in _VALID]
    meaning = "; ".join([*happened, *where, *([rest] if rest else [])]) or "no fault is recorded"
    fields = {name: f"1: {text}" for name, text in found.items()}
    return Decoded(
        register, value, True, f"{meaning[0].upper()}{meaning[1:]}.", source, fields, tuple(found)
    )
