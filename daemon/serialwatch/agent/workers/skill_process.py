"""The process of one running skill: locks itself in, imports `main.py`, runs it, answers.

It talks with the agent over one pipe, frames of `serialwatch.wire`. The first frame is the job,
then each `ask` is answered by one reply, and the last frame is `result`, `refused` (a call of
`ctx` failed and the skill let it), `raised` or `bad`.
"""

from __future__ import annotations

import asyncio
import json
import os
import socket
import struct
import sys
import traceback
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import ModuleType
from typing import Any, NoReturn

from serialwatch.agent.skills.files import folder_sha
from serialwatch.agent.workers.sandbox import Limits, confine
from serialwatch.records import BoardPort, Severity, SkillResult
from serialwatch.wire import Json, pack

MAX_FRAME = 256 * 1024  # bytes that a skill may send at once


class CtxError(Exception):
    """A call of `ctx` was refused or failed; `code` is one of the failure codes."""

    def __init__(self, code: str, message: str) -> None:
        super().__init__(message)
        self.code = code


class QuestionError(Exception):
    """The skill asked a person: it ends here; `need` is the question."""

    def __init__(self, need: Json) -> None:
        super().__init__("a question to a person")
        self.need = need


class BadJobError(Exception):
    """The skill on disk is not the one that was loaded."""


def run_job(pipe: socket.socket) -> NoReturn:
    """Take a job from `pipe`, do it, answer, end the process."""
    link = _Link(pipe)
    link.send_last(_outcome(link))
    os._exit(0)


class _Link:
    """The pipe to the agent, one question at a time."""

    def __init__(self, pipe: socket.socket) -> None:
        self._pipe = pipe

    def receive(self) -> Json:
        (length,) = struct.unpack(">I", self._exactly(4))
        body: Json = json.loads(self._exactly(length))
        return body

    def ask(self, op: str, body: Mapping[str, Any]) -> Json:
        """Return what the agent answers to `op`.

        Raises:
            CtxError: it refused.

        """
        self._pipe.sendall(pack({"kind": "ask", "op": op, "body": dict(body)}))
        reply = self.receive()
        if not reply["ok"]:
            raise CtxError(reply["code"], reply["message"])
        answer: Json = reply["body"]
        return answer

    def send_last(self, outcome: Json) -> None:
        try:
            frame = json.dumps(outcome, allow_nan=False).encode()
        except (TypeError, ValueError, RecursionError) as exc:
            frame = json.dumps({"kind": "bad", "why": f"not JSON: {exc}"[:300]}).encode()
        if len(frame) > MAX_FRAME:
            why = f"{len(frame)} bytes; at most {MAX_FRAME}"
            frame = json.dumps({"kind": "bad", "why": why}).encode()
        self._pipe.sendall(struct.pack(">I", len(frame)) + frame)

    def _exactly(self, count: int) -> bytes:
        got = bytearray()
        while len(got) < count:
            if not (more := self._pipe.recv(count - len(got))):
                os._exit(1)  # the agent is gone
            got += more
        return bytes(got)


def _outcome(link: _Link) -> Json:
    try:
        job = link.receive()
        folder = Path(job["folder"])
        data = Path(job["data_dir"]) if job["data_dir"] else None
        elf = [Path(job["elf"])] if job.get("elf") else []
        readable = [*_python(), folder, *elf]
        confine(readable, [data] if data else [], Limits(cpu_s=job["cpu_s"]))
        run = _load(folder, job["sha"]).run
        result = asyncio.run(run(Ctx(link, job), job["params"]))
    except QuestionError as exc:
        return _asked(exc.need)
    except CtxError as exc:
        return {"kind": "refused", "code": exc.code, "message": str(exc)}
    except BadJobError as exc:
        return {"kind": "refused", "code": "precondition", "message": str(exc)}
    except BaseException as exc:  # noqa: BLE001  (a skill may raise anything, SystemExit too)
        text = "".join(traceback.format_exception(exc))[-4000:]
        return {"kind": "raised", "error": f"{type(exc).__name__}: {exc}"[:300], "traceback": text}
    if not isinstance(result, SkillResult):
        return {"kind": "bad", "why": f"run() returned {type(result).__name__}, no SkillResult"}
    return {
        "kind": "result",
        "status": result.status,
        "output": result.output,
        "new_memories": list(result.new_memories),
        "metadata": result.metadata,
    }


def _asked(need: Json) -> Json:
    """Return the result of a skill that ended with a question."""
    question = need["question"]
    return {
        "kind": "result",
        "status": "require_more",
        "output": {k: v for k, v in need.items() if k != "kind"},
        "new_memories": [],
        "metadata": {"need": need, "summary": f"asks a person: {question}"[:160]},
    }


def _python() -> list[Path]:
    """Return what a Python program has to read."""
    return [
        *(Path(p) for p in dict.fromkeys([sys.prefix, sys.base_prefix, *sys.path]) if p),
        *map(Path, ("/usr/lib", "/usr/lib64", "/lib", "/lib64", "/etc/ld.so.cache")),
        *map(Path, ("/usr/share/zoneinfo", "/dev/null", "/dev/urandom")),
    ]


def _load(folder: Path, sha: str) -> ModuleType:
    """Import `main.py`; modules beside it can be imported by their name.

    Raises:
        BadJobError: the folder changed after the skill was loaded.

    """
    if folder_sha(folder) != sha:
        raise BadJobError("the skill's files changed after it was loaded; reload the daemon")
    path = folder / "main.py"
    module = ModuleType("main")
    module.__file__ = str(path)
    sys.modules["main"] = module
    sys.path.insert(0, str(folder))
    exec(compile(path.read_bytes(), str(path), "exec"), module.__dict__)  # noqa: S102
    return module


class Ctx:
    """What a skill sees of the bench; `serialwatch.records.SkillContext` describes it."""

    def __init__(self, link: _Link, job: Mapping[str, Any]) -> None:
        self._link = link
        self.run_id: str = job["run_id"]
        self.step: int = job["step"]
        self.port = _Port(job["port"], link)
        self.incident: int | None = job["incident"]
        self.deadline_s: float = job["deadline_s"]
        self.data_dir = Path(job["data_dir"]) if job["data_dir"] else None
        self.skill_dir = Path(job["folder"])
        self.elf = Path(job["elf"]) if job.get("elf") else None
        self.log = _Log(link)
        self.knowledge = _Knowledge(link)
        self.memory = _Memory(link, self.skill_dir.name)
        self.results = _Results(link)
        self.report = _Report(link)
        self.snapshot = _Snapshot(link)
        self.human = _Human(link)
        self.model = _Model(link)
        self.console = _Console(link)

    async def ports(self) -> Json:
        """Return the state of every port by name."""
        return self._link.ask("ports", {})

    async def incidents(
        self,
        *,
        id: int | None = None,
        port: str | None = None,
        state: str | None = None,
        trigger: str | None = None,
        fingerprint: str | None = None,
        since: str | None = None,
        until: str | None = None,
        reports: bool | None = None,
        limit: int = 10,
    ) -> Json:
        """Return incidents, newest first."""
        return self._link.ask("incidents", _without_self(locals()))

    async def mark(self, text: str, *, port: str = "") -> Json:
        """Set a marker before the next line of a port."""
        return self._link.ask("mark", {"text": text, "port": port})

    async def accept(self, what: str) -> Json:
        """Say that this is a long job; from now on `long-s` limits it."""
        job = self._link.ask("accept", {"what": what})
        self.deadline_s = job["deadline_s"]
        return job

    async def call(self, skill: str, params: Mapping[str, Any]) -> SkillResult:
        """Run another skill, at most as risky as this one, and return its result."""
        body = self._link.ask("call", {"skill": skill, "params": dict(params)})
        memories = tuple(body["new_memories"])
        return SkillResult(body["status"], body["output"], memories, body["metadata"])


class _Port(BoardPort):
    _link: _Link

    def __new__(cls, name: str, link: _Link) -> _Port:
        made = super().__new__(cls, name)
        made._link = link
        return made

    async def reset(self, *, port: str = "") -> Json:
        return self._link.ask("port.reset", _without_self(locals()))

    async def set_lines(
        self, *, dtr: bool | None = None, rts: bool | None = None, port: str = ""
    ) -> Json:
        return self._link.ask("port.set_lines", {"dtr": dtr, "rts": rts, "port": port})

    async def send_break(self, ms: int, *, port: str = "") -> Json:
        return self._link.ask("port.send_break", _without_self(locals()))


class _Console:
    def __init__(self, link: _Link) -> None:
        self._link = link

    async def send(self, text: str, *, port: str = "") -> Json:
        return self._link.ask("console.send", _without_self(locals()))


class _Log:
    def __init__(self, link: _Link) -> None:
        self._link = link

    async def lines(
        self,
        port: str = "",
        *,
        first: int | None = None,
        last: int | None = None,
        since: str | None = None,
        until: str | None = None,
        boot: int | None = None,
        marker: int | str | None = None,
        level: Severity | None = None,
        match: str | None = None,
        limit: int = 100,
    ) -> Json:
        return self._link.ask("log.lines", _without_self(locals()))

    async def stats(
        self,
        port: str = "",
        *,
        first: int | None = None,
        last: int | None = None,
        since: str | None = None,
        until: str | None = None,
        boot: int | None = None,
        marker: int | str | None = None,
        level: Severity | None = None,
        match: str | None = None,
        limit: int = 20,
    ) -> Json:
        return self._link.ask("log.stats", _without_self(locals()))

    async def compare(
        self,
        port: str = "",
        *,
        boot: int | None = None,
        base: int | None = None,
        limit: int = 20,
    ) -> Json:
        return self._link.ask("log.compare", _without_self(locals()))


class _Knowledge:
    def __init__(self, link: _Link) -> None:
        self._link = link

    async def search(self, query: str, *, ecosystem: str | None = None, limit: int = 3) -> Json:
        return self._link.ask("knowledge.search", _without_self(locals()))

    async def get(self, id: str) -> Json:
        return self._link.ask("knowledge.get", {"id": id})


class _Memory:
    def __init__(self, link: _Link, skill: str) -> None:
        self._link = link
        self._skill = skill

    async def search(
        self, query: str, *, port: str | None = None, type: str | None = None, limit: int = 5
    ) -> Json:
        return self._link.ask("memory.search", _without_self(locals()))

    async def write(self, memory: Mapping[str, Any]) -> Json:
        return self._link.ask("memory.write", {"memory": dict(memory), "skill": self._skill})


class _Results:
    def __init__(self, link: _Link) -> None:
        self._link = link

    async def read(
        self, id: str, *, start: int = 0, limit: int = 4000, match: str | None = None
    ) -> Json:
        return self._link.ask("results.read", _without_self(locals()))


class _Report:
    def __init__(self, link: _Link) -> None:
        self._link = link

    async def submit(self, report: Mapping[str, Any]) -> Json:
        return self._link.ask("report.submit", {"report": dict(report)})


class _Snapshot:
    def __init__(self, link: _Link) -> None:
        self._link = link

    async def read(
        self, name: str | None = None, *, port: str = "", id: int | None = None, limit: int = 2
    ) -> Json:
        return self._link.ask("snapshot.read", _without_self(locals()))

    async def write(self, name: str, body: Mapping[str, Any], *, port: str = "") -> Json:
        return self._link.ask("snapshot.write", {"name": name, "body": dict(body), "port": port})


class _Human:
    def __init__(self, link: _Link) -> None:
        self._link = link

    async def ask(
        self, question: str, *, known: str = "", missing: str = "", options: Sequence[str] = ()
    ) -> NoReturn:
        body = {"question": question, "known": known, "missing": missing, "options": list(options)}
        raise QuestionError(self._link.ask("human.ask", body))


class _Model:
    def __init__(self, link: _Link) -> None:
        self._link = link

    async def complete(self, prompt: str, *, max_tokens: int = 300) -> Json:
        return self._link.ask("model.complete", {"prompt": prompt, "max_tokens": max_tokens})


def _without_self(arguments: Mapping[str, Any]) -> Json:
    """Return the arguments of a call as its body; what was left out is left out."""
    return {k: v for k, v in arguments.items() if k != "self" and v is not None}
