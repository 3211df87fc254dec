"""Look things up in the knowledge base."""

from __future__ import annotations

from typing import Any

from serialwatch.records import SkillContext, SkillResult

MAX_BODY = 3000  # characters


async def run(ctx: SkillContext, params: dict[str, Any]) -> SkillResult:
    """Return the page `id`, or the pages that fit `query`."""
    if "id" in params:
        page = await ctx.knowledge.get(params["id"])
        page["body"] = page["body"][:MAX_BODY]
        return SkillResult("success", {"page": page}, metadata={"summary": page["title"][:160]})
    found = await ctx.knowledge.search(
        params["query"], ecosystem=params.get("ecosystem"), limit=params["limit"]
    )
    titles = "; ".join(f"{page['id']}: {page['title']}" for page in found["pages"])
    return SkillResult(
        "success",
        found,
        metadata={"no_data": found["no_data"], "summary": titles[:160] or "no page fits"},
    )
