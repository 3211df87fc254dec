"""`serialwatch runs replay`: a stored run played again, and where it comes out differently."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from serialwatch.agent.archive import Archive, logs_below
from serialwatch.agent.knowledge import load_knowledge
from serialwatch.agent.models.redaction import Redactor
from serialwatch.agent.models.secret_shapes import PLACEHOLDER
from serialwatch.agent.role import RoleError, load_role
from serialwatch.agent.run.past_run import read_past_run
from serialwatch.agent.run.replay import Difference, Replayed, ReplayError
from serialwatch.agent.run.replay import replay as play_again
from serialwatch.agent.skills.registry import Registry
from serialwatch.agent.skills.results import RefusedError, capped
from serialwatch.agent.workers.tools import page_texts
from serialwatch.bundled import search_path
from serialwatch.cli.errors import CliError
from serialwatch.cli.run_ids import one_id
from serialwatch.cli.skills_load import installed, read_config
from serialwatch.cli.tables import safe, shorten
from serialwatch.config import Config, state_dir
from serialwatch.records import Line, SkillResult
from serialwatch.saved.skill_trial import SkillTrials
from serialwatch.store.database import StoreError
from serialwatch.store.read import read_once
from serialwatch.store.runs import ResultRow, SkillCallRow, Trace, load_runs, load_trace
from serialwatch.wire import Json

MAX_WORDS = 160  # characters of each side of a difference


@dataclass(frozen=True, slots=True)
class Done:
    """What a replay came to."""

    is_same: bool
    body: Json  # for --json
    lines: list[str] = field(default_factory=list)  # for people


def strictly(run_id: str, state: Path | None, config_path: Path | None) -> Done:
    """Build each prompt of a model's run again.

    Raises:
        CliError: there is no such run, or it cannot be played again.

    """
    config = read_config(config_path)
    folder = state or state_dir(config)
    trace = _trace(folder, run_id)
    registry = installed(config)
    try:
        role = load_role(search_path("roles"), trace.run.role)
        redactor = Redactor(config.agent.redact_patterns) if _was_redacted(trace) else None
        told = asyncio.run(
            play_again(
                trace,
                _lines(folder, trace.run.id),
                skills=tuple(registry.skills.values()),
                role=role,
                pages=page_texts(load_knowledge(search_path("knowledge"))),
                redactor=redactor,
            )
        )
    except (ReplayError, RoleError) as exc:
        raise CliError(f"run {safe(trace.run.id)}: {safe(exc)}") from exc
    return _told_strictly(trace, told)


def skills_again(run_id: str, state: Path | None, config_path: Path | None) -> Done:
    """Run the recorded skill calls once more on the stored log.

    Raises:
        CliError: there is no such run.

    """
    config = read_config(config_path)
    folder = state or state_dir(config)
    trace = _trace(folder, run_id)
    registry = installed(config)
    rows = asyncio.run(_called_again(trace, registry, config, folder))
    same = sum(row["verdict"] == "same" for row in rows)
    differ = [row for row in rows if row["verdict"] == "differs"]
    head = f"run {safe(trace.run.id)}: {same} of {len(rows)} calls gave the same again"
    lines = [head if not differ else f"{head}, {len(differ)} gave something else"]
    for row in rows:
        if row["verdict"] == "same":
            continue
        lines.append(f"  {row['n']:>3}. {row['skill']}: {row['verdict']}: {row['why']}")
        if row["verdict"] == "differs":
            lines += [f"       recorded  {row['recorded']}", f"       now       {row['now']}"]
    return Done(not differ, {"run": trace.run.id, "mode": "skills", "calls": rows}, lines)


def _told_strictly(trace: Trace, told: Replayed) -> Done:
    rows = [_as_json(each) for each in told.differences]
    body = {
        "run": trace.run.id,
        "mode": "strict",
        "rounds": told.rounds,
        "same": told.same,
        "differences": rows,
    }
    rounds = "1 round" if told.rounds == 1 else f"{told.rounds} rounds"
    if not told.differences:
        words = f"run {safe(trace.run.id)}: {rounds} played again, each prompt is the same"
        return Done(True, body, [words])
    first = told.differences[0]
    lines = [
        f"run {safe(trace.run.id)}: {told.same} of {rounds} are the same; the first difference:",
        f"  round {first.round}, {first.where}",
        f"    recorded  {_words(first.recorded)}",
        f"    now       {_words(first.now)}",
        "another version of a role, a skill, a page or of serialwatch makes other prompts; "
        "or lines that it had read are no longer in the log",
    ]
    return Done(False, body, lines)


async def _called_again(
    trace: Trace, registry: Registry, config: Config, folder: Path
) -> list[Json]:
    elfs = {key: about.elf for key, about in config.port.items() if about.elf}
    results = {row.id: row for row in trace.results}
    rows: list[Json] = []
    archive = Archive(logs_below(folder / "log"), folder / "serialwatch.db")
    try:
        async with SkillTrials(registry, elfs=elfs) as trials:
            for call in trace.skill_calls:
                row = {"n": call.n, "skill": safe(call.skill), "why": "", "recorded": "", "now": ""}
                if why := _not_again(call, registry):
                    rows.append(row | {"verdict": "not run", "why": why})
                    continue
                trial = await trials.call(
                    call.skill, call.args, archive, trace.run.port, trace.run.incident_id
                )
                rows.append(row | _judged(call, results.get(call.result_id), trial.call.result))
    finally:
        archive.close()
    return rows


def _not_again(call: SkillCallRow, registry: Registry) -> str:
    """Return why a call is not made again, "" if it is."""
    skill = registry.skills.get(call.skill)
    if skill is None:
        return "there is no such skill now"
    if skill.risk != "L1":
        return f"it is {skill.risk}: it writes"
    if call.status != "success":
        return f"it had no result then ({call.error_code or call.status})"
    return ""


def _judged(call: SkillCallRow, stored: ResultRow | None, now: SkillResult) -> Json:
    if stored is None:
        return {"verdict": "not compared", "why": "its result is not stored any more"}
    before = capped(SkillResult("success", stored.body), "").output
    after = json.loads(json.dumps(now.output, default=str))
    if now.status == call.status and before == after:
        return {"verdict": "same"}
    if now.status != call.status:
        error = now.metadata.get("error", {})
        detail = error.get("detail") or error.get("message") or now.status
        return {
            "verdict": "differs", "why": "it failed", "recorded": call.status, "now": _words(detail)
        }  # fmt: skip
    where, old, new = _first_of(before, after)
    return {
        "verdict": "differs",
        "why": f"first at {where or 'the whole'}",
        "recorded": _words(old),
        "now": _words(new),
    }


def _first_of(before: Any, after: Any, where: str = "") -> tuple[str, Any, Any]:
    """Return the first place in which two JSON values differ, with what stands there."""
    if isinstance(before, Mapping) and isinstance(after, Mapping):
        for key in dict.fromkeys([*before, *after]):
            if before.get(key) != after.get(key):
                return _first_of(before.get(key), after.get(key), f"{where}.{key}".lstrip("."))
    if isinstance(before, list) and isinstance(after, list):
        for at, (one, other) in enumerate(zip(before, after, strict=False)):
            if one != other:
                return _first_of(one, other, f"{where}[{at}]")
        return where, f"{len(before)} entries", f"{len(after)} entries"
    return where, before, after


def _words(value: Any) -> str:
    text = value if isinstance(value, str) else json.dumps(value, ensure_ascii=False, default=str)
    return shorten(safe(text), MAX_WORDS)


def _as_json(told: Difference) -> Json:
    return {
        "round": told.round, "where": told.where, "recorded": told.recorded, "now": told.now
    }  # fmt: skip


def _trace(folder: Path, run_id: str) -> Trace:
    path = folder / "serialwatch.db"
    try:
        ids = [run.id for run in read_once(path, lambda db: load_runs(db, limit=1000))]
        whole = run_id if len(run_id) >= 12 else one_id(run_id, ids)
        trace = read_once(path, lambda db: load_trace(db, whole))
    except StoreError as exc:
        raise CliError(str(exc)) from exc
    if trace is None:
        raise CliError(f"no run {safe(run_id)!r}: `serialwatch runs list --state {safe(folder)}`")
    return trace


def _lines(folder: Path, run_id: str) -> tuple[Line, ...]:
    """Return the lines that a run has read, as far as the log has them still."""
    archive = Archive(logs_below(folder / "log"), folder / "serialwatch.db")
    try:
        past = asyncio.run(archive.ask(lambda a: read_past_run(a, run_id)))
    except RefusedError as exc:
        raise CliError(f"{safe(folder)}: {exc}") from exc
    finally:
        archive.close()
    return past.lines if past is not None else ()


def _was_redacted(trace: Trace) -> bool:
    return any(PLACEHOLDER.search(json.dumps(message.content)) for message in trace.messages)
