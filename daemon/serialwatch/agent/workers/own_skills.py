"""Skills that ship with serialwatch, run in this process: none has to be started for them.

They are not confined. The fixed plan of the offline analyst calls only these, and eight incidents
at once would wait for fifty processes otherwise; `analyze` uses them as well.
"""

from __future__ import annotations

import asyncio
import functools
import importlib.util
import logging
import sys
import time
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from types import ModuleType
from typing import Any, NoReturn

from serialwatch.agent.ctx.context import CtxServer
from serialwatch.agent.skills.files import folder_sha
from serialwatch.agent.skills.results import BadResultError, RefusedError, capped, checked, failure
from serialwatch.agent.skills.skill import Skill
from serialwatch.agent.workers.skill_process import QuestionError
from serialwatch.bundled import bundled_dir
from serialwatch.records import SkillResult
from serialwatch.wire import Json

# What the fixed plan calls: each only asks `ctx` and arranges the answer.
PLANNED = (
    "log-read", "log-stats", "knowledge-query", "memory-search", "register-decode",
    "incident-history", "boot-compare", "port-status",
)  # fmt: skip

HURRY_S = 3.0  # a skill that could go on reading ends by then: the first report waits for it

SLOW = frozenset({"boot-compare"})  # one at a time: first reports wait for the archive, too

log = logging.getLogger(__name__)


class OwnSkills:
    """The programs of bundled skills."""

    def __init__(self) -> None:
        self._shas: dict[str, str] = {}  # of what ships, by name
        self._slow = asyncio.Lock()

    def load(self) -> None:
        """Import what the plan calls, so that the first incident does not wait for it."""
        for name in PLANNED:
            folder = bundled_dir("skills") / name
            self._shas[name] = folder_sha(folder)
            _program(folder, self._shas[name])

    def has(self, skill: Skill) -> bool:
        """Tell whether the plan calls it, and it is what ships, not somebody's own version."""
        return self._shas.get(skill.name) == skill.sha

    async def run(self, name: str, params: Mapping[str, Any], ctx: CtxServer) -> SkillResult:
        """Run a skill and return its result, kept and cut as for any caller."""
        if name in SLOW:
            async with self._slow:
                result = await self._result(name, params, ctx)
        else:
            result = await self._result(name, params, ctx)
        ref = ctx.keep(result)
        metadata = {**result.metadata, "result": ref}
        return capped(replace(result, metadata=metadata), ref)

    async def _result(self, name: str, params: Mapping[str, Any], ctx: CtxServer) -> SkillResult:
        skill = ctx.registry.get(name)
        if skill is None or not skill.has_main:
            return failure("unknown_skill")
        if skill.risk == "L3":
            return failure("denied", f"{name} acts on a board: nothing here can")
        if problems := skill.problems(dict(params)):
            return failure("invalid_args", problems[0].message)
        try:
            async with asyncio.timeout(skill.timeout_s):
                program = _program(skill.folder, skill.sha)
                found = await program.run(_Ctx(ctx, skill.folder), skill.with_defaults(params))
            return checked(
                {
                    "status": found.status,
                    "output": dict(found.output),
                    "new_memories": list(found.new_memories),
                    "metadata": dict(found.metadata),
                }
            )
        except QuestionError as exc:
            return SkillResult("require_more", exc.need, metadata={"need": exc.need})
        except TimeoutError:
            return failure("timeout")
        except RefusedError as exc:
            return failure(exc.code, str(exc))
        except BadResultError as exc:
            return failure("bad_result", str(exc))
        except Exception as exc:  # a skill that fails makes a report poorer, never absent
            log.exception("skill %s failed", name)
            return failure("crashed", type(exc).__name__)


@functools.cache
def _program(folder: Path, sha: str) -> ModuleType:
    """Return what a skill's folder holds, imported once for each content."""
    return load_program(folder)


def load_program(folder: Path) -> ModuleType:
    """Import a skill's `main.py`; the modules beside it are its own, whatever they are called."""
    own = {path.stem for path in folder.glob("*.py")}
    hidden = {name: sys.modules.pop(name) for name in own if name in sys.modules}
    spec = importlib.util.spec_from_file_location("main", folder / "main.py")
    if spec is None or spec.loader is None:
        raise ImportError(f"{folder}/main.py: cannot be imported")
    module = importlib.util.module_from_spec(spec)
    sys.modules["main"] = module  # dataclasses look there
    sys.path.insert(0, str(folder))
    try:
        spec.loader.exec_module(module)
    finally:
        sys.path.remove(str(folder))
        for name in own:
            sys.modules.pop(name, None)
        sys.modules.update(hidden)
    return module


class _Ctx:
    """`ctx` of a skill in this process: the same answers, without a pipe."""

    def __init__(self, server: CtxServer, folder: Path) -> None:
        self.run_id = server.run_id
        self.step = server.step
        self.port = server.port
        self.incident = server.incident
        self.deadline_s = time.monotonic() + HURRY_S
        self.data_dir = None
        self.skill_dir = folder
        self.elf = None
        self.log = _Group(server, "log", lines="port", stats="port", compare="port")
        self.knowledge = _Group(server, "knowledge", search="query", get="id")
        self.memory = _Group(server, "memory", search="query", write="memory")
        self.results = _Group(server, "results", read="id")
        self.report = _Group(server, "report", submit="report")
        self.snapshot = _Group(server, "snapshot", read="name", write="name")
        self.human = _Human(server)
        self.model = _Group(server, "model", complete="prompt")
        self._server = server

    async def ports(self) -> Json:
        """Return the state of every port: there is none here."""
        return (await self._server.answer("ports", {})).body

    async def incidents(self, **wanted: Any) -> Json:
        """Return incidents, newest first."""
        body = {key: value for key, value in wanted.items() if value is not None}
        return (await self._server.answer("incidents", body)).body


class _Human:
    """A person, who is asked by whoever runs the skill: the skill ends with its question."""

    def __init__(self, server: CtxServer) -> None:
        self._server = server

    async def ask(
        self, question: str, *, known: str = "", missing: str = "", options: Sequence[str] = ()
    ) -> NoReturn:
        """Ask a question."""
        body = {"question": question, "known": known, "missing": missing, "options": list(options)}
        raise QuestionError((await self._server.answer("human.ask", body)).body)


class _Group:
    """The calls of one part of `ctx`, each with the name of its first argument."""

    def __init__(self, server: CtxServer, part: str, **firsts: str) -> None:
        self._server = server
        self._part = part
        self._firsts = firsts

    def __getattr__(self, name: str) -> Callable[..., Awaitable[Json]]:
        if name not in self._firsts:
            raise AttributeError(name)

        async def call(*args: Any, **kwargs: Any) -> Json:
            given = {**dict(zip([self._firsts[name]], args, strict=True)), **kwargs} if args else (
                kwargs)  # fmt: skip
            body = {key: value for key, value in given.items() if value is not None}
            return (await self._server.answer(f"{self._part}.{name}", body)).body

        return call
