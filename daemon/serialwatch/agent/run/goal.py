"""What a model's run is for: an incident, or a question that somebody asked."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Literal

from serialwatch.agent.offline.case import Case, Recalled, Surroundings
from serialwatch.agent.offline.reading import read_case
from serialwatch.agent.queue import Phase
from serialwatch.agent.workers.tools import Tools
from serialwatch.records import Incident, Line, Report

GoalKind = Literal["incident", "question"]


@dataclass(frozen=True, slots=True)
class Goal:
    """What is to be found out, and what is known of it when the run begins."""

    kind: GoalKind
    text: str  # an incident's title, or the question; may hold words of a device
    baseline: Report  # what stands without the model; of a question: incident 0
    port: str = ""  # "": it is about none
    ports: tuple[str, ...] = ()  # that it may be about
    incident: Incident | None = None
    phase: Phase | None = None  # of the incident
    case: Case | None = None  # what was read of the incident
    shown: tuple[Line, ...] = ()  # lines shown at the start where there is no case
    recalled: tuple[Recalled, ...] = ()  # memories that fit

    @property
    def name(self) -> str:
        """Return what it is, for our own log."""
        return f"incident {self.incident.id}" if self.incident else self.kind

    @property
    def tags(self) -> tuple[str, ...]:
        """Return what it is about, for sections of a role and the choice of skills."""
        if self.incident is None:
            trigger, ecosystem = self.baseline.fault_class, ""
        else:
            trigger, ecosystem = self.incident.trigger, self.incident.ecosystem
        if trigger == "unknown":
            return ()
        tags = (trigger, trigger.partition(".")[0], ecosystem)
        return tuple(dict.fromkeys(tag for tag in tags if tag))


ReadGoal = Callable[[Tools], Awaitable[Goal]]  # reads what a run begins with


def goal_of_incident(
    incident: Incident, phase: Phase, baseline: Report, around: Surroundings
) -> ReadGoal:
    """Return what reads an incident at the start of a run."""

    async def read(tools: Tools) -> Goal:
        return goal_of(await read_case(incident, tools, phase, around), baseline)

    return read


def goal_of(case: Case, baseline: Report) -> Goal:
    """Return the goal of explaining an incident."""
    incident = case.incident
    return Goal(
        kind="incident",
        text=incident.title,
        baseline=baseline,
        port=incident.port,
        ports=tuple(dict.fromkeys([incident.port, *(i.port for i in case.around.neighbours)])),
        incident=incident,
        phase=case.phase,
        case=case,
        recalled=case.recalled,
    )
