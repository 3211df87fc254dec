"""What a model wants next: native tool calls, or JSON in its text."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from serialwatch.agent.model import Completion
from serialwatch.agent.prompt import REPORT_SKILL


@dataclass(frozen=True, slots=True)
class Action:
    """One skill that the model wants to run."""

    call_id: str  # of a native call, "" for one in text
    skill: str
    params: Mapping[str, Any] | None  # None: they are no JSON object
    problem: str = ""  # why not


def actions_of(completion: Completion) -> list[Action]:
    """Return what the model wants; nothing if it only talks."""
    if completion.calls:
        return [_native(c.id or f"call_{n}", c.name, c.arguments) for n, c in
                enumerate(completion.calls, start=1)]  # fmt: skip
    found = _in_text(completion.text)
    return [found] if found is not None else []


def _native(call_id: str, name: str, arguments: str) -> Action:
    try:
        params = json.loads(arguments or "{}")
    except (ValueError, RecursionError) as exc:
        return Action(call_id, name, None, f"the arguments are no JSON: {exc}")
    if not isinstance(params, dict):
        return Action(call_id, name, None, "the arguments are no JSON object")
    return Action(call_id, name, params)


def _in_text(text: str) -> Action | None:
    """Return the first action written as JSON; thoughts and fences around it do no harm."""
    plain = _THOUGHTS.sub(" ", text)
    decoder = json.JSONDecoder()
    for found in re.finditer(r"\{", plain):
        try:
            body, _ = decoder.raw_decode(plain, found.start())
        except (ValueError, RecursionError):
            continue
        if isinstance(body, dict) and (action := _action(body)) is not None:
            return action
    return None


def _action(body: Mapping[str, Any]) -> Action | None:
    if "conclusions" in body and "title" in body:  # the bare report
        return Action("", REPORT_SKILL, body)
    params = body.get("parameters")
    if body.get("next_action") == "reply" and isinstance(params, dict) and "conclusions" in params:
        return Action("", REPORT_SKILL, params)
    if body.get("next_action") != "call_skill":
        return None
    name = str(body.get("skill_name", ""))
    if not isinstance(params, dict):
        return Action("", name, None, "parameters must be a JSON object")
    return Action("", name, params)


_THOUGHTS = re.compile(r"<think(?:ing)?>.*?(?:</think(?:ing)?>|\Z)", re.DOTALL | re.IGNORECASE)
