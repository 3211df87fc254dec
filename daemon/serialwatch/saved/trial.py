"""A saved log against the rules: each hit with its block, and why a rule does not hit a line."""

from __future__ import annotations

import io
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Literal

from serialwatch.records import BlockEnd, Boot, Finding, Hit
from serialwatch.saved.analysis import CHUNK, Pipeline
from serialwatch.saved.log import SavedLog
from serialwatch.triggers.matcher import Matcher
from serialwatch.triggers.mentions import is_mention
from serialwatch.triggers.pattern_tree import PatternError, parse
from serialwatch.triggers.patterns import LineView, Pattern, compile_pattern
from serialwatch.triggers.ruleset import Rule
from serialwatch.triggers.typed import is_text_command
from serialwatch.triggers.view import strip_escapes

MAX_BYTES = 64_000_000  # of a log that is tried: its lines are kept
MAX_LINE = 4096  # bytes of a line that rules judge
MAX_TOLD = 20  # misses
MAX_NEAR = 3
_ANCHORED = re.compile(r"\^[^|]+\Z")  # as a whole: of `^a|b` it is the first branch alone
NEAR_ENOUGH = 0.5  # part of a pattern that fits

StoppedBy = Literal[
    "ignore", "unless", "unless_near", "needs", "ecosystem", "count", "sharper", "mention",
    "replay",
]  # fmt: skip


@dataclass(frozen=True, slots=True)
class Miss:
    """A line that a pattern of the rule matches and that the rule does not hit."""

    seq: int
    text: bytes
    stopped_by: StoppedBy
    why: str


@dataclass(frozen=True, slots=True)
class Near:
    """A line that the beginning of a pattern matches."""

    seq: int
    text: bytes
    pattern: str
    matches: str  # so much of the pattern
    wants: str  # the rest of it
    has: bytes  # what the line has there
    is_other_case: bool = False  # nothing but that differs
    is_elsewhere: bool = False  # nothing but the `^` is missing


class Trial(Pipeline):
    """Reads one log and remembers what was found, line by line."""

    def __init__(self, matcher: Matcher) -> None:
        super().__init__(matcher)
        self._ruleset = matcher.ruleset
        self.hits: list[Hit] = []
        self.starts: list[Boot] = []
        self._ends: list[BlockEnd] = []
        self._views: list[LineView] = []  # of line 1 and on
        self.is_cut = False
        self._knew: list[tuple[int, frozenset[str]]] = []  # from which line on: ecosystems

    def try_out(self, log: SavedLog) -> None:
        """Read the log, at most `MAX_BYTES` of it."""
        limited = _Limited(log)
        self.read(limited, lambda _: None)
        self.is_cut = limited.is_cut

    def block_of(self, hit: Hit) -> tuple[int, int]:
        """Return the first and the last line of a hit's evidence."""
        last = next(
            (
                end.last_seq
                for end in self._ends
                if end.trigger == hit.trigger and end.first_seq <= hit.seq <= end.last_seq
            ),
            hit.seq,
        )
        return self.line_of(hit.block_first or hit.seq), self.line_of(last)

    def incident_of(self, hit: Hit) -> str:
        """Return the rule that gave the name to the incident that a hit counts in, "" if none."""
        for incident in self.incidents():
            for counted in incident.hits:
                is_inside = counted.first_seq <= hit.seq <= counted.last_seq
                if counted.trigger == hit.trigger and is_inside:
                    return incident.trigger
        return ""

    def misses(self, rule_id: str) -> Sequence[Miss]:
        """Return the lines that a pattern of the rule matches and why they are no hits."""
        rule = self._ruleset.rule(rule_id)
        if rule is None:
            raise KeyError(rule_id)
        hit = {h.seq for h in self.hits if h.trigger == rule_id}
        patterns = [compile_pattern(source) for source in rule.match]
        found: list[Miss] = []
        for seq, view in enumerate(self._views, 1):
            if seq not in hit and view.has(patterns):
                stopped_by, why = self._why(rule, seq, view)
                found.append(Miss(seq, view.text, stopped_by, why))
                if len(found) == MAX_TOLD:
                    break
        return found

    def near(self, rule_id: str) -> Sequence[Near]:
        """Return the lines that come nearest to a pattern of the rule, the nearest first.

        Not those that one of its patterns matches.
        """
        rule = self._ruleset.rule(rule_id)
        if rule is None:
            raise KeyError(rule_id)
        found: list[tuple[float, Near]] = []
        patterns = [compile_pattern(source) for source in rule.match]
        hit = {h.seq for h in self.hits if h.trigger == rule_id}
        others = [
            (seq, view)
            for seq, view in enumerate(self._views, 1)
            if seq not in hit and not view.has(patterns)
        ]
        for source in rule.match:
            beginnings = list(_beginnings(source))
            caseless = None if source.startswith("(?i)") else compile_pattern(f"(?i){source}")
            anywhere = compile_pattern(source[1:]) if _ANCHORED.match(source) else None
            for seq, view in others:
                if anywhere and view.search(anywhere):
                    found.append((1.0, Near(seq, view.text, source, "", "", b"", False, True)))
                elif caseless and view.search(caseless):
                    found.append((1.0, Near(seq, view.text, source, "", "", b"", True)))
                elif near := _nearest(source, beginnings, seq, view):
                    found.append(near)
        found.sort(key=lambda each: (-each[0], each[1].seq))
        return [near for _, near in found[:MAX_NEAR]]

    def _take(self, text: bytes) -> None:
        lines = strip_escapes(text).split(b"\n")[:-1]
        first = len(self._views) + 1
        self._views += (LineView(line[:MAX_LINE].rstrip(b"\r")) for line in lines)
        super()._take(text)
        if not self._knew or self._knew[-1][1] != self._watch.ecosystems:
            self._knew.append((first, self._watch.ecosystems))

    def _tell(self, findings: list[Finding]) -> None:
        for finding in findings:
            if isinstance(finding, Hit):
                self.hits.append(finding)
            elif isinstance(finding, Boot):
                self.starts.append(finding)
            elif isinstance(finding, BlockEnd):
                self._ends.append(finding)
        super()._tell(findings)

    def _why(self, rule: Rule, seq: int, view: LineView) -> tuple[StoppedBy, str]:
        for ignore in self._ruleset.ignores:
            is_meant = not ignore.rules or rule.id in ignore.rules
            if is_meant and (found := _first(ignore.match, view)):
                return "ignore", f"[[ignore]] ({ignore.source}) has `{found}`"
        if found := _first(rule.unless, view):
            return "unless", f"`unless` has `{found}`"
        if rule.unless_near:
            near = rule.unless_near
            if there := self._somewhere(near.match, seq - near.before, seq + near.after):
                return "unless_near", f"`unless_near` has `{there[1]}`, which L{there[0]} matches"
        if rule.needs and not _has_more(rule, view):
            within = rule.needs.within_lines
            if not self._somewhere(rule.needs.match, seq - within, seq + within, but=seq):
                wanted = " or ".join(f"`{p}`" for p in rule.needs.match)
                lines = f"{within} line{'s'[: within != 1]}"
                return "needs", f"`needs` {wanted} within {lines}; no line there matches"
        if sharper := self._sharper(rule, seq):
            return "sharper", f"{sharper}, which is sharper, takes the line"
        if is_mention(view, map(compile_pattern, rule.match)):
            return "mention", "the line only mentions it: a status, a name, source code or prose"
        if is_text_command(view.text):
            return "replay", "the line is a command that only handles text, such as `grep`"
        if rule.ecosystem and self._known_by(seq).isdisjoint(rule.ecosystem):
            wanted = " or ".join(rule.ecosystem)
            return "ecosystem", (
                f"`ecosystem`: only on ports that showed {wanted}; no banner before the line did, "
                "and no other fault of it is near"
            )
        if rule.count:
            return "count", (
                f"`count`: {rule.count.n} hits of one key within {rule.count.in_s:g} s "
                "count as one, fewer as none"
            )
        return "replay", "the line repeats what was printed before (dmesg, an echo)"

    def _somewhere(
        self, sources: Sequence[str], first: int, last: int, but: int = 0
    ) -> tuple[int, str] | None:
        for seq in range(max(1, first), min(last, len(self._views)) + 1):
            if seq != but and (found := _first(sources, self._views[seq - 1])):
                return self.line_of(seq), found
        return None

    def _sharper(self, rule: Rule, seq: int) -> str:
        """Return the rule with this one as its parent, or its parent's, that hits the line."""
        for hit in self.hits:
            if hit.seq != seq:
                continue
            seen = {hit.trigger}
            above = self._ruleset.rule(hit.trigger)
            while above and (above := self._ruleset.rule(above.parent)) and above.id not in seen:
                seen.add(above.id)
                if above.id == rule.id:
                    return hit.trigger
        return ""

    def _known_by(self, seq: int) -> frozenset[str]:
        known: frozenset[str] = frozenset()
        for first, ecosystems in self._knew:
            if first <= seq:
                known = ecosystems
        return known


def _has_more(rule: Rule, view: LineView) -> bool:
    """Tell whether the line has what counts without what the rule `needs`."""
    only = rule.needs.only if rule.needs else ()
    return bool(only) and bool(_first([p for p in rule.match if p not in only], view))


def _first(sources: Sequence[str], view: LineView) -> str:
    """Return the first pattern that matches."""
    return next((source for source in sources if view.search(compile_pattern(source))), "")


def _beginnings(source: str) -> Iterator[tuple[str, Pattern, str]]:
    """Return the beginnings of a pattern that are patterns themselves, with what follows each."""
    parts = parse(source).beginnings
    for number, (text, _) in enumerate(parts[:-1], 1):
        following = "".join(part for _, part in parts[number:])
        try:
            yield text, compile_pattern(_as_written(text)), _as_written(following)
        except PatternError:
            continue  # cut off where it must not be


def _as_written(text: str) -> str:
    """Return a pattern for `re` as people write it."""
    return text.replace(r"(?:\r|\Z)", "$").replace(r"[^\r\n]", ".").replace(r"[ \t\f\x0b]", r"\s")


def _nearest(
    source: str, beginnings: Sequence[tuple[str, Pattern, str]], seq: int, view: LineView
) -> tuple[float, Near] | None:
    """Return how much of the pattern the line matches, if it is enough to tell."""
    total = len(beginnings) + 1
    best: tuple[float, Near] | None = None
    low, high = 0, len(beginnings)
    while low < high:  # a beginning matches wherever a longer one does
        middle = (low + high) // 2
        if view.search(beginnings[middle][1]):
            low = middle + 1
        else:
            high = middle
    if low and low / total >= NEAR_ENOUGH:
        text, pattern, wants = beginnings[low - 1]
        match = view.search(pattern)
        has = match.string[match.end() : match.end() + 24] if match else b""
        best = low / total, Near(seq, view.text, source, _as_written(text), wants, has)
    return best


class _Limited(io.RawIOBase):
    """A log that ends after `MAX_BYTES`."""

    def __init__(self, log: SavedLog) -> None:
        super().__init__()
        self._log = log
        self._left = MAX_BYTES
        self.is_cut = False

    def read(self, size: int = CHUNK) -> bytes:
        """Return the next bytes."""
        data = self._log.read(min(size, self._left))
        self._left -= len(data)
        if not self._left and not self.is_cut:
            self.is_cut = bool(self._log.read(1))
        return data
