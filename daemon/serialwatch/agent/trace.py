"""A run as the store keeps it: what was done, asked and answered; and what is remembered of it."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

from serialwatch.agent.queue import Kind, Phase
from serialwatch.agent.results import error_code
from serialwatch.agent.tools import Call
from serialwatch.records import Incident, Report
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


@dataclass(frozen=True, slots=True)
class ModelRun:
    """What came of asking a model."""

    report: Report | None  # None: the baseline stands
    reason: str  # why it stands, "" if it does not
    rounds: tuple[Round, ...] = ()
    tokens: int = 0
    notes: tuple[str, ...] = ()

    @property
    def model_calls(self) -> int:
        """Return how often the model was asked and answered."""
        return len(self.rounds)


@dataclass(frozen=True, slots=True)
class RunRecord:
    """A run while it goes on."""

    id: str
    kind: Kind
    phase: Phase
    incident: Incident
    started_utc_ns: int
    model: str = ""
    base_url: str = ""
    rounds: Sequence[Round] = ()
    notes: Sequence[str] = field(default_factory=tuple)
    tokens: int = 0
    reason: str = ""  # why a model's report was not used, or none was asked

    def trace(
        self, calls: Iterable[Call], results: Mapping[str, object], status: str, ended_utc_ns: int
    ) -> Trace:
        """Return everything that happened; `status` is how the run ended."""
        incident = self.incident
        return Trace(
            session=SessionRow(
                session_id=session_id(incident),
                user_id="",
                role=ROLE,
                incident_id=incident.id,
                port=incident.port,
                started_utc_ns=incident.opened_utc_ns,
                ended_utc_ns=ended_utc_ns,
                status=status,
                summary=incident.title,
            ),
            run=RunRow(
                id=self.id,
                session_id=session_id(incident),
                kind=self.kind,
                phase=self.phase,
                incident_id=incident.id,
                port=incident.port,
                role=ROLE,
                model=self.model,
                base_url=self.base_url,
                started_utc_ns=self.started_utc_ns,
                ended_utc_ns=ended_utc_ns,
                exit_status=status,
                reason=self.reason,
                notes=list(self.notes),
                model_calls=len(self.rounds),
                tokens=self.tokens,
            ),
            rounds=[_round(r) for r in self.rounds],
            messages=list(
                {m.hash: m for r in self.rounds for m in map(_message, r.prompt)}.values()
            ),
            skill_calls=[_call(call) for call in calls],
            results=[ResultRow(name, _object(body)) for name, body in results.items()],
        )


def session_id(incident: Incident) -> str:
    """Return the session to which all runs of an incident belong."""
    return f"incident-{incident.id}"


def memory_of(incident: Incident, report: Report, run_id: str, calls: Sequence[Call]) -> Json:
    """Return what is worth remembering of a report: its conclusion, never lines of a log."""
    best = next((c for c in report.conclusions if c.kind == "cause"), None)
    best = best or next(iter(report.conclusions), None)
    claim = best.claim if best else "The log did not tell why."
    refs = [e.ref for c in report.conclusions for e in c.evidence]
    sources = [c for c in calls if c.is_good and c.skill != "memory-search"]
    return {
        "type": "task_result",
        "title": report.title[:120],
        "body": f"{report.verdict.capitalize()}: {claim}"[:400],
        "priority": 3 if report.verdict == "confirmed" else 2,
        "source": "model" if report.cost.model else "rule",
        "scope": "port",
        "scope_name": incident.port,
        "tags": [t for t in dict.fromkeys((incident.trigger, incident.ecosystem)) if t],
        "fingerprint": incident.fingerprint,
        "evidence": list(dict.fromkeys(refs))[:20],
        "session_id": session_id(incident),
        "links": [
            {"source_skill": c.skill, "source_step": f"{run_id}/{c.id}"} for c in sources[:8]
        ],
    }


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
