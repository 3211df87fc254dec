"""Remember a conclusion for later days."""

from __future__ import annotations

from typing import Any

from serialwatch.records import SkillContext, SkillResult


async def run(ctx: SkillContext, params: dict[str, Any]) -> SkillResult:
    """Hand in a memory; return its id, whether it is new, and what is near it."""
    scope = params["scope"]
    if scope == "port" and not ctx.port:
        scope = "bench"  # a run about no port has none to remember it for
    memory = {
        "type": params["type"],
        "title": " ".join(params["title"].split()),
        "body": " ".join(params["body"].split()),
        "priority": params["priority"],
        "scope": scope,
        "tags": params.get("tags", []),
        "evidence": params.get("evidence", []),
    }
    written = await ctx.memory.write(memory)
    return SkillResult("success", written, metadata={"summary": _summary(written)})


def _summary(written: dict[str, Any]) -> str:
    how = "" if "is_new" not in written else " (new)" if written["is_new"] else " (known, counted)"
    near = written.get("near") or []
    beside = f"; near it: {', '.join(f'M{one}' for one in near)}" if near else ""
    return f"remembered as M{written.get('id', '?')}{how}{beside}"[:160]
