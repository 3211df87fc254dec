"""Indexes that are damaged in any way: repaired once for all, and never believed too much."""

from __future__ import annotations

import os
import random
from collections.abc import Callable
from pathlib import Path

import pytest

from log_feed import MS, Feed, console, records_in
from serialwatch.store.log_appender import LogAppender
from serialwatch.store.log_check import check_port
from serialwatch.store.log_format import (
    HEADER_BYTES,
    RECORD_BYTES,
    Kind,
    log_files,
    pack_header,
    pack_record,
    unpack_header,
)
from serialwatch.store.log_items import Note
from serialwatch.store.log_reader import PortLog
from serialwatch.store.log_recovery import recover
from serialwatch.store.log_repair import repair

FIRST = 48_211
Damage = Callable[[random.Random, bytearray], None]


class Saved:
    """One log file and its index, to be damaged again and again."""

    def __init__(self, folder: Path, seed: int, *, is_ended: bool = True) -> None:
        rng = random.Random(seed)
        self.folder = folder / "dut1"
        feed = Feed(seq=FIRST, eol=rng.choice(["lf", "lf", "cr"]), boot=6)
        appender = LogAppender(self.folder, feed.ring, bytes(16), 1 << 30)
        for number in range(rng.randrange(1, 12)):
            text = b"[%d] a line of the board, of some length\r\n" % number
            feed.prints(text * rng.randrange(1, 60), after_ms=rng.choice([0, 1, 30, 5000]))
            if rng.random() < 0.2:
                feed.prints(console(rng)[: rng.randrange(1, 20_000)], after_ms=30)
            if rng.random() < 0.3:
                feed.ring.put(Note(Kind.BOOT, number, feed.next_seq, feed.mono_ns, feed.utc_ns))
            if rng.random() < 0.2:
                feed.utc_ns += rng.choice([-1, 1]) * 3600 * 1000 * MS
        feed.prints(b"end")
        appender.write(0.0, is_last=True)
        appender.sync(0.0)
        (self.path,) = log_files(self.folder)
        self.index = self.path.with_suffix(".idx")
        if not is_ended:
            os.truncate(self.index, self.index.stat().st_size - RECORD_BYTES)
        self.log_bytes, self.index_bytes = self.path.read_bytes(), self.index.read_bytes()
        self.changed_ns = feed.utc_ns
        self.lines = self.saved_lines()

    def put(self, log: bytes, index: bytes | None) -> None:
        self.path.write_bytes(log)
        os.utime(self.path, ns=(self.changed_ns, self.changed_ns))
        if index is None:
            self.index.unlink(missing_ok=True)
        else:
            self.index.write_bytes(index)

    def saved_lines(self) -> list[tuple[int, bytes]]:
        return [(line.seq, line.raw) for line in PortLog(self.folder, "dut1").lines()]

    def faults(self) -> list[str]:
        return [f for each in check_port(self.folder, "dut1", is_live=False) for f in each.faults]


def flip(rng: random.Random, data: bytearray) -> None:
    if data:
        data[rng.randrange(len(data))] ^= 1 << rng.randrange(8)


def flip_in_head(rng: random.Random, data: bytearray) -> None:
    if data:
        data[rng.randrange(min(len(data), HEADER_BYTES))] ^= 1 << rng.randrange(8)


def cut(rng: random.Random, data: bytearray) -> None:
    del data[rng.randrange(len(data) + 1) :]


def zero(rng: random.Random, data: bytearray) -> None:
    at = rng.randrange(len(data) + 1)
    end = min(len(data), at + rng.choice([40, 500, 1 << 20]))
    data[at:end] = bytes(end - at)


def append(rng: random.Random, data: bytearray) -> None:
    data += rng.randbytes(rng.randrange(1, 100))


def empty(_: random.Random, data: bytearray) -> None:
    data.clear()


def shuffle(rng: random.Random, data: bytearray) -> None:
    """Drop, double or swap records."""
    found = [bytes(data[at : at + 40]) for at in range(HEADER_BYTES, len(data) - 39, 40)]
    if not found:
        return
    one, other = rng.randrange(len(found)), rng.randrange(len(found))
    match rng.randrange(3):
        case 0:
            del found[one : one + rng.randrange(1, 30)]
        case 1:
            found.insert(other, found[one])
        case _:
            found[one], found[other] = found[other], found[one]
    data[HEADER_BYTES:] = b"".join(found)


def lie(rng: random.Random, data: bytearray) -> None:
    """Put in a record that is whole and full of garbage."""
    large = [0, 1, 40, 4096, 2**31, 2**62, 2**64 - 1]
    times = [0, 1, -1, 2**62, -(2**63), 2**63 - 1]
    raw = pack_record(
        rng.choice(list(Kind)), rng.randrange(256), rng.choice([0, 5, 2**32 - 1]),
        rng.choice(large), rng.choice([*large, FIRST]), rng.choice(times), rng.choice(times),
    )  # fmt: skip
    at = HEADER_BYTES + 40 * rng.randrange(max(len(data) - HEADER_BYTES, 0) // 40 + 1)
    data[at:at] = raw


DAMAGES: list[Damage] = [flip, flip_in_head, cut, zero, append, empty, shuffle, shuffle, lie, lie]


def harm_log(rng: random.Random, data: bytearray) -> None:
    match rng.randrange(4):
        case 0:
            del data[rng.randrange(1, len(data)) :]
        case 1:
            data += b"more more\r\n" * rng.randrange(1, 1000)
        case 2:
            data[rng.randrange(len(data))] = rng.choice(b"\n\rx")
        case _:
            lost = rng.randrange(len(data))
            data[lost:] = bytes(len(data) - lost)


def damaged(saved: Saved, rng: random.Random) -> tuple[bytes, bytes | None]:
    log, index = bytearray(saved.log_bytes), bytearray(saved.index_bytes)
    for _ in range(rng.randrange(1, 4)):
        rng.choice(DAMAGES)(rng, index)
    if rng.random() < 0.3:
        harm_log(rng, log)
    return bytes(log), None if rng.random() < 0.03 else bytes(index)


def hold_repair(saved: Saved, log: bytes, index: bytes | None) -> None:
    """A repair makes an index sound, the next one changes nothing; no line is told otherwise."""
    saved.put(log, index)
    was_sound = not saved.faults()
    look_through(saved)
    repair(saved.path, "dut1")
    mended = saved.index.read_bytes()

    assert saved.faults() == []
    assert not was_sound or mended == index
    repair(saved.path, "dut1")
    assert saved.index.read_bytes() == mended
    assert saved.path.read_bytes() == log
    times = [record.mono_ns for record in records_in(mended) if record.kind is Kind.POINT]
    assert times == sorted(times)
    if log == saved.log_bytes and (has_eol(saved, mended) or was_sound):
        assert saved.saved_lines() == saved.lines


def look_through(saved: Saved) -> None:
    """Ask for all there is: a reader may be told nonsense, but it always comes to an end."""
    log = PortLog(saved.folder, "dut1")
    count = sum(1 for _ in log.lines())

    assert sum(1 for _ in log.lines(reverse=True)) <= 2 * count + 1
    first, last = log.bounds() or (0, 0)
    for reverse in (False, True):
        list(log.stretches([b"board"], first, last, reverse))
    log.newest_from(last, 7)
    log.seq_at(saved.changed_ns)
    log.seq_at(0)
    log.boot_range(0)
    log.boot_range(-1)
    log.boot_numbers()
    log.boots()
    log.gaps()


def hold_recovery(saved: Saved, log: bytes, index: bytes | None) -> None:
    """A start with any index: no number is used twice, and the next start changes nothing."""
    saved.put(log, index)
    highest = recover(saved.folder, "dut1")
    mended, lines = saved.index.read_bytes(), saved.saved_lines()

    assert not lines or saved.faults() or highest == lines[-1][0]
    assert recover(saved.folder, "dut1") == highest
    assert saved.index.read_bytes() == mended
    ends = [record for record in records_in(mended) if record.kind is Kind.CUT]
    assert ends[-1].seq == highest + 1


def has_eol(saved: Saved, index: bytes) -> bool:
    """Tell whether an index still says how lines end; without, a short log cannot tell it."""
    head, right = unpack_header(index), unpack_header(saved.index_bytes)
    return head is not None and right is not None and head.eol == right.eol


def hold(folder: Path, seed: int, damages: int) -> None:
    rng = random.Random(seed)
    saved = Saved(folder, seed, is_ended=rng.random() < 0.8)
    for _ in range(damages):
        log, index = damaged(saved, rng)
        hold_repair(saved, log, index)
        hold_recovery(saved, log, index)


@pytest.mark.parametrize("seed", range(30))
def test_a_repair_is_one_for_all_whatever_was_damaged(tmp_path: Path, seed: int) -> None:
    hold(tmp_path, seed, 10)


@pytest.mark.parametrize("seed", range(20))
def test_a_right_index_is_not_changed_by_a_repair(tmp_path: Path, seed: int) -> None:
    saved = Saved(tmp_path, seed, is_ended=seed % 2 == 0)
    count = (len(saved.index_bytes) - HEADER_BYTES) // RECORD_BYTES

    assert saved.faults() == []
    assert repair(saved.path, "dut1") == count
    assert saved.index.read_bytes() == saved.index_bytes


@pytest.fixture
def saved(tmp_path: Path) -> Saved:
    """A log of some lines that ended in order."""
    made = Saved(tmp_path, 3)
    assert made.faults() == []
    return made


def test_an_empty_index_beside_a_log_with_bytes_is_not_sound(saved: Saved) -> None:
    saved.put(saved.log_bytes, b"")
    assert saved.faults() == ["the index is empty: when its bytes came is not known"]
    repair(saved.path, "dut1")

    assert saved.faults() == []
    assert saved.saved_lines() == saved.lines


def test_an_index_without_a_point_is_not_sound_however_short_the_log(saved: Saved) -> None:
    saved.put(b"one\n", saved.index_bytes[:HEADER_BYTES])

    assert saved.faults() == ["4 bytes from byte 0 on have no record: times are missing"]


@pytest.mark.parametrize("index", [b"", None])
def test_a_log_without_a_byte_needs_no_index(saved: Saved, index: bytes | None) -> None:
    saved.put(b"", index)

    assert saved.faults() == []


def test_a_record_that_stands_twice_is_told_and_goes(saved: Saved) -> None:
    first = saved.index_bytes[HEADER_BYTES : HEADER_BYTES + RECORD_BYTES]
    end = saved.index_bytes[-RECORD_BYTES:]
    for twice in (first, end):
        at = saved.index_bytes.index(twice)
        saved.put(saved.log_bytes, saved.index_bytes[:at] + twice + saved.index_bytes[at:])
        assert len(saved.faults()) == 1
        repair(saved.path, "dut1")

        assert saved.index.read_bytes() == saved.index_bytes


def test_what_is_repaired_twice_has_each_record_once(saved: Saved) -> None:
    half = saved.log_bytes[: len(saved.log_bytes) // 2]
    saved.put(half, saved.index_bytes)
    repair(saved.path, "dut1")
    saved.put(saved.log_bytes, saved.index.read_bytes())
    repair(saved.path, "dut1")

    records = records_in(saved.index.read_bytes())
    assert len(records) == len(set(records))
    points = [record.offset for record in records if record.kind is Kind.POINT]
    assert len(points) == len(set(points))


def test_times_of_a_log_whose_folder_was_renamed_outlive_a_repair(saved: Saved) -> None:
    renamed = saved.folder.rename(saved.folder.with_name("dut7"))
    (path,) = log_files(renamed)
    repair(path, "dut7")

    index = path.with_suffix(".idx").read_bytes()
    assert records_in(index) == records_in(saved.index_bytes)
    assert unpack_header(index).port == "dut7"  # type: ignore[union-attr]


def test_an_index_of_another_log_lends_it_no_times(tmp_path: Path) -> None:
    saved, other = Saved(tmp_path, 3), Saved(tmp_path / "other", 8)
    head = unpack_header(other.index_bytes)
    assert head is not None
    saved.put(saved.log_bytes, other.index_bytes.replace(b"dut1", b"dut2", 1))
    repair(saved.path, "dut1")

    points = [r for r in records_in(saved.index.read_bytes()) if r.kind is Kind.POINT]
    assert all(point.flags & 1 for point in points)


def test_a_start_believes_the_name_of_a_log_before_the_head_of_its_index(saved: Saved) -> None:
    head = unpack_header(saved.index_bytes)
    assert head is not None
    for wrong in (0, 7, FIRST + 1, 2**63 - 1):
        fields = (head.port, head.eol, wrong, head.boot, head.boot_id)
        saved.put(saved.log_bytes, pack_header(type(head)(*fields)) + bytes(5 * RECORD_BYTES))

        assert recover(saved.folder, "dut1") == saved.lines[-1][0]
        assert saved.saved_lines() == saved.lines


@pytest.mark.parametrize(
    "name",
    ["20260622T035812Z-9999999999999999999999.log", "99990101T000000Z-000000000001.log",
     "00010101T000000Z-000000000001.log", "20269999T999999Z-000000000001.log"],
)  # fmt: skip
def test_a_name_that_is_garbage_ends_neither_a_check_nor_a_start(tmp_path: Path, name: str) -> None:
    (tmp_path / name).write_bytes(b"one\ntwo\n")
    for path in log_files(tmp_path):
        repair(path, "dut1")
        path.with_suffix(".idx").unlink()

    assert recover(tmp_path, "dut1") in (0, 2)
    assert [f for each in check_port(tmp_path, "dut1", is_live=False) for f in each.faults] == []


@pytest.mark.skipif(os.geteuid() != 0, reason="only root may give files away")
def test_what_root_repairs_the_daemon_can_still_read(saved: Saved) -> None:
    saved.put(saved.log_bytes, None)
    os.chown(saved.path, 12_345, 12_346)
    repair(saved.path, "dut1")

    owner = saved.index.stat()
    assert (owner.st_uid, owner.st_gid, owner.st_mode & 0o777) == (12_345, 12_346, 0o640)


def test_what_a_repair_that_crashed_left_behind_goes_at_the_next_start(saved: Saved) -> None:
    fresh = saved.path.with_suffix(".idx.new")
    fresh.write_bytes(b"half")
    recover(saved.folder, "dut1")

    assert not fresh.exists()
