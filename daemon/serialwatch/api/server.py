"""The API on a Unix socket and on a loopback TCP port: who may connect, and what may fail."""

from __future__ import annotations

import asyncio
import errno
import hmac
import logging
import os
import socket
import time
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from aiohttp import hdrs, web
from aiohttp.web_protocol import RequestHandler

from serialwatch.api.answers import error_answer
from serialwatch.api.attach import Consoles, marker_to_json
from serialwatch.api.attached import Limits
from serialwatch.api.bench import Bench, BenchError, ErrorCode, Who, port_to_json
from serialwatch.api.caller import Caller, peer_of, user_name
from serialwatch.api.events import Events
from serialwatch.api.listen import ApiBindError, bind_socket, loopback, remove_socket
from serialwatch.api.rights import Policy, Right, descends, read_parent, right_of
from serialwatch.api.routes import Route, Routes
from serialwatch.records import Hit, IncidentChange, Marker, Report
from serialwatch.wire import Json, incident_to_json, report_to_json, show

log = logging.getLogger(__name__)

MAX_CONNECTIONS = 512
MAX_TCP_CONNECTIONS = 64  # of these: a stuck browser must not keep the socket's users out
FULL_S = 60.0  # between two words about connections that cannot be taken
_NO_ROOM = (errno.EMFILE, errno.ENFILE, errno.ENOBUFS, errno.ENOMEM)
HEADER_LIMIT_S = 10.0  # a connection that has asked nothing by then is closed
NEW_CONNECTIONS = 128  # that asyncio takes in one turn of the loop: its backlog is 100
KEEP_ALIVE_S = 75.0
MAX_BODY = 256 * 1024  # bytes
_GONE = 499  # for a client that has left
_LOCAL_NAMES = frozenset({"localhost", "127.0.0.1", "[::1]"})

_STATUS: dict[ErrorCode, int] = {
    "bad_request": 400,
    "not_allowed": 403,
    "not_found": 404,
    "not_now": 409,
    "failed": 502,
    "echo_mismatch": 502,
}


@dataclass(frozen=True, slots=True)
class ApiPlaces:
    """Where the API listens."""

    socket: Path
    socket_gid: int | None = None  # group of the socket; None: the daemon's own
    listen: str = ""  # HOST:PORT of the loopback interface; "" for none
    token: str = ""  # who knows it may view over TCP; "" for nobody


class ApiServer:
    """Answers people and programs. What the service tells it never blocks and never raises."""

    def __init__(
        self,
        bench: Bench,
        places: ApiPlaces,
        policy: Policy,
        started: str,
        limits: Limits | None = None,
    ) -> None:
        self._bench = bench
        self._places = places
        self._policy = policy
        self.events = Events(started)
        self.consoles = Consoles(bench, limits or Limits())
        self._routes = Routes(bench, self.consoles, self.events)
        self._names: dict[int, str] = {}  # of users, by uid
        self._runner: web.AppRunner | None = None
        self._servers: list[asyncio.Server] = []
        self._quiet: dict[RequestHandler, asyncio.TimerHandle] = {}  # have asked nothing yet
        self._full_until_s = 0.0  # nothing more is told of connections that wait
        self.tcp_port = 0  # where it listens; 0: nowhere
        self.tcp_problem = ""  # why not

    async def start(self) -> None:
        """Listen.

        Raises:
            ApiBindError: the socket cannot be made, or `listen` is not a loopback address. A taken
                TCP port is a warning only.

        """
        app = web.Application(middlewares=[self._safely], client_max_size=MAX_BODY)
        app.router.add_get("/metrics", self._metrics)
        app.router.add_get("/healthz", self._healthz)
        for route in self._routes.table():
            app.router.add_route(route.method, route.path, self._guarded(route))
        self._runner = web.AppRunner(
            app,
            handle_signals=False,
            access_log=None,
            keepalive_timeout=KEEP_ALIVE_S,
            shutdown_timeout=1.0,
        )
        await self._runner.setup()
        asyncio.get_running_loop().set_exception_handler(self._on_loop_error)
        try:
            await self._listen_tcp()
            await self._listen_unix()
        except ApiBindError:
            await self.stop()
            raise

    async def stop(self) -> None:
        """Send everybody away and stop listening; takes two seconds at most."""
        for server in self._servers:
            server.close()
        if self._servers:
            remove_socket(self._places.socket)
        self._servers.clear()
        await self._routes.close()
        await self.consoles.close()
        for timer in self._quiet.values():
            timer.cancel()
        self._quiet.clear()
        if self._runner is not None:
            await self._runner.cleanup()
            self._runner = None

    def take_token(self, token: str) -> None:
        """Let only who knows this one view over TCP from now on."""
        self._places = replace(self._places, token=token)

    def on_bytes(self, port: str, data: bytes) -> None:
        """Hand on what a board printed."""
        self.consoles.on_bytes(port, data)

    def on_state(self, port: str) -> None:
        """Tell that the state of a port has changed."""
        view = self._bench.port(port)
        if view is not None:
            self.events.add("port.state", port, view.since_utc_ns, port_to_json(view))
        self.consoles.on_state(port)

    def on_hit(self, hit: Hit) -> None:
        """Tell about a hit."""
        self.events.add("hit", hit.port, hit.utc_ns, _hit_to_json(hit))

    def on_incident(self, change: IncidentChange) -> None:
        """Tell about an incident."""
        incident = change.incident
        body = incident_to_json(incident) | {"what": change.what}
        if change.was is not None:
            body["was"] = {"trigger": change.was.trigger, "severity": change.was.severity}
        if change.what == "opened":
            self.events.add("incident.opened", incident.port, incident.opened_utc_ns, body)
            self.consoles.on_incident(incident)
        else:
            self.events.add("incident.changed", incident.port, time.time_ns(), body)

    def on_report(self, port: str, report: Report) -> None:
        """Tell about a new report or revision."""
        self.events.add("report.published", port, time.time_ns(), report_to_json(report))

    def on_step(self, port: str, step: Json) -> None:
        """Tell that a run of the agent has called a skill."""
        self.events.add("run.step", port, time.time_ns(), step)

    def on_approval(self, approval: Json) -> None:
        """Tell that an action waits for a person."""
        self.events.add("approval.pending", str(approval["port"]), time.time_ns(), approval)

    def on_marker(self, marker: Marker) -> None:
        """Tell about a marker."""
        self.events.add("marker", marker.port, marker.utc_ns, marker_to_json(marker))
        self.consoles.on_marker(marker)

    async def _listen_unix(self) -> None:
        sock = bind_socket(self._places.socket, self._places.socket_gid)
        loop = asyncio.get_running_loop()
        self._servers.append(await loop.create_unix_server(self._connection, sock=sock))

    def _on_loop_error(self, loop: asyncio.AbstractEventLoop, context: dict[str, Any]) -> None:
        """Tell once a minute, not a hundred times a second, that nobody can connect."""
        exc = context.get("exception")
        if not isinstance(exc, OSError) or exc.errno not in _NO_ROOM:
            loop.default_exception_handler(context)
        elif loop.time() >= self._full_until_s:
            self._full_until_s = loop.time() + FULL_S
            log.error("new connections wait: %s (raise LimitNOFILE, or close some)", exc.strerror)

    async def _listen_tcp(self) -> None:
        if not self._places.listen:
            return
        host, port = loopback(self._places.listen)
        loop = asyncio.get_running_loop()
        try:
            server = await loop.create_server(self._tcp_connection, host, port)
        except OSError as exc:
            self.tcp_problem = f"{self._places.listen}: {os.strerror(exc.errno or 0)}"
            log.warning("%s: no metrics and no viewing over TCP", self.tcp_problem)
            return
        self._servers.append(server)
        self.tcp_port = server.sockets[0].getsockname()[1]

    def _connection(self) -> asyncio.Protocol:
        assert self._runner is not None
        server = self._runner.server
        if server is None or len(server.connections) >= MAX_CONNECTIONS:
            return _NoRoom()
        if len(self._quiet) > 2 * (len(server.connections) + NEW_CONNECTIONS):
            self._forget_those_gone()
        connection = server()
        loop = asyncio.get_running_loop()
        self._quiet[connection] = loop.call_later(HEADER_LIMIT_S, self._drop_quiet, connection)
        return connection

    def _forget_those_gone(self) -> None:
        """Let go of connections that have left without a word before their time was up."""
        for connection in list(self._quiet)[:-NEW_CONNECTIONS]:  # the newest have none yet
            if connection.transport is None:
                self._quiet.pop(connection).cancel()

    def _tcp_connection(self) -> asyncio.Protocol:
        assert self._runner is not None
        server = self._runner.server
        open_now = server.connections if server is not None else []
        if sum(not _is_unix(c.transport) for c in open_now) >= MAX_TCP_CONNECTIONS:
            return _NoRoom()
        return self._connection()

    def _drop_quiet(self, connection: RequestHandler) -> None:
        self._quiet.pop(connection, None)
        if connection.transport is not None:
            connection.transport.abort()

    @web.middleware
    async def _safely(
        self, request: web.Request, handler: Callable[[web.Request], Awaitable[web.StreamResponse]]
    ) -> web.StreamResponse:
        """Answer errors in one form; a fault of ours ends the request and nothing else."""
        if (timer := self._quiet.pop(request.protocol, None)) is not None:
            timer.cancel()
        try:
            host = request.headers.get(hdrs.HOST, "")
            if not _is_unix(request.transport) and not _is_local_name(host):
                message = f"Host {host[:80]!r} is not this machine's"
                return error_answer(403, "host", message, "use localhost or 127.0.0.1")
            return await handler(request)
        except BenchError as exc:
            return error_answer(_STATUS[exc.code], exc.code, exc.message, exc.hint)
        except _NoTokenError:
            response = error_answer(401, "unauthorized", *_token_words(self._places.token))
            response.headers[hdrs.WWW_AUTHENTICATE] = "Bearer"
            return response
        except web.HTTPException as exc:
            words = {404: f"no such address: {request.path}", 405: "not with this method"}
            code = {404: "not_found", 405: "bad_method", 413: "too_large"}.get(exc.status, "http")
            return error_answer(exc.status, code, words.get(exc.status, exc.reason))
        except TimeoutError:
            return error_answer(408, "timeout", "the request took too long to arrive")
        except ConnectionError:
            if request.transport is not None and not request.transport.is_closing():
                raise
            return web.Response(status=_GONE)  # nobody reads it
        except Exception:
            log.exception("%s %s failed", request.method, request.path)
            return error_answer(500, "internal", "a fault of serialwatch itself: its log has more")

    def _guarded(self, route: Route) -> Callable[[web.Request], Awaitable[web.StreamResponse]]:
        async def answer(request: web.Request) -> web.StreamResponse:
            caller = await self._caller(request)
            if caller.right < route.right:
                raise _refusal(caller, route.right)
            return await route.answer(request, caller)

        return answer

    async def _caller(self, request: web.Request) -> Caller:
        transport = request.transport
        if transport is None:
            raise ConnectionResetError("the client has gone")
        if not _is_unix(transport):
            return self._token_holder(request)
        peer = peer_of(transport.get_extra_info("socket"))
        who = Who(peer.uid, await self._name(peer.uid), peer.pid)
        return Caller(
            who,
            right_of(peer, self._policy, read_parent),
            descends(peer.pid, self._policy.pid, read_parent),
        )

    def _token_holder(self, request: web.Request) -> Caller:
        scheme, _, given = request.headers.get(hdrs.AUTHORIZATION, "").partition(" ")
        token = self._places.token
        is_right = hmac.compare_digest(
            given.strip().encode(errors="surrogateescape"), token.encode()
        )
        if not token or scheme.lower() != "bearer" or not is_right:
            raise _NoTokenError
        return Caller(Who(-1, "a token", 0), Right.VIEW)

    async def _name(self, uid: int) -> str:
        if uid not in self._names:
            self._names[uid] = await self._bench.render(lambda: user_name(uid))
        return self._names[uid]

    async def _metrics(self, request: web.Request) -> web.StreamResponse:
        body, content_type = await self._bench.metrics()
        return web.Response(body=body, headers={"Content-Type": content_type})

    async def _healthz(self, request: web.Request) -> web.StreamResponse:
        problems = list(self._bench.problems())
        status = 503 if problems else 200
        return web.json_response({"ok": not problems, "problems": problems}, status=status)


class _NoTokenError(Exception):
    """A TCP client has not shown the token."""


class _NoRoom(asyncio.Protocol):
    """Turns a connection away."""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        transport.close()


def _is_unix(transport: asyncio.BaseTransport | None) -> bool:
    sock = transport.get_extra_info("socket") if transport is not None else None
    return sock is not None and sock.family == socket.AF_UNIX


def _is_local_name(host: str) -> bool:
    """Tell whether a Host header names this machine: a web page elsewhere cannot make it so."""
    name, colon, port = host.rpartition(":")
    if not colon or not port.isdigit():
        name = host
    return name.lower() in _LOCAL_NAMES


def _refusal(caller: Caller, needed: Right) -> BenchError:
    may = {
        Right.NONE: "has no rights here",
        Right.VIEW: "may only view",
        Right.ANNOTATE: "may view and annotate, but not write to a port",
        Right.WRITE: "may write to ports, but not administer",
    }
    who = caller.who
    if caller.is_our_own:
        return BenchError("not_allowed", "a process that serialwatch itself started may only view")
    if who.uid < 0:
        return BenchError("not_allowed", "over TCP one may only view", "use the socket")
    group = "serialwatch-operators" if needed > Right.ANNOTATE else "serialwatch"
    hint = f"an administrator can add {who.user} to group {group} (then log in again)"
    return BenchError("not_allowed", f"{who.user} {may.get(caller.right, 'may not')}", hint)


def _token_words(token: str) -> tuple[str, str]:
    if token:
        return "this needs the token", "send it as Authorization: Bearer TOKEN"
    return (
        "over TCP only /metrics and /healthz are open",
        "set token_file in [api], or use the socket",
    )


def _hit_to_json(hit: Hit) -> Json:
    return {
        "trigger": hit.trigger,
        "severity": hit.severity,
        "title": hit.title,
        "seq": hit.seq,
        "boot": hit.boot,
        "text": show(hit.raw),
        "fields": dict(hit.fields),
        "count": hit.count,
    }
