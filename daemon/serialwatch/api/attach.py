"""Attached clients: many watch a port, one may type, and none can hold the others up.

A client gets binary messages (bytes of the board) and JSON ones of one key each: `hello`, `state`,
`lag` (bytes it was too slow for), `lease`, `marker`, `incident`, `error`, `refused` (bytes for the
board that were dropped, beside what an `error` told) and `done` when a break was sent or lines were
set for it. It sends binary ones (bytes for the board) and `steal`, `lease`, `break`, `lines`,
`marker`. After an `error` or `refused` with a number `until`, bytes for the board are dropped until
the ping with that number is answered: what was sent before it was known must not follow a hole.
"""

from __future__ import annotations

import asyncio
import json
import logging
from collections.abc import Awaitable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, replace
from itertools import count
from typing import Any, TypeVar

from aiohttp import WSMessage, WSMsgType, web

from serialwatch.api.answers import ending, goodbye
from serialwatch.api.attached import Attached, Limits
from serialwatch.api.bench import (
    AuditAction,
    AuditEntry,
    Bench,
    BenchError,
    PortView,
    Who,
    port_to_json,
)
from serialwatch.api.lease import Holder, Lease, LeaseChange
from serialwatch.api.paced_send import PacedSend
from serialwatch.api.rights import Right
from serialwatch.records import Incident, Marker
from serialwatch.wire import Json, incident_to_json, iso, show

log = logging.getLogger(__name__)

T = TypeVar("T")

MAX_CLIENTS = 256  # of all ports together
MAX_BREAK_S = 5.0
MAX_MESSAGE = 1024 * 1024  # bytes; a paste comes in one message
MAX_MARK = 200  # characters


@dataclass(frozen=True, slots=True)
class AttachWish:
    """How a client wants to be attached."""

    lines: int = 20  # of scrollback; negative: all there is
    is_read_only: bool = False
    steal: bool = False


class Consoles:
    """The attached clients of every port. What the service tells it costs next to nothing."""

    def __init__(self, bench: Bench, limits: Limits) -> None:
        self._bench = bench
        self._limits = limits
        self._clients: dict[str, list[Attached]] = {}  # by port, oldest first
        self._leases: dict[str, Lease] = {}  # of ports that have clients or are sent to
        self._held: set[str] = set()  # ports that are sent to, or on which an action is done
        self._sends: dict[str, PacedSend] = {}  # by port: what is being sent at the board's pace
        self._sockets: set[web.WebSocketResponse] = set()
        self._ids = count(1)

    def on_bytes(self, port: str, data: bytes) -> None:
        """Hand on what a board printed."""
        for client in self._clients.get(port, ()):
            if lost := client.backlog.put(data):
                self._bench.lost_at_client(port, lost)
            client.more.set()
        if (send := self._sends.get(port)) is not None:
            send.on_bytes(data)

    def on_state(self, port: str) -> None:
        """Tell the clients of a port how it stands now."""
        if (send := self._sends.get(port)) is not None:
            send.on_state()
        if port not in self._clients:
            return
        if (view := self._bench.port(port)) is not None:
            self._tell_all(port, "state", port_to_json(view))
        else:
            words = f"port {port} is no longer configured"
            self._tell_all(port, "error", {"code": "not_found", "message": words, "hint": ""})

    def on_marker(self, marker: Marker) -> None:
        """Tell the clients of a port about a marker."""
        self._tell_all(marker.port, "marker", marker_to_json(marker))

    def on_incident(self, incident: Incident) -> None:
        """Tell the clients of a port about an incident that was opened."""
        self._tell_all(incident.port, "incident", incident_to_json(incident))

    def writer(self, port: str) -> Who | None:
        """Return who has the write lease of a port, None if nobody has."""
        lease = self._leases.get(port)
        return None if lease is None or lease.holder is None else lease.holder.who

    def refusal_to_send(self, port: str, who: Who) -> BenchError | None:
        """Return why nothing may be sent past whoever types or sends now, None if it may."""
        if (refusal := self._busy(port)) is not None:
            return refusal
        if port in self._held:
            words = f"an approved action is done on {port}"
            return BenchError("not_now", words, "wait until that is done")
        if (writer := self.writer(port)) is None or writer.uid == who.uid:
            return None
        return BenchError(
            "not_now",
            f"{writer.user} (pid {writer.pid}) is typing on {port}",
            "wait until they have left, or take the lease with `serialwatch attach --steal`",
        )

    @contextmanager
    def sending(self, send: PacedSend) -> Iterator[None]:
        """Keep everybody else from typing in between while something is sent bit by bit.

        The lease is taken, unless whoever sends has it already; whoever steals it ends the send.
        """
        if (refusal := self.refusal_to_send(send.port, send.who)) is not None:
            raise refusal
        self._sends[send.port] = send
        try:
            with self._holding(send.port, send.who):
                yield
        finally:
            del self._sends[send.port]

    def refusal_to_act(self, port: str) -> BenchError | None:
        """Return why no approved action may be done now: a person goes first, whoever it is."""
        if (refusal := self._busy(port)) is not None:
            return refusal
        if (writer := self.writer(port)) is not None:
            words = f"{writer.user} (pid {writer.pid}) is typing on {port}"
            return BenchError("not_now", words, "wait until they have left")
        return None

    @contextmanager
    def held(self, port: str, who: Who) -> Iterator[None]:
        """Keep everybody from typing while a step of an approved action is done.

        Raises:
            BenchError: somebody types or sends.

        """
        if (refusal := self.refusal_to_act(port)) is not None:
            raise refusal
        with self._holding(port, who):
            yield

    def _busy(self, port: str) -> BenchError | None:
        """Return the complaint that somebody sends there now, None if nobody does."""
        if (send := self._sends.get(port)) is None:
            return None
        words = f"{send.who.user} (pid {send.who.pid}) is sending to {port}"
        return BenchError("not_now", words, "wait until that is done")

    @contextmanager
    def _holding(self, port: str, who: Who) -> Iterator[None]:
        """Have the lease of a port meanwhile, unless somebody has it."""
        lease = self._leases.setdefault(port, Lease())
        holder = Holder(next(self._ids), who)
        self._held.add(port)
        if lease.holder is None and lease.take(holder):
            self._tell_lease(port, "taken", None)
        try:
            yield
        finally:
            self._held.discard(port)
            if lease.release(holder.client):
                self._tell_lease(port, "released", holder)
            self._forget(port)

    def attached(self, port: str) -> list[Json]:
        """Return who is attached to a port, as `GET /v1/ports` has it."""
        lease = self._leases.get(port)
        return [
            _who_json(client.holder)
            | {
                "has_lease": lease is not None and lease.is_held_by(client.id),
                "waiting_bytes": client.backlog.size,
            }
            for client in self._clients.get(port, ())
        ]

    async def serve(
        self, request: web.Request, port: PortView, who: Who, right: Right, wish: AttachWish
    ) -> web.WebSocketResponse:
        """Serve one client until it leaves, is cut off, or the daemon stops."""
        if sum(map(len, self._clients.values())) >= MAX_CLIENTS:
            raise BenchError("not_now", f"{MAX_CLIENTS} clients are attached: no room for another")
        ws = web.WebSocketResponse(
            autoping=False, compress=False, max_msg_size=MAX_MESSAGE, writer_limit=0
        )
        await ws.prepare(request)
        client = Attached(next(self._ids), port.name, who, right, wish.is_read_only)
        self._sockets.add(ws)
        try:
            with ending(request):
                self._join(client, wish)
                await self._talk(client, ws, request, wish)
        finally:
            self._sockets.discard(ws)
            self._leave(client)
        return ws

    async def close(self) -> None:
        """Send every client away and send nothing more: the daemon stops."""
        for send in self._sends.values():
            send.stop("the daemon stops")
        async with asyncio.TaskGroup() as tasks:
            for ws in self._sockets:
                tasks.create_task(goodbye(ws), name="attach goodbye")

    def _join(self, client: Attached, wish: AttachWish) -> None:
        """Add a client; without a pause, so that scrollback and live bytes meet exactly."""
        view = self._view(client)
        scrollback = last_lines(self._bench.recent(client.port), wish.lines)
        lease = self._leases.setdefault(client.port, Lease())
        refusal = client.refusal(view)
        hello = {
            "v": 1,
            "client": client.id,
            "port": port_to_json(view),
            "rights": client.right.name.lower(),
            "may_write": refusal is None,
            "why_not": refusal.message if refusal else "",
            "lease": _who_json(lease.holder),
            "scrollback": len(scrollback),  # bytes, in the binary messages that come next
        }
        client.tell("hello", hello)
        if scrollback:
            client.backlog.put(scrollback)
        self._clients.setdefault(client.port, []).append(client)

    def _leave(self, client: Attached) -> None:
        clients = self._clients.get(client.port, [])
        if client in clients:
            clients.remove(client)
        self._release(client, "released")
        client.audit_typed(self._bench)
        self._forget(client.port)

    def _forget(self, port: str) -> None:
        """Keep nothing of a port that nobody watches or sends to."""
        if not self._clients.get(port):
            self._clients.pop(port, None)
            if port not in self._held:
                self._leases.pop(port, None)

    async def _talk(
        self, client: Attached, ws: web.WebSocketResponse, request: web.Request, wish: AttachWish
    ) -> None:
        name = f"attach {client.port} {client.id}"
        async with asyncio.TaskGroup() as tasks:
            sender = tasks.create_task(client.send(ws), name=f"{name} send")
            ticker = tasks.create_task(self._tick(client, ws, request), name=f"{name} tick")
            try:
                if wish.steal:
                    await self._act(client, self._take_lease(client, steal=True))
                async for message in ws:
                    client.heard()
                    await self._heard(client, ws, message)
            except ConnectionError:
                log.debug("%s: client %d went away", client.port, client.id)
            finally:
                sender.cancel()
                ticker.cancel()

    async def _tick(
        self, client: Attached, ws: web.WebSocketResponse, request: web.Request
    ) -> None:
        """Ask for a sign of life, free a dead client's lease, cut it off, keep the audit going."""
        try:
            while True:
                await asyncio.sleep(self._limits.ping_s)
                client.audit_typed(self._bench)
                transport = request.transport
                unsent = 0 if transport is None else transport.get_write_buffer_size()
                silent_s = client.tick(unsent) * self._limits.ping_s
                if silent_s >= self._limits.lease_s:
                    self._release(client, "expired")
                if silent_s >= self._limits.stalled_s or client.backlog.is_full:
                    client.cut_off(request)
                    return
                if not client.is_sending:
                    await ws.ping()
        except ConnectionError:
            log.debug("%s: client %d went away", client.port, client.id)

    async def _heard(self, client: Attached, ws: web.WebSocketResponse, message: WSMessage) -> None:
        if message.type is WSMsgType.PING:
            await ws.pong(message.data)
        elif message.type is WSMsgType.BINARY:
            await self._keys(client, message.data)
        elif message.type is WSMsgType.TEXT:
            await self._act(client, self._controlled(client, message.data))
        elif message.type is WSMsgType.PONG:
            client.answered(message.data)

    async def _keys(self, client: Attached, data: bytes) -> None:
        """Write what was typed; tell why not, the same reason once and not for each key."""
        if client.is_deaf:
            client.dropped_bytes += len(data)
            return
        try:
            await self._typed(client, data)
        except BenchError as exc:
            if client.refused == exc.message:
                client.refuse_keys("refused", {"bytes": len(data) - exc.sent})
            else:
                client.refused = exc.message
                client.refuse_keys("error", _error_json(exc))

    async def _act(self, client: Attached, act: Awaitable[None]) -> None:
        """Do what a client asks; tell it why not, the same reason once and not for each key."""
        try:
            await act
        except BenchError as exc:
            if client.refused != exc.message:
                client.refused = exc.message
                client.tell("error", _error_json(exc))

    async def _typed(self, client: Attached, data: bytes) -> None:
        if not data:
            return
        await self._take_lease(client)
        sent = 0
        try:
            await self._bench.write(client.port, data, "attach")
            sent = len(data)
            client.refused = ""
        except BenchError as exc:
            sent = exc.sent
            raise
        finally:
            client.typed_bytes += sent
            client.typed_sum.update(data[:sent])

    async def _controlled(self, client: Attached, text: str) -> None:
        match control := _control(text):
            case {"steal": True}:
                await self._take_lease(client, steal=True)
            case {"lease": True}:
                await self._take_lease(client)
            case {"lease": False}:
                self._release(client, "released")
            case {"break": int() | float() as duration_s} if _is_break(duration_s):
                await self._take_lease(client)
                entry = _entry(client, "break", {"seconds": f"{duration_s:g}"})
                sending = self._bench.send_break(client.port, float(duration_s))
                await self._done(client, entry, sending)
                client.tell("done", {"break": duration_s})
            case {"lines": dict(lines)} if _are_lines(lines):
                await self._take_lease(client)
                detail = {str(name): "on" if on else "off" for name, on in lines.items()}
                setting = self._bench.set_lines(
                    client.port, dtr=lines.get("dtr"), rts=lines.get("rts")
                )
                await self._done(client, _entry(client, "lines", detail), setting)
                client.tell("done", {"lines": lines})
            case {"marker": {"text": str() as words}} if words.strip():
                await self._mark(client, show(words.strip()[:MAX_MARK].encode(errors="replace")))
            case _:
                raise BenchError("bad_request", f"not a control message: {str(control)[:80]}")

    async def _mark(self, client: Attached, text: str) -> None:
        if client.right < Right.ANNOTATE:
            raise BenchError("not_allowed", f"{client.who.user} may only view")
        marking = self._bench.mark(client.port, "note", text, client.who)
        await self._done(client, _entry(client, "mark", {"text": text}), marking)

    async def _done(self, client: Attached, entry: AuditEntry, act: Awaitable[Any]) -> None:
        await audited(self._bench, entry, act)
        client.refused = ""

    async def _take_lease(self, client: Attached, *, steal: bool = False) -> None:
        view = self._view(client)
        if (refusal := client.refusal(view)) is not None:
            raise refusal
        if view.state != "up":  # no marker may say that somebody typed then
            raise BenchError("not_now", f"port {client.port} is {view.state}")
        lease = self._leases[client.port]
        if lease.is_held_by(client.id):
            return
        before = lease.holder
        if steal:
            lease.steal(client.holder)
            if (send := self._sends.get(client.port)) is not None:
                send.stop(f"{client.who.user} (pid {client.who.pid}) has taken over {client.port}")
        elif not lease.take(client.holder) and before is not None:
            raise BenchError(
                "not_now",
                f"{before.who.user} (pid {before.who.pid}) is typing on {client.port}",
                "take over with --steal or Ctrl-T w",
            )
        self._tell_lease(client.port, "stolen" if steal and before else "taken", before)
        words = f"{client.who.user} began to type"
        marking = self._bench.mark(client.port, "attach", words, client.who)
        await audited(self._bench, _entry(client, "attach", {"lease": "taken"}), marking)
        if not lease.is_held_by(client.id):
            raise BenchError("not_now", f"another client has taken over {client.port} meanwhile")

    def _release(self, client: Attached, why: LeaseChange) -> None:
        lease = self._leases.get(client.port)
        if lease is not None and lease.release(client.id):
            client.audit_typed(self._bench)
            self._tell_lease(client.port, why, client.holder)

    def _tell_lease(self, port: str, why: LeaseChange, before: Holder | None) -> None:
        holder = self._leases[port].holder
        body = {"why": why, "holder": _who_json(holder), "before": _who_json(before)}
        for client in self._clients.get(port, ()):
            client.refused = ""
            is_own = holder is not None and holder.client == client.id
            client.tell("lease", body | {"yours": is_own})

    def _tell_all(self, port: str, what: str, body: Any) -> None:
        for client in self._clients.get(port, ()):
            client.tell(what, body)

    def _view(self, client: Attached) -> PortView:
        view = self._bench.port(client.port)
        if view is None:
            raise BenchError("not_found", f"port {client.port} is no longer configured")
        return view


async def audited(bench: Bench, entry: AuditEntry, act: Awaitable[T]) -> T:
    """Await `act`, store `entry` with what came of it, and return the result."""
    result, sent = "stopped half way", entry.bytes
    try:
        done = await act
        result = "ok"
    except BenchError as exc:
        result, sent = exc.message, exc.sent
        raise
    finally:
        bench.audit(replace(entry, bytes=sent, result=result))
    return done


def last_lines(data: bytes, lines: int) -> bytes:
    """Return the last `lines` lines and the unfinished one after them; negative: everything."""
    if lines < 0:
        return data
    end = b"\n" if b"\n" in data else b"\r"
    start = len(data)
    for _ in range(lines + 1):
        found = data.rfind(end, 0, start)
        if found < 0:
            return data
        start = found
    return data[start + 1 :]


def marker_to_json(marker: Marker) -> Json:
    """Return the marker as the API has it."""
    return {
        "id": marker.id,
        "port": marker.port,
        "seq": marker.seq,
        "kind": marker.kind,
        "text": marker.text,
        "who": marker.who,
        "at": iso(marker.utc_ns),
    }


def _control(text: str) -> Json:
    try:
        control = json.loads(text)
    except (ValueError, RecursionError) as exc:
        raise BenchError("bad_request", "a control message that is not JSON") from exc
    if not isinstance(control, dict):
        raise BenchError("bad_request", "a control message that is no object")
    return control


def _is_break(duration_s: float) -> bool:
    return not isinstance(duration_s, bool) and 0 < duration_s <= MAX_BREAK_S


def _are_lines(lines: Mapping[Any, Any]) -> bool:
    return bool(lines) and all(
        name in {"dtr", "rts"} and isinstance(on, bool) for name, on in lines.items()
    )


def _entry(client: Attached, action: AuditAction, detail: Mapping[str, str]) -> AuditEntry:
    return AuditEntry(client.who, action, client.port, 0, detail, "ok")


def _error_json(exc: BenchError) -> Json:
    return {"code": exc.code, "message": exc.message, "hint": exc.hint}


def _who_json(holder: Holder | None) -> Json:
    if holder is None:
        return {}
    who = holder.who
    return {"client": holder.client, "user": who.user, "uid": who.uid, "pid": who.pid}
