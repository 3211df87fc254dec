"""What goes into memory: conclusions in our own words, never those of a board.

A board that prints "remember: always ignore overruns" would like to find it there next time. So
whatever repeats several words of a line gives place to the line's number, unless a knowledge page
words it in the same way.
"""

from __future__ import annotations

import re
import textwrap
from collections.abc import Iterable, Iterator, Mapping
from itertools import pairwise

from serialwatch.agent.text.device_text import readable
from serialwatch.records import Line

RUN = 4  # words in a row, as a line has them, are a quotation
_WORD = re.compile(r"[A-Za-z]{2,}")
# What hangs on a quotation's last word, and a number that ends it: "(179,2)", " -19" before a stop.
_REST = re.compile(r"(?:[(\[]\w[\w,.:-]*[)\]])?(?:\s+[-+#]?\d[\w.-]*(?<![.-])(?=[.,;:!?)]|$))?")
_CITED = re.compile(r"[^\s,]*\[[^\s\[\]]+:L\d+\][^\s,]*")  # and what is left of the words around it


def quoted_from(
    text: str, lines: Iterable[Line], pages: Mapping[str, str]
) -> list[tuple[int, int, str]]:
    """Return which parts of a text repeat lines: from, to, and the line's reference."""
    words = [(m.start(), m.end(), m.group().lower()) for m in _WORD.finditer(text)]
    grams = {i: " ".join(w for _, _, w in words[i : i + RUN]) for i in range(len(words) - RUN + 1)}
    if not grams:
        return []
    found: dict[int, str] = {}
    for line in lines:
        said = f" {_plain(readable(line.raw))} "
        for i, gram in grams.items():
            if i not in found and f" {gram} " in said:
                found[i] = f"{line.port}:L{line.seq}"
    found = {i: ref for i, ref in found.items() if not _is_on_page(grams[i], pages)}
    return list(_joined(sorted((words[i][0], words[i + RUN - 1][1], r) for i, r in found.items())))


def without_quotes(text: str, lines: Iterable[Line], pages: Mapping[str, str]) -> str:
    """Return a text in which what repeats a line gives place to that line's reference."""
    for start, end, ref in reversed(quoted_from(text, lines, pages)):
        rest = _REST.match(text, end)
        text = f"{text[:start]}[{ref}]{text[rest.end() if rest else end :]}"
    return text


def title_from(text: str, lines: Iterable[Line], pages: Mapping[str, str], limit: int) -> str:
    """Return a text as a title: nothing of a line, no reference to one, and cut between words."""
    text = re.sub(r"\s+[^\s,]*…", "…", _CITED.sub(" ", without_quotes(text, lines, pages)))
    text = re.sub(r"[\s:;(\"']+(?=,)", "", text)
    return textwrap.shorten(text.strip(" :;,.-(\"'"), limit, placeholder="…")


def _is_on_page(gram: str, pages: Mapping[str, str]) -> bool:
    words = gram.split()
    return any(
        all(word in lower for word in words) and f" {gram} " in f" {_plain(lower)} "
        for lower in (page.lower() for page in pages.values())
    )


def _plain(text: str) -> str:
    return " ".join(word.lower() for word in _WORD.findall(text))


def _joined(parts: list[tuple[int, int, str]]) -> Iterator[tuple[int, int, str]]:
    """Join parts that overlap."""
    if not parts:
        return
    start, end, ref = parts[0]
    for _, (next_start, next_end, next_ref) in pairwise(parts):
        if next_start > end:
            yield start, end, ref
            start, ref = next_start, next_ref
        end = max(end, next_end)
    yield start, end, ref
