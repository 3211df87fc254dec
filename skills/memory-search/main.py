"""Search what the bench learned earlier."""

from __future__ import annotations

from typing import Any

from serialwatch.records import SkillContext, SkillResult


async def run(ctx: SkillContext, params: dict[str, Any]) -> SkillResult:
    """Return the memories that fit `query` best."""
    found = await ctx.memory.search(
        params["query"],
        port=params.get("port") or ctx.port or None,
        type=params.get("type"),
        limit=params["limit"],
    )
    titles = "; ".join(memory["title"] for memory in found["memories"])
    return SkillResult(
        "success",
        found,
        metadata={"no_data": found["no_data"], "summary": titles[:160] or "nothing remembered"},
    )
