"""Let a model investigate: rounds of skills, then a checked report.

Whatever the model or its endpoint does, the run ends within its limits; without a report that
passes the verifier the baseline stands, and `reason` says why. All that a round needs to know is
in the state, which is handed to `keep` before each round and after each step.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import asdict, dataclass, replace

from serialwatch.agent.models.completion import Completion
from serialwatch.agent.models.hiding_model import HidingModel
from serialwatch.agent.models.model import ModelError, ToolsRefusedError
from serialwatch.agent.models.tokens import Estimator
from serialwatch.agent.role import Role
from serialwatch.agent.run.acting import INVALID, Acting
from serialwatch.agent.run.actions import (
    Action,
    action_schema,
    call_ids,
    conversation,
    read_reply,
)
from serialwatch.agent.run.controls import control_tools
from serialwatch.agent.run.desk import Desk, added_to_baseline, cited_skills
from serialwatch.agent.run.goal import Goal
from serialwatch.agent.run.guards import is_stuck
from serialwatch.agent.run.past_start import start_to_json
from serialwatch.agent.run.plan import default_plan, judge_steps, missing_of, suspicions_of
from serialwatch.agent.run.prompt import Prompt, PromptTooLongError, Scene, build_prompt
from serialwatch.agent.run.run_state import Decision, Mode, RunState, Turn, ranges_of
from serialwatch.agent.run.shown import marked_text, note_of, one_line, result_text
from serialwatch.agent.run.trace import ModelRun, Round, RoundKind, RunStatus, told_by
from serialwatch.agent.skills.choice import REPORT_SKILL, Offer, choose
from serialwatch.agent.skills.skill import Skill
from serialwatch.agent.skills.when import Situation
from serialwatch.agent.text.device_text import readable, shortened
from serialwatch.agent.workers.tools import Tools
from serialwatch.records import Cost

ANSWER_TOKENS = 1_200  # of one answer
REFLECT_AT = 4  # the round that looks back, if none did before
MAX_UNREADABLE = 3  # replies in a row that are no action
MAX_INVALID = 2  # rounds in a row with nothing but calls that cannot be done
MAX_QUOTED = 300  # characters of a reply that is shown again

_WORDS = {
    "unknown_skill": "there is no such skill",
    "not_offered": "it is not offered now",
    "denied": "it is not allowed",
    "invalid_args": "its parameters are wrong",
}

Keep = Callable[[RunState, Sequence[Round], Tools], Awaitable[None]]

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Limits:
    """What one run may take, whichever ends first."""

    rounds: int = 8  # model calls
    tokens: int = 48_000  # eight prompts that fill `context_tokens`, and their answers
    report_tokens: int = 6_000  # of these, kept for the report
    seconds: float = 90.0
    report_seconds: float = 20.0  # of these, kept for the report
    context_tokens: int = 6_144  # of the model


NORMAL = Limits()


async def keep_nothing(state: RunState, rounds: Sequence[Round], tools: Tools) -> None:
    """Keep nothing: for a run that nobody will go on with."""


class _GiveUp(Exception):  # noqa: N818  (the run is over, nothing failed)
    """The run ends without a report of the model; the message is the reason."""


class Loop:
    """One run of a model."""

    def __init__(
        self,
        goal: Goal,
        model: HidingModel,
        tools: Tools,
        desk: Desk,
        skills: Sequence[Skill],
        role: Role,
        state: RunState,
        *,
        limits: Limits = NORMAL,
        estimator: Estimator | None = None,
        keep: Keep = keep_nothing,
        may_ask: bool = False,  # a person can be asked, and the run goes on with the answer
        may_propose: bool = False,  # actions on the board, for a person to decide
    ) -> None:
        self._goal = goal
        self._model = model
        self._tools = tools
        self._desk = desk
        self._skills = tuple(
            s
            for s in skills
            if s.is_for(role.name, role.skills)
            and s.has_main
            and (s.risk != "L3" or (may_propose and role.risk == "L3"))
        )
        self._names = frozenset(s.name for s in self._skills)
        self._role = role
        self._state = state
        self._limits = limits
        self._estimator = estimator or Estimator()
        self._keep = keep
        self._may_ask = may_ask
        self._may_propose = may_propose
        self._read = frozenset[tuple[str, int]]()  # lines, at the end of the last round
        self._rounds: list[Round] = []
        self._acting = Acting(
            goal,
            tools,
            self._skills,
            state,
            last_round=limits.rounds,
            saved=self._saved,
            may_ask=may_ask,
        )
        self._began = self._until = 0.0  # of the loop's time
        self._spent_s = state.seconds  # before this part of the run
        self._spent = (state.tokens, state.price)  # likewise
        self._models = dict(state.models)

    async def run(self) -> ModelRun:
        """Return what came of it, within the limits of a run."""
        state = self._state
        self._began = asyncio.get_running_loop().time()
        self._until = self._began + max(self._limits.seconds - self._spent_s, 0.0)
        self._desk.open(self._goal, self._tools, state)
        self._prepare()
        reason = ""
        try:
            async with asyncio.timeout_at(self._until):
                while self._desk.accepted is None and self._acting.inquiry is None:
                    await self._round()
        except (ModelError, PromptTooLongError, _GiveUp) as exc:
            reason = str(exc)
        except TimeoutError:
            reason = f"no report within {self._limits.seconds:g} s"
        return self._ended(reason)

    def _prepare(self) -> None:
        """Begin with the offline analyst's hypotheses and a plan made in code."""
        state = self._state
        start = start_to_json(
            self._goal,
            asdict(self._limits),
            self._estimator.factor,
            may_ask=self._may_ask,
            may_propose=self._may_propose,
        )
        if state.rounds:
            state.later.append(start)
        else:
            state.setup = start
        self._note_reads()
        if not state.suspicions:
            state.suspicions = suspicions_of(self._goal)
        state.missing = missing_of(self._goal, self._tools, self._names)
        if not state.plan:
            state.plan = default_plan(state, self._goal, self._names)

    def _ended(self, reason: str) -> ModelRun:
        state, desk = self._state, self._desk
        self._note_time()
        report, status = desk.accepted, RunStatus.DONE
        if report is not None:
            state.cited = cited_skills(report, self._tools.calls)
            reason = ""
            not_checked = dict.fromkeys([*report.not_checked, *state.missing])
            report = replace(report, not_checked=tuple(not_checked))
        elif self._acting.inquiry is not None:
            status = RunStatus.WAITING
            reason = f"it waits for an answer: {self._acting.inquiry.question}"
        else:
            status = RunStatus.BASELINE
            made_by = f"model {self._model.endpoint.model}, unfinished"
            report = added_to_baseline(self._goal.baseline, state.best, made_by)
            if report is not None:
                unknowns = dict.fromkeys([*report.unknowns, *state.missing])
                report = replace(report, unknowns=tuple(unknowns))
                status = RunStatus.PARTIAL
                held = len(report.conclusions) - len(self._goal.baseline.conclusions)
                claims = "1 claim" if held == 1 else f"{held} claims"
                reason = f"{reason}; {claims} of its draft held and stand with the baseline's"
                state.cited = cited_skills(report, self._tools.calls)
        if status is not RunStatus.WAITING:
            state.turns = []  # nobody goes on with it; each prompt is stored with its round
        if reason:
            log.info("%s: the baseline stands: %s", self._goal.name, reason)
        return ModelRun(
            report=replace(report, cost=self._cost(reason)) if report else None,
            reason=reason,
            status=status,
            state=state,
            rounds=tuple(self._rounds),
            inquiry=self._acting.inquiry,
        )

    def _cost(self, reason: str) -> Cost:
        state = self._state
        return Cost(
            skills=len(self._tools.calls),
            model_calls=state.answered,
            tokens=state.tokens,
            price=round(state.price, 6),
            seconds=round(state.seconds, 3),
            model=self._model.endpoint.model,
            reason=reason,
        )

    async def _round(self) -> None:
        state, limits = self._state, self._limits
        n = state.rounds + 1
        if n > limits.rounds:
            raise _GiveUp(f"no report in {limits.rounds} rounds")
        if self._desk.hopeless:
            raise _GiveUp(self._desk.hopeless)
        came = self._tools.take_late()
        if came:
            state.late_in.append((n, len(came)))
        for late in came:
            state.add_call(note_of(late))
            state.late.append(late.id)
            shown = result_text(late, state.nonce)
            what = "A person has decided" if late.id.startswith("A") else "A long job has ended"
            state.remark = f"{state.remark}\n{what}:\n{shown}".strip()
        scene = self._scene(n)
        kind = self._kind(scene.is_last)
        state.rounds = n
        prompt = build_prompt(state, scene, self._estimator, limits.context_tokens)
        if state.tokens + max(prompt.tokens + ANSWER_TOKENS, state.last_tokens) > limits.tokens:
            state.rounds -= 1
            raise _GiveUp(f"its budget of {limits.tokens} tokens is spent")
        state.reflections += scene.reflects
        state.offered = list(dict.fromkeys([*state.offered, *(s.name for s in scene.offer.full)]))
        await self._saved()
        try:
            completion = await self._complete(prompt, scene)
        except ToolsRefusedError:
            if state.mode == "json":
                raise
            state.rounds -= 1
            self._to_json_mode()
            return
        state.remark = ""
        state.answered += 1
        state.last_tokens = completion.tokens
        if completion.is_counted:
            self._estimator.learn(
                prompt.messages, prompt.tools, state.nonce, completion.prompt_tokens
            )
        outcome, since, mode = "given up", len(self._tools.calls), state.mode
        try:
            outcome = await self._act(completion, scene, kind)
        finally:
            told = _traced(n, kind, mode, prompt, completion, outcome)
            # The store keeps prompts and answers as they were sent.
            hidden = self._model.hidden
            self._rounds.append(
                replace(told, prompt=hidden(told.prompt), response=hidden(told.response))
            )
            self._look_again(since)
            await self._saved()

    def _scene(self, n: int) -> Scene:
        state = self._state
        is_last = self._must_report(n)
        offer = self._offer(is_last)
        return Scene(
            role=self._role,
            goal=self._goal,
            offer=offer,
            controls=() if is_last else tuple(control_tools(state, offer)),
            is_last=is_last,
            reflects=not is_last and not state.reflections and self._is_time_to_reflect(n),
        )

    async def _complete(self, prompt: Prompt, scene: Scene) -> Completion:
        state = self._state
        names = [tool["function"]["name"] for tool in (*scene.offer.tools, *scene.controls)]
        try:
            return await self._model.complete(
                prompt.messages,
                tools=prompt.tools,
                tool_choice=REPORT_SKILL if scene.is_last and prompt.tools else "",
                schema=action_schema(names) if state.mode == "json" else None,
                max_tokens=ANSWER_TOKENS,
                until=self._until,
            )
        finally:
            self._note_cost()

    def _must_report(self, n: int) -> bool:
        state, limits = self._state, self._limits
        left_s = self._until - asyncio.get_running_loop().time()
        return (
            n >= limits.rounds
            or bool(state.rejections)
            or is_stuck(state)
            or left_s < limits.report_seconds
            or state.tokens + max(state.last_tokens, ANSWER_TOKENS)
            > limits.tokens - limits.report_tokens
        )

    def _is_time_to_reflect(self, n: int) -> bool:
        state = self._state
        top = state.suspicions[0] if state.suspicions else None
        return (
            n >= REFLECT_AT
            or state.failures >= 2
            or (top is not None and top.status == "refuted" and bool(state.plans))
            or state.tokens > self._limits.tokens / 2
        )

    def _offer(self, is_last: bool) -> Offer:
        state, goal = self._state, self._goal
        if is_last:
            return Offer(tuple(s for s in self._skills if s.name == REPORT_SKILL), ())
        incident = goal.incident
        lines = goal.case.block if goal.case else goal.shown
        now = Situation(
            trigger=incident.trigger if incident else "",
            fault_class=goal.baseline.fault_class,
            tags=frozenset(goal.tags),
            lines=tuple(readable(line.raw) for line in lines[:20]),
        )
        usable = [s for s in self._skills if s.name not in state.withdrawn]
        return choose(usable, self._role.name, now, goal.text, found=state.found)

    def _kind(self, is_last: bool) -> RoundKind:
        state = self._state
        if state.rejections:
            return "redraft"
        if state.unreadable or state.invalid:
            return "repair"
        if state.silent:
            return "nudge"
        return "draft" if is_last else "act"

    async def _act(self, completion: Completion, scene: Scene, kind: RoundKind) -> str:
        """Do what the model wants, and keep both for the next prompt; return what came of it."""
        state = self._state
        shown = [message for turn in state.turns for message in turn.messages]
        reading = read_reply(completion, state.mode == "json", call_ids(shown))
        if reading.problem:
            return self._unreadable(completion, reading.problem)
        if not reading.actions:
            return self._talked(completion)
        state.silent = state.unreadable = 0
        answers: list[str] = []
        outcomes: list[str] = []
        self._acting.begin(len(reading.actions))
        for at, action in enumerate(reading.actions):
            if self._desk.accepted is not None:
                text, outcome = "Nothing ran: the report is handed in.", "over"
            else:
                text, outcome = await self._acting.do(action, reading, scene, at)
            answers.append(text)
            outcomes.append(outcome)
        tried = [outcome for outcome in outcomes if outcome not in {"quota_turn", "over"}]
        state.invalid = state.invalid + 1 if all(o in INVALID for o in tried) else 0
        state.add_turn(Turn(conversation(completion, reading.actions, answers)))
        told = ", ".join(dict.fromkeys(outcomes))
        names = ", ".join(shortened(one_line(a.skill or "a question"), 48) for a in reading.actions)
        why = next((a.why for a in reading.actions if a.why), completion.text)
        decision = Decision(state.rounds, kind, names, shortened(one_line(why), 200), told)
        state.decisions = [*state.decisions, decision]
        if (
            self._desk.accepted is None
            and self._acting.inquiry is None
            and state.invalid >= MAX_INVALID
        ):
            self._give_up_or_ask(reading.actions[-1], outcomes[-1], scene)
        return told

    def _give_up_or_ask(self, action: Action, outcome: str, scene: Scene) -> None:
        """Two rounds with nothing that could be done: a person may know better."""
        what = f"{shortened(one_line(action.skill), 48)}: {_WORDS.get(outcome, outcome)}"
        is_report = action.skill == REPORT_SKILL or scene.is_last
        said = f"asked twice for what cannot be done ({what})"
        if is_report or not self._acting.ask(f"The model {said}. What should it look at?"):
            raise _GiveUp(f"it {said}")
        self._state.invalid = 0

    def _talked(self, completion: Completion) -> str:
        """The reply is neither a call nor an end: once, ask again; then ask for JSON."""
        state = self._state
        state.silent += 1
        if state.silent >= 2:
            if not state.calls:
                self._model.ignores_tools()
            self._to_json_mode()
            return "prose"
        cut_off = _cut_off(completion)
        state.remark = (
            "The last reply was neither a call nor a report, so nothing happened."
            f"{cut_off} Call a skill, or end with `{REPORT_SKILL}`."
        )
        text = completion.text[:2000] or "(nothing)"
        state.add_turn(Turn(({"role": "assistant", "content": text},)))
        return "prose"

    def _to_json_mode(self) -> None:
        """Go on without native calls; what was said in them cannot be shown any more."""
        self._state.mode = "json"
        self._state.turns.clear()

    def _unreadable(self, completion: Completion, problem: str) -> str:
        """Tell exactly what is wrong, and let the model write it again."""
        state = self._state
        state.unreadable += 1
        if state.unreadable >= MAX_UNREADABLE:
            raise _GiveUp(
                f"{MAX_UNREADABLE} replies in a row could not be read; the last: {problem}"
            )
        quoted = marked_text(state.nonce, "reply", completion.text[:MAX_QUOTED] or "(nothing)")
        state.remark = (
            f"The last reply could not be read: {problem}.{_cut_off(completion)} It began:\n"
            f"{quoted}\nAnswer again, with exactly one JSON object and nothing else."
        )
        return "unreadable"

    def _look_again(self, since: int) -> None:
        """See in code how far the plan has come, and what is still missing."""
        state = self._state
        state.missing = missing_of(self._goal, self._tools, self._names)
        judge_steps(state, self._goal, self._tools, since)
        self._note_reads()

    def _note_reads(self) -> None:
        """Note which lines are new since the last time."""
        state, read = self._state, frozenset(self._tools.ledger)
        if fresh := read - self._read:
            state.reads.append((state.rounds, ranges_of(tuple(fresh))))
            state.ledger = ranges_of(tuple(read))
        self._read = read
        known = {n for n, _ in state.told}
        called = (call.skill for call in self._tools.calls if call.round)
        state.called = list(dict.fromkeys([*state.called, *called]))
        state.told += [(c.n, told_by(c)) for c in self._tools.calls if c.n not in known]

    def _note_cost(self) -> None:
        """Count what was billed: answers that came back broken and the steps of skills, too."""
        tokens, price = self._spent
        account = self._model.account
        self._state.tokens, self._state.price = tokens + account.tokens, price + account.price
        for model, spent in account.models.items():
            before = self._models.get(model, {"tokens": 0, "price": 0.0})
            self._state.models[model] = {
                "tokens": before["tokens"] + spent.tokens,
                "price": round(before["price"] + spent.cost, 6),
            }

    def _note_time(self) -> None:
        self._state.seconds = self._spent_s + asyncio.get_running_loop().time() - self._began

    async def _saved(self) -> None:
        self._note_time()
        await self._keep(self._state, self._rounds, self._tools)


def _cut_off(completion: Completion) -> str:
    is_cut = completion.finish_reason == "length"
    return " It was cut off at its length; be shorter." if is_cut else ""


def _traced(
    n: int, kind: RoundKind, mode: Mode, prompt: Prompt, done: Completion, outcome: str
) -> Round:
    response = {
        "text": done.text,
        "calls": [{"id": c.id, "name": c.name, "arguments": c.arguments} for c in done.calls],
        "finish_reason": done.finish_reason,
        "is_counted": done.is_counted,
    }
    return Round(
        n,
        kind,
        mode,
        prompt.messages,
        response,
        done.prompt_tokens,
        done.completion_tokens,
        done.latency_ms,
        outcome,
    )
