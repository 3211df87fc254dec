"""Say how ports stand, and where a fault of the line lies: board, cable or PC."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

from serialwatch.records import OWN_PORT, SkillContext, SkillResult

MAX_PORTS = 24  # in the answer for all ports
MAX_INCIDENTS = 5
_KEPT = (
    "state", "since", "device", "opened", "bit_rate", "problem", "holder", "boot", "boots",
    "reconnects", "rx_bytes", "rx_lines", "tx_bytes", "lost_bytes", "uart_errors", "last_rx_at",
    "may_write", "writer", "log_problem", "open_incidents", "others", "host_messages",
)  # fmt: skip


async def run(ctx: SkillContext, params: dict[str, Any]) -> SkillResult:
    """Return the state of one port in full, or of all in short."""
    told = await ctx.ports()
    ports = told["ports"]
    wanted = params.get("port") or ("" if params["all"] else ctx.port)
    if wanted == OWN_PORT and "daemon" in told:
        return _daemon(told["daemon"])
    if wanted and wanted not in ports:
        known = ", ".join(sorted(ports)) or "none"
        output: dict[str, Any] = {"port": wanted, "ports": sorted(ports), "no_data": True}
        summary = f"there is no port {wanted}; there is: {known}"[:160]
        return SkillResult("success", output, metadata={"no_data": True, "summary": summary})
    now = datetime.now(UTC)
    if not wanted:
        rows = [_short(name, ports[name], now) for name in sorted(ports)[:MAX_PORTS]]
        output = {"ports": rows, "more": max(len(ports) - MAX_PORTS, 0), "no_data": not rows}
        down = [row["port"] for row in rows if row["state"] != "up"]
        summary = f"{len(ports)} ports; not up: {', '.join(down) or 'none'}"[:160]
        return SkillResult("success", output, metadata={"no_data": not rows, "summary": summary})
    view = ports[wanted]
    found = await ctx.incidents(port=wanted, limit=20)
    last = await _last_line(ctx, wanted, view)
    verdict = view["verdict"]
    output = {
        "port": wanted,
        **{key: view[key] for key in _KEPT if key in view},
        "last_rx_age_s": _age_s(view.get("last_rx_at"), now),
        "last_line": last,
        "incidents": [
            {key: one[key] for key in ("id", "state", "severity", "trigger", "title")}
            for one in found["incidents"]
            if one["state"] != "resolved"
        ][:MAX_INCIDENTS],
        "verdict": verdict,
        "no_data": False,
    }
    summary = f"{wanted} is {view['state']}; {verdict['place']}: {verdict['text']}"[:160]
    return SkillResult("success", output, metadata={"no_data": False, "summary": summary})


def _daemon(state: dict[str, Any]) -> SkillResult:
    """Return how the daemon itself stands: its disk, and what it could not write there."""
    disk = dict(state["disk"])
    for key in ("total", "free", "others", "more_parts"):
        if f"{key}_bytes" in disk:
            disk[key] = _size(disk[f"{key}_bytes"])
    disk["parts"] = [{**part, "size": _size(part["bytes"])} for part in disk.get("parts", ())]
    output = {"port": OWN_PORT, **state, "disk": disk, "no_data": False}
    output |= {"logs": state["logs"][:MAX_PORTS], "logs_in_all": len(state["logs"])}
    output["lasted"] = _span(state["lasted_s"])
    for key in ("held", "lost"):
        counts = [{"port": name, "bytes": n, "size": _size(n)} for name, n in state[key].items()]
        output[key] = sorted(counts, key=lambda count: -count["bytes"])[:MAX_PORTS]
        output[f"{key}_in_all"] = _size(sum(state[key].values()))
    room = f"{disk.get('free', '?')} of {disk.get('total', '?')} free at {disk['folder']}"
    is_on = state["since"] and not state["until"]
    summary = f"{'the logs cannot be written; ' if is_on else ''}{room}"[:160]
    return SkillResult("success", output, metadata={"no_data": False, "summary": summary})


def _size(count: int) -> str:
    """Return a number of bytes as people read it."""
    if count < 1000:
        return f"{count} bytes"
    value, unit = count / 1000, "kB"
    for larger in ("MB", "GB", "TB"):
        if value < 999.5:
            break
        value, unit = value / 1000, larger
    return f"{value:.1f} {unit}" if value < 9.95 else f"{value:.0f} {unit}"


def _span(seconds: int) -> str:
    """Return a time span as people read it."""
    for unit_s, unit, smaller in ((86400, "d", "h"), (3600, "h", "min"), (60, "min", "s")):
        if seconds >= unit_s:
            rest = seconds % unit_s // {"h": 3600, "min": 60, "s": 1}[smaller]
            return f"{seconds // unit_s} {unit} {rest} {smaller}"
    return f"{seconds} s"


async def _last_line(ctx: SkillContext, port: str, view: dict[str, Any]) -> dict[str, Any] | None:
    """Return the newest line of the log, None if there is none."""
    if int(view.get("next_seq") or 0) <= 1:
        return None
    lines = (await ctx.log.lines(port, limit=1))["lines"]
    return lines[-1] if lines else None


def _short(name: str, view: dict[str, Any], now: datetime) -> dict[str, Any]:
    age_s = _age_s(view.get("last_rx_at"), now)
    verdict = view["verdict"]
    return {
        "port": name,
        "state": view.get("state"),
        "device": view.get("device"),
        "bit_rate": view.get("bit_rate"),
        "boot": view.get("boot"),
        "last_rx_age_s": age_s,
        "open_incidents": view.get("open_incidents"),
        "place": verdict["place"],
        "why": verdict["text"],
    }


def _age_s(at: str | None, now: datetime) -> float | None:
    """Return how long ago something was, None if it never was."""
    if not at:
        return None
    return round(max((now - datetime.fromisoformat(at)).total_seconds(), 0.0), 1)
