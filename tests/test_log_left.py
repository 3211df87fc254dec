"""The ends of a log: bytes that a disk did not take, files that are gone, numbers that jump."""

from __future__ import annotations

import errno
import logging
import os
from collections.abc import Sequence
from pathlib import Path

import pytest

from bench_cable import Cable, within_s
from log_feed import Feed, records_in
from running_daemon import running
from serialwatch.store import log_appender, log_left, log_writer
from serialwatch.store.log_appender import LogAppender
from serialwatch.store.log_check import CheckedFile, check_port
from serialwatch.store.log_format import Cut, Kind, Place, Record, log_files, unpack_header
from serialwatch.store.log_items import Gap
from serialwatch.store.log_left import Left, leave_behind, left_behind
from serialwatch.store.log_reader import PortLog
from serialwatch.store.log_recovery import recover
from serialwatch.store.log_retention import prune
from serialwatch.store.log_writer import LogWriter


class Run:
    """A run of the writer on one port's log."""

    def __init__(self, folder: Path, seq: int = 1) -> None:
        self.folder = folder / "log" / "dut1"
        self.feed = Feed(seq=seq)
        self.appender = LogAppender(self.folder, self.feed.ring, bytes(16), 1 << 30)
        self._now_s = 0.0

    def prints(self, data: bytes) -> None:
        self.feed.prints(data, after_ms=30)
        self.write()

    def write(self) -> None:
        self._now_s += 2
        self.appender.write(self._now_s, is_last=False)
        self.appender.sync(self._now_s)

    def end(self) -> None:
        self.appender.write(self._now_s, is_last=True)
        self.appender.sync(self._now_s)

    def files(self) -> list[Path]:
        return log_files(self.folder)

    def records(self, *kinds: Kind) -> list[Record]:
        found = (records_in(path.with_suffix(".idx").read_bytes()) for path in self.files())
        return [record for each in found for record in each if record.kind in kinds]


def refuse(*_: object) -> int:
    raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))


def full(patch: pytest.MonkeyPatch, taken: int = 0) -> None:
    """Let the disk be full once it has taken some more bytes of logs, and none of indexes."""
    real, room = os.writev, [taken]

    def writev(fd: int, buffers: Sequence[bytes]) -> int:
        data = b"".join(buffers)[: room[0]]
        room[0] -= len(data)
        return real(fd, [data]) if data else refuse()

    patch.setattr(log_appender.os, "writev", writev)
    patch.setattr("serialwatch.store.log_file.os.write", refuse)


def checked(run: Run) -> list[CheckedFile]:
    return list(check_port(run.folder, "dut1", is_live=False))


# The disk is full when the daemon ends


@pytest.mark.parametrize("taken", [0, 7, 3000])
def test_what_a_full_disk_does_not_take_at_the_end_has_its_gap_at_the_next_start(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, taken: int
) -> None:
    run = Run(tmp_path)
    run.prints(b"before\n")
    with monkeypatch.context() as patch:
        full(patch, taken)
        run.prints(b"line of a board\n" * 4000)
        run.end()
    saved = b"".join(path.read_bytes() for path in run.files())
    lost = len(run.feed.sent) - len(saved)
    left = left_behind(run.folder)
    assert left is not None
    assert left.gap.lost_bytes == run.appender.left_bytes == run.feed.ring.lost_bytes == lost

    highest = recover(run.folder, "dut1")
    (gap,) = PortLog(run.folder, "dut1").gaps()
    assert (gap.place, gap.lost_bytes) == ("log", lost)
    assert gap.seq == saved.count(b"\n") + 1 <= highest + 1
    assert run.records(Kind.CUT)[-1].aux == Cut.STOP
    assert checked(run)[-1].notes == [f"{lost} bytes were lost (on the way to the disk)"]
    assert checked(run)[-1].faults == []
    assert left_behind(run.folder) is None
    before = run.records(*Kind)
    assert recover(run.folder, "dut1") == highest
    assert run.records(*Kind) == before


def test_what_the_first_run_could_not_write_is_told_by_the_first_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    run = Run(tmp_path)
    with monkeypatch.context() as patch:
        patch.setattr("serialwatch.store.log_file.os.open", refuse)
        run.prints(b"one\ntwo\n")
        run.end()
    recover(run.folder, "dut1")
    again = Run(tmp_path, seq=3)
    again.prints(b"three\n")
    again.end()

    assert [gap.lost_bytes for gap in PortLog(run.folder, "dut1").gaps()] == [8]
    assert left_behind(run.folder) is None


def test_bytes_that_were_dropped_before_the_end_are_in_the_gap_too(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    run = Run(tmp_path)
    run.feed = Feed(limit_bytes=100_000)
    run.appender = LogAppender(run.folder, run.feed.ring, bytes(16), 1 << 30)
    run.prints(b"before\n")
    with monkeypatch.context() as patch:
        full(patch)
        for _ in range(300):
            run.feed.prints(b"line of a board\n" * 40)
        assert run.feed.ring.lost_bytes
        run.end()
    recover(run.folder, "dut1")

    gaps = [gap.lost_bytes for gap in PortLog(run.folder, "dut1").gaps()]
    assert gaps == [len(run.feed.sent) - len(b"before\n")] == [run.feed.ring.lost_bytes]


def test_two_runs_on_a_full_disk_are_added_up(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    run = Run(tmp_path)
    run.folder.mkdir(parents=True)
    leave_behind(run.folder, Left(Gap(Place.LOG, 10, 7, 5, 6), is_all=True))
    with monkeypatch.context() as patch:
        full(patch)
        run.prints(b"lost\n")
        run.end()

    left = left_behind(run.folder)
    assert left is not None
    assert (left.gap.lost_bytes, left.is_all) == (15, True)
    assert run.appender.left_bytes == run.feed.ring.lost_bytes == 5


@pytest.mark.parametrize("text", ["", "x", "1-bytes", "1" * 30 + "-bytes-at-L1-at-1-1", "/etc"])
def test_a_note_that_is_garbage_is_none(tmp_path: Path, text: str) -> None:
    (tmp_path / log_left._NAME).symlink_to(text or "?")

    assert left_behind(tmp_path) is None


def test_a_run_that_is_killed_on_a_full_disk_has_told_how_much_it_had_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    run = Run(tmp_path)
    run.prints(b"before\n")
    with monkeypatch.context() as patch:
        full(patch, taken=3)
        run.prints(b"line of a board\n" * 100)
        left = left_behind(run.folder)
        recover(run.folder, "dut1")  # as the next start does
    assert left is not None
    assert (left.gap.lost_bytes, left.is_all) == (1597, False)

    assert [gap.aux for gap in run.records(Kind.GAP)] == [1597, 0]
    assert run.records(Kind.CUT)[-1].aux == Cut.CRASH
    assert left_behind(run.folder) is None
    assert checked(run)[-1].faults == []
    run.end()


def test_what_is_written_after_all_is_not_missing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    run = Run(tmp_path)
    with monkeypatch.context() as patch:
        full(patch, taken=3)
        run.prints(b"line of a board\n" * 100)
        assert left_behind(run.folder) is not None
    run.write()
    assert left_behind(run.folder) is None
    run.end()

    assert [gap.aux for gap in run.records(Kind.GAP)] == []
    assert b"".join(path.read_bytes() for path in run.files()) == run.feed.sent


def test_bytes_whose_index_alone_does_not_fit_are_not_missing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    run = Run(tmp_path)
    run.prints(b"before\n")
    with monkeypatch.context() as patch:
        full(patch)
        run.prints(b"line of a board\n" * 100)
        assert left_behind(run.folder) is not None
    monkeypatch.setattr("serialwatch.store.log_file.os.write", refuse)
    run.write()
    run.end()

    assert b"".join(path.read_bytes() for path in run.files()) == run.feed.sent
    assert left_behind(run.folder) is None


def test_where_no_note_can_be_left_the_index_tells_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    run = Run(tmp_path)
    run.prints(b"before\n")
    with monkeypatch.context() as patch:
        patch.setattr(log_appender.os, "writev", refuse)
        patch.setattr(log_left.os, "symlink", refuse)
        run.prints(b"lost\n")
        run.end()

    assert [gap.aux for gap in run.records(Kind.GAP)] == [5]


async def test_a_disk_that_gets_room_at_the_last_moment_takes_all(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    feed, tries = Feed(), 0
    real = os.writev

    def writev(fd: int, buffers: Sequence[bytes]) -> int:
        nonlocal tries
        tries += 1
        return real(fd, buffers) if tries > 3 else refuse()

    monkeypatch.setattr(log_writer, "LAST_RETRY_S", 0.001)
    monkeypatch.setattr(log_appender.os, "writev", writev)
    writer = LogWriter(tmp_path / "log", lambda port, problem: None)
    writer.start()
    writer.attach(feed.ring)
    feed.prints(b"the last words\n")
    await within_s(10, writer.stop())

    assert b"".join(p.read_bytes() for p in log_files(tmp_path / "log" / "dut1")) == feed.sent
    assert left_behind(tmp_path / "log" / "dut1") is None


async def test_what_is_not_in_the_log_at_the_end_is_told_with_its_size(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(log_writer, "LAST_TRIES_S", 0.0)
    monkeypatch.setattr(log_appender.os, "writev", refuse)
    feed = Feed()
    writer = LogWriter(tmp_path / "log", lambda port, problem: None)
    writer.start()
    writer.attach(feed.ring)
    feed.prints(b"the last words\n")
    with caplog.at_level(logging.ERROR):
        await within_s(10, writer.stop())

    assert "dut1: the last 15 bytes are not in the log: " in caplog.text
    assert "No space left on device" in caplog.text


def test_an_end_that_the_disk_does_not_take_is_written_later(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    run = Run(tmp_path)
    run.prints(b"one\n")
    with monkeypatch.context() as patch:
        patch.setattr("serialwatch.store.log_file.os.write", refuse)
        run.feed.new_file(Cut.LOST)
        run.write()
    run.write()
    run.prints(b"two\n")
    run.end()

    assert [cut.aux for cut in run.records(Kind.CUT)] == [Cut.LOST, Cut.STOP]
    assert [each.faults for each in checked(run)] == [[], []]


def test_what_a_run_could_not_write_is_counted_once_by_the_next(
    cable: Cable, tmp_path: Path
) -> None:
    (tmp_path / "state").mkdir()
    run = Run(tmp_path / "state")
    run.prints(b"one\n")
    run.end()
    leave_behind(run.folder, Left(Gap(Place.LOG, 61_554, 2, 6, 5), is_all=True))
    with running(tmp_path, {"dut1": str(cable.path)}) as daemon:
        port = daemon.wait_for(lambda: daemon.get("/v1/ports")["ports"][0], "port")

        assert daemon.state / "log" / "dut1" == run.folder
        assert port["lost_bytes"]["log"] == 61_554
        assert [gap.lost_bytes for gap in PortLog(run.folder, "dut1").gaps()] == [61_554]
        assert left_behind(run.folder) is None
        assert "dut1: the last run could not write 61554 bytes" in daemon.log()


# Files that are gone


def three_files(run: Run) -> list[Path]:
    for text in (b"one\ntwo\n", b"three\nfour", b"five\n"):
        run.prints(text)
        run.feed.new_file(Cut.LOST)
    run.end()
    return run.files()


def test_a_file_knows_the_last_line_of_the_one_before(tmp_path: Path) -> None:
    run = Run(tmp_path)
    three_files(run)
    again = Run(tmp_path, seq=70_000)
    again.prints(b"later\n")
    again.end()

    heads = [unpack_header(path.with_suffix(".idx").read_bytes()) for path in again.files()]
    assert [head.before_seq if head else None for head in heads] == [0, 2, 4, 5]


def test_a_file_that_was_deleted_in_the_middle_is_told(tmp_path: Path) -> None:
    run = Run(tmp_path)
    _, second, _ = three_files(run)
    second.unlink()
    second.with_suffix(".idx").unlink()

    first, last = checked(run)
    assert (first.missing, last.faults) == ([], [])
    assert last.missing == ["L3 to L4 are missing: a file before it was deleted or cut"]


def test_numbers_that_jump_after_a_crash_are_in_order(tmp_path: Path) -> None:
    run = Run(tmp_path)
    three_files(run)  # the port was away when the daemon crashed: no file speaks of that
    again = Run(tmp_path, seq=70_000)
    again.prints(b"later\n")
    again.end()

    found = checked(again)[-1]
    assert (found.missing, found.faults) == ([], [])
    assert found.notes == ["L6 to L69999 are not in the log"]


def test_the_oldest_files_may_be_gone(tmp_path: Path) -> None:
    run = Run(tmp_path)
    first, *_ = three_files(run)
    first.unlink()
    first.with_suffix(".idx").unlink()

    assert [each.missing + each.faults + each.notes for each in checked(run)] == [[], []]


@pytest.mark.parametrize(("ages", "gone"), [((3, 20_000, 1), 0), ((-4000, 9, 1), 2)])
def test_a_clock_that_was_wrong_makes_no_hole_when_files_grow_old(
    tmp_path: Path, ages: tuple[int, ...], gone: int
) -> None:
    run = Run(tmp_path)
    files = three_files(run)
    day_ns = 86_400 * 10**9
    now_ns = 20_600 * day_ns
    for path, age in zip(files, ages, strict=True):
        os.utime(path, ns=(now_ns - age * day_ns, now_ns - age * day_ns))
    prune(run.folder, 5, 1 << 40, now_ns)

    assert run.files() == files[gone:]


def test_where_a_file_does_not_know_the_one_before_a_hole_is_a_note(tmp_path: Path) -> None:
    run = Run(tmp_path)
    _, second, third = three_files(run)
    second.unlink()
    second.with_suffix(".idx").unlink()
    index = third.with_suffix(".idx")
    data = bytearray(index.read_bytes())
    data[80:88] = bytes(8)  # as an index that was made from the log
    index.write_bytes(data)

    assert checked(run)[-1].notes == [
        "L3 to L4 are not in the log: a file between them was lost, or the daemon crashed"
    ]
