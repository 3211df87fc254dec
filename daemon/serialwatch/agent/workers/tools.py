"""The skills as an investigation uses them: a call goes in, what it gave and cost stays."""

from __future__ import annotations

import time
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Protocol

from serialwatch.agent.ctx.context import CtxServer, Takes
from serialwatch.agent.knowledge import Knowledge, Page
from serialwatch.records import Line, SkillResult
from serialwatch.wire import Json

RunSkill = Callable[[str, Mapping[str, Any]], Awaitable[SkillResult]]


@dataclass(frozen=True, slots=True)
class Call:
    """One call of a skill in a run."""

    n: int  # counts from 1 in the run
    round: int  # 0: the fixed plan of the offline analyst
    skill: str
    version: str  # "" if there is no such skill
    sha: str
    params: Mapping[str, Any]
    result: SkillResult
    id: str  # of the result: R1, R2, ...
    elapsed_ms: int

    @property
    def is_good(self) -> bool:
        """Return whether the skill answered."""
        return self.result.status == "success"


class Tools(Protocol):
    """What an investigation has: the skills, and what they have read so far."""

    @property
    def ledger(self) -> Mapping[tuple[str, int], Line]:
        """Return every line that was read in this run, by port and number."""

    @property
    def results(self) -> Mapping[str, object]:
        """Return the whole output of each call, by its id."""

    @property
    def pages(self) -> Mapping[str, str]:
        """Return the text of every knowledge page, by id."""

    @property
    def calls(self) -> Sequence[Call]:
        """Return the calls so far, in order."""

    async def call(self, skill: str, params: Mapping[str, Any], round: int = 0) -> Call:
        """Run a skill; whatever goes wrong is a result with status `failure`."""

    async def newest(self, port: str) -> int:
        """Return the number of the newest line of a port, 0 if there is none."""

    def at_step(self, step: int) -> None:
        """Note which step of a plan the next calls are for."""

    def take_late(self) -> list[Call]:
        """Return the results of long jobs that came since the last time."""


class RunTools:
    """The tools of one run.

    `run` is what runs a skill: in a worker, or in this process; `pages` the texts of the
    knowledge base by id. `told` hears of each call that is over; `quota` limits the calls of
    rounds, while the fixed plan has its own measure.
    """

    def __init__(
        self,
        ctx: CtxServer,
        pages: Mapping[str, str],
        run: RunSkill,
        told: Callable[[Call], Awaitable[None]] | None = None,
        quota: Takes | None = None,
    ) -> None:
        self._ctx = ctx
        self._run = run
        self._told = told
        self._calls: list[Call] = []
        self._pages = pages
        self._quota = quota
        self._started = 0
        self._late: list[Call] = []

    @property
    def ledger(self) -> Mapping[tuple[str, int], Line]:
        """Return every line that was read in this run, by port and number."""
        return self._ctx.ledger

    @property
    def results(self) -> Mapping[str, object]:
        """Return the whole output of each call, by its id."""
        return self._ctx.results

    @property
    def pages(self) -> Mapping[str, str]:
        """Return the text of every knowledge page, by id."""
        return self._pages

    @property
    def calls(self) -> Sequence[Call]:
        """Return the calls so far, in order."""
        return tuple(sorted(self._calls, key=lambda call: call.n))

    async def call(self, skill: str, params: Mapping[str, Any], round: int = 0) -> Call:
        """Run a skill; whatever goes wrong is a result with status `failure`."""
        self._started += 1
        n = self._started
        if round:
            self._ctx.quota = self._quota
        known = self._ctx.registry.get(skill)
        began_s = time.monotonic()
        result = await self._ctx.remembered(skill, await self._run(skill, params))
        call = Call(
            n=n,
            round=round,
            skill=skill,
            version=known.version if known else "",
            sha=known.sha if known else "",
            params=dict(params),
            result=result,
            id=str(result.metadata.get("result", "")),
            elapsed_ms=round_ms(time.monotonic() - began_s),
        )
        self._calls.append(call)
        if self._told is not None:
            await self._told(call)
        return call

    async def newest(self, port: str) -> int:
        """Return the number of the newest line of a port, 0 if there is none."""
        return await self._ctx.newest(port)

    def at_step(self, step: int) -> None:
        """Note which step of a plan the next calls are for."""
        self._ctx.step = step

    def add_late(self, skill: str, result: SkillResult) -> None:
        """Take the result of a long job."""
        self._started += 1
        result = replace(result, metadata={**result.metadata, "late": True})
        known = self._ctx.registry.get(skill)
        ref = str(result.metadata.get("result", ""))
        version, sha = (known.version, known.sha) if known else ("", "")
        call = Call(self._started, 0, skill, version, sha, {}, result, ref, 0)
        self._calls.append(call)
        self._late.append(call)

    def hand_late(self, skill: str, result: SkillResult) -> None:
        """Take the result of a long job of an earlier part of the run, which nobody has seen."""
        ref = str(result.metadata.get("result", ""))
        known = next((call for call in self._calls if call.id == ref), None)
        if known is not None:
            self._late.append(known)
            return
        self._ctx.results[ref] = dict(result.output)
        self.add_late(skill, result)

    def add_action(self, skill: str, result: SkillResult, lines: Iterable[Line]) -> None:
        """Take what came of an action that a person has decided on, with the lines it has read."""
        self._ctx.ledger.update({(line.port, line.seq): line for line in lines})
        self.hand_late(skill, result)

    def take_late(self) -> list[Call]:
        """Return the results of long jobs that came since the last time."""
        late, self._late = self._late, []
        return late

    def go_on(
        self,
        calls: Sequence[Call],
        results: Mapping[str, Json],
        lines: Iterable[Line],
    ) -> None:
        """Take up what an earlier part of the run did; before anything else is called."""
        self._calls = list(calls)
        self._started = max((call.n for call in calls), default=0)
        self._ctx.results.update(results)
        self._ctx.ledger.update({(line.port, line.seq): line for line in lines})


def round_ms(seconds: float) -> int:
    """Return whole milliseconds."""
    return round(seconds * 1000)


def page_texts(knowledge: Knowledge) -> dict[str, str]:
    """Return everything that each page says, by id."""
    return {page.id: _text(page) for page in knowledge.pages.values()}


def _text(page: Page) -> str:
    causes = (part for cause in page.causes for part in (cause.text, cause.likely, cause.check))
    return "\n".join((page.title, *causes, *page.do, *page.never, page.body))
