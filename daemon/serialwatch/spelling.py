"""How times and what a device has printed are written in JSON and for people."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

Json = dict[str, Any]


def iso(utc_ns: int) -> str:
    """Return nanoseconds since the epoch as `2026-06-22T03:58:12.104000Z`."""
    seconds, rest = divmod(utc_ns, 1_000_000_000)
    at = datetime.fromtimestamp(seconds, UTC).replace(microsecond=rest // 1000)
    return at.isoformat(timespec="microseconds").replace("+00:00", "Z")


def utc_ns(text: str) -> int:
    """Return an ISO 8601 time as nanoseconds since the epoch; no zone means UTC.

    Raises:
        ValueError: not such a time.

    """
    at = datetime.fromisoformat(text)
    if at.tzinfo is None:
        at = at.replace(tzinfo=UTC)
    whole = int(at.replace(microsecond=0).timestamp())
    return whole * 1_000_000_000 + at.microsecond * 1000


def show(raw: bytes) -> str:
    """Return bytes of a device as text that is safe to show: escapes and controls spelled out."""
    text = raw.decode("utf-8", errors="backslashreplace")
    if text.isprintable():
        return text
    return "".join(c if c.isprintable() or c == "\t" else f"\\x{ord(c):02x}" for c in text)
