"""`<run_dir>/tty/<port>`: any terminal program may attach there, while we keep watching.

Behind the link of a port stands a pty that nobody has open. Who opens it has it alone, for of two
programs on one pty each would get half of what the board prints; the link then leads to the next.
"""

from __future__ import annotations

import asyncio
import contextlib
import hashlib
import logging
import os
import termios
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Protocol

from serialwatch.api.bench import AuditEntry, Bench, BenchError, Who
from serialwatch.config import PortConfig
from serialwatch.service.places import make_folder
from serialwatch.service.tty_pair import OpenWatch, TtyPair

log = logging.getLogger(__name__)

MAX_PAIRS = 16  # a port; who comes then shares the last one
AUDIT_S = 5.0
QUIET_S = 0.1  # after a write that failed, input is dropped until none has come for so long
DEAF_S = 3.0  # but not for longer: a key that is pressed all the time must reach the board again
_MAX_WAITING = 64  # pieces of input of a port that are not written yet
WHO = Who(-1, "a terminal program", 0)  # a pty does not tell who types


class Access(Protocol):
    """Which groups may open a pty: see `serialwatch.api.rights.Policy`."""

    @property
    def view_gid(self) -> int | None:
        """Return the group that may look."""

    @property
    def write_gid(self) -> int | None:
        """Return the group that may write."""


@dataclass(eq=False, slots=True)
class _PortTty:
    """The ptys of one port."""

    config: PortConfig
    idle: TtyPair | None = None  # the link leads there
    spare: TtyPair | None = None  # the next: two programs may come within a millisecond
    used: list[TtyPair] = field(default_factory=list)
    waiting: deque[tuple[TtyPair, bytes]] = field(default_factory=deque)
    more: asyncio.Event = field(default_factory=asyncio.Event)
    refused: str = ""  # why input was dropped last, as it was told
    dropped_bytes: int = 0  # of it
    # Programs whose text has got a hole: when it has ended, and when it is not waited for any more.
    deaf: dict[TtyPair, tuple[float, float]] = field(default_factory=dict)
    typed_bytes: int = 0  # not in the audit yet
    typed_sum: Any = field(default_factory=hashlib.sha256)  # of them
    task: asyncio.Task[None] | None = None


class PortTtys:
    """The ptys of all ports. What the ports tell it never blocks."""

    def __init__(
        self, folder: Path, bench: Bench, writer: Callable[[str], Who | None], access: Access | None
    ) -> None:
        """Prepare; `writer` tells who has a port's write lease, `access` None: the owner's only."""
        self._folder = folder
        self._bench = bench
        self._writer = writer
        self._access = access
        self._ports: dict[str, _PortTty] = {}
        self._tasks: asyncio.TaskGroup | None = None
        self._wanted: dict[str, PortConfig] = {}
        self._told = ""
        self._watch: OpenWatch | None = None

    def path(self, name: str) -> str:
        """Return the path to open for a port, "" if there is none."""
        port = self._ports.get(name)
        return str(self._folder / name) if port is not None and port.idle is not None else ""

    def on_bytes(self, name: str, data: bytes) -> None:
        """Hand on what a board printed."""
        if (port := self._ports.get(name)) is not None:
            for pair in port.used:
                try:
                    pair.show(data)
                except (OSError, termios.error) as exc:
                    log.error("%s: %s: %s", name, pair.path, exc)

    def configure(self, ports: dict[str, PortConfig]) -> None:
        """Take over a configuration: ptys that are open go on as far as they may."""
        self._wanted = dict(ports)
        if self._tasks is None:
            return
        for name, port in list(self._ports.items()):
            wanted = ports.get(name)
            if wanted is None or wanted.pty != port.config.pty:
                self._remove(name)
            else:
                port.config = wanted
        for name, config in ports.items():
            if name not in self._ports and config.pty != "off":
                self._add(name, config, self._tasks)

    async def run(self) -> None:
        """Offer the ptys until cancelled."""
        try:
            async with asyncio.TaskGroup() as tasks:
                self._make_folder()
                self._watch = OpenWatch()
                self._tasks = tasks
                self.configure(self._wanted)
                while True:
                    await asyncio.sleep(AUDIT_S)
                    for name, port in self._ports.items():
                        self._audit(name, port)
        except* OSError as group:
            # No pty, no inotify, no folder: people still have `attach`.
            self._clear()
            log.error("%s: no pty for terminal programs: %s", self._folder, group.exceptions[0])
            await asyncio.Event().wait()
        finally:
            self._clear()

    def _clear(self) -> None:
        self._tasks = None
        for name in list(self._ports):
            self._remove(name)
        if self._watch is not None:
            self._watch.close()
            self._watch = None

    def _make_folder(self) -> None:
        make_folder(self._folder.parent, self._access.view_gid if self._access else None)
        self._folder.mkdir(mode=0o750, exist_ok=True)
        if self._access is not None and self._access.view_gid is not None:
            with contextlib.suppress(PermissionError):  # then it is the group we run as
                os.chown(self._folder, -1, self._access.view_gid)
        for left in self._folder.iterdir():  # of a run that was killed: who has that pty now?
            if left.is_symlink():
                left.unlink()

    def _add(self, name: str, config: PortConfig, tasks: asyncio.TaskGroup) -> None:
        port = self._ports[name] = _PortTty(config)
        self._offer(name, port)
        port.task = tasks.create_task(self._type(name, port), name=f"tty {name}")

    def _remove(self, name: str) -> None:
        port = self._ports.pop(name)
        if port.task is not None:
            port.task.cancel()
        self._audit(name, port)
        with contextlib.suppress(OSError):
            (self._folder / name).unlink()
        for pair in (*port.used, port.idle, port.spare):
            if pair is not None:
                pair.close()

    def _offer(self, name: str, port: _PortTty) -> None:
        """Let the link lead to a pty that nobody has open."""
        pair = port.idle = port.spare or self._pair(name, port)
        port.spare = None
        link = self._folder / name
        fresh = self._folder / f".{name}.new"
        fresh.unlink(missing_ok=True)
        fresh.symlink_to(pair.path)
        fresh.replace(link)
        if len(port.used) + 1 < MAX_PAIRS:
            port.spare = self._pair(name, port)

    def _pair(self, name: str, port: _PortTty) -> TtyPair:
        """Make a pty that nobody can find yet."""

        def opened(pair: TtyPair) -> None:
            port.used.append(pair)
            if len(port.used) < MAX_PAIRS:
                self._offer(name, port)
            else:
                log.warning(
                    "%s: %d programs have it open; one more shares the last one's pty, and each "
                    "of the two gets a part of what the board prints",
                    self._folder / name,
                    MAX_PAIRS,
                )

        def closed(pair: TtyPair) -> None:
            port.used.remove(pair)
            port.deaf.pop(pair, None)
            self._audit(name, port)
            if pair is port.idle:
                self._offer(name, port)
            pair.close()

        def typed(pair: TtyPair, data: bytes) -> None:
            self._typed(name, port, pair, data)

        def lost(count: int) -> None:
            self._bench.lost_at_client(name, count)

        assert self._watch is not None
        pair = TtyPair(self._watch, opened, closed, typed, lost)
        self._allow(port, pair)
        return pair

    def _allow(self, port: _PortTty, pair: TtyPair) -> None:
        if self._access is None:
            return
        may_write = port.config.pty == "write"
        gid = self._access.write_gid if may_write else self._access.view_gid
        if gid is None:
            return
        try:
            pair.allow(gid)
        except OSError as exc:
            words = (
                f"{self._folder}: ptys are for root only: no access for group {gid}: "
                f"{exc.strerror} (must be a group of the daemon's user)"
            )
            if words != self._told:
                self._told = words
                log.warning("%s", words)

    # What is typed

    def _typed(self, name: str, port: _PortTty, pair: TtyPair, data: bytes) -> None:
        if port.config.pty != "write":
            self._refuse(name, port, len(data), 'its configuration does not say pty = "write"')
            return
        if self._is_deaf(port, pair):
            port.dropped_bytes += len(data)
            return
        port.waiting.append((pair, data))
        port.more.set()
        if len(port.waiting) >= _MAX_WAITING:
            pair.pause()

    async def _type(self, name: str, port: _PortTty) -> None:
        """Write what is typed, in the order in which it came."""
        while True:
            await port.more.wait()
            port.more.clear()
            while port.waiting:
                pair, data = port.waiting.popleft()
                if self._is_deaf(port, pair):
                    port.dropped_bytes += len(data)
                else:
                    await self._write(name, port, pair, data)
                pair.resume()

    def _is_deaf(self, port: _PortTty, pair: TtyPair) -> bool:
        """Tell whether input goes on with a text of which the board has not got all."""
        now_s = asyncio.get_running_loop().time()
        quiet_s, end_s = port.deaf.get(pair, (0.0, 0.0))
        if now_s >= min(quiet_s, end_s):
            port.deaf.pop(pair, None)
            return False
        port.deaf[pair] = now_s + QUIET_S, end_s
        return True

    async def _write(self, name: str, port: _PortTty, pair: TtyPair, data: bytes) -> None:
        if (writer := self._writer(name)) is not None:
            self._refuse(name, port, len(data), f"{writer.user} (pid {writer.pid}) is typing")
            return
        sent = 0
        try:
            await self._bench.write(name, data, "pty")
            sent = len(data)
            port.refused = ""
        except BenchError as exc:
            sent = exc.sent
            self._refuse(name, port, len(data) - sent, exc.message)
            if exc.code == "failed" and pair in port.used:
                now_s = asyncio.get_running_loop().time()
                port.deaf[pair] = now_s + QUIET_S, now_s + DEAF_S
        finally:
            port.typed_bytes += sent
            port.typed_sum.update(data[:sent])

    def _refuse(self, name: str, port: _PortTty, count: int, why: str) -> None:
        port.dropped_bytes += count
        if port.refused != why:
            port.refused = why
            log.info("%s: what a terminal program types is dropped: %s", name, why)

    def _audit(self, name: str, port: _PortTty) -> None:
        if port.typed_bytes:
            detail = {"sha256": port.typed_sum.hexdigest()}
            self._bench.audit(AuditEntry(WHO, "pty", name, port.typed_bytes, detail, "ok"))
            port.typed_bytes, port.typed_sum = 0, hashlib.sha256()
