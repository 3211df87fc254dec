"""What the endpoints of models can do, as they showed it."""

from __future__ import annotations

import json
from dataclasses import dataclass

from sqlite_utils import Database

from serialwatch.wire import Json, iso, utc_ns


@dataclass(frozen=True, slots=True)
class EndpointRow:
    """What one model of one endpoint can do."""

    base_url: str
    model: str
    can: Json  # e.g. {"tools": true, "response_format": "json_object", ...}
    checked_utc_ns: int


def save_endpoint(db: Database, row: EndpointRow) -> None:
    """Store what was learned, in place of what was known before."""
    db.execute(
        """
        INSERT INTO endpoints (base_url, model, can_json, checked_at) VALUES (?, ?, ?, ?)
        ON CONFLICT (base_url, model) DO UPDATE SET
            can_json = excluded.can_json, checked_at = excluded.checked_at
        """,
        [row.base_url, row.model, json.dumps(row.can), iso(row.checked_utc_ns)],
    )


def load_endpoints(db: Database) -> list[EndpointRow]:
    """Return all of them."""
    return [
        EndpointRow(
            row["base_url"], row["model"], json.loads(row["can_json"]), utc_ns(row["checked_at"])
        )
        for row in db.query("SELECT * FROM endpoints ORDER BY base_url, model")
    ]
