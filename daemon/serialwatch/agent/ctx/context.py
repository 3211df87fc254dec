"""The agent's end of `ctx`: answers what a running skill asks, and keeps what the run has read."""

from __future__ import annotations

import json
import math
import re
import time
from collections.abc import Awaitable, Callable, Iterable, Mapping
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, Literal, Protocol, get_args

from serialwatch.agent.archive import Archive
from serialwatch.agent.ctx.arguments import Arguments
from serialwatch.agent.ctx.boot_answers import BootAsk, answer_compare
from serialwatch.agent.ctx.log_answers import LogAnswer, LogAsk, answer_lines, answer_stats
from serialwatch.agent.ctx.past_answers import (
    IncidentAsk,
    MemoryAsk,
    SnapshotAsk,
    answer_incidents,
    answer_memories,
    answer_snapshots,
)
from serialwatch.agent.knowledge import Cause, Knowledge, Page
from serialwatch.agent.remembering import quoted_from
from serialwatch.agent.role import Role
from serialwatch.agent.skills.once import Once
from serialwatch.agent.skills.registry import Registry
from serialwatch.agent.skills.results import MAX_KEPT, RefusedError, fitted, with_remembered
from serialwatch.records import OWN_PORT, SEVERITIES, Line, Risk, SkillResult, State
from serialwatch.store.incidents import load_incident
from serialwatch.store.memory_gate import MemorySource, MemoryType
from serialwatch.store.snapshots import MAX_BODY, MAX_NAME
from serialwatch.verdict import judged
from serialwatch.wire import Json

MAX_LINES = 400  # rows of one answer
MAX_SHAPES = 60
MAX_ROWS = 50  # incidents, memories, pages of one answer
MAX_SNAPSHOTS = 10
MAX_MARK = 120  # characters
MAX_KNOWN = 1500  # characters of what a question says is known
MAX_OPTIONS = 6
MAX_PROMPT = 8000  # characters for the cheap model
MAX_TOKENS = 1000  # of its answer
_OURS = frozenset({"source", "session_id", "user_id", "links", "fingerprint"})  # of a memory
_LINE = re.compile(r"([a-z0-9][a-z0-9_-]{0,31}):L([1-9]\d{0,17})")

Taint = Literal["host", "memory", "dut"]  # where a text comes from, most trusted first
AskPorts = Callable[[], Awaitable[Mapping[str, Any]]]
Submit = Callable[[Json], Awaitable[Json]]


class Takes(Protocol):
    """What counts calls against a limit."""

    def take(self, now_s: float) -> bool:
        """Count a call, or return False if there were too many."""

    def free_in_s(self, now_s: float) -> float:
        """Return in how many seconds a call is free again."""


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
        ask_daemon: AskPorts | None = None,
        submit_report: Submit | None = None,
        write_memory: Submit | None = None,
        write_snapshot: Submit | None = None,
        set_mark: Submit | None = None,
        complete: Submit | None = None,  # {"prompt", "max_tokens"} -> {"text"}: the cheap model
        elfs: Mapping[str, str] | None = None,  # path of each port's firmware, by port
        boards: Mapping[str, str] | None = None,  # on which port which one is
        session_id: str = "",
        role: Role | None = None,  # what it may use and remember; None: no narrower limits
        user: str = "",  # who asks
        propose: Submit | None = None,  # has a person decide on an action; None: none may be
        act: Submit | None = None,  # does a step of an approved action
    ) -> None:
        self.registry = registry
        self.run_id = run_id
        self.port = port
        self.incident = incident
        self.data_dir = data_dir
        self.max_risk: Risk = max_risk if propose is None else "L3"
        self.propose = propose
        self.act = act
        self.quota = quota
        self.step = 0  # of the plan; set by whoever works through it
        self.ledger: dict[tuple[str, int], Line] = {}
        self.results: dict[str, Json] = {}
        self.once = Once(archive, run_id)
        self._archive = archive
        self._knowledge = knowledge
        self._deadline_s = deadline_s
        self._ask_ports = ask_ports
        self._ask_daemon = ask_daemon
        self._submit_report = submit_report
        self._write_memory = write_memory
        self._write_snapshot = write_snapshot
        self._set_mark = set_mark
        self._complete = complete
        self._elfs = {} if elfs is None else elfs
        self._boards = {} if boards is None else boards
        self.session_id = session_id or (f"incident-{incident}" if incident else run_id)
        self._role = role
        self._user = user

    def refusal(self, skill: str, risk: Risk) -> str:
        """Return why a skill may not be used in this run, "" if it may."""
        role = self._role
        found = self.registry.get(skill)
        if role is not None and not (found and found.is_for(role.name, role.skills)):
            return f"{skill} is none of the skills of the role {role.name}"
        most = self.max_risk if role is None else min(self.max_risk, role.risk)
        return f"{skill} is {risk}; this run may use {most} at most" if risk > most else ""

    def has_read(self, line: object) -> bool:
        """Tell whether a line, such as dut1:L48213, was read in this run."""
        found = _LINE.fullmatch(line) if isinstance(line, str) else None
        return found is not None and (found[1], int(found[2])) in self.ledger

    def left_s(self) -> float:
        """Return how long the run may still go on."""
        return self._deadline_s - time.monotonic()

    def elf(self, port: object = None) -> str | None:
        """Return the firmware file that is configured for a port, by default that of the run."""
        return self._elfs.get(port if isinstance(port, str) and port else self.port)

    async def newest(self, port: str) -> int:
        """Return the number of the newest line of a port, 0 if there is none."""
        return await self._archive.ask(lambda archive: _newest(archive, port))

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
                return await self._log(answer_lines, Arguments(body), 100, MAX_LINES)
            case "log.stats":
                return await self._log(answer_stats, Arguments(body), 20, MAX_SHAPES)
            case "log.compare":
                return await self._compared(Arguments(body))
            case "ports":
                return await self._ports()
            case "incidents":
                return await self._incidents(Arguments(body))
            case "knowledge.search":
                return self._search(Arguments(body))
            case "knowledge.get":
                return self._page(Arguments(body))
            case "memory.search":
                return await self._memories(Arguments(body))
            case "results.read":
                return self._result(Arguments(body))
            case "snapshot.read":
                return await self._snapshots(Arguments(body))
            case "snapshot.write":
                return await self._kept(Arguments(body))
            case "memory.write":
                return await self._remembered(Arguments(body))
            case "mark":
                return await self._marked(Arguments(body))
            case "report.submit":
                return await self._reported(Arguments(body))
            case "human.ask":
                return _question(Arguments(body))
            case "model.complete":
                return await self._completed(Arguments(body))
            case _:
                raise RefusedError("denied", f"ctx has no {op}")

    async def _log(
        self,
        how: Callable[[Archive, LogAsk, int], LogAnswer],
        given: Arguments,
        limit: int,
        most: int,
    ) -> Answer:
        ask = LogAsk(
            self._port(given),
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
        self._served(found.lines)
        return Answer(found.body, "dut")

    def _port(self, given: Arguments) -> str:
        if port := given.text("port") or self.port:
            return port
        raise RefusedError("invalid_args", "which port? This run is about none")

    def _served(self, lines: Iterable[Line]) -> None:
        self.ledger.update({(line.port, line.seq): line for line in lines})

    async def _ports(self) -> Answer:
        if self._ask_ports is None:
            return Answer({"ports": {}})
        ports = (await self._ask_ports()).items()
        body: Json = {"ports": {name: {"verdict": judged(view)} | view for name, view in ports}}
        if self.port == OWN_PORT and self._ask_daemon is not None:
            body["daemon"] = dict(await self._ask_daemon())
        return Answer(body)

    async def _compared(self, given: Arguments) -> Answer:
        port = self._port(given)
        boot, base = (given.number(name, least=-1_000_000) for name in ("boot", "base"))
        limit = given.number("limit", least=1, most=MAX_SHAPES) or 20
        given.end()

        def compared(archive: Archive) -> LogAnswer:
            number = boot
            if number is None and port == self.port:
                number = _boot_of(archive, self.incident)
            return answer_compare(archive, BootAsk(port, number, base, limit))

        found = await self._archive.ask(compared)
        self._served(found.lines)
        return Answer(found.body, "dut")

    async def _incidents(self, given: Arguments) -> Answer:
        ask = IncidentAsk(
            limit=given.number("limit", least=1, most=MAX_ROWS) or 10,
            id=given.number("id"),
            port=given.text("port"),
            state=given.one_of("state", get_args(State)),
            trigger=given.text("trigger"),
            fingerprint=given.text("fingerprint"),
            since=given.text("since"),
            until=given.text("until"),
            with_reports=given.flag("reports"),
        )
        given.end()
        now = time.time_ns()
        return Answer(await self._archive.ask(lambda a: answer_incidents(a, ask, now)), "dut")

    def _search(self, given: Arguments) -> Answer:
        query = given.text("query") or ""
        limit = given.number("limit", least=1, most=MAX_ROWS) or 3
        ecosystem = given.text("ecosystem")
        given.end()
        found = self._knowledge.search(query, ecosystem, limit)
        pages = [{**_page(hit.page), "score": hit.score} for hit in found]
        return Answer({"pages": pages, "no_data": not pages})

    def _page(self, given: Arguments) -> Answer:
        wanted = given.text("id") or ""
        given.end()
        page = self._knowledge.get(wanted)
        if page is None:
            similar = [f.page.id for f in self._knowledge.search(wanted, limit=3)]
            near = f"; near it: {', '.join(similar)}" if similar else ""
            raise RefusedError("precondition", f"there is no page {wanted!r}{near}")
        return Answer({**_page(page), "body": page.body})

    async def _memories(self, given: Arguments) -> Answer:
        port = given.text("port") or self.port
        ask = MemoryAsk(
            query=given.text("query") or "",
            port=port,
            board=self._boards.get(port, ""),
            type=given.one_of("type", get_args(MemoryType)),
            limit=given.number("limit", least=1, most=MAX_ROWS) or 5,
            incident=self.incident,
            user=self._user,
            scopes=self._role.memory_read if self._role else None,
        )
        given.end()
        now = time.time_ns()
        return Answer(await self._archive.ask(lambda a: answer_memories(a, ask, now)), "memory")

    async def _snapshots(self, given: Arguments) -> Answer:
        ask = SnapshotAsk(
            port=given.text("port") or self.port,
            name=given.text("name"),
            id=given.number("id"),
            limit=given.number("limit", least=1, most=MAX_SNAPSHOTS) or 2,
        )
        given.end()
        now = time.time_ns()
        # A state may hold what a board printed.
        return Answer(await self._archive.ask(lambda a: answer_snapshots(a, ask, now)), "dut")

    async def _kept(self, given: Arguments) -> Answer:
        port, name = given.text("port") or self.port, given.text("name") or ""
        body = given.mapping("body")
        given.end()
        if not 1 <= len(name) <= MAX_NAME or not name.isprintable():
            raise RefusedError("invalid_args", f"name: 1 to {MAX_NAME} printable characters")
        if (size := len(json.dumps(body, ensure_ascii=False).encode())) > MAX_BODY:
            raise RefusedError("invalid_args", f"body: {size} bytes of JSON, at most {MAX_BODY}")
        wanted = {"port": port, "name": name, "run_id": self.run_id, "body": body}
        return await _handed(self._write_snapshot, wanted)

    async def _remembered(self, given: Arguments, source: MemorySource = "model") -> Answer:
        """Hand on a memory of this run; who says so and from which lines is not the skill's."""
        skill = given.text("skill") or ""
        memory = given.mapping("memory")
        given.end()
        if owned := sorted(memory.keys() & _OURS):
            raise RefusedError("invalid_args", f"{', '.join(owned)}: filled in by the agent")
        scope, role = memory.get("scope", "bench"), self._role
        if role is not None and scope not in role.memory_write:
            allowed = ", ".join(sorted(role.memory_write)) or "none"
            told = f"scope {scope}: the role {role.name} may add to {allowed}"
            raise RefusedError("denied", told)
        for line in memory.get("evidence") or ():
            self._check_read(line)
        self._check_own_words(memory)
        if scope == "port":
            memory["scope_name"] = self._read_port(memory.get("scope_name"))
        step = f"{self.run_id}:{self.step}"
        links = [{"source_skill": skill, "source_step": step}] if skill else []
        ours = {"source": source, "session_id": self.session_id, "links": links}
        return await _handed(self._write_memory, {**memory, **ours})

    async def remember_from(self, skill: str, memories: Iterable[Mapping[str, Any]]) -> list[Json]:
        """Write what a skill's result wants remembered; return what became of each."""
        told: list[Json] = []
        source: MemorySource = "rule" if self._submit_report is None else "model"
        for memory in memories:
            given = Arguments({"skill": skill, "memory": dict(memory)})
            try:
                answer = await self._remembered(given, source)
            except RefusedError as exc:
                told.append({"refused": str(exc)})
            else:
                told.append(answer.body)
        return told

    async def remembered(self, skill: str, result: SkillResult) -> SkillResult:
        """Write what a good result wants remembered, and return it with what became of each."""
        is_again = result.metadata.get("repeated")
        if result.status != "success" or not result.new_memories or is_again:
            return result
        return with_remembered(result, await self.remember_from(skill, result.new_memories))

    def _check_own_words(self, memory: Mapping[str, Any]) -> None:
        """Let no words of a board into memory: tomorrow they would be taken for ours."""
        tags = memory.get("tags")
        parts = [memory.get("title"), memory.get("body"), *(tags if isinstance(tags, list) else ())]
        text = " ".join(map(str, parts))
        pages = {p.id: f"{p.title}\n{p.body}" for p in self._knowledge.pages.values()}
        if quoted := quoted_from(text, self.ledger.values(), pages):
            start, end, ref = quoted[0]
            raise RefusedError(
                "precondition",
                f"{text[start:end]!r} is what {ref} says: say in your own words what is so, and "
                "cite the line",
            )

    def _read_port(self, named: object) -> str:
        """Return the port that a memory is about: this run's, or one it has read."""
        if not named or named == self.port:
            return self.port
        if any(port == named for port, _ in self.ledger):
            return str(named)
        raise RefusedError("invalid_args", f"scope_name: nothing of {named} was read in this run")

    def _check_read(self, line: object) -> None:
        found = _LINE.fullmatch(line) if isinstance(line, str) else None
        if found is None:
            raise RefusedError("invalid_args", "evidence: lines such as dut1:L48213")
        if (found[1], int(found[2])) not in self.ledger:
            raise RefusedError("invalid_args", f"evidence: {line} was not read in this run")

    async def _marked(self, given: Arguments) -> Answer:
        port, text = self._port(given), given.text("text", MAX_MARK) or ""
        given.end()
        if not text.strip() or not text.isprintable():
            raise RefusedError("invalid_args", f"text: 1 to {MAX_MARK} printable characters")
        body = {"port": port, "text": text.strip(), "run_id": self.run_id}
        return await _handed(self._set_mark, body)

    async def _reported(self, given: Arguments) -> Answer:
        report = given.mapping("report")
        given.end()
        return await _handed(self._submit_report, report)

    async def _completed(self, given: Arguments) -> Answer:
        prompt = given.text("prompt", MAX_PROMPT) or ""
        most = given.number("max_tokens", least=1, most=MAX_TOKENS) or 300
        given.end()
        if not prompt.strip():
            raise RefusedError("invalid_args", "prompt: a text")
        if self._complete is None:
            raise RefusedError("precondition", "no model is configured: work without")
        answer = await _handed(self._complete, {"prompt": prompt, "max_tokens": most})
        return Answer(answer.body, "dut")  # it may repeat what a board printed

    def _result(self, given: Arguments) -> Answer:
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


def _newest(archive: Archive, port: str) -> int:
    try:
        bounds = archive.log(port).bounds()
    except (RefusedError, OSError):  # there is no such log, or it cannot be read now
        return 0
    return bounds[1] if bounds else 0


def _called(
    how: Callable[[Archive, LogAsk, int], LogAnswer], ask: LogAsk, now: int, archive: Archive
) -> LogAnswer:
    return how(archive, ask, now)


def _boot_of(archive: Archive, incident: int | None) -> int | None:
    if incident is None or archive.database is None:
        return None
    found = load_incident(archive.database, incident)
    return found.boot or None if found else None


async def _handed(to: Submit | None, body: Json) -> Answer:
    if to is None:
        raise RefusedError("precondition", "this run takes none")
    got: object = await to(body)
    return Answer(got if isinstance(got, dict) else {"id": got})


def _question(given: Arguments) -> Answer:
    """Return a question as it goes to a person; the skill ends with it."""
    need: Json = {
        "kind": "answer",
        "question": (given.text("question") or "").strip(),
        "known": given.text("known", MAX_KNOWN) or "",
        "missing": given.text("missing") or "",
        "options": given.texts("options", MAX_OPTIONS),
    }
    given.end()
    if not need["question"]:
        raise RefusedError("invalid_args", "question: a text")
    return Answer(need)


def _page(page: Page) -> Json:
    return {
        "id": page.id,
        "title": page.title,
        "ecosystem": page.ecosystem,
        "causes": [_cause(cause) for cause in page.causes],
        "do": list(page.do),
        "never": list(page.never),
    }


def _cause(cause: Cause) -> Json:
    signs = {"rules": cause.rules, "lines": cause.lines, "unless": cause.unless}
    shown = {name: list(given) for name, given in signs.items() if given}
    return {"text": cause.text, "likely": cause.likely, "check": cause.check, **shown}
