"""What the tests of faults share: a board that prints by itself, and looks into a daemon."""

from __future__ import annotations

import asyncio
import os
import re
import subprocess
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Protocol

import pytest

from bench_cable import Cable
from running_daemon import RunningDaemon
from serialwatch.service.tty_pair import OpenWatch

LINE_BYTES = 64
_LINE = re.compile(rb"n=(\d{10}) [x]{49}\r\n")
STEP_S = 0.005


class Tell(Protocol):
    """Notes a row of the table."""

    def __call__(
        self, row: int, fault: str, figure: str, goal: str = "", is_met: bool = True
    ) -> None:
        """Note what was measured; `is_met` says whether the figure reaches the goal."""


def numbered(first: int, count: int) -> bytes:
    """Return lines of 64 bytes that name themselves."""
    return b"".join(b"n=%010d " % n + b"x" * 49 + b"\r\n" for n in range(first, first + count))


class Printing:
    """A board that prints numbered lines from a thread, at `rate` bytes/s at most."""

    def __init__(self, cable: Cable, rate: int) -> None:
        self.sent = 0
        self.times: list[tuple[float, int]] = []  # when so many bytes had been sent
        self._cable = cable
        self._rate = rate
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._print, name="board", daemon=True)

    def __enter__(self) -> Printing:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()

    def stop(self) -> None:
        """Stop at the end of a line if there is somebody to read it."""
        self._stop.set()
        self._thread.join()

    def _print(self) -> None:
        rest, next_line, at_s = b"", 0, time.monotonic()
        while not (self._stop.is_set() and not rest):
            now_s = time.monotonic()
            count = int((now_s - at_s) * self._rate) // LINE_BYTES
            if count and not rest and not self._stop.is_set():
                count = min(count, 4096)
                rest = numbered(next_line, count)
                next_line += count
                at_s = max(at_s + count * LINE_BYTES / self._rate, now_s - 0.05)  # no bursts
            if not rest:
                time.sleep(STEP_S)
                continue
            try:
                done = os.write(self._cable.board, rest)
            except BlockingIOError:
                if self._stop.wait(0.001) and now_s - at_s > 5:
                    return  # nobody reads
                continue
            except OSError:
                return  # unplugged
            rest = rest[done:]
            self.sent += done
            self.times.append((time.monotonic(), self.sent))

    def sent_at(self, offset: int) -> float:
        """Return when byte `offset` was handed over."""
        return next((at for at, sent in self.times if sent > offset), time.monotonic())


@contextmanager
def opens_of(device: str) -> Iterator[list[float]]:
    """Yield the times at which `device` was opened, as they come."""
    opened_s: list[float] = []
    loop = asyncio.new_event_loop()

    async def watch() -> None:
        opens = OpenWatch()
        opens.add(device, lambda: opened_s.append(time.monotonic()), lambda: None)
        await ended.wait()
        opens.close()

    ended = asyncio.Event()
    thread = threading.Thread(target=loop.run_until_complete, args=(watch(),), name="opens")
    thread.start()
    try:
        yield opened_s
    finally:
        loop.call_soon_threadsafe(ended.set)
        thread.join()
        loop.close()


def holes(saved: bytes) -> list[tuple[int, int]]:
    """Return (first, after) of the numbered lines that are missing between two that are there."""
    found, due = [], None
    for match in _LINE.finditer(saved):
        number = int(match[1])
        if due is not None and number != due:
            found.append((due, number))
        due = number + 1
    return found


def metric(daemon: RunningDaemon, pattern: str) -> float:
    """Return the sum of the metrics that `pattern` finds."""
    text = daemon.get("/metrics", is_json=False).decode()
    return sum(float(v) for v in re.findall(rf"^{pattern} (\S+)$", text, re.MULTILINE))


def latest_s(daemon: RunningDaemon) -> float:
    """Return the bound of the bucket that the latest turn of the loop is in."""
    text = daemon.get("/metrics", is_json=False).decode()
    found = re.findall(r'loop_lateness_seconds_bucket\{le="(\S+)"\} (\S+)', text)
    most = max(float(count) for _, count in found)
    return min(float(bound) for bound, count in found if float(count) == most)


def lateness(daemon: RunningDaemon) -> dict[float, int]:
    """Return how many turns of the loop were at most so late, by bound."""
    text = daemon.get("/metrics", is_json=False).decode()
    found = re.findall(r'loop_lateness_seconds_bucket\{le="(\S+)"\} (\S+)', text)
    return {float(bound): int(float(count)) for bound, count in found}


def latest_between(before: dict[float, int], after: dict[float, int], part: float = 1.0) -> float:
    """Return the bound below which `part` of the turns between two looks were late."""
    turns = {bound: after[bound] - before[bound] for bound in after}
    most = max(turns.values())
    return min(bound for bound, count in turns.items() if count >= most * part)


def lost_bytes(daemon: RunningDaemon, where: str = "log") -> int:
    """Return how many bytes a daemon counts as lost there."""
    return int(metric(daemon, rf'serialwatch_lost_bytes_total\{{[^}}]*where="{where}"[^}}]*\}}'))


def port(daemon: RunningDaemon, name: str = "dut1") -> dict[str, object]:
    """Return how a port stands."""
    return next(p for p in daemon.get("/v1/ports")["ports"] if p["name"] == name)


def rss_kib(daemon: RunningDaemon) -> int:
    """Return the resident memory of the core."""
    assert daemon.process is not None
    text = Path(f"/proc/{daemon.process.pid}/status").read_text()
    return int(re.search(r"VmRSS:\s+(\d+)", text)[1])  # type: ignore[index]


def cpu_s(daemon: RunningDaemon) -> float:
    """Return the CPU time of all threads of the core."""
    assert daemon.process is not None
    stats = Path(f"/proc/{daemon.process.pid}/task").glob("*/schedstat")
    return sum(int(stat.read_text().split()[0]) for stat in stats) / 1e9


def descriptors(daemon: RunningDaemon) -> int:
    """Return how many descriptors the core has open."""
    assert daemon.process is not None
    return len(os.listdir(f"/proc/{daemon.process.pid}/fd"))


@contextmanager
def small_disk(folder: Path, size_mib: int) -> Iterator[Path]:
    """Make a disk of so many MiB."""
    place = folder / "disk"
    place.mkdir()
    mount = ["mount", "-t", "tmpfs", "-o", f"size={size_mib}m", "none", str(place)]
    if os.geteuid() != 0 or subprocess.run(mount, capture_output=True).returncode:
        pytest.skip("mounting a small disk needs root")
    try:
        yield place
    finally:
        subprocess.run(["umount", "-l", str(place)], check=True)
