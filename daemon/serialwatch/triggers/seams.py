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
from serialwatch.triggers.loggers import Logger
from serialwatch.triggers.patterns import LineView, Pattern, compile_pattern
from serialwatch.triggers.reading import Reading
from serialwatch.triggers.recent import kernel_stamp_s
from serialwatch.triggers.ruleset import Ignore
from serialwatch.triggers.seam_words import SeamWords
from serialwatch.triggers.uses import RulePatterns, Uses

Scan = Callable[[bytes], list[tuple[int, int]]]

_MOST_JOINED = 1024  # bytes of a half; what is longer is no line that somebody wrote
_KEPT = 2  # bytes before a seam that tell whether it looks torn
_HEAD = 192  # and bytes behind it
_NAME = 32  # bytes of a name or a number that a seam may be in
MOST_PIECES = 3  # of one line
_NEAR = 16  # bytes of a half in which words stand so close to the seam that nothing is between
_ELSE = b" \x1a "  # stands in no line of the view, and in no word

_BARE = 99  # id of the expression for lines without the prefix that others have
_OWN_STAMP = re.compile(
    rb"(?:<\d{1,3}>)?\[ *\d{1,8}\.\d{3,6}[\]\[]|\[\d\d:\d\d:\d\d\.\d{3},\d{3}\] |[VDIWE] \(\d+\) "
)
# Where a line may be torn, by how it ends and the next one starts. In a log with stamps Hyperscan
# is quickest with few of them, so each end counts with each start there.
_ENDS_AND_STARTS = (
    (rb" ", rb"[\w(./'\"*= @+#-]"),
    (rb"[\w,:;)\]*>!=-]", rb" "),
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
_SMALL = b"abcdefghijklmnopqrstuvwxyz"
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
_TAG = re.compile(rb"[A-Z][\w./-]{0,24}: ")
_TAIL = 512
_TAGGED_LINES = 5  # before a line with a tag; have most of them one, too, each whole line has one
_GRAM = 4
_MOST_MARKS = 16  # of a row
_MARKS = re.compile(rb"([!#*+=<>~_@.-])\1*")
# An escape broken off where a line ends, and how the next one goes on.
_HALF_ESCAPE = re.compile(rb"\x1b[\[0-9;]{0,16}+\r*+\n")
_REST_OF_ESCAPE = re.compile(rb"\[[0-9;]*[A-Za-z]"), re.compile(rb"[0-9;]*[A-Za-z]")


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
    is_certain: bool  # the seam is inside of quotes, or of an escape
    was_sure: bool = False  # the same of the seam before
    is_row: bool = False  # a row of one mark goes on across the first seam


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
        self._begun: _Candidate | None = None  # and what it may have gone on from
        self._tail = b""  # the newest lines, as far as their tags matter
        self._half: bytes | None = None  # of an escape, behind the newest line
        self._ends: list[int] = []
        self._handler = self._found  # Hyperscan's binding keeps no reference
        self._logger = Logger()
        self._database = _torn_ends(b"")
        self._scratch = hs.Scratch(self._database)

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

    @property
    def has_kept(self) -> bool:
        """Tell whether a line is kept."""
        return self._kept is not None

    def keeps(self, mono_ns: int) -> bool:
        """Tell whether a line is kept for which it is not too late yet to go on."""
        return self._kept is not None and mono_ns - self._kept.lines.mono_ns < self._goes_on_ns

    def fed(self, view: bytes, scan: Scan, text: bytes) -> list[Joint]:
        """Take complete lines; return the joints that tell what no line does, in their order.

        `text` are the same lines with their escapes.
        """
        halves = self._half_escapes(text, view)
        if (prefix := self._logger.learn(view)) is None:
            return self._fed(view, scan, halves)
        at = prefix.start()
        joints = self._fed(view[:at], scan, halves) if at else []
        self._logger.take(prefix)
        logger = self._logger
        self._database = _torn_ends(
            logger.form, logger.first_char, may_have_cr=not logger.drops_crs
        )
        self._scratch = hs.Scratch(self._database)
        self._begun = None
        later = {place - at: half for place, half in halves.items() if place >= at}
        behind = self._fed(view[at:], scan, later)
        return joints + [replace(joint, offset=joint.offset + at) for joint in behind]

    def _fed(self, view: bytes, scan: Scan, halves: Mapping[int, bytes]) -> list[Joint]:
        candidates = self._candidates(view, halves)
        last = view.rfind(b"\n", 0, len(view) - 1) + 1
        self._before = view[last:-1].rstrip(b"\r")
        self._begun = None
        self._tail = (self._tail + view)[-_TAIL:] if len(view) < _TAIL else view[-_TAIL:]
        if not candidates:
            return []
        if candidates[-1].start == last:
            self._begun = candidates[-1]
        return self._proved(list(self._with_fewer_pieces(candidates)), scan)

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

    def with_stamp(self, reading: Reading, before: bytes) -> LineView:
        """Return a line with the kernel's time before it, though half a line before has that."""
        if reading.stamp_s is not None or kernel_stamp_s(before) is None:
            return reading.view
        joined = self.joined(before, reading.view.text)
        return LineView(joined) if joined else reading.view

    def _denying(self, rule: RulePatterns) -> tuple[Pattern, ...]:
        return rule.unless + self.known.ignoring.get(rule.rule.id, ())

    def _rest(self, before: bytes, line: bytes) -> bytes:
        """Return what may go on from the line before, b"" if nothing does."""
        prefix = self._logger.prefix.match(line)
        if not before or (prefix is not None and self._logger.prefix.match(before) is None):
            return b""
        # Without a prefix: where the board writes the time itself, half a line has none.
        rest = (line[prefix.end() :] if prefix else line).rstrip(b"\r")
        if len(before) > _MOST_JOINED or len(rest) > _MOST_JOINED or b"\r" in before:
            return b""
        return b"" if _OWN_STAMP.match(rest) else rest

    def _half_escapes(self, text: bytes, view: bytes) -> dict[int, bytes]:
        """Return before which lines of the view an escape is broken off, and its parameters."""
        if text is view and self._half is None:
            return {}
        found = {} if self._half is None else {0: self._half}
        self._half = None
        place = counted = 0
        for half in _HALF_ESCAPE.finditer(text) if text is not view else ():
            for _ in range(text.count(b"\n", counted, half.end())):
                place = view.find(b"\n", place) + 1
            counted = half.end()
            if place == len(view):
                self._half = half[0][1:].rstrip(b"\r\n")
            else:
                found[place] = half[0][1:].rstrip(b"\r\n")
        return found

    def _candidates(self, view: bytes, halves: Mapping[int, bytes]) -> list[_Candidate]:
        found: list[_Candidate] = []
        first_end = view.find(b"\n")
        before = self._before
        if before and (
            0 in halves or self._torn_at(before[-_NAME:] + b"\n" + view[: min(_HEAD, first_end)])
        ):
            line = view[:first_end]
            begin, half = self._logger.begin_of(line), halves.get(0)
            self._add(found, view, 0, begin, before, line, self._begun, half)
        newest = 0
        prefix_bytes = self._logger.prefix_bytes
        for place in self._starts(view, halves):
            if place < 0:  # without a prefix
                start = at = -place
            else:
                at = place
                start = at - prefix_bytes if prefix_bytes >= 0 else view.rfind(b"\n", 0, at) + 1
            if start == newest:
                continue  # the same line once more
            newest = start
            end = start - 1
            while view[end - 1 : end] == b"\r":
                end -= 1
            begin = view.rfind(b"\n", 0, end) + 1
            begun = found[-1] if found and found[-1].start == begin else None
            line = view[start : view.find(b"\n", at)]
            half = halves.get(start) if halves else None
            self._add(found, view, start, at - start, view[begin:end], line, begun, half)
        return found

    def _starts(self, view: bytes, halves: Mapping[int, bytes]) -> list[int]:
        """Return where what may be second halves starts, negative where no prefix stands before."""
        ends = self._torn_at(view)
        if not halves:
            return ends
        for place in halves:
            if place:
                begin = self._logger.begin_of(view[place : view.find(b"\n", place)])
                ends.append(place + begin if begin or not self._logger.is_known else -place)
        return sorted(ends, key=abs)

    def _add(
        self,
        found: list[_Candidate],
        view: bytes,
        start: int,
        begin: int,
        before: bytes,
        line: bytes,
        begun: _Candidate | None,
        half: bytes | None,
    ) -> None:
        """Add a candidate; `begun` ends with the line before, if that may go on from another.

        `half` is that of an escape, if the line before ends with one.
        """
        rest = line[begin:]
        if not before or not rest:
            return
        is_certain = False
        whole = b"".join((*begun.before, begun.rest)) if begun else before
        logger, begin_before = self._logger, begin
        if logger.is_known and (not begin or logger.prefix_bytes < 0):
            begin_before = logger.begin_of(before)
        looks_torn = is_sure = _is_sure(whole, rest)
        if half is not None:
            escape = _REST_OF_ESCAPE[bool(half)].match(rest)
            if not escape:
                return
            looks_torn = is_sure = is_certain = True
            line = line[:begin] + rest[escape.end() :]
        elif not is_sure and (not logger.is_known or _is_perhaps(whole, rest)):
            words, left, right = self.known.words, whole[-_NAME:], rest[:_NAME]
            is_certain = b'"' in rest and bool(whole.count(b'"') % 2 and rest.count(b'"') % 2)
            if is_certain or _is_bracketed(whole, rest):
                looks_torn = is_sure = True
            elif words.is_in_name(left, right):
                looks_torn, is_sure = True, (left[-1:] + right[:1]).isalnum()
            elif rest[0] in _SMALL and self._is_untagged(view, start, begun, before, rest):
                looks_torn = is_sure = True
            else:
                looks_torn = (
                    words.may_cross(left, right)
                    or (left[-1] == right[0] and _is_row(before[begin_before:], rest))
                    or (b"[" in left and _is_in_bracket(whole, rest))
                )
            if len(rest) < _GRAM and len(whole) - begin_before + len(rest) < _GRAM:
                looks_torn = True  # too short to know it
        first, begin_first = before, begin_before
        if begun and len(begun.before) == 1:  # a third piece
            first, begin_first = begun.before[0], logger.begin_of(begun.before[0])
        if first[begin_first : begin_first + 1] in _STAMPS_BEGIN and _OWN_STAMP.match(
            first, begin_first
        ):
            is_sure = looks_torn or _IN_WORD.match(before[-1:] + rest[:1]) is not None
            looks_torn = True
        if not looks_torn or not (rest := self._rest(before, line)):
            return
        pieces: tuple[bytes, ...] = (before,)
        if begun:
            pieces = (*begun.before, begun.rest)[1 - MOST_PIECES :]
        was_sure = begun is not None and begun.is_sure
        found.append(_Candidate(start, pieces, rest, is_sure, is_certain, was_sure))

    def _is_untagged(
        self, view: bytes, start: int, begun: _Candidate | None, before: bytes, rest: bytes
    ) -> bool:
        """Tell whether each line begins with a tag but the one at `start`, which goes on in a word.

        `before` is the line before, which goes on from those of `begun`; `rest` the line itself.
        """
        if not before[-1:].isalpha():
            return False
        pieces = 1
        if not self._is_tagged(before):
            earlier_pieces = begun.before[::-1] if begun else ()
            tagged = [n for n, each in enumerate(earlier_pieces, 2) if self._is_tagged(each)]
            if not tagged:
                return False
            pieces = tagged[0]
        text = view[max(0, start - _TAIL) : start]
        if len(text) < _TAIL:
            text = (self._tail + text)[-_TAIL:]
        earlier = text.split(b"\n")[: -1 - pieces][-_TAGGED_LINES:]
        return 2 * sum(map(self._is_tagged, earlier)) > len(earlier)

    def _is_tagged(self, line: bytes) -> bool:
        return _TAG.match(line, self._logger.begin_of(line)) is not None

    def _torn_at(self, text: bytes) -> list[int]:
        """Return places in lines that look like second halves."""
        self._database.scan(text, match_event_handler=self._handler, scratch=self._scratch)
        if not self._ends:
            return []
        ends, self._ends = self._ends, []
        return ends

    def _found(self, number: int, _start: int, end: int, _flags: int, _context: object) -> None:
        self._ends.append(1 - end if number == _BARE else end - 1)

    def _with_fewer_pieces(self, candidates: list[_Candidate]) -> Iterator[_Candidate]:
        """Return each candidate also as those that begin with a later one of its pieces."""
        for each in candidates:
            row = (
                each.before[0][self._logger.begin_of(each.before[0]) :]
                if len(each.before) > 1
                else b""
            )
            behind = b"".join((*each.before[1:], each.rest))
            is_row = bool(row) and _is_row(row, each.before[1]) and _is_even(row, behind)
            for pieces in range(1, len(each.before) - is_row):
                yield replace(each, before=each.before[-pieces:])
            yield replace(each, is_row=True) if is_row else each

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
            parts.add(text[:seam])
            if not candidate.is_row:
                parts.add(text[len(candidate.before[0]) :])
        if _NUMBER.search(before) and (digits := _REST_OF_NUMBER.match(rest)):
            parts.add(text[:seam] + digits[0])  # that it has more of them tells nothing
        alone = tuple(map(LineView, parts))
        seams = [seam]
        for piece in reversed(candidate.before[1:]):
            seams.append(seams[-1] - len(piece))
        if candidate.is_row:  # its marks would be as many with something else between
            seams.pop()
        apart = [LineView(text[:at] + _ELSE + text[at:]) for at in seams]
        apart_last = apart[:1] if candidate.was_sure else apart
        near = LineView(text[max(0, seam - _NEAR) : seam + _NEAR])
        for number, end in found.items():
            pattern = self.known.patterns[number]
            if pattern.is_exact and end < seam:
                continue
            if not joined.search(pattern) or any(part.search(pattern) for part in alone):
                continue
            is_sharp = candidate.is_certain or (
                candidate.is_sure
                and (number in self.known.specific or near.search(pattern) is not None)
            )
            told_apart = apart_last if number in self.known.specific else apart
            if is_sharp or not any(view.search(pattern) for view in told_apart):
                yield number


def _is_sure(before: bytes, rest: bytes) -> bool:
    if (before[-1:] + rest[:1]).isalnum():
        return False
    return _SURELY_TORN.match(before[-1:] + b"\n" + rest[:3]) is not None


def _is_perhaps(before: bytes, rest: bytes) -> bool:
    return _PERHAPS_TORN.search(before[-10:] + b"\n" + rest[:1]) is not None


def _is_row(before: bytes, rest: bytes) -> bool:
    """Tell whether a line is nothing but a short row of a mark, with which the next one begins."""
    if not 0 < len(before) <= _MOST_MARKS or not rest.startswith(before[:1]):
        return False
    return _MARKS.fullmatch(before) is not None and _MARKS.fullmatch(rest) is None


def _is_even(row: bytes, text: bytes) -> bool:
    """Tell whether a text ends with as many of a mark as a row of it and its own start have."""
    mark = row[:1]
    end = text.rstrip()
    begins = len(text) - len(text.lstrip(mark))
    return len(row) + begins == len(end) - len(end.rstrip(mark))


def _is_bracketed(before: bytes, rest: bytes) -> bool:
    """Tell whether a line ends inside of brackets that the next one closes."""
    for opening, closing in ((b"(", b")"), (b"[", b"]")):
        if opening in before and closing in rest and before.rfind(opening) > before.rfind(closing):
            return opening not in rest[: rest.find(closing)]
    return False


def _is_in_bracket(before: bytes, rest: bytes) -> bool:
    """Tell whether a line ends in a word in brackets, in which the next one goes on to its end."""
    opened = before.rfind(b"[")
    if opened <= before.rfind(b"]") or len(before) - opened > _NAME or len(rest) > _NAME:
        return False
    return (before[opened + 1 :] + rest).isalnum() and len(before) > opened + 1


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


@lru_cache(maxsize=64)
def _torn_ends(logger: bytes, begins: bytes = b"", *, may_have_cr: bool = True) -> hs.Database:
    """Return what finds where lines may be torn; prefixes of the logger begin as `begins` does."""
    kinds = (_ANY_END_AND_START,) if logger else _ENDS_AND_STARTS
    line_end = rb"\r{0,2}\n" if may_have_cr else rb"\n"
    expressions = [end + line_end + logger + start for end, start in kinds]
    ids = list(range(len(expressions)))
    if logger:
        expressions.append(_ANY_END_AND_START[0] + line_end + _bare_start(begins))
        ids.append(_BARE)
    database = hs.Database(mode=hs.HS_MODE_BLOCK)
    database.compile(
        expressions=expressions,
        ids=ids,
        elements=len(expressions),
        flags=[0] * len(expressions),
    )
    return database


def _bare_start(begins: bytes) -> bytes:
    """Return what half a line starts with that lacks the prefix, and no prefix does."""
    letters = rb"A-Za-z_" if begins.isdigit() else rb"a-z\d_" if begins.isalpha() else rb"\w"
    return b"[" + letters + rb" ./:;,'\"=)\]*+#!@-]"


def _end(hit: tuple[int, int]) -> int:
    return hit[1]
