"""A log of many files: what is looked for is found without opening or reading the rest."""

from __future__ import annotations

import random
from collections.abc import Iterator
from itertools import islice
from pathlib import Path

import pytest

from log_feed import MS, Feed
from saved_log import SavedLog
from serialwatch.api import logs as api_logs
from serialwatch.api.logs import LogQuery, next_page, select
from serialwatch.records import Line
from serialwatch.store import log_recovery
from serialwatch.store.log_appender import LogAppender
from serialwatch.store.log_check import check_port
from serialwatch.store.log_format import HEADER_BYTES, Cut, Kind, log_files
from serialwatch.store.log_items import Note
from serialwatch.store.log_reader import PortLog
from serialwatch.store.log_recovery import recover
from serialwatch.store.saved_file import OpenFile, SavedFile

S = 1000 * MS


class Board:
    """A port whose log is written at our word."""

    def __init__(self, folder: Path, rotate_bytes: int) -> None:
        self.feed = Feed()
        self.folder = folder / "dut1"
        self._appender = LogAppender(self.folder, self.feed.ring, b"a boot of the PC", rotate_bytes)
        self.boots = 0

    def prints(self, data: bytes, after_ms: float = 0) -> None:
        self.feed.prints(data, after_ms)
        self._appender.write(0.0, is_last=False)

    def boots_at(self, seq: int) -> None:
        feed = self.feed
        self.boots += 1
        feed.boot = self.boots
        feed.ring.put(Note(Kind.BOOT, self.boots, seq, feed.mono_ns, feed.utc_ns))

    def end(self) -> PortLog:
        self._appender.write(0.0, is_last=True)
        self._appender.sync(0.0)
        return PortLog(self.folder, "dut1")


@pytest.fixture
def board(tmp_path: Path) -> Iterator[Board]:
    made = Board(tmp_path, 500)
    yield made
    made.end()


def opened(monkeypatch: pytest.MonkeyPatch) -> list[Path]:
    """Return a list that gets the files that are opened from now on."""
    paths: list[Path] = []
    real = SavedFile.open

    def spied(self: SavedFile) -> OpenFile:
        paths.append(self.path)
        return real(self)

    monkeypatch.setattr(SavedFile, "open", spied)
    return paths


# Times


def test_a_time_is_found_without_opening_the_files_before_it(
    board: Board, monkeypatch: pytest.MonkeyPatch
) -> None:
    for number in range(800):
        board.prints(b"line %d of many\n" % number, after_ms=700)
    view = board.end()
    lines = list(view.lines())
    assert len(log_files(board.folder)) > 20

    for line in lines[5::37]:
        paths = opened(monkeypatch)
        assert view.seq_at(line.utc_ns) == line.seq
        assert view.seq_at(line.utc_ns + 1) == line.seq + 1
        assert len(paths) <= 6
        monkeypatch.undo()
    assert view.seq_at(0) == 1
    assert view.seq_at(lines[-1].utc_ns + 1) is None


def test_an_ended_file_whose_clock_was_set_back_knows_its_first_stretch(board: Board) -> None:
    for _ in range(8):
        board.prints(b"before\n", after_ms=100)
    board.feed.utc_ns -= 3600 * S
    for _ in range(8):
        board.prints(b"after\n", after_ms=100)
    view = board.end()
    lines = list(view.lines())

    assert len(log_files(board.folder)) == 1
    assert view.seq_at(lines[3].utc_ns) == 4
    assert view.seq_at(lines[7].utc_ns + 1) is None


def test_after_a_clock_was_set_back_over_many_files_each_run_of_them_is_looked_at(
    board: Board,
) -> None:
    for _ in range(100):
        board.prints(b"a line of the wrong hour\n", after_ms=1000)
    board.feed.utc_ns -= 2 * 3600 * S
    for _ in range(100):
        board.prints(b"a line of the right hour\n", after_ms=1000)
    view = board.end()
    lines = list(view.lines())

    assert view.seq_at(lines[60].utc_ns) == 61
    assert view.seq_at(lines[99].utc_ns + 1) is None
    assert view.seq_at(lines[100].utc_ns) == 1  # all of the first run is later


def test_a_clock_that_was_set_back_and_forth_hides_no_line(board: Board) -> None:
    for step_s in (0, -3600, 3600):
        board.feed.utc_ns += step_s * S
        for _ in range(12):
            board.prints(b"line\n", after_ms=100)
    view = board.end()
    lines = list(view.lines())

    assert len(log_files(board.folder)) == 1
    assert view.seq_at(lines[8].utc_ns) == 9


@pytest.mark.parametrize("seed", range(10))
def test_a_time_is_found_however_often_the_clock_was_set(tmp_path: Path, seed: int) -> None:
    rng = random.Random(seed)
    board = Board(tmp_path, 1 << 30)
    settings = rng.sample(range(3000), rng.choice([0, 1, 4]))
    for number in range(3000):
        if number in settings:
            board.feed.utc_ns += rng.choice([-1, 1]) * rng.randrange(300 * MS, 3600 * S)
        if rng.random() < 0.01:
            board.boots_at(board.feed.next_seq)
        board.feed.prints(b"x\n", after_ms=25)
    board.prints(b"end\n")
    view = board.end()
    lines = list(view.lines())

    assert len(log_files(board.folder)) == 1
    for wanted in rng.sample(lines, 40):
        earliest = next(line.seq for line in lines if line.utc_ns >= wanted.utc_ns)
        assert view.seq_at(wanted.utc_ns) == earliest


def test_a_file_with_a_name_that_is_no_time_is_read_all_the_same(board: Board) -> None:
    board.prints(b"one\ntwo\n", after_ms=100)
    board.end()
    (path,) = log_files(board.folder)
    for each in (path, path.with_suffix(".idx")):
        each.rename(each.with_name("20261399T999999Z-000000000001" + each.suffix))
    view = PortLog(board.folder, "dut1")

    assert [line.raw for line in view.lines()] == [b"one", b"two"]
    assert view.seq_at(0) == 1


# Boots


def many_boots(board: Board) -> PortLog:
    """Print many files; some have no boot, some have several, some are told of late."""
    rng = random.Random(3)
    for number in range(1200):
        board.prints(b"line %d of many\n" % number, after_ms=50)
        if rng.random() < (0.08 if 300 < number < 700 else 0.003):
            if rng.random() < 0.3:
                board.feed.new_file(Cut.LOST)  # the next file begins with the boot
            board.boots_at(board.feed.next_seq - rng.choice([1, 1, 2]))
    return board.end()


def test_every_boot_is_found_with_few_indexes_read(
    board: Board, monkeypatch: pytest.MonkeyPatch
) -> None:
    view = many_boots(board)
    known = view.boots()
    starts = {number: seq for number, seq, _ in known}
    newest = known[-1][0]
    assert len(known) > 15

    for number, seq in starts.items():
        end = starts[number + 1] - 1 if number < newest else None
        assert view.boot_range(number) == (seq, end)
        assert view.boot_range(number - newest) == (seq, end)
    assert view.boot_range(newest + 1) is None
    assert view.boot_range(-newest) is None
    assert view.boot_numbers() == (1, newest)
    fresh = PortLog(board.folder, "dut1")
    paths = opened(monkeypatch)
    assert fresh.boot_range(newest - 3) is not None
    assert len(paths) < len(log_files(board.folder)) / 2


def test_of_a_boot_whose_beginning_is_gone_the_rest_is_left(board: Board) -> None:
    view = many_boots(board)
    lines = list(view.lines())
    gone = log_files(board.folder)[:30]
    for path in gone:
        path.unlink()
        path.with_suffix(".idx").unlink()
    view.refresh()
    left = next(view.lines())
    rest = [line.seq for line in lines if line.boot == left.boot and line.seq >= left.seq]

    assert left.seq > 1
    assert left.boot > 1
    assert view.boot_range(left.boot) == (rest[0], rest[-1])
    assert view.boot_range(left.boot - 1) is None
    assert view.boot_numbers() == (left.boot, board.boots)


def test_a_log_without_a_boot_has_none(board: Board) -> None:
    board.prints(b"nothing but lines\n")
    view = board.end()

    assert view.boot_range(0) is view.boot_range(1) is None
    assert view.boot_numbers() is None


def test_lines_have_their_boots_unless_they_are_not_wanted(
    board: Board, monkeypatch: pytest.MonkeyPatch
) -> None:
    view = many_boots(board)
    starts = [(seq, number) for number, seq, _ in view.boots()]
    for line in view.lines():
        assert line.boot == max((n for seq, n in starts if seq <= line.seq), default=0)

    def refused(*_: object) -> None:
        raise AssertionError("an index is read as a whole")

    monkeypatch.setattr(SavedFile, "notes", refused)
    plain = list(PortLog(board.folder, "dut1").lines(has_boots=False))
    assert [line.raw for line in plain] == [line.raw for line in view.lines(has_boots=False)]
    assert {line.boot for line in plain} == {0}


# Numbers


def test_the_newest_lines_begin_where_counting_back_leads(board: Board) -> None:
    for number in range(300):
        board.prints(b"line %d of many\n" % number, after_ms=50)
        if number % 50 == 0:
            board.feed.next_seq += 7  # numbers that were never used
            board.feed.new_file(Cut.LOST)
    view = board.end()
    backward = [line.seq for line in view.lines(reverse=True)]

    for count in (1, 2, 3, 49, 50, 51, 200, 300):
        assert view.newest_from(backward[0], count) == backward[count - 1]
    assert view.newest_from(backward[0], 10**15) == 1
    assert view.newest_from(backward[10], 5) == backward[14]


# Search


@pytest.fixture
def haystack(tmp_path: Path) -> PortLog:
    """A log of 8 MB; `needle` is in 30 lines of its oldest part."""
    saved = SavedLog(tmp_path)
    block = b"".join(b"%05d " % n + b"hay" * 30 + b"\n" for n in range(2000))
    for number in range(30):
        saved.add_block(block + b"the needle %d\n" % number, 1.0)
    for _ in range(14):
        saved.add_block(block, 1.0)
    return PortLog(tmp_path / "dut1", "dut1")


@pytest.mark.parametrize("newest", [None, 5])
def test_a_search_in_vain_gives_others_their_turn(haystack: PortLog, newest: int | None) -> None:
    found = list(select(haystack, LogQuery(text=b"nowhere", newest=newest)))

    assert found == [None] * len(found)
    assert len(found) >= 3
    lines = select(haystack, LogQuery(text=b"nowhere", newest=newest))
    page = next_page(lines)
    assert page is not None
    assert page.rows == b""


def needles(found: Iterator[Line | None]) -> list[bytes]:
    return [line.raw for line in found if line is not None]


@pytest.mark.parametrize("held", [4, 100])
@pytest.mark.parametrize("newest", [1, 4, 5, 29, 30, 31])
def test_the_newest_that_hold_a_text_are_found_however_many_fit_in_memory(
    haystack: PortLog, monkeypatch: pytest.MonkeyPatch, newest: int, held: int
) -> None:
    monkeypatch.setattr(api_logs, "MAX_HELD", held)

    assert needles(select(haystack, LogQuery(text=b"needle", newest=newest))) == [
        b"the needle %d" % n for n in range(max(0, 30 - newest), 30)
    ]


def test_a_search_tells_capitals_from_small_letters(haystack: PortLog) -> None:
    assert needles(select(haystack, LogQuery(text=b"Needle"))) == []
    assert len(needles(select(haystack, LogQuery(text=b"the needle")))) == 30


def test_many_newest_lines_are_not_held_in_memory(haystack: PortLog) -> None:
    lines = select(haystack, LogQuery(newest=80_000))
    first = next(lines)
    _, last = haystack.bounds() or (0, 0)

    assert first is not None
    assert first.seq == last - 80_000 + 1
    assert [x.seq for x in islice(lines, 3) if x] == [first.seq + n for n in (1, 2, 3)]


# After a crash


@pytest.mark.parametrize("is_ended", [True, False])
def test_a_long_index_is_not_read_record_by_record_when_the_daemon_starts(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, is_ended: bool
) -> None:
    board = Board(tmp_path, 1 << 30)
    for _ in range(5000):
        board.feed.prints(b"slow\n", after_ms=25)
    board.prints(b"end\n", after_ms=25)
    if is_ended:
        board.end()
    looks: list[bytes] = []
    real = log_recovery.unpack_record

    def spied(data: bytes) -> object:
        looks.append(data)
        return real(data)

    monkeypatch.setattr(log_recovery, "unpack_record", spied)
    assert recover(board.folder, "dut1") == 5001
    assert len(looks) < 100
    board.end()


@pytest.mark.parametrize("lost", [1, 100, 5000])
def test_zeros_in_the_place_of_the_newest_bytes_take_their_records_with_them(
    tmp_path: Path, lost: int
) -> None:
    board = Board(tmp_path, 1 << 30)
    for number in range(2000):
        board.feed.prints(b"line %d\n" % number, after_ms=25)
    board.prints(b"end\n", after_ms=25)
    board.end()
    (path,) = log_files(board.folder)
    data = path.read_bytes()
    path.write_bytes(data[:-lost] + bytes(lost))
    highest = recover(board.folder, "dut1")

    assert [found.faults for found in check_port(board.folder, "dut1", is_live=False)] == [[]]
    assert highest == (data[:-lost] + bytes(lost)).count(b"\n") + 1
    assert (path.with_suffix(".idx").stat().st_size - HEADER_BYTES) % 40 == 0
