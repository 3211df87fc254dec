from __future__ import annotations

from datetime import datetime, timedelta, timezone

import pytest

from serialwatch.agent.questions.time_words import find_span, in_utc

NOW = datetime(2026, 6, 22, 9, 30, tzinfo=timezone(timedelta(hours=2)))  # a Monday

SPANS = [
    ("last night", "21T18:00", "22T08:00"),
    ("since last night", "21T18:00", "22T09:30"),
    ("overnight", "21T18:00", "22T08:00"),
    ("today", "22T00:00", "22T09:30"),
    ("yesterday", "21T00:00", "22T00:00"),
    ("the day before yesterday", "20T00:00", "21T00:00"),
    ("this morning", "22T05:00", "22T09:30"),
    ("yesterday evening", "21T18:00", "21T23:59"),
    ("since yesterday", "21T00:00", "22T09:30"),
    ("since 9", "22T09:00", "22T09:30"),
    ("since 10", "21T10:00", "22T09:30"),
    ("since 9:15", "22T09:15", "22T09:30"),
    ("since noon yesterday", "21T12:00", "22T09:30"),
    ("in the last 2 hours", "22T07:30", "22T09:30"),
    ("the past ten minutes", "22T09:20", "22T09:30"),
    ("last 24h", "21T09:30", "22T09:30"),
    ("an hour ago", "22T08:15", "22T08:45"),
    ("yesterday at four", "21T03:30", "21T04:30"),
    ("at four in the afternoon", "21T15:30", "21T16:30"),
    ("at 03:58", "22T03:48", "22T04:08"),
    ("at 3 pm", "21T14:30", "21T15:30"),
    ("between 3 and 5", "22T03:00", "22T05:00"),
    ("from 22:00 to 2", "21T22:00", "22T02:00"),
    ("before 8", "22T00:00", "22T08:00"),
    ("on friday", "19T00:00", "20T00:00"),
    ("friday at 16:00", "19T15:50", "19T16:10"),
    ("over the weekend", "20T00:00", "22T00:00"),
    ("this week", "22T00:00", "22T09:30"),
    ("2026-06-20", "20T00:00", "21T00:00"),
    ("since 2026-06-20 04:00", "20T04:00", "22T09:30"),
]


@pytest.mark.parametrize(("text", "since", "until"), SPANS)
def test_people_say_times_in_many_ways(text: str, since: str, until: str) -> None:
    found = find_span(f"what happened {text}", NOW)

    assert found is not None
    assert f"{found.span.since:%dT%H:%M}" == since
    assert f"{found.span.until:%dT%H:%M}" == until
    assert found.rest == "what happened"


@pytest.mark.parametrize(
    "text", ["what happened", "boot 6", "at 25:00", "tomorrow", "in 2 hours", "mmc0", "since 2999-01-01"]
)  # fmt: skip
def test_what_names_no_time_of_the_past_is_none(text: str) -> None:
    assert find_span(text, NOW) is None


def test_before_eight_in_the_evening_last_night_is_still_the_night_before() -> None:
    late = NOW.replace(hour=23)
    found = find_span("last night", late)

    assert found is not None
    assert (found.span.since.day, found.span.until.day) == (21, 22)


def test_in_the_small_hours_last_night_goes_on() -> None:
    found = find_span("last night", NOW.replace(hour=3))

    assert found is not None
    assert found.span.until == NOW.replace(hour=3)


def test_skills_get_times_in_utc() -> None:
    assert in_utc(NOW) == "2026-06-22T07:30:00.000Z"
