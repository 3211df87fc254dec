"""The conditions of a skill: `trigger in (linux.oops, esp.*) or line ~ overrun|fifo`.

Parts are `trigger|class|tag in (a, b)`, where a trailing `*` stands for any end, and
`line ~ REGEX` up to the next `or` or `and`; `and` binds closer than `or`. Nothing is evaluated.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from fnmatch import fnmatchcase

MAX_LINE = 512  # characters of a line that a regex sees


class WhenError(ValueError):
    """A condition cannot be read; the message says where."""


@dataclass(frozen=True, slots=True)
class Situation:
    """What conditions are held against."""

    trigger: str = ""
    fault_class: str = ""
    tags: frozenset[str] = frozenset()
    lines: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class When:
    """A parsed condition: one of several groups holds if all of its parts hold."""

    groups: tuple[tuple[_Part, ...], ...]

    def holds(self, now: Situation) -> bool:
        """Return whether the condition holds; an empty one never does."""
        return any(all(part.holds(now) for part in group) for group in self.groups)

    @property
    def regexes(self) -> tuple[str, ...]:
        """Return the regular expressions of all `line ~` parts."""
        return tuple(p.regex.pattern for g in self.groups for p in g if isinstance(p, _Matches))

    @property
    def names(self) -> frozenset[tuple[str, str]]:
        """Return what is asked of trigger, class and tag, as (what, name)."""
        return frozenset(
            (p.what, n) for g in self.groups for p in g if isinstance(p, _IsIn) for n in p.names
        )


def parse_when(text: str) -> When:
    """Return the condition in `text`; empty text gives one that never holds.

    Raises:
        WhenError: it cannot be read.

    """
    if not text.strip():
        return When(())
    return When(
        tuple(
            tuple(_part(part.strip()) for part in re.split(r"\s+and\s+", group))
            for group in re.split(r"\s+or\s+", text)
        )
    )


def is_slow(regex: str) -> bool:
    """Return whether a regex repeats what already repeats, and so may take for ever."""
    return re.search(r"\((?:[^()\\]|\\.)*[+*](?:[^()\\]|\\.)*\)\s*[+*{]", regex) is not None


@dataclass(frozen=True, slots=True)
class _IsIn:
    what: str
    names: Sequence[str]

    def holds(self, now: Situation) -> bool:
        if self.what == "tag":
            return not now.tags.isdisjoint(self.names)
        value = now.trigger if self.what == "trigger" else now.fault_class
        return bool(value) and any(fnmatchcase(value, name) for name in self.names)


@dataclass(frozen=True, slots=True)
class _Matches:
    regex: re.Pattern[str]

    def holds(self, now: Situation) -> bool:
        return any(self.regex.search(line[:MAX_LINE]) for line in now.lines)


_Part = _IsIn | _Matches


def _part(text: str) -> _Part:
    if found := re.fullmatch(r"(trigger|class|tag)\s+in\s+\(([^()]*)\)", text):
        names = [name.strip() for name in found[2].split(",")]
        if not all(re.fullmatch(r"[a-z0-9_.-]+\*?|\*", name) for name in names):
            raise WhenError(f"{text!r}: names are a-z 0-9 _ . - with commas between")
        return _IsIn(found[1], tuple(names))
    if found := re.fullmatch(r"line\s+~\s+(.+)", text):
        try:
            return _Matches(re.compile(found[1], re.IGNORECASE))
        except re.error as exc:
            raise WhenError(f"{found[1]!r}: {exc}") from exc
    raise WhenError(f"{text!r} is neither `trigger|class|tag in (a, b)` nor `line ~ REGEX`")
