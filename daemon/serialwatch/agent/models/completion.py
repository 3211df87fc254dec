"""The answer of a model, read from the body of a response."""

from __future__ import annotations

import json
import re
from dataclasses import dataclass
from typing import cast

from serialwatch.wire import Json

TOKENS_A_CHAR = 4  # at most: emoji, byte by byte
HIDDEN_TOKENS = 32_000  # of thoughts and instructions that an endpoint does not show; more is a lie


class NoCompletionError(Exception):
    """The body is no chat completion; what it was billed is told all the same.

    `status` is the one that an error in the body names, 0 if there is none.
    """

    def __init__(
        self, prompt_tokens: int, completion_tokens: int, instead: str = "", status: int = 0
    ) -> None:
        super().__init__(f"the answer is no chat completion{instead}")
        self.prompt_tokens = prompt_tokens
        self.completion_tokens = completion_tokens
        self.status = status


@dataclass(frozen=True, slots=True)
class ToolCall:
    """A call that the model wants; `arguments` is the text it wrote."""

    id: str
    name: str
    arguments: str


@dataclass(frozen=True, slots=True)
class Completion:
    """One answer of the model."""

    text: str
    calls: tuple[ToolCall, ...]
    finish_reason: str
    prompt_tokens: int  # as told by the endpoint, estimated if it tells nothing
    completion_tokens: int
    latency_ms: int
    thoughts: str = ""  # what a reasoning model said to itself
    is_counted: bool = True  # the endpoint told the tokens

    @property
    def tokens(self) -> int:
        """Return what the request cost."""
        return self.prompt_tokens + self.completion_tokens


def read_completion(text: str, size: int, latency_ms: int) -> Completion:
    """Return the completion in a response body; `size` is that of the request, in characters.

    Raises:
        NoCompletionError: it is none.

    """
    try:
        body = json.loads(text)
        choice = body["choices"][0]
        message = choice["message"]
        content = message.get("content") or ""
        calls = tuple(_tool_call(call) for call in message.get("tool_calls") or ())
    except (ValueError, LookupError, TypeError, AttributeError, RecursionError) as exc:
        told = _usage(text)
        raise NoCompletionError(
            _tokens(told.get("prompt_tokens"), size),
            _tokens(told.get("completion_tokens"), len(text)),
            *_instead(text),
        ) from exc
    content = _whole(_plain(content))
    thoughts = _whole(_plain(message.get("reasoning_content") or message.get("reasoning") or ""))
    finish_reason = _whole(str(choice.get("finish_reason") or ""))[:40]
    if found := _THOUGHTS.match(content):
        thoughts, content = thoughts or found.group(1), content[found.end() :]
    if not content.strip() and not calls and finish_reason != "length":
        content = thoughts  # some servers take the whole answer for a thought
    told = _usage(text)
    answer = len(content) + len(thoughts) + sum(len(call.arguments) for call in calls)
    return Completion(
        text=content,
        calls=calls,
        finish_reason=finish_reason,
        prompt_tokens=_tokens(told.get("prompt_tokens"), size),
        completion_tokens=_tokens(told.get("completion_tokens"), answer),
        latency_ms=latency_ms,
        thoughts=thoughts,
        is_counted=_is_count(told.get("prompt_tokens"), size),
    )


_THOUGHTS = re.compile(
    r"\s*<think(?:ing)?>(.*?)(?:</think(?:ing)?>\s*|\Z)", re.DOTALL | re.IGNORECASE
)


def _plain(content: object) -> str:
    """Return the text of a message; some servers send it in parts."""
    if isinstance(content, str):
        return content
    if isinstance(content, list):
        parts = [part.get("text") for part in content if isinstance(part, dict)]
        if parts and all(isinstance(part, str) for part in parts):
            return "".join(map(str, parts))
    return json.dumps(content)


def _usage(text: str) -> Json:
    """Return what the endpoint says that the request cost, {} if it says nothing."""
    try:
        usage = json.loads(text).get("usage")
    except (ValueError, AttributeError, RecursionError):
        return {}
    return cast("Json", usage) if isinstance(usage, dict) else {}


def _instead(text: str) -> tuple[str, int]:
    """Return what a body is that is no completion, and the status that it names."""
    start = text[:200].lstrip().lower()
    if start.startswith(("data:", "event:", ":")):
        return ", but a stream, which was not asked for", 0
    if start.startswith(("<!doctype", "<html")):
        return ", but a web page (is base_url right?)", 0
    try:
        error = json.loads(text)["error"]
    except (ValueError, LookupError, TypeError, RecursionError):
        return "", 0
    message, code = error, None
    if isinstance(error, dict):
        message, code = error.get("message"), error.get("code")
    if not isinstance(message, str) or not message.strip():
        return "", 0
    words = "".join(c if c.isprintable() else " " for c in _whole(message[:2000]))
    status = code if isinstance(code, int) and 400 <= code <= 599 else 0
    return f", but an error: {' '.join(words.split())[:200]}", status


def _tool_call(call: Json) -> ToolCall:
    function = call["function"]
    arguments = function.get("arguments")
    if not isinstance(arguments, str):  # some servers send the object itself
        arguments = json.dumps(arguments or {})
    name = _whole(str(function["name"]))
    return ToolCall(_whole(str(call.get("id") or "")), name, _whole(arguments))


def _whole(text: str) -> str:
    """Return a text without halves of characters, which can neither be stored nor sent again.

    They may also be written out, in JSON within the text.
    """
    text = text.encode("utf-8", errors="replace").decode()
    return _HALVES.sub(r"\\ufffd", text)


_HALVES = re.compile(
    r"\\u[dD][89abAB][0-9a-fA-F]{2}(?!\\u[dD][c-fC-F][0-9a-fA-F]{2})"
    r"|(?<!\\u[dD][89abAB][0-9a-fA-F]{2})\\u[dD][c-fC-F][0-9a-fA-F]{2}"
)


def _is_count(told: object, size: int) -> bool:
    """Return whether a number can be the tokens of so many characters; 0 is told for "unknown"."""
    least, most = (1 if size else 0), TOKENS_A_CHAR * size + HIDDEN_TOKENS
    return isinstance(told, int) and not isinstance(told, bool) and least <= told <= most


def _tokens(told: object, size: int) -> int:
    """Return the number of tokens that was told, else what so many characters have."""
    if _is_count(told, size):
        return cast("int", told)
    return size // 3  # a cautious guess: prose has 3.8 characters a token, logs 2.2
