"""A local server that speaks chat completions: it plays a list of answers, in order."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

from aiohttp import web

Json = dict[str, Any]


@dataclass(frozen=True)
class Say:
    """An assistant message: text, tool calls as (name, arguments), or both."""

    text: str = ""
    calls: Sequence[tuple[str, Json | str]] = ()
    tokens: tuple[int, int] = (100, 20)
    finish_reason: str = "stop"
    more: Json = field(default_factory=dict)  # keys of the message such as reasoning_content
    is_counted: bool = True  # it tells the tokens


@dataclass(frozen=True)
class Fail:
    """An HTTP error in the usual shape."""

    status: int
    message: str = "no"
    headers: dict[str, str] = field(default_factory=dict)
    code: str | None = None


@dataclass(frozen=True)
class Raw:
    """A body as it is, with status 200."""

    body: str
    content_type: str = "application/json"
    headers: dict[str, str] = field(default_factory=dict)


@dataclass(frozen=True)
class Hang:
    """No answer until the server closes."""


@dataclass(frozen=True)
class Broken:
    """A body that ends before its length, or never: then `chunk` comes again and again."""

    chunk: bytes = b" " * 65536
    is_endless: bool = False


Answer = Say | Fail | Raw | Hang | Broken
Script = Sequence[Answer] | Callable[[Json], Answer]


class ChatServer:
    """Serves until closed; `requests` has each body it was sent. The last answer repeats."""

    def __init__(self, script: Script, models: Answer | None = None) -> None:
        """`models` answers the question which models there are."""
        self.keys: list[str] = []  # the Authorization of each request
        self.requests: list[Json] = []
        self.base_url = ""
        self._script = script
        self._closing = asyncio.Event()
        self._calls = 0
        app = web.Application(client_max_size=16 * 1024 * 1024)
        app.router.add_post("/v1/chat/completions", self._complete)
        self._models = models or Fail(404, "not found")
        app.router.add_get("/v1/models", self._list)
        self._runner = web.AppRunner(app, shutdown_timeout=1, access_log=None)

    async def __aenter__(self) -> ChatServer:
        await self._runner.setup()
        site = web.TCPSite(self._runner, "127.0.0.1", 0)
        await site.start()
        port = self._runner.addresses[0][1]
        self.base_url = f"http://127.0.0.1:{port}/v1"
        return self

    async def __aexit__(self, *exc: object) -> None:
        self._closing.set()
        await self._runner.cleanup()

    async def _complete(self, request: web.Request) -> web.StreamResponse:
        body = await request.json()
        self.requests.append(body)
        self.keys.append(request.headers.get("Authorization", ""))
        return await self._answered(request, self._next(body), body)

    async def _list(self, request: web.Request) -> web.StreamResponse:
        return await self._answered(request, self._models, {})

    async def _answered(
        self, request: web.Request, answer: Answer, body: Json
    ) -> web.StreamResponse:
        if isinstance(answer, Broken):
            return await self._broken(request, answer)
        if isinstance(answer, Hang):
            await self._closing.wait()
            return web.Response(status=503)
        if isinstance(answer, Raw):
            return web.Response(
                text=answer.body, content_type=answer.content_type, headers=answer.headers
            )
        if isinstance(answer, Fail):
            error = {"message": answer.message, "type": "error", "code": answer.code}
            return web.json_response({"error": error}, status=answer.status, headers=answer.headers)
        return web.json_response(self._said(answer, body))

    async def _broken(self, request: web.Request, answer: Broken) -> web.StreamResponse:
        response = web.StreamResponse(headers={"Content-Type": "application/json"})
        if not answer.is_endless:
            response.content_length = 2 * len(answer.chunk)
        await response.prepare(request)
        try:
            await response.write(answer.chunk)
            while answer.is_endless and not self._closing.is_set():
                await response.write(answer.chunk)
        except ConnectionError:
            pass
        if request.transport is not None:
            request.transport.close()
        return response

    def _next(self, body: Json) -> Answer:
        if callable(self._script):
            return self._script(body)
        return self._script[min(len(self.requests), len(self._script)) - 1]

    def _said(self, answer: Say, body: Json) -> Json:
        message: Json = {"role": "assistant", "content": answer.text or None, **answer.more}
        if answer.calls:
            message["tool_calls"] = [self._call(name, args) for name, args in answer.calls]
        prompt, completion = answer.tokens
        usage = {
            "prompt_tokens": prompt,
            "completion_tokens": completion,
            "total_tokens": prompt + completion,
        }
        return {
            "id": f"chatcmpl-{len(self.requests)}",
            "object": "chat.completion",
            "created": 0,
            "model": body["model"],
            "choices": [{"index": 0, "message": message, "finish_reason": answer.finish_reason}],
            **({"usage": usage} if answer.is_counted else {}),
        }

    def _call(self, name: str, args: Json | str) -> Json:
        self._calls += 1
        text = args if isinstance(args, str) else json.dumps(args)
        return {
            "id": f"call_{self._calls}",
            "type": "function",
            "function": {"name": name, "arguments": text},
        }
