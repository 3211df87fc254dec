"""Incidents and their hits, mutes, and what a new run of the daemon takes up."""

from __future__ import annotations

import json
import time
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Literal

from sqlite_utils import Database

from serialwatch.records import SEVERITIES, HitCount, Incident, Severity, State
from serialwatch.store.ports import store_positions
from serialwatch.store.runs import enqueue, next_queue_id
from serialwatch.wire import iso, utc_ns

Phase = Literal["opened", "settled", "outcome"]

HISTORY = 20  # incidents of one fingerprint that are remembered
FOREVER = "until unmuted"

_COLUMNS = (
    *("id", "port", "state", "trigger", "severity", "tier", "title", "key", "fingerprint"),
    *("ecosystem", "knowledge", "fields_json", "boot", "first_seq", "block_first", "last_seq"),
    *("opened_at", "last_at", "opened_mono_ns", "last_mono_ns", "count", "is_settled", "outcome"),
    *("outcome_cause", "outcome_seq", "linked_json", "seen_before_json", "firmware"),
    *("muted_until", "resolved_by"),
)
_SAVE = f"""
    INSERT INTO incidents ({", ".join(f'"{name}"' for name in _COLUMNS)})
    VALUES ({", ".join(f":{name}" for name in _COLUMNS)})
    ON CONFLICT (id) DO UPDATE SET
    {", ".join(f'"{name}" = excluded."{name}"' for name in _COLUMNS[1:])}
    WHERE port = excluded.port AND opened_at = excluded.opened_at
"""  # noqa: S608 - made of our own column names
_SAVE_HITS = """
    INSERT INTO hits VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)
    ON CONFLICT (incident_id, "trigger") DO UPDATE SET
        severity = excluded.severity, last_seq = excluded.last_seq, last_at = excluded.last_at,
        count = excluded.count, samples_json = excluded.samples_json
"""


@dataclass(frozen=True, slots=True)
class Left:
    """What earlier runs left for `Incidents.restore`."""

    next_id: int
    next_queue_id: int
    unresolved: tuple[Incident, ...]  # oldest first
    mutes: Mapping[str, int]  # by fingerprint: until when, UTC ns; 0: until unmuted
    history: Mapping[str, tuple[int, ...]]  # by fingerprint: ids, newest first


def save_change(
    db: Database,
    incident: Incident,
    *,
    queue_phase: Phase | None = None,
    queue_id: int = 0,
    matched: Mapping[str, int] | None = None,
) -> int | None:
    """Store an incident as it stands, with its hits, in one transaction.

    Args:
        db: the database.
        incident: a new one, or one that changed.
        queue_phase: what the agent is to look at, None if it is not to be woken.
        queue_id: for its row in the queue; 0: any.
        matched: by port, up to which line the search is done.

    Returns:
        The id of the row in the queue, None if there is none.

    Raises:
        ValueError: the database has another incident of this number, which stays as it is.

    """
    with db.atomic():
        if not db.execute(_SAVE, _values(incident)).rowcount:
            raise ValueError(f"there is another incident {incident.id}, of another port or time")
        for hit in incident.hits:
            db.execute(_SAVE_HITS, _hit_values(incident.id, hit))
        store_positions(db, matched or {})
        if queue_phase is None:
            return None
        return enqueue(
            db,
            "incident",
            id=queue_id,
            phase=queue_phase,
            incident_id=incident.id,
            port=incident.port,
        )


def load_left(db: Database) -> Left:
    """Return what the last run left."""
    return Left(
        next_id=next_incident_id(db),
        next_queue_id=next_queue_id(db),
        unresolved=load_unresolved(db),
        mutes=load_mutes(db),
        history=load_history(db),
    )


def next_incident_id(db: Database) -> int:
    """Return an id that no incident has, above all others."""
    (highest,) = db.execute("SELECT max(id) FROM incidents").fetchone()
    return int(highest or 0) + 1


def load_incident(db: Database, id: int) -> Incident | None:
    """Return one incident, None if there is none."""
    found = _incidents(db, db.query("SELECT * FROM incidents WHERE id = ?", [id]))
    return found[0] if found else None


def load_unresolved(db: Database) -> tuple[Incident, ...]:
    """Return all incidents that are not resolved, oldest first."""
    return _incidents(db, db.query("SELECT * FROM incidents WHERE state != 'resolved' ORDER BY id"))


def load_incidents(
    db: Database,
    *,
    port: str = "",
    states: Collection[State] = (),
    severity: Severity = "note",
    trigger: str = "",
    fingerprint: str = "",
    since_utc_ns: int = 0,
    limit: int = 100,
) -> tuple[Incident, ...]:
    """Return incidents, newest first.

    Args:
        db: the database.
        port: "" for all.
        states: none for all.
        severity: at least so severe.
        trigger: the root cause, "" for all.
        fingerprint: "" for all.
        since_utc_ns: opened at this time or later.
        limit: at most so many.

    """
    severities = SEVERITIES[SEVERITIES.index(severity) :]
    rows = db.query(
        """
        SELECT * FROM incidents
        WHERE (:port = '' OR port = :port)
            AND (:states = '[]' OR state IN (SELECT value FROM json_each(:states)))
            AND severity IN (SELECT value FROM json_each(:severities))
            AND (:trigger = '' OR "trigger" = :trigger)
            AND (:fingerprint = '' OR fingerprint = :fingerprint)
            AND opened_at >= :since
        ORDER BY id DESC LIMIT :limit
        """,
        {
            "port": port,
            "states": json.dumps(sorted(states)),
            "severities": json.dumps(severities),
            "trigger": trigger,
            "fingerprint": fingerprint,
            "since": iso(since_utc_ns),
            "limit": limit,
        },
    )
    return _incidents(db, rows)


def load_history(db: Database) -> dict[str, tuple[int, ...]]:
    """Return the newest incidents of each fingerprint: ids, newest first."""
    rows = db.execute(
        """
        SELECT fingerprint, id FROM (
            SELECT fingerprint, id,
                row_number() OVER (PARTITION BY fingerprint ORDER BY id DESC) AS place
            FROM incidents
        ) WHERE place <= ? ORDER BY id DESC
        """,
        [HISTORY],
    )
    history: dict[str, list[int]] = {}
    for fingerprint, id_ in rows:
        history.setdefault(fingerprint, []).append(id_)
    return {fingerprint: tuple(ids) for fingerprint, ids in history.items()}


def save_mute(db: Database, fingerprint: str, until_utc_ns: int, who: str) -> None:
    """Store that a fingerprint is muted; 0: until unmuted."""
    db.execute(
        "INSERT OR REPLACE INTO mutes VALUES (?, ?, ?, ?)",
        [fingerprint, iso(until_utc_ns) if until_utc_ns else None, who, iso(time.time_ns())],
    )


def delete_mute(db: Database, fingerprint: str) -> None:
    """Store that a fingerprint is no longer muted."""
    db.execute("DELETE FROM mutes WHERE fingerprint = ?", [fingerprint])


def load_mutes(db: Database) -> dict[str, int]:
    """Return the muted fingerprints and until when (UTC ns); 0: until unmuted."""
    rows = db.execute("SELECT fingerprint, until FROM mutes")
    return {fingerprint: utc_ns(until) if until else 0 for fingerprint, until in rows}


def _values(incident: Incident) -> dict[str, object]:
    muted = incident.muted_until_utc_ns
    return {
        "id": incident.id,
        "port": incident.port,
        "state": incident.state,
        "trigger": incident.trigger,
        "severity": incident.severity,
        "tier": incident.tier,
        "title": incident.title,
        "key": incident.key,
        "fingerprint": incident.fingerprint,
        "ecosystem": incident.ecosystem,
        "knowledge": incident.knowledge,
        "fields_json": json.dumps(dict(incident.fields)),
        "boot": incident.boot,
        "first_seq": incident.first_seq,
        "block_first": incident.block_first,
        "last_seq": incident.last_seq,
        "opened_at": iso(incident.opened_utc_ns),
        "last_at": iso(incident.last_utc_ns),
        "opened_mono_ns": incident.opened_mono_ns,
        "last_mono_ns": incident.last_mono_ns,
        "count": incident.count,
        "is_settled": incident.is_settled,
        "outcome": incident.outcome,
        "outcome_cause": incident.outcome_cause,
        "outcome_seq": incident.outcome_seq,
        "linked_json": json.dumps(incident.linked),
        "seen_before_json": json.dumps(incident.seen_before),
        "firmware": incident.firmware,
        "muted_until": FOREVER if muted == 0 else muted and iso(muted),
        "resolved_by": incident.resolved_by,
    }


def _hit_values(incident_id: int, hit: HitCount) -> list[object]:
    return [
        incident_id,
        hit.trigger,
        hit.severity,
        hit.tier,
        hit.title,
        hit.first_seq,
        hit.last_seq,
        iso(hit.first_utc_ns),
        iso(hit.last_utc_ns),
        hit.count,
        json.dumps(hit.samples),
        json.dumps(dict(hit.fields)),
        hit.knowledge,
    ]


def _incidents(db: Database, rows: Iterable[dict[str, Any]]) -> tuple[Incident, ...]:
    """Make records of rows, each with its hits."""
    found = list(rows)
    hits: dict[int, list[HitCount]] = {row["id"]: [] for row in found}
    for row in db.query(
        """
        SELECT * FROM hits WHERE incident_id IN (SELECT value FROM json_each(?))
        ORDER BY first_seq = 0, first_seq, first_at
        """,
        [json.dumps(list(hits))],
    ):
        hits[row["incident_id"]].append(_hit(row))
    return tuple(_incident(row, hits[row["id"]]) for row in found)


def _incident(row: dict[str, Any], hits: list[HitCount]) -> Incident:
    until = row["muted_until"]
    return Incident(
        id=row["id"],
        port=row["port"],
        state=row["state"],
        trigger=row["trigger"],
        severity=row["severity"],
        tier=row["tier"],
        title=row["title"],
        key=row["key"],
        fingerprint=row["fingerprint"],
        ecosystem=row["ecosystem"],
        knowledge=row["knowledge"],
        fields=json.loads(row["fields_json"]),
        boot=row["boot"],
        first_seq=row["first_seq"],
        block_first=row["block_first"],
        last_seq=row["last_seq"],
        opened_mono_ns=row["opened_mono_ns"],
        opened_utc_ns=utc_ns(row["opened_at"]),
        last_mono_ns=row["last_mono_ns"],
        last_utc_ns=utc_ns(row["last_at"]),
        count=row["count"],
        hits=tuple(sorted(hits, key=lambda hit: hit.trigger != row["trigger"])),
        is_settled=bool(row["is_settled"]),
        outcome=row["outcome"],
        outcome_cause=row["outcome_cause"],
        outcome_seq=row["outcome_seq"],
        linked=tuple(json.loads(row["linked_json"])),
        seen_before=tuple(json.loads(row["seen_before_json"])),
        firmware=row["firmware"],
        muted_until_utc_ns=0 if until == FOREVER else until and utc_ns(until),
        resolved_by=row["resolved_by"],
    )


def _hit(row: dict[str, Any]) -> HitCount:
    return HitCount(
        trigger=row["trigger"],
        severity=row["severity"],
        tier=row["tier"],
        title=row["title"],
        first_seq=row["first_seq"],
        last_seq=row["last_seq"],
        first_utc_ns=utc_ns(row["first_at"]),
        last_utc_ns=utc_ns(row["last_at"]),
        count=row["count"],
        samples=tuple(json.loads(row["samples_json"])),
        fields=json.loads(row["fields_json"]),
        knowledge=row["knowledge"],
    )
