"""The YAML head of SKILL.md and of knowledge pages."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import yaml

MAX_TEXT = 256 * 1024  # bytes of a file


class FrontMatterError(ValueError):
    """A text does not begin with a head that can be read; the message says what is wrong."""


@dataclass(frozen=True, slots=True)
class Document:
    """A text with its head."""

    head: Mapping[str, Any]
    body: str
    body_line: int  # line number of the first line of `body`, from 1


def parse_front_matter(text: str) -> Document:
    """Return head and body of `text`; the head stands between two lines that are exactly `---`.

    Raises:
        FrontMatterError: no head, no end of it, or no YAML mapping in it.

    """
    lines = text.removeprefix("\ufeff").replace("\r\n", "\n").split("\n")
    if len(text) > MAX_TEXT:
        raise FrontMatterError(f"longer than {MAX_TEXT} bytes")
    if not lines or lines[0] != "---":
        raise FrontMatterError("the first line must be `---`")
    try:
        end = lines.index("---", 1)
    except ValueError:
        raise FrontMatterError("no closing line that is exactly `---`") from None
    try:
        head = yaml.load("\n".join(lines[1:end]), Loader=_Loader)  # noqa: S506  (a safe one)
    except yaml.YAMLError as exc:
        raise FrontMatterError(f"no YAML: {_where(exc)}") from exc
    if not isinstance(head, dict) or not all(isinstance(k, str) for k in head):
        raise FrontMatterError("must be `key: value` lines")
    return Document(head, "\n".join(lines[end + 1 :]).strip("\n"), end + 2)


# The same safe loader ten times as fast, where PyYAML was built with libyaml.
_Loader = getattr(yaml, "CSafeLoader", yaml.SafeLoader)


def _where(exc: yaml.YAMLError) -> str:
    mark, problem = getattr(exc, "problem_mark", None), getattr(exc, "problem", None)
    if mark is None or not problem:
        return " ".join(str(exc).split())
    return f"line {mark.line + 2}: {problem}"
