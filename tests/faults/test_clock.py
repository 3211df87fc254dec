"""A wall clock that is set while boards print."""

from __future__ import annotations

import shutil
import subprocess
import sys
import time
from itertools import pairwise
from pathlib import Path

import pytest
from fault_bed import Printing, Tell, lateness, latest_between, rss_kib

from bench_cable import Cable
from running_daemon import RunningDaemon, running
from serialwatch.store.log_reader import PortLog

pytestmark = pytest.mark.faults

SET_CLOCK = Path(__file__).parent / "set_clock.c"
CC = shutil.which("cc")
HOUR, YEAR = 3600, 365 * 86400
STEPS = (-HOUR, HOUR, YEAR, 0, -YEAR, 0)  # seconds against the real clock
SETTLE_S = 5.0  # after the last hit of an incident
POLL_S = 0.02


@pytest.mark.skipif(CC is None, reason="no C compiler")
def test_a_clock_that_is_set_disturbs_no_timer(cable: Cable, tmp_path: Path, tell: Tell) -> None:
    assert CC is not None
    shim = tmp_path / "set_clock.so"
    subprocess.run([CC, "-shared", "-fPIC", "-O2", "-o", shim, SET_CLOCK, "-ldl"], check=True)
    step = tmp_path / "step"
    step.write_bytes(bytes(8))
    env = {"LD_PRELOAD": str(shim), "SET_CLOCK_FILE": str(step)}
    late_s: list[float] = []
    with running(tmp_path, {"dut1": str(cable.path)}, env=env) as daemon:
        daemon.wait_for(lambda: daemon.get("/v1/ports")["ports"][0]["state"] == "up", "the port")
        with Printing(cable, 20_000):
            _settled_after(daemon, cable, 40, step, 0)  # what is done once is done
            start, rss = lateness(daemon), rss_kib(daemon)
            usual_s = [_settled_after(daemon, cable, n, step, 0) for n in (41, 42, 43)]
            before = lateness(daemon)
            for number, offset in enumerate(STEPS, 44):
                settled_s = _settled_after(daemon, cable, number, step, offset)
                late_s.append(settled_s - min(usual_s))  # the way into the database is not a timer
            turns = lateness(daemon)
            grown = rss_kib(daemon) - rss
        machine_s = latest_between(start, before)  # what this machine does to the loop anyway
        worst_s = latest_between(before, turns)
        lines = list(PortLog(daemon.state / "log" / "dut1", "dut1").lines())
        rows = daemon.rows("SELECT first_seq FROM hits ORDER BY incident_id")
    disordered = sum(a.seq >= b.seq or a.mono_ns > b.mono_ns for a, b in pairwise(lines))
    disordered += sum(a > b for a, b in pairwise(rows))
    spread_s = max(usual_s) - min(usual_s)
    years = {time.gmtime(line.utc_ns / 1e9).tm_year for line in lines}
    tell(
        8,
        "clock set by an hour and a year, 6 steps",
        f"timers late at most {max(late_s) * 1000:.0f} ms (with no step {spread_s * 1000:.0f}), loop late "
        f"at most {worst_s * 1000:g} ms (with no step {machine_s * 1000:g}), rows out of order {disordered}, memory {grown / 1024:+.1f} MB",
        "timers late at most 100 ms, loop at most 50 ms",
        max(late_s) <= 0.1 + POLL_S and worst_s <= 0.05,
    )

    assert len(years) == 3, "the clock was not set"
    assert disordered == 0


def _settled_after(
    daemon: RunningDaemon, cable: Cable, number: int, step: Path, offset: int
) -> float:
    """Print a fault, set the clock, return how late its incident has settled."""
    cable.prints(b'\r\nirq %d: nobody cared (try booting with "irqpoll")\r\n' % number)
    printed_s = time.monotonic()
    found = daemon.wait_for(
        lambda: next((i for i in daemon.incidents("dut1") if i["key"] == str(number)), None),
        "an incident",
    )
    with step.open("r+b") as file:
        file.write(offset.to_bytes(8, sys.byteorder, signed=True))
    end_s = printed_s + 20
    while time.monotonic() < end_s:
        if daemon.rows("SELECT is_settled FROM incidents WHERE id = ?", found["id"]) == [(1,)]:
            return time.monotonic() - printed_s - SETTLE_S
        time.sleep(POLL_S)
    return 20.0
