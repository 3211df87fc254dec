"""Memories for people: listed or searched by words, and as JSON."""

from __future__ import annotations

from pathlib import Path

from sqlite_utils import Database

from serialwatch.store.memories import MemoryRow, Written, load_memories
from serialwatch.store.memory_gate import MemoryFilter
from serialwatch.store.memory_kin import Relation
from serialwatch.store.memory_origin import Origin, lines_of
from serialwatch.store.memory_search import Place, search
from serialwatch.store.memory_words import terms_of, words_of
from serialwatch.wire import Json, iso


def find_memories(db: Database, words: str, wanted: MemoryFilter, now_utc_ns: int) -> list[Json]:
    """Return memories as JSON: those that fit the words best first; "" lists them all."""
    if not words:
        return [memory_to_json(row) for row in load_memories(db, wanted, now_utc_ns)]
    if wanted.status in {"superseded", "all"}:  # these are not searched otherwise
        terms = set(terms_of(words))
        rows = load_memories(db, wanted, now_utc_ns)
        return [memory_to_json(row) for row in rows if terms & set(words_of(_text(row)))]
    hits = search(
        db,
        words,
        now_utc_ns,
        place=Place(wanted.port, wanted.board) if wanted.port or wanted.board else None,
        type=wanted.type or None,
        limit=1000,
    )
    found = [
        memory_to_json(hit.memory) | {"score": round(hit.score, 3), "is_disputed": hit.is_disputed}
        for hit in hits
        if hit.relevance
        and wanted.scope in {"", hit.memory.scope}
        and wanted.status in {"", hit.memory.status}
    ]
    return found[: wanted.limit]


def memory_to_json(memory: MemoryRow) -> Json:
    """Return a memory as the API has it."""
    used, expires = memory.used_utc_ns, memory.expires_utc_ns
    return {
        "id": memory.id,
        "type": memory.type,
        "scope": memory.scope,
        "scope_name": memory.scope_name,
        "priority": memory.priority,
        "status": memory.status,
        "title": memory.title,
        "body": memory.body,
        "tags": list(memory.tags),
        "source": memory.source,
        "by": memory.user_id,
        "fingerprint": memory.fingerprint,
        "incident": memory.incident,
        "learned": memory.hits,
        "used": memory.used,
        "evidence": list(memory.evidence),
        "created": iso(memory.created_utc_ns),
        "updated": iso(memory.updated_utc_ns),
        "used_at": iso(used) if used else None,
        "expires": iso(expires) if expires else None,
    }


def written_to_json(written: Written) -> Json:
    """Return what became of a memory, as whoever wrote it is told."""
    return {
        "id": written.id,
        "is_new": written.is_new,
        "priority": written.priority,
        "status": written.status,
        "near": list(written.near),
        "contradicts": list(written.contradicts),
    }


def origin_to_json(origin: Origin, log_dir: Path) -> Json:
    """Return where a memory comes from; its lines with their text, as far as there is a log."""
    lines = lines_of(log_dir, origin.memory.evidence)
    return {
        "memory": memory_to_json(origin.memory),
        "lines": [{"ref": line.ref, "text": line.text} for line in lines],
        "incidents": [
            {"id": i.id, "port": i.port, "title": i.title, "opened_at": i.opened_at or None}
            for i in origin.incidents
        ],
        "links": [{"skill": one.source_skill, "step": one.source_step} for one in origin.links],
        "relations": [_relation(r, "to") for r in origin.relations]
        + [_relation(r, "from") for r in origin.related],
        "uses": [
            {"run": use.run_id, "incident": use.incident, "started": use.started_at}
            for use in origin.uses
        ],
    }


def _relation(relation: Relation, way: str) -> Json:
    return {"kind": relation.kind, way: relation.other_id}


def _text(row: MemoryRow) -> str:
    return " ".join((row.title, row.body, *row.tags))
