"""JSON as models write it: found in their prose, and mended where it is broken."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from serialwatch.wire import Json

MAX_TEXT = 16_000  # characters looked at
MAX_BRACKETS = 400  # opening ones; more is no action, and would take long

# A model that only thinks has not answered yet; what a tag opens and nothing closes is a thought.
_THOUGHTS = re.compile(r"<think(?:ing)?>.*?(?:</think(?:ing)?>|\Z)", re.DOTALL | re.IGNORECASE)
_FENCE = re.compile(r"```[a-zA-Z]*")
_START = re.compile(r"\{\s*(?:[\"'“]?\w+[\"'”]?\s*:|//|/\*|#)")


@dataclass(frozen=True, slots=True)
class Found:
    """An object in a text."""

    body: Json
    is_mended: bool  # it was no JSON as it stood


def without_thoughts(text: str) -> str:
    """Return what a model says aloud."""
    return _THOUGHTS.sub(" ", text[:MAX_TEXT])


def objects_in(text: str) -> Iterator[Found]:
    """Yield the objects in a text as they come, whole ones first; then a mended one."""
    plain = _FENCE.sub(" ", without_thoughts(text))
    decoder = json.JSONDecoder()
    at = tries = 0
    while tries < MAX_BRACKETS and (at := plain.find("{", at)) >= 0:
        try:
            body, end = decoder.raw_decode(plain, at)
        except (ValueError, RecursionError):
            at, tries = at + 1, tries + 1
            continue
        if isinstance(body, dict):
            yield Found(body, False)
        at = max(end, at + 1)
    if (mended := _mended(plain)) is not None:
        yield Found(mended, True)


def problem_of(text: str) -> str:
    """Return what the JSON reader says of the first object in a text, "" if there is none."""
    plain = _FENCE.sub(" ", without_thoughts(text))
    start = plain.find("{")
    if start < 0:
        return ""
    try:
        json.JSONDecoder().raw_decode(plain, start)
    except ValueError as exc:
        return str(exc)
    except RecursionError:
        return "it is nested too deep"
    return ""


def loads(text: str) -> Any:
    """Return the value of a JSON text, mended if need be.

    Raises:
        ValueError: it cannot be mended; the message is the reader's, of the text as it stood.

    """
    try:
        return json.loads(text)
    except RecursionError:
        raise ValueError("it is nested too deep") from None
    except ValueError:
        if (mended := _mended(text)) is None:
            raise
        return mended


def _mended(text: str) -> Json | None:
    """Return the first object of a text that is nearly JSON."""
    found = _START.search(text)
    if found is None or len(text) > MAX_TEXT:
        return None
    part = text[found.start() :]
    if part.count("{") + part.count("[") > MAX_BRACKETS:
        return None
    # Costs 5 MB and 0.1 s, and well-behaved models never need it.
    import json_repair

    try:
        body = json_repair.loads(part)
    except (ValueError, RecursionError):
        return None
    if isinstance(body, list):  # two objects one after the other
        body = next((each for each in body if isinstance(each, dict)), None)
    return body if isinstance(body, dict) and body else None
