"""Answers people's questions: rules first, then the model if there is one, within one run."""

from __future__ import annotations

import asyncio
import logging
import secrets
import time
from collections.abc import Callable, Coroutine, Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime, timedelta, timezone
from functools import partial
from typing import Any

from serialwatch.agent.archive import Archive
from serialwatch.agent.core_link import CoreError
from serialwatch.agent.equipment import Equipment
from serialwatch.agent.models.model_use import ModelUse
from serialwatch.agent.questions.entrance import Routed, choice_prompt, role_of, route
from serialwatch.agent.questions.question import NotUnderstood, Question, examples, parse_question
from serialwatch.agent.questions.question_queue import AskedQuestion, QuestionQueue
from serialwatch.agent.questions.rule_answers import answer_by_rules
from serialwatch.agent.queue import WorkQueue
from serialwatch.agent.role import Role, Roles
from serialwatch.agent.run.asking import Asking
from serialwatch.agent.run.diary import Diary
from serialwatch.agent.run.goal import Goal
from serialwatch.agent.run.past_run import PastRun, read_past_run, unfinished_runs
from serialwatch.agent.run.run_state import RunState
from serialwatch.agent.run.trace import ModelRun, RunRecord, RunStatus
from serialwatch.agent.skills.results import RefusedError
from serialwatch.agent.workers.tools import Tools
from serialwatch.records import Cost, NextStep, Report
from serialwatch.store.runs import SessionRow
from serialwatch.wire import Json, report_to_json

MAX_CHOICES = 12  # boards that are named when it is asked which is meant
MAX_SHOWN = 24  # lines that a model is shown at the start
MAX_RESUMED = 2  # times that a run is taken up: it may be what ends the agent
RULES_LIMIT_S = 30.0  # of the rules' answer, whatever it has by then

log = logging.getLogger(__name__)

Spawn = Callable[[Coroutine[Any, Any, None], str], "asyncio.Task[None]"]


@dataclass(slots=True)
class _Turn:
    """A question that is being answered."""

    asked: AskedQuestion
    began_s: float = field(default_factory=time.monotonic)
    record: RunRecord | None = None
    task: asyncio.Task[None] | None = None
    has_left: bool = False  # whoever asked


class Answering:
    """Works through questions; `released` hears that a model's place is free again."""

    def __init__(
        self,
        equipment: Equipment,
        use: ModelUse,
        asking: Asking,
        places: WorkQueue,
        spawn: Spawn,
        released: Callable[[], None],
    ) -> None:
        self.roles = Roles({})
        self._equipment = equipment
        self._archive = equipment.archive
        self._use = use
        self._asking = asking
        self._places = places
        self._spawn = spawn
        self._released = released
        self._queue = QuestionQueue()
        self._turns: dict[str, _Turn] = {}  # by session
        self._freed = asyncio.Event()
        self._has_stopped = False

    def take(self, order: Json) -> None:
        """Take up a question."""
        try:
            asked = _asked(order)
        except (KeyError, TypeError, ValueError):
            log.exception("a question of the core cannot be read")
            return
        if not self._queue.add(asked):
            log.warning("%s: not answered: too many questions wait", asked.session_id)
            self._spawn(self._done(asked, is_good=False), f"done {asked.session_id}")
        self._start_more()

    def cancel(self, order: Json) -> None:
        """Give up a question: nobody waits for its answer."""
        session_id = str(order.get("session_id"))
        if (dropped := self._queue.drop(session_id)) is not None:
            self._spawn(self._done(dropped, is_good=False), f"done {session_id}")
        turn = self._turns.get(session_id)
        if turn is not None and turn.task is not None:
            turn.has_left = True
            turn.task.cancel()

    def stop(self) -> None:
        """Begin nothing any more; the core asks the next agent."""
        self._has_stopped = True

    def free(self) -> None:
        """Look again whether a model's place is free."""
        self._freed.set()

    def _start_more(self) -> None:
        while (asked := self._queue.take()) is not None:
            turn = self._turns[asked.session_id] = _Turn(asked)
            turn.task = self._spawn(self._work(turn), f"question {asked.session_id}")
            # Not in `finally`: a task that is cancelled before it runs never gets there.
            turn.task.add_done_callback(partial(self._over, turn))

    def _over(self, turn: _Turn, _: asyncio.Task[None]) -> None:
        self._turns.pop(turn.asked.session_id, None)
        self._queue.done(turn.asked)
        if self._has_stopped:
            return
        if turn.has_left:
            self._spawn(self._close_left(turn), f"left {turn.asked.session_id}")
        self._start_more()

    async def _work(self, turn: _Turn) -> None:
        is_good = False
        try:
            await self._answer(turn)
            is_good = True
        except CoreError as exc:
            log.log(exc.level, "%s: %s", turn.asked.session_id, exc)
        except Exception:  # one question must not end the others
            log.exception("%s: answering failed", turn.asked.session_id)
        await self._done(turn.asked, is_good=is_good)

    async def _close_left(self, turn: _Turn) -> None:
        """Store that a run was given up, so that nobody takes it up again."""
        if turn.record is not None:
            self._equipment.forget(turn.record.id)
            record = replace(turn.record, reason="whoever asked has left")
            tools = self._equipment.tools(record.id, session_id=record.session.session_id)
            await Diary(self._equipment.link, record).close(None, (), tools, RunStatus.CUT_SHORT)
        await self._done(turn.asked, is_good=False)

    async def _done(self, asked: AskedQuestion, *, is_good: bool) -> None:
        try:
            await self._equipment.link.ask("done", {"queue_id": asked.queue_id, "ok": is_good})
        except CoreError as exc:
            log.log(exc.level, "%s: %s", asked.session_id, exc)

    async def _answer(self, turn: _Turn) -> None:
        asked = turn.asked
        ports = await self._ports()
        parsed = parse_question(asked.text, ports, _now(asked), asked.port)
        will_ask, reason = self._may_ask(asked)
        routed = route(asked.text, parsed)
        if will_ask and not routed.is_sure:
            routed = await self._routed(asked, routed)
        role = role_of(routed, self.roles)
        past = await self._past(asked) if will_ask else None
        if past is not None and past.state.resumed >= MAX_RESUMED:
            will_ask, reason = False, f"it was cut short {MAX_RESUMED + 1} times"
            record = replace(past.record, reason=reason)
            await Diary(self._equipment.link, record).close(
                past.state, (), self._equipment.tools(record.id), RunStatus.CUT_SHORT
            )
        if not will_ask or role is None:
            await self._by_rules_alone(turn, parsed, ports, role, reason)
            return
        await self._with_model(turn, parsed, ports, role, past)

    async def _by_rules_alone(
        self,
        turn: _Turn,
        parsed: Question | NotUnderstood,
        ports: Sequence[str],
        role: Role | None,
        reason: str,
    ) -> None:
        asked = turn.asked
        record = turn.record = _record(asked, "baseline", role, _port_of(asked, parsed))
        tools = self._equipment.tools(
            record.id,
            port=record.session.port,
            session_id=asked.session_id,
            role=role,
            user=asked.user,
        )
        status = RunStatus.DONE
        report = await self._by_rules(parsed, ports, asked, tools)
        if report is None:
            report, status = _not_answered(parsed, reason), RunStatus.FAILED
        cost = Cost(
            skills=len(tools.calls),
            seconds=round(time.monotonic() - turn.began_s, 3),
            reason=reason,
        )
        is_answered = status is RunStatus.DONE
        choices = parsed.choices if isinstance(parsed, NotUnderstood) else ()
        report = replace(report, cost=cost)
        await self._hand_over(turn, report, ports, choices, is_answered=is_answered)
        record = replace(record, reason=reason)
        await Diary(self._equipment.link, record).close(None, (), tools, status)

    async def _with_model(
        self,
        turn: _Turn,
        parsed: Question | NotUnderstood,
        ports: Sequence[str],
        role: Role,
        past: PastRun | None,
    ) -> None:
        asked, setup = turn.asked, self._use.setup
        record = past.record if past else _record(asked, "model", role, _port_of(asked, parsed))
        record = turn.record = replace(record, model=setup.model, base_url=setup.base_url)
        state = past.state if past else RunState(goal={"kind": "question", "text": asked.text})
        state.resumed += past is not None
        baseline: Report | None = None
        kept: list[Tools] = []

        async def read(tools: Tools) -> Goal:
            nonlocal baseline
            kept.append(tools)
            baseline = await self._by_rules(parsed, ports, asked, tools)
            return _goal(asked, record, ports, baseline or _EMPTY, tools)

        port = record.session.port
        await self._place(port)
        diary: Diary | None = None
        try:
            run, tools, diary = await self._asking.ask(
                record, read, role, state, past, may_ask=False
            )
        except CoreError:
            raise
        except Exception as exc:  # what the rules know stands, whatever went wrong
            log.exception("%s: asking the model failed", asked.session_id)
            why = f"asking it failed: {str(exc) or type(exc).__name__}"[:200]
            run = ModelRun(None, why, RunStatus.BASELINE, state)
            tools = self._equipment.tools(record.id) if not kept else kept[0]  # type: ignore[assignment]
        finally:
            self._places.release(port)
            self.free()
            self._released()
        report = run.report
        if report is None:
            report = baseline or _not_answered(parsed, run.reason)
            cost = Cost(
                skills=len(tools.calls),
                model_calls=run.state.answered,
                tokens=run.state.tokens,
                price=round(run.state.price, 6),
                seconds=round(time.monotonic() - turn.began_s, 3),
                reason=run.reason,
            )
            report = replace(report, cost=cost)
        is_answered = run.report is not None or baseline is not None
        report = replace(report, incident=0, revision=1)
        await self._hand_over(turn, report, ports, is_answered=is_answered)
        diary = diary or Diary(self._equipment.link, record)
        diary.record = replace(record, reason=run.reason)
        await diary.close(run.state, run.rounds, tools, run.status)

    async def _by_rules(
        self,
        parsed: Question | NotUnderstood,
        ports: Sequence[str],
        asked: AskedQuestion,
        tools: Tools,
    ) -> Report | None:
        """Return what rules answer, verified; None if they cannot."""
        if isinstance(parsed, NotUnderstood):
            return None
        try:
            async with asyncio.timeout(RULES_LIMIT_S):
                draft = await answer_by_rules(parsed, ports, tools, self._archive, _now(asked))
        except TimeoutError:
            log.warning("%s: the rules took too long", asked.session_id)
            return None
        except Exception:  # a result that its author did not think of
            log.exception("%s: the rules failed", asked.session_id)
            return None
        report, dropped = draft.checked(tools, _port_of(asked, parsed))
        for no in dropped:
            log.warning("%s: our own claim fails: %s %s", asked.session_id, no.code, no.why)
        return report

    async def _hand_over(
        self,
        turn: _Turn,
        report: Report,
        ports: Sequence[str],
        choices: Sequence[str] = (),
        *,
        is_answered: bool,
    ) -> None:
        asked, record = turn.asked, turn.record
        assert record is not None  # made before anything is answered
        body = {
            "run_id": record.id,
            "session_id": asked.session_id,
            "user": asked.user,
            "port": record.session.port,
            "question": asked.text,
            "asked_utc_ns": asked.at_utc_ns,
            "report": report_to_json(report),
            "text": answer_text(report),
            "role": record.session.role,
            "is_answered": is_answered,
            "examples": [] if is_answered or choices else examples(ports),
            "choices": list(choices),
        }
        await self._equipment.link.ask("answer", body)

    async def _place(self, port: str) -> None:
        """Wait until a model may be asked: incidents and other questions share its places."""
        while not self._places.hold(port):
            self._freed.clear()
            await self._freed.wait()

    def _may_ask(self, asked: AskedQuestion) -> tuple[bool, str]:
        setup = self._use.setup
        if not setup.base_url:
            return False, "none configured"
        if not setup.model:
            return False, "an endpoint is configured, but no model"
        if not self.roles.found:
            return False, "no role can be used"
        if refusal := self._use.refusal(asked.session_id):
            return False, refusal[:200]
        return True, ""

    async def _routed(self, asked: AskedQuestion, by_rules: Routed) -> Routed:
        """Let the model choose who takes a question; what rules say stands if it cannot."""
        prompt, schema = choice_prompt(asked.text, self.roles, secrets.token_hex(2))
        try:
            name = await self._asking.choose(asked.session_id, prompt, schema, "role")
        except Exception:  # whatever is wrong with the endpoint, rules have chosen already
            log.exception("%s: no model chose who answers", asked.session_id)
            return by_rules
        role = self.roles.get(name)
        if role is None:
            return by_rules
        origin = "questions" if "questions" in role.origin else "incidents"
        return Routed(origin, True, by_rules.incident)  # type: ignore[arg-type]  # two literals

    async def _ports(self) -> list[str]:
        """Return the ports of the bench, also those that only have a log, if the core is busy."""
        try:
            return list(await self._equipment.ports())
        except CoreError as exc:
            log.info("which ports there are is not known: %s", exc)
            return []

    async def _past(self, asked: AskedQuestion) -> PastRun | None:
        """Return the run that was to answer this before the agent ended, None if there is none."""
        try:
            return await self._archive.ask(partial(_past_run, session_id=asked.session_id))
        except RefusedError:
            return None


def answer_text(report: Report) -> str:
    """Return an answer as plain text: the title, then each sentence with what it rests on."""
    parts: list[str] = []
    title = report.title
    for told in report.conclusions:
        refs = [*(e.ref for e in told.evidence), *(f"knowledge {k}" for k in told.knowledge)]
        if not told.evidence:
            refs += [f"result {ref}" for ref in told.results]
        end = "" if told.claim.endswith((".", "!", "?", "…")) else "."
        claim = f"{told.claim}{end}"
        if claim.rstrip(".") == report.title.rstrip("."):
            title = f"{report.title} [{' '.join(refs)}]"
        else:
            parts.append(f"{claim} [{' '.join(refs)}]")
    return "\n".join([title, *parts])


def _asked(order: Json) -> AskedQuestion:
    return AskedQuestion(
        queue_id=int(order["queue_id"]),
        session_id=str(order["session_id"]),
        text=str(order["question"]),
        port=str(order.get("port") or ""),
        user=str(order.get("user") or ""),
        at_utc_ns=int(order["at"]),
        utc_offset_s=int(order.get("utc_offset_s") or 0),
    )


def _now(asked: AskedQuestion) -> datetime:
    """Return when it was asked, in the zone of whoever did: an answer may come days later."""
    at = datetime.fromtimestamp(asked.at_utc_ns / 1e9, UTC)
    return at.astimezone(timezone(timedelta(seconds=asked.utc_offset_s)))


def _port_of(asked: AskedQuestion, parsed: Question | NotUnderstood) -> str:
    """Return the one port that a question is about, "" for none or several."""
    if isinstance(parsed, Question) and len(parsed.ports) == 1:
        return parsed.ports[0]
    return asked.port if isinstance(parsed, NotUnderstood) else ""


def _record(asked: AskedQuestion, kind: Any, role: Role | None, port: str) -> RunRecord:
    now_ns = time.time_ns()
    return RunRecord(
        id=secrets.token_hex(6),
        kind=kind,
        phase="",
        session=SessionRow(
            session_id=asked.session_id,
            user_id=asked.user,
            role=role.name if role else "",
            incident_id=None,
            port=port,
            started_utc_ns=now_ns,
            ended_utc_ns=None,
            status="",
            summary=asked.text[:200],
        ),
        started_utc_ns=now_ns,
    )


def _goal(
    asked: AskedQuestion, record: RunRecord, ports: Sequence[str], baseline: Report, tools: Tools
) -> Goal:
    shown = [(e.port, e.seq) for c in baseline.conclusions for e in c.evidence]
    shown += [(t.port, t.seq) for t in baseline.timeline]
    lines = [line for ref in dict.fromkeys(shown) if (line := tools.ledger.get(ref)) is not None]
    return Goal(
        kind="question",
        text=asked.text,
        baseline=baseline,
        port=record.session.port,
        ports=tuple(ports),
        shown=tuple(sorted(lines, key=lambda line: (line.port, line.seq))[:MAX_SHOWN]),
    )


# What a model begins with where rules have nothing to say.
_EMPTY = Report(
    incident=0,
    revision=1,
    made_by="rules",
    title="An answer to the question",
    fault_class="unknown",
    severity="note",
    verdict="inconclusive",
    confidence=0.0,
)


def _not_answered(parsed: Question | NotUnderstood, reason: str) -> Report:
    if isinstance(parsed, NotUnderstood) and parsed.choices:
        return _asked_back(parsed.choices)
    why = parsed.why if isinstance(parsed, NotUnderstood) else "the skills gave no answer"
    unknowns = [f"rules cannot answer this: {why}"]
    if reason:
        unknowns.append(f"no model has: {reason}")
    title = "That is not a question that can be answered here."
    return replace(_EMPTY, title=title, unknowns=tuple(unknowns))


def _asked_back(choices: Sequence[str]) -> Report:
    """Return the question which board is meant: to guess would be to answer another one."""
    named = list(choices[:MAX_CHOICES])
    more = len(choices) - len(named)
    if more:
        named.append(f"{more} more")
    either = " or ".join(filter(None, (", ".join(named[:-1]), named[-1])))
    step = NextStep(f'name it behind the question: `serialwatch ask "…" {choices[0]}`')
    return replace(_EMPTY, title=f"Which board: {either}?", next_steps=(step,))


def _past_run(archive: Archive, session_id: str) -> PastRun | None:
    for run_id in unfinished_runs(archive):
        past = read_past_run(archive, run_id)
        if past is not None and past.run.session_id == session_id:
            return past
    return None
