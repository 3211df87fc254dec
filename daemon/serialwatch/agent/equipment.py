"""What every run of the agent works with: the core, the past, skills and pages."""

from __future__ import annotations

import logging
import re
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from serialwatch.agent.archive import Archive
from serialwatch.agent.core_link import ASK_LIMIT_S, CoreError, CoreLink
from serialwatch.agent.ctx.context import CtxServer, Submit
from serialwatch.agent.knowledge import Knowledge
from serialwatch.agent.role import Role
from serialwatch.agent.run.shown import one_line
from serialwatch.agent.skills.registry import Registry
from serialwatch.agent.skills.results import RefusedError
from serialwatch.agent.text.device_text import shortened
from serialwatch.agent.workers.own_skills import OwnSkills
from serialwatch.agent.workers.tools import Call, RunTools
from serialwatch.agent.workers.worker import Late, Quota, Workers
from serialwatch.records import SkillResult
from serialwatch.wire import Json

CALLS_A_MINUTE = 20  # skill calls of one model run
PORTS_LIMIT_S = 5.0
STEP_LIMIT_S = 2.0
ACT_LIMIT_S = 60.0  # a program that resets a board may take 30
MAX_TOLD = 160  # characters of a step
QUESTION = "ask-"  # sessions of questions begin so
MAX_RUNS = 64  # whose long jobs are waited for; those of the oldest are only stored

log = logging.getLogger(__name__)


@dataclass(slots=True)
class Equipment:
    """What is shared by all runs; `registry` is replaced when skills change."""

    link: CoreLink
    archive: Archive
    elfs: Mapping[str, str] = field(default_factory=dict)  # path of the firmware, by port
    workers: Workers = field(default_factory=Workers)
    boards: Mapping[str, str] = field(default_factory=dict)  # on which port which one is
    own: OwnSkills = field(default_factory=OwnSkills)
    registry: Registry = field(default_factory=lambda: Registry({}))
    knowledge: Knowledge = field(default_factory=lambda: Knowledge({}))
    pages: Mapping[str, str] = field(default_factory=dict)  # texts, by id
    may_propose: bool = False  # actions on boards, for people to decide
    _runs: dict[str, RunTools] = field(default_factory=dict)

    def tools(
        self,
        run_id: str,
        *,
        port: str = "",
        incident: int | None = None,
        session_id: str = "",
        submit: Submit | None = None,
        complete: Submit | None = None,
        role: Role | None = None,
        user: str = "",
    ) -> RunTools:
        """Return the tools of one run; with `submit` it is a model's, and ends with a report.

        `role` narrows which skills it may use and which memories it sees; `user` asks.
        """
        is_model = submit is not None

        async def propose(body: Json) -> Json:
            name = role.name if role else ""
            about = {"run_id": run_id, "incident": incident, "role": name}
            told: Json = await self.told("propose")({**body, **about})
            return told

        ctx = CtxServer(
            self.archive,
            self.registry,
            self.knowledge,
            run_id=run_id,
            port=port,
            incident=incident,
            max_risk="L2" if is_model else "L1",
            ask_ports=self.ports_for_skills,
            ask_daemon=self.daemon_for_skills,
            submit_report=submit,
            write_memory=self.remember,
            write_snapshot=self.told("snapshot") if is_model else None,
            set_mark=self.told("mark") if is_model else None,
            propose=propose if is_model and self.may_propose and incident else None,
            complete=complete,
            elfs=self.elfs,
            boards=self.boards,
            session_id=session_id,
            role=role,
            user=user,
        )

        # The fixed plan of the offline analyst is told by its report, hundreds of times a day.
        is_followed = is_model or session_id.startswith(QUESTION)

        async def run(name: str, params: Mapping[str, Any]) -> SkillResult:
            skill = self.registry.get(name)
            if not is_followed and skill is not None and self.own.has(skill):
                return await self.own.run(name, params, ctx)
            return await self.workers.run(name, params, ctx)

        async def tell(call: Call) -> None:
            await self._tell_step(call, run_id, session_id, port)

        quota = Quota(CALLS_A_MINUTE) if is_model else None
        tools = RunTools(ctx, self.pages, run, tell if is_followed else None, quota)
        if is_model:
            while len(self._runs) >= MAX_RUNS:
                self._runs.pop(next(iter(self._runs)))
            self._runs[run_id] = tools
        return tools

    def forget(self, run_id: str) -> None:
        """Note that a run is over: long jobs that end later are only stored."""
        self._runs.pop(run_id, None)

    async def take_late(self, late: Late) -> bool:
        """Store what a long job gave; return whether its run still goes on, and has it."""
        if (tools := self._runs.get(late.run_id)) is not None:
            if late.is_action:
                tools.add_action(late.skill, late.result, late.lines)
            else:
                tools.add_late(late.skill, late.result)
        result = late.result
        told = {
            "status": result.status,
            "output": dict(result.output),
            "metadata": dict(result.metadata),
        }
        body = {
            "job_id": late.job_id, "run_id": late.run_id, "skill": late.skill, "body": told
        }  # fmt: skip
        try:
            await self.link.ask("late", body)
        except CoreError as exc:
            log.log(exc.level, "the result of job %s is not stored: %s", late.job_id, exc)
        return tools is not None

    async def ports(self, limit_s: float = PORTS_LIMIT_S) -> Mapping[str, Any]:
        """Return the state of every port.

        Raises:
            CoreError: the core did not say.

        """
        body = await self.link.ask("ports", {}, limit_s)
        return body if isinstance(body, dict) else {}

    async def ports_for_skills(self) -> Mapping[str, Any]:
        """Return the state of every port, or refuse."""
        try:
            return await self.ports()
        except CoreError as exc:
            raise RefusedError("precondition", str(exc)) from exc

    async def daemon_for_skills(self) -> Mapping[str, Any]:
        """Return how the daemon itself stands, or refuse."""
        state: Mapping[str, Any] = await self.told("daemon")({})
        return state

    async def _tell_step(self, call: Call, run_id: str, session_id: str, port: str) -> None:
        """Let the core tell whoever follows the run that a skill was called."""
        summary = call.result.metadata.get("summary")
        error = call.result.metadata.get("error")
        words = _said(error) if isinstance(error, Mapping) else summary
        body = {
            "run_id": run_id,
            "session_id": session_id,
            "n": call.n,
            "port": str(call.params.get("port") or port),
            "skill": shortened(one_line(call.skill), 48),
            "params": shortened(_params_text(call.params), MAX_TOLD),
            "told": shortened(one_line(str(words or call.result.status)), MAX_TOLD),
            "ms": call.elapsed_ms,
            "status": call.result.status,
        }
        try:
            await self.link.ask("step", body, STEP_LIMIT_S)
        except CoreError as exc:
            log.debug("%s: a step was not told: %s", session_id, exc)

    async def remember(self, memory: Json) -> Json:
        """Have the core store a memory; what passes no gate is refused with the reason."""
        written = await self.told("memory")(memory)
        told: Json = written if isinstance(written, dict) else {}
        if why := told.get("refused"):
            raise RefusedError("precondition", str(why))
        return told

    def told(self, op: str) -> Callable[[Json], Awaitable[Any]]:
        """Return what hands something to the core for a skill."""

        async def tell(body: Json) -> Any:
            try:
                return await self.link.ask(op, body, ACT_LIMIT_S if op == "act" else ASK_LIMIT_S)
            except CoreError as exc:
                raise RefusedError("precondition", str(exc)) from exc

        return tell


def _said(error: Mapping[str, Any]) -> object:
    """Return what a failure says to people; the sentence of this code is for a model."""
    is_precise = error.get("code") == "precondition" and error.get("detail")
    return error["detail"] if is_precise else error.get("message")


def _params_text(params: Mapping[str, Any]) -> str:
    """Return the parameters of a call as people read them: the port first."""
    given = {key: value for key, value in params.items() if key not in _UNTOLD}
    shown = {"port": given["port"], **given} if "port" in given else given
    words = [f"{key}={text}" for key, value in shown.items() if (text := _value_text(value))]
    return one_line(" ".join(words))


def _value_text(value: object) -> str:
    """Return a value in short, "" for what has parts of its own."""
    if isinstance(value, (list, tuple)):
        return ",".join(_value_text(each) for each in value)[:60].strip(",")
    if isinstance(value, Mapping):
        return ""
    if isinstance(value, bool):
        return str(value).lower()
    return _SECONDS.sub(r"\1Z", str(value))


_UNTOLD = frozenset({"limit", "before", "after"})  # how much is shown, not what is looked at
_SECONDS = re.compile(r"(\d{4}-\d\d-\d\dT\d\d:\d\d):\d\d\.\d+Z")
