"""Take fault registers apart by the manuals; each module names the one it follows."""

from __future__ import annotations

from typing import Any

from decoded import Decoded
from finding import ALIASES, DECODERS, find_registers

from serialwatch.records import SkillContext, SkillResult

# Registers that hold an address, and the flag of another one that says whether it is valid.
_ADDRESSES = {"bfar": "BFARVALID in cfsr (bit 15)", "mmfar": "MMARVALID in cfsr (bit 7)"}


async def run(ctx: SkillContext, params: dict[str, Any]) -> SkillResult:
    """Decode `register` with `value`, or every register in `text`."""
    if "text" in params:
        found = find_registers(params["text"])
        output = {"registers": [_shown(d) for d in found], "no_data": not found}
        return SkillResult("success", output, metadata={"summary": _summary(found)})
    value = int(params["value"], 0)
    name = ALIASES.get(params["register"], params["register"])
    if name in _ADDRESSES:
        decoded = Decoded(
            name, value, True, f"An address, valid only if {_ADDRESSES[name]} is set.", "DDI 0403"
        )
    else:
        decoded = DECODERS[name](value)
    output = {"registers": [_shown(decoded)], "no_data": False}
    return SkillResult("success", output, metadata={"summary": _summary([decoded])})


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
