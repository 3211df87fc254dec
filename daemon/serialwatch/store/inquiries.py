"""Questions of the agent's runs to people, and what was answered."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from sqlite_utils import Database

from serialwatch.wire import iso, utc_ns

MAX_QUESTION = 400  # characters
MAX_CONTEXT = 1_500  # of what is known, and of what is missing


@dataclass(frozen=True, slots=True)
class InquiryRow:
    """One question."""

    id: int
    run_id: str
    asked_utc_ns: int
    question: str
    known: str
    missing: str
    answer: str  # "" while there is none
    answered_by: str
    answered_utc_ns: int | None


def add_inquiry(
    db: Database, run_id: str, question: str, known: str, missing: str, now_utc_ns: int
) -> int:
    """Store a question and return its id."""
    (number,) = db.execute(
        """
        INSERT INTO inquiries (run_id, asked_at, question, known, missing)
        VALUES (?, ?, ?, ?, ?) RETURNING id
        """,
        [
            run_id,
            iso(now_utc_ns),
            question[:MAX_QUESTION],
            known[:MAX_CONTEXT],
            missing[:MAX_CONTEXT],
        ],
    ).fetchone()
    return int(number)


def answer_inquiry(db: Database, id: int, text: str, user: str, now_utc_ns: int) -> bool:
    """Store an answer; return False if the question was answered before."""
    changed = db.execute(
        """
        UPDATE inquiries SET answer = ?, answered_by = ?, answered_at = ?
        WHERE id = ? AND answered_at IS NULL
        """,
        [text, user, iso(now_utc_ns), id],
    )
    return bool(changed.rowcount)


def load_inquiries(db: Database, run_id: str) -> list[InquiryRow]:
    """Return the questions of a run, oldest first."""
    rows = db.query("SELECT * FROM inquiries WHERE run_id = ? ORDER BY id", [run_id])
    return [_inquiry(row) for row in rows]


def load_inquiry(db: Database, id: int) -> InquiryRow | None:
    """Return one question, None if there is none."""
    rows = db.query("SELECT * FROM inquiries WHERE id = ?", [id])
    return next((_inquiry(row) for row in rows), None)


def _inquiry(row: Mapping[str, Any]) -> InquiryRow:
    answered_at = row["answered_at"]
    return InquiryRow(
        id=row["id"],
        run_id=row["run_id"],
        asked_utc_ns=utc_ns(row["asked_at"]),
        question=row["question"],
        known=row["known"],
        missing=row["missing"],
        answer=row["answer"],
        answered_by=row["answered_by"],
        answered_utc_ns=utc_ns(answered_at) if answered_at else None,
    )
