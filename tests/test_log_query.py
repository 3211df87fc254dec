from __future__ import annotations

import time
from dataclasses import replace

import pytest

from saved_log import START_NS, S, line
from serialwatch.agent.ctx import log_query
from serialwatch.agent.ctx.log_query import (
    LineFilter,
    LogRange,
    parse_match,
    parse_since,
    read_lines,
    read_stats,
)
from serialwatch.agent.workers.direct import LineLog
from serialwatch.wire import iso, utc_ns

ALL = LineFilter()


@pytest.fixture
def view() -> LineLog:
    return LineLog([line(n, b"line %d" % (n * n), at_s=n / 10) for n in range(1, 1001)])


@pytest.mark.parametrize("is_backward", [False, True])
def test_a_scan_that_takes_too_long_says_where_to_go_on(
    view: LineLog, monkeypatch: pytest.MonkeyPatch, is_backward: bool
) -> None:
    monkeypatch.setattr(log_query, "MAX_SCANNED", 300)

    found = read_lines(view, LogRange(1, 1000, is_backward), LineFilter(level="error"), 10)

    assert found.rows == ()
    assert found.scanned == 300
    assert (found.next_first, found.next_last) == ((None, 700) if is_backward else (301, None))


def test_time_ends_a_scan_too_and_it_goes_on_where_it_ended(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    view = LineLog([line(n, b"odd" if n % 2 else b"even") for n in range(1, 1001)])
    monkeypatch.setattr(log_query, "PAGE_S", -1.0)
    monkeypatch.setattr(log_query, "SCAN_S", -1.0)

    found = read_lines(view, LogRange(1, 1000, False), ALL, 1000)
    back = read_lines(view, LogRange(1, 1000, True), ALL, 1000)
    stats = read_stats(view, LogRange(1, 1000, False), ALL, 10)

    assert (found.scanned, found.next_first) == (256, 257)
    assert (back.scanned, back.next_last) == (256, 744)
    assert (stats.lines, stats.is_complete) == (0, False)


def test_numbers_of_a_part_say_which_part(view: LineLog, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(log_query, "MAX_SCANNED", 300)

    newest = read_stats(view, LogRange(1, 1000, True), ALL, 10)

    assert (newest.first, newest.last, newest.lines) == (701, 1000, 300)
    assert (newest.shapes[0].first.seq, newest.shapes[0].last.seq) == (701, 1000)


def test_both_directions_count_the_same(view: LineLog) -> None:
    assert read_stats(view, LogRange(1, 1000, True), ALL, 10) == read_stats(
        view, LogRange(1, 1000, False), ALL, 10
    )


def test_one_answer_serves_so_many_lines_only(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(log_query, "MAX_SERVED", 50)
    same = LineLog([line(n, b"tick") for n in range(1, 101)])

    found = read_lines(same, LogRange(1, 100, False), ALL, 10)

    assert [(row.seq, row.last_seq, row.times) for row in found.rows] == [(1, 50, 50)]
    assert found.next_first == 51


def test_a_line_has_the_time_of_its_first_byte_and_says_if_it_stood_unfinished() -> None:
    typed = line(1, b"=> reset", at_s=1)
    typed = replace(typed, last_utc_ns=typed.utc_ns + 300 * S)
    log = LineLog([typed, line(2, b"resetting ...", at_s=301)])
    stood, plain = read_lines(log, LogRange(1, 2, is_backward=False), ALL, 10).rows

    assert (stood.utc_ns, stood.last_utc_ns) == (START_NS + S, START_NS + 301 * S)
    assert (plain.utc_ns, plain.last_utc_ns) == (START_NS + 301 * S, 0)


def test_words_and_alternatives() -> None:
    assert parse_match("I2C  timeout|NACK | ") == ((b"i2c", b"timeout"), (b"nack",))
    assert parse_match(" | ") == ()


def test_a_time_is_a_date_or_a_while_ago() -> None:
    assert parse_since("-10m", START_NS, utc_ns) == START_NS - 600 * S
    assert parse_since("-2d", START_NS, utc_ns) == START_NS - 2 * 86400 * S
    assert parse_since(iso(START_NS), 0, utc_ns) == START_NS
    with pytest.raises(ValueError, match="10"):
        parse_since("-10", START_NS, utc_ns)


def test_a_scan_of_many_lines_is_quick() -> None:
    many = LineLog([line(n, b"[ %d.5] i2c i2c-0: transfer %d" % (n, n)) for n in range(1, 5001)])
    began_s = time.process_time()

    read_lines(many, LogRange(1, 5000, False), LineFilter(alternatives=((b"zzz",),)), 10)

    assert time.process_time() - began_s < 0.5
