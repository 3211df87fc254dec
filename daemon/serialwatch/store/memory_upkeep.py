"""What is forgotten by itself: scratch, what has expired, what was corrected, what is too much."""

from __future__ import annotations

import json

from sqlite_utils import Database

from serialwatch.store.memories import DAY_NS, MemoryRow, memory_of
from serialwatch.store.memory_search import recency
from serialwatch.wire import iso

SCRATCH_NS = DAY_NS  # priority 0 and 1
SUPERSEDED_NS = 30 * DAY_NS
MAX_ROWS = 20_000


def clean_up(db: Database, now_utc_ns: int, max_rows: int = MAX_ROWS) -> int:
    """Delete what has served its time, and the least of what is too much; return how many.

    Scratch (priority 0 and 1) goes after a day, what was superseded after 30 days.
    """
    with db.atomic():
        old = db.execute(
            """
            DELETE FROM memories
            WHERE (priority <= 1 AND updated_at < :day_ago) OR expires_at <= :now
                OR (status = 'superseded' AND updated_at < :month_ago)
            """,
            {
                "day_ago": iso(now_utc_ns - SCRATCH_NS),
                "month_ago": iso(now_utc_ns - SUPERSEDED_NS),
                "now": iso(now_utc_ns),
            },
        ).rowcount
        return old + _delete_least(db, now_utc_ns, max_rows)


def _delete_least(db: Database, now_utc_ns: int, max_rows: int) -> int:
    (count,) = db.execute("SELECT count(*) FROM memories").fetchone()
    if count <= max_rows:
        return 0
    kept = [memory_of(row) for row in db.query("SELECT * FROM memories")]
    kept.sort(key=lambda memory: (_worth(memory, now_utc_ns), memory.id))
    least = [memory.id for memory in kept[: count - max_rows]]
    return db.execute(
        "DELETE FROM memories WHERE id IN (SELECT value FROM json_each(?))", [json.dumps(least)]
    ).rowcount


def _worth(memory: MemoryRow, now_utc_ns: int) -> tuple[bool, float]:
    """Return what a memory is worth when nothing is asked for; a person's is worth more."""
    score = 0.15 * recency(memory, now_utc_ns) + 0.15 * memory.priority / 5
    score *= 0.5 if memory.status != "active" else 1.0
    return memory.source == "human", score + 0.01 * min(memory.used, 10)
