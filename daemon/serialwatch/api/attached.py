"""One attached client: what it may do, what it has yet to be sent, and whether it still reads."""

from __future__ import annotations

import asyncio
import hashlib
import json
import logging
from dataclasses import dataclass, field
from typing import Any

from aiohttp import web

from serialwatch.api.answers import cut
from serialwatch.api.backlog import Backlog
from serialwatch.api.bench import AuditEntry, Bench, BenchError, PortView, Who
from serialwatch.api.lease import Holder
from serialwatch.api.rights import Right
from serialwatch.wire import Json

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Limits:
    """How long a silent client is put up with."""

    stalled_s: float = 30.0  # it reads nothing: its connection is cut
    lease_s: float = 15.0  # it gives no sign of life: others may type
    ping_s: float = 5.0


@dataclass(eq=False, slots=True)
class Attached:
    """A client of one port."""

    id: int
    port: str
    who: Who
    right: Right
    is_read_only: bool
    backlog: Backlog = field(default_factory=Backlog)
    more: asyncio.Event = field(default_factory=asyncio.Event)
    refused: str = ""  # the refusal that it was told last
    is_deaf: bool = False  # its keys are dropped until it has heard that some were
    dropped_bytes: int = 0  # of keys that were on their way then
    _refusals: int = 0
    _refusal: str = ""  # the message that tells of it
    is_sending: bool = False
    sent_bytes: int = 0  # to the transport
    _quiet_ticks: int = 0  # since the last sign of life
    _unsent_bytes: int = 0  # of them still there when it was last looked at
    _passed_bytes: int = 0  # and no longer there
    typed_bytes: int = 0  # not in the audit yet
    typed_sum: Any = field(default_factory=hashlib.sha256)  # of them

    @property
    def holder(self) -> Holder:
        """Return the client as the holder of a lease."""
        return Holder(self.id, self.who)

    def tell(self, what: str, body: Any) -> str:
        """Queue a control message and return it."""
        text = json.dumps({what: body}, separators=(",", ":"))
        self.backlog.put_text(text)
        self.more.set()
        return text

    def refuse_keys(self, what: str, body: Json) -> None:
        """Tell that keys were not written, and drop those that it has sent without knowing.

        A ping follows the message: when that is answered, nothing older is on its way. Else the
        board would get a text with a hole in it.
        """
        self._refusals += 1
        self.is_deaf = True
        self._refusal = self.tell(what, body | {"until": self._refusals})

    def answered(self, ping: bytes) -> None:
        """Take its keys again if this is its answer to the ping after the last refusal."""
        if self.is_deaf and ping == str(self._refusals).encode():
            self.is_deaf = False
            if self.dropped_bytes:
                self.tell("refused", {"bytes": self.dropped_bytes})
            self.dropped_bytes = 0

    def refusal(self, port: PortView) -> BenchError | None:
        """Return why this client may not type, None if it may."""
        if self.is_read_only:
            return BenchError("not_allowed", "attached with --read-only")
        if self.right < Right.WRITE:
            return BenchError("not_allowed", f"{self.who.user} may not write to ports")
        if not port.may_write:
            return BenchError("not_allowed", f"the configuration of {port.name} forbids writing")
        return None

    def audit_typed(self, bench: Bench) -> None:
        """Store what was typed since the last time: how much and a hash, for it may be a secret."""
        if self.typed_bytes:
            detail = {"sha256": self.typed_sum.hexdigest()}
            bench.audit(AuditEntry(self.who, "attach", self.port, self.typed_bytes, detail, "ok"))
            self.typed_bytes, self.typed_sum = 0, hashlib.sha256()

    async def send(self, ws: web.WebSocketResponse) -> None:
        """Send what is queued, as fast as it is read; for ever if it is not (see `tick`)."""
        try:
            while True:
                item = self.backlog.take()
                if item is None:
                    self.more.clear()
                    await self.more.wait()
                    continue
                self.is_sending = True
                self.sent_bytes += len(item) if isinstance(item, bytes | str) else 0
                await _send_item(ws, item)
                if item is self._refusal:
                    await ws.ping(str(self._refusals).encode())
                self.is_sending = False
        except ConnectionError:
            log.debug("%s: client %d went away", self.port, self.id)

    def heard(self) -> None:
        """Note a sign of life."""
        self._quiet_ticks = 0

    def tick(self, unsent_bytes: int) -> int:
        """Return in how many ticks, this one not counted, the client showed no sign of life.

        A slow one answers no ping for long. But where bytes had to wait in the transport
        (`unsent_bytes`), the kernel takes more of them only when the client has read. Ticks are
        counted, not seconds: a client must not suffer for a daemon that was held up itself.
        """
        passed_bytes = self.sent_bytes - unsent_bytes
        if self._unsent_bytes and passed_bytes > self._passed_bytes:
            self.heard()
        self._unsent_bytes, self._passed_bytes = unsent_bytes, passed_bytes
        self._quiet_ticks += 1
        return self._quiet_ticks - 1

    def cut_off(self, request: web.Request) -> None:
        """Close the connection of a client that does not read."""
        who = self.who
        log.info("%s: %s (pid %d) does not read: disconnected", self.port, who.user, who.pid)
        cut(request)


async def _send_item(ws: web.WebSocketResponse, item: bytes | str | int) -> None:
    if isinstance(item, bytes):
        await ws.send_bytes(item)
    else:
        await ws.send_str(item if isinstance(item, str) else json.dumps({"lag": item}))
