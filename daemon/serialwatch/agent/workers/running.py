"""One skill while it runs in its process: what it asks is answered, and it is killed in time."""

from __future__ import annotations

import asyncio
import logging
import math
import time
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any, Protocol

from serialwatch.agent.ctx.context import CtxServer
from serialwatch.agent.skills.results import (
    SENTENCES,
    BadResultError,
    Code,
    RefusedError,
    checked,
    error_code,
    failure,
)
from serialwatch.agent.skills.skill import CAPABILITIES, Skill
from serialwatch.agent.workers.fork_client import ForkClient, Pipe
from serialwatch.agent.workers.skill_process import MAX_FRAME
from serialwatch.board_steps import MAX_STEPS, checked_step
from serialwatch.records import SkillResult
from serialwatch.wire import Json, pack, receive, show

BEHIND_S = 0.5  # the limit of a called skill is so far behind its caller's, which ends both
MAX_WHAT = 160  # characters of what a long job says it does

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Wanted:
    """A call of a skill."""

    name: str
    params: Mapping[str, Any]
    ctx: CtxServer
    timeout_s: float | None
    caller: Skill | None  # the skill that asks for it
    depth: int
    grant: str = ""  # of an approved action, by which it may act on a board


@dataclass(frozen=True, slots=True)
class Outcome:
    """What came of a call."""

    result: SkillResult
    taint: str  # host, memory or dut: the least trusted thing the skill read


class Host(Protocol):
    """Who runs skills."""

    async def nested(self, call: Wanted) -> Outcome:
        """Run a skill that another one calls."""

    def accept(self, run: Running, what: str) -> float:
        """Let a skill become a long job, and return its limit in seconds, or refuse."""

    def note(self, skill: Skill, result: SkillResult) -> None:
        """Count what ended badly by the skill's own fault."""


_TAINTS = ("host", "memory", "dut")  # most trusted first


class Running:
    """One skill while it runs."""

    def __init__(
        self,
        host: Host,
        server: ForkClient,
        pipe: Pipe,
        call: Wanted,
        skill: Skill,
        limit_s: float,
    ) -> None:
        self.skill = skill
        self.ctx = call.ctx
        self.first: asyncio.Future[Outcome] | None = None  # None: it cannot be a long job
        self.job_id = ""  # once it is one
        self._host = host
        self._server = server
        self._pipe = pipe
        self._call = call
        self._end_s = time.monotonic() + limit_s
        self._limit_s = limit_s
        self._limit: asyncio.Timeout | None = None
        self._taint = 0
        self._is_answering = False  # it waits for us
        # Without a grant nothing is done to a board: what would be is noted, to be proposed.
        self.is_rehearsal = skill.risk == "L3" and not call.grant
        self.rehearsed: list[Json] = []  # steps
        self.rehearsed_port = ""  # all of them are for one

    async def finish(self) -> Outcome:
        """Run it to its end, whatever that is; its process is gone then, or being killed."""
        try:
            return await self._finish()
        finally:
            self._pipe.close()

    async def _finish(self) -> Outcome:
        reader, writer = await self._pipe.connected()
        try:
            async with asyncio.timeout(self._limit_s) as self._limit:
                writer.write(pack(self._job()))
                last = await self._serve(reader, writer)
        except TimeoutError:
            if self._limit is None or not self._limit.expired():
                raise
            has_own_limit = self._limit_s in (self.skill.timeout_s, self.skill.long_s)
            is_its_own = has_own_limit and not self._is_answering
            return self._told(failure("timeout", f"limit {self._limit_s:.3g} s"), is_its_own)
        except ValueError as exc:
            return self._told(failure("bad_result", show(str(exc).encode())[:200]))
        finally:
            self._server.kill(self._pipe.job)
            writer.transport.abort()
        if last is None:
            how = await self._pipe.how_it_ended()
            return self._told(failure("crashed", how), self._server.is_alive)
        return self._told(self._result(last))

    def _told(self, result: SkillResult, is_its_own: bool = True) -> Outcome:
        """Return the result; `is_its_own`: if it failed, nobody else was to blame."""
        if result.status == "failure":
            log.info("skill %s %s: %s", self.skill.name, self.skill.version, error_code(result))
        if is_its_own:
            self._host.note(self.skill, result)
        return Outcome(result, _TAINTS[self._taint])

    def _job(self) -> Json:
        ctx = self._call.ctx
        return {
            "folder": str(self.skill.folder),
            "sha": self.skill.sha,
            "params": self.skill.with_defaults(self._call.params),
            "run_id": ctx.run_id,
            "step": ctx.step,
            "port": ctx.port,
            "incident": ctx.incident,
            "deadline_s": self._end_s,
            "data_dir": str(ctx.data_dir) if ctx.data_dir else None,
            "elf": ctx.elf(self._call.params.get("port")) if "elf" in self.skill.allowed else None,
            "cpu_s": math.ceil(self._limit_s + (self.skill.long_s if self.first else 0)) + 1,
        }

    async def _serve(
        self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter
    ) -> Json | None:
        """Answer what the skill asks and return its last message, None if there was none."""
        while True:
            message = await receive(reader, MAX_FRAME)
            if message is None or message.get("kind") != "ask":
                return message
            self._is_answering = True
            writer.write(pack(await self._reply(message)))
            self._is_answering = False
            await writer.drain()

    async def _reply(self, message: Json) -> Json:
        op, body = message.get("op"), message.get("body")
        if not isinstance(op, str) or not isinstance(body, dict):
            raise ValueError("an ask without op or body")
        try:
            if op not in self.skill.allowed:
                raise RefusedError("denied", f"{self.skill.name} may not use {op}")
            if CAPABILITIES[op] == "L3":
                return {"ok": True, "body": await self._step(op, body)}
            if self.is_rehearsal and CAPABILITIES[op] == "L2":
                return {"ok": True, "body": {"is_rehearsal": True}}
            if op == "call":
                return {"ok": True, "body": await self._nested(body)}
            if op == "accept":
                return {"ok": True, "body": self._accept(body)}
            answer = await self._call.ctx.answer(op, body)
            self._taint = max(self._taint, _TAINTS.index(answer.taint))
        except RefusedError as exc:
            return {"ok": False, "code": exc.code, "message": str(exc)}
        except Exception:
            log.exception("skill %s: %s failed in the daemon", self.skill.name, op)
            return {"ok": False, "code": "precondition", "message": f"{op} cannot be had now"}
        return {"ok": True, "body": answer.body}

    async def _step(self, op: str, body: Json) -> Json:
        """Note or do a step of an action."""
        ctx = self._call.ctx
        port, step = step_of(op, body, ctx.port)
        if not self.is_rehearsal:
            if ctx.act is None:
                raise RefusedError("denied", "this run may not act on a board")
            told = await ctx.act(
                {
                    "grant": self._call.grant,
                    "run_id": ctx.run_id,
                    "skill": self.skill.name,
                    "sha": self.skill.sha,
                    "port": port,
                    "step": step,
                }
            )
            if why := told.get("refused"):
                raise RefusedError("denied", str(why))
            return {**told, "is_rehearsal": False}
        if self.rehearsed and port != self.rehearsed_port:
            raise RefusedError("denied", f"one action acts on one port: {self.rehearsed_port}")
        if len(self.rehearsed) >= MAX_STEPS:
            raise RefusedError("denied", f"an action has {MAX_STEPS} steps at most")
        self.rehearsed.append(step)
        self.rehearsed_port = port
        return {"port": port, "before_seq": 0, "is_rehearsal": True}

    def _accept(self, body: Json) -> Json:
        """Become a long job, with time from now on."""
        if self.skill.risk == "L3":
            raise RefusedError("denied", "an action on a board cannot be a long job")
        if not self.job_id:
            what = show(str(body.get("what", "")).encode())[:MAX_WHAT]
            self._limit_s = self._host.accept(self, what)
            self._end_s = time.monotonic() + self._limit_s
            assert self._limit is not None
            self._limit.reschedule(asyncio.get_running_loop().time() + self._limit_s)
        return {"job": self.job_id, "deadline_s": self._end_s}

    async def _nested(self, body: Json) -> Json:
        name, params = body.get("skill"), body.get("params")
        if not isinstance(name, str) or not isinstance(params, dict):
            raise RefusedError("invalid_args", "call takes a skill's name and its parameters")
        left_s = self._end_s - time.monotonic() + BEHIND_S
        call = self._call
        outcome = await self._host.nested(
            Wanted(name, params, call.ctx, left_s, self.skill, call.depth + 1)
        )
        self._taint = max(self._taint, _TAINTS.index(outcome.taint))
        result = await call.ctx.remembered(name, outcome.result)
        return {
            "status": result.status,
            "output": result.output,
            "new_memories": [],  # written already: the caller may hand on the whole result
            "metadata": result.metadata,
        }

    def _result(self, last: Json) -> SkillResult:
        try:
            match last.get("kind"):
                case "result":
                    return _own(checked(last))
                case "refused":
                    return failure(_code(last.get("code")), show(str(last["message"]).encode()))
                case "raised":
                    error = show(str(last.get("error")).encode())[:300]
                    log.debug("skill %s raised:\n%s", self.skill.name, last.get("traceback"))
                    return failure("crashed", error)
                case "bad":
                    return failure("bad_result", show(str(last.get("why")).encode())[:300])
                case _:
                    return failure("bad_result", "a message of no known kind")
        except BadResultError as exc:
            return failure("bad_result", show(str(exc).encode())[:300])


def step_of(op: str, body: Mapping[str, Any], run_port: str) -> tuple[str, Json]:
    """Return for which port a call of `ctx` is, and the one step it means.

    Raises:
        RefusedError: it makes no sense.

    """
    given = dict(body)
    port = given.pop("port", "") or run_port
    if not isinstance(port, str) or not port:
        raise RefusedError("invalid_args", "which port? This run is about none")
    if run_port and port != run_port:
        raise RefusedError("denied", f"this run is about {run_port}, and acts on nothing else")
    if op == "console.send" and isinstance(text := given.pop("text", None), str):
        try:
            given["hex"] = text.encode().hex()
        except UnicodeEncodeError as exc:
            raise RefusedError("invalid_args", "text: cannot be encoded as UTF-8") from exc
    try:
        return port, checked_step({"op": op, **given})
    except ValueError as exc:
        raise RefusedError("invalid_args", str(exc)) from exc


def _own(result: SkillResult) -> SkillResult:
    """Return what a skill answered without what only we may say of it."""
    metadata = {k: v for k, v in result.metadata.items() if k not in _OURS}
    if result.status == "failure" and error_code(result) not in SENTENCES:
        detail = show(str(metadata.get("summary", "")).encode())[:200]
        metadata |= failure("precondition", detail).metadata
    elif result.status != "failure":
        metadata.pop("error", None)
    return replace(result, metadata=metadata)


_OURS = frozenset(
    {"accepted", "remembered", "repeated", "result", "taint", "elapsed_ms", "truncated"}
)


def _code(said: object) -> Code:
    for code in SENTENCES:
        if code == said:
            return code
    return "bad_result"
