"""Results of long jobs, and what the calls of a run have done."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from sqlite_utils import Database

from serialwatch.wire import Json, iso, utc_ns

MAX_BODY = 80 * 1024  # bytes of JSON: an output of 64 KiB and what is said about it


@dataclass(frozen=True, slots=True)
class LateResult:
    """What a skill answered after its caller had gone on."""

    job_id: str
    run_id: str
    skill: str
    body: Mapping[str, Any]  # status, output, metadata
    ended_utc_ns: int


@dataclass(frozen=True, slots=True)
class DoneCall:
    """A call of a skill that succeeded."""

    args: Json
    result_id: str
    body: Json


def save_late_result(db: Database, result: LateResult) -> None:
    """Store a result; the same job again replaces it.

    Raises:
        ValueError: it is larger than any result may be.

    """
    body = json.dumps(dict(result.body), ensure_ascii=False)
    if len(body.encode()) > MAX_BODY:
        raise ValueError(f"late result {result.job_id[:40]!r}: more than {MAX_BODY} bytes")
    db.execute(
        "INSERT OR REPLACE INTO late_results VALUES (?, ?, ?, ?, ?)",
        [result.job_id, result.run_id, result.skill, body, iso(result.ended_utc_ns)],
    )


def load_late_results(db: Database, run_id: str) -> list[LateResult]:
    """Return the late results of a run, oldest first."""
    rows = db.query("SELECT * FROM late_results WHERE run_id = ? ORDER BY ended_at, job_id",
                    [run_id])  # fmt: skip
    return [
        LateResult(
            row["job_id"],
            row["run_id"],
            row["skill"],
            json.loads(row["body_json"]),
            utc_ns(row["ended_at"]),
        )
        for row in rows
    ]


def late_result_from_json(body: Mapping[str, Any], now_utc_ns: int) -> LateResult:
    """Return what the agent sent.

    Raises:
        KeyError, TypeError: something is missing.

    """
    return LateResult(
        job_id=str(body["job_id"]),
        run_id=str(body["run_id"]),
        skill=str(body["skill"]),
        body=dict(body["body"]),
        ended_utc_ns=now_utc_ns,
    )


def load_done_calls(db: Database, run_id: str, skill: str) -> list[DoneCall]:
    """Return the successful calls of a skill in a run, oldest first."""
    rows = db.query(
        """
        SELECT c.args_json, c.result_id, r.body_json FROM skill_calls c
        LEFT JOIN results r ON r.run_id = c.run_id AND r.id = c.result_id
        WHERE c.run_id = ? AND c.skill = ? AND c.status = 'success' ORDER BY c.n
        """,
        [run_id, skill],
    )
    return [
        DoneCall(
            json.loads(row["args_json"]), row["result_id"], json.loads(row["body_json"] or "{}")
        )
        for row in rows
    ]
