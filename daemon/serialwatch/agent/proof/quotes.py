"""A quote against the line that it is said to be from."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, replace
from difflib import SequenceMatcher

from serialwatch.agent.text.device_text import normal, readable
from serialwatch.records import Evidence, Line

MIN_QUOTE = 8  # characters, or the whole line
NEAR = 5  # lines in which a quote is looked for where it is not in its own
CLOSE = 0.90  # of a quote that is right but for a slip


@dataclass(frozen=True, slots=True)
class Found:
    """Where a quote stands in fact."""

    evidence: Evidence
    how: str = ""  # what was put right, "" for nothing


def empty_quote(cited: Evidence, line: Line) -> str:
    """Return why a quote says nothing, "" if it does."""
    quote, whole = normal(cited.quote), normal(readable(line.raw))
    if not quote or (quote != whole and not re.search(r"[^\W\d_]", _STAMP.sub(" ", quote))):
        return "the quote has no words"
    if len(quote) < MIN_QUOTE and quote != whole:
        return f"quote at least {MIN_QUOTE} characters"
    return ""


def find_quote(cited: Evidence, ledger: Mapping[tuple[str, int], Line]) -> Found | None:
    """Return where a quote stands: in its line, nearly so, or close to it; None if nowhere."""
    quote, whole = normal(cited.quote), normal(readable(ledger[cited.port, cited.seq].raw))
    if quote in whole:
        return Found(replace(cited, quote=quote))
    if (close := _closest(quote, whole)) is not None:
        return Found(replace(cited, quote=close), "quote put right")
    around = range(cited.seq - NEAR, cited.seq + NEAR + 1)
    for near in sorted(around, key=lambda seq: abs(seq - cited.seq)):
        other = ledger.get((cited.port, near))
        if other is not None and quote in normal(readable(other.raw)):
            return Found(Evidence(cited.port, near, quote), f"it is in L{near}")
    return None


def _closest(quote: str, whole: str) -> str | None:
    """Return the part of the line that `quote` misquotes, None if it is another text."""
    matcher = SequenceMatcher(None, quote, whole, autojunk=False)
    block = matcher.find_longest_match()
    start = max(0, block.b - block.a)
    window = whole[start : start + len(quote)]
    if SequenceMatcher(None, quote, window, autojunk=False).ratio() >= CLOSE:
        return window.strip()
    return None


# The letters of a time stamp are no words.
_STAMP = re.compile(
    r"\b(?:Mon|Tue|Wed|Thu|Fri|Sat|Sun|Jan|Feb|Mar|Apr|May|Jun|Jul|Aug|Sep|Oct|Nov|Dec|UTC|GMT|"
    r"[ap]m)\b|(?<=\d)[TZ](?=\d|\W|$)"
)
