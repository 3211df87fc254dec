"""`POST /v1/ports/PORT/release` and `take_back`: a port for another program, e.g. a flasher.

A release with `ttl_s` is answered at once. One without lasts as long as its request: the answer is
a row of JSON when the port is closed, and another if somebody takes it back. With `pid` its process
tells which command it has started: what it lent for, should both the daemon and that process end.
"""

from __future__ import annotations

import asyncio
import contextlib
import json

from aiohttp import web

from serialwatch.api.answers import ending, has_left
from serialwatch.api.attach import Consoles, audited
from serialwatch.api.bench import AuditEntry, Bench, BenchError, Loan, PortView
from serialwatch.api.caller import Caller
from serialwatch.api.parameters import body_of
from serialwatch.wire import Json, show

MAX_TTL_S = 24 * 3600.0
MAX_COMMAND = 200  # characters that are kept of it
LOOK_S = 0.05  # how often it is looked whether the borrower is still there
WRITE_LIMIT_S = 5.0


class ReleaseRoute:
    """Lends ports."""

    def __init__(self, bench: Bench, consoles: Consoles) -> None:
        self._bench = bench
        self._consoles = consoles
        self._is_stopping = False

    def close(self) -> None:
        """End every answer soon. What is lent stays lent while its borrower lives."""
        self._is_stopping = True

    async def release(
        self, request: web.Request, port: PortView, caller: Caller
    ) -> web.StreamResponse:
        """Close a port, and keep it closed while the request is open or for `ttl_s`."""
        body = await body_of(request, {"ttl_s", "command", "pid"})
        if "pid" in body:
            self._bench.note_command(port.name, caller.who, _pid(body))
            return web.json_response({"port": port.name, "pid": body["pid"]})
        ttl_s, words = _ttl_s(body), _words(body)
        writer = self._consoles.writer(port.name)
        if writer is not None and writer.uid != caller.who.uid:
            raise BenchError(
                "not_now",
                f"{writer.user} (pid {writer.pid}) is typing on {port.name}",
                "wait until they have left, or take the lease with `serialwatch attach --steal`",
            )
        detail = {"for": words} | ({} if ttl_s is None else {"ttl_s": f"{ttl_s:g}"})
        entry = AuditEntry(caller.who, "release", port.name, 0, detail, "ok")
        releasing = self._bench.release(port.name, caller.who, words, ttl_s)
        loan = await audited(self._bench, entry, releasing)
        row = {"kind": "released", "port": port.name, "device": loan.device}
        if ttl_s is not None:
            return web.json_response(row | {"ttl_s": ttl_s})
        return await self._follow(request, loan, row)

    async def take_back(
        self, request: web.Request, port: PortView, caller: Caller
    ) -> web.StreamResponse:
        """Open a released port again, whoever has it."""
        await body_of(request, set())
        entry = AuditEntry(caller.who, "take_back", port.name, 0, {"lent": port.problem}, "ok")
        await audited(self._bench, entry, self._bench.take_back(port.name, caller.who))
        return web.json_response({"port": port.name})

    async def _follow(self, request: web.Request, loan: Loan, first: Json) -> web.StreamResponse:
        response = web.StreamResponse(headers={"Content-Type": "application/x-ndjson"})
        response.enable_chunked_encoding()
        try:
            with ending(request):
                await response.prepare(request)
                await _write(response, first)
                while not (has_left(request) or self._is_stopping or loan.ended.is_set()):
                    with contextlib.suppress(TimeoutError):
                        async with asyncio.timeout(LOOK_S):
                            await loan.ended.wait()
                if loan.ended.is_set():
                    await _write(response, {"kind": "taken_back", "by": loan.ended_by})
                await response.write_eof()
        finally:
            if self._is_stopping:
                self._bench.leave(loan)
            else:
                self._bench.give_back(loan)
        return response


def _ttl_s(body: Json) -> float | None:
    ttl_s = body.get("ttl_s")
    if ttl_s is None:
        return None
    if isinstance(ttl_s, bool) or not isinstance(ttl_s, int | float) or not 0 < ttl_s <= MAX_TTL_S:
        raise BenchError(
            "bad_request", f"ttl_s must be seconds up to {MAX_TTL_S:.0f}, not {ttl_s!r}"
        )
    return float(ttl_s)


def _pid(body: Json) -> int:
    pid = body["pid"]
    if isinstance(pid, bool) or not isinstance(pid, int) or pid <= 0 or len(body) > 1:
        raise BenchError("bad_request", f"pid must be a process, and nothing beside it: {pid!r}")
    return pid


def _words(body: Json) -> str:
    command = body.get("command", "")
    if not isinstance(command, str):
        raise BenchError("bad_request", "command must be text")
    words = show(command.strip()[:MAX_COMMAND].encode(errors="replace"))
    return f"`{words}`" if words else "another program"


async def _write(response: web.StreamResponse, row: Json) -> None:
    async with asyncio.timeout(WRITE_LIMIT_S):
        await response.write(json.dumps(row, separators=(",", ":")).encode() + b"\n")
