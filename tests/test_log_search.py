"""Regular expressions in logs: the lines that plain reading would find, with less of it."""

from __future__ import annotations

import random
import re
from collections.abc import Iterator
from dataclasses import dataclass, field

import pytest

from saved_log import line
from serialwatch.api.logs import LogQuery
from serialwatch.cli import log_search
from serialwatch.cli.errors import CliError
from serialwatch.cli.log_search import LinePattern, matching, required_text
from serialwatch.records import Line

WORDS = [b"mmc0", b"error", b"timeout", b"-110", b"Kernel panic", b"ok", b"\xff\xfe", b"a.b"]


@dataclass
class Lines:
    """Lines in memory; it knows what was asked for."""

    all: list[Line]
    asked: list[LogQuery] = field(default_factory=list)

    def lines(self, port: str, query: LogQuery) -> Iterator[Line]:
        """Return what is asked for."""
        self.asked.append(query)
        first, last = query.first or 0, query.last if query.last is not None else 10**9
        found = [x for x in self.all if first <= x.seq <= last and query.text in x.raw]
        return iter(found if query.newest is None else found[len(found) - query.newest :])

    def follow(
        self, port: str, first: int, text: bytes, *, has_ends: bool = False
    ) -> Iterator[Line]:
        """Nothing comes."""
        return iter(())


@pytest.fixture
def source() -> Lines:
    rng = random.Random(8)
    return Lines([line(seq, b" ".join(rng.choices(WORDS, k=4))) for seq in range(41, 1041)])


PATTERNS = [
    rb"mmc\d: .*error", rb"panic$", rb"^ok", rb"timeout|error", rb"error (ok|-110)", rb"a\.b",
    rb"(?i)KERNEL", rb"\xff", rb"(?x) kernel \ panic", rb"no such", rb"(error )?-110", rb"-1{2}0",
]  # fmt: skip


@pytest.mark.parametrize("limit", [None, 1, 7, 100, 5000])
@pytest.mark.parametrize("text", PATTERNS)
def test_the_same_lines_are_found_as_by_reading_all(
    source: Lines, monkeypatch: pytest.MonkeyPatch, text: bytes, limit: int | None
) -> None:
    monkeypatch.setattr(log_search, "_STEP", 10)
    pattern = LinePattern(re.compile(text), "")
    expected = [x.seq for x in source.all if re.search(text, x.raw)]
    if limit is not None:
        expected = expected[-limit:]
    query = LogQuery(first=50)

    found = [x.seq for x in matching(source, "dut1", query, pattern, limit)]
    assert found == [seq for seq in expected if seq >= 50]


def test_the_newest_are_looked_for_from_the_end(source: Lines) -> None:
    source.all = [line(seq, b"ok") for seq in range(1, 200_001)]
    found = list(matching(source, "dut1", LogQuery(), LinePattern(re.compile(b"ok"), "ok"), 3))

    assert [x.seq for x in found] == [199_998, 199_999, 200_000]
    assert all((q.first or 0) > 170_000 for q in source.asked if q.last is not None)


@pytest.mark.parametrize(
    ("pattern", "text"),
    [
        (rb"mmc\d+: (error|timeout) -110", b" -110"),
        (rb"^\[ *\d+\.\d+\] Kernel panic$", b"] Kernel panic"),
        (rb"foo(bar)?baz+", b"foo"),
        (rb"a\.b\[c", b"a.b[c"),
        (rb"(?i)oops", b""),
        (rb"abc|def", b""),
        (rb"\d+", b""),
        (rb"ab", b""),
        (rb"\xff\xfeabc", b"abc"),
        (rb"(?x) a b c", b""),
    ],
)
def test_the_text_that_every_match_holds_is_known_where_there_is_one(
    pattern: bytes, text: bytes
) -> None:
    assert required_text(re.compile(pattern)) == text


@pytest.mark.parametrize(
    ("pattern", "raw", "is_found"),
    [
        (rb"^\[FAILED\]", b"[\x1b[0;31mFAILED\x1b[0m] start", True),
        (rb"\x1b\[0;31m", b"[\x1b[0;31mFAILED\x1b[0m] start", True),
        (rb"^100%$", b" 99%\r100%", True),
        (rb"^99%", b" 99%\r100%", False),
        (rb"a$", b"a\xff", False),
    ],
)
def test_a_line_matches_by_its_bytes_or_by_what_is_shown(
    pattern: bytes, raw: bytes, is_found: bool
) -> None:
    assert LinePattern(re.compile(pattern), "").matches(line(1, raw)) is is_found


def test_a_search_without_an_end_is_ended_and_names_the_line(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(log_search, "LIMIT_S", 0.01)
    pattern = LinePattern(re.compile(rb"(a+)+$"), "(a+)+$")
    hostile = line(48213, b"a" * 40 + b"!")

    with pattern.limited():
        assert pattern.matches(line(1, b"aaa"))
        with pytest.raises(CliError, match=r"takes too long on dut1:L48213, a line of 41 bytes"):
            pattern.matches(hostile)
        assert pattern.matches(line(2, b"aaa"))
