"""Run skills, each in a process of its own that is killed when its time is up.

Whatever a skill does, spin, leak, crash, write garbage, comes back as a `SkillResult`; the loop
waits for nothing but messages.
"""

from __future__ import annotations

import asyncio
import logging
import math
import time
from collections import deque
from collections.abc import Mapping
from dataclasses import dataclass, replace
from types import TracebackType
from typing import Any

from serialwatch.agent.context import CtxServer
from serialwatch.agent.fork_client import ForkClient, Pipe
from serialwatch.agent.results import (
    SENTENCES,
    BadResultError,
    Code,
    RefusedError,
    capped,
    checked,
    failure,
)
from serialwatch.agent.skill import Skill
from serialwatch.agent.skill_process import MAX_FRAME
from serialwatch.records import SkillResult
from serialwatch.wire import Json, pack, receive, show

log = logging.getLogger(__name__)

AT_ONCE = 8  # skills that run at the same time, those called by skills not counted
MAX_DEPTH = 3  # of skills that call skills


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


class Workers:
    """The processes of skills; `async with` starts the process that forks them, and ends all."""

    def __init__(self, at_once: int = AT_ONCE) -> None:
        self._places = asyncio.Semaphore(at_once)
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
    ) -> SkillResult:
        """Run a skill of the run's registry and return its result, cut to what a caller may get.

        The whole output is in `ctx.results` under `metadata["result"]`. `timeout_s` can only
        shorten what the skill and the run allow.
        """
        name = skill if isinstance(skill, str) else skill.name
        call = _Call(name, params, ctx, timeout_s, None, 1)
        return (await self._run(call)).result

    async def _run(self, call: _Call) -> _Outcome:
        began_s = time.monotonic()
        outcome = await self._outcome(call)
        result = outcome.result
        ref = call.ctx.keep(result)
        metadata = {
            **result.metadata,
            "result": ref,
            "taint": outcome.taint,
            "elapsed_ms": round((time.monotonic() - began_s) * 1000),
        }
        return replace(outcome, result=capped(replace(result, metadata=metadata), ref))

    async def _outcome(self, call: _Call) -> _Outcome:
        skill = call.ctx.registry.get(call.name)
        if skill is None:
            similar = list(call.ctx.registry.similar(call.name))
            return _failed("unknown_skill", output={"similar": similar})
        if refusal := _refusal(call, skill):
            return _failed("denied", refusal)
        if not skill.has_main:
            return _failed("precondition", f"{skill.name} is a text to read, not a program")
        if problems := skill.problems(dict(call.params)):
            return _failed("invalid_args", output={"problems": [
                {"pointer": p.pointer, "message": p.message, "allowed": list(p.allowed)}
                for p in problems
            ]})  # fmt: skip
        if call.ctx.quota is not None and not call.ctx.quota.take(time.monotonic()):
            return _failed("quota_minute")
        if call.depth > 1:  # the caller has a place already
            return await self._in_process(call, skill)
        async with self._places:
            return await self._in_process(call, skill)

    async def _in_process(self, call: _Call, skill: Skill) -> _Outcome:
        limit_s = min(skill.timeout_s, call.timeout_s or math.inf, call.ctx.left_s())
        if limit_s <= 0:
            return _failed("budget")
        await self.start()
        server = self._server
        if server is None:
            return _failed("crashed", "the daemon is stopping")
        pipe = server.fork()
        run = _Running(self, server, pipe, call, skill, limit_s)
        try:
            return await run.finish()
        finally:
            pipe.close()


@dataclass(frozen=True, slots=True)
class _Call:
    name: str
    params: Mapping[str, Any]
    ctx: CtxServer
    timeout_s: float | None
    caller: Skill | None  # the skill that asks for it
    depth: int


@dataclass(frozen=True, slots=True)
class _Outcome:
    result: SkillResult
    taint: str  # host, memory or dut: the least trusted thing the skill read


def _failed(code: Code, detail: str = "", output: Mapping[str, Any] | None = None) -> _Outcome:
    return _Outcome(failure(code, detail, output), "host")


def _refusal(call: _Call, skill: Skill) -> str:
    """Return why the call is not allowed, "" if it is."""
    if skill.risk == "L3":
        return f"{skill.name} is L3: a person has to approve it, and no one can yet"
    if skill.risk > call.ctx.max_risk:
        return f"{skill.name} is {skill.risk}; this run may use {call.ctx.max_risk} at most"
    if call.caller is not None and skill.risk > call.caller.risk:
        return f"{skill.name} is {skill.risk}, its caller {call.caller.risk}"
    if call.depth > MAX_DEPTH:
        return f"skills that call skills, more than {MAX_DEPTH} deep"
    return ""


_TAINTS = ("host", "memory", "dut")  # most trusted first


class _Running:
    """One skill while it runs."""

    def __init__(
        self,
        workers: Workers,
        server: ForkClient,
        pipe: Pipe,
        call: _Call,
        skill: Skill,
        limit_s: float,
    ) -> None:
        self._workers = workers
        self._server = server
        self._pipe = pipe
        self._call = call
        self._skill = skill
        self._end_s = time.monotonic() + limit_s
        self._limit_s = limit_s
        self._taint = 0

    async def finish(self) -> _Outcome:
        reader, writer = await self._pipe.connected()
        try:
            async with asyncio.timeout(self._limit_s) as limit:
                writer.write(pack(self._job()))
                last = await self._serve(reader, writer)
        except TimeoutError:
            if not limit.expired():
                raise
            return self._told(failure("timeout", f"limit {self._limit_s:.3g} s"))
        except ValueError as exc:
            return self._told(failure("bad_result", show(str(exc).encode())[:200]))
        finally:
            self._server.kill(self._pipe.job)
            writer.transport.abort()
        if last is None:
            return self._told(failure("crashed", await self._pipe.how_it_ended()))
        return self._told(self._result(last))

    def _told(self, result: SkillResult) -> _Outcome:
        error = result.metadata.get("error", {})
        if result.status == "failure":
            log.info("skill %s %s: %s", self._skill.name, self._skill.version, error.get("code"))
        return _Outcome(result, _TAINTS[self._taint])

    def _job(self) -> Json:
        ctx = self._call.ctx
        return {
            "folder": str(self._skill.folder),
            "sha": self._skill.sha,
            "params": self._skill.with_defaults(self._call.params),
            "run_id": ctx.run_id,
            "step": ctx.step,
            "port": ctx.port,
            "incident": ctx.incident,
            "deadline_s": self._end_s,
            "data_dir": str(ctx.data_dir) if ctx.data_dir else None,
            "cpu_s": math.ceil(self._limit_s) + 1,
        }

    async def _serve(
        self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter
    ) -> Json | None:
        """Answer what the skill asks and return its last message, None if there was none."""
        while True:
            message = await receive(reader, MAX_FRAME)
            if message is None or message.get("kind") != "ask":
                return message
            writer.write(pack(await self._reply(message)))
            await writer.drain()

    async def _reply(self, message: Json) -> Json:
        op, body = message.get("op"), message.get("body")
        if not isinstance(op, str) or not isinstance(body, dict):
            raise ValueError("an ask without op or body")
        try:
            if op not in self._skill.allowed:
                raise RefusedError("denied", f"{self._skill.name} may not use {op}")
            if op == "call":
                return {"ok": True, "body": await self._nested(body)}
            answer = await self._call.ctx.answer(op, body)
            self._taint = max(self._taint, _TAINTS.index(answer.taint))
        except RefusedError as exc:
            return {"ok": False, "code": exc.code, "message": str(exc)}
        except Exception:
            log.exception("skill %s: %s failed in the daemon", self._skill.name, op)
            return {"ok": False, "code": "precondition", "message": f"{op} cannot be had now"}
        return {"ok": True, "body": answer.body}

    async def _nested(self, body: Json) -> Json:
        name, params = body.get("skill"), body.get("params")
        if not isinstance(name, str) or not isinstance(params, dict):
            raise RefusedError("invalid_args", "call takes a skill's name and its parameters")
        left_s = self._end_s - time.monotonic()
        call = self._call
        outcome = await self._workers._run(
            _Call(name, params, call.ctx, left_s, self._skill, call.depth + 1)
        )
        self._taint = max(self._taint, _TAINTS.index(outcome.taint))
        result = outcome.result
        return {
            "status": result.status,
            "output": result.output,
            "new_memories": list(result.new_memories),
            "metadata": result.metadata,
        }

    def _result(self, last: Json) -> SkillResult:
        try:
            match last.get("kind"):
                case "result":
                    return checked(last)
                case "refused":
                    return failure(_code(last.get("code")), show(str(last["message"]).encode()))
                case "raised":
                    error = show(str(last.get("error")).encode())[:300]
                    log.debug("skill %s raised:\n%s", self._skill.name, last.get("traceback"))
                    return failure("crashed", error)
                case "bad":
                    return failure("bad_result", show(str(last.get("why")).encode())[:300])
                case _:
                    return failure("bad_result", "a message of no known kind")
        except BadResultError as exc:
            return failure("bad_result", show(str(exc).encode())[:300])


def _code(said: object) -> Code:
    for code in SENTENCES:
        if code == said:
            return code
    return "bad_result"
