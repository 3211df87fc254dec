"""Line templates of one port: which words of its lines stay and which change. A small Drain.

A template is a line with `<*>` where words differed. Lines are compared with templates of the same
number of words and the same first word (He et al., "Drain", ICWS 2017); words that say how it went
never become `<*>`, so that "started" and "failed" stay two templates.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterable

from serialwatch.agent.text.line_shape import shape

MAX_TEMPLATES = 500  # of one port; the one that was not seen for longest is forgotten
MAX_WORDS = 64  # of a line
ALIKE = 0.5  # share of words that must be the same
_ANY = "<*>"
_MASKED = ("<n>", "<x>", _ANY)
# fmt: off
_TELLING = frozenset({
    "abort", "aborted", "bad", "broken", "corrupt", "dead", "denied", "disabled", "done", "down",
    "enabled", "err", "error", "fail", "failed", "failure", "fatal", "fault", "invalid", "killed",
    "late", "lost", "missing", "no", "not", "off", "offline", "ok", "on", "online", "overrun",
    "panic", "passed", "ready", "refused", "rejected", "reset", "skipped", "stalled", "started",
    "stopped", "stuck", "timeout", "unable", "unknown", "up", "warning", "wrong",
})
# fmt: on

_Words = tuple[str, ...]


def words_of(text: str) -> _Words:
    """Return the words of a line, its time left out, its numbers as `<n>` and `<x>`."""
    return tuple(shape(text).split()[:MAX_WORDS])


class Templates:
    """The templates of one port, the least recently seen first."""

    def __init__(self, known: Iterable[str] = (), most: int = MAX_TEMPLATES) -> None:
        self._most = most
        self._templates: OrderedDict[_Words, None] = OrderedDict()
        self._like: dict[tuple[int, str], list[_Words]] = {}
        self.forgotten = 0  # templates that had to go
        for template in known:
            self._add(tuple(template.split()))

    def __len__(self) -> int:
        return len(self._templates)

    def knows(self, text: str) -> bool:
        """Tell whether a line is like one that was learned."""
        words = words_of(text)
        return not words or self._nearest(words) is not None

    def learn(self, text: str) -> bool:
        """Take in a line; return whether it was like none before."""
        words = words_of(text)
        if not words:
            return False
        near = self._nearest(words)
        if near is None:
            self._add(words)
            return True
        common = tuple(a if a == b else _ANY for a, b in zip(near, words, strict=True))
        if common == near:
            self._templates.move_to_end(near)
        else:
            self._forget(near)
            self._add(common)
        return False

    def texts(self) -> list[str]:
        """Return the templates as text, the least recently seen first."""
        return [" ".join(words) for words in self._templates]

    def _nearest(self, words: _Words) -> _Words | None:
        best, best_share = None, 0.0
        for template in self._like.get(_place(words), ()):
            share = alike(template, words)
            if share > best_share:
                best, best_share = template, share
        return best if best_share >= ALIKE else None

    def _add(self, words: _Words) -> None:
        if not words or words in self._templates:
            return
        self._templates[words] = None
        self._like.setdefault(_place(words), []).append(words)
        if len(self._templates) > self._most:
            self._forget(next(iter(self._templates)))
            self.forgotten += 1

    def _forget(self, words: _Words) -> None:
        del self._templates[words]
        place = _place(words)
        self._like[place].remove(words)
        if not self._like[place]:
            del self._like[place]


def _place(words: _Words) -> tuple[int, str]:
    first = words[0]
    return len(words), _ANY if any(mask in first for mask in _MASKED) else first


def alike(template: _Words, words: _Words) -> float:
    """Return the share of words that are the same, 0 if a telling one differs."""
    same = 0
    for ours, theirs in zip(template, words, strict=True):
        if ours == theirs:
            same += 1
        elif _is_telling(ours) or _is_telling(theirs):
            return 0.0
    return same / len(words)


def _is_telling(word: str) -> bool:
    return word.lower().strip(".,:;!()[]") in _TELLING
