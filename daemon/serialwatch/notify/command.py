"""Run a program for a report: mail, chat, a lamp on the bench."""

from __future__ import annotations

import asyncio
import json
import logging
from collections.abc import Sequence
from dataclasses import dataclass

from serialwatch.records import SEVERITIES, Severity
from serialwatch.wire import Json

log = logging.getLogger(__name__)

LIMIT_S = 30.0  # then the program is killed
WAITING = 100  # reports; while a program hangs, older ones are dropped and counted


@dataclass(frozen=True, slots=True)
class Notification:
    """One new revision of a report, as the API shows it."""

    severity: Severity
    body: Json


class CommandNotifier:
    """A queue of its own and one program at a time."""

    def __init__(self, command: Sequence[str], severity: Severity) -> None:
        self.command = list(command)
        self._least = SEVERITIES.index(severity)
        self._queue: asyncio.Queue[Notification] = asyncio.Queue(WAITING)
        self.dropped = 0

    def offer(self, notification: Notification) -> None:
        """Queue it if it is severe enough; never waits."""
        if SEVERITIES.index(notification.severity) < self._least:
            return
        if self._queue.full():
            self._queue.get_nowait()
            self.dropped += 1
        self._queue.put_nowait(notification)

    async def run(self) -> None:
        """Run the program for each report in turn, until cancelled.

        Raises:
            OSError: the program cannot be started.

        """
        while True:
            notification = await self._queue.get()
            await self._tell(json.dumps(notification.body).encode())

    async def _tell(self, body: bytes) -> None:
        process = await asyncio.create_subprocess_exec(
            *self.command,
            stdin=asyncio.subprocess.PIPE,
            stdout=asyncio.subprocess.DEVNULL,
            stderr=asyncio.subprocess.DEVNULL,
        )
        try:
            async with asyncio.timeout(LIMIT_S):
                await process.communicate(body)
        except TimeoutError:
            log.warning("%s: still running after %.0f s, killed", self.command[0], LIMIT_S)
        finally:
            if process.returncode is None:
                process.kill()
                await process.wait()
        if process.returncode:
            log.warning("%s: ended with status %d", self.command[0], process.returncode)
