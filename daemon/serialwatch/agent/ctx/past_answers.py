"""Answers about the bench's past as a skill gets them: incidents, memories, snapshots."""

from __future__ import annotations

from dataclasses import dataclass, replace

from serialwatch.agent.archive import Archive
from serialwatch.agent.ctx.log_query import parse_since
from serialwatch.agent.skills.results import RefusedError
from serialwatch.records import Incident, Report, State
from serialwatch.store.incidents import load_incident, load_incidents
from serialwatch.store.memory_gate import MemoryScope, MemoryType
from serialwatch.store.memory_search import MemoryHit, Place, search
from serialwatch.store.reports import load_report
from serialwatch.store.snapshots import Snapshot, load_snapshot, load_snapshots, snapshot_names
from serialwatch.wire import Json, incident_to_json, iso, utc_ns

MAX_LOOKED = 500  # incidents, when the end of their time is given
MAX_CLAIMS = 2  # causes of a report that go with its incident


@dataclass(frozen=True, slots=True)
class IncidentAsk:
    """Which incidents are meant; what is None does not narrow them."""

    limit: int
    id: int | None = None
    port: str | None = None
    state: State | None = None
    trigger: str | None = None
    fingerprint: str | None = None
    since: str | None = None
    until: str | None = None
    with_reports: bool = False


@dataclass(frozen=True, slots=True)
class MemoryAsk:
    """Which memories are meant."""

    query: str
    port: str
    type: MemoryType | None
    limit: int
    incident: int | None  # what was learned from the same fault fits in any case
    user: str = ""  # whose own memories are seen as well
    board: str = ""  # that is on the port: what is known of it holds wherever it is
    scopes: frozenset[MemoryScope] | None = None  # that are seen at all; None: every one


@dataclass(frozen=True, slots=True)
class SnapshotAsk:
    """Which snapshots are meant."""

    port: str
    name: str | None  # None: the names
    id: int | None
    limit: int


def answer_incidents(archive: Archive, ask: IncidentAsk, now_utc_ns: int) -> Json:
    """Return incidents, the newest first."""
    found = _incidents(archive, ask, now_utc_ns)
    rows = [incident_to_json(incident) for incident in found]
    if ask.with_reports and archive.database is not None:
        for row, incident in zip(rows, found, strict=True):
            row["report"] = _concluded(load_report(archive.database, incident.id))
    return {"incidents": rows, "no_data": not rows}


def answer_memories(archive: Archive, ask: MemoryAsk, now_utc_ns: int) -> Json:
    """Return the memories that fit best."""
    db = archive.database
    hits: list[MemoryHit] = []
    if db is not None:
        about = load_incident(db, ask.incident) if ask.incident is not None else None
        hits = search(
            db,
            ask.query,
            now_utc_ns,
            place=Place(ask.port, ask.board, ask.user),
            fingerprint=about.fingerprint if about else "",
            type=ask.type,
            limit=ask.limit if ask.scopes is None else MAX_LOOKED,
        )
    if (scopes := ask.scopes) is not None:
        hits = [hit for hit in hits if hit.memory.scope in scopes][: ask.limit]
    found = [_memory(hit, now_utc_ns) for hit in hits]
    return {"memories": found, "no_data": not found}


def answer_snapshots(archive: Archive, ask: SnapshotAsk, now_utc_ns: int) -> Json:
    """Return snapshots, the newest first; without name and id the names that there are."""
    db = archive.database
    if db is None:
        return {"port": ask.port, "snapshots": [], "names": [], "no_data": True}
    names: list[Json] = [
        {"name": n.name, "count": n.count, "newest": n.newest_id, "at": iso(n.newest_utc_ns)}
        for n in snapshot_names(db, ask.port)
    ]
    found: list[Snapshot] = []
    if ask.id is not None:
        one = load_snapshot(db, ask.id)
        if one is None:
            raise RefusedError("precondition", f"there is no snapshot {ask.id} (any more)")
        found = [one]
    elif ask.name is not None:
        found = load_snapshots(db, ask.port, ask.name, limit=ask.limit)
    shown = [_snapshot(one, now_utc_ns) for one in found]
    is_empty = not (shown or (names and ask.name is None))
    return {"port": ask.port, "snapshots": shown, "names": names, "no_data": is_empty}


def age(ns: int) -> str:
    """Return how long ago something was, for people."""
    seconds = max(ns // 1_000_000_000, 0)
    for unit, length in (("d", 86400), ("h", 3600), ("min", 60)):
        if seconds >= length:
            return f"{seconds // length} {unit} ago"
    return "just now"


def _incidents(archive: Archive, ask: IncidentAsk, now_utc_ns: int) -> tuple[Incident, ...]:
    since, until = _time(ask.since, now_utc_ns), _time(ask.until, now_utc_ns)
    if (db := archive.database) is None:
        return ()
    if ask.id is not None:
        incident = load_incident(db, ask.id)
        return (incident,) if incident else ()
    found = load_incidents(
        db,
        port=ask.port or "",
        states=(ask.state,) if ask.state else (),
        trigger=ask.trigger or "",
        fingerprint=ask.fingerprint or "",
        since_utc_ns=since or 0,
        limit=ask.limit if until is None else MAX_LOOKED,
    )
    if until is not None:
        found = tuple(incident for incident in found if incident.opened_utc_ns < until)
    return tuple(replace(incident, hits=incident.hits[:5]) for incident in found[: ask.limit])


def _concluded(report: Report | None) -> Json | None:
    """Return what a report says in short."""
    if report is None:
        return None
    causes = [c for c in report.conclusions if c.kind == "cause"]
    return {
        "revision": report.revision,
        "made_by": report.made_by,
        "title": report.title,
        "class": report.fault_class,
        "verdict": report.verdict,
        "confidence": report.confidence,
        "causes": [c.claim for c in causes[:MAX_CLAIMS]],
    }


def _time(text: str | None, now_utc_ns: int) -> int | None:
    if text is None:
        return None
    try:
        return parse_since(text, now_utc_ns, utc_ns)
    except ValueError:
        raise RefusedError("invalid_args", f"{text!r}: a date in ISO 8601, or -10m") from None


def _memory(hit: MemoryHit, now_utc_ns: int) -> Json:
    memory = hit.memory
    return {
        "ref": f"M{memory.id}",
        "id": memory.id,
        "type": memory.type,
        "title": memory.title,
        "body": memory.body,
        "priority": memory.priority,
        "source": memory.source,
        "status": memory.status,
        "is_verified": memory.status == "active",
        "is_disputed": hit.is_disputed,
        "by": memory.user_id,
        "incident": memory.incident,
        "scope": memory.scope,
        "scope_name": memory.scope_name,
        "age": age(now_utc_ns - memory.updated_utc_ns),
        "updated": iso(memory.updated_utc_ns),
        "learned": memory.hits,
        "evidence": list(memory.evidence),
        "fingerprint": memory.fingerprint,
        "score": round(hit.score, 3),
    }


def _snapshot(found: Snapshot, now_utc_ns: int) -> Json:
    return {
        "id": found.id,
        "name": found.name,
        "port": found.port,
        "at": iso(found.created_utc_ns),
        "age": age(now_utc_ns - found.created_utc_ns),
        "run_id": found.run_id,
        "body": dict(found.body),
    }
