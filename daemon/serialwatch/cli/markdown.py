"""Text for Markdown that stays text: nothing that a board printed becomes markup, on GitHub either.

Links, mentions, issue numbers, commits and emoji are made of plain words after the markup has been
read, so that a backslash does not keep them from it: such words become code.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator

from serialwatch.cli.tables import safe


def inert(text: str) -> str:
    """Return one line of text that a renderer shows as it is."""
    # Every second part is code already, `so`; code is as inert as it gets.
    parts = _CODE.split(safe(text).replace("\t", " ").strip(" "))
    out = "".join(code(part) if at % 2 else _words(part) for at, part in enumerate(parts))
    # At the beginning of a list's item some characters begin a list or a rule of their own.
    return _BEGIN.sub(r"\g<1>\\\g<2>", out, count=1)


def code(text: str) -> str:
    """Return text as a code span."""
    longest = max((len(run) for run in re.findall(r"`+", text)), default=0)
    if not longest:
        return f"`{text}`"
    mark = "`" * (longest + 1)
    return f"{mark} {text} {mark}"


def fenced(lines: Iterable[str]) -> Iterator[str]:
    """Return lines as a block of code, whatever stands in them."""
    body = list(lines)
    longest = max((len(run) for line in body for run in re.findall(r"`+", line)), default=0)
    mark = "`" * max(3, longest + 1)
    yield f"{mark}text"
    yield from body
    yield mark


def _words(text: str) -> str:
    return "".join(_word(word) for word in re.split(r"( +)", text))


def _word(word: str) -> str:
    if not _ACTIVE.search(word):
        return _escaped(word)
    core = word.rstrip(".,;!?")
    if core.count(":") == 1:  # more of them are an emoji, or an address
        core = core.rstrip(":")
    return code(core) + _escaped(word[len(core) :])


def _escaped(text: str) -> str:
    return "".join(f"\\{c}" if c in _MARKUP else c for c in text)


_MARKUP = frozenset("\\`*_{}[]<>#|~&!^=")
_CODE = re.compile(r"(?<![`\\\w])`([^`]+)`(?![`\w])")
_BEGIN = re.compile(r"^((?:\d{1,9})?)([-+.)])(?=\s|$)")
_ACTIVE = re.compile(
    r"@\w"  # a mention, a mail address
    r"|://|\bwww\.|\bmailto:|\bxmpp:"
    r"|#\d|\bGH-\d"  # an issue
    r"|(?<![0-9a-zA-Z])[0-9a-f]{7,64}(?![0-9a-zA-Z])"  # a commit
    r"|:[0-9_+-]*[a-z][a-z0-9_+-]*:"  # an emoji
    r"|\$",  # mathematics
    re.IGNORECASE,
)
