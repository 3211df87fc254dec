"""A rule that hits nearly every line of a port: beyond a limit its lines are only counted."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace

from serialwatch.records import Hit, Severity
from serialwatch.triggers.moments import Moment, S

MOST_HITS = 100  # of a rule in a second that are looked at in full
MOST_NEW_KEYS = 100  # and so many beyond those that tell of another fault
MAX_KEYS = 256  # faults of a rule that are counted one by one; then the key told longest ago goes


_Fault = tuple[str, Severity]  # a key, and how bad it is this time


@dataclass(slots=True)
class _Counted:
    """Lines that tell again of what was told."""

    told: Hit
    first_seq: int
    boot: int
    last: Moment
    raw: bytes  # of the last one
    count: int = 1


class Flood:
    """How often one rule hits one port."""

    def __init__(self) -> None:
        self._since_ns = 0
        self._hits = 0  # since then,
        self._new_keys = 0  # and faults that were new beyond the limit
        self._told: dict[_Fault, Hit] = {}  # longest ago first
        self._counted: dict[_Fault, _Counted] = {}

    def is_calm(self, at: Moment) -> bool:
        """Take a hit; tell whether it is one of the first of its second."""
        if not 0 <= at.mono_ns - self._since_ns < S:
            if self._hits <= MOST_HITS:
                self._told.clear()
            self._since_ns = at.mono_ns
            self._hits = self._new_keys = 0
        self._hits += 1
        return self._hits <= MOST_HITS

    def goes_on(self, at: Moment) -> bool:
        """Tell whether more than enough have hit in this second already."""
        return self._hits > MOST_HITS and 0 <= at.mono_ns - self._since_ns < S

    def knows(self, key: str, severity: Severity) -> bool:
        """Tell whether such a fault was told, or cannot be told now."""
        return (key, severity) in self._told or self._new_keys > MOST_NEW_KEYS

    def told(self, hit: Hit) -> None:
        """Note a hit that is told in full."""
        fault = hit.key, hit.severity
        self._told.pop(fault, None)
        self._told[fault] = hit
        if len(self._told) > MAX_KEYS:
            del self._told[next(iter(self._told))]

    def count(self, key: str, severity: Severity, at: Moment, raw: bytes, boot: int) -> bool:
        """Count a line; false if it tells of another fault, which is to be told in full."""
        fault = key, severity
        if fault not in self._told:
            self._new_keys += 1
            if self._new_keys <= MOST_NEW_KEYS or not self._told:
                return False
            fault = next(reversed(self._told))  # a board may print ever new keys
        if known := self._counted.get(fault):
            known.last, known.raw = at, raw
            known.count += 1
        else:
            self._counted[fault] = _Counted(self._told[fault], at.seq, boot, at, raw)
        return True

    def untold(self) -> Iterator[Hit]:
        """Return what was counted, one hit for each fault, and count anew."""
        counted, self._counted = self._counted, {}
        for lines in counted.values():
            yield replace(
                lines.told,
                seq=lines.last.seq,
                block_first=lines.first_seq,
                boot=lines.boot,
                mono_ns=lines.last.mono_ns,
                utc_ns=lines.last.utc_ns,
                raw=lines.raw,
                opens_block=False,
                count=lines.count,
            )
