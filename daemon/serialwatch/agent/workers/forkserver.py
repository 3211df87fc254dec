"""The process that starts a process for each skill: it has imported what they need, and forks.

Run as `python -I -m serialwatch.agent.workers.forkserver FD`; FD is one end of a SOCK_SEQPACKET
pair, a JSON object a packet:

    {"start": id}  with one descriptor: the skill's end of its pipe
    {"kill": id}
    {"ended": id, "status": wait status}      from here
    {"refused": id, "why": "..."}             from here: it could not be started

It ends when the other end is closed, and what it started ends with it.
"""

from __future__ import annotations

import gc
import json
import os
import select
import selectors
import signal
import socket
import sys
import time
from contextlib import suppress
from pathlib import Path

from serialwatch.agent.workers.sandbox import adopt_orphans, die_with_parent
from serialwatch.agent.workers.skill_process import run_job

MAX_PACKET = 4096  # bytes
ORPHANS_S = 1.0  # for ending what a skill has left behind


class ForkServer:
    """The children and who asked for them."""

    def __init__(self, control: socket.socket) -> None:
        self._control = control
        self._selector = selectors.DefaultSelector()
        self._selector.register(control, selectors.EVENT_READ)
        self._pids: dict[int, int] = {}  # by id
        self._exits: dict[int, int] = {}  # descriptor that becomes readable at the end, by pid

    def serve(self) -> None:
        """Start, kill and reap until the other end is closed."""
        while True:
            for key, _ in self._selector.select():
                if key.fileobj is not self._control:
                    self._reap()
                elif not self._obey():
                    self._kill_all()
                    return

    def _obey(self) -> bool:
        try:
            packet, descriptors, _, _ = socket.recv_fds(self._control, MAX_PACKET, 1)
        except ConnectionResetError:  # closed before it had read all that we said
            return False
        if not packet:
            return False
        asked = json.loads(packet)
        if "start" in asked:
            self._start(asked["start"], descriptors[0])
        elif (pid := self._pids.get(asked["kill"])) is not None:
            _kill(pid)
        return True

    def _start(self, job: int, pipe: int) -> None:
        try:
            pid = os.fork()
        except OSError as exc:
            os.close(pipe)
            self._say({"refused": job, "why": str(exc)})
            return
        if pid == 0:
            self._become(pipe)
        os.close(pipe)
        with suppress(OSError):  # it did the same already, or is gone
            os.setpgid(pid, pid)
        self._pids[job] = pid
        self._exits[pid] = os.pidfd_open(pid)
        self._selector.register(self._exits[pid], selectors.EVENT_READ)

    def _become(self, pipe: int) -> None:
        """Go on as the process of a skill; never returns."""
        try:
            os.setpgid(0, 0)
            die_with_parent()
            nothing = os.open(os.devnull, os.O_RDWR)
            for standard in (0, 1, 2):
                os.dup2(nothing, standard)
            kept = os.dup2(pipe, 3)
            os.closerange(4, os.sysconf("SC_OPEN_MAX"))
            run_job(socket.socket(fileno=kept))
        finally:
            os._exit(1)  # run_job ends the process itself

    def _reap(self) -> None:
        while True:
            try:
                pid, status = os.waitpid(-1, os.WNOHANG)
            except ChildProcessError:
                return
            if pid == 0:
                return
            if (ended := self._exits.pop(pid, None)) is None:
                continue  # left behind by a skill
            self._selector.unregister(ended)
            os.close(ended)
            with suppress(ProcessLookupError, PermissionError):
                os.killpg(pid, signal.SIGKILL)
            self._kill_orphans()
            job = next(job for job, its in self._pids.items() if its == pid)
            del self._pids[job]
            self._say({"ended": job, "status": status})

    def _kill_orphans(self) -> None:
        """Kill what ended skills left running; where skills cannot fork there is nothing.

        What a killed one has started itself becomes our child only when it is gone, so we look
        again until nothing is left.
        """
        end_s = time.monotonic() + ORPHANS_S
        while (orphans := self._orphans()) and time.monotonic() < end_s:
            for pid in orphans:
                with suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGKILL)
            for pid in orphans:
                self._wait(pid, end_s)

    def _orphans(self) -> list[int]:
        children = Path("/proc/self/task") / str(os.getpid()) / "children"
        try:
            return [pid for pid in map(int, children.read_text().split()) if pid not in self._exits]
        except OSError:
            return []

    def _wait(self, pid: int, end_s: float) -> None:
        """Take leave of a killed child, if it is gone in time."""
        try:
            gone = os.pidfd_open(pid)
        except OSError:
            return
        try:
            left_s = max(end_s - time.monotonic(), 0)
            if select.select([gone], [], [], left_s)[0]:
                os.waitpid(pid, os.WNOHANG)
        finally:
            os.close(gone)

    def _kill_all(self) -> None:
        for pid in self._pids.values():
            _kill(pid)

    def _say(self, packet: dict[str, object]) -> None:
        with suppress(OSError):  # the other end is gone: the next turn ends this process
            self._control.send(json.dumps(packet).encode())


def main(descriptor: int) -> None:
    """Serve the agent at the other end of `descriptor` until it is gone."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is the agent's to handle
    adopt_orphans()
    sys.dont_write_bytecode = True
    time.tzset()  # reads the zone file while it can be read
    gc.collect()
    gc.freeze()
    with socket.socket(fileno=descriptor) as control:
        ForkServer(control).serve()


def _kill(pid: int) -> None:
    """Kill a process that has not been waited for yet, and its group."""
    with suppress(ProcessLookupError, PermissionError):
        os.killpg(pid, signal.SIGKILL)
    with suppress(ProcessLookupError):
        os.kill(pid, signal.SIGKILL)


if __name__ == "__main__":
    main(int(sys.argv[1]))
