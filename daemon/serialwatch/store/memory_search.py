"""Finding memories: by words, scope, age and weight."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from sqlite_utils import Database

from serialwatch.store.memories import DAY_NS, MemoryRow, memory_of
from serialwatch.store.memory_gate import MemoryType
from serialwatch.store.memory_words import query_of, terms_of, words_of
from serialwatch.wire import iso

HALF_LIFE_DAYS: Mapping[MemoryType, float | None] = {
    "task_result": 14,
    "snapshot": 30,
    "fact": 90,
    "preference": None,  # does not age
}
CANDIDATES = 50
LEAST_RELEVANCE = 0.05
SHARE_OF_WORDS = 0.4  # relevance of a memory that has every word asked for
UNVERIFIED = 0.5  # of its score has what a model wrote and nobody has confirmed
DISPUTED = 0.2  # less for what another memory contradicts
ELSEWHERE = 0.2  # nearness of what was learned of the same fault on another port or board

_CURRENT = "((expires_at IS NULL OR expires_at > :now) AND status != 'superseded')"
# In this form SQLite looks it up in the index of scopes.
_HERE = """(scope, scope_name) IN (
    VALUES ('bench', ''), ('port', :port), ('board', :board), ('user', :user)
)"""
_EVERYWHERE = "1"


# Only texts of our own are put together here; what is searched for is a parameter.
_BY_WORDS = f"""
    SELECT m.*, -bm25(memories_fts, 4, 1, 2) AS weight
    FROM memories_fts JOIN memories m ON m.id = memories_fts.rowid
    WHERE memories_fts MATCH :query AND {_CURRENT} AND %s
    ORDER BY bm25(memories_fts, 4, 1, 2) LIMIT {CANDIDATES}
"""  # noqa: S608
_HEAVIEST = f"""
    SELECT * FROM memories WHERE priority = 5 AND {_CURRENT} AND %s
    ORDER BY updated_at DESC LIMIT {CANDIDATES}
"""  # noqa: S608
_SAME_FAULT = f"""
    SELECT * FROM memories
    WHERE fingerprint = :fingerprint AND {_CURRENT} AND (scope IN ('port', 'board') OR %s)
    ORDER BY priority DESC, updated_at DESC LIMIT {CANDIDATES}
"""  # noqa: S608
_HIGHEST = f"""
    SELECT * FROM memories WHERE {_CURRENT} AND {_HERE}
    ORDER BY priority DESC, updated_at DESC, id DESC LIMIT :limit
"""  # noqa: S608
_NEWEST = f"""
    SELECT * FROM memories WHERE {_CURRENT} AND {_HERE}
    ORDER BY updated_at DESC, id DESC LIMIT :limit
"""  # noqa: S608


@dataclass(frozen=True, slots=True)
class MemoryHit:
    """A memory that fits a query."""

    memory: MemoryRow
    score: float  # about 0..1, highest first
    relevance: float  # 0..1, of its words alone
    is_disputed: bool = False  # another memory says something else


@dataclass(frozen=True, slots=True)
class Place:
    """From where memories are looked for: what is of another port, board or user is not seen.

    But what was learned of the very same fault elsewhere is.
    """

    port: str = ""
    board: str = ""
    user: str = ""


def recall(
    db: Database, place: Place, now_utc_ns: int, *, newest: int = 5, highest: int = 5
) -> list[MemoryRow]:
    """Return what a prompt is to know anyway: the newest and the highest, each once."""
    bounds = _place(place, now_utc_ns)
    rows = [
        *db.query(_HIGHEST, bounds | {"limit": highest}),
        *db.query(_NEWEST, bounds | {"limit": newest}),
    ]
    return list({row["id"]: memory_of(row) for row in rows}.values())


def search(
    db: Database,
    text: str,
    now_utc_ns: int,
    *,
    place: Place | None = None,
    fingerprint: str = "",
    type: MemoryType | None = None,
    limit: int = 5,
) -> list[MemoryHit]:
    """Return the memories that fit best, best first.

    Args:
        db: the database.
        text: words to look for; whatever else it holds is ignored.
        now_utc_ns: for their age.
        place: from where; None for all memories.
        fingerprint: of an incident: what was learned from the same fault fits in any case.
        type: of this type only.
        limit: at most so many.

    """
    terms = terms_of(text)
    bounds = _place(place, now_utc_ns) | {"fingerprint": fingerprint}
    where = _EVERYWHERE if place is None else _HERE
    relevance: dict[int, float] = {}
    rows: dict[int, dict[str, Any]] = {}
    if terms:
        for row in db.query(_BY_WORDS % where, bounds | {"query": query_of(terms)}):
            rows[row["id"]] = row
            relevance[row["id"]] = _relevance(terms, row)
    for query in (_HEAVIEST, _SAME_FAULT) if fingerprint else (_HEAVIEST,):
        for row in db.query(query % where, bounds):
            rows.setdefault(row["id"], row)
    disputed = _disputed(db, rows)
    hits = []
    for row in rows.values():
        memory = memory_of(row)
        fits = relevance.get(memory.id, 0.0)
        is_same_fault = bool(fingerprint) and memory.fingerprint == fingerprint
        if fits < LEAST_RELEVANCE and memory.priority < 5 and not is_same_fault:
            continue
        if type is None or memory.type == type:
            score = _score(memory, 1.0 if is_same_fault else fits, place, now_utc_ns)
            is_disputed = memory.id in disputed
            hits.append(MemoryHit(memory, score - DISPUTED * is_disputed, fits, is_disputed))
    return sorted(hits, key=lambda hit: (-hit.score, -hit.memory.id))[:limit]


def recency(memory: MemoryRow, now_utc_ns: int) -> float:
    """Return 1 for what was learned just now, half of it after the half-life of its type."""
    half = HALF_LIFE_DAYS[memory.type]
    age_days = max(0, now_utc_ns - memory.updated_utc_ns) / DAY_NS
    return 1.0 if half is None else 0.5 ** (age_days / half)


def _place(place: Place | None, now_utc_ns: int) -> dict[str, object]:
    at = place or Place()
    return {
        "now": iso(now_utc_ns),
        "port": at.port,
        "board": at.board,
        "user": at.user,
    }


def _relevance(terms: Sequence[str], row: Mapping[str, Any]) -> float:
    """Return 0..1: by rarity of the words, and by how many of them are there.

    bm25 is next to nothing for a word that more than half of the rows have, in a young memory
    thus for all words.
    """
    weight = max(0.0, float(row["weight"]))
    words = set(words_of(f"{row['title']} {row['body']} {row['tags']}"))
    share = sum(term in words for term in terms) / len(terms)
    return max(weight / (weight + 3), SHARE_OF_WORDS * share)


def _score(memory: MemoryRow, relevance: float, place: Place | None, now_utc_ns: int) -> float:
    score = (
        0.5 * relevance
        + 0.15 * recency(memory, now_utc_ns)
        + 0.15 * memory.priority / 5
        + 0.2 * _nearness(memory, place)
    )
    return score * (UNVERIFIED if memory.status == "proposed" else 1.0)


def _nearness(memory: MemoryRow, place: Place | None) -> float:
    if place is None or memory.scope == "bench":
        return 0.4
    here = {"port": place.port, "board": place.board, "user": place.user}[memory.scope]
    if memory.scope_name != here:
        return ELSEWHERE
    return 0.7 if memory.scope == "board" else 1.0


def _disputed(db: Database, ids: Iterable[int]) -> set[int]:
    """Return which of them another memory contradicts; a person's only another person's does."""
    rows = db.execute(
        """
        SELECT r.memory_id, one.source, r.other_id, other.source FROM memory_relations r
        JOIN memories one ON one.id = r.memory_id AND one.status != 'superseded'
        JOIN memories other ON other.id = r.other_id AND other.status != 'superseded'
        WHERE r.kind = 'contradicts' AND (
            r.memory_id IN (SELECT value FROM json_each(:ids))
            OR r.other_id IN (SELECT value FROM json_each(:ids))
        )
        """,
        {"ids": json.dumps(list(ids))},
    )
    found: set[int] = set()
    for one, source, other, other_source in rows:
        if source != "human" or other_source == "human":
            found.add(int(one))
        if other_source != "human" or source == "human":
            found.add(int(other))
    return found
