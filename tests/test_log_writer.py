"""The log: every byte, in files that end at lines, on disks that are full or broken."""

from __future__ import annotations

import asyncio
import errno
import os
import random
import signal
import stat
import subprocess
import sys
import threading
from collections.abc import AsyncIterator, Iterator, Sequence
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from bench_cable import within_s
from log_feed import Feed, chunked, console, records_in
from serialwatch.lines import LINE
from serialwatch.store import log_appender, log_writer
from serialwatch.store.log_appender import LogAppender
from serialwatch.store.log_check import check_port
from serialwatch.store.log_format import (
    Cut,
    Kind,
    Place,
    Record,
    log_files,
    unpack_header,
)
from serialwatch.store.log_items import Gap, Note
from serialwatch.store.log_reader import PortLog
from serialwatch.store.log_recovery import recover
from serialwatch.store.log_writer import LogWriter


class Log:
    """A port's log, written at our word and without threads."""

    def __init__(self, folder: Path, feed: Feed, rotate_bytes: int = 1 << 30) -> None:
        self.folder = folder / "log" / feed.ring.name
        self.feed = feed
        self.now_s = 0.0
        self._appender = LogAppender(self.folder, feed.ring, bytes(16), rotate_bytes)

    def write(self, after_s: float = 0.01) -> str:
        """Write what there is; return what is wrong, "" if nothing."""
        self.now_s += after_s
        self._appender.write(self.now_s, is_last=False)
        return self._appender.problem

    def sync(self) -> str:
        self._appender.sync(self.now_s)
        return self._appender.problem

    def end(self) -> None:
        self._appender.write(self.now_s, is_last=True)
        self._appender.sync(self.now_s)

    def is_durable(self, seq: int) -> bool | None:
        return self._appender.is_durable(seq, self.feed.ring.put_bytes)

    def files(self) -> list[Path]:
        return log_files(self.folder)

    def bytes(self) -> bytes:
        return b"".join(path.read_bytes() for path in self.files())

    def lines(self) -> dict[int, bytes]:
        return {line.seq: line.raw for line in PortLog(self.folder, "dut1").lines()}


def index_of(path: Path) -> list[Record]:
    return records_in(path.with_suffix(".idx").read_bytes())


def kinds(path: Path, *wanted: Kind) -> list[Record]:
    return [record for record in index_of(path) if record.kind in wanted]


@pytest.fixture
def feed() -> Feed:
    return Feed(seq=48211, boot=6)


@pytest.fixture
def log(tmp_path: Path, feed: Feed) -> Iterator[Log]:
    made = Log(tmp_path, feed)
    yield made
    made.end()


# What is written


def test_every_byte_is_written_as_it_came(log: Log, feed: Feed) -> None:
    data = bytes(range(256)) * 16 + b"\x00" * 64
    for chunk in chunked(random.Random(6), data):
        feed.prints(chunk)
        assert log.write() == ""

    assert log.bytes() == data
    assert feed.ring.unwritten_bytes == 0


def test_files_have_the_names_and_modes_of_the_design(log: Log, feed: Feed) -> None:
    feed.prints(b"hello\r\n")
    log.write()
    (path,) = log.files()
    index = path.with_suffix(".idx")

    assert path.name == "20260622T035812Z-000000048211.log"
    assert stat.S_IMODE(path.stat().st_mode) == stat.S_IMODE(index.stat().st_mode) == 0o640
    assert stat.S_IMODE(path.parent.stat().st_mode) == 0o750
    header = unpack_header(index.read_bytes())
    assert header is not None
    assert (header.port, header.eol, header.first_seq, header.boot) == ("dut1", "lf", 48211, 6)


def test_there_is_no_file_before_there_is_a_byte(log: Log) -> None:
    log.write()

    assert not log.folder.exists()


def test_a_reopen_and_a_cr_console_begin_new_files(log: Log, feed: Feed) -> None:
    feed.prints(b"one\nhalf")
    feed.new_file(Cut.LOST)
    feed.prints(b"three\n")
    feed.new_file(Cut.EOL, eol="cr")
    feed.prints(b"four\rfive\r")
    log.write()
    first, second, third = log.files()

    assert [path.read_bytes() for path in log.files()] == [
        b"one\nhalf",
        b"three\n",
        b"four\rfive\r",
    ]
    assert [int(path.stem[-12:]) - 48211 for path in log.files()] == [0, 2, 3]
    (cut,) = kinds(first, Kind.CUT)
    assert (cut.aux, cut.offset, cut.seq) == (Cut.LOST, 8, 48213)
    assert kinds(second, Kind.CUT)[0].aux == Cut.EOL
    header = unpack_header(third.with_suffix(".idx").read_bytes())
    assert header is not None
    assert header.eol == "cr"
    assert log.lines() == feed.lines


def test_a_file_whose_lines_end_otherwise_is_numbered_anew_in_its_place(tmp_path: Path) -> None:
    logs: list[Log] = []
    for name, eol in (("turned", "lf"), ("known", "cr")):
        feed = Feed(seq=48211, boot=6, eol=eol)  # type: ignore[arg-type]
        (tmp_path / name).mkdir()
        log = Log(tmp_path / name, feed)
        feed.ring.put(Note(Kind.MARK, 4, 48211, feed.mono_ns, feed.utc_ns))
        for part in (b"U-Boot SPL\rTry", b"ing to boot\rFailed\r", b"hang"):
            feed.prints(part, after_ms=30)
            if eol == "lf":
                log.write()
        if eol == "lf":
            feed.turn("cr")
        log.write()
        feed.prints(b"ed\rreset\r", after_ms=30)
        log.end()
        logs.append(log)
    turned, known = logs

    assert turned.bytes() == known.bytes()
    (path,), (other,) = turned.files(), known.files()
    assert path.with_suffix(".idx").read_bytes() == other.with_suffix(".idx").read_bytes()
    assert turned.lines() == turned.feed.lines == known.feed.lines
    assert [found.faults for found in check_port(path.parent, "dut1", is_live=False)] == [[]]


def test_a_file_that_is_not_whole_ends_where_lines_end_otherwise(
    log: Log, feed: Feed, monkeypatch: pytest.MonkeyPatch
) -> None:
    feed.prints(b"U-Boot SPL\rTry")
    log.write()
    feed.prints(b"ing to boot\rFailed\r")
    with monkeypatch.context() as patch:
        patch.setattr(log_appender.os, "writev", broken)
        log.write()
    feed.turn("cr")
    feed.prints(b"hang\r")
    log.write(after_s=2)
    old, new = log.files()

    assert (old.read_bytes(), new.read_bytes()) == (b"U-Boot SPL\rTry", b"hang\r")
    assert kinds(new, Kind.GAP)[0].aux == len(b"ing to boot\rFailed\r") == feed.ring.lost_bytes
    assert log.lines()[48214] == b"hang" == feed.lines[48214]


def test_boots_and_markers_are_noted_in_their_place(log: Log, feed: Feed) -> None:
    feed.ring.put(Note(Kind.MARK, 4, 48211, feed.mono_ns, feed.utc_ns))
    feed.prints(b"U-Boot\n")
    feed.ring.put(Note(Kind.BOOT, 7, 48211, feed.mono_ns, feed.utc_ns))
    feed.ring.put(Gap(Place.UART, 0, 48212, feed.mono_ns, feed.utc_ns))
    log.write()
    notes = kinds(log.files()[0], Kind.MARK, Kind.BOOT, Kind.GAP)

    assert [(n.kind, n.aux, n.seq, n.offset, n.flags) for n in notes] == [
        (Kind.MARK, 4, 48211, 0, 0),
        (Kind.BOOT, 7, 48211, 7, 0),
        (Kind.GAP, 0, 48212, 7, Place.UART),
    ]
    feed.new_file(Cut.LOST)
    feed.prints(b"more\n")
    log.write()
    assert len(log.files()) == 2


def test_a_new_file_knows_the_boot_that_was_last_seen(tmp_path: Path) -> None:
    feed = Feed(boot=1)
    log = Log(tmp_path, feed, rotate_bytes=10)
    feed.prints(b"U-Boot 2023.01\n")
    feed.ring.put(Note(Kind.BOOT, 2, 1, feed.mono_ns, feed.utc_ns))
    feed.prints(b"DRAM\n")
    log.write()
    log.end()

    headers = [unpack_header(p.with_suffix(".idx").read_bytes()) for p in log.files()]
    assert [header.boot for header in headers if header] == [1, 2]


# Rotation


def test_a_hundred_rotations_lose_nothing_and_end_at_lines(tmp_path: Path) -> None:
    feed = Feed()
    log = Log(tmp_path, feed, rotate_bytes=1000)
    for number in range(6000):
        feed.prints(f"line {number} says hello\r\n".encode(), after_ms=1)
        if number % 7 == 0:
            log.write()
    log.write()
    log.end()

    assert len(log.files()) > 100
    assert log.bytes() == feed.sent
    assert all(path.read_bytes().endswith(b"\r\n") for path in log.files())
    assert all(kinds(path, Kind.CUT)[0].aux == Cut.SIZE for path in log.files()[:-1])
    assert log.lines() == feed.lines


@pytest.mark.parametrize("eol", ["lf", "cr"])
def test_no_chunking_changes_the_files(tmp_path: Path, eol: str) -> None:
    rng = random.Random(7)
    for run in range(6):
        data = b"".join(console(rng) for _ in range(4))
        written: list[list[tuple[str, bytes]]] = []
        for way in range(3):
            feed = Feed(eol=eol)  # type: ignore[arg-type]  # a parameter is a str
            log = Log(tmp_path / f"{run}-{way}", feed, rotate_bytes=20_000)
            log.folder.parent.parent.mkdir()
            for chunk in [data] if way == 0 else chunked(rng, data):
                feed.prints(chunk)
                if rng.random() < 0.3:
                    log.write()
            log.write()
            log.end()
            written.append([(path.name, path.read_bytes()) for path in log.files()])

        assert written[0] == written[1] == written[2]
        assert b"".join(content for _, content in written[0]) == data


# When the writer falls behind


def test_what_the_ring_dropped_is_a_gap_of_the_exact_size(tmp_path: Path) -> None:
    feed = Feed(limit_bytes=500_000)
    log = Log(tmp_path, feed)
    feed.prints(b"before\n")
    log.write()
    lines = 0
    while feed.ring.lost_bytes == 0 or lines % 7:
        feed.prints(b"".join(b"line %d\n" % (lines + n) for n in range(500)) + b"half of ")
        lines += 1
    feed.prints(b"a line\nafter\n")
    log.write()
    log.end()
    old, new = log.files()

    (gap,) = kinds(new, Kind.GAP)
    assert (gap.flags, gap.offset, gap.seq) == (Place.LOG, 0, 2)
    assert gap.aux == feed.ring.lost_bytes
    assert old.stat().st_size + gap.aux + new.stat().st_size == len(feed.sent)
    assert kinds(old, Kind.CUT)[0].aux == Cut.GAP
    saved = log.lines()
    assert saved == {seq: feed.lines[seq] for seq in saved}
    assert max(saved) == max(feed.lines)
    assert saved[1] == b"before"
    assert log.is_durable(1) is True
    assert log.is_durable(2) is False
    assert log.is_durable(max(saved)) is True


@pytest.mark.parametrize("eol", ["lf", "cr"])
def test_lines_keep_their_numbers_across_gaps_whatever_was_lost(tmp_path: Path, eol: str) -> None:
    rng = random.Random(8)
    for run in range(4):
        feed = Feed(eol=eol, limit_bytes=150_000)  # type: ignore[arg-type]  # a parameter is a str
        (tmp_path / f"{run}").mkdir()
        log = Log(tmp_path / f"{run}", feed, rotate_bytes=100_000)
        while feed.ring.lost_bytes < 300_000:
            for chunk in chunked(rng, console(rng)):
                feed.prints(chunk)
            if rng.random() < 0.05:
                log.write()
        log.write()
        log.end()
        saved = log.lines()
        if feed.partial:
            assert saved.pop(feed.next_seq) == feed.partial.rstrip(b"\r")

        # The lines that a gap begins in are there in part.
        torn = {gap.seq for gap in PortLog(log.folder, "dut1").gaps()}
        assert saved
        assert all(feed.lines[s] == raw or s in torn for s, raw in saved.items())
        lost = sum(gap.lost_bytes for gap in PortLog(log.folder, "dut1").gaps())
        assert lost == feed.ring.lost_bytes == len(feed.sent) - len(log.bytes())


# Disks that fail


def full_after(limit: int) -> object:
    """Return a `writev` of a disk that takes only so much, and then a byte less than asked."""
    left = [limit]
    real = os.writev

    def writev(fd: int, buffers: Sequence[bytes]) -> int:
        data = b"".join(buffers)[: left[0]]
        if not data:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        left[0] -= len(data)
        return real(fd, [data])

    return writev


def test_a_short_write_is_completed_when_there_is_room_again(
    log: Log, feed: Feed, monkeypatch: pytest.MonkeyPatch
) -> None:
    for _ in range(20):
        feed.prints(b"line of the log\n" * 10, after_ms=30)
    with monkeypatch.context() as patch:
        patch.setattr(log_appender.os, "writev", full_after(1001))
        problem = log.write()
        feed.prints(b"last\n")
        assert log.write(after_s=2) == problem
    assert "No space left" in problem
    assert str(log.folder) in problem
    assert len(log.bytes()) == 1001

    assert log.write(after_s=2) == ""
    assert log.bytes() == feed.sent
    assert log.lines() == feed.lines
    assert not kinds(log.files()[0], Kind.GAP)


def test_a_disk_that_failed_is_left_alone_for_a_second(
    log: Log, feed: Feed, monkeypatch: pytest.MonkeyPatch
) -> None:
    feed.prints(b"one\n")
    with monkeypatch.context() as patch:
        patch.setattr(log_appender.os, "writev", full_after(0))
        log.write()

    assert log.write(after_s=0.5) != ""
    assert log.write(after_s=0.6) == ""


def broken(*_: object) -> int:
    raise OSError(errno.EIO, os.strerror(errno.EIO))


def test_after_an_input_output_error_a_new_file_begins_at_a_line(
    log: Log, feed: Feed, monkeypatch: pytest.MonkeyPatch
) -> None:
    feed.prints(b"one\nhalf of a")
    log.write()
    feed.prints(b" line\nthree\n")
    with monkeypatch.context() as patch:
        patch.setattr(log_appender.os, "writev", broken)
        assert "Input/output error" in log.write()
    log.write(after_s=2)
    log.sync()
    old, new = log.files()

    assert (old.read_bytes(), new.read_bytes()) == (b"one\nhalf of a", b"three\n")
    assert kinds(new, Kind.GAP)[0].aux == len(b" line\n") == feed.ring.lost_bytes
    assert log.lines()[48213] == b"three"
    assert log.is_durable(48211) is True
    assert log.is_durable(48212) is False
    assert log.is_durable(48213) is True


def test_a_disk_that_fails_at_once_does_not_block_the_name_of_its_file(
    log: Log, feed: Feed, monkeypatch: pytest.MonkeyPatch
) -> None:
    feed.prints(b"one\n")
    with monkeypatch.context() as patch:
        patch.setattr(log_appender.os, "writev", broken)
        log.write()
        log.write(after_s=2)
    log.write(after_s=2)

    assert log.bytes() == b"one\n"
    assert log.lines() == feed.lines


@pytest.mark.parametrize("error", [errno.ENOSPC, errno.EIO])
@pytest.mark.parametrize("taken", [0, 100])
def test_a_gap_that_the_index_could_not_take_is_told_by_the_next_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, error: int, taken: int
) -> None:
    feed = Feed(limit_bytes=100_000)
    log = Log(tmp_path, feed)
    feed.prints(b"before\n")
    log.write()
    written = os.write

    def full(fd: int, data: bytes) -> int:
        if taken and len(data) > taken:
            return written(fd, data[:taken])
        raise OSError(error, os.strerror(error))

    for _ in range(2):
        lost = feed.ring.lost_bytes
        while feed.ring.lost_bytes == lost:
            feed.prints(b"line of a board\n" * 100)
        with monkeypatch.context() as patch:
            patch.setattr("serialwatch.store.log_file.os.write", full)
            assert log.write(after_s=2) != ""
    assert log.write(after_s=2) == ""
    log.end()

    gaps = [gap.lost_bytes for gap in PortLog(log.folder, "dut1").gaps()]
    assert sum(gaps) == feed.ring.lost_bytes == len(feed.sent) - len(log.bytes())
    assert [path.stat().st_size > 0 for path in log.files()] == [True, True]


def test_after_a_failed_fsync_nothing_of_that_file_counts_as_safe(
    log: Log, feed: Feed, monkeypatch: pytest.MonkeyPatch
) -> None:
    feed.prints(b"safe\n")
    log.write()
    log.sync()
    feed.prints(b"doubtful\nhalf")
    log.write()
    with monkeypatch.context() as patch:
        patch.setattr(os, "fdatasync", broken)
        assert "fsync failed" in log.sync()
    log.write()
    assert "fsync failed" in log.sync()  # the kernel may say so once only
    feed.prints(b" a line\nnew\n")
    log.write()
    assert log.sync() == ""

    assert [log.is_durable(48211 + n) for n in range(4)] == [True, False, False, True]
    assert [p.read_bytes() for p in log.files()] == [b"safe\ndoubtful\nhalf a line\n", b"new\n"]
    assert log.lines() == feed.lines


def test_a_log_that_was_deleted_goes_on_in_a_new_file(log: Log, feed: Feed) -> None:
    feed.prints(b"one\nhalf")
    log.write()
    for path in log.folder.iterdir():
        path.unlink()
    log.folder.rmdir()
    log.folder.parent.rmdir()
    feed.prints(b" a line\nthree\n")
    log.write(after_s=2)
    log.sync()

    assert log.lines() == {48213: b"three"}
    assert [log.is_durable(48211 + n) for n in range(3)] == [False, False, True]


def test_a_log_that_was_renamed_or_cut_short_goes_on_in_a_new_file(log: Log, feed: Feed) -> None:
    feed.prints(b"one\n")
    log.write()
    log.files()[0].rename(log.folder / "old")
    feed.prints(b"two\n")
    log.write(after_s=2)
    os.truncate(log.files()[0], 0)
    feed.prints(b"three\n")
    log.write(after_s=2)

    assert (log.folder / "old").read_bytes() == b"one\n"
    assert log.lines() == {48213: b"three"}


# With its threads


@pytest.fixture
async def writer(tmp_path: Path) -> AsyncIterator[LogWriter]:
    async with writing(tmp_path / "log", []) as made:
        yield made


@asynccontextmanager
async def writing(folder: Path, told: list[tuple[str, str]]) -> AsyncIterator[LogWriter]:
    made = LogWriter(folder, lambda port, problem: told.append((port, problem)))
    made.start()
    try:
        yield made
    finally:
        await within_s(15, made.stop())


async def test_a_line_is_on_disk_when_synced_says_so(writer: LogWriter, tmp_path: Path) -> None:
    feed = Feed()
    writer.attach(feed.ring)
    for number in range(20):
        feed.prints(b"line %d\nprompt> " % number)

        assert await within_s(3, writer.synced("dut1", feed.next_seq))
        saved = [line.raw for line in PortLog(tmp_path / "log" / "dut1", "dut1").lines()]
        assert saved[-1] == b"prompt> "
    assert await writer.synced("dut1", 1)
    assert not await writer.synced("dut1", feed.next_seq + 1)
    assert not await writer.synced("nobody", 1)


async def test_many_ports_are_synced_side_by_side(writer: LogWriter) -> None:
    feeds = [Feed(name=f"dut{n}") for n in range(8)]
    for feed in feeds:
        writer.attach(feed.ring)
        feed.prints(b"hello\n")

    done = await within_s(5, asyncio.gather(*(writer.synced(f.ring.name, 1) for f in feeds)))
    assert all(done)


async def test_the_threads_have_names_and_end(tmp_path: Path) -> None:
    def names() -> set[str]:
        return {thread.name for thread in threading.enumerate()}

    async with writing(tmp_path, []):
        assert {"log-writer", "log-fsync"} <= names()
    assert not {"log-writer", "log-fsync"} & names()


async def test_a_stop_writes_what_is_left_and_ends_the_files(tmp_path: Path) -> None:
    feed = Feed()
    async with writing(tmp_path, []) as writer:
        writer.attach(feed.ring)
        feed.prints(b"last words")
    (path,) = log_files(tmp_path / "dut1")

    assert path.read_bytes() == b"last words"
    assert index_of(path)[-1].aux == Cut.STOP


async def test_a_port_that_leaves_is_complete_and_the_others_go_on(
    writer: LogWriter, tmp_path: Path
) -> None:
    feeds = [Feed(name=name) for name in ("dut1", "dut2")]
    for feed in feeds:
        writer.attach(feed.ring)
        feed.prints(b"hello\n")
    await within_s(5, writer.detach("dut1"))
    feeds[1].prints(b"again\n")

    assert index_of(log_files(tmp_path / "log" / "dut1")[0])[-1].aux == Cut.STOP
    assert await writer.synced("dut2", 2)
    again = Feed(name="dut1", seq=2)
    writer.attach(again.ring)
    again.prints(b"back\n")
    assert await writer.synced("dut1", 2)


async def test_the_size_of_the_log_is_known(writer: LogWriter, tmp_path: Path) -> None:
    feed = Feed()
    writer.attach(feed.ring)
    feed.prints(b"x" * 999 + b"\n")
    await writer.synced("dut1", 1)
    async with asyncio.timeout(5):
        while not feed.ring.log_bytes:
            await writer.synced("dut1", 1)
            await asyncio.sleep(0)

    assert feed.ring.log_bytes >= 0


async def test_a_broken_disk_is_told_once_and_healing_once(tmp_path: Path) -> None:
    # A file where the folder should be: no file can be made, whoever we are.
    (tmp_path / "log").write_bytes(b"")
    told: list[tuple[str, str]] = []
    async with writing(tmp_path / "log", told) as writer:
        feed = Feed()
        writer.attach(feed.ring)
        feed.prints(b"one\n")
        assert not await within_s(20, writer.synced("dut1", 1))
        feed.prints(b"two\n")
        assert not await within_s(20, writer.synced("dut1", 1))
        assert [port for port, _ in told] == ["dut1"]
        assert "Not a directory" in writer.problems["dut1"]

        (tmp_path / "log").unlink()
        async with asyncio.timeout(5):
            while not await writer.synced("dut1", 2):
                pass
        assert told[1:] == [("dut1", "")]
        assert writer.problems == {}
    assert [p.read_bytes() for p in log_files(tmp_path / "log" / "dut1")] == [b"one\ntwo\n"]


async def test_a_disk_that_hangs_holds_up_nobody(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    hangs, goes_on, has_ended = threading.Event(), threading.Event(), threading.Event()
    real = os.writev

    def writev(fd: int, buffers: Sequence[bytes]) -> int:
        hangs.set()
        goes_on.wait(60)
        has_ended.set()
        return real(fd, buffers)

    monkeypatch.setattr(log_appender.os, "writev", writev)
    feed = Feed(limit_bytes=2_000_000)
    async with writing(tmp_path, []) as writer:
        writer.attach(feed.ring)
        feed.prints(b"in hand\n" * 1000)
        while not hangs.is_set():
            await asyncio.sleep(0)
        for _ in range(4000):
            feed.prints(b"0123456789abcdef\n" * 60)
        assert feed.ring.unwritten_bytes <= 2_000_000
        assert not await within_s(20, writer.synced("dut1", 1))
        assert not has_ended.is_set()  # whoever had waited for the disk would be waiting still
        goes_on.set()
        assert await within_s(20, writer.synced("dut1", 1000))
    folder = tmp_path / "dut1"
    (gap,) = PortLog(folder, "dut1").gaps()
    size = sum(path.stat().st_size for path in log_files(folder))

    assert gap.lost_bytes == feed.ring.lost_bytes
    assert size + gap.lost_bytes == len(feed.sent)


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    """A disk of 1 MiB."""
    place = tmp_path / "disk"
    place.mkdir()
    mount = ["mount", "-t", "tmpfs", "-o", "size=1m", "none", str(place)]
    if os.geteuid() != 0 or subprocess.run(mount, capture_output=True).returncode:
        pytest.skip("mounting a small disk needs root")
    yield place
    subprocess.run(["umount", "-l", str(place)], check=True)


async def test_a_full_disk_stops_the_log_and_heals_by_itself(small_disk: Path) -> None:
    told: list[tuple[str, str]] = []
    feed = Feed(limit_bytes=1_000_000)
    async with writing(small_disk / "log", told) as writer:
        (small_disk / "ballast").write_bytes(bytes(900 * 1024))
        writer.attach(feed.ring)
        while feed.ring.lost_bytes < 100_000:
            feed.prints(b"0123456789abcdef\n" * 1000)
            await asyncio.sleep(0)
        assert not await within_s(3, writer.synced("dut1", 1000))
        assert [port for port, _ in told] == ["dut1"]
        assert "No space left" in told[0][1]

        remount = ["mount", "-o", "remount,size=16m", str(small_disk)]
        subprocess.run(remount, check=True)
        feed.prints(b"there is room again\n")
        async with asyncio.timeout(10):
            while not await writer.synced("dut1", feed.next_seq - 1):
                pass
        assert told[1:] == [("dut1", "")]
    files = log_files(small_disk / "log" / "dut1")
    saved = PortLog(small_disk / "log" / "dut1", "dut1")
    lost = [gap.lost_bytes for gap in saved.gaps()]
    assert sum(lost) == feed.ring.lost_bytes > 0
    assert sum(path.stat().st_size for path in files) + sum(lost) == len(feed.sent)
    lines = await asyncio.to_thread(lambda: {line.seq: line.raw for line in saved.lines()})
    assert {seq for seq, raw in lines.items() if feed.lines[seq] != raw} <= {
        gap.seq for gap in saved.gaps()
    }


# After a crash


STREAMING = """
import asyncio, sys, time
from pathlib import Path
sys.path.insert(0, "tests")
from log_feed import Feed
from serialwatch.store.log_appender import LogAppender
from serialwatch.store.log_check import check_port
from serialwatch.store.log_writer import LogWriter

def write(port, now_s, *, is_last, gives_up, real=LogAppender.write):
    last = feed.next_seq - 1
    real(port, now_s, is_last=is_last, gives_up=gives_up)
    print(last, flush=True)

async def main():
    writer = LogWriter(Path(sys.argv[1]), lambda port, problem: None, rotate_bytes=200_000)
    writer.start()
    writer.attach(feed.ring)
    while True:
        for _ in range(20):
            feed.prints(b"line %d is here\\n" % feed.next_seq + b"." * (feed.next_seq % 50), 0)
        feed.mono_ns, feed.utc_ns = time.monotonic_ns(), time.time_ns()
        await asyncio.sleep(0.001)

feed = Feed(seq=int(sys.argv[2]))
LogAppender.write = write
asyncio.run(main())
"""


async def stream_and_kill(folder: Path, seq: int, writes: int) -> int:
    """Run a writer in a child, kill it hard; return the last line that it had written."""
    child = await asyncio.create_subprocess_exec(
        sys.executable, "-c", STREAMING, str(folder), str(seq), stdout=subprocess.PIPE
    )
    assert child.stdout is not None
    for _ in range(writes):
        written = int(await within_s(20, child.stdout.readline()))
    child.send_signal(signal.SIGKILL)
    rest = await child.stdout.read()
    await child.wait()
    return max([written, *map(int, rest.rpartition(b"\n")[0].split())])


async def test_a_kill_loses_nothing_that_was_written_and_no_number_is_used_twice(
    tmp_path: Path,
) -> None:
    seq = 1
    for writes in (5, 12, 20):
        written = await stream_and_kill(tmp_path, seq, writes)
        highest = recover(tmp_path / "dut1", "dut1")
        saved = PortLog(tmp_path / "dut1", "dut1")
        lines = {line.seq: line.raw for line in saved.lines(first=seq)}

        assert highest == max(lines)
        assert highest >= written > seq
        assert sorted(lines) == list(range(seq, highest + 1))
        assert all(
            raw.lstrip(b".") == b"line %d is here" % number
            for number, raw in lines.items()
            if number < highest
        )
        assert saved.bounds() == (1, highest)
        seq = highest + 1


def test_nothing_waits_longer_than_half_of_the_50_ms_that_may_be_lost() -> None:
    assert log_writer.GATHER_S <= 0.025


def crashed(tmp_path: Path, *, index_bytes: int | None) -> tuple[Feed, Path]:
    """Return a log that ends in the middle, its index cut to a size (None: gone)."""
    feed = Feed(seq=100)
    log = Log(tmp_path, feed)
    for number in range(400):
        feed.prints(b"line %d\r\n" % number * 5 + b"half of ", after_ms=25)
        log.write()
    path = log.files()[0]
    index = path.with_suffix(".idx")
    whole = index.read_bytes()
    log.end()
    if index_bytes is None:
        index.unlink()
    else:
        index.write_bytes(whole[:index_bytes])
    return feed, path


@pytest.mark.parametrize("index_bytes", [None, 0, 100, 128, 128 + 40 * 70 + 13, 128 + 40 * 400])
def test_an_index_is_made_whole_from_its_log(tmp_path: Path, index_bytes: int | None) -> None:
    feed, path = crashed(tmp_path, index_bytes=index_bytes)
    content = path.read_bytes()
    highest = recover(path.parent, "dut1")

    assert highest == feed.next_seq
    assert path.read_bytes() == content
    saved = {line.seq: line.raw for line in PortLog(path.parent, "dut1").lines()}
    assert saved == feed.lines | {highest: b"half of "}
    records = index_of(path)
    points = [r.offset for r in records if r.kind is Kind.POINT]
    assert points[0] == 0
    assert all(0 < b - a <= 4096 for a, b in zip(points, [*points[1:], len(content)], strict=True))
    assert (records[-1].kind, records[-1].aux) == (Kind.CUT, Cut.CRASH)
    assert sorted(r.utc_ns for r in records) == [r.utc_ns for r in records]
    assert recover(path.parent, "dut1") == highest
    assert index_of(path) == records


def test_records_made_from_the_log_say_so(tmp_path: Path) -> None:
    _, path = crashed(tmp_path, index_bytes=128 + 40 * 50)
    recover(path.parent, "dut1")
    flags = [r.flags & 1 for r in kinds(path, Kind.POINT)]

    assert flags[:50] == [0] * 50
    assert flags[50:] == [1] * (len(flags) - 50) != []


def test_an_index_that_is_ahead_of_its_log_is_cut_back(tmp_path: Path) -> None:
    _feed, path = crashed(tmp_path, index_bytes=128 + 40 * 400)
    content = path.read_bytes()[:5000]
    path.write_bytes(content)
    highest = recover(path.parent, "dut1")

    assert highest == 99 + sum(1 for _ in LINE["lf"].finditer(content + b"\n"))
    assert all(r.offset <= 5000 for r in index_of(path))


def test_a_new_file_without_a_byte_does_not_hide_the_numbers_before_it(tmp_path: Path) -> None:
    feed, path = crashed(tmp_path, index_bytes=128 + 40 * 400)
    (path.parent / "20270101T000000Z-000000002101.log").touch()

    assert recover(path.parent, "dut1") == feed.next_seq == 2100


def test_no_log_has_no_number(tmp_path: Path) -> None:
    assert recover(tmp_path / "nothing", "dut1") == 0
