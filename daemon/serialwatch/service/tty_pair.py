"""A pty whose far end any terminal program may open: raw, watched, and never waited for.

Two things of the kernel make it safe. With EXTPROC set a tty echoes nothing and gives no character
a meaning, whatever else a program sets; and with TIOCPKT our end is told, before any byte that
follows, when a program has changed its settings. So what a board prints is never typed back.
"""

from __future__ import annotations

import asyncio
import contextlib
import ctypes
import fcntl
import os
import struct
import termios
import threading
import tty
from collections.abc import Callable

from serialwatch.api.backlog import Backlog

EXTPROC = 0o200000  # not in Python's termios
_TIOCPKT_IOCTL = 0x40  # not there either: the settings were changed
_LFLAG = 3  # of what tcgetattr returns
_READ_BYTES = 4096
_BACKLOG_BYTES = 64 * 1024  # for a program that does not read; then its oldest bytes go
_WRITE_BYTES = 4096
_IN_CLOSE, _IN_OPEN = 0x08 | 0x10, 0x20
_EVENT = struct.Struct("iIII")
_FLAG = struct.Struct("i")


class OpenWatch:
    """Tells when the far end of a pty is opened and closed. One for all: a user has few of them."""

    def __init__(self) -> None:
        self._libc = ctypes.CDLL(None, use_errno=True)
        self._loop = asyncio.get_running_loop()
        self._told: dict[int, tuple[Callable[[], None], Callable[[], None]]] = {}
        self._fd = self._checked(self._libc.inotify_init1(os.O_NONBLOCK | os.O_CLOEXEC))
        self._loop.add_reader(self._fd, self._look)

    def add(self, path: str, on_opened: Callable[[], None], on_closed: Callable[[], None]) -> int:
        """Watch a path and return a number for `remove`. Raises OSError."""
        number = self._checked(
            self._libc.inotify_add_watch(self._fd, os.fsencode(path), _IN_OPEN | _IN_CLOSE)
        )
        self._told[number] = on_opened, on_closed
        return number

    def remove(self, number: int) -> None:
        """Watch a path no more."""
        if self._told.pop(number, None) is not None:
            self._libc.inotify_rm_watch(self._fd, number)

    def close(self) -> None:
        """Watch nothing more."""
        self._loop.remove_reader(self._fd)
        # The kernel waits for all its readers to be done with the marks: a second on a busy PC.
        threading.Thread(target=os.close, args=(self._fd,), name="pty watch", daemon=True).start()

    def _look(self) -> None:
        try:
            events = os.read(self._fd, 64 * _EVENT.size)
        except BlockingIOError:
            return
        for at in range(0, len(events), _EVENT.size):  # of one file they carry no name
            number, mask, _, _ = _EVENT.unpack_from(events, at)
            if (told := self._told.get(number)) is not None:
                if mask & _IN_OPEN:
                    told[0]()
                elif mask & _IN_CLOSE:
                    told[1]()

    def _checked(self, result: int) -> int:
        if result < 0:
            number = ctypes.get_errno()
            raise OSError(number, f"inotify: {os.strerror(number)}")
        return result


class TtyPair:
    """One pty. `path` is its far end."""

    def __init__(
        self,
        watch: OpenWatch,
        on_opened: Callable[[TtyPair], None],
        on_closed: Callable[[TtyPair], None],  # nobody has it open any more
        on_input: Callable[[TtyPair, bytes], None],
        on_lost: Callable[[int], None],  # bytes that a program was too slow for
    ) -> None:
        self._on_opened = on_opened
        self._on_closed = on_closed
        self._on_input = on_input
        self._on_lost = on_lost
        self._loop = asyncio.get_running_loop()
        self._backlog = Backlog(_BACKLOG_BYTES)
        self._rest = b""  # of what is being written
        self._is_writing = False
        self._is_paused = False
        self._is_closed = False
        self._is_echoing = False  # as it was told last
        self._watched = -1
        self.openers = 0
        self.dropped_bytes = 0  # input that came while ECHO was on
        self._watch = watch
        self._near, self._far = os.openpty()
        try:
            os.set_blocking(self._near, False)
            self.path = os.ttyname(self._far)
            self._reset()
            fcntl.ioctl(self._near, termios.TIOCPKT, _FLAG.pack(1))
            os.chmod(self.path, 0o600)
            self._watched = watch.add(self.path, self._opened, self._one_closed)
            self._loop.add_reader(self._near, self._readable)
        except BaseException:
            self.close()
            raise

    def allow(self, gid: int) -> None:
        """Let a group open the far end. Raises OSError."""
        os.chown(self.path, -1, gid)
        os.chmod(self.path, 0o660)

    def show(self, data: bytes) -> None:
        """Hand on what the board prints, if anybody has the far end open."""
        if self.openers and not self._is_closed:
            if not _is_safe(termios.tcgetattr(self._far)[_LFLAG]):
                self._settings_changed()  # what we are about to write must not be echoed
            if lost := self._backlog.put(data):
                self._on_lost(lost)
            if not self._is_writing:
                self._write()

    def pause(self) -> None:
        """Take no input for now: the program waits."""
        if not self._is_closed and not self._is_paused:
            self._loop.remove_reader(self._near)
            self._is_paused = True

    def resume(self) -> None:
        """Take input again."""
        if not self._is_closed and self._is_paused:
            self._loop.add_reader(self._near, self._readable)
            self._is_paused = False

    def close(self) -> None:
        """Give it up: whoever has the far end open is hung up."""
        if self._is_closed:
            return
        self._is_closed = True
        self._watch.remove(self._watched)
        self._loop.remove_reader(self._near)
        self._loop.remove_writer(self._near)
        os.close(self._near)
        os.close(self._far)

    # Input

    def _readable(self) -> None:
        try:
            data = os.read(self._near, _READ_BYTES)
        except OSError:  # nothing there after all; it cannot hang up: we have the far end open
            return
        self._sort(data)

    def _sort(self, data: bytes) -> None:
        if data and data[0]:
            if data[0] & _TIOCPKT_IOCTL:
                self._settings_changed()
        elif len(data) > 1:
            self._take(data[1:])

    def _take(self, data: bytes) -> None:
        if self._echoes():
            self.dropped_bytes += len(data)
        else:
            self._on_input(self, data)

    def _settings_changed(self) -> None:
        """Keep the tty from echoing, and drop what is there if it could have echoed."""
        settings = termios.tcgetattr(self._far)
        was_echoing, self._is_echoing = self._is_echoing, bool(settings[_LFLAG] & termios.ECHO)
        if not _is_safe(settings[_LFLAG]):
            settings[_LFLAG] = (settings[_LFLAG] | EXTPROC) & ~termios.ICANON
            termios.tcsetattr(self._far, termios.TCSANOW, settings)
        if was_echoing or self._is_echoing:
            self._drop_input()

    def _drop_input(self) -> None:
        with contextlib.suppress(BlockingIOError):
            while data := os.read(self._near, _READ_BYTES):
                self.dropped_bytes += len(data) - 1

    def _echoes(self) -> bool:
        return bool(termios.tcgetattr(self._far)[_LFLAG] & termios.ECHO)

    # Output

    def _write(self) -> None:
        while True:
            if not self._rest:
                item = self._backlog.take()
                if item is None:
                    break
                self._rest = item if isinstance(item, bytes) else b""
                continue
            try:
                self._rest = self._rest[os.write(self._near, self._rest[:_WRITE_BYTES]) :]
            except BlockingIOError:
                if not self._is_writing:
                    self._loop.add_writer(self._near, self._write)
                    self._is_writing = True
                return
        if self._is_writing:
            self._loop.remove_writer(self._near)
            self._is_writing = False

    # Who has it open

    def _opened(self) -> None:
        self.openers += 1
        if self.openers == 1:
            self._on_opened(self)

    def _one_closed(self) -> None:
        self.openers = max(0, self.openers - 1)
        if not self.openers and not self._is_closed:
            self._last_closed()

    def _last_closed(self) -> None:
        """Take the program's last words, then forget it."""
        with contextlib.suppress(BlockingIOError):
            while data := os.read(self._near, _READ_BYTES):
                self._sort(data)
        self._on_closed(self)

    def _reset(self) -> None:
        tty.setraw(self._far)
        settings = termios.tcgetattr(self._far)
        settings[_LFLAG] |= EXTPROC
        termios.tcsetattr(self._far, termios.TCSANOW, settings)


def _is_safe(flags: int) -> bool:
    """Tell whether nothing is echoed, and nothing lost as the end of a line beyond 4 KiB is."""
    return flags & (EXTPROC | termios.ICANON) == EXTPROC
