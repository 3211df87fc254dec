"""What a model's endpoint can do, learned from what it refuses and how it answers."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import asdict, dataclass, fields, replace
from typing import Any, Literal, get_args

from serialwatch.wire import Json

Choice = Literal["named", "required", "none"]  # how it can be made to call a function
Format = Literal["json_schema", "json_object", "none"]  # how it can be held to JSON
LimitName = Literal["max_tokens", "max_completion_tokens"]

CHECK_AGAIN_S = 24 * 3600.0  # endpoints are updated: what one refused is tried again after a day


@dataclass(frozen=True, slots=True)
class Abilities:
    """What one model of one endpoint can do; the best is assumed until it shows otherwise."""

    tools: bool = True
    tool_choice: Choice = "named"
    response_format: Format = "json_schema"
    temperature: bool = True
    limit_name: LimitName = "max_tokens"
    reasons: bool = False  # it thinks before it answers, and its thoughts count
    cuts_context: bool = False  # it dropped a part of a prompt without a word

    def after_refusal(self, told: str, asked: Mapping[str, Any]) -> Abilities | None:
        """Return what is left after a request was refused in these words; None: nothing new.

        `told` holds the message, the name of the parameter and the code, as far as there are any.
        """
        words = told.lower()
        if "max_completion_tokens" in words and "max_tokens" in asked:
            return replace(self, limit_name="max_completion_tokens")
        if "temperature" in asked and "temperature" in words:
            return replace(self, temperature=False)
        if "tools" in asked and any(sentence in words for sentence in _NO_TOOLS):
            return replace(self, tools=False)
        if "tool_choice" in asked and _names(words, "tool_choice", "tool choice"):
            return replace(self, tool_choice="required" if self.tool_choice == "named" else "none")
        if "response_format" in asked and any(word in words for word in _FORMAT):
            is_schema = self.response_format == "json_schema"
            return replace(self, response_format="json_object" if is_schema else "none")
        if "tools" in asked and _TOOLS_REFUSED.search(words):
            return replace(self, tools=False)
        if "max_completion_tokens" in asked and "max_completion_tokens" in words:
            return replace(self, limit_name="max_tokens")
        return None


def abilities_to_json(can: Abilities) -> Json:
    """Return them as the store keeps them."""
    return asdict(can)


def abilities_from_json(body: Mapping[str, Any]) -> Abilities:
    """Return what `abilities_to_json` wrote; what makes no sense (any more) is left out."""
    allowed: Mapping[str, tuple[object, ...]] = {
        "tool_choice": get_args(Choice),
        "response_format": get_args(Format),
        "limit_name": get_args(LimitName),
    }
    known: Json = {}
    for field in fields(Abilities):
        value = body.get(field.name)
        if value in allowed.get(field.name, (True, False)) and value is not None:
            known[field.name] = value
    return Abilities(**known)


def _names(words: str, *names: str) -> bool:
    return any(name in words for name in names)


# What endpoints say when a model cannot call tools; seen in llama.cpp, Ollama, vLLM and proxies.
_NO_TOOLS = (
    "does not support tools",
    "tools param requires",
    "unsupported param: tools",
    "does not support function calling",
    "tool calling is not supported",
    '"auto" tool choice requires',
    "tools are not supported",
    "does not support tool use",
)
_TOOLS_REFUSED = re.compile(
    r"\b(?:tools?|functions?)\b.{0,60}"
    r"(?:not supported|unsupported|not permitted|not allowed|unrecognized|unknown|extra)"
    r"|(?:not support|unsupported|unrecognized|unknown|unexpected|extra)[^.]{0,60}"
    r"\b(?:tools?|functions?|function calling)\b"
)
_FORMAT = ("response_format", "json_schema", "json_object", "json schema", "json mode",
           "response format", "structured output", "grammar")  # fmt: skip
