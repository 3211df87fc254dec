"""What other serial tools got wrong in the field: noise, thieves, cut characters, set clocks."""

from __future__ import annotations

import asyncio
import fcntl
import os
import termios
from collections.abc import AsyncIterator

import pytest

from bench_cable import Cable, within_s
from bench_ear import Ear
from serialwatch.capture import path_watch, reader
from serialwatch.records import Finding, Hit, Lines, Ready
from serialwatch.triggers.matcher import Matcher
from serialwatch.triggers.rules import parse_rules
from serialwatch.triggers.watch import PortWatch
from serialwatch.wire import show
from serialwatch_drivers.port import PortOptions
from serialwatch_drivers.tty import TtyPort, open_tty
from test_reader import MS, Bench, bench_on
from test_tty import steals_first

S = 1_000_000_000
RULES = """
[[boot]]
ecosystem = "mine"
match = ['^MINE ROM']
stage = 1

[[rule]]
id = "mine.panic"
title = "panic"
severity = "critical"
match = 'Kernel panic - not syncing'

[[detector]]
id = "mine.silence"
kind = "silence"
severity = "warning"
limit_s = 30
times = 10
stuck_s = 30
stuck_severity = "error"
stuck_after = ['^starting$']

[[prompt]]
ecosystem = "mine"
match = '^login: $'
ready = true
"""


@pytest.fixture
async def bench(cable: Cable) -> AsyncIterator[Bench]:
    async with bench_on(cable.path) as made:
        made.reader.number_from(1, 0)
        await made.up()
        yield made


async def comes_in_reads(bench: Bench, cable: Cable, *parts: bytes) -> None:
    """Let the board print so that each part is read by itself."""
    for part in parts:
        size = len(bench.heard.data) + len(part)
        cable.prints(part)
        await bench.has_bytes(size)


async def test_a_character_that_two_reads_share_is_one_character(
    bench: Bench, cable: Cable
) -> None:
    await comes_in_reads(bench, cable, b"test \xe2\x9c", b"\x93 ok\r\n")

    assert [show(line) for line in bench.heard.lines.values()] == ["test \N{CHECK MARK} ok"]


async def test_noise_within_a_line_ends_nothing_and_stays_visible(
    bench: Bench, cable: Cable
) -> None:
    await comes_in_reads(bench, cable, b"boot \xff", b"\xfe\xc2 ok\r\n", b"\xe0\r\nnext\r\n")

    assert bench.heard.lines == {1: b"boot \xff\xfe\xc2 ok", 2: b"\xe0", 3: b"next"}
    assert show(bench.heard.lines[1]) == r"boot \xff\xfe\xc2 ok"
    assert bench.reader.state == "up"


async def test_a_nul_hides_no_panic_and_is_kept(bench: Bench, cable: Cable) -> None:
    await comes_in_reads(bench, cable, b"pre\x00Kernel panic - not syncing: x\r\n")
    watch = PortWatch("dut1", Matcher(parse_rules(RULES)))
    found = [hit for block in bench.heard.blocks for hit in watch.fed(block)]

    assert [hit.trigger for hit in found if isinstance(hit, Hit)] == ["mine.panic"]
    assert bench.ring.recent() == b"pre\x00Kernel panic - not syncing: x\r\n"


async def test_a_prompt_in_escapes_that_two_reads_share_is_a_prompt(
    bench: Bench, cable: Cable
) -> None:
    watch = PortWatch("dut1", Matcher(parse_rules(RULES)))
    await comes_in_reads(bench, cable, b"MINE ROM\r\n\x1b[?20", b"04h\x1b[32mlogin: \x1b[0m")
    last_ns = bench.reader.heard_ns
    bench.reader.tick(last_ns + 100 * MS)
    found = [each for block in bench.heard.blocks for each in watch.fed(block)]
    for seq, text in bench.heard.partials:
        found += watch.partial(seq, text, last_ns + 100 * MS, 0)

    assert [ready.seq for ready in found if isinstance(ready, Ready)] == [2]


@pytest.mark.parametrize("step_s", [874, -874, 366 * 86400])
def test_a_wall_clock_that_is_set_is_no_silence(step_s: int) -> None:
    watch = PortWatch("dut1", Matcher(parse_rules(RULES)))
    found: list[Finding] = []

    def talks(seconds: int, mono_s: int, offset_s: int) -> None:
        for second in range(mono_s, mono_s + seconds):
            mono_ns, utc_ns = second * S, (second + offset_s) * S
            text = b"sensor: all is well\n"
            found.extend(watch.fed(Lines(second, 1, text, mono_ns, utc_ns)))
            found.extend(watch.tick(mono_ns, utc_ns))

    talks(150, mono_s=1000, offset_s=1_700_000_000)
    talks(150, mono_s=1150, offset_s=1_700_000_000 + step_s)

    assert not found
    found += watch.tick(1400 * S, 0)
    assert [hit.trigger for hit in found if isinstance(hit, Hit)] == ["mine.silence"]


async def test_a_port_that_another_program_read_from_too_works_on_afterwards(
    bench: Bench, cable: Cable
) -> None:
    port = bench.reader.port
    assert isinstance(port, TtyPort)
    thief = os.open(cable.path, os.O_RDWR | os.O_NOCTTY)
    settings = termios.tcgetattr(thief)
    settings[6][termios.VMIN] = 0  # as pyserial does: empty, the tty reads as if it hung up
    termios.tcsetattr(thief, termios.TCSANOW, settings)
    async with steals_first(port, cable):
        await bench.heard.until(lambda: bench.reader.state == "absent")
    os.close(thief)
    why = bench.reader.problem
    await bench.up()
    cable.prints(b"and on\r\n")
    await bench.has_line(b"and on")

    assert "second reader?" in why
    assert bench.reader.stats.opens == {"ok": 2}
    assert cable.received() == b""


async def test_a_device_that_takes_the_place_of_a_busy_one_is_opened_at_once(
    cable: Cable, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(reader, "BUSY_WAIT_S", 60.0)
    monkeypatch.setattr(path_watch, "IDENTITY_S", 0.02)
    holder = os.open(cable.path, os.O_RDWR | os.O_NOCTTY)
    fcntl.flock(holder, fcntl.LOCK_EX)
    async with bench_on(cable.path) as bench:
        bench.reader.number_from(1, 0)
        await bench.heard.until(lambda: bench.reader.state == "busy")
        cable.unplug()
        await bench.heard.until(lambda: bench.reader.state == "absent")
        cable.plug()
        cable.prints(b"first words\r\n")
        await bench.has_line(b"first words")
    os.close(holder)

    assert bench.reader.stats.opens == {"busy": 1, "absent": 1, "ok": 1}
    assert cable.received() == b""


async def test_a_write_that_had_to_wait_leaves_nothing_to_spin_on(cable: Cable) -> None:
    ear = Ear()
    port = await open_tty(str(cable.path), PortOptions(), ear.on_bytes, ear.on_lost)
    try:
        sent = asyncio.create_task(port.write(bytes(200_000)))
        received = 0
        async with asyncio.timeout(10):
            while received < 200_000:
                await asyncio.sleep(0)
                received += len(cable.received())
        await sent

        assert not asyncio.get_running_loop().remove_writer(port._fd)
    finally:
        port.close()
        await within_s(5, port.wait_closed())
