"""Find out what a configured endpoint can do, with a handful of small requests."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from dataclasses import dataclass, replace
from typing import Literal

from serialwatch.agent.models.completion import Completion
from serialwatch.agent.models.endpoint_http import REQUEST_LIMIT_S
from serialwatch.agent.models.model import (
    ChatModel,
    Endpoint,
    ModelError,
    ToolsRefusedError,
)
from serialwatch.agent.models.model_use import ModelSetup
from serialwatch.agent.models.spending import unlimited
from serialwatch.wire import Json

Verdict = Literal["yes", "no", "partly", "unknown"]

ANSWER_TOKENS = 300  # of one answer: models that think need room for it
CONTEXT_SHARE = 0.8  # of the configured context that the test fills
CODE_WORD = "heron-4711"


@dataclass(frozen=True, slots=True)
class Finding:
    """One thing that an endpoint can or cannot do."""

    name: str
    verdict: Verdict
    words: str = ""
    follows: str = ""  # what this means for the agent, "" if nothing
    is_fatal: bool = False  # the agent cannot use this endpoint


LOOK: Json = {
    "type": "function",
    "function": {
        "name": "look",
        "description": "Returns the state of a port.",
        "parameters": {
            "type": "object",
            "properties": {"port": {"type": "string", "enum": ["dut1", "dut2"]}},
            "required": ["port"],
            "additionalProperties": False,
        },
    },
}
VERDICT: Json = {
    "type": "object",
    "properties": {"answer": {"type": "string", "enum": ["yes", "no"]}},
    "required": ["answer"],
    "additionalProperties": False,
}


class EndpointCheck:
    """Checks one endpoint; `tokens` says what it has cost so far."""

    def __init__(self, setup: ModelSetup) -> None:
        """Prepare; this blocks a little.

        Raises:
            ModelError: `base_url` is no URL.

        """
        self._setup = setup
        self._chat = ChatModel(
            Endpoint(setup.base_url, setup.model, setup.api_key, temperature=setup.temperature),
            account=unlimited(setup.caps),
        )

    @property
    def tokens(self) -> int:
        """Return what the requests have cost."""
        return self._chat.account.tokens

    @property
    def price(self) -> float:
        """Return the same in the currency of the prices, 0 if they are not known."""
        return self._chat.account.price

    async def run(self) -> AsyncIterator[Finding]:
        """Yield what is found, one thing after another; after a fatal one nothing follows."""
        try:
            async for finding in self._run():
                yield finding
                if finding.is_fatal:
                    return
        finally:
            await self._chat.close()

    async def _run(self) -> AsyncIterator[Finding]:
        yield await self._reachable()
        if cheap := self._setup.cheap_model:
            yield await self._known(cheap, "cheap model")
        yield await self._known(self._setup.model, "model")
        answer = await self._answers()
        if isinstance(answer, Finding):
            yield answer
            return
        yield _speed(answer)
        yield self._temperature()
        yield _usage(answer)
        calls = await self._tools()
        yield calls
        if calls.verdict == "yes":
            yield await self._parallel()
            yield await self._forced()
        yield await self._format("json_schema")
        yield await self._format("json_object")
        yield await self._context()

    async def _reachable(self) -> Finding:
        self._models: list[str] | None = None
        try:
            self._models = await self._chat.list_models()
        except ModelError as exc:
            return Finding("reachable", "no", str(exc), is_fatal=True)
        return Finding("reachable", "yes")

    async def _known(self, model: str, name: str) -> Finding:
        if self._models is None:
            return Finding(name, "unknown", "the endpoint does not list its models")
        count = len(self._models)
        if model in self._models or any(m.partition(":")[0] == model for m in self._models):
            return Finding(name, "yes", f"{model}, one of {count}")
        some = ", ".join(sorted(self._models)[:5]) or "none"
        # Some endpoints list less than they have: the answer decides.
        return Finding(name, "unknown", f"{model} is not listed; {count} are: {some}")

    async def _answers(self) -> Completion | Finding:
        try:
            done = await self._ask("Answer with the one word ready.")
        except ModelError as exc:
            return Finding("answers", "no", str(exc), is_fatal=True)
        return done

    def _temperature(self) -> Finding:
        if self._chat.can.temperature:
            return Finding("temperature", "yes", f"{self._setup.temperature:g}")
        follows = "the model's own temperature is used: answers vary more"
        return Finding("temperature", "no", "it takes its own only", follows)

    async def _tools(self) -> Finding:
        follows = "JSON actions will be used instead"
        try:
            done = await self._ask("Call the function look for port dut1.", tools=[LOOK])
        except ToolsRefusedError as exc:
            return Finding("tools", "no", str(exc), follows)
        except ModelError as exc:
            return Finding("tools", "unknown", str(exc))
        if not done.calls:
            words = "it takes them, but answered in words"
            return Finding("tools", "no", words, follows)
        (name, arguments) = (done.calls[0].name, done.calls[0].arguments)
        if name != "look" or not _fits(arguments, LOOK["function"]["parameters"]):
            return Finding("tools", "partly", f"it called {name[:40]}({arguments[:60]})")
        return Finding("tools", "yes", follows="native tool calls will be used")

    async def _parallel(self) -> Finding:
        try:
            done = await self._ask(
                "Call the function look twice at once: for port dut1 and for port dut2.",
                tools=[LOOK],
            )
        except ModelError as exc:
            return Finding("parallel calls", "unknown", str(exc))
        if len(done.calls) > 1:
            return Finding("parallel calls", "yes", f"{len(done.calls)} in one answer")
        return Finding("parallel calls", "no", "one in an answer", "rounds hold one call each")

    async def _forced(self) -> Finding:
        try:
            done = await self._ask("Say hello.", tools=[LOOK], tool_choice="look")
        except ModelError as exc:
            return Finding("forced calls", "unknown", str(exc))
        how = self._chat.can.tool_choice
        if how != "none" and any(call.name == "look" for call in done.calls):
            return Finding("forced calls", "yes", "by name" if how == "named" else "as required")
        return Finding("forced calls", "no", "", "the last round asks for the report in words")

    async def _format(self, kind: Literal["json_schema", "json_object"]) -> Finding:
        can = self._chat.can
        if kind == "json_object":
            can = replace(can, response_format="json_object")
        elif can.response_format != "json_schema":
            return Finding(kind, "no")
        self._chat.can = can
        question = f"Is 7 a prime number? Answer with JSON of this schema: {json.dumps(VERDICT)}"
        try:
            done = await self._ask(question, schema=VERDICT)
        except ModelError as exc:
            return Finding(kind, "unknown", str(exc))
        if self._chat.can.response_format != kind:
            return Finding(kind, "no", "refused", "the schema is asked for in words")
        if not _fits(done.text, VERDICT):
            return Finding(kind, "partly", "taken, but the answer does not fit the schema")
        return Finding(kind, "yes")

    async def _context(self) -> Finding:
        """Fill most of the configured context and see whether its beginning is still there."""
        size = self._setup.context_tokens
        text = _long_text(round(size * CONTEXT_SHARE))
        name = "context"
        smaller = "give the endpoint a larger context, or lower [agent] context_tokens"
        try:
            done = await self._ask(text, max_tokens=ANSWER_TOKENS)
        except ModelError as exc:
            words = f"a prompt of about {round(size * CONTEXT_SHARE)} tokens: {exc}"
            slow = "it is too slow for such prompts: lower [agent] context_tokens"
            return Finding(name, "no", words, slow if "no answer in" in str(exc) else smaller)
        if self._chat.can.cuts_context:
            words = f"it cut a prompt to {done.prompt_tokens} tokens without a word"
            return Finding(name, "no", words, smaller)
        counted = f"{done.prompt_tokens} tokens" if done.is_counted else "a prompt"
        seconds = f"{counted} in {done.latency_ms / 1000:.1f} s"
        if CODE_WORD not in done.text:
            return Finding(name, "partly", f"{seconds}, but it did not find the word at the start")
        return Finding(name, "yes", seconds)

    async def _ask(
        self,
        text: str,
        *,
        tools: list[Json] | None = None,
        tool_choice: str = "",
        schema: Json | None = None,
        max_tokens: int = ANSWER_TOKENS,
    ) -> Completion:
        return await self._chat.complete(
            [{"role": "user", "content": text}],
            tools=tools or (),
            tool_choice=tool_choice,
            schema=schema,
            max_tokens=max_tokens,
            until=asyncio.get_running_loop().time() + REQUEST_LIMIT_S,
        )


def _speed(done: Completion) -> Finding:
    seconds = done.latency_ms / 1000
    words = f"{seconds:.1f} s"
    if done.completion_tokens and seconds > 0:
        words += f", {done.completion_tokens / seconds:.0f} tokens/s"
    if not done.text.strip():
        why = "cut off at its length" if done.finish_reason == "length" else "empty"
        return Finding("answers", "partly", f"{words}, but the answer is {why}")
    if done.thoughts:
        return Finding("answers", "yes", words, "it thinks first: it gets more tokens an answer")
    return Finding("answers", "yes", words)


def _usage(done: Completion) -> Finding:
    if done.is_counted:
        return Finding("counts tokens", "yes")
    return Finding("counts tokens", "no", "", "tokens are estimated, cautiously")


def _fits(text: str, schema: Json) -> bool:
    """Tell whether a text is a JSON object with the one property of a schema, and its value."""
    try:
        body = json.loads(text)
    except (ValueError, RecursionError):
        return False
    ((name, about),) = schema["properties"].items()
    return isinstance(body, dict) and list(body) == [name] and body[name] in about["enum"]


def _long_text(tokens: int) -> str:
    lines = [f"The code word is {CODE_WORD}."]
    size = 0
    while size < tokens * 3.8:
        lines.append(
            f"The board on bench {len(lines)} printed that its supply was good and went on."
        )
        size += len(lines[-1])
    lines.append("What is the code word in the first line? Answer with it and nothing else.")
    return "\n".join(lines)
