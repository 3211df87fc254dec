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
        if problem := await tell(self.command, body):
            log.warning("%s: %s", self.command[0], problem)


async def tell(
    command: Sequence[str], body: bytes, output: int = asyncio.subprocess.DEVNULL
) -> str:
    """Run a program with `body` on its standard input; return why it failed, "" if it did not.

    `output` is a descriptor for what it prints.

    Raises:
        OSError: it cannot be started.

    """
    process = await asyncio.create_subprocess_exec(
        *command, stdin=asyncio.subprocess.PIPE, stdout=output, stderr=output
    )
    try:
        async with asyncio.timeout(LIMIT_S):
            await process.communicate(body)
    except TimeoutError:
        return f"still running after {LIMIT_S:.0f} s, killed"
    finally:
        if process.returncode is None:
            process.kill()
            await process.wait()
    return f"ended with status {process.returncode}" if process.returncode else ""
