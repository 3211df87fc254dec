"""Let a model investigate after the offline analyst: rounds of skills, then a checked report.

Whatever the model or its endpoint does, the run ends within its limits; without a report that
passes the verifier the baseline stands, and `reason` says why.
"""

from __future__ import annotations

import asyncio
import hashlib
import json
import logging
import secrets
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from serialwatch.agent.actions import Action, actions_of
from serialwatch.agent.case import Case
from serialwatch.agent.draft import DraftError, read_draft
from serialwatch.agent.model import ChatModel, Completion, ModelError, ToolsRefusedError
from serialwatch.agent.prompt import (
    REPORT_SKILL,
    Mode,
    Scene,
    Turn,
    messages_for,
    note_of,
    result_text,
    tools_for,
)
from serialwatch.agent.results import SENTENCES, Code, error_code
from serialwatch.agent.role import Role
from serialwatch.agent.skill import Skill
from serialwatch.agent.tools import Call, Tools
from serialwatch.agent.trace import ModelRun, Round, RoundKind
from serialwatch.agent.verifier import Rejection, verify
from serialwatch.records import Cost, Incident, Report
from serialwatch.wire import Json

MAX_CALLS = 5  # skill calls a round
ANSWER_TOKENS = 1_200  # of one answer

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Limits:
    """What one run may take, whichever ends first."""

    rounds: int = 8  # model calls
    tokens: int = 24_000
    report_tokens: int = 6_000  # of these, kept for the report
    seconds: float = 90.0
    report_seconds: float = 20.0  # of these, kept for the report


NORMAL = Limits()


class Desk:
    """Takes the report that the skill `report-write` hands in, and checks it."""

    def __init__(self, incident: Incident, baseline: Report, made_by: str) -> None:
        self.accepted: Report | None = None
        self.rejections: tuple[Rejection, ...] = ()  # of the last draft that was sent back
        self.drafts = 0
        self.hopeless = ""  # no draft will be accepted any more, and why
        self._incident = incident
        self._baseline = baseline
        self._made_by = made_by
        self._tools: Tools | None = None

    def open(self, tools: Tools) -> None:
        """Begin: reports are checked against what `tools` have read."""
        self._tools = tools

    async def submit(self, body: Json) -> Json:
        """Check a report and return what the model has to know; the first draft may come back."""
        if self._tools is None:
            raise RuntimeError("the desk is not open")
        try:
            draft = read_draft(body, self._baseline, self._made_by)
        except DraftError as exc:
            return _sent_back(Rejection("report", "G1", problem) for problem in exc.problems)
        self.drafts += 1
        tools = self._tools
        checked = verify(draft, tools.ledger, tools.results, self._incident, tools.pages)
        verified = len(checked.report.conclusions)
        if checked.dropped and self.drafts == 1:
            self.rejections = checked.dropped
            return _sent_back(checked.dropped)
        if not verified:
            self.hopeless = (
                f"none of its {len(draft.conclusions)} claims is carried by the lines it cites"
            )
            return _sent_back(checked.dropped)
        self.rejections = ()
        self.accepted = checked.report
        return {"accepted": True, "verified": verified, "dropped": len(checked.dropped)}


def _sent_back(rejections: Iterable[Rejection]) -> Json:
    rows = [{"id": no.id, "code": no.code, "why": no.why} for no in rejections]
    return {"accepted": False, "rejections": rows}


class _GiveUp(Exception):  # noqa: N818  (the run is over, nothing failed)
    """The run ends without a report of the model; the message is the reason."""


class Loop:
    """One run of a model."""

    def __init__(
        self,
        case: Case,
        baseline: Report,
        model: ChatModel,
        tools: Tools,
        desk: Desk,
        skills: Sequence[Skill],
        role: Role,
        limits: Limits = NORMAL,
    ) -> None:
        self._limits = limits
        self._case = case
        self._baseline = baseline
        self._model = model
        self._tools = tools
        self._desk = desk
        self._skills = tuple(s for s in skills if s.name in role.skills and s.has_main)
        self._role = role
        self._nonce = secrets.token_hex(2)
        self._mode: Mode = "native"
        self._turns: list[Turn] = []
        self._rounds: list[Round] = []
        self._tokens = 0
        self._last_tokens = 0  # of the last round: the next one will not be cheaper
        self._seen: dict[str, Call] = {}  # calls made, by what they ask
        self._repeats = 0
        self._invalid = 0  # in a row
        self._nudged = False
        self._remark = ""
        self._began = self._until = 0.0  # of the loop's time

    async def run(self) -> ModelRun:
        """Return what came of it, within the limits of a run."""
        self._began = asyncio.get_running_loop().time()
        self._until = self._began + self._limits.seconds
        self._desk.open(self._tools)
        reason = ""
        try:
            async with asyncio.timeout_at(self._until):
                while self._desk.accepted is None:
                    await self._round()
        except (ModelError, _GiveUp) as exc:
            reason = str(exc)
        except TimeoutError:
            reason = f"no report within {self._limits.seconds:g} s"
        if reason:
            log.info("incident %d: the baseline stands: %s", self._case.incident.id, reason)
        return ModelRun(
            report=self._report() if not reason else None,
            reason=reason,
            rounds=tuple(self._rounds),
            tokens=self._tokens,
            notes=tuple(note for turn in self._turns for note in turn.notes),
        )

    def _report(self) -> Report | None:
        accepted = self._desk.accepted
        if accepted is None:
            return None
        cost = Cost(
            skills=len(self._tools.calls),
            model_calls=len(self._rounds),
            tokens=self._tokens,
            seconds=round(asyncio.get_running_loop().time() - self._began, 3),
            model=self._model.endpoint.model,
        )
        return replace(accepted, cost=cost)

    async def _round(self) -> None:
        n = len(self._rounds) + 1
        limits = self._limits
        if n > limits.rounds:
            raise _GiveUp(f"no report in {limits.rounds} rounds")
        if self._desk.hopeless:
            raise _GiveUp(self._desk.hopeless)
        is_last = self._must_report(n)
        scene = Scene(
            role=self._role,
            case=self._case,
            baseline=self._baseline,
            skills=self._offered(is_last),
            nonce=self._nonce,
            mode=self._mode,
            turns=tuple(self._turns),
            is_last=is_last,
            rejections=self._desk.rejections,
            remark=self._remark,
        )
        prompt = messages_for(scene)
        if self._tokens + max(_estimate(prompt) + ANSWER_TOKENS, self._last_tokens) > limits.tokens:
            raise _GiveUp(f"its budget of {limits.tokens} tokens is spent")
        kind = self._kind(is_last)
        self._remark = ""
        try:
            completion = await self._model.complete(
                prompt,
                tools=tools_for(scene.skills) if self._mode == "native" else (),
                max_tokens=ANSWER_TOKENS,
                until=self._until,
            )
        except ToolsRefusedError:
            if self._mode == "json":
                raise
            self._mode = "json"
            self._turns.clear()
            return
        self._tokens += completion.tokens
        self._last_tokens = completion.tokens
        outcome = "given up"
        try:
            outcome = await self._act(completion, scene, n)
        finally:
            self._rounds.append(_traced(n, kind, self._mode, prompt, completion, outcome))

    def _must_report(self, n: int) -> bool:
        left_s = self._until - asyncio.get_running_loop().time()
        return (
            n >= self._limits.rounds
            or bool(self._desk.rejections)
            or self._repeats >= 2
            or left_s < self._limits.report_seconds
            or self._tokens + max(self._last_tokens, ANSWER_TOKENS)
            > self._limits.tokens - self._limits.report_tokens
        )

    def _offered(self, is_last: bool) -> tuple[Skill, ...]:
        return tuple(s for s in self._skills if not is_last or s.name == REPORT_SKILL)

    def _kind(self, is_last: bool) -> RoundKind:
        if self._desk.rejections:
            return "redraft"
        if self._remark:
            return "nudge"
        if self._invalid:
            return "repair"
        return "draft" if is_last else "act"

    async def _act(self, completion: Completion, scene: Scene, n: int) -> str:
        """Do what the model wants, and keep both for the next prompt; return what came of it."""
        actions = actions_of(completion)
        if not actions:
            return self._talked(completion)
        answers: list[str] = []
        notes: list[str] = []
        outcomes: list[str] = []
        for at, action in enumerate(actions):
            text, note, outcome = await self._one(action, scene, n, at)
            answers.append(text)
            notes.append(note)
            outcomes.append(outcome)
        self._turns.append(Turn(_conversation(completion, actions, answers, self._mode),
                                tuple(notes)))  # fmt: skip
        if self._desk.accepted is None and self._invalid >= 2:
            raise _GiveUp(f"it asked twice for what cannot be done: {notes[-1]}")
        return ", ".join(dict.fromkeys(outcomes))

    def _talked(self, completion: Completion) -> str:
        """The reply is neither a call nor an end: once, ask again."""
        if self._nudged:
            raise _GiveUp("it answered without a call and without a report")
        self._nudged = True
        cut_off = " It was cut off at its length; be shorter." if (
            completion.finish_reason == "length") else ""  # fmt: skip
        self._remark = (
            "The last reply was neither a call nor a report, so nothing happened."
            f"{cut_off} Call a skill, or end with `{REPORT_SKILL}`."
        )
        text = completion.text[:2000] or "(nothing)"
        self._turns.append(Turn(({"role": "assistant", "content": text},), ()))
        return "prose"

    async def _one(self, action: Action, scene: Scene, n: int, at: int) -> tuple[str, str, str]:
        """Run one action; return the answer for the model, a note and the outcome."""
        if at >= MAX_CALLS:
            return _refused(action, "quota_turn")
        offered = {skill.name for skill in scene.skills}
        if action.skill not in offered:
            self._invalid += 1
            known = action.skill in {skill.name for skill in self._skills}
            names = ", ".join(sorted(offered))
            return _refused(action, "not_offered" if known else "unknown_skill", names)
        if action.params is None:
            self._invalid += 1
            return _refused(action, "invalid_args", action.problem)
        key = _key(action.skill, action.params)
        if (earlier := self._seen.get(key)) is not None and action.skill != REPORT_SKILL:
            self._repeats += 1
            text = f"Same as {earlier.id}, nothing new since.\n{result_text(earlier, self._nonce)}"
            return text, f"{note_of(earlier)} (again)", "repeated"
        call = await self._tools.call(action.skill, action.params, n)
        code = error_code(call.result)
        if code == "invalid_args":
            self._invalid += 1
        else:
            self._invalid = 0
            self._seen[key] = call
        return result_text(call, self._nonce), note_of(call), code or call.result.status


def _refused(action: Action, code: Code, detail: str = "") -> tuple[str, str, str]:
    words = f"{SENTENCES[code]} {detail}".strip()
    shown = "".join(c if c.isprintable() else " " for c in action.skill)[:64]
    return words, f"- {shown} -> {code}", code


def _key(skill: str, params: Mapping[str, Any]) -> str:
    whole = json.dumps([skill, params], sort_keys=True, default=str)
    return hashlib.sha256(whole.encode()).hexdigest()


def _conversation(
    completion: Completion, actions: Sequence[Action], answers: Sequence[str], mode: Mode
) -> tuple[Json, ...]:
    """Return the messages of a round; each native call gets its answer."""
    if mode == "json" or not completion.calls:
        return (
            {"role": "assistant", "content": completion.text[:4000]},
            *({"role": "user", "content": f"Result:\n{text}"} for text in answers),
        )
    calls = [
        {
            "id": action.call_id,
            "type": "function",
            "function": {"name": call.name, "arguments": _short(call.arguments)},
        }
        for action, call in zip(actions, completion.calls, strict=True)
    ]
    return (
        {"role": "assistant", "content": completion.text[:2000] or None, "tool_calls": calls},
        *(
            {"role": "tool", "tool_call_id": action.call_id, "content": text}
            for action, text in zip(actions, answers, strict=True)
        ),
    )


def _traced(
    n: int, kind: RoundKind, mode: Mode, prompt: Sequence[Json], done: Completion, outcome: str
) -> Round:
    response = {
        "text": done.text,
        "calls": [{"name": c.name, "arguments": c.arguments} for c in done.calls],
        "finish_reason": done.finish_reason,
    }
    return Round(
        n,
        kind,
        mode,
        tuple(prompt),
        response,
        done.prompt_tokens,
        done.completion_tokens,
        done.latency_ms,
        outcome,
    )


def _estimate(prompt: Sequence[Json]) -> int:
    """Return about how many tokens a prompt has."""
    return len(json.dumps(prompt, ensure_ascii=False)) // 3


def _short(arguments: str) -> str:
    return arguments if 0 < len(arguments) <= 4000 else "{}"
