"""Faults of the disk and of the database, and ends without warning."""

from __future__ import annotations

import contextlib
import os
import random
import shutil
import signal
import sqlite3
import subprocess
import sys
import time
from contextlib import closing
from itertools import pairwise
from pathlib import Path

import pytest
from fault_bed import (
    LINE_BYTES,
    Printing,
    Tell,
    holes,
    lateness,
    latest_between,
    lost_bytes,
    metric,
    opens_of,
    port,
    small_disk,
)

from bench_cable import Cable
from fault_load import fault_load
from log_feed import Feed
from running_daemon import running
from serialwatch.store.log_appender import LogAppender
from serialwatch.store.log_check import check_port
from serialwatch.store.log_format import log_files
from serialwatch.store.log_reader import PortLog
from serialwatch.store.log_recovery import recover
from serialwatch.store.log_retention import prune
from serialwatch.store.sqlite_file import open_file

pytestmark = pytest.mark.faults

KILLS = int(os.environ.get("FAULT_KILLS", "200"))
HELD_S = float(os.environ.get("FAULT_HELD_S", "60"))  # longer than any wait for a database
LOAD_S = float(os.environ.get("FAULT_LOAD_S", "60"))


def test_kill_9_at_any_moment_loses_nothing_acknowledged(
    cable: Cable, tmp_path: Path, tell: Tell
) -> None:
    rng = random.Random(1)
    marked: set[int] = set()
    kills_s: list[tuple[float, float]] = []  # signal sent, process gone
    sound = 0
    with (
        opens_of(os.path.realpath(cable.path)) as opened_s,
        running(tmp_path, {"dut1": str(cable.path)}) as daemon,
    ):
        with Printing(cable, 100_000) as board:
            for turn in range(KILLS):
                until_s = time.monotonic() + rng.uniform(0, 0.4)
                while time.monotonic() < until_s:
                    status, body = daemon.post(
                        "/v1/ports/dut1/mark", {"text": f"turn {turn}", "kind": "note"}
                    )
                    if status == 200:
                        marked.add(body["id"])
                kill_s = time.monotonic()
                daemon.kill()
                kills_s.append((kill_s, time.monotonic()))
                with closing(sqlite3.connect(daemon.state / "serialwatch.db")) as db:
                    sound += db.execute("PRAGMA integrity_check").fetchone() == ("ok",)
                daemon.start()
        daemon.wait_for(
            lambda: daemon.saved("dut1").endswith(
                b"n=%010d " % (board.sent // 64 - 1) + b"x" * 49 + b"\r\n"
            ),
            "the last line",
        )
        kept = {row[0] for row in daemon.rows("SELECT id FROM markers")}
        noted = {gap.seq for gap in PortLog(daemon.state / "log" / "dut1", "dut1").gaps()}
    lost = holes(daemon.saved("dut1"))
    tails_s = [_age_at_kill(board.sent_at(a * LINE_BYTES), kills_s, opened_s) for a, _ in lost]
    most_s = max(tails_s, default=0.0)
    faults = [
        f
        for c in check_port(daemon.state / "log" / "dut1", "dut1", is_live=False)
        for f in c.faults
    ]
    tell(
        1,
        "kill -9 at any moment",
        f"{KILLS} kills: acknowledged rows lost {len(marked - kept)} of {len(marked)}, "
        f"database sound {sound}/{KILLS}, tails lost {len(lost)} "
        f"(oldest byte {most_s * 1000:.0f} ms old), gaps noted {len(noted)}",
        "no acknowledged row, tails of 50 ms at most",
        most_s <= 0.05,
    )

    assert marked <= kept
    assert sound == KILLS
    assert len(noted) >= len(lost)
    assert faults == []


def _age_at_kill(sent_s: float, kills_s: list[tuple[float, float]], opened_s: list[float]) -> float:
    """Return for how long a byte that a kill took could have been read before.

    What the board printed while nobody had the port open waited in the kernel, not in the daemon.
    """
    for (_, before), (kill, gone) in pairwise([(0.0, 0.0), *kills_s]):
        opened = next((at for at in opened_s if before < at < kill), gone)
        if gone > max(sent_s, opened):
            return max(0.0, kill - max(sent_s, opened))
    return 9.0


def test_a_crash_of_the_pc_costs_only_what_was_not_synced(tmp_path: Path, tell: Tell) -> None:
    rng = random.Random(2)
    good = good_db = 0
    rounds = 50
    for turn in range(rounds):
        feed = Feed()
        folder = tmp_path / f"{turn}" / "dut1"
        appender = LogAppender(folder, feed.ring, bytes(16), rotate_bytes=1 << 20)
        for _ in range(rng.randrange(1, 50)):
            feed.prints(b"line of a board\r\n" * rng.randrange(1, 40), after_ms=rng.choice([1, 30]))
        appender.write(0.0, is_last=False)
        appender.sync(0.0)
        synced = dict(feed.lines)
        (path,) = log_files(folder)
        sizes = [each.stat().st_size for each in (path, path.with_suffix(".idx"))]
        for _ in range(rng.randrange(1, 50)):
            feed.prints(b"and on it goes\r\n" * rng.randrange(1, 40), after_ms=rng.choice([1, 30]))
        appender.write(0.0, is_last=False)
        crashed = tmp_path / f"{turn}-crashed" / "dut1"
        shutil.copytree(folder, crashed)
        appender.write(0.0, is_last=True)
        appender.sync(0.0)
        for each, size in zip((path, path.with_suffix(".idx")), sizes, strict=True):
            copy = crashed / each.name
            # Some file systems keep the new size and not the new bytes.
            keep = rng.randint(size, copy.stat().st_size)
            grown = rng.choice([keep, copy.stat().st_size])
            os.truncate(copy, keep)
            os.truncate(copy, grown)
        highest = recover(crashed, "dut1")
        found = {line.seq: line.raw for line in PortLog(crashed, "dut1").lines()}
        is_whole = all(found.get(seq) == raw for seq, raw in synced.items())
        faults = [f for c in check_port(crashed, "dut1", is_live=False) for f in c.faults]
        good += is_whole and highest >= max(synced) and not faults
        good_db += _survives(tmp_path / f"{turn}.db", rng)
    tell(
        2,
        "the PC crashes (unsynced writes torn)",
        f"log {good}/{rounds}, database {good_db}/{rounds}",
    )

    assert (good, good_db) == (rounds, rounds)


def _survives(path: Path, rng: random.Random) -> bool:
    """Return whether a database has all synced rows after its newest writes were torn."""
    db = open_file(path)
    wal = path.with_name(path.name + "-wal")
    db.execute("CREATE TABLE kept (n INTEGER)")
    for n in range(rng.randrange(1, 60)):
        db.execute("INSERT INTO kept VALUES (?)", [n])
    (before,) = db.execute("SELECT count(*) FROM kept").fetchone()
    size = wal.stat().st_size
    for n in range(rng.randrange(1, 60)):
        db.execute("INSERT INTO kept VALUES (?)", [n])
    crashed = path.with_name("crashed-" + path.name)
    shutil.copy(path, crashed)
    shutil.copy(wal, crashed.with_name(crashed.name + "-wal"))
    db.conn.close()
    os.truncate(crashed.with_name(crashed.name + "-wal"), rng.randint(size, size + 40_000))
    with closing(sqlite3.connect(crashed)) as again:
        is_sound = again.execute("PRAGMA integrity_check").fetchone() == ("ok",)
        return bool(is_sound and again.execute("SELECT count(*) FROM kept").fetchone()[0] >= before)


def test_a_full_disk_that_frees_itself(cable: Cable, tmp_path: Path, tell: Tell) -> None:
    with small_disk(tmp_path, 96) as disk, running(disk, {"dut1": str(cable.path)}) as daemon:
        with Printing(cable, 6_000_000) as board:
            daemon.wait_for(lambda: daemon.saved("dut1"), "a log")
            ballast = disk / "ballast"
            _fill(ballast)
            daemon.wait_for(lambda: port(daemon)["log_problem"], "word of the full disk")
            daemon.wait_for(lambda: lost_bytes(daemon) > 1_000_000, "a loss")
            logged = len(daemon.saved("dut1"))
            ballast.unlink()
            freed_s = time.monotonic()
            daemon.wait_for(lambda: len(daemon.saved("dut1")) > logged, "more log")
            resumed_s = time.monotonic() - freed_s
        daemon.wait_for(
            lambda: len(daemon.saved("dut1")) + lost_bytes(daemon) >= board.sent, "the rest"
        )
        saved, lost = len(daemon.saved("dut1")), lost_bytes(daemon)
        noted = sum(g.lost_bytes for g in PortLog(daemon.state / "log" / "dut1", "dut1").gaps())
        read = port(daemon)["rx_bytes"]
    tell(
        3,
        "disk full, then free again",
        f"logging again after {resumed_s:.1f} s; sent {board.sent:,} = read {read:,} = saved "
        f"{saved:,} + counted {lost:,} (in the log's gaps {noted:,})",
        "each byte saved or counted, logging again within 5 s",
        resumed_s < 5,
    )

    assert read == board.sent == saved + lost
    assert noted == lost


def _fill(ballast: Path) -> None:
    """Take all the room that is left."""
    with contextlib.suppress(OSError), ballast.open("wb", 0) as file:
        while file.write(bytes(1 << 20)):
            pass


@pytest.mark.parametrize(
    ("call", "error"), [("writev", "EIO"), ("writev", "EROFS"), ("fdatasync", "EIO")]
)
def test_a_disk_that_fails_and_heals(
    cable: Cable, tmp_path: Path, tell: Tell, call: str, error: str
) -> None:
    if shutil.which("strace") is None:
        pytest.skip("strace is not installed (apt)")
    with running(tmp_path, {"dut1": str(cable.path)}) as daemon:
        with Printing(cable, 200_000) as board:
            daemon.wait_for(lambda: daemon.saved("dut1"), "a log")
            assert daemon.process is not None
            tracer = subprocess.Popen(
                ["strace", "-f", "-qq", "-o", "/dev/null", "-e", f"trace={call}",
                 "-e", f"inject={call}:error={error}", "-p", str(daemon.process.pid)],
                stderr=subprocess.DEVNULL,
            )  # fmt: skip
            try:
                daemon.wait_for(lambda: port(daemon)["log_problem"], "word of the broken disk")
                told = str(port(daemon)["log_problem"])
            finally:
                tracer.send_signal(signal.SIGINT)
                tracer.wait()
            healed_s = time.monotonic()
            logged = len(daemon.saved("dut1"))
            daemon.wait_for(
                lambda: len(daemon.saved("dut1")) > logged and not port(daemon)["log_problem"],
                "more log",
            )
            healed_s = time.monotonic() - healed_s
        daemon.wait_for(
            lambda: len(daemon.saved("dut1")) + lost_bytes(daemon) >= board.sent, "the rest"
        )
        saved, lost = len(daemon.saved("dut1")), lost_bytes(daemon)
        files = len(log_files(daemon.state / "log" / "dut1"))
    tell(
        4,
        f"{error} on {call}",
        f"logging again after {healed_s:.1f} s in file {files}; sent {board.sent:,} = saved {saved:,}"
        f" + counted {lost:,}",
        "each byte saved or counted, logging again within 5 s",
        healed_s < 5,
    )

    assert told
    assert saved + lost == board.sent
    assert files >= 2 or error == "EROFS"


def test_a_database_that_another_program_holds(cable: Cable, tmp_path: Path, tell: Tell) -> None:
    fault = b'irq 41: nobody cared (try booting with "irqpoll")\r\n'
    with running(tmp_path, {"dut1": str(cable.path)}) as daemon:
        cable.prints(b"hello\r\n")
        daemon.wait_for(lambda: daemon.saved("dut1"), "a log")
        before = lateness(daemon)
        sent = len(b"hello\r\n")
        with closing(sqlite3.connect(daemon.state / "serialwatch.db", isolation_level=None)) as db:
            db.execute("BEGIN EXCLUSIVE")
            end_s = time.monotonic() + HELD_S
            count = 0
            while time.monotonic() < end_s:
                cable.prints(fault)
                sent += len(fault)
                count += 1
                time.sleep(0.02)
            saved = len(daemon.saved("dut1"))
            opened = len(daemon.incidents("dut1"))
            db.execute("ROLLBACK")
        freed_s = time.monotonic()
        daemon.wait_for(
            lambda: (
                daemon.rows(
                    'SELECT sum(count) FROM hits WHERE "trigger" = ?', "linux.irq_nobody_cared"
                )
                == [(count,)]
            ),
            "all hits in the table",
        )
        stored_s = time.monotonic() - freed_s
        late_s = latest_between(before, lateness(daemon))
        dropped = metric(daemon, r"serialwatch_\w*(?:dropped|unstored)\w*(?:\{[^}]*\})?")
        daemon.wait_for(lambda: len(daemon.saved("dut1")) == sent, "the log")
    tell(
        5,
        f"database held by another for {HELD_S:g} s",
        f"bytes lost 0 of {sent:,}, incident at once, {count} hits all stored {stored_s:.1f} s after, "
        f"loop late at most {late_s * 1000:g} ms, jobs dropped {dropped:g}",
        "no byte lost, loop late at most 50 ms",
        late_s <= 0.05,
    )

    assert saved >= sent - 10 * len(fault)
    assert opened == 1


def test_a_database_with_wrong_bytes(cable: Cable, tmp_path: Path, tell: Tell) -> None:
    rng = random.Random(6)
    with running(tmp_path, {"dut1": str(cable.path)}) as daemon:
        cable.prints(b'irq 41: nobody cared (try booting with "irqpoll")\r\n')
        daemon.wait_for(lambda: daemon.incidents("dut1"), "an incident")
        daemon.stop()
        database = daemon.state / "serialwatch.db"
        with database.open("r+b") as file:
            for _ in range(40):
                file.seek(rng.randrange(1, database.stat().st_size // 4096) * 4096)
                file.write(rng.randbytes(4096))
        began_s = time.monotonic()
        daemon.start()
        start_s = time.monotonic() - began_s
        cable.prints(b"still here\r\n")
        daemon.wait_for(lambda: b"still here" in daemon.saved("dut1"), "the log")
        daemon.wait_for(lambda: daemon.incidents("serialwatch"), "word of the damage")
        aside = [p.name for p in daemon.state.iterdir() if p.name.startswith("serialwatch.db.")]
        seqs = [line["seq"] for line in daemon.lines("dut1")]
    tell(6, "database corrupt", f"answers after {start_s:.1f} s, {len(aside)} file set aside, told as an "
         f"incident, line numbers go on ({seqs[0]}, {seqs[-1]})")  # fmt: skip

    assert aside
    assert seqs == sorted(set(seqs))


def test_a_day_of_32_ports_stays_below_its_cap(tmp_path: Path, tell: Tell) -> None:
    cap, size, now_ns = 10_000_000_000, 64 << 20, 1_800_000_000 * 10**9
    for name in range(32):
        folder = tmp_path / f"p{name:02}"
        folder.mkdir()
        for hour in range(24):
            path = folder / f"20260622T{hour:02}0000Z-{hour + 1:012}.log"
            path.touch()
            os.truncate(path, size)  # it takes no room
            path.with_suffix(".idx").touch()
            at_ns = now_ns - (24 - hour) * 3600 * 10**9
            os.utime(path, ns=(at_ns, at_ns))
    before = sum(p.stat().st_size for p in tmp_path.glob("*/*.log"))
    prune(tmp_path, 365, cap, now_ns)
    after = sum(p.stat().st_size for p in tmp_path.glob("*/*.log"))
    newest = {p.parent.name for p in tmp_path.glob("*/*000024.log")}
    tell(
        7,
        "24 h of 32 ports",
        f"{before / 1e6:,.0f} MB -> {after / 1e6:,.0f} MB, cap {cap / 1e6:,.0f} MB",
    )

    assert after <= cap
    assert after > cap - 2 * size
    assert len(newest) == 32


def test_faults_a_second_by_the_thousand(tmp_path: Path, tell: Tell) -> None:
    load = fault_load(tmp_path, ports=8, hits_per_s=1000, seconds=LOAD_S)
    tell(22, f"1,000 hits/s on 8 ports for {LOAD_S:g} s", f"counted {load.counted} and stored {load.stored} of {load.hits}, open "
         f"incidents of a key {load.most_open}, loop late 99 % {load.lateness_s * 1000:g} ms "
         f"(machine {load.machine_late_s * 1000:.1f} ms)", "loop late 99 % at most 50 ms",
         load.lateness_s <= 0.05)  # fmt: skip

    assert load.hits == load.counted == load.stored
    assert (load.most_open, load.missing_bytes) == (1, 0)


def test_a_second_daemon_is_refused(cable: Cable, tmp_path: Path, tell: Tell) -> None:
    with running(tmp_path, {"dut1": str(cable.path)}) as daemon:
        began_s = time.monotonic()
        second = subprocess.run(
            [sys.executable, "-m", "serialwatch", "run", "-c", daemon.config],
            capture_output=True, text=True, timeout=20, check=False,
        )  # fmt: skip
        took_s = time.monotonic() - began_s
        assert daemon.process is not None
        is_named = str(daemon.process.pid) in second.stderr
        received = cable.received()
    tell(48, "a second daemon", f"exit code {second.returncode} after {took_s:.1f} s, names the first: "
         f"{is_named}")  # fmt: skip

    assert second.returncode not in (0, -9)
    assert is_named
    assert received == b""
