"""The agent's end of the socket to the core: questions with answers, orders, a beat."""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import logging
from collections.abc import AsyncIterator, Mapping
from typing import Any

from serialwatch.seconds import until_next
from serialwatch.wire import Json, pack, receive

ASK_LIMIT_S = 30.0
BEAT_S = 1.0


class CoreError(Exception):
    """The core refused something, did not answer, or is gone.

    `level` is that at which to log it: low for what the core has told by itself.
    """

    def __init__(self, problem: str, level: int = logging.WARNING) -> None:
        super().__init__(problem)
        self.level = level


class CoreLink:
    """Talks with the core. `orders` must be consumed for anything to be answered."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._reader = reader
        self._writer = writer
        self._ids = itertools.count(1)
        self._asked: dict[int, asyncio.Future[Any]] = {}
        self._is_gone = False

    async def ask(self, op: str, body: Mapping[str, Any], limit_s: float = ASK_LIMIT_S) -> Any:
        """Return the body of the core's answer.

        Raises:
            CoreError: it refused, took longer than `limit_s`, or is gone.

        """
        if self._is_gone:
            raise CoreError(f"{op}: the core is gone")
        number = next(self._ids)
        answer: asyncio.Future[Any] = asyncio.get_running_loop().create_future()
        self._asked[number] = answer
        try:
            async with asyncio.timeout(limit_s):
                await self._send({"kind": "ask", "id": number, "op": op, "body": dict(body)})
                return await answer
        except TimeoutError as exc:
            raise CoreError(f"{op}: no answer from the core in {limit_s:g} s") from exc
        except ConnectionError as exc:
            raise CoreError(f"{op}: the core is gone") from exc
        finally:
            del self._asked[number]

    async def orders(self) -> AsyncIterator[Json]:
        """Yield what the core wants, until it ends or says `stop`.

        Raises:
            ValueError: it sent what is no message.

        """
        try:
            while (message := await receive(self._reader)) is not None:
                match message.get("kind"):
                    case "reply":
                        self._answered(message)
                    case "ping":
                        await self._send({"kind": "pong", "id": message.get("id")})
                    case "stop":
                        return
                    case _:
                        yield message
        except ConnectionError:
            return
        finally:
            self._is_gone = True
            for answer in self._asked.values():
                if not answer.done():
                    answer.set_exception(CoreError("the core is gone"))

    async def tell_up(self) -> None:
        """Tell the core that orders are taken from now on."""
        with contextlib.suppress(ConnectionError):
            await self._send({"kind": "up"})

    async def beat(self) -> None:
        """Tell the core each second that this loop turns; for a task."""
        while not self._is_gone:
            try:
                await self._send({"kind": "beat"})
            except ConnectionError:
                return
            await asyncio.sleep(until_next(BEAT_S, asyncio.get_running_loop().time()))

    async def close(self) -> None:
        """Close the socket."""
        self._writer.close()
        with contextlib.suppress(ConnectionError):
            await self._writer.wait_closed()

    def _answered(self, message: Json) -> None:
        answer = self._asked.get(message.get("id", 0))
        if answer is None or answer.done():
            return
        if message.get("ok"):
            answer.set_result(message.get("body"))
        else:
            level = logging.DEBUG if message.get("is_told") else logging.WARNING
            answer.set_exception(CoreError(str(message.get("error") or "refused"), level))

    async def _send(self, message: Json) -> None:
        self._writer.write(pack(message))
        await self._writer.drain()
