"""Count what a port's log holds: rates, levels, boots, the commonest lines."""

from __future__ import annotations

import json
from typing import Any

from serialwatch.records import SkillContext, SkillResult

MAX_BYTES = 7 * 1024  # of JSON; rarer shapes go first
MAX_BOOTS = 12  # the newest


async def run(ctx: SkillContext, params: dict[str, Any]) -> SkillResult:
    """Return numbers about the lines that `params` mean."""
    answer = await ctx.log.stats(**params)
    if answer["no_data"]:
        summary = f"{answer['port']}: no such line"
    else:
        _cut(answer)
        summary = (
            f"{answer['port']}: {answer['lines']} lines in {answer['seconds']} s, "
            f"{len(answer['shapes'])} shapes"
        )
    return SkillResult(
        "success", answer, metadata={"no_data": answer["no_data"], "summary": summary}
    )


def _cut(answer: dict[str, Any]) -> None:
    if (more := len(answer["boots"]) - MAX_BOOTS) > 0:
        answer["boots"] = answer["boots"][more:]
        answer["earlier_boots"] = more
    while len(json.dumps(answer, ensure_ascii=False).encode()) > MAX_BYTES:
        answer["lines_of_other_shapes"] += answer["shapes"].pop()["count"]
