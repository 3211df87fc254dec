"""What compiling rules takes time for, kept on disk: it takes hardly any to read it back.

A file is read only if nobody else could have written it and if it is whole; what cannot be read or
written costs time and nothing else.
"""

from __future__ import annotations

import hashlib
import json
import logging
import os
import sys
from collections.abc import Callable
from contextlib import suppress
from importlib.metadata import version
from pathlib import Path

import hyperscan as hs

from serialwatch import lines
from serialwatch.triggers import effort, patience, pattern_tree, patterns, stand_in
from serialwatch.triggers.cache_file import keep, read_kept
from serialwatch.triggers.patterns import Pattern, compile_database, known_patterns

log = logging.getLogger(__name__)

MAX_BYTES = 256 * 1024 * 1024
_KEPT = 4  # databases: with and without a port's own `ready`, before and after a change
_PATTERNS_KEPT = 2  # of two versions of the program
_COMPILERS = (patterns, pattern_tree, stand_in, effort, patience, lines)  # of patterns


class DatabaseCache:
    """Compiled patterns and Hyperscan databases of the rules, in a folder."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder

    def recall(self) -> None:
        """Take up what earlier processes have compiled: to be called before rules are loaded."""
        if known_patterns.has_recalled:
            return
        path = self._patterns_path()
        body = read_kept(path, MAX_BYTES) if path else None
        with suppress(AttributeError, KeyError, TypeError, ValueError):
            known_patterns.recall(json.loads(body) if body else [])

    def database(self, patterns: tuple[Pattern, ...]) -> hs.Database:
        """Return the database of these patterns, as `compile_database` does.

        Raises:
            hyperscan.HyperscanError: one of them is too much for it.

        """
        path = self._folder / f"{_key(patterns)}.hsdb"
        database = _read(path)
        if database is None:
            database = compile_database(patterns)
            self._keep(path, lambda: hs.dumpb(database), _KEPT)
        if known_patterns.has_news and (known := self._patterns_path()):
            self._keep(known, lambda: json.dumps(known_patterns.told()).encode(), _PATTERNS_KEPT)
        return database

    def _keep(self, path: Path, written: Callable[[], bytes], most_files: int) -> None:
        try:
            keep(path, written(), most_files)
        except (OSError, hs.HyperscanError) as exc:
            log.warning("%s: compiled rules are not kept for the next start: %s", path, exc)

    def _patterns_path(self) -> Path | None:
        """Return the file of compiled patterns, named for what compiles them."""
        digest = hashlib.sha256(repr(sys.version_info).encode())
        try:
            for module in _COMPILERS:
                digest.update(Path(str(module.__file__)).read_bytes())
        except OSError:
            return None  # not in files
        return self._folder / f"{digest.hexdigest()[:32]}.patterns"


def _key(patterns: tuple[Pattern, ...]) -> str:
    """Return a name for what was compiled: patterns in their order, and the compiler's version."""
    digest = hashlib.sha256(f"2 hyperscan {version('hyperscan')}\n".encode())
    for pattern in patterns:
        for text in pattern.stand_ins:
            digest.update(b"%d:" % len(text) + text)
        digest.update(b";")
    return digest.hexdigest()[:32]


def _read(path: Path) -> hs.Database | None:
    if (body := read_kept(path, MAX_BYTES)) is None:
        return None
    with suppress(OSError, hs.HyperscanError):
        # Hyperscan itself looks whether the CPU is of the kind that it was compiled for.
        database = hs.loadb(body, hs.HS_MODE_BLOCK)
        hs.Scratch(database)
        os.utime(path)
        return database
    return None
