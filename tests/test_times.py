"""Times as people write and read them."""

from __future__ import annotations

import time
from collections.abc import Iterator
from datetime import UTC, datetime

import pytest

from serialwatch.cli.times import clock, exact, parse_span, parse_when, span
from serialwatch.wire import iso, utc_ns

NOW = datetime(2026, 6, 22, 8, 0, tzinfo=UTC)  # ten o'clock in Berlin, a Monday


@pytest.fixture(autouse=True)
def in_berlin(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Put this machine into Berlin: two hours ahead in summer, one in winter."""
    monkeypatch.setenv("TZ", "CET-1CEST,M3.5.0,M10.5.0/3")
    time.tzset()
    yield
    monkeypatch.undo()
    time.tzset()


@pytest.mark.parametrize(
    ("text", "at"),
    [
        ("now", "2026-06-22T08:00:00"),
        ("90s", "2026-06-22T07:58:30"),
        ("10m", "2026-06-22T07:50:00"),
        ("-2h", "2026-06-22T06:00:00"),
        ("1.5h", "2026-06-22T06:30:00"),
        ("2 hours ago", "2026-06-22T06:00:00"),
        ("10 min", "2026-06-22T07:50:00"),
        ("1d", "2026-06-21T08:00:00"),
        ("2w", "2026-06-08T08:00:00"),
        ("1h30m", "2026-06-22T06:30:00"),
        ("-2d04h ago", "2026-06-20T04:00:00"),
        ("today", "2026-06-21T22:00:00"),
        ("Yesterday", "2026-06-20T22:00:00"),
        ("03:58", "2026-06-22T01:58:00"),
        ("3:58:12.5", "2026-06-22T01:58:12.500"),
        ("2026-06-21", "2026-06-20T22:00:00"),
        ("2026-01-21", "2026-01-20T23:00:00"),
        ("2026-06-21 03:58", "2026-06-21T01:58:00"),
        ("2026-06-21T03:58:12Z", "2026-06-21T03:58:12"),
        ("2026-06-21T03:58:12.104+02:00", "2026-06-21T01:58:12.104"),
    ],
)
def test_times_are_understood(text: str, at: str) -> None:
    assert iso(parse_when(text, NOW)) == iso(utc_ns(at))


@pytest.mark.parametrize("text", ["", "soon", "10", "10 months", "25:00", "3:60", "2026-13-01"])
def test_what_is_no_time_is_told_what_is_one(text: str) -> None:
    with pytest.raises(ValueError, match="is no time: write 10m, 2h"):
        parse_when(text, NOW)


@pytest.mark.parametrize(
    ("text", "seconds"), [("30m", 1800), ("2h", 7200), ("1.5d", 129600), ("1h30m", 5400)]
)
def test_lengths_of_time_are_understood(text: str, seconds: float) -> None:
    assert parse_span(text) == seconds


@pytest.mark.parametrize("text", ["", "0m", "x", "-1h", "5"])
def test_what_is_no_length_of_time_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match="is no length of time"):
        parse_span(text)


@pytest.mark.parametrize(
    ("at", "text"),
    [
        ("2026-06-22T01:58:12", "03:58:12"),
        ("2026-06-21T01:58:12", "Sun 03:58:12"),
        ("2026-06-21T22:30:00", "00:30:00"),
        ("2026-06-16T01:58:12", "Tue 03:58:12"),
        ("2026-06-15T01:58:12", "2026-06-15 03:58"),
        ("2026-06-23T01:58:12", "2026-06-23 03:58"),
    ],
)
def test_a_time_is_as_brief_as_it_is_clear(at: str, text: str) -> None:
    assert clock(utc_ns(at), NOW) == text


def test_an_exact_time_has_its_date_unless_that_is_today() -> None:
    assert exact(utc_ns("2026-06-22T01:58:12.104999"), NOW) == "03:58:12.104"
    assert exact(utc_ns("2026-06-21T01:58:12.104"), NOW) == "2026-06-21 03:58:12.104"


@pytest.mark.parametrize(
    ("seconds", "text"),
    [(0.4, "0s"), (59, "59s"), (61, "1m"), (11520, "3h12m"), (187200, "2d04h"), (-5, "0s")],
)
def test_lengths_of_time_are_short(seconds: float, text: str) -> None:
    assert span(seconds) == text
