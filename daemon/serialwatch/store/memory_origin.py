"""Where a memory comes from, and where it was used."""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

from sqlite_utils import Database

from serialwatch.store.log_reader import PortLog
from serialwatch.store.memories import MemoryRow, load_memory
from serialwatch.store.memory_gate import MemoryLink
from serialwatch.store.memory_kin import (
    Relation,
    incidents_of,
    load_links,
    load_relations,
    load_relations_to,
)
from serialwatch.wire import show

MAX_USES = 20  # runs that are named
_LINE = re.compile(r"([a-z0-9][a-z0-9_-]{0,31}):L([1-9]\d{0,17})")


@dataclass(frozen=True, slots=True)
class OriginIncident:
    """An incident that said it; without a port it is no longer stored."""

    id: int
    port: str = ""
    title: str = ""
    opened_at: str = ""


@dataclass(frozen=True, slots=True)
class Use:
    """A run in which a memory was shown, and which led to a report."""

    run_id: str
    incident: int | None
    started_at: str


@dataclass(frozen=True, slots=True)
class EvidenceLine:
    """A line that it rests on; `text` is None once the log no longer has it."""

    ref: str  # e.g. dut1:L48213
    text: str | None


@dataclass(frozen=True, slots=True)
class Origin:
    """All that is known of a memory."""

    memory: MemoryRow
    incidents: tuple[OriginIncident, ...]
    links: tuple[MemoryLink, ...]
    relations: tuple[Relation, ...]  # of it to others
    related: tuple[Relation, ...]  # of others to it; their numbers
    uses: tuple[Use, ...]  # newest first, at most MAX_USES


def load_origin(db: Database, id: int) -> Origin | None:
    """Return where a memory comes from, None if there is none of that number."""
    memory = load_memory(db, id)
    if memory is None:
        return None
    return Origin(
        memory=memory,
        incidents=tuple(_incident(db, number) for number in incidents_of(db, id)),
        links=tuple(load_links(db, id)),
        relations=tuple(load_relations(db, id)),
        related=tuple(load_relations_to(db, id)),
        uses=tuple(_uses(db, id)),
    )


def used_in(db: Database, run_id: str) -> set[int]:
    """Return the memories that a run was shown, if it led to a report or an answer."""
    rows = db.execute(
        """
        SELECT DISTINCT json_extract(memory.value, '$.id')
        FROM skill_calls c JOIN results r ON r.run_id = c.run_id AND r.id = c.result_id,
            json_each(r.body_json, '$.memories') AS memory
        WHERE c.run_id = :run AND c.skill = 'memory-search' AND memory.type = 'object'
            AND (EXISTS (SELECT 1 FROM reports WHERE reports.run_id = :run)
                OR EXISTS (SELECT 1 FROM answers WHERE answers.run_id = :run))
        """,
        {"run": run_id},
    )
    return {number for (number,) in rows if isinstance(number, int)}


def lines_of(log_dir: Path, refs: Iterable[str]) -> list[EvidenceLine]:
    """Return lines with their text, as far as the logs below a folder still have them."""
    logs: dict[str, PortLog] = {}
    found: list[EvidenceLine] = []
    for ref in refs:
        text: str | None = None
        if named := _LINE.fullmatch(ref):
            port, seq = named[1], int(named[2])
            if (log_dir / port).is_dir():
                log = logs.setdefault(port, PortLog(log_dir / port, port))
                raw = next((x.raw for x in log.lines(seq, seq, 1) if x.seq == seq), None)
                text = None if raw is None else show(raw)
        found.append(EvidenceLine(ref, text))
    return found


def _incident(db: Database, number: int) -> OriginIncident:
    row = next(
        db.query("SELECT port, title, opened_at FROM incidents WHERE id = ?", [number]), None
    )
    if row is None:
        return OriginIncident(number)
    return OriginIncident(number, row["port"], row["title"], row["opened_at"])


def _uses(db: Database, id: int) -> list[Use]:
    rows = db.query(
        """
        SELECT DISTINCT runs.id AS run_id, runs.incident_id, runs.started_at
        FROM skill_calls c JOIN results r ON r.run_id = c.run_id AND r.id = c.result_id
            JOIN runs ON runs.id = c.run_id,
            json_each(r.body_json, '$.memories') AS memory
        WHERE c.skill = 'memory-search' AND memory.type = 'object'
            AND json_extract(memory.value, '$.id') = ?
            AND (EXISTS (SELECT 1 FROM reports WHERE reports.run_id = c.run_id)
                OR EXISTS (SELECT 1 FROM answers WHERE answers.run_id = c.run_id))
        ORDER BY runs.started_at DESC LIMIT ?
        """,
        [id, MAX_USES],
    )
    return [Use(row["run_id"], row["incident_id"], row["started_at"]) for row in rows]
