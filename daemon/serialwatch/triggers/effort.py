"""How many ways `re` may have to try a pattern on a text before it knows that it does not match."""

from __future__ import annotations

import re
from functools import lru_cache

from serialwatch.triggers.pattern_tree import Atom, Group, Item, PatternError, Tree

_A_BIT = 8  # times more at the most: a part does not share out a text that repeats no more often
_ALL_BYTES = bytes(range(256))
_BACK_NUMBER = re.compile(r"\\[1-9]")


def ways(tree: Tree) -> tuple[int, int]:
    """Return how many parts share out a text, and the ways of what repeats a bit or chooses."""
    return _ways_of(tree.root, is_caseless=tree.is_caseless)


def is_endless(tree: Tree) -> bool:
    """Tell whether a part that varies repeats as a whole: as `(a+b?)+`, exponential."""
    return _is_endless(tree.root, is_caseless=tree.is_caseless)


def refuse_endless(tree: Tree) -> None:
    """Raise PatternError for what is exponential on some text for sure: as `(a|a)*`."""
    _refuse(tree.root, is_caseless=tree.is_caseless)


def _refuse(group: Group, *, is_caseless: bool) -> None:
    is_caseless = is_caseless or group.opening == "(?i:"
    for item in (item for branch in group.branches for item in branch):
        if not isinstance(item.what, Group):
            continue
        is_long = item.most is None or item.most > _A_BIT
        if is_long and _may_fit_alike(item.what, is_caseless=is_caseless, is_sure=True):
            text = item.written(for_hyperscan=False)
            raise PatternError(
                f"`{text}` repeats alternatives that fit the same text, in more ways than can be "
                "tried; leave one out, or write a class such as `[a-z_]`"
            )
        _refuse(item.what, is_caseless=is_caseless)


def _repeats(group: Group) -> int:
    return sum(
        item.is_open + (_repeats(item.what) if isinstance(item.what, Group) else 0)
        for branch in group.branches
        for item in branch
    )


def _ways_of(group: Group, *, is_caseless: bool) -> tuple[int, int]:
    is_caseless = is_caseless or group.opening == "(?i:"
    found = [_ways_of_branch(branch, is_caseless=is_caseless) for branch in group.branches]
    varying = sum(ways for sharing, ways in found if sharing or ways > 1)
    if len(found) > 1 and varying < len(found) and _may_fit_alike(group, is_caseless=is_caseless):
        varying = len(found)
    return max(sharing for sharing, _ in found), max(varying, 1)


def _ways_of_branch(branch: list[Item], *, is_caseless: bool) -> tuple[int, int]:
    sharing, ways = 0, 1
    for item in branch:
        if item.is_open and (item.most is None or item.most - item.least > _A_BIT):
            sharing += 1
        elif item.is_open and item.most is not None:
            ways *= item.most - item.least + 1
        if isinstance(item.what, Group):
            more, inner = _ways_of(item.what, is_caseless=is_caseless)
            sharing, ways = sharing + more, ways * inner
    return sharing, ways


def _is_endless(group: Group, *, is_caseless: bool) -> bool:
    is_caseless = is_caseless or group.opening == "(?i:"
    return any(
        _is_endless(item.what, is_caseless=is_caseless)
        or (
            (item.most is None or item.most > 1)
            and (_repeats(item.what) > 0 or _chooses(item.what, is_caseless=is_caseless))
        )
        for branch in group.branches
        for item in branch
        if isinstance(item.what, Group)
    )


def _chooses(group: Group, *, is_caseless: bool) -> bool:
    """Tell whether one text may fit two alternatives of it, or of a group in it."""
    return _may_fit_alike(group, is_caseless=is_caseless) or any(
        _chooses(item.what, is_caseless=is_caseless)
        for branch in group.branches
        for item in branch
        if isinstance(item.what, Group)
    )


def _may_fit_alike(group: Group, *, is_caseless: bool, is_sure: bool = False) -> bool:
    """Tell whether one text may fit two alternatives; with `is_sure`: whether one does."""
    if len(group.branches) < 2:
        return False
    is_caseless = is_caseless or group.opening == "(?i:"
    letters = {_first_letter(branch) for branch in group.branches}
    if len({x.lower() for x in letters}) == len(group.branches) and "" not in letters:
        return False
    known: list[tuple[list[int], bool]] = []
    for branch in group.branches:
        mine, is_whole = _firsts(branch, is_caseless=is_caseless)
        for other, other_is_whole in known:
            if is_sure and not (is_whole and other_is_whole and len(mine) == len(other)):
                continue
            if all(a & b for a, b in zip(mine, other, strict=False)):
                return True
        known.append((mine, is_whole))
    return False


def _first_letter(branch: list[Item]) -> str:
    """Return the character that a branch begins with for sure, "" if there is none."""
    if not branch or branch[0].is_optional or not isinstance(branch[0].what, Atom):
        return ""
    return branch[0].what.literal[:1]


def _firsts(branch: list[Item], *, is_caseless: bool) -> tuple[list[int], bool]:
    """Return which bytes each of the first places may hold, a bit a byte, and whether that is all.

    It ends where what stands at a place depends on what stands before.
    """
    found: list[int] = []
    for item in branch:
        if item.what.can_be_empty and not item.repeat:
            if isinstance(item.what, Group):
                return found, False
            continue  # a place
        if item.is_optional or (isinstance(item.what, Group) and len(item.what.branches) > 1):
            return found, False
        if isinstance(item.what, Group):
            caseless = is_caseless or item.what.opening == "(?i:"
            inner, is_whole = _firsts(item.what.branches[0], is_caseless=caseless)
        elif item.what.literal:
            inner = [_bytes_of_letter(c, is_caseless) for c in item.what.literal]
            is_whole = True
        elif item.what.for_python.startswith("(") or _BACK_NUMBER.match(item.what.for_python):
            return found, False
        else:
            inner, is_whole = [_bytes_of(item.what.for_python, is_caseless)], True
        found += inner
        if not is_whole:
            return found, False
        if item.repeat:
            found += inner * (min(item.least, _A_BIT) - 1)
            if item.is_open or item.least > _A_BIT:
                return found, False
    return found, True


@lru_cache(maxsize=1024)
def _bytes_of(text: str, is_caseless: bool) -> int:
    """Return which bytes a class or a character matches, a bit a byte."""
    try:
        found = re.compile(text.encode("ascii"), re.IGNORECASE if is_caseless else 0)
    except re.error:
        return (1 << 256) - 1
    return sum(1 << one[0] for one in found.findall(_ALL_BYTES))


def _bytes_of_letter(char: str, is_caseless: bool) -> int:
    other = char.swapcase() if is_caseless else char
    return 1 << ord(char) | 1 << ord(other)
