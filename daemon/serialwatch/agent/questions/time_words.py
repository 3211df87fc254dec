"""Spans of time as people say them: "last night", "since 9", "in the last 2 hours", "at four"."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, datetime, time, timedelta
from functools import cache

DAYS = ("monday", "tuesday", "wednesday", "thursday", "friday", "saturday", "sunday")
ABOUT_HOUR = timedelta(minutes=30)  # "at four": so much before and after it
ABOUT_MINUTE = timedelta(minutes=10)  # "at 03:58"
ABOUT_AGO = timedelta(minutes=15)  # "2 hours ago"
EVENING, MORNING, NOON = time(18), time(8), time(12)
_LONGEST = timedelta(days=3650)

_NUMBERS = {
    "a": 1, "an": 1, "one": 1, "two": 2, "three": 3, "four": 4, "five": 5, "six": 6, "seven": 7,
    "eight": 8, "nine": 9, "ten": 10, "eleven": 11, "twelve": 12, "few": 3, "couple of": 2,
    "a few": 3, "a couple of": 2,
}  # fmt: skip
_UNITS = {"second": 1, "minute": 60, "hour": 3600, "day": 86400, "week": 7 * 86400}
_SHORT = {"s": "second", "sec": "second", "m": "minute", "min": "minute", "h": "hour", "hr": "hour",
          "d": "day", "w": "week"}  # fmt: skip


@dataclass(frozen=True, slots=True)
class TimeSpan:
    """A span of time and how it was said."""

    since: datetime
    until: datetime
    words: str
    at: datetime | None = None  # the moment that was said, if it was one: the span is around it

    @property
    def told(self) -> str:
        """Return how it is told: what is around a moment was looked at, too."""
        if self.at is None:
            return self.words
        minutes = max(self.at - self.since, self.until - self.at) // timedelta(minutes=1)
        return f"{self.words} (± {minutes} min)"


@dataclass(frozen=True, slots=True)
class Found:
    """A span in a text, and the text without it."""

    span: TimeSpan
    rest: str


def find_span(text: str, now: datetime) -> Found | None:
    """Return the span that a text in lower case speaks of, None if it names no time.

    `now` has the zone of whoever asks.
    """
    for pattern, made in _compiled():
        if found := pattern.search(text):
            try:
                bounds = made(found, now)
            except (ValueError, OverflowError):  # 25:00, the 31st of June
                continue
            if bounds is None:
                continue
            since, until = bounds
            words = found.group().strip(" ,")
            if since >= now:
                continue
            at: datetime | None = since + (until - since) / 2
            if made not in _MOMENTS or until - since > 2 * ABOUT_HOUR or _OPEN.match(words):
                at = None
            until = max(min(until, now), since + timedelta(seconds=1))
            rest = f"{text[: found.start()]} {text[found.end() :]}"
            return Found(TimeSpan(since, until, words, at), " ".join(rest.split()))
    return None


@cache
def _compiled() -> tuple[tuple[re.Pattern[str], Made], ...]:
    """Return the phrases, compiled with the first question."""
    return tuple((_pattern(template), made) for template, made in _PHRASES)


Bounds = tuple[datetime, datetime]
Made = Callable[[re.Match[str], datetime], Bounds | None]


def in_utc(at: datetime) -> str:
    """Return a time as skills take it."""
    return at.astimezone(UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")


def _midnight(now: datetime, days_ago: int = 0) -> datetime:
    return now.replace(hour=0, minute=0, second=0, microsecond=0) - timedelta(days=days_ago)


def _at(day: datetime, clock: time) -> datetime:
    return day.replace(hour=clock.hour, minute=clock.minute, second=0, microsecond=0)


def _ago(found: re.Match[str]) -> timedelta:
    number = found["number"]
    count = _NUMBERS[number] if number in _NUMBERS else float(number or 1)
    unit = found["unit"].rstrip("s") if len(found["unit"]) > 1 else found["unit"]
    span = timedelta(seconds=count * _UNITS[_SHORT.get(unit, unit)])
    if not timedelta() < span <= _LONGEST:
        raise OverflowError
    return span


def _clock(found: re.Match[str], name: str = "") -> tuple[time, bool]:
    """Return a time of day and whether it was said to the minute."""
    word, hour = found[f"named{name}"], found[f"hour{name}"]
    if word:
        return (NOON if word == "noon" else time(0)), False
    half = found[f"half{name}"] or ""
    number = _NUMBERS[hour] if hour in _NUMBERS else int(hour)
    is_late = half[:1] == "p" or half.endswith(("afternoon", "evening", "night"))
    if is_late and number < 12 and not (half.endswith("night") and number < 6):
        number += 12
    if half[:1] == "a" and number == 12:
        number = 0
    minute = found[f"minute{name}"]
    return time(number, int(minute or 0)), minute is not None


def _day_of(word: str | None, now: datetime) -> datetime | None:
    """Return the midnight a day's name means; None for no name."""
    if not word:
        return None
    if word.endswith("today"):
        return _midnight(now)
    if word.startswith("the day before"):
        return _midnight(now, 2)
    if word.endswith("yesterday"):
        return _midnight(now, 1)
    name = next(day for day in DAYS if word.endswith(day))
    return _midnight(now, (now.weekday() - DAYS.index(name)) % 7 or 7)


def _moment(found: re.Match[str], now: datetime, name: str = "") -> datetime:
    """Return the last time that a clock showed what was said."""
    clock, _ = _clock(found, name)
    day = _day_of(found["day"] or found["day2"], now)
    if day is not None:
        return _at(day, clock)
    today = _at(_midnight(now), clock)
    return today if today < now else today - timedelta(days=1)


def _around(found: re.Match[str], now: datetime) -> Bounds:
    at, is_exact = _moment(found, now), _clock(found)[1]
    margin = ABOUT_MINUTE if is_exact else ABOUT_HOUR
    return at - margin, at + margin


def _between(found: re.Match[str], now: datetime) -> Bounds | None:
    since = _moment(found, now)
    until = _at(since, _clock(found, "_b")[0])
    if until <= since:
        until += timedelta(days=1)
    if until > now and not (found["day"] or found["day2"]):
        since, until = since - timedelta(days=1), until - timedelta(days=1)
    return since, until


def _night(found: re.Match[str], now: datetime) -> Bounds:
    morning = _at(_midnight(now), MORNING)
    return _at(_midnight(now, 1), EVENING), morning


_PARTS = {
    "morning": (time(5), NOON),
    "afternoon": (NOON, EVENING),
    "evening": (EVENING, time(23, 59)),
    "night": (EVENING, MORNING),
}


def _part(found: re.Match[str], now: datetime) -> Bounds:
    """Return "this morning", "yesterday evening"."""
    day = _midnight(now, 1 if found["which"] == "yesterday" else 0)
    first, last = _PARTS[found["part"]]
    until = _at(day, last) if last > first else _at(day + timedelta(days=1), last)
    return _at(day, first), until


def _whole_day(found: re.Match[str], now: datetime) -> Bounds | None:
    day = _day_of(found["day"], now)
    return None if day is None else (day, day + timedelta(days=1))


def _since_day(found: re.Match[str], now: datetime) -> Bounds | None:
    day = _day_of(found["day"], now)
    return None if day is None else (day, now)


def _week(found: re.Match[str], now: datetime) -> Bounds:
    monday = _midnight(now, now.weekday())
    if found["which"] == "last":
        return monday - timedelta(days=7), monday
    return monday, now


def _weekend(found: re.Match[str], now: datetime) -> Bounds:
    saturday = _midnight(now, (now.weekday() - 5) % 7)
    return saturday, saturday + timedelta(days=2)


def _date(found: re.Match[str], now: datetime) -> Bounds:
    year, month, day = int(found["y"]), int(found["m"]), int(found["d"])
    start = _midnight(now).replace(year=year, month=month, day=day)
    if not found["h"]:
        return start, (now if found["from"] else start + timedelta(days=1))
    at = start.replace(hour=int(found["h"]), minute=int(found["min"]))
    return (at, now) if found["from"] else (at - ABOUT_MINUTE, at + ABOUT_MINUTE)


def _about_ago(found: re.Match[str], now: datetime) -> Bounds:
    at = now - _ago(found)
    return (at, now) if found.group().startswith("since") else (at - ABOUT_AGO, at + ABOUT_AGO)


def _pattern(template: str) -> re.Pattern[str]:
    clock = (
        r"(?:(?P<named{0}>noon|midnight)|(?P<hour{0}>\d{{1,2}}|one|two|three|four|five|six|seven|eight"
        r"|nine|ten|eleven|twelve)(?:[:.h](?P<minute{0}>\d\d))?(?!\d))"
        r"(?:\s?(?P<half{0}>am|pm|a\.m\.|p\.m\.|in the (?:morning|afternoon|evening)|at night)"
        r"|\s?o'?clock)?"
    )
    names = {
        "CLOCK_B": clock.format("_b"),
        "CLOCK": clock.format(""),
        "WEEKDAY": f"(?:{'|'.join(DAYS)})",
        "DAY2": r"(?P<day2>today|yesterday|(?:on |last )?WEEKDAY)",
        "DAY": r"(?P<day>today|yesterday|the day before yesterday|(?:on |last )?WEEKDAY)",
        "SPAN": r"(?P<number>\d{1,5}(?:\.\d)?|an?|one|two|three|four|five|six|seven|eight|nine|ten"
        r"|eleven|twelve|few|couple of|a few|a couple of)?\s?"
        r"(?P<unit>seconds?|secs?|minutes?|mins?|hours?|hrs?|days?|weeks?|[smhdw])",
    }
    for name in ("CLOCK_B", "CLOCK", "DAY2", "DAY", "SPAN", "WEEKDAY"):
        template = re.sub(rf"\b{name}\b", lambda _, n=name: names[n], template)  # type: ignore[misc]
    return re.compile(rf"(?<![\w:.-]){template}(?![\w:])")


_MOMENTS: tuple[Made, ...] = (_around, _date, _about_ago)  # "at" that, if they are short
_OPEN = re.compile("since|from")

# The longest phrases first: each takes away what a later one would misread.
_PHRASES: tuple[tuple[str, Made], ...] = (
    (r"(?P<from>since |from )?(?:on |at )?(?P<y>20\d\d)-(?P<m>\d\d)-(?P<d>\d\d)"
     r"(?:(?:t|,? at |,? )(?P<h>\d\d):(?P<min>\d\d)(?::\d\d)?z?)?", _date),
    (r"(?:DAY,? )?(?:between|from) CLOCK (?:and|to|until|till) CLOCK_B(?:,? DAY2)?", _between),
    (r"(?:since|after|from) (?:DAY,? (?:at )?)CLOCK(?P<day2>)?",
     lambda f, n: (_moment(f, n), n)),
    (r"(?:since|after|from) CLOCK(?:,? DAY)?(?P<day2>)?", lambda f, n: (_moment(f, n), n)),
    (r"(?:before|until|till|up to) CLOCK(?:,? DAY)?(?P<day2>)?",
     lambda f, n: (_midnight(_moment(f, n)), _moment(f, n))),
    (r"DAY,? (?:at|around|about|near) (?:about )?CLOCK(?P<day2>)?", _around),
    (r"(?:at|around|about|near) (?:about )?CLOCK(?:,? DAY)?(?P<day2>)?", _around),
    (r"(?:in|within|during|over|for|from)? ?(?:the |these )?(?:last|past) SPAN",
     lambda f, n: (n - _ago(f), n)),
    (r"(?:since |about )?SPAN ago",
     _about_ago),
    (r"(?:in|over|since|during|for)? ?last night", lambda f, n:
     (_night(f, n)[0], n if f.group().startswith("since") else _night(f, n)[1])),
    (r"(?:over ?night|during the night|in the night)", _night),
    (r"tonight",
     lambda f, n: (_at(_midnight(n, 1 if n.time() < MORNING else 0), EVENING), n)),
    (r"(?:since )?(?P<which>this|yesterday) (?P<part>morning|afternoon|evening|night)",
     lambda f, n: (_part(f, n)[0], n) if f.group().startswith("since") else _part(f, n)),
    (r"(?:over|during|on|at|this|last)? ?(?:the |last |this )?weekend", _weekend),
    (r"(?:in |during )?(?P<which>this|last) week", _week),
    (r"(?:since|from) DAY", _since_day),
    (r"(?:since|from) (?:the )?(?:start|beginning) of (?:the )?day",
     lambda f, n: (_midnight(n), n)),
    (r"(?:during |for )?DAY", _whole_day),
    (r"(?:just now|right now|now|lately|recently)",
     lambda f, n: (n - timedelta(hours=1 if "now" in f.group() else 24), n)),
)  # fmt: skip
