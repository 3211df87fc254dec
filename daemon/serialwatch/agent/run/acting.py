"""Do what a model wants: its skill calls and control actions, one by one, with all guards."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from typing import Any

from serialwatch.agent.proof.step_words import strange_order
from serialwatch.agent.run.actions import Action, Reading
from serialwatch.agent.run.controls import CONTROLS, control
from serialwatch.agent.run.goal import Goal
from serialwatch.agent.run.guards import (
    MAX_REPEATS,
    NUDGE_AT,
    call_key,
    note_key,
    note_outcome,
)
from serialwatch.agent.run.prompt import Scene
from serialwatch.agent.run.run_state import Inquiry, RunState
from serialwatch.agent.run.shown import MAX_RESULT, note_of, one_line, result_text
from serialwatch.agent.skills.choice import REPORT_SKILL
from serialwatch.agent.skills.results import SENTENCES, Code, error_code
from serialwatch.agent.skills.skill import Skill
from serialwatch.agent.text.device_text import shortened
from serialwatch.agent.workers.tools import Tools
from serialwatch.records import SkillResult

MAX_CALLS = 5  # skill calls a round
MAX_INQUIRIES = 2  # questions of one run to a person
ROUND_CHARS = 3_300  # of the results of one round, 1500 tokens of console text
MIN_RESULT = 600  # characters of one of them
INVALID = frozenset({"not_offered", "unknown_skill", "denied", "invalid_args"})  # nothing was done


class Acting:
    """The actions of one run. `inquiry` is the question for which it has to wait."""

    def __init__(
        self,
        goal: Goal,
        tools: Tools,
        skills: Sequence[Skill],
        state: RunState,
        *,
        last_round: int,
        saved: Callable[[], Awaitable[None]],
        may_ask: bool,
    ) -> None:
        self.inquiry: Inquiry | None = None
        self._goal = goal
        self._tools = tools
        self._names = frozenset(s.name for s in skills)
        self._state = state
        self._last_round = last_round
        self._saved = saved
        self._may_ask = may_ask
        self._shown_chars = MAX_RESULT  # of each result of this round
        self._has_reported = False  # in this round

    def begin(self, actions: int) -> None:
        """Begin a round of so many actions: they share the room for results."""
        self._has_reported = False
        calls = min(actions, MAX_CALLS)
        self._shown_chars = max(MIN_RESULT, min(MAX_RESULT, ROUND_CHARS // calls))

    async def do(self, action: Action, reading: Reading, scene: Scene, at: int) -> tuple[str, str]:
        """Do one action of a round, the `at`-th from 0; return the answer and the outcome."""
        state = self._state
        if self.inquiry is not None:
            return "Nothing ran: a person is asked first.", "waiting"
        if action.question:
            if self.ask(action.question):
                return "A person is asked.", "waiting"
            return "Nobody can be asked now; go on with what you have.", "denied"
        # A second report of one reply was written before the first one was judged.
        if at >= MAX_CALLS or (action.skill == REPORT_SKILL and self._has_reported):
            return _refused(action, "quota_turn")
        if problem := self._problem(action, reading, scene):
            return problem
        params = action.params or {}
        if action.skill in CONTROLS:
            done = control(action.skill, params, state, scene.offer, self._tools.results)
            if done.line:
                state.add_call(done.line)
            return done.text, done.outcome
        text, outcome = await self._call(action.skill, params)
        self._has_reported |= action.skill == REPORT_SKILL and outcome not in INVALID
        return text, outcome

    def _problem(self, action: Action, reading: Reading, scene: Scene) -> tuple[str, str] | None:
        """Return why an action cannot be done, None if it can be tried."""
        controls = {tool["function"]["name"] for tool in scene.controls}
        full = {skill.name: skill for skill in scene.offer.full}
        # A skill that was not shown may be called as well: its parameters are checked anyway.
        others = {s.name for s in scene.offer.findable if s.risk == "L1"}
        offered = controls | full.keys()
        if action.skill not in offered and (reading.is_recovered or action.skill not in others):
            known = action.skill in self._names or action.skill in CONTROLS
            names = f"Offered now: {', '.join(sorted(offered))}."
            return _refused(action, "not_offered" if known else "unknown_skill", names)
        skill = full.get(action.skill)
        if reading.is_recovered and skill and skill.risk != "L1" and skill.name != REPORT_SKILL:
            return _refused(action, "denied", "A call in plain text may only read.")
        if action.params is None:
            return _refused(action, "invalid_args", action.problem)
        return None

    async def _call(self, skill: str, params: Any) -> tuple[str, str]:
        state, tools = self._state, self._tools
        port = params.get("port") or self._goal.port
        mark = await tools.newest(port) if isinstance(port, str) and port else 0
        key = call_key(skill, params, mark)
        if note_key(state, key):  # calls in turn lead nowhere
            state.repeats = MAX_REPEATS
        if (ref := state.seen.get(key)) is not None and skill != REPORT_SKILL:
            return self._again(ref)
        tools.at_step(state.current.step if state.current else 0)
        call = await tools.call(skill, params, state.rounds)
        code = error_code(call.result)
        if code != "invalid_args":
            error = call.result.metadata.get("error", {})
            if not error.get("retryable"):
                state.seen[key] = call.id
        if code not in {"quota_minute", "quota_turn"}:  # nobody's fault
            note_outcome(state, skill, call.result.status != "failure")
        state.add_call(note_of(call))
        self._asked_by(call.result)
        await self._saved()
        return result_text(call, state.nonce, self._shown_chars), code or call.result.status

    def _again(self, ref: str) -> tuple[str, str]:
        """The same call was made before: give its result once more."""
        state = self._state
        state.repeats += 1
        earlier = next((call for call in self._tools.calls if call.id == ref), None)
        shown = f"`result-read` {ref} has it."
        if earlier is not None:
            shown = result_text(earlier, state.nonce, self._shown_chars)
        nudge = ""
        if state.repeats >= NUDGE_AT:
            nudge = " Do not call it again: try something else, or hand in the report."
        return f"Same as {ref}, nothing new since.{nudge}\n{shown}", "repeated"

    def _asked_by(self, result: SkillResult) -> None:
        """A skill may need a person's answer."""
        need = result.metadata.get("need")
        if result.status != "require_more" or not isinstance(need, dict):
            return
        if need.get("kind") == "answer" and isinstance(need.get("question"), str):
            known, missing = str(need.get("known") or ""), str(need.get("missing") or "")
            self.ask(str(need["question"]), known, missing)

    def ask(self, question: str, known: str = "", missing: str = "") -> bool:
        """Have a person asked, if one can be and the run could go on with the answer."""
        state = self._state
        is_over = state.rounds >= self._last_round
        if not self._may_ask or is_over or len(state.inquiries) >= MAX_INQUIRIES:
            return False
        # A person believes what we ask; what a board printed must not get there as advice.
        texts = list(self._tools.pages.values())
        if any(strange_order(text, texts) for text in (question, missing)):
            return False
        baseline = self._goal.baseline
        known = known or " ".join([baseline.title, *(c.claim for c in baseline.conclusions[:3])])
        self.inquiry = Inquiry(
            question=shortened(one_line(question), 400),
            known=shortened(one_line(known), 600),
            missing=shortened(one_line(missing or "; ".join(state.missing)), 400),
        )
        state.inquiries.append(self.inquiry)
        return True


def _refused(action: Action, code: Code, detail: str = "") -> tuple[str, str]:
    return f"{SENTENCES[code]} {detail}".strip(), code
