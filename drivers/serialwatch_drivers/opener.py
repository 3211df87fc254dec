"""The process that opens ttys: from the kernel's open until echo is off, nothing else runs in it.

In between, the tty types what the board prints back into the board. In a process with threads and
a busy loop that lasts milliseconds, here two calls of the kernel. On a PC whose CPUs are all busy
it goes before others, if it may: else the kernel makes it wait in between.

Run as `python -I -S opener.py FD`; FD is one end of a SOCK_SEQPACKET pair. A packet is a JSON
object {"path": ..., "settings": ...} with a socket for the answer: errno in decimal, 0 with the
descriptor. Each open has a process of its own, since it may hang as long as its driver likes.
The opener ends when the other end of FD is closed. Standard library only.
"""

from __future__ import annotations

import fcntl
import gc
import json
import os
import signal
import socket
import sys
import termios
from collections.abc import Callable
from contextlib import suppress
from typing import Any, TypeAlias

# The attributes of `termios.tcsetattr`, or a termios2 of the kernel in hexadecimal, for bit rates
# that termios has no constant for.
Settings: TypeAlias = list[Any] | str

MAX_PACKET = 16384  # bytes
_TCSETS2 = 0x402C542B
_PRIORITY = -20  # for some milliseconds a plug
_FLAGS = os.O_RDWR | os.O_NOCTTY | os.O_NONBLOCK | os.O_CLOEXEC


def open_raw(path: str, settings: Settings) -> int:
    """Open a tty, lock it, and set it up; return the descriptor.

    The lock comes first: a port that another program has is not set by us.

    Raises:
        OSError: it cannot be opened, or somebody else holds its lock.
        termios.error: it is no tty.

    """
    set_up: Callable[[int], object]
    if isinstance(settings, str):
        termios2 = bytes.fromhex(settings)
        set_up = lambda fd: fcntl.ioctl(fd, _TCSETS2, termios2)  # noqa: E731  nothing to look up
    else:
        set_up = lambda fd: termios.tcsetattr(fd, termios.TCSANOW, settings)  # noqa: E731
    fd = os.open(path, _FLAGS)
    try:
        fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        set_up(fd)
    except BaseException:
        os.close(fd)
        raise
    return fd


def serve(control: socket.socket) -> None:
    """Open what is asked for until the other end is closed."""
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)  # the kernel reaps
    for asked_to_stop in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(asked_to_stop, signal.SIG_IGN)  # our parent says when it is over
    with suppress(OSError):  # only root may, and who has the limit for it (RLIMIT_NICE)
        os.setpriority(os.PRIO_PROCESS, 0, _PRIORITY)
    gc.disable()
    gc.freeze()
    while True:
        packet, descriptors, _, _ = socket.recv_fds(control, MAX_PACKET, 1)
        if not packet:
            return
        try:
            pid = os.fork()
        except OSError:
            pid = -1  # who asked reads the end of its socket
        if pid == 0:
            control.close()
            _answer(packet, socket.socket(fileno=descriptors[0]))
        os.close(descriptors[0])


def _answer(packet: bytes, answer: socket.socket) -> None:
    """Open one tty and hand it over; never returns."""
    try:
        signal.signal(signal.SIGTERM, signal.SIG_DFL)  # it may hang longer than all else runs
        asked = json.loads(packet)
        path, settings = asked["path"], asked["settings"]
        # All that it needs is in memory when it is for real. A file of its own: the lock of one
        # that others know, as /dev/null, may be taken.
        with suppress(OSError, termios.error):
            open_raw(f"/proc/self/fd/{os.memfd_create('no tty')}", settings)
        try:
            fd = open_raw(path, settings)
        except (OSError, termios.error) as exc:
            answer.send(b"%d" % exc.args[0])
        else:
            socket.send_fds(answer, [b"0"], [fd])
            os.close(fd)
    finally:
        os._exit(0)


if __name__ == "__main__":
    with suppress(ConnectionError):
        serve(socket.socket(fileno=int(sys.argv[1])))
