"""A reader on a real cable: nothing lost at open, unplugs told at once, lines numbered once."""

from __future__ import annotations

import asyncio
import logging
import os
import random
import re
import shlex
import subprocess
import sys
import time
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Literal

import pytest

from bench_cable import Cable, within_s
from bench_usb import Looks
from log_feed import chunked, console
from serialwatch.capture import path_watch
from serialwatch.capture import reader as reader_module
from serialwatch.capture.reader import FULL_READ, GATHER_BYTES, Reader
from serialwatch.capture.ring import Ring, RingBudget
from serialwatch.lines import MAX_LINE
from serialwatch.records import Lines
from serialwatch.store.log_format import Cut, Kind, Place, log_files
from serialwatch.store.log_items import Chunk, Gap, Item, NewFile, Note
from serialwatch.store.log_reader import PortLog
from serialwatch.store.log_writer import LogWriter
from serialwatch_drivers.port import (
    ModemLines,
    OnBytes,
    OnLost,
    Port,
    PortLostError,
    PortOptions,
    PortWriteError,
    UartCounters,
)
from serialwatch_drivers.tty import open_tty

MS = 1_000_000


class Heard:
    """A sink that keeps everything, and a way to wait for it."""

    def __init__(self) -> None:
        self.data = bytearray()
        self.lines: dict[int, bytes] = {}
        self.blocks: list[Lines] = []
        self.partials: list[tuple[int, bytes]] = []
        self.states: list[str] = []
        self.counters: list[UartCounters] = []
        self._news = asyncio.Event()

    def on_bytes(self, reader: Reader, data: bytes, mono_ns: int) -> None:
        self.data += data
        self._news.set()

    def on_lines(self, reader: Reader, lines: Lines) -> None:
        self.blocks.append(lines)
        for number, text in enumerate(lines.text.split(b"\n")[:-1]):
            assert lines.first_seq + number not in self.lines
            self.lines[lines.first_seq + number] = text.rstrip(b"\r")
        self._news.set()

    def on_partial(self, reader: Reader, seq: int, text: bytes, mono_ns: int, utc_ns: int) -> None:
        self.partials.append((seq, text))

    def on_state(self, reader: Reader) -> None:
        self.states.append(reader.state)
        self._news.set()

    def on_counters(self, reader: Reader, counters: UartCounters) -> None:
        self.counters.append(counters)
        self._news.set()

    async def until(self, is_so: Callable[[], bool], limit_s: float = 5) -> None:
        async with asyncio.timeout(limit_s):
            while not is_so():
                self._news.clear()
                await self._news.wait()


class Bench:
    """One reader that is kept open."""

    def __init__(self, reader: Reader, ring: Ring, heard: Heard) -> None:
        self.reader = reader
        self.ring = ring
        self.heard = heard

    async def up(self) -> None:
        await self.heard.until(lambda: self.reader.state == "up")

    async def has_line(self, text: bytes, limit_s: float = 5) -> None:
        await self.heard.until(lambda: text in self.heard.lines.values(), limit_s)

    async def has_bytes(self, count: int) -> None:
        await self.heard.until(lambda: len(self.heard.data) == count)

    def queued(self) -> list[Item]:
        return list(self.ring.take())


@asynccontextmanager
async def bench_on(
    device: str | Path,
    eol: Literal["auto", "lf", "cr"] = "auto",
    open_device: Callable[..., object] | None = None,
) -> AsyncIterator[Bench]:
    ring, heard = Ring("dut1", RingBudget()), Heard()
    reader = Reader("dut1", str(device), PortOptions(), eol, ring, heard, open_device)  # type: ignore[arg-type]  # an Opener
    task = asyncio.create_task(reader.keep_open(), name="port dut1")
    try:
        yield Bench(reader, ring, heard)
    finally:
        task.cancel()
        await asyncio.wait([task])
        if not task.cancelled() and (exc := task.exception()) is not None:
            raise exc


@pytest.fixture
async def bench(cable: Cable) -> AsyncIterator[Bench]:
    """A reader that is up, with numbers from 1."""
    async with bench_on(cable.path) as made:
        made.reader.number_from(1, 0)
        await made.up()
        yield made


# Lines and their numbers


async def test_lines_come_with_their_numbers(bench: Bench, cable: Cable) -> None:
    cable.prints(b"U-Boot 2023.01\r\nDRAM:  512 MiB\r\n=> ")
    await bench.has_line(b"DRAM:  512 MiB")

    assert bench.heard.lines == {1: b"U-Boot 2023.01", 2: b"DRAM:  512 MiB"}
    assert bench.reader.next_seq == 3
    assert bench.reader.partial() == b"=> "
    assert bench.ring.recent() == bytes(bench.heard.data)
    stats = bench.reader.stats
    assert (stats.rx_bytes, stats.rx_lines, stats.opens) == (35, 2, {"ok": 1})
    assert abs(stats.last_rx_utc_ns - time.time_ns()) < 5 * 10**9


async def test_a_line_knows_when_its_last_byte_was_read(bench: Bench, cable: Cable) -> None:
    before = time.monotonic_ns()
    cable.prints(b"hello\n")
    await bench.has_line(b"hello")

    block = bench.heard.blocks[0]
    assert before <= block.mono_ns <= time.monotonic_ns()
    assert abs(block.utc_ns - time.time_ns()) < 5 * 10**9


async def test_what_comes_before_there_are_numbers_is_numbered_first(cable: Cable) -> None:
    async with bench_on(cable.path) as bench:
        await bench.up()
        cable.prints(b"early\nhalf ")
        await bench.has_bytes(11)
        assert bench.heard.lines == {}
        assert bench.ring.recent() == b"early\nhalf "
        assert bench.queued() == []

        bench.reader.mark(7)
        bench.reader.number_from(48211, 6)
        cable.prints(b"done\n")
        await bench.has_line(b"half done")

    assert bench.heard.lines == {48211: b"early", 48212: b"half done"}
    begin, first, mark, second, end = bench.queued()
    assert isinstance(begin, NewFile)
    assert (begin.seq, begin.boot, begin.eol) == (48211, 6, "lf")
    assert isinstance(first, Chunk)
    assert (first.data, first.seq, first.filled) == (b"early\nhalf ", 48211, 0)
    assert mark == Note(Kind.MARK, 7, 48212, mark.mono_ns, mark.utc_ns)
    assert isinstance(second, Chunk)
    assert (second.data, second.seq, second.filled) == (b"done\n", 48212, 5)
    assert isinstance(end, NewFile)
    assert (end.why, end.seq) == (Cut.STOP, 48213)


async def test_a_loss_before_there_are_numbers_still_ends_the_line(cable: Cable) -> None:
    async with bench_on(cable.path) as bench:
        await bench.up()
        cable.prints(b"cut of")
        await bench.has_bytes(6)
        cable.unplug()
        await bench.heard.until(lambda: bench.reader.state == "absent")
        cable.plug()
        await bench.up()
        cable.prints(b"whole\n")
        await bench.has_bytes(12)
        bench.reader.number_from(1, 0)

        assert bench.heard.lines == {1: b"cut of", 2: b"whole"}
        seqs = [item.seq for item in bench.queued() if isinstance(item, NewFile)]
        assert seqs == [1, 2]


async def test_a_prompt_is_shown_after_100_ms_and_once_for_each_growth(
    bench: Bench, cable: Cable
) -> None:
    for text, typed in ((b"uart:~$ ", b"uart:~$ "), (b"ver", b"uart:~$ ver")):
        cable.prints(text)
        await bench.heard.until(lambda typed=typed: bench.reader.partial() == typed)  # type: ignore[misc]  # a lambda's default
        read_ns = time.monotonic_ns()
        bench.reader.tick(read_ns)
        shown = len(bench.heard.partials)
        bench.reader.tick(read_ns + 101 * MS)
        bench.reader.tick(read_ns + 202 * MS)
        assert bench.heard.partials[shown:] == [(1, typed)]

    cable.prints(b"\r\nuart:~$ ver")
    await bench.has_line(b"uart:~$ ver")
    bench.reader.tick(time.monotonic_ns() + 200 * MS)
    assert bench.heard.partials[-1] == (2, b"uart:~$ ver")
    assert len(bench.heard.partials) == 3


async def test_cr_and_lf_in_two_reads_make_no_empty_line(bench: Bench, cable: Cable) -> None:
    cable.prints(b"a\r")
    await bench.heard.until(lambda: bench.heard.data == b"a\r")
    cable.prints(b"\nb\r\n")
    await bench.has_line(b"b")

    assert bench.heard.lines == {1: b"a", 2: b"b"}


async def test_a_mebibyte_without_an_end_is_cut_and_complete(bench: Bench, cable: Cable) -> None:
    await cable.prints_all(b"x" * 1024 * 1024)
    await bench.has_bytes(1024 * 1024)

    assert bench.heard.lines == dict.fromkeys(range(1, 65), b"x" * MAX_LINE)


async def test_live_lines_and_saved_lines_are_the_same(cable: Cable, tmp_path: Path) -> None:
    rng = random.Random(15)
    writer = LogWriter(tmp_path / "log", lambda port, problem: None, rotate_bytes=50_000)
    writer.start()
    sent = bytearray()
    async with bench_on(cable.path) as bench:
        writer.attach(bench.ring)
        for turn in range(17):
            for chunk in chunked(rng, console(rng)):
                await cable.prints_all(chunk)
                sent += chunk
            if turn == 1:
                bench.reader.number_from(100, 0)
            if turn % 8 == 7:
                await bench.has_bytes(len(sent))
                cable.unplug()
                await bench.heard.until(lambda: bench.reader.state != "up")
                cable.plug()
        await bench.has_bytes(len(sent))
    await writer.stop()
    folder = tmp_path / "log" / "dut1"
    lines = await asyncio.to_thread(lambda: list(PortLog(folder, "dut1").lines()))
    saved = {line.seq: line.raw for line in lines}

    assert b"".join(path.read_bytes() for path in log_files(folder)) == sent == bench.heard.data
    assert saved == bench.heard.lines
    assert sorted(saved) == list(range(100, bench.reader.next_seq))


# Coming and going


async def test_an_unplug_is_noticed_at_once_and_the_same_board_comes_back(
    bench: Bench, cable: Cable, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO, "serialwatch.capture")
    cable.prints(b"before\nhalf a li")
    await bench.has_bytes(16)
    cable.unplug()
    await bench.heard.until(lambda: bench.reader.state == "absent")
    assert bench.heard.lines == {1: b"before", 2: b"half a li"}
    cable.plug()
    cable.prints(b"back\r\n")
    await bench.has_line(b"back")

    assert bench.heard.lines[3] == b"back"
    files = [(i.why, i.seq) for i in bench.queued() if isinstance(i, NewFile)]
    assert files == [(Cut.STOP, 1), (Cut.LOST, 3)]
    assert bench.reader.stats.reconnects == 1
    lost, back = [record.getMessage() for record in caplog.records]
    assert lost == "dut1: absent: hung up"
    assert back.startswith("dut1: back on /dev/pts/")


async def test_each_loss_is_one_line_however_long_it_lasts(
    bench: Bench, cable: Cable, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO, "serialwatch.capture")
    for _ in range(3):
        cable.unplug()
        await bench.heard.until(lambda: bench.reader.state == "absent")
        # The state stays, its reason becomes what the open says.
        await bench.heard.until(lambda: "No such file" in bench.reader.problem)
        cable.plug()
        await bench.up()

    assert len(caplog.records) == 6
    assert bench.reader.stats.opens == {"ok": 4, "absent": 3}


async def test_a_device_that_is_not_there_yet_is_waited_for_quietly(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(path_watch, "SAFETY_S", 0.01)
    looks = Looks(monkeypatch)
    async with bench_on(tmp_path / "usb-Test_UART_0001-if00-port0") as bench:
        bench.reader.number_from(1, 0)
        await bench.heard.until(lambda: bench.reader.state == "absent")
        await looks.beyond(20)
        assert len(caplog.records) == 1
        assert bench.reader.stats.opens == {"absent": 1}
        assert "is it plugged in" in bench.reader.problem
        with pytest.raises(PortWriteError, match=r"not open \(absent"):
            await bench.reader.write(b"x", "send")
        assert bench.reader.stats.tx_bytes == {"send": 0}

        cable = Cable(tmp_path)
        try:
            cable.prints(b"hello\n")
            await bench.has_line(b"hello", limit_s=2)
        finally:
            cable.close()


async def test_a_link_that_leads_to_another_device_is_followed(
    bench: Bench, cable: Cable, tmp_path: Path
) -> None:
    (tmp_path / "other").mkdir()
    other = Cable(tmp_path / "other")
    try:
        cable.path.unlink()
        cable.path.symlink_to(os.path.realpath(other.path))
        other.prints(b"from the other one\n")

        await bench.has_line(b"from the other one", limit_s=5)
        assert bench.reader.stats.reconnects == 1
    finally:
        other.close()


async def test_a_link_that_is_gone_for_a_while_is_no_reason_to_close_the_port(
    cable: Cable, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(path_watch, "IDENTITY_S", 0.01)
    looked: list[bool] = []
    has_changed = path_watch.OpenedPath.has_changed

    def noted(path: path_watch.OpenedPath) -> bool:
        looked.append(has_changed(path))
        return looked[-1]

    monkeypatch.setattr(path_watch.OpenedPath, "has_changed", noted)
    async with bench_on(cable.path) as bench:
        bench.reader.number_from(1, 0)
        await bench.up()
        target = os.readlink(cable.path)
        cable.path.unlink()
        before = len(looked)
        async with asyncio.timeout(10):
            while len(looked) < before + 3:
                await asyncio.sleep(0)
        cable.path.symlink_to(target)
        cable.prints(b"still here\n")
        await bench.has_line(b"still here")

    assert bench.heard.states == ["up"]
    assert not any(looked)


HOLD = """
import fcntl, os, sys, termios
fd = os.open(sys.argv[1], os.O_RDWR | os.O_NOCTTY)
fcntl.flock(fd, fcntl.LOCK_EX)
print("held", flush=True)
sys.stdin.read()
"""


async def test_a_port_that_another_program_has_is_named_and_taken_back(cable: Cable) -> None:
    holder = await asyncio.create_subprocess_exec(
        sys.executable, "-c", HOLD, str(cable.path), stdin=subprocess.PIPE, stdout=subprocess.PIPE
    )
    assert holder.stdin is not None
    assert holder.stdout is not None
    await within_s(20, holder.stdout.readline())
    async with bench_on(cable.path) as bench:
        await bench.heard.until(lambda: bench.reader.state == "busy")
        assert f"pid {holder.pid}" in bench.reader.holder
        assert bench.reader.stats.opens == {"busy": 1}

        holder.stdin.close()
        await holder.wait()
        await bench.up()
        assert bench.reader.stats.opens["busy"] <= 2
        assert (bench.reader.problem, bench.reader.holder) == ("", "")


async def test_a_busy_port_is_tried_seldom(cable: Cable, monkeypatch: pytest.MonkeyPatch) -> None:
    waits: list[float] = []
    enough = asyncio.Event()
    real = asyncio.sleep

    async def sleep(seconds: float) -> None:
        waits.append(seconds)
        if len(waits) == 5:
            enough.set()
        await real(0)

    holder = await asyncio.create_subprocess_exec(
        sys.executable, "-c", HOLD, str(cable.path), stdin=subprocess.PIPE, stdout=subprocess.PIPE
    )
    assert holder.stdin is not None
    assert holder.stdout is not None
    await within_s(20, holder.stdout.readline())
    monkeypatch.setattr(reader_module.asyncio, "sleep", sleep)
    async with bench_on(cable.path):
        await within_s(20, enough.wait())
        monkeypatch.undo()
    holder.stdin.close()
    await holder.wait()

    assert [round(wait) for wait in waits[:4]] == [1, 2, 4, 5]


async def flap(bench: Bench, cable: Cable, says: bytes = b"") -> None:
    """Let a port come and go three times, with something said each time."""
    for _ in range(3):
        await bench.up()
        heard = len(bench.heard.data)
        cable.prints(says)
        await bench.has_bytes(heard + len(says))
        cable.unplug()
        await bench.heard.until(lambda: bench.reader.state != "up")
        cable.plug()
    await bench.heard.until(lambda: bench.reader.state == "flapping")


async def test_a_port_that_comes_and_goes_too_often_is_left_alone(
    cable: Cable, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    caplog.set_level(logging.INFO, "serialwatch.capture")
    monkeypatch.setattr(reader_module, "FLAPS", 3)
    monkeypatch.setattr(reader_module, "FLAP_WAIT_S", 0.5)
    monkeypatch.setattr(reader_module, "STEADY_S", 0.5)
    async with bench_on(cable.path) as bench:
        bench.reader.number_from(1, 0)
        await flap(bench, cable)
        logged = len(caplog.records)
        began = time.monotonic()
        cable.prints(b"still read\n")
        await bench.has_line(b"still read")

        assert time.monotonic() - began > 0.4
        assert "3 times within 30 s" in bench.reader.problem
        assert (bench.reader.state, len(caplog.records)) == ("flapping", logged)
        await bench.up()
        assert bench.heard.states[-2:] == ["flapping", "up"]
        assert "dut1: steady again on /dev/pts/" in caplog.text.splitlines()[-1]


async def test_a_board_whose_own_usb_is_part_of_its_boot_loop_is_heard_each_time(
    cable: Cable, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(reader_module, "FLAPS", 3)
    monkeypatch.setattr(reader_module, "FIRST_WAIT_S", 0.01)
    monkeypatch.setattr(reader_module, "FLAP_WAIT_S", 3600)
    async with bench_on(cable.path) as bench:
        bench.reader.number_from(1, 0)
        await flap(bench, cable, b"boot\n")
        for start in range(3):
            cable.prints(b"start %d\n" % start)
            await bench.has_line(b"start %d" % start)
            cable.unplug()
            cable.plug()

        assert bench.heard.states.count("flapping") == 1


async def test_a_program_that_ends_at_once_is_no_bad_contact_and_says_what_it_said(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    caplog.set_level(logging.INFO, "serialwatch.capture")
    monkeypatch.setattr(reader_module, "FLAPS", 3)
    monkeypatch.setattr(reader_module, "FIRST_WAIT_S", 0.01)
    monkeypatch.setattr(reader_module, "FLAP_WAIT_S", 0.01)
    program = tmp_path / "emu"
    program.write_text('#!/bin/sh\necho start\necho "no image \t\033[1m$$" >&2\nexit 3')
    program.chmod(0o755)
    async with bench_on(f"command:{program}") as bench:
        bench.reader.number_from(1, 0)
        await bench.heard.until(lambda: bench.reader.state == "broken")
        first = bench.reader.problem
        await bench.heard.until(lambda: bench.reader.problem != first)

        assert "flapping" not in bench.heard.states
        assert bench.heard.states[-3:] == ["absent", "broken", "broken"]
        assert first.startswith("the program ended: exit status 3: 3 times within 30 s, its last ")
        assert re.search(r'words "no image  \d+"; run it by hand to see why; it is started', first)
        assert caplog.text.count("broken") == 1


async def test_a_program_that_says_nothing_has_no_words_of_an_earlier_start(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(reader_module, "FLAPS", 3)
    monkeypatch.setattr(reader_module, "FIRST_WAIT_S", 0.01)
    script = "[ -e said ] || echo hello > said; cat said; : > said; kill -SEGV $$"
    monkeypatch.chdir(tmp_path)
    async with bench_on(f"command:sh -c {shlex.quote(script)}") as bench:
        bench.reader.number_from(1, 0)
        await bench.heard.until(lambda: bench.reader.state == "broken")

        assert bench.heard.data == b"hello\n"
        assert "killed by SIGSEGV: 3 times within 30 s; run" in bench.reader.problem


# What goes the other way, and what must not


async def test_opening_reopening_and_closing_send_nothing(cable: Cable) -> None:
    async with bench_on(cable.path) as bench:
        await bench.up()
        cable.prints(b"Hit any key to stop autoboot:  3 ")
        await bench.has_bytes(33)
        sent = cable.received()
        cable.unplug()
        await bench.heard.until(lambda: bench.reader.state == "absent")
        cable.plug()
        await bench.up()
        sent += cable.received()

    assert sent + cable.received() == b""


async def test_what_is_sent_is_counted_by_its_source(bench: Bench, cable: Cable) -> None:
    await bench.reader.write(b"version\r", "send")
    await bench.reader.write(b"x", "attach")
    await bench.reader.write(b"y", "attach")

    assert cable.received() == b"version\rxy"
    assert bench.reader.stats.tx_bytes == {"send": 8, "attach": 2}


async def test_what_no_enter_has_ended_is_known_until_the_board_starts_anew(bench: Bench) -> None:
    reader = bench.reader
    for data, unended in (
        (b"version\rmd", b"md"), (b" 0", b"md 0"), (b"\x15", b""), (b"x" * 900, b"x" * 200),
    ):  # fmt: skip
        await reader.write(data, "attach")
        assert reader.unended == unended
    reader.booted(7, 1)

    assert reader.unended == b""


async def test_markers_and_boots_go_to_the_log_in_their_place(bench: Bench, cable: Cable) -> None:
    cable.prints(b"U-Boot\n")
    await bench.has_line(b"U-Boot")
    bench.reader.booted(7, 1)
    bench.reader.mark(3)
    notes = [i for i in bench.queued() if isinstance(i, Note)]

    assert [(n.kind, n.number, n.seq) for n in notes] == [(Kind.BOOT, 7, 1), (Kind.MARK, 3, 2)]
    assert bench.reader.boot == 7


class Pushes:
    """Opens a cable whose bytes a test pushes itself, in reads of the sizes it likes."""

    def __init__(self) -> None:
        self.read: Callable[[bytes], None]
        self.lose: Callable[[], None]

    async def open(
        self, device: str, options: PortOptions, on_bytes: OnBytes, on_lost: OnLost
    ) -> Port:
        self.read = lambda data: on_bytes(data, time.monotonic_ns())
        self.lose = lambda: on_lost(PortLostError(device, "hung up"))
        return await open_tty(device, options, on_bytes, on_lost)


LINE = b"0123456789abcde\n"
FULL = (LINE * 256)[:FULL_READ]  # ends within a line


@asynccontextmanager
async def pushed_bench(cable: Cable) -> AsyncIterator[tuple[Bench, Pushes]]:
    pushes = Pushes()
    async with bench_on(cable.path, open_device=pushes.open) as bench:
        bench.reader.number_from(1, 0)
        await bench.up()
        bench.queued()
        yield bench, pushes


async def test_reads_that_fill_the_buffer_of_the_kernel_are_taken_together(cable: Cable) -> None:
    async with pushed_bench(cable) as (bench, pushes):
        for _ in range(3):
            pushes.read(FULL)
        assert not bench.heard.data
        pushes.read(b"rest\n")

        assert bytes(bench.heard.data) == FULL * 3 + b"rest\n"
        (chunk,) = bench.queued()
        assert isinstance(chunk, Chunk)
        assert chunk.data == FULL * 3 + b"rest\n"
        assert chunk.mono_ns < chunk.last_mono_ns == bench.heard.blocks[-1].mono_ns
        assert chunk.utc_ns == pytest.approx(time.time_ns(), abs=10**9)


async def test_a_full_read_with_nothing_behind_it_waits_for_a_few_milliseconds_only(
    cable: Cable,
) -> None:
    async with pushed_bench(cable) as (bench, pushes):
        pushes.read(FULL)
        await bench.has_bytes(FULL_READ)

        assert bench.reader.next_seq == 1 + FULL.count(b"\n")


async def test_no_more_than_a_few_full_reads_wait(cable: Cable) -> None:
    async with pushed_bench(cable) as (bench, pushes):
        most = GATHER_BYTES // FULL_READ
        for _ in range(most):
            pushes.read(FULL)
        assert not bench.heard.data
        pushes.read(FULL)

        assert len(bench.heard.data) == (most + 1) * FULL_READ


async def test_full_reads_that_wait_come_before_a_loss_a_marker_and_the_end(cable: Cable) -> None:
    async with pushed_bench(cable) as (bench, pushes):
        pushes.read(FULL)
        bench.reader.mark(1)
        pushes.read(FULL)
        pushes.lose()
        await bench.heard.until(lambda: bench.reader.state == "absent")
        await bench.up()
        pushes.read(FULL)
    lines = FULL.count(b"\n")
    kinds = [type(item) for item in bench.queued()]
    heard = [*bench.heard.lines.items()]

    assert kinds == [Chunk, Note, Chunk, NewFile, Chunk, NewFile]
    assert len(heard) == 3 * lines + 2, "the unfinished lines of the loss and of the end count"
    assert [number for number, _ in heard] == list(range(1, len(heard) + 1))


async def test_a_fault_of_ours_in_what_waited_ends_the_reader_too(cable: Cable) -> None:
    class Faulty(Heard):
        def on_lines(self, reader: Reader, lines: Lines) -> None:
            raise ZeroDivisionError("a bug in a rule")

    pushes, heard = Pushes(), Faulty()
    ring = Ring("dut1", RingBudget())
    reader = Reader("dut1", str(cable.path), PortOptions(), "auto", ring, heard, pushes.open)
    reader.number_from(1, 0)
    task = asyncio.create_task(reader.keep_open())
    await heard.until(lambda: reader.state == "up")
    pushes.read(LINE * 256)

    with pytest.raises(ExceptionGroup) as raised:
        await within_s(5, task)
    assert raised.group_contains(ZeroDivisionError)


async def test_error_counters_are_told_and_their_growth_is_counted(
    cable: Cable, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(reader_module, "POLL_S", 0.01)
    readings = iter(
        [
            UartCounters(100, 5, 0, 0, None),
            UartCounters(103, 5, 0, 1, None),
            UartCounters(1, 0, 0, 1, None),  # begun anew
        ]
    )

    async def open_counting(
        device: str, options: PortOptions, on_bytes: OnBytes, on_lost: OnLost
    ) -> Port:
        port = await open_tty(device, options, on_bytes, on_lost)

        async def counters() -> UartCounters | None:
            return next(readings, None)

        monkeypatch.setattr(port, "counters", counters)  # a pty has none
        return port

    async with bench_on(cable.path, open_device=open_counting) as bench:
        bench.reader.number_from(1, 0)
        await bench.heard.until(lambda: len(bench.heard.counters) == 3)
        stats = bench.reader.stats

        assert stats.uart_errors == {"overrun": 4, "framing": 0, "parity": 0, "breaks": 1}
        assert stats.lost_bytes["uart"] == 4
        gaps = [i for i in bench.queued() if isinstance(i, Gap)]
        assert [(g.place, g.lost_bytes, g.seq) for g in gaps] == [(Place.UART, 0, 1)] * 2


async def test_the_modem_lines_of_a_silent_port_are_looked_at_once_in_each_silence(
    bench: Bench, cable: Cable, monkeypatch: pytest.MonkeyPatch
) -> None:
    stand = ModemLines(cts=False, dsr=True, dcd=False, dtr=True, rts=True)
    asked: asyncio.Queue[int] = asyncio.Queue()

    async def modem_lines() -> ModemLines:
        asked.put_nowait(1)
        return stand

    reader = bench.reader
    monkeypatch.setattr(reader_module, "POLL_S", 0.01)
    monkeypatch.setattr(reader_module, "CALM_POLL_S", 0.01)
    monkeypatch.setattr(reader.port, "modem_lines", modem_lines)  # a pty has none
    for number in range(1, 3):
        monkeypatch.setattr(reader_module, "SILENT_NS", 3600 * 1000 * MS)
        cable.prints(b"line\n")
        await bench.heard.until(lambda number=number: len(bench.heard.lines) == number)
        assert reader.modem_lines is None
        monkeypatch.setattr(reader_module, "SILENT_NS", 0)
        await within_s(10, asked.get())
        polled_s = reader.beat_s
        async with asyncio.timeout(10):
            while reader.beat_s == polled_s:
                await asyncio.sleep(0)
        assert reader.modem_lines == stand

    assert asked.empty()


async def test_lost_bytes_and_the_size_of_the_log_are_in_the_stats(bench: Bench) -> None:
    bench.ring.settle(lost_bytes=5)
    bench.ring.log_bytes = 1000
    bench.reader.tick(0)

    assert bench.reader.stats.lost_bytes == {"log": 5}
    assert bench.reader.stats.log_bytes == 1000


async def test_a_fault_of_ours_behind_the_reader_ends_it(cable: Cable) -> None:
    class Faulty(Heard):
        def on_lines(self, reader: Reader, lines: Lines) -> None:
            raise ZeroDivisionError("a bug in a rule")

    ring, heard = Ring("dut1", RingBudget()), Faulty()
    reader = Reader("dut1", str(cable.path), PortOptions(), "auto", ring, heard)
    reader.number_from(1, 0)
    task = asyncio.create_task(reader.keep_open())
    await heard.until(lambda: reader.state == "up")
    cable.prints(b"hello\n")

    with pytest.raises(ExceptionGroup) as raised:
        await within_s(5, task)
    assert raised.group_contains(ZeroDivisionError)


def test_only_serial_ports_have_a_bit_rate() -> None:
    def has_bit_rate(device: str) -> bool:
        ring = Ring("dut1", RingBudget())
        return Reader("dut1", device, PortOptions(), "auto", ring, Heard()).has_bit_rate

    assert has_bit_rate("/dev/ttyUSB0")
    assert has_bit_rate("usb:1-2.3:1.0")
    assert not has_bit_rate("command:adb logcat")
