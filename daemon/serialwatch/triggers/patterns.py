r"""Rule patterns for Hyperscan and for Python's `re`, with one meaning.

A pattern is about one line of the match view. `^` is the start of the line, the place after a lone
CR, or the place behind any known stamp, level or logger prefix; `$` is before the CRs and the LF
of the end. `.`, `\s`, `\W`, `\D` and negated classes match neither LF nor CR. Classes are ASCII.
"""

from __future__ import annotations

import math
import re
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, field, fields
from functools import lru_cache
from typing import Any

import hyperscan as hs

from serialwatch.lines import MAX_LINE
from serialwatch.triggers.effort import is_endless, refuse_endless, ways
from serialwatch.triggers.patience import LONG_LINE, Patience
from serialwatch.triggers.pattern_tree import (
    LEAST_GLUED,
    LEAST_PLAIN_GLUED,
    MAX_LENGTH,
    PatternError,
    forget_trees,
    parse,
)
from serialwatch.triggers.stand_in import stand_ins

MOST_KNOWN = 32_768  # patterns
MOST_WAYS = 200_000  # tries of `re`, some milliseconds
_REST_OF_WORD = re.compile(rb"\w*")
_SYLLABLE = re.compile(
    rb"(?i)(?:\b|_)(?:[a-z]{1,2}|anti|auto|dis|inter|multi|non|over|pre|pro|semi|sub|under)\Z"
)  # before a small letter it belongs to the word, as in `asynchronous`


@dataclass(frozen=True, slots=True)
class Pattern:
    """A pattern in both forms; equal sources are the same object."""

    source: str
    expression: bytes  # for Hyperscan; finds at least what `regex` does
    in_python: bytes  # for `re`
    is_anchored: bool  # holds `^`
    can_be_glued: bool  # begins with `^` or a word: the end of another word may stand before
    has_fixed_end: bool
    can_be_empty: bool  # matches without a single character
    only_python: str  # what Hyperscan cannot do in it, "" if all is well
    names: tuple[str, ...]  # of groups
    least_costly: int  # bytes of a text for which `re` may need too many steps
    surely_quick: int  # bytes of a text for which it does not, 0: none
    patience: Patience = field(default_factory=Patience, compare=False, repr=False)

    @property
    def stand_ins(self) -> tuple[bytes, ...]:
        """Return expressions for Hyperscan, quicker to compile; they find at least as much."""
        return _stand_ins(self.source)

    @property
    def is_exact(self) -> bool:
        """Tell whether what Hyperscan finds need not be checked with `regex`."""
        return not self.is_anchored and self.stand_ins == (self.expression,)

    @property
    def regex(self) -> re.Pattern[bytes]:
        """Return what `re` searches with; it is made when it is used first."""
        return _regex(self.in_python)

    def find_glued(self, text: bytes) -> re.Match[bytes] | None:
        r"""Return where it is found behind the bytes of another writer, which broke off in a word.

        Its `^` or `\b` misses it there. What is found must be long: short words are in other words.
        """
        search = _glued(self.source).search
        is_slow = len(text) >= self.least_costly or self.patience.is_over
        found = self.patience.search(search, text, self.surely_quick) if is_slow else search(text)
        if not found:
            return None
        end = _REST_OF_WORD.match(text, found.end())
        if len(text[found.start() : end.end() if end else None].strip()) < LEAST_GLUED:
            return None
        is_one_word = text[found.start() : found.start() + 1].islower() and (
            _SYLLABLE.search(text, 0, found.start())
        )
        return None if is_one_word else found

    @property
    def longest_literal(self) -> int:
        """Return how many plain characters in a row each match holds at least."""
        return parse(self.source).longest_literal

    def find(self, text: bytes) -> re.Match[bytes] | None:
        """Return where `re` finds it first in a text, as long as that takes no more than it may."""
        if len(text) >= self.least_costly or self.patience.is_over:
            return self.patience.search(self.regex.search, text, self.surely_quick)
        return self.regex.search(text)

    def is_all_of(self, text: bytes) -> bool:
        """Tell whether the whole text matches, as far as that takes no more than it may."""
        found = self.patience.search(self.regex.fullmatch, text, self.surely_quick)
        return found is not None and len(found[0]) == len(text)


_LASTING = tuple(each.name for each in fields(Pattern) if each.compare)


class KnownPatterns:
    """What this process, and earlier ones whose work it has recalled, have compiled."""

    def __init__(self) -> None:
        self.has_recalled = False
        self.has_news = False  # of what is in use, since it was told last
        self._recalled: dict[str, tuple[Pattern, tuple[bytes, ...]]] = {}
        self._used: dict[str, Pattern] = {}
        self._stand_ins: dict[str, tuple[bytes, ...]] = {}

    def recall(self, told: Iterable[tuple[dict[str, Any], list[str]]]) -> None:
        """Take up what another process has told.

        Raises:
            AttributeError: it is nothing that `told` returns.
            KeyError: likewise.
            TypeError: likewise.
            ValueError: likewise.

        """
        self.has_recalled = True
        for values, texts in told:
            written = {name: values[name].encode("ascii") for name in ("expression", "in_python")}
            made = Pattern(**values | written | {"names": tuple(values["names"])})
            self._recalled[made.source] = made, tuple([text.encode("ascii") for text in texts])

    def told(self) -> list[tuple[dict[str, Any], list[str]]]:
        """Return all that is in use, to be kept as JSON."""
        self.has_news = False
        return [
            (
                {name: _as_text(getattr(pattern, name)) for name in _LASTING},
                [text.decode("ascii") for text in self._stand_ins.get(source, ())],
            )
            for source, pattern in self._used.items()
        ]

    def pattern(self, source: str) -> Pattern:
        """Return a pattern, compiled now unless it is known."""
        if source in self._recalled:
            made = self._recalled[source][0]
        else:
            made = _compiled(source)
            self.has_news = True
        if len(self._used) < MOST_KNOWN:
            self._used[source] = made
        return made

    def stand_ins(self, source: str) -> tuple[bytes, ...]:
        """Return the stand-ins of a pattern, made now unless they are known."""
        texts = self._recalled[source][1] if source in self._recalled else ()
        if not texts:
            texts = stand_ins(parse(source)).texts
            self.has_news = True
        if source in self._used:
            self._stand_ins[source] = texts
        return texts


known_patterns = KnownPatterns()


def _as_text(value: object) -> object:
    return value.decode("ascii") if isinstance(value, bytes) else value


@lru_cache(maxsize=MOST_KNOWN)
def compile_pattern(source: str) -> Pattern:
    """Return the pattern in both forms; look-around and backreferences are for `re` alone.

    Raises:
        PatternError: not a regular expression, or one that the two engines read differently.

    """
    return known_patterns.pattern(source)


def _compiled(source: str) -> Pattern:
    if not source:
        raise PatternError("the pattern is empty")
    if len(source) > MAX_LENGTH:
        raise PatternError(f"it has {len(source)} characters, {MAX_LENGTH} are plenty; split it")
    if "\b" in source:
        raise PatternError(
            r"it holds a backspace, which TOML makes of `\b` in double quotes; write it in single "
            r"quotes, '...', or `\x08` if it is meant"
        )
    if not source.isascii():
        raise PatternError(r"only ASCII; write other bytes as \xHH")
    tree = parse(source)
    refuse_endless(tree)
    caseless = "(?i)" if tree.is_caseless else ""
    in_python = (caseless + tree.root.written(for_hyperscan=False)).encode("ascii")
    try:
        if not tree.is_surely_valid:
            _regex(in_python)
    except (re.error, OverflowError, RecursionError) as exc:
        raise PatternError(f"not a regular expression: {exc}") from exc
    expression = (caseless + tree.root.written(for_hyperscan=True)).encode("ascii")
    quick = 0 if is_endless(tree) else _least_costly(*ways(tree)) - 1
    return Pattern(
        source=source,
        expression=expression,
        in_python=in_python,
        is_anchored=tree.is_anchored,
        can_be_glued=tree.can_be_glued
        or (
            tree.is_anchored
            and tree.longest_literal >= LEAST_PLAIN_GLUED
            and not stand_ins(tree).hold_start
        ),
        has_fixed_end=tree.root.has_fixed_end,
        can_be_empty=tree.root.can_be_empty,
        only_python=tree.only_python,
        names=tree.names,
        least_costly=0 if tree.only_python else quick + 1 if quick else 0,
        surely_quick=quick,
    )


@lru_cache(maxsize=256)
def _least_costly(sharing: int, ways_each: int) -> int:
    """Return from which length of a text on `re` may need more than `MOST_WAYS` tries.

    So many ways there are to share out a text among parts that repeat, at the most; where the match
    begins counts as one.
    """
    length = LONG_LINE if sharing else MAX_LINE
    while length > 1 and math.comb(length, sharing + 1) * ways_each > MOST_WAYS:
        length = length * 3 // 4
    return length + 1


@lru_cache(maxsize=MOST_KNOWN)
def _stand_ins(source: str) -> tuple[bytes, ...]:
    return known_patterns.stand_ins(source)


@lru_cache(maxsize=MOST_KNOWN)
def _regex(in_python: bytes) -> re.Pattern[bytes]:
    return re.compile(in_python)


@lru_cache(maxsize=MOST_KNOWN)
def _glued(source: str) -> re.Pattern[bytes]:
    tree = parse(source)
    caseless = "(?i)" if tree.is_caseless else ""
    return re.compile((caseless + tree.glued.written(for_hyperscan=False)).encode("ascii"))


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
        database = _database([(0, pattern.expression)])
    except hs.HyperscanError as exc:
        told = str(exc)
        words = next((w for start, w in _WHY if told.startswith(start)), told)
        raise PatternError(f"Hyperscan cannot use `{pattern.source}`: {words}") from exc
    if hit_everywhere(database):
        raise PatternError(
            f"`{pattern.source}` matches nearly everywhere, in ordinary text too; "
            "add the words that only your line has"
        )


def hit_everywhere(database: hs.Database) -> frozenset[int]:
    """Return the ids of patterns that hit so much of ordinary text that they would slow it down."""
    counts: Counter[int] = Counter()

    def found(pattern: int, _start: int, _end: int, _flags: int, _context: object) -> None:
        counts[pattern] += 1

    database.scan(_ORDINARY, match_event_handler=found, scratch=hs.Scratch(database))
    most = len(_ORDINARY) // 40
    return frozenset(pattern for pattern, count in counts.items() if count > most)


def scanned_patterns(sources: Iterable[str]) -> tuple[Pattern, ...]:
    """Return the patterns in a fixed order, each once."""
    return tuple(compile_scanned(source) for source in dict.fromkeys(sources))


@lru_cache(maxsize=2)
def compile_database(patterns: tuple[Pattern, ...]) -> hs.Database:
    """Return a block-mode database in which a pattern's id is its place in the tuple.

    It finds each line in which a pattern matches, and others unless that is exact. The last two
    are kept: compiling takes a third of a second for 1,900 patterns. Whoever scans needs a
    scratch space of its own.

    Raises:
        hyperscan.HyperscanError: one of them is too much for it; it does not say which.

    """
    numbered = list(enumerate(patterns))
    expressions = [(n, text) for n, pattern in numbered for text in pattern.stand_ins]
    forget_trees()
    try:
        return _database(expressions)
    except hs.HyperscanError:  # of `a\bb|c` it takes the whole, not the first branch alone
        return _database([(n, pattern.expression) for n, pattern in numbered])


def _database(expressions: list[tuple[int, bytes]]) -> hs.Database:
    database = hs.Database(mode=hs.HS_MODE_BLOCK)
    # SINGLEMATCH would lose the second line of a chunk.
    database.compile(
        expressions=[text for _, text in expressions],
        ids=[number for number, _ in expressions],
        elements=len(expressions),
        flags=[hs.HS_FLAG_MULTILINE] * len(expressions),
    )
    return database


class LineView:
    """One line of the match view, and where a pattern may see its start."""

    __slots__ = ("_starts", "text")

    def __init__(self, text: bytes) -> None:
        self.text = text  # no LF
        self._starts: tuple[bytes, ...] | None = None

    def search(self, pattern: Pattern) -> re.Match[bytes] | None:
        """Return where the pattern matches first: in the line, else behind what stands before."""
        found = self._search(pattern)
        return found or (pattern.find_glued(self.text) if pattern.can_be_glued else None)

    def has(self, patterns: Iterable[Pattern]) -> bool:
        """Tell whether one of the patterns matches; none does so in the middle of a word."""
        return any(self._search(pattern) for pattern in patterns)

    def _search(self, pattern: Pattern) -> re.Match[bytes] | None:
        found = pattern.find(self.text)
        if found or not pattern.is_anchored:
            return found
        for start in self._shortened():
            if found := pattern.find(start):
                return found
        return None

    def shortest(self) -> bytes:
        """Return the line without any stamp or prefix of a logger."""
        return min((self.text, *self._shortened()), key=len)

    def _shortened(self) -> tuple[bytes, ...]:
        """Return the line without its prefixes, one by one, for each piece between CRs."""
        if self._starts is None:
            starts = []
            for number, piece in enumerate(self.text.split(b"\r")):
                if number and piece:
                    starts.append(piece)
                starts += _behind_prefixes(piece)
            self._starts = tuple(starts)
        return self._starts


def _behind_prefixes(text: bytes) -> list[bytes]:
    """Return a text without its prefixes, one by one."""
    starts = []
    at = 0
    for _ in range(_MOST_PREFIXES):
        if not (prefix := _PREFIX.match(text, at)):
            break
        if prefix.lastindex:
            starts.append(text[prefix.start(prefix.lastindex) + 1 :])
        at = prefix.end()
        starts.append(text[at:])
    return starts


# What consoles, kernels, loggers and terminal programs put before a line. Hyperscan's stand-in for
# `^` (in pattern_tree.py) must know the last characters of each, so keep the two together.
_MOST_PREFIXES = 5
_CLOCK = rb"\d\d:\d\d:\d\d(?:[.,:]\d{1,9})?"
_DATE = rb"\d{4}[-/.]\d\d[-/.]\d\d"
_ZONE = rb"(?:Z|[+-]\d\d:?\d\d)"
# A month of any language: `Jul`, `lug`, `févr.`
_MONTH = rb"(?:[A-Z][a-z]{2}|[A-Za-z\x80-\xff]{3,6}\.?)"
_SYSLOG = rb"(?:[A-Z][a-z]{2} )?" + _MONTH + rb" +\d{1,2} " + _CLOCK
# Host, program (BusyBox: and level); or the message begins so.
_SENDER = rb"( [\w.()-]+ (?:[a-z]+\d?\.[a-z]+ )?[\w./@-]+(?:\[\d+\])?:)"
_RFC_5424 = (
    rb"( [\w.:-]+ [\w./-]+ [\w.-]+ [\w.-]+ (?:-|\[[^\]\r\n]{0,200}\])(?: \xef\xbb\xbf)?(?= ))"
)
_LOGCAT = (
    rb"(?: [+-]\d{4})?(?: +\d+ +\d+ [VDIWEFS]( [^:\r\n]{0,48}:)"
    rb"| [VDIWEFS]/([^(\r\n]{0,48}\( *\d+\):))"
)
_ZEPHYR = rb"(?:<\w{3,4}> )?(?:[\w./-]{1,48}: )?"  # level, module
# Of shells and monitors; a bare `#` or `$` is more often a comment or a number.
_PROMPT = (
    rb"(?:(?:[\w.@:~/-]{1,48}+|\[\w[\w.@~/* -]{0,48}+\])(?:=>|[#$>]) "
    rb"|(?:[\w.-]{1,20}+ )?U-Boot ?> |[/~][\w./-]{0,40}+ [#$] "
    rb"|(?:=>|>>>|>|->|(?:msh|finsh) ?/?[\w./-]{0,40}+>) *(?=\S))"
)
_PREFIXES = (
    # kernel, U-Boot, grabserial; dmesg -d, journalctl -o short-delta
    rb"\[ *(?:\+?\d+\.|\+\d+,)\d*(?: \d+\.\d+| +(?:< *\d+\.\d+[ *]?>)?)?\]" + _SENDER + rb"?",
    rb"\[ *[TC]\d+\]",  # CONFIG_PRINTK_CALLER
    rb"\[ *\d+\.\d+ / [\d-]+ [\d:.]+\]",  # Android kernels: two clocks
    rb"\[[A-Z][a-z]{2} ?\d{1,2} \d\d:\d\d(?::\d\d)?\]",  # dmesg -e
    # dmesg -T, Tera Term
    rb"\[[A-Z][a-z]{2} [A-Z][a-z]{2} +\d+ \d\d:\d\d:\d\d(?:\.\d{3})? \d{4}\]",
    rb"<\d{1,3}>",  # level
    rb"[a-z]{3,8} *:[a-z]{3,7} *:",  # dmesg -x
    # tio, picocom, minicom, grabserial -T
    rb"\[(?:tio |\d{1,3} )?(?:" + _DATE + rb"[ T])?" + _CLOCK + _ZONE + rb"?(?: \d+\.\d+)?\]",
    rb"\((?:" + _DATE + rb"[ T])?" + _CLOCK + rb"\) ",  # YAT
    rb"(?:1 )?(?:[A-Z][a-z]{2} )?"
    + _DATE
    + rb"[ T]"
    + _CLOCK
    + rb"(?: ?"
    + _ZONE
    + rb"| [A-Z]{2,5}(?= ))?"
    rb"(?:(?: - [A-Z]+)? #|:| \d\d[OE][ +]|"
    + _LOGCAT
    + rb"|"
    + _RFC_5424
    + rb"|"
    + _SENDER
    + rb")?\t?",
    rb"(?:\[ )?\d\d-\d\d " + _CLOCK + _LOGCAT,
    rb"[VDIWEFS]/[^(\r\n]{1,48}\( *\d+\):",  # logcat -v brief
    rb"[\[(]?1\d{9}\.\d{1,9}[\])]?(?:" + _LOGCAT + rb"|" + _SENDER + rb"|(?=[ \t])\t?)",  # ts '%.s'
    rb"\(\d{1,8}\.\d{3,6}\) ",  # candump -t z
    # RealTerm, Docklight
    rb"[\[(]?\d{1,2}[./-]\d{1,2}[./-](?:\d{4}|\d\d),? \d{1,2}:\d\d:\d\d(?:[.,:]\d{1,6})?"
    rb"(?: ?[AaPp][Mm])?(?:[\])]|,|(?=[ \t]))\t?",
    rb"\[[RT]X\] - ",
    rb"- \{\"?dt\"?: ['\"]" + _DATE + rb"T" + _CLOCK + rb"['\"], \"?lvl\"?: ['\"]?\w+['\"]?,"
    rb"(?: \"?ns\"?: ['\"]?[\w-]+['\"]?,)? \"?msg\"?: ['\"]?",  # LAVA
    _CLOCK + rb"(?: ->| :|>)?(?: |\t)",  # Arduino IDE, Pronterface
    rb"\d\d> ",  # RTT viewer
    _SYSLOG + rb"(?: \d{4} \w+\.\w+ \S+:|" + _SENDER + rb")? ",  # also logread, ts
    rb"[\w./-]{1,32}(?:\[\d+\])?: (?=\[ *\d+\.\d)",  # `kernel: [   12.3]`
    rb"kernel: ",
    rb"[EWIDV] \([\d:. ]+\) [^:\r\n]{1,32}: ",  # ESP-IDF
    rb"\[(?:\d\d:)?\d\d:\d\d:\d\d\.\d{3},\d{3}\] ?" + _ZEPHYR,
    rb"\[\d{8}\] " + _ZEPHYR,
    rb"[EWID]: ",  # Zephyr's minimal log
    rb"\d{6} ",  # mynewt
    _PROMPT,
)
_PREFIX = re.compile(rb"(?:" + rb"|".join(_PREFIXES) + rb") *")

_ORDINARY = b"".join(
    b"[%5d.%06d] usb %d-%d: new high-speed device number %d using xhci, state %s at 0x%08x\r\n"
    % (n, n * 7919 % 10**6, n % 4, n % 7, n, (b"ready", b"idle", b"queued")[n % 3], n * 2654435761)
    for n in range(1, 24)
) + b"\r\n".join(
    (
        b"Starting the network service... done, link up at 1000 Mbit/s full duplex",
        b"I (4021) wifi: mode : sta (24:0a:c4:00:01:02), phy_init: loading PHY data",
        b"[00:00:01.250,000] <inf> app: temperature 21.5 C, humidity 40 %, battery 3700 mV",
        b"00000010: de ad be ef 00 01 02 03 04 05 06 07 08 09 0a 0b  ................",
        b"/ # ls -l /dev/ttyS0; crw-rw---- 1 root dialout 4, 64 Jan  1 00:00 /dev/ttyS0",
        b"key=value;list=1,2,3;" * 20,
        b"",
    )
)

_WHY = (
    ("Bounded repeat is too large", "a `{n,m}` is too large; 200 is plenty in a line"),
    ("Pattern is too large", "it is too large; make it shorter or split it"),
)
