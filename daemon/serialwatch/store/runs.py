"""The agent's queue, and its runs step by step: rounds, messages, skill calls, results."""

from __future__ import annotations

import hashlib
import json
import time
from collections.abc import Collection, Mapping, Sequence
from dataclasses import asdict, dataclass, field, fields
from typing import Any, Literal, TypeVar

from sqlite_utils import Database

from serialwatch.wire import Json, iso, utc_ns

QueueKind = Literal["incident", "question", "schedule", "digest"]
QueueState = Literal["queued", "running", "done", "failed"]

PRIORITIES: Mapping[QueueKind, int] = {"incident": 0, "question": 10, "schedule": 20, "digest": 30}

_QUEUED: tuple[QueueState, ...] = ("queued",)

R = TypeVar("R")


@dataclass(frozen=True, slots=True)
class QueueItem:
    """Work of the agent."""

    id: int
    kind: QueueKind
    priority: int  # small first
    phase: str  # of an incident: opened, settled, outcome
    incident_id: int | None
    port: str  # "" where it concerns none
    body: Json  # e.g. a question
    state: QueueState
    created_utc_ns: int
    ended_utc_ns: int | None


@dataclass(frozen=True, slots=True)
class SessionRow:
    """A conversation or an investigation: runs that belong together."""

    session_id: str
    user_id: str
    role: str
    incident_id: int | None
    port: str
    started_utc_ns: int
    ended_utc_ns: int | None
    status: str
    summary: str


@dataclass(frozen=True, slots=True)
class RunRow:
    """One investigation by the offline analyst or by a model."""

    id: str
    session_id: str
    kind: Literal["baseline", "model"]
    phase: str
    incident_id: int | None
    port: str
    role: str
    model: str
    base_url: str
    started_utc_ns: int
    ended_utc_ns: int | None  # None: it runs, or was cut short
    exit_status: str
    reason: str
    plan: Sequence[Any] = ()  # JSON
    notes: Sequence[Any] = ()  # JSON
    model_calls: int = 0
    tokens: int = 0
    state: Mapping[str, Any] = field(default_factory=dict)  # JSON; to go on from


@dataclass(frozen=True, slots=True)
class RoundRow:
    """One call of a model."""

    n: int
    kind: str  # act, repair, nudge, draft, redraft
    mode: str  # native or json
    prompt: Sequence[str]  # hashes of messages, in order
    response: Json
    prompt_tokens: int
    completion_tokens: int
    latency_ms: int
    outcome: str


@dataclass(frozen=True, slots=True)
class MessageRow:
    """A message of a prompt, stored once however often it is sent; see `message_hash`."""

    hash: str
    role: str
    content: Any  # JSON


@dataclass(frozen=True, slots=True)
class SkillCallRow:
    """One call of a skill."""

    n: int
    round: int  # 0: the fixed plan of the offline analyst
    skill: str
    version: str
    sha: str
    args: Json
    status: str
    error_code: str
    result_id: str
    elapsed_ms: int


@dataclass(frozen=True, slots=True)
class ResultRow:
    """What a skill answered."""

    id: str  # R1, R2, ... of the run
    body: Json


@dataclass(frozen=True, slots=True)
class Trace:
    """A run with all that happened in it, or with what is new since it was stored last."""

    session: SessionRow
    run: RunRow
    rounds: Sequence[RoundRow] = field(default_factory=tuple)
    messages: Sequence[MessageRow] = field(default_factory=tuple)
    skill_calls: Sequence[SkillCallRow] = field(default_factory=tuple)
    results: Sequence[ResultRow] = field(default_factory=tuple)


@dataclass(frozen=True, slots=True)
class Fresh:
    """What the store did not know of a run, though a part of it may have come twice."""

    rounds: frozenset[int]
    calls: frozenset[int]
    has_ended: bool  # it had not before


def next_queue_id(db: Database) -> int:
    """Return an id that no row of the queue has, above all others."""
    (highest,) = db.execute("SELECT max(id) FROM queue").fetchone()
    return int(highest or 0) + 1


def enqueue(
    db: Database,
    kind: QueueKind,
    *,
    id: int = 0,
    phase: str = "",
    incident_id: int | None = None,
    port: str = "",
    body: Mapping[str, Any] | None = None,
) -> int:
    """Put work into the queue and return its id; `id` 0 lets the database choose."""
    return int(
        db.execute(
            "INSERT INTO queue VALUES (?, ?, ?, ?, ?, ?, ?, 'queued', ?, NULL) RETURNING id",
            [
                id or None,
                kind,
                PRIORITIES[kind],
                phase,
                incident_id,
                port,
                json.dumps(dict(body or {})),
                iso(time.time_ns()),
            ],
        ).fetchone()[0]
    )


def take(db: Database) -> QueueItem | None:
    """Mark the next work as running and return it: by priority, then the oldest."""
    row = next(
        db.query("SELECT * FROM queue WHERE state = 'queued' ORDER BY priority, id LIMIT 1"), None
    )
    if row is None:
        return None
    start(db, row["id"])
    return _item(row | {"state": "running"})


def start(db: Database, id: int) -> None:
    """Mark one work as running."""
    db.execute("UPDATE queue SET state = 'running' WHERE id = ? AND state = 'queued'", [id])


def finish(db: Database, id: int, *, is_ok: bool) -> None:
    """Mark one work as done or failed; no harm if it is already."""
    db.execute(
        """
        UPDATE queue SET state = ?, ended_at = ?
        WHERE id = ? AND state IN ('queued', 'running')
        """,
        ["done" if is_ok else "failed", iso(time.time_ns()), id],
    )


def resume(db: Database) -> int:
    """Queue again what was running when the agent ended; return how many."""
    return db.execute("UPDATE queue SET state = 'queued' WHERE state = 'running'").rowcount


def load_queue(
    db: Database, *, states: Collection[QueueState] = _QUEUED, limit: int = 1000
) -> list[QueueItem]:
    """Return work in these states, in the order in which it is to be done."""
    rows = db.query(
        """
        SELECT * FROM queue WHERE state IN (SELECT value FROM json_each(?))
        ORDER BY priority, id LIMIT ?
        """,
        [json.dumps(sorted(states)), limit],
    )
    return [_item(row) for row in rows]


def message_hash(role: str, content: object) -> str:
    """Return the hash under which a message is stored."""
    text = json.dumps([role, content], sort_keys=True, separators=(",", ":"))
    return hashlib.sha256(text.encode()).hexdigest()[:32]


def save_trace(db: Database, trace: Trace) -> Fresh:
    """Store a run, or what it did since, and return what was not known of it.

    Rows that are known are brought up to date.
    """
    session, run = trace.session, trace.run
    with db.atomic():
        fresh = _fresh_in(db, trace)
        db.execute(
            "INSERT OR REPLACE INTO sessions VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?)",
            [
                session.session_id,
                session.user_id,
                session.role,
                session.incident_id,
                session.port,
                iso(session.started_utc_ns),
                _iso(session.ended_utc_ns),
                session.status,
                session.summary,
            ],
        )
        db.execute(
            """
            INSERT OR REPLACE INTO runs
            VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)
            """,
            [
                run.id,
                run.session_id,
                run.kind,
                run.phase,
                run.incident_id,
                run.port,
                run.role,
                run.model,
                run.base_url,
                iso(run.started_utc_ns),
                _iso(run.ended_utc_ns),
                run.exit_status,
                run.reason,
                json.dumps(run.plan),
                json.dumps(run.notes),
                run.model_calls,
                run.tokens,
                json.dumps(run.state),
            ],
        )
        for message in trace.messages:
            db.execute(
                "INSERT INTO messages VALUES (?, ?, ?) ON CONFLICT (hash) DO NOTHING",
                [message.hash, message.role, json.dumps(message.content)],
            )
        for each in trace.rounds:
            db.execute(
                "INSERT OR REPLACE INTO rounds VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?)",
                [
                    run.id,
                    each.n,
                    each.kind,
                    each.mode,
                    json.dumps(each.prompt),
                    json.dumps(each.response),
                    each.prompt_tokens,
                    each.completion_tokens,
                    each.latency_ms,
                    each.outcome,
                ],
            )
        for call in trace.skill_calls:
            db.execute(
                "INSERT OR REPLACE INTO skill_calls VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)",
                [
                    run.id,
                    call.n,
                    call.round,
                    call.skill,
                    call.version,
                    call.sha,
                    json.dumps(call.args),
                    call.status,
                    call.error_code,
                    call.result_id,
                    call.elapsed_ms,
                ],
            )
        for result in trace.results:
            db.execute(
                "INSERT OR REPLACE INTO results VALUES (?, ?, ?)",
                [run.id, result.id, json.dumps(result.body)],
            )
    return fresh


def load_unfinished(db: Database, status: str) -> list[str]:
    """Return the ids of the models' runs that have not ended, oldest first."""
    rows = db.query(
        """
        SELECT id FROM runs WHERE kind = 'model' AND ended_at IS NULL AND exit_status = ?
        ORDER BY started_at, rowid
        """,
        [status],
    )
    return [str(row["id"]) for row in rows]


def load_run(db: Database, id: str) -> RunRow | None:
    """Return one run, None if there is none."""
    return next((_run(row) for row in db.query("SELECT * FROM runs WHERE id = ?", [id])), None)


def load_runs(
    db: Database, *, incident_id: int | None = None, port: str = "", limit: int = 100
) -> list[RunRow]:
    """Return runs, newest first; of one incident, of one port, or all."""
    rows = db.query(
        """
        SELECT * FROM runs
        WHERE (:incident IS NULL OR incident_id = :incident) AND (:port = '' OR port = :port)
        ORDER BY started_at DESC, rowid DESC LIMIT :limit
        """,
        {"incident": incident_id, "port": port, "limit": limit},
    )
    return [_run(row) for row in rows]


def load_trace(db: Database, run_id: str) -> Trace | None:
    """Return all that is stored of a run, None if there is no such run."""
    run = load_run(db, run_id)
    if run is None:
        return None
    sessions = db.query("SELECT * FROM sessions WHERE session_id = ?", [run.session_id])
    rounds = [
        _made(RoundRow, row)
        for row in db.query("SELECT * FROM rounds WHERE run_id = ? ORDER BY n", [run_id])
    ]
    hashes = json.dumps([each for round_ in rounds for each in round_.prompt])
    messages = db.query(
        "SELECT * FROM messages WHERE hash IN (SELECT value FROM json_each(?))", [hashes]
    )
    calls = db.query("SELECT * FROM skill_calls WHERE run_id = ? ORDER BY n", [run_id])
    results = db.query("SELECT * FROM results WHERE run_id = ? ORDER BY rowid", [run_id])
    return Trace(
        session=_made(SessionRow, next(sessions)),
        run=run,
        rounds=rounds,
        messages=[_made(MessageRow, row) for row in messages],
        skill_calls=[_made(SkillCallRow, row) for row in calls],
        results=[_made(ResultRow, row) for row in results],
    )


def trace_to_json(trace: Trace) -> Json:
    """Return a trace as the agent sends it to the core; times are nanoseconds."""
    return asdict(trace)


def trace_from_json(body: Mapping[str, Any]) -> Trace:
    """Return the trace that `trace_to_json` wrote.

    Raises:
        KeyError, TypeError: it is none.

    """
    return Trace(
        session=SessionRow(**body["session"]),
        run=RunRow(**body["run"]),
        rounds=[RoundRow(**each) for each in body["rounds"]],
        messages=[MessageRow(**each) for each in body["messages"]],
        skill_calls=[SkillCallRow(**each) for each in body["skill_calls"]],
        results=[ResultRow(**each) for each in body["results"]],
    )


def _fresh_in(db: Database, trace: Trace) -> Fresh:
    of = [trace.run.id]
    rounds = {n for (n,) in db.execute("SELECT n FROM rounds WHERE run_id = ?", of)}
    calls = {n for (n,) in db.execute("SELECT n FROM skill_calls WHERE run_id = ?", of)}
    ended = db.execute(
        "SELECT count(*) FROM runs WHERE id = ? AND ended_at IS NOT NULL "
        "AND exit_status <> 'waiting'",
        of,
    ).fetchone()[0]
    is_over = trace.run.ended_utc_ns is not None and trace.run.exit_status != "waiting"
    return Fresh(
        frozenset(row.n for row in trace.rounds) - rounds,
        frozenset(row.n for row in trace.skill_calls) - calls,
        is_over and not ended,
    )


def _item(row: Mapping[str, Any]) -> QueueItem:
    return _made(QueueItem, row)


def _run(row: Mapping[str, Any]) -> RunRow:
    return _made(RunRow, row)


def _made(kind: type[R], row: Mapping[str, Any]) -> R:
    """Make a record of a row: `*_at` is its `*_utc_ns`, `*_json` is its field without that."""
    values: Json = {}
    for name, value in row.items():
        if name.endswith("_at"):
            values[name.removesuffix("_at") + "_utc_ns"] = utc_ns(value) if value else None
        elif name.endswith("_json"):
            values[name.removesuffix("_json")] = json.loads(value)
        else:
            values[name] = value
    return kind(**{f.name: values[f.name] for f in fields(kind)})  # type: ignore[arg-type]


def _iso(at_utc_ns: int | None) -> str | None:
    return None if at_utc_ns is None else iso(at_utc_ns)
