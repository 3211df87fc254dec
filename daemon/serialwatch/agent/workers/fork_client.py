"""Our end of the forkserver: has processes for skills started and killed, and hears their end."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import socket
import sys

from serialwatch.agent.workers.forkserver import MAX_PACKET
from serialwatch.wire import Json

FORKSERVER = "serialwatch.agent.workers.forkserver"
END_S = 5.0  # a killed process is gone by then


class Pipe:
    """Our end of the pipe to one skill."""

    def __init__(self, job: int, ours: socket.socket, end: asyncio.Future[str]) -> None:
        self.job = job
        self._ours = ours
        self._end = end

    async def connected(self) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        """Return the pipe as streams; close it through them from then on."""
        return await asyncio.open_connection(sock=self._ours)

    async def how_it_ended(self) -> str:
        """Return how the process ended, in words."""
        try:
            async with asyncio.timeout(END_S):
                return await asyncio.shield(self._end)
        except TimeoutError:
            return "its process does not end"

    def close(self) -> None:
        """Close the pipe, which ends what the skill still wants to say."""
        self._ours.close()


class ForkClient:
    """The forkserver as this process sees it."""

    def __init__(self, process: asyncio.subprocess.Process, control: socket.socket) -> None:
        self._process = process
        self._control = control
        self._loop = asyncio.get_running_loop()
        self._ends: dict[int, asyncio.Future[str]] = {}  # how each job ended
        self._jobs = 0
        self.is_alive = True
        self._loop.add_reader(control.fileno(), self._told)

    @classmethod
    async def started(cls) -> ForkClient:
        """Start a forkserver; it has read nothing of our environment or memory."""
        ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        ours.setblocking(False)
        try:
            process = await asyncio.create_subprocess_exec(
                sys.executable, "-I", "-m", FORKSERVER, str(theirs.fileno()),
                pass_fds=[theirs.fileno()],
                stdin=asyncio.subprocess.DEVNULL,
                stdout=asyncio.subprocess.DEVNULL,
                env={"PATH": "/usr/bin:/bin", "LANG": "C.UTF-8"},
            )  # fmt: skip
        except BaseException:
            ours.close()
            raise
        finally:
            theirs.close()
        return cls(process, ours)

    @property
    def pid(self) -> int:
        """Return the forkserver's process."""
        return self._process.pid

    @property
    def alive(self) -> int:
        """Return how many of its processes have not ended."""
        return len(self._ends)

    def fork(self) -> Pipe:
        """Have a process started and return our end of its pipe."""
        self._jobs += 1
        ours, theirs = socket.socketpair()
        ours.setblocking(False)
        end = self._ends[self._jobs] = self._loop.create_future()
        with theirs:
            self._send({"start": self._jobs}, theirs.fileno())
        return Pipe(self._jobs, ours, end)

    def kill(self, job: int) -> None:
        """Have the process of a job killed, if it has not ended."""
        if job in self._ends:
            self._send({"kill": job})

    async def stop(self) -> None:
        """End the forkserver and everything it started."""
        self._lose()
        try:
            async with asyncio.timeout(END_S):
                await self._process.wait()
        except TimeoutError:
            self._process.kill()
            await self._process.wait()

    def _send(self, packet: Json, *descriptors: int) -> None:
        try:
            socket.send_fds(self._control, [json.dumps(packet).encode()], descriptors)
        except OSError:  # gone, or stuck for so long that its queue is full
            self._lose()

    def _told(self) -> None:
        try:
            packet = self._control.recv(MAX_PACKET)
        except BlockingIOError:
            return
        except OSError:
            packet = b""
        if not packet:
            self._lose()
            return
        said = json.loads(packet)
        if "ended" in said:
            self._ended(said["ended"], _end(said["status"]))
        else:
            self._ended(said["refused"], f"no process could be started: {said['why']}")

    def _ended(self, job: int, how: str) -> None:
        if (end := self._ends.pop(job, None)) is not None and not end.done():
            end.set_result(how)

    def _lose(self) -> None:
        """Let go of the forkserver, which then ends with all its processes."""
        if self.is_alive:
            self.is_alive = False
            self._loop.remove_reader(self._control.fileno())
            self._control.close()
            for job in tuple(self._ends):
                self._ended(job, "the process that starts skills ended")


def _end(status: int) -> str:
    code = os.waitstatus_to_exitcode(status)
    if code >= 0:
        return f"its process ended with exit code {code}"
    return f"its process was ended by {signal.strsignal(-code) or -code}"
