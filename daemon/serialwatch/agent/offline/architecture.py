"""Which processor a dump is of, and advice that fits it: no BFAR for who has an mtval."""

from __future__ import annotations

import re
from collections.abc import Iterable

# What a dump has that no other processor's has, the surest first.
_SIGNS = tuple(
    (name, re.compile(pattern))
    for name, pattern in (
        ("xtensa", r"\bEXCCAUSE\b|\bEXCVADDR\b|\bepc1=0x|EPC1 *[:=]"),
        ("riscv", r"\b[ms](?:cause|tval|epc)\b|\bM(?:CAUSE|TVAL|EPC)\b"),
        (
            "cortexm",
            r"\b(?:CFSR|HFSR|MMFSR|BFSR|UFSR|BFAR|MMFAR)\b|\bxpsr\b|\(r15/pc\)"
            r"|\b(?:MPU|BUS|USAGE|HARD) FAULT\b|\bHard ?Fault\b",
        ),
        ("arm64", r"\bESR_EL\w|\bELR(?:_EL\d)?:|\besr 0x|\bpstate ?: |\bx29 ?: "),
        ("arm", r"\bcpsr\b|\bCPSR\b|\bPC is at |\b[DI]F(?:SR|AR) ?[:=]"),
        ("x86", r"\b[ER]IP: |\bCR2: |\b[ER]AX: |#PF: |\bCPU Page Fault\b"),
        ("arc", r"\bException vector: 0x|\bECR ?[:=]|\bERET ?[:=]"),
        ("mips", r"\bBadVA\b|\bExcCode\b"),
    )
)
_REGISTERS = {
    "xtensa": r"EXCCAUSE|EXCVADDR|VADDR|epc1|depc",
    "riscv": r"[ms](?:cause|tval|epc)|M(?:CAUSE|TVAL|EPC)",
    "cortexm": r"CFSR|HFSR|MMFSR|BFSR|UFSR|SFSR|BFAR|MMFAR|EPSR|ACTLR(?:\.\w+)?|EXC_RETURN",
    "arm64": r"ESR(?:_EL[1-3])?|ELR(?:_EL[1-3])?|FAR(?:_EL[1-3])?",
    "arm": r"[DI]FSR|[DI]FAR|CPSR",
    "x86": r"[ER]IP|CR2|error code",
    "arc": r"ECR|EFA|ERET",
    "mips": r"BadVAddr|BadVA",
}
_NAMES = {name: re.compile(rf"\b(?:{pattern})\b") for name, pattern in _REGISTERS.items()}
_CHIPS = re.compile(r"\bCortex-M\w*\b")
_NAME = rf"(?:{'|'.join(_REGISTERS.values())})"
_ANY_NAME = re.compile(rf"\b{_NAME}\b")
_LIST = re.compile(rf"\b{_NAME}(?:(?:,? or |,? and |, ){_NAME})+\b")


def architecture_of(lines: Iterable[str]) -> str:
    """Return which processor the lines of a dump are of, "" if they do not tell."""
    text = "\n".join(lines)
    return next((name for name, sign in _SIGNS if sign.search(text)), "")


def fitted(text: str, architecture: str) -> str:
    """Return advice without the registers of other processors, "" if it is for those alone."""
    if not architecture:
        return text
    own = _NAMES[architecture]

    def kept(found: re.Match[str]) -> str:
        fitting = own.findall(found[0])
        is_cut = 0 < len(fitting) < len(_ANY_NAME.findall(found[0]))
        return " or ".join(fitting) if is_cut else found[0]

    text = _LIST.sub(kept, text)
    named = {name for name, pattern in _NAMES.items() if pattern.search(text)}
    if _CHIPS.search(text):
        named.add("cortexm")
    return text if not named or architecture in named else ""
