"""Take fault registers apart by the manuals; each module names the one it follows."""

from __future__ import annotations

from typing import Any

from decoded import Decoded
from finding import ALIASES, DECODERS, find_registers

from serialwatch.records import SkillContext, SkillResult

# Registers that hold an address, and when it is one.
_ADDRESSES = {
    "bfar": ("valid only if BFARVALID in cfsr (bit 15) is set", "DDI 0403"),
    "mmfar": ("valid only if MMARVALID in cfsr (bit 7) is set", "DDI 0403"),
    "sfar": ("valid only if SFARVALID in sfsr (bit 6) is set", "DDI 0553"),
    "far": ("that of the access; not valid if FnV in esr is set", "DDI 0487"),
    "cr2": ("that of the access that made the newest page fault", "Intel SDM Vol. 3A"),
    "mtval": ("that of the access or fetch; for an illegal instruction its code", "RISC-V"),
    "excvaddr": ("that of the access; of no meaning for other exceptions", "Xtensa ISA"),
    "badvaddr": ("that of the access; of no meaning for other exceptions", "MIPS32 Vol. III"),
}
_SAME_ADDRESS = {"stval": "mtval", "far_el1": "far", "far_el2": "far", "far_el3": "far",
                 "dfar": "far", "ifar": "far"}  # fmt: skip


async def run(ctx: SkillContext, params: dict[str, Any]) -> SkillResult:
    """Decode `register` with `value`, or every register in `text`."""
    if "text" in params:
        found = find_registers(params["text"])
        output = {"registers": [_shown(d) for d in found], "no_data": not found}
        return SkillResult("success", output, metadata={"summary": _summary(found)})
    value = int(params["value"], 0)
    name = params["register"].lower()
    name = ALIASES.get(name, _SAME_ADDRESS.get(name, name))
    if name in _ADDRESSES:
        what, source = _ADDRESSES[name]
        decoded = Decoded(name, value, True, f"An address, {what}.", source)
    elif name in DECODERS:
        decoded = DECODERS[name](value)
    else:
        return _no_table(name)
    output = {"registers": [_shown(decoded)], "no_data": False}
    return SkillResult("success", output, metadata={"summary": _summary([decoded])})


def _no_table(name: str) -> SkillResult:
    """Return that a register is not known here: its bits are not to be guessed."""
    why = f"no table for {name}: its bits mean nothing without the manual of that chip"
    tables = sorted({*DECODERS, *ALIASES, *_ADDRESSES, *_SAME_ADDRESS})
    output = {"registers": [], "no_table": name, "why": why, "tables": tables, "no_data": True}
    return SkillResult("success", output, metadata={"no_data": True, "summary": why[:160]})


def _shown(decoded: Decoded) -> dict[str, Any]:
    return {
        "register": decoded.register,
        "value": f"0x{decoded.value:08x}",
        "known": decoded.known,
        "meaning": decoded.meaning,
        "fields": dict(decoded.fields),
        "bits": list(decoded.bits),
        "source": decoded.source,
    }


def _summary(found: list[Decoded]) -> str:
    return "; ".join(f"{d.register}: {d.meaning}" for d in found)[:160] or "no register found"
