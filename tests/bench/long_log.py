"""How long `logs --since` takes for its first line in a log of 10 GB.

`python tests/bench/long_log.py [--gigabytes 10]`. The log is written by the real index maker, with
real bytes; it lies in /tmp and is deleted afterwards. Where there is no room for it a smaller one
is made, and said so.
"""

from __future__ import annotations

import argparse
import os
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from run import Figure, ordinary_text

from serialwatch.api.logs import LogQuery, select
from serialwatch.store.log_format import Cut, Header, Kind, log_name, pack_header, pack_record
from serialwatch.store.log_index import Indexer
from serialwatch.store.log_reader import PortLog
from serialwatch.store.log_writer import ROTATE_BYTES

FILE_S = 1000.0  # that the bytes of one file took to come
BEGAN_NS = 1_782_100_692_000_000_000
ROOM = 1.5  # times what is written must be free
LOOKS = 12
GOAL_MS = 100.0


def long_log(gigabytes: float) -> Iterator[Figure]:
    free = shutil.disk_usage(tempfile.gettempdir()).free
    if free < gigabytes * 1e9 * ROOM:
        gigabytes = min(2.0, free / 1e9 / ROOM)
        print(f"not room enough: a log of {gigabytes:.1f} GB instead", file=sys.stderr)
    with tempfile.TemporaryDirectory(prefix="serialwatch-long-") as name:
        state = Path(name)
        count = _write(state / "log" / "dut1", gigabytes)
        lasted_ns = int(count * FILE_S * 1e9)
        moments = [BEGAN_NS + lasted_ns * n // (LOOKS + 1) for n in range(1, LOOKS + 1)]
        first_ms = [_first_line_ms(state, moment) for moment in moments]
        label = f"`--since` in {gigabytes:g} GB, {count} files"
        most = max(first_ms)
        yield Figure(f"{label}: first line", most, "ms", f"< {GOAL_MS:g}", most < GOAL_MS)
        median = statistics.median(first_ms)
        yield Figure(f"{label}: median", median, "ms", "", True)
        command = _command_ms(state, moments[LOOKS // 2])
        yield Figure("the same as a command, with Python's start", command, "ms", "", True)


def _write(folder: Path, gigabytes: float) -> int:
    """Write files of the usual size; return how many."""
    folder.mkdir(parents=True)
    text = ordinary_text(1, ROTATE_BYTES)
    text = text[: text.rindex(b"\n") + 1]
    count = max(2, round(gigabytes * 1e9 / len(text)))
    step = 4096
    seq = 1
    for number in range(count):
        began_ns = BEGAN_NS + int(number * FILE_S * 1e9)
        path = folder / log_name(began_ns, seq)
        indexer = Indexer("lf", seq)
        index = [pack_header(Header("dut1", "lf", seq, boot=0))]
        pace = FILE_S * 1e9 / len(text)
        for at in range(0, len(text), step):
            data = text[at : at + step]
            mono_ns = int(number * FILE_S * 1e9 + at * pace)
            index.append(
                indexer.add(data, mono_ns, mono_ns + int(len(data) * pace), BEGAN_NS + mono_ns)
            )
        index.append(
            pack_record(Kind.CUT, 0, Cut.SIZE, len(text), indexer.last_seq + 1,
                        indexer.last_utc_ns, indexer.last_mono_ns)
        )  # fmt: skip
        path.write_bytes(text)
        path.with_suffix(".idx").write_bytes(b"".join(index))
        seq = indexer.last_seq + 1
    return count


def _first_line_ms(state: Path, since_ns: int) -> float:
    """Return how long it takes from nothing to the first line, the files not in memory."""
    for path in (state / "log" / "dut1").iterdir():
        with path.open("rb") as file:
            os.fsync(file.fileno())
            os.posix_fadvise(file.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)
    began = time.perf_counter()
    line = next(select(PortLog(state / "log" / "dut1", "dut1"), LogQuery(since_utc_ns=since_ns)))
    took_ms = (time.perf_counter() - began) * 1000
    if not 0 <= line.utc_ns - since_ns < 10**9:
        raise SystemExit(f"{line.seq}: not the first line since then")
    return took_ms


def _command_ms(state: Path, since_ns: int) -> float:
    """Return how long `serialwatch logs` takes until its first line is there."""
    since = datetime.fromtimestamp(since_ns / 1e9, UTC).isoformat()
    command = [sys.executable, "-m", "serialwatch", "logs", "dut1", "--state", str(state)]
    began = time.perf_counter()
    with subprocess.Popen([*command, "--since", since], stdout=subprocess.PIPE) as process:
        assert process.stdout is not None
        process.stdout.readline()
        took_ms = (time.perf_counter() - began) * 1000
        process.kill()
    return took_ms


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--gigabytes", type=float, default=10.0)
    figures = list(long_log(parser.parse_args().gigabytes))
    print("\n".join(figure.row() for figure in figures))
    sys.exit(0 if all(figure.is_met for figure in figures) else 1)


if __name__ == "__main__":
    main()
