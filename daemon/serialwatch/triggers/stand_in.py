"""What Hyperscan looks for in the stead of a pattern: found wherever it is, and quickly compiled.

Nearly all the time that a database takes to compile goes to alternatives and to repeats with an
upper limit. A piece of the pattern without them, if it holds enough plain text that healthy boards
do not print all the time, finds the same lines and few others, and faster; `re` judges them. Where
there is no such piece, the repeats lose their upper limits.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import replace
from functools import lru_cache

from serialwatch.triggers.pattern_tree import Group, Item, Tree, can_be_glued

MIN_PLAIN = 8  # characters in a row; with fewer, too many other lines are found
MIN_CORE = 5  # of them, for what stands around to be left to `re`
MAX_PLAIN = 64  # of them are enough
ENOUGH = 16  # characters: what says so much need not say more in more texts
MOST_TEXTS = 8  # that one piece may become, each alternative written out

MOST_COUNTED = 3  # times that a repeat may have as its limit; Hyperscan counts them one by one

# What boards in good health print in every boot tells nothing.
_COMMON = re.compile(
    r"\b(?:(?:start|load|boot|initiali[sz])(?:s|ed|ing|er)?|e?rrors?|f?ail(?:s|ed|ure)?|t?imed"
    r"|t?ime ?out|could|can|c?annot|did|does|is|are|was|not|unable|found|to|from|for|exception"
    r"|assert(?:ion)?|fatal|warning|notice|info|version|devices?|drivers?|unsupported|reached"
    r"|bluetooth|ext4|regulators?|remoteproc|scheduler|signature"
    r"|target|interface|application|dropped|system|power|reset|restart|invalid|unknown|no|random"
    r"|at|on|of|in|number|fired|expired|received|detected|seconds|address|console|memory|reading"
    r"|writing|using|image|kernel|linux|systemd|usb|mmc(?:blk)?|rst|0x)\b",
    re.IGNORECASE,
)

Text = tuple[str, ...]  # characters as they are written in a pattern


def stand_ins(tree: Tree) -> tuple[str, ...]:
    """Return expressions for Hyperscan; where the pattern matches, one of them does, in that line.

    A pattern that is plain text, or that no piece can stand for, stands for itself.
    """
    caseless = "(?i)" if tree.is_caseless else ""
    found: list[str] = []
    for branch in tree.root.branches:
        alone = Group("", [branch[1:] if can_be_glued(branch) else branch])
        texts = _plain(alone)
        if texts and _least_worth(texts) >= MIN_PLAIN:
            found += map("".join, texts)
            continue
        found.append(_piece(alone, is_anchored=tree.is_anchored).written(for_hyperscan=True))
    return tuple(caseless + text for text in dict.fromkeys(found))


def _plain(group: Group) -> list[Text]:
    """Return texts of which each match of the group holds one, [] if there are none."""
    if group.opening.startswith(("(?i", "(?=", "(?!", "(?<")):
        return []
    found = [max(_pieces(branch), key=_choice, default=[]) for branch in group.branches]
    return [text for texts in found for text in texts] if all(found) else []


def _choice(texts: list[Text]) -> tuple[int, int, int]:
    """Return what makes one piece better than another."""
    length = min(map(len, texts), default=0)
    return min(_least_worth(texts), ENOUGH), min(length, ENOUGH), -len(texts)


def _least_worth(texts: list[Text]) -> int:
    return min(map(_worth, texts), default=0)


@lru_cache(maxsize=32_768)
def _worth(text: Text) -> int:
    """Return how many characters tell it from what is printed all the time."""
    if len(text) < MIN_CORE:
        return len(text)
    plain = "".join(each[-1] for each in text)
    return sum(map(str.isalnum, _COMMON.sub("", plain)))


def _pieces(branch: list[Item]) -> Iterator[list[Text]]:
    """Return all pieces of plain text of a branch, and the choices that its groups leave.

    Alternatives that stand beside text become one text each with it.
    """
    runs: list[Text] = [()]
    more: list[str] = []  # characters that go on all of them
    for item in branch:
        what = item.what
        if isinstance(what, Group):
            if not item.is_optional:
                yield _plain(what)
            whole, heads, tails = _spelled(item)
            runs, more = _together(runs, more), []
            yield runs
            if len(heads) * len(runs) <= MOST_TEXTS:
                yield [_end_of(run + head) for run in runs for head in heads]
            if whole and len(whole) * len(runs) <= MOST_TEXTS:
                runs = [_end_of(run + text) for run in runs for text in whole]
            else:
                runs = tails if len(tails) <= MOST_TEXTS else [()]
        elif not item.repeat and what.literal:
            more.append(what.for_hyperscan)
        elif what.literal and not item.is_optional:
            more += [what.for_hyperscan] * item.least
            if item.is_open:
                yield _together(runs, more)
                runs, more = [()], more[-item.least :]
        elif what.for_python not in (r"\b", r"\B"):
            if more or runs != [()]:
                yield _together(runs, more)
            runs, more = [()], []
    yield _together(runs, more)


def _together(runs: list[Text], more: list[str]) -> list[Text]:
    return [_end_of(run + tuple(more)) for run in runs] if more else runs


def _end_of(text: Text) -> Text:
    return text[-MAX_PLAIN:]


def _spelled(item: Item) -> tuple[list[Text], list[Text], list[Text]]:
    """Return the texts that a group stands for, if it is nothing else; how it begins, and ends."""
    group = item.what
    assert isinstance(group, Group)
    nothing: list[Text] = [()]
    if item.repeat not in ("", "?") or group.opening.startswith(("(?i", "(?=", "(?!", "(?<")):
        return [], nothing, nothing
    heads: list[Text] = []
    tails: list[Text] = []
    is_whole = True
    for branch in group.branches:
        texts = [_literal_of(each) for each in branch]
        head = next((n for n, text in enumerate(texts) if not text), len(texts))
        is_whole &= head == len(texts)
        tail = next((n for n, text in enumerate(reversed(texts)) if not text), len(texts))
        heads.append(tuple(texts[:head]))
        tails.append(tuple(texts[len(texts) - tail :]))
    if item.is_optional:
        return (heads + nothing, nothing, nothing) if is_whole else ([], nothing, nothing)
    return heads if is_whole else [], heads, tails


def _literal_of(item: Item) -> str:
    is_one = not isinstance(item.what, Group) and not item.repeat and item.what.literal
    return item.what.for_hyperscan if is_one and not isinstance(item.what, Group) else ""


def _piece(alone: Group, *, is_anchored: bool) -> Group:
    """Return the piece of the only branch that says most; nearly all if none says enough."""
    branch = alone.branches[0]
    pieces: list[list[Item]] = [[]]
    for item in branch:
        if _is_any_text(item):
            pieces.append([])
        else:
            pieces[-1].append(item)
    if len(pieces) == 1 and not is_anchored:
        return _unlimited(alone)  # without `^` and high limits Hyperscan is sure of it
    cores = [Group("", [_core(piece)]) for piece in pieces]
    best = max((core for core in cores if core.has_fixed_end), key=_plain_worth, default=alone)
    return best if _plain_worth(best) >= MIN_CORE else _unlimited(alone)


def _plain_worth(group: Group) -> int:
    return _least_worth(_plain(group))


def _unlimited(group: Group) -> Group:
    """Return it with repeats that never end in the place of those with a high limit."""

    def unlimited(item: Item) -> Item:
        if isinstance(item.what, Group):
            item = replace(item, what=_unlimited(item.what))
        if item.most is None or item.most <= MOST_COUNTED or not item.is_open:
            return item
        return replace(item, repeat="+" if item.least else "*", most=None)

    branches = [list(map(unlimited, branch)) for branch in group.branches]
    return replace(group, branches=branches)


def _core(piece: list[Item]) -> list[Item]:
    """Return a piece without what says little at either end."""
    first, end = 0, len(piece)
    while first < end and _says_little(piece[first]):
        first += 1
    while end > first and _says_little(piece[end - 1]):
        end -= 1
    return piece[first:end]


def _is_any_text(item: Item) -> bool:
    """Tell whether it is a class that repeats a varying number of times."""
    is_class = not isinstance(item.what, Group) and not item.what.literal
    return is_class and item.is_open and item.repeat != "?"


def _says_little(item: Item) -> bool:
    return item.is_optional or not (isinstance(item.what, Group) or item.what.literal)
