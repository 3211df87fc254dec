"""What the test outside asks of the lab's PC: commands, the daemon's API, journal and clocks."""

from __future__ import annotations

import base64
import json
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, TypeVar

from lab_qemu import LabError, Qemu

T = TypeVar("T")

BOOT_LIMIT_S = 240.0
LIMIT_S = 60.0  # for what an emulated PC does
POLL_S = 0.02
CLOCK_TRIES = 20


class LateError(LabError):
    """The PC has not answered in time; it may be booting."""


@dataclass(frozen=True, slots=True)
class Ended:
    """A command that has ended in the PC."""

    code: int
    out: str
    err: str


@dataclass(frozen=True, slots=True)
class Clocks:
    """How far the PC's clocks are ahead of our time.monotonic(), seconds."""

    mono_s: float
    utc_s: float
    doubt_s: float  # they may be off by so much


@dataclass(frozen=True, slots=True)
class Entry:
    """A line of the journal."""

    mono_s: float  # of the PC
    text: str


class LabPc:
    """The agent in a running PC."""

    def __init__(self, qemu: Qemu) -> None:
        self._qemu = qemu
        self._n = 0
        self.connect()

    def connect(self) -> None:
        """Connect to the agent, or to where it will be."""
        self._link = self._qemu.connect("agent")
        self._rest = b""

    def wait_until_up(self) -> None:
        """Wait until it has booted so far that it answers."""
        deadline = time.monotonic() + BOOT_LIMIT_S
        while time.monotonic() < deadline:
            try:
                self._ask({"do": "clock"}, limit_s=2.0)
            except LateError:
                self._qemu.check()
            else:
                return
        raise LabError(f"the PC does not boot: see {self._qemu.folder / 'console.log'}")

    def run(self, *argv: str, limit_s: float = 60.0) -> Ended:
        """Run a command as root."""
        answer = self.ask({"do": "run", "argv": argv, "limit_s": limit_s}, limit_s + LIMIT_S)
        return Ended(answer["code"], answer["out"], answer["err"])

    def must(self, *argv: str, limit_s: float = 60.0) -> str:
        """Run a command that has to succeed, and return what it prints."""
        ended = self.run(*argv, limit_s=limit_s)
        if ended.code:
            raise LabError(f"{' '.join(argv)}: exit {ended.code}\n{ended.out}{ended.err}")
        return ended.out

    def start(self, *argv: str, output: str) -> int:
        """Start a command and return its process id; what it prints goes to a file."""
        return int(self.ask({"do": "start", "argv": argv, "output": output})["pid"])

    def put(self, path: str, content: bytes) -> None:
        """Write a file."""
        text = base64.b64encode(content).decode()
        self.ask({"do": "put", "path": path, "content": text})

    def get(self, path: str) -> Any:
        """Ask the daemon's API; None if it does not answer."""
        rows = self.get_rows(path)
        return rows[0] if rows else None

    def get_rows(self, path: str) -> list[Any]:
        """Ask the daemon's API for something that it answers row by row."""
        answer = self._ask({"do": "get", "path": path}, LIMIT_S)
        if "problem" in answer:
            return []
        if answer["status"] != 200:
            raise LabError(f"GET {path}: {answer['status']} {answer['body']}")
        return [json.loads(row) for row in answer["body"].splitlines()]

    def journal(self, since_mono_s: float = 0.0) -> list[Entry]:
        """Return the daemon's messages of this boot, and what systemd says about it."""
        return self._entries("__MONOTONIC_TIMESTAMP", since_mono_s, "-u", "serialwatch")

    def kernel_log(self, since_mono_s: float = 0.0) -> list[Entry]:
        """Return the messages of the PC's kernel, with the time at which it wrote them."""
        return self._entries("_SOURCE_MONOTONIC_TIMESTAMP", since_mono_s, "-k")

    def _entries(self, clock: str, since_mono_s: float, *which: str) -> list[Entry]:
        text = self.must("journalctl", "-b", *which, "-o", "json", "--no-pager")
        rows = [json.loads(line) for line in text.splitlines()]
        found = [Entry(int(row.get(clock, 0)) / 1e6, str(row["MESSAGE"])) for row in rows]
        return [entry for entry in found if entry.mono_s >= since_mono_s]

    def clocks(self) -> Clocks:
        """Compare the PC's clocks with ours."""
        best = Clocks(0.0, 0.0, float("inf"))
        for _ in range(CLOCK_TRIES):
            before_s = time.monotonic()
            answer = self.ask({"do": "clock"})
            after_s = time.monotonic()
            middle_s, doubt_s = (before_s + after_s) / 2, (after_s - before_s) / 2
            if doubt_s < best.doubt_s:
                mono_s, utc_s = answer["mono_ns"] / 1e9, answer["utc_ns"] / 1e9
                best = Clocks(mono_s - middle_s, utc_s - middle_s, doubt_s)
        return best

    def ask(self, request: dict[str, Any], limit_s: float = LIMIT_S) -> dict[str, Any]:
        """Have the agent do something."""
        answer = self._ask(request, limit_s)
        if "problem" in answer:
            raise LabError(f"{request['do']}: {answer['problem']}")
        return answer

    def _ask(self, request: dict[str, Any], limit_s: float) -> dict[str, Any]:
        self._n += 1
        self._link.settimeout(limit_s)
        try:
            self._link.sendall(json.dumps(request | {"id": self._n}).encode() + b"\n")
        except TimeoutError as exc:
            raise LateError("the PC's agent takes no more requests") from exc
        while True:
            answer: dict[str, Any] = json.loads(self._line())
            if answer["id"] == self._n:  # else it is late: we had given up on it
                return answer

    def _line(self) -> bytes:
        while b"\n" not in self._rest:
            try:
                data = self._link.recv(1 << 16)
            except TimeoutError as exc:
                raise LateError("the PC's agent does not answer in time") from exc
            if not data:
                self._qemu.check()
                raise LabError("the PC's agent is cut off")
            self._rest += data
        line, _, self._rest = self._rest.partition(b"\n")
        return line


def wait_for(what: Callable[[], T | None], name: str, limit_s: float = LIMIT_S) -> T:
    """Call `what` until it returns something true.

    Raises:
        LabError: it does not in time.

    """
    deadline = time.monotonic() + limit_s
    while not (found := what()):
        if time.monotonic() > deadline:
            raise LabError(f"{name}: not within {limit_s:g} s")
        time.sleep(POLL_S)
    return found
