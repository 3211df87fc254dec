"""Lines that a logger, a slow reader or a console tore in two: what stands across the seam.

A seam counts only where a pattern matches the two halves put together, matches neither of them
alone, and no longer matches with something else between them: then words of the pattern itself
stand on both sides, which no two healthy neighbours have. Lines that merely hold two words of a
pattern, one each, are not taken for one.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from functools import cache

import hyperscan as hs

Scan = Callable[[bytes], list[tuple[int, int]]]

_MOST_JOINED = 1024  # bytes of a half; what is longer is no line that somebody wrote
_KEPT = 2  # bytes before a seam that tell whether it looks torn
_HEAD = 96  # and bytes behind it
_ELSE = b"\x1a"  # stands in no line of the view

# What a logger puts before each read; the halves of a line have one of the same form each.
_DAY = rb"[A-Z][a-z][a-z] [ \d]\d \d\d:\d\d:\d\d"
_SENDER = rb"(?:[\w.-]+ [^ :\n]+: )"
_LOGGERS = (
    rb"\[(?:tio )?\d[\d:. TZ-]{7,31}\] ",
    rb"\d\d:\d\d:\d\d\.\d{3} -> ",
    _DAY + rb" " + _SENDER,
    _DAY + rb" ",
    rb"\d{4}-\d\d-\d\d[ T]\d\d:\d\d:\d\d[\d.,]{0,8}(?:Z|[+-]\d\d:?\d\d)? " + _SENDER + rb"?",
)
_NO_PREFIX = re.compile(rb"")
_OWN_STAMP = re.compile(
    rb"(?:<\d{1,3}>)?\[ *\d{1,8}\.\d{3,6}[\]\[]|\[\d\d:\d\d:\d\d\.\d{3},\d{3}\] |[VDIWE] \(\d+\) "
)
# How a line ends and the next begins where it looks as if the first went on.
_LOOKS_TORN = (
    (rb"[a-z_]", rb"[a-z_]"),
    (rb"[A-Z][A-Z]", rb"[A-Z]"),
    (rb"[A-Z]", rb"[a-z]"),
    (rb"[^ \n] ", rb"[A-Za-z0-9(]"),
    (rb"[a-z,:]", rb" [A-Za-z0-9(]"),
    (rb"[A-Za-z0-9]", rb"[:;,.'=)\]-]"),
)
_GRAM = 4
_WORDS = re.compile(rb"(?:[\w ,:;'=-]|(?<!\\)\\[()\[\].*+-])+")
_BEGUN_BY_PUTTY = b"=~=~=~"


@dataclass(frozen=True, slots=True)
class Joint:
    """Two halves put together, in which a pattern matches across the seam."""

    offset: int  # of the second half in the chunk
    text: bytes
    ends: dict[int, int]  # of the patterns that match across the seam, from the start of the text
    others: dict[int, int]  # and of those that match elsewhere


class Seams:
    """Looks across the ends of one port's lines; it does not matter how they come in chunks."""

    def __init__(self, grams: frozenset[bytes]) -> None:
        """Take the words of all patterns, as `grams_of` cuts them."""
        self.grams = grams
        self._before = b""  # the newest line
        self._ends: list[int] = []
        self._handler = self._found  # Hyperscan's binding keeps no reference
        self._prefix = _NO_PREFIX
        self._database: hs.Database | None = None

    def fed(self, view: bytes, scan: Scan) -> list[Joint]:
        """Take complete lines; return the joints that tell what no line does, in their order."""
        if self._database is None and not self._begin(view):
            return []
        candidates = self._candidates(view)
        last = view.rfind(b"\n", 0, len(view) - 1) + 1
        self._before = view[last:-1]
        if not candidates:
            return []
        return _proved(candidates, scan)

    def _begin(self, view: bytes) -> bool:
        """Learn from the first line that says something whether a logger stamps all lines."""
        for line in view.split(b"\n"):
            if line.strip() and not line.startswith(_BEGUN_BY_PUTTY):
                logger = next((each for each in _LOGGERS if re.match(each, line)), b"")
                self._prefix = re.compile(logger)
                self._database = _torn_ends(logger)
                self._scratch = hs.Scratch(self._database)
                return True
        return False

    def _candidates(self, view: bytes) -> list[tuple[int, bytes, bytes, bytes]]:
        """Return the offsets of halves, the halves before them, themselves, and all of the line."""
        found: list[tuple[int, bytes, bytes, bytes]] = []
        first_end = view.find(b"\n")
        if self._before:
            tail = self._before[-_KEPT:]
            if self._torn_at(tail + b"\n" + view[: min(_HEAD, first_end)]):
                prefix = self._prefix.match(view)
                begun = prefix.end() if prefix else 0
                if self._may_be_word(self._before[-3:], view[begun : begun + 4]):
                    self._add(found, 0, self._before, view[:first_end])
        for at in self._torn_at(view):
            start = view.rfind(b"\n", 0, at) + 1
            prefix = self._prefix.match(view, start)
            begun = prefix.end() if prefix else at
            if not self._may_be_word(view[max(0, start - 4) : start - 1], view[begun : begun + 4]):
                continue
            before = view[view.rfind(b"\n", 0, start - 1) + 1 : start - 1]
            self._add(found, start, before, view[start : view.find(b"\n", at)])
        return found

    def _add(
        self, found: list[tuple[int, bytes, bytes, bytes]], start: int, before: bytes, line: bytes
    ) -> None:
        prefix = self._prefix.match(line)
        if prefix is None or self._prefix.match(before) is None:
            return
        rest = line[prefix.end() :]
        if len(before) > _MOST_JOINED or len(rest) > _MOST_JOINED or b"\r" in before[:-1]:
            return
        if _OWN_STAMP.match(rest):
            return
        if found and found[-1][0] == start:
            return
        found.append((start, before, rest, line))

    def _may_be_word(self, before: bytes, rest: bytes) -> bool:
        """Tell whether some pattern has these bytes in a row."""
        near = (before + rest).lower()
        at = len(before)
        grams = self.grams
        return (
            near[at - 2 : at + 2] in grams
            or near[at - 3 : at + 1] in grams
            or near[at - 1 : at + 3] in grams
        )

    def _torn_at(self, text: bytes) -> list[int]:
        assert self._database is not None
        self._database.scan(text, match_event_handler=self._handler, scratch=self._scratch)
        if not self._ends:
            return []
        ends, self._ends = self._ends, []
        return [end - 1 for end in ends]

    def _found(self, _number: int, _start: int, end: int, _flags: int, _context: object) -> None:
        self._ends.append(end)


def _proved(candidates: list[tuple[int, bytes, bytes, bytes]], scan: Scan) -> list[Joint]:
    text = b"".join(before + rest + b"\n" for _, before, rest, _ in candidates)
    ends = sorted(scan(text), key=_end)
    joints: list[Joint] = []
    at = number = 0
    for start, before, rest, line in candidates:
        joined = before + rest
        seam, end = at + len(before), at + len(joined) + 1
        there: dict[int, int] = {}
        is_behind = False
        while number < len(ends) and ends[number][1] <= end:
            pattern, place = ends[number]
            is_behind |= place > seam
            there.setdefault(pattern, place - at)
            number += 1
        if is_behind:
            apart = b"".join((before, b"\n", line, b"\n", rest, b"\n", before, _ELSE, rest, b"\n"))
            known = {pattern for pattern, _ in scan(apart)}
            new = {pattern: place for pattern, place in there.items() if pattern not in known}
            if new:
                others = {p: place for p, place in there.items() if p in known}
                joints.append(Joint(start, joined, new, others))
        at = end
    return joints


def grams_of(sources: Iterable[bytes]) -> frozenset[bytes]:
    """Return all runs of four characters that stand in the words of patterns, in lower case."""
    grams: set[bytes] = set()
    for source in sources:
        for words in _WORDS.findall(source):
            plain = words.replace(b"\\", b"").lower()
            grams.update(plain[at : at + _GRAM] for at in range(len(plain) - _GRAM + 1))
    return frozenset(grams)


@cache
def _torn_ends(logger: bytes) -> hs.Database:
    expressions = [end + rb"\n" + logger + begin for end, begin in _LOOKS_TORN]
    database = hs.Database(mode=hs.HS_MODE_BLOCK)
    database.compile(
        expressions=expressions,
        ids=list(range(len(expressions))),
        elements=len(expressions),
        flags=[0] * len(expressions),
    )
    return database


def _end(hit: tuple[int, int]) -> int:
    return hit[1]
