"""What a model wants next: native tool calls, a JSON action, or a call hidden in its text."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from serialwatch.agent.models.completion import Completion
from serialwatch.agent.run.repair import loads, objects_in, problem_of, without_thoughts
from serialwatch.agent.skills.choice import REPORT_SKILL
from serialwatch.wire import Json

NEXT_ACTIONS = ("call_skill", "reply", "require_more")
MIN_QUESTION, MAX_QUESTION = 8, 400  # characters


_LACKING = {
    "reply": "`reply` needs the whole report in `parameters`",
    "require_more": "`require_more` needs a whole sentence in `parameters.question`",
}


@dataclass(frozen=True, slots=True)
class Action:
    """One thing that the model wants done."""

    call_id: str  # of a native call, "" for one in text
    skill: str  # "" for a question to a person
    params: Mapping[str, Any] | None  # None: they are no JSON object
    problem: str = ""  # why not
    question: str = ""  # to a person
    why: str = ""  # in the model's words


@dataclass(frozen=True, slots=True)
class Reading:
    """A reply, understood as far as it can be."""

    actions: tuple[Action, ...] = ()
    problem: str = ""  # why there is no action in what tried to be one
    is_recovered: bool = False  # the calls stood in a text, where they do not belong


def read_reply(completion: Completion, is_json_mode: bool, taken: Collection[str] = ()) -> Reading:
    """Return what the model wants; nothing if it only talks.

    `taken` has the ids of earlier calls that are shown again: an id stands for one call.
    """
    if completion.calls:
        ids = _own_ids(completion, taken)
        return Reading(tuple(
            _native(call_id, c.name, c.arguments, completion.text)
            for call_id, c in zip(ids, completion.calls, strict=True)
        ))  # fmt: skip
    text, lacking = completion.text, ""
    for found in objects_in(text):
        if (action := _action(found.body)) is not None:
            return Reading((action,), is_recovered=not is_json_mode)
        lacking = lacking or _LACKING.get(str(found.body.get("next_action")), "")
    if calls := tuple(_tagged(without_thoughts(text))):
        return Reading(calls, is_recovered=True)
    if not is_json_mode:
        return Reading()
    if lacking:
        return Reading(problem=lacking)
    if said := problem_of(text):
        return Reading(problem=f"the JSON object cannot be read: {said}")
    if "{" in without_thoughts(text):
        return Reading(problem=f"the object has no `next_action` of {', '.join(NEXT_ACTIONS)}")
    return Reading(problem="there is no JSON object in it")


def action_schema(names: Sequence[str]) -> Json:
    """Return what an action has to look like, for endpoints that can be held to a schema."""
    return {
        "type": "object",
        "properties": {
            "reasoning": {"type": "string"},
            "next_action": {"type": "string", "enum": list(NEXT_ACTIONS)},
            "skill_name": {"type": "string", "enum": ["", *names]},
            "parameters": {"type": "object"},
        },
        "required": ["reasoning", "next_action", "skill_name", "parameters"],
    }


def conversation(
    completion: Completion, actions: Sequence[Action], answers: Sequence[str]
) -> tuple[Json, ...]:
    """Return the messages of a round; each native call gets its answer."""
    if not completion.calls:
        return (
            {"role": "assistant", "content": completion.text[:4000]},
            *({"role": "user", "content": f"Result:\n{text}"} for text in answers),
        )
    calls = [
        {
            "id": action.call_id,
            "type": "function",
            "function": {
                "name": _sendable(action.skill),
                "arguments": _short(call.arguments),
            },
        }
        for action, call in zip(actions, completion.calls, strict=True)
    ]
    return (
        {"role": "assistant", "content": completion.text[:2000] or None, "tool_calls": calls},
        *(
            {"role": "tool", "tool_call_id": action.call_id, "content": text}
            for action, text in zip(actions, answers, strict=True)
        ),
    )


def call_ids(messages: Sequence[Json]) -> set[str]:
    """Return the ids of the native calls in messages."""
    return {call["id"] for message in messages for call in message.get("tool_calls") or ()}


def _own_ids(completion: Completion, taken: Collection[str]) -> list[str]:
    """Return an id for each call, the endpoint's own where it is one.

    Some give none, or the same to two calls, and refuse to have them back like that.
    """
    ids: list[str] = []
    for call in completion.calls:
        call_id, n = call.id, 0
        while not call_id or call_id in taken or call_id in ids:
            n += 1
            # Nine letters and digits is what the strictest take.
            call_id = hashlib.blake2s(f"{call.id} {n} {len(ids)}".encode()).hexdigest()[:9]
        ids.append(call_id)
    return ids


def _skill_of(said: str) -> str:
    """Return the skill that a model means: `functions.log_read` is `log-read`.

    What is no name of a skill even so stays as it was said.
    """
    plain = said.partition("<|")[0].strip().lower().replace("_", "-")
    for name in (re.split(r"[.:/]", plain)[-1], re.sub(r"[.:/]", "-", plain)):
        if _SKILL.fullmatch(name):
            return name
    return said


_SKILL = re.compile(r"[a-z][a-z0-9]*(?:-[a-z0-9]+)+")


def _sendable(name: str) -> str:
    """Return the name of a function as endpoints take it back."""
    return re.sub(r"[^A-Za-z0-9_-]", "_", name)[:64] or "unknown"


def _native(call_id: str, said: str, arguments: str, why: str) -> Action:
    name = _skill_of(said)
    try:
        params = loads(arguments or "{}")
    except ValueError as exc:
        return Action(call_id, name, None, f"the arguments are no JSON: {exc}", why=why)
    if not isinstance(params, dict):
        return Action(call_id, name, None, "the arguments are no JSON object", why=why)
    return Action(call_id, name, params, why=why)


def _action(body: Mapping[str, Any]) -> Action | None:
    why = str(body.get("reasoning") or body.get("thought") or "")
    if "conclusions" in body and "title" in body:  # the bare report
        return Action("", REPORT_SKILL, body)
    params = body.get("parameters", body.get("arguments"))
    wanted = body.get("next_action")
    name = _skill_of(str(body.get("skill_name") or body.get("name") or ""))
    if wanted == "reply":
        if isinstance(params, dict) and "conclusions" in params:
            return Action("", REPORT_SKILL, params, why=why)
        return None
    if wanted == "require_more":
        told = params if isinstance(params, dict) else {}
        question = str(told.get("question") or why or "").strip()
        if len(question) < MIN_QUESTION:
            return None
        return Action("", "", {}, question=question[:MAX_QUESTION], why=why)
    if wanted != "call_skill" and not (wanted is None and name and isinstance(params, dict)):
        return None
    if not isinstance(params, dict):
        return Action("", name, None, "parameters must be a JSON object", why=why)
    return Action("", name, params, why=why)


def _tagged(text: str) -> Iterator[Action]:
    """Yield calls that are written as tags: `<function=name>` or `<invoke name="name">`."""
    for call in _CALL.finditer(text):
        params: Json = {}
        for param in _PARAM.finditer(call["body"]):
            value = param["value"].strip()
            try:
                params[param["name"]] = loads(value)
            except ValueError:
                params[param["name"]] = value
        yield Action("", _skill_of(call["name"]), params)


_CALL = re.compile(
    r"<(?P<tag>function|invoke)(?:=|\s+name=)[\"']?(?P<name>[\w.:-]{1,64})[\"']?\s*>"
    r"(?P<body>.{0,8000}?)(?:</(?P=tag)>|\Z)",
    re.DOTALL,
)
_PARAM = re.compile(
    r"<parameter(?:=|\s+name=)[\"']?(?P<name>[\w-]{1,64})[\"']?\s*>(?P<value>[^<]*)</parameter>"
)


def _short(arguments: str) -> str:
    return arguments if 0 < len(arguments) <= 4000 else "{}"
