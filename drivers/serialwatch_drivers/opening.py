"""Ask the opener for a tty; see `opener`."""

from __future__ import annotations

import errno
import json
import os
import socket
import subprocess
import sys
import threading

from serialwatch_drivers import opener

_lock = threading.Lock()
_control: socket.socket | None = None
_process: subprocess.Popen[bytes] | None = None


def start_opener() -> None:
    """Start the opener, if it does not run: that takes longer than most opens do.

    Raises:
        OSError: no more processes or descriptors.

    """
    global _control, _process
    with _lock:
        if _process is not None and _process.poll() is None:
            return
        ours, its = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        with its:
            try:
                process = subprocess.Popen(
                    [sys.executable, "-I", "-S", opener.__file__, str(its.fileno())],
                    stdin=subprocess.DEVNULL,
                    pass_fds=[its.fileno()],
                    cwd="/",
                )
            except BaseException:
                ours.close()
                raise
        if _control is not None:
            _control.close()
        _control, _process = ours, process


def stop_opener() -> None:
    """Let the opener end; an open that hangs ends with its driver."""
    global _control, _process
    with _lock:
        control, process = _control, _process
        _control = _process = None
    if control is not None and process is not None:
        control.close()
        process.wait()


def open_raw(path: str, settings: opener.Settings) -> int:
    """Open a tty, locked, and set up. Blocks: in the port's thread only.

    Raises:
        OSError: it cannot be opened, somebody else holds its lock, or it is no tty.

    """
    for _ in range(2):  # the opener may have been killed
        try:
            start_opener()
            answer, fd = _ask(path, settings)
        except OSError:
            continue
        if answer:
            # Without a descriptor there was no room for it here: it is closed again.
            if number := int(answer) or (errno.EMFILE if fd < 0 else 0):
                raise OSError(number, os.strerror(number))
            return fd
    return opener.open_raw(path, settings)  # no process to be had: better late than not at all


def _ask(path: str, settings: opener.Settings) -> tuple[bytes, int]:
    """Return the opener's answer and the descriptor that came with it; b"" if it is gone."""
    control = _control
    if control is None:
        raise OSError(errno.EPIPE, os.strerror(errno.EPIPE))
    ours, its = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    with ours:
        with its:
            asked = json.dumps({"path": path, "settings": settings})
            socket.send_fds(control, [asked.encode()], [its.fileno()])
        answer, descriptors, _, _ = socket.recv_fds(ours, 16, 1)
        ours.recv(1)  # until its process has closed the tty too: that would keep the lock
    for fd in descriptors:
        os.set_inheritable(fd, False)
    return answer, descriptors[0] if descriptors else -1
