"""The agent's end of `ctx`: answers what a running skill asks, and keeps what the run has read."""

from __future__ import annotations

import json
import math
import time
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, Literal, Protocol, TypeVar, get_args

from serialwatch.agent.archive import Archive
from serialwatch.agent.knowledge import Knowledge, Page
from serialwatch.agent.log_answers import LogAnswer, LogAsk, answer_lines, answer_stats
from serialwatch.agent.results import MAX_KEPT, RefusedError, fitted
from serialwatch.agent.skills import Registry
from serialwatch.records import SEVERITIES, Incident, Line, Risk, SkillResult, State
from serialwatch.store.incidents import load_incident, load_incidents
from serialwatch.store.memory_gate import MemoryType
from serialwatch.store.memory_search import MemoryHit, Place, search
from serialwatch.wire import Json, incident_to_json, utc_ns

MAX_TEXT = 400  # characters of a query
MAX_LINES = 400  # rows of one answer
MAX_SHAPES = 60
MAX_ROWS = 50  # incidents, memories, pages of one answer

T = TypeVar("T")
Taint = Literal["host", "memory", "dut"]  # where a text comes from, most trusted first
AskPorts = Callable[[], Awaitable[Mapping[str, Any]]]
Submit = Callable[[Json], Awaitable[Json]]


class Takes(Protocol):
    """What counts calls against a limit."""

    def take(self, now_s: float) -> bool:
        """Count a call, or return False if there were too many."""


@dataclass(frozen=True, slots=True)
class Answer:
    """What a skill gets for one call of `ctx`."""

    body: Json
    taint: Taint = "host"


class CtxServer:
    """One run of the agent, as its skills see it.

    `ledger` has every line that was served in the run, `results` the whole output of each call by
    its id (R1, R2, ...).
    """

    def __init__(
        self,
        archive: Archive,
        registry: Registry,
        knowledge: Knowledge,
        *,
        run_id: str,
        port: str = "",
        incident: int | None = None,
        data_dir: Path | None = None,
        deadline_s: float = math.inf,  # time.monotonic() at which the run is over
        max_risk: Risk = "L2",
        quota: Takes | None = None,
        ask_ports: AskPorts | None = None,
        submit_report: Submit | None = None,
        write_memory: Submit | None = None,
    ) -> None:
        self.registry = registry
        self.run_id = run_id
        self.port = port
        self.incident = incident
        self.data_dir = data_dir
        self.max_risk = max_risk
        self.quota = quota
        self.step = 0  # of the plan; set by whoever works through it
        self.ledger: dict[tuple[str, int], Line] = {}
        self.results: dict[str, Json] = {}
        self._archive = archive
        self._knowledge = knowledge
        self._deadline_s = deadline_s
        self._ask_ports = ask_ports
        self._submit_report = submit_report
        self._write_memory = write_memory

    def left_s(self) -> float:
        """Return how long the run may still go on."""
        return self._deadline_s - time.monotonic()

    def keep(self, result: SkillResult) -> str:
        """Keep the output of a call and return its id."""
        ref = f"R{len(self.results) + 1}"
        self.results[ref] = fitted(result.output, MAX_KEPT)
        return ref

    async def answer(self, op: str, body: Json) -> Answer:
        """Answer one call of `ctx`; whether the skill may make it was checked before.

        Raises:
            RefusedError: it makes no sense, or what it asks for is not there.

        """
        match op:
            case "log.lines":
                return await self._log(answer_lines, _Arguments(body), 100, MAX_LINES)
            case "log.stats":
                return await self._log(answer_stats, _Arguments(body), 20, MAX_SHAPES)
            case "ports":
                return await self._ports()
            case "incidents":
                return await self._incidents(_Arguments(body))
            case "knowledge.search":
                return self._search(_Arguments(body))
            case "knowledge.get":
                return self._page(_Arguments(body))
            case "memory.search":
                return await self._memories(_Arguments(body))
            case "results.read":
                return self._result(_Arguments(body))
            case "memory.write":
                return await _handed(self._write_memory, _Arguments(body).mapping("memory"))
            case "report.submit":
                return await _handed(self._submit_report, _Arguments(body).mapping("report"))
            case _:
                raise RefusedError("denied", f"ctx has no {op}")

    async def _log(
        self,
        how: Callable[[Archive, LogAsk, int], LogAnswer],
        given: _Arguments,
        limit: int,
        most: int,
    ) -> Answer:
        port = given.text("port") or self.port
        if not port:
            raise RefusedError("invalid_args", "which port? This run is about none")
        ask = LogAsk(
            port,
            given.number("limit", least=1, most=most) or limit,
            first=given.number("first"),
            last=given.number("last"),
            since=given.text("since"),
            until=given.text("until"),
            boot=given.number("boot", least=-1_000_000),
            marker=given.number_or_text("marker"),
            level=given.one_of("level", SEVERITIES),
            match=given.text("match") or "",
        )
        given.end()
        found = await self._archive.ask(partial(_called, how, ask, time.time_ns()))
        self.ledger.update({(line.port, line.seq): line for line in found.lines})
        return Answer(found.body, "dut")

    async def _ports(self) -> Answer:
        if self._ask_ports is None:
            return Answer({"ports": {}})
        return Answer({"ports": dict(await self._ask_ports())})

    async def _incidents(self, given: _Arguments) -> Answer:
        wanted = _Wanted(
            id=given.number("id"),
            port=given.text("port"),
            state=given.one_of("state", get_args(State)),
            trigger=given.text("trigger"),
            since_utc_ns=_time(given.text("since")),
            limit=given.number("limit", least=1, most=MAX_ROWS) or 10,
        )
        given.end()
        found = await self._archive.ask(lambda archive: _load(archive, wanted))
        rows = [incident_to_json(incident) for incident in found]
        return Answer({"incidents": rows, "no_data": not rows}, "dut")

    def _search(self, given: _Arguments) -> Answer:
        query = given.text("query") or ""
        limit = given.number("limit", least=1, most=MAX_ROWS) or 3
        ecosystem = given.text("ecosystem")
        given.end()
        found = self._knowledge.search(query, ecosystem, limit)
        pages = [{**_page(hit.page), "score": hit.score} for hit in found]
        return Answer({"pages": pages, "no_data": not pages})

    def _page(self, given: _Arguments) -> Answer:
        wanted = given.text("id") or ""
        given.end()
        page = self._knowledge.get(wanted)
        if page is None:
            similar = [f.page.id for f in self._knowledge.search(wanted, limit=3)]
            near = f"; near it: {', '.join(similar)}" if similar else ""
            raise RefusedError("precondition", f"there is no page {wanted!r}{near}")
        return Answer({**_page(page), "body": page.body})

    async def _memories(self, given: _Arguments) -> Answer:
        query = given.text("query") or ""
        port = given.text("port") or self.port
        kind = given.one_of("type", get_args(MemoryType))
        limit = given.number("limit", least=1, most=MAX_ROWS) or 5
        given.end()
        now = time.time_ns()

        def look(archive: Archive) -> list[MemoryHit]:
            if (db := archive.database) is None:
                return []
            about = load_incident(db, self.incident) if self.incident is not None else None
            fingerprint = about.fingerprint if about else ""
            return search(
                db, query, now, place=Place(port), fingerprint=fingerprint, type=kind, limit=limit
            )

        found = [_memory(hit, now) for hit in await self._archive.ask(look)]
        return Answer({"memories": found, "no_data": not found}, "memory")

    def _result(self, given: _Arguments) -> Answer:
        ref, start = given.text("id") or "", given.number("start") or 0
        limit = given.number("limit", least=1, most=MAX_KEPT) or 4000
        match = (given.text("match") or "").lower()
        given.end()
        if ref not in self.results:
            known = ", ".join(self.results) or "none yet"
            raise RefusedError("precondition", f"there is no result {ref!r}; there is: {known}")
        text = json.dumps(self.results[ref], indent=1, ensure_ascii=False)
        if match:
            text = "\n".join(line for line in text.split("\n") if match in line.lower())
        part = text[start : start + limit]
        more = start + limit if start + limit < len(text) else None
        body: Json = {"id": ref, "chars": len(text), "text": part, "next": more}
        return Answer({**body, "no_data": not part}, "dut")


class _Arguments:
    """What came with a call; taken one by one, checked, and none may be left over."""

    def __init__(self, body: Mapping[str, Any]) -> None:
        self._body = dict(body)

    def text(self, name: str) -> str | None:
        value = self._body.pop(name, None)
        if value is not None and (not isinstance(value, str) or len(value) > MAX_TEXT):
            raise RefusedError("invalid_args", f"{name}: a text of at most {MAX_TEXT} characters")
        return value

    def number(self, name: str, least: int = 0, most: int = 2**63 - 1) -> int | None:
        value = self._body.pop(name, None)
        if value is None:
            return None
        if isinstance(value, bool) or not isinstance(value, int) or not least <= value <= most:
            raise RefusedError("invalid_args", f"{name}: a whole number from {least} to {most}")
        return value

    def number_or_text(self, name: str) -> int | str | None:
        return self.text(name) if isinstance(self._body.get(name), str) else self.number(name)

    def one_of(self, name: str, allowed: Sequence[T]) -> T | None:
        value = self._body.pop(name, None)
        for one in allowed:
            if value == one:
                return one
        if value is not None:
            raise RefusedError("invalid_args", f"{name}: one of {', '.join(map(str, allowed))}")
        return None

    def mapping(self, name: str) -> Json:
        value = self._body.pop(name, None)
        self.end()
        if not isinstance(value, dict):
            raise RefusedError("invalid_args", f"{name}: an object")
        return value

    def end(self) -> None:
        if self._body:
            names = ", ".join(sorted(map(str, self._body)))
            raise RefusedError("invalid_args", f"no such argument: {names[:MAX_TEXT]}")


@dataclass(frozen=True, slots=True)
class _Wanted:
    id: int | None
    port: str | None
    state: State | None
    trigger: str | None
    since_utc_ns: int | None
    limit: int


def _called(
    how: Callable[[Archive, LogAsk, int], LogAnswer], ask: LogAsk, now: int, archive: Archive
) -> LogAnswer:
    return how(archive, ask, now)


def _load(archive: Archive, wanted: _Wanted) -> tuple[Incident, ...]:
    if (db := archive.database) is None:
        return ()
    if wanted.id is not None:
        incident = load_incident(db, wanted.id)
        return (incident,) if incident else ()
    return load_incidents(
        db,
        port=wanted.port or "",
        states=(wanted.state,) if wanted.state else (),
        trigger=wanted.trigger or "",
        since_utc_ns=wanted.since_utc_ns or 0,
        limit=wanted.limit,
    )


def _time(text: str | None) -> int | None:
    if text is None:
        return None
    try:
        return utc_ns(text)
    except ValueError:
        raise RefusedError("invalid_args", f"{text!r} is no date in ISO 8601") from None


async def _handed(to: Submit | None, body: Json) -> Answer:
    if to is None:
        raise RefusedError("precondition", "this run takes none")
    return Answer(await to(body))


def _memory(hit: MemoryHit, now_utc_ns: int) -> Json:
    memory = hit.memory
    return {
        "id": memory.id,
        "type": memory.type,
        "title": memory.title,
        "body": memory.body,
        "priority": memory.priority,
        "source": memory.source,
        "scope": memory.scope,
        "scope_name": memory.scope_name,
        "age": _age(now_utc_ns - memory.updated_utc_ns),
        "learned": memory.hits,
        "evidence": list(memory.evidence),
        "fingerprint": memory.fingerprint,
        "score": round(hit.score, 3),
    }


def _age(ns: int) -> str:
    seconds = max(ns // 1_000_000_000, 0)
    for unit, length in (("d", 86400), ("h", 3600), ("min", 60)):
        if seconds >= length:
            return f"{seconds // length} {unit} ago"
    return "just now"


def _page(page: Page) -> Json:
    return {
        "id": page.id,
        "title": page.title,
        "ecosystem": page.ecosystem,
        "causes": [{"text": c.text, "likely": c.likely, "check": c.check} for c in page.causes],
        "do": list(page.do),
        "never": list(page.never),
    }
