"""Records as JSON, and JSON messages over a socketpair. Times are UTC, ISO 8601 with `Z`."""

from __future__ import annotations

import json
import struct
from collections.abc import Mapping
from dataclasses import fields, is_dataclass
from typing import TYPE_CHECKING, Any, cast

from serialwatch import records as r
from serialwatch.spelling import Json as Json  # noqa: PLC0414 -- these are part of what is here
from serialwatch.spelling import iso as iso  # noqa: PLC0414
from serialwatch.spelling import show as show  # noqa: PLC0414
from serialwatch.spelling import utc_ns as utc_ns  # noqa: PLC0414

if TYPE_CHECKING:
    import asyncio

MAX_MESSAGE = 16 * 1024 * 1024  # bytes; a longer frame is a fault of the sender
_LENGTH = struct.Struct(">I")


def incident_to_json(incident: r.Incident) -> Json:
    """Return the incident as the API, the agent and `incidents --json` have it."""
    body = cast(Json, _out(incident))
    return body | {"fault_at": iso(incident.fault_utc_ns) if incident.fault_utc_ns else 0}


def incident_from_json(body: Mapping[str, Any]) -> r.Incident:
    """Return the incident that `incident_to_json` wrote."""
    hits = tuple(
        r.HitCount(**_in(h, r.HitCount) | {"samples": tuple(h["samples"])}) for h in body["hits"]
    )
    plain = _in(body, r.Incident)
    plain.update(hits=hits, linked=tuple(body["linked"]), seen_before=tuple(body["seen_before"]))
    return r.Incident(**plain)


def report_to_json(report: r.Report) -> Json:
    """Return Report v1."""
    return cast(Json, _out(report))


def report_from_json(body: Mapping[str, Any]) -> r.Report:
    """Return the report that `report_to_json` wrote."""
    plain = _in(body, r.Report)
    plain.update(
        hypotheses=tuple(r.Hypothesis(**_in(h, r.Hypothesis)) for h in body["hypotheses"]),
        conclusions=tuple(_conclusion(c) for c in body["conclusions"]),
        timeline=tuple(r.TimelineEntry(**_in(t, r.TimelineEntry)) for t in body["timeline"]),
        unknowns=tuple(body["unknowns"]),
        next_steps=tuple(r.NextStep(**_in(n, r.NextStep)) for n in body["next_steps"]),
        not_checked=tuple(body["not_checked"]),
        claims=r.Claims(**_in(body["claims"], r.Claims)),
        cost=r.Cost(**_in(body["cost"], r.Cost)),
    )
    return r.Report(**plain)


def pack(message: Json) -> bytes:
    """Return a message as a length-prefixed frame."""
    body = json.dumps(message, separators=(",", ":")).encode()
    return _LENGTH.pack(len(body)) + body


async def receive(reader: asyncio.StreamReader, limit_bytes: int = MAX_MESSAGE) -> Json | None:
    """Return the next message, None at the end of the stream.

    Raises:
        ValueError: the peer sent what is no message.

    """
    from asyncio import IncompleteReadError  # here, for commands start sooner without it

    try:
        (length,) = _LENGTH.unpack(await reader.readexactly(_LENGTH.size))
        if length > limit_bytes:
            raise ValueError(f"a message of {length} bytes; at most {limit_bytes}")
        body = json.loads(await reader.readexactly(length))
    except (IncompleteReadError, ConnectionError):
        return None
    except RecursionError as exc:
        raise ValueError("a message nested too deep") from exc
    if not isinstance(body, dict):
        raise ValueError("a message that is no object")
    return body


def _conclusion(body: Mapping[str, Any]) -> r.Conclusion:
    return r.Conclusion(
        **_in(body, r.Conclusion)
        | {
            "evidence": tuple(r.Evidence(**_in(e, r.Evidence)) for e in body["evidence"]),
            "knowledge": tuple(body["knowledge"]),
            "results": tuple(body["results"]),
            "rests_on": tuple(body.get("rests_on", ())),
        }
    )


def _out(value: Any) -> Any:
    if is_dataclass(value):
        return {
            _name(f.name): iso(v) if _is_time(f.name) and v else _out(v)
            for f in fields(value)
            if (v := getattr(value, f.name), True)[1]
        }
    if isinstance(value, Mapping):
        return {str(k): _out(v) for k, v in value.items()}
    if isinstance(value, (tuple, list)):
        return [_out(v) for v in value]
    if isinstance(value, bytes):
        return show(value)
    return value


def _in(body: Mapping[str, Any], kind: type) -> Json:
    """Take the fields of `kind` from JSON, times back to nanoseconds; unknown keys are dropped."""
    plain: Json = {}
    for f in fields(kind):
        if (name := _name(f.name)) in body:
            value = body[name]
            plain[f.name] = utc_ns(value) if _is_time(f.name) and isinstance(value, str) else value
    return plain


def _is_time(name: str) -> bool:
    return name.endswith("utc_ns")


def _name(name: str) -> str:
    """`opened_utc_ns` is `opened_at` in JSON, `fault_class` is `class`."""
    if name == "fault_class":
        return "class"
    if name == "utc_ns":
        return "at"
    return name.removesuffix("_utc_ns") + "_at" if _is_time(name) else name
