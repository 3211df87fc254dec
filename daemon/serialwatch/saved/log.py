"""A saved log as bytes: found in folders, unpacked, and without the wide characters of Windows."""

from __future__ import annotations

import bz2
import codecs
import gzip
import io
import lzma
import os
import shutil
import stat
import sys
import tempfile
import zlib
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO, cast

if sys.version_info >= (3, 14):
    from compression import zstd
else:
    from backports import zstd

_LOOKED_AT = 8192  # bytes that tell what a file is
_BLOCK = 1 << 18  # bytes of text that are made at once from wide characters
_UTF8_MARK = b"\xef\xbb\xbf"
_WIDE_MARKS = {
    b"\xff\xfe\0\0": "utf-32-le",  # before that of UTF-16
    b"\0\0\xfe\xff": "utf-32-be",
    b"\xff\xfe": "utf-16-le",
    b"\xfe\xff": "utf-16-be",
}
_UNPACKERS: dict[bytes, tuple[str, Callable[[BinaryIO], object]]] = {  # by their first bytes
    b"\x1f\x8b": ("gzip", lambda file: gzip.GzipFile(fileobj=file, mode="rb")),
    b"\x28\xb5\x2f\xfd": ("zstd", zstd.ZstdFile),
    b"\xfd7zXZ\x00": ("xz", lzma.LZMAFile),
    b"BZh": ("bzip2", bz2.BZ2File),
}
_NO_LOGS = {  # by their first bytes: read as a log, they would be taken for a wrong bit rate
    b"\x7fELF": "a program (ELF)",
    b"PK\x03\x04": "a zip archive (unpack it, then name the folder)",
    b"7z\xbc\xaf\x27\x1c": "a 7-Zip archive (unpack it, then name the folder)",
    b"Rar!\x1a\x07": "a RAR archive (unpack it, then name the folder)",
    b"\x04\x22\x4d\x18": "packed by lz4 (unpack it first: lz4 -d)",
    b"LZIP": "packed by lzip (unpack it first: lzip -d)",
    b"\x89LZO\0": "packed by lzop (unpack it first: lzop -d)",
    b"\x1f\x9d": "packed by compress (unpack it first: uncompress)",
    b"SQLite format 3\0": "a database (SQLite)",
    b"%PDF-": "a PDF",
    b"\x89PNG": "a picture (PNG)",
    b"\xff\xd8\xff": "a picture (JPEG)",
}
_NULS = {  # which of four bytes are NUL in text of mostly ASCII
    "utf-16-le": (False, True, False, True),
    "utf-16-be": (True, False, True, False),
    "utf-32-le": (False, True, True, True),
    "utf-32-be": (True, True, True, False),
}
_TAR_MARK = b"ustar"  # at byte 257 of an archive (POSIX.1-1988)
_TAR_MARK_AT = 257
_LONGEST_MAGIC = max(map(len, _UNPACKERS))
_LOG_SUFFIXES = {".log", ".txt", ".cap", ".dmesg", ".console", ".tty", ".out"}
_NO_LOG_SUFFIXES = {
    ".asc", ".bin", ".c", ".cfg", ".cpp", ".css", ".csv", ".db", ".dtb", ".dts", ".elf", ".gif",
    ".h", ".hex", ".htm", ".html", ".idx", ".img", ".ini", ".jpeg", ".jpg", ".js", ".json", ".map",
    ".md", ".o", ".pdf", ".png", ".py", ".pyc", ".rs", ".rst", ".sh", ".sha256", ".so", ".sql",
    ".svg", ".tar", ".toml", ".ts", ".tsv", ".uf2", ".xml", ".yaml", ".yml", ".zip",
}  # fmt: skip
_NO_TEXT = bytes([*range(7), *range(14, 27), *range(28, 32), 127])
_MOST_NO_TEXT = 0.05  # part of a file in a folder that may be no text


class NoLogError(OSError):
    """The file is of a kind that no console prints."""

    def __init__(self, kind: str) -> None:
        super().__init__(f"no log: it is {kind}")


@dataclass(frozen=True, slots=True)
class Folder:
    """What there is below a folder, sorted."""

    logs: tuple[Path, ...]
    skipped: tuple[Path, ...]  # they are no logs
    unread: tuple[OSError, ...]  # folders in it that cannot be read


class SavedLog(io.RawIOBase):
    """A log that can be read twice; its wide characters are read as UTF-8.

    Use it in a `with`. Packed data that is damaged ends where it cannot be unpacked any more, and
    `damage` says why; if nothing of it can be unpacked, that is an OSError.
    """

    def __init__(self, file: BinaryIO) -> None:
        super().__init__()
        self._file = file
        self._text = file
        self._packer = ""
        self.damage = ""
        self._wide: codecs.IncrementalDecoder | None = None
        self._made = b""
        self._skipped = 0  # bytes of a mark at the start
        try:
            self.stored_bytes = os.fstat(file.fileno()).st_size
            self._look()
        except BaseException:
            self.close()
            raise

    @property
    def read_bytes(self) -> int:
        """Return how many of the `stored_bytes` were read."""
        return self._file.tell()

    def readable(self) -> bool:
        """Tell that it can be read."""
        return True

    def seekable(self) -> bool:
        """Tell that its start can be sought."""
        return True

    def read(self, size: int = -1) -> bytes:
        """Return the next bytes, `size` of them unless the log ends."""
        if self._wide is None:
            return self._unpacked(size)
        while size < 0 or len(self._made) < size:
            wide = self._unpacked(_BLOCK)
            self._made += self._wide.decode(wide, final=not wide).encode("utf-8", "replace")
            if not wide:
                break
        end = len(self._made) if size < 0 else size
        taken, self._made = self._made[:end], self._made[end:]
        return taken

    def seek(self, offset: int, whence: int = os.SEEK_SET) -> int:
        """Go back to the start, the only place that can be sought."""
        if offset or whence:
            raise io.UnsupportedOperation("only the start can be sought")
        self._text.seek(self._skipped)
        self._made = b""
        if self._wide is not None:
            self._wide.reset()
        return 0

    def close(self) -> None:
        """Close the file, too."""
        self._text.close()
        self._file.close()  # what unpacks closes only what it opened itself
        super().close()

    def _look(self) -> None:
        start = self._file.read(_LONGEST_MAGIC)
        self._file.seek(0)
        for magic, (name, unpack) in _UNPACKERS.items():
            if start.startswith(magic):
                self._packer, self._text = name, cast(BinaryIO, unpack(self._file))
        start = self._unpacked(_LOOKED_AT)
        for magic, kind in _NO_LOGS.items():
            if start.startswith(magic):
                raise NoLogError(kind)
        if start.startswith(_TAR_MARK, _TAR_MARK_AT):
            raise NoLogError("a tar archive (unpack it, then name the folder)")
        if self.damage and not start:
            raise OSError(self.damage)
        if start.startswith(_UTF8_MARK):
            self._skipped = len(_UTF8_MARK)
        elif wide := _wide(start):
            self._wide = codecs.getincrementaldecoder(wide)(errors="replace")
            marks = (mark for mark in _WIDE_MARKS if start.startswith(mark))
            self._skipped = len(next(marks, b""))
        self.seek(0)

    def _unpacked(self, size: int) -> bytes:
        if not self._packer:
            return self._text.read(size)
        parts: list[bytes] = []
        left = sys.maxsize if size < 0 else size
        try:
            # Not `read`: what it had unpacked before the damage would be lost.
            while left and (part := cast(io.BufferedIOBase, self._text).read1(min(left, _BLOCK))):
                parts.append(part)
                left -= len(part)
        except EOFError:
            self.damage = f"damaged: the file ends before its {self._packer} data does"
        except (zlib.error, gzip.BadGzipFile, lzma.LZMAError, zstd.ZstdError) as exc:
            self.damage = f"damaged {self._packer} data: {exc}"
        except OSError as exc:
            if exc.errno is not None:  # bzip2 has no error of its own
                raise
            self.damage = f"damaged {self._packer} data: {exc}"
        return b"".join(parts)


def open_log(path: str | Path) -> SavedLog:
    """Open a saved log or a pipe, as it is or packed.

    Raises:
        NoLogError: a program, an archive or the like.
        OSError: missing, not readable, damaged, or a device, of which nothing is saved.

    """
    mode = os.stat(path).st_mode
    if (stat.S_ISCHR(mode) or stat.S_ISBLK(mode)) and str(path) != os.devnull:
        # To open a serial port resets many boards.
        raise OSError("a device, not a saved log; `serialwatch run --port NAME=DEVICE` watches one")
    return readable_twice(open(path, "rb"))


def readable_twice(source: BinaryIO) -> SavedLog:
    """Return what an open file or pipe holds as a log; raises as `open_log`."""
    if not source.seekable():
        with source:
            source = _kept(source)
    return SavedLog(source)


def logs_below(folder: Path) -> Folder:
    """Find the logs in a folder and in those below it; hidden ones and links are left alone.

    Raises:
        OSError: the folder cannot be read.

    """
    os.scandir(folder).close()  # os.walk would say nothing
    logs: list[Path] = []
    skipped: list[Path] = []
    unread: list[OSError] = []
    for root, folders, names in os.walk(folder, onerror=unread.append):
        folders[:] = [name for name in folders if not name.startswith(".")]
        for name in names:
            path = Path(root, name)
            if name.startswith(".") or path.is_symlink() or not path.is_file():
                continue
            (logs if is_log(path) else skipped).append(path)
    return Folder(tuple(sorted(logs)), tuple(sorted(skipped)), tuple(unread))


def is_log(path: Path) -> bool:
    """Tell whether a file looks like a log; what cannot be read does, so that it is told."""
    suffixes = {suffix.lower() for suffix in path.suffixes[-2:]}
    if path.suffix.lower() in _NO_LOG_SUFFIXES:
        return False
    try:
        with open_log(path) as log:
            start = log.read(_LOOKED_AT)
    except NoLogError:
        return False
    except OSError:
        return True
    is_text = len(start) - len(start.translate(None, _NO_TEXT)) <= _MOST_NO_TEXT * len(start)
    return is_text or bool(suffixes & _LOG_SUFFIXES and b"\0\0\0\0" not in start)


def _wide(start: bytes) -> str:
    """Return the encoding of text in which most bytes are NUL, "" for all else."""
    for mark, encoding in _WIDE_MARKS.items():
        if start.startswith(mark):
            return encoding
    if len(start) < 8:
        return ""
    has_nul = [start[at::4].count(0) >= 0.8 * (len(start) // 4) for at in range(4)]
    has_none = [start[at::4].count(0) <= 0.02 * (len(start) // 4) for at in range(4)]
    for encoding, nuls in _NULS.items():
        if all((has_nul if is_nul else has_none)[at] for at, is_nul in enumerate(nuls)):
            return encoding
    return ""


def _kept(source: BinaryIO) -> BinaryIO:
    """Copy a pipe to a file without a name."""
    kept = tempfile.TemporaryFile()  # noqa: SIM115 -- its reader closes it
    shutil.copyfileobj(source, kept, 1 << 20)
    kept.seek(0)
    return cast(BinaryIO, kept)
