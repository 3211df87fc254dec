"""The agent's process: takes orders from the core, and works through them."""

from __future__ import annotations

import asyncio
import contextlib
import importlib
import logging
import socket
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

from serialwatch.agent.actions import decided, execute
from serialwatch.agent.archive import Archive, logs_below
from serialwatch.agent.core_link import CoreError, CoreLink
from serialwatch.agent.equipment import Equipment
from serialwatch.agent.investigation import Investigator
from serialwatch.agent.knowledge import load_knowledge
from serialwatch.agent.models.breaker import Breaker
from serialwatch.agent.models.model_use import ModelUse
from serialwatch.agent.novel.novel_watch import NovelWatch
from serialwatch.agent.questions.answering import Answering
from serialwatch.agent.queue import Work, WorkQueue
from serialwatch.agent.role import Roles, load_roles
from serialwatch.agent.run.asking import MODEL_RUN, Asking
from serialwatch.agent.setup import Setup
from serialwatch.agent.skills.registry import Registry
from serialwatch.agent.skills.resting import NAME, Resting, write_resting
from serialwatch.agent.skills.results import RefusedError
from serialwatch.agent.skills.watch import SkillWatch
from serialwatch.agent.workers.tools import page_texts
from serialwatch.agent.workers.worker import Late, Workers
from serialwatch.wire import Json, incident_from_json

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
                await link.tell_up()
            elif kind == "wake" and agent is not None:
                agent.wake(order)
            elif kind == "answered" and agent is not None:
                agent.answered(order)
            elif kind == "execute" and agent is not None:
                agent.execute(order)
            elif kind == "decided" and agent is not None:
                agent.decided(order)
            elif kind == "ask" and agent is not None:
                agent.answering.take(order)
            elif kind == "cancel" and agent is not None:
                agent.answering.cancel(order)
            else:
                log.warning("the core sent %r, which makes no sense now", kind)
    finally:
        if agent is not None:
            await agent.stop()


class Agent:
    """Works through what the core wakes it for."""

    def __init__(
        self, link: CoreLink, setup: Setup, tasks: asyncio.TaskGroup, loader: ThreadPoolExecutor
    ) -> None:
        self._link = link
        self._tasks = tasks
        self._loader = loader
        self._resting = setup.state_dir / "skills" / NAME
        self._queue = WorkQueue()
        self._running: set[asyncio.Task[None]] = set()
        archive = Archive(logs_below(setup.state_dir / "log"), setup.state_dir / "serialwatch.db")
        workers = Workers(on_late=self._take_late, on_resting=self._tell_resting)
        self._equipment = Equipment(link, archive, setup.elfs, workers, setup.boards)
        self._equipment.may_propose = setup.may_propose
        self._use = ModelUse(setup.model, archive, Breaker(self._tell_breaker), link.ask)
        self._investigator = Investigator(self._equipment, self._use, loader)
        asking = Asking(self._equipment, self._use, loader)
        self.answering = Answering(
            self._equipment, self._use, asking, self._queue, self._spawn, self._start_more
        )

    @classmethod
    async def started(cls, link: CoreLink, setup: Setup, tasks: asyncio.TaskGroup) -> Agent:
        """Return an agent that has everything ready for the first wake."""
        self = cls(link, setup, tasks, ThreadPoolExecutor(1, thread_name_prefix="load"))
        loop, equipment = asyncio.get_running_loop(), self._equipment
        skills = SkillWatch(setup.skill_dirs, setup.skill_versions, setup.state_dir / "skills")
        _, _, equipment.registry, equipment.knowledge, roles = await asyncio.gather(
            equipment.workers.start(),
            self._use.restore(),
            loop.run_in_executor(self._loader, skills.load),
            loop.run_in_executor(self._loader, load_knowledge, setup.knowledge_dirs),
            loop.run_in_executor(self._loader, usable_roles, setup),
        )
        equipment.pages = page_texts(equipment.knowledge)
        equipment.own.load()
        self._tell_resting(())  # of an earlier agent
        role = self._investigator.role = roles.for_origin("incidents")
        self.answering.roles = roles
        novel = NovelWatch(equipment.archive, setup.state_dir / "log", link)
        self._spawn(novel.run(), "new lines")
        self._spawn(self._use.run(), "use of models")
        self._spawn(skills.run(self._take_skills, self._loader), "skills")
        self._spawn(self._go_on(), "runs cut short")
        if setup.model.base_url and setup.model.model and role is not None:
            self._loader.submit(importlib.import_module, MODEL_RUN)
        return self

    async def stop(self) -> None:
        """End what runs; the core wakes us for it again."""
        self.answering.stop()
        for task in self._running:
            task.cancel()
        await asyncio.gather(*self._running, return_exceptions=True)
        await self._equipment.workers.stop()
        self._equipment.archive.close()
        self._tell_resting(())
        self._loader.shutdown()

    def wake(self, order: Json) -> None:
        """Take up an incident."""
        try:
            incident = incident_from_json(order["incident"])
            work = Work("baseline", order["phase"], incident, (int(order["queue_id"]),))
        except (KeyError, TypeError, ValueError):
            log.exception("a wake of the core cannot be read")
            return
        self._investigator.update(incident)
        self._add(work)

    def answered(self, order: Json) -> None:
        """Go on with a run that has waited for a person's answer."""
        self._spawn(self._take_answer(order), f"answer to run {order.get('run_id')}")

    def execute(self, order: Json) -> None:
        """Do an action that a person has approved."""
        approval = order["approval"]
        self._spawn(self._execute(approval), f"action {approval['id']}")

    def decided(self, order: Json) -> None:
        """Let the run that proposed an action know that it was not done."""
        self._take_late(decided(order["approval"]))

    async def _execute(self, approval: Json) -> None:
        try:
            late = await execute(self._equipment, approval)
        except CoreError as exc:
            log.log(exc.level, "action %s: %s", approval["id"], exc)
        else:
            if late is not None:
                self._take_late(late)

    async def _take_answer(self, order: Json) -> None:
        try:
            work = await self._investigator.answered(order)
        except (KeyError, TypeError, ValueError, RefusedError):
            log.exception("an answer to a run cannot be read")
            return
        if work is not None:
            self._add(work)
            return
        log.warning("run %s: an answer came, but nothing is known of the run", order["run_id"])
        with contextlib.suppress(CoreError):
            await self._link.ask("done", {"queue_id": int(order["queue_id"]), "ok": False})

    async def _go_on(self) -> None:
        """Take up what an earlier agent left in the middle."""
        for work in await self._investigator.cut_short():
            self._add(work)

    def _take_skills(self, registry: Registry) -> None:
        self._equipment.registry = registry
        self._equipment.workers.enable(registry.touched)

    def _tell_resting(self, skills: Sequence[Resting]) -> None:
        self._loader.submit(_leave_resting, self._resting, skills)

    def _take_late(self, late: Late) -> None:
        async def take() -> None:
            if await self._equipment.take_late(late):
                return
            try:
                await self._investigator.late(late)
            except CoreError as exc:
                log.log(exc.level, "the report does not tell of %s: %s", late.job_id, exc)

        self._spawn(take(), f"late result {late.job_id}")

    def _add(self, work: Work) -> None:
        if (refused := self._queue.add(work)) is not None:
            log.warning("incident %d: not investigated: the queue is full", refused.incident.id)
            self._spawn(self._done(refused, is_good=False), f"done {refused.incident.id}")
        self._start_more()

    def _start_more(self) -> None:
        while (work := self._queue.take()) is not None:
            self._spawn(self._work(work), f"{work.kind} {work.incident.id}")

    def _spawn(self, what: Any, name: str) -> asyncio.Task[None]:
        task: asyncio.Task[None] = self._tasks.create_task(what, name=name)
        self._running.add(task)
        task.add_done_callback(self._running.discard)
        return task

    async def _work(self, work: Work) -> None:
        is_good = False
        more: Work | None = None
        try:
            if work.kind == "baseline":
                more = await self._investigator.baseline(work)
            else:
                await self._investigator.model(work)
            is_good = True
        except CoreError as exc:
            log.log(exc.level, "incident %d: %s", work.incident.id, exc)
        except Exception:  # one investigation must not end the others
            log.exception("incident %d: the investigation failed", work.incident.id)
        finally:
            self._queue.done(work)
        if more is not None:
            self._add(more)
        self.answering.free()
        await self._done(work, is_good=is_good)
        self._start_more()

    async def _done(self, work: Work, *, is_good: bool) -> None:
        for queue_id in work.queue_ids:
            try:
                await self._link.ask("done", {"queue_id": queue_id, "ok": is_good})
            except CoreError as exc:
                log.log(exc.level, "incident %d: %s", work.incident.id, exc)

    def _tell_breaker(self, is_open: bool) -> None:
        async def tell() -> None:
            with contextlib.suppress(CoreError):
                await self._link.ask("breaker", {"is_open": is_open})

        self._spawn(tell(), "breaker")


def _leave_resting(path: Path, skills: Sequence[Resting]) -> None:
    try:
        write_resting(path, skills)
    except OSError as exc:
        log.warning("`skills list` cannot tell which skills rest: %s", exc)


def usable_roles(setup: Setup) -> Roles:
    """Return the roles that can be used; a broken one is told, and done without."""
    roles = load_roles(setup.roles_dirs)
    for problem in roles.problems:
        log.error("roles: %s; it is done without", problem.words)
    for role in roles.shadowed:
        log.info("role %s: %s is not used: %s comes first", role.name, role.path,
                 roles.found[role.name].path)  # fmt: skip
    if roles.for_origin("incidents") is None and setup.model.base_url:
        log.error("no model is asked about incidents: no role takes them")
    return roles
