"""Find every pattern of every rule in a chunk of lines, in one pass."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from functools import cached_property
from operator import itemgetter

import hyperscan as hs

from serialwatch.triggers.patience import is_any_over
from serialwatch.triggers.patterns import (
    Pattern,
    compile_database,
    compile_pattern,
    scanned_patterns,
)
from serialwatch.triggers.reading import Readings
from serialwatch.triggers.ruleset import LineDetector, Rule, RuleSet
from serialwatch.triggers.seams import MOST_PIECES, torn_of
from serialwatch.triggers.uses import RulePatterns, Uses
from serialwatch.triggers.view import Stripper

pattern_of, end_of = itemgetter(0), itemgetter(1)  # of a match, as `scan` returns it


class Matcher:
    """All patterns of a rule set in one Hyperscan database, for one thread.

    `ready` are patterns that single ports wait for instead of the usual ready markers.
    """

    def __init__(
        self,
        ruleset: RuleSet,
        ready: Iterable[str] = (),
        compiled: Callable[[tuple[Pattern, ...]], hs.Database] = compile_database,
    ) -> None:
        self.ruleset = ruleset
        own_ready = tuple(dict.fromkeys(ready))
        self.patterns = scanned_patterns((*ruleset.scanned(), *own_ready))
        ids = {pattern.source: number for number, pattern in enumerate(self.patterns)}
        self.ready = {source: ids[source] for source in own_ready}
        # Prompts are short and hold no word that Hyperscan could look for, so a third of its time
        # would go to them; they are looked for in unfinished lines alone.
        self.prompts = tuple(
            (prompt, tuple(map(compile_pattern, prompt.match))) for prompt in ruleset.prompts
        )
        self.uses = _uses(ruleset, self.patterns, ids)
        self.torn = torn_of(self.uses, ruleset.ignores)
        self.detectors = frozenset(detector.id for detector in ruleset.detectors)
        self.only_remembered = self.idle & {
            number for number, use in enumerate(self.uses) if use.is_remembered
        }
        self.strip = Stripper()
        self.readings = Readings()
        self._read = _read_in_lines(ruleset, self.patterns)
        for pattern, _ in self._read:
            pattern.patience.renew()
        self._hits: list[tuple[int, int]] = []
        # The binding keeps no reference to the handler: a temporary bound method would be freed
        # while Hyperscan still calls it.
        self._handler = self._found
        self._database: hs.Database | None = None
        if self.patterns:
            self._database = compiled(self.patterns)
            self._scratch = hs.Scratch(self._database)

    @cached_property
    def idle(self) -> frozenset[int]:
        """Return the patterns that mean nothing where nothing else was found."""
        idle = frozenset(number for number, use in enumerate(self.uses) if not use.acts)
        return idle - frozenset(self.ready.values())

    @cached_property
    def reach(self) -> int:
        """Return how many lines back a rule may ask what was seen there."""
        return self.asked_back + MOST_PIECES

    @cached_property
    def of_starts(self) -> frozenset[int]:
        """Return the patterns that tell of a start of the board."""
        return frozenset(n for n, use in enumerate(self.uses) if use.boots or use.causes)

    @cached_property
    def asked_back(self) -> int:
        """Return how many lines rules look back from one that they hit."""
        return max(map(_back, self.ruleset.rules), default=0)

    @cached_property
    def asked_on(self) -> int:
        """Return how many lines they look on."""
        return max(map(_on, self.ruleset.rules), default=0)

    def is_idle(self, hits: Iterable[tuple[int, int]]) -> bool:
        """Tell whether these matches mean nothing unless something else is found."""
        return self.idle.issuperset(map(pattern_of, hits))

    def latest(self, view: bytes, hits: Iterable[tuple[int, int]]) -> list[tuple[int, int]]:
        """Return the matches in the last lines of a view, which rules may look back to."""
        lines = self.reach + 1
        parts = view.rsplit(b"\n", lines)
        if len(parts) <= lines:
            return list(hits)
        return [hit for hit in hits if hit[1] > len(parts[0])]

    def given_up(self) -> Iterator[str]:
        """Return which patterns took `re` so long that they are left out now, and whose."""
        if not is_any_over():
            return
        for pattern, owner in self._read:
            if pattern.patience.is_over:
                yield f"{owner}: `{pattern.source}` takes too long and is left out for 10 minutes"

    def scan(self, text: bytes) -> list[tuple[int, int]]:
        """Return (pattern id, offset behind its end) of all matches, in no order, with repeats.

        `text` is complete lines of the match view, or one unfinished line.
        """
        if self._database is None:
            return []
        self._database.scan(text, match_event_handler=self._handler, scratch=self._scratch)
        if not self._hits:
            return []  # a new one: the next scan fills ours
        hits = self._hits
        self._hits = []
        return hits

    def _found(self, pattern: int, _start: int, end: int, _flags: int, _context: object) -> None:
        # Called from C: one append, no more. It may not raise, return true or scan.
        self._hits.append((pattern, end))


def _back(rule: Rule) -> int:
    return max(
        rule.needs.within_lines if rule.needs else 0,
        rule.unless_near.before if rule.unless_near else 0,
        rule.block.back_lines if rule.block else 0,
    )


def _on(rule: Rule) -> int:
    return max(
        rule.needs.within_lines if rule.needs else 0,
        rule.unless_near.after if rule.unless_near else 0,
        rule.block.max_lines if rule.block else 0,
    )


def _read_in_lines(ruleset: RuleSet, scanned: Iterable[Pattern]) -> tuple[tuple[Pattern, str], ...]:
    """Return the patterns that `re` looks for, each with what it belongs to."""
    owners: dict[str, str] = {}
    for rule in ruleset.rules:
        when = (w.match for w in rule.severity_when if w.match)
        for source in (*rule.fields, *rule.unless, *when, *rule.match):
            owners.setdefault(source, f"rule {rule.id} ({rule.source})")
    for boot in ruleset.boots:
        causes = (pattern for pattern, _ in boot.causes)
        for source in (*boot.fields, *causes, *boot.unless_after):
            owners.setdefault(source, boot.source)
    for cause in ruleset.causes:
        for source in (*cause.fields, *(pattern for pattern, _ in cause.causes)):
            owners.setdefault(source, cause.source)
    for shutdown in ruleset.shutdowns:
        owners |= dict.fromkeys(shutdown.after, shutdown.source)
    for prompt in ruleset.prompts:
        owners |= dict.fromkeys(prompt.match, prompt.source)
    for pattern in scanned:
        owners.setdefault(pattern.source, "a pattern of a pack")
    return tuple((compile_pattern(source), owner) for source, owner in owners.items())


def _uses(
    ruleset: RuleSet, patterns: tuple[Pattern, ...], ids: Mapping[str, int]
) -> tuple[Uses, ...]:
    uses = tuple(Uses(pattern) for pattern in patterns)
    parents = {rule.id: rule.parent for rule in ruleset.rules}
    for rule in ruleset.rules:
        compiled = _rule_patterns(rule, ids, parents)
        for source in rule.match:
            uses[ids[source]].rules.append(compiled)
        for number in compiled.starts | compiled.needs | compiled.near:
            uses[number].is_remembered = True
    for boot in ruleset.boots:
        for source in boot.match:
            uses[ids[source]].boots.append(boot)
    for cause in ruleset.causes:
        for source in cause.match:
            uses[ids[source]].causes.append(cause)
    for ready in ruleset.ready:
        for source in ready.match:
            uses[ids[source]].ready.append(ready)
    for ignore in ruleset.ignores:
        for source in ignore.match:
            uses[ids[source]].ignores.append(ignore)
    for shutdown in ruleset.shutdowns:
        for source in shutdown.match:
            uses[ids[source]].shutdowns.append(shutdown)
    for detector in ruleset.detectors:
        if isinstance(detector, LineDetector):
            for source in dict.fromkeys(detector.scanned()):
                uses[ids[source]].detectors.append(detector)
    return uses


def _rule_patterns(rule: Rule, ids: Mapping[str, int], parents: Mapping[str, str]) -> RulePatterns:
    block, needs, near = rule.block, rule.needs, rule.unless_near
    return RulePatterns(
        rule=rule,
        matches=frozenset(ids[source] for source in rule.match),
        fields=tuple(map(compile_pattern, rule.fields)),
        unless=tuple(map(compile_pattern, rule.unless)),
        when=tuple(compile_pattern(w.match) if w.match else None for w in rule.severity_when),
        starts=frozenset(ids[source] for source in block.start) if block else frozenset(),
        ends=frozenset(ids[source] for source in block.end) if block else frozenset(),
        needs=frozenset(ids[source] for source in needs.match) if needs else frozenset(),
        needy=frozenset(ids[source] for source in needs.only or rule.match)
        if needs
        else frozenset(),
        near=frozenset(ids[source] for source in near.match) if near else frozenset(),
        ancestors=_ancestors(rule.id, parents),
    )


def _ancestors(rule_id: str, parents: Mapping[str, str]) -> frozenset[str]:
    found: set[str] = set()
    while (rule_id := parents.get(rule_id, "")) and rule_id not in found:
        found.add(rule_id)
    return frozenset(found)
