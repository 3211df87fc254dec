"""Skills over a saved log or a state folder, in real workers: what they write goes nowhere."""

from __future__ import annotations

import asyncio
import io
import secrets
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from types import TracebackType
from typing import Any

from serialwatch.agent.archive import Archive
from serialwatch.agent.ctx.context import CtxServer, Submit
from serialwatch.agent.knowledge import Knowledge, load_knowledge
from serialwatch.agent.run.shown import result_text
from serialwatch.agent.skills.registry import Registry
from serialwatch.agent.workers.direct import LineLog
from serialwatch.agent.workers.tools import Call, RunTools
from serialwatch.agent.workers.worker import Late, Workers
from serialwatch.board_steps import step_words
from serialwatch.bundled import search_path
from serialwatch.lines import Splitter
from serialwatch.records import Line, SkillResult
from serialwatch.saved.analysis import eol_of, read_log
from serialwatch.store.sqlite_file import open_file
from serialwatch.triggers.matcher import Matcher
from serialwatch.wire import Json

PORT = "dut1"  # whose log a saved one is taken for

_TAKEN: Mapping[str, Json] = {
    "memory": {"id": 1, "is_new": True, "priority": 2, "status": "proposed", "near": []},
    "snapshot": {"id": 1},
    "mark": {"id": 1, "seq": 1},
    "report": {"accepted": True, "verified": 0, "dropped": 0},
}  # what the daemon would answer to a skill that writes


@dataclass(slots=True)
class Trial:
    """One call of a skill, and what it would have written."""

    call: Call
    wrote: list[Json] = field(default_factory=list)  # {"what": ..., "body": ...}

    @property
    def as_shown(self) -> str:
        """Return what a model would get; the mark before each line is another in each run."""
        return result_text(self.call, secrets.token_hex(2))


class SkillTrials:
    """Runs skills, each call in a run of its own; `async with`."""

    def __init__(
        self,
        registry: Registry,
        knowledge: Knowledge | None = None,
        elfs: Mapping[str, str] | None = None,
    ) -> None:
        self._registry = registry
        self._knowledge = knowledge or load_knowledge(search_path("knowledge"))
        self._elfs = elfs or {}
        self._room = tempfile.TemporaryDirectory(prefix="serialwatch-skill-")
        self._late: asyncio.Queue[Late] = asyncio.Queue()
        self._workers = Workers(on_late=self._late.put_nowait)

    async def __aenter__(self) -> SkillTrials:
        await self._workers.start()
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        await self._workers.stop()
        self._room.cleanup()

    def archive_of(self, lines: Sequence[Line], port: str = PORT) -> Archive:
        """Return the past of a bench that has these lines and an empty database."""
        path = Path(self._room.name) / "serialwatch.db"
        if not path.exists():
            open_file(path).close()
        log = LineLog(lines)
        return Archive(lambda name: log if name == port else None, path)

    async def call(
        self,
        skill: str,
        args: Mapping[str, Any],
        archive: Archive,
        port: str,
        incident: int | None = None,
    ) -> Trial:
        """Run a skill once; of a long job the result is waited for. The archive is left open."""
        wrote: list[Json] = []

        def taking(what: str) -> Submit:
            async def take(body: Json) -> Json:
                wrote.append({"what": what, "body": body})
                return dict(_TAKEN[what])

            return take

        async def propose(body: Json) -> Json:
            wrote.append({"what": "action", "body": body})
            how = "as its configuration says"
            effect = [step_words(step, body["port"], how) for step in body["steps"]]
            return {"id": "0000", "state": "pending", "effect": effect}

        with tempfile.TemporaryDirectory(dir=self._room.name) as data_dir:
            ctx = CtxServer(
                archive,
                self._registry,
                self._knowledge,
                run_id=secrets.token_hex(6),
                port=port,
                incident=incident,
                data_dir=Path(data_dir),
                submit_report=taking("report"),
                write_memory=taking("memory"),
                write_snapshot=taking("snapshot"),
                set_mark=taking("mark"),
                propose=propose,
                elfs=self._elfs,
            )

            async def run(name: str, params: Mapping[str, Any]) -> SkillResult:
                result = await self._workers.run(name, params, ctx)
                return (await self._late.get()).result if "accepted" in result.metadata else result

            return Trial(await RunTools(ctx, {}, run).call(skill, args), wrote)


def lines_of(data: bytes, matcher: Matcher, port: str = PORT) -> list[Line]:
    """Return the lines of a log, each with the number of its boot; they have no time."""
    pipeline = read_log(io.BytesIO(data), matcher, lambda _: None)
    splitter = Splitter(eol_of(data[: 64 * 1024]))
    text, _ = splitter.feed(data)
    if splitter.partial_bytes:
        text += splitter.partial() + b"\n"
    return [
        Line(port, seq, raw.rstrip(b"\r"), pipeline.boot_of(seq), 0, 0, 0)
        for seq, raw in enumerate(text.split(b"\n")[:-1], 1)
    ]
