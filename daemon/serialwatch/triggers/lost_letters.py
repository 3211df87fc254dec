"""Lines of which a character was lost on the wire: looked for only where something hangs on it."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from functools import lru_cache

from serialwatch.triggers.boots import Start
from serialwatch.triggers.patterns import LineView, Pattern, compile_pattern
from serialwatch.triggers.recent import Recent
from serialwatch.triggers.ruleset import Shutdown
from serialwatch.triggers.uses import Uses

_LEAST = 4  # characters of a pattern in a row, of which one may be lost
_LINES = 40  # before a start, in which it may be announced
_MOST_LINES = 2000  # behind one, in which it may be said to be finished
_CONTEXT_LINES = 3  # before an announcement: did somebody type something?
_TELLING = 6  # so many are rare enough that their halves tell where to look
# Plain characters in a row, without the last one where that need not be there, or comes again.
_PLAIN = re.compile(r"(?:(?:[\w ,:;'=/#!<>@\"%-]|\\[^\w\s])(?![?*{]))+")
_OTHERS = re.compile(
    r"\\(?P<char>\W)|\\\w|\[[^\]]*\]|\(\?(?:P<\w+>|<?[=!]|[:aiLmsux]+\)?)|\{[^}]*\}"
)


class Announced:
    """The ends and restarts that a board announced in lines that were damaged."""

    def __init__(self, uses: Sequence[Uses], recent: Recent) -> None:
        self._uses = uses
        self._recent = recent
        self._shutdowns: dict[Pattern, list[Shutdown]] = {}  # found when they are asked for

    def explains(self, start: Start) -> bool:
        """Tell whether a start was announced after all, and note it there."""
        if not self._shutdowns:
            self._shutdowns = {use.pattern: use.shutdowns for use in self._uses if use.shutdowns}
        first = max(1, start.at.seq - _LINES)
        lines = self._recent.lines_between(first, start.at.seq - 1)
        told = [
            shutdown
            for number, pattern in lines_nearly(lines, self._shutdowns)
            for shutdown in self._shutdowns[pattern]
            if _comes_after(shutdown, lines[max(0, number - _CONTEXT_LINES) : number])
        ]
        for shutdown in told:
            start.announced(shutdown.leads_to)
        return bool(told)

    def was_ready(self, start: Start | None, last_seq: int) -> bool:
        """Tell whether a start was finished after all, up to a line."""
        if start is None:
            return False
        first = max(start.at.seq, last_seq - _MOST_LINES)
        lines = self._recent.lines_between(first, last_seq)
        ready = [use.pattern for use in self._uses if use.ready]
        return any(True for _ in lines_nearly(lines, ready))


def _comes_after(shutdown: Shutdown, lines: Sequence[bytes]) -> bool:
    patterns = tuple(map(compile_pattern, shutdown.after))
    return not patterns or any(LineView(line).has(patterns) for line in lines)


def nearly(line: bytes, pattern: Pattern) -> bool:
    """Tell whether a pattern would match with one more character in the line."""
    if pattern.source.startswith("(?i)"):
        line = line.lower()
    return any(LineView(mended).search(pattern) for mended in _mended(line, pattern.source))


def lines_nearly(
    lines: Iterable[bytes], patterns: Iterable[Pattern]
) -> Iterator[tuple[int, Pattern]]:
    """Return which of the lines each pattern nearly matches; mostly none."""
    kept = list(lines)
    text = b"\n".join(kept)
    folded = text.lower()
    for pattern in patterns:
        where = folded if pattern.source.startswith("(?i)") else text
        words = words_of(pattern.source)
        telling = [word for word in words if len(word) >= _TELLING] or words
        if not any(_may_hold(where, word) for word in telling):
            continue
        for number, line in enumerate(kept):
            if nearly(line, pattern):
                yield number, pattern


def _may_hold(text: bytes, word: bytes) -> bool:
    """Tell whether a half of a word is there: where one character is lost, the other is whole."""
    half = len(word) // 2
    return word[:half] in text or word[half:] in text


def _mended(line: bytes, source: str) -> Iterator[bytes]:
    """Return the line with a character put back that makes words of the pattern whole."""
    for word in words_of(source):
        half = len(word) // 2
        for at in _places(line, word[:half]):  # it is lost behind that
            same = _same(line[at:], word)
            if line.startswith(word[same + 1 :], at + same):
                yield line[: at + same] + word[same : same + 1] + line[at + same :]
        for at in _places(line, word[half:]):  # or before
            end = at + len(word) - half
            same = _same(line[:end][::-1], word[::-1])
            lost = len(word) - same - 1
            if lost >= 0 and line.endswith(word[:lost], 0, end - same):
                yield line[: end - same] + word[lost : lost + 1] + line[end - same :]


def _places(line: bytes, part: bytes) -> Iterator[int]:
    at = line.find(part)
    while at >= 0:
        yield at
        at = line.find(part, at + 1)


def _same(text: bytes, word: bytes) -> int:
    """Return how many characters both begin with."""
    return next((n for n, char in enumerate(word) if text[n : n + 1] != word[n : n + 1]), len(word))


@lru_cache(maxsize=512)
def words_of(source: str) -> tuple[bytes, ...]:
    """Return what stands in a pattern in plain characters, as far as it is long enough."""
    plain = _OTHERS.sub(lambda match: f"\\{match['char']}" if match["char"] else "\n", source)
    is_caseless = source.startswith("(?i)")
    found = (text.replace("\\", "") for text in _PLAIN.findall(plain))
    return tuple(
        text.lower().encode() if is_caseless else text.encode()
        for text in found
        if len(text) >= _LEAST
    )
