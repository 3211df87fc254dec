"""A wall clock that is set while boards print."""

from __future__ import annotations

import time
from pathlib import Path

import pytest

from bench_cable import Cable
from fault_bed import Printing, Tell, latest_between, lateness, rss_kib
from running_daemon import RunningDaemon, running
from serialwatch.store.log_reader import PortLog

pytestmark = pytest.mark.faults

FAKETIME = next(Path("/usr/lib").glob("*/faketime/libfaketimeMT.so.1"), None)
HOUR, YEAR = 3600, 365 * 86400
STEPS = (-HOUR, HOUR, YEAR, 0, -YEAR, 0)  # seconds against the real clock
SETTLE_S = 5.0  # after the last hit of an incident
POLL_S = 0.02


@pytest.mark.skipif(FAKETIME is None, reason="libfaketime is not installed (apt)")
def test_a_clock_that_is_set_disturbs_no_timer(cable: Cable, tmp_path: Path, tell: Tell) -> None:
    step = tmp_path / "step"
    step.write_text("+0")
    env = {
        "LD_PRELOAD": str(FAKETIME),
        "FAKETIME_TIMESTAMP_FILE": str(step),
        "FAKETIME_NO_CACHE": "1",
        "FAKETIME_DONT_FAKE_MONOTONIC": "1",
        "FAKETIME_DONT_RESET": "1",
    }
    late_s: list[float] = []
    with running(tmp_path, {"dut1": str(cable.path)}, env=env) as daemon:
        daemon.wait_for(lambda: daemon.get("/v1/ports")["ports"][0]["state"] == "up", "the port")
        with Printing(cable, 20_000):
            _settled_after(daemon, cable, 40, step, 0)  # what is done once is done
            before, rss = lateness(daemon), rss_kib(daemon)
            for number, offset in enumerate(STEPS):
                late_s.append(_settled_after(daemon, cable, 41 + number, step, offset))
            turns = lateness(daemon)
            grown = rss_kib(daemon) - rss
        worst_s, most_s = latest_between(before, turns), latest_between(before, turns, 0.999)
        lines = list(PortLog(daemon.state / "log" / "dut1", "dut1").lines())
        rows = daemon.rows("SELECT seq FROM hits WHERE port = 'dut1' ORDER BY id")
    disordered = sum(a.seq >= b.seq or a.mono_ns > b.mono_ns for a, b in zip(lines, lines[1:]))
    disordered += sum(a > b for a, b in zip(rows, rows[1:]))
    years = {time.gmtime(line.utc_ns / 1e9).tm_year for line in lines}
    tell(
        8,
        "clock set by an hour and a year, 6 steps",
        f"timers late at most {max(late_s) * 1000:.0f} ms, loop late at most {worst_s * 1000:g} ms "
        f"(99.9 %: {most_s * 1000:g}), rows out of order {disordered}, memory {grown / 1024:+.1f} MB",
    )

    assert len(years) == 3, "the clock was not set"
    assert max(late_s) <= 0.1 + POLL_S
    assert most_s <= 0.05
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
    step.write_text(f"{offset:+d}s")
    end_s = printed_s + 20
    while time.monotonic() < end_s:
        if daemon.get(f"/v1/incidents/{found['id']}")["incident"]["settled"]:
            return time.monotonic() - printed_s - SETTLE_S
        time.sleep(POLL_S)
    return 20.0
