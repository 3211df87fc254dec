"""Snapshots: a named state of a port that a skill kept, to compare with later."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from sqlite_utils import Database

from serialwatch.wire import iso, utc_ns

MAX_BODY = 16 * 1024  # bytes of JSON
MAX_NAME = 64  # characters
KEPT = 20  # of one port and name; older ones go
MAX_NAMES = 50  # of one port; the one that was not written for longest goes


class SnapshotRefusedError(Exception):
    """What was to be kept is none; the message says why."""


@dataclass(frozen=True, slots=True)
class Snapshot:
    """One state of a port."""

    id: int
    port: str  # "": of the bench
    name: str
    run_id: str
    body: Mapping[str, Any]
    created_utc_ns: int


@dataclass(frozen=True, slots=True)
class SnapshotName:
    """What there is under one name."""

    name: str
    count: int
    newest_id: int
    newest_utc_ns: int


def save_snapshot(
    db: Database, port: str, name: str, run_id: str, body: Mapping[str, Any], now_utc_ns: int
) -> int:
    """Store a snapshot and return its id; the oldest ones above the limits go.

    Raises:
        SnapshotRefusedError: no name, or too large.

    """
    if not 1 <= len(name) <= MAX_NAME or not name.isprintable():
        raise SnapshotRefusedError(f"the name {name[:80]!r}: 1 to {MAX_NAME} printable characters")
    text = json.dumps(body, ensure_ascii=False)
    if (size := len(text.encode())) > MAX_BODY:
        raise SnapshotRefusedError(f"{size} bytes of JSON: at most {MAX_BODY}")
    with db.atomic():
        (written,) = db.execute(
            """
            INSERT INTO snapshots (port, name, run_id, body_json, created_at)
            VALUES (?, ?, ?, ?, ?) RETURNING id
            """,
            [port, name, run_id, text, iso(now_utc_ns)],
        ).fetchone()
        db.execute(
            """
            DELETE FROM snapshots WHERE port = :port AND (
                name = :name AND id NOT IN (
                    SELECT id FROM snapshots WHERE port = :port AND name = :name
                    ORDER BY id DESC LIMIT :kept
                ) OR name NOT IN (
                    SELECT name FROM snapshots WHERE port = :port
                    GROUP BY name ORDER BY max(id) DESC LIMIT :names
                )
            )
            """,
            {"port": port, "name": name, "kept": KEPT, "names": MAX_NAMES},
        )
    return int(written)


def load_snapshots(db: Database, port: str, name: str, *, limit: int = 2) -> list[Snapshot]:
    """Return the snapshots of a port under a name, newest first."""
    rows = db.query(
        "SELECT * FROM snapshots WHERE port = ? AND name = ? ORDER BY id DESC LIMIT ?",
        [port, name, limit],
    )
    return [_snapshot(row) for row in rows]


def load_snapshot(db: Database, id: int) -> Snapshot | None:
    """Return one snapshot, None if there is none (any more)."""
    rows = db.query("SELECT * FROM snapshots WHERE id = ?", [id])
    return next((_snapshot(row) for row in rows), None)


def snapshot_names(db: Database, port: str) -> list[SnapshotName]:
    """Return the names that a port has snapshots under, the newest first."""
    rows = db.execute(
        """
        SELECT name, count(*), max(id), max(created_at) FROM snapshots WHERE port = ?
        GROUP BY name ORDER BY max(id) DESC
        """,
        [port],
    )
    return [SnapshotName(name, count, newest, utc_ns(at)) for name, count, newest, at in rows]


def _snapshot(row: Mapping[str, Any]) -> Snapshot:
    return Snapshot(
        id=row["id"],
        port=row["port"],
        name=row["name"],
        run_id=row["run_id"],
        body=json.loads(row["body_json"]),
        created_utc_ns=utc_ns(row["created_at"]),
    )
