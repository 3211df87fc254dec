"""The tty driver over real ptys: nothing lost, nothing sent, nothing blocked."""

from __future__ import annotations

import asyncio
import errno
import fcntl
import hashlib
import os
import random
import select
import subprocess
import sys
import termios
import threading
import time
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager, contextmanager
from pathlib import Path
from typing import Any

import pytest
import serial_asyncio

from bench_cable import Cable, within_s
from bench_ear import Ear, watched_loop
from serialwatch_drivers import opener, opening, port_thread, tty, uart
from serialwatch_drivers.port import PortOpenError, PortOptions, PortWriteError
from serialwatch_drivers.tty import TtyPort, open_tty

DEFAULTS = PortOptions()
NEVER_S = 5.0  # longer than any of this takes
STALL_S = 1.0  # how long a driver hangs here
LATE_S = 0.25  # a loop that waited for the driver would be STALL_S late


@pytest.fixture
def other_cable(tmp_path: Path) -> Iterator[Cable]:
    made = Cable(tmp_path, "usb-Test_UART_0002-if00-port0")
    yield made
    made.close()


@asynccontextmanager
async def opened(
    cable: Cable, ear: Ear | None = None, options: PortOptions = DEFAULTS
) -> AsyncIterator[TtyPort]:
    ear = ear or Ear()
    port = await open_tty(str(cable.path), options, ear.on_bytes, ear.on_lost)
    try:
        yield port
    finally:
        port.close()
        await within_s(NEVER_S, port.wait_closed())


async def board_hears(cable: Cable, count: int) -> bytes:
    loop = asyncio.get_running_loop()
    got = bytearray()
    while len(got) < count:
        ready = loop.create_future()
        loop.add_reader(cable.board, lambda f=ready: f.done() or f.set_result(None))
        try:
            await within_s(NEVER_S, ready)
        finally:
            loop.remove_reader(cable.board)
        got += cable.received()
    return bytes(got)


# Open: nothing lost, nothing sent, nothing toggled.


async def test_what_came_before_the_open_is_kept(cable: Cable) -> None:
    cable.prints(b"first boot line\r\n")
    ear = Ear()

    async with opened(cable, ear):
        assert await ear.hears(17) == b"first boot line\r\n"


async def test_a_board_receives_nothing_at_open_and_reopen_while_it_prints(cable: Cable) -> None:
    for _ in range(5):
        ear = Ear()
        cable.prints(b"Hit any key to stop autoboot: 3 ")
        async with opened(cable, ear):
            cable.prints(b"\b\b2 \r\n")
            await ear.hears(37)

    assert cable.received() == b""


async def test_a_cooked_tty_echoes_nothing_once_it_is_open() -> None:
    board, slave = os.openpty()  # cooked, with echo, as the kernel makes it
    os.set_blocking(board, False)
    ear = Ear()
    port = await open_tty(os.ttyname(slave), DEFAULTS, ear.on_bytes, ear.on_lost)

    os.write(board, b"hit any key\r\n")

    assert await ear.hears(13) == b"hit any key\r\n"
    with pytest.raises(BlockingIOError):
        os.read(board, 100)
    port.close()
    await port.wait_closed()
    os.close(board)
    os.close(slave)


async def test_a_cooked_tty_keeps_what_it_had_queued() -> None:
    board, slave = os.openpty()
    os.write(board, b"half a li")
    ear = Ear()

    port = await open_tty(os.ttyname(slave), DEFAULTS, ear.on_bytes, ear.on_lost)

    assert await ear.hears(9) == b"half a li"
    port.close()
    await port.wait_closed()
    os.close(board)
    os.close(slave)


def test_the_lock_is_taken_first_and_then_the_echo_is_off(
    cable: Cable, monkeypatch: pytest.MonkeyPatch
) -> None:
    calls: list[str] = []
    spied: list[tuple[Any, str]] = [
        (os, "open"),
        (fcntl, "flock"),
        (fcntl, "ioctl"),
        (termios, "tcgetattr"),
        (termios, "tcsetattr"),
        (termios, "tcflush"),
        (termios, "tcdrain"),
    ]
    for module, name in spied:
        _spy(monkeypatch, module, name, lambda *_args, name=name: calls.append(name))

    fd = opener.open_raw(str(cable.path), uart.raw_settings(115200, line_errors=False))

    assert calls == ["open", "flock", "tcsetattr"]
    assert not termios.tcgetattr(fd)[3] & termios.ECHO
    os.close(fd)


async def test_nothing_is_thrown_away_or_waited_for_at_open(
    cable: Cable, monkeypatch: pytest.MonkeyPatch
) -> None:
    calls: list[str] = []
    for name in ("tcflush", "tcdrain", "tcsetattr"):
        _spy(monkeypatch, termios, name, lambda *_args, name=name: calls.append(name))

    async with opened(cable):
        assert calls == []


async def test_termios_is_set_and_not_left_as_found(cable: Cable) -> None:
    slave = os.open(cable.path, os.O_RDWR | os.O_NOCTTY)
    found = termios.tcgetattr(slave)
    found[0] |= termios.BRKINT | termios.PARMRK | termios.INPCK | termios.ISTRIP | termios.IGNBRK
    found[0] |= termios.IXON | termios.IXOFF | termios.ICRNL | termios.IGNCR | termios.IXANY
    found[1] |= termios.OPOST | termios.ONLCR
    found[2] |= termios.HUPCL | termios.CRTSCTS | termios.PARENB | termios.CSTOPB
    found[2] &= ~termios.CLOCAL
    found[3] |= termios.ECHO | termios.ICANON | termios.ISIG
    termios.tcsetattr(slave, termios.TCSANOW, found)

    async with opened(cable, options=PortOptions(bit_rate=921600)):
        iflag, oflag, cflag, lflag, ispeed, ospeed, _ = termios.tcgetattr(slave)

    assert (iflag, oflag, lflag) == (0, 0, 0)
    speed = 0o010017
    assert cflag & ~speed == termios.CS8 | termios.CREAD | termios.CLOCAL
    assert ispeed == ospeed == termios.B921600
    os.close(slave)


async def test_line_errors_sets_inpck_and_nothing_else(cable: Cable) -> None:
    slave = os.open(cable.path, os.O_RDWR | os.O_NOCTTY)

    async with opened(cable, options=PortOptions(line_errors=True)):
        assert termios.tcgetattr(slave)[0] == termios.INPCK

    os.close(slave)


async def test_a_rate_without_a_termios_constant_is_set(cable: Cable) -> None:
    slave = os.open(cable.path, os.O_RDWR | os.O_NOCTTY)

    async with opened(cable, options=PortOptions(bit_rate=74880)):
        settings = fcntl.ioctl(slave, 0x802C542A, bytes(44))  # TCGETS2

    assert int.from_bytes(settings[36:40], sys.byteorder) == 74880
    assert int.from_bytes(settings[40:44], sys.byteorder) == 74880
    os.close(slave)


async def test_no_modem_line_is_touched_unless_an_option_says_so(
    cable: Cable, monkeypatch: pytest.MonkeyPatch
) -> None:
    lines = {termios.TIOCMBIS, termios.TIOCMBIC, termios.TIOCMSET}
    asked: list[tuple[int, bytes]] = []
    _spy(monkeypatch, fcntl, "ioctl", lambda _fd, request, *more: asked.append((request, *more)))

    async with opened(cable):
        pass

    assert not [request for request, *_ in asked if request in lines]

    async with opened(cable, options=PortOptions(rts=False)):
        pass

    rts_off = (termios.TIOCMBIC, (4).to_bytes(4, sys.byteorder))
    assert [call for call in asked if call[0] in lines] == [rts_off]


async def test_the_tty_is_exclusive_while_it_is_open_and_no_longer(cable: Cable) -> None:
    slave = os.open(cable.path, os.O_RDWR | os.O_NOCTTY)
    tiocgexcl = 0x80045440

    async with opened(cable):
        assert int.from_bytes(fcntl.ioctl(slave, tiocgexcl, bytes(4)), sys.byteorder) == 1

    assert int.from_bytes(fcntl.ioctl(slave, tiocgexcl, bytes(4)), sys.byteorder) == 0
    os.close(slave)


async def test_the_port_names_the_path_behind_the_link(cable: Cable) -> None:
    async with opened(cable) as port:
        assert port.device == os.readlink(cable.path)
        assert port.far_end is None


# Bytes.


async def test_every_byte_value_arrives_as_it_was_sent(cable: Cable) -> None:
    every = bytes(range(256)) * 4
    ear = Ear()

    async with opened(cable, ear):
        cable.prints(every)
        assert await ear.hears(len(every)) == every


async def test_xon_and_xoff_are_bytes_like_others(cable: Cable) -> None:
    ear = Ear()

    async with opened(cable, ear) as port:
        cable.prints(b"A\x13B\x11C")
        assert await ear.hears(5) == b"A\x13B\x11C"
        cable.prints(b"\x13")  # the board says "stop"; that is between it and its reader
        await port.write(b"still sent")

    assert cable.received() == b"still sent"


async def test_a_mebibyte_arrives_whole(cable: Cable) -> None:
    sent = random.Random(1).randbytes(1 << 20)
    ear = Ear()

    async with opened(cable, ear):
        await cable.prints_all(sent)
        got = await ear.hears(len(sent))

    assert hashlib.sha256(got).digest() == hashlib.sha256(sent).digest()
    assert max(ear.pieces) <= 65536
    assert ear.stamps_ns == sorted(ear.stamps_ns)


async def test_the_transport_reads_more_than_a_kilobyte_a_call(cable: Cable) -> None:
    cable.prints(b"x" * 4000)
    ear = Ear()

    async with opened(cable, ear):
        await ear.hears(4000)

    assert max(ear.pieces) > 1024


async def test_what_waits_behind_a_full_read_comes_with_it(cable: Cable) -> None:
    cable.prints(b"x" * 8_000)  # twice what the line discipline holds
    ear = Ear()

    async with opened(cable, ear):
        await ear.hears(8_000)

    assert ear.pieces == [8_000]


async def test_pyserial_asyncio_still_has_the_private_read_size(cable: Cable) -> None:
    async with opened(cable) as port:
        fresh = serial_asyncio.SerialTransport(
            asyncio.get_running_loop(), asyncio.Protocol(), port._line
        )
        assert fresh._max_read_size == 1024
        fresh._closing = True  # before it begins to read
        await asyncio.sleep(0)


async def test_a_paused_port_pushes_nothing_and_loses_nothing(cable: Cable) -> None:
    ear = Ear()
    async with opened(cable, ear) as port:
        port.pause()
        cable.prints(b"while paused")
        await _readable(port._fd)
        for _ in range(20):
            await asyncio.sleep(0)
        assert ear.data == b""

        port.resume()

        assert await ear.hears(12) == b"while paused"


# Loss and close.


async def test_an_unplug_is_told_once_and_names_the_device(
    cable: Cable, monkeypatch: pytest.MonkeyPatch
) -> None:
    drains: list[object] = []
    _spy(monkeypatch, termios, "tcdrain", drains.append)
    ear = Ear()
    async with opened(cable, ear) as port:
        cable.unplug()

        assert str(await ear.loses()) == f"{cable.path}: hung up"
        await within_s(NEVER_S, port.wait_closed())

    assert len(ear.losses) == 1
    assert drains == []  # it may hang


async def test_a_hundred_unplugs_are_told_once_each_at_little_cost(cable: Cable) -> None:
    spent = time.process_time()
    for _ in range(100):
        ear = Ear()
        async with opened(cable, ear) as port:
            cable.unplug()
            await ear.loses()
            await within_s(NEVER_S, port.wait_closed())
        assert len(ear.losses) == 1
        cable.plug()

    assert time.process_time() - spent < 2.0


async def test_a_lost_port_does_not_spin_while_its_driver_is_slow_to_close(
    cable: Cable, monkeypatch: pytest.MonkeyPatch
) -> None:
    ear = Ear()
    async with opened(cable, ear) as port:
        with slow_close(monkeypatch, port._fd, STALL_S):
            cable.unplug()
            await ear.loses()
            spent = time.process_time()
            await within_s(NEVER_S, port.wait_closed())

    assert time.process_time() - spent < STALL_S / 2


async def test_no_callback_comes_after_close(cable: Cable) -> None:
    ear = Ear()
    async with opened(cable, ear) as port:
        cable.prints(b"too late")
        await _readable(port._fd, on_loop=False)
        port.close()
        cable.unplug()
        await within_s(NEVER_S, port.wait_closed())

    assert ear.data == b""
    assert ear.losses == []


async def test_a_port_may_be_closed_from_its_own_callback(cable: Cable) -> None:
    ports: list[TtyPort] = []
    calls: list[bytes] = []

    def close_at_once(data: bytes, _mono_ns: int) -> None:
        calls.append(data)
        ports[0].close()

    port = await open_tty(str(cable.path), DEFAULTS, close_at_once, Ear().on_lost)
    ports.append(port)
    cable.prints(b"x")

    await within_s(NEVER_S, port.wait_closed())
    assert calls == [b"x"]


async def test_a_stolen_byte_is_no_loss(cable: Cable) -> None:
    ear = Ear()
    async with opened(cable, ear) as port:
        async with steals_first(port, cable):
            await asyncio.sleep(0)
            await asyncio.sleep(0)

        cable.prints(b"mine")
        assert await ear.hears(4) == b"mine"
    assert ear.losses == []


async def test_a_second_reader_that_set_the_tty_is_told_from_a_hang_up(
    cable: Cable, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tty, "find_readers", lambda _: {})  # whatever else runs on this PC
    ear = Ear()
    async with opened(cable, ear) as port:
        thief = os.open(cable.path, os.O_RDWR | os.O_NOCTTY)
        settings = termios.tcgetattr(thief)
        settings[6][termios.VMIN] = 0  # as pyserial does
        termios.tcsetattr(thief, termios.TCSANOW, settings)

        async with steals_first(port, cable):
            lost = await ear.loses()
        os.close(thief)

    assert "second reader?" in str(lost)
    assert f"fuser -v {cable.path}" in str(lost)


HOLDS = "import os,sys; os.open(sys.argv[1], 2); print('up', flush=True); sys.stdin.read()"


async def test_a_second_reader_is_named_where_the_system_shows_it(cable: Cable) -> None:
    ear = Ear()
    thief = await asyncio.create_subprocess_exec(
        sys.executable, "-S", "-c", HOLDS, str(cable.path),
        stdin=subprocess.PIPE, stdout=subprocess.PIPE,
    )  # fmt: skip
    assert thief.stdout is not None
    await within_s(20, thief.stdout.readline())
    async with opened(cable, ear) as port:
        own = os.open(cable.path, os.O_RDWR | os.O_NOCTTY)
        settings = termios.tcgetattr(own)
        settings[6][termios.VMIN] = 0
        termios.tcsetattr(own, termios.TCSANOW, settings)
        async with steals_first(port, cable):
            lost = await ear.loses()
        os.close(own)
    await thief.communicate(b"")

    assert f"second reader? {Path(sys.executable).resolve().name[:6]}" in str(lost)
    assert f"(pid {thief.pid}, uid {os.geteuid()})" in str(lost)
    assert len(ear.losses) == 1


async def test_a_port_opens_again_once_it_is_closed(
    cable: Cable, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with opened(cable) as port:
        with slow_close(monkeypatch, port._fd, 0.3):
            port.close()
            with pytest.raises(PortOpenError) as too_early:
                await open_tty(str(cable.path), DEFAULTS, Ear().on_bytes, Ear().on_lost)
            await within_s(NEVER_S, port.wait_closed())

    assert too_early.value.kind == "busy"
    ear = Ear()
    async with opened(cable, ear):
        cable.prints(b"again")
        assert await ear.hears(5) == b"again"


async def test_a_slow_close_of_one_port_does_not_stall_another(
    cable: Cable, other_cable: Cable, monkeypatch: pytest.MonkeyPatch
) -> None:
    ear, let_go = Ear(), threading.Event()
    async with opened(cable) as slow, opened(other_cable, ear):
        with slow_close(monkeypatch, slow._fd, NEVER_S, let_go), watched_loop() as loop:
            slow.close()
            closing = asyncio.create_task(slow.wait_closed())
            other_cable.prints(b"alive")
            await ear.hears(5)
            is_closed = closing.done()
            let_go.set()
            await within_s(NEVER_S, closing)

    assert not is_closed
    assert loop.worst_s < LATE_S


# Opens that fail.


async def refused(device: str | Path, options: PortOptions = DEFAULTS) -> PortOpenError:
    with pytest.raises(PortOpenError) as raised:
        await open_tty(str(device), options, Ear().on_bytes, Ear().on_lost)
    return raised.value


async def test_a_missing_device_is_absent(tmp_path: Path) -> None:
    error = await refused(tmp_path / "ttyUSB7")

    assert error.kind == "absent"
    assert str(error) == (
        f"{tmp_path}/ttyUSB7: open failed: No such file or directory"
        " (is it plugged in and powered?)"
    )


async def test_a_device_of_another_program_is_busy_and_names_it(cable: Cable) -> None:
    script = (
        "import fcntl,os,sys; fd = os.open(sys.argv[1], os.O_RDWR | os.O_NOCTTY);"
        "fcntl.flock(fd, fcntl.LOCK_EX); print('have it', flush=True); sys.stdin.read()"
    )
    with subprocess.Popen(
        [sys.executable, "-S", "-c", script, str(cable.path)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
    ) as holder:
        assert holder.stdout is not None
        assert holder.stdout.readline() == b"have it\n"

        error = await refused(cable.path)

        holder.communicate(b"", timeout=NEVER_S)
    assert error.kind == "busy"
    assert error.holder.endswith(f"(pid {holder.pid}, uid {os.geteuid()})")
    assert str(error) == f"{cable.path}: open failed: in use by {error.holder}"


async def test_a_busy_tty_is_left_as_its_owner_set_it(cable: Cable) -> None:
    owner = os.open(cable.path, os.O_RDWR | os.O_NOCTTY)
    fcntl.flock(owner, fcntl.LOCK_EX)
    settings = termios.tcgetattr(owner)
    settings[3] |= termios.ICANON
    settings[4] = settings[5] = termios.B9600
    termios.tcsetattr(owner, termios.TCSANOW, settings)
    before = termios.tcgetattr(owner)

    await refused(cable.path)

    assert termios.tcgetattr(owner) == before
    os.close(owner)


async def test_a_device_without_permission_is_denied_and_names_the_group(
    cable: Cable, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(path: object, *_args: object) -> None:
        if path == str(cable.path):  # root may open anything, so say no in its place
            raise PermissionError(errno.EACCES, "Permission denied")

    _spy(monkeypatch, opening, "open_raw", refuse)

    error = await refused(cable.path)

    assert error.kind == "denied"
    assert "open failed: Permission denied (is the user in group " in str(error)


async def test_a_file_is_no_serial_device(tmp_path: Path) -> None:
    log = tmp_path / "boot.log"
    log.write_text("boot\n")

    error = await refused(log)

    assert error.kind == "broken"
    assert "not a serial device" in str(error)


@pytest.mark.parametrize("path", ["/dev/null", "/dev/ptmx", "/dev/tty"])
async def test_a_device_of_another_kind_is_not_even_opened(
    path: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    touched: list[object] = []
    _spy(monkeypatch, opening, "open_raw", lambda path, *_args: touched.append(path))

    error = await refused(path)

    assert error.kind == "broken"
    assert touched == []


async def test_a_bit_rate_of_zero_is_refused(cable: Cable) -> None:
    error = await refused(cable.path, PortOptions(bit_rate=0))

    assert error.kind == "broken"
    assert "bit rate" in str(error)


async def test_an_open_that_hangs_blocks_nothing_and_is_given_up(
    cable: Cable, monkeypatch: pytest.MonkeyPatch
) -> None:
    let_go = threading.Event()
    opens: list[object] = []
    _spy(
        monkeypatch,
        opening,
        "open_raw",
        lambda path, *_args: path == str(cable.path) and (opens.append(path), let_go.wait(NEVER_S)),
    )
    monkeypatch.setattr(port_thread, "OPEN_LIMIT_S", 0.2)

    with watched_loop() as loop:
        error = await refused(cable.path)
        again = await refused(cable.path)

    assert error.kind == again.kind == "broken"
    assert "no answer within 0.2 s" in str(error)
    assert "still hangs" in str(again)
    assert len(opens) == 1
    assert loop.worst_s < LATE_S

    hung = port_thread._hung[str(cable.path)]
    let_go.set()
    await within_s(NEVER_S, hung.ended())
    monkeypatch.undo()
    async with opened(cable):  # what came too late was closed, and its lock with it
        pass


async def test_a_cancelled_open_leaves_nothing_open(
    cable: Cable, monkeypatch: pytest.MonkeyPatch
) -> None:
    let_go, began = threading.Event(), threading.Event()
    _spy(
        monkeypatch,
        opening,
        "open_raw",
        lambda path, *_args: path == str(cable.path) and (began.set(), let_go.wait(NEVER_S)),
    )
    opens = asyncio.create_task(
        open_tty(str(cable.path), DEFAULTS, Ear().on_bytes, Ear().on_lost), name="opening"
    )
    while not began.is_set():
        await asyncio.sleep(0)

    opens.cancel()
    with pytest.raises(asyncio.CancelledError):
        await opens
    let_go.set()
    await within_s(NEVER_S, port_thread._hung[str(cable.path)].ended())
    monkeypatch.undo()
    async with opened(cable):
        pass


# Writing.


async def test_what_is_written_reaches_the_board_in_whole_writes(cable: Cable) -> None:
    texts = [bytes([65 + n]) * 30_000 for n in range(4)]
    async with opened(cable) as port, asyncio.TaskGroup() as tasks:
        for text in texts:
            tasks.create_task(port.write(text), name="write")
        got = await board_hears(cable, 120_000)

    assert got == b"".join(texts)


async def test_a_board_that_does_not_read_fails_the_write_in_time_and_no_other_port(
    cable: Cable, other_cable: Cable, monkeypatch: pytest.MonkeyPatch
) -> None:
    text = random.Random(2).randbytes(1_000_000)
    ear = Ear()
    async with opened(cable) as stuck, opened(other_cable, ear):
        stuck._writer._limit_s = 0.5
        with watched_loop() as loop:
            began = time.monotonic()
            failing = asyncio.create_task(stuck.write(text), name="write")
            other_cable.prints(b"alive")
            await ear.hears(5)
            has_failed = failing.done()
            with pytest.raises(PortWriteError) as raised:
                await within_s(NEVER_S, failing)
            failed_s = time.monotonic() - began

        got = await board_hears(cable, raised.value.sent)

    assert 0 < raised.value.sent < len(text)
    assert got == text[: raised.value.sent]
    assert f"{raised.value.sent} of 1000000 bytes were taken in 0.5 s" in str(raised.value)
    assert failed_s >= 0.5
    assert not has_failed
    assert loop.worst_s < LATE_S


async def test_the_port_works_on_after_a_failed_write(cable: Cable) -> None:
    async with opened(cable) as port:
        port._writer._limit_s = 0.05
        with pytest.raises(PortWriteError) as raised:
            await port.write(b"x" * 100_000)
        await board_hears(cable, raised.value.sent)

        await port.write(b"reset\n")

        assert await board_hears(cable, 6) == b"reset\n"


async def test_close_fails_a_write_that_waits_and_does_not_wait_itself(cable: Cable) -> None:
    async with opened(cable) as port:
        writing = asyncio.create_task(port.write(b"x" * 200_000), name="write")
        while port._writer._free is None:
            await asyncio.sleep(0)

        port.close()

        with pytest.raises(PortWriteError, match="the port is closed"):
            await within_s(1, writing)
        await within_s(1, port.wait_closed())


async def test_an_unplug_fails_a_write_that_waits(cable: Cable) -> None:
    ear = Ear()
    async with opened(cable, ear) as port:
        writing = asyncio.create_task(port.write(b"x" * 200_000), name="write")
        while port._writer._free is None:
            await asyncio.sleep(0)

        cable.unplug()

        with pytest.raises(PortWriteError):
            await within_s(1, writing)
        await ear.loses()


async def test_a_closed_port_takes_no_more(cable: Cable) -> None:
    async with opened(cable) as port:
        port.close()

        with pytest.raises(PortWriteError, match="closed"):
            await port.write(b"x")
        with pytest.raises(PortWriteError, match="closed"):
            await port.set_lines(dtr=True)
        with pytest.raises(PortWriteError, match="closed"):
            await port.send_break()
        assert await port.counters() is None
    assert cable.received() == b""


async def test_what_was_just_written_survives_the_close(cable: Cable) -> None:
    async with opened(cable) as port:
        await port.write(b"reset\r")
        port.close()
        await port.wait_closed()

    assert cable.received() == b"reset\r"


# Lines, break, counters.


async def test_a_pty_has_no_lines_no_break_and_no_counters(cable: Cable) -> None:
    async with opened(cable) as port:
        await port.set_lines(dtr=True)
        await port.set_lines(dtr=False, rts=True)
        await port.send_break(0.01)

        assert await port.counters() is None
    assert cable.received() == b""


async def test_a_break_is_held_between_writes_and_cut_short_by_close(
    cable: Cable, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[int] = []
    async with opened(cable) as port:
        _spy(monkeypatch, fcntl, "ioctl", lambda _fd, request, *_more: asked.append(request))
        holding = asyncio.create_task(port.send_break(60), name="break")
        while 0x5427 not in asked:  # TIOCSBRK
            await asyncio.sleep(0)
        assert port._writer.turn.locked()

        port.close()

        await within_s(1, holding)
    assert asked[:2] == [0x5427, 0x5428]


@contextmanager
def slow_close(
    monkeypatch: pytest.MonkeyPatch, fd: int, delay_s: float, let_go: threading.Event | None = None
) -> Iterator[None]:
    """Let the kernel take `delay_s` to close `fd`, as a USB driver does that waits to drain."""
    slow = {fd}
    let_go = let_go or threading.Event()

    def wait(closing: int) -> None:
        if closing in slow:
            slow.discard(closing)
            let_go.wait(delay_s)

    with monkeypatch.context() as patch:
        _spy(patch, os, "close", wait)
        yield


@asynccontextmanager
async def steals_first(port: TtyPort, cable: Cable) -> AsyncIterator[None]:
    """Let another reader take the board's bytes when the loop has already been told of them."""
    thief = os.open(cable.path, os.O_RDWR | os.O_NOCTTY | os.O_NONBLOCK)
    stolen: list[bytes] = []
    cable.prints(b"stolen")
    assert select.select([port._fd], [], [], NEVER_S)[0]
    # What is due already runs before the readers of what the loop then finds ready.
    asyncio.get_running_loop().call_soon(lambda: stolen.append(os.read(thief, 100)))
    yield
    assert stolen == [b"stolen"]
    os.close(thief)


async def _readable(fd: int, *, on_loop: bool = True) -> None:
    """Wait until the kernel has bytes for `fd`; with the loop turning meanwhile, or not at all."""
    while not select.select([fd], [], [], 0)[0]:
        if on_loop:
            await asyncio.sleep(0)


def _spy(
    monkeypatch: pytest.MonkeyPatch, module: Any, name: str, note: Callable[..., object]
) -> None:
    """Let `note` see each call's arguments first; what it raises counts as the call's answer."""
    real = getattr(module, name)

    def spied(*args: Any, **more: Any) -> Any:
        note(*args, **more)
        return real(*args, **more)

    monkeypatch.setattr(module, name, spied)
