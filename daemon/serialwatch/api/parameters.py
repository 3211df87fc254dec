"""What a client wrote in a query or a body, checked: every complaint names the parameter."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Collection, Mapping
from typing import Any

from aiohttp import web

from serialwatch.api.bench import BenchError
from serialwatch.api.paced_send import Pace
from serialwatch.wire import Json, utc_ns

BODY_LIMIT_S = 10.0
MAX_SEND = 64 * 1024  # bytes a request
PACE_KEYS = ("delay_char_ms", "delay_line_ms", "wait_echo")
MAX_DELAY_MS = 60_000


def known_only(given: Mapping[str, Any], known: Collection[str]) -> None:
    """Refuse what nobody would read."""
    if unknown := sorted(set(given) - set(known)):
        allowed = ", ".join(sorted(known)) or "nothing"
        raise BenchError("bad_request", f"unknown parameter {unknown[0]!r}", f"known: {allowed}")


def whole(query: Mapping[str, str], name: str, least: int, most: int = 2**63) -> int | None:
    """Return a whole number, None if it is not given."""
    if name not in query:
        return None
    try:
        number = int(query[name])
    except ValueError:
        number = least - 1
    if not least <= number <= most:
        range_ = f" from {least} to {most}" if most < 2**63 else f" from {least} on" * (least >= 0)
        message = f"{name} must be a whole number{range_}, not {query[name]!r}"
        raise BenchError("bad_request", message)
    return number


def moment(query: Mapping[str, str], name: str) -> int | None:
    """Return a time as nanoseconds since the epoch, None if it is not given."""
    if name not in query:
        return None
    try:
        return utc_ns(query[name])
    except (ValueError, OverflowError) as exc:
        raise BenchError(
            "bad_request", f"{name} must be a time such as 2026-06-22T03:58:12Z"
        ) from exc


def one_of(value: Any, name: str, allowed: Collection[str]) -> str:
    """Return one of the `allowed` words."""
    if value not in allowed:
        raise BenchError("bad_request", f"{name} must be one of {', '.join(allowed)}")
    return str(value)


async def body_of(request: web.Request, known: Collection[str]) -> Json:
    """Return the JSON object of a request, {} for none."""
    async with asyncio.timeout(BODY_LIMIT_S):
        raw = await request.read()
    try:
        body = json.loads(raw or b"{}")
    except (ValueError, RecursionError) as exc:
        raise BenchError("bad_request", "the body is not JSON") from exc
    if not isinstance(body, dict):
        raise BenchError("bad_request", "the body is no JSON object")
    known_only(body, known)
    return body


def pace_of(body: Json) -> Pace | None:
    """Return at which pace something is to be sent, None: all at once."""
    if not any(key in body for key in PACE_KEYS):
        return None
    waits = body.get("wait_echo", False)
    if not isinstance(waits, bool):
        raise BenchError("bad_request", f"wait_echo must be true or false, not {waits!r}")
    return Pace(_delay_s(body, "delay_char_ms"), _delay_s(body, "delay_line_ms"), waits)


def _delay_s(body: Json, name: str) -> float:
    delay_ms = body.get(name, 0)
    is_number = isinstance(delay_ms, int | float) and not isinstance(delay_ms, bool)
    if not is_number or not 0 <= delay_ms <= MAX_DELAY_MS:
        words = f"{name} must be milliseconds up to {MAX_DELAY_MS}, not {delay_ms!r}"
        raise BenchError("bad_request", words)
    return float(delay_ms) / 1000


def bytes_to_send(body: Json) -> bytes:
    """Return what {"text": …} or {"hex": …} stands for: exactly that, nothing is added."""
    match {key: value for key, value in body.items() if key not in PACE_KEYS}:
        case {"text": str() as text, **rest} if not rest:
            data = encoded(text)
        case {"hex": str() as digits, **rest} if not rest:
            try:
                data = bytes.fromhex(digits)
            except ValueError as exc:
                raise BenchError("bad_request", "hex must be pairs of hex digits") from exc
        case _:
            raise BenchError("bad_request", 'the body must be {"text": …} or {"hex": …}')
    if not 0 < len(data) <= MAX_SEND:
        raise BenchError("bad_request", f"{len(data)} bytes to send: must be 1 to {MAX_SEND}")
    return data


def encoded(text: str) -> bytes:
    """Return text as UTF-8; bytes of a command line that were none come out as they were."""
    try:
        return text.encode("utf-8", errors="surrogateescape")
    except UnicodeEncodeError as exc:
        raise BenchError("bad_request", "text that cannot be encoded as UTF-8") from exc
