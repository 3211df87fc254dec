"""Memories for the agent, which writes them, and for people, who correct them."""

from __future__ import annotations

import time
from collections.abc import Awaitable, Callable, Sequence
from functools import partial
from pathlib import Path
from typing import TypeVar

import sqlite_utils

from serialwatch.api.bench import AuditAction, AuditEntry, BenchError, Who
from serialwatch.api.memories import no_memory
from serialwatch.service.look_up import InThread, look_up
from serialwatch.store.database import Database, Job, StoreError
from serialwatch.store.memories import (
    correct_memory,
    count_used,
    forget_memory,
    load_memory,
    write_memory,
)
from serialwatch.store.memory_find import (
    find_memories,
    memory_to_json,
    origin_to_json,
    written_to_json,
)
from serialwatch.store.memory_gate import (
    MemoryFilter,
    MemoryRefusedError,
    NewMemory,
    memory_from_json,
)
from serialwatch.store.memory_origin import load_origin, used_in
from serialwatch.store.runs import Fresh, RunRow, Trace, load_run, save_trace
from serialwatch.wire import Json

T = TypeVar("T")


class ServiceMemories:
    """What the API may see of memories, and do with them."""

    def __init__(
        self,
        db: Database,
        in_thread: InThread,
        log_dir: Path,
        counted: Callable[[], Awaitable[None]],  # brings the gauge up to date
        audit: Callable[[AuditEntry], None],
    ) -> None:
        self._db = db
        self._in_thread = in_thread
        self._log_dir = log_dir
        self._counted = counted
        self._audit = audit

    async def find(self, words: str, wanted: MemoryFilter) -> Sequence[Json]:
        """Return memories, those that fit the words best first; "" lists them all."""
        now = time.time_ns()
        return await self._read(lambda db: find_memories(db, words, wanted, now))

    async def why(self, id: int) -> Json | None:
        """Return where a memory comes from, None if there is none of that number."""
        origin = await self._read(partial(load_origin, id=id))
        if origin is None:
            return None
        return await self._in_thread(lambda: origin_to_json(origin, self._log_dir))

    async def add(self, memory: NewMemory, who: Who) -> Json:
        """Remember what a person says."""

        def job(db: sqlite_utils.Database) -> Json:
            written = write_memory(db, memory, time.time_ns())
            return _told(db, written.id) | written_to_json(written)

        added = await self._write(job)
        self._note(who, "remember", added, memory.body)
        return added

    async def correct(self, id: int, text: str, who: Who) -> Json:
        """Let a person's words take the place of a memory."""

        def job(db: sqlite_utils.Database) -> Json | None:
            written = correct_memory(db, id, text, who.user, time.time_ns())
            if written is None:
                return None
            old = {"supersedes": id} if written.id != id else {}
            return _told(db, written.id) | written_to_json(written) | old

        corrected = await self._write(job)
        if corrected is None:
            raise no_memory(str(id))
        self._note(who, "correct", corrected | {"id": id}, text)
        return corrected

    async def forget(self, id: int, who: Who) -> Json:
        """Delete a memory and return it."""
        forgotten = await self._write(partial(forget_memory, id=id))
        if forgotten is None:
            raise no_memory(str(id))
        gone = memory_to_json(forgotten)
        self._note(who, "forget", gone, f"{forgotten.title}: {forgotten.body}")
        return gone

    async def _read(self, job: Job[T]) -> T:
        try:
            return await look_up(self._db, job, self._in_thread)
        except StoreError as exc:
            raise BenchError("failed", f"the database cannot be read: {exc}") from exc

    async def _write(self, job: Job[T]) -> T:
        try:
            done = await self._db.run(job)
            await self._counted()
        except MemoryRefusedError as exc:
            raise BenchError("bad_request", f"not remembered: {exc}") from exc
        except StoreError as exc:
            raise BenchError("failed", f"not stored: {exc}", "try again") from exc
        return done

    def _note(self, who: Who, action: AuditAction, memory: Json, text: str) -> None:
        detail = {"memory": str(memory["id"]), "text": text[:400]}
        port = str(memory["scope_name"]) if memory["scope"] == "port" else ""
        self._audit(AuditEntry(who, action, port, 0, detail, "ok"))


def take_memory(db: sqlite_utils.Database, body: Json, now_utc_ns: int) -> Json:
    """Store what the agent wants remembered; the answer tells what became of it, or why not."""
    try:
        return written_to_json(write_memory(db, memory_from_json(body), now_utc_ns))
    except MemoryRefusedError as exc:
        return {"refused": str(exc)}


def save_run(db: sqlite_utils.Database, trace: Trace, now_utc_ns: int) -> Fresh:
    """Store what is new of a run and return it; at its end count the memories it has used."""
    run = trace.run
    known = load_run(db, run.id)
    with db.atomic():
        fresh = save_trace(db, trace)
        if _has_ended(run) and not (known and _has_ended(known)):
            count_used(db, used_in(db, run.id), now_utc_ns)
    return fresh


def _has_ended(run: RunRow) -> bool:
    return run.ended_utc_ns is not None and run.exit_status != "waiting"


def _told(db: sqlite_utils.Database, id: int) -> Json:
    memory = load_memory(db, id)
    return memory_to_json(memory) if memory is not None else {}
