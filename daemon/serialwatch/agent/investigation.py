"""What is done for an incident: the offline analyst's report, then a model's, and what stays."""

from __future__ import annotations

import asyncio
import logging
import secrets
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from functools import partial

from serialwatch.agent.actions import with_actions
from serialwatch.agent.archive import Archive
from serialwatch.agent.core_link import CoreError
from serialwatch.agent.equipment import PORTS_LIMIT_S, Equipment
from serialwatch.agent.models.model_use import ModelUse
from serialwatch.agent.offline.analyst import bare_report, investigate
from serialwatch.agent.offline.case import Surroundings
from serialwatch.agent.queue import Answered, Work
from serialwatch.agent.role import Role
from serialwatch.agent.run.asking import Asking
from serialwatch.agent.run.diary import Diary
from serialwatch.agent.run.goal import goal_of_incident
from serialwatch.agent.run.past_run import PastRun, read_past_run, unfinished_runs
from serialwatch.agent.run.run_state import Inquiry, RunState
from serialwatch.agent.run.trace import (
    ROLE,
    ModelRun,
    RunRecord,
    RunStatus,
    memory_of,
    session_of_incident,
)
from serialwatch.agent.skills.results import RefusedError
from serialwatch.agent.standing import Standing, Standings, carried_on, is_by_model, says_the_same
from serialwatch.agent.workers.tools import RunTools
from serialwatch.agent.workers.worker import Late
from serialwatch.records import Incident, Report
from serialwatch.store.reports import load_report
from serialwatch.wire import Json, report_to_json

ASK_AGAIN_S = 30 * 60.0  # a fault that a model has looked at is not shown to it again so soon
LOG_LAG_S = 0.4  # what a board printed is in its log by then, normally within 50 ms
POLL_S = 0.02
HURRY_S = 0.4  # the first report does not wait longer for what the core knows beside the log
RESUME_S = 3600.0  # a run that was cut short longer ago is closed
ANSWERED_S = 45.0  # a run that is answered has spent no more than half of its time
MAX_RESUMED = 2  # times that a run is taken up: it may be what ends the agent

log = logging.getLogger(__name__)


class Investigator:
    """Investigates incidents, each in the order of its phases."""

    def __init__(self, equipment: Equipment, use: ModelUse, loader: ThreadPoolExecutor) -> None:
        self.role: Role | None = None  # without one no model is asked
        self._equipment = equipment
        self._link = equipment.link
        self._archive = equipment.archive
        self._use = use
        self._asking = Asking(equipment, use, loader)
        self._standings = Standings()
        self._asked_s: dict[str, float] = {}  # when a model was asked, by fingerprint

    def update(self, incident: Incident) -> None:
        """Note how an incident stands with the core."""
        self._standings.update(incident)

    async def baseline(self, work: Work) -> Work | None:
        """Let the offline analyst report; return what a model is to do after it.

        Raises:
            CoreError: the report could not be handed in.

        """
        incident = work.incident
        standing = self._standings.of(incident)
        record = _record(work)
        if standing.report is None:
            standing.report = await self._stored(incident)
        around, _, _ = await asyncio.gather(
            self._around(incident), self._logged(incident), self._begun(incident)
        )
        tools = self._tools(record.id, incident)
        status = RunStatus.DONE
        try:
            report = await investigate(incident, tools, work.phase, standing.report, around)
        except Exception as exc:  # the report is owed, whatever went wrong
            log.exception("incident %d: the analysis failed", incident.id)
            status = RunStatus.FAILED
            report = bare_report(incident, standing.report, type(exc).__name__)
        has_settled = incident.is_settled and not standing.is_settled
        standing.is_settled |= incident.is_settled
        will_ask, reason = self._may_ask(standing, has_settled)
        before = standing.baseline
        cost = replace(report.cost, reason=reason)
        if before is not None and before.cost.model_calls:  # what it took belongs to the incident
            paid = before.cost
            cost = replace(cost, model_calls=paid.model_calls, tokens=paid.tokens, price=paid.price)
        report = standing.baseline = replace(report, cost=cost)

        def next_report(previous: Report | None) -> Report:
            if previous is not None and is_by_model(previous):
                return _with_notes(carried_on(previous, before, report), standing)
            return _with_notes(report, standing)

        await self._publish(standing, next_report, record.id)
        if has_settled and not will_ask:
            await self._remember(report, record, incident, tools)
        diary = Diary(self._link, replace(record, reason=reason))
        await diary.close(None, (), tools, status)
        return Work("model", work.phase, incident) if will_ask else None

    async def model(self, work: Work) -> None:
        """Let a model confirm, refute or extend the baseline, or go on with such a run.

        Raises:
            CoreError: what came of it could not be handed in.

        """
        past: PastRun | None = None
        if work.run_id:
            past = await self._archive.ask(partial(_past_run, run_id=work.run_id))
            if past is None:
                log.warning("run %s: nothing is known to go on from", work.run_id)
                return
            if past.run.exit_status not in {RunStatus.RUNNING, RunStatus.WAITING}:
                log.info("run %s has ended: %s", work.run_id, past.run.exit_status)
                return
        standing = self._standings.of(work.incident)
        if past is not None and (why := await self._cannot_go_on(past, standing, work)):
            await self._closed(past, standing, why)
            return
        baseline, role = standing.baseline, self.role
        if baseline is None or role is None:
            return
        incident = standing.incident
        record = past.record if past else _record(work)
        setup = self._use.setup
        record = replace(record, model=setup.model, base_url=setup.base_url)
        state = past.state if past else RunState(goal=_goal_note(work))
        if past is not None:
            _taken_up(state, work.answer)
        try:
            read_goal = goal_of_incident(
                incident, work.phase, baseline, await self._around(incident)
            )
            run, tools, diary = await self._asking.ask(record, read_goal, role, state, past)
        except CoreError:
            raise
        except Exception as exc:  # the baseline stands, whatever went wrong
            log.exception("incident %d: asking the model failed", incident.id)
            why = f"asking it failed: {str(exc) or type(exc).__name__}"[:200]
            run = ModelRun(None, why, RunStatus.BASELINE, state)
            tools = self._tools(record.id, incident)
            diary = Diary(self._link, record, tools)
        if not run.state.answered:  # it has seen nothing: the next one of the kind may ask again
            self._asked_s.pop(incident.fingerprint, None)
        if run.inquiry is not None:
            run = await self._inquired(record, run, run.inquiry)
        standing.asked = _as_unknown(run.inquiry, record.id) if run.inquiry else ""
        if run.inquiry is None:  # what came after the last round; else the run will have it
            standing.late += [
                _as_late(call.skill, call.result.status, record.id)
                for call in tools.take_late()
                if not call.id.startswith("A")  # of an action
            ]

        def next_report(_: Report | None) -> Report:
            latest = standing.baseline or baseline
            if run.report is not None:
                return _with_notes(carried_on(run.report, baseline, latest), standing)
            cost = replace(
                latest.cost,
                model_calls=run.state.answered,
                tokens=run.state.tokens,
                price=round(run.state.price, 6),
                reason=run.reason,
            )
            not_checked = tuple(dict.fromkeys([*latest.not_checked, *run.state.missing]))
            standing.baseline = replace(latest, cost=cost, not_checked=not_checked)
            return _with_notes(standing.baseline, standing)

        report = await self._publish(standing, next_report, record.id)
        if run.inquiry is None:
            await self._remember(report, record, incident, tools)
        diary.record = replace(record, reason=run.reason)
        await diary.close(run.state, run.rounds, tools, run.status)

    async def late(self, late: Late) -> None:
        """Let the report tell of a long job that ended after its run; its result is stored.

        Raises:
            CoreError: the report could not be handed in.

        """
        incident = self._standings.incident(late.incident) if late.incident else None
        if incident is None:
            return
        standing = self._standings.of(incident)
        if not late.is_action:  # of those `with_actions` tells
            if standing.asked and late.run_id in standing.asked:
                return  # the run waits for a person, and will have it
            standing.late.append(_as_late(late.skill, late.result.status, late.run_id))
        if standing.report is None:
            return

        def next_report(previous: Report | None) -> Report:
            assert previous is not None  # one is published
            return _with_notes(previous, standing)

        await self._publish(standing, next_report, late.run_id)

    async def cut_short(self) -> list[Work]:
        """Return the runs that an earlier agent left in the middle, to go on with."""
        try:
            run_ids = await self._archive.ask(unfinished_runs)
            pasts = [
                await self._archive.ask(partial(_past_run, run_id=run_id)) for run_id in run_ids
            ]
        except RefusedError as exc:
            log.warning("whether runs were cut short is not known: %s", exc)
            return []
        found: list[Work] = []
        for past in pasts:
            if past is not None and past.incident is not None:
                self._standings.of(past.incident)
                phase = past.record.phase or "settled"
                found.append(Work("model", phase, past.incident, run_id=past.run.id))
        return found

    async def answered(self, order: Json) -> Work | None:
        """Return the work of going on with a run for which a person has answered."""
        run_id = str(order["run_id"])
        past = await self._archive.ask(partial(_past_run, run_id=run_id))
        if past is None or past.incident is None:
            return None
        self._standings.of(past.incident)
        answer = Answered(int(order["inquiry_id"]), str(order["text"]), str(order["user"]))
        return Work(
            "model",
            past.record.phase or "settled",
            past.incident,
            (int(order["queue_id"]),),
            run_id=run_id,
            answer=answer,
        )

    async def _cannot_go_on(self, past: PastRun, standing: Standing, work: Work) -> str:
        """Return why a run is not taken up, "" if it can be; get ready what it needs."""
        if standing.report is None:
            standing.report = past.report
        if standing.baseline is None and past.report is not None:
            standing.baseline = past.report
        standing.is_settled = True
        self._asked_s[standing.incident.fingerprint] = time.monotonic()
        age_s = time.time() - past.run.started_utc_ns / 1e9
        if standing.baseline is None:
            return "it was cut short before there was a report"
        if past.report is not None and past.report.made_by == f"model {past.run.model}":
            return "a report of the model is published already"
        if not self._use.setup.base_url or not self._use.setup.model or self.role is None:
            return "it was cut short, and no model is configured now"
        if work.answer is None and past.state.resumed >= MAX_RESUMED:
            return f"it was cut short {MAX_RESUMED + 1} times"
        if work.answer is None and age_s > RESUME_S:
            return "it was cut short more than an hour ago"
        return ""

    async def _closed(self, past: PastRun, standing: Standing, why: str) -> None:
        """End a run that nobody goes on with; the baseline stands."""
        log.info("run %s: %s", past.run.id, why)
        record = replace(past.record, reason=why)

        def next_report(previous: Report | None) -> Report:
            report = standing.baseline or previous
            assert report is not None  # asked only where there is one
            return replace(report, cost=replace(report.cost, reason=why))

        if standing.baseline is not None and not is_by_model(standing.baseline):
            await self._publish(standing, next_report, record.id)
        tools = self._tools(record.id, standing.incident)
        past.hand_over(tools)
        await Diary(self._link, record, tools).close(past.state, (), tools, RunStatus.CUT_SHORT)

    async def _inquired(self, record: RunRecord, run: ModelRun, inquiry: Inquiry) -> ModelRun:
        """Hand in a question to a person; without one the run is over."""
        body = {
            "run_id": record.id,
            "question": inquiry.question,
            "known": inquiry.known,
            "missing": inquiry.missing,
        }
        try:
            told = await self._link.ask("inquiry", body)
        except CoreError as exc:
            why = f"a person could not be asked: {exc}"[:200]
            return replace(run, inquiry=None, status=RunStatus.BASELINE, reason=why)
        inquiry.id = int(told["id"])
        return run

    def _may_ask(self, standing: Standing, has_settled: bool) -> tuple[bool, str]:
        """Tell whether a model is to be asked after this baseline; if not, why."""
        if not self._use.setup.base_url:
            return False, "none configured"
        if not self._use.setup.model:
            return False, "an endpoint is configured, but no model"
        if self.role is None:
            return False, f"the role {ROLE} cannot be used"
        if not standing.is_settled:
            return False, "a model is asked once the incident has settled"
        if not has_settled or (standing.report is not None and is_by_model(standing.report)):
            return False, standing.baseline.cost.reason if standing.baseline else ""
        if refusal := self._use.refusal(f"incident-{standing.incident.id}"):
            return False, refusal[:200]
        now_s = time.monotonic()
        fingerprint = standing.incident.fingerprint
        last_s = self._asked_s.get(fingerprint)
        if last_s is not None and now_s - last_s < ASK_AGAIN_S:
            return False, "the same fault was shown to the model less than 30 minutes ago"
        self._asked_s = {f: s for f, s in self._asked_s.items() if now_s - s < ASK_AGAIN_S}
        self._asked_s[fingerprint] = now_s
        return True, "a model is looking at it"

    def _tools(self, run_id: str, incident: Incident) -> RunTools:
        return self._equipment.tools(run_id, port=incident.port, incident=incident.id)

    async def _around(self, incident: Incident) -> Surroundings:
        """Return what the daemon knows beside the log; little if the core is busy."""
        writer: str | None = None
        sent: dict[int, str] = {}
        try:
            limit_s = PORTS_LIMIT_S if incident.is_settled else HURRY_S
            state = (await self._equipment.ports(limit_s)).get(incident.port)
            if isinstance(state, dict) and isinstance(state.get("writer"), str):
                writer = state["writer"]
                sent = {int(s["seq"]): str(s["user"]) for s in state.get("sent", ())}
        except CoreError as exc:
            log.info("incident %d: %s", incident.id, exc)
        known = (self._standings.incident(number) for number in incident.linked)
        neighbours = tuple(other for other in known if other is not None)
        return Surroundings(neighbours, writer, sent)

    async def _logged(self, incident: Incident) -> None:
        """Wait a moment until the fault line is in the log; if it does not come, go on."""
        if not incident.first_seq:
            return
        end_s = time.monotonic() + LOG_LAG_S
        while time.monotonic() < end_s:
            last = await self._archive.ask(lambda archive: _last_seq(archive, incident.port))
            if last >= incident.first_seq:
                return
            await asyncio.sleep(POLL_S)

    async def _stored(self, incident: Incident) -> Report | None:
        """Return the report that an earlier agent published."""
        return await self._archive.ask(lambda archive: _stored_report(archive, incident.id))

    async def _begun(self, incident: Incident) -> None:
        try:
            await self._link.ask("investigating", {"incident": incident.id}, HURRY_S)
        except CoreError as exc:
            log.debug("incident %d: %s", incident.id, exc)

    async def _publish(
        self,
        standing: Standing,
        next_report: Callable[[Report | None], Report],
        run_id: str,
    ) -> Report:
        """Hand in what follows the last report, unless it says the same; return it."""
        async with standing.publishing:
            previous = standing.report
            report = await with_actions(next_report(previous), self._archive)
            report = replace(report, revision=previous.revision + 1 if previous else 1)
            if previous is not None and says_the_same(report, previous):
                return previous
            body = {"report": report_to_json(report), "run_id": run_id}
            await self._link.ask("report", body)
            standing.report = report
            return report

    async def _remember(
        self, report: Report, record: RunRecord, incident: Incident, tools: RunTools
    ) -> None:
        memory = memory_of(
            incident, report, record.id, tools.calls, tools.ledger.values(), tools.pages
        )
        try:
            told = await self._link.ask("memory", memory)
        except CoreError as exc:
            log.log(exc.level, "incident %d: not remembered: %s", incident.id, exc)
            return
        if isinstance(told, dict) and (why := told.get("refused")):
            log.info("incident %d: not remembered: %s", incident.id, why)


def _goal_note(work: Work) -> Json:
    """Return what a run is for, as its state keeps it."""
    return {"kind": "incident", "incident": work.incident.id, "phase": work.phase}


def _taken_up(state: RunState, answer: Answered | None) -> None:
    """Get the state of a run ready to go on."""
    if answer is None:
        state.resumed += 1
        return
    state.invalid = 0
    state.seconds = min(state.seconds, ANSWERED_S)
    for inquiry in state.inquiries:
        if inquiry.id == answer.inquiry_id or not inquiry.answer:
            inquiry.answer, inquiry.answered_by = answer.text, answer.user


def _as_unknown(inquiry: Inquiry, run_id: str) -> str:
    return f'{inquiry.question} (`serialwatch runs answer {run_id} "..."`)'


def _with_notes(report: Report, standing: Standing) -> Report:
    """Return a report with what nobody has answered yet, and what came after its run."""
    notes = [note for note in (standing.asked, *standing.late) if note]
    return replace(report, unknowns=tuple(dict.fromkeys([*notes, *report.unknowns])))


def _as_late(skill: str, status: str, run_id: str) -> str:
    """Return how a report tells of a result that nobody has weighed: not what is in it."""
    return (
        f"what the long job of {skill} found: it ended after the model's run ({status}); "
        f"`serialwatch runs show {run_id}`"
    )


def _record(work: Work) -> RunRecord:
    return RunRecord(
        id=secrets.token_hex(6),
        kind=work.kind,
        phase=work.phase,
        session=session_of_incident(work.incident),
        started_utc_ns=time.time_ns(),
    )


def _past_run(archive: Archive, run_id: str) -> PastRun | None:
    return read_past_run(archive, run_id)


def _last_seq(archive: Archive, port: str) -> int:
    try:
        bounds = archive.log(port).bounds()
    except Exception:  # noqa: BLE001  (no log yet, or it cannot be read: the skills will say so)
        return 0
    return bounds[1] if bounds else 0


def _stored_report(archive: Archive, incident: int) -> Report | None:
    database = archive.database
    return load_report(database, incident) if database is not None else None
