"""What the core does for the agent: it is woken here, and its results are stored here."""

from __future__ import annotations

import logging
import time
from collections.abc import Awaitable, Callable, Sequence
from functools import partial
from typing import Any, Protocol, cast, get_args

import sqlite_utils

from serialwatch.api.bench import Bench, PortView, port_to_json
from serialwatch.metrics import Metrics
from serialwatch.records import Hit, Incident, IncidentChange, Report
from serialwatch.service.agent_link import AgentLink
from serialwatch.service.agent_notes import keep_snapshot, set_mark
from serialwatch.service.approvals import Approvals
from serialwatch.service.faults import PHASES, Faults, Phase
from serialwatch.service.memories import save_run, take_memory
from serialwatch.service.model_use import take_answer, take_endpoint, take_spent
from serialwatch.service.questions import Questions
from serialwatch.service.run_counts import count_run
from serialwatch.service.runs import ANSWERED, answer_waiting, take_inquiry
from serialwatch.store import incidents as incident_rows
from serialwatch.store import memories as memory_rows
from serialwatch.store import reports as report_rows
from serialwatch.store import runs as run_rows
from serialwatch.store.database import Database, StoreError
from serialwatch.store.late_results import late_result_from_json, save_late_result
from serialwatch.store.log_writer import LogWriter
from serialwatch.store.memory_gate import MemoryType
from serialwatch.store.templates import PortTemplates, save_templates
from serialwatch.titles import normalise
from serialwatch.triggers.ruleset import Told
from serialwatch.wire import Json, incident_to_json, report_from_json

log = logging.getLogger(__name__)

Job = Callable[[sqlite_utils.Database], None]

NOVEL = "log.novel"  # the detector that lines new to a board belong to
MAX_PENDING = 1024  # wakes; the oldest is forgotten, its row in the queue is not
MAX_UNSTORED = 256  # reports kept in memory while the log or the database cannot be written


class ReportListener(Protocol):
    """Whoever wants to know about reports; may neither block nor raise."""

    def on_report(self, port: str, report: Report) -> None:
        """Take a new report or revision."""


class AgentDesk:
    """Wakes the agent, answers what it asks, and keeps what cannot be stored yet."""

    def __init__(
        self,
        db: Database,
        writer: LogWriter,
        metrics: Metrics,
        listener: ReportListener,
        hello: Callable[[], Json],
        views: Callable[[], Sequence[PortView]],
        hands_on: Callable[[str], Json],
        find_detector: Callable[[str], Told | None],
    ) -> None:
        self.link = AgentLink(self._greet, self._answer)
        self._hello = hello
        self._pending: dict[int, Json] = {}  # wakes that are not done, by queue id
        self.unstored: dict[tuple[int, int], Report] = {}  # by incident and revision
        # Those of them whose lines are not on disk: how far each log must be, and how to store it.
        self._unlogged: dict[tuple[int, int], tuple[dict[str, int], Job]] = {}
        self.faults: Faults | None = None
        self.bench: Bench | None = None
        self.questions: Questions | None = None
        self.approvals: Approvals | None = None
        self.own_state: Callable[[], Awaitable[Json]] | None = None  # of the daemon itself
        self._db = db
        self._writer = writer
        self._metrics = metrics
        self._listener = listener
        self._views = views
        self._hands_on = hands_on
        self._find_detector = find_detector

    def wake(self, incident: Incident, phase: Phase, queue_id: int) -> None:
        """Let the agent look at an incident; if it is not there now, as soon as it is."""
        wake = {
            "kind": "wake",
            "phase": phase,
            "queue_id": queue_id,
            "incident": incident_to_json(incident),
        }
        while len(self._pending) >= MAX_PENDING:
            self._pending.pop(next(iter(self._pending)))
        self._pending[queue_id] = wake
        self.link.send(wake)

    def go_on(self, queue_id: int, order: Json) -> None:
        """Let the agent go on with a run for which a person has answered."""
        self._pending[queue_id] = order
        self.link.send(order)

    def _greet(self) -> list[Json]:
        """Return what an agent is told at its start; it has not asked any model yet."""
        self._metrics.breaker_state.set(0)
        asked = self.questions.orders() if self.questions else []
        return [{"kind": "hello", **self._hello()}, *self._pending.values(), *asked]

    async def resume(self) -> None:
        """Take up what an earlier run of the daemon did not get done.

        Raises:
            StoreError: the database cannot be read.

        """
        await self._db.run(run_rows.resume)
        for item in await self._db.run(run_rows.load_queue):
            if item.phase == ANSWERED and (order := await answer_waiting(self._db, item)):
                self.go_on(item.id, order)
            if item.kind == "question" and item.phase != ANSWERED and self.questions:
                self.questions.resume(item)
            if item.kind != "incident" or item.incident_id is None or item.id in self._pending:
                continue
            incident = await self._db.run(partial(incident_rows.load_incident, id=item.incident_id))
            if incident is not None and item.phase in PHASES:
                self.wake(incident, cast(Phase, item.phase), item.id)

    async def _answer(self, op: str, body: Json) -> Any:
        if op == "report":
            return await self._take_report(report_from_json(body["report"]), str(body["run_id"]))
        if op == "done":
            self._pending.pop(int(body["queue_id"]), None)
            if self.questions is not None:
                self.questions.done(int(body["queue_id"]))
            # It waits for a database that heals: else the next start would do the work again.
            self._db.post(
                partial(run_rows.finish, id=int(body["queue_id"]), is_ok=bool(body["ok"]))
            )
            return None
        if op == "step" and self.questions is not None:
            self.questions.step(body)
            return None
        if op == "answer" and self.questions is not None:
            await self.questions.answer(body)
            return None
        if op == "inquiry":
            return await take_inquiry(self._db, body)
        if op == "run":
            return await self._take_trace(run_rows.trace_from_json(body))
        if op == "memory":
            written = await self._db.run(partial(take_memory, body=body, now_utc_ns=time.time_ns()))
            await self.count_memories()
            return written
        if op == "snapshot":
            return await keep_snapshot(self._db, body)
        if op == "mark" and self.bench is not None:
            return await set_mark(self.bench, body)
        if op == "propose" and self.approvals is not None:
            return await self.approvals.propose(body)
        if op == "act" and self.approvals is not None:
            return await self.approvals.act(body)
        if op == "executed" and self.approvals is not None:
            return await self.approvals.executed(body)
        if op == "late":
            late = late_result_from_json(body, time.time_ns())
            return await self._db.run(partial(save_late_result, result=late))
        if op == "ports":
            return {
                view.name: port_to_json(view) | self._hands_on(view.name) for view in self._views()
            }
        if op == "daemon" and self.own_state is not None:
            return await self.own_state()
        if op == "novel":
            self._take_novel(body)
            return None
        if op == "templates":
            templates = PortTemplates(
                str(body["port"]), int(body["good_boots"]), [str(text) for text in body["texts"]]
            )
            await self._db.run(
                partial(save_templates, templates=templates, now_utc_ns=time.time_ns())
            )
            return None
        if op == "breaker":
            self._metrics.breaker_state.set(bool(body["is_open"]))
            return None
        if op == "investigating":
            self._changed("investigating", int(body["incident"]))
            return None
        if op == "spent":
            return await take_spent(self._db, body)
        if op == "endpoint":
            return await take_endpoint(self._db, body)
        if op == "cached":
            return await take_answer(self._db, body)
        raise ValueError(f"no such thing to ask: {op[:40]!r}")

    async def count_memories(self) -> None:
        """Bring the gauge of memories up to date.

        Raises:
            StoreError: the database cannot be read.

        """
        counted = await self._db.run(memory_rows.count_memories)
        for kind in get_args(MemoryType):
            self._metrics.memories.labels(kind).set(counted.get(kind, 0))

    async def _take_report(self, report: Report, run_id: str) -> Json:
        """Commit a report once the log is on disk past every line it cites."""
        cited: dict[str, int] = {}
        for conclusion in report.conclusions:
            for evidence in conclusion.evidence:
                cited[evidence.port] = max(cited.get(evidence.port, 0), evidence.seq)
        is_logged = True
        for port, seq in cited.items():
            is_logged = await self._writer.synced(port, seq) and is_logged
        key = (report.incident, report.revision)
        incident = self.faults.incidents.get(report.incident) if self.faults else None

        def job(db: sqlite_utils.Database) -> None:
            if incident is not None:  # a database that was begun anew may not know it yet
                incident_rows.save_change(db, incident)
            report_rows.commit_report(db, report=report, run_id=run_id)

        is_stored = False
        if is_logged:
            try:
                await self._db.run(job)
                is_stored = True
            except StoreError as exc:
                log.debug("report %d.%d waits for the database: %s", *key, exc)
        else:
            is_told = not cited.keys().isdisjoint(self._writer.problems)
            level = logging.DEBUG if is_told else logging.WARNING
            log.log(level, "report %d.%d: the log is not on disk", *key)
        if not is_stored:
            while len(self.unstored) >= MAX_UNSTORED:
                self.unstored.pop(next(iter(self.unstored)))
                self._metrics.events_lost.labels("report").inc()
            self.unstored[key] = report
            if is_logged:
                self._keep(key, job)
            else:
                self._unlogged[key] = (cited, job)
        self._published(report)
        return {"revision": report.revision, "is_on_disk": is_stored}

    async def store_logged(self) -> None:
        """Store one report that waited for the log, if its lines are on disk by now."""
        for key, (cited, job) in self._unlogged.items():
            if any(port in self._writer.problems for port in cited):
                continue
            is_logged = [await self._writer.synced(port, seq) for port, seq in cited.items()]
            if all(is_logged):
                del self._unlogged[key]
                self._keep(key, job)
            return

    def _keep(self, key: tuple[int, int], job: Job) -> None:
        self._db.keep(job, f"report {key[0]}.{key[1]}").add_done_callback(
            lambda _: self.unstored.pop(key, None)
        )

    def _published(self, report: Report) -> None:
        self._metrics.reports.labels("model" if report.cost.model else "offline").inc()
        self._metrics.report_claims.labels("verified").inc(report.claims.verified)
        self._metrics.report_claims.labels("dropped").inc(report.claims.dropped)
        incident = self.faults.incidents.get(report.incident) if self.faults else None
        if incident is not None and report.revision == 1:
            waited_s = (time.monotonic_ns() - incident.opened_mono_ns) / 1e9
            self._metrics.report_seconds.observe(max(0.0, waited_s))
        self._listener.on_report(incident.port if incident else "", report)
        self._changed("reported", report.incident)

    def _changed(self, what: str, incident_id: int) -> None:
        if self.faults is None:
            return
        incidents = self.faults.incidents
        changes: list[IncidentChange] = (
            incidents.reported(incident_id)
            if what == "reported"
            else incidents.investigating(incident_id)
        )
        self.faults.changed(changes)

    def _take_novel(self, body: Json) -> None:
        """Take a line that no good boot of its port had."""
        port, text = str(body["port"]), str(body["text"])
        if port not in {view.name for view in self._views()}:
            raise ValueError(f"no such port: {port[:40]!r}")
        told = self._find_detector(NOVEL)
        if told is None or self.faults is None:
            return  # the rules in use want no such thing
        hit = Hit(
            port=port,
            trigger=told.id,
            severity=told.severity,
            tier="specific",
            title=f"never printed in a good boot: {text}"[:160],
            key=normalise(text),
            seq=int(body["seq"]),
            block_first=int(body["seq"]),
            boot=int(body["boot"]),
            mono_ns=int(body["mono_ns"]),
            utc_ns=int(body["at_ns"]),
            raw=text.encode(),
            fields={"line": text},
            knowledge=told.knowledge,
            holdoff_s=told.holdoff_s,
        )
        self.faults.found([hit])

    async def _take_trace(self, trace: run_rows.Trace) -> None:
        """Store what is new of a run, and count it: what is not stored will be sent again."""
        fresh = await self._db.run(partial(save_run, trace=trace, now_utc_ns=time.time_ns()))
        count_run(self._metrics, trace, fresh)
