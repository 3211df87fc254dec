"""Answers of models, by everything that was asked; kept for a day."""

from __future__ import annotations

import json

from sqlite_utils import Database

from serialwatch.wire import Json, iso

KEEP_NS = 24 * 3600 * 1_000_000_000


def save_answer(db: Database, key: str, body: Json, now_utc_ns: int) -> None:
    """Store an answer, in place of an older one."""
    db.execute(
        """
        INSERT INTO cached_answers (key, body_json, created_at) VALUES (?, ?, ?)
        ON CONFLICT (key) DO UPDATE SET
            body_json = excluded.body_json, created_at = excluded.created_at
        """,
        [key, json.dumps(body), iso(now_utc_ns)],
    )


def load_answer(db: Database, key: str, now_utc_ns: int) -> Json | None:
    """Return an answer, None if there is none or it is too old."""
    rows = db.query(
        "SELECT body_json FROM cached_answers WHERE key = ? AND created_at >= ?",
        [key, iso(now_utc_ns - KEEP_NS)],
    )
    for row in rows:
        body: Json = json.loads(row["body_json"])
        return body
    return None


def prune_answers(db: Database, now_utc_ns: int) -> int:
    """Delete what is too old; return how many answers."""
    before = iso(now_utc_ns - KEEP_NS)
    with db.atomic():
        return db.execute("DELETE FROM cached_answers WHERE created_at < ?", [before]).rowcount
