"""Long-term memory: conclusions that outlive an incident."""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Literal

from sqlite_utils import Database

from serialwatch.store.memory_gate import (
    MAX_EVIDENCE,
    MemoryLink,
    MemoryRefusedError,
    MemoryScope,
    MemorySource,
    MemoryType,
    NewMemory,
    check_memory,
)
from serialwatch.wire import iso, utc_ns

RelationKind = Literal["duplicate_of", "supports", "contradicts", "supersedes"]

MAX_PER_SESSION = 3  # memories a model may write
MAX_TERMS = 24  # of a query

DAY_NS = 24 * 3600 * 1_000_000_000
KEPT_DAYS: Mapping[int, int] = {2: 30, 3: 180}  # by priority; 4 and 5 stay, 0 and 1 are scratch
SCRATCH_NS = DAY_NS
DUPLICATE = 0.8  # share of common words

_COMMON_WORDS = """
    about after an and are as at be been but by can did do does for from had has have how if in
    into is it its no not of on or so that the their then there this to was were what when where
    which who why will with
"""
_COMMON = frozenset(_COMMON_WORDS.split())


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
    fingerprint: str
    hits: int  # how often it was learned
    evidence: tuple[str, ...]
    session_id: str
    user_id: str
    created_utc_ns: int
    updated_utc_ns: int
    expires_utc_ns: int | None


@dataclass(frozen=True, slots=True)
class Relation:
    """One memory's relation to another."""

    other_id: int
    kind: RelationKind


def write_memory(db: Database, memory: NewMemory, now_utc_ns: int) -> int:
    """Store a memory and return its id.

    One with the same words (numbers aside) in the same scope is the same: it is counted, keeps
    its higher priority and later expiry, and takes the new text unless the old one weighs more.
    One with nearly the same words is linked as `duplicate_of`.

    Raises:
        MemoryRefusedError: it does not pass the gate.

    """
    check_memory(memory)
    same = _hash(memory)
    _check_session(db, memory, same)
    expires = _expiry(memory, now_utc_ns)
    with db.atomic():
        row = next(db.query("SELECT * FROM memories WHERE hash = ?", [same]), None)
        if row is None:
            written = _insert(db, memory, same, expires, now_utc_ns)
            for other in _near(db, memory, written):
                relate(db, written, other, "duplicate_of")
        else:
            written = int(row["id"])
            _merge(db, memory_of(row), memory, expires, now_utc_ns)
        for link in memory.links:
            db.execute(
                "INSERT INTO memory_links VALUES (?, ?, ?)",
                [written, link.source_skill, link.source_step],
            )
    return written


def relate(db: Database, id: int, other_id: int, kind: RelationKind) -> None:
    """Store how a memory relates to another one, once."""
    db.execute("INSERT OR IGNORE INTO memory_relations VALUES (?, ?, ?)", [id, other_id, kind])


def load_memory(db: Database, id: int) -> MemoryRow | None:
    """Return one memory, None if there is none."""
    return next(
        (memory_of(row) for row in db.query("SELECT * FROM memories WHERE id = ?", [id])), None
    )


def load_links(db: Database, id: int) -> list[MemoryLink]:
    """Return where a memory comes from, oldest first."""
    rows = db.execute(
        "SELECT source_skill, source_step FROM memory_links WHERE memory_id = ? ORDER BY rowid",
        [id],
    )
    return [MemoryLink(skill, step) for skill, step in rows]


def load_relations(db: Database, id: int) -> list[Relation]:
    """Return a memory's relations to others."""
    rows = db.execute(
        "SELECT other_id, kind FROM memory_relations WHERE memory_id = ? ORDER BY other_id, kind",
        [id],
    )
    return [Relation(other, kind) for other, kind in rows]


def clean_up(db: Database, now_utc_ns: int) -> int:
    """Delete scratch (priority 0 and 1) older than a day and what has expired; return how many."""
    return db.execute(
        """
        DELETE FROM memories
        WHERE (priority <= 1 AND updated_at < :day_ago) OR expires_at <= :now
        """,
        {"day_ago": iso(now_utc_ns - SCRATCH_NS), "now": iso(now_utc_ns)},
    ).rowcount


def count_memories(db: Database) -> dict[str, int]:
    """Return how many there are of each type that there is."""
    return dict(db.execute("SELECT type, count(*) FROM memories GROUP BY type").fetchall())


def words_of(text: str) -> list[str]:
    """Return the words of a text as the full-text search knows them, in lower case."""
    return [word.lower() for word in re.findall(r"[A-Za-z0-9_]{2,}", text)]


def terms_of(text: str) -> list[str]:
    """Return the words to search for, each once, at most 24, without what every sentence has."""
    return [word for word in dict.fromkeys(words_of(text)) if word not in _COMMON][:MAX_TERMS]


def query_of(terms: Iterable[str]) -> str:
    """Return a query of FTS5: each word quoted, so that none is taken for its syntax."""
    return " OR ".join(f'"{term}"' for term in terms) or '""'


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
        fingerprint=row["fingerprint"],
        hits=row["hits"],
        evidence=tuple(json.loads(row["evidence_json"])),
        session_id=row["session_id"],
        user_id=row["user_id"],
        created_utc_ns=utc_ns(row["created_at"]),
        updated_utc_ns=utc_ns(row["updated_at"]),
        expires_utc_ns=utc_ns(row["expires_at"]) if row["expires_at"] else None,
    )


def _check_session(db: Database, memory: NewMemory, same: str) -> None:
    """Let a model write a few new memories a session, whatever a board makes it believe."""
    if memory.source != "model" or not memory.session_id:
        return
    (count,) = db.execute(
        "SELECT count(*) FROM memories WHERE source = 'model' AND session_id = ? AND hash != ?",
        [memory.session_id, same],
    ).fetchone()
    if count >= MAX_PER_SESSION:
        raise MemoryRefusedError(f"a model may write {MAX_PER_SESSION} memories a session")


def _hash(memory: NewMemory) -> str:
    text = " ".join(f"{memory.title} {memory.body}".lower().split())
    text = re.sub(r"\b0x[0-9a-f]+\b|\b(?=[a-f]*\d)[0-9a-f]{6,}\b", "H", text)
    text = re.sub(r"\d+", "N", text)
    parts = json.dumps([text, memory.scope, memory.scope_name])
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
            id, type, scope, scope_name, priority, title, body, tags, source, fingerprint, hash,
            hits, evidence_json, session_id, user_id, created_at, updated_at, expires_at
        ) VALUES (
            NULL, :type, :scope, :scope_name, :priority, :title, :body, :tags, :source,
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
    # What a person wrote only a person changes, whatever weight a board talks a model into.
    is_ours_to_change = new.source == "human" or old.source != "human"
    text = new if is_ours_to_change and new.priority >= old.priority else old
    evidence = list(dict.fromkeys([*old.evidence, *new.evidence]))[-MAX_EVIDENCE:]
    db.execute(
        """
        UPDATE memories SET hits = hits + 1, priority = :priority, type = :type, title = :title,
            body = :body, tags = :tags, source = :source, fingerprint = :fingerprint,
            evidence_json = :evidence, updated_at = :now, expires_at = :expires
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
            "fingerprint": new.fingerprint or old.fingerprint,
            "evidence": json.dumps(evidence),
            "now": iso(now_utc_ns),
            "expires": _iso(_later(old, new, expires_utc_ns)),
        },
    )


def _later(old: MemoryRow, new: NewMemory, expires_utc_ns: int | None) -> int | None:
    """Return the later expiry of the two; that of scratch is its age and does not count."""
    lasting = [(old.priority, old.expires_utc_ns), (new.priority, expires_utc_ns)]
    ends = [end for priority, end in lasting if priority > 1]
    return max((end for end in ends if end is not None), default=None) if None not in ends else None


def _near(db: Database, memory: NewMemory, id: int) -> list[int]:
    """Return those of the same scope that say nearly the same."""
    words = set(words_of(f"{memory.title} {memory.body}"))
    query = query_of(sorted(words, key=len, reverse=True)[:MAX_TERMS])
    rows = db.query(
        """
        SELECT m.id, m.title, m.body FROM memories_fts JOIN memories m ON m.id = memories_fts.rowid
        WHERE memories_fts MATCH ? AND m.id != ? AND m.scope = ? AND m.scope_name = ?
        ORDER BY bm25(memories_fts) LIMIT 3
        """,
        [query, id, memory.scope, memory.scope_name],
    )
    near = []
    for row in rows if words else ():
        others = set(words_of(f"{row['title']} {row['body']}"))
        if len(words & others) >= DUPLICATE * len(words | others):
            near.append(int(row["id"]))
    return near


def _iso(at_utc_ns: int | None) -> str | None:
    return None if at_utc_ns is None else iso(at_utc_ns)
