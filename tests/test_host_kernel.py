"""What the PC's own kernel says about adapters, and whose adapter it means."""

from __future__ import annotations

import asyncio
import json
import os
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from bench_cable import within_s
from serialwatch.capture import host_kernel
from serialwatch.capture.host_kernel import (
    HostKernel,
    HostPlace,
    KernelMessage,
    parse_journal,
    parse_kmsg,
)

MINE = HostPlace(
    "/sys/devices/pci0000:00/0000:00:14.0/usb1/1-2/1-2.3/1-2.3:1.0/ttyUSB4/tty/ttyUSB4"
)
BRLTTY = "usb 1-2.3: usbfs: interface 0 claimed by ch341 while 'brltty' sets config #1"


def record(text: str, head: bytes = b"6,1,2000000,-") -> bytes:
    return head + b";" + text.encode() + b"\n SUBSYSTEM=usb\n DEVICE=+usb:1-2\n"


@pytest.mark.parametrize(
    "text",
    [
        "usb 1-2.3: USB disconnect, device number 5",
        "usb 1-2: USB disconnect, device number 4",  # its hub
        "usb 1-2-port3: cannot enable. Maybe the USB cable is bad?",
        "usb usb1-port2: over-current condition",
        "hub 1-2:1.0: hub_ext_port_status failed (err = -71)",
        "ftdi_sio 1-2.3:1.0: device disconnected",
        "ftdi_sio ttyUSB4: usb_serial_generic_read_bulk_callback - urb stopped: -32",
        "ttyUSB4: 3 input overrun(s)",
        "xhci_hcd 0000:00:14.0: HC died; cleaning up",
        BRLTTY,
    ],
)
def test_a_message_about_the_adapter_or_what_it_hangs_on_is_meant(text: str) -> None:
    assert MINE.is_meant(text, by_tty=True)


@pytest.mark.parametrize(
    "text",
    [
        "usb 1-2.31: USB disconnect, device number 6",
        "usb 1-2.4: new full-speed USB device number 7 using xhci_hcd",
        "usb 2-2.3: USB disconnect, device number 5",
        "usb 1-2-port4: cannot enable. Maybe the USB cable is bad?",
        "ttyUSB40: 3 input overrun(s)",
        "usb 1-2.4: FTDI USB Serial Device converter now attached to ttyUSB3",
    ],
)
def test_a_message_about_a_neighbour_is_not_meant(text: str) -> None:
    assert not MINE.is_meant(text, by_tty=True)


def test_a_number_that_another_adapter_may_have_by_now_says_nothing() -> None:
    text = "usb 1-4: FTDI USB Serial Device converter now attached to ttyUSB4"

    assert MINE.is_meant(text, by_tty=True)
    assert not MINE.is_meant(text, by_tty=False)


def test_a_uart_on_the_board_of_the_pc_is_known_by_its_name() -> None:
    place = HostPlace("/sys/devices/pnp0/00:04/tty/ttyS0")

    assert place.is_meant("ttyS0: 1 input overrun(s)", by_tty=True)
    assert not place.is_meant("usb 1-2: USB disconnect, device number 5", by_tty=True)


def test_a_record_has_its_time_and_only_its_first_line() -> None:
    found = parse_kmsg(record(BRLTTY), now_utc_ns=10**18, now_mono_ns=5 * 10**9)

    assert found == KernelMessage(10**18 - 3 * 10**9, BRLTTY)


@pytest.mark.parametrize(
    "data",
    [
        b"",
        b";",
        b"usb 1-2: USB disconnect",
        b"6,1;usb 1-2: gone",
        b"x,1,2,-;usb 1-2: gone",
        record("eth0: link is up"),
        record("usb 1-2: USB disconnect", head=b"14,1,2000000,-"),  # a program wrote it there
    ],
)
def test_what_is_no_message_of_the_kernel_about_adapters_is_left_out(data: bytes) -> None:
    assert parse_kmsg(data, 0, 0) is None


def test_a_device_cannot_steer_a_terminal_by_its_name() -> None:
    found = parse_kmsg(record("usb 1-2: Product: \x1b]0;evil\x07" + "x" * 500), 0, 0)

    assert found is not None
    assert "\x1b" not in found.text
    assert len(found.text) == host_kernel.MAX_TEXT


@pytest.mark.parametrize(
    ("row", "text"),
    [
        ({"MESSAGE": BRLTTY}, BRLTTY),
        ({"MESSAGE": list(b"usb 1-2: \xff")}, "usb 1-2: \N{REPLACEMENT CHARACTER}"),
        ({"MESSAGE": "eth0: link is up"}, None),
        ({"MESSAGE": None}, None),
        ({"MESSAGE": [999]}, None),
        ({}, None),
    ],
)
def test_a_row_of_the_journal_is_read_whatever_it_holds(
    row: dict[str, object], text: str | None
) -> None:
    found = parse_journal(json.dumps({"__REALTIME_TIMESTAMP": "7000000"} | row).encode())

    assert (found.text if found else None) == text
    assert found is None or found.utc_ns == 7 * 10**9


@pytest.mark.parametrize(
    "row", [b"", b"[]", b"{", b'{"MESSAGE": "usb", "__REALTIME_TIMESTAMP": {}}']
)
def test_a_row_that_is_none_is_left_out(row: bytes) -> None:
    assert parse_journal(row) is None


class Ear:
    def __init__(self) -> None:
        self.told: asyncio.Queue[KernelMessage] = asyncio.Queue()


@asynccontextmanager
async def following(kernel: HostKernel) -> AsyncIterator[None]:
    task = asyncio.create_task(kernel.run(), name="host kernel")
    try:
        yield
    finally:
        task.cancel()
        await asyncio.wait([task])


async def test_the_kernels_buffer_is_followed_where_it_can_be_read(tmp_path: Path) -> None:
    ear = Ear()
    os.mkfifo(tmp_path / "kmsg")
    async with following(HostKernel(ear.told.put_nowait, tmp_path / "kmsg")):
        await asyncio.sleep(0)
        fd = os.open(tmp_path / "kmsg", os.O_WRONLY | os.O_NONBLOCK)
        os.write(fd, record(BRLTTY))
        told = await within_s(5, ear.told.get())
        os.close(fd)

    assert told.text == BRLTTY


async def test_without_rights_to_it_the_journal_is_followed_and_started_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(host_kernel, "FIRST_WAIT_S", 0.01)
    rows = [{"MESSAGE": "x" * 70_000}, {"MESSAGE": BRLTTY}]
    text = "".join(json.dumps({"__REALTIME_TIMESTAMP": "1"} | row) + "\n" for row in rows)
    (tmp_path / "rows").write_text(text)
    program = tmp_path / "journalctl"
    program.write_text(f'#!/bin/sh\necho "$@" >>{tmp_path}/asked\ncat {tmp_path}/rows\n')
    program.chmod(0o755)
    ear = Ear()
    kernel = HostKernel(ear.told.put_nowait, tmp_path / "no-kmsg", str(program))
    async with following(kernel):
        told = [(await within_s(5, ear.told.get())).text for _ in range(2)]

    assert told == [BRLTTY, BRLTTY]
    assert kernel.lost >= 2
    asked = (tmp_path / "asked").read_text().splitlines()[0]
    assert asked.split()[:2] == ["--dmesg", "--follow"]


async def test_without_anything_to_read_it_waits_quietly(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level("INFO", "serialwatch.capture")
    monkeypatch.setenv("PATH", str(tmp_path))
    kernel = HostKernel(lambda message: None, tmp_path / "no-kmsg")
    task = asyncio.create_task(kernel.run())
    await asyncio.sleep(0)

    assert "cannot be read" in caplog.text
    assert not task.done()
    assert kernel.source == ""
    task.cancel()
    await asyncio.wait([task])
