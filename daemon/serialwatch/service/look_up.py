"""Reads the database even while nobody can write it."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from functools import partial
from typing import Protocol, TypeVar

from serialwatch.store.database import Database, Job, StoreError
from serialwatch.store.read import read_once

T = TypeVar("T")


class InThread(Protocol):
    """Runs what may take its time in the thread for large answers."""

    def __call__(self, work: Callable[[], T]) -> Awaitable[T]:
        """Run `work`; raise what it raises."""


async def look_up(db: Database, fn: Job[T], in_thread: InThread) -> T:
    """Run a job that only reads; what locks the database or fills its disk is no hindrance.

    Raises:
        StoreError: it can be neither written nor read.

    """
    try:
        return await db.run(fn)
    except StoreError:
        return await in_thread(partial(read_once, db.path, fn))
