"""Long-term memory: conclusions that outlive an incident.

What a model writes is `proposed`: it counts half and is shown as unverified, until a person or a
second incident says the same. What a person corrects is `superseded`: it is kept for a while, but
neither found nor brought back by saying it again.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Any

from sqlite_utils import Database

from serialwatch.store.memory_gate import (
    MAX_EVIDENCE,
    MemoryFilter,
    MemoryRefusedError,
    MemoryScope,
    MemorySource,
    MemoryStatus,
    MemoryType,
    NewMemory,
    check_memory,
)
from serialwatch.store.memory_kin import (
    conflicting,
    incidents_of,
    link,
    load_relations_to,
    near,
    relate,
    said_elsewhere,
    written_in_run,
)
from serialwatch.store.memory_words import plain
from serialwatch.wire import iso, utc_ns

MAX_PER_RUN = 3  # memories that skills may write, of each source
ENOUGH_INCIDENTS = 2  # that say the same make it active
CORRECTED = 5  # priority of what a person corrects

DAY_NS = 24 * 3600 * 1_000_000_000
KEPT_DAYS: Mapping[int, int] = {2: 30, 3: 180}  # by priority; 4 and 5 stay, 0 and 1 are scratch


@dataclass(frozen=True, slots=True)
class MemoryRow:
    """A memory as it is stored."""

    id: int
    type: MemoryType
    scope: MemoryScope
    scope_name: str
    priority: int
    title: str
    body: str
    tags: tuple[str, ...]
    source: MemorySource
    status: MemoryStatus
    fingerprint: str
    hits: int  # how often it was learned
    used: int  # in how many runs that led to a report it was shown
    evidence: tuple[str, ...]
    session_id: str
    user_id: str
    created_utc_ns: int
    updated_utc_ns: int
    used_utc_ns: int | None
    expires_utc_ns: int | None

    @property
    def incident(self) -> int | None:
        """Return the incident it was learned from first, None if it was from none."""
        number = self.session_id.removeprefix("incident-")
        return int(number) if number != self.session_id and number.isdigit() else None


@dataclass(frozen=True, slots=True)
class Written:
    """What became of a memory that was handed in: whoever wrote it gets this back."""

    id: int
    is_new: bool  # False: it was known and is counted
    priority: int
    status: MemoryStatus
    near: tuple[int, ...] = ()  # memories that say nearly the same
    contradicts: tuple[int, ...] = ()  # memories that say something else under the same title


def write_memory(db: Database, memory: NewMemory, now_utc_ns: int) -> Written:
    """Store a memory and return what became of it.

    One with the same words (numbers aside) in the same scope is the same: it is counted, keeps
    its higher priority and later expiry, and takes the new text unless the old one weighs more.
    One with nearly the same words is linked as `duplicate_of`, or as what it `supports` if it is
    of another scope; one with the same title and other words `contradicts`.

    Raises:
        MemoryRefusedError: it does not pass the gate.

    """
    check_memory(memory)
    same = _hash(memory)
    _check_run(db, memory, same)
    expires = _expiry(memory, now_utc_ns)
    close: list[int] = []
    with db.atomic():
        row = next(db.query("SELECT * FROM memories WHERE hash = ?", [same]), None)
        if row is None:
            written = _insert(db, memory, same, expires, now_utc_ns)
            link(db, written, memory.links, memory.session_id)
            close = _find_kin(db, memory, written)
        else:
            written = int(row["id"])
            old = memory_of(row)
            _merge(db, old, memory, expires, now_utc_ns)
            link(db, written, [*memory.links], old.session_id)
            link(db, written, (), memory.session_id)
        other = _find_conflicts(db, memory, written)
        _activate(db, [written, *close], memory)
    stored = load_memory(db, written)
    assert stored is not None  # just written
    return Written(written, row is None, stored.priority, stored.status, tuple(close), tuple(other))


def correct_memory(db: Database, id: int, text: str, user: str, now_utc_ns: int) -> Written | None:
    """Let a person's words take the place of a memory; None if there is none of that number.

    Raises:
        MemoryRefusedError: the text does not pass the gate.

    """
    old = load_memory(db, id)
    if old is None:
        return None
    if old.status == "superseded" and (newer := _successors(db, id)):
        raise MemoryRefusedError(f"M{id} was corrected already: correct M{newer[-1]} instead")
    kind: MemoryType = "fact" if old.type == "snapshot" else old.type
    correction = NewMemory(
        type=kind,
        title=old.title,
        body=text,
        priority=CORRECTED,
        source="human",
        scope=old.scope,
        scope_name=old.scope_name,
        tags=old.tags,
        fingerprint=old.fingerprint,
        evidence=old.evidence,
        session_id=old.session_id,
        user_id=user,
    )
    with db.atomic():
        written = write_memory(db, correction, now_utc_ns)
        if written.id == old.id:  # said once more in the same words: confirmed
            db.execute("UPDATE memories SET user_id = ? WHERE id = ?", [user, old.id])
            return written
        relate(db, written.id, old.id, "supersedes")
        db.execute(
            "DELETE FROM memory_relations WHERE kind = 'contradicts'"
            " AND (memory_id = :old OR other_id = :old)",
            {"old": old.id},
        )
        db.execute(
            "UPDATE memories SET status = 'superseded', updated_at = ? WHERE id = ?",
            [iso(now_utc_ns), old.id],
        )
    return replace(
        written,
        near=tuple(n for n in written.near if n != old.id),
        contradicts=tuple(n for n in written.contradicts if n != old.id),
    )


def _successors(db: Database, id: int) -> list[int]:
    return [r.other_id for r in load_relations_to(db, id) if r.kind == "supersedes"]


def forget_memory(db: Database, id: int) -> MemoryRow | None:
    """Delete a memory and return it; None if there is none of that number."""
    old = load_memory(db, id)
    if old is not None:
        db.execute("DELETE FROM memories WHERE id = ?", [id])
    return old


def load_memory(db: Database, id: int) -> MemoryRow | None:
    """Return one memory, None if there is none."""
    return next(
        (memory_of(row) for row in db.query("SELECT * FROM memories WHERE id = ?", [id])), None
    )


def load_memories(db: Database, wanted: MemoryFilter, now_utc_ns: int) -> list[MemoryRow]:
    """Return memories, those of persons and the heavier ones first, then the newest."""
    rows = db.query(
        """
        SELECT * FROM memories
        WHERE (expires_at IS NULL OR expires_at > :now)
            AND ((:port = '' AND :board = '') OR scope IN ('bench', 'user')
                OR (scope, scope_name) IN (VALUES ('port', :port), ('board', :board)))
            AND (:type = '' OR type = :type) AND (:scope = '' OR scope = :scope)
            AND (:status = 'all' OR status = :status OR (:status = '' AND status != 'superseded'))
        ORDER BY priority DESC, updated_at DESC, id DESC LIMIT :limit
        """,
        {
            "now": iso(now_utc_ns),
            "port": wanted.port,
            "board": wanted.board,
            "type": wanted.type,
            "scope": wanted.scope,
            "status": wanted.status,
            "limit": wanted.limit,
        },
    )
    return [memory_of(row) for row in rows]


def count_used(db: Database, ids: Iterable[int], now_utc_ns: int) -> None:
    """Count that memories were shown in a run which led to a report."""
    db.execute(
        "UPDATE memories SET used = used + 1, used_at = ?"
        " WHERE id IN (SELECT value FROM json_each(?))",
        [iso(now_utc_ns), json.dumps(sorted(set(ids)))],
    )


def count_memories(db: Database) -> dict[str, int]:
    """Return how many there are of each type that there is."""
    return dict(db.execute("SELECT type, count(*) FROM memories GROUP BY type").fetchall())


def memory_of(row: Mapping[str, Any]) -> MemoryRow:
    """Return a row of the table as a record."""
    return MemoryRow(
        id=row["id"],
        type=row["type"],
        scope=row["scope"],
        scope_name=row["scope_name"],
        priority=row["priority"],
        title=row["title"],
        body=row["body"],
        tags=tuple(row["tags"].split()),
        source=row["source"],
        status=row["status"],
        fingerprint=row["fingerprint"],
        hits=row["hits"],
        used=row["used"],
        evidence=tuple(json.loads(row["evidence_json"])),
        session_id=row["session_id"],
        user_id=row["user_id"],
        created_utc_ns=utc_ns(row["created_at"]),
        updated_utc_ns=utc_ns(row["updated_at"]),
        used_utc_ns=utc_ns(row["used_at"]) if row["used_at"] else None,
        expires_utc_ns=utc_ns(row["expires_at"]) if row["expires_at"] else None,
    )


def _check_run(db: Database, memory: NewMemory, same: str) -> None:
    """Let the skills of a run write a few memories, whatever a board makes them believe."""
    runs = {
        run
        for run, mark, _ in (one.source_step.partition(":") for one in memory.links)
        if mark and run
    }
    for run in runs if memory.source != "human" else ():
        if written_in_run(db, run, memory.source, same) >= MAX_PER_RUN:
            raise MemoryRefusedError(
                f"{MAX_PER_RUN} memories were written in this run: no more of them from a "
                f"{memory.source}"
            )


def _find_kin(db: Database, memory: NewMemory, id: int) -> list[int]:
    """Relate a new memory to those that say nearly the same, and return their numbers."""
    found: dict[int, None] = {}
    for row in near(db, memory, id):
        relate(db, id, row["id"], "duplicate_of")
        found[row["id"]] = None
    for row in said_elsewhere(db, memory, id):
        relate(db, id, row["id"], "supports")
        found[row["id"]] = None
    return list(found)


def _find_conflicts(db: Database, memory: NewMemory, id: int) -> list[int]:
    """Relate a memory to those that say something else of the same, and return their numbers."""
    found = [int(row["id"]) for row in conflicting(db, memory, id)]
    for other in found:
        relate(db, id, other, "contradicts")
    return found


def _activate(db: Database, ids: Iterable[int], memory: NewMemory) -> None:
    """Believe what a person says, and what two incidents say independently of each other."""
    alike = list(ids)
    incidents = {number for each in alike for number in incidents_of(db, each)}
    if memory.source != "human" and len(incidents) < ENOUGH_INCIDENTS:
        return
    db.execute(
        "UPDATE memories SET status = 'active'"
        " WHERE status = 'proposed' AND id IN (SELECT value FROM json_each(?))",
        [json.dumps(alike)],
    )


def _hash(memory: NewMemory) -> str:
    parts = json.dumps([plain(f"{memory.title} {memory.body}"), memory.scope, memory.scope_name])
    return hashlib.sha256(parts.encode()).hexdigest()[:32]


def _expiry(memory: NewMemory, now_utc_ns: int) -> int | None:
    if memory.expires_utc_ns is not None:
        return memory.expires_utc_ns
    days = KEPT_DAYS.get(memory.priority)
    return None if days is None else now_utc_ns + days * DAY_NS


def _insert(
    db: Database, memory: NewMemory, same: str, expires_utc_ns: int | None, now_utc_ns: int
) -> int:
    row = db.execute(
        """
        INSERT INTO memories (
            id, type, scope, scope_name, priority, title, body, tags, source, status, fingerprint,
            hash, hits, evidence_json, session_id, user_id, created_at, updated_at, expires_at
        ) VALUES (
            NULL, :type, :scope, :scope_name, :priority, :title, :body, :tags, :source, :status,
            :fingerprint, :hash, 1, :evidence, :session_id, :user_id, :now, :now, :expires
        ) RETURNING id
        """,
        {
            "type": memory.type,
            "scope": memory.scope,
            "scope_name": memory.scope_name,
            "priority": memory.priority,
            "title": memory.title.strip(),
            "body": memory.body.strip(),
            "tags": " ".join(memory.tags),
            "source": memory.source,
            "status": "proposed" if memory.source == "model" else "active",
            "fingerprint": memory.fingerprint,
            "hash": same,
            "evidence": json.dumps(list(memory.evidence)),
            "session_id": memory.session_id,
            "user_id": memory.user_id,
            "now": iso(now_utc_ns),
            "expires": _iso(expires_utc_ns),
        },
    ).fetchone()
    return int(row[0])


def _merge(
    db: Database, old: MemoryRow, new: NewMemory, expires_utc_ns: int | None, now_utc_ns: int
) -> None:
    priority = max(old.priority, new.priority)
    # What a person wrote only a person changes, whatever weight a board talks a model into; and
    # what is believed keeps its numbers, too.
    is_believed = old.source == "human" or (old.status == "active" and new.source == "model")
    is_ours_to_change = new.source == "human" or not is_believed
    text = new if is_ours_to_change and new.priority >= old.priority else old
    evidence = list(dict.fromkeys([*old.evidence, *new.evidence]))[-MAX_EVIDENCE:]
    # A person may bring back what was superseded; it coming up again does not.
    is_revived = new.source == "human" and old.status == "superseded"
    db.execute(
        """
        UPDATE memories SET hits = hits + 1, priority = :priority, type = :type, title = :title,
            body = :body, tags = :tags, source = :source, fingerprint = :fingerprint,
            status = :status, user_id = :user, evidence_json = :evidence, updated_at = :now,
            expires_at = :expires
        WHERE id = :id
        """,
        {
            "id": old.id,
            "priority": priority,
            "type": text.type,
            "title": text.title.strip(),
            "body": text.body.strip(),
            "tags": " ".join(dict.fromkeys([*old.tags, *new.tags])),
            "source": text.source,
            "status": "active" if is_revived else old.status,
            "fingerprint": new.fingerprint or old.fingerprint,
            "user": (text.user_id or old.user_id) if text.source == "human" else old.user_id,
            "evidence": json.dumps(evidence),
            "now": iso(old.updated_utc_ns if _is_dead(old, new) else now_utc_ns),
            "expires": _iso(_later(old, new, expires_utc_ns)),
        },
    )


def _is_dead(old: MemoryRow, new: NewMemory) -> bool:
    """Tell whether it stays superseded: it does not get younger by being said again."""
    return old.status == "superseded" and new.source != "human"


def _later(old: MemoryRow, new: NewMemory, expires_utc_ns: int | None) -> int | None:
    """Return the later expiry of the two; that of scratch is its age and does not count."""
    lasting = [(old.priority, old.expires_utc_ns), (new.priority, expires_utc_ns)]
    ends = [end for priority, end in lasting if priority > 1]
    return max((end for end in ends if end is not None), default=None) if None not in ends else None


def _iso(at_utc_ns: int | None) -> str | None:
    return None if at_utc_ns is None else iso(at_utc_ns)
