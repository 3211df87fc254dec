"""How a model's run began, as its state keeps it: to play it again."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any

from serialwatch.agent.offline.case import Recalled, Surroundings
from serialwatch.agent.offline.reading import read_case
from serialwatch.agent.queue import Phase
from serialwatch.agent.run.goal import Goal, goal_of
from serialwatch.agent.workers.tools import Tools
from serialwatch.records import Incident, Report
from serialwatch.wire import (
    Json,
    incident_from_json,
    incident_to_json,
    report_from_json,
    report_to_json,
)


@dataclass(frozen=True, slots=True)
class PastStart:
    """What a run had before its first round."""

    kind: str
    text: str
    baseline: Report
    port: str
    ports: tuple[str, ...]
    incident: Incident | None
    phase: Phase
    around: Surroundings
    shown: tuple[tuple[str, int], ...]  # lines, by port and number
    recalled: tuple[Recalled, ...]
    limits: Mapping[str, float]  # see `Limits` of the loop
    factor: float  # of the estimator
    may_ask: bool
    may_propose: bool

    async def goal(self, tools: Tools) -> Goal:
        """Read again what the run began with."""
        if self.incident is not None:
            case = await read_case(self.incident, tools, self.phase, self.around)
            return goal_of(case, self.baseline)
        lines = (tools.ledger.get(ref) for ref in self.shown)
        return Goal(
            kind="question",
            text=self.text,
            baseline=self.baseline,
            port=self.port,
            ports=self.ports,
            shown=tuple(line for line in lines if line is not None),
            recalled=self.recalled,
        )


def start_to_json(
    goal: Goal, limits: Json, factor: float, *, may_ask: bool, may_propose: bool
) -> Json:
    """Return how a run begins."""
    around = goal.case.around if goal.case else Surroundings()
    return {
        "kind": goal.kind,
        "text": goal.text,
        "baseline": report_to_json(goal.baseline),
        "port": goal.port,
        "ports": list(goal.ports),
        "incident": incident_to_json(goal.incident) if goal.incident else None,
        "phase": goal.phase or "settled",
        "neighbours": [incident_to_json(other) for other in around.neighbours],
        "writer": around.writer,
        "sent": {str(seq): user for seq, user in around.sent.items()},
        "shown": [[line.port, line.seq] for line in goal.shown],
        "recalled": [] if goal.case else [asdict(memory) for memory in goal.recalled],
        "limits": limits,
        "factor": factor,
        "may_ask": may_ask,
        "may_propose": may_propose,
    }


def start_from_json(body: Mapping[str, Any]) -> PastStart:
    """Return what `start_to_json` wrote.

    Raises:
        KeyError, TypeError, ValueError: it is none, or one of another version.

    """
    incident = body["incident"]
    return PastStart(
        kind=str(body["kind"]),
        text=str(body["text"]),
        baseline=report_from_json(body["baseline"]),
        port=str(body["port"]),
        ports=tuple(map(str, body["ports"])),
        incident=incident_from_json(incident) if incident else None,
        phase=body["phase"],
        around=Surroundings(
            neighbours=tuple(map(incident_from_json, body["neighbours"])),
            writer=body["writer"],
            sent={int(seq): str(user) for seq, user in body["sent"].items()},
        ),
        shown=tuple((str(port), int(seq)) for port, seq in body["shown"]),
        recalled=tuple(
            Recalled(**{**row, "evidence": tuple(row["evidence"])}) for row in body["recalled"]
        ),
        limits=dict(body["limits"]),
        factor=float(body["factor"]),
        may_ask=bool(body["may_ask"]),
        may_propose=bool(body.get("may_propose", False)),
    )
