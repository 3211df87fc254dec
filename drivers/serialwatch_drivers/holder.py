"""Who has a device: from /proc/locks, else from the open descriptors we are allowed to see."""

from __future__ import annotations

import os
from pathlib import Path


def find_holder(path: str, proc: Path = Path("/proc")) -> str:
    """Return who has `path`, as `picocom (pid 4121, uid 1000)`; "" where nothing shows it.

    Reads much of /proc: not for the loop.
    """
    pid = _lock_owner(path, proc)
    if pid is not None and (name := _describe(pid, proc)):
        return name
    return ", ".join(filter(None, (_describe(pid, proc) for pid in _openers(path, proc))))


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
    """Return the processes that have `path` open, our own left out."""
    real = os.path.realpath(path)
    found = []
    for process in sorted(proc.glob("[0-9]*")):
        try:
            links = [os.readlink(fd) for fd in (process / "fd").iterdir()]
        except OSError:
            continue  # it has ended, or belongs to somebody else
        if real in links and int(process.name) != os.getpid():
            found.append(int(process.name))
    return found


def _describe(pid: int, proc: Path) -> str:
    try:
        command = (proc / str(pid) / "comm").read_bytes().rstrip(b"\n")
        uid = (proc / str(pid)).stat().st_uid
    except OSError:
        return ""
    name = "".join(c if c.isprintable() else "?" for c in command.decode(errors="replace"))
    return f"{name} (pid {pid}, uid {uid})"
