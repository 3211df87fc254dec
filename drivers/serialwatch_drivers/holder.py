"""Who has a device: from /proc/locks, else from the open descriptors we are allowed to see."""

from __future__ import annotations

import contextlib
import os
import stat
from collections.abc import Collection, Iterator
from pathlib import Path


def find_holder(path: str, proc: Path = Path("/proc")) -> str:
    """Return who has `path`, as `picocom (pid 4121, uid 1000)`; "" where nothing shows it.

    Reads much of /proc: not for the loop.
    """
    pid = _lock_owner(path, proc)
    if pid is not None and (name := _describe(pid, proc)):
        return name
    openers = _openers(path, proc)
    others = filter(None, (_describe(pid, proc) for pid in openers if pid != os.getpid()))
    # Nobody else, but ourselves: two ports that lead to one device.
    return ", ".join(others) or ("another port of this daemon" if os.getpid() in openers else "")


def find_readers(numbers: Collection[int], proc: Path = Path("/proc")) -> dict[int, str]:
    """Return who else has character devices open, by device number; only those that somebody has.

    One look through /proc for all of them: some ms a hundred processes, so not for the loop.
    Processes of others are seen by root only.
    """
    found: dict[int, list[int]] = {}
    for pid in _processes(proc):
        for number in _open_devices(proc / str(pid) / "fd"):
            if number in numbers and pid not in found.get(number, ()):
                found.setdefault(number, []).append(pid)
    told = {n: ", ".join(filter(None, (_describe(p, proc) for p in ps))) for n, ps in found.items()}
    return {number: who for number, who in told.items() if who}


def _processes(proc: Path) -> list[int]:
    """Return all processes but this one."""
    try:
        names = os.listdir(proc)
    except OSError:
        return []
    return sorted(int(name) for name in names if name.isdigit() and int(name) != os.getpid())


def _open_devices(folder: Path) -> Iterator[int]:
    """Yield the number of each character device that a process has open."""
    try:
        names = os.listdir(folder)
    except OSError:
        return  # it has ended, or belongs to somebody else
    for name in names:
        with contextlib.suppress(OSError):
            # Only what lies in /dev is asked: a stat of a file of a dead NFS server would hang.
            if os.readlink(folder / name).startswith("/dev/"):
                found = os.stat(folder / name)
                if stat.S_ISCHR(found.st_mode):
                    yield found.st_rdev


def _lock_owner(path: str, proc: Path) -> int | None:
    """Return the pid behind a lock on `path`: fields are id kind how mode pid major:minor:inode."""
    try:
        file = os.stat(path)
        rows = (proc / "locks").read_text().splitlines()
    except OSError:
        return None
    inode = f"{os.major(file.st_dev):02x}:{os.minor(file.st_dev):02x}:{file.st_ino}"
    for row in rows:
        fields = row.split()
        # A waiting lock has "->" as its second field; it holds nothing.
        if len(fields) > 5 and fields[5] == inode and fields[4].isdigit():
            return int(fields[4])
    return None


def _openers(path: str, proc: Path) -> list[int]:
    """Return the processes that have `path` open."""
    real = os.path.realpath(path)
    found = []
    for process in sorted(proc.glob("[0-9]*")):
        try:
            fds = os.listdir(process / "fd")
        except OSError:
            continue  # it has ended, or belongs to somebody else
        for fd in fds:
            with contextlib.suppress(OSError):  # of ours, the one that listed them is gone
                if os.readlink(process / "fd" / fd) == real:
                    found.append(int(process.name))
                    break
    return found


def _describe(pid: int, proc: Path) -> str:
    try:
        command = (proc / str(pid) / "comm").read_bytes().rstrip(b"\n")
        uid = (proc / str(pid)).stat().st_uid
    except OSError:
        return ""
    name = "".join(c if c.isprintable() else "?" for c in command.decode(errors="replace"))
    return f"{name} (pid {pid}, uid {uid})"
