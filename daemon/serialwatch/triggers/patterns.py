r"""Rule patterns for Hyperscan and for Python's `re`, with one meaning.

A pattern is about one line of the match view. `^` is the start of the line, the place after a lone
CR, or the place behind any known stamp, level or logger prefix; `$` is before the CRs and the LF
of the end. `.`, `\s`, `\W`, `\D` and negated classes match neither LF nor CR. Classes are ASCII.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import lru_cache

import hyperscan as hs


class PatternError(Exception):
    """A pattern cannot be used; the message says how to write it instead."""


@dataclass(frozen=True, slots=True)
class Pattern:
    """A pattern in both forms; equal sources are the same object."""

    source: str
    expression: bytes  # Hyperscan; finds at least what `regex` does
    regex: re.Pattern[bytes]
    is_anchored: bool  # holds `^`: what Hyperscan finds must be checked with `regex`
    has_fixed_end: bool
    can_be_empty: bool  # matches without a single character
    only_python: str  # what Hyperscan cannot do in it, "" if all is well


@lru_cache(maxsize=4096)
def compile_pattern(source: str) -> Pattern:
    """Return the pattern in both forms; look-around and backreferences are for `re` alone.

    Raises:
        PatternError: not a regular expression, or one that the two engines read differently.

    """
    if not source:
        raise PatternError("the pattern is empty")
    if not source.isascii():
        raise PatternError(r"only ASCII; write other bytes as \xHH")
    tree = _Parser(source).parse()
    caseless = "(?i)" if tree.is_caseless else ""
    in_python = caseless + _write(tree.root, for_hyperscan=False)
    try:
        regex = re.compile(in_python.encode("ascii"))
    except (re.error, OverflowError) as exc:
        raise PatternError(f"not a regular expression: {exc}") from exc
    expression = (caseless + _write(tree.root, for_hyperscan=True)).encode("ascii")
    return Pattern(
        source=source,
        expression=expression,
        regex=regex,
        is_anchored=tree.is_anchored,
        has_fixed_end=_has_fixed_end(tree.root),
        can_be_empty=_can_be_empty(tree.root),
        only_python=tree.only_python,
    )


def compile_scanned(source: str) -> Pattern:
    """Return a pattern that is looked for in the stream of lines.

    Raises:
        PatternError: as `compile_pattern`, or its end is not fixed.

    """
    pattern = compile_pattern(source)
    if pattern.only_python:
        raise PatternError(pattern.only_python)
    if pattern.can_be_empty:
        raise PatternError(f"`{source}` would match an empty line; ask for something")
    if not pattern.has_fixed_end:
        raise PatternError(
            f"`{source}` has no fixed end and would report once a byte; "
            "leave the repeated or optional tail to `fields`"
        )
    return pattern


def check_compiles(pattern: Pattern) -> None:
    """Raise if Hyperscan cannot use the pattern.

    Raises:
        PatternError: it cannot, and why.

    """
    try:
        compile_database.__wrapped__((pattern,))
    except hs.HyperscanError as exc:
        told = str(exc)
        words = next((w for start, w in _WHY if told.startswith(start)), told)
        raise PatternError(f"Hyperscan cannot use `{pattern.source}`: {words}") from exc


def scanned_patterns(sources: Iterable[str]) -> tuple[Pattern, ...]:
    """Return the patterns in a fixed order, each once."""
    return tuple(compile_scanned(source) for source in dict.fromkeys(sources))


@lru_cache(maxsize=2)
def compile_database(patterns: tuple[Pattern, ...]) -> hs.Database:
    """Return a block-mode database in which a pattern's id is its place in the tuple.

    The last two are kept: compiling takes a fifth of a second for 300 patterns. Whoever scans needs
    a scratch space of its own.

    Raises:
        hyperscan.HyperscanError: one of them is too much for it; it does not say which.

    """
    database = hs.Database(mode=hs.HS_MODE_BLOCK)
    # SINGLEMATCH would lose the second line of a chunk.
    database.compile(
        expressions=[pattern.expression for pattern in patterns],
        ids=list(range(len(patterns))),
        elements=len(patterns),
        flags=[hs.HS_FLAG_MULTILINE] * len(patterns),
    )
    return database


class LineView:
    """One line of the match view, and where a pattern may see its start."""

    __slots__ = ("_starts", "text")

    def __init__(self, text: bytes) -> None:
        self.text = text  # no LF
        self._starts: tuple[bytes, ...] | None = None

    def search(self, pattern: Pattern) -> re.Match[bytes] | None:
        """Return where the pattern matches first: in the line, else behind its prefixes."""
        found = pattern.regex.search(self.text)
        if found or not pattern.is_anchored:
            return found
        for start in self._shortened():
            if found := pattern.regex.search(start):
                return found
        return None

    def has(self, patterns: Iterable[Pattern]) -> bool:
        """Tell whether one of the patterns matches."""
        return any(self.search(pattern) for pattern in patterns)

    def _shortened(self) -> tuple[bytes, ...]:
        """Return the line without its prefixes, one by one, for each piece between CRs."""
        if self._starts is None:
            starts = []
            for number, piece in enumerate(self.text.split(b"\r")):
                if number and piece:
                    starts.append(piece)
                at = 0
                for _ in range(_MOST_PREFIXES):
                    if not (prefix := _PREFIX.match(piece, at)):
                        break
                    at = prefix.end()
                    starts.append(piece[at:])
            self._starts = tuple(starts)
        return self._starts


# What consoles, kernels, loggers and terminal programs put before a line. Hyperscan's stand-in for
# `^` (_HYPERSCAN_START) must know the last character of each, so keep the two together.
_MOST_PREFIXES = 5
_CLOCK = rb"\d\d:\d\d:\d\d(?:[.,:]\d{1,6})?"
_DATE = rb"\d{4}-\d\d-\d\d"
_PREFIX = re.compile(
    rb"(?:"
    rb"\[ *\+?\d+\.\d*(?: \d+\.\d+)?\]"  # kernel, U-Boot, grabserial
    rb"|\[ *[TC]\d+\]"  # CONFIG_PRINTK_CALLER
    rb"|\[ *\d+\.\d+ / [\d-]+ [\d:.]+\]"  # Android kernels: two clocks
    rb"|\[[A-Z][a-z]{2} ?\d{1,2} \d\d:\d\d(?::\d\d)?\]"  # dmesg -e
    rb"|\[[A-Z][a-z]{2} [A-Z][a-z]{2} +\d+ \d\d:\d\d:\d\d \d{4}\]"  # dmesg -T
    rb"|<\d{1,3}>"  # level
    rb"|[a-z]{3,8} *:[a-z]{3,7} *:"  # dmesg -x
    rb"|\[(?:tio )?(?:" + _DATE + rb"[ T])?" + _CLOCK + rb"Z?\]"  # tio, picocom, minicom
    rb"|" + _DATE + rb"[ T]" + _CLOCK + rb"(?:Z|[+-]\d\d:?\d\d)?(?: - [A-Z]+ #|:)?"  # pyterm, LAVA
    rb"|" + _CLOCK + rb"(?: ->| :|>)? "  # Arduino IDE, Pronterface
    rb"|\d\d> "  # RTT viewer
    rb"|(?:[A-Z][a-z]{2} )?[A-Z][a-z]{2} +\d{1,2} "
    + _CLOCK  # syslog, logread, ts
    + rb"(?: \d{4} \w+\.\w+ \S+:| [\w.-]+ [\w./-]+(?:\[\d+\])?:)? "
    rb"|[\w./-]{1,32}(?:\[\d+\])?: (?=\[ *\d+\.\d)"  # `kernel: [   12.3]`
    rb"|kernel: "
    rb"|[EWIDV] \([\d:. ]+\) [^:\r\n]{1,32}: "  # ESP-IDF
    rb"|\[(?:\d\d:)?\d\d:\d\d:\d\d\.\d{3},\d{3}\] ?(?:<\w{3,4}> )?(?:[\w./-]{1,48}: )?"  # Zephyr
    rb"|\[\d{8}\] (?:<\w{3,4}> )?(?:[\w./-]{1,48}: )?"
    rb"|[EWID]: "  # Zephyr's minimal log
    rb"|\d{6} "  # mynewt
    rb") *"
)
_HYPERSCAN_START = r"(?:^|[\r\]>]|[\]>:#\dZ] +)"


@dataclass(slots=True)
class _Atom:
    text: tuple[str, str]  # for Python, for Hyperscan


@dataclass(slots=True)
class _Group:
    opening: tuple[str, str]
    branches: list[list[_Item]]


@dataclass(slots=True)
class _Item:
    what: _Atom | _Group
    repeat: str = ""  # "*", "+", "?", "{2,3}"
    lazy: str = ""  # "?"
    is_open: bool = False  # may repeat a varying number of times
    is_optional: bool = False


@dataclass(slots=True)
class _Tree:
    root: _Group
    is_caseless: bool
    is_anchored: bool
    only_python: str


_START = ("^", _HYPERSCAN_START)
_END = (r"(?:\r|\Z)", r"(?:\r|$)")
_NO_WIDTH = (_START, _END, (r"\b", r"\b"), (r"\B", r"\B"))
_LOOKS = ("(?=", "(?!", "(?<=", "(?<!")
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

    def parse(self) -> _Tree:
        is_caseless = self._take("(?i)")
        root = _Group(("", ""), self._branches(depth=0))
        return _Tree(root, is_caseless, self._is_anchored, self._only_python)

    def _take(self, text: str) -> bool:
        if self._source.startswith(text, self._at):
            self._at += len(text)
            return True
        return False

    def _branches(self, depth: int) -> list[list[_Item]]:
        branches: list[list[_Item]] = [[]]
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

    def _item(self, depth: int) -> _Item:
        char = self._source[self._at]
        if char == "(":
            return self._group(depth)
        if char == "[":
            return _Item(_Atom(_both(self._class())))
        if char == "\\":
            return _Item(_Atom(_both(self._escape())))
        self._at += 1
        match char:
            case "^":
                self._is_anchored = True
                return _Item(_Atom(_START))
            case "$":
                return _Item(_Atom(_END))
            case ".":
                return _Item(_Atom(_both(r"[^\r\n]")))
            case "*" | "+" | "?":
                raise PatternError(f"a `{char}` with nothing to repeat")
            case "{" | "}" | "]":
                return _Item(_Atom(_both("\\" + char)))
            case "\n" | "\r":
                raise PatternError(_ONE_LINE)
        return _Item(_Atom(_both(char)))

    def _group(self, depth: int) -> _Item:
        for start, words in _ONLY_PYTHON:
            if self._source.startswith(start, self._at):
                self._only_python = self._only_python or f"Hyperscan cannot do {words}"
        if whole := re.compile(r"\(\?P=\w+\)").match(self._source, self._at):
            self._at = whole.end()
            return _Item(_Atom(_both(whole[0])))
        opening = _OPENING.match(self._source, self._at)
        if not opening:
            given = self._source[self._at : self._at + 4]
            raise PatternError(
                f"`{given}` is not known here; use `(?:`, `(?P<name>`, `(?i:`, or `(?i)` in front"
            )
        self._at = opening.end()
        branches = self._branches(depth + 1)
        self._at += 1
        # Hyperscan captures nothing.
        hidden = "(?:" if opening[0] == "(" or "P<" in opening[0] else opening[0]
        return _Item(_Group((opening[0], hidden), branches))

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

    def _repeated(self, item: _Item) -> _Item:
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
        item.repeat, item.lazy = found[1], found[5]
        item.is_optional = found[1] in "*?" or found[2] == "0"
        item.is_open = found[1] in "*+?" or (bool(found[3]) and found[2] != found[4])
        return item


def _both(text: str) -> tuple[str, str]:
    return (text, text)


def _write(group: _Group, *, for_hyperscan: bool) -> str:
    return "|".join(
        "".join(_write_item(item, for_hyperscan=for_hyperscan) for item in branch)
        for branch in group.branches
    )


def _write_item(item: _Item, *, for_hyperscan: bool) -> str:
    form = 1 if for_hyperscan else 0
    if isinstance(item.what, _Group):
        inner = _write(item.what, for_hyperscan=for_hyperscan)
        text = f"{item.what.opening[form]}{inner})"
    else:
        text = item.what.text[form]
    # Hyperscan reports every match: lazy or not is the same to it.
    return text + item.repeat + ("" if for_hyperscan else item.lazy)


def _can_be_empty(group: _Group) -> bool:
    return any(all(map(_item_can_be_empty, branch)) for branch in group.branches)


def _item_can_be_empty(item: _Item) -> bool:
    if item.is_optional:
        return True
    if isinstance(item.what, _Group):
        return item.what.opening[0] in _LOOKS or _can_be_empty(item.what)
    return item.what.text in _NO_WIDTH


def _has_fixed_end(group: _Group) -> bool:
    return all(_branch_has_fixed_end(branch) for branch in group.branches)


def _branch_has_fixed_end(branch: Sequence[_Item]) -> bool:
    if not branch:
        return True
    last = branch[-1]
    if last.is_open:
        return False
    return not isinstance(last.what, _Group) or _has_fixed_end(last.what)


_WHY = (
    ("Bounded repeat is too large", "a `{n,m}` is too large; 200 is plenty in a line"),
    ("Pattern is too large", "it is too large; make it shorter or split it"),
)
