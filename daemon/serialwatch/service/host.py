"""What the PC itself tells of the ports: its kernel's messages, and who else reads from them."""

from __future__ import annotations

import asyncio
import logging
import os
import time
from collections import deque
from collections.abc import Awaitable, Callable, Mapping
from functools import partial
from pathlib import Path
from typing import Protocol

from serialwatch.api.bench import HostMessage, Who
from serialwatch.capture.host_kernel import HostKernel, HostPlace, KernelMessage
from serialwatch.service.look_up import InThread
from serialwatch.service.ports import BenchPort, Ports
from serialwatch_drivers.holder import find_readers
from serialwatch_drivers.identity import Identified

log = logging.getLogger(__name__)

SCAN_S = 10.0  # between two looks who else has a port open: 0.1 % of a core
SCANS = 2  # in a row that see somebody, who then does not only look at its settings
TTY_KEPT_S = 5.0  # after a loss the number of the tty is still its own
MAX_WAITING = 200  # messages that wait to be noted
MARKS_A_MINUTE = 10  # of one port; further ones are kept for `ports` only
KERNEL = Who(0, "kernel", 0)


class Marks(Protocol):
    """How a marker is set."""

    def __call__(self, port: str, kind: str, text: str, who: Who) -> Awaitable[object]:
        """Set a marker before the next line."""


class HostWatch:
    """Keeps for each port what the PC says of it."""

    def __init__(
        self,
        ports: Ports,
        mark: Marks,
        changed: Callable[[str], None],
        in_thread: InThread,
        kernel: HostKernel | None = None,
        proc: Path = Path("/proc"),
    ) -> None:
        self._ports = ports
        self._mark = mark
        self._changed = changed
        self._in_thread = in_thread
        self._proc = proc
        self.kernel = kernel or HostKernel(self._on_message)
        self._waiting: asyncio.Queue[KernelMessage] = asyncio.Queue(MAX_WAITING)
        self._places: dict[str, HostPlace] = {}
        self._marked: dict[str, deque[float]] = {}  # by port: when, of the last minute
        self._seen: dict[str, tuple[str, int]] = {}  # by port: who reads too, how often seen
        self._scan_now = asyncio.Event()

    async def run(self) -> None:
        """Watch until cancelled."""
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(self.kernel.run(), name="host kernel")
            tasks.create_task(self._note_messages(), name="host messages")
            tasks.create_task(self._scan(), name="second readers")

    def on_state(self, name: str) -> None:
        """Learn where a port's device is, or that somebody seems to read from it."""
        port = self._ports.get(name)
        if port is None:
            for known in (self._places, self._marked, self._seen):
                known.pop(name, None)
            return
        opened = port.reader.port
        identity = opened.identity if isinstance(opened, Identified) else None
        if identity is not None and identity.place:
            self._places[name] = HostPlace(identity.place)
        if "second reader?" in port.reader.problem:
            self._scan_now.set()

    def _on_message(self, message: KernelMessage) -> None:
        try:
            self._waiting.put_nowait(message)
        except asyncio.QueueFull:
            self.kernel.lost += 1

    async def _note_messages(self) -> None:
        while True:
            message = await self._waiting.get()
            for port in list(self._ports):
                place = self._places.get(port.config.name)
                if place and place.is_meant(message.text, by_tty=_has_its_tty(port)):
                    await self._note(port, message)

    async def _note(self, port: BenchPort, message: KernelMessage) -> None:
        name = port.config.name
        port.host_messages.append(HostMessage(message.utc_ns, message.text))
        self._ports.host_said(name, message.text)
        now_s = time.monotonic()
        marked = self._marked.setdefault(name, deque(maxlen=MARKS_A_MINUTE))
        if len(marked) < MARKS_A_MINUTE or now_s - marked[0] > 60:
            marked.append(now_s)
            await self._mark(name, "kernel", message.text, KERNEL)

    async def _scan(self) -> None:
        while True:
            self._scan_now.clear()
            asked = {
                port.config.name: number
                for port in self._ports
                if (number := _number(port)) is not None
            }
            if asked:
                numbers = frozenset(asked.values())
                found = await self._in_thread(partial(find_readers, numbers, self._proc))
                self._judge(asked, found)
            try:
                async with asyncio.timeout(SCAN_S):
                    await self._scan_now.wait()
            except TimeoutError:
                continue

    def _judge(self, asked: Mapping[str, int], found: Mapping[int, str]) -> None:
        """Note who has a port open for longer than a look."""
        for port in self._ports:
            name = port.config.name
            who = found.get(asked.get(name, -1), "")
            before, times = self._seen.get(name, ("", 0))
            times = times + 1 if who == before else 1
            self._seen[name] = (who, times)
            is_suspect = "second reader?" in port.reader.problem
            others = who if times >= SCANS or is_suspect else ""
            if others == port.others or (who and not others and port.others):
                continue
            port.others = others
            if others:
                log.warning("%s: read by another program too: %s", name, others)
                self._ports.read_by(name, others)
            self._changed(name)


def _number(port: BenchPort) -> int | None:
    """Return the device number of a port worth a look, None if it is none."""
    opened = port.reader.port
    is_suspect = "second reader?" in port.reader.problem
    if isinstance(opened, Identified) and (identity := opened.identity) is not None:
        # A pty is what tests and emulators have, and whoever made it keeps it open.
        return identity.number if identity.place or is_suspect else None
    if is_suspect:
        try:
            return os.stat(port.config.device).st_rdev
        except OSError:
            return None
    return None


def _has_its_tty(port: BenchPort) -> bool:
    if port.reader.state == "up":
        return True
    return time.time_ns() - port.reader.since_utc_ns < TTY_KEPT_S * 1e9
