"""A run of the agent over saved logs, for tests of skills."""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import cache
from pathlib import Path
from types import ModuleType
from typing import Any

from sqlite_utils import Database

from serialwatch.agent.archive import Archive, logs_below
from serialwatch.agent.ctx.context import CtxServer
from serialwatch.agent.knowledge import Knowledge
from serialwatch.agent.skills.registry import Registry, load_skills
from serialwatch.agent.skills.results import MAX_OUTPUT, RefusedError, failure
from serialwatch.agent.workers.own_skills import load_program
from serialwatch.agent.workers.skill_process import Ctx, CtxError, QuestionError
from serialwatch.bundled import bundled_dir
from serialwatch.records import SkillResult
from serialwatch.store.migrations import migrations


@contextmanager
def opened_run(
    skills: Sequence[Path],
    *,
    log_dir: Path = Path("/nonexistent"),
    db_path: Path | None = None,
    knowledge: Knowledge | None = None,
    **about: Any,
) -> Iterator[CtxServer]:
    """Give a run with the skills below `skills`; `about` goes to the `CtxServer`."""
    archive = Archive(logs_below(log_dir), db_path)
    about.setdefault("run_id", "run-1")
    try:
        yield CtxServer(archive, _registry(tuple(skills)), knowledge or Knowledge({}), **about)
    finally:
        archive.close()


@contextmanager
def opened_database(path: Path) -> Iterator[Database]:
    """Make a database that has all its tables; those are made once a process."""
    path.write_bytes(_empty_database())
    db = Database(path)
    try:
        yield db
    finally:
        db.close()


@cache
def _empty_database() -> bytes:
    db = Database(memory=True)
    migrations.apply(db)
    made = db.conn.serialize()
    db.close()
    return made


@cache
def bundled_registry() -> Registry:
    """Return the skills that ship with serialwatch, read once a process."""
    return load_skills([bundled_dir("skills")])


def _registry(skills: tuple[Path, ...]) -> Registry:
    return bundled_registry() if skills == (bundled_dir("skills"),) else load_skills(skills)


async def run_skill(
    ctx: CtxServer, name: str, /, left_s: float = 60.0, **params: Any
) -> SkillResult:
    """Run a skill in a thread of this process, with the `ctx` that it has in its own."""
    skill = ctx.registry.get(name)
    assert skill is not None, name
    if problems := skill.problems(params):
        return failure("invalid_args", problems[0].message)
    loop = asyncio.get_running_loop()
    link = _ThreadLink(ctx, skill.allowed, loop)
    elf = ctx.elf(params.get("port")) if "elf" in skill.allowed else None
    job = {
        "run_id": ctx.run_id,
        "step": ctx.step,
        "port": ctx.port,
        "incident": ctx.incident,
        "deadline_s": time.monotonic() + left_s,
        "data_dir": None,
        "folder": str(skill.folder),
        "elf": elf,
    }

    def run() -> SkillResult:
        module = _modules.get(skill.sha) or _modules.setdefault(
            skill.sha, load_program(skill.folder)
        )
        try:
            done = asyncio.run(module.run(Ctx(link, job), skill.with_defaults(params)))
        except QuestionError as exc:
            return SkillResult("require_more", exc.need, metadata={"need": exc.need})
        except CtxError as exc:
            return failure(exc.code, str(exc))
        assert isinstance(done, SkillResult)
        assert len(json.dumps(done.output)) <= MAX_OUTPUT, f"{name} is too long for a caller"
        assert len(str(done.metadata.get("summary", ""))) <= 160
        return done

    return await asyncio.to_thread(run)


_modules: dict[str, ModuleType] = {}


class _ThreadLink:
    """The pipe to the agent, in one process."""

    def __init__(
        self, ctx: CtxServer, allowed: frozenset[str], loop: asyncio.AbstractEventLoop
    ) -> None:
        self._ctx = ctx
        self._allowed = allowed
        self._loop = loop

    def ask(self, op: str, body: Mapping[str, Any]) -> dict[str, Any]:
        if op not in self._allowed:
            raise CtxError("denied", f"may not use {op}")
        sent = json.loads(json.dumps(body))
        answer = asyncio.run_coroutine_threadsafe(self._ctx.answer(op, sent), self._loop)
        try:
            return json.loads(json.dumps(answer.result(10).body))
        except RefusedError as exc:
            raise CtxError(exc.code, str(exc)) from exc
