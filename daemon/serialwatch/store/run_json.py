"""Runs as the API, `runs --json` and `runs export` have them. Times are UTC, ISO 8601."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from typing import Any

from sqlite_utils import Database

from serialwatch.store.approvals import approval_to_json, load_approvals
from serialwatch.store.inquiries import InquiryRow, load_inquiries
from serialwatch.store.late_results import load_late_results
from serialwatch.store.reports import load_revisions_of_run
from serialwatch.store.runs import RunRow, Trace, load_runs, load_trace
from serialwatch.wire import Json, iso

EXPORT_VERSION = 1


def read_runs(
    db: Database, *, incident_id: int | None = None, port: str = "", limit: int = 100
) -> list[Json]:
    """Return runs in short, the newest first."""
    runs = load_runs(db, incident_id=incident_id, port=port, limit=limit)
    return [run_to_json(run) for run in runs]


def read_run(db: Database, run_id: str) -> Json | None:
    """Return all that is stored of a run, None if there is none."""
    trace = load_trace(db, run_id)
    if trace is None:
        return None
    return _trace_to_json(trace) | {
        "inquiries": [inquiry_to_json(row) for row in load_inquiries(db, run_id)],
        "late": [_ended(asdict(late)) for late in load_late_results(db, run_id)],
        "approvals": [approval_to_json(row) for row in load_approvals(db, run_id=run_id)],
        "reports": [
            {"incident": row.incident_id, "revision": row.revision, "title": row.title}
            for row in load_revisions_of_run(db, run_id)
        ],
    }


def run_to_json(run: RunRow) -> Json:
    """Return a run in short."""
    body = _timed(asdict(run))
    state = body.pop("state")
    del body["plan"], body["notes"]
    body["rounds"] = int(state.get("rounds", 0))
    body["seconds"] = _seconds(run)
    waiting = [i for i in state.get("inquiries", ()) if not i.get("answer")]
    body["question"] = waiting[-1]["question"] if waiting else ""
    return body


def inquiry_to_json(row: InquiryRow) -> Json:
    """Return a question to a person."""
    body = asdict(row)
    body["asked"] = iso(body.pop("asked_utc_ns"))
    answered = body.pop("answered_utc_ns")
    body["answered"] = iso(answered) if answered else None
    return body


def exported(body: Mapping[str, Any]) -> Json:
    """Return a run as a file: prompts as hashes of messages, and a hash on each result."""
    rounds = [{**each, "prompt_hash": content_hash(each["prompt"])} for each in body["rounds"]]
    messages = {
        each["hash"]: {"role": each["role"], "content": each["content"]}
        for each in body["messages"]
    }
    results = [{**each, "hash": content_hash(each["body"])} for each in body["results"]]
    late = [{**each, "hash": content_hash(each["body"])} for each in body.get("late", ())]
    return {
        "serialwatch_run": EXPORT_VERSION,
        "id": body["run"]["id"],
        **body,
        "rounds": rounds,
        "messages": messages,
        "results": results,
        "late": late,
    }


def content_hash(content: object) -> str:
    """Return the hash under which something is known: of its JSON, keys in order."""
    text = json.dumps(content, sort_keys=True, separators=(",", ":"))
    return hashlib.sha256(text.encode()).hexdigest()[:32]


def _trace_to_json(trace: Trace) -> Json:
    run = trace.run
    return {
        "run": run_to_json(run)
        | {"plan": list(run.plan), "notes": list(run.notes), "state": dict(run.state)},
        "session": _timed(asdict(trace.session)),
        "rounds": _rows(trace.rounds),
        "messages": _rows(trace.messages),
        "skill_calls": _rows(trace.skill_calls),
        "results": _rows(trace.results),
    }


def _rows(rows: Sequence[Any]) -> list[Json]:
    return [asdict(row) for row in rows]


def _timed(body: Json) -> Json:
    body["started"] = iso(body.pop("started_utc_ns"))
    return _ended(body)


def _ended(body: Json) -> Json:
    ended = body.pop("ended_utc_ns")
    body["ended"] = iso(ended) if ended else None
    return body


def _seconds(run: RunRow) -> float:
    """Return how long a run worked; a model's may have waited for a person in between."""
    if "seconds" in run.state:
        return round(float(run.state["seconds"]), 3)
    return round((run.ended_utc_ns - run.started_utc_ns) / 1e9, 3) if run.ended_utc_ns else 0.0
