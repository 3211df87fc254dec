"""Type one line on a board's console, once a person has approved exactly that."""

from __future__ import annotations

import asyncio
import time
from typing import Any

from serialwatch.records import SkillContext, SkillResult

ANSWER_S = 10.0  # for the board to answer
QUIET_S = 1.0  # when nothing more came for so long, that was all
LOOK_S = 0.1
MAX_LINES = 60


async def run(ctx: SkillContext, params: dict[str, Any]) -> SkillResult:
    """Send the line, and return what the board printed then."""
    told = await ctx.console.send(params["text"] + ("\r" if params["enter"] else ""))
    if told["is_rehearsal"]:
        return SkillResult("success", {"port": told["port"]})
    lines = await _answer(ctx, told)
    count = f"{len(lines)} line{'s'[: len(lines) != 1]}" if lines else "nothing"
    summary = f"sent; {count} came after it"
    output = {"port": told["port"], "lines": lines, "no_data": not lines}
    return SkillResult("success", output, metadata={"no_data": not lines, "summary": summary})


async def _answer(ctx: SkillContext, told: dict[str, Any]) -> list[dict[str, Any]]:
    """Return the lines that came since the send, when no more of them come."""
    first, stood = told["before_seq"], str(told.get("before_text", "")).rstrip()
    lines: list[dict[str, Any]] = []
    now_s = time.monotonic()
    end_s, quiet_s = now_s + ANSWER_S, now_s + ANSWER_S
    while time.monotonic() < min(end_s, quiet_s) and len(lines) < MAX_LINES:
        await asyncio.sleep(LOOK_S)
        found = (await ctx.log.lines(told["port"], first=first, limit=MAX_LINES))["lines"]
        if found and found[0]["seq"] == first and found[0]["text"].rstrip() == stood:
            del found[0]
        if len(found) > len(lines):
            lines, quiet_s = found, time.monotonic() + QUIET_S
    return lines
