"""A person attached to a port: keys one way, what the board prints the other."""

from __future__ import annotations

import asyncio
import base64
import json
import os
import shutil
import signal
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import aiohttp
import click

from serialwatch.cli.attached_view import HELP, RESTORE, RESTORE_RAW, AttachedView
from serialwatch.cli.client import Daemon, part
from serialwatch.cli.errors import CliError
from serialwatch.cli.keys import Command, Keys, Typed
from serialwatch.cli.outbox import MAX_WAITING, Outbox
from serialwatch.cli.terminal import RawKeys, Screen, raw_keys, read_keys
from serialwatch.wire import show

BREAK_S = 0.25
_STUCK_S = 5.0  # so long no key has reached the board: the person is told
_PAUSE_S = 0.1  # in typing, which ends a text of which a part was refused
_DROP_S = 3.0
_LAST_KEYS_S = 1.0
_GOODBYE_S = 1.0  # for the daemon to agree that we leave
_ENTER = ("\r", "\n")
_CANCEL = ("\x03", "\x1b")  # Ctrl-C, Esc
_ENDING = (signal.SIGTERM, signal.SIGHUP, signal.SIGINT, signal.SIGQUIT)
_DIED = b"\r\nserialwatch attach has died; the port is still being watched\r\n"


@dataclass(frozen=True, slots=True)
class Wish:
    """What to attach to, and how."""

    socket: Path
    port: str
    lines: int
    read_only: bool
    steal: bool
    raw: bool


async def attached(daemon: Daemon, wish: Wish) -> int:
    """Be attached until the person leaves or the daemon goes; return the exit code."""
    restore = RESTORE_RAW if wish.raw else RESTORE
    async with _connected(daemon, wish, answers_pings=False) as ws:
        with raw_keys(0, b"\x18" + restore + _DIED) as keys:  # CAN ends what was cut short
            screen = Screen(1)
            view = AttachedView(
                screen.show,
                is_raw=wish.raw,
                has_colour="NO_COLOR" not in os.environ and os.environ.get("TERM") != "dumb",
                width=lambda: shutil.get_terminal_size().columns,
            )
            attachment = _Attachment(ws, view, screen, keys)
            try:
                return await attachment.last()
            finally:
                screen.show(view.restore)
                screen.show(f"\r\n{attachment.farewell}\r\n".encode(errors="replace"))
                screen.close()


class _Attachment:
    """A person, a terminal and a connection; ends with the first of them."""

    def __init__(
        self,
        ws: aiohttp.ClientWebSocketResponse,
        view: AttachedView,
        screen: Screen,
        raw: RawKeys,
    ) -> None:
        self._ws = ws
        self._view = view
        self._screen = screen
        self._raw = raw
        self._keys = Keys()
        self._outbox = Outbox()
        self._is_full_told = False
        self._pause: asyncio.TimerHandle | None = None  # keys are dropped until it ends
        self._drop_until_s = 0.0  # or until then
        self._not_sent = 0  # bytes that were dropped and are not told yet
        self._ended: asyncio.Future[int] = asyncio.get_running_loop().create_future()
        self._asks_break = False
        self._asks_line = ""  # dtr or rts
        self._mark: str | None = None  # text typed so far
        self.farewell = ""

    async def last(self) -> int:
        """Go on until the end and return the exit code."""
        loop = asyncio.get_running_loop()
        for number in _ENDING:
            loop.add_signal_handler(number, self._end, 0, "ended by a signal")
        loop.add_signal_handler(signal.SIGTSTP, self._raw.suspend)
        loop.add_signal_handler(signal.SIGCONT, self._raw.set)
        async with asyncio.TaskGroup() as tasks:
            parts = [
                tasks.create_task(self._receive(), name="receive"),
                tasks.create_task(self._type(), name="type"),
                tasks.create_task(self._send(), name="send"),
                tasks.create_task(self._watch_screen(), name="screen"),
                tasks.create_task(self._watch_outbox(), name="outbox"),
            ]
            code = await self._ended
            await self._send_rest()
            for task in parts:
                task.cancel()
        return code

    def _end(self, code: int, farewell: str) -> None:
        if not self._ended.done():
            self.farewell = farewell
            self._ended.set_result(code)

    async def _receive(self) -> None:
        try:
            async for message in self._ws:
                if message.type is aiohttp.WSMsgType.PONG and message.data.isdigit():
                    self._outbox.arrived(int(message.data))
                    continue
                await self._screen.has_room()
                if message.type is aiohttp.WSMsgType.PING:
                    await self._ws.pong(message.data)
                    if message.data.isdigit():  # it goes out before any key that waited for it
                        self._outbox.asked(int(message.data))
                elif message.type is aiohttp.WSMsgType.BINARY:
                    self._view.board(message.data)
                elif message.type is aiohttp.WSMsgType.TEXT:
                    self._hear(json.loads(message.data))
        except (aiohttp.ClientError, ConnectionError, ValueError):
            pass  # told below
        stops = self._ws.close_code == aiohttp.WSCloseCode.GOING_AWAY
        self._end(1, "the daemon stops" if stops else "the daemon has closed the connection")

    def _hear(self, control: dict[str, Any]) -> None:
        for what, body in control.items():
            if what == "hello":
                self._view.hello(body)
            else:
                self._view.control(what, body)
            if what == "error" or (what == "refused" and "until" in body):
                # A text with a hole in it would be worse than one that ends.
                self._not_sent += self._outbox.drop_keys(body.get("until", 0))
                if "until" in body:  # the terminal may have more of that text
                    self._drop_until_s = asyncio.get_running_loop().time() + _DROP_S
                    self._await_pause()
            elif what == "refused":
                self._not_sent += body["bytes"]
            if self._pause is None:
                self._pause_is_over()

    def _await_pause(self) -> None:
        """Drop keys until none has come for a moment; not for ever, for one may be held down."""
        if self._pause is not None:
            self._pause.cancel()
        loop = asyncio.get_running_loop()
        wait_s = min(_PAUSE_S, self._drop_until_s - loop.time())
        self._pause = loop.call_later(wait_s, self._pause_is_over)

    def _pause_is_over(self) -> None:
        self._pause = None
        if self._not_sent:
            self._view.say(f"not sent either: {self._not_sent:,} bytes that were typed after that")
            self._not_sent = 0

    async def _send_rest(self) -> None:
        """Let what was typed before leaving reach the board."""
        try:
            async with asyncio.timeout(0 if self._ws.closed else _LAST_KEYS_S):
                await self._outbox.is_empty()
        except TimeoutError:
            least = self._outbox.waiting_bytes
            most = least + self._outbox.underway_bytes
            count = f"{least:,}" if least == most else f"{least:,} to {most:,}"
            self.farewell += f" ({count} bytes typed last were not sent)"

    async def _send(self) -> None:
        try:
            while True:
                item = await self._outbox.take()
                if isinstance(item, bytes):
                    await self._ws.send_bytes(item)
                    # It is answered when the bytes before it are with the board.
                    await self._ws.ping(str(self._outbox.sent_bytes).encode())
                else:
                    await self._ws.send_str(item)
        except (aiohttp.ClientError, ConnectionError):
            return  # whoever receives says so

    async def _watch_screen(self) -> None:
        await self._screen.gone.wait()
        self._end(0, "")

    async def _watch_outbox(self) -> None:
        while True:
            await self._outbox.is_stuck(_STUCK_S)
            if waiting := self._outbox.waiting_bytes:  # none: they were refused just now
                self._view.say(
                    f"{self._view.port} takes no keys now: {waiting:,} bytes wait; "
                    "Ctrl-T q leaves without them"
                )
            await self._outbox.flows()

    async def _type(self) -> None:
        while keys := await read_keys(0):
            for item in self._keys.feed(keys):
                if isinstance(item, Command):
                    self._command(item.key)
                elif self._asks_break or self._asks_line or self._mark is not None:
                    self._answer(item)
                elif self._pause is not None:
                    self._not_sent += len(item.data)
                    self._await_pause()
                else:
                    self._outbox.put(item.data)
            await self._has_room()
        self._end(0, "")

    async def _has_room(self) -> None:
        """Wait while too much is typed ahead: the terminal keeps the rest of a paste till then."""
        if not self._outbox.is_full:
            self._is_full_told &= self._outbox.is_held_up
            return
        if not self._is_full_told:
            self._is_full_told = True
            self._view.say(
                f"{MAX_WAITING:,} bytes wait for {self._view.port}: the keyboard is read again, "
                f"Ctrl-T too, as it takes them; `kill {os.getpid()}` ends this at once"
            )
        await self._outbox.has_room()

    def _command(self, key: str) -> None:
        self._asks_break, self._asks_line, self._mark = False, "", None
        if self._pause is not None:  # that was a person, who has seen how it stands
            self._pause.cancel()
            self._pause_is_over()
        match key:
            case "q" | "Q" | "\x11":
                self._end(0, f"left {self._view.port}; it is still being watched")
            case "?" | "h":
                self._view.say(*HELP)
            case "b":
                self._asks_break = True
                self._view.say("send a break? y sends it, any other key does not")
            case "d" | "r":
                self._asks_line = {"d": "dtr", "r": "rts"}[key]
                name = self._asks_line.upper()
                self._view.say(f"{name}: 1 sets it on, 0 off, any other key leaves it")
            case "m":
                self._mark = ""
                self._view.say("marker: type a few words, Enter sets it, Esc does not")
            case "w":
                self._outbox.put(json.dumps({"steal": True}))
            case _:
                self._view.say(f"no command Ctrl-T {show(key.encode())}; Ctrl-T ? lists them")

    def _answer(self, typed: Typed) -> None:
        """Take keys as the answer to a question of ours; the board gets none of them."""
        for key in typed.data.decode(errors="replace"):
            if self._asks_break:
                self._asks_break = False
                if key in "yY":
                    self._outbox.put(
                        json.dumps({"break": BREAK_S})
                    )  # the daemon tells when it is sent
                else:
                    self._view.say("no break")
            elif self._asks_line:
                self._set_line(key)
            elif self._mark is not None:
                self._mark_key(key)

    def _set_line(self, key: str) -> None:
        line, self._asks_line = self._asks_line, ""
        if key in "01":
            self._outbox.put(json.dumps({"lines": {line: key == "1"}}))
        else:
            self._view.say(f"{line.upper()} is left as it is")

    def _mark_key(self, key: str) -> None:
        assert self._mark is not None
        text = self._mark.strip()
        if key in _CANCEL or (key in _ENTER and not text):
            self._mark = None
            self._view.say("no marker")
        elif key in _ENTER:
            self._mark = None
            self._outbox.put(json.dumps({"marker": {"text": text}}))
        elif key in "\x7f\x08":
            if self._mark:
                self._mark = self._mark[:-1]
                self._screen.show(b"\x08 \x08")
        elif key.isprintable():
            self._mark += key
            self._screen.show(key.encode(errors="replace"))


async def print_json(daemon: Daemon, wish: Wish) -> int:
    """Print each message as one object a line until the daemon goes; return the exit code."""
    async with _connected(daemon, wish) as ws:
        async for message in ws:
            if message.type is aiohttp.WSMsgType.BINARY:
                raw = base64.b64encode(message.data).decode()
                click.echo(json.dumps({"text": show(message.data), "raw_base64": raw}))
            elif message.type is aiohttp.WSMsgType.TEXT:
                click.echo(message.data)
    return 1


@asynccontextmanager
async def _connected(
    daemon: Daemon, wish: Wish, *, answers_pings: bool = True
) -> AsyncIterator[aiohttp.ClientWebSocketResponse]:
    address = f"/v1/attach/{part(wish.port)}"
    flags = {name: "1" for name in ("read_only", "steal") if getattr(wish, name)}
    connector = aiohttp.UnixConnector(str(daemon.path))
    async with aiohttp.ClientSession(connector=connector) as session:
        try:
            ws = await session.ws_connect(
                f"http://localhost{address}",
                params={"lines": str(wish.lines)} | flags,
                max_msg_size=0,
                autoping=answers_pings,
                timeout=aiohttp.ClientWSTimeout(ws_close=_GOODBYE_S),
            )
        except aiohttp.WSServerHandshakeError:
            daemon.get(address)  # the same question without the handshake tells why
            raise CliError("the daemon refuses to attach us") from None
        except aiohttp.ClientConnectionError:
            daemon.get("/v1/ports")  # raises with the reason
            raise
        try:
            daemon.check(ws.get_extra_info("socket"))
            yield ws
        finally:
            await ws.close()
