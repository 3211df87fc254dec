"""Hides secrets before a prompt leaves the PC, and puts them back into what comes back.

Applied where a prompt becomes a request (`HidingModel`). What the store keeps of prompts and
answers is what was sent: without the secrets. Placeholders such as `<secret-3>` count from 1 in
each run, and one value has one placeholder.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterable, Iterator
from dataclasses import replace
from typing import Any, TypeVar

from serialwatch.agent.models.secret_shapes import PLACEHOLDER, Span, find_secrets

T = TypeVar("T")

_OURS = frozenset({"role", "type", "id", "tool_call_id"})  # keys of messages without foreign text
MIN_KNOWN = 8  # characters from which a secret is hidden wherever it stands, not only where named


class Redactor:
    """Hides the secrets of one run; `patterns` are the user's own, a group `secret` in them or
    else the whole match is hidden.
    """

    def __init__(self, patterns: Iterable[str] = ()) -> None:
        self._own = [re.compile(pattern) for pattern in patterns]
        self._names: dict[str, str] = {}  # placeholder by hidden text
        self._texts: dict[str, str] = {}  # hidden text by placeholder
        self._counts: dict[str, int] = {}
        self._known: re.Pattern[str] | None = None
        self._known_texts: set[str] = set()

    @property
    def count(self) -> int:
        """Return how many different things were hidden."""
        return len(self._names)

    def hide(self, text: str) -> str:
        """Return a text with placeholders for what is nobody else's business."""
        spans = _merged([*find_secrets(text), *self._found_own(text)])
        for span in spans:
            self._name(text[span.start : span.end], span)
        if self._known is not None:
            spans = _merged([*spans, *(Span(*m.span(), "secret", False)
                                       for m in self._known.finditer(text))])  # fmt: skip
        parts: list[str] = []
        at = 0
        for span in spans:
            parts += [text[at : span.start], self._name(text[span.start : span.end], span)]
            at = span.end
        return "".join([*parts, text[at:]])

    def restore(self, text: str) -> str:
        """Return a text with what was hidden in its place again."""
        return PLACEHOLDER.sub(lambda m: self._texts.get(m[0], m[0]), text)

    def hide_all(self, value: T) -> T:
        """Return the same with every string in it hidden: messages, or an answer for the store."""
        known = len(self._known_texts)
        hidden = _mapped(value, self.hide)
        if len(self._known_texts) > known:  # what one message names another may hold without a name
            hidden = _mapped(value, self.hide)
        return hidden

    def restore_json(self, text: str) -> str:
        """Restore within the strings of a JSON text, which stays JSON."""

        def written(found: re.Match[str]) -> str:
            hidden = self._texts.get(found[0])
            return json.dumps(hidden, ensure_ascii=False)[1:-1] if hidden else found[0]

        return PLACEHOLDER.sub(written, text)

    def _found_own(self, text: str) -> Iterator[Span]:
        for pattern in self._own:
            group: str | int = "secret" if "secret" in pattern.groupindex else 0
            for found in pattern.finditer(text):
                if found.end(group) > found.start(group):
                    yield Span(*found.span(group), "secret", is_known=False)

    def _name(self, hidden: str, span: Span) -> str:
        name = self._names.get(hidden)
        if name is None:
            number = self._counts[span.kind] = self._counts.get(span.kind, 0) + 1
            name = f"<{span.kind}-{number}>"
            self._names[hidden] = name
            self._texts[name] = hidden
        if span.is_known and len(hidden) >= MIN_KNOWN and hidden not in self._known_texts:
            self._known_texts.add(hidden)
            longest_first = sorted(self._known_texts, key=len, reverse=True)
            self._known = re.compile("|".join(map(re.escape, longest_first)))
        return name


def _mapped(value: T, change: Callable[[str], str]) -> T:
    changed: Any = value
    if isinstance(value, str):
        changed = change(value)
    elif isinstance(value, dict):
        changed = {
            key: item if key in _OURS else _mapped(item, change) for key, item in value.items()
        }
    elif isinstance(value, list | tuple):
        changed = type(value)(_mapped(item, change) for item in value)
    result: T = changed
    return result


def _merged(spans: Iterable[Span]) -> list[Span]:
    """Return spans in order; those that overlap become one."""
    merged: list[Span] = []
    for span in sorted(spans, key=lambda s: (s.start, -s.end)):
        if merged and span.start < merged[-1].end:
            last = merged[-1]
            merged[-1] = replace(
                last, end=max(last.end, span.end), is_known=last.is_known and span.is_known
            )
        else:
            merged.append(span)
    return merged
