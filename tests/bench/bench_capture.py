"""How fast capture is: `python tests/bench/bench_capture.py [seconds]`, as a table and as JSON.

First ring and numbering alone, then the log writer behind them, then all of it behind ptys that
are read by the tty driver, with a child process as the boards.
"""

from __future__ import annotations

import asyncio
import hashlib
import json
import os
import sys
import tempfile
import time
import tty
from dataclasses import asdict, dataclass
from pathlib import Path

from serialwatch.capture.reader import Reader
from serialwatch.capture.ring import Ring, RingBudget
from serialwatch.records import Lines
from serialwatch.store.log_format import log_files
from serialwatch.store.log_writer import LogWriter
from serialwatch_drivers.port import PortOptions, UartCounters

LINE = b"[   12.345678] usb 1-1: new high-speed USB device number 2 using xhci_hcd, ok\r\n"


@dataclass
class Result:
    what: str
    mb_per_s: float
    cpu_share: float  # of one core
    mb_per_cpu_s: float
    us_per_chunk: float
    lost_bytes: int


class Nobody:
    """A sink that does nothing."""

    def on_bytes(self, reader: Reader, data: bytes, mono_ns: int) -> None: ...
    def on_lines(self, reader: Reader, lines: Lines) -> None: ...
    def on_partial(
        self, reader: Reader, seq: int, text: bytes, mono_ns: int, utc_ns: int
    ) -> None: ...
    def on_state(self, reader: Reader) -> None: ...
    def on_counters(self, reader: Reader, counters: UartCounters) -> None: ...


def make_reader(name: str, device: str, budget: RingBudget) -> tuple[Reader, Ring]:
    ring = Ring(name, budget)
    return Reader(name, device, PortOptions(), "auto", ring, Nobody()), ring


def chunks_of(size: int) -> list[bytes]:
    text = LINE * (200 * size // len(LINE) + 2)
    return [text[at : at + size] for at in range(0, len(text) - size, size)]


def numbering(size: int) -> Result:
    """The loop's part for one port, the writer emulated by taking everything."""
    reader, ring = make_reader("p", "/dev/null", RingBudget())
    reader.number_from(1, 0)
    chunks = chunks_of(size)
    rounds = max(1, 200_000_000 // (len(chunks) * size))
    began, cpu = time.perf_counter(), time.process_time()
    for _ in range(rounds):
        for chunk in chunks:
            reader._on_bytes(chunk, time.monotonic_ns())
        ring.settle(written_bytes=sum(len(c.data) for c in ring.take() if hasattr(c, "data")))
    took, cpu = time.perf_counter() - began, time.process_time() - cpu
    count = rounds * len(chunks)
    return result(f"ring and numbering, {size} B", count * size, took, cpu, count, ring.lost_bytes)


async def writing(size: int, folder: Path) -> Result:
    """Numbering on the loop and the writer's thread beside it, as fast as they go."""
    writer = LogWriter(folder, lambda port, problem: print(port, problem))
    reader, ring = make_reader("p", "/dev/null", RingBudget())
    writer.attach(ring)
    writer.start()
    reader.number_from(1, 0)
    chunks = chunks_of(size)
    rounds = max(1, 300_000_000 // (len(chunks) * size))
    began, cpu = time.perf_counter(), time.process_time()
    for _ in range(rounds):
        for chunk in chunks:
            reader._on_bytes(chunk, time.monotonic_ns())
        while ring.unwritten_bytes > 4_000_000:
            await asyncio.sleep(0.001)
    await writer.stop()
    took, cpu = time.perf_counter() - began, time.process_time() - cpu
    count = rounds * len(chunks)
    return result(f"with the log writer, {size} B", count * size, took, cpu, count, ring.lost_bytes)


async def from_ptys(ports: int, rate: int | None, seconds: float, folder: Path) -> Result:
    """Ptys -> driver -> ring -> log; `rate`: bytes/s of each, None flat out."""
    budget = RingBudget()
    writer = LogWriter(folder, lambda port, problem: print(port, problem))
    writer.start()
    masters, readers, rings = [], [], []
    for index in range(ports):
        master, slave = os.openpty()
        tty.setraw(slave)
        os.set_blocking(master, False)
        reader, ring = make_reader(f"p{index}", os.ttyname(slave), budget)
        os.close(slave)
        masters.append(master)
        readers.append(reader)
        rings.append(ring)
        writer.attach(ring)
    async with asyncio.TaskGroup() as tasks:
        jobs = [tasks.create_task(r.keep_open()) for r in readers]
        while not all(r.state == "up" for r in readers):
            await asyncio.sleep(0.01)
        for reader in readers:
            reader.number_from(1, 0)
        out, into = os.pipe()
        child = os.fork()
        if child == 0:
            os.close(out)
            boards(masters, rate, seconds, into)
            os._exit(0)
        os.close(into)
        began, cpu = time.perf_counter(), time.process_time()
        worst = 0.0
        told = b""
        os.set_blocking(out, False)
        while True:
            at = time.perf_counter()
            await asyncio.sleep(0.005)
            worst = max(worst, time.perf_counter() - at - 0.005)
            try:
                part = os.read(out, 65536)
            except BlockingIOError:
                continue
            if not part:
                break
            told += part
        os.waitpid(child, 0)
        sent = json.loads(told)
        while sum(r.stats.rx_bytes for r in readers) < sum(s["bytes"] for s in sent):
            await asyncio.sleep(0.001)
        took, cpu = time.perf_counter() - began, time.process_time() - cpu
        for job in jobs:
            job.cancel()
    await writer.stop()
    os.close(out)
    lost = 0
    for index, board in enumerate(sent):
        digest = hashlib.sha256()
        for path in log_files(folder / f"p{index}"):
            digest.update(path.read_bytes())
        lost += digest.hexdigest() != board["sha256"]
    for master in masters:
        os.close(master)
    total = sum(r.stats.rx_bytes for r in readers)
    name = f"{ports} ptys, " + ("flat out" if rate is None else f"{rate * ports / 1e6:.1f} MB/s")
    print(f"  {name}: latest turn of the loop {worst * 1e3:.1f} ms, {lost} logs differ")
    return result(name, total, took, cpu, 0, sum(r.lost_bytes for r in rings))


def boards(masters: list[int], rate: int | None, seconds: float, into: int) -> None:
    """Print on every pty; tell how many bytes of which hash at the end."""
    block = LINE * 40
    hashes = [hashlib.sha256() for _ in masters]
    counts = [0] * len(masters)
    began = time.perf_counter()
    while (now := time.perf_counter() - began) < seconds:
        is_idle = True
        for index, master in enumerate(masters):
            at = counts[index] % len(block)
            due = len(block) if rate is None else int(now * rate) - counts[index]
            if due <= 0:
                continue
            try:
                written = os.write(master, block[at : at + due])
            except BlockingIOError:
                continue
            hashes[index].update(block[at : at + written])
            counts[index] += written
            is_idle = False
        if rate is not None or is_idle:
            time.sleep(0.002)
    told = [{"bytes": n, "sha256": h.hexdigest()} for n, h in zip(counts, hashes, strict=True)]
    os.write(into, json.dumps(told).encode())


def result(what: str, size: int, took: float, cpu: float, chunks: int, lost: int) -> Result:
    return Result(
        what,
        size / took / 1e6,
        cpu / took,
        size / cpu / 1e6,
        took / chunks * 1e6 if chunks else 0,
        lost,
    )


async def main(seconds: float) -> list[Result]:
    found = [numbering(size) for size in (256, 1024, 4096, 65536)]
    with tempfile.TemporaryDirectory(dir=".") as folder:
        for size in (1024, 4096):
            found.append(await writing(size, Path(folder) / f"w{size}"))
        found.append(await from_ptys(32, 300_000, seconds, Path(folder) / "paced"))
        found.append(await from_ptys(32, None, seconds, Path(folder) / "flat"))
        found.append(await from_ptys(1, None, seconds, Path(folder) / "one"))
    return found


if __name__ == "__main__":
    results = asyncio.run(main(float(sys.argv[1]) if len(sys.argv) > 1 else 5.0))
    print(f"{'':32}{'MB/s':>8}{'CPU':>7}{'MB/CPU s':>10}{'us/chunk':>10}{'lost':>8}")
    for r in results:
        print(
            f"{r.what:32}{r.mb_per_s:8.1f}{r.cpu_share:7.0%}{r.mb_per_cpu_s:10.1f}"
            f"{r.us_per_chunk:10.2f}{r.lost_bytes:8}"
        )
    print(json.dumps([asdict(r) for r in results]))
