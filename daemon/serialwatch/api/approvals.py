"""Actions that wait for a person, over the API: listed, shown as they would be done, decided."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Literal

from aiohttp import web

from serialwatch.api.attach import Consoles, last_lines
from serialwatch.api.bench import Bench, BenchError
from serialwatch.api.caller import Caller
from serialwatch.api.parameters import body_of, encoded, known_only, one_of, whole
from serialwatch.store.approvals import OPEN, STATES, ApprovalState
from serialwatch.wire import Json, iso, show

MAX_LIST = 1_000
MAX_NOTE = 500  # characters
MAX_LINE = 160  # bytes of what a board shows now
LISTS: Mapping[str, tuple[ApprovalState, ...]] = {
    "open": OPEN,
    "all": STATES,
    **{state: (state,) for state in STATES},
}


class ApprovalRoutes:
    """`/v1/approvals`."""

    def __init__(self, bench: Bench, consoles: Consoles) -> None:
        self._bench = bench
        self._consoles = consoles

    async def list_approvals(self, request: web.Request, caller: Caller) -> web.StreamResponse:
        """Answer `GET /v1/approvals`."""
        query = request.query
        known_only(query, {"state", "port", "incident", "limit"})
        state = one_of(query.get("state", "open"), "state", LISTS)
        found = await self._bench.approvals.find(
            LISTS[state],
            query.get("port", ""),
            whole(query, "incident", 1),
            whole(query, "limit", 1, MAX_LIST) or 100,
        )
        return web.json_response({"approvals": list(found)})

    async def show(self, request: web.Request, caller: Caller) -> web.StreamResponse:
        """Answer `GET /v1/approvals/ID`."""
        known_only(request.query, set())
        named = _id(request)
        found = await self._bench.approvals.get(named)
        if found is None:
            raise no_approval(named)
        return web.json_response(found | {"now": self._now(str(found["port"]))})

    async def decide(self, request: web.Request, caller: Caller) -> web.StreamResponse:
        """Answer `POST /v1/approvals/ID`."""
        body = await body_of(request, {"decision", "note"})
        decision: Literal["approve", "deny"] = one_of(  # type: ignore[assignment]  # checked
            body.get("decision"), "decision", ("approve", "deny")
        )
        note = body.get("note", "")
        if not isinstance(note, str) or len(note) > MAX_NOTE:
            raise BenchError("bad_request", f"note must be at most {MAX_NOTE} characters")
        note = show(encoded(" ".join(note.split())))
        return web.json_response(
            await self._bench.approvals.decide(_id(request), decision, note, caller.who)
        )

    def _now(self, port: str) -> Json:
        """Return what a person should know of a port before they decide."""
        view = self._bench.port(port)
        if view is None:
            return {"state": "not configured"}
        recent = self._bench.recent(port)
        lines = last_lines(recent, 1).splitlines()
        is_complete = recent.endswith(b"\n" if b"\n" in recent else b"\r")
        writer = self._consoles.writer(port)
        return {
            "state": view.state,
            "device": view.opened or view.device,
            "boot": view.boot,
            "attached": self._consoles.attached(port),
            "writer": writer.user if writer else "",
            "last_line": show(lines[-1][:MAX_LINE]) if lines else "",
            "last_seq": view.next_seq - is_complete if lines else 0,
            "last_rx_at": iso(view.last_rx_utc_ns) if view.last_rx_utc_ns else None,
        }


def no_approval(id: str) -> BenchError:
    """Return the complaint that there is no such action."""
    hint = "`serialwatch approvals list` lists them"
    return BenchError("not_found", f"no action {id[:40]!r}", hint)


def _id(request: web.Request) -> str:
    return request.match_info["id"].upper()
