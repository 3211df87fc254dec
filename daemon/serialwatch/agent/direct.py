"""Skills in this process, over lines in memory: for `analyze`, where no daemon runs.

Only skills that ship with serialwatch belong here; they are not confined.
"""

from __future__ import annotations

import importlib.util
import sys
import time
from bisect import bisect_left
from collections.abc import Awaitable, Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from types import ModuleType, TracebackType
from typing import Any

from serialwatch.agent.archive import Archive
from serialwatch.agent.context import CtxServer, Submit
from serialwatch.agent.knowledge import Knowledge
from serialwatch.agent.results import (
    BadResultError,
    RefusedError,
    capped,
    checked,
    failure,
)
from serialwatch.agent.skills import Registry
from serialwatch.agent.tools import RunTools, page_texts
from serialwatch.records import Line, SkillResult
from serialwatch.store.log_reader import LogGap
from serialwatch.wire import Json


class DirectTools:
    """The tools of runs over `lines` of one port; `async with`, then `open` once a run."""

    def __init__(
        self, port: str, lines: Sequence[Line], registry: Registry, knowledge: Knowledge
    ) -> None:
        log = LineLog(lines)
        self._port = port
        self._archive = Archive(lambda name: log if name == port else None)
        self._registry = registry
        self._knowledge = knowledge
        self._pages = page_texts(knowledge)
        self._modules: dict[str, ModuleType] = {}

    async def __aenter__(self) -> DirectTools:
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._archive.close()

    def open(
        self, run_id: str, incident: int | None = None, submit: Submit | None = None
    ) -> RunTools:
        """Return the tools of one run; `submit` takes its report, if a skill writes it."""
        ctx = CtxServer(
            self._archive,
            self._registry,
            self._knowledge,
            run_id=run_id,
            port=self._port,
            incident=incident,
            submit_report=submit,
        )

        async def run(name: str, params: Mapping[str, Any]) -> SkillResult:
            result = await self._result(name, params, ctx)
            ref = ctx.keep(result)
            metadata = {**result.metadata, "result": ref}
            return capped(replace(result, metadata=metadata), ref)

        return RunTools(ctx, self._pages, run)

    async def _result(self, name: str, params: Mapping[str, Any], ctx: CtxServer) -> SkillResult:
        skill = self._registry.get(name)
        if skill is None or not skill.has_main:
            return failure("unknown_skill")
        if problems := skill.problems(dict(params)):
            return failure("invalid_args", problems[0].message)
        if name not in self._modules:
            self._modules[name] = _load(skill.folder)
        try:
            found = await self._modules[name].run(
                _Ctx(ctx, skill.folder), skill.with_defaults(params)
            )
            return checked(
                {
                    "status": found.status,
                    "output": dict(found.output),
                    "new_memories": list(found.new_memories),
                    "metadata": dict(found.metadata),
                }
            )
        except RefusedError as exc:
            return failure(exc.code, str(exc))
        except BadResultError as exc:
            return failure("bad_result", str(exc))


class LineLog:
    """Lines in memory, as the log of a port."""

    def __init__(self, lines: Sequence[Line]) -> None:
        self._lines = sorted(lines, key=lambda line: line.seq)

    def refresh(self) -> None:
        """Nothing is written any more."""

    def bounds(self) -> tuple[int, int] | None:
        """Return the first and the last line number, None if there is no line."""
        return (self._lines[0].seq, self._lines[-1].seq) if self._lines else None

    def lines(
        self,
        first: int | None = None,
        last: int | None = None,
        limit: int | None = None,
        reverse: bool = False,
    ) -> Iterator[Line]:
        """Yield lines in order of their numbers, or against it."""
        start = 0 if first is None else bisect_left(self._lines, first, key=_seq)
        end = len(self._lines) if last is None else bisect_left(self._lines, last + 1, key=_seq)
        part = self._lines[start:end]
        if reverse:
            part.reverse()
        yield from part[:limit]

    def seq_at(self, utc_ns: int) -> int | None:
        """Return the number of the first line at or after a time."""
        return next((line.seq for line in self._lines if line.utc_ns >= utc_ns), None)

    def boots(self) -> list[tuple[int, int, int]]:
        """Return (number, first line, UTC ns) of each boot, oldest first."""
        found: dict[int, tuple[int, int, int]] = {}
        for line in self._lines:
            if line.boot:
                found.setdefault(line.boot, (line.boot, line.seq, line.utc_ns))
        return list(found.values())

    def gaps(self) -> list[LogGap]:
        """Return nothing: what a file lacks is not noted in it."""
        return []


def _seq(line: Line) -> int:
    return line.seq


def _load(folder: Path) -> ModuleType:
    """Import a skill's `main.py`; the modules beside it are its own, whatever they are called."""
    own = {path.stem for path in folder.glob("*.py")}
    hidden = {name: sys.modules.pop(name) for name in own if name in sys.modules}
    spec = importlib.util.spec_from_file_location("main", folder / "main.py")
    if spec is None or spec.loader is None:
        raise ImportError(f"{folder}/main.py: cannot be imported")
    module = importlib.util.module_from_spec(spec)
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
        self.deadline_s = time.monotonic() + 60
        self.data_dir = None
        self.skill_dir = folder
        self.log = _Group(server, "log", lines="port", stats="port")
        self.knowledge = _Group(server, "knowledge", search="query", get="id")
        self.memory = _Group(server, "memory", search="query", write="memory")
        self.results = _Group(server, "results", read="id")
        self.report = _Group(server, "report", submit="report")


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
