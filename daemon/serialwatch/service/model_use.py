"""What the core keeps of the agent's models: what they cost, can do, and have answered."""

from __future__ import annotations

import time
from functools import partial

from serialwatch.store.cached_answers import save_answer
from serialwatch.store.database import Database
from serialwatch.store.endpoints import EndpointRow, save_endpoint
from serialwatch.store.spending import SpendingRow, add_spending
from serialwatch.wire import Json, iso

MAX_ANSWER = 200_000  # characters of a cached answer


async def take_spent(db: Database, body: Json) -> None:
    """Add what requests of a model have cost to the day.

    Raises:
        StoreError: it cannot be stored now.

    """
    row = SpendingRow(
        day=iso(time.time_ns())[:10],
        model=str(body["model"]),
        calls=int(body["calls"]),
        prompt_tokens=int(body["prompt_tokens"]),
        completion_tokens=int(body["completion_tokens"]),
        cost=float(body["cost"]),
    )
    await db.run(partial(add_spending, row=row))


async def take_endpoint(db: Database, body: Json) -> None:
    """Store what an endpoint has shown.

    Raises:
        StoreError: it cannot be stored now.

    """
    can = body["can"]
    if not isinstance(can, dict):
        raise ValueError("what an endpoint can do is a table")
    row = EndpointRow(str(body["base_url"]), str(body["model"]), can, time.time_ns())
    await db.run(partial(save_endpoint, row=row))


async def take_answer(db: Database, body: Json) -> None:
    """Keep an answer of a model.

    Raises:
        StoreError: it cannot be stored now.

    """
    answer = body["body"]
    if not isinstance(answer, dict) or len(str(answer)) > MAX_ANSWER:
        raise ValueError("no answer that can be kept")
    key = str(body["key"])
    await db.run(partial(save_answer, key=key, body=answer, now_utc_ns=time.time_ns()))
