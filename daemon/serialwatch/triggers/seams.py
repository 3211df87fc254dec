"""Lines that a logger, a slow reader or a console tore in two: what stands across the seam.

A seam counts only where a pattern matches the two halves put together, matches neither of them
alone, and no longer matches with something else between them: then words of the pattern itself
stand on both sides, which no two healthy neighbours have. Lines that merely hold two words of a
pattern, one each, are not taken for one.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache

import hyperscan as hs

from serialwatch.records import Lines
from serialwatch.triggers.patterns import LineView, Pattern, compile_pattern
from serialwatch.triggers.reading import Reading
from serialwatch.triggers.ruleset import Ignore
from serialwatch.triggers.uses import RulePatterns, Uses

Scan = Callable[[bytes], list[tuple[int, int]]]

_MOST_JOINED = 1024  # bytes of a half; what is longer is no line that somebody wrote
_KEPT = 2  # bytes before a seam that tell whether it looks torn
_HEAD = 96  # and bytes behind it
_ELSE = b"\x1a"  # stands in no line of the view

# What a logger puts before each read; the halves of a line have one of the same form each.
_DAY = rb"[A-Z][a-z][a-z] [ \d]\d \d\d:\d\d:\d\d"
_SENDER = rb"(?:[\w.-]+ [^ :\n]+: )"
_LOGGERS = (
    rb"\[(?:tio )?\d[\d:. TZ-]{7,31}\] ",
    rb"\d\d:\d\d:\d\d\.\d{3} -> ",
    _DAY + rb" " + _SENDER,
    _DAY + rb" ",
    rb"\d{4}-\d\d-\d\d[ T]\d\d:\d\d:\d\d[\d.,]{0,8}(?:Z|[+-]\d\d:?\d\d)? " + _SENDER + rb"?",
)
_NO_PREFIX = re.compile(rb"")
_OWN_STAMP = re.compile(
    rb"(?:<\d{1,3}>)?\[ *\d{1,8}\.\d{3,6}[\]\[]|\[\d\d:\d\d:\d\d\.\d{3},\d{3}\] |[VDIWE] \(\d+\) "
)
# How a line ends and the next begins where it looks as if the first went on; some find so little
# in ordinary text that nothing else need tell it, the others only where words of patterns go on.
_SURELY_TORN = (
    (rb"[^\r\n] ", rb" {0,2}[A-Za-z0-9(\[\]<./]"),
    (rb"[\w,:;)\]]", rb" {1,2}[A-Za-z0-9(\[<@]"),
    (rb"[\w\"')\]]", rb"[_:;,.'\"=)\]]"),
    (rb"[(\[]", rb"\w"),
)
_PERHAPS_TORN = (
    (rb"[a-z_]", rb"[a-z_]"),
    (rb"[A-Za-z][A-Z]", rb"[A-Z]"),
    (rb"[A-Z]", rb"[a-z]"),
    (rb"\w", rb"-"),
    (rb"[*+=#]", rb"[*+=#]{1,3} "),
    (rb"[<{/\"]", rb"[A-Za-z0-9]"),
)
# The same where more is known: of a rule that would not count in the two put together.
_GOES_ON = re.compile(
    b"|".join(
        end + rb"\n" + begin
        for end, begin in (
            (rb"[a-z0-9_]", rb"[a-z0-9_]"),
            (rb"[A-Z]", rb"[A-Za-z]"),
            (rb"[^ \n] ", rb"[A-Za-z0-9(\[\"']"),
            (rb"[\w,:;)\]\"']", rb" [A-Za-z0-9(\[\"']"),
            (rb"[\w)\]\"']", rb"[:;,.'\"=)\]}/-]"),
            (rb"[(\[{<\"/@=-]", rb"[\w\"']"),
        )
    )
)
# And where a line surely did, so that its end was none.
_NO_END = re.compile(
    rb"[\w)]\n (?:at|by|for|from|in|is|not|of|on|to|was|with)\b|[\w)] \n[a-z]{4}[a-z]*+(?! *[:=])"
)
_MAY_GO_ON = re.compile(rb"[\w ,:;()\[\]{<\"'/@=-]\r*\n\Z")
_GOES_ON_NS = 20_000_000  # between the halves of a line at the most
_ASKS_FOR_END = re.compile(r"(?<!\\)\$(?=[|)]|\Z)")
_GRAM = 4
_WORDS = re.compile(rb"(?:[\w ,:;'=-]|(?<!\\)\\[()\[\].*+-])+")
_BEGUN_BY_PUTTY = b"=~=~=~"


@dataclass(frozen=True, slots=True)
class Torn:
    """What is asked of the patterns of a matcher."""

    patterns: tuple[Pattern, ...]
    acting: frozenset[int]  # that mean something where nothing else was found
    grams: frozenset[bytes]  # that stand in their words
    specific: frozenset[int]  # patterns so sharp that no two healthy neighbours match together
    unsure: frozenset[int]  # and those whose hit the rest of a line may deny
    ignoring: Mapping[str, tuple[Pattern, ...]]  # rule -> what makes it no fault


@dataclass(frozen=True, slots=True)
class Joint:
    """Two halves put together, in which a pattern matches across the seam."""

    offset: int  # of the second half in the chunk
    text: bytes
    ends: dict[int, int]  # of the patterns that match across the seam, from the start of the text
    others: dict[int, int]  # and of those that match elsewhere


@dataclass(frozen=True, slots=True)
class _Candidate:
    """A line that may go on from the one before."""

    start: int
    before: bytes
    rest: bytes  # the line without a logger's prefix
    line: bytes
    is_sure: bool


@dataclass(frozen=True, slots=True)
class Piece:
    """Lines of a chunk and what matches in them."""

    lines: Lines
    view: bytes
    hits: list[tuple[int, int]]
    behind: bytes  # the line after them, where the last of them may be the half of one


class Seams:
    """Looks across the ends of one port's lines; it does not matter how they come in chunks."""

    def __init__(self, known: Torn) -> None:
        self.known = known
        self._kept: Piece | None = None
        self._before = b""  # the newest line
        self._ends: list[tuple[int, bool]] = []
        self._handler = self._found  # Hyperscan's binding keeps no reference
        self._prefix = _NO_PREFIX
        self._database: hs.Database | None = None

    def pieces(self, lines: Lines, view: bytes, hits: list[tuple[int, int]]) -> Iterator[Piece]:
        """Return the line that was kept, and the lines but for one to be kept.

        That is the last one if what hits it may be denied by the rest of it, should it be torn.
        """
        if kept := self.let_go():
            is_late = lines.mono_ns - kept.lines.mono_ns >= _GOES_ON_NS
            yield kept if is_late else replace(kept, behind=view[: view.find(b"\n")])
        start = view.rfind(b"\n", 0, len(view) - 1) + 1
        unsure = self.known.unsure
        is_unsure = any(end > start and number in unsure for number, end in hits)
        if not is_unsure or not _MAY_GO_ON.search(view, start):
            yield Piece(lines, view, hits, b"")
            return
        text = lines.text
        starts = start if text is view else text.rfind(b"\n", 0, len(text) - 1) + 1
        begun, last = text[:starts], text[starts:]
        if start:
            whole = replace(lines, count=lines.count - 1, text=begun)
            there = [hit for hit in hits if hit[1] <= start]
            shown = begun if text is view else view[:start]
            yield Piece(whole, shown, there, view[start:-1])
        torn = replace(lines, first_seq=lines.first_seq + lines.count - 1, count=1, text=last)
        there = [(number, end - start) for number, end in hits if end > start]
        self._kept = Piece(torn, last if text is view else view[start:], there, b"")

    def let_go(self) -> Piece | None:
        """Return the line that was kept; what follows is not known."""
        kept, self._kept = self._kept, None
        return kept

    def keeps(self, mono_ns: int) -> bool:
        """Tell whether a line is kept for which it is not too late yet to go on."""
        return self._kept is not None and mono_ns - self._kept.lines.mono_ns < _GOES_ON_NS

    def fed(self, view: bytes, scan: Scan) -> list[Joint]:
        """Take complete lines; return the joints that tell what no line does, in their order."""
        if self._database is None and not self._begin(view):
            return []
        candidates = self._candidates(view)
        last = view.rfind(b"\n", 0, len(view) - 1) + 1
        self._before = view[last:-1].rstrip(b"\r")
        if not candidates:
            return []
        return self._proved(candidates, scan)

    def denied(self, reading: Reading, before: bytes, line: bytes, behind: bytes) -> set[str]:
        """Return the rules that hit a line which looks like half of one in which they do not."""
        asked = [rule for rule in reading.rules if self._denying(rule)]
        to_end = [rule for rule in reading.rules if _may_wait(rule) and _needs_end(rule, reading)]
        found: set[str] = set()
        if not asked and not to_end:
            return found
        for first, second in ((before.rstrip(b"\r"), line), (line, behind)):
            if first is line:
                asked = [rule for rule in asked if _may_wait(rule)]
            if not (rest := self._rest(first, second)):
                continue
            seam = first[-_KEPT:] + b"\n" + rest[:_HEAD]
            joined = LineView(first + rest)
            if _GOES_ON.match(seam, 0) or _GOES_ON.match(seam, 1):
                other = LineView(rest if first is line else first)  # of two lines each hits alone
                found.update(
                    rule.rule.id
                    for rule in asked
                    if joined.has(self._denying(rule)) and not other.has(_patterns(rule))
                )
            if first is line and to_end and _NO_END.search(seam):
                found.update(rule.rule.id for rule in to_end if not _matches(rule, reading, joined))
        return found

    def joined(self, before: bytes, line: bytes) -> bytes:
        """Return two lines as one, b"" if the second does not look as if the first went on."""
        before = before.rstrip(b"\r")
        rest = self._rest(before, line)
        seam = before[-_KEPT:] + b"\n" + rest[:1]
        return before + rest if rest and _GOES_ON.search(seam) else b""

    def _denying(self, rule: RulePatterns) -> tuple[Pattern, ...]:
        return rule.unless + self.known.ignoring.get(rule.rule.id, ())

    def _rest(self, before: bytes, line: bytes) -> bytes:
        """Return what may go on from the line before, b"" if nothing does."""
        prefix = self._prefix.match(line)
        if not before or prefix is None or self._prefix.match(before) is None:
            return b""
        rest = line[prefix.end() :].rstrip(b"\r")
        if len(before) > _MOST_JOINED or len(rest) > _MOST_JOINED or b"\r" in before:
            return b""
        return b"" if _OWN_STAMP.match(rest) else rest

    def _begin(self, view: bytes) -> bool:
        """Learn from the first line that says something whether a logger stamps all lines."""
        for line in view.split(b"\n"):
            if line.strip() and not line.startswith(_BEGUN_BY_PUTTY):
                logger = next((each for each in _LOGGERS if re.match(each, line)), b"")
                self._prefix = re.compile(logger)
                # A form of known length is found three times as fast.
                begun = re.match(logger, line) if _SENDER not in logger else None
                form = _form_of(begun[0]) if begun else logger
                self._database = _torn_ends(form, self.known.grams)
                self._scratch = hs.Scratch(self._database)
                return True
        return False

    def _candidates(self, view: bytes) -> list[_Candidate]:
        found: list[_Candidate] = []
        first_end = view.find(b"\n")
        if self._before:
            tail = self._before[-_KEPT:]
            for _, is_sure in self._torn_at(tail + b"\n" + view[: min(_HEAD, first_end)]):
                self._add(found, 0, self._before, view[:first_end], is_sure=is_sure)
        for at, is_sure in self._torn_at(view):
            start = view.rfind(b"\n", 0, at) + 1
            end = start - 1
            while view[end - 1 : end] == b"\r":
                end -= 1
            before = view[view.rfind(b"\n", 0, end) + 1 : end]
            self._add(found, start, before, view[start : view.find(b"\n", at)], is_sure=is_sure)
        return found

    def _add(
        self, found: list[_Candidate], start: int, before: bytes, line: bytes, *, is_sure: bool
    ) -> None:
        prefix = self._prefix.match(line)
        if prefix is None:
            return
        begun = prefix.end()
        if not (is_sure or self._may_be_word(before[-3:], line[begun : begun + 3])):
            return
        if not (rest := self._rest(before, line)):
            return
        begun = prefix.end() if (prefix := self._prefix.match(before)) else 0
        is_sure = is_sure or _OWN_STAMP.match(before, begun) is not None
        if found and found[-1].start == start:
            is_sure = found.pop().is_sure or is_sure
        found.append(_Candidate(start, before, rest, line, is_sure))

    def _may_be_word(self, before: bytes, rest: bytes) -> bool:
        """Tell whether some pattern has these bytes in a row."""
        near = (before + rest).lower()
        at = len(before)
        grams = self.known.grams
        return (
            near[at - 2 : at + 2] in grams
            or near[at - 3 : at + 1] in grams
            or near[at - 1 : at + 3] in grams
        )

    def _torn_at(self, text: bytes) -> list[tuple[int, bool]]:
        """Return places in lines that look like second halves, and whether they surely are."""
        assert self._database is not None
        self._database.scan(text, match_event_handler=self._handler, scratch=self._scratch)
        if not self._ends:
            return []
        ends, self._ends = self._ends, []
        return ends

    def _found(self, number: int, _start: int, end: int, _flags: int, _context: object) -> None:
        self._ends.append((end - 1, number < len(_SURELY_TORN)))

    def _proved(self, candidates: list[_Candidate], scan: Scan) -> list[Joint]:
        text = b"".join(each.before + each.rest + b"\n" for each in candidates)
        ends = sorted(scan(text), key=_end)
        joints: list[Joint] = []
        at = number = 0
        for each in candidates:
            joined = each.before + each.rest
            end = at + len(joined) + 1
            there: dict[int, int] = {}
            while number < len(ends) and ends[number][1] <= end:
                pattern, place = ends[number]
                there.setdefault(pattern, place - at)
                number += 1
            if not self.known.acting.isdisjoint(there):
                new = set(self._new(each, there))
                if new:
                    joints.append(
                        Joint(
                            each.start,
                            joined,
                            {p: place for p, place in there.items() if p in new},
                            {p: place for p, place in there.items() if p not in new},
                        )
                    )
            at = end
        return joints

    def _new(self, candidate: _Candidate, found: Mapping[int, int]) -> Iterator[int]:
        """Return the patterns that match only where both halves are one line."""
        before, rest = candidate.before, candidate.rest
        joined = LineView(before + rest)
        halves = tuple(map(LineView, dict.fromkeys((before, candidate.line, rest))))
        apart = LineView(before + _ELSE + rest)
        for number, end in found.items():
            pattern = self.known.patterns[number]
            if pattern.is_exact and end < len(before):
                continue
            if not joined.search(pattern) or any(half.search(pattern) for half in halves):
                continue
            is_sharp = candidate.is_sure and number in self.known.specific
            if is_sharp or not apart.search(pattern):
                yield number


def _may_wait(rule: RulePatterns) -> bool:
    """Tell whether there is time to see how a line goes on; what is critical is told at once."""
    return rule.rule.severity != "critical"


def _needs_end(rule: RulePatterns, reading: Reading) -> bool:
    """Tell whether a rule hit only where the line ends."""
    matched = [use.pattern for number, use in reading.uses if number in rule.matches]
    return all(_ASKS_FOR_END.search(pattern.source) for pattern in matched)


def _patterns(rule: RulePatterns) -> tuple[Pattern, ...]:
    return tuple(map(compile_pattern, rule.rule.match))


def _matches(rule: RulePatterns, reading: Reading, view: LineView) -> bool:
    return any(view.search(use.pattern) for number, use in reading.uses if number in rule.matches)


def torn_of(uses: Sequence[Uses], ignores: Iterable[Ignore]) -> Torn:
    """Return what lines torn in two ask of patterns."""
    ignoring: dict[str, tuple[Pattern, ...]] = {}
    for ignore in ignores:
        for rule_id in ignore.rules:
            patterns = tuple(map(compile_pattern, ignore.match))
            ignoring[rule_id] = ignoring.get(rule_id, ()) + patterns
    told = [use for use in uses if use.rules or use.boots or use.causes or use.detectors]
    grams = grams_of(use.pattern.source.encode() for use in told)
    _torn_ends(b"", grams)  # here, not when the first line of a port is judged
    return Torn(
        patterns=tuple(use.pattern for use in uses),
        acting=frozenset(
            number
            for number, use in enumerate(uses)
            if use.rules
            or use.boots
            or use.causes
            or use.detectors
            or use.ready
            or use.shutdowns
            or use.ignores
        ),
        ignoring=ignoring,
        grams=grams,
        specific=frozenset(
            number
            for number, use in enumerate(uses)
            if use.boots or any(rule.rule.tier == "specific" for rule in use.rules)
        ),
        unsure=frozenset(
            number
            for number, use in enumerate(uses)
            if any(
                _may_wait(rule)
                and (
                    rule.unless
                    or rule.rule.id in ignoring
                    or _ASKS_FOR_END.search(use.pattern.source)
                )
                for rule in use.rules
            )
        ),
    )


def grams_of(sources: Iterable[bytes]) -> frozenset[bytes]:
    """Return all runs of four characters that stand in the words of patterns, in lower case."""
    grams: set[bytes] = set()
    for source in sources:
        for words in _WORDS.findall(source):
            plain = words.replace(b"\\", b"").lower()
            grams.update(plain[at : at + _GRAM] for at in range(len(plain) - _GRAM + 1))
    return frozenset(grams)


def _form_of(stamp: bytes) -> bytes:
    """Return a pattern of the stamps that are written as this one."""
    return b"".join(
        rb"[ \d]"
        if char in " 0123456789"
        else rb"[A-Z]"
        if char.isupper()
        else rb"[a-z]"
        if char.islower()
        else re.escape(char).encode()
        for char in stamp.decode("latin-1")
    )


@lru_cache(maxsize=64)
def _torn_ends(logger: bytes, grams: frozenset[bytes]) -> hs.Database:
    numbers = [gram for gram in grams if gram[1:3].isdigit()]
    kinds = [*_SURELY_TORN, *_PERHAPS_TORN]
    if numbers:
        kinds.append((_one_of(g[:2] for g in numbers), _one_of(g[2:] for g in numbers)))
    expressions = [end + rb"\r{0,2}\n" + logger + begin for end, begin in kinds]
    database = hs.Database(mode=hs.HS_MODE_BLOCK)
    database.compile(
        expressions=expressions,
        ids=list(range(len(expressions))),
        elements=len(expressions),
        flags=[0] * len(expressions),
    )
    return database


def _one_of(texts: Iterable[bytes]) -> bytes:
    return b"(?:" + b"|".join(map(re.escape, sorted(set(texts)))) + b")"


def _end(hit: tuple[int, int]) -> int:
    return hit[1]
