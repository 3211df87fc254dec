"""Actions that wait for a person: each is decided once, begun once, and never begun again."""

from __future__ import annotations

import hashlib
import json
import secrets
from collections.abc import Collection, Mapping, Sequence
from dataclasses import asdict, dataclass, fields
from typing import TYPE_CHECKING, Any, Literal, get_args

from serialwatch.wire import Json, iso, utc_ns

if TYPE_CHECKING:  # commands that only name states start sooner without it
    from sqlite_utils import Database

ApprovalState = Literal[
    "pending", "approved", "denied", "expired", "executing", "done", "failed", "unknown"
]
STATES: tuple[ApprovalState, ...] = get_args(ApprovalState)
OPEN: tuple[ApprovalState, ...] = ("pending", "approved", "executing")  # nothing came of it yet

LETTERS = "23456789ABCDEFGHJKMNPQRSTVWXYZ"  # of an id: none that looks like another
ID_LENGTH = 4
ENDED = "the daemon ended before it was begun; nothing was sent"
CUT_OFF = "the daemon ended while it was done: whether the board got it is not known; look at it"

_TRIES = 50


@dataclass(frozen=True, slots=True)
class ApprovalRow:
    """One action, as it was proposed and as far as it has come."""

    id: str  # "" until it is stored
    state: ApprovalState
    run_id: str
    role: str
    incident_id: int | None
    port: str
    skill: str
    version: str
    sha: str
    args: Mapping[str, Any]
    steps: Sequence[Json]  # e.g. {"op": "console.send", "hex": "03"}
    hash: str  # see `approval_hash`
    effect: Sequence[str]  # one a step
    why: str
    evidence: Sequence[str]
    device: str
    boot: int
    any_boot: bool
    created_utc_ns: int
    expires_utc_ns: int
    decided_utc_ns: int | None = None
    decided_by: str = ""
    decided_uid: int = -1
    decided_pid: int = 0
    note: str = ""
    ended_utc_ns: int | None = None
    result: str = ""


def approval_hash(skill: str, sha: str, port: str, steps: Sequence[Mapping[str, Any]]) -> str:
    """Return the hash of what would be done: the same proposal has the same."""
    told = json.dumps([skill, sha, port, list(steps)], sort_keys=True, separators=(",", ":"))
    return hashlib.sha256(told.encode()).hexdigest()


def add_approval(db: Database, row: ApprovalRow) -> ApprovalRow:
    """Store a proposal under an id of its own, and return it with that."""
    for tried in range(_TRIES):
        length = ID_LENGTH + tried // 10  # a bench with so many has longer ones
        fresh = "".join(secrets.choice(LETTERS) for _ in range(length))
        body = asdict(row) | {"id": fresh}
        values = {name: _column(name, value) for name, value in body.items()}
        names = ", ".join(_column_name(name) for name in values)
        marks = ", ".join(f":{name}" for name in values)
        done = db.execute(
            f"INSERT INTO approvals ({names}) VALUES ({marks}) ON CONFLICT (id) DO NOTHING",  # noqa: S608 -- our own names
            values,
        )
        if done.rowcount == 1:
            found = load_approval(db, fresh)
            assert found is not None
            return found
    raise RuntimeError(f"no free id in {_TRIES} tries")


def load_approval(db: Database, id: str) -> ApprovalRow | None:
    """Return one, None if there is none."""
    rows = db.query("SELECT * FROM approvals WHERE id = ?", [id])
    return next(map(_row, rows), None)


def load_approvals(
    db: Database,
    *,
    states: Collection[ApprovalState] = STATES,
    port: str = "",
    run_id: str = "",
    incident_id: int | None = None,
    limit: int = 100,
) -> list[ApprovalRow]:
    """Return actions, the newest first."""
    rows = db.query(
        """
        SELECT * FROM approvals
        WHERE state IN (SELECT value FROM json_each(:states))
            AND (:port = '' OR port = :port) AND (:run = '' OR run_id = :run)
            AND (:incident IS NULL OR incident_id = :incident)
        ORDER BY created_at DESC, rowid DESC LIMIT :limit
        """,
        {
            "states": json.dumps(sorted(states)),
            "port": port,
            "run": run_id,
            "incident": incident_id,
            "limit": limit,
        },
    )
    return list(map(_row, rows))


def find_same(db: Database, hash: str) -> ApprovalRow | None:
    """Return the same proposal of which nothing has come yet, None if there is none."""
    rows = db.query(
        "SELECT * FROM approvals WHERE hash = ? AND state IN ('pending', 'approved', 'executing')",
        [hash],
    )
    return next(map(_row, rows), None)


def count_approvals(db: Database) -> dict[str, int]:
    """Return how many there are in each state."""
    counted = dict(db.execute("SELECT state, count(*) FROM approvals GROUP BY state").fetchall())
    return {state: int(counted.get(state, 0)) for state in STATES}


def decide(
    db: Database,
    id: str,
    state: Literal["approved", "denied"],
    *,
    by: str,
    uid: int,
    pid: int,
    note: str,
    now_utc_ns: int,
) -> bool:
    """Note what a person says of a pending action; False if it is not pending any more."""
    now = iso(now_utc_ns)
    done = db.execute(
        """
        UPDATE approvals SET state = ?, decided_at = ?, decided_by = ?, decided_uid = ?,
            decided_pid = ?, note = ?, ended_at = ?
        WHERE id = ? AND state = 'pending' AND expires_at > ?
        """,
        [state, now, by, uid, pid, note, now if state == "denied" else None, id, now],
    )
    return done.rowcount == 1


def begin(db: Database, id: str, now_utc_ns: int) -> bool:
    """Take an approved action to do it; False if somebody has, or its time is over."""
    done = db.execute(
        "UPDATE approvals SET state = 'executing' "
        "WHERE id = ? AND state = 'approved' AND expires_at > ?",
        [id, iso(now_utc_ns)],
    )
    return done.rowcount == 1


def end(
    db: Database, id: str, state: Literal["done", "failed"], result: str, now_utc_ns: int
) -> bool:
    """Note what came of an action; False if it had ended already."""
    done = db.execute(
        "UPDATE approvals SET state = ?, result = ?, ended_at = ? "
        "WHERE id = ? AND state IN ('approved', 'executing')",
        [state, result, iso(now_utc_ns), id],
    )
    return done.rowcount == 1


def expire(db: Database, now_utc_ns: int) -> list[ApprovalRow]:
    """End what nobody has decided, or nobody could begin, in time; return what it was."""
    now = iso(now_utc_ns)
    rows = db.query(
        """
        UPDATE approvals SET state = 'expired', ended_at = ?, result = 'nothing was sent'
        WHERE state IN ('pending', 'approved') AND expires_at <= ? RETURNING *
        """,
        [now, now],
    )
    return list(map(_row, rows))


def take_up(db: Database, now_utc_ns: int) -> tuple[int, int]:
    """Look at what an earlier daemon left: nothing that it may have begun is begun again.

    Returns:
        How many are unknown now, and how many had not been begun.

    """
    now = iso(now_utc_ns)
    unknown = db.execute(
        "UPDATE approvals SET state = 'unknown', result = ?, ended_at = ? "
        "WHERE state = 'executing'",
        [CUT_OFF, now],
    ).rowcount
    failed = db.execute(
        "UPDATE approvals SET state = 'failed', result = ?, ended_at = ? WHERE state = 'approved'",
        [ENDED, now],
    ).rowcount
    return unknown, failed


def approval_to_json(row: ApprovalRow) -> Json:
    """Return an action as the API, the CLI and a run have it."""
    body = asdict(row)
    del body["hash"], body["decided_uid"], body["decided_pid"]
    body["run"], body["incident"] = body.pop("run_id"), body.pop("incident_id")
    for name in ("created", "expires", "decided", "ended"):
        at = body.pop(f"{name}_utc_ns")
        body[name] = iso(at) if at else None
    return body


_JSON = frozenset({"args", "steps", "effect", "evidence"})


def _column_name(name: str) -> str:
    if name.endswith("_utc_ns"):
        return name.removesuffix("_utc_ns") + "_at"
    return f"{name}_json" if name in _JSON else name


def _column(name: str, value: Any) -> Any:
    if name in _JSON:
        return json.dumps(value)
    if name.endswith("_utc_ns"):
        return iso(value) if value else None
    return value


def _row(row: Mapping[str, Any]) -> ApprovalRow:
    values: Json = {}
    for field in fields(ApprovalRow):
        value = row[_column_name(field.name)]
        if field.name.endswith("_utc_ns"):
            value = utc_ns(value) if value else None
        elif field.name in _JSON:
            value = json.loads(value)
        elif field.name == "any_boot":
            value = bool(value)
        values[field.name] = value
    return ApprovalRow(**values)
