"""Results of skills: checked, cut to size, and the fixed words of every failure."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any, Literal, cast, get_args

from serialwatch.records import SkillResult, SkillStatus
from serialwatch.wire import Json

MAX_KEPT = 64 * 1024  # bytes of JSON; what is beyond is lost
MAX_OUTPUT = 8 * 1024  # bytes of JSON that a caller gets; the rest is read with `ctx.results`
MAX_METADATA = 4 * 1024  # bytes of JSON
MAX_MEMORIES = 5
MAX_MEMORY = 2 * 1024  # bytes of JSON

Code = Literal[
    "unknown_skill", "invalid_args", "timeout", "crashed", "bad_result", "quota_turn",
    "quota_minute", "budget", "denied", "expired", "repeated_call", "circuit_open", "not_offered",
    "precondition",
]  # fmt: skip

SENTENCES: Mapping[Code, str] = {
    "unknown_skill": "There is no skill of that name; nothing ran. Use one of the offered names.",
    "invalid_args": "The parameters do not fit what the skill takes; nothing was done. Correct "
    "what is listed and call it again.",
    "timeout": "The skill was stopped at its time limit and gave no answer. Ask for less, such as "
    "a shorter range, or use another skill.",
    "crashed": "The skill ended without an answer. Do not repeat the call; use another skill.",
    "bad_result": "The skill answered with something that is no result. Do not repeat the call; "
    "use another skill.",
    "quota_turn": "Too many calls in one turn; this one did not run. Call it in the next turn.",
    "quota_minute": "Too many calls within a minute; this one did not run. Work with what you "
    "have.",
    "budget": "The budget of this run is spent; nothing ran. Write the report with what you have.",
    "denied": "This is not allowed to the skill or in this run; nothing was done. Go on without.",
    "expired": "The time for this has passed; nothing ran. Go on without.",
    "repeated_call": "The same call was made before and nothing has changed; read that result.",
    "circuit_open": "The skill failed too often and rests; nothing ran. Use another skill.",
    "not_offered": "The skill is not offered in this run; nothing ran. Use one that is.",
    "precondition": "What the call asks about does not exist or cannot be had; see `detail`.",
}
_RETRYABLE: frozenset[Code] = frozenset({"invalid_args", "quota_turn", "quota_minute", "timeout"})


class BadResultError(Exception):
    """A skill answered with something that is no `SkillResult`."""


class RefusedError(Exception):
    """Something that a skill asked for is not allowed or cannot be had; `code` says which."""

    def __init__(self, code: Code, message: str) -> None:
        super().__init__(message)
        self.code: Code = code


def failure(
    code: Code, detail: str = "", output: Mapping[str, Any] | None = None, hint: str = ""
) -> SkillResult:
    """Return the failure `code`; `detail` says more in words that are safe to show.

    `hint` is what the skill's own text advises.
    """
    error: Json = {
        "code": code, "message": SENTENCES[code], "retryable": code in _RETRYABLE
    }  # fmt: skip
    if detail:
        error["detail"] = detail
    if hint:
        error["hint"] = hint
    return SkillResult("failure", dict(output or {}), metadata={"error": error})


def error_code(result: SkillResult) -> str:
    """Return the code of a failure, "" for any other result."""
    error = result.metadata.get("error")
    return str(error.get("code", "")) if isinstance(error, Mapping) else ""


def checked(body: Mapping[str, Any]) -> SkillResult:
    """Return the result that a skill's process sent.

    Raises:
        BadResultError: it is none; the message says why.

    """
    status = body.get("status")
    if status not in get_args(SkillStatus):
        raise BadResultError(f"status {status!r} is none of {', '.join(get_args(SkillStatus))}")
    output, memories, metadata = (body.get(k) for k in ("output", "new_memories", "metadata"))
    if not isinstance(output, dict) or not isinstance(metadata, dict):
        raise BadResultError("output and metadata must be objects")
    if not isinstance(memories, list) or not all(isinstance(m, dict) for m in memories):
        raise BadResultError("new_memories must be a list of objects")
    if len(memories) > MAX_MEMORIES or any(_size(m) > MAX_MEMORY for m in memories):
        raise BadResultError(f"at most {MAX_MEMORIES} memories of {MAX_MEMORY} bytes each")
    if _size(metadata) > MAX_METADATA:
        raise BadResultError(f"metadata of more than {MAX_METADATA} bytes")
    _size(output)
    return SkillResult(cast(SkillStatus, status), output, tuple(memories), metadata)


def why_not(result: SkillResult) -> str:
    """Return in a few words why a call gave no answer, for people."""
    error = result.metadata.get("error")
    if not isinstance(error, Mapping):
        return result.status
    code = str(error.get("code", result.status))
    detail = error.get("detail")
    return str(detail) if code == "precondition" and detail else code


def fitted(output: Mapping[str, Any], limit: int) -> Json:
    """Return `output` within `limit` bytes of JSON: long lists and texts end earlier."""
    for most, chars in _STEPS:
        if _size(cut := _cut(output, most, chars)) <= limit:
            return dict(cut)
    return {}


def capped(result: SkillResult, ref: str) -> SkillResult:
    """Return `result` with at most MAX_OUTPUT bytes of output; `ref` is where the whole is."""
    if (size := _size(result.output)) <= MAX_OUTPUT:
        return result
    note = {"bytes": size, "ref": ref, "kept": "the beginning of each list and text"}
    return replace(
        result,
        output=fitted(result.output, MAX_OUTPUT),
        metadata={**result.metadata, "truncated": note},
    )


def with_remembered(result: SkillResult, told: Sequence[Any]) -> SkillResult:
    """Return a result with what became of each memory that it wanted to be written."""
    return replace(
        result,
        output={**result.output, "remembered": list(told)},
        metadata={**result.metadata, "remembered": list(told)},
    )


_STEPS: Sequence[tuple[int, int]] = (
    (1_000_000, 1_000_000), (400, 2000), (200, 1000), (100, 500), (60, 300), (40, 300), (25, 200),
    (15, 200), (8, 120), (4, 80), (2, 60),
)  # fmt: skip  # entries of a list, characters of a text; generous first


def _cut(value: Any, most: int, chars: int) -> Any:
    if isinstance(value, str):
        return value if len(value) <= chars else value[: chars - 1] + "…"
    if isinstance(value, (list, tuple)):
        return [_cut(v, most, chars) for v in value[:most]]
    if isinstance(value, Mapping):
        return {k: _cut(v, most, chars) for k, v in value.items()}
    return value


def _size(value: Any) -> int:
    """Return the bytes of `value` as JSON.

    Raises:
        BadResultError: it is no JSON: NaN, half a surrogate pair, nested too deep.

    """
    try:
        return len(json.dumps(value, ensure_ascii=False, allow_nan=False).encode())
    except (ValueError, TypeError, RecursionError) as exc:
        raise BadResultError(f"not JSON: {exc}") from exc
