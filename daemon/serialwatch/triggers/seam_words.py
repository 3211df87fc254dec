"""Which words of patterns may go on across the end of a line; most ends have none near them."""

from __future__ import annotations

import re
from collections.abc import Iterable

_GRAM = 4
_AROUND = _GRAM - 1
# What stands for a whole run of characters that a pattern takes any of.
_NUMBER = b"\x00"
_NAME = b"\x01"
_EDGE = b"\n"  # the words of a pattern begin or end with a name
_IN_NUMBERS = b"0123456789"
_IN_HEX = b"0123456789abcdefABCDEF"
_IN_NAMES = b"0123456789abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ_./:@$+-"
_TIMES = rb"(?:[+*]|\{\d+(?:,\d*)?\})?"
_NUMBERS = re.compile(rb"(?:\\d|\[(?:0-9|\\d)(?:a-f|A-F)*\])" + _TIMES)
_NAMES = re.compile(rb"(?:\\[Sw]|\[\\w[^\] \\]*\]|\[\^[^\]]+\]|(?<!\\)\.)" + _TIMES)
_NUMBER_AND_MORE = re.compile(rb"(?<!\d)\d*+\x00[\d\x00]*")
_NAME_AND_MORE = re.compile(rb"(?<![\w./:@$+\x00-])[\w./:@$+\x00-]*+\x01[\w./:@$+\x00\x01-]*")
_COUNTED = re.compile(rb"(?<!\\)([^\\\])}(])\{(\d)(?:,\d*)?\}")  # one character, so often
_WORDS = re.compile(rb"(?:[\w ,:;'=\x00\x01/#!<>@\"%-]|(?<!\\)\\[()\[\].*+{}-])+")
_DIGITS = re.compile(rb"\d++(?!x)")
_FOLDED = bytes(range(256)).lower()


class SeamWords:
    """What stands in patterns around each place where a line may end too early."""

    def __init__(self, sources: Iterable[bytes]) -> None:
        self._grams = grams_of(sources)

    def may_cross(self, before: bytes, rest: bytes) -> bool:
        """Tell whether some pattern has in a row what stands before and behind an end.

        Neither is empty; it suffices that they are as long as a name is.
        """
        grams = self._grams
        left = before[-_AROUND:]
        near, at = (left + rest[:_AROUND]).translate(_FOLDED), len(left)
        if (
            near[at - 1 : at + 3] in grams
            or (at > 1 and near[at - 2 : at + 2] in grams)
            or (at > 2 and near[at - 3 : at + 1] in grams)
        ):
            return True
        end, start = before[-1], rest[0]
        return (end in _IN_NUMBERS or start in _IN_NUMBERS) and (
            self._has_run(before, rest, _IN_NUMBERS, _NUMBER)
            or self._has_run(before, rest, _IN_HEX, _NUMBER)
        )

    def is_in_name(self, before: bytes, rest: bytes) -> bool:
        """Tell whether a pattern takes any name where the one stands in which a line ends."""
        return self._has_run(before, rest, _IN_NAMES, _NAME)

    def _has_run(self, before: bytes, rest: bytes, chars: bytes, sign: bytes) -> bool:
        """Tell it of a run of such characters; both sides of it must fit."""
        grams = self._grams
        outside = before.rstrip(chars)
        around = _DIGITS.sub(_NUMBER, outside[-4 * _AROUND :]) if sign == _NUMBER else outside
        begun = around[-_AROUND:].translate(_FOLDED) + sign
        if begun not in grams and len(begun) == _GRAM:
            return False
        goes_on = sign + rest.lstrip(chars)[:_AROUND].translate(_FOLDED)
        if begun in grams:
            if goes_on in grams or (len(goes_on) < _GRAM and begun[1:] + goes_on[1:2] in grams):
                return True
            return len(outside) == len(before) and begun + _EDGE in grams
        return goes_on in grams and _EDGE + goes_on in grams


def grams_of(sources: Iterable[bytes]) -> frozenset[bytes]:
    """Return all runs of four characters that stand in the words of patterns, in lower case.

    What a pattern takes any number of counts as one character.
    """
    grams: set[bytes] = set()
    for source in sources:
        numbered = _NUMBER_AND_MORE.sub(_NUMBER, _NUMBERS.sub(_NUMBER, source))
        counted = _COUNTED.sub(lambda each: each[1] * max(int(each[2]), 1), numbered)
        marked = _NAMES.sub(_NAME, counted)
        for words in _WORDS.findall(marked):
            plain = words.replace(b"\\", b"").translate(_FOLDED)
            named = _NAME_AND_MORE.sub(_NAME, plain)
            for text in {plain, named}:
                grams.update(text[at : at + _GRAM] for at in range(len(text) - _GRAM + 1))
            for text in {plain, named}:
                if text.endswith((_NAME, _NUMBER)):
                    grams.add(text[-_GRAM:] + _EDGE)
                if text.startswith((_NAME, _NUMBER)):
                    grams.add(_EDGE + text[:_GRAM])
    return frozenset(grams)
