"""What asking models has cost, a row a day and model."""

from __future__ import annotations

from dataclasses import dataclass

from sqlite_utils import Database

from serialwatch.wire import iso

HOUR_NS = 3600 * 1_000_000_000


@dataclass(frozen=True, slots=True)
class SpendingRow:
    """One day of one model."""

    day: str  # UTC, e.g. 2026-06-22
    model: str
    calls: int
    prompt_tokens: int
    completion_tokens: int
    cost: float


def add_spending(db: Database, row: SpendingRow) -> None:
    """Add to what the day has cost so far."""
    db.execute(
        """
        INSERT INTO spending (day, model, calls, prompt_tokens, completion_tokens, cost)
        VALUES (?, ?, ?, ?, ?, ?)
        ON CONFLICT (day, model) DO UPDATE SET
            calls = calls + excluded.calls,
            prompt_tokens = prompt_tokens + excluded.prompt_tokens,
            completion_tokens = completion_tokens + excluded.completion_tokens,
            cost = cost + excluded.cost
        """,
        [row.day, row.model, row.calls, row.prompt_tokens, row.completion_tokens, row.cost],
    )


def load_spending(db: Database, day: str) -> list[SpendingRow]:
    """Return what a day has cost so far, by model."""
    rows = db.query("SELECT * FROM spending WHERE day = ? ORDER BY model", [day])
    return [SpendingRow(**row) for row in rows]


def asked_lately(db: Database, now_utc_ns: int) -> dict[str, str]:
    """Return the sessions that a model was asked about in the last hour, with the last time."""
    rows = db.query(
        """
        SELECT session_id, max(started_at) AS at FROM runs
        WHERE kind = 'model' AND model_calls > 0 AND started_at >= ? GROUP BY session_id
        """,
        [iso(now_utc_ns - HOUR_NS)],
    )
    return {row["session_id"]: row["at"] for row in rows}


def session_tokens(db: Database, since_utc_ns: int) -> dict[str, int]:
    """Return how many tokens each session has taken in the runs since then."""
    rows = db.query(
        """
        SELECT session_id, sum(tokens) AS tokens FROM runs
        WHERE started_at >= ? AND tokens > 0 GROUP BY session_id
        """,
        [iso(since_utc_ns)],
    )
    return {row["session_id"]: row["tokens"] for row in rows}
