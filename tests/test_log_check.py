"""Indexes held against their logs: what is wrong is named, and made right without losing times."""

from __future__ import annotations

import os
import random
from collections.abc import Callable
from pathlib import Path

import pytest

from log_feed import Feed, chunked, console, records_in
from serialwatch.store.log_appender import LogAppender
from serialwatch.store.log_check import check_port
from serialwatch.store.log_format import HEADER_BYTES, RECORD_BYTES, Kind, Place, log_files
from serialwatch.store.log_items import Gap, Note
from serialwatch.store.log_reader import PortLog
from serialwatch.store.log_recovery import recover
from serialwatch.store.log_repair import repair

AT = HEADER_BYTES + 20 * RECORD_BYTES


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A log of three files: 3,000 lines, 20 ms between each two; the newest has ended too."""
    folder = tmp_path / "dut1"
    feed = Feed()
    appender = LogAppender(folder, feed.ring, bytes(16), rotate_bytes=20_000)
    for number in range(1500):
        feed.prints(b"line %d of this board\r\n" % number * 2, after_ms=20)
    appender.write(0.0, is_last=True)
    appender.sync(0.0)
    return folder


def faults(folder: Path, *, is_live: bool = False) -> list[str]:
    return [f for each in check_port(folder, "dut1", is_live=is_live) for f in each.faults]


def damage(path: Path, at: int, data: bytes) -> None:
    with path.open("r+b") as file:
        file.seek(at)
        file.write(data)


def times(folder: Path) -> dict[int, int]:
    return {line.seq: line.utc_ns for line in PortLog(folder, "dut1").lines()}


def test_a_sound_log_is_sound(folder: Path) -> None:
    found = list(check_port(folder, "dut1", is_live=False))

    assert len(found) >= 3
    assert faults(folder) == []
    assert (found[0].first_seq, found[-1].last_seq) == (1, 3000)


@pytest.mark.parametrize("seed", range(20))
def test_whatever_a_board_prints_is_sound(tmp_path: Path, seed: int) -> None:
    rng = random.Random(seed)
    feed = Feed(eol=rng.choice(["lf", "cr"]))
    appender = LogAppender(tmp_path / "dut1", feed.ring, bytes(16), rotate_bytes=30_000)
    for _ in range(10):
        for chunk in chunked(rng, console(rng)):
            feed.prints(chunk, after_ms=rng.choice([0, 1, 30]))
    appender.write(0.0, is_last=True)
    appender.sync(0.0)

    assert faults(tmp_path / "dut1") == []


def cut_log(path: Path) -> None:
    os.truncate(path, path.stat().st_size - 300)


def lose_a_line_end(path: Path) -> None:
    data = path.read_bytes()
    path.write_bytes(data.replace(b"\n", b" ", 30).replace(b" ", b"\n", 29))


def swap_records(path: Path) -> None:
    index = path.with_suffix(".idx")
    data = index.read_bytes()
    one, other = data[AT : AT + RECORD_BYTES], data[AT + RECORD_BYTES : AT + 2 * RECORD_BYTES]
    damage(index, AT, other + one)


def lose_records(path: Path) -> None:
    index = path.with_suffix(".idx")
    data = index.read_bytes()
    index.write_bytes(data[:AT] + data[-RECORD_BYTES:])


@pytest.mark.parametrize(
    ("harm", "words"),
    [
        (lambda p: p.with_suffix(".idx").unlink(), "there is no index"),
        (lambda p: damage(p.with_suffix(".idx"), 0, b"X"), "the head of the index is damaged"),
        (lambda p: damage(p.with_suffix(".idx"), 8, b"other"), "the index is of port 'other'"),
        (lambda p: damage(p.with_suffix(".idx"), AT + 9, b"\xff"), "records are damaged"),
        (lambda p: os.truncate(p.with_suffix(".idx"), AT + 7), "the last record is torn (7 bytes"),
        (lambda p: os.truncate(p.with_suffix(".idx"), AT), "have no record: times are missing"),
        (lose_records, "have no record: times are missing"),
        (cut_log, "the log ends 300 bytes before"),
        (lambda p: p.write_bytes(p.read_bytes() + b"more\n"), "has 5 bytes more"),
        (lose_a_line_end, "where the log has L"),
        (swap_records, "one before it at"),
        (lambda p: p.rename(p.with_suffix(".old")), "an index without its log"),
    ],
)
def test_what_is_wrong_is_named(folder: Path, harm: Callable[[Path], None], words: str) -> None:
    harm(log_files(folder)[1])

    assert any(words in fault for fault in faults(folder)), faults(folder)


@pytest.mark.parametrize(
    ("harm", "least_kept"),
    [
        (lambda p: p.with_suffix(".idx").unlink(), 0),
        (lambda p: damage(p.with_suffix(".idx"), 0, b"X"), 400),
        (lambda p: damage(p.with_suffix(".idx"), AT + 9, b"\xff"), 400),
        (lambda p: os.truncate(p.with_suffix(".idx"), AT + 7), 20),
        (lambda p: os.truncate(p.with_suffix(".idx"), HEADER_BYTES), 0),
        (lose_records, 20),
        (lose_a_line_end, 1),
        (swap_records, 400),
    ],
)
def test_a_repaired_index_is_sound_and_knows_the_times_that_were_left(
    folder: Path, harm: Callable[[Path], None], least_kept: int
) -> None:
    before, path = times(folder), log_files(folder)[1]
    log = path.read_bytes()
    harm(path)
    harmed = path.read_bytes()
    kept = repair(path, "dut1")

    assert not next(f for f in check_port(folder, "dut1", is_live=False) if f.path == path).faults
    assert kept >= least_kept
    assert path.read_bytes() == harmed
    if harmed == log:
        after = times(folder)
        assert after.keys() == before.keys()
        right = sum(abs(after[seq] - before[seq]) < 20_000_000 for seq in before)
        assert right >= len(before) - 2000 * (least_kept < 400)


def test_boots_and_markers_outlive_a_repair(tmp_path: Path) -> None:
    feed = Feed()
    appender = LogAppender(tmp_path / "dut1", feed.ring, bytes(16), rotate_bytes=1 << 20)
    feed.prints(b"x\n" * 100)
    feed.ring.put(Note(Kind.BOOT, 7, 50, feed.mono_ns, feed.utc_ns))
    feed.ring.put(Note(Kind.MARK, 3, 60, feed.mono_ns, feed.utc_ns))
    feed.prints(b"y\n" * 4000)
    appender.write(0.0, is_last=True)
    appender.sync(0.0)
    (path,) = log_files(tmp_path / "dut1")
    index = path.with_suffix(".idx")
    damage(index, HEADER_BYTES + 3, b"\xff")  # the first POINT
    repair(path, "dut1")

    kinds = [record.kind for record in records_in(index.read_bytes())]
    assert (kinds.count(Kind.BOOT), kinds.count(Kind.MARK), kinds.count(Kind.CUT)) == (1, 1, 1)
    assert faults(tmp_path / "dut1") == []


def test_a_file_that_begins_too_early_or_too_late_is_told(folder: Path) -> None:
    first, second, *_ = log_files(folder)
    for path in (first, first.with_suffix(".idx")):
        path.rename(path.with_name(path.name.replace("000000000001", "000000000900")))

    assert any("begins with L" in fault for fault in faults(folder))
    assert second.exists()


def test_what_the_daemon_is_writing_may_be_ahead_of_its_index(folder: Path) -> None:
    newest = log_files(folder)[-1]
    index = newest.with_suffix(".idx")
    os.truncate(index, index.stat().st_size - RECORD_BYTES - 7)
    newest.write_bytes(newest.read_bytes() + b"just now\n")

    assert faults(folder, is_live=True) == []
    assert faults(folder) != []


def test_lost_bytes_and_a_crash_are_notes(tmp_path: Path) -> None:
    feed = Feed()
    appender = LogAppender(tmp_path / "dut1", feed.ring, bytes(16), rotate_bytes=1 << 20)
    feed.prints(b"one\n")
    feed.ring.put(Gap(Place.TTY, 17, 2, feed.mono_ns, feed.utc_ns))
    feed.prints(b"two\n")
    appender.write(0.0, is_last=False)
    appender.sync(0.0)
    recover(tmp_path / "dut1", "dut1")
    (found,) = check_port(tmp_path / "dut1", "dut1", is_live=False)
    appender.write(0.0, is_last=True)
    appender.sync(0.0)

    assert found.faults == []
    assert found.notes == [
        "bytes may have been lost before L3, it is not known how many",
        "17 bytes were lost (in the kernel)",
        "the daemon or the PC crashed at its end",
    ]
