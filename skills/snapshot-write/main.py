"""Keep a state of a port under a name, to compare with later."""

from __future__ import annotations

from typing import Any

from serialwatch.records import SkillContext, SkillResult

MAX_SHAPES = 60
_COUNTERS = (
    "state", "bit_rate", "boot", "boots", "reconnects", "rx_bytes", "rx_lines", "lost_bytes",
    "uart_errors", "open_incidents",
)  # fmt: skip


async def run(ctx: SkillContext, params: dict[str, Any]) -> SkillResult:
    """Store counters, line shapes or facts of a port under a name; return the id."""
    port = params.get("port") or ctx.port
    match params["what"]:
        case "counters":
            ports = (await ctx.ports())["ports"]
            if port not in ports:
                return _needs("port", f"there is no port {port}; there is: {', '.join(ports)}")
            state = {key: ports[port][key] for key in _COUNTERS if key in ports[port]}
        case "shapes":
            boot = params.get("boot", -1)
            counted = await ctx.log.stats(port, boot=boot, limit=MAX_SHAPES)
            state = {
                "boot": boot,
                "lines": counted.get("lines", 0),
                "shapes": {one["shape"]: one["count"] for one in counted["shapes"]},
            }
        case _:
            if not params.get("facts"):
                return _needs("facts", "say what is to be kept: a flat object of values")
            state = dict(params["facts"])
    body = {"what": params["what"], "state": state}
    written = await ctx.snapshot.write(params["name"], body, port=port)
    output = {"id": written["id"], "port": port, "name": params["name"], "kept": len(state)}
    summary = f"{port}: {params['what']} kept as {params['name']!r}, snapshot {written['id']}"
    return SkillResult("success", output, metadata={"summary": summary[:160]})


def _needs(param: str, why: str) -> SkillResult:
    need = {"kind": "param", "params": [param]}
    return SkillResult("require_more", {"why": why}, metadata={"summary": why[:160], "need": need})
