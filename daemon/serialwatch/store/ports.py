"""What the database knows of a port: its line numbers, how far it was searched, its boots."""

from __future__ import annotations

import time
from collections.abc import Mapping
from dataclasses import dataclass

from sqlite_utils import Database

from serialwatch.wire import iso

SEQ_BLOCK = 65_536  # line numbers reserved at once


@dataclass(frozen=True, slots=True)
class PortRow:
    """A port as a run of the daemon finds it."""

    name: str
    device: str
    next_seq: int  # number of the next line
    reserved_seq: int  # numbers below this may be used without asking again
    matched_seq: int  # lines up to here were searched and their hits stored
    boot: int  # number of the newest boot, 0 before the first
    is_clean: bool  # the last run ended in order, or there was none


@dataclass(frozen=True, slots=True)
class PortEnd:
    """A port as a run of the daemon leaves it."""

    next_seq: int
    matched_seq: int
    boot: int


def load_port(db: Database, name: str, device: str, *, logged_seq: int = 0) -> PortRow:
    """Take up a port, which is new perhaps, and reserve its first block of line numbers."""
    found = find_port(db, name, device, logged_seq=logged_seq)
    take_up(db, found)
    return found


def find_port(db: Database, name: str, device: str, *, logged_seq: int = 0) -> PortRow:
    """Return how a port goes on, and change nothing.

    After an unclean end numbers go on above all that may have been used: what was reserved, and
    `logged_seq`, the highest number in its log (0: none). Of a port that has a log but is not known
    here nothing is searched again: the database that knew it is lost.
    """
    row = next(db.query("SELECT * FROM ports WHERE name = ?", [name]), None)
    is_clean = row is None or bool(row["is_clean"])
    if row is None:
        next_seq = logged_seq + 1
    else:
        next_seq = max(row["next_seq"] if is_clean else row["reserved_seq"], logged_seq + 1)
    return PortRow(
        name=name,
        device=device,
        next_seq=next_seq,
        reserved_seq=next_seq + SEQ_BLOCK,
        matched_seq=row["matched_seq"] if row else logged_seq,
        boot=row["boot"] if row else 0,
        is_clean=is_clean,
    )


def unknown_port(name: str, device: str, logged_seq: int) -> PortRow:
    """Return how a port goes on of which nothing but its log is known."""
    first = logged_seq + 1 + (SEQ_BLOCK if logged_seq else 0)
    return PortRow(name, device, first, first + SEQ_BLOCK, logged_seq, 0, is_clean=False)


def take_up(db: Database, row: PortRow) -> None:
    """Reserve the numbers of a port; until `close_clean` its end counts as unclean."""
    db.execute(
        """
        INSERT INTO ports VALUES (:name, :device, :next, :reserved, :matched, :boot, 0, :at)
        ON CONFLICT (name) DO UPDATE SET device = :device, next_seq = :next,
            reserved_seq = :reserved, is_clean = 0, updated_at = :at
        """,
        {
            "name": row.name,
            "device": row.device,
            "next": row.next_seq,
            "reserved": row.reserved_seq,
            "matched": row.matched_seq,
            "boot": row.boot,
            "at": _now(),
        },
    )


def reserve(db: Database, name: str, upto: int) -> None:
    """Reserve all line numbers of a port below `upto`; never takes one back."""
    db.execute(
        """
        INSERT INTO ports VALUES (:name, '', :upto, :upto, 0, 0, 0, :at)
        ON CONFLICT (name) DO UPDATE SET
            reserved_seq = max(reserved_seq, :upto), updated_at = :at
        """,
        {"name": name, "upto": upto, "at": _now()},
    )


def store_positions(db: Database, matched: Mapping[str, int]) -> None:
    """Store up to which line each port was searched; a position never goes back."""
    for name, seq in matched.items():
        db.execute(
            "UPDATE ports SET matched_seq = max(matched_seq, ?), updated_at = ? WHERE name = ?",
            [seq, _now(), name],
        )


def close_clean(db: Database, ends: Mapping[str, PortEnd]) -> None:
    """Note the end of a run in order: the next one goes on without a hole."""
    for name, end in ends.items():
        db.execute(
            """
            UPDATE ports SET next_seq = ?, reserved_seq = max(reserved_seq, ?),
                matched_seq = max(matched_seq, ?), boot = max(boot, ?), is_clean = 1,
                updated_at = ?
            WHERE name = ?
            """,
            [end.next_seq, end.next_seq, end.matched_seq, end.boot, _now(), name],
        )


def _now() -> str:
    return iso(time.time_ns())
