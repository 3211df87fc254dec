"""A rule's pattern taken apart, to be written down for Python's `re` or for Hyperscan.

Both read the same regular expressions; this keeps the parts that they read differently from
meaning two things, and refuses what only one of them can do.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

# `^` for Hyperscan: the start of a line, the place behind a lone CR, and every place that might be
# behind a stamp or a logger's prefix. It finds too much, `re` decides then.
_HYPERSCAN_START = r"(?:^|[\r\]>]|[\]>:#\dZ] +)"
_LOOKS = ("(?=", "(?!", "(?<=", "(?<!")


class PatternError(Exception):
    """A pattern cannot be used; the message says how to write it instead."""


def parse(source: str) -> Tree:
    """Take a pattern apart.

    Raises:
        PatternError: not a regular expression, or the two engines read it differently.

    """
    return _Parser(source).parse()


@dataclass(frozen=True, slots=True)
class Tree:
    """A whole pattern."""

    root: Group
    is_caseless: bool
    is_anchored: bool  # holds `^`
    only_python: str  # what Hyperscan cannot do in it, "" if all is well


@dataclass(frozen=True, slots=True)
class Atom:
    """What matches one character or a place."""

    for_python: str
    for_hyperscan: str

    def written(self, *, for_hyperscan: bool) -> str:
        """Return it for one of the engines."""
        return self.for_hyperscan if for_hyperscan else self.for_python

    @property
    def can_be_empty(self) -> bool:
        """Tell whether it is a place only."""
        return self in _PLACES

    @property
    def has_fixed_end(self) -> bool:
        """Tell whether it ends in one way only."""
        return True


@dataclass(frozen=True, slots=True)
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
    def has_fixed_end(self) -> bool:
        """Tell whether a match has one end only."""
        return all(not branch or branch[-1].has_fixed_end for branch in self.branches)


@dataclass(frozen=True, slots=True)
class Item:
    """A part and how often it comes."""

    what: Atom | Group
    repeat: str = ""  # "*", "+", "?", "{2,3}"
    lazy: str = ""  # "?"
    is_open: bool = False  # may repeat a varying number of times
    is_optional: bool = False

    def written(self, *, for_hyperscan: bool) -> str:
        """Return it for one of the engines."""
        # Hyperscan reports every match: lazy or not is the same to it.
        lazy = "" if for_hyperscan else self.lazy
        return self.what.written(for_hyperscan=for_hyperscan) + self.repeat + lazy

    @property
    def can_be_empty(self) -> bool:
        """Tell whether it can match without a single character."""
        return self.is_optional or self.what.can_be_empty

    @property
    def has_fixed_end(self) -> bool:
        """Tell whether it ends in one way only."""
        return not self.is_open and self.what.has_fixed_end


def _same(text: str) -> Atom:
    return Atom(text, text)


_START = Atom("^", _HYPERSCAN_START)
_END = Atom(r"(?:\r|\Z)", r"(?:\r|$)")
_PLACES = (_START, _END, _same(r"\b"), _same(r"\B"))
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
_OPENING = re.compile(r"\((?:\?P<\w+>|\?:|\?i:|\?=|\?!|\?<=|\?<!|\?>|(?!\?))")


class _Parser:
    def __init__(self, source: str) -> None:
        self._source = source
        self._at = 0
        self._is_anchored = False
        self._only_python = ""

    def parse(self) -> Tree:
        is_caseless = self._take("(?i)")
        root = Group("", self._branches(depth=0))
        return Tree(root, is_caseless, self._is_anchored, self._only_python)

    def _take(self, text: str) -> bool:
        if self._source.startswith(text, self._at):
            self._at += len(text)
            return True
        return False

    def _branches(self, depth: int) -> list[list[Item]]:
        branches: list[list[Item]] = [[]]
        while self._at < len(self._source):
            if self._source[self._at] == ")":
                if not depth:
                    raise PatternError(r"a `)` without its `(`; write `\)` for the character")
                return branches
            if self._take("|"):
                branches.append([])
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
            return Item(_same(self._class()))
        if char == "\\":
            return Item(_same(self._escape()))
        self._at += 1
        match char:
            case "^":
                self._is_anchored = True
                return Item(_START)
            case "$":
                return Item(_END)
            case ".":
                return Item(_same(r"[^\r\n]"))
            case "*" | "+" | "?":
                raise PatternError(f"a `{char}` with nothing to repeat")
            case "{" | "}" | "]":
                return Item(_same("\\" + char))
            case "\n" | "\r":
                raise PatternError(_ONE_LINE)
        return Item(_same(char))

    def _group(self, depth: int) -> Item:
        for start, words in _ONLY_PYTHON:
            if self._source.startswith(start, self._at):
                self._only_python = self._only_python or f"Hyperscan cannot do {words}"
        if whole := re.compile(r"\(\?P=\w+\)").match(self._source, self._at):
            self._at = whole.end()
            return Item(_same(whole[0]))
        opening = _OPENING.match(self._source, self._at)
        if not opening:
            given = self._source[self._at : self._at + 4]
            raise PatternError(
                f"`{given}` is not known here; use `(?:`, `(?P<name>`, `(?i:`, or `(?i)` in front"
            )
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
        found = re.compile(r"\\x([0-9a-fA-F]{2})").match(self._source, self._at)
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
        try:
            matches_lf = re.compile(text.encode("ascii")).match(b"\n")
        except re.error as exc:
            raise PatternError(f"not a regular expression: {exc}") from exc
        if matches_lf:
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
        found = re.compile(r"([*+?]|\{(\d*)(,?)(\d*)\})(\??)(\+?)").match(self._source, self._at)
        if not found or found[1] in ("{}", "{,}"):
            return item
        if found[6]:
            raise PatternError(f"Hyperscan cannot do `{found[0]}`; write `{found[1]}`")
        if found[1].startswith("{") and not found[2]:
            raise PatternError(f"write `{{0,{found[4]}}}` for `{found[1]}`")
        self._at = found.end()
        if self._source[self._at : self._at + 1] in ("*", "?") or self._take("{"):
            raise PatternError(f"two repeats in a row after `{found[0]}`")
        return Item(
            what=item.what,
            repeat=found[1],
            lazy=found[5],
            is_open=found[1] in "*+?" or (bool(found[3]) and found[2] != found[4]),
            is_optional=found[1] in "*?" or found[2] == "0",
        )
