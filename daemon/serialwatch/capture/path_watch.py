"""Looks at the path of a device in a thread: a stat may hang."""

from __future__ import annotations

import asyncio
import contextlib
import ctypes
import os
import queue
import select
import socket
import threading
import time
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path

from serialwatch.seconds import until_next
from serialwatch_drivers.device import parse_device
from serialwatch_drivers.identity import (
    DEV,
    SYSFS,
    TWINS,
    Identity,
    Twins,
    identify,
    is_twin,
    resolve,
)
from serialwatch_drivers.port import PortOpenError

PRESENCE_S = 0.25  # the least that is waited for a device that is there but does not open
IDENTITY_S = 1.0  # between two looks whether a path still leads to what is open
HUNG_S = 2.0  # a look that takes longer holds up the others no more
SAFETY_S = 5.0  # between two looks though the kernel tells what comes; if it does not: PRESENCE_S
SETTLE_S = 0.01  # between two looks while a folder changes all the time
SAME_TIME_NS = 100_000_000  # times of nodes go in steps of some ms; this is far more than one

_IN_CREATE = 0x100
_IN_MOVED_TO = 0x80
_EVENT_BYTES = 65536


async def appears(device: str, name: str, sysfs: Path = SYSFS, dev: Path = DEV) -> None:
    """Return when there is something at `device`: a path, `usb:` or `usbid:`.

    If it is there already, and yet does not open, in 0.25 s.
    """
    asked = parse_device(device)
    if asked.scheme == "tty":
        path = asked.body
        await _noticed(lambda: os.path.exists(path), _ancestors(Path(path)), f"path {name}")
    else:
        await _noticed(_Adapter(device, sysfs, dev).is_there, [dev], f"path {name}")


Nodes = frozenset[tuple[str, int, int]]


async def ttys_change(dev: Path, before: Nodes) -> None:
    """Return when the ttys of adapters in `dev` are not `before` any more."""
    await _noticed(lambda: tty_nodes(dev) != before, [dev], "discover")


def tty_nodes(dev: Path) -> Nodes:
    """Return the ttys of adapters that are in `dev`; one that is made anew is another one."""
    found = []
    with contextlib.suppress(OSError):
        for name in os.listdir(dev):
            if name.startswith(("ttyUSB", "ttyACM")):
                with contextlib.suppress(OSError):  # it has just gone
                    node = os.lstat(dev / name)
                    found.append((name, node.st_ino, node.st_ctime_ns))
    return frozenset(found)


async def is_replaced(device: str, sysfs: Path = SYSFS, dev: Path = DEV) -> None:
    """Return when `device` (a path, `usb:` or `usbid:`) leads to another device, or to none."""

    def found() -> Identity | None:
        try:
            return identify(resolve(device, sysfs, dev), sysfs)
        except PortOpenError:
            return None

    before: list[Identity | None] = []

    def has_changed() -> bool:
        now = found()
        if not before:
            before.append(now)
        return now is None or now != before[0]

    await _until(has_changed)


async def leads_elsewhere(
    path: str, opened: str, identity: Identity | None = None, sysfs: Path = SYSFS
) -> None:
    """Return when `path` leads to another device than the one that is open, `identity`.

    `opened` is the path behind it; without an identity what it leads to now counts as open. If the
    path is gone but not the device that is open, its link is on its way: nothing changes. Nor does
    anything if the link was taken over by another adapter that says it is the same.
    """
    first = OpenedPath(path, opened, identity, sysfs)
    await _until(first.has_changed)


class OpenedPath:
    """A path that was opened; see `leads_elsewhere`."""

    def __init__(
        self,
        path: str,
        opened: str,
        identity: Identity | None = None,
        sysfs: Path = SYSFS,
        twins: Twins = TWINS,
    ) -> None:
        self._sysfs = sysfs
        self._twins = twins
        self._path = path
        self._opened = opened
        self._known = identity
        self._node: tuple[int, int, int, int] | None = None  # that was found to be the known one

    def has_changed(self) -> bool:
        """Tell whether the device is another one than at the first call."""
        if self._known is None:
            self._known = identify(self._opened, self._sysfs)
        looked_ns = time.time_ns()
        node = _node_at(self._path)
        if node is not None and node == self._node:
            return False  # a node that is made anew has another time, if not another inode
        self._node = None
        now = identify(self._path, self._sysfs)
        if now == self._known:
            # One that was made just now could be made anew at the same time, as far as that shows.
            if node is not None and looked_ns - node[3] > SAME_TIME_NS:
                self._node = node
            return False
        own = identify(self._opened, self._sysfs)
        if own != self._known:
            return True
        # It is still there; only its link is gone, or was taken over.
        return now is not None and not is_twin(self._path, self._opened, self._sysfs, self._twins)


def _node_at(path: str) -> tuple[int, int, int, int] | None:
    """Return what tells a node from those that had its path before; None if there is none."""
    try:
        found = os.stat(path)
    except OSError:
        return None
    return found.st_dev, found.st_ino, found.st_rdev, found.st_ctime_ns


class _Adapter:
    """A USB adapter that may be plugged in: looked for in full only if a tty came or went."""

    def __init__(self, device: str, sysfs: Path, dev: Path) -> None:
        self._device = device
        self._sysfs = sysfs
        self._dev = dev
        self._seen: tuple[Nodes, Nodes] | None = None
        self._was_there = False

    def is_there(self) -> bool:
        """Tell whether the name leads somewhere, or to several."""
        seen = tty_nodes(self._dev), tty_nodes(self._sysfs / "class/tty")
        if seen != self._seen:
            self._seen = seen
            try:
                self._was_there = bool(resolve(self._device, self._sysfs, self._dev))
            except PortOpenError as exc:
                self._was_there = exc.kind != "absent"
        return self._was_there


def _ancestors(path: Path) -> list[Path]:
    """Return the folders whose changes may bring `path`: udev removes those that become empty."""
    return list(path.parents)[:3]


async def _noticed(is_so: Callable[[], bool], folders: Sequence[Path], name: str) -> None:
    """Return when `is_so` says so: asked when a folder changes, and now and then in any case."""
    loop = asyncio.get_running_loop()
    told = asyncio.Event()
    stop, stopped = socket.socketpair()  # closing the one is seen at the other

    def look() -> None:
        watch = _FolderWatch(folders)
        try:
            earliest = time.monotonic() + (PRESENCE_S if is_so() else 0.0)
            while True:
                left_s = watch.arm()  # before the look: what comes after it is told
                if is_so():
                    left_s = earliest - time.monotonic()
                    if left_s <= 0:
                        break
                ready = _readable([stopped.fileno(), *watch.fds], left_s)
                if ready and ready[0] == stopped.fileno():
                    return
                if ready:
                    watch.drain()
                    if _readable([stopped.fileno()], SETTLE_S):
                        return
            with contextlib.suppress(RuntimeError):  # the loop is closed
                loop.call_soon_threadsafe(told.set)
        finally:
            watch.close()
            stopped.close()

    # A daemon: a hung stat must not keep the process.
    threading.Thread(target=look, name=name, daemon=True).start()
    try:
        await told.wait()
    finally:
        stop.close()


def _readable(fds: Sequence[int], limit_s: float) -> list[int]:
    """Return which of `fds` can be read, in their order, after `limit_s` at the latest."""
    poll = select.poll()  # select() refuses descriptors from 1024 up
    for fd in fds:
        poll.register(fd, select.POLLIN)
    ready = dict(poll.poll(max(0.0, limit_s) * 1000))
    return [fd for fd in fds if fd in ready]


class _FolderWatch:
    """Tells when something comes into one of some folders, where the kernel can (inotify)."""

    def __init__(self, folders: Sequence[Path]) -> None:
        self._folders = folders
        self.fds: list[int] = []
        try:
            libc = ctypes.CDLL(None, use_errno=True)
            fd = libc.inotify_init1(os.O_NONBLOCK | os.O_CLOEXEC)
        except (OSError, AttributeError):
            return
        if fd >= 0:  # else: as many as a user may have
            self._libc = libc
            self.fds = [fd]

    def arm(self) -> float:
        """Watch those folders that are there now; return how long it is safe to wait."""
        if not self.fds:
            return PRESENCE_S
        watched = [
            self._libc.inotify_add_watch(
                self.fds[0], os.fsencode(folder), _IN_CREATE | _IN_MOVED_TO
            )
            for folder in self._folders
        ]
        return SAFETY_S if max(watched) >= 0 else PRESENCE_S

    def drain(self) -> None:
        """Forget what was told."""
        for fd in self.fds:
            with contextlib.suppress(BlockingIOError):
                os.read(fd, _EVENT_BYTES)

    def close(self) -> None:
        """Watch no more."""
        for fd in self.fds:
            os.close(fd)
        self.fds = []


async def _until(is_so: Callable[[], bool]) -> None:
    """Return when `is_so` says so. It is asked in a thread, first now, and counts from later on."""
    loop = asyncio.get_running_loop()
    rounds = _rounds.get(loop)
    if rounds is None:
        rounds = _rounds[loop] = _Rounds(loop)
    watch = _Watch(is_so, loop.create_future())
    rounds.add(watch)
    try:
        await watch.told
    finally:
        rounds.remove(watch)
        if rounds.is_over:
            _rounds.pop(loop, None)


class _Watch:
    """A question that is asked each second."""

    __slots__ = ("is_away", "is_known", "is_so", "told")

    def __init__(self, is_so: Callable[[], bool], told: asyncio.Future[None]) -> None:
        self.is_so = is_so
        self.told = told
        self.is_known = False  # it was asked once
        self.is_away = False  # it hangs


class _Rounds:
    """Asks all watches of one loop each second, in one thread, one after the other.

    One that hangs holds up the others for `HUNG_S`: then the thread is left to it, and a new one
    goes on without it.
    """

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop
        self._watches: dict[_Watch, None] = {}
        self._asker = _Asker(loop)
        self._timer = self._next()
        self.is_over = False

    def add(self, watch: _Watch) -> None:
        """Ask now, and then each second."""
        self._watches[watch] = None
        self._asker.ask([watch])

    def remove(self, watch: _Watch) -> None:
        """Ask no more; without a watch all is over."""
        self._watches.pop(watch, None)
        if not self._watches and not self.is_over:
            self.is_over = True
            self._timer.cancel()
            self._asker.end()

    def _next(self) -> asyncio.TimerHandle:
        now_s = self._loop.time()
        return self._loop.call_at(now_s + until_next(IDENTITY_S, now_s), self._each_second)

    def _each_second(self) -> None:
        self._timer = self._next()
        if self._asker.hangs:
            self._asker.leave()
            self._asker = _Asker(self._loop)
        elif self._asker.is_busy:
            return
        self._asker.ask([watch for watch in self._watches if not watch.is_away])


class _Asker:
    """The thread that asks. A daemon: a hung stat must not keep the process."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop
        self._jobs: queue.SimpleQueue[Sequence[_Watch] | None] = queue.SimpleQueue()
        self._given = 0  # jobs
        self._done = 0
        self._at: tuple[_Watch, float] | None = None  # which is asked now, and since when
        self._hung: _Watch | None = None
        self._is_left = False
        threading.Thread(target=self._work, name="paths", daemon=True).start()

    @property
    def is_busy(self) -> bool:
        """Whether it has not asked all that it is to ask."""
        return self._given != self._done

    @property
    def hangs(self) -> bool:
        """Whether it waits for one answer for too long."""
        at = self._at
        return at is not None and time.monotonic() - at[1] >= HUNG_S

    def ask(self, watches: Sequence[_Watch]) -> None:
        """Ask these, after those that are still to be asked."""
        self._given += 1
        self._jobs.put(watches)

    def end(self) -> None:
        """End, once it has asked what it is to ask."""
        self._jobs.put(None)

    def leave(self) -> None:
        """Ask nothing after the watch that hangs; it is away until it answers."""
        self._is_left = True
        if self._at is not None:
            self._hung = self._at[0]
            self._hung.is_away = True
        self.end()

    def _work(self) -> None:
        while (job := self._jobs.get()) is not None:
            for watch in job:
                self._at = watch, time.monotonic()
                if self._is_left:  # after the line above: else `leave` takes another for the hung
                    break
                self._ask(watch)
            self._at = None
            self._done += 1
            if self._is_left:
                self._tell(self._back)
                return

    def _ask(self, watch: _Watch) -> None:
        try:
            is_so = watch.is_so() and watch.is_known
        except Exception as exc:  # noqa: BLE001  whoever waits raises it
            self._tell(partial(_raise, watch.told, exc))
        else:
            watch.is_known = True
            if is_so:
                self._tell(partial(_tell, watch.told))

    def _back(self) -> None:
        if self._hung is not None:
            self._hung.is_away = False

    def _tell(self, what: Callable[[], None]) -> None:
        with contextlib.suppress(RuntimeError):  # the loop is closed
            self._loop.call_soon_threadsafe(what)


def _tell(told: asyncio.Future[None]) -> None:
    if not told.done():
        told.set_result(None)


def _raise(told: asyncio.Future[None], exc: Exception) -> None:
    if not told.done():
        told.set_exception(exc)


_rounds: dict[asyncio.AbstractEventLoop, _Rounds] = {}
