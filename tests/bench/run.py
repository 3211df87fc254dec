"""`make bench`: the figures of a real daemon over ptys, as a table, and as JSON with --json.

Boards are ptys fed by this process; the daemon is `serialwatch run` in a process of its own, with
logging on and all rules. CPU is what that process used, as a share of one core.
"""

from __future__ import annotations

import argparse
import asyncio
import hashlib
import json
import multiprocessing
import multiprocessing.connection
import os
import random
import re
import select
import signal
import statistics
import subprocess
import sys
import tempfile
import time
import tty
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import aiohttp

# The programs that are timed start from modules that are compiled, as a user's do.
os.environ.pop("PYTHONDONTWRITEBYTECODE", None)

PORTS = 32
RATE = 300_000  # bytes/s a port: 3 Mbit/s on the wire
FAULTS = 128  # whose way to an incident is timed
SETTLE_S = 3.0  # the start is measured by itself
WARM_UP_S = 2.0  # at the full rate: then each port's memory is as large as it gets
LATEST_S = 30.0  # for the last byte to be in the log
TICKS = os.sysconf("SC_CLK_TCK")


@dataclass(frozen=True)
class Figure:
    name: str
    value: float
    unit: str
    goal: str
    is_met: bool

    def row(self) -> str:
        mark = "" if self.is_met else "   MISSED"
        return f"{self.name:42} {self.value:10.2f} {self.unit:12} {self.goal}{mark}"


class Boards:
    """Ptys that stand for boards."""

    def __init__(self, folder: Path, count: int) -> None:
        self.masters: list[int] = []
        self._slaves: list[int] = []
        self.paths: list[Path] = []
        for n in range(count):
            master, slave = os.openpty()
            tty.setraw(slave)
            os.set_blocking(master, False)
            path = folder / f"board{n:02}"
            path.symlink_to(os.ttyname(slave))
            self.masters.append(master)
            self._slaves.append(slave)
            self.paths.append(path)

    def close(self) -> None:
        for fd in (*self.masters, *self._slaves):
            os.close(fd)


class Daemon:
    """`serialwatch run` with one port a board."""

    def __init__(self, folder: Path, boards: Boards) -> None:
        self.state = folder / "state"
        self.socket = folder / "run" / "serialwatch.sock"
        config = [
            f'[daemon]\nstate_dir = "{self.state}"\nrun_dir = "{folder / "run"}"\n[api]\nlisten = ""\n'
        ]
        config += [
            f'[port.p{n:02}]\ndevice = "{path}"\nbit_rate = 3000000\n'
            for n, path in enumerate(boards.paths)
        ]
        (folder / "bench.toml").write_text("".join(config))
        self.started = time.monotonic()
        self.process = subprocess.Popen(
            [sys.executable, "-m", "serialwatch", "run", "-c", folder / "bench.toml"],
            stdout=subprocess.DEVNULL,
            stderr=(folder / "daemon.log").open("wb"),
        )
        self._log = folder / "daemon.log"

    def log_bytes(self) -> int:
        return sum(p.stat().st_size for p in self.state.glob("log/*/*.log"))

    def log_of(self, n: int) -> bytes:
        files = sorted(
            (self.state / "log" / f"p{n:02}").glob("*.log"), key=lambda p: p.stem.rsplit("-", 1)[1]
        )
        return b"".join(p.read_bytes() for p in files)

    def cpu_s(self) -> float:
        parts = Path(f"/proc/{self.process.pid}/stat").read_text().rpartition(")")[2].split()
        return (int(parts[11]) + int(parts[12])) / TICKS

    def is_alive(self) -> bool:
        return self.process.poll() is None

    def story(self, logged: int, total: int) -> str:
        """Return what tells bytes that are lost from bytes that are late: it goes on a while."""
        lines = [f"{total - logged} of {total} bytes are not in the logs after {LATEST_S:g} s"]
        if self.is_alive():
            time.sleep(5)
            lines.append(f"5 s later: {total - self.log_bytes()}")
            metrics = asyncio.run(self._metrics())
            asked = r"serialwatch_(?:rx_bytes|lost_bytes|ring_|unwritten|log_)\S*\{?.* [1-9].*"
            lines += re.findall(rf"^{asked}$", metrics, re.MULTILINE)
        else:
            lines.append(f"the daemon has ended: {self.process.returncode}")
        return "\n".join([*lines, self._log.read_text()[-3000:]])

    async def _metrics(self) -> str:
        connector = aiohttp.UnixConnector(str(self.socket))
        async with (
            aiohttp.ClientSession(connector=connector) as session,
            session.get("http://serialwatch/metrics") as answer,
        ):
            return await answer.text()

    def rss_mb(self) -> float:
        text = Path(f"/proc/{self.process.pid}/status").read_text()
        return int(re.search(r"VmRSS:\s+(\d+)", text).group(1)) / 1024

    def wait(self, what: str, is_there: object, limit_s: float) -> float:
        end = time.monotonic() + limit_s
        while not is_there():
            if not self.is_alive() or time.monotonic() > end:
                raise SystemExit(f"{what}: not within {limit_s} s\n{self._log.read_text()[-3000:]}")
            time.sleep(0.005)
        return time.monotonic() - self.started

    def wait_until_settled(self) -> None:
        """Wait for the socket, and until the agent and what else it starts with no longer load us."""
        self.wait("socket", self.socket.exists, 30)
        time.sleep(SETTLE_S)

    def stop(self) -> None:
        if self.is_alive():
            self.process.send_signal(signal.SIGTERM)
            try:
                self.process.wait(20)
            except subprocess.TimeoutExpired:
                self.process.kill()
                self.process.wait()


@contextmanager
def bench(count: int = PORTS) -> Iterator[tuple[Boards, Daemon]]:
    with tempfile.TemporaryDirectory(prefix="serialwatch-bench-") as name:
        folder = Path(name)
        os.sync()  # what the part before has written is not this one's load
        boards = Boards(folder, count)
        daemon = Daemon(folder, boards)
        try:
            yield boards, daemon
        finally:
            daemon.stop()
            boards.close()


def ordinary_text(seed: int, size: int) -> bytes:
    """Return console text without faults: kernel lines of ordinary lengths."""
    rng = random.Random(seed)
    words = [
        "clk",
        "phy",
        "link",
        "up",
        "rx",
        "tx",
        "queue",
        "reg",
        "probe",
        "ok",
        "state",
        "ready",
        "dma",
        "buf",
        "page",
        "node",
        "gpio",
        "pin",
    ]
    out, n = bytearray(), 0.0
    while len(out) < size:
        n += rng.random() / 50
        text = " ".join(rng.choice(words) for _ in range(rng.randint(4, 14)))
        out += f"[{n:12.6f}] dev{rng.randint(0, 9)}: {text}\r\n".encode()
    return bytes(out[:size])


def feed(boards: Boards, texts: list[bytes], rate: int | None, seconds: float) -> list[bytes]:
    """Write to every board at `rate` bytes/s (None: as fast as it is read); return what was sent."""
    sent = [bytearray() for _ in texts]
    began = time.monotonic()
    poll = select.poll()
    by_fd = {fd: n for n, fd in enumerate(boards.masters)}
    for fd in boards.masters:
        poll.register(fd, select.POLLOUT)
    while (now := time.monotonic() - began) < seconds:
        if rate is None:
            ready = [by_fd[fd] for fd, _ in poll.poll(50)]
        else:
            ready = [n for n in range(len(texts)) if len(sent[n]) < rate * now - 2048]
            if not ready:
                time.sleep(0.002)
                continue
        for n in ready:
            at = len(sent[n]) % len(texts[n])
            size = 16384 if rate is None else max(1, int(rate * now) - len(sent[n]))
            part = texts[n][at : at + size]
            try:
                done = os.write(boards.masters[n], part)
            except BlockingIOError:
                continue
            sent[n] += part[:done]
    return [bytes(s) for s in sent]


def lost(daemon: Daemon, sent: list[bytes]) -> int:
    """Return how many bytes are missing or wrong in the logs; tell why on stderr if any are."""
    end = time.monotonic() + LATEST_S
    total = sum(map(len, sent))
    while (logged := daemon.log_bytes()) < total and time.monotonic() < end and daemon.is_alive():
        time.sleep(0.02)
    missing = 0
    for n, data in enumerate(sent):
        got = daemon.log_of(n)
        if hashlib.sha256(got).digest() != hashlib.sha256(data).digest():
            missing += max(1, abs(len(data) - len(got)))
    if missing:
        print(daemon.story(logged, total), file=sys.stderr)
    return missing


def start_up() -> Iterator[Figure]:
    with bench() as (boards, daemon):
        for master in boards.masters:
            os.write(master, b"tick\r\n")
        logs = daemon.state / "log"
        first = daemon.wait(
            "first byte", lambda: any(logs.glob("*/*.log")) and daemon.log_bytes(), 20
        )
        every = daemon.wait("all ports", lambda: daemon.log_bytes() >= 6 * PORTS, 20)
        yield Figure("start to first captured byte, 32 ports", first, "s", "< 1", first < 1)
        yield Figure("start to every port captured", every, "s", "", True)


def at_rate(seconds: float) -> Iterator[Figure]:
    with bench() as (boards, daemon):
        daemon.wait_until_settled()
        texts = [ordinary_text(n, 1_000_000) for n in range(PORTS)]
        early = feed(boards, texts, RATE, WARM_UP_S)
        cpu, began = daemon.cpu_s(), time.monotonic()
        sent = feed(boards, texts, RATE, seconds)
        took = time.monotonic() - began
        missing = lost(daemon, [a + b for a, b in zip(early, sent, strict=True)])
        share = (daemon.cpu_s() - cpu) / took * 100
        rate = sum(map(len, sent)) / took / 1e6
        yield Figure("32 ports at 3 Mbit/s: read", rate, "MB/s", ">= 9.5", rate >= 9.5)
        yield Figure("32 ports at 3 Mbit/s: bytes lost", missing, "B", "0", missing == 0)
        yield Figure("32 ports at 3 Mbit/s: CPU", share, "% of a core", "< 25", share < 25)
        yield Figure("32 ports at 3 Mbit/s: memory", daemon.rss_mb(), "MB", "", True)


def flat_out(seconds: float) -> Iterator[Figure]:
    """As fast as it is read: a `cat` a board, so that writing costs this machine little."""
    with bench() as (boards, daemon):
        daemon.wait_until_settled()
        size = int(seconds * 1_500_000)  # bytes a board
        sent = [ordinary_text(n, 1_000_000) * (size // 1_000_000) for n in range(PORTS)]
        files = [path.with_suffix(".txt") for path in boards.paths]
        for file, data in zip(files, sent, strict=True):
            file.write_bytes(data)
        for master in boards.masters:
            os.set_blocking(master, True)
        cpu, began = daemon.cpu_s(), time.monotonic()
        cats = [
            subprocess.Popen(["cat", file], stdout=master)
            for file, master in zip(files, boards.masters, strict=True)
        ]
        for cat in cats:
            cat.wait()
        missing = lost(daemon, sent)
        took = time.monotonic() - began
        used = daemon.cpu_s() - cpu
        rate = sum(map(len, sent)) / took / 1e6
        yield Figure("flat out: read, matched and logged", rate, "MB/s", ">= 40", rate >= 40)
        per_cpu = sum(map(len, sent)) / used / 1e6
        yield Figure("flat out: per CPU second", per_cpu, "MB", ">= 60", per_cpu >= 60)
        yield Figure("flat out: bytes lost", missing, "B", "0", missing == 0)


def latency(seconds: float) -> Iterator[Figure]:
    with bench() as (boards, daemon):
        daemon.wait_until_settled()
        waits = asyncio.run(_faults(boards, daemon, max(seconds, 30)))
        waits.sort()
        p99 = statistics.quantiles(waits, n=100, method="inclusive")[98] * 1000
        yield Figure(
            "last byte to incident, median", statistics.median(waits) * 1000, "ms", "", True
        )
        yield Figure("last byte to incident, 99 %", p99, "ms", "< 10", p99 < 10)
        yield Figure(
            "last byte to incident, incidents", len(waits), "", f"{FAULTS}", len(waits) == FAULTS
        )


async def _faults(boards: Boards, daemon: Daemon, seconds: float) -> list[float]:
    """Let every board report a fault of its own while all print at the full rate."""
    opened: dict[tuple[str, str], float] = {}

    async def follow(ws: aiohttp.ClientWebSocketResponse) -> None:
        async for message in ws:
            event = json.loads(message.data)
            if event["kind"] == "incident.opened":
                opened[event["port"], event["data"]["key"]] = time.time()

    ours, theirs = multiprocessing.Pipe()
    fork = multiprocessing.get_context("fork")
    feeder = fork.Process(target=_feed_faults, args=(boards, daemon, seconds, theirs))
    async with (
        aiohttp.ClientSession(connector=aiohttp.UnixConnector(str(daemon.socket))) as session,
        session.ws_connect("http://serialwatch/v1/events") as ws,
    ):
        following = asyncio.create_task(follow(ws))
        feeder.start()
        while feeder.is_alive() and not ours.poll():
            await asyncio.sleep(0.1)
        await asyncio.sleep(1)
        following.cancel()
    feeder.join()
    written: dict[tuple[str, str], float] = ours.recv()
    return [max(0.0, opened[fault] - written[fault]) for fault in written if fault in opened]


def _feed_faults(
    boards: Boards, daemon: Daemon, seconds: float, out: multiprocessing.connection.Connection
) -> None:
    """Feed all boards, in a process of its own; tell when the last byte of each fault was taken."""
    written: dict[tuple[str, str], float] = {}
    texts = [ordinary_text(n, 1_000_000) for n in range(PORTS)]
    gap = seconds / (FAULTS + 2)
    for n in range(FAULTS):
        feed(boards, texts, RATE, gap)
        port = n % PORTS
        data = b"\r\n[ 9999.000000] irq %d: nobody cared (try booting again)\r\n" % (40 + n)
        while data:
            try:
                data = data[os.write(boards.masters[port], data) :]
            except BlockingIOError:
                time.sleep(0.0005)
        written[f"p{port:02}", str(40 + n)] = time.time()
    feed(boards, texts, RATE, gap)
    out.send(written)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--json", action="store_true", help="print JSON alone")
    parser.add_argument("--seconds", type=float, default=10.0, help="of each measurement")
    asked = parser.parse_args()
    figures: list[Figure] = []
    for part in (
        start_up(), at_rate(asked.seconds), flat_out(asked.seconds), latency(asked.seconds),
    ):  # fmt: skip
        for figure in part:
            figures.append(figure)
            if not asked.json:
                print(figure.row(), flush=True)
    document = {
        "machine": {"cores": os.cpu_count(), "python": sys.version.split()[0]},
        "figures": [figure.__dict__ for figure in figures],
    }
    print(json.dumps(document, indent=None if asked.json else 1))
    sys.exit(0 if all(figure.is_met for figure in figures) else 1)


if __name__ == "__main__":
    main()
