"""Return a kept state of a port, or how it differs from another one."""

from __future__ import annotations

import json
from typing import Any

from serialwatch.records import SkillContext, SkillResult

MAX_BYTES = 7 * 1024  # of JSON
MAX_CHANGES = 80


async def run(ctx: SkillContext, params: dict[str, Any]) -> SkillResult:
    """Return the snapshot that is meant, with `against` the difference; else the names."""
    port = params.get("port") or ctx.port
    if "name" not in params and "id" not in params:
        names = (await ctx.snapshot.read(port=port))["names"]
        return _done({"port": port, "names": names}, not names, f"{port}: {len(names)} names")
    found = await ctx.snapshot.read(params.get("name"), id=params.get("id"), port=port)
    if found["no_data"] or not found["snapshots"]:
        names = [one["name"] for one in found["names"]]
        about = {"port": port, "names": names}
        return _done(about, True, f"{port}: no snapshot {params.get('name')!r}")
    newest, *earlier = found["snapshots"]
    if "against" not in params:
        return _done({"snapshot": _fitted(newest)}, False, f"snapshot {newest['id']} of {port}")
    against = params["against"]
    if against == 0:  # the one before it, of the same name
        if not earlier and "id" in params:
            same = await ctx.snapshot.read(newest["name"], port=newest["port"], limit=10)
            earlier = [one for one in same["snapshots"] if one["id"] < newest["id"]]
        if not earlier:
            return _done({"snapshot": newest["id"]}, True, "there is no earlier one of this name")
        other = earlier[0]
    else:
        other = (await ctx.snapshot.read(id=against))["snapshots"][0]
    return _difference(other, newest)


def _difference(old: dict[str, Any], new: dict[str, Any]) -> SkillResult:
    before, after = _flat(old["body"]), _flat(new["body"])
    changes = [
        _change(key, before.get(key), after.get(key))
        for key in dict.fromkeys([*before, *after])
        if before.get(key) != after.get(key)
    ]
    output: dict[str, Any] = {
        "old": {key: old[key] for key in ("id", "name", "port", "at", "age")},
        "new": {key: new[key] for key in ("id", "name", "port", "at", "age")},
        "changes": changes[:MAX_CHANGES],
        "same": len(set(before) | set(after)) - len(changes),
        "changed": len(changes),
    }
    while output["changes"] and len(json.dumps(output, ensure_ascii=False).encode()) > MAX_BYTES:
        output["changes"].pop()
    summary = f"{len(changes)} values differ between snapshots {old['id']} and {new['id']}"
    return _done(output, False, summary)


def _change(key: str, before: Any, after: Any) -> dict[str, Any]:
    row: dict[str, Any] = {"what": key, "old": before, "new": after}
    if all(isinstance(v, (int, float)) and not isinstance(v, bool) for v in (before, after)):
        row["grew_by"] = round(after - before, 6)
    return row


def _flat(value: Any, name: str = "") -> dict[str, Any]:
    """Return a state as one level of names with their values."""
    if isinstance(value, dict):
        flat: dict[str, Any] = {}
        for key, inner in value.items():
            flat |= _flat(inner, f"{name}.{key}" if name else str(key))
        return flat
    return {name: value if not isinstance(value, list) else json.dumps(value)}


def _fitted(snapshot: dict[str, Any]) -> dict[str, Any]:
    """Return a snapshot short enough for an answer; what does not fit is counted."""
    if len(json.dumps(snapshot, ensure_ascii=False).encode()) <= MAX_BYTES:
        return snapshot
    flat = _flat(snapshot["body"])
    kept: dict[str, Any] = {}
    for key, value in flat.items():
        kept[key] = value
        if len(json.dumps(kept, ensure_ascii=False).encode()) > MAX_BYTES - 400:
            kept.pop(key)
            break
    return {**snapshot, "body": kept, "left_out": len(flat) - len(kept)}


def _done(output: dict[str, Any], is_empty: bool, summary: str) -> SkillResult:
    output["no_data"] = is_empty
    return SkillResult("success", output, metadata={"no_data": is_empty, "summary": summary[:160]})
