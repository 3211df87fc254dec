"""Boards that do nothing but fail: many faults a second, and what a daemon made of them."""

from __future__ import annotations

import hashlib
import os
import re
import time
from collections import Counter
from dataclasses import dataclass
from pathlib import Path

from bench_cable import Cable
from running_daemon import RunningDaemon, running

KEYS = 4  # different faults a board has
RULE = "linux.irq_nobody_cared"
ORDINARY = 2  # lines before each fault


@dataclass(frozen=True)
class Load:
    """What went in and what came out."""

    hits: int  # printed
    counted: int  # by the metrics
    stored: int  # in the table of hits
    most_open: int  # incidents of one port and key
    missing_bytes: int
    lateness_s: float  # bound of the bucket with the 99th percentile
    machine_late_s: float  # 99th percentile of our own sleeps: what the machine does to anybody
    took_s: float
    cpu_s: float


def fault_load(folder: Path, ports: int, hits_per_s: int, seconds: float) -> Load:
    """Run a daemon under this load and return what it made of it."""
    cables = [Cable(folder, f"board{n}") for n in range(ports)]
    try:
        names = {f"p{n}": str(cable.path) for n, cable in enumerate(cables)}
        with running(folder, names) as daemon:
            return _measured(daemon, cables, hits_per_s, seconds)
    finally:
        for cable in cables:
            cable.close()


def _measured(daemon: RunningDaemon, cables: list[Cable], hits_per_s: int, seconds: float) -> Load:
    before, cpu_s = _lateness(daemon), _cpu_s(daemon)
    began = time.monotonic()
    sent, machine_late_s = _print_faults(cables, hits_per_s, seconds)
    took_s = time.monotonic() - began
    hits = sum(text.count(b"nobody cared") for text in sent)
    for n, text in enumerate(sent):
        daemon.wait_for(lambda n=n, text=text: len(daemon.saved(f"p{n}")) >= len(text), "log")
    cpu_s = _cpu_s(daemon) - cpu_s
    lateness_s = _percentile(_lateness(daemon) - before, 0.99)
    daemon.wait_for(lambda: _stored(daemon) >= hits, f"all of {hits} hits in the table")
    open_now = Counter((i["port"], i["trigger"], i["key"]) for i in daemon.incidents())
    return Load(
        hits=hits,
        counted=_counted(daemon),
        stored=_stored(daemon),
        most_open=max(open_now.values(), default=0),
        missing_bytes=sum(_wrong_bytes(daemon, n, text) for n, text in enumerate(sent)),
        lateness_s=lateness_s,
        machine_late_s=machine_late_s,
        took_s=took_s,
        cpu_s=cpu_s,
    )


def _print_faults(
    cables: list[Cable], hits_per_s: int, seconds: float
) -> tuple[list[bytes], float]:
    """Print faults on all boards in turn; return what each printed, and how late we were."""
    sent = [bytearray() for _ in cables]
    began = time.monotonic()
    done = 0
    late_s = []
    while (now_s := time.monotonic() - began) < seconds:
        due = int(now_s * hits_per_s)
        for number in range(done, due):
            board = number % len(cables)
            text = _fault(number, number // len(cables) % KEYS)
            sent[board] += text
            _print(cables[board], text)
        done = max(done, due)
        asleep = time.monotonic()
        time.sleep(0.005)
        late_s.append(time.monotonic() - asleep - 0.005)
    return [bytes(text) for text in sent], sorted(late_s)[len(late_s) * 99 // 100]


def _fault(number: int, key: int) -> bytes:
    stamp = number / 1000
    lines = [f"[{stamp:12.6f}] eth0: link is up, queue {n} ready\r\n" for n in range(ORDINARY)]
    fault = f'[{stamp:12.6f}] irq {40 + key}: nobody cared (try booting with "irqpoll")\r\n'
    return "".join([*lines, fault]).encode()


def _print(cable: Cable, text: bytes) -> None:
    while text:
        try:
            text = text[os.write(cable.board, text) :]
        except BlockingIOError:
            time.sleep(0.001)


def _stored(daemon: RunningDaemon) -> int:
    (row,) = daemon.rows('SELECT coalesce(sum(count), 0) FROM hits WHERE "trigger" = ?', RULE)
    return int(row[0])


def _counted(daemon: RunningDaemon) -> int:
    found = re.search(rf'serialwatch_rule_hits_total{{rule="{RULE}"}} (\S+)', _metrics(daemon))
    return int(float(found.group(1))) if found else 0


def _lateness(daemon: RunningDaemon) -> Counter[float]:
    """Return how many turns of the loop were at most so late, by bound."""
    found = re.findall(
        r'serialwatch_loop_lateness_seconds_bucket{le="([^"]+)"} (\S+)', _metrics(daemon)
    )
    return Counter({float(bound): int(float(count)) for bound, count in found})


def _percentile(turns: Counter[float], part: float) -> float:
    return min(bound for bound, count in turns.items() if count >= part * max(turns.values()))


def _metrics(daemon: RunningDaemon) -> str:
    return daemon.get("/metrics", is_json=False).decode()


def _cpu_s(daemon: RunningDaemon) -> float:
    stat = Path(f"/proc/{daemon.process.pid}/stat").read_text().rpartition(")")[2].split()
    return (int(stat[11]) + int(stat[12])) / os.sysconf("SC_CLK_TCK")


def _wrong_bytes(daemon: RunningDaemon, n: int, text: bytes) -> int:
    saved = daemon.saved(f"p{n}")
    if hashlib.sha256(saved).digest() == hashlib.sha256(text).digest():
        return 0
    return max(1, abs(len(text) - len(saved)))
