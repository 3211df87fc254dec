"""The state directory: made if missing, held by one daemon at a time."""

from __future__ import annotations

import errno
import fcntl
import os
import re
import time
from pathlib import Path
from typing import Self

from serialwatch.wire import iso

_REMEDIES = {
    errno.EACCES: "does it belong to the user that runs serialwatch?",
    errno.EPERM: "does it belong to the user that runs serialwatch?",
    errno.EROFS: "remount it for writing, or set [daemon] state_dir to another place",
    errno.ENOSPC: "make room on that disk",
    errno.EDQUOT: "make room in that user's quota",
    errno.ENOTDIR: "a file is in the way; set [daemon] state_dir to another place",
    errno.EEXIST: "a file is in the way; set [daemon] state_dir to another place",
}


class StateError(Exception):
    """The state directory cannot be used."""

    def __init__(self, folder: Path, problem: str, remedy: str) -> None:
        super().__init__(f"{folder}: {problem} ({remedy})" if remedy else f"{folder}: {problem}")
        self.folder = folder


class StateBusy(Exception):  # noqa: N818 - it is no fault: another daemon does the work
    """Another daemon has the state directory; `pid` is 0 where it cannot be told."""

    def __init__(self, folder: Path, pid: int, since: str) -> None:
        owner = f"serialwatch with pid {pid}" if pid else "another serialwatch"
        started = f", started {since}," if since else ""
        super().__init__(f"{folder}: in use: {owner}{started} runs on it")
        self.folder = folder
        self.pid = pid


class StateLock:
    """Holds a state directory for this process, by flock on its file `lock`.

    The kernel gives it up with the process, however that ends: a file left behind means nothing.
    """

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self._fd = -1

    def take(self) -> None:
        """Make the directory if it is missing and take it.

        Raises:
            StateBusy: another daemon has it.
            StateError: it cannot be made or written.

        """
        try:
            self.folder.mkdir(mode=0o750, parents=True, exist_ok=True)
            fd = os.open(self.folder / "lock", os.O_RDWR | os.O_CREAT, 0o640)
        except OSError as exc:
            raise _error(self.folder, "cannot be used", exc) from exc
        try:
            self._take(fd)
        except BaseException:
            os.close(fd)
            raise
        self._fd = fd

    def release(self) -> None:
        """Give it up; harmless if it is not held."""
        if self._fd >= 0:
            os.close(self._fd)
            self._fd = -1

    def __enter__(self) -> Self:
        self.take()
        return self

    def __exit__(self, *exc_info: object) -> None:
        self.release()

    def _take(self, fd: int) -> None:
        try:
            fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            pid, since = _owner(os.pread(fd, 200, 0))
            raise StateBusy(self.folder, pid, since) from None
        except OSError as exc:
            raise _error(self.folder, "cannot be locked", exc) from exc
        try:
            os.ftruncate(fd, 0)
            os.pwrite(fd, f"pid {os.getpid()}\nstarted {iso(time.time_ns())}\n".encode(), 0)
            _try_to_write(self.folder)
        except OSError as exc:
            raise _error(self.folder, "cannot be written", exc) from exc


def is_held(folder: Path) -> bool:
    """Return whether a daemon runs on a state directory, without touching it."""
    try:
        fd = os.open(folder / "lock", os.O_RDONLY | os.O_CLOEXEC)
    except OSError:
        return False
    try:
        fcntl.flock(fd, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except OSError:
        return True
    finally:
        os.close(fd)
    return False


def _try_to_write(folder: Path) -> None:
    """Make and remove a file: mode bits do not tell about read-only mounts and full disks."""
    probe = folder / f".probe-{os.getpid()}"
    probe.write_bytes(b"serialwatch")
    probe.unlink()


def _owner(content: bytes) -> tuple[int, str]:
    found = re.match(rb"pid (\d{1,10})\nstarted (\S{1,40})\n", content)
    return (int(found[1]), found[2].decode("ascii", errors="replace")) if found else (0, "")


def _error(folder: Path, problem: str, exc: OSError) -> StateError:
    remedy = _REMEDIES.get(exc.errno or 0, "")
    return StateError(folder, f"{problem}: {exc.strerror or exc}", remedy)
