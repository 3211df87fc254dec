"""What the PC tells of ports: messages of its kernel, and programs that read from them too."""

from __future__ import annotations

import asyncio
import logging
import os
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any, TypeVar, cast

import pytest

from bench_cable import Cable, within_s
from serialwatch.api.bench import Who
from serialwatch.capture.host_kernel import KernelMessage
from serialwatch.capture.ring import Ring, RingBudget
from serialwatch.config import PortConfig
from serialwatch.records import Finding, Hit
from serialwatch.service.faults import Faults
from serialwatch.service.host import MARKS_A_MINUTE, HostWatch
from serialwatch.service.ports import BenchPort, Ports
from serialwatch.store.database import Database
from serialwatch.store.log_writer import LogWriter
from serialwatch_drivers.holder import find_readers
from serialwatch_drivers.identity import Identity
from serialwatch_drivers.port import Port

T = TypeVar("T")

DISCONNECT = "usb 1-2: USB disconnect, device number 5"
PLACE = "/sys/devices/pci0000:00/0000:00:14.0/usb1/1-2/1-2:1.0/ttyUSB0/tty/ttyUSB0"


class Bench:
    """Ports, and what is told of them."""

    def __init__(self, folder: Path) -> None:
        self.marks: list[tuple[str, str, str]] = []
        self.changes: list[str] = []
        self.found: list[Finding] = []
        self._news = asyncio.Event()
        listener: Any = SimpleNamespace(on_bytes=lambda *_: None, on_state=lambda *_: None)
        self.ports = Ports(
            folder,
            cast(Database, None),
            cast(LogWriter, None),
            cast(Faults, SimpleNamespace(found=self.found.extend)),
            listener,
            cast(Any, None),
        )
        self.host = HostWatch(self.ports, self.mark, self.changed, cast(Any, self.in_thread))

    async def mark(self, port: str, kind: str, text: str, who: Who) -> None:
        self.marks.append((port, kind, text))
        self._news.set()

    def changed(self, name: str) -> None:
        self.changes.append(name)
        self._news.set()

    async def in_thread(self, work: Callable[[], T]) -> T:
        return await asyncio.to_thread(work)

    def port(self, name: str, device: str, identity: Identity | None) -> BenchPort:
        config = PortConfig(device=device, name=name)
        port = self.ports._read(config, Ring(name, RingBudget()))
        port.reader.state = "up"
        port.reader.port = cast(Port, SimpleNamespace(identity=identity, device=device))
        self.host.on_state(name)
        return port

    async def until(self, is_so: Callable[[], bool]) -> None:
        async with asyncio.timeout(10):
            while not is_so():
                self._news.clear()
                await self._news.wait()


@pytest.fixture
async def bench(tmp_path: Path) -> Bench:
    return Bench(tmp_path)


def hit(trigger: str) -> Hit:
    return Hit(
        port="dut1", trigger=trigger, severity="warning", tier="specific", title="it vanished",
        key=trigger, seq=1, block_first=1, boot=0, mono_ns=time.monotonic_ns(),
        utc_ns=time.time_ns(), fields={"device": "/dev/ttyUSB0"},
    )  # fmt: skip


async def noted(bench: Bench, *texts: str) -> None:
    """Let the kernel say something, and wait until it is noted."""
    task = asyncio.create_task(bench.host._note_messages())
    for text in texts:
        bench.host._on_message(KernelMessage(time.time_ns(), text))
    while not bench.host._waiting.empty():
        await asyncio.sleep(0)
    await asyncio.sleep(0)
    task.cancel()
    await asyncio.wait([task])


async def test_a_message_of_the_kernel_stands_in_the_log_of_the_port_that_it_means(
    bench: Bench,
) -> None:
    mine = bench.port("dut1", "/dev/ttyUSB0", Identity((0, 1), 2, PLACE))
    other = bench.port("dut2", "/dev/ttyUSB1", Identity((0, 2), 3, PLACE.replace("1-2", "1-3")))

    await noted(bench, DISCONNECT, "usb 9-9: USB disconnect, device number 7")

    assert bench.marks == [("dut1", "kernel", DISCONNECT)]
    assert [m.text for m in mine.host_messages] == [DISCONNECT]
    assert not other.host_messages


async def test_after_a_loss_the_place_is_still_known_and_the_hit_says_what_the_kernel_said(
    bench: Bench,
) -> None:
    port = bench.port("dut1", "/dev/ttyUSB0", Identity((0, 1), 2, PLACE))
    port.reader.state, port.reader.port = "absent", None
    bench.host.on_state("dut1")
    await noted(bench, DISCONNECT)

    bench.ports._found(port, [hit("link.port_vanished"), hit("linux.oops")])

    link, oops = bench.found
    assert isinstance(link, Hit)
    assert isinstance(oops, Hit)
    assert link.fields == {"device": "/dev/ttyUSB0", "kernel": DISCONNECT}
    assert oops.fields == {"device": "/dev/ttyUSB0"}


async def test_a_kernel_that_repeats_itself_fills_neither_log_nor_memory(bench: Bench) -> None:
    port = bench.port("dut1", "/dev/ttyUSB0", Identity((0, 1), 2, PLACE))

    await noted(bench, *[f"usb 1-2: device descriptor read/64, error -{n}" for n in range(300)])

    assert len(bench.marks) == MARKS_A_MINUTE
    assert len(port.host_messages) == 20
    assert bench.host.kernel.lost == 100


READ = "import os,sys; f=os.open(sys.argv[1], 2); print('up', flush=True); sys.stdin.read()"


@pytest.fixture
def thief(cable: Cable) -> Iterator[subprocess.Popen[bytes]]:
    """Another program that has the device open."""
    with subprocess.Popen(
        [sys.executable, "-S", "-c", READ, str(cable.path)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
    ) as program:
        assert program.stdout is not None
        assert program.stdout.readline() == b"up\n"
        yield program
        program.communicate(b"")


def test_who_else_has_a_device_open_is_named_by_its_number(
    cable: Cable, thief: subprocess.Popen[bytes]
) -> None:
    number = os.stat(cable.path).st_rdev

    found = find_readers({number, 1})

    assert f"(pid {thief.pid}, uid {os.geteuid()})" in found[number]
    assert f"pid {os.getpid()}," not in found[number]
    assert list(found) == [number]


async def test_a_second_reader_is_named_once_it_was_seen_twice_and_forgotten_when_it_ends(
    bench: Bench, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.WARNING, "serialwatch.service.host")
    port = bench.port("dut1", "/dev/ttyUSB0", Identity((0, 1), 2, PLACE))
    seen = []
    for who in (
        "",
        "stty (pid 7, uid 0)",
        "",
        "cat (pid 9, uid 0)",
        *["cat (pid 9, uid 0)"] * 3,
        "",
    ):
        bench.host._judge({"dut1": 2}, {2: who} if who else {})
        seen.append(port.others)

    assert seen == ["", "", "", "", *["cat (pid 9, uid 0)"] * 3, ""]
    assert bench.changes == ["dut1", "dut1"]
    assert [r.getMessage() for r in caplog.records] == [
        "dut1: read by another program too: cat (pid 9, uid 0)"
    ]


async def test_a_port_that_seems_to_be_read_by_others_is_looked_at_at_once(
    bench: Bench, cable: Cable, thief: subprocess.Popen[bytes]
) -> None:
    port = bench.port("dut1", str(cable.path), None)
    task = asyncio.create_task(bench.host._scan())
    await asyncio.sleep(0)
    port.reader.port = None
    port.reader.problem = "ready, but nothing to read: second reader?"
    bench.host.on_state("dut1")
    await bench.until(lambda: bool(bench.changes))
    task.cancel()
    await within_s(5, asyncio.wait([task]))

    assert f"(pid {thief.pid}, uid {os.geteuid()})" in port.others
