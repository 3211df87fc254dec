"""A rule's pattern taken apart, to be written down for Python's `re` or for Hyperscan.

Both read the same regular expressions; this keeps the parts that they read differently from
meaning two things, and refuses what only one of them can do.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, replace
from functools import lru_cache

# `^` for Hyperscan: the start of a line, the place behind a lone CR, and every place that might be
# behind a stamp or a logger's prefix. It finds too much, `re` decides then.
_HYPERSCAN_START = r"(?:^|[\r\]>]|\d,|: ['\"]|(?:[\]>:#$\dZ)+-]|[AP]M|\d[OE])[ \t]+)"
# The same by the last character alone: more places, but Hyperscan compiles it ten times as fast
# where any number of any characters follows.
_LOOSE_START = r"(?:^|[\r\]>, \t'\"])"
_LOOKS = ("(?=", "(?!", "(?<=", "(?<!")
MAX_LENGTH = 2000  # characters of a pattern: a line of a pack
MAX_DEPTH = 20  # groups in groups; a parser in Python ends at some hundred
MAX_SIZE = 4000  # characters that a pattern stands for, repeats written out
LEAST_GLUED = 10  # characters that tell what another writer's bytes stand before,
LEAST_PLAIN_GLUED = 5  # and of a pattern for the start of a line so many are plain, in a row


class PatternError(Exception):
    """A pattern cannot be used; the message says how to write it instead."""


@lru_cache(maxsize=4096)  # while rules are loaded; see `forget_trees`
def parse(source: str) -> Tree:
    """Take a pattern apart.

    Raises:
        PatternError: not a regular expression, or the two engines read it differently.

    """
    return _Parser(source).parse()


def forget_trees() -> None:
    """Give back the memory of the patterns that were taken apart."""
    parse.cache_clear()


def can_be_glued(branch: list[Item]) -> bool:
    r"""Tell whether a branch that begins with `^` or `\b` says so much that bytes may stand before.

    It then need not begin there to be looked at.
    """
    first = branch[0].what if len(branch) > 1 else None
    if not isinstance(first, Atom) or first.for_python not in (_WORD_EDGE, "^"):
        return False
    if sum(item.size for item in branch) <= LEAST_GLUED:
        return False
    return first.for_python == _WORD_EDGE or _longest_in_branch(branch) >= LEAST_PLAIN_GLUED


@dataclass(frozen=True, slots=True)
class Tree:
    """A whole pattern."""

    root: Group
    is_caseless: bool
    is_anchored: bool  # holds `^`
    only_python: str  # what Hyperscan cannot do in it, "" if all is well
    names: tuple[str, ...]  # of groups

    @property
    def longest_literal(self) -> int:
        """Return how many plain characters in a row each match holds at least."""
        return _longest_literal(self.root)

    @property
    def can_be_glued(self) -> bool:
        """Tell whether bytes of another writer may stand before what a branch begins with."""
        return any(map(can_be_glued, self.root.branches))

    @property
    def glued(self) -> Group:
        r"""Return it with `^`, and `\b` at its start, as the place behind a word that broke off."""
        return _glued(self.root)

    @property
    def beginnings(self) -> tuple[tuple[str, str], ...]:
        """Return the pattern cut off behind each of its parts, and that part, for `re`.

        Empty if it is more than one branch.
        """
        if len(self.root.branches) != 1:
            return ()
        parts = [part for item in self.root.branches[0] for part in item.parts]
        flags = "(?i)" if self.is_caseless else ""
        return tuple((flags + "".join(parts[: n + 1]), part) for n, part in enumerate(parts))

    @property
    def is_surely_valid(self) -> bool:
        """Tell whether `re` takes it for sure: what it might refuse was looked at here."""
        has_good_names = all(map(str.isidentifier, self.names))
        is_each_once = len(set(self.names)) == len(self.names)
        is_ours = not self.only_python and has_good_names and is_each_once
        return is_ours and _is_surely_valid(self.root)


@dataclass(frozen=True, slots=True)
class Atom:
    """What matches some characters in a row, one of several characters, or a place."""

    for_python: str
    for_hyperscan: str
    literal: str = ""  # the characters, "" for a class or a place

    def written(self, *, for_hyperscan: bool) -> str:
        """Return it for one of the engines."""
        return self.for_hyperscan if for_hyperscan else self.for_python

    @property
    def can_be_empty(self) -> bool:
        """Tell whether it is a place only."""
        return self.for_python in _PLACES

    @property
    def has_fixed_end(self) -> bool:
        """Tell whether it ends in one way only."""
        return True

    @property
    def size(self) -> int:
        """Return how many characters it stands for."""
        return len(self.literal) or 1


@dataclass(frozen=True, slots=True, eq=False)
class Group:
    """Alternatives; the whole pattern is one without parentheses."""

    opening: str  # e.g. "(?P<irq>", "" for the whole
    branches: list[list[Item]]

    def written(self, *, for_hyperscan: bool) -> str:
        """Return it for one of the engines."""
        inner = "|".join(
            "".join(item.written(for_hyperscan=for_hyperscan) for item in branch)
            for branch in self.branches
        )
        opening = self.opening
        if for_hyperscan and (opening == "(" or "P<" in opening):
            opening = "(?:"  # it captures nothing
        return f"{opening}{inner})" if opening else inner

    @property
    def can_be_empty(self) -> bool:
        """Tell whether it can match without a single character."""
        return self.opening in _LOOKS or any(
            all(item.can_be_empty for item in branch) for branch in self.branches
        )

    @property
    def size(self) -> int:
        """Return how many characters it stands for, repeats written out."""
        return sum(item.size for branch in self.branches for item in branch)

    @property
    def has_fixed_end(self) -> bool:
        """Tell whether a match has one end only."""
        return all(not branch or branch[-1].has_fixed_end for branch in self.branches)


@dataclass(frozen=True, slots=True, eq=False)
class Item:
    """A part and how often it comes."""

    what: Atom | Group
    repeat: str = ""  # "*", "+", "?", "{2,3}"
    lazy: str = ""  # "?"
    is_open: bool = False  # may repeat a varying number of times
    is_optional: bool = False
    most: int | None = 1  # times; None: any number
    least: int = 1  # times

    def written(self, *, for_hyperscan: bool) -> str:
        """Return it for one of the engines."""
        # Hyperscan reports every match: lazy or not is the same to it.
        lazy = "" if for_hyperscan else self.lazy
        return self.what.written(for_hyperscan=for_hyperscan) + self.repeat + lazy

    @property
    def parts(self) -> list[str]:
        """Return it for `re`, each character that stands for itself alone."""
        text = self.written(for_hyperscan=False)
        is_plain = isinstance(self.what, Atom) and self.what.literal == text
        return list(text) if is_plain else [text]

    @property
    def can_be_empty(self) -> bool:
        """Tell whether it can match without a single character."""
        return self.is_optional or self.what.can_be_empty

    @property
    def size(self) -> int:
        """Return how many characters it stands for, repeats written out."""
        return self.what.size * max(1, self.most or 1)

    @property
    def has_fixed_end(self) -> bool:
        """Tell whether it ends in one way only."""
        return not self.is_open and self.what.has_fixed_end

    @property
    def repeats_a_repeat(self) -> bool:
        """Tell whether it is as `(a+)+`: one text in more ways than can be tried."""
        return (
            (self.most is None or self.most > 8)
            and isinstance(self.what, Group)
            and any(_is_a_repeat(branch) for branch in self.what.branches)
        )


def _is_a_repeat(branch: list[Item]) -> bool:
    """Tell whether a branch is one part that may repeat without end, behind any parentheses."""
    if len(branch) != 1:
        return False
    item = branch[0]
    if item.most is None:
        return True
    return isinstance(item.what, Group) and any(map(_is_a_repeat, item.what.branches))


def _longest_literal(group: Group) -> int:
    if group.opening in _LOOKS:
        return 0
    return min(map(_longest_in_branch, group.branches))


def _longest_in_branch(branch: list[Item]) -> int:
    longest = run = 0
    for item in branch:
        if isinstance(item.what, Group):
            run = 0
            if not item.is_optional:
                longest = max(longest, _longest_literal(item.what))
        elif item.what.literal and not item.is_optional:
            run += item.least * len(item.what.literal)
            longest = max(longest, run)
            if item.is_open:
                run = 0
        elif not item.what.can_be_empty:
            run = 0
    return longest


def _is_surely_valid(group: Group) -> bool:
    """Tell whether it repeats only what can be repeated, so often."""
    return all(
        (not item.repeat or _is_surely_repeated(item))
        and (not isinstance(item.what, Group) or _is_surely_valid(item.what))
        for branch in group.branches
        for item in branch
    )


def _is_surely_repeated(item: Item) -> bool:
    most = MAX_SIZE if item.most is None else item.most
    is_place = isinstance(item.what, Atom) and item.what.can_be_empty
    return item.least <= most and not is_place


def _glued(group: Group, *, is_first: bool = True) -> Group:
    def glued(number: int, item: Item) -> Item:
        is_first_here = is_first and number == 0
        if isinstance(item.what, Group):
            return replace(item, what=_glued(item.what, is_first=is_first_here))
        text = item.what.for_python
        is_start = text == "^" or (is_first_here and text == _WORD_EDGE)
        return replace(item, what=_BROKEN_OFF) if is_start else item

    branches = [[glued(n, item) for n, item in enumerate(branch)] for branch in group.branches]
    return replace(group, branches=branches)


_WORD_EDGE = r"\b"
_PLACES = frozenset(("^", r"(?:\r|\Z)", _WORD_EDGE, r"\B"))  # as they are written for `re`


@lru_cache(maxsize=512)
def _one(text: str) -> Item:
    """Return what is written so for both engines: a class, a place, an escaped character."""
    is_escaped = len(text) == 2 and text[0] == "\\" and not text[1].isalnum()
    return Item(Atom(text, text, text[1] if is_escaped else ""))


def _plain(text: str) -> Item:
    r"""Return characters that stand for themselves, or behind a `\`."""
    return Item(Atom(text, text, _ESCAPED.sub(r"\1", text) if "\\" in text else text))


_START = Item(Atom("^", _HYPERSCAN_START))
LOOSE_START = Item(Atom("^", _LOOSE_START))
# Only `re` looks for it.
_BROKEN_OFF = Atom(r"(?:(?<=[a-z])|(?<=\d)(?!\d)|(?<=[:-][\dA-F]{2})|(?<=\.\.\.))(?=\S)", "")
_END = Item(Atom(r"(?:\r|\Z)", r"(?:\r|$)"))
_ESCAPED = re.compile(r"\\(.)")
_ESCAPES = {
    "d": r"\d",
    "D": r"[^\d\r\n]",
    "w": r"\w",
    "W": r"[^\w\r\n]",
    "s": r"[ \t\f\x0b]",
    "S": r"\S",
    "b": r"\b",
    "B": r"\B",
    "t": r"\t",
    "r": r"\r",
    "f": r"\f",
    "v": r"\x0b",
    "a": r"\x07",
}
_CLASS_ESCAPES = _ESCAPES | {"s": r" \t\f\x0b", "b": r"\x08"}
_ONE_LINE = r"a pattern is about one line: `\n` cannot match"
_REFUSED_ESCAPES = {
    "A": r"`\A` is not a line's start; write `^`",
    "Z": r"`\Z` is not a line's end; write `$`",
    "z": r"`\z` is not a line's end; write `$`",
    "G": r"Hyperscan cannot do `\G`; write `^`",
    "n": _ONE_LINE,
    "h": r"`\h` is not known to Python; write `[ \t]`",
    "K": r"Hyperscan cannot do `\K`; let `fields` pick the part you want",
    "R": _ONE_LINE,
}
_ONLY_PYTHON = (
    ("(?=", "look-ahead `(?=`; match the line and use `unless` instead"),
    ("(?!", "look-ahead `(?!`; match the line and use `unless` instead"),
    ("(?<=", "look-behind `(?<=`; match the line and use `unless` instead"),
    ("(?<!", "look-behind `(?<!`; match the line and use `unless` instead"),
    ("(?>", "an atomic group `(?>`; write `(?:`"),
    ("(?P=", "a backreference `(?P=`; match the line and use `unless` instead"),
    ("(?(", "a conditional `(?(`; write two patterns"),
)
_BACK = re.compile(r"\(\?P=\w+\)")
_BYTE = re.compile(r"\\x([0-9a-fA-F]{2})")
_REPEATING = frozenset("*+?{")
# Characters that stand for themselves.
_RUN = re.compile(r"(?:[\w \-,:;/'\"=<>@%&!~`#]|\\[^\w\s])+(?![*+?{])", re.ASCII)
# A class of which nothing else need be asked: no range but of digits and letters.
_HOLDS_NO_LF = re.compile(
    r"\[(?:\^\\r\\n)?(?:[\w .,:;/'\"=<>@%&!~`#+*?$(){}|]|0-9|a-z|A-Z|a-f|A-F|\\[^\w\s]|\\[dw])+"
    r"-?\]",
    re.ASCII,
)
_REPEAT = re.compile(r"([*+?]|\{(\d*)(,?)(\d*)\})(\??)(\+?)")
_OPENING = re.compile(r"\((?:\?P<(\w+)>|\?:|\?i:|\?=|\?!|\?<=|\?<!|\?>|(?!\?))")


class _Parser:
    def __init__(self, source: str) -> None:
        self._source = source
        self._at = 0
        self._is_anchored = False
        self._only_python = ""
        self._names: list[str] = []

    def parse(self) -> Tree:
        is_caseless = self._take("(?i)")
        root = Group("", self._branches(depth=0))
        if "{" in self._source and root.size > MAX_SIZE:  # nothing else makes it larger
            raise PatternError(
                f"it stands for {root.size} characters with its repeats written out; "
                "a `{n,m}` is too large; 200 is plenty in a line"
            )
        return Tree(root, is_caseless, self._is_anchored, self._only_python, tuple(self._names))

    def _take(self, text: str) -> bool:
        if self._source.startswith(text, self._at):
            self._at += len(text)
            return True
        return False

    def _branches(self, depth: int) -> list[list[Item]]:
        branches: list[list[Item]] = [[]]
        while self._at < len(self._source):
            char = self._source[self._at]
            if char == ")":
                if not depth:
                    raise PatternError(r"a `)` without its `(`; write `\)` for the character")
                return branches
            if char == "|":
                self._at += 1
                branches.append([])
                continue
            if run := _RUN.match(self._source, self._at):
                branches[-1].append(_plain(run[0]))
                self._at = run.end()
                continue
            branches[-1].append(self._repeated(self._item(depth)))
        if depth:
            raise PatternError("a `(` is never closed")
        return branches

    def _item(self, depth: int) -> Item:
        char = self._source[self._at]
        if char == "(":
            return self._group(depth)
        if char == "[":
            return _one(self._class())
        if char == "\\":
            return _one(self._escape())
        self._at += 1
        match char:
            case "^":
                self._is_anchored = True
                return _START
            case "$":
                return _END
            case ".":
                return _one(r"[^\r\n]")
            case "*" | "+" | "?":
                raise PatternError(f"a `{char}` with nothing to repeat")
            case "{" | "}" | "]":
                return _one("\\" + char)
            case "\n" | "\r":
                raise PatternError(_ONE_LINE)
        return _plain(char)

    def _group(self, depth: int) -> Item:
        for start, words in _ONLY_PYTHON:
            if self._source.startswith(start, self._at):
                self._only_python = self._only_python or f"Hyperscan cannot do {words}"
        if whole := _BACK.match(self._source, self._at):
            self._at = whole.end()
            return _one(whole[0])
        opening = _OPENING.match(self._source, self._at)
        if not opening:
            given = self._source[self._at : self._at + 4]
            raise PatternError(
                f"`{given}` is not known here; use `(?:`, `(?P<name>`, `(?i:`, or `(?i)` in front"
            )
        if depth >= MAX_DEPTH:
            raise PatternError(f"more than {MAX_DEPTH} groups in groups; write it flatter")
        if opening[1]:
            self._names.append(opening[1])
        self._at = opening.end()
        branches = self._branches(depth + 1)
        self._at += 1
        return Item(Group(opening[0], branches))

    def _escape(self) -> str:
        char = self._source[self._at + 1 : self._at + 2]
        if not char:
            raise PatternError(r"ends with a lone `\`")
        if char == "x":
            return self._byte()
        self._at += 2
        if char in _ESCAPES:
            return _ESCAPES[char]
        return self._plain_escape(char)

    def _plain_escape(self, char: str) -> str:
        if char in _REFUSED_ESCAPES:
            raise PatternError(_REFUSED_ESCAPES[char])
        if char == "0":
            raise PatternError(r"write `\x00` for `\0`")
        if char.isdigit():
            self._only_python = self._only_python or (
                f"Hyperscan cannot do a backreference `\\{char}`; write it out"
            )
            return "\\" + char
        if char.isalpha():
            raise PatternError(f"`\\{char}` is not known to both engines; write it out")
        return "\\" + char

    def _byte(self) -> str:
        found = _BYTE.match(self._source, self._at)
        if not found:
            raise PatternError(r"`\x` needs two hex digits")
        if int(found[1], 16) == ord("\n"):
            raise PatternError(_ONE_LINE)
        self._at = found.end()
        return found[0]

    def _class(self) -> str:
        self._at += 1
        is_negated = self._take("^")
        parts: list[str] = []
        start = self._at
        while True:
            char = self._source[self._at : self._at + 1]
            if not char:
                raise PatternError("a `[` is never closed")
            if char == "]" and self._at > start:
                self._at += 1
                break
            if self._source.startswith(("[:", "[.", "[="), self._at):
                raise PatternError("classes such as `[:alpha:]` are not known to Python")
            if char == "\\":
                parts.append(self._class_escape(is_negated))
                continue
            self._at += 1
            # A `[`, or a `-` in front, must not read as something else in the other engine.
            parts.append("\\" + char if char in "[]^" or (char == "-" and not parts) else char)
        text = "[" + (r"^\r\n" if is_negated else "") + "".join(parts) + "]"
        if not _HOLDS_NO_LF.fullmatch(text) and _holds_lf(text):
            raise PatternError(f"the class `{text}` holds LF; {_ONE_LINE}")
        return text

    def _class_escape(self, is_negated: bool) -> str:
        char = self._source[self._at + 1 : self._at + 2]
        if char == "x":
            return self._byte()
        self._at += 2
        if char == "n" and is_negated:
            return ""  # always left out
        if char and char in "WD":
            if is_negated:
                return "\\" + char
            raise PatternError(f"`\\{char}` in a class would match LF; write the class out")
        if char and char in _CLASS_ESCAPES:
            return _CLASS_ESCAPES[char]
        return self._plain_escape(char or "\\")

    def _repeated(self, item: Item) -> Item:
        if self._source[self._at : self._at + 1] not in _REPEATING:
            return item
        found = _REPEAT.match(self._source, self._at)
        if not found or found[1] in ("{}", "{,}"):
            return item
        if found[6]:
            raise PatternError(f"Hyperscan cannot do `{found[0]}`; write `{found[1]}`")
        if found[1].startswith("{") and not found[2]:
            raise PatternError(f"write `{{0,{found[4]}}}` for `{found[1]}`")
        self._at = found.end()
        if self._source[self._at : self._at + 1] in ("*", "?") or self._take("{"):
            raise PatternError(f"two repeats in a row after `{found[0]}`")
        repeated = Item(
            what=item.what,
            repeat=found[1],
            lazy=found[5],
            is_open=found[1] in "*+?" or (bool(found[3]) and found[2] != found[4]),
            is_optional=found[1] in "*?" or found[2] == "0",
            most=_most(found),
            least=0 if found[1] in "*?" else int(found[2] or 1),
        )
        if repeated.repeats_a_repeat:
            text = repeated.written(for_hyperscan=False)
            raise PatternError(
                f"`{text}` repeats what repeats already, in more ways than can be tried; "
                "repeat it once"
            )
        return repeated


def _most(repeat: re.Match[str]) -> int | None:
    """Return how often a part may come; None: as often as it likes."""
    if repeat[1] in "*+":
        return None
    if repeat[1] == "?":
        return 1
    if repeat[3] and not repeat[4]:
        return None
    try:
        return int(repeat[4] or repeat[2])
    except ValueError as exc:  # more digits than Python reads
        raise PatternError("a `{n,m}` is too large; 200 is plenty in a line") from exc


@lru_cache(maxsize=1024)
def _holds_lf(text: str) -> bool:
    try:
        return re.compile(text.encode("ascii")).match(b"\n") is not None
    except re.error as exc:
        raise PatternError(f"not a regular expression: {exc}") from exc
