"""The agent's runs for the API, and the questions that they ask people."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from functools import partial

import sqlite_utils

from serialwatch.api.bench import AuditEntry, BenchError, Who
from serialwatch.api.runs import no_run
from serialwatch.service.look_up import InThread, look_up
from serialwatch.store import inquiries as inquiry_rows
from serialwatch.store import runs as run_rows
from serialwatch.store.database import Database, StoreError
from serialwatch.store.inquiries import InquiryRow
from serialwatch.store.run_json import read_run, read_runs
from serialwatch.store.runs import RunRow
from serialwatch.wire import Json

ANSWERED = "answered"  # phase of a queue's row that holds a person's answer


class ServiceRuns:
    """What the API may see of runs, and do with them."""

    def __init__(
        self,
        db: Database,
        in_thread: InThread,
        next_queue_id: Callable[[], int],
        tell_agent: Callable[[int, Json], None],
        audit: Callable[[AuditEntry], None],
    ) -> None:
        self._db = db
        self._in_thread = in_thread
        self._next_queue_id = next_queue_id
        self._tell_agent = tell_agent
        self._audit = audit

    async def list_runs(self, port: str, incident: int | None, limit: int) -> Sequence[Json]:
        """Return runs in short, the newest first."""
        job = partial(read_runs, incident_id=incident, port=port, limit=limit)
        try:
            return await look_up(self._db, job, self._in_thread)
        except StoreError as exc:
            raise _unreadable(exc) from exc

    async def trace(self, run_id: str) -> Json | None:
        """Return all that is stored of a run, None if there is none."""
        job = partial(read_run, run_id=run_id)
        try:
            return await look_up(self._db, job, self._in_thread)
        except StoreError as exc:
            raise _unreadable(exc) from exc

    async def answer(self, run_id: str, text: str, who: Who) -> Json:
        """Give the answer for which a run waits; it goes on then."""
        queue_id = self._next_queue_id()

        def job(db: sqlite_utils.Database) -> tuple[RunRow, InquiryRow] | RunRow | None:
            run = run_rows.load_run(db, run_id)
            if run is None:
                return None
            asked = [row for row in inquiry_rows.load_inquiries(db, run_id) if not row.answer]
            if not asked:
                return run
            with db.atomic():
                inquiry_rows.answer_inquiry(db, asked[-1].id, text, who.user, time.time_ns())
                run_rows.enqueue(
                    db,
                    "incident" if run.incident_id is not None else "question",
                    id=queue_id,
                    phase=ANSWERED,
                    incident_id=run.incident_id,
                    port=run.port,
                    body={"run_id": run_id, "inquiry_id": asked[-1].id},
                )
            return run, asked[-1]

        try:
            found = await self._db.run(job)
        except StoreError as exc:
            raise BenchError("failed", f"the answer is not stored: {exc}", "try again") from exc
        if found is None:
            raise no_run(run_id)
        if isinstance(found, RunRow):
            raise BenchError("not_now", f"run {run_id} waits for no answer: it is "
                             f"{found.exit_status}")  # fmt: skip
        run, inquiry = found
        detail = {"run": run_id, "inquiry": str(inquiry.id), "text": text[:200]}
        self._audit(AuditEntry(who, "answer", run.port, 0, detail, "ok"))
        self._tell_agent(queue_id, answered_order(queue_id, run_id, inquiry.id, text, who.user))
        return {"run": run_id, "question": inquiry.question, "answer": text}


async def take_inquiry(db: Database, body: Json) -> Json:
    """Store a question of a run and return its id.

    Raises:
        StoreError: the database cannot be written.

    """
    job = partial(
        inquiry_rows.add_inquiry,
        run_id=str(body["run_id"]),
        question=str(body["question"]),
        known=str(body.get("known", "")),
        missing=str(body.get("missing", "")),
        now_utc_ns=time.time_ns(),
    )
    return {"id": await db.run(job)}


async def answer_waiting(db: Database, item: run_rows.QueueItem) -> Json | None:
    """Return the order for an answer that an earlier daemon did not get to the agent.

    Raises:
        StoreError: the database cannot be read.

    """
    number = int(item.body.get("inquiry_id", 0))
    row = await db.run(partial(inquiry_rows.load_inquiry, id=number))
    if row is None:
        return None
    return answered_order(item.id, row.run_id, row.id, row.answer, row.answered_by)


def answered_order(queue_id: int, run_id: str, inquiry_id: int, text: str, user: str) -> Json:
    """Return the order with which the agent goes on."""
    return {
        "kind": "answered",
        "queue_id": queue_id,
        "run_id": run_id,
        "inquiry_id": inquiry_id,
        "text": text,
        "user": user,
    }


def _unreadable(exc: StoreError) -> BenchError:
    return BenchError("failed", f"the database cannot be read: {exc}")
