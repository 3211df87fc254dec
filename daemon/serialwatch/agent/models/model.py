"""Ask a model: one chat completion from any OpenAI-compatible endpoint, inside a deadline."""

from __future__ import annotations

import asyncio
import json
import logging
import random
import time
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from urllib.parse import urlsplit

import httpx2
import openai
from openai import AsyncOpenAI

from serialwatch.agent.models.abilities import Abilities
from serialwatch.agent.models.breaker import Breaker
from serialwatch.agent.models.completion import Completion, NoCompletionError, read_completion
from serialwatch.agent.models.endpoint_http import CONNECT_LIMIT_S, REQUEST_LIMIT_S, open_client
from serialwatch.agent.models.spending import Account, unlimited
from serialwatch.wire import Json

TRIES = 3
MAX_WAIT_S = 8.0  # between two tries
MAX_WAITS_S = 20.0  # in one completion, Retry-After included
MAX_LESSONS = 8  # refusals of one request that are answered by asking for less
THINKING_TOKENS = 2_000  # on top of the answer, for models that think first
CUT_FROM = 1_500  # tokens; a shorter prompt fits everywhere
CUT_SHARE = 0.6  # a prompt that was counted as less than this of its estimate was cut

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
    temperature: float | None = None  # None: the endpoint's own


@dataclass(frozen=True, slots=True)
class Answers:
    """Answers of earlier days: `find` returns one for a request, None if there is none."""

    find: Callable[[Json], Awaitable[Completion | None]]
    keep: Callable[[Json, Completion], None]


class ChatModel:
    """A model behind an endpoint. Close it when done.

    Making one blocks for as long as it takes to load the certificates of an https endpoint.
    """

    def __init__(
        self,
        endpoint: Endpoint,
        breaker: Breaker | None = None,
        *,
        can: Abilities | None = None,
        on_learned: Callable[[Abilities], None] = lambda _: None,
        account: Account | None = None,
        answers: Answers | None = None,
    ) -> None:
        """Prepare; nothing is asked yet. `breaker` knows how earlier requests went, `can` what was
        learned of the endpoint before; `on_learned` is told when more is.

        Raises:
            ModelError: `base_url` is no URL.

        """
        self.endpoint = endpoint
        self.can = can or Abilities()
        self.account = account or unlimited()
        self._on_learned = on_learned
        self._answers = answers
        self._breaker = breaker or Breaker()
        self._where = _host(endpoint.base_url)
        self.requests: dict[str, int] = {}  # by outcome: ok, timeout, down, status 429, ...
        self._client = AsyncOpenAI(
            base_url=endpoint.base_url,
            # The library insists on a key; a local endpoint needs none.
            api_key=endpoint.api_key or "none",
            max_retries=0,
            http_client=open_client(endpoint.base_url),
        )

    async def close(self) -> None:
        """Close its connections."""
        await self._client.close()

    async def complete(
        self,
        messages: Sequence[Json],
        *,
        tools: Sequence[Json] = (),
        tool_choice: str = "",
        schema: Json | None = None,
        max_tokens: int,
        until: float,
    ) -> Completion:
        """Return the model's answer; `until` is the end of patience in the loop's time.

        `tool_choice` names the function that it is to call, `schema` the JSON that its text is to
        be; both as far as the endpoint can.

        Raises:
            ModelError: no answer: unreachable, refused, out of quota, out of time, nonsense, left
                alone after failures, or the budget is spent.
            ToolsRefusedError: the endpoint takes no tools.

        """
        waited_s = 0.0
        for attempt in range(1, TRIES + 1):
            try:
                return await self._asked(messages, tools, tool_choice, schema, max_tokens, until)
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

    def ignores_tools(self) -> None:
        """Note that the model takes tools and does not use them."""
        if self.can.tools:
            self._learn(replace(self.can, tools=False))

    async def list_models(self, limit_s: float = REQUEST_LIMIT_S) -> list[str] | None:
        """Return the names of the endpoint's models, None if it does not tell them.

        Raises:
            ModelError: it is not reachable, or refuses the key.

        """
        try:
            async with asyncio.timeout(limit_s):
                raw = await self._client.models.with_raw_response.list()
        except TimeoutError as exc:
            raise ModelError(f"{self._where}: no answer in {limit_s:.0f} s") from exc
        except openai.APIConnectionError as exc:
            raise ModelError(self._lost(exc)) from exc
        except openai.APIStatusError as exc:
            if exc.status_code in {401, 403}:
                raise ModelError(self._why(exc)) from exc
            return None
        except openai.OpenAIError as exc:
            raise ModelError(f"{self._where}: {exc}") from exc
        try:
            return [str(model["id"]) for model in json.loads(raw.text)["data"]]
        except (ValueError, LookupError, TypeError):
            return None

    async def _asked(
        self,
        messages: Sequence[Json],
        tools: Sequence[Json],
        tool_choice: str,
        schema: Json | None,
        max_tokens: int,
        until: float,
    ) -> Completion:
        """Ask once, and again for less where the endpoint cannot do all of it."""
        for _ in range(MAX_LESSONS):
            if tools and not self.can.tools:
                raise ToolsRefusedError(f"{self._where}: {self.endpoint.model} takes no tools")
            asked = _request(self.endpoint, self.can, messages, tools, tool_choice, schema,
                             max_tokens)  # fmt: skip
            try:
                return await self._once(asked, until)
            except _LessonError as exc:
                why = str(exc)
        raise ModelError(why)

    async def _once(self, asked: Json, until: float) -> Completion:
        if self._answers and (known := await self._answers.find(asked)) is not None:
            self._count("cached")
            return replace(known, prompt_tokens=0, completion_tokens=0, latency_ms=0)
        if refusal := self._breaker.refusal():
            raise ModelError(refusal)
        limit_s = min(REQUEST_LIMIT_S, until - asyncio.get_running_loop().time())
        if limit_s <= 0:
            raise ModelError("out of time")
        size = len(json.dumps(asked, ensure_ascii=False))
        if refusal := self.account.refusal(size // 3 + int(asked[self.can.limit_name])):
            raise ModelError(refusal)
        self._breaker.asking()
        started = time.monotonic()
        try:
            async with asyncio.timeout(limit_s):
                raw = await self._client.chat.completions.with_raw_response.create(**asked)
        except asyncio.CancelledError:
            self._bill(size // 3, 0)
            raise
        except TimeoutError as exc:
            self._bill(size // 3, 0)  # nobody tells, but it has worked for us
            raise self._failed("timeout", f"{self._where}: no answer in {limit_s:.0f} s") from exc
        except openai.APIConnectionError as exc:
            if not isinstance(exc.__cause__, _NOT_CONNECTED):
                self._bill(size // 3, 0)
            is_late = isinstance(exc, openai.APITimeoutError)
            raise self._failed("timeout" if is_late else "down", self._lost(exc)) from exc
        except openai.APIStatusError as exc:
            self._count(f"status {exc.status_code}")
            raise self._refused(exc, asked) from exc
        except openai.OpenAIError as exc:
            self._bill(size // 3, 0)
            self._breaker.failed(f"{self._where}: {exc}")
            raise ModelError(f"{self._where}: {exc}") from exc
        latency_ms = round((time.monotonic() - started) * 1000)
        try:
            completion = read_completion(raw.text, size, latency_ms)
        except NoCompletionError as exc:
            self._bill(exc.prompt_tokens, exc.completion_tokens)
            why = f"{self._where}: {self._without_key(str(exc))}"
            self._breaker.failed(why)
            raise (_RetryableError if _is_passing(exc.status) else ModelError)(why) from exc
        self._count("ok")
        self._breaker.succeeded()
        self._bill(completion.prompt_tokens, completion.completion_tokens)
        self._look_at(completion, size)
        if self._answers and completion.finish_reason in {"stop", "tool_calls"}:
            self._answers.keep(asked, completion)
        return completion

    def _look_at(self, completion: Completion, size: int) -> None:
        """Learn from an answer what no refusal tells."""
        estimate = size / 3.8
        is_cut = (
            completion.is_counted
            and estimate >= CUT_FROM
            and completion.prompt_tokens < CUT_SHARE * estimate
        )
        if is_cut and not self.can.cuts_context:
            log.warning(
                "%s: the endpoint cuts prompts: %d tokens of about %d; give it a larger context, "
                "or lower [agent] context_tokens",
                self._where,
                completion.prompt_tokens,
                round(estimate),
            )
            self._learn(replace(self.can, cuts_context=True))
        if completion.thoughts and not self.can.reasons:
            self._learn(replace(self.can, reasons=True))

    def _learn(self, can: Abilities) -> None:
        self.can = can
        self._on_learned(can)

    def _bill(self, prompt_tokens: int, completion_tokens: int) -> None:
        self.account.spent(self.endpoint.model, prompt_tokens, completion_tokens)

    def _lost(self, exc: openai.APIConnectionError) -> str:
        cause = exc.__cause__
        if isinstance(cause, httpx2.ConnectTimeout):
            return f"{self._where}: not reachable: no connection in {CONNECT_LIMIT_S:.0f} s"
        words = str(cause or exc) or "no connection"
        if isinstance(cause, _NOT_CONNECTED):
            return f"{self._where}: not reachable: {words}"
        if isinstance(exc, openai.APITimeoutError):
            return f"{self._where}: no answer in {REQUEST_LIMIT_S:.0f} s"
        return f"{self._where}: the connection broke: {words}"

    def _failed(self, outcome: str, why: str) -> _RetryableError:
        self._count(outcome)
        self._breaker.failed(why)
        return _RetryableError(why)

    def _count(self, outcome: str) -> None:
        self.requests[outcome] = self.requests.get(outcome, 0) + 1

    def _without_key(self, told: str) -> str:
        """Return what an endpoint said; some say which key it was."""
        key = self.endpoint.api_key
        return told.replace(key, "(the key)") if key else told

    def _why(self, exc: openai.APIStatusError) -> str:
        told = self._without_key(_told(exc))
        why = f"{self._where}: HTTP {exc.status_code}: {told[:200]}"
        if exc.status_code in {401, 403}:
            return f"{why} (is the key right?)"
        if 300 <= exc.status_code < 400:
            return f"{self._where}: HTTP {exc.status_code}: it redirects{_elsewhere(exc)}"
        if exc.status_code == 404 and not urlsplit(self.endpoint.base_url).path.strip("/"):
            return f"{why} (does base_url lack a /v1 at its end?)"
        return why

    def _refused(self, exc: openai.APIStatusError, asked: Json) -> Exception:
        why = self._why(exc)
        told = " ".join(filter(None, (_told(exc), str(exc.param or ""), str(exc.code or ""))))
        if exc.status_code in {400, 404, 422, 500, 501} and (
            can := self.can.after_refusal(told, asked)
        ):
            log.info("%s: asked for less from now on: %s", self._where, why)
            self._learn(can)
            self._breaker.succeeded()  # it is there, and speaks
            return _LessonError(why)
        is_spent = exc.status_code == 429 and "insufficient_quota" in told
        is_key_wrong = exc.status_code in {401, 403}
        if is_spent:
            why += " (the quota is spent)"
        self._breaker.failed(why, is_final=is_key_wrong or is_spent)
        if is_key_wrong or is_spent:
            return ModelError(why)
        if _is_passing(exc.status_code):
            return _RetryableError(why, _retry_after_s(exc.response.headers))
        return ModelError(why)


def _is_passing(status: int) -> bool:
    """Return whether a refusal may be over in a moment."""
    return status in {408, 409, 429} or status >= 500


_NOT_CONNECTED = (httpx2.ConnectError, httpx2.ConnectTimeout)


class _RetryableError(Exception):
    def __init__(self, why: str, wait_s: float = 0.0) -> None:
        super().__init__(why)
        self.wait_s = wait_s


class _LessonError(Exception):
    """The endpoint cannot do a part of it, which was noted: the rest may be asked."""


def _request(
    endpoint: Endpoint,
    can: Abilities,
    messages: Sequence[Json],
    tools: Sequence[Json],
    tool_choice: str,
    schema: Json | None,
    max_tokens: int,
) -> Json:
    """Return the body of a request with everything that the endpoint can do."""
    asked: Json = {
        "model": endpoint.model,
        "messages": list(messages),
        can.limit_name: max_tokens + (THINKING_TOKENS if can.reasons else 0),
    }
    if endpoint.temperature is not None and can.temperature:
        asked["temperature"] = endpoint.temperature
    if tools:
        asked["tools"] = list(tools)
        if tool_choice and can.tool_choice == "named":
            asked["tool_choice"] = {"type": "function", "function": {"name": tool_choice}}
        elif tool_choice and can.tool_choice == "required":
            asked["tool_choice"] = "required"
    if schema is not None and can.response_format == "json_schema":
        named = {"name": "answer", "schema": schema}
        asked["response_format"] = {"type": "json_schema", "json_schema": named}
    elif schema is not None and can.response_format == "json_object":
        asked["response_format"] = {"type": "json_object"}
    return asked


def _told(exc: openai.APIStatusError) -> str:
    """Return what the endpoint said, in one printable line."""
    body = exc.body
    message = body.get("message") if isinstance(body, dict) else None
    if not isinstance(message, str) and isinstance(body, dict) and body:
        message = json.dumps(body)[:2000]  # such as FastAPI's list of what is wrong where
    text = str(message or exc.message or "")
    return "".join(c if c.isprintable() else " " for c in text).strip() or "no reason given"


def _elsewhere(exc: openai.APIStatusError) -> str:
    try:
        host = urlsplit(exc.response.headers.get("location", "")).netloc.rpartition("@")[2]
    except ValueError:
        host = ""
    shown = "".join(c for c in host if c.isprintable())[:100]
    return f" to {shown}; say so in base_url if that is right" if shown else ""


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
