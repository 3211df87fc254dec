"""Read lines of a port's log."""

from __future__ import annotations

import json
import time
from typing import Any

from serialwatch.records import SkillContext, SkillResult

MAX_BYTES = 7 * 1024  # of JSON; a longer answer is cut between lines, and says where to go on
KEPT_S = 2.0  # of the time limit: then no further page is asked for
_BEGINNINGS = ("first", "since", "boot", "marker")


async def run(ctx: SkillContext, params: dict[str, Any]) -> SkillResult:
    """Return the lines that `params` mean, oldest first."""
    wanted = dict(params)
    if (around := wanted.pop("around", None)) is not None:
        half = wanted["limit"] // 2
        wanted |= {"first": max(around - half, 1), "last": around + half}
    is_newest_kept = not wanted.keys() & set(_BEGINNINGS)
    answer = await ctx.log.lines(**wanted)
    while answer["next"] and len(answer["lines"]) < params["limit"] and _has_time(ctx):
        left = params["limit"] - len(answer["lines"])
        page = await ctx.log.lines(**{**wanted, **answer["next"], "limit": left})
        _join(answer, page, is_newest_kept=is_newest_kept)
    answer["no_data"] = not answer["lines"] and not answer["next"]
    if answer["lines"]:
        answer.pop("why", None)
    elif answer["next"]:
        answer["why"] = f"nothing yet: {answer['scanned']} lines were searched, go on with `next`"
    _cut(answer, is_newest_kept=is_newest_kept)
    return SkillResult(
        "success",
        answer,
        metadata={"no_data": answer["no_data"], "summary": _summary(answer)},
    )


def _has_time(ctx: SkillContext) -> bool:
    return time.monotonic() < ctx.deadline_s - KEPT_S


def _join(answer: dict[str, Any], page: dict[str, Any], *, is_newest_kept: bool) -> None:
    """Put a further page to what was found: each looked at a part of the range only."""
    lines = (
        [*page["lines"], *answer["lines"]] if is_newest_kept else answer["lines"] + page["lines"]
    )
    gaps = [*page.get("gaps", []), *answer["gaps"]] if is_newest_kept else (
        answer["gaps"] + page.get("gaps", []))  # fmt: skip
    searched = [page.get("searched", answer["searched"]), answer["searched"]]
    answer |= {
        "lines": lines,
        "gaps": gaps,
        "next": page["next"],
        "scanned": answer["scanned"] + page.get("scanned", 0),
        "searched": [min(s[0] for s in searched), max(s[1] for s in searched)],
        "first": lines[0]["seq"] if lines else None,
        "last": lines[-1].get("last_seq", lines[-1]["seq"]) if lines else None,
    }


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
    if not answer["lines"]:
        return f"{answer['port']}: {answer.get('why', 'no such line')}"[:160]
    more = ", more with `next`" if answer["next"] else ""
    where = f"{answer['port']}:L{answer['first']}-L{answer['last']}"
    counted = "1 line" if len(answer["lines"]) == 1 else f"{len(answer['lines'])} lines"
    return f"{where}, {counted}{more}"


def _size(value: object) -> int:
    return len(json.dumps(value, ensure_ascii=False).encode())
