"""What a run could not write, for the next one: kept where a full disk has room.

It is a symbolic link that leads nowhere: its text lies in its inode and takes no block.
"""

from __future__ import annotations

import os
import re
from dataclasses import dataclass
from pathlib import Path

from serialwatch.store.log_format import MAX_NUMBER, Place
from serialwatch.store.log_items import Gap

_NAME = "not-written"
_TEXT = re.compile(
    r"(at-least-)?([0-9]{1,18})-bytes-at-L([0-9]{1,19})-at-([0-9]{1,19})-([0-9]{1,19})"
)


@dataclass(frozen=True, slots=True)
class Left:
    """What a run has not written."""

    gap: Gap
    is_all: bool  # it has ended in order; else it may have read some more


def left_behind(folder: Path) -> Left | None:
    """Return what the last run of a port has not written, None if nothing is known to be missing.

    `folder` is the port's own.
    """
    try:
        text = os.readlink(folder / _NAME)
    except OSError:
        return None
    match = _TEXT.fullmatch(text)
    if match is None:
        return None
    lost_bytes, seq, utc_ns, mono_ns = (int(number) for number in match.groups()[1:])
    if not lost_bytes:
        return None
    return Left(Gap(Place.LOG, lost_bytes, seq, mono_ns, utc_ns), is_all=not match[1])


def leave_behind(folder: Path, left: Left) -> None:
    """Keep what is not written for the next run, in the place of what was kept before.

    Raises:
        OSError: not even that can be kept.

    """
    gap = left.gap
    seq, utc_ns, mono_ns = (min(max(n, 0), MAX_NUMBER) for n in (gap.seq, gap.utc_ns, gap.mono_ns))
    words = "" if left.is_all else "at-least-"
    fresh = folder / f"{_NAME}.new"
    fresh.unlink(missing_ok=True)
    os.symlink(f"{words}{gap.lost_bytes}-bytes-at-L{seq}-at-{utc_ns}-{mono_ns}", fresh)
    os.replace(fresh, folder / _NAME)


def take_up(folder: Path) -> None:
    """Forget what was left behind: it is told, or written."""
    (folder / _NAME).unlink(missing_ok=True)
