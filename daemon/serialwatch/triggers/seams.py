"""Lines that a logger, a slow reader or a console tore: what stands across the seams.

A seam counts only where a pattern matches the pieces put together, matches none of them alone, and
no longer matches with something else between them: then words of the pattern itself stand on both
sides, which no two healthy neighbours have. Lines that merely hold two words of a pattern, one
each, are taken for one only where the seam itself tells so: in quotes, brackets, a name, or at a
space.
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
from serialwatch.triggers.seam_words import SeamWords
from serialwatch.triggers.uses import RulePatterns, Uses

Scan = Callable[[bytes], list[tuple[int, int]]]

_MOST_JOINED = 1024  # bytes of a half; what is longer is no line that somebody wrote
_KEPT = 2  # bytes before a seam that tell whether it looks torn
_HEAD = 96  # and bytes behind it
_NAME = 32  # bytes of a name or a number that a seam may be in
MOST_PIECES = 3  # of one line
_NEAR = 16  # bytes of a half in which words stand so close to the seam that nothing is between
_ELSE = b" \x1a "  # stands in no line of the view, and in no word

# What a logger puts before each read; the halves of a line have one of the same form each.
_DAY = rb"[A-Z][a-z][a-z] [ \d]\d \d\d:\d\d:\d\d"
_SENDER = rb"(?P<sender>[\w.-]+ [^ :\n]+: )"
_LOGGERS = (
    rb"\[(?:tio )?(?=[\d. TZ-]*:)\d[\d:. TZ-]{7,31}\] ",
    rb"\d\d:\d\d:\d\d\.\d{3} -> ",
    _DAY + rb" " + _SENDER,
    _DAY + rb" ",
    rb"\d{4}-\d\d-\d\d[ T]\d\d:\d\d:\d\d[\d.,]{0,8}(?:Z|[+-]\d\d:?\d\d)? " + _SENDER + rb"?",
)
_NO_PREFIX = re.compile(rb"")
_YEAR = re.compile(rb"20\d\d(?=-\d\d-\d\d)")
_OWN_STAMP = re.compile(
    rb"(?:<\d{1,3}>)?\[ *\d{1,8}\.\d{3,6}[\]\[]|\[\d\d:\d\d:\d\d\.\d{3},\d{3}\] |[VDIWE] \(\d+\) "
)
# Where a line may be torn, by how it ends and the next one starts. In a log with stamps Hyperscan
# is quickest with few of them, so each end counts with each start there.
_ENDS_AND_STARTS = (
    (rb" ", rb"[\w(./'\"*= @+#-]"),
    (rb"[\w,:;)\]*>=-]", rb" "),
    (rb"[\w\"')\]>]", rb"[_:;,.'\"=)\]!>(/-]"),
    (rb"[A-Za-z_]", rb"[a-z]"),
    (rb"[A-Za-z_]", rb"[A-Z]"),
    (rb"[A-Za-z_]", rb"\d"),
    (rb"[A-Zx#:(/=\[ -]\d", rb"\d"),
    (rb"[A-Zx#:(/=\[ -]\d\d", rb"\d"),
    *((b"x" + rb"[0-9a-f]" * digits, rb"[0-9a-f]") for digits in range(1, 9)),
    (rb"0", rb"x"),
    (rb"[(\[<{/\"':.=#*+@!-]", rb"[\w*=#+!./)]"),
)
_ANY_END_AND_START = (rb"[\w ,:;)\](\[<>{/\"'.=#*+@!-]", rb"[\w (./:;,'\"=)\]*+#!@-]")
# Some of these are so rare in ordinary text that nothing else need tell it, the others count only
# where words of patterns go on.
_SURELY_TORN = re.compile(
    rb" \n {0,2}[A-Za-z0-9(\]./]"
    rb"|[\w,:;)\]]\n {1,2}[A-Za-z0-9(\[<@]"
    rb"|[\w\"')\]]\n[_:;,.'\"=)\]]"
    rb"|[(\[]\n[\w)]"
    rb"|[a-z_]\n\(\)"
    rb"|\.\n/|/\n[\w.]"
)
_PERHAPS_TORN = re.compile(
    rb"[A-Za-z_]\n[A-Za-z0-9]|[A-Zx#:(/=\[ -]\d{1,2}\n\d|x[0-9a-f]{1,8}\n[0-9a-f]|0\nx"
    rb"|[^\w\n]\n\S|\S\n\W"
)
_NUMBER = re.compile(rb"(?:0x[0-9a-fA-F]+|\d)\Z")
_REST_OF_NUMBER = re.compile(rb"[0-9a-fA-F]+(?![0-9a-fA-F)\]])")
_IN_WORD = re.compile(rb"\w[a-z0-9_]")
_STAMPS_BEGIN = b"[<VDIWE"
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
    rb"|:\n -?\w+\Z"  # a value
)
_MAY_GO_ON = re.compile(rb"[\w ,:;()\[\]{<\"'/@=-]\r*\n\Z")
_GOES_ON_NS = 20_000_000  # between the pieces of a line at the most,
_SAVED_GOES_ON_NS = 1_100_000_000  # and as stamps of whole seconds show it
_ASKS_FOR_END = re.compile(r"(?<!\\)\$(?=[|)]|\Z)")
_ASKS_FOR_NO_VALUE = re.compile(r":(?:\\s\*)?\$\Z")
_BEGUN_BY_PUTTY = b"=~=~=~"


@dataclass(frozen=True, slots=True)
class Torn:
    """What is asked of the patterns of a matcher."""

    patterns: tuple[Pattern, ...]
    acting: frozenset[int]  # that mean something where nothing else was found
    words: SeamWords  # that stand in them
    specific: frozenset[int]  # patterns so sharp that no two healthy neighbours match together
    unsure: frozenset[int]  # and those whose hit the rest of a line may deny
    ignoring: Mapping[str, tuple[Pattern, ...]]  # rule -> what makes it no fault


@dataclass(frozen=True, slots=True)
class Joint:
    """Pieces put together to one line, in which a pattern matches across a seam."""

    offset: int  # of the last piece in the chunk
    pieces: int
    text: bytes
    ends: dict[int, int]  # of the patterns that match across the seam, from the start of the text
    others: dict[int, int]  # and of those that match elsewhere


@dataclass(frozen=True, slots=True)
class _Candidate:
    """A line that may go on from the one before."""

    start: int
    before: tuple[bytes, ...]  # the pieces before it
    rest: bytes  # the line without a logger's prefix
    is_sure: bool
    is_quoted: bool  # the seam is inside of quotes


@dataclass(frozen=True, slots=True)
class Piece:
    """Lines of a chunk and what matches in them."""

    lines: Lines
    view: bytes
    hits: list[tuple[int, int]]
    behind: bytes  # the line after them, where the last of them may be the half of one


class Seams:
    """Looks across the ends of one port's lines; it does not matter how they come in chunks."""

    def __init__(self, known: Torn, *, is_saved: bool = False) -> None:
        self.known = known
        self._goes_on_ns = _SAVED_GOES_ON_NS if is_saved else _GOES_ON_NS
        self._kept: Piece | None = None
        self._before = b""  # the newest line,
        self._begun: tuple[bytes, ...] = ()  # and what it may have gone on from, with itself
        self._ends: list[int] = []
        self._handler = self._found  # Hyperscan's binding keeps no reference
        self._prefix = _NO_PREFIX
        self._stamp_bytes = 0
        self._database: hs.Database | None = None

    def pieces(self, lines: Lines, view: bytes, hits: list[tuple[int, int]]) -> Iterator[Piece]:
        """Return the line that was kept, and the lines but for one to be kept.

        That is the last one if what hits it may be denied by the rest of it, should it be torn.
        """
        if kept := self.let_go():
            is_late = lines.mono_ns - kept.lines.mono_ns >= self._goes_on_ns
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
        return self._kept is not None and mono_ns - self._kept.lines.mono_ns < self._goes_on_ns

    def fed(self, view: bytes, scan: Scan) -> list[Joint]:
        """Take complete lines; return the joints that tell what no line does, in their order."""
        if self._database is None and not self._begin(view):
            return []
        candidates = self._candidates(view)
        last = view.rfind(b"\n", 0, len(view) - 1) + 1
        self._before = view[last:-1].rstrip(b"\r")
        self._begun = ()
        if not candidates:
            return []
        if candidates[-1].start == last:
            self._begun = (*candidates[-1].before, candidates[-1].rest)
        return self._proved(list(_with_fewer_pieces(candidates)), scan)

    def denied(self, reading: Reading, before: bytes, line: bytes, behind: bytes) -> set[str]:
        """Return the rules that hit a line which looks like half of one in which they do not."""
        asked = [rule for rule in reading.rules if self._denying(rule)]
        to_end = [rule for rule in reading.rules if _needs_end(rule, reading)]
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
                begun = self._prefix.match(line)
                self._stamp_bytes = len(begun[0]) if begun else 0
                form = _form_of(begun) if begun else b""
                # A logger that drops CRs drops all of them.
                may_have_cr = not form or line.endswith(b"\r")
                self._database = _torn_ends(form, may_have_cr=may_have_cr)
                self._scratch = hs.Scratch(self._database)
                return True
        return False

    def _candidates(self, view: bytes) -> list[_Candidate]:
        found: list[_Candidate] = []
        first_end = view.find(b"\n")
        before = self._before
        if before and self._torn_at(before[-_NAME:] + b"\n" + view[: min(_HEAD, first_end)]):
            self._add(found, 0, before, view[:first_end], self._begun)
        newest = 0
        for at in self._torn_at(view):
            start = at - self._stamp_bytes
            if start == newest:
                continue  # the same line once more
            newest = start
            end = start - 1
            while view[end - 1 : end] == b"\r":
                end -= 1
            begin = view.rfind(b"\n", 0, end) + 1
            is_next = found and found[-1].start == begin
            begun = (*found[-1].before, found[-1].rest) if is_next else ()
            self._add(found, start, view[begin:end], view[start : view.find(b"\n", at)], begun)
        return found

    def _add(
        self,
        found: list[_Candidate],
        start: int,
        before: bytes,
        line: bytes,
        begun: tuple[bytes, ...],
    ) -> None:
        """Add a candidate; `begun` are the pieces of what ends with the line before, if any."""
        rest = line[self._stamp_bytes :]
        if not before or not rest:
            return
        is_quoted = False
        whole = b"".join(begun) if begun else before
        looks_torn = is_sure = _is_sure(whole, rest)
        if not is_sure and (not self._stamp_bytes or _is_perhaps(whole, rest)):
            words, left, right = self.known.words, whole[-_NAME:], rest[:_NAME]
            is_quoted = b'"' in rest and bool(whole.count(b'"') % 2 and rest.count(b'"') % 2)
            if is_quoted or _is_bracketed(whole, rest):
                looks_torn = is_sure = True
            elif words.is_in_name(left, right):
                looks_torn, is_sure = True, (left[-1:] + right[:1]).isalnum()
            else:
                looks_torn = words.may_cross(left, right)
        begin = self._stamp_bytes
        if before[begin : begin + 1] in _STAMPS_BEGIN and _OWN_STAMP.match(before, begin):
            is_sure = looks_torn or _IN_WORD.match(before[-1:] + rest[:1]) is not None
            looks_torn = True
        if not looks_torn or not (rest := self._rest(before, line)):
            return
        pieces = begun[1 - MOST_PIECES :] if begun else (before,)
        found.append(_Candidate(start, pieces, rest, is_sure, is_quoted))

    def _torn_at(self, text: bytes) -> list[int]:
        """Return places in lines that look like second halves."""
        assert self._database is not None
        self._database.scan(text, match_event_handler=self._handler, scratch=self._scratch)
        if not self._ends:
            return []
        ends, self._ends = self._ends, []
        return ends

    def _found(self, _number: int, _start: int, end: int, _flags: int, _context: object) -> None:
        self._ends.append(end - 1)

    def _proved(self, candidates: list[_Candidate], scan: Scan) -> list[Joint]:
        texts = [b"".join((*each.before, each.rest, b"\n")) for each in candidates]
        ends = sorted(scan(b"".join(texts)), key=_end)
        if not ends:
            return []
        joints: list[Joint] = []
        at = number = 0
        for each, text in zip(candidates, texts, strict=True):
            end = at + len(text)
            there: dict[int, int] = {}
            while number < len(ends) and ends[number][1] <= end:
                pattern, place = ends[number]
                there.setdefault(pattern, place - at)
                number += 1
            if not self.known.acting.isdisjoint(there):
                new = set(self._new(each, text[:-1], there))
                if new:
                    joints.append(
                        Joint(
                            each.start,
                            len(each.before) + 1,
                            text[:-1],
                            {p: place for p, place in there.items() if p in new},
                            {p: place for p, place in there.items() if p not in new},
                        )
                    )
            at = end
        return joints

    def _new(self, candidate: _Candidate, text: bytes, found: Mapping[int, int]) -> Iterator[int]:
        """Return the patterns that match only where all pieces are one line."""
        *earlier, before = candidate.before
        rest = candidate.rest
        joined = LineView(text)
        seam = len(text) - len(rest)
        parts = {before, rest}
        if earlier:
            parts |= {text[:seam], text[len(candidate.before[0]) :]}
        if _NUMBER.search(before) and (digits := _REST_OF_NUMBER.match(rest)):
            parts.add(text[:seam] + digits[0])  # that it has more of them tells nothing
        alone = tuple(map(LineView, parts))
        seams = [seam]
        for piece in reversed(candidate.before[1:]):
            seams.append(seams[-1] - len(piece))
        apart = [LineView(text[:at] + _ELSE + text[at:]) for at in seams]
        near = LineView(text[max(0, seam - _NEAR) : seam + _NEAR])
        for number, end in found.items():
            pattern = self.known.patterns[number]
            if pattern.is_exact and end < seam:
                continue
            if not joined.search(pattern) or any(part.search(pattern) for part in alone):
                continue
            is_sharp = candidate.is_quoted or (
                candidate.is_sure
                and (number in self.known.specific or near.search(pattern) is not None)
            )
            if is_sharp or not any(view.search(pattern) for view in apart):
                yield number


def _with_fewer_pieces(candidates: list[_Candidate]) -> Iterator[_Candidate]:
    """Return each candidate also as those that begin with a later one of its pieces."""
    for each in candidates:
        for pieces in range(1, len(each.before)):
            yield replace(each, before=each.before[-pieces:])
        yield each


def _is_sure(before: bytes, rest: bytes) -> bool:
    if (before[-1:] + rest[:1]).isalnum():
        return False
    return _SURELY_TORN.match(before[-1:] + b"\n" + rest[:3]) is not None


def _is_perhaps(before: bytes, rest: bytes) -> bool:
    return _PERHAPS_TORN.search(before[-10:] + b"\n" + rest[:1]) is not None


def _is_bracketed(before: bytes, rest: bytes) -> bool:
    """Tell whether a line ends inside of brackets that the next one closes."""
    for opening, closing in ((b"(", b")"), (b"[", b"]")):
        if opening in before and closing in rest and before.rfind(opening) > before.rfind(closing):
            return opening not in rest[: rest.find(closing)]
    return False


def _may_wait(rule: RulePatterns) -> bool:
    """Tell whether there is time to see how a line goes on; what is critical is told at once."""
    return rule.rule.severity != "critical"


def _needs_end(rule: RulePatterns, reading: Reading) -> bool:
    """Tell whether a rule hit only where the line ends."""
    asks = _ASKS_FOR_END if _may_wait(rule) else _ASKS_FOR_NO_VALUE
    matched = [use.pattern for number, use in reading.uses if number in rule.matches]
    return all(asks.search(pattern.source) for pattern in matched)


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
    words = SeamWords(use.pattern.source.encode() for use in told)
    _torn_ends(b"")  # here, not when the first line of a port is judged
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
            or use.is_remembered
        ),
        ignoring=ignoring,
        words=words,
        specific=frozenset(
            number
            for number, use in enumerate(uses)
            if use.boots or any(rule.rule.tier == "specific" for rule in use.rules)
        ),
        unsure=frozenset(
            number
            for number, use in enumerate(uses)
            if any(
                rule.unless or rule.rule.id in ignoring or _ASKS_FOR_END.search(use.pattern.source)
                if _may_wait(rule)
                else _ASKS_FOR_NO_VALUE.search(use.pattern.source)
                for rule in use.rules
            )
        ),
    )


def _form_of(prefix: re.Match[bytes]) -> bytes:
    """Return a pattern of the prefixes that are written as this one, by the same sender.

    What has a known length, and what is always the same, is found three times as fast.
    """
    sender = (prefix.groupdict().get("sender") or b"") if prefix.lastgroup else b""
    stamp = prefix[0][: len(prefix[0]) - len(sender)]
    year = year_at.span() if (year_at := _YEAR.search(stamp)) else (0, 0)
    return b"".join(
        re.escape(stamp[at : at + 1]) if year[0] <= at < year[1] else _kind_of(stamp[at : at + 1])
        for at in range(len(stamp))
    ) + re.escape(sender)


def _kind_of(char: bytes) -> bytes:
    if char in b" 0123456789":
        return rb"[ \d]"
    if char.isupper():
        return rb"[A-Z]"
    return rb"[a-z]" if char.islower() else re.escape(char)


@lru_cache(maxsize=64)
def _torn_ends(logger: bytes, *, may_have_cr: bool = True) -> hs.Database:
    kinds = (_ANY_END_AND_START,) if logger else _ENDS_AND_STARTS
    line_end = rb"\r{0,2}\n" if may_have_cr else rb"\n"
    expressions = [end + line_end + logger + start for end, start in kinds]
    database = hs.Database(mode=hs.HS_MODE_BLOCK)
    database.compile(
        expressions=expressions,
        ids=list(range(len(expressions))),
        elements=len(expressions),
        flags=[0] * len(expressions),
    )
    return database


def _end(hit: tuple[int, int]) -> int:
    return hit[1]
