"""What the bench remembers, over the API: found, explained, added, corrected and forgotten."""

from __future__ import annotations

from typing import get_args

from aiohttp import web

from serialwatch.api.bench import Bench, BenchError
from serialwatch.api.caller import Caller
from serialwatch.api.log_answer import no_port
from serialwatch.api.parameters import body_of, encoded, known_only, one_of, whole
from serialwatch.config import BOARD_NAME
from serialwatch.store.memory_gate import (
    MAX_BODY,
    MAX_LIST,
    MAX_TITLE,
    MemoryFilter,
    MemoryScope,
    MemoryStatus,
    MemoryType,
    NewMemory,
)
from serialwatch.wire import Json, show

MAX_WORDS = 300  # characters that are searched for
SAID = ("preference", "fact")  # types of what people say
STATUSES = (*get_args(MemoryStatus), "all")


class MemoryRoutes:
    """`/v1/memories`."""

    def __init__(self, bench: Bench) -> None:
        self._bench = bench

    async def list_memories(self, request: web.Request, caller: Caller) -> web.StreamResponse:
        """Answer `GET /v1/memories`."""
        query = request.query
        known_only(query, {"q", "port", "board", "type", "scope", "status", "limit"})
        words = query.get("q", "")
        if len(words) > MAX_WORDS:
            raise BenchError("bad_request", f"q must be at most {MAX_WORDS} characters")
        port, board = query.get("port", ""), query.get("board", "")
        if not board and (found_port := self._bench.port(port)) is not None:
            board = found_port.board
        wanted = MemoryFilter(
            port=port,
            type=_given(query.get("type"), "type", get_args(MemoryType)),  # type: ignore[arg-type]  # checked
            scope=_given(query.get("scope"), "scope", get_args(MemoryScope)),  # type: ignore[arg-type]  # checked
            status=_given(query.get("status"), "status", STATUSES),  # type: ignore[arg-type]  # checked
            limit=whole(query, "limit", 1, MAX_LIST) or 100,
            board=board,
        )
        found = await self._bench.memories.find(words, wanted)
        return web.json_response({"memories": list(found)})

    async def why(self, request: web.Request, caller: Caller) -> web.StreamResponse:
        """Answer `GET /v1/memories/ID`."""
        known_only(request.query, set())
        found = await self._bench.memories.why(_id(request))
        if found is None:
            raise no_memory(request.match_info["id"])
        return web.json_response(found)

    async def add(self, request: web.Request, caller: Caller) -> web.StreamResponse:
        """Answer `POST /v1/memories`."""
        body = await body_of(
            request, {"text", "title", "scope", "port", "board", "type", "priority"}
        )
        text = _text(body, "text", MAX_BODY)
        scope, name = self._scope(body, caller)
        priority = body.get("priority", 4)
        if isinstance(priority, bool) or priority not in range(6):
            raise BenchError("bad_request", "priority must be a number from 0 to 5")
        memory = NewMemory(
            type=one_of(body.get("type", "fact"), "type", SAID),  # type: ignore[arg-type]  # checked
            title=_text(body, "title", MAX_TITLE) if "title" in body else _beginning(text),
            body=text,
            priority=priority,
            source="human",
            scope=scope,
            scope_name=name,
            user_id=caller.who.user,
        )
        return web.json_response(await self._bench.memories.add(memory, caller.who))

    async def correct(self, request: web.Request, caller: Caller) -> web.StreamResponse:
        """Answer `POST /v1/memories/ID/correct`."""
        text = _text(await body_of(request, {"text"}), "text", MAX_BODY)
        return web.json_response(await self._bench.memories.correct(_id(request), text, caller.who))

    async def forget(self, request: web.Request, caller: Caller) -> web.StreamResponse:
        """Answer `POST /v1/memories/ID/forget`."""
        await body_of(request, set())
        return web.json_response(await self._bench.memories.forget(_id(request), caller.who))

    def _scope(self, body: Json, caller: Caller) -> tuple[MemoryScope, str]:
        """Return whom a memory is about: what is named decides, unless it is said."""
        port, board = body.get("port", ""), body.get("board", "")
        if not isinstance(port, str) or not isinstance(board, str) or (port and board):
            raise BenchError("bad_request", "name a port or a board, not both")
        usual = "port" if port else "board" if board else "bench"
        scope = one_of(body.get("scope", usual), "scope", get_args(MemoryScope))
        if scope == "port":
            if not port:
                raise BenchError("bad_request", "scope port: name the port")
            if self._bench.port(port) is None:
                raise no_port(self._bench, port)
            return "port", port
        if scope == "board":
            if not BOARD_NAME.fullmatch(board):
                raise BenchError("bad_request", "board must be a name of letters, digits, . _ -")
            return "board", board
        if port or board:
            raise BenchError("bad_request", f"scope {scope} is about no port and no board")
        return ("user", caller.who.user) if scope == "user" else ("bench", "")


def no_memory(number: str) -> BenchError:
    """Return the complaint that there is no such memory."""
    hint = "`serialwatch memory list` lists them"
    return BenchError("not_found", f"no memory {number[:40]!r}", hint)


def _given(value: str | None, name: str, allowed: tuple[str, ...]) -> str:
    return one_of(value, name, allowed) if value else ""


def _text(body: Json, name: str, most: int) -> str:
    text = body.get(name)
    if not isinstance(text, str) or not 1 <= len(text.strip()) <= most:
        raise BenchError("bad_request", f"{name} must be 1 to {most} characters")
    return show(encoded(" ".join(text.split())))


def _beginning(text: str) -> str:
    """Return what a text is about, where nobody says: its beginning."""
    if len(text) <= 60:
        return text
    return text[:60].rpartition(" ")[0] or text[:60]


def _id(request: web.Request) -> int:
    text = request.match_info["id"].removeprefix("M")
    if not (text.isascii() and text.isdigit() and len(text) < 19):
        raise no_memory(request.match_info["id"])
    return int(text)
