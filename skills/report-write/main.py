"""Hand in the report of a run."""

from __future__ import annotations

from typing import Any

from serialwatch.records import SkillContext, SkillResult


async def run(ctx: SkillContext, params: dict[str, Any]) -> SkillResult:
    """Submit the draft; what the verifier refuses comes back to be mended."""
    answer = await ctx.report.submit(params)
    if answer.get("accepted"):
        return SkillResult("success", answer, metadata={"summary": "the report is accepted"})
    problems = answer.get("rejections", [])
    counted = "1 problem" if len(problems) == 1 else f"{len(problems)} problems"
    need = {"kind": "param", "params": ["conclusions"]}
    return SkillResult(
        "require_more",
        answer,
        metadata={"summary": f"{counted}: mend or drop", "need": need},
    )
