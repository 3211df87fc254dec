"""Ports that are lent to another program, e.g. a flasher: who has them, and when they come back.

A loan lasts while its request is open, or for a time. It outlives the daemon: a port that somebody
is flashing must not be opened by the next start.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import logging
import time
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

from serialwatch.api.bench import BenchError, Who
from serialwatch.service.look_up import InThread
from serialwatch.service.ports import BenchPort, Ports
from serialwatch.whole_file import write_whole
from serialwatch_drivers.device import parse_device
from serialwatch_drivers.identity import stable_name
from serialwatch_drivers.port import PortError

log = logging.getLogger(__name__)

LOOK_S = 0.1  # how often it is looked whether a loan is over
_BOOT_ID = Path("/proc/sys/kernel/random/boot_id")

Mark = Callable[[str, str, str, Who], Awaitable[object]]


@dataclass(eq=False, slots=True)
class Lent:
    """A loan: see `serialwatch.api.bench.Loan`."""

    port: str
    device: str
    who: Who
    words: str  # for what
    since_s: float  # CLOCK_BOOTTIME, which goes on over a restart of the daemon
    until_s: float | None  # likewise; None: while the request is open
    processes: dict[int, str]  # the borrower and its command by pid; what tells from another of it
    is_seen: bool = True  # its request is open; else only its processes tell that it is not done
    is_over: bool = False
    ended_by: str = ""
    ended: asyncio.Event = field(default_factory=asyncio.Event)

    @property
    def problem(self) -> str:
        """Return why the port is not up, for people."""
        return f"lent to {self.who.user} (pid {self.who.pid}) for {self.words}"

    def is_due(self, proc: Path) -> bool:
        """Tell whether the port comes back now."""
        if self.is_over:
            return True
        if self.until_s is not None:
            return _boot_time_s() >= self.until_s
        return not self.is_seen and not any(
            started and started == _start_of(pid, proc) for pid, started in self.processes.items()
        )


class Loans:
    """The loans of all ports. `run` ends each when its time has come."""

    def __init__(
        self, path: Path, ports: Ports, in_thread: InThread, proc: Path = Path("/proc")
    ) -> None:
        self._path = path
        self._ports = ports
        self._in_thread = in_thread
        self._proc = proc
        self._loans: dict[str, Lent] = {}
        self._changed = asyncio.Event()
        self.mark: Mark

    def restore(self) -> None:
        """Take up what an earlier run had lent, before any port is opened."""
        try:
            rows = json.loads(self._path.read_text(encoding="utf-8"))
            found = [_from_row(row) for row in rows["loans"] if rows["boot"] == _boot_id()]
        except FileNotFoundError:
            return
        except (OSError, ValueError, KeyError, TypeError) as exc:
            log.error("%s: what was lent is not known: %s", self._path, exc)
            return
        for loan in found:
            if not loan.is_due(self._proc):
                self._loans[loan.port] = loan
                self._ports.lent[loan.port] = loan.problem
        self._changed.set()

    def get(self, port: str) -> Lent | None:
        """Return the loan of a port, None if it is not lent."""
        return self._loans.get(port)

    def back_utc_ns(self, port: str) -> int:
        """Return when a lent port comes back, 0 if nobody knows."""
        loan = self._loans.get(port)
        if loan is None or loan.until_s is None:
            return 0
        return time.time_ns() + round((loan.until_s - _boot_time_s()) * 1e9)

    async def lend(self, port: str, who: Who, words: str, ttl_s: float | None) -> Lent:
        """Close a port for somebody.

        Raises:
            BenchError: it is lent already, or cannot be closed.

        """
        found = self._ports.get(port)
        if found is None:
            raise BenchError("not_found", f"port {port}: there is none of that name")
        if not found.config.write:
            raise BenchError("not_allowed", f"port {port}: its configuration says write = false")
        device = await self._in_thread(partial(_to_open, found))
        if (other := self._loans.get(port)) is not None:
            raise BenchError(
                "not_now",
                f"port {port} is {other.problem} already",
                f"wait, or `serialwatch release {port} --take-back`",
            )
        now_s = _boot_time_s()
        until_s = None if ttl_s is None else now_s + ttl_s
        processes = {who.pid: _start_of(who.pid, self._proc)}
        loan = Lent(port, device, who, words, now_s, until_s, processes)
        self._loans[port] = loan
        try:
            await self.mark(port, "flash", f"released to {who.user} for {words}", who)
            await self._ports.lend(port, loan.problem)
        except PortError as exc:
            loan.is_over = True
            raise BenchError("failed", f"port {port} is not released: {exc.problem}") from exc
        except BaseException:
            loan.is_over = True
            raise
        finally:
            self._changed.set()
        return loan

    def note_command(self, port: str, who: Who, pid: int) -> None:
        """Note the command of a borrower: if that is killed, the port stays the command's.

        Raises:
            BenchError: the port is not lent to that one.

        """
        loan = self._loans.get(port)
        if loan is None or (loan.who.uid, loan.who.pid) != (who.uid, who.pid):
            raise BenchError("not_now", f"port {port} is not released to pid {who.pid}")
        loan.processes[pid] = _start_of(pid, self._proc)
        self._changed.set()

    def give_back(self, loan: Lent) -> None:
        """Note that a borrower is done."""
        loan.is_over = True
        self._changed.set()

    def leave(self, loan: Lent) -> None:
        """Note that a borrower cannot be seen any more; its process may still be at work."""
        loan.is_seen = False
        self._changed.set()

    async def take_back(self, port: str, who: Who) -> None:
        """Open a lent port again and return when that has begun.

        Raises:
            BenchError: it is not lent.

        """
        loan = self._loans.get(port)
        if loan is None:
            raise BenchError("not_now", f"port {port} is not released")
        loan.ended_by = who.user
        self.give_back(loan)
        await loan.ended.wait()

    async def run(self, tasks: asyncio.TaskGroup) -> None:
        """End loans and keep what is lent on disk, until cancelled. `tasks`: of the readers."""
        while True:
            if self._loans:
                with contextlib.suppress(TimeoutError):
                    async with asyncio.timeout(LOOK_S):
                        await self._changed.wait()
            else:
                await self._changed.wait()
            for loan in [each for each in self._loans.values() if each.is_due(self._proc)]:
                await self._end(loan, tasks)
            if self._changed.is_set():
                self._changed.clear()
                await self._keep()

    async def _end(self, loan: Lent, tasks: asyncio.TaskGroup) -> None:
        self._changed.set()
        if self._ports.get(loan.port) is not None and loan.port in self._ports.lent:
            took_s = _boot_time_s() - loan.since_s
            by = f" by {loan.ended_by}" if loan.ended_by else ""
            words = f"taken back{by} after {took_s:.1f} s"
            await self.mark(loan.port, "flash", words, loan.who)
            log.info("%s: %s", loan.port, words)
            self._ports.take_back(loan.port, tasks)
        else:
            self._ports.lent.pop(loan.port, None)
        del self._loans[loan.port]  # not before: it must not be lent anew half way
        loan.ended.set()

    async def _keep(self) -> None:
        rows = [_to_row(loan) for loan in self._loans.values()]
        text = json.dumps({"boot": _boot_id(), "loans": rows})
        try:
            await self._in_thread(partial(write_whole, self._path, text))
        except OSError as exc:
            log.error("%s: a restart would not know what is lent: %s", self._path, exc.strerror)


def _to_row(loan: Lent) -> dict[str, Any]:
    who = loan.who
    return {
        "port": loan.port,
        "device": loan.device,
        "uid": who.uid,
        "user": who.user,
        "pid": who.pid,
        "words": loan.words,
        "since_s": loan.since_s,
        "until_s": loan.until_s,
        "processes": [[pid, started] for pid, started in loan.processes.items()],
    }


def _from_row(row: dict[str, Any]) -> Lent:
    return Lent(
        port=row["port"],
        device=row["device"],
        who=Who(row["uid"], row["user"], row["pid"]),
        words=row["words"],
        since_s=row["since_s"],
        until_s=row["until_s"],
        processes={int(pid): str(started) for pid, started in row["processes"]},
        is_seen=False,
    )


def _to_open(port: BenchPort) -> str:
    """Return the path that another program is to open: one that is still right after a replug."""
    asked = parse_device(port.config.device)
    if asked.scheme == "tty":
        return asked.body
    opened = port.reader.port.device if port.reader.port is not None else ""
    return (stable_name(opened) or opened) if opened else port.config.device


def _start_of(pid: int, proc: Path) -> str:
    """Return when a process was started, "" if there is none or it has ended."""
    try:
        stat = (proc / str(pid) / "stat").read_text(errors="replace")
    except OSError:
        return ""
    # The name in parentheses may hold spaces and parentheses itself.
    fields = stat[stat.rindex(")") + 1 :].split()
    return "" if fields[0] in "ZX" else fields[19]


def _boot_id() -> str:
    return _BOOT_ID.read_text(encoding="ascii").strip()


def _boot_time_s() -> float:
    return time.clock_gettime(time.CLOCK_BOOTTIME)
