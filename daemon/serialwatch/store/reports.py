"""Reports by revision; their conclusions and evidence are rows, to be asked for by SQL."""

from __future__ import annotations

import json
import time
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from sqlite_utils import Database

from serialwatch.records import Report, Severity, Verdict
from serialwatch.wire import iso, report_from_json, report_to_json, utc_ns


@dataclass(frozen=True, slots=True)
class RevisionRow:
    """One report of an incident, without its body."""

    incident_id: int
    revision: int
    run_id: str
    made_by: str
    title: str
    fault_class: str
    severity: Severity
    verdict: Verdict
    confidence: float
    created_utc_ns: int


def commit_report(db: Database, report: Report, run_id: str) -> None:
    """Store a report under the revision it has, whole or not at all.

    Raises:
        sqlite3.IntegrityError: the incident is not stored, or has this revision already.

    """
    of = [report.incident, report.revision]
    with db.atomic():
        db.execute(
            "INSERT INTO reports VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)",
            [
                *of,
                run_id,
                report.made_by,
                report.title,
                report.fault_class,
                report.severity,
                report.verdict,
                report.confidence,
                json.dumps(report_to_json(report)),
                iso(time.time_ns()),
            ],
        )
        for conclusion in report.conclusions:
            db.execute(
                "INSERT INTO conclusions VALUES (?, ?, ?, ?, ?, ?, ?)",
                [
                    *of,
                    conclusion.id,
                    conclusion.kind,
                    conclusion.claim,
                    json.dumps(conclusion.knowledge),
                    json.dumps(conclusion.results),
                ],
            )
            for evidence in conclusion.evidence:
                db.execute(
                    "INSERT INTO evidence VALUES (?, ?, ?, ?, ?, ?)",
                    [*of, conclusion.id, evidence.port, evidence.seq, evidence.quote],
                )


def load_report(db: Database, incident_id: int, revision: int | None = None) -> Report | None:
    """Return a report of an incident, the newest for None; None if there is none."""
    row = db.execute(
        """
        SELECT body_json FROM reports
        WHERE incident_id = :incident AND (:revision IS NULL OR revision = :revision)
        ORDER BY revision DESC LIMIT 1
        """,
        {"incident": incident_id, "revision": revision},
    ).fetchone()
    return report_from_json(json.loads(row[0])) if row else None


def load_revisions(db: Database, incident_id: int) -> list[RevisionRow]:
    """Return the reports of an incident, oldest first."""
    rows = db.query("SELECT * FROM reports WHERE incident_id = ? ORDER BY revision", [incident_id])
    return [_revision(row) for row in rows]


def load_revisions_of_run(db: Database, run_id: str) -> list[RevisionRow]:
    """Return the reports that a run has published, oldest first."""
    rows = db.query(
        "SELECT * FROM reports WHERE run_id = ? ORDER BY incident_id, revision", [run_id]
    )
    return [_revision(row) for row in rows]


def next_revision(db: Database, incident_id: int) -> int:
    """Return the revision that the next report of an incident has."""
    (highest,) = db.execute(
        "SELECT max(revision) FROM reports WHERE incident_id = ?", [incident_id]
    ).fetchone()
    return int(highest or 0) + 1


def count_revisions(db: Database, incident_ids: Iterable[int]) -> dict[int, int]:
    """Return how many reports each of the incidents has; those without one are left out."""
    rows = db.execute(
        """
        SELECT incident_id, count(*) FROM reports
        WHERE incident_id IN (SELECT value FROM json_each(?)) GROUP BY incident_id
        """,
        [json.dumps(list(incident_ids))],
    )
    return {int(incident): int(count) for incident, count in rows}


def _revision(row: Mapping[str, Any]) -> RevisionRow:
    return RevisionRow(
        incident_id=row["incident_id"],
        revision=row["revision"],
        run_id=row["run_id"],
        made_by=row["made_by"],
        title=row["title"],
        fault_class=row["class"],
        severity=row["severity"],
        verdict=row["verdict"],
        confidence=row["confidence"],
        created_utc_ns=utc_ns(row["created_at"]),
    )
