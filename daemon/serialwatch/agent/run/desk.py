"""Where a model hands in its report: checked in code, sent back once, or accepted."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace

from serialwatch.agent.proof.draft import DraftError, read_draft
from serialwatch.agent.proof.verifier import Rejection, verify
from serialwatch.agent.recall import with_memories
from serialwatch.agent.run.goal import Goal
from serialwatch.agent.run.run_state import Refusal, RunState
from serialwatch.agent.workers.tools import Call, Tools
from serialwatch.records import Claims, Report
from serialwatch.wire import Json, report_from_json, report_to_json


class Desk:
    """Takes the report that the skill `report-write` hands in, and checks it."""

    def __init__(self, made_by: str) -> None:
        self.accepted: Report | None = None
        self.hopeless = ""  # no draft will be accepted any more, and why
        self._made_by = made_by
        self._open: tuple[Goal, Tools, RunState] | None = None

    def open(self, goal: Goal, tools: Tools, state: RunState) -> None:
        """Begin: reports are checked against what `tools` have read."""
        self._open = (goal, tools, state)

    async def submit(self, body: Json) -> Json:
        """Check a report and return what the model has to know; the first draft may come back."""
        if self._open is None:
            raise RuntimeError("the desk is not open")
        goal, tools, state = self._open
        try:
            draft = read_draft(body, goal.baseline, self._made_by)
        except DraftError as exc:
            return _sent_back([Rejection("report", "G1", problem) for problem in exc.problems])
        state.drafts += 1
        checked = verify(draft, tools.ledger, tools.results, goal.incident, tools.pages, goal.port)
        state.add_refusals(
            Refusal(state.drafts, no.id, no.code, no.why, is_dropped)
            for found, is_dropped in ((checked.dropped, True), (checked.changed, False))
            for no in found
        )
        report = replace(checked.report, title=checked.report.title or goal.baseline.title)
        verified = len(report.conclusions)
        if verified and verified >= _verified(state.best):
            state.best = report_to_json(report)
        if checked.dropped and state.drafts == 1:
            state.rejections = list(checked.dropped)
            return _sent_back(checked.dropped)
        if not verified:
            self.hopeless = (
                f"none of its {len(draft.conclusions)} claims is carried by the lines it cites"
            )
            return _sent_back(checked.dropped)
        state.rejections = []
        self.accepted = _remembering(report, goal, tools)
        return {"accepted": True, "verified": verified, "dropped": len(checked.dropped)}


def _remembering(report: Report, goal: Goal, tools: Tools) -> Report:
    """Return a report that begins with what the bench remembers, if lines and results carry it."""
    if goal.case is None:
        return report
    whole = with_memories(report, goal.case)
    checked = verify(
        whole, tools.ledger, tools.results, goal.incident, tools.pages, goal.port
    ).report
    claims = Claims(checked.claims.verified, report.claims.dropped)
    return replace(checked, title=report.title, claims=claims)


def added_to_baseline(baseline: Report, best: Json | None, made_by: str) -> Report | None:
    """Return the baseline with what held of a model's draft, None if nothing did or is new."""
    if best is None:
        return None
    draft = report_from_json(best)
    known = {c.claim for c in baseline.conclusions}
    fresh = [c for c in draft.conclusions if c.claim not in known]
    if not fresh:
        return None
    # The ids of results belong to one run; the baseline's is another.
    kept = [replace(c, results=()) for c in baseline.conclusions]
    taken = {c.id for c in kept}
    for conclusion in fresh:
        free = next(f"c{n}" for n in range(1, 1000) if f"c{n}" not in taken)
        taken.add(free)
        kept.append(replace(conclusion, id=free))
    return replace(
        baseline,
        made_by=made_by,
        conclusions=tuple(kept),
        claims=Claims(baseline.claims.verified + len(fresh), draft.claims.dropped),
    )


def cited_skills(report: Report, calls: Sequence[Call]) -> list[str]:
    """Return the skills that the model called and on whose results the report rests."""
    results = {ref for c in report.conclusions for ref in c.results}
    lines = {(e.port, e.seq) for c in report.conclusions for e in c.evidence}
    return list(dict.fromkeys(
        call.skill
        for call in calls
        if call.round and call.is_good and (call.id in results or lines & _lines_of(call))
    ))  # fmt: skip


def _verified(best: Json | None) -> int:
    return len(best.get("conclusions", ())) if best else 0


def _sent_back(rejections: Sequence[Rejection] | Iterable[Rejection]) -> Json:
    rows = [{"id": no.id, "code": no.code, "why": no.why} for no in rejections]
    return {"accepted": False, "rejections": rows}


def _lines_of(call: Call) -> set[tuple[str, int]]:
    """Return the lines that a call has shown."""
    rows, port = call.result.output.get("lines"), str(call.result.output.get("port", ""))
    if not isinstance(rows, (list, tuple)):
        return set()
    return {(port, row["seq"]) for row in rows if isinstance(row, dict) and "seq" in row}
