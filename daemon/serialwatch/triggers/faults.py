"""From lines that matched to hits: vetoes, corroboration, blocks, titles."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Literal

from serialwatch.records import BlockEnd, Finding, Hit, Severity
from serialwatch.titles import readable
from serialwatch.triggers.boots import Boots
from serialwatch.triggers.flood import Flood
from serialwatch.triggers.matcher import Matcher
from serialwatch.triggers.moments import Moment
from serialwatch.triggers.patterns import LineView, Pattern
from serialwatch.triggers.reading import Reading, Told, told
from serialwatch.triggers.ruleset import Rule
from serialwatch.triggers.uses import RulePatterns

MAX_RAW = 4096  # bytes of a line that are judged and kept
MAX_WINDOW = 1024  # bytes of it that fields are taken from
_GATE_LINES = 20  # within so many lines another hit of its ecosystem lets a gated rule pass
_REMEMBERED = 256  # lines a pattern was seen in
_FLOODING_KEPT = 16  # forms of lines
_KEYS_KEPT = 1000  # of rules that count
_NEVER = 1 << 62

EndReason = Literal["end", "boot", "prompt", "length", "quiet"]


@dataclass(frozen=True, slots=True)
class FoundLine:
    """A line in which something matched."""

    at: Moment
    raw: bytes
    reading: Reading
    ends: Mapping[int, int]  # pattern id -> where it first ends in a long line
    more: int = 0  # lines behind it that hold the rest of a torn one


@dataclass(slots=True)
class _Waiting:
    """A hit that other lines must confirm or may veto."""

    hit: Hit
    compiled: RulePatterns
    needs_until: int  # seq; 0: needs nothing (more)
    gate_until: int
    veto_until: int

    def deadline(self) -> int:
        return max(self.needs_until, self.gate_until, self.veto_until)


@dataclass(slots=True)
class _Block:
    trigger: str
    first_seq: int
    opened_seq: int
    ends: frozenset[int]
    last_seq: int  # at most


class Faults:
    """The rules of one port at work; what they find goes to `tell`."""

    def __init__(
        self,
        port: str,
        packs: Iterable[str],
        boots: Boots,
        ecosystems: set[str],
        tell: Callable[[Finding], None],
    ) -> None:
        self._port = port
        self._packs = frozenset(packs)
        self._boots = boots
        self._ecosystems = ecosystems
        self._tell = tell
        self._seen: dict[int, deque[int]] = {}  # pattern id -> seqs
        self._noted: deque[tuple[int, list[int], bytes]] = deque()  # lines still to be read for it
        self._patterns: Sequence[Pattern] = ()
        self._reach = 0  # lines
        self._waiting: list[_Waiting] = []
        self._block: _Block | None = None
        self._floor_seq = 0  # no block reaches behind it: an earlier one, another boot
        self._counts: dict[tuple[str, str], deque[Moment]] = {}
        self._judged_seq = 0  # the line that was judged before it was complete,
        self._judged: set[str] = set()  # and the rules that hit
        self._floods: dict[str, Flood] = {}  # by rule
        self._counting: list[Flood] = []  # those that have counted what was not told
        # Of those: what Hyperscan finds in a line that tells of nothing else.
        self._flooding: dict[frozenset[int], tuple[RulePatterns, Flood]] = {}
        self.deadline = _NEVER  # seq at which `passed` has something to do

    @property
    def is_flooded(self) -> bool:
        """Tell whether there are lines that are only counted."""
        return bool(self._flooding)

    @property
    def is_waiting(self) -> bool:
        """Tell whether silence would decide something."""
        return bool(self._waiting) or self._block is not None

    def is_only_counted(self, found: FoundLine) -> bool:
        """Count a line if it is one more of a flood, at a tenth of what judging it would take."""
        at, reading = found.at, found.reading
        if not self._flooding or (known := self._flooding.get(frozenset(reading.ids))) is None:
            return False
        compiled, flood = known
        if not flood.goes_on(at):
            self._flooding.clear()
            return False
        if len(reading.view.text) > MAX_WINDOW or self._waiting or at.seq == self._judged_seq:
            return False
        if self._block and not self._block.ends.isdisjoint(reading.ids):
            return False
        matches = reading.patterns
        # Lines of a flood are alike: what the first ones were looked at for is not asked again.
        if not matches or not matches <= compiled.matches or reading.has_unless(compiled):
            return False
        if compiled.rule.ecosystem and not self._is_proven(compiled.rule.ecosystem, reading):
            return False
        key, severity = reading.told(compiled).key, compiled.rule.severity
        if not flood.knows(key, severity):
            return False
        flood.count(key, severity, at, found.raw, self._boots.number)
        self._note_untold(flood)
        self._remember(reading.remembered, at.seq)
        return True

    def line(self, found: FoundLine, ignored: frozenset[str] | None) -> None:
        """Judge a complete line but for the `ignored` rules; None: for all."""
        self._remember(found.reading.remembered, found.at.seq)
        if self._waiting:
            self._wake(found)
        if ignored is not None:
            self._judge(found, ignored)
        if self._block:
            self._end_block(found)
        if self._waiting or self._block or self.deadline != _NEVER:
            self._set_deadline()

    def take(self, matcher: Matcher) -> None:
        """Go by these rules from now on."""
        self._patterns = matcher.patterns
        self._reach = matcher.reach

    def note(self, seq: int, ids: list[int], line: bytes) -> None:
        """Note a line in which Hyperscan found patterns that rules ask for.

        In healthy output hardly any rule does: only then it is read, as far back as it matters.
        """
        noted = self._noted
        noted.append((seq, ids, line))
        oldest = seq - self._reach
        while noted[0][0] < oldest:
            noted.popleft()

    def _remember(self, patterns: Collection[int], seq: int) -> None:
        """Note where patterns were seen that rules ask for."""
        if patterns and self._noted:  # these came before
            self._read_noted()
        for number in patterns:
            if number in self._seen:
                self._seen[number].append(seq)
            else:
                self._seen[number] = deque((seq,), maxlen=_REMEMBERED)

    def _read_noted(self) -> None:
        noted, self._noted = self._noted, deque()
        for seq, ids, line in noted:
            view = LineView(line)
            asked = ((number, self._patterns[number]) for number in dict.fromkeys(ids))
            self._remember([n for n, each in asked if each.is_exact or view.search(each)], seq)

    def partial(
        self, found: FoundLine, ignored: frozenset[str], *, is_stale: bool, may_grow: bool
    ) -> None:
        """Judge a line that is not complete; it is judged again when it is.

        Until it is stale only those rules look at it that no later byte could veto. While it
        `may_grow`, those have to wait that read a value where it stops: there may be more of it.
        """
        if found.at.seq != self._judged_seq:
            self._judged_seq = found.at.seq
            self._judged = set()
        hits = self._judge(found, ignored, can_be_vetoed=is_stale, may_grow=may_grow)
        self._judged.update(hits)
        self._set_deadline()

    def passed(self, seq: int, at: Moment) -> None:
        """Note that all lines up to `seq` have been judged."""
        while True:
            waiting = min(self._waiting, key=_Waiting.deadline, default=None)
            due = waiting.deadline() if waiting else _NEVER
            block_due = self._block.last_seq if self._block else _NEVER
            if min(due, block_due) > seq:
                break
            if waiting and due <= block_due:
                self._waiting.remove(waiting)
                self._decide(waiting)
            elif self._block:
                self._close(self._block.last_seq, "length", at)
        self._set_deadline()

    def quiet(self, seq: int, at: Moment) -> None:
        """Note that nothing more comes for now: waits end, and so does the block."""
        self._decide_all()
        self.tell_counted()
        if self._block:
            self._close(max(seq, self._block.opened_seq), "quiet", at)
        self._set_deadline()

    def booted(self, at: Moment) -> None:
        """Note that a new start begins with this line."""
        self._decide_all()
        self.tell_counted()
        if self._block:
            self._close(max(at.seq - 1, self._block.opened_seq), "boot", at)
        self._floor_seq = at.seq
        self._set_deadline()

    def prompted(self, at: Moment) -> None:
        """Note that this line is a prompt."""
        self.tell_counted()
        if self._block and at.seq > self._block.opened_seq:
            self._close(at.seq - 1, "prompt", at)
            self._set_deadline()

    def forget_patterns(self) -> None:
        """Forget the ids of patterns: they mean something else from now on.

        What waits for one is decided by what was seen, as if the board had gone quiet.
        """
        self._decide_all()
        self.tell_counted()
        self._floods.clear()
        self._flooding.clear()
        self._seen.clear()
        self._noted.clear()
        if self._block:
            self._block.ends = frozenset()
        self._set_deadline()

    def _wake(self, found: FoundLine) -> None:
        """Confirm or veto what waits for a line such as this."""
        seq, patterns = found.at.seq, found.reading.patterns
        for waiting in list(self._waiting):
            if waiting.veto_until >= seq and waiting.compiled.near & patterns:
                self._waiting.remove(waiting)
                continue
            if waiting.needs_until >= seq and waiting.compiled.needs & patterns:
                waiting.needs_until = waiting.gate_until = 0
                self._release(waiting)

    def _release(self, waiting: _Waiting) -> None:
        if not waiting.deadline() and waiting in self._waiting:
            self._waiting.remove(waiting)
            self._emit(waiting.hit, waiting.compiled)

    def _decide_all(self) -> None:
        waiting, self._waiting = self._waiting, []
        for each in sorted(waiting, key=lambda w: (w.deadline(), w.hit.seq)):
            self._decide(each)

    def _decide(self, waiting: _Waiting) -> None:
        """Drop what was not confirmed in time, let pass what was not vetoed."""
        if not waiting.needs_until and not waiting.gate_until:
            self._emit(waiting.hit, waiting.compiled)

    def _judge(
        self,
        found: FoundLine,
        ignored: frozenset[str],
        *,
        can_be_vetoed: bool = True,
        may_grow: bool = False,
    ) -> list[str]:
        """Find what hits the line and return the ids; only the sharper of parent and child does."""
        candidates: dict[str, RulePatterns] = {}
        for compiled in found.reading.rules:
            rule = compiled.rule
            if rule.id in ignored or (compiled.unless and not can_be_vetoed):
                continue
            if may_grow and _ends_in_value(found, compiled):
                continue
            if self._is_candidate(found, compiled):
                candidates[rule.id] = compiled
        vaguer = {rule_id for compiled in candidates.values() for rule_id in compiled.ancestors}
        hits = [rule_id for rule_id in candidates if rule_id not in vaguer]
        for rule_id in hits:
            if not self._is_counted(found, candidates[rule_id]):
                self._found(found, candidates[rule_id])
        return hits

    def _is_counted(self, found: FoundLine, compiled: RulePatterns) -> bool:
        """Count a line only if its rule hits too often for each line to be looked at in full."""
        rule = compiled.rule
        flood = self._floods.get(rule.id)
        if flood is None:
            flood = self._floods[rule.id] = Flood()
        if flood.is_calm(found.at) or self._must_wait(found, compiled):
            return False
        key = _told(found, compiled).key
        severity = self._severity(found.reading, compiled)
        if not flood.count(key, severity, found.at, found.raw, self._boots.number):
            return False
        self._note_untold(flood)
        self._corroborate(rule.family, found.at.seq)
        if _tells_nothing_else(found, compiled) and len(self._flooding) < _FLOODING_KEPT:
            self._flooding[frozenset(found.reading.ids)] = compiled, flood
        return True

    def _note_untold(self, flood: Flood) -> None:
        if flood not in self._counting:
            self._counting.append(flood)

    def tell_counted(self) -> None:
        """Tell how many lines were only counted, once for each fault that they tell of."""
        if self._counting:
            counting, self._counting = self._counting, []
            for flood in counting:
                for hit in flood.untold():
                    self._tell(hit)

    def _must_wait(self, found: FoundLine, compiled: RulePatterns) -> bool:
        """Tell whether other lines decide whether a line counts."""
        rule = compiled.rule
        if rule.needs or rule.count or (rule.unless_near and rule.unless_near.after):
            return True
        return bool(rule.ecosystem) and not self._is_proven(rule.ecosystem, found.reading)

    def _is_candidate(self, found: FoundLine, compiled: RulePatterns) -> bool:
        rule, seq = compiled.rule, found.at.seq
        if self._packs and rule.pack not in self._packs:
            return False
        if seq == self._judged_seq and rule.id in self._judged:
            return False
        if found.reading.is_vetoed(compiled):
            return False
        near = rule.unless_near
        if near is None:
            return True
        is_here = bool(compiled.near & found.reading.patterns)
        return not (is_here or self._is_near(compiled.near, seq - near.before, seq))

    def _is_near(self, patterns: Iterable[int], first_seq: int, last_seq: int) -> bool:
        self._read_noted()
        for pattern in patterns:
            for seq in reversed(self._seen.get(pattern, ())):
                if seq < first_seq:
                    break
                if seq <= last_seq:
                    return True
        return False

    def _found(self, found: FoundLine, compiled: RulePatterns) -> None:
        rule, seq = compiled.rule, found.at.seq
        hit = self._hit(found, compiled, opens_block=self._opens_block(rule, seq))
        last = seq + found.more
        needs_until = gate_until = 0
        if rule.needs and compiled.matches & found.reading.patterns <= compiled.needy:
            first = seq - rule.needs.within_lines
            if not self._is_near(compiled.needs, first, seq - 1):
                needs_until = last + rule.needs.within_lines
        if rule.ecosystem and not (rule.needs or self._is_proven(rule.ecosystem, found.reading)):
            gate_until = last + _GATE_LINES
        self._corroborate(rule.family, seq)
        veto_until = last + rule.unless_near.after if rule.unless_near else 0
        if veto_until == last:
            veto_until = 0
        if needs_until or gate_until or veto_until:
            self._waiting.append(_Waiting(hit, compiled, needs_until, gate_until, veto_until))
        else:
            self._emit(hit, compiled)

    def _is_proven(self, ecosystems: tuple[str, ...], reading: Reading) -> bool:
        """Tell whether the port showed one of them, in its banners or in the form of the line."""
        if not self._ecosystems.isdisjoint(ecosystems):
            return True
        return "linux" in ecosystems and reading.stamp_s is not None

    def _corroborate(self, family: str, seq: int) -> None:
        """Let pass what waited for another fault of its ecosystem."""
        for waiting in list(self._waiting):
            if waiting.gate_until >= seq and waiting.compiled.rule.family == family:
                waiting.gate_until = 0
                self._release(waiting)

    def _opens_block(self, rule: Rule, seq: int) -> bool:
        """Tell whether lines belong to a hit that is told now."""
        if rule.block is None:
            return False
        open_block = self._block  # two rules, one line: one block
        return open_block is None or not (rule.continues or open_block.opened_seq == seq)

    def _hit(self, found: FoundLine, compiled: RulePatterns, *, opens_block: bool) -> Hit:
        rule = compiled.rule
        told = _told(found, compiled)
        return Hit(
            port=self._port,
            trigger=rule.id,
            severity=self._severity(found.reading, compiled),
            tier=rule.tier,
            title=told.title,
            key=told.key,
            seq=found.at.seq,
            block_first=self._block_first(compiled, found.at.seq),
            boot=self._boots.number,
            mono_ns=found.at.mono_ns,
            utc_ns=found.at.utc_ns,
            raw=found.raw[:MAX_RAW],
            fields=told.fields,
            ecosystem=rule.family,
            knowledge=rule.knowledge,
            parent=rule.parent,
            holdoff_s=rule.holdoff_s,
            opens_block=opens_block,
            continues=rule.continues,
            led_by=rule.leads_after,
        )

    def _severity(self, reading: Reading, compiled: RulePatterns) -> Severity:
        rule = compiled.rule
        for when, pattern in zip(rule.severity_when, compiled.when, strict=True):
            if when.state not in (None, self._boots.state):
                continue
            if pattern is None or reading.has(pattern):
                return when.severity
        return rule.severity

    def _block_first(self, compiled: RulePatterns, seq: int) -> int:
        block = compiled.rule.block
        if not block:
            return seq
        least = max(seq - block.back_lines, self._floor_seq)
        if self._block:
            least = max(least, self._block.first_seq)
        first = seq
        self._read_noted()
        for pattern in compiled.starts:
            for seen in reversed(self._seen.get(pattern, ())):
                if seen < least:
                    break
                first = min(first, seen)
        return first

    def _emit(self, hit: Hit, compiled: RulePatterns) -> None:
        rule = compiled.rule
        if rule.count and not self._is_enough(hit, rule.count.n, rule.count.in_s):
            return
        opens = self._opens_block(rule, hit.seq)
        if opens and self._block:
            at = Moment(hit.seq, hit.mono_ns, hit.utc_ns)
            self._close(max(hit.block_first - 1, self._block.opened_seq), "end", at)
        if flood := self._floods.get(hit.trigger):
            flood.told(hit)
        self._tell(hit if hit.opens_block == opens else replace(hit, opens_block=opens))
        if opens and rule.block:
            self._block = _Block(
                trigger=hit.trigger,
                first_seq=hit.block_first,
                opened_seq=hit.seq,
                ends=compiled.ends,
                last_seq=max(hit.seq, hit.block_first + rule.block.max_lines - 1),
            )

    def _is_enough(self, hit: Hit, n: int, in_s: float) -> bool:
        at = Moment(hit.seq, hit.mono_ns, hit.utc_ns)
        if len(self._counts) >= _KEYS_KEPT:  # a board may print ever new keys
            self._counts.clear()
        moments = self._counts.setdefault((hit.trigger, hit.key), deque(maxlen=n))
        moments.append(at)
        if len(moments) < n or not at.is_within(in_s, moments[0]):
            return False
        moments.clear()
        return True

    def _end_block(self, found: FoundLine) -> None:
        block = self._block
        if block and found.at.seq > block.opened_seq and block.ends & found.reading.patterns:
            self._close(found.at.seq, "end", found.at)

    def _close(self, last_seq: int, reason: EndReason, at: Moment) -> None:
        block = self._block
        if not block:
            return
        self._block = None
        self._floor_seq = last_seq + 1
        self._tell(
            BlockEnd(
                port=self._port,
                trigger=block.trigger,
                first_seq=block.first_seq,
                last_seq=last_seq,
                mono_ns=at.mono_ns,
                utc_ns=at.utc_ns,
                reason=reason,
            )
        )

    def _set_deadline(self) -> None:
        due = [waiting.deadline() for waiting in self._waiting]
        if self._block:
            due.append(self._block.last_seq)
        self.deadline = min(due, default=_NEVER)


def _ends_in_value(found: FoundLine, compiled: RulePatterns) -> bool:
    """Tell whether a value that the rule reads is the last thing on the line."""
    text = readable(found.reading.view.text).rstrip()
    return any(value and text.endswith(value) for value in _told(found, compiled).fields.values())


def _told(found: FoundLine, compiled: RulePatterns) -> Told:
    if len(found.reading.view.text) <= MAX_WINDOW:
        return found.reading.told(compiled)
    return told(_window(found, compiled), compiled)


def _window(found: FoundLine, compiled: RulePatterns) -> LineView:
    """Return what `fields` may look at in a long line: 1 KiB of it around the match.

    Few write patterns that take no quadratic time, and this runs on the loop.
    """
    text = found.reading.view.text
    matches = [use.pattern.find(text) for n, use in found.reading.uses if n in compiled.matches]
    ends = [match.end() for match in matches if match]
    end = min(ends or [found.ends[n] for n in compiled.matches if n in found.ends])
    first = max(0, end - MAX_WINDOW // 2)
    return LineView(text[first : first + MAX_WINDOW])


def _tells_nothing_else(found: FoundLine, compiled: RulePatterns) -> bool:
    """Tell whether lines in which the same was found need not be looked at by anybody else."""
    rule = compiled.rule
    if rule.severity_when or rule.unless_near or len(found.reading.view.text) > MAX_WINDOW:
        return False
    return all(
        use.rules == [compiled]
        and not (use.boots or use.causes or use.ready or use.ignores)
        and not (use.shutdowns or use.detectors)
        for _, use in found.reading.uses
    )
