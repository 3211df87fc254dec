"""The core's end of the agent: starts the process, wakes it, answers what it asks."""

from __future__ import annotations

import asyncio
import logging
import os
import socket
import sys
from collections.abc import Awaitable, Callable, Mapping
from contextlib import suppress
from typing import Any

from serialwatch.seconds import until_next
from serialwatch.service.beats import stood_still_s
from serialwatch.store.database import StoreError
from serialwatch.wire import Json, pack, receive

log = logging.getLogger(__name__)

STOP_S = 5.0  # then it is killed
BEAT_S = 20.0  # an agent that is silent for so long hangs and is started again
MAX_BACKLOG = 4 * 1024 * 1024  # bytes it has not read; beyond it hangs too

Answer = Callable[[str, Json], Awaitable[Any]]  # op, body -> body of the reply


class AgentHungError(Exception):
    """The agent process stopped answering or reading."""


class AgentLink:
    """One agent process after another; `hello` returns what each is told at its start."""

    def __init__(self, hello: Callable[[], list[Json]], answer: Answer) -> None:
        self._hello = hello
        self._answer = answer
        self._writer: asyncio.StreamWriter | None = None
        self.pid: int | None = None
        self.last_beat_s = 0.0  # loop time
        self._is_up = False  # this process

    async def run(self) -> None:
        """Start the process and serve it until it ends, which is always a failure.

        Raises:
            AgentHungError: it hangs, or ended.

        """
        ours, theirs = socket.socketpair()
        try:
            process = await asyncio.create_subprocess_exec(
                sys.executable, "-m", "serialwatch.agent", "--fd", str(theirs.fileno()),
                pass_fds=[theirs.fileno()],
                stdin=asyncio.subprocess.DEVNULL,
                env=_environment(os.environ),
                start_new_session=True,
            )  # fmt: skip
        except BaseException:
            ours.close()
            raise
        finally:
            theirs.close()
        reader, writer = await asyncio.open_connection(sock=ours)
        self.pid = process.pid
        self._writer = writer
        self.last_beat_s = asyncio.get_running_loop().time()
        self._is_up = False
        try:
            for message in self._hello():
                self.send(message)
            async with asyncio.TaskGroup() as tasks:
                tasks.create_task(self._serve(reader, writer, tasks), name="agent messages")
                tasks.create_task(self._watch(writer), name="agent beat")
        except* AgentHungError as group:
            raise AgentHungError(str(group.exceptions[0])) from None
        finally:
            self._writer = None
            self.pid = None
            writer.close()
            await _end(process, is_up=self._is_up)

    def send(self, message: Json) -> bool:
        """Send a message; False when there is no agent now (it asks the database at its start)."""
        if self._writer is None or self._writer.is_closing():
            return False
        self._writer.write(pack(message))
        return True

    async def _serve(
        self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, tasks: asyncio.TaskGroup
    ) -> None:
        while (message := await receive(reader)) is not None:
            self.last_beat_s = asyncio.get_running_loop().time()
            kind = message.get("kind")
            self._is_up = self._is_up or kind == "up"
            if kind == "ask":
                tasks.create_task(self._reply(message, writer), name=f"agent {message.get('op')}")
        raise AgentHungError("the agent process ended")

    async def _reply(self, message: Json, writer: asyncio.StreamWriter) -> None:
        reply: Json = {"kind": "reply", "id": message.get("id"), "ok": True}
        try:
            reply["body"] = await self._answer(str(message.get("op")), message.get("body") or {})
        except StoreError as exc:
            # What ails the database is told by itself, not by each who needs it.
            log.debug("agent asked %r: %s", message.get("op"), exc)
            reply |= {"ok": False, "error": f"{type(exc).__name__}: {exc}", "is_told": True}
        except Exception as exc:
            # Whatever the agent sends, capture goes on; it learns what was wrong with it.
            log.exception("agent asked %r", message.get("op"))
            reply |= {"ok": False, "error": f"{type(exc).__name__}: {exc}"}
        if not writer.is_closing():
            writer.write(pack(reply))

    async def _watch(self, writer: asyncio.StreamWriter) -> None:
        loop = asyncio.get_running_loop()
        while True:
            before_s = loop.time()
            await asyncio.sleep(until_next(BEAT_S / 10, before_s))
            if stood_still_s(before_s, loop.time()):
                self.last_beat_s = loop.time()  # what it sent meanwhile is not read yet
            if loop.time() - self.last_beat_s > BEAT_S:
                raise AgentHungError(f"the agent was silent for {BEAT_S:.0f} s")
            if writer.transport.get_write_buffer_size() > MAX_BACKLOG:
                raise AgentHungError("the agent does not read what it is sent")


def _environment(ours: Mapping[str, str]) -> dict[str, str]:
    """Leave systemd's own variables to us alone."""
    return {k: v for k, v in ours.items() if k not in {"NOTIFY_SOCKET", "WATCHDOG_USEC"}}


async def _end(process: asyncio.subprocess.Process, *, is_up: bool) -> None:
    """Wait for the process to see its socket closed; kill it and its group if it does not.

    One that is not up yet has begun nothing that it had to finish.
    """
    try:
        if is_up:
            async with asyncio.timeout(STOP_S):
                await process.wait()
    except TimeoutError:
        log.warning("agent (pid %d) did not end in %.0f s and is killed", process.pid, STOP_S)
    finally:
        with suppress(ProcessLookupError):
            os.killpg(process.pid, 9)
        if process.returncode is None:
            await process.wait()
