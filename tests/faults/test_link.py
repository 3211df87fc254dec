"""Ports that vanish, flap, are taken by others; and what a line prints when it is broken."""

from __future__ import annotations

import os
import random
import statistics
import subprocess
import sys
import time
from pathlib import Path

import pytest
from fault_bed import (
    Printing,
    Tell,
    cpu_s,
    lateness,
    latest_between,
    lost_bytes,
    port,
    rss_kib,
)

from bench_cable import Cable
from log_feed import records_in
from running_daemon import RunningDaemon, running
from serialwatch.store.log_format import Cut, Kind, log_files

pytestmark = pytest.mark.faults

KERNEL_HOLDS = 4096 + 65536  # bytes of a pty that nobody has read: line discipline and buffer
OUTAGE_S = float(os.environ.get("FAULT_OUTAGE_S", "30"))
TAKES_IT = """
import fcntl, os, sys, termios
fd = os.open(sys.argv[1], os.O_RDWR | os.O_NOCTTY | os.O_NONBLOCK)
fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
print("taken", flush=True)
sys.stdin.read()
"""


def _until(what: object, limit_s: float = 20.0) -> float:
    """Return how long it takes until `what` is so."""
    began_s = time.monotonic()
    while not what():  # type: ignore[operator]
        assert time.monotonic() - began_s < limit_s
        time.sleep(0.002)
    return time.monotonic() - began_s


def test_an_unplug_while_a_board_prints(cable: Cable, tmp_path: Path, tell: Tell) -> None:
    with running(tmp_path, {"dut1": str(cable.path)}) as daemon:
        with Printing(cable, 200_000) as board:
            daemon.wait_for(lambda: len(daemon.saved("dut1")) > 2 * KERNEL_HOLDS, "a log")
            cable.unplug()
            gone_s = _until(lambda: port(daemon)["state"] != "up")
        read = port(daemon)["rx_bytes"]
        daemon.wait_for(lambda: len(daemon.saved("dut1")) == read, "the log")
        last = daemon.lines("dut1")[-1]
        cable.plug()
        cable.prints(b"back\r\n")
        daemon.wait_for(lambda: daemon.saved("dut1").endswith(b"back\r\n"), "the log")
        lines = {line["seq"]: line["text"] for line in daemon.lines("dut1")}
        path = log_files(daemon.state / "log" / "dut1")[0]
        mark = records_in(path.with_suffix(".idx").read_bytes())[-1]
    told = (
        f"marked {Cut(mark.aux).name} at byte {mark.offset:,}"
        if mark.kind is Kind.CUT
        else "no mark"
    )
    tell(9, "unplug while it prints", f"noticed after {gone_s:.3f} s, {read:,} bytes read of {board.sent:,} "
         f"printed, all saved; the cut line is kept ({len(last['text'])} characters), {told}", "noticed within 0.3 s", gone_s < 0.3)  # fmt: skip

    assert board.sent - KERNEL_HOLDS <= read <= board.sent  # that went with the cable
    assert (mark.kind, mark.aux, mark.offset) == (Kind.CUT, Cut.LOST, read)
    assert lines[last["seq"]] == last["text"]  # nothing is added to it later
    assert lines[last["seq"] + 1] == "back"


def test_an_outage_of_half_a_minute(cable: Cable, tmp_path: Path, tell: Tell) -> None:
    with running(tmp_path, {"dut1": str(cable.path)}) as daemon:
        cable.prints(b"before\r\n")
        daemon.wait_for(lambda: daemon.saved("dut1"), "a log")
        cable.unplug()
        daemon.wait_for(lambda: port(daemon)["state"] == "absent", "the loss")
        used_s, lines = cpu_s(daemon), daemon.log().count("\n")
        time.sleep(OUTAGE_S)
        share = (cpu_s(daemon) - used_s) / OUTAGE_S * 100
        lines = daemon.log().count("\n") - lines
        reason = str(port(daemon)["problem"])
        cable.plug()
        cable.prints(b"after\r\n")
        back_s = _until(lambda: b"after" in daemon.saved("dut1"))
        seqs = [line["seq"] for line in daemon.lines("dut1")]
        is_up = port(daemon)["state"] == "up"
        received = cable.received()
    tell(10, f"gone for {OUTAGE_S:g} s", f"CPU {share:.1f} % of a core meanwhile, {lines} log lines, back and in the log "
         f"{back_s:.2f} s after, numbers {seqs}, bytes sent to the board {len(received)}", "back within 1.0 s, CPU below 2 %",
         back_s <= 1.0 and share < 2)  # fmt: skip

    assert (seqs, is_up, received) == ([1, 2], True, b"")
    assert reason
    assert lines <= 1


def test_plugged_in_again(tmp_path: Path, tell: Tell) -> None:
    cables = {f"p{n}": Cable(tmp_path, f"board{n}") for n in range(10)}
    took_s, seqs = [], []
    with running(tmp_path, {name: str(c.path) for name, c in cables.items()}) as daemon:
        for name, each in cables.items():
            each.prints(b"before\r\n")
            daemon.wait_for(lambda name=name: daemon.saved(name), "a log")
        for turn in range(2):
            for name, each in cables.items():
                each.unplug()
                daemon.wait_for(lambda name=name: port(daemon, name)["state"] != "up", "the loss")
                before = port(daemon, name)["rx_bytes"]
                each.plug()
                each.prints(b"after %d\r\n" % turn)
                took_s.append(_until(lambda n=name, b=before: port(daemon, n)["rx_bytes"] > b))
        for name in cables:
            daemon.wait_for(lambda name=name: b"after 1" in daemon.saved(name), "the log")
            seqs.append([line["seq"] for line in daemon.lines(name)])
        received = sum(len(each.received()) for each in cables.values())
    for each in cables.values():
        each.close()
    p95_s = statistics.quantiles(took_s, n=20, method="inclusive")[18]
    tell(10, "plugged in again, another tty", f"first byte after {p95_s:.3f} s (95 % of {len(took_s)}), numbers "
         f"go on in all 10, bytes sent to boards {received}", "first byte within 1.0 s", p95_s <= 1.0)  # fmt: skip

    assert all(found == [1, 2, 3] for found in seqs)
    assert received == 0


def test_a_port_that_another_program_has(cable: Cable, tmp_path: Path, tell: Tell) -> None:
    with subprocess.Popen(
        [sys.executable, "-c", TAKES_IT, str(cable.path)], stdin=-1, stdout=-1, text=True
    ) as other:
        assert other.stdout is not None
        assert other.stdin is not None
        other.stdout.readline()
        with running(tmp_path, {"dut1": str(cable.path)}) as daemon:
            daemon.wait_for(lambda: port(daemon)["state"] == "busy", "state busy")
            told = str(port(daemon)["problem"])
            other.stdin.close()
            other.wait()
            took_s = _until(lambda: port(daemon)["state"] == "up")
            tries = daemon.log().count("in use")
    tell(12, "another program has the port", f"named with pid: {str(other.pid) in told}, open {took_s:.1f} s after "
         f"its end, {tries} log line")  # fmt: skip

    assert str(other.pid) in told
    assert took_s < 6
    assert tries == 1


def test_a_hub_that_flaps(cable: Cable, tmp_path: Path, tell: Tell) -> None:
    with running(tmp_path, {"dut1": str(cable.path)}) as daemon:
        cable.prints(b"hello\r\n")
        daemon.wait_for(lambda: daemon.saved("dut1"), "a log")
        began_s, used_s, lines = time.monotonic(), cpu_s(daemon), daemon.log().count("\n")
        for _ in range(40):
            cable.unplug()
            time.sleep(0.25)
            cable.plug()
            time.sleep(0.25)
        took_s = time.monotonic() - began_s
        share = (cpu_s(daemon) - used_s) / took_s * 100
        lines = daemon.log().count("\n") - lines
        incidents = len(daemon.incidents("dut1"))
    tell(14, "a link that flaps, 2 Hz for 20 s", f"CPU {share:.1f} % of a core, {lines} log lines, {incidents} "
         f"incident")  # fmt: skip

    assert share < 20
    assert incidents <= 1
    assert lines < 40


@pytest.mark.parametrize("byte", [0x00, 0xFF])
def test_a_flood_of_one_byte(cable: Cable, tmp_path: Path, tell: Tell, byte: int) -> None:
    with running(tmp_path, {"dut1": str(cable.path)}) as daemon:
        flood = bytes([byte]) * 1000
        sent = _flood(daemon, cable, flood, 200)
        rss = rss_kib(daemon)
        sent += _flood(daemon, cable, flood, 2000)
        daemon.wait_for(lambda: port(daemon)["rx_bytes"] == sent, "all bytes")
        daemon.wait_for(lambda: len(daemon.saved("dut1")) == sent, "the log")
        grown = rss_kib(daemon) - rss
        rows = sum(daemon.rows("SELECT count(*) FROM hits")[0])
        incidents = len(daemon.incidents("dut1"))
    tell(15, f"{sent / 1e6:.1f} MB of 0x{byte:02X}", f"memory {grown / 1024:+.2f} MB, {rows} rows of hits, {incidents} "
         f"incident, all bytes saved")  # fmt: skip

    assert grown < 4096
    assert rows < 10
    assert incidents <= 1


def test_a_line_without_an_end(cable: Cable, tmp_path: Path, tell: Tell) -> None:
    with running(tmp_path, {"dut1": str(cable.path)}) as daemon:
        block = b"no end " * 4681
        sent = _flood(daemon, cable, block, 300)
        daemon.wait_for(lambda: port(daemon)["rx_bytes"] == sent, "all bytes")
        rss = rss_kib(daemon)
        sent += _flood(daemon, cable, block, 100_000_000 // len(block))
        daemon.wait_for(lambda: len(daemon.saved("dut1")) == sent, "the log")
        grown = rss_kib(daemon) - rss
        longest = max(len(line["text"]) for line in daemon.lines("dut1"))
    tell(
        16,
        f"{sent / 1e6:.0f} MB without a line end",
        f"memory {grown / 1024:+.2f} MB, pieces of {longest:,} bytes",
    )

    assert longest == 16384
    assert grown <= 1024


def _flood(daemon: RunningDaemon, cable: Cable, block: bytes, times: int) -> int:
    """Print a block many times, as fast as it is read; return how many bytes that were."""
    view = memoryview(block * times)
    size = len(view)
    while view:
        try:
            view = view[os.write(cable.board, view[:65536]) :]
        except BlockingIOError:
            time.sleep(0.0005)
    assert daemon.process is not None
    return size


def test_bytes_that_are_no_text(cable: Cable, tmp_path: Path, tell: Tell) -> None:
    rng = random.Random(17)
    kinds = [
        lambda: rng.randbytes(3000),
        lambda: "grüße, мир ✓\r\n".encode("utf-16-le") * 40,
        lambda: rng.choice([b"\r", b"\n", b"\r\n", b"\n\r", b"\r\r\n"]) * rng.randrange(1, 60),
        lambda: b"\xc3\x28 \xf0\x9f \xed\xa0\x80 \xfe\xff text\r\n" * 30,
        lambda: b"\x1b]0;title\x07\x1b[2J\x9b31m\x90q\x9c\x00\x7f" * 20,
    ]
    data = b"".join(rng.choice(kinds)() for _ in range(8000))
    with running(tmp_path, {"dut1": str(cable.path)}) as daemon:
        sent = _flood(daemon, cable, data, 1)
        daemon.wait_for(lambda: len(daemon.saved("dut1")) >= sent, "the log")
        saved = daemon.saved("dut1")
    same = sum(a == b for a, b in zip(saved, data, strict=False))
    tell(
        17,
        "random bytes, UTF-16, bad UTF-8, CRs, escapes",
        f"round trip {same / len(data):.4%} of {len(data):,}",
    )

    assert saved == data


def test_32_ports_at_3_mbit(tmp_path: Path, tell: Tell) -> None:
    cables = [Cable(tmp_path, f"board{n}") for n in range(32)]
    ports = {f"p{n}": str(c.path) for n, c in enumerate(cables)}
    seconds = 10.0
    with running(tmp_path, ports) as daemon:
        before, used_s = lateness(daemon), cpu_s(daemon)
        script = [sys.executable, __file__, str(seconds), *(str(c.board) for c in cables)]
        env = os.environ | {"PYTHONPATH": os.pathsep.join(sys.path)}
        took = subprocess.run(
            script, env=env, pass_fds=[c.board for c in cables], capture_output=True, check=True
        )
        sent = [int(word) for word in took.stdout.split()]
        share = (cpu_s(daemon) - used_s) / seconds * 100
        late_s = latest_between(before, lateness(daemon), 0.99)
        daemon.wait_for(
            lambda: all(len(daemon.saved(f"p{n}")) == size for n, size in enumerate(sent)),
            "all logs",
        )
        lost = lost_bytes(daemon)
    for each in cables:
        each.close()
    tell(19, "32 ports at 3 Mbit/s", f"{sum(sent) / seconds / 1e6:.1f} MB/s, bytes lost {lost}, CPU {share:.0f} % of a "
         f"core, loop late 99 % {late_s * 1000:g} ms, slowest port {min(sent) / max(sent):.0%} of the fastest")  # fmt: skip

    assert lost == 0
    assert min(sent) > 0.9 * max(sent)


def _print_on_all(seconds: float, boards: list[int]) -> list[int]:
    """Print 300 kB/s on each board."""
    text = (
        b"[   12.345678] usb 1-1: new high-speed device number 7 using ehci, all is well\r\n" * 400
    )
    sent = [0] * len(boards)
    began_s = time.monotonic()
    while (now_s := time.monotonic() - began_s) < seconds:
        for n, board in enumerate(boards):
            due = int(now_s * 300_000) - sent[n]
            at = sent[n] % 16000
            if due > 1000:
                try:
                    sent[n] += os.write(board, text[at : at + min(due, 16000)])
                except BlockingIOError:
                    continue
        time.sleep(0.002)
    return sent


if __name__ == "__main__":
    print(*_print_on_all(float(sys.argv[1]), [int(fd) for fd in sys.argv[2:]]))
