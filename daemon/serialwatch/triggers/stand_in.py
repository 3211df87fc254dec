"""What Hyperscan looks for in the stead of a pattern: found wherever it is, and quickly compiled.

Nearly all the time that a database takes to compile goes to alternatives and to repeats with an
upper limit; plain texts cost next to nothing. A text that stands in each match finds the same lines
and few others, and faster, if it tells more than what healthy boards print all the time; `re`
judges them. Where there is one for some alternatives only, the others stay in the pattern, and a
piece of that is looked for, or all of it, its repeats without their upper limits.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import replace
from functools import lru_cache

from serialwatch.triggers.pattern_tree import Group, Item, Tree, can_be_glued

MIN_PLAIN = 8  # so much a text must tell, or too many other lines are found
MIN_CORE = 6  # and the text in a piece, for what stands around to be left to `re`
MAX_PLAIN = 64  # characters of it are enough
ENOUGH = 16  # what tells so much need not tell more in more texts
MOST_TEXTS = 8  # that one piece may become, each alternative written out
LEAST_RUN = 4  # characters that are the same

_NONE_BETTER = ENOUGH, ENOUGH, -1  # one text that tells enough
MOST_COUNTED = 3  # times that a repeat may have as its limit; Hyperscan counts them one by one

_COMMON_TELLS = 3  # so much tells what boards in good health print in every boot
_COMMON = re.compile(
    r"\b(?:(?:start|load|boot|initiali[sz])(?:s|ed|ing|er)?|e?rrors?|f?ail(?:s|ed|ure)?|t?imed"
    r"|t?ime ?out|could|can|c?annot|did|does|is|are|was|not|unable|found|to|from|for|the|and"
    r"|exception|assert(?:ion)?|fatal|warning|notice|info|version|devices?|drivers?|unsupported|reached"
    r"|bluetooth|ext4|regulators?|remoteproc|scheduler|signature"
    r"|target|interface|application|dropped|system|power|reset|restart|invalid|unknown|no|random"
    r"|at|on|of|in|number|fired|expired|received|detected|seconds|address|console|memory|reading"
    r"|writing|using|image|kernel|linux|systemd|usb|mmc(?:blk)?|rst|0x)\b",
    re.IGNORECASE,
)
_FEW = re.compile(r"\[(?:[\w ]|\\[^\w\s\\]){1,4}\]", re.ASCII)  # a class of so many characters
_MEMBERS = re.compile(r"\\?(.)")
_WRITTEN = {ord(char): "\\" + char for char in r"\^$.|?*+()[]{}"}


def stand_ins(tree: Tree) -> tuple[str, ...]:
    """Return expressions for Hyperscan; where the pattern matches, one of them does, in that line.

    A pattern that is plain text, or that no piece can stand for, stands for itself.
    """
    caseless = "(?i)" if tree.is_caseless else ""
    found: list[str] = []
    for branch in tree.root.branches:
        texts, left = _in_texts(branch[1:] if can_be_glued(branch) else branch)
        found += map(_written, texts)
        if left is not None:
            piece = _piece(Group("", [left]), is_anchored=tree.is_anchored)
            found.append(piece.written(for_hyperscan=True))
    return tuple(caseless + text for text in dict.fromkeys(found))


def _written(text: str) -> str:
    """Return the expression for a text.

    One of the same character over and over is found where a run begins: else each further `=` of a
    long row of them is one more match.
    """
    escaped = text.translate(_WRITTEN)
    if len(text) < LEAST_RUN or text.strip(text[0]):
        return escaped
    return rf"(?:^|[^\x{ord(text[0]):02x}]){escaped}"


def _in_texts(branch: list[Item]) -> tuple[list[str], list[Item] | None]:
    """Return texts of which each match of a branch holds one, and the matches that hold none."""
    found: list[str] = []
    while not (texts := _telling(branch)):
        tried = max(_without_some(branch), key=lambda each: each[0], default=None)
        if tried is None or not tried[1]:
            return found, branch
        _, texts, left = tried
        found += texts
        if left is None:
            return found, None
        branch = left
    return found + texts, None


def _without_some(branch: list[Item]) -> Iterator[tuple[int, list[str], list[Item] | None]]:
    """Take from each group in turn the alternatives for which texts can stand.

    With the texts, and what is left, comes how many these are.
    """
    for number, item in enumerate(branch):
        group = item.what
        if not isinstance(group, Group) or not _is_choice(item):
            continue
        before, behind = branch[:number], branch[number + 1 :]
        ways = [*group.branches, []] if item.is_optional else group.branches
        found: list[str] = []
        left: list[list[Item]] = []
        for way in ways:
            if texts := _telling([*before, *way, *behind]):
                found += texts
            else:
                left.append(way)
        rest = None
        if len(left) == 1:
            rest = [*before, *left[0], *behind]
        elif left:
            rest = [*before, Item(replace(group, branches=left)), *behind]
        yield len(ways) - len(left), found, rest


def _is_choice(item: Item) -> bool:
    """Tell whether it is a group that comes once, or not at all, and whose texts are as written."""
    opening = item.what.opening if isinstance(item.what, Group) else "(?="
    return item.repeat in ("", "?") and not opening.startswith(("(?i", "(?=", "(?!", "(?<"))


def _telling(branch: list[Item]) -> list[str]:
    """Return texts of which each match of a branch holds one, [] if they tell too little."""
    texts = _best(branch)
    return texts if _least_worth(texts) >= MIN_PLAIN else []


def _plain(group: Group) -> list[str]:
    """Return texts of which each match of the group holds one, [] if there are none."""
    if group.opening.startswith(("(?i", "(?=", "(?!", "(?<")):
        return []
    found = [_best(branch) for branch in group.branches]
    return [text for texts in found for text in texts] if all(found) else []


def _best(branch: list[Item]) -> list[str]:
    """Return the piece of a branch that is told most easily from others."""
    best: list[str] = []
    worth = 0, 0, 0
    for texts in _pieces(branch):
        this = _choice(texts)
        if not best or this > worth:
            best, worth = texts, this
            if worth == _NONE_BETTER:
                break
    return best


def _choice(texts: list[str]) -> tuple[int, int, int]:
    """Return what makes one piece better than another."""
    length = min(map(len, texts), default=0)
    return min(_least_worth(texts), ENOUGH), min(length, ENOUGH), -len(texts)


def _least_worth(texts: list[str]) -> int:
    return min(map(_worth, texts), default=0)


@lru_cache(maxsize=32_768)
def _worth(text: str) -> int:
    """Return how much a text tells: its characters, but for spaces and most of common words."""
    sizes = [word.end() - word.start() for word in _COMMON.finditer(text)]
    untold = sum([max(1, size - _COMMON_TELLS) for size in sizes])
    return len(text) - text.count(" ") - untold


def _pieces(branch: list[Item]) -> Iterator[list[str]]:
    """Return all pieces of plain text of a branch, and the choices that its groups leave.

    Alternatives that stand beside text become one text each with it.
    """
    runs = [""]
    for item in branch:
        what = item.what
        if isinstance(what, Group):
            if not item.is_optional:
                yield _plain(what)
            whole, heads, tails = _spelled(item)
            yield runs
            if len(heads) * len(runs) <= MOST_TEXTS:
                yield _with(runs, heads)
            if whole and len(whole) * len(runs) <= MOST_TEXTS:
                runs = _with(runs, whole)
            else:
                runs = tails if len(tails) <= MOST_TEXTS else [""]
        elif ways := _ways(item):
            if len(ways) > 1:
                yield runs
            runs = _with(runs, ways) if len(ways) * len(runs) <= MOST_TEXTS else ways
        elif what.literal and not item.is_optional:
            text = what.literal * item.least
            runs = _with(runs, [text])
            if item.is_open:
                yield runs
                runs = [text]
        elif what.for_python not in (r"\b", r"\B"):
            yield runs
            runs = [""]
    yield runs


def _with(runs: list[str], ends: list[str]) -> list[str]:
    return [(run + end)[-MAX_PLAIN:] for run in runs for end in ends]


def _ways(item: Item) -> list[str]:
    """Return what a part that is no group is written as, [] if that is more than a few texts."""
    what = item.what
    if isinstance(what, Group) or item.repeat not in ("", "?"):
        return []
    ways = [what.literal] if what.literal else _members(what.for_hyperscan)
    return [*ways, ""] if ways and item.is_optional else ways


@lru_cache(maxsize=512)
def _members(text: str) -> list[str]:
    return _MEMBERS.findall(text[1:-1]) if _FEW.fullmatch(text) else []


def _spelled(item: Item) -> tuple[list[str], list[str], list[str]]:
    """Return the texts that a group stands for, if it is nothing else; how it begins, and ends."""
    group = item.what
    assert isinstance(group, Group)
    if not _is_choice(item):
        return [], [""], [""]
    heads: list[str] = []
    tails: list[str] = []
    is_whole = True
    for branch in group.branches:
        texts = [_literal_of(each) for each in branch]
        head = next((n for n, text in enumerate(texts) if not text), len(texts))
        is_whole &= head == len(texts)
        tail = next((n for n, text in enumerate(reversed(texts)) if not text), len(texts))
        heads.append("".join(texts[:head]))
        tails.append("".join(texts[len(texts) - tail :]))
    if item.is_optional:
        return ([*heads, ""], [""], [""]) if is_whole else ([], [""], [""])
    return heads if is_whole else [], heads, tails


def _literal_of(item: Item) -> str:
    return "" if isinstance(item.what, Group) or item.repeat else item.what.literal


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
