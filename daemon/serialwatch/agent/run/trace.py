"""A run as the store keeps it: what was done, asked and answered; and what is remembered of it."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from enum import StrEnum
from typing import Any, Literal

from serialwatch.agent.queue import Kind, Phase
from serialwatch.agent.remembering import title_from, without_quotes
from serialwatch.agent.run.run_state import Inquiry, RunState, state_to_json
from serialwatch.agent.skills.results import error_code
from serialwatch.agent.workers.tools import Call
from serialwatch.records import Incident, Line, Report
from serialwatch.store.memory_gate import MAX_TITLE, has_instruction
from serialwatch.store.runs import (
    MessageRow,
    ResultRow,
    RoundRow,
    RunRow,
    SessionRow,
    SkillCallRow,
    Trace,
    message_hash,
)
from serialwatch.wire import Json

ROLE = "log-detective"

NO_PAGES: Mapping[str, str] = {}

# Of a result's metadata: what the model is shown, and that it came late.
_NO_BOOT_YET = re.compile(r"(?:, then| and) (?:halted|silent|announced a reset)$")
_REF_AT_END = re.compile(r": \[[^\s\[\]]+:L\d+\](?=\.?$)")  # all that is left of a quotation
_TOLD = ("summary", "error", "need", "remembered", "late")

RoundKind = Literal["act", "nudge", "repair", "draft", "redraft"]


@dataclass(frozen=True, slots=True)
class Round:
    """One model call."""

    n: int
    kind: RoundKind
    mode: Literal["native", "json"]
    prompt: tuple[Json, ...]
    response: Json
    prompt_tokens: int
    completion_tokens: int
    latency_ms: int
    outcome: str


class RunStatus(StrEnum):
    """How a run stands or ended."""

    RUNNING = "running"
    DONE = "done"
    PARTIAL = "partial"  # what held of a model's draft stands with the baseline
    BASELINE = "baseline"  # the baseline alone stands
    WAITING = "waiting"  # for a person's answer
    FAILED = "failed"
    CUT_SHORT = "cut short"


@dataclass(frozen=True, slots=True)
class ModelRun:
    """What came of asking a model."""

    report: Report | None  # None: the baseline stands
    reason: str  # why it stands, alone or with more; "" if it does not
    status: RunStatus
    state: RunState
    rounds: tuple[Round, ...] = ()  # of this part of the run
    inquiry: Inquiry | None = None  # that waits for an answer


@dataclass(frozen=True, slots=True)
class RunRecord:
    """A run while it goes on."""

    id: str
    kind: Kind
    phase: Phase | Literal[""]  # of an incident
    session: SessionRow  # as it begins
    started_utc_ns: int
    model: str = ""
    base_url: str = ""
    reason: str = ""  # why a model's report was not used, or none was asked

    def trace(
        self,
        calls: Iterable[Call],
        results: Mapping[str, object],
        status: RunStatus,
        ended_utc_ns: int | None,
        state: RunState | None = None,
        rounds: Sequence[Round] = (),
    ) -> Trace:
        """Return how a run stands, with the rounds, calls and results that are given."""
        told, calls = state or RunState(), tuple(calls)
        session = self.session
        return Trace(
            session=replace(session, ended_utc_ns=ended_utc_ns, status=status),
            run=RunRow(
                id=self.id,
                session_id=session.session_id,
                kind=self.kind,
                phase=self.phase,
                incident_id=session.incident_id,
                port=session.port,
                role=session.role,
                model=self.model,
                base_url=self.base_url,
                started_utc_ns=self.started_utc_ns,
                ended_utc_ns=ended_utc_ns,
                exit_status=status,
                reason=self.reason,
                plan=[asdict(step) for step in told.plan],
                notes=[*told.calls, *told.notes],
                model_calls=told.answered,
                tokens=told.tokens,
                state=state_to_json(state) if state else _told_of(calls),
            ),
            rounds=[_round(r) for r in rounds],
            messages=list({m.hash: m for r in rounds for m in map(_message, r.prompt)}.values()),
            skill_calls=[_call(call) for call in calls],
            results=[ResultRow(name, _object(body)) for name, body in results.items()],
        )


def session_of_incident(incident: Incident, role: str = ROLE) -> SessionRow:
    """Return the session to which all runs of an incident belong."""
    return SessionRow(
        session_id=f"incident-{incident.id}",
        user_id="",
        role=role,
        incident_id=incident.id,
        port=incident.port,
        started_utc_ns=incident.opened_utc_ns,
        ended_utc_ns=None,
        status="",
        summary=incident.title,
    )


def memory_of(
    incident: Incident,
    report: Report,
    run_id: str,
    calls: Sequence[Call],
    lines: Collection[Line] = (),
    pages: Mapping[str, str] = NO_PAGES,
) -> Json:
    """Return what is worth remembering of a report: its conclusion, never words of a board.

    What itself rests on a memory is no conclusion. `lines` were read, `pages` are our own words.
    """
    remembered = {c.id for c in calls if c.skill == "memory-search"}
    own = [c for c in report.conclusions if not remembered & set(c.results)]
    best = next((c for c in own if c.kind == "cause"), None)
    best = best or next(iter(own), None)
    if incident.trigger == "link.silence" and report.verdict == "inconclusive":
        best = None  # that a line was the last one tells nothing the next time
    claim = without_quotes(best.claim, lines, pages) if best else "The log did not tell why."
    claim = _REF_AT_END.sub("", claim)
    # The next boot may come later: what is remembered would say for ever that there was none.
    title = title_from(_NO_BOOT_YET.sub("", report.title), lines, pages, MAX_TITLE)
    title = title or incident.trigger
    if has_instruction(title):
        title = incident.trigger
    if has_instruction(claim):
        claim = "What was found reads like an instruction and is left out; the lines have it."
    refs = [e.ref for c in own for e in c.evidence]
    sources = [c for c in calls if c.is_good and c.skill != "memory-search"]
    return {
        "type": "task_result",
        "title": title,
        "body": f"{report.verdict.capitalize()}: {claim}"[:400],
        "priority": 3 if report.verdict == "confirmed" else 2,
        "source": "model" if report.cost.model else "rule",
        "scope": "port",
        "scope_name": incident.port,
        "tags": [t for t in dict.fromkeys((incident.trigger, incident.ecosystem)) if t],
        "fingerprint": incident.fingerprint,
        "evidence": list(dict.fromkeys(refs))[:20],
        "session_id": f"incident-{incident.id}",
        "links": [
            {"source_skill": c.skill, "source_step": f"{run_id}/{c.id}"} for c in sources[:8]
        ],
    }


def told_by(call: Call) -> Json:
    """Return what a call told that its stored result does not."""
    result = call.result
    told = {key: result.metadata[key] for key in _TOLD if result.metadata.get(key)}
    return told if call.id else told | {"output": dict(result.output)}


def _told_of(calls: Sequence[Call]) -> Json:
    return {"told": [(call.n, told_by(call)) for call in calls]}


def _round(told: Round) -> RoundRow:
    return RoundRow(
        n=told.n,
        kind=told.kind,
        mode=told.mode,
        prompt=[_message(m).hash for m in told.prompt],
        response=told.response,
        prompt_tokens=told.prompt_tokens,
        completion_tokens=told.completion_tokens,
        latency_ms=told.latency_ms,
        outcome=told.outcome,
    )


def _message(message: Json) -> MessageRow:
    role = str(message["role"])
    content = {key: value for key, value in message.items() if key != "role"}
    return MessageRow(message_hash(role, content), role, content)


def _call(call: Call) -> SkillCallRow:
    return SkillCallRow(
        n=call.n,
        round=call.round,
        skill=call.skill,
        version=call.version,
        sha=call.sha,
        args=dict(call.params),
        status=call.result.status,
        error_code=error_code(call.result),
        result_id=call.id,
        elapsed_ms=call.elapsed_ms,
    )


def _object(body: Any) -> Json:
    return body if isinstance(body, dict) else {"value": body}
