"""Numbers that a board prints again and again, and that went one way until the fault."""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterable
from dataclasses import dataclass
from itertools import pairwise

from serialwatch.agent.offline.case import Case
from serialwatch.agent.text.device_text import readable
from serialwatch.agent.text.line_shape import shape
from serialwatch.records import Line

MIN_READINGS = 4
MIN_CHANGE = 0.5  # of the larger value
MAX_CHARS = 500  # of a line


@dataclass(frozen=True, slots=True)
class Trend:
    """One number of lines of one form, from its first reading to its last."""

    name: str  # the words before the number
    first: str  # as the board printed it
    last: str
    readings: tuple[Line, ...]

    @property
    def is_falling(self) -> bool:
        """Tell whether it fell."""
        return float(self.last) < float(self.first)


def trends_of(case: Case) -> list[Trend]:
    """Return what went one way in the boot of the fault up to it, the largest change first."""
    fault = case.incident.block_first or case.incident.first_seq
    boot = case.incident.boot
    before = [line for line in case.lines if line.seq < fault and line.boot == boot]
    found = [t for lines in _by_shape(before).values() for t in _trends(lines)]
    return sorted(found, key=lambda t: -_change(float(t.first), float(t.last)))


def _by_shape(lines: Iterable[Line]) -> dict[str, list[Line]]:
    shapes: defaultdict[str, list[Line]] = defaultdict(list)
    for line in lines:
        text = readable(line.raw)[:MAX_CHARS]
        if _NAMED.search(text):
            shapes[shape(text).replace("<x>", "<n>")].append(line)  # 120880 looks hexadecimal
    return shapes


def _trends(lines: list[Line]) -> list[Trend]:
    if len(lines) < MIN_READINGS:
        return []
    rows = [list(_NAMED.finditer(readable(line.raw)[:MAX_CHARS])) for line in lines]
    found = []
    for at in range(min(map(len, rows))):
        texts = [row[at]["value"] for row in rows]
        values = [float(text) for text in texts]
        steps = [b - a for a, b in pairwise(values)]
        goes_one_way = all(step < 0 for step in steps) or all(step > 0 for step in steps)
        if goes_one_way and _change(values[0], values[-1]) >= MIN_CHANGE:
            name = " ".join(rows[0][at]["name"].split())
            found.append(Trend(name, texts[0], texts[-1], tuple(lines)))
    return found


def _change(one: float, other: float) -> float:
    return abs(one - other) / max(abs(one), abs(other), 1e-9)


# What runs out or rises: memory, stacks, temperatures, voltages, queues.
_NAMED = re.compile(
    r"(?P<name>\b(?:(?:free|used|min|largest|max|avail(?:able)?)[ _-]?)?"
    r"(?:heap|mem(?:ory)?|rss|anon|slab|stack|temp(?:erature)?|vbat|vdd|vin|voltage|queue|backlog"
    r"|sockets|buffers|fds?|handles)(?:[ _-](?:free|used|left|size|low|depth|now))?)"
    r"[ :=]{1,3}(?P<value>\d{1,10}(?:\.\d{1,3})?)\b",
    re.IGNORECASE,
)
