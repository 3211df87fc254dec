"""What Hyperscan looks for in the stead of a pattern: found wherever it is, and quickly compiled.

Nearly all the time that a database takes to compile goes to alternatives and to repeats with an
upper limit; plain texts cost next to nothing. A text that stands in each match finds the same lines
and few others, and faster, if it tells more than what healthy boards print all the time; `re`
judges them. Where there is one for some alternatives only, the others stay in the pattern, and a
piece of that is looked for, or all of it, its repeats without their upper limits.
"""

from __future__ import annotations

import re
from collections.abc import Container, Iterator
from dataclasses import dataclass, replace
from functools import lru_cache

from serialwatch.triggers.pattern_tree import LOOSE_START, Group, Item, Tree, can_be_glued

MIN_PLAIN = 8  # so much a text must tell, or too many other lines are found
MIN_CORE = 6  # and the text in a piece, for what stands around to be left to `re`
MAX_PLAIN = 64  # characters of it are enough
ENOUGH = 16  # what tells so much need not tell more in more texts
MOST_TEXTS = 8  # that one piece may become, each alternative written out
LEAST_RUN = 4  # characters that are the same
LEAST_WORD = 3  # characters: so many are looked for by themselves
# So many words to choose from, and something of any length behind them, take Hyperscan up to a
# second to compile; both fewer and more of them take a millisecond or two.
SLOW_CHOICES = range(8, 11)
SMALL_CLASSES = frozenset((r"\d", r"[ \t\f\x0b]"))  # Hyperscan compiles them quickly anywhere

_ANY_CHARACTER = (r"[^\r\n]", r"[^\r\n\r]")  # as `.` and `[^\r\n]` are written
_PLACES = (r"\b", r"\B")
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


@dataclass(frozen=True, slots=True)
class StandIns:
    """Expressions for Hyperscan; where the pattern matches, one of them does, in that line."""

    texts: tuple[bytes, ...]
    hold_start: bool  # one was made of what only matches at the start of a line


def stand_ins(tree: Tree) -> StandIns:
    """Return what is looked for in the stead of a pattern.

    One that is plain text, or that no piece can stand for, stands for itself.
    """
    caseless = "(?i)" if tree.is_caseless else ""
    found: list[str] = []
    hold_start = False
    for branch in tree.root.branches:
        texts, left = _in_texts(branch[1:] if can_be_glued(branch) else branch)
        found += map(_written, texts)
        for part in _parts(left) if left is not None else ():
            piece = _piece(Group("", [part]), is_anchored=tree.is_anchored)
            hold_start = hold_start or _holds_start(piece)
            found.append(_eased(piece).written(for_hyperscan=True))
    written = ((caseless + text).encode("ascii") for text in dict.fromkeys(found))
    return StandIns(tuple(written), hold_start)


def _parts(branch: list[Item]) -> Iterator[list[Item]]:
    """Return a branch twice, each with a half of the alternatives that are `SLOW_CHOICES`."""
    for number, item in enumerate(branch):
        group = item.what
        behind = branch[number + 1 :]
        if not isinstance(group, Group) or len(group.branches) not in SLOW_CHOICES:
            continue
        if _is_choice(item) and any(map(_varies, behind)):
            before = branch[:number]
            middle = len(group.branches) // 2
            for half in (group.branches[:middle], group.branches[middle:]):
                yield from _parts(
                    [*before, replace(item, what=replace(group, branches=half)), *behind]
                )
            return
    yield branch


def _varies(item: Item) -> bool:
    """Tell whether it is more than some words to choose from."""
    if item.is_open or item.is_optional:
        return True
    return not (isinstance(item.what, Group) or item.what.literal or item.what.can_be_empty)


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
        # No text of the others tells enough, and none goes on beyond what may be any character.
        last = next((n for n in range(number - 1, -1, -1) if _ends_texts(branch[n])), -1)
        first = next((n for n, each in enumerate(behind) if _ends_texts(each)), len(behind))
        beside, following = before[last + 1 :], behind[:first]
        ways = [*group.branches, []] if item.is_optional else group.branches
        found: list[str] = []
        left: list[list[Item]] = []
        for way in ways:
            if texts := _telling([*beside, *way, *following]):
                found += texts
            else:
                left.append(way)
        rest = None
        if len(left) == 1:
            rest = [*before, *left[0], *behind]
        elif left:
            rest = [*before, Item(replace(group, branches=left)), *behind]
        yield len(ways) - len(left), found, rest


def _ends_texts(item: Item) -> bool:
    """Tell whether it is a class of many characters or the like: no text goes on across it."""
    what = item.what
    if isinstance(what, Group) or what.for_python in _PLACES or _ways(item):
        return False
    return not what.literal or item.is_optional


def _is_choice(item: Item) -> bool:
    """Tell whether it is a group that comes once, or not at all, and whose texts are as written."""
    opening = item.what.opening if isinstance(item.what, Group) else "(?="
    return item.repeat in ("", "?") and not opening.startswith(("(?i", "(?=", "(?!", "(?<"))


def _telling(branch: list[Item]) -> list[str]:
    """Return texts of which each match of a branch holds one, [] if they tell too little."""
    texts = _best(branch)
    return texts if _least_worth(texts) >= MIN_PLAIN else []


@lru_cache(maxsize=64)  # while one pattern is looked at
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
    if len(texts) == 1:  # mostly
        (text,) = texts
        return min(_worth(text), ENOUGH), min(len(text), ENOUGH), -1
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
        elif what.for_python not in _PLACES:
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


@lru_cache(maxsize=64)  # while one pattern is looked at
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


def _holds_start(group: Group) -> bool:
    """Tell whether `^` stands in it."""
    return any(
        _holds_start(item.what) if isinstance(item.what, Group) else _is_start(item)
        for branch in group.branches
        for item in branch
    )


def _eased(alone: Group) -> Group:
    """Return a branch without what makes Hyperscan slow to compile it, and to search.

    What stands before `.*` and the first words is left to `re`, for it begins anywhere; where any
    number of any characters comes first there is an easier start of a line.
    """
    (branch,) = alone.branches
    words = next((number for number, item in enumerate(branch) if _holds_words(item)), 0)
    while words and _is_written(branch[words - 1], _PLACES):
        words -= 1
    if words and _is_any_text(branch[words - 1]) and _is_written(branch[words - 1], _ANY_CHARACTER):
        return Group("", [branch[words:]])
    if branch and _is_start(branch[0]) and _may_begin_with_any(branch[1:]):
        return Group("", [[LOOSE_START, *branch[1:]]])
    return alone


def _is_start(item: Item) -> bool:
    return _is_written(item, ("^",))


def _is_written(item: Item, ways: Container[str]) -> bool:
    return not isinstance(item.what, Group) and item.what.for_python in ways


def _holds_words(item: Item) -> bool:
    """Tell whether it holds some letters at least, whatever it matches."""
    texts = [] if item.is_optional else _best([item])
    return min(map(len, texts), default=0) >= LEAST_WORD


def _may_begin_with_any(branch: list[Item]) -> bool:
    """Tell whether the first character may be one of any number of a large class."""
    for item in branch:
        if _is_any_text(item):
            return not _is_written(item, SMALL_CLASSES)
        if isinstance(item.what, Group) and any(map(_may_begin_with_any, item.what.branches)):
            return True
        if not item.can_be_empty:
            break
    return False


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
