"""What the API answers: one function a request, each with the right it needs."""

from __future__ import annotations

import asyncio
import json
import logging
import time
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, replace
from typing import Literal

from aiohttp import WSMsgType, web

from serialwatch.api.answers import cut, ending, goodbye, has_left
from serialwatch.api.approvals import ApprovalRoutes
from serialwatch.api.ask import AskRoute
from serialwatch.api.attach import AttachWish, Consoles, audited, marker_to_json
from serialwatch.api.bench import (
    AuditEntry,
    Bench,
    BenchError,
    IncidentFilter,
    IncidentView,
    PortView,
    Who,
    port_to_json,
)
from serialwatch.api.caller import Caller
from serialwatch.api.events import Event, Events
from serialwatch.api.log_answer import LogAnswer, no_port
from serialwatch.api.memories import MemoryRoutes
from serialwatch.api.paced_send import Pace, PacedSend
from serialwatch.api.parameters import (
    PACE_KEYS,
    body_of,
    bytes_to_send,
    encoded,
    known_only,
    moment,
    one_of,
    pace_of,
    whole,
)
from serialwatch.api.release import ReleaseRoute
from serialwatch.api.rights import Right
from serialwatch.api.runs import RunRoutes
from serialwatch.records import SEVERITIES, State
from serialwatch.wire import Json, incident_to_json, iso, report_to_json, show
from serialwatch_drivers.device import parse_device

log = logging.getLogger(__name__)

FOLLOWER_LIMIT_S = 30.0
KINDS = ("note", "flash", "reset")  # of markers that people set

_STATES: Mapping[str, frozenset[State]] = {
    "unresolved": IncidentFilter().states,
    "all": IncidentFilter().states | {"resolved"},
}

IncidentAction = Literal["resolve", "mute", "unmute"]
Answer = Callable[[web.Request, Caller], Awaitable[web.StreamResponse]]


@dataclass(frozen=True, slots=True)
class Route:
    """A request that is answered, and the right it takes."""

    method: str
    path: str
    right: Right
    answer: Answer


class Routes:
    """Every `/v1/` request."""

    def __init__(self, bench: Bench, consoles: Consoles, events: Events) -> None:
        self._bench = bench
        self._runs = RunRoutes(bench)
        self._ask = AskRoute(bench)
        self._release = ReleaseRoute(bench, consoles)
        self._memories = MemoryRoutes(bench)
        self._approvals = ApprovalRoutes(bench, consoles)
        self._consoles = consoles
        self._events = events
        self._logs = LogAnswer(bench)
        self._followers: set[web.WebSocketResponse] = set()

    def table(self) -> list[Route]:
        """Return all of them."""
        view, annotate, write = Right.VIEW, Right.ANNOTATE, Right.WRITE
        return [
            Route("GET", "/v1/ports", view, self._ports),
            Route("GET", "/v1/incidents", view, self._incidents),
            Route("GET", "/v1/incidents/{id}", view, self._incident),
            Route("GET", "/v1/reports/{id}", view, self._report),
            Route("GET", "/v1/logs/{port}", view, self._log),
            Route("GET", "/v1/attach/{port}", view, self._attach),
            Route("GET", "/v1/events", view, self._follow_events),
            Route("GET", "/v1/runs", view, self._runs.list_runs),
            Route("GET", "/v1/runs/{id}", view, self._runs.show),
            Route("POST", "/v1/runs/{id}/answer", annotate, self._runs.answer),
            Route("POST", "/v1/ask", view, self._ask.answer),
            Route("GET", "/v1/answers", view, self._ask.stored),
            Route("GET", "/v1/memories", view, self._memories.list_memories),
            Route("GET", "/v1/memories/{id}", view, self._memories.why),
            Route("POST", "/v1/memories", annotate, self._memories.add),
            Route("POST", "/v1/memories/{id}/correct", annotate, self._memories.correct),
            Route("POST", "/v1/memories/{id}/forget", annotate, self._memories.forget),
            Route("GET", "/v1/approvals", view, self._approvals.list_approvals),
            Route("GET", "/v1/approvals/{id}", view, self._approvals.show),
            Route("POST", "/v1/approvals/{id}", write, self._approvals.decide),
            Route("POST", "/v1/ports/{port}/send", write, self._send),
            Route("POST", "/v1/ports/{port}/reset", write, self._reset),
            Route("POST", "/v1/ports/{port}/release", write, self._lend),
            Route("POST", "/v1/ports/{port}/take_back", write, self._take_back),
            Route("POST", "/v1/ports/{port}/mark", annotate, self._mark),
            Route("POST", "/v1/incidents/{id}/resolve", annotate, self._resolve),
            Route("POST", "/v1/incidents/{id}/mute", annotate, self._mute),
            Route("POST", "/v1/incidents/{id}/unmute", annotate, self._unmute),
        ]

    async def close(self) -> None:
        """End what lasts: followed events and logs."""
        self._logs.close()
        self._ask.close()
        self._release.close()
        async with asyncio.TaskGroup() as tasks:
            for ws in self._followers:
                tasks.create_task(goodbye(ws), name="events goodbye")

    async def _ports(self, request: web.Request, caller: Caller) -> web.StreamResponse:
        known_only(request.query, set())
        ports = [
            port_to_json(port) | {"attached": self._consoles.attached(port.name)}
            for port in self._bench.ports()
        ]
        return _json({"ports": ports})

    async def _incidents(self, request: web.Request, caller: Caller) -> web.StreamResponse:
        query = request.query
        known_only(query, {"port", "state", "severity", "since", "limit"})
        state = one_of(query.get("state", "unresolved"), "state", (*_STATES, *_STATES["all"]))
        wanted = IncidentFilter(
            port=query.get("port", ""),
            states=_STATES.get(state, frozenset({state})),  # type: ignore[arg-type] # checked above
            severity=one_of(query.get("severity", "note"), "severity", SEVERITIES),  # type: ignore[arg-type] # likewise
            since_utc_ns=moment(query, "since") or 0,
            limit=whole(query, "limit", 1, 10_000) or 100,
        )
        if wanted.port:
            self._port(wanted.port)
        found = await self._bench.incidents(wanted)
        text = await self._bench.render(
            lambda: json.dumps({"incidents": [incident_view_to_json(view) for view in found]})
        )
        return web.Response(text=text, content_type="application/json")

    async def _incident(self, request: web.Request, caller: Caller) -> web.StreamResponse:
        return _json(incident_view_to_json(await self._incident_of(request)))

    async def _report(self, request: web.Request, caller: Caller) -> web.StreamResponse:
        known_only(request.query, {"revision"})
        view = await self._incident_of(request)
        incident_id = view.incident.id
        revision = whole(request.query, "revision", 1, 1_000_000)
        report = await self._bench.report(incident_id, revision)
        if report is not None:
            return _json(report_to_json(report))
        if revision is None:
            raise BenchError(
                "not_found",
                f"no report of incident {incident_id} yet",
                "the agent writes the first within seconds; see its log if none comes",
            )
        raise BenchError(
            "not_found",
            f"incident {incident_id} has no report revision {revision}: it has {view.revisions}",
        )

    async def _log(self, request: web.Request, caller: Caller) -> web.StreamResponse:
        return await self._logs.answer(request)

    async def _attach(self, request: web.Request, caller: Caller) -> web.StreamResponse:
        query = request.query
        known_only(query, {"lines", "read_only", "steal"})
        port = self._port(request.match_info["port"])
        lines = whole(query, "lines", -1, 1_000_000)
        wish = AttachWish(
            lines=20 if lines is None else lines,
            is_read_only="read_only" in query,
            steal="steal" in query,
        )
        _need_websocket(request)
        return await self._consoles.serve(request, port, caller.who, caller.right, wish)

    async def _follow_events(self, request: web.Request, caller: Caller) -> web.StreamResponse:
        known_only(request.query, {"after"})
        _need_websocket(request)
        ws = web.WebSocketResponse(heartbeat=30.0, compress=False, max_msg_size=4096)
        await ws.prepare(request)
        self._followers.add(ws)
        try:
            with ending(request):
                async with asyncio.TaskGroup() as tasks:
                    sending = self._send_events(request, ws, request.query.get("after"))
                    sender = tasks.create_task(sending, name="events send")
                    async for message in ws:
                        if message.type is WSMsgType.ERROR:
                            break
                    sender.cancel()
        finally:
            self._followers.discard(ws)
        return ws

    async def _send_events(
        self, request: web.Request, ws: web.WebSocketResponse, after: str | None
    ) -> None:
        position = self._events.last if after is None else self._events.position(after)
        try:
            while not ws.closed:
                fresh = None if position is None else self._events.after(position)
                if fresh is None:
                    position = self._events.last
                    fresh = [Event(position, self._events.reset_text(time.time_ns()))]
                for event in fresh:
                    position = event.n
                    async with asyncio.timeout(FOLLOWER_LIMIT_S):
                        await ws.send_str(event.text)
                if not fresh:
                    await self._events.wait()
        except TimeoutError:
            log.info("a follower of the events has read nothing for %.0f s", FOLLOWER_LIMIT_S)
            cut(request)
        except ConnectionError:
            log.debug("a follower of the events went away")

    async def _send(self, request: web.Request, caller: Caller) -> web.StreamResponse:
        port = self._port(request.match_info["port"])
        body = await body_of(request, {"text", "hex", *PACE_KEYS})
        pace = pace_of(body)
        data = bytes_to_send(body)
        if not port.may_write:
            raise BenchError("not_allowed", f"the configuration of {port.name} forbids writing")
        if (refusal := self._consoles.refusal_to_send(port.name, caller.who)) is not None:
            raise refusal
        if pace is not None:
            return await self._send_at_pace(request, port.name, caller.who, data, pace)
        entry = _send_entry(caller.who, port.name, data)
        seq = await audited(self._bench, entry, self._bench.write(port.name, data, "send"))
        told = {"port": port.name, "bytes": len(data), "before_seq": seq}
        is_remote = parse_device(port.device).is_remote
        return _json(told | ({"server": port.device} if is_remote else {}))

    async def _send_at_pace(
        self, request: web.Request, port: str, who: Who, data: bytes, pace: Pace
    ) -> web.StreamResponse:
        """Send bit by bit; it ends when whoever asked goes away."""
        send = PacedSend(self._bench, port, who, data, pace)
        result = "stopped half way"
        try:
            with self._consoles.sending(send):
                seq = await send.run(lambda: has_left(request))
            result = "ok"
        except BenchError as exc:
            result = exc.message
            raise
        finally:
            entry = _send_entry(who, port, data)
            self._bench.audit(replace(entry, bytes=send.sent_bytes, result=result))
        body = {"port": port, "bytes": len(data), "before_seq": seq}
        return _json(body | ({"echoed": send.echoed} if pace.waits_for_echo else {}))

    async def _reset(self, request: web.Request, caller: Caller) -> web.StreamResponse:
        port = self._port(request.match_info["port"])
        await body_of(request, set())
        entry = AuditEntry(caller.who, "reset", port.name, 0, {}, "ok")
        reset = await audited(self._bench, entry, self._bench.reset(port.name, caller.who))
        return _json({"port": port.name, "how": reset.how, "before_seq": reset.before_seq})

    async def _lend(self, request: web.Request, caller: Caller) -> web.StreamResponse:
        port = self._port(request.match_info["port"])
        return await self._release.release(request, port, caller)

    async def _take_back(self, request: web.Request, caller: Caller) -> web.StreamResponse:
        port = self._port(request.match_info["port"])
        return await self._release.take_back(request, port, caller)

    async def _mark(self, request: web.Request, caller: Caller) -> web.StreamResponse:
        port = self._port(request.match_info["port"])
        body = await body_of(request, {"text", "kind"})
        text, kind = body.get("text"), body.get("kind", "note")
        if not isinstance(text, str) or not 1 <= len(text.strip()) <= 200:
            raise BenchError("bad_request", "text must be 1 to 200 characters")
        text = show(encoded(text.strip()))
        one_of(kind, "kind", KINDS)
        entry = AuditEntry(caller.who, "mark", port.name, 0, {"text": text, "kind": kind}, "ok")
        mark = self._bench.mark(port.name, kind, text, caller.who)
        marker = await audited(self._bench, entry, mark)
        return _json(marker_to_json(marker) | {"on_disk": marker.is_on_disk})

    async def _resolve(self, request: web.Request, caller: Caller) -> web.StreamResponse:
        await body_of(request, set())
        view = await self._incident_of(request)
        resolve = self._bench.resolve(view.incident.id, caller.who)
        return await self._judged(view, caller, "resolve", {}, resolve)

    async def _mute(self, request: web.Request, caller: Caller) -> web.StreamResponse:
        body = await body_of(request, {"for_s"})
        view = await self._incident_of(request)
        for_s = body.get("for_s")
        if for_s is not None and (
            isinstance(for_s, bool) or not isinstance(for_s, int | float) or not 0 < for_s < 1e9
        ):
            raise BenchError("bad_request", f"for_s must be a number of seconds, not {for_s!r}")
        until = None if for_s is None else time.time_ns() + int(for_s * 1e9)
        mute = self._bench.mute(view.incident.id, until, caller.who)
        detail = {"until": iso(until) if until else "unmuted"}
        return await self._judged(view, caller, "mute", detail, mute)

    async def _unmute(self, request: web.Request, caller: Caller) -> web.StreamResponse:
        await body_of(request, set())
        view = await self._incident_of(request)
        unmute = self._bench.unmute(view.incident.id, caller.who)
        return await self._judged(view, caller, "unmute", {}, unmute)

    async def _judged(
        self,
        view: IncidentView,
        caller: Caller,
        action: IncidentAction,
        detail: Mapping[str, str],
        act: Awaitable[IncidentView],
    ) -> web.StreamResponse:
        incident = view.incident
        entry = AuditEntry(
            caller.who, action, incident.port, 0, {"incident": str(incident.id), **detail}, "ok"
        )
        return _json(incident_view_to_json(await audited(self._bench, entry, act)))

    async def _incident_of(self, request: web.Request) -> IncidentView:
        text = request.match_info["id"]
        view = None
        if text.isascii() and text.isdigit() and len(text) < 19:
            view = await self._bench.incident(int(text))
        if view is None:
            raise BenchError(
                "not_found", f"no incident {text!r}", "`serialwatch incidents --all` lists them"
            )
        return view

    def _port(self, name: str) -> PortView:
        port = self._bench.port(name)
        if port is None:
            raise no_port(self._bench, name)
        return port


def incident_view_to_json(view: IncidentView) -> Json:
    """Return an incident as the API has it: the record, and what the service knows of it."""
    started = view.boot_started_utc_ns
    return incident_to_json(view.incident) | {
        "boot_started_at": iso(started) if started else None,
        "revisions": view.revisions,
        "on_disk": view.is_on_disk,
    }


def _send_entry(who: Who, port: str, data: bytes) -> AuditEntry:
    return AuditEntry(who, "send", port, len(data), {"hex": data[:256].hex()}, "ok")


def _json(body: Json) -> web.Response:
    return web.json_response(body)


def _need_websocket(request: web.Request) -> None:
    if not web.WebSocketResponse().can_prepare(request):
        raise BenchError("bad_request", f"{request.path} is for WebSocket clients")
