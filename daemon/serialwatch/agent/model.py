"""Ask a model: one chat completion from any OpenAI-compatible endpoint, inside a deadline."""

from __future__ import annotations

import asyncio
import json
import logging
import random
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal, cast
from urllib.parse import urlsplit

import httpx2
import openai
from openai import AsyncOpenAI

from serialwatch.agent.breaker import Breaker

Json = dict[str, Any]

REQUEST_LIMIT_S = 60.0
CONNECT_LIMIT_S = 3.0
TRIES = 3
MAX_WAIT_S = 8.0  # between two tries
MAX_WAITS_S = 20.0  # in one completion, Retry-After included

log = logging.getLogger(__name__)


class ModelError(Exception):
    """The model gave no usable answer; the message is fit for a report."""


class ToolsRefusedError(ModelError):
    """The endpoint takes no `tools`; JSON actions in plain text may work."""


@dataclass(frozen=True, slots=True)
class Endpoint:
    """Where and what to ask."""

    base_url: str
    model: str
    api_key: str = ""
    first_wait_s: float = 0.5  # before the second try; doubles


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

    @property
    def tokens(self) -> int:
        """Return what the request cost."""
        return self.prompt_tokens + self.completion_tokens


class ChatModel:
    """A model behind an endpoint. Close it when done.

    Making one blocks for as long as it takes to load the certificates of an https endpoint.
    """

    def __init__(self, endpoint: Endpoint, breaker: Breaker | None = None) -> None:
        """Prepare; nothing is asked yet. `breaker` knows how earlier requests went.

        Raises:
            ModelError: `base_url` is no URL.

        """
        self.endpoint = endpoint
        self._breaker = breaker or Breaker()
        self._where = _host(endpoint.base_url)
        self.requests: dict[str, int] = {}  # by outcome: ok, timeout, down, status 429, ...
        self._limit_name: Literal["max_tokens", "max_completion_tokens"] = "max_tokens"
        self._client = AsyncOpenAI(
            base_url=endpoint.base_url,
            # The library insists on a key; a local endpoint needs none.
            api_key=endpoint.api_key or "none",
            max_retries=0,
            http_client=_http_client(endpoint.base_url),
        )

    async def close(self) -> None:
        """Close its connections."""
        await self._client.close()

    async def complete(
        self,
        messages: Sequence[Json],
        *,
        tools: Sequence[Json] = (),
        max_tokens: int,
        until: float,
    ) -> Completion:
        """Return the model's answer; `until` is the end of patience in the loop's time.

        Raises:
            ModelError: no answer: unreachable, refused, out of quota, out of time, nonsense, or
                left alone after failures.
            ToolsRefusedError: the endpoint takes no tools.

        """
        waited_s = 0.0
        for attempt in range(1, TRIES + 1):
            try:
                return await self._once(messages, tools, max_tokens, until)
            except _RetryableError as exc:
                wait_s = max(
                    exc.wait_s,
                    min(self.endpoint.first_wait_s * 2 ** (attempt - 1), MAX_WAIT_S)
                    * random.uniform(0.8, 1.2),
                )
                waited_s += wait_s
                left_s = until - asyncio.get_running_loop().time()
                is_over = attempt == TRIES or waited_s > MAX_WAITS_S or wait_s > left_s
                if is_over or self._breaker.is_open:
                    raise ModelError(str(exc)) from exc
                await asyncio.sleep(wait_s)
        raise AssertionError("the last try returns or raises")

    async def _once(
        self, messages: Sequence[Json], tools: Sequence[Json], max_tokens: int, until: float
    ) -> Completion:
        if refusal := self._breaker.refusal():
            raise ModelError(refusal)
        limit_s = min(REQUEST_LIMIT_S, until - asyncio.get_running_loop().time())
        if limit_s <= 0:
            raise ModelError("out of time")
        asked: Json = {
            "model": self.endpoint.model,
            "messages": list(messages),
            self._limit_name: max_tokens,
        }
        if tools:
            asked["tools"] = list(tools)
        self._breaker.asking()
        started = time.monotonic()
        try:
            async with asyncio.timeout(limit_s):
                raw = await self._client.chat.completions.with_raw_response.create(**asked)
        except (TimeoutError, openai.APITimeoutError) as exc:
            raise self._failed("timeout", f"{self._where}: no answer in {limit_s:.0f} s") from exc
        except openai.APIConnectionError as exc:
            why = str(exc.__cause__ or exc) or "no connection"
            raise self._failed("down", f"{self._where}: not reachable: {why}") from exc
        except openai.APIStatusError as exc:
            self._count(f"status {exc.status_code}")
            if self._takes_other_limit(exc):
                return await self._once(messages, tools, max_tokens, until)
            raise self._refused(exc) from exc
        except openai.OpenAIError as exc:
            self._breaker.failed(f"{self._where}: {exc}")
            raise ModelError(f"{self._where}: {exc}") from exc
        latency_ms = round((time.monotonic() - started) * 1000)
        try:
            completion = _parse(raw.text, self._where, asked, latency_ms)
        except ModelError as exc:
            self._breaker.failed(str(exc))
            raise
        self._count("ok")
        self._breaker.succeeded()
        return completion

    def _failed(self, outcome: str, why: str) -> _RetryableError:
        self._count(outcome)
        self._breaker.failed(why)
        return _RetryableError(why)

    def _count(self, outcome: str) -> None:
        self.requests[outcome] = self.requests.get(outcome, 0) + 1

    def _takes_other_limit(self, exc: openai.APIStatusError) -> bool:
        """Switch to the newer name of the limit where the endpoint asks for it."""
        wanted = exc.status_code == 400 and "max_completion_tokens" in _told(exc)
        if not wanted or self._limit_name == "max_completion_tokens":
            return False
        self._limit_name = "max_completion_tokens"
        return True

    def _refused(self, exc: openai.APIStatusError) -> Exception:
        told = _told(exc)
        why = f"{self._where}: HTTP {exc.status_code}: {told[:200]}"
        if exc.status_code in {400, 404, 422, 500, 501} and _NO_TOOLS.intersection(
            sentence for sentence in _NO_TOOLS if sentence in told.lower()
        ):
            return ToolsRefusedError(why)
        is_spent = exc.status_code == 429 and "insufficient_quota" in told + str(exc.code)
        is_key_wrong = exc.status_code in {401, 403}
        if is_key_wrong:
            why += " (is the key right?)"
        elif is_spent:
            why += " (the quota is spent)"
        self._breaker.failed(why, is_final=is_key_wrong or is_spent)
        if is_key_wrong or is_spent:
            return ModelError(why)
        if exc.status_code in {408, 409, 429} or exc.status_code >= 500:
            return _RetryableError(why, _retry_after_s(exc.response.headers))
        return ModelError(why)


class _RetryableError(Exception):
    def __init__(self, why: str, wait_s: float = 0.0) -> None:
        super().__init__(why)
        self.wait_s = wait_s


# What endpoints say when a model cannot call tools; seen in llama.cpp, Ollama, vLLM and proxies.
_NO_TOOLS = frozenset(
    {
        "does not support tools",
        "tools param requires",
        "unsupported param: tools",
        "does not support function calling",
        "tool calling is not supported",
        '"auto" tool choice requires',
    }
)


def _told(exc: openai.APIStatusError) -> str:
    """Return what the endpoint said, in one printable line."""
    body = exc.body
    message = body.get("message") if isinstance(body, dict) else None
    text = str(message or exc.message or "")
    return "".join(c if c.isprintable() else " " for c in text).strip() or "no reason given"


def _retry_after_s(headers: Mapping[str, str]) -> float:
    try:
        return max(0.0, float(headers.get("retry-after", "0")))
    except ValueError:  # a date; our own back-off will do
        return 0.0


def _host(base_url: str) -> str:
    """Return the endpoint for messages, without anything secret that its URL may hold."""
    try:
        host = urlsplit(base_url).netloc.rpartition("@")[2]
    except ValueError:
        host = ""
    if not host:
        raise ModelError("[agent] base_url is no URL such as http://127.0.0.1:8080/v1")
    return host


def _http_client(base_url: str) -> httpx2.AsyncClient:
    """Return a client that follows no redirect: the key is for this endpoint only."""
    return httpx2.AsyncClient(
        base_url=base_url,
        timeout=httpx2.Timeout(REQUEST_LIMIT_S, connect=CONNECT_LIMIT_S),
        # Without TLS there is nothing to verify, and loading the certificates takes long.
        verify=not base_url.lower().startswith("http://"),
        follow_redirects=False,
    )


def _parse(text: str, where: str, asked: Json, latency_ms: int) -> Completion:
    """Return the completion in a response body.

    Raises:
        ModelError: the body is no chat completion.

    """
    try:
        body = json.loads(text)
        choice = body["choices"][0]
        message = choice["message"]
        content = message.get("content") or ""
        calls = tuple(_tool_call(call) for call in message.get("tool_calls") or ())
    except (ValueError, LookupError, TypeError, AttributeError) as exc:
        raise ModelError(f"{where}: the answer is no chat completion") from exc
    if not isinstance(content, str):
        content = json.dumps(content)
    usage = body.get("usage")
    told = cast(Json, usage) if isinstance(usage, dict) else {}
    answer = content + "".join(call.arguments for call in calls)
    return Completion(
        text=content,
        calls=calls,
        finish_reason=str(choice.get("finish_reason") or ""),
        prompt_tokens=_tokens(told.get("prompt_tokens"), json.dumps(asked)),
        completion_tokens=_tokens(told.get("completion_tokens"), answer),
        latency_ms=latency_ms,
    )


def _tool_call(call: Json) -> ToolCall:
    function = call["function"]
    arguments = function.get("arguments")
    if not isinstance(arguments, str):  # some servers send the object itself
        arguments = json.dumps(arguments or {})
    return ToolCall(str(call.get("id") or ""), str(function["name"]), arguments)


def _tokens(told: object, text: str) -> int:
    if isinstance(told, int) and not isinstance(told, bool) and told >= 0:
        return told
    return len(text) // 3  # a cautious guess: prose has 3.8 characters a token, logs 2.2
