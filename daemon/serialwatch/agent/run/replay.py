"""Play a model's run again: its recorded answers and results go in, and each prompt is built anew.

If a prompt comes out differently, what is installed now is not what the run had: another role or
skill, or another version of serialwatch; or the log no longer holds what was read.
"""

from __future__ import annotations

import itertools
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from serialwatch.agent.models.completion import Completion, ToolCall
from serialwatch.agent.models.hiding_model import HidingModel
from serialwatch.agent.models.model import Endpoint, ModelError
from serialwatch.agent.models.redaction import Redactor
from serialwatch.agent.models.spending import Account, unlimited
from serialwatch.agent.models.tokens import Estimator
from serialwatch.agent.role import Role
from serialwatch.agent.run.desk import Desk
from serialwatch.agent.run.goal import Goal
from serialwatch.agent.run.loop import Limits, Loop
from serialwatch.agent.run.past_start import PastStart, start_from_json
from serialwatch.agent.run.run_state import RunState, state_from_json
from serialwatch.agent.run.trace import Round
from serialwatch.agent.skills.results import capped, failure, with_remembered
from serialwatch.agent.skills.skill import Skill
from serialwatch.agent.workers.tools import Call
from serialwatch.records import Line, SkillResult
from serialwatch.store.runs import RoundRow, SkillCallRow, Trace, message_hash
from serialwatch.wire import Json

PATIENCE_S = 600.0  # of a replay; it asks nobody and waits for nothing
REPORT_SKILL = "report-write"


class ReplayError(Exception):
    """A run cannot be played again; the message says why."""


@dataclass(frozen=True, slots=True)
class Difference:
    """Where a run comes out differently."""

    round: int  # 0: before the first one
    where: str
    recorded: str
    now: str


@dataclass(slots=True)
class Replayed:
    """What came of playing a run again."""

    rounds: int  # recorded
    same: int = 0  # of them, before the first difference
    differences: list[Difference] = field(default_factory=list)  # the first ones, in order


async def replay(
    trace: Trace,
    lines: Iterable[Line],
    *,
    skills: Sequence[Skill],
    role: Role,
    pages: Mapping[str, str],
    redactor: Redactor | None,
) -> Replayed:
    """Play a run again and compare each prompt with the recorded one.

    `lines` are those that the run has read, as far as the log has them still.

    Raises:
        ReplayError: it is no run of a model, or one that kept too little.

    """
    if trace.run.kind != "model" or not trace.rounds:
        raise ReplayError("no model was asked in it: there are no prompts to build again")
    try:
        past = state_from_json(trace.run.state)
        start = start_from_json(past.setup)
    except (KeyError, TypeError, ValueError, AttributeError) as exc:
        raise ReplayError("it was recorded by a version that kept too little of it") from exc
    found: list[Difference] = []
    tools = _RecordedTools(trace, past, lines, pages, found)
    model = _RecordedModel(trace)
    chat = HidingModel(model, redactor)
    rounds = await _played(trace, past, start, tools, model, chat, skills, role)
    for row, now in itertools.zip_longest(trace.rounds, rounds):
        found += _compared(row, now, trace)
    found.sort(key=lambda d: d.round)
    first = found[0].round if found else len(trace.rounds) + 1
    same = sum(row.n < first for row in trace.rounds)
    return Replayed(len(trace.rounds), same, found[:5])


async def _played(
    trace: Trace,
    past: RunState,
    start: PastStart,
    tools: _RecordedTools,
    model: _RecordedModel,
    chat: HidingModel,
    skills: Sequence[Skill],
    role: Role,
) -> list[Round]:
    limits = {name: start.limits[name] for name in start.limits if name != "seconds"}
    mode = trace.rounds[0].mode
    state = RunState(nonce=past.nonce, mode="json" if mode == "json" else "native")
    model.state = tools.state = state
    later = iter([start_from_json(body) for body in past.later])
    rounds: list[Round] = []
    answers = iter([each for each in past.inquiries if each.answer])
    while True:
        desk = Desk(f"model {trace.run.model}")
        tools.desk = desk
        loop = _ReplayedLoop(
            {row.n for row in trace.rounds if row.kind == "draft"},
            await start.goal(tools),
            chat,
            tools,
            desk,
            skills,
            role,
            state,
            limits=Limits(**{k: int(v) for k, v in limits.items()}, seconds=PATIENCE_S),
            estimator=Estimator(start.factor),
            may_ask=start.may_ask,
            may_propose=start.may_propose,
        )
        run = await loop.run()
        rounds += run.rounds
        start = next(later, start)
        if model.is_cut:
            model.is_cut = False
            continue
        answer = next(answers, None) if run.inquiry is not None else None
        if run.inquiry is None or answer is None:
            return rounds
        run.inquiry.answer, run.inquiry.answered_by = answer.answer, answer.answered_by
        state.invalid = 0


class _ReplayedLoop(Loop):
    """The loop, told in which rounds time or tokens left nothing but the report."""

    def __init__(self, drafts: set[int], goal: Goal, *args: Any, **more: Any) -> None:
        super().__init__(goal, *args, **more)
        self._drafts = drafts

    def _must_report(self, n: int) -> bool:
        return n in self._drafts or super()._must_report(n)


class _RecordedModel:
    """Answers what was answered, whatever it is asked."""

    def __init__(self, trace: Trace) -> None:
        self.endpoint = Endpoint(trace.run.base_url or "http://recorded", trace.run.model)
        self.account: Account = unlimited()
        self.state = RunState()  # of the run that is played
        self.is_cut = False  # the run was cut short here, and taken up in the next round
        self._rounds = list(trace.rounds)

    async def complete(
        self,
        messages: Sequence[Json],
        *,
        tools: Sequence[Json] = (),
        tool_choice: str = "",
        schema: Json | None = None,
        max_tokens: int,
        until: float,
    ) -> Completion:
        """Return the next answer.

        Raises:
            ModelError: no more were recorded, or none to this round.

        """
        if not self._rounds:
            raise ModelError("no further answer was recorded")
        if self._rounds[0].n > self.state.rounds:
            self.is_cut = True
            raise ModelError("it was cut short here")
        row = self._rounds.pop(0)
        self.account.spent(self.endpoint.model, row.prompt_tokens, row.completion_tokens)
        return _completion(row)

    def ignores_tools(self) -> None:
        """Note nothing."""

    async def close(self) -> None:
        """Close nothing."""


class _RecordedTools:
    """Gives what was given, in the order in which it was asked for."""

    def __init__(
        self,
        trace: Trace,
        past: RunState,
        lines: Iterable[Line],
        pages: Mapping[str, str],
        found: list[Difference],
    ) -> None:
        self.desk: Desk | None = None
        self.state: RunState | None = None
        self.ledger: dict[tuple[str, int], Line] = {}
        self.results: dict[str, object] = {}
        self.pages = pages
        self.calls: list[Call] = []
        self._found = found
        self._told = dict(past.told)
        self._rows = {row.n: row for row in trace.skill_calls}
        self._bodies = {row.id: row.body for row in trace.results}
        self._reads = list(past.reads)
        self._lines = {(line.port, line.seq): line for line in lines}
        self._asked = 0
        self._round = 0
        self._late: list[Call] = []
        self._late_in: Counter[int] = Counter()
        for n, count in past.late_in:
            self._late_in[n] += count
        self._late_rows = {n for n, told in self._told.items() if told.get("late")}

    async def call(self, skill: str, params: Mapping[str, Any], round: int = 0) -> Call:
        """Return what the same call gave."""
        self._round = max(self._round, round)
        self._reveal(self._round)
        self._deliver()
        self._asked += 1
        n = self._asked
        row = self._rows.get(n)
        asked = f"{skill} {dict(params)}"
        if row is None or row.skill != skill or row.args != dict(params):
            was = f"{row.skill} {row.args}" if row else "no further call"
            self._found.append(Difference(round, f"call {n}", was, asked))
            lost = failure("precondition", "not recorded")
            return Call(n, round, skill, "", "", dict(params), lost, "", 0)
        call = self._call(row)
        if skill == REPORT_SKILL and self.desk is not None and "conclusions" in params:
            await self._submit(call)
        return call

    async def newest(self, port: str) -> int:
        """Return another number where a call was made again: something new had come before it."""
        row = self._rows.get(self._asked + 1)
        is_again = row is not None and any(
            (other.skill, other.args) == (row.skill, row.args)
            for other in self._rows.values()
            if other.round and other.n < row.n
        )
        return self._asked if is_again else 0

    def at_step(self, step: int) -> None:
        """Note nothing."""

    def take_late(self) -> list[Call]:
        """Return the results of long jobs that came since the last time."""
        self._deliver()
        count = len(self._late)
        if self._late_in and self.state is not None:  # it may have come while a model thought
            count = self._late_in[self.state.rounds + 1]
        late, self._late = self._late[:count], self._late[count:]
        return late

    async def _submit(self, call: Call) -> None:
        """Have the report judged again: what comes of it goes into the next prompt."""
        if self.desk is None or call.result.status == "failure":
            return
        told = await self.desk.submit(dict(call.params))
        was = call.result.output.get("accepted")
        if told.get("accepted") != was:
            words = {True: "accepted", False: "sent back", None: "not judged"}
            now = words.get(told.get("accepted"), "?")
            where = f"call {call.n}, the verifier's verdict"
            self._found.append(Difference(call.round, where, words.get(was, "?"), now))

    def _deliver(self) -> None:
        while self._asked + 1 in self._late_rows:
            self._asked += 1
            self._late.append(self._call(self._rows[self._asked]))

    def _call(self, row: SkillCallRow) -> Call:
        body = self._bodies.get(row.result_id, {})
        for ref, other in self._bodies.items():  # with those of the skills that it called
            if _number(ref) <= _number(row.result_id):
                self.results.setdefault(ref, other)
        told = dict(self._told.get(row.n, {}))
        output = told.pop("output", body)
        remembered = told.pop("remembered", None)
        if row.error_code and "error" not in told:
            told["error"] = {"code": row.error_code}
        metadata = {**told, "result": row.result_id}
        result = SkillResult(row.status, output, metadata=metadata)  # type: ignore[arg-type]  # as it was stored
        result = capped(result, row.result_id)
        call = Call(
            row.n, row.round, row.skill, row.version, row.sha, row.args,
            with_remembered(result, remembered) if remembered else result,
            row.result_id, row.elapsed_ms,
        )  # fmt: skip
        self.calls.append(call)
        return call

    def _reveal(self, round_: int) -> None:
        """Let the lines be known that were read up to a round."""
        while self._reads and self._reads[0][0] <= round_:
            for port, first, last in self._reads.pop(0)[1]:
                for seq in range(first, last + 1):
                    if (line := self._lines.get((port, seq))) is not None:
                        self.ledger[port, seq] = line


def _compared(row: RoundRow | None, now: Round | None, trace: Trace) -> list[Difference]:
    if row is None or now is None:
        n = row.n if row else now.n if now else 0
        was = f"a round ({row.kind})" if row else "no further round"
        return [Difference(n, "the run", was, f"a round ({now.kind})" if now else "it has ended")]
    if found := _first_difference(row, now, trace):
        return [found]
    if (row.kind, row.outcome) != (now.kind, now.outcome):
        was, is_now = f"{row.kind}: {row.outcome}", f"{now.kind}: {now.outcome}"
        return [Difference(row.n, "what came of it", was, is_now)]
    return []


def _first_difference(row: RoundRow, now: Round, trace: Trace) -> Difference | None:
    """Return the first line in which a prompt differs."""
    stored = {message.hash: message for message in trace.messages}
    for at, (hash_, message) in enumerate(itertools.zip_longest(row.prompt, now.prompt), start=1):
        role = str(message["role"]) if message else ""
        content = {k: v for k, v in message.items() if k != "role"} if message else {}
        if message and hash_ == message_hash(role, content):
            continue
        was = stored.get(hash_) if hash_ else None
        texts = _lines_of(was.content) if was else [], _lines_of(content)
        pairs = itertools.zip_longest(*texts)
        line = next((n for n, (a, b) in enumerate(pairs, start=1) if a != b), 0)
        before, after = (t[line - 1] if 0 < line <= len(t) else "" for t in texts)
        where = f"message {at} ({role or (was.role if was else '?')}), line {line}"
        return Difference(row.n, where, before, after)
    return None


def _lines_of(content: Any) -> list[str]:
    """Return a message as lines: its text, then its calls."""
    if not isinstance(content, Mapping):
        return [str(content)]
    lines = str(content.get("content") or "").split("\n")
    return lines + [f"{key}: {value}" for key, value in content.items() if key != "content"]


def _completion(row: RoundRow) -> Completion:
    response = row.response
    return Completion(
        text=str(response.get("text", "")),
        calls=tuple(
            ToolCall(str(c.get("id", "")), str(c["name"]), str(c["arguments"]))
            for c in response.get("calls", ())
        ),
        finish_reason=str(response.get("finish_reason", "")),
        prompt_tokens=row.prompt_tokens,
        completion_tokens=row.completion_tokens,
        latency_ms=row.latency_ms,
        is_counted=bool(response.get("is_counted", True)),
    )


def _number(ref: str) -> int:
    return int(ref[1:]) if ref[1:].isdigit() else 0
