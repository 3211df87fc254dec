"""The core's end of the agent's socket, with a real log and a real database behind it."""

from __future__ import annotations

import asyncio
import functools
import socket
from collections.abc import Callable
from pathlib import Path
from typing import Any

from saved_log import SavedLog
from serialwatch.agent import process
from serialwatch.bundled import bundled_dir
from serialwatch.records import Incident, Line, Report
from serialwatch.service.memories import save_run, take_memory
from serialwatch.store.incidents import save_change
from serialwatch.store.late_results import late_result_from_json, save_late_result
from serialwatch.store.log_reader import PortLog
from serialwatch.store.reports import commit_report
from serialwatch.store.runs import Trace, load_trace, trace_from_json
from serialwatch.store.sqlite_file import open_file
from serialwatch.wire import Json, incident_to_json, pack, receive, report_from_json

NOW_NS = 1_790_000_000_000_000_000

# Each agent reads the pages that ship; in this process once is enough.
process.load_knowledge = functools.cache(process.load_knowledge)


class Board:
    """A port's log on disk under `state_dir`."""

    def __init__(self, state_dir: Path, port: str = "dut1") -> None:
        self.port = port
        self._log_dir = state_dir / "log"
        self._log = SavedLog(self._log_dir, port)
        self._boot = 0

    def prints(self, text: str | bytes, boot_at: bytes = b"") -> None:
        """Append lines; each that begins with `boot_at` begins another boot."""
        data = text.encode() if isinstance(text, str) else text
        for raw in data.strip(b"\n").split(b"\n"):
            if boot_at and raw.startswith(boot_at):
                self._boot += 1
                self._log.boot(self._boot)
            self._log.add(raw)

    @property
    def lines(self) -> list[Line]:
        """Return what is on disk."""
        return list(PortLog(self._log_dir / self.port, self.port).lines())


class FakeCore:
    """Answers what the agent asks and keeps it; `async with`."""

    def __init__(self, state_dir: Path, **agent: Any) -> None:
        self.state_dir = state_dir
        self.reports: list[Report] = []
        self.memories: list[Json] = []
        self.ended: list[str] = []  # runs, in the order in which they ended
        self.inquiries: list[Json] = []
        self.runs: dict[str, list[Trace]] = {}  # what came of each run, step by step
        self.done: list[tuple[int, bool]] = []
        self.beats = 0
        self.pongs: list[int] = []
        self.ports: Json = {"dut1": {"state": "up", "writer": ""}}
        self.skill_dirs = [bundled_dir("skills")]
        self.refuses: set[str] = set()  # operations that fail
        self.asked: list[tuple[str, Json]] = []
        self.answers: dict[str, Callable[[Json], Json]] = {}  # of operations, by name
        self._agent = agent
        self._db = open_file(state_dir / "serialwatch.db")
        self._queue_ids = 0
        self._changed = asyncio.Event()
        self._tasks: list[asyncio.Task[None]] = []
        self._writer: asyncio.StreamWriter | None = None

    async def __aenter__(self) -> FakeCore:
        ours, theirs = socket.socketpair()
        theirs.setblocking(False)
        reader = await self.connect(ours)
        self._tasks = [
            asyncio.create_task(self._listen(reader), name="core"),
            asyncio.create_task(process.serve(theirs, {}), name="agent"),
        ]
        return self

    async def __aexit__(self, *exc: object) -> None:
        self.send({"kind": "stop"})
        async with asyncio.timeout(10):
            await self._tasks[-1]
        self.close()
        await asyncio.gather(*self._tasks)

    async def connect(self, ours: socket.socket) -> asyncio.StreamReader:
        """Say hello over our end of a pair."""
        ours.setblocking(False)
        reader, self._writer = await asyncio.open_connection(sock=ours)
        self.send(
            {
                "kind": "hello",
                "state_dir": str(self.state_dir),
                "agent": self._agent,
                "skill_dirs": [str(folder) for folder in self.skill_dirs],
                "knowledge_dirs": [str(bundled_dir("config/knowledge"))],
                "roles_dirs": [str(bundled_dir("config/roles"))],
                "ports": {},
            }
        )
        return reader

    @property
    def traces(self) -> list[Trace]:
        """Return the runs that have ended, whole, in the order in which they did."""
        return [trace for run_id in self.ended if (trace := load_trace(self._db, run_id))]

    def close(self) -> None:
        """Hang up."""
        if self._writer is not None:
            self._writer.close()
        self._db.close()

    def send(self, message: Json) -> None:
        assert self._writer is not None
        self._writer.write(pack(message))

    def wake(self, phase: str, incident: Incident) -> int:
        """Store an incident and wake the agent for it; return the row of the queue."""
        self._queue_ids += 1
        save_change(self._db, incident)
        self.send(
            {
                "kind": "wake",
                "phase": phase,
                "queue_id": self._queue_ids,
                "incident": incident_to_json(incident),
            }
        )
        return self._queue_ids

    async def until(self, is_so: Callable[[], object], limit_s: float = 10.0) -> None:
        """Wait for what the agent sends to make something true."""
        async with asyncio.timeout(limit_s):
            while not is_so():
                self._changed.clear()
                await self._changed.wait()

    async def finished(self, queue_id: int) -> bool:
        """Wait until a row of the queue is done; return whether well."""
        await self.until(lambda: any(q == queue_id for q, _ in self.done))
        return next(ok for q, ok in self.done if q == queue_id)

    async def _listen(self, reader: asyncio.StreamReader) -> None:
        while (message := await receive(reader)) is not None:
            match message["kind"]:
                case "beat":
                    self.beats += 1
                case "pong":
                    self.pongs.append(message["id"])
                case "ask":
                    self.send({"kind": "reply", "id": message["id"], **self._answer(message)})
            self._changed.set()

    def _answer(self, message: Json) -> Json:
        op, body = message["op"], message["body"]
        self.asked.append((op, body))
        if op in self.refuses:
            return {"ok": False, "error": f"{op} is refused"}
        if op in self.answers:
            return {"ok": True, "body": self.answers[op](body)}
        answer: Any = {}
        match op:
            case "report":
                report = report_from_json(body["report"])
                commit_report(self._db, report, body["run_id"])
                self.reports.append(report)
            case "memory":
                answer = take_memory(self._db, body, NOW_NS)
                if "refused" not in answer:
                    self.memories.append(body)
            case "run":
                trace = trace_from_json(body)
                save_run(self._db, trace, NOW_NS)
                self.runs.setdefault(trace.run.id, []).append(trace)
                if trace.run.ended_utc_ns is not None:
                    self.ended.append(trace.run.id)
            case "inquiry":
                self.inquiries.append(body)
                answer = {"id": len(self.inquiries)}
            case "late":
                save_late_result(self._db, late_result_from_json(body, NOW_NS))
            case "done":
                self.done.append((body["queue_id"], body["ok"]))
            case "ports":
                answer = self.ports
        return {"ok": True, "body": answer}
