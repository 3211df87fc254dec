"""Actions on boards as the agent sees them: done once a person has approved, told in reports."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from typing import Any

from serialwatch.agent.archive import Archive
from serialwatch.agent.ctx.context import CtxServer
from serialwatch.agent.equipment import Equipment
from serialwatch.agent.skills.results import Code, RefusedError, failure, why_not
from serialwatch.agent.workers.worker import Late
from serialwatch.records import NextStep, Report, SkillResult
from serialwatch.store.approvals import OPEN, ApprovalRow, load_approvals
from serialwatch.wire import Json

MAX_TOLD = 5  # actions that a report tells of

# How a report tells of them; what begins so is told anew by the next revision.
_DECIDE, _CAME, _NOT_DONE = "decide on action ", "what action ", "action "

log = logging.getLogger(__name__)


async def execute(equipment: Equipment, approval: Json) -> Late | None:
    """Run the skill of an approved action; the core does each step, if it is the approved one.

    Returns:
        What came of it for the run that had proposed it, None if it was over already.

    Raises:
        CoreError: the core does not take it any more.

    """
    name, action = str(approval["skill"]), str(approval["id"])
    skill = equipment.registry.get(name)
    if skill is None or skill.sha != approval["sha"]:
        result = failure("precondition", f"the skill {name} has changed since it was proposed")
        lines: Sequence[Any] = ()
    else:
        ctx = _acting(equipment, approval)
        result = await equipment.workers.run(skill, dict(approval["args"]), ctx, grant=action)
        lines = tuple(ctx.ledger.values())
    said = str(result.metadata.get("summary") or "")
    if result.status != "success":
        said = why_not(result)
    told = await equipment.link.ask("executed", {"grant": action, "said": said})
    if told.get("refused"):
        log.info("action %s: %s", action, told["refused"])
        return None
    return replace(_late(told, result), lines=lines)


def decided(approval: Json) -> Late:
    """Return what a run is told of an action that was not done, or of which nothing is known."""
    state, by, note = (str(approval[key]) for key in ("state", "decided_by", "note"))
    codes: dict[str, Code] = {"denied": "denied", "expired": "expired"}
    who = f" by {by}" if by else ""
    words = f"{state}{who}{f': {note}' if note else ''}"
    if approval["result"]:
        words = f"{words}; {approval['result']}"
    return _late(approval, failure(codes.get(state, "precondition"), words[:300]))


async def with_actions(report: Report, archive: Archive) -> Report:
    """Return a report that tells which actions were proposed for its incident, and their fate."""
    try:
        rows = await archive.ask(partial(_actions, incident=report.incident))
    except RefusedError as exc:
        log.info("incident %d: its actions are not known: %s", report.incident, exc)
        return report
    steps = [step for step in report.next_steps if not step.text.startswith(_DECIDE)]
    unknowns = [text for text in report.unknowns if not text.startswith(_CAME)]
    not_checked = [text for text in report.not_checked if not text.startswith(_NOT_DONE)]
    for row in reversed(rows):
        what = f"{row.id} ({'; '.join(row.effect)})"
        if row.state in OPEN:
            text = f"{_DECIDE}{what}: `serialwatch approvals show {row.id}`"
            steps.insert(0, NextStep(text, "L3"))
        elif row.state in ("denied", "expired"):
            by = f" by {row.decided_by}" if row.decided_by else ""
            not_checked.insert(0, f"{_NOT_DONE}{what}: {row.state}{by}")
        else:
            text = f"{_CAME}{what} brought: {row.state}; `serialwatch approvals show {row.id}`"
            unknowns.insert(0, text)
    return replace(
        report,
        next_steps=tuple(steps),
        unknowns=tuple(unknowns),
        not_checked=tuple(not_checked),
    )


def _actions(archive: Archive, incident: int) -> list[ApprovalRow]:
    db = archive.database
    return load_approvals(db, incident_id=incident, limit=MAX_TOLD) if db is not None else []


def _acting(equipment: Equipment, approval: Json) -> CtxServer:
    """Return what the skill of an approved action may see and do."""
    return CtxServer(
        equipment.archive,
        equipment.registry,
        equipment.knowledge,
        run_id=str(approval["run"]),
        port=str(approval["port"]),
        incident=approval["incident"],
        max_risk="L3",
        ask_ports=equipment.ports_for_skills,
        write_memory=equipment.remember,
        set_mark=equipment.told("mark"),
        elfs=equipment.elfs,
        boards=equipment.boards,
        act=equipment.told("act"),
    )


def _late(approval: Json, result: SkillResult) -> Late:
    """Return a result under an id of its own among those of the run."""
    action = str(approval["id"])
    metadata = {**result.metadata, "result": f"A{action}"}
    output = {"action": action, "state": approval["state"], "came": approval["result"]}
    told = replace(result, output={**output, **result.output}, metadata=metadata)
    return Late(
        f"A{action}",
        str(approval["run"]),
        str(approval["skill"]),
        told,
        approval["incident"],
        is_action=True,
    )
