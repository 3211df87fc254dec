"""How long logs are kept."""

from __future__ import annotations

import logging
from collections.abc import Collection
from dataclasses import dataclass
from itertools import accumulate
from pathlib import Path

from serialwatch.store.log_format import log_files

log = logging.getLogger(__name__)

_DAY_NS = 86_400 * 10**9


def prune(
    folder: Path,
    keep_days: float,
    keep_bytes: int,
    now_utc_ns: int,
    ports: Collection[str] | None = None,
) -> int:
    """Delete the oldest log files below `folder`; return how many bytes that freed.

    `folder` is that of all logs, or of one port: `keep_bytes` counts what is below it. Files go
    whole, with their index, the one longest unchanged first; the newest of a port stays for ever,
    but of a port that is none of `ports` (None: of no port) it goes when it is too old.
    The files of one port go in the order of their lines, whatever a clock that was wrong has said.
    """
    pairs = sorted(_pairs(folder, now_utc_ns), key=lambda pair: pair.changed_ns)
    size = sum(pair.size for pair in pairs)
    freed = 0
    for pair in pairs:
        is_old = pair.changed_ns < now_utc_ns - keep_days * _DAY_NS
        is_last = pair.is_newest and (ports is None or pair.path.parent.name in ports or not is_old)
        if is_last or not (is_old or size > keep_bytes):
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


def _pairs(folder: Path, now_utc_ns: int) -> list[_Pair]:
    if not folder.is_dir():
        return []
    pairs: list[_Pair] = []
    for each in (folder, *sorted(path for path in folder.iterdir() if path.is_dir())):
        files = log_files(each)
        found = [path.stat() for path in files]
        changes = _in_order([file.st_mtime_ns for file in found], now_utc_ns)
        for path, file, changed_ns in zip(files, found, changes, strict=True):
            index = path.with_suffix(".idx")
            size = file.st_size + (index.stat().st_size if index.exists() else 0)
            pairs.append(_Pair(path, size, changed_ns, path is files[-1]))
    return pairs


def _in_order(changes: list[int], now_utc_ns: int) -> list[int]:
    """Return when files were changed last that were written one after another.

    A time still to come is as good as that of the next file, one before that of the file before
    as good as that.
    """
    for at in range(len(changes) - 2, -1, -1):
        if changes[at] > now_utc_ns:
            changes[at] = min(changes[at], changes[at + 1])
    return list(accumulate(changes, max))
