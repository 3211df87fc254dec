"""Find fault registers in a console line."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator

from arm32 import decode_fsr
from arm64 import decode_esr
from cortexm import (
    decode_bfsr,
    decode_cfsr,
    decode_exc_return,
    decode_hfsr,
    decode_mmfsr,
    decode_sfsr,
    decode_ufsr,
)
from decoded import Decoded
from espressif import decode_rst, decode_rst_cause
from linux import decode_exitcode
from mips import decode_cause
from riscv import decode_mcause
from x86 import decode_pf
from xtensa import decode_exccause

MAX_LINE = 1000  # characters that are looked at

DECODERS: dict[str, Callable[[int], Decoded]] = {
    "esr": decode_esr,
    "fsr": decode_fsr,
    "cfsr": decode_cfsr,
    "mmfsr": decode_mmfsr,
    "bfsr": decode_bfsr,
    "ufsr": decode_ufsr,
    "hfsr": decode_hfsr,
    "mcause": decode_mcause,
    "exccause": decode_exccause,
    "rst": decode_rst,
    "rst_cause": decode_rst_cause,
    "exitcode": decode_exitcode,
    "sfsr": decode_sfsr,
    "exc_return": decode_exc_return,
    "pf_error": decode_pf,
    "mips_cause": decode_cause,
}
ALIASES = {
    "esr_el1": "esr",
    "esr_el2": "esr",
    "esr_el3": "esr",
    "dfsr": "fsr",
    "ifsr": "fsr",
    "mfsr": "mmfsr",
    "scause": "mcause",
}


def find_registers(text: str) -> list[Decoded]:
    """Return every fault register in a line, in the order of the patterns below."""
    line = text[:MAX_LINE]
    if re.search(r"context fault|iova=", line):
        return []  # of an IOMMU, whose fsr is another register
    found: dict[tuple[str, int], Decoded] = {}
    for decoded in _found(line):
        found.setdefault((decoded.register, decoded.value), decoded)
    return list(found.values())


def _found(line: str) -> Iterator[Decoded]:
    for match in _ESR.finditer(line):
        yield decode_esr(int(match[1], 16))
    for match in _OOPS.finditer(line):
        if len(match[1]) in (8, 16) and not re.search(r"\bARM\b", line):
            yield decode_esr(int(match[1], 16))
        elif re.search(r"\bARM\b", line):
            yield decode_fsr(int(match[1], 16))
    for match in _FSR.finditer(line):
        yield decode_fsr(int(match[1] or match[2], 16))
    for match in _CORTEX_M.finditer(line):
        name = match[1].lower()
        yield DECODERS[ALIASES.get(name, name)](int(match[2], 16))
    for match in _MCAUSE.finditer(line):
        yield decode_mcause(_number(match[1]))
    for match in _EXCCAUSE.finditer(line):
        yield decode_exccause(_number(match[1]))
    for match in _EXCEPTION_8266.finditer(line):
        yield decode_exccause(int(match[1] or match[2]))
    for match in _RST.finditer(line):
        yield decode_rst(int(match[1], 16), match[2] or "")
    for match in _RST_CAUSE.finditer(line):
        yield decode_rst_cause(int(match[1]), int(match[2]) if match[2] else None)
    for match in _EXITCODE.finditer(line):
        yield decode_exitcode(int(match[1], 16))

    for match in _PF_ERROR.finditer(line):
        yield decode_pf(int(match[1], 16))
    for match in _OOPS_X86.finditer(line):
        yield decode_pf(int(match[1], 16))
    for match in _MIPS_CAUSE.finditer(line):
        yield decode_cause(int(match[1], 16))
    for match in _EXC_RETURN.finditer(line):
        yield decode_exc_return(int(match[1], 16))


def _number(text: str) -> int:
    """Read a number as consoles print it: hexadecimal with 0x or leading zeros, else decimal."""
    if text.lower().startswith("0x"):
        return int(text, 16)
    is_padded = len(text) > 1 and text.startswith("0")
    return int(text, 16) if is_padded or len(text) >= 8 or not text.isdecimal() else int(text)


_START = r"(?i)(?<![A-Za-z])"
_ESR = re.compile(_START + r"esr(?:_el[123])?\s*[:=]?\s*0x([0-9a-f]{1,16})\b")
_OOPS = re.compile(r"Internal error: (?:Oops)?: ([0-9a-f]{1,16}) \[#\d+\]")
_FSR = re.compile(
    _START + r"(?:[di]?fsr\s*[:=]?\s*0x([0-9a-f]{1,8})\b"
    r"|unhandled (?:fault|prefetch abort): [^(]{3,60}\(0x([0-9a-f]{1,8})\))"
)
_CORTEX_M = re.compile(
    _START + r"(CFSR|HFSR|MMFSR|MFSR|BFSR|UFSR|SFSR)(?:\s*[:=]\s*(?:0x)?|\s+0x)([0-9a-f]{1,8})\b"
)
_MCAUSE = re.compile(_START + r"[ms]cause\s*[:=]\s*(0x[0-9a-f]{1,16}|[0-9a-f]{1,16})\b")
_EXCCAUSE = re.compile(_START + r"exccause\s*[:=]?\s*(0x[0-9a-f]{1,8}|[0-9a-f]{1,8})\b")
_EXCEPTION_8266 = re.compile(
    r"\bException \((\d{1,2})\):|\bFatal exception[ (]+(\d{1,2})(?:\)|\(\w+Cause)"
)
_RST = re.compile(r"\brst:0x([0-9a-f]{1,2})(?: ?\((\w+)\))?")
_RST_CAUSE = re.compile(r"\brst cause:\s?(\d{1,2})(?:, ?boot mode:\((\d{1,2}))?")
_PF_ERROR = re.compile(r"#PF: error_code\(0x([0-9a-f]{1,8})\)")
_OOPS_X86 = re.compile(r"(?<!error: )\bOops: ([0-9a-f]{4}) \[#\d+\]")  # never ARM's
_MIPS_CAUSE = re.compile(r"\bCause\s*:\s*([0-9a-f]{8})\s*\(ExcCode")
_EXC_RETURN = re.compile(
    r"(?i)\b(?:exc_return|lr|r14/lr|r14)\b[^0-9a-z]{0,8}(?:0x)?(ffffff[89a-f][014589cd])\b"
)
_EXITCODE = re.compile(r"\bexitcode=0x([0-9a-f]{1,8})\b")
