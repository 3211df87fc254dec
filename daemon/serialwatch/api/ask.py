"""`POST /v1/ask`: a question, and what is done about it, one JSON object a row as it happens."""

from __future__ import annotations

import asyncio
import json

from aiohttp import web

from serialwatch.api.answers import ending
from serialwatch.api.bench import Bench, BenchError, OpenQuestion
from serialwatch.api.caller import Caller
from serialwatch.api.log_answer import no_port
from serialwatch.api.parameters import body_of, known_only, whole
from serialwatch.wire import Json

MAX_QUESTION = 2_000  # characters
MAX_ANSWERS = 200  # stored ones, of one list
BEAT_S = 5.0  # a row at least so often, so that a client knows that we live
LOOK_S = 0.25  # how often it is looked whether the client is still there
WRITE_LIMIT_S = 30.0
MAX_OFFSET_S = 15 * 3600  # of a zone from UTC


class AskRoute:
    """Answers questions; who goes away ends the search."""

    def __init__(self, bench: Bench) -> None:
        self._bench = bench
        self._is_stopping = False

    def close(self) -> None:
        """End every answer soon; the questions are answered by the next run of the daemon."""
        self._is_stopping = True

    async def answer(self, request: web.Request, caller: Caller) -> web.StreamResponse:
        """Answer `POST /v1/ask`."""
        body = await body_of(request, {"question", "port", "utc_offset_s"})
        text, port = _question(body), _port(body)
        if port and self._bench.port(port) is None:
            raise no_port(self._bench, port)
        offset_s = body.get("utc_offset_s", 0)
        if isinstance(offset_s, bool) or not isinstance(offset_s, int) or (
            abs(offset_s) > MAX_OFFSET_S
        ):  # fmt: skip
            raise BenchError("bad_request", "utc_offset_s must be seconds east of UTC, e.g. 7200")
        questions = self._bench.questions
        question = questions.ask(text, port, caller.who, offset_s)
        try:
            response = web.StreamResponse(headers={"Content-Type": "application/x-ndjson"})
            response.enable_chunked_encoding()
            await response.prepare(request)
            with ending(request):
                await self._follow(request, response, question)
                await response.write_eof()
            return response
        finally:
            if not self._is_stopping:
                questions.leave(question)

    async def stored(self, request: web.Request, caller: Caller) -> web.StreamResponse:
        """Answer `GET /v1/answers`."""
        query = request.query
        known_only(query, {"session", "limit"})
        limit = whole(query, "limit", 1, MAX_ANSWERS) or 20
        found = await self._bench.questions.stored(query.get("session", ""), limit)
        return web.json_response({"answers": found})

    async def _follow(
        self, request: web.Request, response: web.StreamResponse, question: OpenQuestion
    ) -> None:
        """Write what comes until the answer, or until the client leaves or the daemon stops."""
        loop = asyncio.get_running_loop()
        await _write(response, {"kind": "asked", "session_id": question.session_id})
        told_s = loop.time()
        while not self._is_stopping and not _has_left(request):
            try:
                async with asyncio.timeout(LOOK_S):
                    message = await question.messages.get()
            except TimeoutError:
                if loop.time() - told_s < BEAT_S:
                    continue
                message = {"kind": "beat"}
            told_s = loop.time()
            await _write(response, message)
            if message["kind"] in ("answer", "error"):
                return
        if self._is_stopping and not _has_left(request):
            await _write(
                response,
                {
                    "kind": "error",
                    "code": "not_now",
                    "message": "the daemon stops",
                    "hint": "it is answered when it runs again: `serialwatch ask --stored`",
                },
            )


def _question(body: Json) -> str:
    text = body.get("question")
    if not isinstance(text, str) or not 1 <= len(text.strip()) <= MAX_QUESTION:
        raise BenchError("bad_request", f"question must be 1 to {MAX_QUESTION} characters")
    try:
        text.encode()
    except UnicodeEncodeError as exc:
        raise BenchError("bad_request", "question must be text in UTF-8") from exc
    return text.strip()


def _port(body: Json) -> str:
    port = body.get("port") or ""
    if not isinstance(port, str):
        raise BenchError("bad_request", "port must be a name")
    return port


def _has_left(request: web.Request) -> bool:
    return request.transport is None or request.transport.is_closing()


async def _write(response: web.StreamResponse, message: Json) -> None:
    async with asyncio.timeout(WRITE_LIMIT_S):
        await response.write(json.dumps(message, separators=(",", ":")).encode() + b"\n")
