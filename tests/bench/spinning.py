"""Skills that spin on every core: how late capture's loop turns, with them and without.

`python tests/bench/spinning.py [--json] [--seconds 60]`

The skills run in real workers below a process that lowers itself as the agent does; boards print
at 115200 Bd meanwhile. What the machine does to anybody is measured beside it.
"""

from __future__ import annotations

import argparse
import json
import multiprocessing
import multiprocessing.synchronize
import os
import statistics
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from run import Figure

from bench_cable import Cable
from fault_load import _lateness, _percentile
from running_daemon import RunningDaemon, running
from skill_maker import make_skill

PORTS = 4
LINE = b"[   12.345678] usb 1-1: new high-speed device number 7 using ehci, all is well\r\n"
STEP_S = 0.01
BYTES_A_STEP = 115  # of 115200 Bd
GOAL_MS = 20.0


def spinning(seconds: float) -> Iterator[Figure]:
    with tempfile.TemporaryDirectory(prefix="serialwatch-spin-") as name, ExitStack() as open_now:
        folder = Path(name)
        cables = [Cable(folder, f"board{n}") for n in range(PORTS)]
        for cable in cables:
            open_now.callback(cable.close)
        ports = {f"p{n}": str(cable.path) for n, cable in enumerate(cables)}
        daemon = open_now.enter_context(running(folder, ports))
        quiet = _measured(daemon, cables, seconds)
        fork = multiprocessing.get_context("spawn")
        begun, ended = fork.Event(), fork.Event()
        spinner = fork.Process(target=_spin, args=(folder / "skills", begun, ended))
        spinner.start()
        try:
            begun.wait(20)
            loaded = _measured(daemon, cables, seconds)
        finally:
            ended.set()
            spinner.join(20)
            if spinner.is_alive():
                spinner.kill()
        for what, (late_ms, machine_ms, lost) in (("quiet", quiet), ("spinning skills", loaded)):
            is_met = late_ms <= GOAL_MS
            yield Figure(f"{what}: loop late, 99.9 %", late_ms, "ms", f"<= {GOAL_MS:g}", is_met)
            yield Figure(f"{what}: machine late, 99.9 %", machine_ms, "ms", "", True)
            yield Figure(f"{what}: bytes lost", lost, "B", "0", lost == 0)


def _measured(
    daemon: RunningDaemon, cables: list[Cable], seconds: float
) -> tuple[float, float, int]:
    """Return how late the daemon's loop and we ourselves were, in ms, and what was lost."""
    before: Counter[float] = _lateness(daemon)
    saved = len(daemon.saved("p0"))
    text = LINE * (int(seconds / STEP_S) * BYTES_A_STEP // len(LINE) + 2)
    sent, late_s = 0, []
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        for cable in cables:
            os.write(cable.board, text[sent : sent + BYTES_A_STEP])
        sent += BYTES_A_STEP
        asleep = time.monotonic()
        time.sleep(STEP_S)
        late_s.append(time.monotonic() - asleep - STEP_S)
    late_ms = _percentile(_lateness(daemon) - before, 0.999) * 1000
    machine_ms = statistics.quantiles(late_s, n=1000, method="inclusive")[-1] * 1000
    time.sleep(1)  # the log writer has its own pace
    return late_ms, machine_ms, sent - (len(daemon.saved("p0")) - saved)


def _spin(
    skills: Path,
    begun: multiprocessing.synchronize.Event,
    ended: multiprocessing.synchronize.Event,
) -> None:
    """Have a spinning skill on every core, from a process that is as low as the agent."""
    import asyncio

    from serialwatch.agent.__main__ import NICE
    from serialwatch.agent.workers.worker import Workers
    from skill_run import opened_run

    os.nice(NICE)
    os.sched_setscheduler(0, os.SCHED_BATCH, os.sched_param(0))
    make_skill(skills, "spin-round", "while True: pass", timeout_s="3")
    cores = os.cpu_count() or 1

    async def spin() -> None:
        async with Workers() as workers:
            while not ended.is_set():
                with opened_run([skills]) as ctx:  # a new circle of workers: nothing rests
                    calls = [workers.run("spin-round", {}, ctx, 2.5) for _ in range(cores)]
                    begun.set()
                    await asyncio.gather(*calls)

    asyncio.run(spin())


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--json", action="store_true", help="print JSON alone")
    parser.add_argument("--seconds", type=float, default=60.0, help="of each measurement")
    asked = parser.parse_args()
    figures = list(spinning(asked.seconds))
    if asked.json:
        print(json.dumps({"figures": [figure.__dict__ for figure in figures]}))
    else:
        print("\n".join(figure.row() for figure in figures))
    sys.exit(0 if all(figure.is_met for figure in figures) else 1)


if __name__ == "__main__":
    main()
