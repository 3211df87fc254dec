"""Lines of a busy port that say nothing by themselves: they are judged some at a time."""

from __future__ import annotations

from dataclasses import dataclass, field

from serialwatch.records import Lines

_MOST_BYTES = 16 * 1024
_MOST_NS = 50_000_000  # from the first byte that waits to the newest


@dataclass(slots=True)
class Scanned:
    """Lines that Hyperscan has looked at."""

    lines: Lines
    begun_ns: int  # when the first of them came
    view: bytes
    hits: list[tuple[int, int]]


@dataclass(slots=True)
class Unjudged:
    """Lines that wait to be judged, in their order."""

    _parts: list[Scanned] = field(default_factory=list)
    _bytes: int = 0

    def __bool__(self) -> bool:
        return bool(self._parts)

    @property
    def is_full(self) -> bool:
        """Tell whether it is time to judge them."""
        return self._bytes >= _MOST_BYTES

    def is_joined_by(self, mono_ns: int) -> bool:
        """Tell whether lines of now may be judged as if they had come with those that wait."""
        return not self._parts or mono_ns - self._parts[0].begun_ns < _MOST_NS

    def add(self, part: Scanned) -> None:
        """Let lines wait."""
        self._parts.append(part)
        self._bytes += len(part.view)

    def take(self) -> Scanned:
        """Return all that waits as one block, which came with its last byte."""
        parts, self._parts, self._bytes = self._parts, [], 0
        if len(parts) == 1:
            return parts[0]
        first, last = parts[0], parts[-1]
        hits: list[tuple[int, int]] = []
        at = 0
        for part in parts:
            hits += [(number, end + at) for number, end in part.hits] if at else part.hits
            at += len(part.view)
        text = b"".join([part.lines.text for part in parts])
        is_bare = all(part.view is part.lines.text for part in parts)
        view = text if is_bare else b"".join([part.view for part in parts])
        count = sum([part.lines.count for part in parts])
        newest = last.lines
        lines = Lines(first.lines.first_seq, count, text, newest.mono_ns, newest.utc_ns)
        return Scanned(lines, first.begun_ns, view, hits)
