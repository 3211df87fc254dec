"""The words of a memory: what is searched for, and when two of them say the same."""

from __future__ import annotations

import re
from collections.abc import Iterable

MAX_TERMS = 24  # of a query

_COMMON_WORDS = """
    about after an and are as at be been but by can did do does for from had has have how if in
    into is it its no not of on or so that the their then there this to was were what when where
    which who why will with
"""
_COMMON = frozenset(_COMMON_WORDS.split())
_VERDICT = re.compile(r"^(?:confirmed|likely|inconclusive):\s*")


def words_of(text: str) -> list[str]:
    """Return the words of a text as the full-text search knows them, in lower case."""
    return [word.lower() for word in re.findall(r"[A-Za-z0-9_]{2,}", text)]


def terms_of(text: str) -> list[str]:
    """Return the words to search for, each once, at most 24, without what every sentence has."""
    return [word for word in dict.fromkeys(words_of(text)) if word not in _COMMON][:MAX_TERMS]


def query_of(terms: Iterable[str]) -> str:
    """Return a query of FTS5: each word quoted, so that none is taken for its syntax."""
    return " OR ".join(f'"{term}"' for term in terms) or '""'


def plain(text: str) -> str:
    """Return a text in which numbers, addresses, case and spaces make no difference."""
    text = " ".join(text.lower().split())
    text = re.sub(r"\b0x[0-9a-f]+\b|\b(?=[a-f]*\d)[0-9a-f]{6,}\b", "H", text)
    return re.sub(r"\d+", "N", text)


def value_of(body: str) -> str:
    """Return what a memory says of its title, however sure it was."""
    return _VERDICT.sub("", plain(body))


def likeness(one: str, other: str) -> float:
    """Return the share of words that two texts have in common, 0..1."""
    words, others = set(words_of(one)), set(words_of(other))
    return len(words & others) / len(words | others) if words | others else 0.0
