"""Who wrote what to which port, and who resolved or muted what."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass

from sqlite_utils import Database

from serialwatch.wire import iso, utc_ns


@dataclass(frozen=True, slots=True)
class AuditRow:
    """One deed."""

    utc_ns: int
    uid: int
    user: str
    pid: int
    action: str  # of `serialwatch.api.bench.AuditAction`
    port: str  # "" where it concerns none
    bytes: int  # that went to the device
    detail: Mapping[str, str]
    result: str  # ok, or what went wrong


def save_audit(db: Database, row: AuditRow) -> None:
    """Store a deed; to be run durably, before it is confirmed to who did it."""
    db.execute(
        "INSERT INTO audit VALUES (NULL, ?, ?, ?, ?, ?, ?, ?, ?, ?)",
        [
            iso(row.utc_ns),
            row.uid,
            row.user,
            row.pid,
            row.action,
            row.port,
            row.bytes,
            json.dumps(dict(row.detail)),
            row.result,
        ],
    )


def load_audit(db: Database, *, port: str = "", limit: int = 100) -> list[AuditRow]:
    """Return what was done, newest first; "" for all ports."""
    rows = db.query(
        "SELECT * FROM audit WHERE :port = '' OR port = :port ORDER BY id DESC LIMIT :limit",
        {"port": port, "limit": limit},
    )
    return [
        AuditRow(
            utc_ns=utc_ns(row["at"]),
            uid=row["uid"],
            user=row["user"],
            pid=row["pid"],
            action=row["action"],
            port=row["port"],
            bytes=row["bytes"],
            detail=json.loads(row["detail_json"]),
            result=row["result"],
        )
        for row in rows
    ]
