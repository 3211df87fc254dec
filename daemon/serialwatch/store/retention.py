"""What is deleted by age, and how large the database is."""

from __future__ import annotations

from dataclasses import dataclass

from sqlite_utils import Database

from serialwatch.wire import iso

DAY_NS = 24 * 3600 * 1_000_000_000
MAX_GIVEN_BACK = 25_000  # pages at once: 100 MB, in a fraction of a second


@dataclass(frozen=True, slots=True)
class TableSize:
    """How much one table takes, its indexes included."""

    name: str
    rows: int
    bytes: int


def prune_rows(db: Database, keep_days: int, now_utc_ns: int) -> int:
    """Delete finished work of the agent and audit entries that are older; return how many rows.

    Incidents, hits, reports and memories stay: they are what "seen before" rests on.
    """
    before = iso(now_utc_ns - keep_days * DAY_NS)
    deleted = 0
    with db.atomic():
        for table in ("rounds", "skill_calls", "results", "inquiries", "late_results"):
            deleted += _delete(
                db,
                f"DELETE FROM {table} WHERE run_id IN"  # noqa: S608 - one of these names
                " (SELECT id FROM runs WHERE started_at < ?)",
                before,
            )
        deleted += _delete(db, "DELETE FROM runs WHERE started_at < ?", before)
        deleted += _delete(
            db,
            """
            DELETE FROM sessions WHERE started_at < ?
                AND session_id NOT IN (SELECT session_id FROM runs)
            """,
            before,
        )
        deleted += _delete(
            db,
            """
            DELETE FROM messages WHERE hash NOT IN
                (SELECT value FROM rounds, json_each(rounds.prompt_json))
            """,
        )
        deleted += _delete(
            db, "DELETE FROM queue WHERE state IN ('done', 'failed') AND ended_at < ?", before
        )
        deleted += _delete(db, "DELETE FROM audit WHERE at < ?", before)
        deleted += _delete(db, "DELETE FROM approvals WHERE ended_at < ?", before)
        _give_back(db)
    return deleted


def table_sizes(db: Database) -> list[TableSize]:
    """Return the size of each table, the largest first."""
    pages = dict(
        db.execute(
            """
            SELECT s.tbl_name, sum(p.pgsize) FROM dbstat p JOIN sqlite_schema s ON s.name = p.name
            WHERE p.aggregate = TRUE GROUP BY s.tbl_name
            """
        ).fetchall()
    )
    sizes = [
        TableSize(name, db.table(name).count, int(pages.get(name, 0)))
        for name in db.table_names()
        if not name.startswith(("_", "memories_fts"))
    ]
    return sorted(sizes, key=lambda size: (-size.bytes, size.name))


def database_bytes(db: Database) -> int:
    """Return the size of the file, without its journal."""
    (pages,) = db.execute("PRAGMA page_count").fetchone()
    (size,) = db.execute("PRAGMA page_size").fetchone()
    return int(pages) * int(size)


def _give_back(db: Database) -> None:
    """Give free pages back to the disk; what is too much for one time waits for the next."""
    (free,) = db.execute("PRAGMA freelist_count").fetchone()
    for _ in range(min(free, MAX_GIVEN_BACK)):
        db.execute("PRAGMA incremental_vacuum")  # a page a call: sqlite3 makes one step only


def _delete(db: Database, sql: str, *values: str) -> int:
    return db.execute(sql, values).rowcount
