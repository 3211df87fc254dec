"""Read lines of a port's log."""

from __future__ import annotations

import json
from typing import Any

from serialwatch.records import SkillContext, SkillResult

MAX_BYTES = 7 * 1024  # of JSON; a longer answer is cut between lines, and says where to go on


async def run(ctx: SkillContext, params: dict[str, Any]) -> SkillResult:
    """Return the lines that `params` mean, oldest first."""
    wanted = dict(params)
    if (around := wanted.pop("around", None)) is not None:
        half = wanted["limit"] // 2
        wanted |= {"first": max(around - half, 1), "last": around + half}
    answer = await ctx.log.lines(**wanted)
    _cut(answer, is_newest_kept=not wanted.keys() & {"first", "since", "boot", "marker"})
    return SkillResult(
        "success",
        answer,
        metadata={"no_data": answer["no_data"], "summary": _summary(answer)},
    )


def _cut(answer: dict[str, Any], *, is_newest_kept: bool) -> None:
    """Drop lines until the answer is short enough; `next` then says where they are."""
    lines = answer["lines"]
    left = MAX_BYTES - _size({**answer, "lines": []})
    kept = 0
    for line in reversed(lines) if is_newest_kept else lines:
        left -= _size(line) + 2
        if left < 0 and kept:
            break
        kept += 1
    if kept == len(lines):
        return
    if is_newest_kept:
        answer["lines"] = lines[-kept:]
        answer["next"] = {"last": answer["lines"][0]["seq"] - 1}
    else:
        answer["lines"] = lines[:kept]
        answer["next"] = {"first": lines[kept]["seq"]}
    answer["first"] = answer["lines"][0]["seq"]
    answer["last"] = answer["lines"][-1].get("last_seq", answer["lines"][-1]["seq"])


def _summary(answer: dict[str, Any]) -> str:
    if answer["no_data"]:
        return f"{answer['port']}: no such line"
    more = ", more with `next`" if answer["next"] else ""
    where = f"{answer['port']}:L{answer['first']}-L{answer['last']}"
    return f"{where}, {len(answer['lines'])} lines{more}"


def _size(value: object) -> int:
    return len(json.dumps(value, ensure_ascii=False).encode())
