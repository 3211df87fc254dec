"""The agent's process: takes wakes from the core, investigates, hands back reports."""

from __future__ import annotations

import asyncio
import contextlib
import importlib
import logging
import secrets
import socket
import time
from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from serialwatch.agent.analyst import bare_report, investigate
from serialwatch.agent.api_key import load_api_key
from serialwatch.agent.archive import Archive, logs_below
from serialwatch.agent.breaker import Breaker
from serialwatch.agent.case import Surroundings
from serialwatch.agent.context import CtxServer, Submit
from serialwatch.agent.core_link import CoreError, CoreLink
from serialwatch.agent.knowledge import Knowledge, load_knowledge
from serialwatch.agent.novel_watch import NovelWatch
from serialwatch.agent.queue import Work, WorkQueue
from serialwatch.agent.results import RefusedError
from serialwatch.agent.role import Role, RoleError, load_role
from serialwatch.agent.skills import Registry, load_skills
from serialwatch.agent.standing import Standing, Standings, carried_on, is_by_model, says_the_same
from serialwatch.agent.tools import RunTools, page_texts
from serialwatch.agent.trace import ROLE, ModelRun, RunRecord, memory_of
from serialwatch.agent.worker import Quota, Workers
from serialwatch.records import Incident, Report
from serialwatch.store.reports import load_report
from serialwatch.store.runs import trace_to_json
from serialwatch.wire import Json, incident_from_json, report_to_json

ASK_AGAIN_S = 30 * 60.0  # a fault that a model has looked at is not shown to it again so soon
CALLS_A_MINUTE = 20  # skill calls of one model run
LOG_LAG_S = 0.4  # what a board printed is in its log by then, normally within 50 ms
POLL_S = 0.02
HURRY_S = 0.4  # the first report does not wait longer for what the core knows beside the log
PORTS_LIMIT_S = 5.0
MODEL_RUN = "serialwatch.agent.model_run"  # imported in a thread, when a model is configured

log = logging.getLogger(__name__)


async def serve(sock: socket.socket, environ: Mapping[str, str]) -> None:
    """Be the agent on this socket until the core closes it or says `stop`."""
    reader, writer = await asyncio.open_connection(sock=sock)
    link = CoreLink(reader, writer)
    try:
        async with asyncio.TaskGroup() as tasks:
            beat = tasks.create_task(link.beat(), name="beat")
            await _obey(link, tasks, environ)
            beat.cancel()
    finally:
        await link.close()


async def _obey(link: CoreLink, tasks: asyncio.TaskGroup, environ: Mapping[str, str]) -> None:
    agent: Agent | None = None
    try:
        async for order in link.orders():
            kind = order.get("kind")
            if kind == "hello" and agent is None:
                agent = await Agent.started(link, Setup.of(order, environ), tasks)
            elif kind == "wake" and agent is not None:
                agent.wake(order)
            else:
                log.warning("the core sent %r, which makes no sense now", kind)
    finally:
        if agent is not None:
            await agent.stop()


@dataclass(frozen=True, slots=True)
class Setup:
    """What the core says at the start."""

    state_dir: Path
    skill_dirs: tuple[Path, ...]
    knowledge_dirs: tuple[Path, ...]
    roles_dirs: tuple[Path, ...]
    base_url: str
    model: str
    api_key: str

    @classmethod
    def of(cls, hello: Json, environ: Mapping[str, str]) -> Setup:
        """Read the core's `hello`."""
        told = hello.get("agent") or {}
        return cls(
            state_dir=Path(hello["state_dir"]),
            skill_dirs=tuple(map(Path, hello.get("skill_dirs", ()))),
            knowledge_dirs=tuple(map(Path, hello.get("knowledge_dirs", ()))),
            roles_dirs=tuple(map(Path, hello.get("roles_dirs", ()))),
            base_url=str(told.get("base_url") or ""),
            model=str(told.get("model") or ""),
            api_key=load_api_key(environ),
        )


class Agent:
    """Works through what the core wakes it for."""

    def __init__(
        self, link: CoreLink, setup: Setup, tasks: asyncio.TaskGroup, loader: ThreadPoolExecutor
    ) -> None:
        self._link = link
        self._setup = setup
        self._tasks = tasks
        self._loader = loader
        self._queue = WorkQueue()
        self._running: set[asyncio.Task[None]] = set()
        self._standings = Standings()
        self._breaker = Breaker(self._tell_breaker)
        self._asked_s: dict[str, float] = {}  # when a model was asked, by fingerprint
        self._registry = Registry({})
        self._knowledge = Knowledge({})
        self._pages: Mapping[str, str] = {}
        self._role: Role | None = None
        self._workers = Workers()
        self._archive = Archive(
            logs_below(setup.state_dir / "log"), setup.state_dir / "serialwatch.db"
        )

    @classmethod
    async def started(cls, link: CoreLink, setup: Setup, tasks: asyncio.TaskGroup) -> Agent:
        """Return an agent that has everything ready for the first wake."""
        self = cls(link, setup, tasks, ThreadPoolExecutor(1, thread_name_prefix="load"))
        loop = asyncio.get_running_loop()
        _, self._registry, self._knowledge, self._role = await asyncio.gather(
            self._workers.start(),
            loop.run_in_executor(self._loader, load_skills, setup.skill_dirs),
            loop.run_in_executor(self._loader, load_knowledge, setup.knowledge_dirs),
            loop.run_in_executor(self._loader, _role, setup),
        )
        self._pages = page_texts(self._knowledge)
        novel = NovelWatch(self._archive, setup.state_dir / "log", link)
        self._spawn(novel.run(), "new lines")
        if self._asks_models:
            self._loader.submit(importlib.import_module, MODEL_RUN)
        return self

    async def stop(self) -> None:
        """End what runs; the core wakes us for it again."""
        for task in self._running:
            task.cancel()
        await asyncio.gather(*self._running, return_exceptions=True)
        await self._workers.stop()
        self._archive.close()
        self._loader.shutdown()

    @property
    def _asks_models(self) -> bool:
        return bool(self._setup.base_url and self._setup.model and self._role)

    def wake(self, order: Json) -> None:
        """Take up an incident."""
        try:
            incident = incident_from_json(order["incident"])
            work = Work("baseline", order["phase"], incident, (int(order["queue_id"]),))
        except (KeyError, TypeError, ValueError):
            log.exception("a wake of the core cannot be read")
            return
        self._standings.update(incident)
        self._add(work)

    def _add(self, work: Work) -> None:
        if (refused := self._queue.add(work)) is not None:
            log.warning("incident %d: not investigated: the queue is full", refused.incident.id)
            self._spawn(self._done(refused, is_good=False), f"done {refused.incident.id}")
        self._start_more()

    def _start_more(self) -> None:
        while (work := self._queue.take()) is not None:
            self._spawn(self._work(work), f"{work.kind} {work.incident.id}")

    def _spawn(self, what: Any, name: str) -> None:
        task = self._tasks.create_task(what, name=name)
        self._running.add(task)
        task.add_done_callback(self._running.discard)

    async def _work(self, work: Work) -> None:
        is_good = False
        try:
            if work.kind == "baseline":
                await self._baseline(work)
            else:
                await self._model(work)
            is_good = True
        except CoreError as exc:
            log.warning("incident %d: %s", work.incident.id, exc)
        except Exception:  # one investigation must not end the others
            log.exception("incident %d: the investigation failed", work.incident.id)
        finally:
            self._queue.done(work)
        await self._done(work, is_good=is_good)
        self._start_more()

    async def _done(self, work: Work, *, is_good: bool) -> None:
        for queue_id in work.queue_ids:
            try:
                await self._link.ask("done", {"queue_id": queue_id, "ok": is_good})
            except CoreError as exc:
                log.warning("incident %d: %s", work.incident.id, exc)

    async def _baseline(self, work: Work) -> None:
        incident = work.incident
        standing = self._standings.of(incident)
        record = _record(work)
        if standing.report is None:
            standing.report = await self._stored(incident)
        around, _, _ = await asyncio.gather(
            self._around(incident), self._logged(incident), self._begun(incident)
        )
        tools = self._tools(record.id, incident)
        status = "done"
        try:
            report = await investigate(incident, tools, work.phase, standing.report, around)
        except Exception as exc:  # the report is owed, whatever went wrong
            log.exception("incident %d: the analysis failed", incident.id)
            status, report = "failed", bare_report(incident, standing.report, type(exc).__name__)
        has_settled = incident.is_settled and not standing.is_settled
        standing.is_settled |= incident.is_settled
        will_ask, reason = self._may_ask(standing, has_settled)
        report = replace(report, cost=replace(report.cost, reason=reason))
        before, standing.baseline = standing.baseline, report

        def next_report(previous: Report | None) -> Report:
            if previous is not None and is_by_model(previous):
                return carried_on(previous, before, report)
            return report

        await self._publish(standing, next_report, record)
        if will_ask:
            self._add(Work("model", work.phase, incident))
        elif has_settled:
            await self._remember(report, record, tools)
        await self._trace(replace(record, reason=reason), tools, status)

    async def _model(self, work: Work) -> None:
        setup, standing = self._setup, self._standings.of(work.incident)
        baseline, role = standing.baseline, self._role
        if baseline is None or role is None:
            return
        record = replace(
            _record(work),
            incident=standing.incident,
            model=setup.model,
            base_url=setup.base_url,
        )
        try:
            run, tools = await self._asked(record, baseline, role)
        except CoreError:
            raise
        except Exception as exc:  # the baseline stands, whatever went wrong
            log.exception("incident %d: asking the model failed", work.incident.id)
            run = ModelRun(None, f"asking it failed: {str(exc) or type(exc).__name__}"[:200])
            tools = self._tools(record.id, record.incident)

        def next_report(_: Report | None) -> Report:
            latest = standing.baseline or baseline
            if run.report is not None:
                return carried_on(run.report, baseline, latest)
            cost = replace(
                latest.cost, model_calls=run.model_calls, tokens=run.tokens, reason=run.reason
            )
            standing.baseline = replace(latest, cost=cost)
            return standing.baseline

        report = await self._publish(standing, next_report, record)
        await self._remember(report, record, tools)
        record = replace(
            record, rounds=run.rounds, notes=run.notes, tokens=run.tokens, reason=run.reason
        )
        await self._trace(record, tools, "done" if run.report else "baseline")

    async def _asked(
        self, record: RunRecord, baseline: Report, role: Role
    ) -> tuple[ModelRun, RunTools]:
        """Return what the model made of it, and the tools it used."""
        loop, setup, incident = asyncio.get_running_loop(), self._setup, record.incident
        found = await loop.run_in_executor(self._loader, importlib.import_module, MODEL_RUN)
        chat = await loop.run_in_executor(
            self._loader,
            found.open_model,
            setup.base_url,
            setup.model,
            setup.api_key,
            self._breaker,
        )
        run, tools = await found.ask_model(
            incident,
            record.phase,
            baseline,
            await self._around(incident),
            chat=chat,
            open_tools=lambda submit: self._tools(record.id, incident, submit),
            skills=self._registry.skills.values(),
            role=role,
        )
        return run, tools

    def _tell_breaker(self, is_open: bool) -> None:
        async def tell() -> None:
            with contextlib.suppress(CoreError):
                await self._link.ask("breaker", {"is_open": is_open})

        self._spawn(tell(), "breaker")

    def _may_ask(self, standing: Standing, has_settled: bool) -> tuple[bool, str]:
        """Tell whether a model is to be asked after this baseline; if not, why."""
        if not self._setup.base_url:
            return False, "none configured"
        if not self._setup.model:
            return False, "an endpoint is configured, but no model"
        if self._role is None:
            return False, f"the role {ROLE} cannot be used"
        if not standing.is_settled:
            return False, "a model is asked once the incident has settled"
        if not has_settled or (standing.report is not None and is_by_model(standing.report)):
            return False, standing.baseline.cost.reason if standing.baseline else ""
        if refusal := self._breaker.refusal():
            return False, refusal[:200]
        now_s = time.monotonic()
        fingerprint = standing.incident.fingerprint
        last_s = self._asked_s.get(fingerprint)
        if last_s is not None and now_s - last_s < ASK_AGAIN_S:
            return False, "the same fault was shown to the model less than 30 minutes ago"
        self._asked_s = {f: s for f, s in self._asked_s.items() if now_s - s < ASK_AGAIN_S}
        self._asked_s[fingerprint] = now_s
        return True, "a model is looking at it"

    def _tools(self, run_id: str, incident: Incident, submit: Submit | None = None) -> RunTools:
        ctx = CtxServer(
            self._archive,
            self._registry,
            self._knowledge,
            run_id=run_id,
            port=incident.port,
            incident=incident.id,
            max_risk="L2" if submit else "L1",
            quota=Quota(CALLS_A_MINUTE) if submit else None,
            ask_ports=self._ports_for_skills,
            submit_report=submit,
        )
        return RunTools(ctx, self._pages, lambda name, params: self._workers.run(name, params, ctx))

    async def _ports(self, limit_s: float = PORTS_LIMIT_S) -> Mapping[str, Any]:
        body = await self._link.ask("ports", {}, limit_s)
        return body if isinstance(body, dict) else {}

    async def _ports_for_skills(self) -> Mapping[str, Any]:
        try:
            return await self._ports()
        except CoreError as exc:
            raise RefusedError("precondition", str(exc)) from exc

    async def _around(self, incident: Incident) -> Surroundings:
        """Return what the daemon knows beside the log; little if the core is busy."""
        writer: str | None = None
        sent: dict[int, str] = {}
        try:
            limit_s = PORTS_LIMIT_S if incident.is_settled else HURRY_S
            state = (await self._ports(limit_s)).get(incident.port)
            if isinstance(state, dict) and isinstance(state.get("writer"), str):
                writer = state["writer"]
                sent = {int(s["seq"]): str(s["user"]) for s in state.get("sent", ())}
        except CoreError as exc:
            log.info("incident %d: %s", incident.id, exc)
        known = (self._standings.incident(number) for number in incident.linked)
        neighbours = tuple(other for other in known if other is not None)
        return Surroundings(neighbours, writer, sent)

    async def _logged(self, incident: Incident) -> None:
        """Wait a moment until the fault line is in the log; if it does not come, go on."""
        if not incident.first_seq:
            return
        end_s = time.monotonic() + LOG_LAG_S
        while time.monotonic() < end_s:
            last = await self._archive.ask(lambda archive: _last_seq(archive, incident.port))
            if last >= incident.first_seq:
                return
            await asyncio.sleep(POLL_S)

    async def _stored(self, incident: Incident) -> Report | None:
        """Return the report that an earlier agent published."""
        return await self._archive.ask(lambda archive: _stored_report(archive, incident.id))

    async def _begun(self, incident: Incident) -> None:
        try:
            await self._link.ask("investigating", {"incident": incident.id}, HURRY_S)
        except CoreError as exc:
            log.debug("incident %d: %s", incident.id, exc)

    async def _publish(
        self,
        standing: Standing,
        next_report: Callable[[Report | None], Report],
        record: RunRecord,
    ) -> Report:
        """Hand in what follows the last report, unless it says the same; return it."""
        async with standing.publishing:
            previous = standing.report
            report = next_report(previous)
            report = replace(report, revision=previous.revision + 1 if previous else 1)
            if previous is not None and says_the_same(report, previous):
                return previous
            body = {"report": report_to_json(report), "run_id": record.id}
            await self._link.ask("report", body)
            standing.report = report
            return report

    async def _remember(self, report: Report, record: RunRecord, tools: RunTools) -> None:
        memory = memory_of(record.incident, report, record.id, tools.calls)
        try:
            await self._link.ask("memory", memory)
        except CoreError as exc:
            log.warning("incident %d: not remembered: %s", record.incident.id, exc)

    async def _trace(self, record: RunRecord, tools: RunTools, status: str) -> None:
        trace = record.trace(tools.calls, tools.results, status, time.time_ns())
        try:
            await self._link.ask("run", trace_to_json(trace))
        except CoreError as exc:
            log.warning("incident %d: its run is not stored: %s", record.incident.id, exc)


def _record(work: Work) -> RunRecord:
    return RunRecord(
        id=secrets.token_hex(6),
        kind=work.kind,
        phase=work.phase,
        incident=work.incident,
        started_utc_ns=time.time_ns(),
    )


def _role(setup: Setup) -> Role | None:
    try:
        return load_role(setup.roles_dirs, ROLE)
    except RoleError as exc:
        if setup.base_url:
            log.error("no model is asked: %s", exc)
        return None


def _last_seq(archive: Archive, port: str) -> int:
    try:
        bounds = archive.log(port).bounds()
    except Exception:  # noqa: BLE001  (no log yet, or it cannot be read: the skills will say so)
        return 0
    return bounds[1] if bounds else 0


def _stored_report(archive: Archive, incident: int) -> Report | None:
    database = archive.database
    return load_report(database, incident) if database is not None else None
