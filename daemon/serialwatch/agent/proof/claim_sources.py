"""Where the numbers and names of a claim must come from: lines, results, pages, counts."""

from __future__ import annotations

import itertools
import re
from collections.abc import Iterable, Mapping, Sequence
from functools import cached_property

from serialwatch.agent.text.device_text import normal
from serialwatch.records import Incident, Line


class Sources:
    """Texts in which a claim's numbers and names must be found.

    A number of a knowledge page counts only beside a word that stands beside it there, too: pages
    are full of numbers that say nothing about this board.
    """

    def __init__(
        self,
        texts: Iterable[str],
        counts: frozenset[int],
        spans_s: Sequence[float],
        pages: Iterable[str] = (),
    ) -> None:
        self.text = normal("\n".join(texts)).lower()
        self.pages = normal("\n".join(pages)).lower()
        self.counts = counts
        self.spans_s = spans_s

    @cached_property
    def numbers(self) -> frozenset[int]:
        """Return each number of the texts, but for those of pages."""
        return _numbers_in(self.text)

    def with_texts(self, texts: Iterable[str]) -> Sources:
        """Return these and more."""
        return Sources([self.text, *texts], self.counts, self.spans_s, [self.pages])

    def missing(self, text: str) -> str:
        """Return the first number or mixed name of `text` that is not here, "" for none."""
        words: list[str] = _TOKEN.findall(normal(text).lower())
        for word, before, after in zip(words, ["", *words], [*words[1:], ""], strict=False):
            if word in _NUMBER_WORDS:
                number = str(_NUMBER_WORDS[word])
                if not (self._has_number(number) or self._on_page(word, before, after)):
                    return word
            elif word[0].isdigit():
                if not (self._has_number(word) or self._on_page(word, before, after)):
                    return word
            elif (
                any(c.isdigit() for c in word) or _HEX_WORD.fullmatch(word)
            ) and not self._has_name(word):
                return word
        return ""

    def has_name(self, word: str) -> bool:
        """Tell whether a name stands here as a word of its own."""
        name = re.compile(rf"(?<![a-z0-9]){re.escape(word.lower())}(?![a-z0-9])")
        return any(name.search(text) for text in (self.text, self.pages))

    def _on_page(self, number: str, before: str, after: str) -> bool:
        exact = rf"(?<!\w)(?<!\d\.){re.escape(number)}(?!\w|\.\d)"
        pairs = [rf"{re.escape(before)}\W{{1,3}}{exact}"] if before else []
        pairs += [rf"{exact}\W{{0,3}}{re.escape(after)}(?!\w)"] if after else []
        return any(re.search(pair, self.pages) for pair in pairs)

    def _has_name(self, word: str) -> bool:
        if _HEX_WORD.fullmatch(word) and int(word, 16) in self.numbers:
            return True
        return self.has_name(word)

    def _has_number(self, word: str) -> bool:
        if word.startswith("0x"):
            return int(word, 16) in self.numbers
        plain = word.replace(",", "") if _THOUSANDS.fullmatch(word) else word
        if not plain.isdigit():
            return self._has_decimal(plain)
        value = int(plain)
        if value in self.numbers or value in self.counts:
            return True
        if _HEX_WORD.fullmatch(plain) and int(plain, 16) in self.numbers:
            return True
        return any(value in {round(s), round(s * 1000)} for s in self.spans_s)

    def _has_decimal(self, word: str) -> bool:
        if re.search(rf"(?<![\d.]){re.escape(word)}(?!\d)", self.text):
            return True
        if not re.fullmatch(r"\d+\.\d{1,3}", word):
            return False
        places = len(word.partition(".")[2])
        return any(f"{value:.{places}f}" == word for s in self.spans_s for value in (s, s * 1000))


def facts_of(incident: Incident) -> str:
    """Return what the daemon itself knows of the incident, as text."""
    known: list[object] = [
        incident.port,
        incident.count,
        incident.title,
        incident.firmware,
        incident.outcome,
        incident.outcome_cause,
        len(incident.seen_before),
        len(incident.linked),
        *incident.fields.values(),
    ]
    for hit in incident.hits:
        known += [hit.trigger, hit.title, hit.count, *hit.fields.values()]
    return "\n".join(str(value) for value in known)


def counts_of(cited: Iterable[Line], ledger: Mapping[tuple[str, int], Line]) -> frozenset[int]:
    """Return what code can count about the cited lines."""
    lines = list(cited)
    found = {len(lines)}
    for one, other in itertools.combinations(lines, 2):
        if one.port == other.port:
            found |= {abs(one.seq - other.seq), abs(one.boot - other.boot)}
    shapes = {_shape(line) for line in lines}
    if shapes:
        found.add(sum(_shape(line) in shapes for line in ledger.values()))
    return frozenset(found)


def _shape(line: Line) -> tuple[str, bytes]:
    return line.port, re.sub(rb"\d+", b"0", line.raw)


def spans_s_of(cited: Iterable[Line]) -> list[float]:
    """Return the time between each two of the cited lines, and how long each stood unfinished."""
    lines = list(cited)[:12]
    pairs = itertools.combinations(lines, 2)
    spans_ns = [
        abs(here - there)
        for one, other in pairs
        for here in {one.utc_ns, one.told_utc_ns}
        for there in {other.utc_ns, other.told_utc_ns}
    ]
    return [*(ns / 1e9 for ns in spans_ns), *(line.stood_s for line in lines if line.stood_s)]


_TOKEN = re.compile(
    r"(?<![\w])0x[0-9a-f]+\b|(?<!\w)(?<!\d\.)\d+(?:[.,]\d+)*(?![a-z]*\d)|[a-z0-9_]+"
)
_HEX_WORD = re.compile(r"[0-9a-f]{8,}")
_THOUSANDS = re.compile(r"\d{1,3}(?:,\d{3})+")
# "one" and "two" count nothing in most sentences ("one of", "two lines later").
_NUMBER_WORDS = {
    "three": 3, "four": 4, "five": 5, "six": 6, "seven": 7, "eight": 8, "nine": 9, "ten": 10,
    "eleven": 11, "twelve": 12, "thirteen": 13, "fourteen": 14, "fifteen": 15, "sixteen": 16,
    "seventeen": 17, "eighteen": 18, "nineteen": 19, "twenty": 20, "thirty": 30, "forty": 40,
    "fifty": 50, "sixty": 60, "seventy": 70, "eighty": 80, "ninety": 90, "hundred": 100,
    "thousand": 1000,
}  # fmt: skip


def _numbers_in(text: str) -> frozenset[int]:
    """Return each number of `text`, decimal and hexadecimal with and without 0x."""
    found = {int(token[2:], 16) for token in re.findall(r"0x[0-9a-f]{1,32}", text)}
    found |= {int(token) for token in re.findall(r"(?<![0-9a-z])\d{1,20}(?![0-9])", text)}
    found |= {int(token) for token in re.findall(r"(?<=[g-wyz_])\d{1,20}(?![0-9])", text)}
    found |= {int(token, 16) for token in re.findall(r"\b[0-9a-f]{4,32}\b", text)}
    found |= {int(token.group().replace(",", "")) for token in _THOUSANDS.finditer(text)}
    return frozenset(found)
