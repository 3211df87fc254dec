"""A time in which the logs cannot be written: told once, with what is held and lost meanwhile."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass

from serialwatch.trouble import AGAIN_S, Trouble
from serialwatch.wire import Json, iso

TRIGGER = "daemon.log_not_written"  # of the incident
NAMED = 8  # ports in one line of the daemon's output

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class PortBytes:
    """What one port has that is not in its log."""

    name: str
    held: int  # waits in memory
    lost: int  # given up since the daemon started


class Outage:
    """Knows since when nothing is written, until when, and what that has cost.

    One that begins again within a minute is the same. `own_fault` opens the incident,
    `look_again` has it looked at anew.
    """

    def __init__(
        self,
        ports: Callable[[], Iterable[PortBytes]],
        own_fault: Callable[[str, str], None],
        look_again: Callable[[str], None],
    ) -> None:
        self._ports = ports
        self._own_fault = own_fault
        self._look_again = look_again
        self._trouble = Trouble()
        self._since_utc_ns = 0  # 0: there was none
        self._until_utc_ns = 0  # 0: it goes on
        self._ended_s = 0.0
        self._look_at_s = 0.0  # when the incident is worth another look,
        self._is_stale = False  # if there is more to tell than was known at the last
        self._problems: dict[str, str] = {}  # of the logs, by port: all of this outage
        self._db_problem = ""
        self._before: Mapping[str, int] = {}  # bytes given up by port when it began,
        self._after: Mapping[str, int] = {}  # and when it ended

    def note(self, logs: Mapping[str, str], database: str, now_s: float, utc_ns: int) -> None:
        """Note what cannot be written now: logs by port with the reason, the database.

        Call it when that changes, and each second. `now_s`: CLOCK_MONOTONIC.
        """
        if logs:
            self._go_on(logs, database, now_s, utc_ns)
        elif self._is_on:
            self._end(now_s, utc_ns)
        # A report that waits for the database would tell of less than is known when it is stored.
        if self._is_stale and now_s >= self._look_at_s and (self._is_on or not database):
            self._is_stale = False
            pause_s = max(AGAIN_S, self._trouble.lasted_s / 2)  # a long outage changes slowly
            self._look_at_s = now_s + pause_s
            self._look_again(TRIGGER)

    def facts(self) -> Json:
        """Return what is known of the newest outage, and what waits in memory now."""
        now_ns = time.time_ns()
        since_ns, until_ns = self._since_utc_ns, self._until_utc_ns
        return {
            "at": iso(now_ns),
            "since": iso(since_ns) if since_ns else None,
            "until": iso(until_ns) if until_ns else None,
            # Between the seconds that are shown beside it.
            "lasted_s": max((until_ns or now_ns) // 10**9 - since_ns // 10**9, 0)
            if since_ns
            else 0,
            "logs": list(self._problems),
            "problem": next(iter(self._problems.values()), ""),
            "database": self._db_problem,
            "held": {port.name: port.held for port in self._ports() if port.held},
            "lost": {name: count for name, count in self._lost().items() if count},
        }

    @property
    def _is_on(self) -> bool:
        return self._since_utc_ns > 0 and not self._until_utc_ns

    def _go_on(self, logs: Mapping[str, str], database: str, now_s: float, utc_ns: int) -> None:
        if not self._is_on:
            is_first = not self._since_utc_ns
            self._is_stale = not is_first  # a report says that it is over
            if is_first or now_s >= self._ended_s + AGAIN_S:
                self._since_utc_ns = utc_ns
                self._problems = {}
                self._db_problem = ""
                self._before = {port.name: port.lost for port in self._ports()}
                self._look_at_s = now_s + (AGAIN_S if is_first else 0.0)
            self._until_utc_ns = 0
        self._problems.update(logs)
        self._db_problem = database or self._db_problem
        port, problem = next(iter(logs.items()))
        match self._trouble.note(problem.rpartition(": ")[2], now_s):
            case "begins":
                more = f"; nor to {_named(logs, port)}" if len(logs) > 1 else ""
                log.error("%s: nothing is written to the log: %s%s", port, problem, more)
                self._own_fault(TRIGGER, f"log of {port}: {problem}")
            case "lasts":
                held = sum(each.held for each in self._ports())
                log.error(
                    "for %.0f s nothing is written to the logs of %s: %s; %d bytes wait in memory,"
                    " %d were given up",
                    *(self._trouble.lasted_s, _named(logs), problem, held),
                    sum(self._lost().values()),
                )
        self._is_stale = self._is_stale or any(self._lost().values())

    def _end(self, now_s: float, utc_ns: int) -> None:
        self._after = {port.name: port.lost for port in self._ports()}
        self._until_utc_ns, self._ended_s = utc_ns, now_s
        self._is_stale = True
        if not self._trouble.note("", now_s):
            return
        self._look_at_s = now_s
        lost = [f"{count} of {name}" for name, count in self._lost().items() if count]
        words = f"bytes that were given up: {', '.join(lost)}" if lost else "no byte was given up"
        log.warning("the logs are written again, after %.0f s: %s", self._trouble.lasted_s, words)

    def _lost(self) -> dict[str, int]:
        """Return how many bytes this outage has cost, by port."""
        if not self._since_utc_ns:
            return {}
        now = {port.name: port.lost for port in self._ports()}
        after = self._after if self._until_utc_ns else now
        return {name: max(lost - self._before.get(name, 0), 0) for name, lost in after.items()}


def _named(ports: Iterable[str], but: str = "") -> str:
    names = [name for name in ports if name != but]
    more = f" and {len(names) - NAMED} more" if len(names) > NAMED else ""
    return f"{', '.join(names[:NAMED])}{more}"
