"""Skills in this process, over lines in memory: for `analyze`, where no daemon runs.

Only skills that ship with serialwatch belong here; they are not confined.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterator, Mapping, Sequence
from types import TracebackType
from typing import Any

from serialwatch.agent.archive import Archive
from serialwatch.agent.ctx.context import CtxServer, Submit
from serialwatch.agent.knowledge import Knowledge
from serialwatch.agent.skills.registry import Registry
from serialwatch.agent.workers.own_skills import OwnSkills
from serialwatch.agent.workers.tools import RunTools, page_texts
from serialwatch.records import Line, SkillResult
from serialwatch.store.log_reader import LogGap


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
        self._skills = OwnSkills()

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
            return await self._skills.run(name, params, ctx)

        return RunTools(ctx, self._pages, run)


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

    def stretches(
        self, words: Sequence[bytes], first: int, last: int, reverse: bool = False
    ) -> Iterator[tuple[int, int, bool]]:
        """Yield that every line may have one of `words`: they are in memory already."""
        yield first, last, True

    def seq_at(self, utc_ns: int) -> int | None:
        """Return the number of the first line at or after a time."""
        return next((line.seq for line in self._lines if line.utc_ns >= utc_ns), None)

    def last_seq_at(self, utc_ns: int) -> int | None:
        """Return the number of the last line at or before a time."""
        return next((line.seq for line in reversed(self._lines) if line.utc_ns <= utc_ns), None)

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
