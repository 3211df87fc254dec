"""Show the surroundings of cited lines: so many before and after, their block, or up to words."""

from __future__ import annotations

import json
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from serialwatch.records import SkillContext, SkillResult

MAX_BYTES = 7 * 1024  # of JSON, for all windows together
MAX_SIDE = 200  # lines on one side
PAUSE_S = 0.5  # a block that no rule knows ends where the board was silent for so long
AT_ONCE = 400  # lines of one answer of ctx


@dataclass(slots=True)
class Window:
    """Lines `first` to `last` around some lines that were asked for."""

    first: int
    last: int
    asked: list[int]
    how: str = ""  # how its bounds were found


async def run(ctx: SkillContext, params: dict[str, Any]) -> SkillResult:
    """Return a window of lines for each of `lines`; windows that touch are one."""
    port = params.get("port") or ctx.port
    windows: list[Window] = []
    unknown: list[int] = []
    for seq in sorted(set(params["lines"])):
        window = await _window(ctx, port, seq, params)
        if window is None:
            unknown.append(seq)
        elif windows and window.first <= windows[-1].last + 1:
            before = windows[-1]
            before.last = max(before.last, window.last)
            before.asked += window.asked
        else:
            windows.append(window)
    shown = [await _read(ctx, port, w, MAX_BYTES // len(windows)) for w in windows]
    output: dict[str, Any] = {"port": port, "windows": shown, "no_data": not shown}
    if unknown:
        output["not_in_log"] = unknown
    return SkillResult(
        "success", output, metadata={"no_data": not shown, "summary": _summary(port, windows)}
    )


async def _window(ctx: SkillContext, port: str, seq: int, params: dict[str, Any]) -> Window | None:
    """Return the window of one line, None if the log does not have it."""
    there = await ctx.log.lines(port, first=seq, last=seq, limit=1)
    if there["no_data"]:
        return None
    if params.get("block"):
        return await _block(ctx, port, seq)
    first, last, how = max(seq - params["before"], 1), seq + params["after"], ""
    if words := params.get("until"):
        end = await ctx.log.lines(port, first=seq + 1, last=seq + MAX_SIDE, match=words, limit=1)
        last = end["lines"][0]["seq"] if end["lines"] else last
        how = "" if end["lines"] else f"no line with these words within {MAX_SIDE} lines"
    return Window(first, last, [seq], how)


async def _block(ctx: SkillContext, port: str, seq: int) -> Window:
    """Return the block of an incident that has the line, else what was printed in one go."""
    found = await ctx.incidents(port=port, limit=50)
    for incident in found["incidents"]:
        if incident["block_first"] and incident["block_first"] <= seq <= incident["last_seq"]:
            first = max(incident["block_first"], seq - MAX_SIDE)
            last = min(incident["last_seq"], seq + MAX_SIDE)
            return Window(first, last, [seq], f"block of incident {incident['id']}")
    first, last = max(seq - MAX_SIDE, 1), seq + MAX_SIDE
    lines = (await ctx.log.lines(port, first=first, last=last, limit=AT_ONCE))["lines"]
    at = next((i for i, line in enumerate(lines) if _end(line) >= seq), 0)
    low = high = at
    while low > 0 and _is_joined(lines[low - 1], lines[low]):
        low -= 1
    while high + 1 < len(lines) and _is_joined(lines[high], lines[high + 1]):
        high += 1
    how = f"printed in one go: no pause of {PAUSE_S} s, one boot"
    return Window(lines[low]["seq"], _end(lines[high]), [seq], how)


async def _read(ctx: SkillContext, port: str, window: Window, max_bytes: int) -> dict[str, Any]:
    answer = await ctx.log.lines(port, first=window.first, last=window.last, limit=AT_ONCE)
    lines = answer["lines"]
    if not lines:
        return {"first": window.first, "last": window.last, "asked": window.asked, "lines": []}
    low, high = _kept(lines, window.asked, max_bytes)
    shown: dict[str, Any] = {
        "first": lines[low]["seq"],
        "last": _end(lines[high - 1]),
        "asked": window.asked,
        "lines": lines[low:high],
        "gaps": answer["gaps"],
    }
    if window.how:
        shown["how"] = window.how
    if low:
        shown["cut_before"] = low
    if high < len(lines):
        shown["cut_after"] = len(lines) - high
    return shown


def _kept(lines: list[dict[str, Any]], asked: list[int], max_bytes: int) -> tuple[int, int]:
    """Return the slice that fits: the first line that was asked for and what is nearest to it."""
    at = next((i for i, line in enumerate(lines) if _end(line) >= asked[0]), len(lines) - 1)
    low, high = at, at + 1
    left = max_bytes - 200 - _size(lines[at])
    while low > 0 or high < len(lines):
        # What follows a fault tells more than what went before: two after it for one before.
        is_after = high < len(lines) and (low == 0 or high - at <= 2 * (at - low) + 1)
        line = lines[high] if is_after else lines[low - 1]
        left -= _size(line)
        if left < 0:
            break
        low, high = (low, high + 1) if is_after else (low - 1, high)
    return low, high


def _is_joined(before: dict[str, Any], after: dict[str, Any]) -> bool:
    """Return whether two lines were printed in one go."""
    if "boot" in after:  # it stands where it changes
        return False
    pause = datetime.fromisoformat(after["at"]) - datetime.fromisoformat(before["at"])
    return pause.total_seconds() < PAUSE_S


def _end(line: dict[str, Any]) -> int:
    seq: int = line.get("last_seq", line["seq"])
    return seq


def _size(line: dict[str, Any]) -> int:
    return len(json.dumps(line, ensure_ascii=False).encode()) + 2


def _summary(port: str, windows: list[Window]) -> str:
    if not windows:
        return f"{port}: none of these lines is in the log"
    return ", ".join(f"{port}:L{w.first}-L{w.last}" for w in windows)[:160]
