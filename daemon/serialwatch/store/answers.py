"""Answers to questions that people asked."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from sqlite_utils import Database

from serialwatch.wire import Json, iso, utc_ns

MAX_ANSWERS = 10_000  # kept; the oldest go


@dataclass(frozen=True, slots=True)
class AnswerRow:
    """A question, who asked it, and the report that answers it."""

    session_id: str
    run_id: str
    user_id: str
    port: str  # "" if it is about none, or several
    question: str
    report: Json  # Report v1, its incident 0
    asked_utc_ns: int
    answered_utc_ns: int
    id: int = 0


def save_answer(db: Database, row: AnswerRow) -> int:
    """Store an answer and return its id; a question that is answered again keeps the newest."""
    with db.atomic():
        db.execute("DELETE FROM answers WHERE session_id = ?", [row.session_id])
        (number,) = db.execute(
            """
            INSERT INTO answers
                (session_id, run_id, user_id, port, question, body_json, asked_at, answered_at)
            VALUES (?, ?, ?, ?, ?, ?, ?, ?) RETURNING id
            """,
            [
                row.session_id,
                row.run_id,
                row.user_id,
                row.port,
                row.question,
                json.dumps(row.report),
                iso(row.asked_utc_ns),
                iso(row.answered_utc_ns),
            ],
        ).fetchone()
        db.execute("DELETE FROM answers WHERE id <= ?", [number - MAX_ANSWERS])
    return int(number)


def load_answers(
    db: Database, *, session_id: str = "", user_id: str = "", limit: int = 100
) -> list[AnswerRow]:
    """Return answers, the newest first; of one session, of one user, or all."""
    rows = db.query(
        """
        SELECT * FROM answers
        WHERE (:session = '' OR session_id = :session) AND (:user = '' OR user_id = :user)
        ORDER BY id DESC LIMIT :limit
        """,
        {"session": session_id, "user": user_id, "limit": limit},
    )
    return [_answer(row) for row in rows]


def _answer(row: Mapping[str, Any]) -> AnswerRow:
    return AnswerRow(
        id=row["id"],
        session_id=row["session_id"],
        run_id=row["run_id"],
        user_id=row["user_id"],
        port=row["port"],
        question=row["question"],
        report=json.loads(row["body_json"]),
        asked_utc_ns=utc_ns(row["asked_at"]),
        answered_utc_ns=utc_ns(row["answered_at"]),
    )
