"""Questions of people: kept in the agent's queue, followed while they are answered, and stored."""

from __future__ import annotations

import asyncio
import logging
import secrets
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial

from serialwatch.api.bench import BenchError, Who
from serialwatch.records import Report
from serialwatch.store import runs as run_rows
from serialwatch.store.answers import AnswerRow, load_answers, save_answer
from serialwatch.store.database import Database, StoreError
from serialwatch.store.log_writer import LogWriter
from serialwatch.wire import Json, iso, report_from_json

MAX_OPEN = 32  # questions that are not answered yet
MAX_OPEN_OF_ONE = 8  # of one user
MAX_MESSAGES = 500  # that wait for one follower; what comes then is not told
MAX_SENT = 3  # times that a question is handed to an agent: it may be what ends the agent
MAX_STEP = 400  # characters of a text of a step

log = logging.getLogger(__name__)

OnStep = Callable[[str, Json], None]  # port, what is told of a step


@dataclass(slots=True)
class Open:
    """A question that is not answered yet; `messages` come as the agent works on it."""

    queue_id: int
    session_id: str
    user: str
    order: Json
    messages: asyncio.Queue[Json] = field(default_factory=lambda: asyncio.Queue(MAX_MESSAGES))
    is_followed: bool = True
    is_answered: bool = False
    sent: int = 0  # times that it was handed to an agent

    def tell(self, message: Json) -> None:
        """Tell whoever follows it; a follower who does not read loses steps, not the answer."""
        if self.messages.full() and message["kind"] != "step":
            self.messages.get_nowait()
        if not self.messages.full():
            self.messages.put_nowait(message)


class Questions:
    """Every question from asking to answer. Loop only."""

    def __init__(
        self,
        db: Database,
        writer: LogWriter,
        take_queue_id: Callable[[], int],
        send: Callable[[Json], bool],
        on_step: OnStep,
    ) -> None:
        self._db = db
        self._writer = writer
        self._take_queue_id = take_queue_id
        self._send = send
        self._on_step = on_step
        self._open: dict[str, Open] = {}  # by session

    def ask(self, text: str, port: str, who: Who, utc_offset_s: int) -> Open:
        """Take a question in and hand it to the agent; it survives both of us.

        Raises:
            BenchError: too many are open.

        """
        mine = sum(each.user == who.user and each.is_followed for each in self._open.values())
        if mine >= MAX_OPEN_OF_ONE or len(self._open) >= MAX_OPEN:
            number = f"{mine} of yours are" if mine >= MAX_OPEN_OF_ONE else f"{MAX_OPEN} are"
            raise BenchError("not_now", f"{number} not answered yet", "wait for an answer")
        queue_id = self._take_queue_id()
        session_id = f"ask-{secrets.token_hex(6)}"
        body: Json = {
            "session_id": session_id,
            "question": text,
            "port": port,
            "user": who.user,
            "at": time.time_ns(),
            "utc_offset_s": utc_offset_s,
        }
        self._db.keep(
            partial(run_rows.enqueue, kind="question", id=queue_id, port=port, body=body),
            f"question {queue_id}",
        )
        return self._begun(queue_id, body, is_followed=True)

    async def stored(self, session_id: str, limit: int) -> list[Json]:
        """Return answers, the newest first; of one session, or all.

        Raises:
            BenchError: the database cannot be read.

        """
        job = partial(load_answers, session_id=session_id, limit=limit)
        try:
            rows = await self._db.run(job)
        except StoreError as exc:
            raise BenchError("failed", f"the database cannot be read: {exc}") from exc
        return [_answer_to_json(row) for row in rows]

    def leave(self, question: Open) -> None:
        """Note that nobody waits for the answer any more: it is not looked for further."""
        question.is_followed = False
        if not question.is_answered and question.session_id in self._open:
            self._ended(question, is_ok=False)
            self._send({"kind": "cancel", "session_id": question.session_id})

    def resume(self, item: run_rows.QueueItem) -> None:
        """Take up a question that an earlier daemon left; its answer is stored, nobody waits."""
        body = item.body
        if isinstance(body.get("question"), str) and isinstance(body.get("session_id"), str):
            if body["session_id"] not in self._open:
                self._begun(item.id, body, is_followed=False)
            return
        self._db.post(partial(run_rows.finish, id=item.id, is_ok=False))

    def orders(self) -> list[Json]:
        """Return the questions for an agent that has just started."""
        for question in list(self._open.values()):
            question.sent += 1
            if question.sent > MAX_SENT:
                log.error("%s: given up: the agent ended %d times over it", question.session_id,
                          MAX_SENT)  # fmt: skip
                self._failed(question, f"the agent ended {MAX_SENT} times over it")
        return [question.order for question in self._open.values()]

    def step(self, body: Json) -> None:
        """Tell of a skill call as it happened."""
        told: Json = {
            "run_id": str(body["run_id"])[:64],
            "session_id": str(body["session_id"])[:64],
            "n": int(body["n"]),
            "skill": str(body["skill"])[:64],
            "params": str(body["params"])[:MAX_STEP],
            "told": str(body["told"])[:MAX_STEP],
            "ms": int(body["ms"]),
            "status": str(body["status"])[:32],
        }
        self._on_step(str(body.get("port", ""))[:32], told)
        if (question := self._open.get(told["session_id"])) is not None:
            question.tell({"kind": "step", **told})

    async def answer(self, body: Json) -> None:
        """Store an answer, and hand it to whoever waits for it.

        Raises:
            KeyError, TypeError, ValueError: it is none.

        """
        report = report_from_json(body["report"])
        if report.incident:
            raise ValueError("an answer is about no incident")
        await self._logged(report)
        row = AnswerRow(
            session_id=str(body["session_id"]),
            run_id=str(body["run_id"]),
            user_id=str(body["user"]),
            port=str(body["port"]),
            question=str(body["question"]),
            report=body["report"],
            asked_utc_ns=int(body["asked_utc_ns"]),
            answered_utc_ns=time.time_ns(),
        )
        self._db.keep(partial(save_answer, row=row), f"answer {row.session_id}")
        question = self._open.get(row.session_id)
        if question is not None:
            question.is_answered = True
            question.tell(
                {
                    "kind": "answer",
                    "session_id": row.session_id,
                    "run_id": row.run_id,
                    "role": str(body["role"]),
                    "is_answered": bool(body["is_answered"]),
                    "report": body["report"],
                    "text": str(body["text"]),
                    "examples": [str(each) for each in body["examples"]],
                    "choices": [str(each) for each in body.get("choices", ())],
                }
            )

    def done(self, queue_id: int) -> None:
        """Note that the agent needs nothing of a question any more."""
        for question in list(self._open.values()):
            if question.queue_id == queue_id:
                self._failed(question, "the agent could not answer it; its log says why")

    async def _logged(self, report: Report) -> None:
        """Wait until the log is on disk past every line that an answer cites."""
        cited: dict[str, int] = {}
        for told in report.conclusions:
            for evidence in told.evidence:
                cited[evidence.port] = max(cited.get(evidence.port, 0), evidence.seq)
        for port, seq in cited.items():
            if not await self._writer.synced(port, seq):
                log.warning("%s: an answer cites lines that are not on disk", port)

    def _begun(self, queue_id: int, body: Json, *, is_followed: bool) -> Open:
        order = {"kind": "ask", "queue_id": queue_id, **body}
        question = Open(
            queue_id, body["session_id"], str(body.get("user", "")), order, is_followed=is_followed
        )
        self._open[question.session_id] = question
        if self._send(order):
            question.sent += 1
        return question

    def _failed(self, question: Open, why: str) -> None:
        """End a question; one that was answered needs no error."""
        if not question.is_answered:
            question.tell({"kind": "error", "code": "failed", "message": why, "hint": ""})
        self._ended(question, is_ok=question.is_answered)

    def _ended(self, question: Open, *, is_ok: bool) -> None:
        self._open.pop(question.session_id, None)
        self._db.post(partial(run_rows.finish, id=question.queue_id, is_ok=is_ok))


def _answer_to_json(row: AnswerRow) -> Json:
    return {
        "session_id": row.session_id,
        "run_id": row.run_id,
        "user": row.user_id,
        "port": row.port,
        "question": row.question,
        "asked_at": iso(row.asked_utc_ns),
        "answered_at": iso(row.answered_utc_ns),
        "report": row.report,
    }
