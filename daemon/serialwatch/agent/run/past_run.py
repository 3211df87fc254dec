"""What an earlier part of a run left in the database and the log, to go on from."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any

from serialwatch.agent.archive import Archive
from serialwatch.agent.run.run_state import RunState, state_from_json
from serialwatch.agent.run.trace import RunRecord, RunStatus
from serialwatch.agent.skills.results import RefusedError, capped, with_remembered
from serialwatch.agent.workers.tools import Call, RunTools
from serialwatch.records import Incident, Line, Report, SkillResult
from serialwatch.store.incidents import load_incident
from serialwatch.store.late_results import load_late_results
from serialwatch.store.reports import load_report
from serialwatch.store.runs import RunRow, SkillCallRow, load_trace, load_unfinished
from serialwatch.wire import Json

MAX_LINES = 20_000  # read again, of all that a run had read


@dataclass(frozen=True, slots=True)
class PastRun:
    """A run as far as it came."""

    run: RunRow
    record: RunRecord  # to go on with
    state: RunState
    calls: tuple[Call, ...]
    results: dict[str, Json]
    lines: tuple[Line, ...]
    late: tuple[tuple[str, SkillResult], ...]  # of long jobs, by skill, that were not shown
    incident: Incident | None
    report: Report | None  # of the incident, published last

    def hand_over(self, tools: RunTools) -> None:
        """Let the tools of the next part have what was read before."""
        tools.go_on(self.calls, self.results, self.lines)

    def hand_late(self, tools: RunTools) -> None:
        """Let them have what long jobs have found since; it is news, and stored with the run."""
        for skill, result in self.late:
            tools.hand_late(skill, result)


def read_past_run(archive: Archive, run_id: str) -> PastRun | None:
    """Return a run as far as it came, None if nothing is known to go on from.

    Raises:
        RefusedError: the database cannot be read now.

    """
    if (database := archive.database) is None or (trace := load_trace(database, run_id)) is None:
        return None
    run = trace.run
    try:
        state = state_from_json(run.state)
    except (TypeError, ValueError, KeyError):  # of another version
        return None
    incident = report = None
    if run.incident_id is not None:
        incident = load_incident(database, run.incident_id)
        report = load_report(database, run.incident_id)
    results = {row.id: row.body for row in trace.results}
    told = dict(state.told)
    return PastRun(
        run=run,
        record=RunRecord(
            id=run.id,
            kind=run.kind,
            phase=run.phase,  # type: ignore[arg-type]  # as it was stored
            session=replace(trace.session, ended_utc_ns=None),
            started_utc_ns=run.started_utc_ns,
            model=run.model,
            base_url=run.base_url,
        ),
        state=state,
        calls=tuple(_call(row, results, told) for row in trace.skill_calls),
        results=results,
        lines=tuple(_lines(archive, state.ledger)),
        late=tuple(
            (row.skill, _late_result(row.body))
            for row in load_late_results(database, run_id)
            if row.body.get("metadata", {}).get("result") not in state.late
        ),
        incident=incident,
        report=report,
    )


def unfinished_runs(archive: Archive) -> list[str]:
    """Return the models' runs that were cut short.

    Raises:
        RefusedError: the database cannot be read now.

    """
    database = archive.database
    return load_unfinished(database, RunStatus.RUNNING) if database is not None else []


def _late_result(body: Mapping[str, Any]) -> SkillResult:
    return SkillResult(body["status"], body["output"], metadata=body["metadata"])


def _call(row: SkillCallRow, results: dict[str, Json], told: dict[int, Json]) -> Call:
    metadata: Json = {**told.get(row.n, {}), "result": row.result_id}
    output = metadata.pop("output", results.get(row.result_id, {}))
    remembered = metadata.pop("remembered", None)
    if row.error_code and "error" not in metadata:
        metadata["error"] = {"code": row.error_code}
    result = SkillResult(row.status, output, metadata=metadata)  # type: ignore[arg-type]  # as it was stored
    result = capped(result, row.result_id)
    return Call(
        n=row.n,
        round=row.round,
        skill=row.skill,
        version=row.version,
        sha=row.sha,
        params=row.args,
        result=with_remembered(result, remembered) if remembered else result,
        id=row.result_id,
        elapsed_ms=row.elapsed_ms,
    )


def _lines(archive: Archive, ranges: Iterable[tuple[str, int, int]]) -> Iterator[Line]:
    left = MAX_LINES
    for port, first, last in ranges:
        try:
            log = archive.log(port)
        except RefusedError:  # its log is gone
            continue
        for line in log.lines(first, last, left):
            left -= 1
            yield line
