"""Knowledge pages: what a fault usually means, what to do about it and what not."""

from __future__ import annotations

import logging
import math
import re
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from serialwatch.agent.front_matter import MAX_TEXT, FrontMatterError, parse_front_matter

log = logging.getLogger(__name__)

MAX_PAGES = 2000
MAX_WORDS = 24  # of a query
CALLED_SO = 20.0  # more for a page that is called just as it is asked for


@dataclass(frozen=True, slots=True)
class Cause:
    """A possible cause of a fault."""

    text: str
    likely: str  # how often it is this one, in the page's own words
    check: str  # how to find out
    rules: tuple[str, ...] = ()  # ids whose hit before the fault shows it; `pack.*` is any of one
    lines: tuple[str, ...] = ()  # patterns of lines that show it
    unless: tuple[str, ...] = ()  # patterns of lines that refute it


@dataclass(frozen=True, slots=True)
class Page:
    """One page of the knowledge base."""

    id: str  # <pack>/<word>
    title: str
    ecosystem: str  # names between spaces, "" for any
    causes: tuple[Cause, ...]  # likeliest first
    do: tuple[str, ...]
    never: tuple[str, ...]
    body: str
    path: Path
    also: tuple[str, ...] = ()  # what people call it: who asks for just that means this page


@dataclass(frozen=True, slots=True)
class Found:
    """A page that fits a query."""

    page: Page
    score: float  # above 0, larger is better; comparable within one query only


class PageError(ValueError):
    """A page cannot be used; the message names file and reason."""

    def __init__(self, path: Path, problem: str) -> None:
        super().__init__(f"{path}: {problem}")
        self.path = path


class Knowledge:
    """All pages, by id and by words."""

    def __init__(self, pages: Mapping[str, Page]) -> None:
        self.pages = pages
        self._words = {page_id: _weighted(page) for page_id, page in pages.items()}
        self._lengths = {p: sum(words.values()) for p, words in self._words.items()}
        self._named = {page_id: {_name(x) for x in page.also} for page_id, page in pages.items()}
        self._spread = Counter(word for words in self._words.values() for word in words)

    def get(self, id: str) -> Page | None:
        """Return the page `id`; `linux.oops` and `linux/oops` are the same."""
        return self.pages.get(id) or self.pages.get(id.replace(".", "/", 1))

    def search(self, query: str, ecosystem: str | None = None, limit: int = 3) -> list[Found]:
        """Return the pages that fit the words of `query` best, best first (BM25)."""
        called = _name(query)
        asked = list(dict.fromkeys(_words(query)))[:MAX_WORDS]
        found = [
            Found(page, round(score, 3))
            for page_id, page in self.pages.items()
            if ecosystem is None
            or page.ecosystem in ("", "any")
            or ecosystem in page.ecosystem.split()
            if (score := self._score(page_id, asked, called)) > 0
        ]
        return sorted(found, key=lambda f: (-f.score, f.page.id))[:limit]

    def _score(self, page_id: str, asked: Sequence[str], called: str) -> float:
        words, total = self._words[page_id], len(self.pages)
        mean = sum(self._lengths.values()) / total
        score = 0.0
        for word in asked:
            if not (count := words.get(word, 0)):
                continue
            rare = math.log(1 + (total - self._spread[word] + 0.5) / (self._spread[word] + 0.5))
            damp = 1.2 * (0.25 + 0.75 * self._lengths[page_id] / mean)
            score += rare * count * 2.2 / (count + damp)
        return score + CALLED_SO if called in self._named[page_id] else score


def load_knowledge(dirs: Sequence[Path]) -> Knowledge:
    """Return the pages below `dirs`; of two with one id that of the earlier folder wins.

    A page that cannot be read is left out and logged; folders that do not exist are skipped. It
    takes about a third of a millisecond a page.
    """
    pages: dict[str, Page] = {}
    for root in dirs:
        for path in sorted(root.glob("*/*.md"))[:MAX_PAGES]:
            try:
                page = read_page(path)
            except PageError as exc:
                log.warning("knowledge page left out: %s", exc)
            else:
                pages.setdefault(page.id, page)
    return Knowledge(pages)


def read_page(path: Path) -> Page:
    """Return the page in a file.

    Raises:
        PageError: it cannot be read or lacks something.

    """
    try:
        if path.stat().st_size > MAX_TEXT:
            raise PageError(path, f"larger than {MAX_TEXT} bytes")
        document = parse_front_matter(path.read_bytes().decode())
        head = document.head
        return Page(
            id=_text(head, "id"),
            title=_text(head, "title"),
            ecosystem=_names(head.get("ecosystem") or ""),
            causes=tuple(_cause(c) for c in _list(head, "causes")),
            do=tuple(_line(x) for x in _list(head, "do")),
            never=tuple(_line(x) for x in _list(head, "never")),
            body=document.body,
            path=path,
            also=tuple(_line(x) for x in _list(head, "also")),
        )
    except PageError:
        raise
    except (OSError, FrontMatterError, ValueError) as exc:
        raise PageError(path, str(exc)) from exc


def _text(head: Mapping[str, Any], key: str) -> str:
    value = head.get(key)
    if not isinstance(value, str) or not value.strip():
        raise ValueError(f"{key} must be a text")
    return value.strip()


def _names(value: object) -> str:
    return " ".join(map(str, value)) if isinstance(value, list) else str(value)


def _list(head: Mapping[str, Any], key: str) -> list[Any]:
    value = head.get(key) or []
    if not isinstance(value, list):
        raise ValueError(f"{key} must be a list")
    return value


def _cause(value: object) -> Cause:
    if not isinstance(value, dict) or value.keys() - _OF_A_CAUSE:
        raise ValueError("each of causes has text, likely and check, perhaps rules, lines, unless")
    return Cause(
        text=_text(value, "text"),
        likely=_line(value.get("likely", "")),
        check=_line(value.get("check", "")),
        rules=tuple(_line(rule) for rule in _list(value, "rules")),
        lines=tuple(_pattern(line) for line in _list(value, "lines")),
        unless=tuple(_pattern(line) for line in _list(value, "unless")),
    )


_OF_A_CAUSE = {"text", "likely", "check", "rules", "lines", "unless"}


def _pattern(value: object) -> str:
    """Return a pattern that can be searched for in a line."""
    pattern = _line(value)
    try:
        re.compile(pattern)
    except re.error as exc:
        raise ValueError(f"{pattern!r} is no pattern: {exc}") from exc
    return pattern


def _line(value: object) -> str:
    if isinstance(value, (dict, list)):
        raise ValueError(f"a text was expected, not {value!r} (a colon in it needs quotes)")
    return " ".join(str(value).split())


def _weighted(page: Page) -> Counter[str]:
    """Return how much each word says of the page."""
    words: Counter[str] = Counter()
    for weight, text in (
        (4, f"{page.id} {page.title}"),
        (2, " ".join(page.also)),
        (2, " ".join(f"{c.text} {c.check}" for c in page.causes)),
        (1, " ".join((*page.do, *page.never, page.body))),
    ):
        for word in _words(text):
            words[word] += weight
    return words


def _name(text: str) -> str:
    """Return a name so that its spellings are one: "Brown-outs", "brownout"."""
    words = re.findall(r"[a-z0-9]+", text.lower())
    return "".join(re.sub(r"(?<=[a-z]{3})(?<!s)s$", "", word) for word in words)


def _words(text: str) -> list[str]:
    """Return the words of `text`; `irq_nobody_cared` counts as a whole and in its parts."""
    whole = re.findall(r"[a-z0-9_]{2,}", text.lower())
    return [*whole, *(part for word in whole if "_" in word for part in word.split("_") if part)]
