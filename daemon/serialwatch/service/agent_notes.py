"""What the agent leaves on the bench beside its reports: snapshots and markers."""

from __future__ import annotations

import os
import time
from functools import partial

from serialwatch.api.bench import Bench, Who
from serialwatch.store.database import Database
from serialwatch.store.snapshots import save_snapshot
from serialwatch.wire import Json

AGENT = "agent"  # as who the agent sets markers


async def keep_snapshot(db: Database, body: Json) -> Json:
    """Store a state that a skill wants to compare with later; return its id.

    Raises:
        SnapshotRefusedError: it is none.
        StoreError: the database cannot be written.

    """
    port, name, run_id, state = (body[key] for key in ("port", "name", "run_id", "body"))
    job = partial(
        save_snapshot, port=port, name=name, run_id=run_id, body=state, now_utc_ns=time.time_ns()
    )
    return {"id": await db.run(job)}


async def set_mark(bench: Bench, body: Json) -> Json:
    """Set a marker of the agent; it is a note, which never makes a fault expected.

    Raises:
        BenchError: there is no such port.

    """
    who = Who(os.getuid(), AGENT, os.getpid())
    marker = await bench.mark(str(body["port"]), "note", str(body["text"])[:120], who)
    return {"id": marker.id, "port": marker.port, "seq": marker.seq}
