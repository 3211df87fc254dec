"""Saved lines by number and time, while the log is written and when its index is torn."""

from __future__ import annotations

import asyncio
import os
import random
import threading
from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path

import pytest

from log_feed import MS, UTC_NS, Feed, chunked, console
from saved_log import SavedLog
from serialwatch.api.logs import LogQuery, select
from serialwatch.records import Line
from serialwatch.store.log_appender import LogAppender
from serialwatch.store.log_format import HEADER_BYTES, Cut, Kind, Place, log_files
from serialwatch.store.log_items import Gap, Note
from serialwatch.store.log_reader import LogGap, PortLog
from serialwatch.store.log_retention import prune
from serialwatch.store.log_writer import LogWriter

S = 1000 * MS


class Log:
    """A log that is written at our word, and a view of it."""

    def __init__(self, folder: Path, rotate_bytes: int = 1 << 30, **feed: object) -> None:
        self.feed = Feed(**feed)  # type: ignore[arg-type]  # its own arguments, passed on
        self.folder = folder / "dut1"
        self._appender = LogAppender(self.folder, self.feed.ring, bytes(16), rotate_bytes)

    def prints(self, data: bytes, after_ms: float = 0) -> None:
        self.feed.prints(data, after_ms)

    def write(self) -> None:
        self._appender.write(0.0, is_last=False)
        self._appender.sync(0.0)
        assert not self._appender.problem

    def view(self) -> PortLog:
        self.write()
        return PortLog(self.folder, "dut1")

    def end(self) -> None:
        self._appender.write(0.0, is_last=True)
        self._appender.sync(0.0)


@pytest.fixture
def log(tmp_path: Path) -> Iterator[Log]:
    made = Log(tmp_path)
    yield made
    made.end()


def raws(lines: Iterator[Line]) -> list[tuple[int, bytes]]:
    return [(line.seq, line.raw) for line in lines]


# Lines


def test_a_line_has_its_number_its_bytes_and_its_boot(tmp_path: Path) -> None:
    log = Log(tmp_path, seq=48211, boot=6)
    log.prints(b"=> md.l 0\r\n")
    (line,) = log.view().lines()
    log.end()

    assert line == Line(
        "dut1", 48211, b"=> md.l 0", 6, UTC_NS, UTC_NS, log.feed.mono_ns, is_complete=True
    )


def test_an_unfinished_line_at_the_end_says_so_until_its_file_ends(log: Log) -> None:
    log.prints(b"one\nlogin: ")
    assert [line.is_complete for line in log.view().lines()] == [True, False]
    assert log.view().bounds() == (1, 2)

    log.feed.new_file(Cut.LOST)
    assert [(x.raw, x.is_complete) for x in log.view().lines()] == [
        (b"one", True),
        (b"login: ", True),
    ]
    log.prints(b"three\n")
    assert raws(log.view().lines()) == [(1, b"one"), (2, b"login: "), (3, b"three")]


def test_an_empty_log_has_no_lines(tmp_path: Path) -> None:
    view = PortLog(tmp_path / "nothing", "dut1")

    assert (view.bounds(), list(view.lines()), view.line(1), view.seq_at(0)) == (
        None,
        [],
        None,
        None,
    )
    assert (view.boots(), view.gaps()) == ([], [])


def test_a_range_a_limit_and_both_directions(tmp_path: Path) -> None:
    log = Log(tmp_path, rotate_bytes=2000)
    for number in range(1, 1001):
        log.prints(b"line %d\n" % number, after_ms=7)
    view = log.view()
    log.end()

    assert [x.seq for x in view.lines(first=300, last=305)] == list(range(300, 306))
    assert [x.seq for x in view.lines(first=998)] == [998, 999, 1000]
    assert [x.seq for x in view.lines(last=3)] == [1, 2, 3]
    assert [x.seq for x in view.lines(first=10, limit=2)] == [10, 11]
    assert [x.seq for x in view.lines(reverse=True)] == list(range(1000, 0, -1))
    assert [x.seq for x in view.lines(last=500, limit=3, reverse=True)] == [500, 499, 498]
    assert [x.seq for x in view.lines(first=2, last=4, reverse=True)] == [4, 3, 2]
    assert list(view.lines(first=5, last=4)) == list(view.lines(first=2000)) == []
    assert list(view.lines(limit=0)) == []
    line = view.line(777)
    assert line is not None
    assert line.raw == b"line 777"
    assert view.line(1001) is view.line(0) is None


@pytest.mark.parametrize("eol", ["lf", "cr"])
def test_whatever_was_printed_is_read_back(tmp_path: Path, eol: str) -> None:
    rng = random.Random(10)
    for run in range(6):
        folder = tmp_path / f"{run}"
        folder.mkdir()
        log = Log(folder, rotate_bytes=rng.choice([700, 5_000, 60_000, 1 << 30]), eol=eol)
        for _ in range(rng.randrange(1, 5)):
            for chunk in chunked(rng, console(rng)):
                log.prints(chunk, after_ms=rng.choice([0, 0, 1, 30]))
                if rng.random() < 0.05:
                    log.write()
            if rng.random() < 0.3:
                log.feed.new_file(Cut.LOST)
        view = log.view()
        expected = dict(log.feed.lines)
        if log.feed.partial:
            expected[log.feed.next_seq] = log.feed.partial.rstrip(b"\r")
        log.end()

        assert dict(raws(view.lines())) == expected
        assert [x.seq for x in view.lines()] == sorted(expected)
        assert raws(view.lines(reverse=True)) == sorted(expected.items(), reverse=True)
        assert view.bounds() == (1, max(expected))
        for seq in rng.sample(sorted(expected), min(40, len(expected))):
            line = view.line(seq)
            assert line is not None
            assert (line.seq, line.raw) == (seq, expected[seq])


def test_a_view_shows_what_is_new_after_refresh(log: Log) -> None:
    log.prints(b"one\ntw")
    view = log.view()
    log.prints(b"o\nthree\n", after_ms=30)
    log.write()

    assert raws(view.lines()) == [(1, b"one"), (2, b"tw")]
    view.refresh()
    assert raws(view.lines()) == [(1, b"one"), (2, b"two"), (3, b"three")]
    assert view.bounds() == (1, 3)


def small_file(folder: Path, seq: int, data: bytes = b"up\n") -> None:
    name = f"20260622T0358{seq % 60:02d}Z-{seq:012d}"
    (folder / f"{name}.log").write_bytes(data)
    (folder / f"{name}.idx").touch()


def test_a_quiet_log_of_many_files_is_not_looked_through_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for seq in range(1, 50):
        small_file(tmp_path, seq)
    os.utime(tmp_path, (1, 1))  # that no file came was so long ago
    view = PortLog(tmp_path, "dut1")
    looked_at: list[str] = []
    real = os.stat
    monkeypatch.setattr(os, "listdir", lambda path: pytest.fail("the folder is listed"))
    monkeypatch.setattr(os, "stat", lambda path: looked_at.append(str(path)) or real(path))  # type: ignore[func-returns-value]

    view.refresh()

    assert 3 <= len(looked_at) <= 5
    monkeypatch.undo()
    small_file(tmp_path, 49, b"up\nand on\n")
    view.refresh()
    assert raws(view.lines(first=49)) == [(49, b"up"), (50, b"and on")]


def test_a_log_of_many_files_is_opened_without_a_look_at_each(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for seq in range(10, 1000, 10):
        small_file(tmp_path, seq)
    looked_at: list[object] = []
    real = os.stat
    with monkeypatch.context() as patch:
        patch.setattr(os, "stat", lambda path, **how: looked_at.append(path) or real(path, **how))  # type: ignore[func-returns-value]
        bounds = PortLog(tmp_path, "dut1").bounds()

    assert bounds == (10, 990)
    assert len(looked_at) < 10


def test_files_without_a_byte_are_left_out_wherever_they_are(tmp_path: Path) -> None:
    for seq in range(10, 200, 10):
        small_file(tmp_path, seq, b"" if seq in {10, 20, 90, 100, 180, 190} else b"x\n")
    view = PortLog(tmp_path, "dut1")
    seqs = [line.seq for line in view.lines()]

    assert view.bounds() == (30, 170)
    assert seqs == [*range(30, 90, 10), *range(110, 180, 10)]
    assert [line.seq for line in view.lines(reverse=True)] == seqs[::-1]
    assert view.newest_from(170, 8) == 80
    (log_files(tmp_path)[2]).unlink()
    view.refresh()
    assert view.bounds() == (40, 170)


@pytest.mark.parametrize("seed", range(4))
def test_a_view_is_as_a_new_one_whatever_files_come_grow_and_go(tmp_path: Path, seed: int) -> None:
    rng = random.Random(seed)
    view = PortLog(tmp_path, "dut1")
    for turn in range(120):
        seqs = [int(path.stem[-12:]) for path in log_files(tmp_path)]
        match rng.choice(["new", "new", "empty", "grown", "gone", "oldest gone", "back"]):
            case "new":
                small_file(tmp_path, max(seqs, default=0) + 10)
            case "empty":
                small_file(tmp_path, max(seqs, default=0) + 10, b"")
            case "grown" if seqs:
                small_file(tmp_path, max(seqs), b"x\n" * rng.randrange(1, 9))
            case "gone" if seqs:
                log_files(tmp_path)[rng.randrange(len(seqs))].unlink()
            case "oldest gone" if seqs:
                log_files(tmp_path)[0].unlink()
            case "back":
                small_file(tmp_path, rng.randrange(1, max(seqs, default=0) + 2))
        if rng.random() < 0.5:
            os.utime(tmp_path, ns=(turn + 1, turn + 1))
        if rng.random() < 0.6:
            view.refresh()
            fresh = PortLog(tmp_path, "dut1")
            assert view.bounds() == fresh.bounds()
            assert raws(view.lines()) == raws(fresh.lines())


async def test_it_reads_while_the_writer_writes(tmp_path: Path) -> None:
    feed = Feed()
    writer = LogWriter(tmp_path, lambda port, problem: None, rotate_bytes=30_000)
    writer.start()
    writer.attach(feed.ring)
    wrong: list[str] = []
    stop = threading.Event()

    def read() -> None:
        view = PortLog(tmp_path / "dut1", "dut1")
        while not stop.is_set():
            view.refresh()
            for direction in (False, True):
                lines = list(view.lines(reverse=direction))
                seqs = sorted(line.seq for line in lines)
                if seqs != list(range(1, len(seqs) + 1)):
                    wrong.append(f"numbers {seqs[:3]}..{seqs[-3:]} of {len(seqs)}")
                wrong.extend(
                    f"{line}"
                    for line in lines
                    if line.is_complete and line.raw != b"line %d" % line.seq
                )

    thread = threading.Thread(target=read)
    thread.start()
    for _ in range(150):
        for _ in range(20):
            feed.prints(b"line %d\r\n" % feed.next_seq, after_ms=3)
        await asyncio.sleep(0.002)
    stop.set()
    while thread.is_alive():
        await asyncio.sleep(0.01)
    await writer.stop()

    assert wrong == []


def read_bytes() -> int:
    """Return how many bytes this process has read so far."""
    with open("/proc/self/io", encoding="ascii") as file:
        return int(file.readline().split()[1])


def test_the_end_of_a_long_log_and_a_line_in_its_middle_are_read_without_the_rest(
    tmp_path: Path,
) -> None:
    log = Log(tmp_path)
    block = b"".join(b"%06d " % n + b"." * 70 + b"\r\n" for n in range(1000))
    for _ in range(250):
        for at in range(0, len(block), 4000):
            log.prints(block[at : at + 4000], after_ms=2)
        log.write()
    view = log.view()
    log.end()
    list(view.lines(last=1))  # the list of boots is read once
    middle = log.feed.utc_ns - (log.feed.utc_ns - UTC_NS) // 2

    for ask in (
        lambda: list(view.lines(limit=20, reverse=True)),
        lambda: view.line(123_456),
        lambda: view.bounds(),
        lambda: view.seq_at(middle),
    ):
        before = read_bytes()
        assert ask()
        assert read_bytes() - before < 128 * 1024


# Times


def test_a_line_has_the_time_of_its_first_byte_not_of_its_end(log: Log) -> None:
    log.prints(b"a\n")
    log.prints(b"b", after_ms=2000)
    log.prints(b"\n", after_ms=500)
    log.prints(b"c\n", after_ms=1000)
    a, b, c = log.view().lines()

    assert [line.utc_ns - UTC_NS for line in (a, b, c)] == [0, 2 * S, 3500 * MS]
    assert [line.last_utc_ns - line.utc_ns for line in (a, b, c)] == [0, 500 * MS, 0]
    assert b.mono_ns - a.mono_ns == 2 * S


def test_between_two_points_bytes_came_evenly_but_never_in_a_pause(log: Log) -> None:
    for _ in range(100):
        log.prints(b"0123456\n", after_ms=1)
    log.prints(b"last\n", after_ms=5000)
    log.prints(b"done\n", after_ms=5000)
    lines = list(log.view().lines())

    for number, line in enumerate(lines[:100]):
        assert abs(line.utc_ns - UTC_NS - (number + 1) * MS) <= 2 * MS
        assert line.last_utc_ns <= UTC_NS + 101 * MS
    assert lines[100].utc_ns == UTC_NS + 100 * MS + 5 * S


def test_the_last_lines_have_times_before_anything_follows_them(log: Log) -> None:
    for _ in range(1000):
        log.prints(b"x\n", after_ms=2)
    late = [log.feed.utc_ns - line.utc_ns for line in log.view().lines(limit=5, reverse=True)]

    assert all(0 <= each <= 260 * MS for each in late)


def test_every_time_is_found(tmp_path: Path) -> None:
    rng = random.Random(11)
    log = Log(tmp_path, rotate_bytes=20_000)
    for _ in range(800):
        log.prints(b"." * rng.randrange(120) + b"\n", after_ms=rng.choice([0, 1, 25, 400]))
    view = log.view()
    lines = list(view.lines())
    log.end()

    for line in rng.sample(lines, 100):
        first = next(x.seq for x in lines if x.utc_ns >= line.utc_ns)
        assert view.seq_at(line.utc_ns) == first
        later = next((x.seq for x in lines if x.utc_ns > line.utc_ns), None)
        assert view.seq_at(line.utc_ns + 1) == later
    assert view.seq_at(0) == 1
    assert view.seq_at(log.feed.utc_ns + 10 * S) is None


def test_a_clock_that_was_set_back_splits_the_log_in_two_stretches(log: Log) -> None:
    for _ in range(50):
        log.prints(b"before\n", after_ms=100)
    log.feed.utc_ns -= 3600 * S
    for _ in range(50):
        log.prints(b"after\n", after_ms=100)
    view = log.view()
    lines = list(view.lines())

    assert lines[50].utc_ns - lines[49].utc_ns == -3600 * S + 100 * MS
    assert lines[50].mono_ns - lines[49].mono_ns == 100 * MS
    assert view.seq_at(lines[20].utc_ns) == 21
    assert view.seq_at(lines[70].utc_ns) == 1  # the first stretch is later as a whole
    assert view.seq_at(lines[49].utc_ns + 1) is None


def test_lines_up_to_a_time_are_chosen_though_the_clock_was_later_before(log: Log) -> None:
    for step_s in (0, -3600):
        log.feed.utc_ns += step_s * S
        for _ in range(50):
            log.prints(b"x\n", after_ms=100)
    view = log.view()
    at = [0, *(line.utc_ns for line in view.lines())]

    for query, last in (
        (LogQuery(until_utc_ns=at[71]), 71),
        (LogQuery(since_utc_ns=at[61], until_utc_ns=at[71]), 71),
        (LogQuery(until_utc_ns=at[20]), 100),
        (LogQuery(until_utc_ns=at[51] - 1), 0),
    ):
        chosen = [line.seq for line in select(view, query) if line]
        assert (chosen[-1] if chosen else 0) == last


def test_the_last_line_up_to_a_time_is_found_however_the_clock_was_set(tmp_path: Path) -> None:
    rng = random.Random(5)
    for rotate_bytes in (2_000, 10_000, 10_000_000):
        log = Log(tmp_path / str(rotate_bytes), rotate_bytes=rotate_bytes)
        for step_s in (0, 3600, -3600, 365 * 86400, -365 * 86400, -7200, 20):
            log.feed.utc_ns += step_s * S
            for _ in range(60):
                log.prints(b"." * rng.randrange(80) + b"\n", after_ms=rng.choice([0, 1, 400]))
        view = log.view()
        lines = list(view.lines())
        log.end()

        for line in [*rng.sample(lines, 60), *lines[-3:]]:
            for at in (line.utc_ns - 1, line.utc_ns, line.utc_ns + 1):
                expected = max((x.seq for x in lines if x.utc_ns <= at), default=None)
                assert view.last_seq_at(at) == expected
        assert view.last_seq_at(0) is None


def test_a_clock_that_was_set_forward_makes_no_line_between(log: Log) -> None:
    for _ in range(50):
        log.prints(b"before\n", after_ms=100)
    log.feed.utc_ns += 3600 * S
    for _ in range(50):
        log.prints(b"after\n", after_ms=100)
    view = log.view()
    lines = list(view.lines())

    assert view.seq_at(lines[49].utc_ns + 60 * S) == 51
    assert view.seq_at(lines[80].utc_ns) == 81


# Boots and gaps


def test_lines_belong_to_boots_even_where_the_next_file_tells_of_one(tmp_path: Path) -> None:
    log = Log(tmp_path, rotate_bytes=30, boot=1)
    feed = log.feed
    log.prints(b"old\nU-Boot 2023.01\nDRAM:  512 MiB\n")
    log.prints(b"first line of the next file\n")
    feed.ring.put(Note(Kind.BOOT, 2, 2, feed.mono_ns, feed.utc_ns + 1))
    log.prints(b"another\n")
    view = log.view()
    log.end()

    assert len(log_files(log.folder)) > 1
    assert [line.boot for line in view.lines()] == [1, 2, 2, 2, 2]
    assert [line.boot for line in view.lines(reverse=True)] == [2, 2, 2, 2, 1]
    assert view.boots() == [(2, 2, feed.utc_ns + 1)]


def test_gaps_say_what_is_missing_and_where(log: Log) -> None:
    feed = log.feed
    log.prints(b"one\n")
    feed.ring.put(Gap(Place.UART, 0, 2, feed.mono_ns, feed.utc_ns))
    log.prints(b"two\n")
    feed.ring.put(Gap(Place.LOG, 5_000_000_000, 3, feed.mono_ns, feed.utc_ns + 5))
    log.prints(b"three\n")
    gaps = log.view().gaps()

    assert gaps[0] == LogGap(2, "uart", 0, UTC_NS)
    assert sum(gap.lost_bytes for gap in gaps[1:]) == 5_000_000_000
    assert {(gap.seq, gap.place, gap.utc_ns) for gap in gaps[1:]} == {(3, "log", UTC_NS + 5)}


# Damage


def damaged(log: Log, rng: random.Random) -> Path:
    for number in range(2000):
        log.prints(b"line %d\r\n" % number, after_ms=rng.choice([1, 30]))
    log.write()
    return log_files(log.folder)[0].with_suffix(".idx")


@pytest.mark.parametrize("keep", [None, 0, 100, HEADER_BYTES, HEADER_BYTES + 40 * 100 + 7])
def test_a_missing_or_torn_index_costs_times_but_no_line(log: Log, keep: int | None) -> None:
    index = damaged(log, random.Random(12))
    content = index.read_bytes()
    index.unlink() if keep is None else index.write_bytes(content[:keep])
    view = PortLog(log.folder, "dut1")

    assert dict(raws(view.lines())) == log.feed.lines
    assert dict(raws(view.lines(reverse=True))) == log.feed.lines
    assert view.bounds() == (1, 2000)
    times = [line.utc_ns for line in view.lines()]
    assert times == sorted(times)
    assert UTC_NS <= times[0] <= UTC_NS + 30 * MS
    assert not index.exists() if keep is None else index.read_bytes() == content[:keep]


def test_records_with_wrong_bits_are_passed_over(log: Log) -> None:
    rng = random.Random(13)
    index = damaged(log, rng)
    content = bytearray(index.read_bytes())
    for _ in range(200):
        content[rng.randrange(HEADER_BYTES, len(content))] ^= 1 << rng.randrange(8)
    index.write_bytes(content)
    view = PortLog(log.folder, "dut1")

    assert dict(raws(view.lines())) == log.feed.lines
    assert dict(raws(view.lines(reverse=True))) == log.feed.lines
    assert raws(view.lines(first=1234, limit=1)) == [(1234, log.feed.lines[1234])]
    assert view.bounds() == (1, 2000)


def test_a_log_that_lost_its_end_shows_what_is_left(log: Log) -> None:
    index = damaged(log, random.Random(14))
    path = index.with_suffix(".log")
    os.truncate(path, 10_000)
    view = PortLog(log.folder, "dut1")
    lines = list(view.lines())
    left = path.read_bytes().count(b"\n")

    assert dict(raws(iter(lines[:left]))) == {s: log.feed.lines[s] for s in range(1, left + 1)}
    assert view.bounds() == (1, lines[-1].seq)
    assert [x.seq for x in view.lines(reverse=True)] == [x.seq for x in reversed(lines)]


def test_a_console_of_crs_is_known_without_its_index(tmp_path: Path) -> None:
    log = Log(tmp_path, eol="cr")
    log.prints(b"line\r" * 2000)
    log.write()
    log_files(log.folder)[0].with_suffix(".idx").unlink()
    view = PortLog(log.folder, "dut1")
    log.end()

    assert raws(view.lines(limit=2)) == [(1, b"line"), (2, b"line")]
    assert view.bounds() == (1, 2000)


def test_a_file_that_is_deleted_meanwhile_is_left_out(tmp_path: Path) -> None:
    log = Log(tmp_path, rotate_bytes=100)
    for number in range(1, 31):
        log.prints(b"line number %d\n" % number)
    view = log.view()
    log.end()
    first, second = log_files(log.folder)[:2]
    first.unlink()
    first.with_suffix(".idx").unlink()
    left = int(second.stem[-12:])

    assert [x.seq for x in view.lines()] == list(range(left, 31))
    assert view.seq_at(0) == left
    assert view.line(1) is None


# Retention


def kept(folder: Path) -> list[int]:
    return [int(path.stem[-12:]) for path in log_files(folder)]


def ten_files(folder: Path, name: str = "dut1") -> Path:
    (folder / name).mkdir(parents=True)
    for number in range(10):
        path = folder / name / f"20260622T0358{number:02}Z-{number * 100 + 1:012d}.log"
        path.write_bytes(bytes(1000))
        path.with_suffix(".idx").write_bytes(bytes(24))
        changed = UTC_NS // 10**9 + number * 86_400
        os.utime(path, (changed, changed))
    return folder / name


def test_the_oldest_files_go_with_their_indexes_until_the_rest_fits(tmp_path: Path) -> None:
    folder = ten_files(tmp_path)

    assert prune(folder, 1000, 7 * 1024, UTC_NS) == 3 * 1024
    assert kept(folder) == [301, 401, 501, 601, 701, 801, 901]
    assert len(list(folder.iterdir())) == 14


def test_old_files_go_but_the_newest_stays_for_ever(tmp_path: Path) -> None:
    folder = ten_files(tmp_path)

    assert prune(folder, 5, 1 << 40, UTC_NS + 9 * 86_400 * 10**9) == 4 * 1024
    assert kept(folder) == [401, 501, 601, 701, 801, 901]
    assert prune(folder, 5, 0, UTC_NS + 10**18) == 5 * 1024
    assert kept(folder) == [901]


def test_all_ports_share_the_room(tmp_path: Path) -> None:
    folders = [ten_files(tmp_path, name) for name in ("dut1", "dut2")]

    assert prune(tmp_path, 1000, 10 * 1024, UTC_NS) == 10 * 1024
    assert kept(folders[0]) == kept(folders[1]) == [501, 601, 701, 801, 901]
    assert prune(tmp_path / "nothing", 1, 0, UTC_NS) == 0


def test_of_a_port_that_is_gone_the_newest_goes_too_once_it_is_too_old(tmp_path: Path) -> None:
    here, gone = (ten_files(tmp_path, name) for name in ("dut1", "gone"))

    prune(tmp_path, 1000, 0, UTC_NS, {"dut1"})
    assert (kept(here), kept(gone)) == ([901], [901])
    prune(tmp_path, 5, 0, UTC_NS + 10**18, {"dut1"})
    assert (kept(here), kept(gone)) == ([901], [])


@pytest.mark.parametrize("reverse", [False, True])
@pytest.mark.parametrize(("first", "last"), [(1, 4000), (700, 3300), (1500, 1500)])
def test_stretches_leave_out_only_lines_without_the_words(
    tmp_path: Path, first: int, last: int, reverse: bool
) -> None:
    log_dir = tmp_path / "log"
    one = SavedLog(log_dir)
    for n in range(1, 2001, 100):
        block = [f"line {i} {'needle' if i % 700 == 0 else 'hay'}" for i in range(n, n + 100)]
        block[50] += "x" * 3000
        one.add("\n".join(block))
    one.add("Needle " + "y" * 200_000)
    begin = one.next_seq  # a line is cut at 16 KiB
    two = SavedLog(log_dir, first_seq=begin)
    two.add("\n".join("NEEDLE" if i % 900 == 0 else "hay" for i in range(begin, 4001)))
    log = PortLog(log_dir / "dut1", "dut1")

    found = list(log.stretches([b"needle"], first, last, reverse))

    ordered = found[::-1] if reverse else found
    assert (ordered[0][0], ordered[-1][1]) == (first, last)
    assert all(a[1] + 1 == b[0] for a, b in pairwise(ordered))
    candidates = [(low, high) for low, high, may_be in found if may_be]
    wanted = [x.seq for x in log.lines(first, last) if b"needle" in x.raw.lower()]
    assert all(any(low <= seq <= high for low, high in candidates) for seq in wanted)
    if (first, last) == (1, 4000):
        assert any(not may_be for _, _, may_be in found)
