"""The files of a port's log, byte for byte.

`<log>/<port>/20260622T035812Z-000000048211.log` holds the raw bytes, the `.idx` beside it when they
came: a header of 128 bytes, then records of 40, all little-endian. The name says when the file was
begun (UTC) and the number of its first line. Files are ordered by that number.

The checksum of a record is CRC-16/CCITT-FALSE (polynomial 0x1021, initial value 0xFFFF, nothing
reflected) of its 40 bytes with the checksum 0.
"""

from __future__ import annotations

import os
import re
import struct
from binascii import crc_hqx
from collections.abc import Iterable
from dataclasses import dataclass
from datetime import UTC, datetime
from enum import IntEnum
from functools import lru_cache
from pathlib import Path

from serialwatch.lines import Eol

MAGIC = b"SWIDX1"
VERSION = 1
HEADER_BYTES = 128
RECORD_BYTES = 40
POINT_EVERY = 4096  # bytes of log from one POINT to the next, at most
PAUSE_NS = 20_000_000  # the first byte after a pause so long has a POINT
MAX_AUX = 2**32 - 1
MAX_NUMBER = 2**63 - 1  # of a line or a boot: the database has no larger ones

_HEADER = struct.Struct("<6sH32sB7xQQ16sQ40x")
_RECORD = struct.Struct("<BBHIQQqq")
_EOLS: tuple[Eol, ...] = ("lf", "cr")  # as numbered in the header
_NAME = re.compile(r"[0-9]{8}T[0-9]{6}Z-([0-9]{12,18})\.log")
_YEARS = range(1970, 2262)  # nanoseconds of others do not fit into a record


class Kind(IntEnum):
    """What a record says."""

    POINT = 1  # when the byte at `offset` came; aux: µs from the POINT before to the byte before
    CUT = 2  # the file ends here; aux: a `Cut`; times of the last byte
    GAP = 3  # bytes were lost before `offset`; aux: how many, 0 unknown; flags: a `Place`
    BOOT = 4  # line `seq` began a boot; aux: its number
    CLOCK = 5  # the wall clock was set since the record before
    MARK = 6  # a marker stands before line `seq`; aux: its id


# Flags of a POINT.
ESTIMATED = 1  # made from the log afterwards: the times are guessed
LINE_START = 2  # the byte is the first of line `seq`


class Cut(IntEnum):
    """Why a file ends. A line without an end in it is complete with that."""

    SIZE = 1  # it was full
    LOST = 2  # the port hung up
    EOL = 3  # the console ends lines by CR
    STOP = 4  # the daemon ended
    GAP = 5  # bytes were lost behind it
    CRASH = 6  # found without an end at the next start
    MOVED = 7  # the file was deleted or renamed, or the disk failed


class Place(IntEnum):
    """Where bytes were lost."""

    UART = 1
    TTY = 2
    LOG = 3
    CLIENT = 4


@dataclass(frozen=True, slots=True)
class Header:
    """The head of an index."""

    port: str
    eol: Eol
    first_seq: int
    boot: int  # as known when the file was begun
    boot_id: bytes = bytes(16)  # of the kernel: monotonic times of one boot can be compared
    before_seq: int = 0  # the last line of the file before it, 0 unknown


@dataclass(frozen=True, slots=True)
class Record:
    """One record of an index."""

    kind: Kind
    flags: int
    aux: int
    offset: int  # in the log
    seq: int
    utc_ns: int
    mono_ns: int


def pack_header(header: Header) -> bytes:
    """Return the 128 bytes."""
    return _HEADER.pack(
        MAGIC,
        VERSION,
        header.port.encode(),
        _EOLS.index(header.eol),
        header.first_seq,
        header.boot,
        header.boot_id,
        header.before_seq,
    )


def unpack_header(data: bytes) -> Header | None:
    """Return the header that `data` begins with, None if there is none we understand."""
    if len(data) < HEADER_BYTES:
        return None
    magic, version, port, eol, first_seq, boot, boot_id, before_seq = _HEADER.unpack_from(data)
    if magic != MAGIC or version != VERSION or eol >= len(_EOLS):
        return None
    if max(first_seq, boot, before_seq) > MAX_NUMBER:
        return None
    name = port.rstrip(b"\0").decode(errors="replace")
    return Header(name, _EOLS[eol], first_seq, boot, boot_id, before_seq)


def pack_record(
    kind: Kind, flags: int, aux: int, offset: int, seq: int, utc_ns: int, mono_ns: int
) -> bytes:
    """Return the 40 bytes; what is too large or too small for its place stops at the limit."""
    aux = min(aux, MAX_AUX)
    try:
        body = _RECORD.pack(kind, flags, 0, aux, offset, seq, utc_ns, mono_ns)
    except struct.error:  # reckoned from times that were garbage
        utc_ns, mono_ns = (min(max(ns, -(2**63)), 2**63 - 1) for ns in (utc_ns, mono_ns))
        body = _RECORD.pack(kind, flags, 0, aux, offset, seq, utc_ns, mono_ns)
    return body[:2] + crc_hqx(body, 0xFFFF).to_bytes(2, "little") + body[4:]


def unpack_record(data: bytes) -> Record | None:
    """Return the record in 40 bytes, None if it is torn or of a kind unknown here."""
    if len(data) != RECORD_BYTES:
        return None
    kind, flags, crc, aux, offset, seq, utc_ns, mono_ns = _RECORD.unpack(data)
    if crc != crc_hqx(data[:2] + b"\0\0" + data[4:], 0xFFFF) or not 0 < kind <= Kind.MARK:
        return None
    return Record(Kind(kind), flags, aux, offset, seq, utc_ns, mono_ns)


def log_name(utc_ns: int, first_seq: int) -> str:
    """Return the name of the log file that begins with line `first_seq`."""
    return f"{datetime.fromtimestamp(utc_ns // 10**9, UTC):%Y%m%dT%H%M%SZ}-{first_seq:012d}.log"


def first_seq_of(path: Path) -> int | None:
    """Return the first line number that a log's name says, None if it is no log's name."""
    match = _NAME.fullmatch(path.name)
    return int(match[1]) if match else None


def begun_utc_ns(path: Path) -> int:
    """Return when a log file was begun, as its name says; 0 if that is no time at all."""
    return begun_by_name(path.name)


def begun_by_name(name: str) -> int:
    """Return the same by the name alone; a hundred thousand are looked at in a moment."""
    day_ns = _day_ns(name[:8])
    hour, minute, second = int(name[9:11]), int(name[11:13]), int(name[13:15])
    if day_ns is None or hour > 23 or minute > 59 or second > 59:  # somebody has given it a name
        return 0
    return day_ns + (hour * 3600 + minute * 60 + second) * 10**9


@lru_cache(maxsize=64)
def _day_ns(day: str) -> int | None:
    try:
        begun = datetime(int(day[:4]), int(day[4:6]), int(day[6:]), tzinfo=UTC)
    except ValueError:
        return None
    return int(begun.timestamp()) * 10**9 if begun.year in _YEARS else None


def log_files(folder: Path) -> list[Path]:
    """Return the log files of one port, ordered by first line; none if there is no folder."""
    try:
        names = os.listdir(folder)
    except (FileNotFoundError, NotADirectoryError):
        return []
    return [folder / name for _, name in in_order(names)]


def in_order(names: Iterable[str]) -> list[tuple[int, str]]:
    """Return (first line, name) of those that log files have, ordered by it."""
    found = [(int(match[1]), name) for name in names if (match := _NAME.fullmatch(name))]
    return sorted(each for each in found if each[0])


def kernel_boot_id() -> bytes:
    """Return the 16 bytes that name this boot of the kernel."""
    text = Path("/proc/sys/kernel/random/boot_id").read_text(encoding="ascii")
    return bytes.fromhex(text.strip().replace("-", ""))
