"""The files of a log, byte for byte: old logs must stay readable for ever."""

from __future__ import annotations

import random
import struct
from pathlib import Path

import pytest

from log_feed import MS, UTC_NS, chunked, console, records_in
from serialwatch.lines import LINE, MAX_LINE, Eol
from serialwatch.store.log_format import (
    HEADER_BYTES,
    LINE_START,
    MAX_AUX,
    POINT_EVERY,
    Cut,
    Header,
    Kind,
    Record,
    begun_utc_ns,
    first_seq_of,
    kernel_boot_id,
    log_files,
    log_name,
    pack_header,
    pack_record,
    unpack_header,
    unpack_record,
)
from serialwatch.store.log_index import Indexer


def crc16(data: bytes) -> int:
    """CRC-16/CCITT-FALSE, bit by bit."""
    crc = 0xFFFF
    for byte in data:
        crc ^= byte << 8
        for _ in range(8):
            crc = (crc << 1 ^ 0x1021 if crc & 0x8000 else crc << 1) & 0xFFFF
    return crc


def records(raw: bytes) -> list[Record]:
    return records_in(bytes(HEADER_BYTES) + raw)


def test_a_header_is_these_128_bytes() -> None:
    boot_id = bytes(range(16))
    header = Header("dut1", "cr", 48211, 7, boot_id)

    assert pack_header(header) == (
        b"SWIDX1"
        + (1).to_bytes(2, "little")
        + b"dut1".ljust(32, b"\0")
        + b"\x01"
        + bytes(7)
        + (48211).to_bytes(8, "little")
        + (7).to_bytes(8, "little")
        + boot_id
        + bytes(48)
    )
    assert unpack_header(pack_header(header) + b"records") == header


def test_a_header_knows_the_last_line_before_its_file_in_the_bytes_that_were_zero() -> None:
    header = Header("dut1", "lf", 9, 7, bytes(16), before_seq=8)
    raw = pack_header(header)

    assert raw[80:] == (8).to_bytes(8, "little") + bytes(40)
    assert unpack_header(raw) == header
    assert unpack_header(raw[:80] + bytes(48)) == Header("dut1", "lf", 9, 7)


@pytest.mark.parametrize("at", [48, 56, 80])
def test_a_header_with_numbers_that_no_database_holds_is_none(at: int) -> None:
    raw = bytearray(pack_header(Header("dut1", "lf", 9, 7)))
    raw[at : at + 8] = b"\xff" * 8

    assert unpack_header(bytes(raw)) is None


def test_times_that_do_not_fit_stop_at_the_limit() -> None:
    found = unpack_record(pack_record(Kind.POINT, 0, 0, 0, 1, 2**80, -(2**80)))

    assert found is not None
    assert (found.utc_ns, found.mono_ns) == (2**63 - 1, -(2**63))


@pytest.mark.parametrize(
    "damage", [b"", b"SWIDX1", b"SWIDX2" + bytes(122), b"SWIDX1\x02" + bytes(121)]
)
def test_a_header_that_is_not_ours_is_none(damage: bytes) -> None:
    assert unpack_header(damage) is None


def test_a_record_is_these_40_bytes() -> None:
    raw = pack_record(Kind.GAP, 3, 65536, 4096, 48211, UTC_NS, 17)

    plain = (
        bytes([3, 3, 0, 0])
        + (65536).to_bytes(4, "little")
        + (4096).to_bytes(8, "little")
        + (48211).to_bytes(8, "little")
        + struct.pack("<qq", UTC_NS, 17)
    )
    assert crc16(b"123456789") == 0x29B1  # the check value of CRC-16/CCITT-FALSE
    assert raw == plain[:2] + crc16(plain).to_bytes(2, "little") + plain[4:]
    assert unpack_record(raw) == Record(Kind.GAP, 3, 65536, 4096, 48211, UTC_NS, 17)


def test_kinds_and_reasons_have_their_numbers_for_ever() -> None:
    assert [(kind.name, kind.value) for kind in Kind] == [
        ("POINT", 1), ("CUT", 2), ("GAP", 3), ("BOOT", 4), ("CLOCK", 5), ("MARK", 6),
    ]  # fmt: skip
    assert [cut.value for cut in Cut] == [1, 2, 3, 4, 5, 6, 7]


def test_a_record_with_any_bit_wrong_is_none() -> None:
    raw = pack_record(Kind.POINT, 0, 1, 2, 3, UTC_NS, 4)
    for bit in range(320):
        torn = bytearray(raw)
        torn[bit // 8] ^= 1 << bit % 8

        assert unpack_record(bytes(torn)) is None
    assert unpack_record(raw[:39]) is None


def test_aux_stops_at_its_largest_value() -> None:
    found = unpack_record(pack_record(Kind.POINT, 0, 2**40, 0, 1, 0, 0))

    assert found is not None
    assert found.aux == MAX_AUX


def test_a_name_says_when_the_file_was_begun_and_its_first_line() -> None:
    name = log_name(UTC_NS + 999_999_999, 48211)

    assert name == "20260622T035812Z-000000048211.log"
    assert first_seq_of(Path(name)) == 48211
    assert begun_utc_ns(Path(name)) == UTC_NS
    assert first_seq_of(Path("20260622T035812Z-000000048211.idx")) is None
    assert first_seq_of(Path("notes.log")) is None


def test_files_are_ordered_by_first_line_not_by_name(tmp_path: Path) -> None:
    later, sooner = log_name(UTC_NS, 200), log_name(UTC_NS + 10**12, 100)
    for name in (later, sooner, "boot.log"):
        (tmp_path / name).touch()

    assert [path.name for path in log_files(tmp_path)] == [sooner, later]
    assert log_files(tmp_path / "nothing") == []


def test_the_boot_of_the_kernel_has_an_id() -> None:
    assert len(kernel_boot_id()) == 16
    assert kernel_boot_id() == kernel_boot_id()


# The index


def test_the_first_byte_after_a_pause_has_a_point_and_the_end_before_it_a_time() -> None:
    indexer = Indexer("lf", 10)
    raw = indexer.add(b"one\n", 1000 * MS, 1000 * MS, UTC_NS)
    raw += indexer.add(b"tw", 1010 * MS, 1010 * MS, UTC_NS + 10 * MS)
    raw += indexer.add(b"o\n", 1030 * MS, 1030 * MS, UTC_NS + 30 * MS)
    first, second = records(raw)

    assert first == Record(Kind.POINT, LINE_START, 0, 0, 10, UTC_NS, 1000 * MS)
    assert second == Record(Kind.POINT, 0, 10_000, 6, 11, UTC_NS + 30 * MS, 1030 * MS)


def test_bytes_that_never_pause_have_a_point_each_quarter_of_a_second() -> None:
    indexer = Indexer("lf", 1)
    raw = b"".join(
        indexer.add(b"x", at * MS, at * MS, UTC_NS + at * MS) for at in range(0, 1000, 10)
    )

    assert [r.mono_ns // MS for r in records(raw)] == [0, 250, 500, 750]


def test_a_wall_clock_that_was_set_has_a_record_before_the_next_point() -> None:
    indexer = Indexer("lf", 1)
    raw = indexer.add(b"a\n", 0, 0, UTC_NS)
    raw += indexer.add(b"b\n", 10 * MS, 10 * MS, UTC_NS + 200 * MS)
    raw += indexer.add(b"c\n", 20 * MS, 20 * MS, UTC_NS + 20 * MS - 300 * MS)
    raw += indexer.add(b"d\n", 30 * MS, 30 * MS, UTC_NS + 30 * MS - 300 * MS)
    clocks = [r for r in records(raw) if r.kind is Kind.CLOCK]

    assert [(r.offset, r.seq, r.utc_ns) for r in clocks] == [(4, 3, UTC_NS - 280 * MS)]


@pytest.mark.parametrize("eol", ["lf", "cr"])
def test_every_point_names_the_line_of_its_byte(eol: Eol) -> None:
    rng = random.Random(5)
    for _ in range(25):
        data = b"".join(console(rng) for _ in range(rng.randrange(1, 5)))
        indexer = Indexer(eol, 100)
        raw, mono_ns = b"", 0
        for chunk in chunked(rng, data):
            mono_ns += rng.choice([0, 0, 5 * MS, 30 * MS])
            raw += indexer.add(chunk, mono_ns, mono_ns, UTC_NS + mono_ns)
        line_of, starts = line_numbers(data, eol, 100)
        points = records(raw)

        for point in points:
            assert point.seq == line_of[point.offset]
            assert bool(point.flags & LINE_START) == (point.offset in starts)
        offsets = [point.offset for point in points]
        gaps = [b - a for a, b in zip(offsets, [*offsets[1:], len(data)], strict=True)]
        assert min(gaps) > 0
        assert max(gaps) <= POINT_EVERY
        assert indexer.last_seq == line_of[-1]


@pytest.mark.parametrize("eol", ["lf", "cr"])
@pytest.mark.parametrize(
    "data",
    [
        b"x" * 200_000,
        (b"x" * MAX_LINE + b"\r") * 12,
        (b"x" * (MAX_LINE - 1) + b"\r\r\n") * 12,
        b"\r\ntext" * 30_000,
        b"text\r" * 40_000,
        b"text\n" * 40_000,
    ],
    ids=["no end", "cr after cuts", "cr lf at the limit", "ends first", "cr", "lf"],
)
def test_a_reader_is_never_far_from_a_line_start(data: bytes, eol: Eol) -> None:
    for size, step_ms in ((50_000, 1), (1_000, 1), (70, 30)):
        indexer = Indexer(eol, 1)
        raw = b"".join(
            indexer.add(data[at : at + size], at * step_ms * MS, at * step_ms * MS, 0)
            for at in range(0, len(data), size)
        )
        starts = [r.offset for r in records(raw) if r.flags & LINE_START]
        apart = [b - a for a, b in zip(starts, [*starts[1:], len(data)], strict=True)]

        assert max(apart) <= 2 * MAX_LINE + POINT_EVERY


def line_numbers(data: bytes, eol: Eol, first: int) -> tuple[list[int], set[int]]:
    """Return the line of each byte, and where lines start."""
    numbers: list[int] = []
    starts: set[int] = set()
    end = 0
    for match in LINE[eol].finditer(data):
        starts.add(match.start())
        numbers += [first + len(starts) - 1] * (match.end() - match.start())
        end = match.end()
    if end < len(data):
        starts.add(end)
        numbers += [first + len(starts) - 1] * (len(data) - end)
    return numbers, starts
