from __future__ import annotations

import asyncio
import hashlib
import os
import random
import termios
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from bench_cable import within_s
from bench_ear import Ear
from serialwatch_drivers.port import PortOpenError, PortOptions, PortWriteError
from serialwatch_drivers.pty import PtyPort, open_pty
from serialwatch_drivers.tty import open_tty

DEFAULTS = PortOptions()


@asynccontextmanager
async def opened(ear: Ear, device: str = "pty:") -> AsyncIterator[PtyPort]:
    port = await open_pty(device, DEFAULTS, ear.on_bytes, ear.on_lost)
    try:
        yield port
    finally:
        port.close()
        await port.wait_closed()


async def test_what_the_far_end_writes_is_pushed_and_what_we_write_reaches_it() -> None:
    ear = Ear()
    async with opened(ear) as port:
        far = os.open(port.far_end, os.O_RDWR | os.O_NOCTTY)
        os.write(far, b"boot\r\n\x03\x13\x7f")
        assert await ear.hears(9) == b"boot\r\n\x03\x13\x7f"

        await port.write(b"reset\r\n")

        assert os.read(far, 100) == b"reset\r\n"
        os.close(far)


async def test_the_far_end_is_raw_and_echoes_nothing() -> None:
    ear = Ear()
    async with opened(ear) as port:
        far = os.open(port.far_end, os.O_RDWR | os.O_NOCTTY)
        settings = termios.tcgetattr(far)

        await port.write(b"help\n")

        assert os.read(far, 100) == b"help\n"
        assert settings[3] & (termios.ECHO | termios.ICANON | termios.ISIG) == 0
        assert settings[1] & termios.OPOST == 0
        assert ear.data == b""
        os.close(far)


async def test_a_far_end_that_comes_and_goes_is_no_loss() -> None:
    ear = Ear()
    async with opened(ear) as port:
        for n in range(10):
            far = os.open(port.far_end, os.O_RDWR | os.O_NOCTTY)
            os.write(far, b"%d\n" % n)
            os.close(far)
        await ear.hears(20)

    assert ear.data == b"".join(b"%d\n" % n for n in range(10))
    assert ear.losses == []


async def test_a_mebibyte_arrives_whole_through_the_tty_driver_on_the_far_end() -> None:
    sent = random.Random(3).randbytes(1 << 20)
    ear, far_ear = Ear(), Ear()
    async with opened(ear) as port:
        board = await open_tty(port.far_end, DEFAULTS, far_ear.on_bytes, far_ear.on_lost)
        await board.write(sent)
        got = await ear.hears(len(sent))
        board.close()
        await within_s(5, board.wait_closed())

    assert hashlib.sha256(got).digest() == hashlib.sha256(sent).digest()
    assert max(ear.pieces) <= 65536


async def test_a_far_end_that_nobody_reads_fails_the_write_in_time() -> None:
    async with opened(Ear()) as port:
        port._writer._limit_s = 0.2

        with pytest.raises(PortWriteError) as raised:
            await port.write(b"x" * 200_000)

    assert 0 < raised.value.sent < 200_000


async def test_a_paused_port_pushes_nothing_and_loses_nothing() -> None:
    ear = Ear()
    async with opened(ear) as port:
        port.pause()
        far = os.open(port.far_end, os.O_RDWR | os.O_NOCTTY)
        os.write(far, b"while paused")
        for _ in range(50):
            await asyncio.sleep(0)
        assert ear.data == b""

        port.resume()

        assert await ear.hears(12) == b"while paused"
        os.close(far)


async def test_a_closed_port_takes_and_pushes_no_more() -> None:
    ear = Ear()
    async with opened(ear) as port:
        far = os.open(port.far_end, os.O_RDWR | os.O_NOCTTY)
        os.write(far, b"too late")
        port.close()
        port.resume()

        with pytest.raises(PortWriteError, match="closed"):
            await port.write(b"x")
        os.close(far)

    assert ear.data == b""
    assert ear.losses == []


async def test_the_link_leads_to_the_far_end_until_the_port_is_closed(tmp_path: Path) -> None:
    link = tmp_path / "dut1"
    async with opened(Ear(), f"pty:{link}") as port:
        assert os.readlink(link) == port.far_end
        assert port.device == f"pty:{link}"

    assert not link.is_symlink()


async def test_a_link_left_by_a_crash_is_replaced(tmp_path: Path) -> None:
    link = tmp_path / "dut1"
    link.symlink_to("/dev/pts/99999")

    async with opened(Ear(), f"pty:{link}") as port:
        assert os.readlink(link) == port.far_end


async def test_a_link_that_somebody_has_taken_over_is_left_alone(tmp_path: Path) -> None:
    link = tmp_path / "dut1"
    async with opened(Ear(), f"pty:{link}"):
        link.unlink()
        link.symlink_to("/dev/pts/99999")

    assert os.readlink(link) == "/dev/pts/99999"


@pytest.mark.parametrize("kind", ["file", "foreign link", "no folder"])
async def test_what_is_no_link_of_ours_is_not_replaced(tmp_path: Path, kind: str) -> None:
    link = tmp_path / "dut1"
    if kind == "file":
        link.write_text("precious")
    elif kind == "foreign link":
        link.symlink_to("/dev/ttyUSB0")
    else:
        link = tmp_path / "nowhere/dut1"

    with pytest.raises(PortOpenError) as raised:
        await open_pty(f"pty:{link}", DEFAULTS, Ear().on_bytes, Ear().on_lost)

    assert raised.value.kind == "broken"
    assert str(link) in str(raised.value)
    assert kind != "file" or link.read_text() == "precious"


async def test_a_pty_has_no_lines_no_break_and_no_counters() -> None:
    async with opened(Ear()) as port:
        await port.set_lines(dtr=True, rts=False)
        await port.send_break()

        assert await port.counters() is None
