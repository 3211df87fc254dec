"""The thread that owns the SQLite file: everybody else sends it jobs."""

from __future__ import annotations

import asyncio
import logging
import os
import sqlite3
import threading
import time
from collections import Counter, deque
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, TypeVar

import sqlite_utils

from serialwatch.store.sqlite_file import (
    DamagedError,
    NewerError,
    is_damage,
    is_held,
    is_sick,
    move_aside,
    open_file,
    problem_of,
)
from serialwatch.trouble import Trouble

log = logging.getLogger(__name__)

T = TypeVar("T")
Job = Callable[[sqlite_utils.Database], T]

MAX_WAITING = 10_000  # jobs; more are refused
MAX_KEPT = 256  # incidents and reports that wait for a database that can be written again
RETRY_S, MAX_RETRY_S = 0.25, 5.0
LOOK_S = 1.0  # how often the file is looked for where it should be
LAST_BUSY_MS = 500  # to wait for another process at the end


class StoreError(Exception):
    """The database cannot be used now; `problem` says why and what helps."""

    def __init__(self, path: Path, problem: str) -> None:
        super().__init__(f"{path}: {problem}")
        self.path = path
        self.problem = problem


class SchemaTooNewError(StoreError):
    """A newer serialwatch wrote the database; waiting does not help."""


@dataclass(slots=True, eq=False)
class _Waiting:
    """A job that waits for the thread."""

    fn: Job[Any]
    kind: Literal["run", "post", "keep"]
    is_durable: bool = False
    key: str = ""
    is_replaceable: bool = False
    answer: asyncio.Future[Any] | None = None
    met_damage: bool = False

    def done(self, result: object) -> None:
        self._answer(lambda answer: answer.set_result(result))

    def failed(self, exc: Exception) -> None:
        self._answer(lambda answer: answer.set_exception(exc))

    def dropped(self) -> None:
        self._answer(lambda answer: answer.cancel())

    def _answer(self, how: Callable[[asyncio.Future[Any]], object]) -> None:
        answer = self.answer
        if answer is None:
            return

        def give() -> None:
            if not answer.done():  # who asked may have stopped waiting
                how(answer)

        with suppress(RuntimeError):  # a closed loop: nobody waits any more
            answer.get_loop().call_soon_threadsafe(give)


class Database:
    """Runs jobs on the SQLite file in its own thread, one transaction each, in order.

    A job gets the open `sqlite_utils.Database`, may use it during the call only, and raises to
    undo what it did. While the file cannot be written the daemon goes on: `run` fails at once,
    what was handed to `post` and `keep` waits, and the file is tried again and again.
    """

    def __init__(self, path: Path) -> None:
        """Prepare; nothing is opened before `start`."""
        self.path = path
        self.dropped_posts = 0  # for lack of room, or because they failed
        self.dropped_keeps = 0
        self.moved_aside: tuple[Path, ...] = ()  # damaged files, oldest first
        self.losses: tuple[str, ...] = ()  # why it was begun anew, oldest first
        self._thread: threading.Thread | None = None
        self._changed = threading.Condition()  # guards what follows
        self._queue: deque[_Waiting] = deque()
        self._kept: Counter[str] = Counter()  # jobs by key, the one that runs now among them
        self._error: StoreError | None = None
        self._is_tried = False  # opening the file was tried once
        self._is_stopping = False
        self._is_stopped = False
        self._stops: list[_Waiting] = []
        self._no_room = Trouble()  # for one more that would have to wait
        self._trouble = Trouble()  # from here on: of the thread alone
        self._db: sqlite_utils.Database | None = None
        self._retry_s = RETRY_S
        self._retry_at_s = 0.0
        self._file: os.stat_result | None = None  # what is open
        self._look_at_s = 0.0

    @property
    def healthy(self) -> bool:
        """Tell whether what was written last got written."""
        return self._is_tried and self._error is None and not self._is_stopped

    @property
    def problem(self) -> str:
        """Return why it cannot be used, with a remedy; "" while it can."""
        return self._error.problem if self._error else ""

    @property
    def unsaved(self) -> int:
        """Return how many incidents and reports are not on disk yet."""
        return len(self._kept)

    def is_unsaved(self, key: str) -> bool:
        """Tell whether something of this key was handed to `keep` and is not on disk yet."""
        return key in self._kept

    def start(self) -> None:
        """Start the thread, which opens the file and brings its tables up to date."""
        self._thread = threading.Thread(target=self._work, name="sqlite", daemon=True)
        self._thread.start()

    async def stop(self) -> None:
        """Do what waits, close the file in order and end the thread."""
        if self._thread is None:
            return
        answer: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        with self._changed:
            self._is_stopping = True
            stop = _Waiting(_nothing, "run", answer=answer)
            if self._is_stopped:
                stop.done(None)
            else:
                self._stops.append(stop)
            self._changed.notify()
        await asyncio.shield(answer)
        self._thread.join()  # nothing is left for it to do

    async def opened(self) -> None:
        """Wait until opening the file was tried.

        Raises:
            SchemaTooNewError: a newer serialwatch wrote it.
            StoreError: it cannot be used now; it is tried again.

        """
        await self.run(_nothing)

    async def run(self, fn: Job[T], durable: bool = False) -> T:
        """Run a job and return what it returns; raises what it raises.

        Args:
            fn: the job.
            durable: when this returns, the result has reached the disk, not only its cache.

        Raises:
            StoreError: the database cannot be written now. Nothing was done.

        """
        answer: asyncio.Future[T] = asyncio.get_running_loop().create_future()
        self._enqueue(_Waiting(fn, "run", durable, answer=answer))
        return await answer

    def post(self, fn: Job[object]) -> bool:
        """Run a job some time; return False, and count it, if there is no room for it.

        It waits while the database cannot be written. If it raises, that is logged.
        """
        try:
            self._enqueue(_Waiting(fn, "post"))
        except StoreError:
            self.dropped_posts += 1
            return False
        return True

    def keep(
        self, fn: Job[T], key: str, *, replaces: bool = False, durable: bool = False
    ) -> asyncio.Future[T]:
        """Store an incident, a report or a deed as soon as that is possible.

        Args:
            fn: the job; it runs in order with all others.
            key: what it stores, e.g. `incident 12`; at most 256 keys wait.
            replaces: of several waiting jobs with this key and this flag only the newest runs.
            durable: it is done when it has reached the disk, not only its cache.

        Returns:
            What the job returns, once it is stored. Cancelled if it was replaced, if there was no
            room for it (counted), or if the daemon ends before it could be stored.

        """
        answer: asyncio.Future[T] = asyncio.get_running_loop().create_future()
        try:
            self._enqueue(_Waiting(fn, "keep", durable, key, replaces, answer))
        except StoreError as exc:
            self.dropped_keeps += 1
            log.debug("%s is not stored: %s", key, exc)
            answer.cancel()
        return answer

    def _enqueue(self, job: _Waiting) -> None:
        with self._changed:
            if self._is_stopping or self._is_stopped:
                raise StoreError(self.path, "closed")
            if job.kind == "run" and self._error is not None:
                raise self._refusal()
            if job.is_replaceable:
                self._drop_older(job.key)
            if len(self._queue) >= MAX_WAITING:
                raise self._too_many("a row", f"{MAX_WAITING} jobs wait already")
            if job.kind == "keep":
                if job.key not in self._kept and len(self._kept) >= MAX_KEPT:
                    raise self._too_many(job.key, f"{MAX_KEPT} others wait already")
                self._kept[job.key] += 1
            self._queue.append(job)
            self._changed.notify()

    def _too_many(self, what: str, problem: str) -> StoreError:
        """Return why one more is refused, and tell it, once a minute: there may be thousands."""
        if self._no_room.note(problem, time.monotonic()):
            dropped = self.dropped_keeps + self.dropped_posts
            log.error("%s: %s is not stored: %s (%d before)", self.path, what, problem, dropped)
        return StoreError(self.path, problem)

    def _refusal(self) -> StoreError:
        """Return a fresh error: one that is raised again and again would grow a traceback."""
        if self._error is None:
            return StoreError(self.path, "closed")
        return type(self._error)(self.path, self._error.problem)

    def _drop_older(self, key: str) -> None:
        for other in self._queue:
            if other.is_replaceable and other.key == key:
                self._queue.remove(other)
                self._release(other)
                other.dropped()
                return

    # In the thread

    def _work(self) -> None:
        try:
            self._try()
            while self._step():
                pass
            self._close(in_order=True)
        finally:
            self._end()

    def _step(self) -> bool:
        """Wait for one job, or for the time to try again, and do it; False at the end."""
        with self._changed:
            while self._error is None and not self._queue and not self._is_stopping:
                self._changed.wait()
            if self._error is not None:
                wait_s = self._retry_at_s - time.monotonic()
                if wait_s > 0 and not self._is_stopping:
                    self._changed.wait(wait_s)
                    return True
            elif not self._queue:
                return False
            job = self._queue.popleft() if self._error is None else None
        if self._is_stopping:
            self._hurry()
        if job is not None:
            self._do(job)
            return True
        self._try()
        return self._error is None or not self._is_stopping

    def _do(self, job: _Waiting) -> None:
        if not self._is_in_place():
            with self._changed:
                self._queue.appendleft(job)
            log.error("%s: deleted or replaced: begun anew", self.path)
            self.losses += ("was deleted or replaced",)
            self._close(in_order=False)
            self._try()
            return
        try:
            result = self._transact(job)
        except sqlite3.Error as exc:
            if is_sick(exc):
                self._put_back(job, exc)
            else:
                self._blame(job, exc)
        except Exception as exc:  # noqa: BLE001 - as in an executor: it is the caller's to handle
            self._blame(job, exc)
        else:
            with self._changed:
                self._release(job)
            job.done(result)

    def _is_in_place(self) -> bool:
        """Tell whether what is open can be found by others; SQLite itself does not look."""
        now_s = time.monotonic()
        if now_s < self._look_at_s or self._file is None:
            return True
        self._look_at_s = now_s + LOOK_S
        try:
            return os.path.samestat(os.stat(self.path), self._file)
        except FileNotFoundError:
            return False
        except OSError:
            return True  # SQLite will say what is wrong

    def _transact(self, job: _Waiting) -> Any:
        assert self._db is not None
        execute = self._db.conn.execute
        if job.is_durable:
            execute("PRAGMA synchronous=FULL")  # of no effect inside a transaction
        try:
            return _in_transaction(self._db, job.fn)
        finally:
            if job.is_durable:
                execute("PRAGMA synchronous=NORMAL")

    def _put_back(self, job: _Waiting, exc: sqlite3.Error) -> None:
        """Note that the file cannot be written, which is no fault of the job."""
        with self._changed:
            self._queue.appendleft(job)
        if is_damage(exc) and not job.met_damage:
            job.met_damage = True
            self._begin_anew(str(exc))
        else:
            self._sicken(exc)

    def _blame(self, job: _Waiting, exc: Exception) -> None:
        """Give what a job raised to who waits for it."""
        with self._changed:
            self._release(job)
        if job.kind == "run":
            job.failed(exc)
            return
        if job.kind == "keep":
            self.dropped_keeps += 1
        else:
            self.dropped_posts += 1
        log.error("%s is not stored", job.key or "a row", exc_info=exc)
        job.dropped()

    def _try(self) -> None:
        """Open the file if it is not open, and write to it."""
        try:
            if self._db is None:
                self._open()
            assert self._db is not None
            _in_transaction(self._db, _touch)
        except DamagedError as exc:
            self._begin_anew(str(exc))
        except NewerError as exc:
            self._fail(SchemaTooNewError(self.path, str(exc)))
        except sqlite3.Error as exc:
            if is_damage(exc):
                self._begin_anew(str(exc))
            else:
                self._sicken(exc)
        except OSError as exc:
            self._sicken(exc)
        else:
            self._heal()

    def _begin_anew(self, problem: str) -> None:
        """Move the damaged file out of the way and open a fresh one."""
        self._close(in_order=False)
        try:
            aside = move_aside(self.path)
            self.moved_aside += (aside,)
            self.losses += (f"was damaged and is now {aside.name}",)
            log.error("%s: damaged (%s): moved to %s, begun anew", self.path, problem, aside)
            self._open()
        except (DamagedError, OSError, sqlite3.Error) as exc:
            self._fail(StoreError(self.path, f"damaged ({problem}); beginning anew failed: {exc}"))
        else:
            self._heal()

    def _open(self) -> None:
        self._db = open_file(self.path)
        self._file = os.stat(self.path)

    def _heal(self) -> None:
        with self._changed:
            self._error = None
            self._is_tried = True
        self._retry_s = RETRY_S
        if self._trouble.note("", time.monotonic()):
            log.warning("%s: written again, after %.0f s", self.path, self._trouble.lasted_s)

    def _sicken(self, exc: OSError | sqlite3.Error) -> None:
        if not (isinstance(exc, sqlite3.Error) and is_held(exc)):
            self._close(in_order=False)  # what was opened read-only stays so
        self._fail(StoreError(self.path, problem_of(exc)))

    def _fail(self, error: StoreError) -> None:
        """Answer those who wait, and plan the next try."""
        with self._changed:
            waiting = len(self._queue)
            self._error = error
            self._is_tried = True
            asked = [job for job in self._queue if job.kind == "run"]
            self._queue = deque(job for job in self._queue if job.kind != "run")
        for job in asked:
            job.failed(self._refusal())
        now_s = time.monotonic()
        match self._trouble.note(error.problem, now_s):
            case "begins":
                log.error("%s", error)
            case "lasts":
                lasted_s = self._trouble.lasted_s
                log.error("%s; for %.0f s, and %d rows wait", error, lasted_s, waiting)
        self._retry_at_s = now_s + self._retry_s
        self._retry_s = min(2 * self._retry_s, MAX_RETRY_S)

    def _hurry(self) -> None:
        """Wait for other programs only a moment from now on: the daemon ends."""
        if self._db is not None:
            self._db.conn.execute(f"PRAGMA busy_timeout={LAST_BUSY_MS}")

    def _close(self, *, in_order: bool) -> None:
        if self._db is None:
            return
        self._hurry()
        db, self._db = self._db, None
        with suppress(sqlite3.Error):  # a reader may hinder it; then the next start does it
            if in_order:
                db.conn.execute("PRAGMA wal_checkpoint(TRUNCATE)")
        with suppress(sqlite3.Error):
            db.conn.close()

    def _end(self) -> None:
        with self._changed:
            self._is_stopped = True
            left, self._queue = self._queue, deque()
            stops, self._stops = self._stops, []
            self._kept.clear()
        kinds = Counter(job.kind for job in left)
        self.dropped_posts += kinds["post"]
        self.dropped_keeps += kinds["keep"]
        if kinds["keep"] or kinds["post"]:
            log.error(
                "%s: not stored: %d incidents or reports, %d other rows",
                self.path,
                kinds["keep"],
                kinds["post"],
            )
        for job in left:
            if job.kind == "run":
                job.failed(self._refusal())
            else:
                job.dropped()
        for stop in stops:
            stop.done(None)

    def _release(self, job: _Waiting) -> None:
        """Let go of a job's key."""
        if job.kind == "keep":
            self._kept[job.key] -= 1
            if not self._kept[job.key]:
                del self._kept[job.key]


def _in_transaction(db: sqlite_utils.Database, fn: Job[T]) -> T:
    """Run `fn` in one transaction that waits for its turn to write.

    One that began as a reader could not become a writer while another process writes.
    """
    db.conn.execute("BEGIN IMMEDIATE")
    try:
        result = fn(db)
        db.conn.execute("COMMIT")
    except BaseException:
        if db.conn.in_transaction:
            db.conn.execute("ROLLBACK")
        raise
    return result


def _touch(db: sqlite_utils.Database) -> None:
    """Write one page, whatever it holds: reading would not tell that the disk is full."""
    db.conn.execute("PRAGMA user_version = 1")


def _nothing(db: sqlite_utils.Database) -> None:
    """Do nothing, in a transaction."""
