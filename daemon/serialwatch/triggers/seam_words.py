"""Which words of patterns may go on across the end of a line; most ends have none near them."""

from __future__ import annotations

import re
from collections.abc import Iterable

_GRAM = 4
# Characters that stand for a whole run: what a pattern takes many of, and what stands there.
_NUMBER = b"\x00"
_NAME = b"\x01"
_IN_NUMBERS = b"0123456789"
_IN_HEX = b"0123456789abcdefABCDEF"
_IN_NAMES = b"0123456789abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ_./:@$+-"
_RUNS = ((_IN_NUMBERS, _NUMBER), (_IN_HEX, _NUMBER), (_IN_NAMES, _NAME))
_LONGEST_RUN = 64
_TIMES = rb"(?:[+*]|\{\d+(?:,\d*)?\})"
_NUMBERS = re.compile(rb"(?:\\d|\[(?:0-9|\\d)(?:a-f|A-F)*\])" + _TIMES + rb"?")
_NAMES = re.compile(
    rb"(?:\\[Sw]|\[\\w[^\] \\]*\]|\[\^(?:\\s|[^\]\\]?\\s)[^\] ]*\]|(?<!\\)\.)" + _TIMES + rb"?"
)
_NAME_AND_MORE = re.compile(rb"(?<![\w./:@$+\x00-])[\w./:@$+\x00-]*+\x01[\w./:@$+\x00\x01-]*")
_WORDS = re.compile(rb"(?:[\w ,:;'=\x00\x01/#!<>@\"%-]|(?<!\\)\\[()\[\].*+{}-])+")
_FOLDED = bytes(range(256)).lower()


class SeamWords:
    """What stands in patterns around each place where a line may end too early."""

    def __init__(self, sources: Iterable[bytes]) -> None:
        self._grams = grams_of(sources)

    def may_cross(self, before: bytes, rest: bytes) -> bool:
        """Tell whether some pattern has in a row what stands before and behind an end."""
        grams = self._grams
        left, right = before[-3:], rest[:3]
        near = (left + right).translate(_FOLDED)
        at = len(left)
        if (
            (at > 1 and near[at - 2 : at + 2] in grams)
            or (at > 2 and near[at - 3 : at + 1] in grams)
            or near[at - 1 : at + 3] in grams
        ):
            return True
        left, right = before[-_LONGEST_RUN:], rest[:_LONGEST_RUN]
        ends = before[-1:] + rest[:1]
        for chars, sign in _RUNS:
            if (ends[0] in chars or ends[-1] in chars) and self._has_run(left, right, chars, sign):
                return True
        return False

    def _has_run(self, left: bytes, right: bytes, chars: bytes, sign: bytes) -> bool:
        left, right = left.rstrip(chars)[-3:], right.lstrip(chars)[:3]
        near = (left + sign + right).translate(_FOLDED)
        at = len(left)
        return any(near[n : n + _GRAM] in self._grams for n in range(max(0, at - 3), at + 1))


def grams_of(sources: Iterable[bytes]) -> frozenset[bytes]:
    """Return all runs of four characters that stand in the words of patterns, in lower case.

    What a pattern takes many of counts as one character.
    """
    grams: set[bytes] = set()
    for source in sources:
        marked = _NAMES.sub(_NAME, _NUMBERS.sub(_NUMBER, source))
        for words in _WORDS.findall(marked):
            plain = words.replace(b"\\", b"").translate(_FOLDED)
            for text in {plain, _NAME_AND_MORE.sub(_NAME, plain)}:
                grams.update(text[at : at + _GRAM] for at in range(len(text) - _GRAM + 1))
    return frozenset(grams)
