"""How much room the state folder's file system has, and what takes it."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from pathlib import Path

from serialwatch.spelling import Json

MAX_PARTS = 12  # that are named
_OCTAL = re.compile(r"\\([0-7]{3})")


def room_of(state: Path) -> Json:
    """Return which file system `state` is on, how full it is, and how large its parts are.

    Sizes are what the disk has given for them. It looks at each file, in a thread.

    Raises:
        OSError: nothing is known of the folder.

    """
    found = os.statvfs(state)
    place, kind = _mount_of(state)
    parts = sorted(_parts(state), key=lambda part: -part[1])
    total, free = found.f_blocks * found.f_frsize, found.f_bavail * found.f_frsize
    used = (found.f_blocks - found.f_bfree) * found.f_frsize
    return {
        "folder": str(state),
        "mount": place,
        "type": kind,
        "is_read_only": bool(found.f_flag & os.ST_RDONLY),
        "total_bytes": total,
        "free_bytes": free,
        "used_percent": -(-100 * used // (used + free)) if used + free else 0,  # as df rounds
        "free_files": found.f_favail if found.f_files else None,  # None: it knows no limit
        "parts": [{"name": name, "bytes": size} for name, size in parts[:MAX_PARTS]],
        "more_parts_bytes": sum(size for _, size in parts[MAX_PARTS:]),
        "others_bytes": max(used - sum(size for _, size in parts), 0),
    }


def _parts(state: Path) -> Iterator[tuple[str, int]]:
    """Yield the folders and files of the state folder with their sizes; of logs each port's."""
    for name, size in _sizes(state):
        if name == "log":
            yield from ((f"log/{port}", port_size) for port, port_size in _sizes(state / name))
        else:
            yield name, size


def _sizes(folder: Path) -> Iterator[tuple[str, int]]:
    try:
        entries = list(os.scandir(folder))
    except OSError:
        return
    for entry in entries:
        if entry.is_dir(follow_symlinks=False):
            yield entry.name, _size_below(entry.path)
        else:
            yield entry.name, _size_of(entry)


def _size_below(folder: str) -> int:
    size = 0
    try:
        with os.scandir(folder) as entries:
            for entry in entries:
                is_folder = entry.is_dir(follow_symlinks=False)
                size += _size_below(entry.path) if is_folder else _size_of(entry)
    except OSError:  # it is gone meanwhile
        pass
    return size


def _size_of(entry: os.DirEntry[str]) -> int:
    try:
        return entry.stat(follow_symlinks=False).st_blocks * 512
    except OSError:
        return 0


def _mount_of(folder: Path) -> tuple[str, str]:
    """Return where the file system of a folder is mounted, and its type; "" if nobody says."""
    place = folder.resolve()
    try:
        rows = Path("/proc/self/mountinfo").read_text("utf-8", "backslashreplace").splitlines()
    except OSError:
        return "", ""
    mounts: dict[str, str] = {}
    for row in rows:
        before, _, after = row.partition(" - ")
        mounts[_OCTAL.sub(lambda m: chr(int(m[1], 8)), before.split(" ")[4])] = after.split(" ")[0]
    for each in (place, *place.parents):
        if (kind := mounts.get(str(each))) is not None:
            return str(each), kind
    return "", ""
