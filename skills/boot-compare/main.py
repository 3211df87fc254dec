"""Compare a boot with the last good one, or any two."""

from __future__ import annotations

import json
from typing import Any

from serialwatch.records import SkillContext, SkillResult

MAX_BYTES = 7 * 1024  # of JSON; rarer findings go first
_LEVELS = ("note", "warning", "error", "critical")
_LEAST = {"counts": 2, "reworded": 2, "slower": 2, "new": 4, "missing": 4}  # entries that stay


async def run(ctx: SkillContext, params: dict[str, Any]) -> SkillResult:
    """Return where two boots part, and how else they differ."""
    answer = await ctx.log.compare(
        params.get("port") or "",
        boot=params.get("boot"),
        base=params.get("base"),
        limit=params["limit"],
    )
    if not answer["no_data"]:
        _cut(answer)
    return SkillResult(
        "success", answer, metadata={"no_data": answer["no_data"], "summary": _summary(answer)}
    )


def _cut(answer: dict[str, Any]) -> None:
    """Drop entries from the longest list until the answer is short enough."""
    while len(json.dumps(answer, ensure_ascii=False).encode()) > MAX_BYTES:
        over = {name: len(answer[name]) - least for name, least in _LEAST.items()}
        longest = max(over, key=lambda name: over[name])
        if over[longest] <= 0:
            return
        _drop_mildest(answer[longest])


def _drop_mildest(rows: list[dict[str, Any]]) -> None:
    """Drop the last one of those that look least bad."""
    worst_last = [_LEVELS.index(row.get("level", "note")) for row in rows]
    rows.pop(len(rows) - 1 - worst_last[::-1].index(min(worst_last)))


def _summary(answer: dict[str, Any]) -> str:
    if answer["no_data"]:
        return f"{answer['port']}: {answer['why']}"[:160]
    who = f"{answer['port']}: boot {answer['boot']['number']} against {answer['base']['number']}"
    parting = answer["divergence"]
    if parting is None:
        return f"{who}: no line is new or missing"
    if parting["kind"] == "new":
        return f"{who}: L{parting['here']['seq']} is new: {parting['here']['text']}"[:160]
    verb = "is missing" if parting["kind"] == "missing" else "was not reached"
    return f"{who}: L{parting['base']['base_seq']} {verb}: {parting['base']['text']}"[:160]
