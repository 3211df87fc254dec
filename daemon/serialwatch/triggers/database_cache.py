"""Compiled Hyperscan databases on disk: compiling takes time where loading takes none."""

from __future__ import annotations

import hashlib
import logging
import os
import stat
import tempfile
from contextlib import suppress
from importlib.metadata import version
from pathlib import Path

import hyperscan as hs

from serialwatch.triggers.patterns import Pattern, compile_database

log = logging.getLogger(__name__)

KEPT = 4  # files, the newest: with and without a port's own `ready`, before and after a change
MAX_BYTES = 256 * 1024 * 1024
_DIGEST = hashlib.sha256().digest_size


def default_folder() -> Path:
    """Return where this user's compiled rules are kept."""
    if given := os.environ.get("CACHE_DIRECTORY"):  # systemd's
        return Path(given) / "rules"
    home = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    return Path(home) / "serialwatch" / "rules"


class DatabaseCache:
    """Databases by what was compiled and by what.

    A file is used only if nobody else could have written it and if it is whole; what cannot be
    read or written costs time and nothing else.
    """

    def __init__(self, folder: Path) -> None:
        self._folder = folder

    def database(self, patterns: tuple[Pattern, ...]) -> hs.Database:
        """Return the database of these patterns, as `compile_database` does.

        Raises:
            hyperscan.HyperscanError: one of them is too much for it.

        """
        path = self._folder / f"{_key(patterns)}.hsdb"
        if (database := _read(path)) is not None:
            return database
        database = compile_database(patterns)
        try:
            self._write(path, hs.dumpb(database))
        except (OSError, hs.HyperscanError) as exc:
            log.warning("%s: compiled rules are not kept for the next start: %s", path, exc)
        return database

    def _write(self, path: Path, body: bytes) -> None:
        self._folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        handle, name = tempfile.mkstemp(dir=self._folder, suffix=".new")
        try:
            with os.fdopen(handle, "wb") as file:
                file.write(hashlib.sha256(body).digest() + body)
            Path(name).replace(path)
        except OSError:
            Path(name).unlink(missing_ok=True)
            raise
        kept = sorted(self._folder.glob("*.hsdb"), key=lambda p: p.stat().st_mtime)
        for old in kept[:-KEPT]:
            old.unlink(missing_ok=True)


def _key(patterns: tuple[Pattern, ...]) -> str:
    """Return a name for what was compiled: patterns in their order, and the compiler's version."""
    digest = hashlib.sha256(f"2 hyperscan {version('hyperscan')}\n".encode())
    for pattern in patterns:
        for text in pattern.stand_ins:
            digest.update(b"%d:" % len(text) + text)
        digest.update(b";")
    return digest.hexdigest()[:32]


def _read(path: Path) -> hs.Database | None:
    with suppress(OSError, hs.HyperscanError), path.open("rb") as file:
        about = os.fstat(file.fileno())
        is_ours = about.st_uid in (0, os.geteuid()) and not about.st_mode & 0o022
        if not (is_ours and stat.S_ISREG(about.st_mode) and about.st_size < MAX_BYTES):
            return None
        text = file.read()
        if hashlib.sha256(text[_DIGEST:]).digest() != text[:_DIGEST]:
            return None
        # Hyperscan itself looks whether the CPU is of the kind that it was compiled for.
        database = hs.loadb(text[_DIGEST:], hs.HS_MODE_BLOCK)
        hs.Scratch(database)
        os.utime(path)
        return database
    return None
