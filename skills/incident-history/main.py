"""What went wrong before: incidents, what their reports concluded, and how often they come."""

from __future__ import annotations

import json
from collections import Counter
from datetime import datetime
from itertools import pairwise
from statistics import median
from typing import Any

from serialwatch.records import SkillContext, SkillResult

MAX_BYTES = 7 * 1024  # of JSON; the oldest incidents go first
MAX_COUNTED = 50  # incidents that recurrence is computed from
_KEPT = (
    "id", "port", "opened_at", "fault_at", "trigger", "severity", "title", "state", "boot", "count",
    "outcome", "outcome_cause", "first_seq", "last_seq", "linked", "fingerprint", "firmware",
)  # fmt: skip


async def run(ctx: SkillContext, params: dict[str, Any]) -> SkillResult:
    """Return the incidents that are meant, newest first, and their recurrence."""
    wanted: dict[str, Any] = {
        "trigger": params.get("class"),
        **{name: params.get(name) for name in ("since", "until", "port", "fingerprint")},
    }
    if params["same_as_this"]:
        if ctx.incident is None:
            return _none("this run is about no incident: say which `class` or `port`")
        own = (await ctx.incidents(id=ctx.incident))["incidents"]
        if not own:
            return _none(f"incident {ctx.incident} is not in the database yet")
        wanted["fingerprint"] = own[0]["fingerprint"]
    found = (await ctx.incidents(**wanted, reports=True, limit=MAX_COUNTED))["incidents"]
    others = [one for one in found if one["id"] != ctx.incident]
    rows = [_row(one) for one in others[: params["limit"]]]
    output: dict[str, Any] = {
        "incidents": rows,
        "recurrence": _recurrence(found),
        "found": len(others),
        "is_all": len(found) < MAX_COUNTED,
        "no_data": not rows,
    }
    while len(rows) > 1 and len(json.dumps(output, ensure_ascii=False).encode()) > MAX_BYTES:
        rows.pop()
    return SkillResult(
        "success", output, metadata={"no_data": not rows, "summary": _summary(output)}
    )


def _none(why: str) -> SkillResult:
    output = {"incidents": [], "why": why, "no_data": True}
    return SkillResult("success", output, metadata={"no_data": True, "summary": why[:160]})


def _row(incident: dict[str, Any]) -> dict[str, Any]:
    row = {key: incident[key] for key in _KEPT if incident.get(key) not in (None, "", [])}
    if incident.get("report"):
        row["report"] = incident["report"]
    return row


def _recurrence(found: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Return for each fault that came more than once how often and at what intervals."""
    by_fault: dict[str, list[dict[str, Any]]] = {}
    for one in found:
        by_fault.setdefault(one["fingerprint"], []).append(one)
    rows = []
    for fingerprint, same in by_fault.items():
        if len(same) < 2:
            continue
        times = sorted(datetime.fromisoformat(one["opened_at"]) for one in same)
        gaps = [(b - a).total_seconds() for a, b in pairwise(times)]
        verdicts = Counter(one["report"]["verdict"] for one in same if one.get("report"))
        rows.append(
            {
                **_boots(same),
                "fingerprint": fingerprint,
                "trigger": same[0]["trigger"],
                "title": same[0]["title"],
                "times": len(same),
                "ports": sorted({one["port"] for one in same}),
                "first": same[-1]["opened_at"],
                "last": same[0]["opened_at"],
                "interval_s": {
                    "shortest": round(min(gaps), 1),
                    "median": round(median(gaps), 1),
                    "longest": round(max(gaps), 1),
                },
                "ids": [one["id"] for one in same[:10]],
                "linked": sorted({other for one in same for other in one["linked"]})[:10],
                "verdicts": dict(verdicts),
            }
        )
    return sorted(rows, key=lambda row: -row["times"])[:8]


def _boots(same: list[dict[str, Any]]) -> dict[str, Any]:
    """Return in how many boots of one port it came, from the first of them to the last."""
    boots = {one.get("boot") or 0 for one in same}
    if len({one["port"] for one in same}) > 1 or 0 in boots or len(boots) < 2:
        return {}
    return {"boots": {"with": len(boots), "of": max(boots) - min(boots) + 1}}


def _summary(output: dict[str, Any]) -> str:
    if output["no_data"]:
        return "no such incident"
    most = output["recurrence"]
    if not most:
        one = output["found"] == 1
        return "1 incident" if one else f"{output['found']} incidents, none of them twice"
    return (
        f"{output['found']} incidents; {most[0]['trigger']} came {most[0]['times']} times, every "
        f"{_span(most[0]['interval_s']['median'])} in the median"
    )[:160]


def _span(seconds: float) -> str:
    for unit, length in (("d", 86400), ("h", 3600), ("min", 60)):
        if seconds >= length:
            return f"{seconds / length:.1f} {unit}"
    return f"{seconds:.0f} s"
