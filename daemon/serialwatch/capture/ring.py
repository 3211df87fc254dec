"""The newest bytes of a port, and the queue from the loop to the thread that writes logs."""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Iterable
from dataclasses import replace
from typing import TypeGuard

from serialwatch.store.log_format import PAUSE_NS, POINT_EVERY, Place
from serialwatch.store.log_items import Chunk, Gap, Item

KEPT_BYTES = 256 * 1024  # of scrollback
SMALL = 512  # bytes: smaller pieces of it are put together
MAX_UNWRITTEN = 16 * 1024 * 1024  # bytes of one port that wait for a disk
MAX_UNWRITTEN_IN_ALL = 256 * 1024 * 1024
DROP_BYTES = 64 * 1024  # dropped at once, so that a dead disk does not make thousands of gaps
_MERGE_ABOVE = 2048  # chunks that wait: from here on small ones are put together


class RingBudget:
    """What all rings together may hold for the log writer."""

    def __init__(self, limit_bytes: int = MAX_UNWRITTEN_IN_ALL) -> None:
        self.limit_bytes = limit_bytes
        self.rings: list[Ring] = []
        # One thread adds to each of these; the difference is right within what is on its way.
        self.put_bytes = 0
        self.dropped_bytes = 0
        self.settled_bytes = 0

    @property
    def unwritten_bytes(self) -> int:
        """All that waits for the log writer."""
        return self.put_bytes - self.dropped_bytes - self.settled_bytes


class Ring:
    """The recent bytes of one port and all that the log writer has not written yet.

    `remember`, `put` and what reads are for the loop; `take`, `put_back` and `settle` for the
    writer. If the writer falls behind, the oldest bytes are dropped and a `Gap` counts them; what
    it has in hand at that moment is not touched.
    """

    def __init__(self, name: str, budget: RingBudget) -> None:
        self.name = name
        self.signal: threading.Event | None = None
        self.log_bytes = 0
        self.put_bytes = 0
        self.is_held = True  # items have no line numbers yet: the writer must wait
        self._recent: deque[bytes] = deque()
        self._recent_bytes = 0
        self._budget = budget
        self._queue: deque[Item] = deque()
        self._lock = threading.Lock()  # the two ends of the queue, never held during I/O
        self._dropped_bytes = 0  # by the loop
        self._settled_bytes = 0  # by the writer
        self._given_up_bytes = 0  # by the writer, part of the settled ones
        self._lost_before_bytes = 0  # by an earlier run, at its end
        budget.rings.append(self)

    def remember(self, data: bytes) -> None:
        """Add bytes to the scrollback."""
        recent = self._recent
        if recent and len(data) < SMALL and len(recent[-1]) < SMALL:
            recent[-1] += data  # single bytes, kept one by one, would take 30 times their size
        else:
            recent.append(data)
        self._recent_bytes += len(data)
        while self._recent_bytes - len(recent[0]) >= KEPT_BYTES:
            self._recent_bytes -= len(recent.popleft())

    def recent(self) -> bytes:
        """Return the newest bytes, at most 256 KiB."""
        return b"".join(self._recent)[-KEPT_BYTES:]

    @property
    def unwritten_bytes(self) -> int:
        """What waits for the log writer or is in its hand."""
        return self.put_bytes - self._dropped_bytes - self._settled_bytes

    @property
    def lost_bytes(self) -> int:
        """Bytes that will never be in the log: they waited for too long."""
        return self._dropped_bytes + self._given_up_bytes + self._lost_before_bytes

    def lost_before(self, lost_bytes: int) -> None:
        """Count what an earlier run could not write at its end."""
        self._lost_before_bytes += lost_bytes

    def put(self, item: Item) -> None:
        """Queue an item for the log."""
        self._queue.append(item)
        if type(item) is Chunk:
            budget = self._budget
            size = len(item.data)
            self.put_bytes += size
            budget.put_bytes += size
            if len(self._queue) > _MERGE_ABOVE:
                self._merge()
            if (
                self.put_bytes - self._dropped_bytes - self._settled_bytes > MAX_UNWRITTEN
                or budget.put_bytes - budget.dropped_bytes - budget.settled_bytes
                > budget.limit_bytes
            ):
                self._relieve()
        if self.signal is not None and not self.signal.is_set():
            self.signal.set()

    def unhold(self) -> deque[Item]:
        """Return what has no numbers yet, to be queued again with `requeue`."""
        self.is_held = False
        with self._lock:
            items, self._queue = self._queue, deque()
        return items

    def requeue(self, items: Iterable[Item]) -> None:
        """Queue items that were counted before."""
        self._queue.extend(items)
        if self.signal is not None:
            self.signal.set()

    def take(self) -> deque[Item]:
        """Return all items, oldest first. They count as unwritten until `settle`."""
        items: deque[Item] = deque()
        if self.is_held:
            return items
        with self._lock:
            queue = self._queue  # the loop may append while we take
            for _ in range(len(queue)):
                items.append(queue.popleft())
        return items

    def put_back(self, items: Iterable[Item]) -> None:
        """Return what could not be written, oldest first."""
        with self._lock:
            self._queue.extendleft(reversed(list(items)))

    def settle(self, *, written_bytes: int = 0, lost_bytes: int = 0) -> None:
        """Note that taken bytes are in the log, or will never be."""
        self._given_up_bytes += lost_bytes
        self._settled_bytes += written_bytes + lost_bytes
        self._budget.settled_bytes += written_bytes + lost_bytes

    def close(self) -> None:
        """Leave the budget; the port is gone."""
        self._budget.rings.remove(self)
        self._budget.dropped_bytes += self.unwritten_bytes

    def _relieve(self) -> None:
        while self.unwritten_bytes > MAX_UNWRITTEN and self._drop():
            pass
        while self._budget.unwritten_bytes > self._budget.limit_bytes:
            if not max(self._budget.rings, key=lambda ring: ring.unwritten_bytes)._drop():
                break

    def _merge(self) -> None:
        """Put the newest two chunks together: single bytes that wait would take 200 each."""
        with self._lock:
            if len(self._queue) < 2:
                return
            newest, before = self._queue[-1], self._queue[-2]
            if (
                isinstance(newest, Chunk)
                and isinstance(before, Chunk)
                and len(before.data) + len(newest.data) <= POINT_EVERY
                and newest.mono_ns - before.last_mono_ns < PAUSE_NS
            ):
                self._queue.pop()
                self._queue[-1] = Chunk(
                    before.data + newest.data,
                    before.mono_ns,
                    newest.last_mono_ns,
                    before.utc_ns,
                    before.seq,
                    before.filled,
                )

    def _drop(self) -> int:
        """Drop the oldest bytes for a Gap in their place; return how many."""
        passed: list[Item] = []
        dropped = 0
        with self._lock:
            while self._queue and dropped < DROP_BYTES:
                item = self._queue.popleft()
                if isinstance(item, Chunk):
                    dropped += len(item.data)
                    item = Gap(Place.LOG, len(item.data), item.seq, item.mono_ns, item.utc_ns)
                last = passed[-1] if passed else None
                if _is_lost_here(item) and _is_lost_here(last):
                    passed[-1] = replace(last, lost_bytes=last.lost_bytes + item.lost_bytes)
                else:
                    passed.append(item)
            self._queue.extendleft(reversed(passed))
        self._dropped_bytes += dropped
        self._budget.dropped_bytes += dropped
        return dropped


def _is_lost_here(item: Item | None) -> TypeGuard[Gap]:
    return isinstance(item, Gap) and item.place is Place.LOG
