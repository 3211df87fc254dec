"""Run skills, each in a process of its own that is killed when its time is up.

Whatever a skill does, spin, leak, crash, write garbage, comes back as a `SkillResult`; the loop
waits for nothing but messages.
"""

from __future__ import annotations

import asyncio
import logging
import math
import secrets
import time
from collections import deque
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from types import TracebackType
from typing import Any

from serialwatch.agent.ctx.context import CtxServer
from serialwatch.agent.skills.resting import Resting
from serialwatch.agent.skills.results import (
    Code,
    RefusedError,
    capped,
    error_code,
    failure,
)
from serialwatch.agent.skills.skill import Skill
from serialwatch.agent.workers.circuit import Circuits
from serialwatch.agent.workers.fork_client import ForkClient
from serialwatch.agent.workers.running import Outcome, Running, Wanted
from serialwatch.records import Line, SkillResult
from serialwatch.wire import Json

log = logging.getLogger(__name__)

AT_ONCE = 8  # skills that run at the same time, those called by skills not counted
MAX_DEPTH = 3  # of skills that call skills
MAX_LONG = 2  # long jobs at a time


class Quota:
    """At most `per_minute` calls within any 60 seconds."""

    def __init__(self, per_minute: int) -> None:
        self._per_minute = per_minute
        self._taken_s: deque[float] = deque()

    def take(self, now_s: float) -> bool:
        """Count a call, or return False if there were too many."""
        while self._taken_s and self._taken_s[0] <= now_s - 60:
            self._taken_s.popleft()
        if len(self._taken_s) >= self._per_minute:
            return False
        self._taken_s.append(now_s)
        return True

    def free_in_s(self, now_s: float) -> float:
        """Return in how many seconds a call is free again, 0 if one is."""
        if len(self._taken_s) < self._per_minute:
            return 0.0
        return max(self._taken_s[-self._per_minute] + 60 - now_s, 0.0)


@dataclass(frozen=True, slots=True)
class Late:
    """The result of a long job."""

    job_id: str
    run_id: str
    skill: str
    result: SkillResult
    incident: int | None = None  # that the run is about
    lines: Sequence[Line] = ()  # of an action: what its skill has read
    is_action: bool = False  # that a person has decided on


class Workers:
    """The processes of skills; `async with` starts the process that forks them, and ends all.

    `on_late` takes the result of each long job, `on_resting` the skills that rest whenever one
    begins or ends to; they may neither block nor raise.
    """

    def __init__(
        self,
        at_once: int = AT_ONCE,
        on_late: Callable[[Late], None] | None = None,
        on_resting: Callable[[Sequence[Resting]], None] = lambda _: None,
    ) -> None:
        self._places = asyncio.Semaphore(at_once)
        self._on_late = on_late
        self._tasks: set[asyncio.Task[None]] = set()  # calls that may become long jobs
        self._long = 0  # those that have
        self._circuits = Circuits(on_resting)
        self._starting = asyncio.Lock()
        self._server: ForkClient | None = None
        self._has_stopped = False

    async def __aenter__(self) -> Workers:
        await self.start()
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        await self.stop()

    async def start(self) -> None:
        """Have the first skill find everything ready; else it starts it itself."""
        async with self._starting:
            if self._has_stopped:
                return
            if self._server is None or not self._server.is_alive:
                if self._server is not None:
                    log.warning("the process that starts skills ended; starting another")
                    await self._server.stop()
                self._server = await ForkClient.started()

    async def stop(self) -> None:
        """End every skill that still runs; none is started any more."""
        self._has_stopped = True
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        server, self._server = self._server, None
        if server is not None:
            await server.stop()

    @property
    def pid(self) -> int | None:
        """Return the process that starts the others, None if there is none."""
        return self._server.pid if self._server else None

    @property
    def alive(self) -> int:
        """Return how many processes of skills have not ended."""
        return self._server.alive if self._server else 0

    async def run(
        self,
        skill: Skill | str,
        params: Mapping[str, Any],
        ctx: CtxServer,
        timeout_s: float | None = None,
        grant: str = "",
    ) -> SkillResult:
        """Run a skill of the run's registry and return its result, cut to what a caller may get.

        The whole output is in `ctx.results` under `metadata["result"]`. `timeout_s` can only
        shorten what the skill and the run allow. An L3 skill is rehearsed, and what it would do
        proposed, unless `grant` names the approved action.
        """
        name = skill if isinstance(skill, str) else skill.name
        call = Wanted(name, params, ctx, timeout_s, None, 1, grant)
        return (await self.nested(call)).result

    async def nested(self, call: Wanted) -> Outcome:
        """Run a skill, perhaps one that another calls."""
        skill = call.ctx.registry.get(call.name)
        if skill is None or skill.risk == "L1" or call.grant:
            return await self._kept(call, skill)
        if call.depth > 1:  # its caller has its turn already
            return await self._once(call, skill)
        async with call.ctx.once.turn(skill, call.params):
            return await self._once(call, skill)

    async def _once(self, call: Wanted, skill: Skill) -> Outcome:
        """Run a skill that writes; the same call again in its run gets the same result."""
        try:
            earlier = await call.ctx.once.result(skill, call.params)
        except RefusedError as exc:
            return _failed(exc.code, str(exc))
        if earlier is not None:
            return Outcome(earlier, earlier.metadata.get("taint", "dut"))
        outcome = await self._kept(call, skill)
        call.ctx.once.keep(skill, call.params, outcome.result)
        return outcome

    async def _kept(self, call: Wanted, skill: Skill | None) -> Outcome:
        """Run a skill, keep its output, and return what the caller gets."""
        began_s = time.monotonic()
        outcome = await self._outcome(call, skill)
        return _as_kept(outcome, call.ctx, skill, began_s)

    async def _outcome(self, call: Wanted, skill: Skill | None) -> Outcome:
        if skill is None:
            similar = list(call.ctx.registry.similar(call.name))
            detail = f"similar: {', '.join(similar)}" if similar else ""
            return _failed("unknown_skill", detail, {"similar": similar})
        if refusal := _refusal(call, skill):
            return _failed("denied", refusal)
        if not skill.has_main:
            return _failed("precondition", f"{skill.name} is a text to read, not a program")
        if refusal := self._circuits.refusal(skill):
            return _failed("circuit_open", refusal)
        if problems := skill.problems(dict(call.params)):
            listed = [
                {"pointer": p.pointer, "message": p.message, "allowed": list(p.allowed)}
                for p in problems
            ]
            output: Json = {"problems": listed}
            if (example := skill.example()) is not None:
                output["example"] = example
            return _failed("invalid_args", output=output)
        quota, now_s = call.ctx.quota, time.monotonic()
        if quota is not None and not quota.take(now_s):
            free_in_s = math.ceil(quota.free_in_s(now_s))
            return _failed("quota_minute", f"free again in {free_in_s} s", {"free_in_s": free_in_s})
        if call.depth > 1:  # the caller has a place already
            return await self._in_process(call, skill)
        async with self._places:
            return await self._in_process(call, skill)

    async def _in_process(self, call: Wanted, skill: Skill) -> Outcome:
        limit_s = min(skill.timeout_s, call.timeout_s or math.inf, call.ctx.left_s())
        if limit_s <= 0:
            return _failed("budget")
        await self.start()
        server = self._server
        if server is None:
            return _failed("crashed", "the daemon is stopping")
        run = Running(self, server, server.fork(), call, skill, limit_s)
        if run.is_rehearsal:
            return await _proposed(run, await run.finish(), call.params)
        if not skill.long_s or call.depth > 1:
            return await run.finish()
        return await self._until_accepted(run)

    async def _until_accepted(self, run: Running) -> Outcome:
        """Return the result, or at once that the skill has become a long job."""
        first: asyncio.Future[Outcome] = asyncio.get_running_loop().create_future()
        run.first = first
        task = asyncio.create_task(self._finish_late(run, first), name=f"skill {run.skill.name}")
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        try:
            return await first
        except asyncio.CancelledError:
            task.cancel()
            await asyncio.wait([task])
            raise

    async def _finish_late(self, run: Running, first: asyncio.Future[Outcome]) -> None:
        """Run to the end; hand the result to the caller, or deliver it if it has gone on."""
        began_s = time.monotonic()
        try:
            outcome = await run.finish()
        except asyncio.CancelledError:
            if not first.done():
                first.set_result(_failed("crashed", "the daemon is stopping"))
            raise
        except Exception as exc:
            log.exception("skill %s: running it failed", run.skill.name)
            outcome = _failed("crashed", f"running it failed: {type(exc).__name__}")
        finally:
            self._long -= bool(run.job_id)
        if not run.job_id:
            if not first.done():
                first.set_result(outcome)
            return
        result = _as_kept(outcome, run.ctx, run.skill, began_s).result
        result = await run.ctx.remembered(run.skill.name, result)
        log.info("skill %s: job %s ended: %s", run.skill.name, run.job_id, result.status)
        if self._on_late is not None:
            ctx = run.ctx
            self._on_late(Late(run.job_id, ctx.run_id, run.skill.name, result, ctx.incident))

    def accept(self, run: Running, what: str) -> float:
        """Let a skill become a long job, and return its limit in seconds.

        Raises:
            RefusedError: it may not, or too many are.

        """
        if run.first is None:
            why = "another skill called it" if run.skill.long_s else "its SKILL.md states no long-s"
            raise RefusedError("denied", f"{run.skill.name} cannot be a long job: {why}")
        if self._long >= MAX_LONG:
            raise RefusedError("precondition", f"{MAX_LONG} long jobs run already; call it later")
        self._long += 1
        run.job_id = f"J{secrets.token_hex(6)}"
        output = {"job": run.job_id, "what": what, "limit_s": run.skill.long_s}
        metadata = {"accepted": run.job_id, "summary": f"accepted as {run.job_id}: {what}"[:160]}
        run.first.set_result(Outcome(SkillResult("success", output, metadata=metadata), "host"))
        return run.skill.long_s

    def enable(self, names: Iterable[str]) -> None:
        """Let skills that rest be used again: their files were written."""
        self._circuits.enable(names)

    def note(self, skill: Skill, result: SkillResult) -> None:
        """Count what ended badly by the skill's own fault."""
        if (code := error_code(result)) in ("timeout", "crashed"):
            self._circuits.failed(skill, code, time.monotonic())


async def _proposed(run: Running, outcome: Outcome, params: Mapping[str, Any]) -> Outcome:
    """Have a person decide on what a skill would do; what it lacks it says at once."""
    skill, ctx = run.skill, run.ctx
    if outcome.result.status != "success" or not run.rehearsed or ctx.propose is None:
        return outcome
    named = params.get("evidence")
    evidence = [line for line in named if ctx.has_read(line)] if isinstance(named, list) else []
    body: Json = {
        "skill": skill.name,
        "version": skill.version,
        "sha": skill.sha,
        "port": run.rehearsed_port,
        "args": skill.with_defaults(params),
        "steps": run.rehearsed,
        "why": str(params.get("why", "")),
        "evidence": evidence,
        "any_boot": skill.any_boot,
    }
    try:
        told = await ctx.propose(body)
    except RefusedError as exc:
        return _failed(exc.code, str(exc))
    if why := told.get("refused"):
        return _failed("precondition", str(why))
    action, effect = str(told["id"]), [str(words) for words in told["effect"]]
    output: Json = {
        "action": action,
        "state": told["state"],
        "effect": effect,
        "next": "a person decides; nothing was sent; go on without its result",
    }
    summary = f"action {action} is proposed, a person decides: {'; '.join(effect)}"[:160]
    need = {"kind": "approval", "approval_id": action}
    return Outcome(SkillResult("require_more", output, (), {"need": need, "summary": summary}),
                   outcome.taint)  # fmt: skip


def _failed(code: Code, detail: str = "", output: Mapping[str, Any] | None = None) -> Outcome:
    return Outcome(failure(code, detail, output), "host")


def _as_kept(outcome: Outcome, ctx: CtxServer, skill: Skill | None, began_s: float) -> Outcome:
    """Keep the whole output, and return the outcome as its caller gets it."""
    result = outcome.result
    metadata = dict(result.metadata)
    if skill is not None and (hint := skill.hints.get(error_code(result))):
        metadata["error"] = {**metadata["error"], "hint": hint}
    ref = ctx.keep(result)
    metadata |= {
        "result": ref,
        "taint": outcome.taint,
        "elapsed_ms": round((time.monotonic() - began_s) * 1000),
    }
    return replace(outcome, result=capped(replace(result, metadata=metadata), ref))


def _refusal(call: Wanted, skill: Skill) -> str:
    """Return why the call is not allowed, "" if it is."""
    if skill.risk == "L3":
        if call.depth > 1:
            return f"{skill.name} is L3: no other skill may call it"
        if call.grant:
            return ""
        if call.ctx.propose is None:
            return f"{skill.name} is L3: a person has to approve it; this run can propose nothing"
    if call.caller is not None and call.caller.risk == "L3" and skill.risk != "L1":
        return f"{skill.name} is {skill.risk}: an action on a board may only read beside that"
    if refusal := call.ctx.refusal(skill.name, skill.risk):
        return refusal
    if call.caller is not None and skill.risk > call.caller.risk:
        return f"{skill.name} is {skill.risk}, its caller {call.caller.risk}"
    if call.depth > MAX_DEPTH:
        return f"skills that call skills, more than {MAX_DEPTH} deep"
    return ""
