"""Signs of life: what the watchdog is fed for, and what it is not fed without."""

from __future__ import annotations

import threading
from collections.abc import Iterable, Mapping

LIMIT_S = 15.0  # a task that shows no life for so long is stuck
STILL_S = 5.0  # a sleep that takes so much longer: we were stopped, and so all that we watch seems


def stood_still_s(before_s: float, now_s: float) -> float:
    """Return how long we stood still, 0 for not at all, by the times around a short sleep."""
    passed_s = now_s - before_s
    return passed_s if passed_s > STILL_S else 0.0


class DeadThreadError(Exception):
    """A thread that must run for ever has ended: a fault of our own."""


class Beats:
    """When each task last showed life, in seconds of one monotonic clock."""

    def __init__(self) -> None:
        self._at_s: dict[str, float] = {}

    def beat(self, task: str, now_s: float) -> None:
        """Note a sign of life; from the first one on the task is expected to go on."""
        self._at_s[task] = now_s

    def forget(self, task: str) -> None:
        """Expect nothing more of a task that has ended in order."""
        self._at_s.pop(task, None)

    def tasks(self) -> set[str]:
        """Return the tasks that are expected to go on."""
        return set(self._at_s)

    def ages_s(self, now_s: float) -> Mapping[str, float]:
        """Return how long ago each task showed life."""
        return {task: now_s - at_s for task, at_s in dict(self._at_s).items()}

    def stuck(self, now_s: float) -> list[str]:
        """Return the tasks that show no life."""
        return sorted(task for task, age_s in self.ages_s(now_s).items() if age_s > LIMIT_S)


class Threads:
    """Threads that must run for ever, by their names."""

    def __init__(self, names: Iterable[str]) -> None:
        self._known: dict[str, threading.Thread | None] = dict.fromkeys(names)

    def check(self) -> None:
        """See that each of them runs.

        Raises:
            DeadThreadError: one has ended.

        """
        for name, known in self._known.items():
            if known is None or not known.is_alive():
                found = [thread for thread in threading.enumerate() if thread.name == name]
                if not found:
                    raise DeadThreadError(f"the thread {name} has ended")
                self._known[name] = found[0]
