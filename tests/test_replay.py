from __future__ import annotations

import asyncio
import os
import random
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from bench_cable import within_s
from bench_ear import Ear, watched_loop
from serialwatch_drivers.port import PortOpenError, PortOptions, PortWriteError
from serialwatch_drivers.replay import ReplayPort, open_replay

DEFAULTS = PortOptions()


@asynccontextmanager
async def playing(
    device: str, ear: Ear, options: PortOptions = DEFAULTS
) -> AsyncIterator[ReplayPort]:
    port = await open_replay(device, options, ear.on_bytes, ear.on_lost)
    try:
        yield port
    finally:
        port.close()
        await within_s(5, port.wait_closed())


async def turn_for(time_s: float) -> None:
    """Let the loop turn, so that what it would do in this time has happened."""
    until = time.monotonic() + time_s
    while time.monotonic() < until:
        await asyncio.sleep(0)


@pytest.fixture
def capture(tmp_path: Path) -> Path:
    made = tmp_path / "boot.log"
    made.write_bytes(random.Random(4).randbytes(500_000))
    return made


async def test_a_capture_arrives_whole_as_fast_as_the_loop_takes_it(capture: Path) -> None:
    ear = Ear()
    with watched_loop() as loop:
        async with playing(f"replay:{capture}?bit_rate=0", ear):
            got = await ear.hears(500_000)

    assert got == capture.read_bytes()
    assert max(ear.pieces) <= 65536
    assert loop.worst_s < 0.25


async def test_a_capture_takes_as_long_as_on_the_wire(tmp_path: Path) -> None:
    log = tmp_path / "boot.log"
    log.write_bytes(bytes(range(256)) * 20)  # 5120 bytes at 115200 bit/s: 444 ms
    ear = Ear()
    began_ns = time.monotonic_ns()
    async with playing(f"replay:{log}", ear):
        got = await ear.hears(5120)

    took_s = (time.monotonic_ns() - began_ns) / 1e9
    assert got == log.read_bytes()
    assert took_s >= 0.444
    assert len(ear.pieces) >= 20


async def test_no_byte_comes_before_the_wire_could_bring_it(tmp_path: Path) -> None:
    log = tmp_path / "boot.log"
    log.write_bytes(bytes(20_000))
    ear = Ear()
    began_ns = time.monotonic_ns()
    async with playing(f"replay:{log}?bit_rate=1000000", ear):
        await ear.hears(20_000)

    count = 0
    for piece, at_ns in zip(ear.pieces, ear.stamps_ns, strict=True):
        count += piece
        assert count <= (at_ns - began_ns) * 1_000_000 // 10_000_000_000


async def test_the_rate_of_the_port_counts_if_the_device_names_none(tmp_path: Path) -> None:
    log = tmp_path / "boot.log"
    log.write_bytes(bytes(300_000))  # 26 s at 115200
    ear = Ear()
    began = time.monotonic()
    async with playing(f"replay:{log}", ear, PortOptions(bit_rate=12_000_000)):
        await ear.hears(300_000)

    assert time.monotonic() - began >= 0.25


async def test_at_the_end_the_port_stays_open_and_silent(tmp_path: Path) -> None:
    log = tmp_path / "boot.log"
    log.write_bytes(b"all there is\n")
    ear = Ear()
    async with playing(f"replay:{log}?bit_rate=0", ear) as port:
        await ear.hears(13)
        while not port._is_at_end:
            await asyncio.sleep(0)
        for _ in range(20):
            await asyncio.sleep(0)

        assert port._next is None
    assert ear.data == b"all there is\n"
    assert ear.losses == []


async def test_a_loop_begins_again_at_the_end(tmp_path: Path) -> None:
    log = tmp_path / "boot.log"
    log.write_bytes(b"boot\n")
    ear = Ear()
    async with playing(f"replay:{log}?bit_rate=0&loop=1", ear):
        await ear.hears(500)

    assert bytes(ear.data[:500]) == b"boot\n" * 100


async def test_a_loop_over_an_empty_file_is_silent_and_costs_nothing(tmp_path: Path) -> None:
    log = tmp_path / "boot.log"
    log.touch()
    ear = Ear()
    async with playing(f"replay:{log}?bit_rate=0&loop=1", ear) as port:
        while not port._is_at_end:
            await asyncio.sleep(0)

        assert port._next is None
    assert ear.data == b""


async def test_a_pause_stops_the_wire_and_loses_nothing(capture: Path) -> None:
    ear = Ear()
    async with playing(f"replay:{capture}?bit_rate=12000000", ear) as port:
        await ear.hears(1)
        port.pause()
        heard = len(ear.data)
        for _ in range(50):
            await asyncio.sleep(0)
        assert len(ear.data) == heard

        port.resume()
        got = await ear.hears(500_000)

    assert got == capture.read_bytes()


async def test_the_time_of_a_pause_is_not_made_up_for(tmp_path: Path) -> None:
    log = tmp_path / "boot.log"
    log.write_bytes(bytes(100_000))
    ear = Ear()
    async with playing(f"replay:{log}?bit_rate=1000000", ear) as port:
        await ear.hears(3_000)
        port.pause()
        before = len(ear.data)
        await turn_for(0.1)
        resumed_ns = time.monotonic_ns()
        port.resume()
        await ear.hears(before + 3_000)

    run_ns = ear.stamps_ns[-1] - resumed_ns
    assert len(ear.data) - before <= run_ns * 1_000_000 // 10_000_000_000


async def test_a_callback_may_pause_or_close_the_port(capture: Path) -> None:
    ports: list[ReplayPort] = []
    ear = Ear()

    def take_one(data: bytes, mono_ns: int) -> None:
        ear.on_bytes(data, mono_ns)
        if len(ear.pieces) == 1:
            ports[0].pause()
        else:
            ports[0].close()

    device = f"replay:{capture}?bit_rate=1000000"
    port = await open_replay(device, DEFAULTS, take_one, ear.on_lost)
    ports.append(port)
    await ear.hears(1)
    await turn_for(0.03)
    assert len(ear.pieces) == 1

    port.resume()
    await within_s(5, port.wait_closed())

    assert len(ear.pieces) == 2
    assert bytes(ear.data) == capture.read_bytes()[: len(ear.data)]


async def test_no_callback_comes_after_close(capture: Path) -> None:
    ear = Ear()
    async with playing(f"replay:{capture}?bit_rate=0", ear) as port:
        port.close()
        port.resume()
        await within_s(5, port.wait_closed())

    assert ear.data == b""


async def test_a_disk_that_fails_is_a_loss_told_once() -> None:
    device = "replay:/proc/self/mem"  # opens like any file, and cannot be read at 0
    ear = Ear()
    async with playing(device, ear) as port:
        assert str(await ear.loses()) == f"{device}: read failed: Input/output error"
        await within_s(5, port.wait_closed())

    assert len(ear.losses) == 1


async def test_a_replay_takes_no_input(capture: Path) -> None:
    async with playing(f"replay:{capture}", Ear()) as port:
        with pytest.raises(PortWriteError, match="a replay takes no input") as raised:
            await port.write(b"reset\n")

        assert raised.value.sent == 0
        await port.set_lines(dtr=True)
        await port.send_break()
        assert await port.counters() is None
        assert port.far_end is None


@pytest.mark.parametrize(
    ("name", "kind", "problem"),
    [
        ("missing.log", "absent", "open failed: No such file or directory"),
        ("", "absent", "open failed: No such file or directory"),
        (".", "broken", "open failed: not a file"),
        ("fifo", "broken", "open failed: not a file"),
        ("a\x00b", "broken", "embedded null byte"),
        ("missing.log?speed=3", "broken", "unknown option 'speed' (known: bit_rate, loop)"),
    ],
)
async def test_a_capture_that_cannot_be_read_says_why(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str, kind: str, problem: str
) -> None:
    monkeypatch.chdir(tmp_path)
    os.mkfifo("fifo")

    with pytest.raises(PortOpenError) as raised:
        await open_replay(f"replay:{name}", DEFAULTS, Ear().on_bytes, Ear().on_lost)

    assert raised.value.kind == kind
    assert problem in str(raised.value)
