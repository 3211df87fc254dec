"""What a model may do beside calling skills: plan, take notes, find skills, read a result again."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from serialwatch.agent.run.plan import CHECKS, MAX_STEPS, read_plan, take_statuses
from serialwatch.agent.run.run_state import RunState
from serialwatch.agent.run.shown import marked_text
from serialwatch.agent.skills.choice import Offer, catalogue_line, find
from serialwatch.agent.text.device_text import readable, shortened
from serialwatch.wire import Json

MAX_NOTE = 240  # characters
MAX_READ = 1300  # characters of one `result-read`

_TEXT = {"type": "string"}
CONTROLS: Mapping[str, Json] = {
    "plan-set": {
        "description": "Set or change the plan, and say how the hypotheses stand. Use it first, "
        "and when a step fails. Do NOT use it to report progress.",
        "parameters": {
            "type": "object",
            "properties": {
                "steps": {
                    "type": "array",
                    "minItems": 1,
                    "maxItems": MAX_STEPS,
                    "items": {
                        "type": "object",
                        "properties": {
                            "task": _TEXT,
                            "skill_hint": _TEXT,
                            "done_when": {"type": "string", "enum": list(CHECKS)},
                        },
                        "required": ["task"],
                    },
                },
                "why": _TEXT,
                "hypotheses": {
                    "type": "array",
                    "items": {
                        "type": "object",
                        "properties": {
                            "id": _TEXT,
                            "status": {"enum": ["open", "confirmed", "refuted"]},
                        },
                    },
                },
            },
            "required": ["steps"],
        },
    },
    "note-add": {
        "description": "Keep one finding for later rounds, in one sentence.",
        "parameters": {"type": "object", "properties": {"text": _TEXT}, "required": ["text"]},
    },
    "skill-find": {
        "description": "Find further skills by what they do; those found can be called next.",
        "parameters": {"type": "object", "properties": {"query": _TEXT}, "required": ["query"]},
    },
    "result-read": {
        "description": "Read more of an earlier result, such as R7, or its lines with a word.",
        "parameters": {
            "type": "object",
            "properties": {
                "id": _TEXT,
                "start": {"type": "integer"},
                "match": _TEXT,
            },
            "required": ["id"],
        },
    },
}


@dataclass(frozen=True, slots=True)
class Done:
    """What a control action did."""

    text: str  # for the model
    outcome: str  # ok, or invalid_args
    line: str  # of it, for the notes; "" for none


def control_tools(state: RunState, offer: Offer) -> list[Json]:
    """Return the control actions that make sense now, as functions to call."""
    wanted = ["plan-set", "note-add"]
    if offer.findable:
        wanted.append("skill-find")
    if state.seen:
        wanted.append("result-read")
    return [{"type": "function", "function": {"name": n, **CONTROLS[n]}} for n in wanted]


def control(
    name: str,
    params: Mapping[str, Any],
    state: RunState,
    offer: Offer,
    results: Mapping[str, object],
) -> Done:
    """Do a control action."""
    if name == "plan-set":
        return _plan_set(params, state)
    if name == "note-add":
        text = _line(params.get("text"), MAX_NOTE)
        if not text:
            return _invalid("text: one sentence")
        state.add_note(text)
        return Done("Noted.", "ok", "")
    if name == "skill-find":
        return _skill_find(params, state, offer)
    return _result_read(params, state, results)


def _plan_set(params: Mapping[str, Any], state: RunState) -> Done:
    steps, problem = read_plan(params)
    if problem:
        return _invalid(problem)
    state.plan, state.plan_why = steps, _line(params.get("why"), MAX_NOTE)
    state.plans += 1
    take_statuses(state, params.get("hypotheses"))
    return Done(f"The plan has {len(steps)} steps.", "ok", f"plan-set({len(steps)} steps)")


def _skill_find(params: Mapping[str, Any], state: RunState, offer: Offer) -> Done:
    query = _line(params.get("query"), 120)
    if not query:
        return _invalid("query: a few words")
    found = find(offer.findable, query)
    if not found:
        return Done("No further skill fits these words.", "ok", "skill-find() -> nothing")
    names = [skill.name for skill in found]
    state.found = list(dict.fromkeys([*names, *state.found]))[:8]
    rows = "\n".join(f"- {catalogue_line(skill)}" for skill in found)
    return Done(f"These can be called from the next round on:\n{rows}", "ok",
                f"skill-find() -> {', '.join(names)}")  # fmt: skip


def _result_read(params: Mapping[str, Any], state: RunState, results: Mapping[str, object]) -> Done:
    ref, start = str(params.get("id", "")), params.get("start")
    if ref not in results:
        return _invalid(f"id: one of {', '.join(results) or 'none yet'}")
    text = json.dumps(results[ref], indent=1, ensure_ascii=False, default=str)
    if match := str(params.get("match") or "").lower():
        text = "\n".join(line for line in text.split("\n") if match in line.lower())
    at = start if isinstance(start, int) and 0 <= start < len(text) else 0
    part = text[at : at + MAX_READ]
    more = f"from {at}, next: start={at + MAX_READ}" if at + MAX_READ < len(text) else "the end"
    shown = marked_text(state.nonce, ref, part) if part else "(nothing there)"
    return Done(f"{ref}, {len(text)} characters, {more}\n{shown}", "ok", "")


def _invalid(problem: str) -> Done:
    return Done(f"Nothing was done. {problem}.", "invalid_args", "")


def _line(value: object, limit: int) -> str:
    text = " ".join(readable(str(value or "").encode(errors="replace")).split())
    return shortened(text, limit)
