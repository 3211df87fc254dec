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
    titles = "; ".join(map(_shown, found["memories"]))
    return SkillResult(
        "success",
        found,
        metadata={"no_data": found["no_data"], "summary": titles[:160] or "nothing remembered"},
    )


def _shown(memory: dict[str, Any]) -> str:
    """Return a memory in short, as it is cited."""
    how = "" if memory["is_verified"] else ", unverified"
    return f"{memory['ref']} [{memory['type']}, {memory['age']}{how}] {memory['title']}"
