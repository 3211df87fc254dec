import pytest

from serialwatch.saved.clock import LogClock, kernel_stamps_first
from serialwatch.triggers.view import strip_escapes

S = 1_000_000_000


def passed(clock: LogClock, text: bytes, *, is_exact: bool = True) -> list[tuple[bytes, int]]:
    clock.look(text)
    return list(clock.passed(text, is_exact=is_exact))


def times(*texts: str, is_exact: bool = True) -> list[tuple[str, float]]:
    """Return the pieces of some chunks, each with the seconds since the first."""
    clock = LogClock()
    pieces = [p for text in texts for p in passed(clock, text.encode(), is_exact=is_exact)]
    assert "".join(texts).encode() == b"".join(piece for piece, _ in pieces)
    return [(piece.decode(), round((at - S) / S, 1)) for piece, at in pieces]


def span_s(*lines: str) -> float:
    """Return how much time passes between the first line and the last."""
    text = "".join(f"{line}\n" for line in lines).encode()
    return times(strip_escapes(text).decode())[-1][1]


@pytest.mark.parametrize(
    ("first", "second"),
    [
        ("[    1.250000] a", "[   41.250000] b"),
        ("[Jun22 03:58] a", "[ +40.000000] b"),
        ("[    1.250000] a", "[  \n 41.250000] b"),
        ("[    1.250000] a\r", "[   4\r\n1.250000] b\r"),
        ("[   59.250000][    T1] a", "[   99.250000][    C0] b"),
        ("<6>[    1.250000] a", "<3>[   41.250000] b"),
        ("\x1b[32m[    1.250000] \x1b[0ma", "\x1b[32m[   41.250000] \x1b[0mb"),
        ("[ 6826.814391 / 01-27 22:01:44.436] a", "[ 6866.814391 / 01-27 22:02:24.436] b"),
        ("dut1| [    1.250000] a", "dut1| [   41.250000] b"),
        ("gw kernel: [    1.250000] a", "rx: lost[   41.250000] b"),
        ("[00:00:01.250,000] <inf> main: a", "[00:00:41.250,000] <inf> main: b"),
        ("I (1250) boot: a", "\x1b[0;31mE (41250) wifi: b\x1b[0m"),
        ("I (12:00:01.250) app: a", "W (12:00:41.250) app: b"),
        ("[12:00:01.250] a", "[12:00:41.250] b"),
        ("[tio 12:00:01] a", "[tio 12:00:41] b"),
        ("12:00:01.250 -> a", "12:00:41.250 -> b"),
        ("23:32:57.360 : a", "23:33:37.360 : b"),
        ("12:00:01 a", "12:00:41 b"),
        ("[2024-02-29 23:59:50.100] a", "[2024-03-01 00:00:30.100] b"),
        ("[2024-12-31T23:59:50.100Z] a", "[2025-01-01T00:00:30.100Z] b"),
        ("2015-08-24 10:34:52,280 - INFO # a", "2015-08-24 10:35:32,280 - INFO # b"),
        ("2024-05-01T10:00:01+0200 gw kernel: a", "2024-05-01T10:00:41+0200 gw kernel: b"),
        ("Sep  9 23:59:50 gw kernel: a", "Sep 10 00:00:30 gw kernel: b"),
        ("Dec 31 23:59:50 gw login[3]: a", "Jan  1 00:00:30 gw login[3]: b"),
        ("Tue Aug 12 16:40:43 2025 kern.crit kernel: a", "Tue Aug 12 16:41:23 2025 kern.info kernel: b"),
        ("[Tue Aug 12 16:40:43 2025] a", "[Tue Aug 12 16:41:23 2025] b"),
        ("1699999990.123456 a", "1700000030.123456 b"),
        ("[1.250000 0.000012] a", "[41.250000 0.500012] b"),
        ("[12:00:01.250000 0.000012] a", "[12:00:41.250000 0.500012] b"),
        ("[    1.250000 <    0.000012 >] gw kernel: a", "[   41.250000 <   40.000000 >] gw kernel: b"),
        ("[12:00:01:250] a", "[12:00:41:250] b"),
        ("(12:00:01.250) a", "(12:00:41.250) b"),
        ("[0 00:00:01.250] a", "[0 00:00:41.250] b"),
        ("[Tue Aug 12 16:40:43.250 2025] a", "[Tue Aug 12 16:41:23.250 2025] b"),
        ("[1699999990.123] a", "[1700000030.123] b"),
        ("1699999990.123   7   9 E kernel  : a", "1700000030.123   7   9 E kernel  : b"),
        ("02-28 23:59:50.100   7   9 E kernel  : a", "02-29 00:00:30.100   7   9 E kernel  : b"),
        ("05-17 12:00:01.250 E/kernel(    0): a", "05-17 12:00:41.250 E/kernel(    0): b"),
        ("<2>1 2024-12-31T23:59:50.1Z gw kernel - - - a", "<2>1 2025-01-01T00:00:30.1Z gw kernel - - - b"),
        ("1 2024-05-01T10:00:01Z gw x 1 - [a b=\"c\"] a", "1 2024-05-01T10:00:41Z gw x 1 - - b"),
        ("<2>Sep  9 23:59:50 gw kernel: a", "<2>Sep 10 00:00:30 gw kernel: b"),
        ("Wed 2024-05-01 10:00:01 CEST gw a[1]: a", "Wed 2024-05-01 10:00:41 CEST gw a[1]: b"),
        ("2024/05/01 10:00:01 a", "2024/05/01 10:00:41 b"),
        ("2024-05-01 10:00:01.250\ta", "2024-05-01 10:00:41.250\tb"),
        ("30.04.2024 23:59:50 a", "01.05.2024 00:00:30 b"),
        ("30/04/2024 23:59:50,a", "01/05/2024 00:00:30,b"),
        ("04/30/2024 11:59:50 PM a", "05/01/2024 12:00:30 AM b"),
        ("4/30/24, 11:59:50.100 AM a", "4/30/24, 12:00:30.100 PM b"),
        ("- {dt: '2024-05-01T10:00:01.250', lvl: target, msg: 'a'}",
         "- {dt: '2024-05-01T10:00:41.250', lvl: target, msg: 'b'}"),
    ],
)  # fmt: skip
def test_time_is_what_stamps_say(first: str, second: str) -> None:
    expected = 0 if first.startswith("Dec 31") else 40  # without a year it is not told

    assert span_s(first, "no stamp", second) == pytest.approx(expected, abs=0.05)


def test_midnight_is_no_step_back() -> None:
    assert span_s("[23:59:58] a", "[23:59:59] b", "[00:00:04] c") == 6


def test_what_logged_a_line_knows_better_than_the_board() -> None:
    assert span_s("[12:00:01.000] [    1.000000] a", "[12:00:31.000] [    1.000100] b") == 30


def test_a_board_that_gets_stamps_from_a_logger_later_is_timed_by_it() -> None:
    first = "[    1.000000] a\n[    2.000000] b\n"
    second = "[12:00:01.000] c\n[12:00:31.000] d\n"

    assert times(first, second)[-1][1] == 31


@pytest.mark.parametrize(
    "lines",
    [
        ["boot", "[   70.000000] a", "[    5.000000] dmesg", "[   69.000000] b", "[   70.000000] c"],
        ["[   10.000000] a", "[  910.100000] lost a digit", "[   10.200000] b", "[   10.300000] c"],
        ["[99:99:99] a", "x", "[12:00:00"],
        ["irq 12:34:56:78", "mac 00:11:22:33:44:55", "at 2024-01-02 10:11:12", "at 2024-01-02 11:11:12"],
        ["0.5 s", "900.5 s", "[  OK  ] Started", "[ 12%] flashing", "[ 99%] flashing"],
        ["(100)", "I (1)", "I (x) ", "E (99999999999) "],
    ],
    ids=["printed again", "garbled", "no time", "in the text", "numbers", "not quite"],
)  # fmt: skip
def test_what_is_no_stamp_or_an_old_one_tells_no_time(lines: list[str]) -> None:
    assert span_s(*lines) == pytest.approx(0, abs=0.4)


def test_without_stamps_time_passes_with_the_bytes() -> None:
    clock = LogClock()
    passed(clock, b"hello\n" * 1920)

    assert clock.now_ns - S == pytest.approx(S, rel=0.01)
    assert not clock.is_known


def test_time_is_known_behind_a_stamp_for_a_while() -> None:
    clock = LogClock()
    passed(clock, b"[    1.000000] a\n" + b"no stamp\n" * 100)
    assert clock.is_known
    passed(clock, b"no stamp\n" * 1000)
    assert not clock.is_known
    passed(clock, b"[    2.000000] a\n")
    assert clock.is_known


def test_a_start_of_the_board_begins_its_clock_anew() -> None:
    clock = LogClock()
    passed(clock, b"[  900.000000] a\n")
    clock.restarted()
    passed(clock, b"[    0.000000] b\n[    7.000000] c\n")

    assert clock.now_ns - S == 7 * S


def test_the_first_stamp_behind_a_start_tells_how_long_ago_that_was() -> None:
    clock = LogClock()
    passed(clock, b"[  900.000000] a\n")
    clock.restarted()
    passed(clock, b"[   12.000000] b\n")
    clock.restarted()
    passed(clock, b"[  950.000000] it had not started\n")

    assert clock.now_ns - S == 12 * S


def test_time_in_which_nobody_logged_does_not_count() -> None:
    clock = LogClock()
    passed(clock, b"[2024-05-01 10:00:00] a\n")
    clock.interrupted()
    passed(clock, b"[2024-05-03 10:00:00] b\n[2024-05-03 10:00:05] c\n")

    assert clock.now_ns - S == 5 * S


def test_pieces_end_where_time_went_by() -> None:
    text = "[    1.000000] a\nmore of it\n[    1.300000] b\n[    1.350000] c\n[    9.000000] d\n"

    assert times(text) == [
        ("[    1.000000] a\nmore of it\n", 0.0),
        ("[    1.300000] b\n[    1.350000] c\n", 0.3),
        ("[    9.000000] d\n", 8.0),
    ]


def test_where_nothing_was_found_only_long_pauses_and_seconds_count() -> None:
    lines = [f"[{tenths / 10:12.6f}] {'x' * 80}\n" for tenths in range(100, 140)]
    pieces = times("".join(lines) + "[   19.000000] late\n", is_exact=False)

    assert [at for _, at in pieces] == [1.0, 3.0, 9.0]


def test_how_a_log_is_cut_into_chunks_changes_no_time() -> None:
    lines = [f"[{n * n / 7:12.6f}] line {n}\n" for n in range(200)]
    whole = times("".join(lines))[-1][1]

    assert times(*lines)[-1][1] == whole


def test_a_number_behind_a_date_without_a_year_is_no_year() -> None:
    assert span_s("Jun 22 03:58:12 1972 bytes read", "Jun 22 03:58:13 2048 bytes read") == 1


def test_what_stands_before_a_kernel_stamp_is_cut_off_where_it_matters() -> None:
    view = b"a\n# [    1.000000] b\nnew high-spe[    2.000000] c\n[    3.000000] d\n"
    ends = [view.index(text) + 1 for text in (b"b\n", b"c\n", b"d\n")]
    logged = b"Jun 22 03:58:12 gw kernel: [    1.000000] b\n"

    assert kernel_stamps_first(view, ends) == (
        b"a\n[    1.000000] b\n[    2.000000] c\n[    3.000000] d\n"
    )
    assert kernel_stamps_first(view, []) is view
    assert kernel_stamps_first(logged, [len(logged) - 1]) is logged


def test_a_piece_knows_when_it_began() -> None:
    clock = LogClock()
    stamps = (10.1, 11.0, 11.9, 12.8, 14.3, 20.0)
    text = b"".join(b"[%12.6f] a\n" % stamp for stamp in stamps)
    clock.look(text)
    pieces = [
        ((clock.begun_ns - S) / S, (at - S) / S, piece.count(b"\n"))
        for piece, at in clock.passed(text, is_exact=False)
    ]

    assert pieces == [(0.0, 0.9, 3), (2.7, 4.2, 2), (9.9, 9.9, 1)]
