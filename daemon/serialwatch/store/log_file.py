"""A log file that is being written, and its index beside it."""

from __future__ import annotations

import contextlib
import fcntl
import os
from pathlib import Path


class LogFile:
    """A log file that is being written, and its index."""

    def __init__(self, path: Path, first_seq: int) -> None:
        self.path = path
        self.first_seq = first_seq
        self.last_seq = first_seq - 1
        self.is_moved = False  # deleted or renamed: what is written is found by nobody
        self.is_unsafe = False  # fsync failed: the kernel may have dropped pages
        self.is_dirty = True
        self.is_new = True  # its folder does not know it for sure
        self.index_rest = bytearray()  # records that are not written yet
        self.log_fd = _create(path)
        try:
            self.index_fd = _create(path.with_suffix(".idx"))
        except OSError:
            os.close(self.log_fd)
            path.unlink(missing_ok=True)
            raise

    def write_index(self) -> None:
        """Append the records that wait."""
        while self.index_rest:
            del self.index_rest[: os.write(self.index_fd, self.index_rest)]

    def begin_index_anew(self, header: bytes, kept_bytes: int) -> None:
        """Forget all records behind the first bytes of the index, and change its header.

        If we are killed in between, the index tells less than it could, and nothing that is wrong.
        """
        self.index_rest.clear()
        os.ftruncate(self.index_fd, kept_bytes)
        flags = fcntl.fcntl(self.index_fd, fcntl.F_GETFL)
        fcntl.fcntl(self.index_fd, fcntl.F_SETFL, flags & ~os.O_APPEND)  # else pwrite appends
        try:
            os.pwrite(self.index_fd, header, 0)
        finally:
            fcntl.fcntl(self.index_fd, fcntl.F_SETFL, flags)
        self.is_dirty = True

    def is_told(self) -> bool:
        """Append the records that wait; return whether the disk took them."""
        if not self.index_rest:
            return True
        try:
            self.write_index()
        except OSError:
            return False
        self.is_dirty = True
        return True

    def sync(self) -> None:
        """Bring both files to the disk."""
        if not self.is_dirty:
            return
        self.is_dirty = False
        try:
            os.fdatasync(self.log_fd)
            os.fdatasync(self.index_fd)
            if self.is_new:
                _sync_folder(self.path.parent)
                _sync_folder(self.path.parent.parent)
                self.is_new = False
        except OSError:
            self.is_unsafe = True
            raise

    def look(self, offset: int) -> None:
        """Note whether the file is still in its place and as long as we made it."""
        mine = os.fstat(self.log_fd)
        try:
            is_here = os.path.samestat(os.stat(self.path), mine)
        except FileNotFoundError:
            is_here = False
        self.is_moved = not is_here or mine.st_size != offset

    def delete(self) -> None:
        """Take both files out of their folder."""
        self.path.unlink(missing_ok=True)
        self.path.with_suffix(".idx").unlink(missing_ok=True)

    def close(self) -> None:
        """Close both files."""
        os.close(self.log_fd)
        os.close(self.index_fd)


def make_folder(folder: Path) -> None:
    """Make the folder of a port, and that of all logs."""
    for each in (folder.parent, folder):
        with contextlib.suppress(FileExistsError):
            os.mkdir(each, 0o750)


def _create(path: Path) -> int:
    flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_APPEND | os.O_CLOEXEC
    return os.open(path, flags, 0o640)


def _sync_folder(folder: Path) -> None:
    fd = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        os.fsync(fd)
    finally:
        os.close(fd)
