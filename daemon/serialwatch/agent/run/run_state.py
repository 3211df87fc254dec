"""What a model's run knows of itself: enough to build the next prompt, and to go on elsewhere.

Everything in it is JSON once `state_to_json` has passed over it; it is stored after each step.
"""

from __future__ import annotations

import secrets
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field, fields
from typing import Any, Literal, TypeVar

from serialwatch.agent.proof.verifier import Rejection
from serialwatch.wire import Json

Mode = Literal["native", "json"]
StepState = Literal["open", "done", "failed"]
Status = Literal["open", "confirmed", "refuted"]

MAX_RECENT = 3  # rounds kept word by word; older ones are one line a call
MAX_NOTES = 6  # of the model's own; the oldest go
MAX_LINES = 40  # of calls, one line each
MAX_REFUSED = 48  # parts of drafts that the verifier did not let pass

R = TypeVar("R")


@dataclass(slots=True)
class PlanStep:
    """One step of the plan."""

    step: int  # counts from 1
    task: str
    skill_hint: str = ""
    done_when: str = ""  # see `plan.CHECKS`
    state: StepState = "open"
    failures: int = 0  # of calls that were made for it


@dataclass(slots=True)
class Suspicion:
    """A hypothesis and how it fares."""

    id: str  # h1, h2, ...
    fault_class: str
    text: str
    status: Status = "open"


@dataclass(frozen=True, slots=True)
class Decision:
    """What was decided in a round, and why."""

    round: int
    kind: str
    what: str  # calls, one line
    why: str  # in the model's words, shortened
    outcome: str


@dataclass(frozen=True, slots=True)
class Turn:
    """One round as it is shown again: the model's message and our answers."""

    messages: tuple[Json, ...]


@dataclass(slots=True)
class Inquiry:
    """A question of the run to a person."""

    question: str
    known: str  # so far
    missing: str
    id: int = 0  # of the store's row; 0: not handed in
    answer: str = ""
    answered_by: str = ""


@dataclass(frozen=True, slots=True)
class Refusal:
    """What the verifier said of one part of a draft."""

    draft: int  # counts from 1
    id: str  # of the conclusion, or "title", "class", ...
    code: str  # G1 .. G12, see `verifier`
    why: str
    is_dropped: bool = True  # False: weakened, moved or replaced


@dataclass(slots=True)
class RunState:
    """A run between two steps."""

    goal: Json = field(default_factory=dict)  # what it is for, see `Goal`
    setup: Json = field(default_factory=dict)  # of the loop at its start, see `past_start`
    later: list[Json] = field(default_factory=list)  # likewise, each time it was taken up
    nonce: str = field(default_factory=lambda: secrets.token_hex(2))  # of the mark
    mode: Mode = "native"
    rounds: int = 0  # begun
    answered: int = 0  # of them
    tokens: int = 0  # billed
    price: float = 0.0  # of them, 0 if no prices are configured
    models: dict[str, Json] = field(default_factory=dict)  # tokens and price of each model
    last_tokens: int = 0  # of the last round: the next one will not be cheaper
    seconds: float = 0.0  # spent working, over all parts of the run
    resumed: int = 0  # how often it was taken up after it was cut short

    plan: list[PlanStep] = field(default_factory=list)
    plan_why: str = ""
    plans: int = 0  # that the model has made
    suspicions: list[Suspicion] = field(default_factory=list)
    missing: list[str] = field(default_factory=list)  # of what always has to be looked at
    notes: list[str] = field(default_factory=list)  # the model's own
    calls: list[str] = field(default_factory=list)  # one line each
    decisions: list[Decision] = field(default_factory=list)
    turns: list[Turn] = field(default_factory=list)  # the last MAX_RECENT
    inquiries: list[Inquiry] = field(default_factory=list)

    found: list[str] = field(default_factory=list)  # skills that `skill-find` brought up
    withdrawn: list[str] = field(default_factory=list)  # skills that failed too often
    offered: list[str] = field(default_factory=list)  # skills that were ever shown in full
    called: list[str] = field(default_factory=list)  # skills that the model has called
    cited: list[str] = field(default_factory=list)  # skills on whose results the report rests

    seen: dict[str, str] = field(default_factory=dict)  # results by the key of their call
    keys: list[str] = field(default_factory=list)  # of the calls, in order
    repeats: int = 0  # calls made again
    invalid: int = 0  # in a row
    unreadable: int = 0  # replies in a row that are no JSON action
    silent: int = 0  # replies in a row without a call
    failures: int = 0  # of calls, in all
    failed_in_a_row: dict[str, int] = field(default_factory=dict)  # by skill
    reflections: int = 0
    remark: str = ""  # about the last reply

    drafts: int = 0
    rejections: list[Rejection] = field(default_factory=list)  # of the last draft sent back
    best: Json | None = None  # the best draft so far, without what did not hold
    refused: list[Refusal] = field(default_factory=list)  # of all drafts, the last MAX_REFUSED
    ledger: list[tuple[str, int, int]] = field(default_factory=list)  # lines read: port, from, to
    # Lines that were new in a round, likewise; first those read before the first one.
    reads: list[tuple[int, list[tuple[str, int, int]]]] = field(default_factory=list)
    late: list[str] = field(default_factory=list)  # results that came late and were shown
    late_in: list[tuple[int, int]] = field(default_factory=list)  # the round, and how many
    told: list[tuple[int, Json]] = field(default_factory=list)  # by calls beside their results

    @property
    def current(self) -> PlanStep | None:
        """Return the step to work on, None if there is none left."""
        return next((step for step in self.plan if step.state == "open"), None)

    @property
    def pending(self) -> Inquiry | None:
        """Return the question that waits for an answer."""
        return next((i for i in self.inquiries if not i.answer), None)

    def add_turn(self, turn: Turn) -> None:
        """Keep a round for the next prompts."""
        self.turns = [*self.turns, turn][-MAX_RECENT:]

    def add_call(self, line: str) -> None:
        """Note a call in one line."""
        self.calls = [*self.calls, line][-MAX_LINES:]

    def add_refusals(self, refusals: Iterable[Refusal]) -> None:
        """Keep what the verifier said of a draft."""
        self.refused = [*self.refused, *refusals][-MAX_REFUSED:]

    def add_note(self, text: str) -> None:
        """Keep a note of the model."""
        self.notes = [*self.notes, text][-MAX_NOTES:]


def state_to_json(state: RunState) -> Json:
    """Return a state as it is stored."""
    return asdict(state)


def state_from_json(body: Mapping[str, Any]) -> RunState:
    """Return the state that `state_to_json` wrote; fields of another version are left out.

    Raises:
        TypeError, ValueError: it is none.

    """
    state = _made(RunState, body)
    state.plan = _each(body, "plan", lambda row: _made(PlanStep, row))
    state.suspicions = _each(body, "suspicions", lambda row: _made(Suspicion, row))
    state.decisions = _each(body, "decisions", lambda row: _made(Decision, row))
    state.inquiries = _each(body, "inquiries", lambda row: _made(Inquiry, row))
    state.rejections = _each(body, "rejections", lambda row: _made(Rejection, row))
    state.turns = _each(body, "turns", lambda row: Turn(tuple(row["messages"])))
    state.refused = _each(body, "refused", lambda row: _made(Refusal, row))
    state.ledger = _ranges(body.get("ledger", ()))
    state.reads = [(int(n), _ranges(ranges)) for n, ranges in body.get("reads", ())]
    state.late_in = [(int(n), int(count)) for n, count in body.get("late_in", ())]
    state.told = [(int(n), dict(told)) for n, told in body.get("told", ())]
    return state


def ranges_of(lines: Sequence[tuple[str, int]]) -> list[tuple[str, int, int]]:
    """Return lines, by port and number, as ranges without holes."""
    ranges: list[tuple[str, int, int]] = []
    for port, seq in sorted(lines):
        if ranges and ranges[-1][0] == port and ranges[-1][2] == seq - 1:
            ranges[-1] = (port, ranges[-1][1], seq)
        else:
            ranges.append((port, seq, seq))
    return ranges


def _ranges(rows: Iterable[Any]) -> list[tuple[str, int, int]]:
    return [(str(port), int(first), int(last)) for port, first, last in rows]


def _made(kind: type[R], body: Mapping[str, Any]) -> R:
    names = {f.name for f in fields(kind)}  # type: ignore[arg-type]  # all of ours are dataclasses
    return kind(**{name: value for name, value in body.items() if name in names})


def _each(body: Mapping[str, Any], name: str, made: Callable[[Json], R]) -> list[R]:
    return [made(row) for row in body.get(name, ())]
