"""Boots and markers: the named points of a port's log."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from sqlite_utils import Database

from serialwatch.records import Boot, BootCause, Marker, Ready
from serialwatch.wire import iso, utc_ns


@dataclass(frozen=True, slots=True)
class BootRow:
    """A boot and when it was finished."""

    port: str
    number: int
    seq: int
    utc_ns: int
    ecosystem: str
    cause: BootCause
    is_expected: bool
    marker: str
    ready_utc_ns: int | None  # None: not finished, or not seen
    ready_seq: int | None


def save_boot(db: Database, boot: Boot) -> None:
    """Store a boot, once however often it is told."""
    db.execute(
        """
        INSERT INTO boots VALUES (?, ?, ?, ?, ?, ?, ?, ?, NULL, NULL)
        ON CONFLICT (port, number) DO NOTHING
        """,
        [
            boot.port,
            boot.number,
            boot.seq,
            iso(boot.utc_ns),
            boot.ecosystem,
            boot.cause,
            boot.is_expected,
            boot.marker,
        ],
    )
    db.execute("UPDATE ports SET boot = max(boot, ?) WHERE name = ?", [boot.number, boot.port])


def save_ready(db: Database, ready: Ready) -> None:
    """Note that a boot was finished; the first time counts."""
    db.execute(
        """
        UPDATE boots SET ready_at = ?, ready_seq = ?
        WHERE port = ? AND number = ? AND ready_at IS NULL
        """,
        [iso(ready.utc_ns), ready.seq, ready.port, ready.boot],
    )


def load_boot(db: Database, port: str, number: int) -> BootRow | None:
    """Return one boot, None if it is not known."""
    rows = db.query("SELECT * FROM boots WHERE port = ? AND number = ?", [port, number])
    return next((_boot(row) for row in rows), None)


def boot_before(db: Database, port: str, seq: int, *, newest: int) -> int:
    """Return the number of the boot that was running before line `seq` came.

    `newest` is the answer where no boot is known.
    """
    (number,) = db.execute(
        """
        SELECT coalesce(
            (SELECT max(number) FROM boots WHERE port = :port AND seq < :seq),
            (SELECT min(number) - 1 FROM boots WHERE port = :port),
            :newest
        )
        """,
        {"port": port, "seq": seq, "newest": newest},
    ).fetchone()
    return int(number)


def load_boots(db: Database, port: str, *, limit: int = 100) -> list[BootRow]:
    """Return the boots of a port, newest first."""
    rows = db.query(
        "SELECT * FROM boots WHERE port = ? ORDER BY number DESC LIMIT ?", [port, limit]
    )
    return [_boot(row) for row in rows]


def next_marker_id(db: Database) -> int:
    """Return an id that no marker has."""
    (highest,) = db.execute("SELECT max(id) FROM markers").fetchone()
    return int(highest or 0) + 1


def save_marker(db: Database, marker: Marker) -> None:
    """Store a marker, once however often it is told."""
    db.execute(
        "INSERT INTO markers VALUES (?, ?, ?, ?, ?, ?, ?, ?) ON CONFLICT (id) DO NOTHING",
        [
            marker.id,
            marker.port,
            marker.seq,
            iso(marker.utc_ns),
            marker.mono_ns,
            marker.kind,
            marker.text,
            marker.who,
        ],
    )


def load_markers(
    db: Database, port: str, *, since_utc_ns: int = 0, limit: int = 100
) -> list[Marker]:
    """Return the markers of a port, newest first."""
    rows = db.query(
        "SELECT * FROM markers WHERE port = ? AND at >= ? ORDER BY id DESC LIMIT ?",
        [port, iso(since_utc_ns), limit],
    )
    return [_marker(row) for row in rows]


def find_marker(db: Database, port: str, wanted: str) -> Marker | None:
    """Return the marker with the number `wanted`, else the newest whose kind or text it is part of.

    Upper and lower case are the same.
    """
    by_number = int(wanted) if wanted.isascii() and wanted.isdigit() and len(wanted) < 18 else 0
    rows = db.query(
        "SELECT * FROM markers WHERE port = ? AND (id = ? OR kind = ? OR instr(lower(text), ?))"
        " ORDER BY id = ? DESC, id DESC LIMIT 1",
        [port, by_number, wanted.lower(), wanted.lower(), by_number],
    )
    return next((_marker(row) for row in rows), None)


def _boot(row: dict[str, Any]) -> BootRow:
    return BootRow(
        port=row["port"],
        number=row["number"],
        seq=row["seq"],
        utc_ns=utc_ns(row["at"]),
        ecosystem=row["ecosystem"],
        cause=row["cause"],
        is_expected=bool(row["is_expected"]),
        marker=row["marker"],
        ready_utc_ns=utc_ns(row["ready_at"]) if row["ready_at"] else None,
        ready_seq=row["ready_seq"],
    )


def _marker(row: dict[str, Any]) -> Marker:
    return Marker(
        id=row["id"],
        port=row["port"],
        seq=row["seq"],
        kind=row["kind"],
        text=row["text"],
        who=row["who"],
        mono_ns=row["mono_ns"],
        utc_ns=utc_ns(row["at"]),
    )
