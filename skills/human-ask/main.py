"""Ask a person of the bench."""

from __future__ import annotations

from typing import Any

from serialwatch.records import SkillContext, SkillResult


async def run(ctx: SkillContext, params: dict[str, Any]) -> SkillResult:
    """End with a question; the answer comes with a later run."""
    await ctx.human.ask(
        params["question"],
        known=params["known"],
        missing=params["missing"],
        options=params.get("options", []),
    )
