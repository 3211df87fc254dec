"""Times as people write and read them: local, and short."""

from __future__ import annotations

import re
from datetime import UTC, datetime, timedelta

_UNITS = {"s": 1, "m": 60, "h": 3600, "d": 86400, "w": 7 * 86400}
_LONGEST_S = 3650 * 86400.0
_SPANS = re.compile(r"-?((?:\d+[smhdw]){2,})(?:\s+ago)?")  # as `span` writes it: 3h12m
_SPAN = re.compile(r"(\d+)([smhdw])")
_AGO = re.compile(
    r"-?(\d+(?:\.\d+)?)\s*([smhdw]|sec|min|(?:second|minute|hour|day|week)s?)(?:\s+ago)?"
)
_CLOCK = re.compile(r"(\d{1,2}):(\d{2})(?::(\d{2})(?:\.(\d{1,6}))?)?")


def parse_when(text: str, now: datetime) -> int:
    """Return a time that a person wrote as nanoseconds since the epoch.

    Where no zone is written, that of this machine counts.

    Raises:
        ValueError: it is no time; the message says what is.

    """
    word = text.strip().lower()
    if word == "now":
        return _ns(now)
    if word in {"today", "yesterday"}:
        return _ns(_midnight(now, days_ago=0 if word == "today" else 1))
    seconds: float | None = None
    if ago := _AGO.fullmatch(word):
        seconds = float(ago.group(1)) * _UNITS[ago.group(2)[0]]
    elif spans := _SPANS.fullmatch(word):
        seconds = _added(spans.group(1))
    if seconds is not None:
        try:
            return _ns(now - timedelta(seconds=seconds))
        except (OverflowError, ValueError) as exc:  # before the year 1
            raise _no_time(text) from exc
    if clock := _CLOCK.fullmatch(word):
        hour, minute, second, fraction = clock.groups(default="0")
        micros = int(fraction.ljust(6, "0"))
        return _ns(_today_at(now, int(hour), int(minute), int(second), micros, text))
    try:
        return _ns(datetime.fromisoformat(text.strip()).astimezone())
    except (ValueError, OverflowError) as exc:
        raise _no_time(text) from exc


def parse_span(text: str) -> float:
    """Return a length of time such as `30m` or `2h` in seconds.

    Raises:
        ValueError: it is none.

    """
    span = re.fullmatch(r"(\d+(?:\.\d+)?)\s*([smhdw])", text.strip().lower())
    seconds = float(span.group(1)) * _UNITS[span.group(2)] if span else 0.0
    if spans := _SPANS.fullmatch(text.strip().lower()):
        seconds = _added(spans.group(1))
    if not 0 < seconds <= _LONGEST_S:
        raise ValueError(
            f"{text!r} is no length of time: write 30m, 2h or 1d, 10 years (3650d) at most"
        )
    return seconds


def _added(spans: str) -> float:
    return float(sum(int(count) * _UNITS[unit] for count, unit in _SPAN.findall(spans)))


def local_now() -> datetime:
    """Return the time here and now."""
    return datetime.now(UTC).astimezone()


def clock(utc_ns: int, now: datetime) -> str:
    """Return a time as briefly as it is clear: `03:58:12`, `Tue 03:58:12`, `2026-06-22 03:58`."""
    at = local(utc_ns)
    days = (now.astimezone().date() - at.date()).days
    if days == 0:
        return at.strftime("%H:%M:%S")
    if 0 < days < 7:
        return at.strftime("%a %H:%M:%S")
    return at.strftime("%Y-%m-%d %H:%M")


def exact(utc_ns: int, now: datetime) -> str:
    """Return a time of day with milliseconds, with its date unless that is today."""
    at = local(utc_ns)
    text = at.strftime("%H:%M:%S.") + f"{at.microsecond // 1000:03d}"
    return text if at.date() == now.astimezone().date() else f"{at:%Y-%m-%d} {text}"


def local(utc_ns: int) -> datetime:
    """Return a time in the zone of this machine."""
    seconds, rest = divmod(utc_ns, 1_000_000_000)
    at = datetime.fromtimestamp(seconds, UTC).replace(microsecond=rest // 1000)
    return at.astimezone()


def span(seconds: float) -> str:
    """Return a length of time in two units at most: `40s`, `12m`, `3h12m`, `2d04h`."""
    whole = max(0, int(seconds))
    if whole < 60:
        return f"{whole}s"
    if whole < 3600:
        return f"{whole // 60}m"
    if whole < 86400:
        return f"{whole // 3600}h{whole % 3600 // 60:02d}m"
    return f"{whole // 86400}d{whole % 86400 // 3600:02d}h"


def _midnight(now: datetime, days_ago: int) -> datetime:
    day = now.astimezone().date() - timedelta(days=days_ago)
    return datetime(day.year, day.month, day.day).astimezone()


def _today_at(
    now: datetime, hour: int, minute: int, second: int, micros: int, text: str
) -> datetime:
    day = now.astimezone().date()
    try:
        at = datetime(day.year, day.month, day.day, hour, minute, second, micros)
    except ValueError as exc:
        raise _no_time(text) from exc
    return at.astimezone()


def _no_time(text: str) -> ValueError:
    return ValueError(
        f"{text!r} is no time: write 10m, 2h, 1d (ago), 03:58, yesterday, "
        "2026-06-22 or 2026-06-22T03:58:12Z"
    )


def _ns(at: datetime) -> int:
    whole = at.replace(microsecond=0)
    return int(whole.timestamp()) * 1_000_000_000 + at.microsecond * 1000
