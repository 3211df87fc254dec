"""The plan of a run, and what code can see of it: which step is done, and what is still missing."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Any

from serialwatch.agent.offline.reflexes.choose import register_lines
from serialwatch.agent.recall import needs_no_check
from serialwatch.agent.run.goal import Goal
from serialwatch.agent.run.run_state import PlanStep, RunState, Suspicion
from serialwatch.agent.text.device_text import readable
from serialwatch.agent.workers.tools import Call, Tools

MAX_STEPS = 5
MAX_TASK = 160  # characters
MAX_SUSPICIONS = 4
STEP_FAILURES = 2  # of calls made for a step, until it counts as failed
ENOUGH_BEFORE = 3  # lines before the fault

Check = Callable[[Goal, Tools], bool]


def suspicions_of(goal: Goal) -> list[Suspicion]:
    """Return the hypotheses that a run begins with: the offline analyst's."""
    return [
        Suspicion(f"h{n}", h.fault_class, h.text, h.status)
        for n, h in enumerate(goal.baseline.hypotheses[:MAX_SUSPICIONS], start=1)
    ]


def default_plan(state: RunState, goal: Goal, names: Collection[str]) -> list[PlanStep]:
    """Return the plan of a run whose model has made none; `names` are the skills there are."""
    wanted: list[tuple[str, str, str]] = []
    for gap in state.missing:
        kind = _kind_of(gap)
        task, hint = _GAP_TASKS.get(kind, (gap, ""))
        if not hint or hint in names:
            wanted.append((task, hint, kind))
    tested = next((s for s in state.suspicions if s.status == "open"), None)
    # What a person found last time was held against the lines by code already.
    if tested is not None and not _known(goal):
        task = f"find the line that confirms or refutes {tested.id}"
        wanted.insert(0, (task, "log-read", "skill-answered"))
    if goal.kind == "question" and not wanted:
        wanted.append(("read the lines that answer the question", "log-read", "skill-answered"))
    wanted = [*wanted[: MAX_STEPS - 1], ("hand in the report", "report-write", "report-accepted")]
    return [PlanStep(n, task, hint, done) for n, (task, hint, done) in enumerate(wanted, start=1)]


def read_plan(params: Mapping[str, Any]) -> tuple[list[PlanStep], str]:
    """Return the steps of a `plan-set` call, or what is wrong with it."""
    rows = params.get("steps")
    if not isinstance(rows, list) or not 1 <= len(rows) <= MAX_STEPS:
        return [], f"steps: a list of 1 to {MAX_STEPS}"
    steps: list[PlanStep] = []
    for n, row in enumerate(rows, start=1):
        told = {"task": row} if isinstance(row, str) else row
        task = told.get("task") if isinstance(told, dict) else None
        if not isinstance(told, dict) or not isinstance(task, str) or not task.strip():
            return [], f"steps[{n}]: an object with `task`, a text"
        done_when = str(told.get("done_when") or "skill-answered")
        hint = _one_line(told.get("skill_hint"), 48)
        steps.append(PlanStep(n, _one_line(task, MAX_TASK), hint, _one_line(done_when, 80)))
    return steps, ""


def take_statuses(state: RunState, told: object) -> None:
    """Note what a model says of the hypotheses: `[{id, status}]`."""
    for row in told if isinstance(told, list) else ():
        if not isinstance(row, dict):
            continue
        for suspicion in state.suspicions:
            status = row.get("status")
            if suspicion.id == row.get("id") and status in ("open", "confirmed", "refuted"):
                suspicion.status = status


def judge_steps(state: RunState, goal: Goal, tools: Tools, since: int) -> list[PlanStep]:
    """Mark what is done and what has failed after a round; return the steps that just failed.

    `since` is the number of calls that there were before the round.
    """
    failed: list[PlanStep] = []
    fresh = [call for call in tools.calls if call.n > since]
    current = state.current
    for step in state.plan:
        if step.state == "open" and _is_done(step, goal, tools, fresh, step is current):
            step.state = "done"
    current = state.current
    if current is not None and current.skill_hint:
        tried = [call for call in fresh if call.skill == current.skill_hint]
        current.failures += sum(not call.is_good for call in tried)
        is_gone = current.skill_hint in state.withdrawn
        if current.failures >= STEP_FAILURES or is_gone:
            current.state = "failed"
            failed.append(current)
    return failed


def missing_of(goal: Goal, tools: Tools, names: Collection[str]) -> list[str]:
    """Return what always has to be looked at and was not yet; `names` are the skills there are.

    What led a person to the cause of this very fault is not looked at again.
    """
    known = _known(goal)
    return [
        text
        for kind, (text, needs, check) in _GAPS.items()
        if (not needs or needs in names) and needs not in known and not check(goal, tools)
    ]


def _known(goal: Goal) -> frozenset[str]:
    """Return the skills that need not look again."""
    if goal.incident is None:
        return frozenset()
    return needs_no_check(goal.incident, goal.recalled, goal.case)


def _is_done(
    step: PlanStep, goal: Goal, tools: Tools, fresh: Sequence[Call], is_current: bool
) -> bool:
    if step.done_when == "report-accepted":
        return False  # the run is over then
    if step.done_when in _GAPS:
        return _GAPS[step.done_when][2](goal, tools)
    if not is_current:
        return False
    answered = [call for call in fresh if call.is_good and call.round > 0]
    return any(not step.skill_hint or call.skill == step.skill_hint for call in answered)


def _is_block_read(goal: Goal, tools: Tools) -> bool:
    incident = goal.incident
    if incident is None or not incident.first_seq:
        return True
    ledger, port = tools.ledger, incident.port
    first = incident.block_first or incident.first_seq
    last = max(incident.last_seq, incident.first_seq)
    if (port, incident.first_seq) not in ledger:
        return False
    read = sum(other == port and first <= seq <= last for other, seq in ledger)
    return read >= min(last - first + 1, 300)  # of a very long one its two ends will do


def _is_before_read(goal: Goal, tools: Tools) -> bool:
    incident = goal.incident
    if incident is None or not incident.first_seq:
        return True
    first = incident.block_first or incident.first_seq
    read = sum(port == incident.port and seq < first for port, seq in tools.ledger)
    return read >= min(ENOUGH_BEFORE, first - 1)


def _is_decoded(goal: Goal, tools: Tools) -> bool:
    if goal.case is None:
        return True
    wanted = {line.seq for line in register_lines(goal.case.block)}
    tried = sum(call.skill == "register-decode" and call.is_good for call in tools.calls)
    done = {d.line.seq for d in goal.case.decoded}
    return wanted <= done or tried >= len(wanted)


def _is_page_read(goal: Goal, tools: Tools) -> bool:
    wanted = goal.incident.knowledge if goal.incident else ""
    if not wanted or wanted not in tools.pages:
        return True
    return any(
        call.skill == "knowledge-query" and call.is_good and wanted in str(call.result.output)
        for call in tools.calls
    )


def _is_neighbour_read(goal: Goal, tools: Tools) -> bool:
    if goal.case is None:
        return True
    others = {incident.port for incident in goal.case.around.neighbours}
    return others <= {port for port, _ in tools.ledger}


def _is_compared(goal: Goal, tools: Tools) -> bool:
    if goal.incident is None or goal.incident.boot <= 1:
        return True
    return any(call.skill == "boot-compare" and call.is_good for call in tools.calls)


def _is_memory_asked(goal: Goal, tools: Tools) -> bool:
    return any(call.skill == "memory-search" and call.is_good for call in tools.calls)


def _is_log_read(goal: Goal, tools: Tools) -> bool:
    if goal.kind != "question" or not goal.port:
        return True
    return any(port == goal.port for port, _ in tools.ledger)


# What is always looked at: how its absence is worded, the skill it takes, how code sees it.
_GAPS: Mapping[str, tuple[str, str, Check]] = {
    "log-read": ("nothing of the port's log has been read", "", _is_log_read),
    "block-read": ("the fault line and its whole block have not been read", "", _is_block_read),
    "before-read": ("the lines before the fault have not been read", "", _is_before_read),
    "registers-decoded": (
        "a register that the fault's lines show has not been decoded",
        "register-decode",
        _is_decoded,
    ),
    "page-read": ("the knowledge page has not been read", "knowledge-query", _is_page_read),
    "neighbour-read": (
        "the board that failed in the same second has not been looked at",
        "",
        _is_neighbour_read,
    ),
    "boots-compared": (
        "this boot has not been compared with the last good one",
        "boot-compare",
        _is_compared,
    ),
    "memory-asked": ("memory has not been asked", "memory-search", _is_memory_asked),
}
_GAP_TASKS: Mapping[str, tuple[str, str]] = {
    "block-read": ("read the fault line and its whole block", "log-read"),
    "before-read": ("read the lines before the fault", "log-read"),
    "registers-decoded": ("decode the registers that the fault's lines show", "register-decode"),
    "page-read": ("read the knowledge page", "knowledge-query"),
    "neighbour-read": ("look at the board that failed in the same second", "log-read"),
    "boots-compared": ("compare this boot with the last good one", "boot-compare"),
    "memory-asked": ("ask memory whether this was seen before", "memory-search"),
    "log-read": ("read what the port printed", "log-read"),
}
CHECKS = ("skill-answered", *_GAPS, "report-accepted")  # that `done_when` may name


def _kind_of(gap: str) -> str:
    return next(kind for kind, (text, _, _) in _GAPS.items() if text == gap)


def _one_line(value: object, limit: int) -> str:
    text = " ".join(readable(str(value or "").encode()).split())
    return text if len(text) <= limit else text[: limit - 1] + "…"
