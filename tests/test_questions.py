"""Questions in the core: taken in, handed to the agent, followed, stored."""

from __future__ import annotations

import itertools
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
import pytest_asyncio

from serialwatch.api.bench import BenchError, Who
from serialwatch.records import Report
from serialwatch.service.questions import (
    MAX_MESSAGES,
    MAX_OPEN,
    MAX_OPEN_OF_ONE,
    MAX_SENT,
    Questions,
)
from serialwatch.store.answers import load_answers
from serialwatch.store.database import Database
from serialwatch.store.runs import QueueItem, load_queue
from serialwatch.wire import Json, report_to_json

ANNA = Who(1000, "anna", 1)
ANSWER = Report(
    0, 1, "rules", "It is up.", "unknown", "note", "likely", 0.7,
)  # fmt: skip


class Log:
    """A log that is on disk, in place of the writer with its threads."""

    async def synced(self, port: str, seq: int) -> bool:
        return True


class Desk:
    """Questions over a real database; `sent` is what the agent got."""

    def __init__(self, db: Database) -> None:
        self.db = db
        self.sent: list[Json] = []
        self.steps: list[tuple[str, Json]] = []
        self.is_there = True
        numbers = itertools.count(1)
        writer: Any = Log()
        self.questions = Questions(
            db, writer, lambda: next(numbers), self._send, lambda *step: self.steps.append(step)
        )

    def _send(self, message: Json) -> bool:
        if self.is_there:
            self.sent.append(message)
        return self.is_there

    async def queue(self) -> list[QueueItem]:
        states = ("queued", "running", "done", "failed")
        return await self.db.run(lambda db: load_queue(db, states=states))


@pytest_asyncio.fixture
async def desk(tmp_path: Path) -> AsyncIterator[Desk]:
    """Return one whose database is open."""
    db = Database(tmp_path / "serialwatch.db")
    db.start()
    await db.opened()
    yield Desk(db)
    await db.stop()


def answer(session_id: str, **more: Any) -> Json:
    return {
        "run_id": "0123456789ab", "session_id": session_id, "user": "anna", "port": "dut1",
        "question": "is it up?", "asked_utc_ns": 10**18, "report": report_to_json(ANSWER),
        "text": "It is up.", "role": "bench-assistant", "is_answered": True, "examples": [],
    } | more  # fmt: skip


def step(session_id: str, n: int = 1) -> Json:
    return {
        "run_id": "0123456789ab", "session_id": session_id, "n": n, "port": "dut1",
        "skill": "port-status", "params": "port=dut1", "told": "up", "ms": 7, "status": "success",
    }  # fmt: skip


async def test_a_question_is_queued_sent_followed_and_stored(desk: Desk) -> None:
    asked = desk.questions.ask("is it up?", "dut1", ANNA, 7200)
    desk.questions.step(step(asked.session_id))
    await desk.questions.answer(answer(asked.session_id))
    desk.questions.done(asked.queue_id)

    (order,) = desk.sent
    assert (order["kind"], order["question"], order["utc_offset_s"]) == ("ask", "is it up?", 7200)
    kinds = [asked.messages.get_nowait()["kind"] for _ in range(asked.messages.qsize())]
    assert kinds == ["step", "answer"]
    assert desk.steps[0][0] == "dut1"
    (item,) = await desk.queue()
    assert (item.kind, item.state, item.body["user"]) == ("question", "done", "anna")
    (stored,) = await desk.db.run(load_answers)
    assert (stored.user_id, stored.report["title"]) == ("anna", "It is up.")
    assert desk.questions.orders() == []


async def test_a_question_waits_for_an_agent_that_is_not_there(desk: Desk) -> None:
    desk.is_there = False
    asked = desk.questions.ask("is it up?", "", ANNA, 0)

    assert [order["session_id"] for order in desk.questions.orders()] == [asked.session_id]


async def test_a_question_that_ends_the_agent_again_and_again_is_given_up(desk: Desk) -> None:
    asked = desk.questions.ask("is it up?", "", ANNA, 0)
    for _ in range(MAX_SENT - 1):
        assert desk.questions.orders()

    assert desk.questions.orders() == []
    told = asked.messages.get_nowait()
    assert told["kind"] == "error"
    assert told["message"] == f"the agent ended {MAX_SENT} times over it"
    assert [item.state for item in await desk.queue()] == ["failed"]


async def test_who_leaves_ends_the_search(desk: Desk) -> None:
    asked = desk.questions.ask("is it up?", "", ANNA, 0)
    desk.questions.leave(asked)
    desk.questions.leave(asked)

    assert desk.sent[1:] == [{"kind": "cancel", "session_id": asked.session_id}]
    assert [item.state for item in await desk.queue()] == ["failed"]


async def test_who_leaves_after_the_answer_ends_nothing(desk: Desk) -> None:
    asked = desk.questions.ask("is it up?", "", ANNA, 0)
    await desk.questions.answer(answer(asked.session_id))
    desk.questions.leave(asked)

    assert len(desk.sent) == 1


async def test_an_agent_that_gives_up_is_an_error(desk: Desk) -> None:
    asked = desk.questions.ask("is it up?", "", ANNA, 0)
    desk.questions.done(asked.queue_id)

    assert asked.messages.get_nowait()["kind"] == "error"


async def test_one_user_cannot_ask_without_end(desk: Desk) -> None:
    for _ in range(MAX_OPEN_OF_ONE):
        desk.questions.ask("is it up?", "", ANNA, 0)

    with pytest.raises(BenchError, match=f"{MAX_OPEN_OF_ONE} of yours are not answered yet"):
        desk.questions.ask("is it up?", "", ANNA, 0)
    for number in range(MAX_OPEN - MAX_OPEN_OF_ONE):
        desk.questions.ask("is it up?", "", Who(number, f"user{number}", 1), 0)
    with pytest.raises(BenchError, match=f"{MAX_OPEN} are not answered yet"):
        desk.questions.ask("is it up?", "", Who(99, "late", 1), 0)


async def test_a_question_of_an_earlier_daemon_is_answered_though_nobody_waits(
    desk: Desk,
) -> None:
    body = {"session_id": "ask-1", "question": "is it up?", "port": "", "user": "anna",
            "at": 10**18, "utc_offset_s": 0}  # fmt: skip
    item = QueueItem(7, "question", 10, "", None, "", body, "queued", 10**18, None)
    desk.questions.resume(item)
    desk.questions.resume(item)
    await desk.questions.answer(answer("ask-1"))

    assert [order["queue_id"] for order in desk.sent] == [7]
    assert len(await desk.db.run(load_answers)) == 1


async def test_a_follower_that_does_not_read_still_gets_the_answer(desk: Desk) -> None:
    asked = desk.questions.ask("is it up?", "", ANNA, 0)
    for n in range(MAX_MESSAGES + 10):
        desk.questions.step(step(asked.session_id, n))
    await desk.questions.answer(answer(asked.session_id))
    told = [asked.messages.get_nowait() for _ in range(asked.messages.qsize())]

    assert len(told) == MAX_MESSAGES
    assert told[-1]["kind"] == "answer"


@pytest.mark.parametrize(
    "more", [{"report": {}}, {"report": report_to_json(ANSWER) | {"incident": 3}}]
)
async def test_what_is_no_answer_is_refused(desk: Desk, more: Json) -> None:
    asked = desk.questions.ask("is it up?", "", ANNA, 0)

    with pytest.raises((KeyError, ValueError)):
        await desk.questions.answer(answer(asked.session_id, **more))
    assert await desk.db.run(load_answers) == []
