"""serialwatch beside ser2net and tio: CPU seconds per megabyte on the same ptys and the same load.

`python tests/bench/beside.py [--json] [--megabytes 40]`

One run: the same text goes through a pty into each program in turn, a few rounds, with what each
does to keep it: ser2net with its trace file and one client, tio with its log file, serialwatch with
everything it does. Then how its cost grows with the number of ports, and what idle ports cost. CPU
seconds are the kernel's own count: others who use this machine disturb them less than seconds.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import os
import select
import shutil
import socket
import subprocess
import sys
import tempfile
import threading
import time
import tty
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from run import Boards, Daemon, Figure, ordinary_text

PATH = f"{os.environ.get('PATH', '')}:/usr/sbin:/sbin"
SER2NET, TIO = shutil.which("ser2net", path=PATH), shutil.which("tio", path=PATH)
TIMES_SER2NET = 3.0
ROUNDS = 3
GROWTH = (1, 8, 32, 64)
IDLE_PORTS = 64
IDLE_S = 20.0
IDLE_PERCENT, IDLE_MB = 1.0, 150.0
LIMIT_S = 120.0


def beside(megabytes: float) -> Iterator[Figure]:
    """Compare the three."""
    text = ordinary_text(1, 1_000_000) * round(megabytes)
    programs: dict[str, Callable[[bytes], float]] = {"serialwatch": _serialwatch}
    for name, found, run in (("ser2net", SER2NET, _ser2net), ("tio", TIO, _tio)):
        if found:
            programs[name] = run
        else:
            print(f"{name} is not installed (apt-get install {name}): left out", file=sys.stderr)
    best: dict[str, float] = {}
    for _ in range(ROUNDS):  # in turn, so that what others do meets all
        for name, run in programs.items():
            rate = megabytes / run(text)
            best[name] = max(best.get(name, 0.0), rate)
    for name, rate in best.items():
        yield Figure(f"one port, {name}", rate, "MB/CPU s", "", True)
    for name, goal in (("ser2net", TIMES_SER2NET), ("tio", 0.0)):
        if name in best:
            ratio = best["serialwatch"] / best[name]
            told = f">= {goal:g}" if goal else ""
            yield Figure(f"serialwatch against {name}", ratio, "times", told, ratio >= goal)


def growth(megabytes: float) -> Iterator[Figure]:
    """Print the same amount on 1 to 64 ports."""
    for count in GROWTH:
        size = round(megabytes * 1_000_000 / count)
        texts = [ordinary_text(n, min(size, 200_000)) for n in range(count)]
        texts = [(text * (size // len(text) + 1))[:size] for text in texts]
        used, daemon_mb = _measured(texts)
        rate = size * count / used / 1e6
        yield Figure(f"{count} ports, flat out", rate, "MB/CPU s", "", True)
        yield Figure(f"{count} ports, flat out: memory", daemon_mb, "MB", "", True)


def idle() -> Iterator[Figure]:
    """Watch 64 ports that print nothing."""
    with tempfile.TemporaryDirectory(prefix="serialwatch-idle-") as name:
        boards = Boards(Path(name), IDLE_PORTS)
        daemon = Daemon(Path(name), boards)
        try:
            daemon.wait("socket", daemon.socket.exists, 30)
            time.sleep(15)  # compiling, and the 10 s in which a port counts as busy
            used, began = _cpu_s(daemon.process.pid), time.monotonic()
            time.sleep(IDLE_S)
            share = (_cpu_s(daemon.process.pid) - used) / (time.monotonic() - began) * 100
            memory = daemon.rss_mb()
        finally:
            daemon.stop()
            boards.close()
    label = f"{IDLE_PORTS} idle ports"
    yield Figure(f"{label}: CPU", share, "% of a core", f"< {IDLE_PERCENT:g}", share < IDLE_PERCENT)
    yield Figure(f"{label}: memory", memory, "MB", f"< {IDLE_MB:g}", memory < IDLE_MB)


def _measured(texts: list[bytes]) -> tuple[float, float]:
    """Return the CPU seconds that a daemon needs for these texts, one a board, and its memory."""
    with tempfile.TemporaryDirectory(prefix="serialwatch-beside-") as name:
        boards = Boards(Path(name), len(texts))
        daemon = Daemon(Path(name), boards)
        try:
            daemon.wait_until_settled()
            used = _cpu_s(daemon.process.pid)
            _print(boards.masters, texts)
            total = sum(map(len, texts))
            _wait("the log", lambda: daemon.log_bytes() >= total)
            used = _cpu_s(daemon.process.pid) - used
            for n, text in enumerate(texts):
                if hashlib.sha256(daemon.log_of(n)).digest() != hashlib.sha256(text).digest():
                    raise SystemExit(f"board {n}: the log is not what it printed")
            return used, daemon.rss_mb()
        finally:
            daemon.stop()
            boards.close()


def _serialwatch(text: bytes) -> float:
    return _measured([text])[0]


def _ser2net(text: bytes) -> float:
    """Return the CPU seconds of a ser2net that traces to a file and has one client."""
    assert SER2NET is not None
    with tempfile.TemporaryDirectory(prefix="ser2net-") as name, _board() as (master, path):
        trace = Path(name) / "trace"
        number = _free_port()
        config = Path(name) / "ser2net.yaml"
        config.write_text(
            f"connection: &board\n  accepter: tcp,127.0.0.1,{number}\n"
            f"  connector: serialdev,{path},115200n81,local\n"
            f"  options:\n    trace-read: {trace}\n"
        )
        command = [SER2NET, "-n", "-d", "-u", "-c", str(config)]
        with _running(command, subprocess.DEVNULL) as process:
            client = _connected(number)
            with closing(client):
                taken = _Drain(client.fileno())
                time.sleep(0.5)
                used = _cpu_s(process.pid)
                _print([master], [text])
                _wait("the client", lambda: taken.count >= len(text))
                _wait("the trace", lambda: trace.stat().st_size >= len(text))
                used = _cpu_s(process.pid) - used
                taken.stop()
        return used


def _tio(text: bytes) -> float:
    """Return the CPU seconds of a tio that logs to a file and shows on a terminal."""
    assert TIO is not None
    with (
        tempfile.TemporaryDirectory(prefix="tio-") as name,
        _board() as (master, path),
        _board() as (screen, terminal),
    ):
        log = Path(name) / "log"
        fd = os.open(terminal, os.O_RDWR | os.O_NOCTTY)
        taken = _Drain(screen)
        command = [TIO, "--log", "--log-file", str(log), path]
        with _running(command, fd) as process:
            _wait("tio", log.exists)
            time.sleep(0.5)
            used = _cpu_s(process.pid)
            _print([master], [text])
            _wait("the log", lambda: log.stat().st_size >= len(text) * 0.99)
            used = _cpu_s(process.pid) - used
        taken.stop()
        os.close(fd)
        return used


class _Drain:
    """Reads a descriptor in a thread and throws away what comes."""

    def __init__(self, fd: int) -> None:
        self.count = 0
        self._fd = fd
        self._has_to_stop = False
        self._thread = threading.Thread(target=self._read, daemon=True)
        self._thread.start()

    def stop(self) -> None:
        self._has_to_stop = True
        self._thread.join()

    def _read(self) -> None:
        while not self._has_to_stop:
            if select.select([self._fd], [], [], 0.1)[0]:
                try:
                    self.count += len(os.read(self._fd, 1 << 18))
                except OSError:
                    return


@contextmanager
def _board() -> Iterator[tuple[int, str]]:
    master, slave = os.openpty()
    tty.setraw(slave)
    os.set_blocking(master, False)
    try:
        yield master, os.ttyname(slave)
    finally:
        os.close(master)
        os.close(slave)


@contextmanager
def _running(command: list[str], terminal: int) -> Iterator[subprocess.Popen[bytes]]:
    process = subprocess.Popen(command, stdin=terminal, stdout=terminal, stderr=subprocess.DEVNULL)
    try:
        yield process
    finally:
        process.kill()
        process.wait()


def _print(masters: list[int], texts: list[bytes]) -> None:
    """Print all texts, each as fast as it is read."""
    left = {fd: memoryview(text) for fd, text in zip(masters, texts, strict=True)}
    poll = select.poll()
    for fd in left:
        poll.register(fd, select.POLLOUT)
    end = time.monotonic() + LIMIT_S
    while left and time.monotonic() < end:
        for fd, _ in poll.poll(100):
            try:
                left[fd] = left[fd][os.write(fd, left[fd][:65536]) :]
            except BlockingIOError:
                continue
            if not left[fd]:
                poll.unregister(fd)
                del left[fd]
    if left:
        raise SystemExit(f"nobody read all of it within {LIMIT_S:g} s")


def _connected(number: int) -> socket.socket:
    end = time.monotonic() + LIMIT_S
    while True:
        try:
            return socket.create_connection(("127.0.0.1", number))
        except ConnectionRefusedError:
            if time.monotonic() > end:
                raise
            time.sleep(0.05)


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def _wait(what: str, is_so: Callable[[], bool]) -> None:
    end = time.monotonic() + LIMIT_S
    while not is_so():
        if time.monotonic() > end:
            raise SystemExit(f"{what}: not complete within {LIMIT_S:g} s")
        time.sleep(0.01)


def _cpu_s(pid: int) -> float:
    """Return the CPU time of all threads that a process has, to the nanosecond."""
    stats = Path(f"/proc/{pid}/task").glob("*/schedstat")
    return sum(int(stat.read_text().split()[0]) for stat in stats) / 1e9


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--json", action="store_true", help="print JSON alone")
    parser.add_argument("--megabytes", type=float, default=40.0, help="of each measurement")
    asked = parser.parse_args()
    figures: list[Figure] = []
    load = os.getloadavg()[0]
    for part in (beside(asked.megabytes), growth(asked.megabytes), idle()):
        for figure in part:
            figures.append(figure)
            if not asked.json:
                print(figure.row(), flush=True)
    document = {"load_before": load, "figures": [figure.__dict__ for figure in figures]}
    print(json.dumps(document, indent=None if asked.json else 1))
    sys.exit(0 if all(figure.is_met for figure in figures) else 1)


if __name__ == "__main__":
    main()
