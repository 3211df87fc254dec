"""How long logs are kept."""

from __future__ import annotations

import logging
from dataclasses import dataclass
from pathlib import Path

from serialwatch.store.log_format import log_files

log = logging.getLogger(__name__)

_DAY_NS = 86_400 * 10**9


def prune(folder: Path, keep_days: float, keep_bytes: int, now_utc_ns: int) -> int:
    """Delete the oldest log files below `folder`; return how many bytes that freed.

    `folder` is that of all logs, or of one port: `keep_bytes` counts what is below it. Files go
    whole, with their index, the one longest unchanged first; the newest of a port stays for ever.
    """
    pairs = sorted(_pairs(folder), key=lambda pair: pair.changed_ns)
    size = sum(pair.size for pair in pairs)
    freed = 0
    for pair in pairs:
        is_old = pair.changed_ns < now_utc_ns - keep_days * _DAY_NS
        if pair.is_newest or not (is_old or size > keep_bytes):
            continue
        # The log last: an index without one would stay for ever.
        pair.path.with_suffix(".idx").unlink(missing_ok=True)
        pair.path.unlink(missing_ok=True)
        log.info("%s: deleted, %s", pair.path, "too old" if is_old else "to make room")
        size -= pair.size
        freed += pair.size
    return freed


@dataclass(frozen=True, slots=True)
class _Pair:
    """A log file and its index."""

    path: Path
    size: int
    changed_ns: int
    is_newest: bool  # of its port


def _pairs(folder: Path) -> list[_Pair]:
    if not folder.is_dir():
        return []
    pairs: list[_Pair] = []
    for each in (folder, *sorted(path for path in folder.iterdir() if path.is_dir())):
        files = log_files(each)
        for path in files:
            found = path.stat()
            index = path.with_suffix(".idx")
            size = found.st_size + (index.stat().st_size if index.exists() else 0)
            pairs.append(_Pair(path, size, found.st_mtime_ns, path is files[-1]))
    return pairs
