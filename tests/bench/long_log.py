"""How soon `serialwatch logs` shows its first line of a log of 10 GB, and how fast it searches it.

`python tests/bench/long_log.py [--gigabytes 10] [--state DIR]`; 2 GB by default, which takes a
minute, as 10 GB take five. The log is one port's of some weeks: files of the usual size with
indexes of the real format, every other one of a board that prints a line now and then (as many
records as lines), the others of one that floods (a record each 4 KiB). Each was made by the real
index maker once; the copies differ in numbers and times. It lies in /tmp and is deleted afterwards,
or in DIR, stays there and is used again. Where there is no room for it a smaller one is made.

Cold: the files are taken out of the page cache first. What is measured of a command begins before
its Python does and ends with its first line.
"""

from __future__ import annotations

import argparse
import os
import random
import re
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from binascii import crc_hqx
from collections.abc import Iterator, Sequence
from contextlib import closing, contextmanager
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

import sqlite_utils
from run import Boards, Figure, ordinary_text

from serialwatch.api.logs import LogQuery, select
from serialwatch.records import Marker
from serialwatch.store.boots import save_marker
from serialwatch.store.log_format import (
    POINT_EVERY,
    RECORD_BYTES,
    Cut,
    Header,
    Kind,
    log_files,
    log_name,
    pack_header,
    pack_record,
)
from serialwatch.store.log_index import Indexer
from serialwatch.store.log_reader import PortLog
from serialwatch.store.sqlite_file import open_file

PROGRAM = str(Path(sys.executable).parent / "serialwatch")
PORT = "dut1"
GOAL_MS = 100.0
ROOM = 1.6  # times what is written must be free
LOOKS = 12

# A file's numbers and times are the bits of its copy above those of its first one.
LINE_BITS = 20
TIME_BITS = 45  # of nanoseconds: files begin 9 h 46 min apart
BOOT_BITS = 4
LINES = 1 << LINE_BITS
BEGAN_NS = (1_782_100_692_000_000_000 >> TIME_BITS) << TIME_BITS
MONO_NS = 1 << TIME_BITS
QUIET_NS = 1 << 25  # from a line to the next
LINE_NS = 5_000_000  # that a line takes on the wire
FLOOD_NS = 1 << 17  # that 4 bytes take
BLOCK_LINES = 4096
NEEDLE = b"the needle in the haystack"


@dataclass(frozen=True)
class Segment:
    """The first file of a kind."""

    text: bytes
    points: bytes  # records that number and time alone tell from those of another file
    lasts_ns: int


def long_log(gigabytes: float, state: Path | None) -> Iterator[Figure]:
    with _placed(gigabytes, state) as (folder, size):
        files = _full(folder)
        print(
            f"a log of {size:.1f} GB in {len(files)} files; the goal is for 10 GB", file=sys.stderr
        )
        rng = random.Random(5)
        moments = [
            BEGAN_NS + int(rng.uniform(0.01, 0.99) * (len(files) - 1) * (1 << TIME_BITS))
            for _ in range(LOOKS)
        ]
        yield _first("since: reading alone, cold", [_look_ms(folder, each) for each in moments])
        yield _first("Python and click alone", [_bare() for _ in moments], has_goal=False)
        since = [("--since", _iso(moment)) for moment in moments]
        saved = ("--state", str(folder))
        for name, is_cold in (("cold", True), ("warm", False)):
            found = [_command(folder, is_cold, *saved, *args) for args in since]
            yield _first(f"logs --state --since, {name}", found)
        middle = len(files) // 2 << BOOT_BITS
        for args in (
            ("-n", "50"),
            ("--boot", "-1"),
            ("--boot", str(middle + 7)),
            ("--marker", "halfway"),
            ("--until", since[0][1]),
        ):
            found = [_command(folder, True, *saved, *args) for _ in range(3)]
            has_goal = args[0] != "--marker"
            yield _first(f"logs --state {' '.join(args)[:12]}, cold", found, has_goal=has_goal)
        with _served(folder) as socket:
            found = [_command(folder, True, "--socket", socket, *args) for args in since]
            yield _first("logs --since from a daemon, cold", found)
        yield from _searched(folder, size)


def _first(name: str, found: Sequence[Run], *, has_goal: bool = True) -> Figure:
    """Return the slowest way to the first line, Python's start included if it is a command."""
    each_ms = [run.first_ms for run in found]
    most = max(each_ms)
    goal = f"< {GOAL_MS:g}" if has_goal else ""
    median = f"median {statistics.median(each_ms):.0f}"
    return Figure(name, most, f"ms, {median}", goal, most < GOAL_MS or not has_goal)


def _searched(state: Path, size: float) -> Iterator[Figure]:
    """The needle is in the last file only: when it is found, all has been searched."""
    began = time.perf_counter()
    saved = ("--state", str(state))
    found = _command(state, False, *saved, "--grep", NEEDLE.decode(), is_whole=True)
    took = time.perf_counter() - began
    yield Figure("logs --grep: one line in all of it", size * 1000 / took, "MB/s", "", True)
    yield Figure("logs --grep: memory", found.peak_mb, "MB", "", True)


@contextmanager
def _served(state: Path) -> Iterator[str]:
    """Run a daemon on the log; yield its socket."""
    with tempfile.TemporaryDirectory(prefix="serialwatch-long-run-") as name:
        folder = Path(name)
        boards = Boards(folder, 1)
        socket = folder / "run" / "serialwatch.sock"
        (folder / "bench.toml").write_text(
            f'[daemon]\nstate_dir = "{state}"\nrun_dir = "{socket.parent}"\n'
            '[api]\nlisten = ""\n[log]\nkeep_days = 100000\nkeep_bytes = 1_000_000_000_000\n'
            f'[port.{PORT}]\ndevice = "{boards.paths[0]}"\n'
        )
        daemon = subprocess.Popen(
            [PROGRAM, "run", "-c", folder / "bench.toml"], stderr=subprocess.DEVNULL
        )
        try:
            while not socket.exists():
                if daemon.poll() is not None:
                    raise SystemExit(f"the daemon has ended: {daemon.returncode}")
                time.sleep(0.01)
            yield str(socket)
        finally:
            daemon.terminate()
            daemon.wait(30)
            boards.close()


def _full(state: Path) -> list[Path]:
    """Return the files that were made here; the daemon may have begun one of its own."""
    return [path for path in log_files(state / "log" / PORT) if path.stat().st_size > LINES]


@contextmanager
def _placed(gigabytes: float, state: Path | None) -> Iterator[tuple[Path, float]]:
    """Make the log, or find it; yield where and how large it is."""
    if state is not None and log_files(state / "log" / PORT):
        yield state, _size(state)
        return
    place = state or Path(tempfile.gettempdir())
    place.mkdir(parents=True, exist_ok=True)
    free = shutil.disk_usage(place).free
    if free < gigabytes * 1e9 * ROOM:
        gigabytes = min(2.0, free / 1e9 / ROOM)
        print(f"not room enough: a log of {gigabytes:.1f} GB instead", file=sys.stderr)
    folder = Path(tempfile.mkdtemp(prefix="serialwatch-long-")) if state is None else state
    try:
        write(folder, gigabytes)
        yield folder, _size(folder)
    finally:
        if state is None:
            shutil.rmtree(folder)


def write(state: Path, gigabytes: float) -> None:
    """Write files of the usual size, and a database with a marker."""
    folder = state / "log" / PORT
    folder.mkdir(parents=True)
    block = ordinary_text(1, 100 * BLOCK_LINES).splitlines(keepends=True)[:BLOCK_LINES]
    text = b"".join(block) * (LINES // len(block))
    kinds = (_quiet(text), _flood(text))
    count = max(2, round(gigabytes * 1e9 / len(text)))
    for number in range(count):
        segment = kinds[number % 2]
        if number == count - 1:
            segment = replace(segment, text=_with_needle(segment.text))
        _write_file(folder, number, segment)
    with closing(open_file(state / "serialwatch.db").conn) as conn:
        db = sqlite_utils.Database(conn, execute_plugins=False)
        seq = (count // 2 + 1) << LINE_BITS
        save_marker(db, Marker(1, PORT, seq, "note", "halfway", "jo", 0, BEGAN_NS))
        conn.commit()


def _with_needle(text: bytes) -> bytes:
    at = text.index(b"\n", len(text) // 3) - 1
    return text[: at - len(NEEDLE)] + NEEDLE + text[at:]  # over the end of a line


def _quiet(text: bytes) -> Segment:
    """Return a file of lines with a pause before each."""
    indexer = Indexer("lf", 1 << LINE_BITS)
    points = []
    for number, line in enumerate(text.splitlines(keepends=True)):
        at = number * QUIET_NS
        points.append(indexer.add(line, MONO_NS + at, MONO_NS + at + LINE_NS, BEGAN_NS + at))
    return Segment(text, b"".join(points), LINES * QUIET_NS)


def _flood(text: bytes) -> Segment:
    """Return a file of bytes without a pause."""
    indexer = Indexer("lf", 1 << LINE_BITS)
    points = []
    for offset in range(0, len(text), POINT_EVERY):
        data = text[offset : offset + POINT_EVERY]
        at, lasts = offset * FLOOD_NS // 4, len(data) * FLOOD_NS // 4
        points.append(indexer.add(data, MONO_NS + at, MONO_NS + at + lasts, BEGAN_NS + at))
    return Segment(text, b"".join(points), len(text) * FLOOD_NS // 4)


def _write_file(folder: Path, number: int, segment: Segment) -> None:
    seq, passed_ns = (number + 1) << LINE_BITS, number << TIME_BITS
    utc_ns, mono_ns = BEGAN_NS + passed_ns, MONO_NS + passed_ns
    path = folder / log_name(utc_ns, seq)
    path.write_bytes(segment.text)
    points = _moved(segment.points, seq, utc_ns, mono_ns)
    every = len(points) // RECORD_BYTES >> BOOT_BITS
    index = [pack_header(Header(PORT, "lf", seq, number << BOOT_BITS, b"bench" * 3 + b"!"))]
    at = 0
    for nth in range(1 << BOOT_BITS):
        stop = (nth * every + every // 2) * RECORD_BYTES
        index.append(points[at:stop])
        boot = (number << BOOT_BITS) + nth + 1
        index.append(_boot(points[stop - RECORD_BYTES : stop], boot))
        at = stop
    index.append(points[at:])
    ends = (len(segment.text), seq + LINES, utc_ns + segment.lasts_ns, mono_ns + segment.lasts_ns)
    index.append(pack_record(Kind.CUT, 0, Cut.SIZE, *ends))
    path.with_suffix(".idx").write_bytes(b"".join(index))
    ended = (utc_ns + segment.lasts_ns) // 10**9
    os.utime(path, (ended, ended))


def _boot(point: bytes, number: int) -> bytes:
    """Return the record of a boot that began with the line of a POINT."""
    offset, seq, utc_ns, mono_ns = (
        int.from_bytes(point[at : at + 8], "little") for at in (8, 16, 24, 32)
    )
    return pack_record(Kind.BOOT, 0, number, offset, seq, utc_ns, mono_ns)


def _moved(points: bytes, seq: int, utc_ns: int, mono_ns: int) -> bytes:
    """Return the records of the first file as those of another, checksums and all."""
    mask = bytearray(RECORD_BYTES)
    for at, first, new in (
        (16, 1 << LINE_BITS, seq), (24, BEGAN_NS, utc_ns), (32, MONO_NS, mono_ns),
    ):  # fmt: skip
        mask[at : at + 8] = (first ^ new).to_bytes(8, "little")
    mask[2:4] = crc_hqx(bytes(mask), 0).to_bytes(2, "little")  # a CRC is linear
    masks = int.from_bytes(bytes(mask) * (len(points) // RECORD_BYTES), "little")
    return (int.from_bytes(points, "little") ^ masks).to_bytes(len(points), "little")


def _look_ms(state: Path, since_ns: int) -> Run:
    """Return how long it takes from nothing to the first line, the files not in memory."""
    _forget(state)
    began = time.perf_counter()
    lines = select(
        PortLog(state / "log" / PORT, PORT), LogQuery(since_utc_ns=since_ns, has_boots=False)
    )
    line = next(line for line in lines if line is not None)
    took_ms = (time.perf_counter() - began) * 1000
    late_ns = line.utc_ns - since_ns  # a flood ends long before the next file begins
    if not 0 <= late_ns < (1 << TIME_BITS if line.seq % LINES == 0 else 2 * QUIET_NS):
        raise SystemExit(f"{line.seq}: not the first line since then")
    return Run(took_ms, 0)


@dataclass(frozen=True)
class Run:
    """A command that was run."""

    first_ms: float  # until its first line
    peak_mb: float


def _command(state: Path, is_cold: bool, *args: str, is_whole: bool = False) -> Run:
    """Run `serialwatch logs` until its first line is there, or to its end."""
    if is_cold:
        _forget(state)
    command = [PROGRAM, "logs", PORT, *args]
    began = time.perf_counter()
    with subprocess.Popen(command, stdout=subprocess.PIPE) as process:
        assert process.stdout is not None
        line = process.stdout.readline()
        took_ms = (time.perf_counter() - began) * 1000
        status = Path(f"/proc/{process.pid}/status").read_text()
        peak = re.search(r"VmHWM:\s+(\d+)", status)
        if is_whole:
            process.stdout.read()
        else:
            process.kill()
    if not re.match(rb"\[ *\d+\.\d+\] dev", line):
        raise SystemExit(f"{' '.join(args)}: not a line of the log: {line!r}")
    return Run(took_ms, int(peak[1]) / 1024 if peak else 0)


def _bare() -> Run:
    """Start what every command starts with, and nothing of ours."""
    began = time.perf_counter()
    subprocess.run([sys.executable, "-c", "import click"], check=True)
    return Run((time.perf_counter() - began) * 1000, 0)


def _forget(state: Path) -> None:
    """Take the files out of memory."""
    for path in (state / "log" / PORT).iterdir():
        fd = os.open(path, os.O_RDONLY)
        try:
            os.fdatasync(fd)
            os.posix_fadvise(fd, 0, 0, os.POSIX_FADV_DONTNEED)
        finally:
            os.close(fd)


def _iso(utc_ns: int) -> str:
    return datetime.fromtimestamp(utc_ns / 1e9, UTC).isoformat()


def _size(state: Path) -> float:
    return sum(path.stat().st_size for path in _full(state)) / 1e9


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--gigabytes", type=float, default=2.0)
    parser.add_argument(
        "--state", type=Path, help="keep the log here, or use the one that is there"
    )
    asked = parser.parse_args()
    is_met = True
    for figure in long_log(asked.gigabytes, asked.state):
        print(figure.row(), flush=True)
        is_met &= figure.is_met
    sys.exit(0 if is_met else 1)


if __name__ == "__main__":
    main()
