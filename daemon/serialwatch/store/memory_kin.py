"""How memories belong together: who said them, and which say the same or the opposite."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

from sqlite_utils import Database

from serialwatch.store.memory_gate import MemoryLink, MemorySource, NewMemory
from serialwatch.store.memory_words import (
    MAX_TERMS,
    likeness,
    plain,
    query_of,
    value_of,
    words_of,
)

RelationKind = Literal["duplicate_of", "supports", "contradicts", "supersedes"]

DUPLICATE = 0.8  # share of common words
LOOKED_AT = 3  # memories whose words are most like the new one's
INCIDENT = "incident-"  # sessions of incidents begin so
_RECENT_LINKS = 2000  # a run's own links are among the newest


@dataclass(frozen=True, slots=True)
class Relation:
    """One memory's relation to another."""

    other_id: int
    kind: RelationKind


def relate(db: Database, id: int, other_id: int, kind: RelationKind) -> None:
    """Store how a memory relates to another one, once."""
    db.execute("INSERT OR IGNORE INTO memory_relations VALUES (?, ?, ?)", [id, other_id, kind])


def load_relations(db: Database, id: int) -> list[Relation]:
    """Return a memory's relations to others."""
    rows = db.execute(
        "SELECT other_id, kind FROM memory_relations WHERE memory_id = ? ORDER BY other_id, kind",
        [id],
    )
    return [Relation(other, kind) for other, kind in rows]


def load_relations_to(db: Database, id: int) -> list[Relation]:
    """Return which memories relate to this one; `other_id` is theirs."""
    rows = db.execute(
        "SELECT memory_id, kind FROM memory_relations WHERE other_id = ? ORDER BY memory_id, kind",
        [id],
    )
    return [Relation(other, kind) for other, kind in rows]


def link(db: Database, id: int, links: Sequence[MemoryLink], session_id: str) -> None:
    """Note where a memory comes from: its skills, and the session that said it, once each."""
    known = set(load_links(db, id))
    for one in links:
        if one not in known:
            _add_link(db, id, one)
    session = MemoryLink("", session_id)
    if session_id and session_id not in load_sessions(db, id):
        _add_link(db, id, session)


def load_links(db: Database, id: int) -> list[MemoryLink]:
    """Return where a memory comes from, oldest first."""
    rows = db.execute(
        """
        SELECT source_skill, source_step FROM memory_links
        WHERE memory_id = ? AND source_skill != '' ORDER BY rowid
        """,
        [id],
    )
    return [MemoryLink(skill, step) for skill, step in rows]


def load_sessions(db: Database, id: int) -> list[str]:
    """Return the sessions that said it, oldest first: links without a skill."""
    rows = db.execute(
        "SELECT source_step FROM memory_links WHERE memory_id = ? AND source_skill = ''"
        " ORDER BY rowid",
        [id],
    )
    return [str(session) for (session,) in rows]


def incidents_of(db: Database, id: int) -> list[int]:
    """Return the incidents that said it, oldest first: revisions of one count once."""
    numbers = (s.removeprefix(INCIDENT) for s in load_sessions(db, id) if s.startswith(INCIDENT))
    return [int(number) for number in numbers if number.isdigit()]


def written_in_run(db: Database, run_id: str, source: MemorySource, other_than: str) -> int:
    """Return how many memories skills of one run have written, but for one with that hash."""
    (count,) = db.execute(
        """
        SELECT count(DISTINCT m.id) FROM (
            SELECT memory_id, source_step FROM memory_links ORDER BY rowid DESC LIMIT ?
        ) l JOIN memories m ON m.id = l.memory_id
        WHERE l.source_step LIKE ? || ':%' AND m.source = ? AND m.hash != ?
        """,
        [_RECENT_LINKS, run_id, source, other_than],
    ).fetchone()
    return int(count)


def near(db: Database, memory: NewMemory, id: int) -> list[Mapping[str, Any]]:
    """Return those of the same scope that say nearly the same."""
    rows = _alike(db, memory, id, "AND m.scope = :scope AND m.scope_name = :name")
    return [row for row in rows if _likeness(memory, row) >= DUPLICATE]


def said_elsewhere(db: Database, memory: NewMemory, id: int) -> list[Mapping[str, Any]]:
    """Return those of another scope that say nearly the same of the same fault."""
    if not memory.fingerprint:
        return []
    rows = _alike(
        db,
        memory,
        id,
        "AND m.fingerprint = :fingerprint AND (m.scope != :scope OR m.scope_name != :name)",
    )
    return [row for row in rows if _likeness(memory, row) >= DUPLICATE]


def conflicting(db: Database, memory: NewMemory, id: int) -> list[Mapping[str, Any]]:
    """Return those of the same scope and title that say something else.

    The rules may tell the same fault by another line; that is no contradiction.
    """
    rows = db.query(
        """
        SELECT id, title, body FROM memories
        WHERE (type != 'task_result' OR source != 'rule' OR ? != 'rule')
            AND scope = ? AND scope_name = ? AND type = ? AND id != ? AND status != 'superseded'
            AND lower(substr(title, 1, 4)) = lower(substr(?, 1, 4))
        """,
        [memory.source, memory.scope, memory.scope_name, memory.type, id, memory.title.strip()],
    )
    title, value = plain(memory.title), value_of(memory.body)
    return [
        row
        for row in rows
        if plain(row["title"]) == title
        and value_of(row["body"]) != value
        and likeness(memory.body, row["body"]) < DUPLICATE
    ]


def _alike(db: Database, memory: NewMemory, id: int, where: str) -> list[Mapping[str, Any]]:
    words = set(words_of(f"{memory.title} {memory.body}"))
    if not words:
        return []
    query = query_of(sorted(words, key=len, reverse=True)[:MAX_TERMS])
    return list(
        db.query(
            f"""
            SELECT m.* FROM memories_fts JOIN memories m ON m.id = memories_fts.rowid
            WHERE memories_fts MATCH :query AND m.id != :id AND m.status != 'superseded' {where}
            ORDER BY bm25(memories_fts) LIMIT {LOOKED_AT}
            """,  # noqa: S608 - `where` is one of the two above
            {
                "query": query,
                "id": id,
                "scope": memory.scope,
                "name": memory.scope_name,
                "fingerprint": memory.fingerprint,
            },
        )
    )


def _likeness(memory: NewMemory, row: Mapping[str, Any]) -> float:
    return likeness(f"{memory.title} {memory.body}", f"{row['title']} {row['body']}")


def _add_link(db: Database, id: int, one: MemoryLink) -> None:
    db.execute("INSERT INTO memory_links VALUES (?, ?, ?)", [id, one.source_skill, one.source_step])
