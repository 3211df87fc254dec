"""Line templates of each port: what it prints in its good boots."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass

from sqlite_utils import Database

from serialwatch.wire import iso


@dataclass(frozen=True, slots=True)
class PortTemplates:
    """The templates of one port."""

    port: str
    good_boots: int  # that they were learned from
    texts: Sequence[str]  # the least recently seen first


def save_templates(db: Database, templates: PortTemplates, now_utc_ns: int) -> None:
    """Store them in place of the port's earlier ones."""
    db.execute(
        """
        INSERT INTO templates VALUES (?, ?, ?, ?)
        ON CONFLICT (port) DO UPDATE SET
            good_boots = excluded.good_boots,
            texts_json = excluded.texts_json,
            updated_at = excluded.updated_at
        """,
        [
            templates.port,
            templates.good_boots,
            json.dumps(list(templates.texts)),
            iso(now_utc_ns),
        ],
    )


def load_templates(db: Database, port: str) -> PortTemplates | None:
    """Return those of a port, None if none were stored."""
    for row in db.query("SELECT * FROM templates WHERE port = ?", [port]):
        return PortTemplates(port, row["good_boots"], json.loads(row["texts_json"]))
    return None
