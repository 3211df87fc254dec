"""Adapters that come and go, at other places and under other numbers."""

from __future__ import annotations

import asyncio
import ctypes
import logging
import os
import termios
import threading
import time
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from bench_cable import Cable, within_s
from bench_usb import Looks, UsbBench
from serialwatch.capture import path_watch
from serialwatch.capture.path_watch import OpenedPath, appears, leads_elsewhere
from serialwatch.capture.reader import Reader
from serialwatch.capture.ring import Ring, RingBudget
from serialwatch_drivers.identity import Identity, identify, resolve
from serialwatch_drivers.port import OnBytes, OnLost, Port, PortOpenError, PortOptions
from serialwatch_drivers.tty import open_tty
from test_reader import Heard, bench_on

FTDI = "0403:6001"


class Board:
    """A board behind an adapter, which can be plugged in anywhere."""

    def __init__(self, usb: UsbBench, folder: Path, serial: str) -> None:
        self._usb = usb
        folder.mkdir()
        self.cable = Cable(folder)
        self.cable.unplug()
        self._serial = serial
        self._tty = ""

    def plug(self, tty: str, interface: str) -> None:
        self.cable.plug()
        target = os.readlink(self.cable.path)
        self._usb.plug(tty, interface, kind=FTDI, serial=self._serial, leads_to=target)
        self._tty = tty

    def unplug(self) -> None:
        self._usb.unplug(self._tty)
        self.cable.unplug()


@pytest.fixture
def usb(tmp_path: Path) -> UsbBench:
    return UsbBench(tmp_path / "machine")


@contextmanager
def board(usb: UsbBench, tmp_path: Path, serial: str) -> Iterator[Board]:
    made = Board(usb, tmp_path / f"board-{serial}", serial)
    try:
        yield made
    finally:
        made.cable.close()


class Kept:
    """A port of the USB bench that is kept open, with lines from 1."""

    def __init__(self, usb: UsbBench, device: str, options: PortOptions | None = None) -> None:
        self.heard = Heard()
        self._usb = usb
        self.reader = Reader(
            "dut1", device, options or PortOptions(), "lf", Ring("dut1", RingBudget()),
            self.heard, self._open, sysfs=usb.sysfs, dev=usb.dev,
        )  # fmt: skip
        self.reader.number_from(1, 0)

    async def _open(self, device: str, options: PortOptions, on: OnBytes, lost: OnLost) -> Port:
        path = resolve(device, self._usb.sysfs, self._usb.dev, self._usb.twins)
        return await open_tty(path, options, on, lost)

    async def says(self, board: Board, text: bytes) -> None:
        await self.heard.until(lambda: self.reader.state == "up")
        board.cable.prints(text + b"\r\n")
        await self.heard.until(lambda: text in self.heard.lines.values())


@asynccontextmanager
async def kept(*ports: Kept) -> AsyncIterator[None]:
    tasks = [asyncio.create_task(port.reader.keep_open(), name="port") for port in ports]
    try:
        yield
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.wait(tasks)


@pytest.fixture
async def looks(monkeypatch: pytest.MonkeyPatch) -> Looks:
    return Looks(monkeypatch)


@pytest.fixture
def folders_tell(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let nothing be found by looking now and then."""
    monkeypatch.setattr(path_watch, "SAFETY_S", 60.0)


# The same port wherever it comes back


async def test_an_adapter_that_comes_back_elsewhere_under_another_number_is_the_same_port(
    usb: UsbBench, tmp_path: Path, folders_tell: None
) -> None:
    with board(usb, tmp_path, "A1") as one:
        one.plug("ttyUSB0", "1-2:1.0")
        port = Kept(usb, "usbid:0403:6001:A1")
        async with kept(port):
            for number, (tty, place) in enumerate(
                (("ttyUSB0", "1-2:1.0"), ("ttyUSB1", "1-4.3:1.0"), ("ttyUSB7", "2-1:1.0"))
            ):
                if number:
                    one.unplug()
                    await port.heard.until(lambda: port.reader.state == "absent")
                    one.plug(tty, place)
                await port.says(one, b"at %s" % place.encode())
            assert one.cable.received() == b""

    assert port.heard.lines == {1: b"at 1-2:1.0", 2: b"at 1-4.3:1.0", 3: b"at 2-1:1.0"}
    assert port.reader.stats.reconnects == 2


async def test_a_replugged_hub_brings_each_board_back_to_its_own_port(
    usb: UsbBench, tmp_path: Path, folders_tell: None
) -> None:
    with board(usb, tmp_path, "A1") as one, board(usb, tmp_path, "A2") as two:
        one.plug("ttyUSB0", "1-2.1:1.0")
        two.plug("ttyUSB1", "1-2.2:1.0")
        ports = Kept(usb, "usbid:0403:6001:A1"), Kept(usb, "usb:1-2.2:1.0")
        async with kept(*ports):
            for port, its in zip(ports, (one, two), strict=True):
                await port.says(its, b"before")
            one.unplug()
            two.unplug()
            two.plug("ttyUSB0", "1-2.2:1.0")
            one.plug("ttyUSB1", "1-2.1:1.0")
            for port, its, text in zip(ports, (one, two), (b"first", b"second"), strict=True):
                await port.heard.until(lambda port=port: port.reader.stats.reconnects == 1)
                await port.says(its, text)

    assert [port.heard.lines for port in ports] == [
        {1: b"before", 2: b"first"},
        {1: b"before", 2: b"second"},
    ]


async def test_an_adapter_without_a_serial_number_that_vanishes_stays_away_whoever_else_comes(
    usb: UsbBench, tmp_path: Path, folders_tell: None
) -> None:
    with board(usb, tmp_path, "") as one:
        one.plug("ttyUSB0", "1-2:1.0")
        port = Kept(usb, "usb:1-2:1.0")
        async with kept(port):
            await port.says(one, b"mine")
            one.unplug()
            await port.heard.until(lambda: port.reader.state == "absent")
            with board(usb, tmp_path, "other") as other:
                other._serial = ""
                other.plug("ttyUSB0", "1-3:1.0")
                other.cable.prints(b"not mine\r\n")
                one.plug("ttyUSB1", "1-2:1.0")  # looked at after the other one
                await port.says(one, b"again")
                assert other.cable.received() == b""

    assert port.heard.lines == {1: b"mine", 2: b"again"}


async def test_others_that_come_and_go_meanwhile_cost_neither_opens_nor_log_lines(
    usb: UsbBench,
    tmp_path: Path,
    folders_tell: None,
    looks: Looks,
    caplog: pytest.LogCaptureFixture,
) -> None:
    caplog.set_level(logging.INFO, "serialwatch.capture")
    with board(usb, tmp_path, "A1") as one:
        one.plug("ttyUSB0", "1-2:1.0")
        port = Kept(usb, "usbid:0403:6001:A1")
        async with kept(port):
            await port.says(one, b"before")
            one.unplug()
            await looks.beyond(0)
            for number in range(25):  # a hub's worth of them, one after the other
                before = looks.count
                usb.plug(f"ttyUSB{number + 1}", f"1-3.{number}:1.0", kind=FTDI, serial=f"B{number}")
                await looks.beyond(before)
            one.plug("ttyUSB0", "1-2:1.0")
            await port.says(one, b"after")

    assert port.reader.stats.opens == {"ok": 2, "absent": 1}
    assert looks.count < 25 * 10  # no more than what is told makes look
    assert [record.getMessage()[:13] for record in caplog.records] == [
        "dut1: up on /",
        "dut1: absent:",
        "dut1: back on",
    ]


async def test_a_loss_does_not_depend_on_output_that_cannot_leave(
    cable: Cable, monkeypatch: pytest.MonkeyPatch
) -> None:
    def broken(fd: int) -> None:
        raise termios.error(5, "Input/output error")

    monkeypatch.setattr(termios, "tcdrain", broken)
    async with bench_on(cable.path) as bench:
        bench.reader.number_from(1, 0)
        await bench.up()
        cable.unplug()
        await bench.heard.until(lambda: bench.reader.state == "absent")
        cable.plug()
        cable.prints(b"back\n")
        await bench.has_line(b"back")


# When it is looked for


async def test_a_device_is_noticed_when_its_folders_come(
    tmp_path: Path, folders_tell: None, looks: Looks
) -> None:
    device = tmp_path / "serial/by-id/usb-FTDI-if00-port0"
    waiting = asyncio.create_task(appears(str(device), "dut1"))
    await looks.beyond(0)
    for folder in (device.parent.parent, device.parent):  # one after the other, as udev makes them
        before = looks.count
        folder.mkdir()
        await looks.beyond(before)
    device.symlink_to("/dev/null")

    await within_s(5, waiting)


async def test_without_word_from_the_kernel_it_is_looked_for_again_and_again(
    tmp_path: Path, folders_tell: None, monkeypatch: pytest.MonkeyPatch, looks: Looks
) -> None:
    def refused(name: object, **options: Any) -> None:
        raise OSError("no such library")

    monkeypatch.setattr(ctypes, "CDLL", refused)
    device = tmp_path / "ttyUSB0"
    waiting = asyncio.create_task(appears(str(device), "dut1"))
    await looks.beyond(0)
    device.touch()

    await within_s(5, waiting)


async def test_a_device_that_is_there_but_does_not_open_is_not_tried_at_once(
    tmp_path: Path,
) -> None:
    device = tmp_path / "ttyUSB0"
    device.touch()
    began = time.monotonic()

    await within_s(5, appears(str(device), "dut1"))

    assert time.monotonic() - began >= path_watch.PRESENCE_S


async def test_rights_that_udev_sets_a_moment_later_are_waited_for(
    usb: UsbBench, tmp_path: Path
) -> None:
    with board(usb, tmp_path, "A1") as one:
        port = Kept(usb, "usb:1-2:1.0")
        real = port.reader._open_device
        refusals = [PortOpenError("usb:1-2:1.0", "denied", "Permission denied")] * 3

        async def refused_first(*arguments: Any) -> Port:
            if (usb.dev / "ttyUSB0").exists() and refusals:
                raise refusals.pop()
            assert real is not None
            return await real(*arguments)

        port.reader._open_device = refused_first
        async with kept(port):
            await port.heard.until(lambda: port.reader.state == "absent")
            one.plug("ttyUSB0", "1-2:1.0")
            await port.says(one, b"hello")

    assert refusals == []
    assert port.heard.states == ["absent", "up"]


async def test_an_open_waits_as_long_after_the_plug_as_the_configuration_says(
    usb: UsbBench, tmp_path: Path
) -> None:
    with board(usb, tmp_path, "A1") as one:
        port = Kept(usb, "usb:1-2:1.0", PortOptions(open_delay_s=0.3))
        async with kept(port):
            await port.heard.until(lambda: port.reader.state == "absent")
            one.plug("ttyUSB0", "1-2:1.0")
            plugged = time.monotonic()
            await port.says(one, b"hello")

    assert time.monotonic() - plugged >= 0.3


# What is open


def test_a_node_that_was_made_anew_is_another_device(tmp_path: Path) -> None:
    node = tmp_path / "ttyUSB0"
    node.touch()
    opened = OpenedPath(str(node), str(node), identify(str(node)))
    assert not opened.has_changed()
    (tmp_path / "keeps-the-inode").hardlink_to(node)
    node.unlink()
    node.touch()

    assert opened.has_changed()


def test_an_adapter_that_takes_the_place_of_another_at_the_same_node_is_seen(usb: UsbBench) -> None:
    node = usb.plug("ttyUSB0", "1-2:1.0", kind=FTDI, serial="A1")
    opened = OpenedPath(node, node, identify(node, usb.sysfs), usb.sysfs, usb.twins)
    assert not opened.has_changed()
    Path(f"{node}.keeps-the-inode").hardlink_to(node)
    usb.unplug("ttyUSB0")
    usb.plug("ttyUSB0", "1-3:1.0", kind=FTDI, serial="A2")

    assert opened.has_changed()


@pytest.mark.parametrize("field", ["st_dev", "st_ino", "st_rdev", "st_ctime_ns"])
def test_a_node_is_looked_at_in_full_as_soon_as_anything_of_it_differs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, field: str
) -> None:
    node = tmp_path / "ttyUSB0"
    node.touch()
    found = node.stat()
    names = ("st_dev", "st_ino", "st_rdev", "st_ctime_ns")
    told = SimpleNamespace(**{name: getattr(found, name) for name in names})
    told.st_ctime_ns -= 1_000_000_000
    monkeypatch.setattr(path_watch, "os", SimpleNamespace(stat=lambda _: told))
    opened = OpenedPath(str(node), str(node), identify(str(node)))
    assert not opened.has_changed()
    monkeypatch.setattr(path_watch, "identify", lambda *_: None)
    assert not opened.has_changed()
    setattr(told, field, getattr(told, field) + 1)
    monkeypatch.setattr(
        path_watch, "identify", lambda *_: Identity((found.st_dev, found.st_ino), 7, "elsewhere")
    )

    assert opened.has_changed()


def test_a_node_that_is_so_new_that_the_next_could_bear_the_same_time_is_looked_at_in_full(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    node = tmp_path / "ttyUSB0"
    node.touch()
    opened = OpenedPath(str(node), str(node), identify(str(node)))
    now = SimpleNamespace(time_ns=lambda: node.stat().st_ctime_ns + 9_000_000)
    monkeypatch.setattr(path_watch, "time", now)
    assert not opened.has_changed()
    another = Identity((node.stat().st_dev, node.stat().st_ino), 7, "elsewhere")
    monkeypatch.setattr(path_watch, "identify", lambda *_: another)

    assert opened.has_changed()


async def test_a_look_that_hangs_holds_up_no_other(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(path_watch, "IDENTITY_S", 0.01)
    monkeypatch.setattr(path_watch, "HUNG_S", 0.01)
    hung, goes_on = tmp_path / "hung", tmp_path / "tty"
    answer, asked = threading.Event(), threading.Event()
    identified = path_watch.identify

    def identify_or_hang(path: str | int, sysfs: Path) -> Identity | None:
        if path == str(hung) and not answer.is_set():
            asked.set()
            answer.wait()
        return identified(path, sysfs)

    monkeypatch.setattr(path_watch, "identify", identify_or_hang)
    hung.touch()
    goes_on.touch()
    first = asyncio.create_task(leads_elsewhere(str(hung), str(hung)))
    second = asyncio.create_task(leads_elsewhere(str(goes_on), str(goes_on), identify(goes_on)))
    try:
        await asyncio.to_thread(asked.wait)
        made_anew(goes_on)
        await within_s(5, second)
        assert not first.done()
    finally:
        answer.set()
    await appears(str(hung), "hung")  # a quarter of a second: it is known now
    made_anew(hung)
    await within_s(5, first)


def made_anew(node: Path) -> None:
    node.with_suffix(".keeps-the-inode").hardlink_to(node)
    node.unlink()
    node.touch()


async def test_all_open_paths_are_looked_at_in_one_thread(tmp_path: Path) -> None:
    before = threading.active_count()
    tasks = [asyncio.create_task(leads_elsewhere(str(tmp_path), str(tmp_path))) for _ in range(9)]
    await asyncio.sleep(0)

    assert threading.active_count() == before + 1
    for task in tasks:
        task.cancel()
    await asyncio.wait(tasks)
    others = [thread for thread in threading.enumerate() if thread.name == "paths"]
    await asyncio.to_thread(lambda: [thread.join(5) for thread in others])
    assert not any(thread.is_alive() for thread in others)


async def test_what_goes_wrong_in_a_look_is_told(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def broken(*_: object) -> Identity | None:
        raise ZeroDivisionError

    monkeypatch.setattr(path_watch, "identify", broken)
    with pytest.raises(ZeroDivisionError):
        await within_s(5, leads_elsewhere(str(tmp_path), str(tmp_path)))


def test_what_was_open_counts_and_not_what_the_path_leads_to_at_the_first_look(
    tmp_path: Path,
) -> None:
    node, link = tmp_path / "ttyUSB0", tmp_path / "by-id"
    node.touch()
    link.symlink_to(node)
    before = identify(str(node))
    (tmp_path / "keeps-the-inode").hardlink_to(node)
    node.unlink()
    node.touch()

    assert OpenedPath(str(link), str(node), before).has_changed()


def test_a_twin_that_takes_over_the_link_does_not_end_a_port_that_is_open(usb: UsbBench) -> None:
    by_id = "usb-Silicon_Labs_CP2102_0001-if00-port0"
    first = usb.plug("ttyUSB0", "1-2:1.0", kind="10c4:ea60", serial="0001", by_id=by_id)
    link = str(usb.dev / "serial/by-id" / by_id)
    opened = OpenedPath(link, first, identify(first, usb.sysfs), usb.sysfs, usb.twins)
    usb.plug("ttyUSB1", "1-3:1.0", kind="10c4:ea60", serial="0001", by_id=by_id)
    assert not opened.has_changed()
    usb.unplug("ttyUSB0")

    assert opened.has_changed()
    with pytest.raises(PortOpenError, match="two adapters with serial number"):
        usb.refuse(by_id)
