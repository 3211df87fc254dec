"""Reset a board, once a person has approved it."""

from __future__ import annotations

import asyncio
import time
from typing import Any

from serialwatch.records import SkillContext, SkillResult

START_S = 10.0  # for the board to print something
LOOK_S = 0.1
MAX_LINES = 40  # of the new boot


async def run(ctx: SkillContext, params: dict[str, Any]) -> SkillResult:
    """Reset the board, and return what it printed first."""
    told = await ctx.port.reset()
    if told["is_rehearsal"]:
        return SkillResult("success", {"port": told["port"]})
    lines: list[dict[str, Any]] = []
    end_s = time.monotonic() + START_S
    while time.monotonic() < end_s and len(lines) < MAX_LINES:
        await asyncio.sleep(LOOK_S)
        first, stood = told["before_seq"], str(told.get("before_text", "")).rstrip()
        lines = (await ctx.log.lines(told["port"], first=first, limit=MAX_LINES))["lines"]
        if lines and lines[0]["seq"] == first and lines[0]["text"].rstrip() == stood:
            del lines[0]
    count = f"{len(lines)} line{'s'[: len(lines) != 1]}" if lines else "nothing"
    summary = f"reset; {count} came after it"
    output = {"port": told["port"], "how": told["how"], "lines": lines, "no_data": not lines}
    return SkillResult("success", output, metadata={"no_data": not lines, "summary": summary})
