"""One port's lines in, its hits, boots and detector faults out."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from itertools import groupby, pairwise

from serialwatch.lines import count_lines
from serialwatch.records import Boot, Finding, Hit, Lines, PortState, Ready
from serialwatch.titles import normalise, readable
from serialwatch.triggers.boots import Banner, Boots, Start
from serialwatch.triggers.detectors.counter import Counters
from serialwatch.triggers.detectors.fault import Fault
from serialwatch.triggers.detectors.port import PortDetectors
from serialwatch.triggers.detectors.storm import LineRates
from serialwatch.triggers.faults import MAX_RAW, Faults, FoundLine
from serialwatch.triggers.lost_letters import Announced
from serialwatch.triggers.matcher import Matcher, end_of
from serialwatch.triggers.matches import lines_with, parts_with
from serialwatch.triggers.moments import Moment, S
from serialwatch.triggers.patience import unanswered
from serialwatch.triggers.patterns import LineView
from serialwatch.triggers.reading import MAX_KNOWN, MAX_TITLE, Reading, says_something
from serialwatch.triggers.recent import Recent
from serialwatch.triggers.replays import Copied, Replays, copied, is_of_listing, prints_twice
from serialwatch.triggers.ruleset import Shutdown
from serialwatch.triggers.seams import Joint, Piece, Seams
from serialwatch.triggers.typed import Typed
from serialwatch.triggers.unjudged import Scanned, Unjudged
from serialwatch.triggers.uses import Uses
from serialwatch.triggers.view import strip_escapes

QUIET_NS = 2 * S  # a wait for later lines ends, and a block
_SLOW_QUIET_NS = 5 * S  # below 57,600 bit/s
_SLOW_BIT_RATE = 57_600
_CAUSE_LINES = 16  # after a banner the device may still say why it started,
_CAUSE_NS, _CAUSE_MOST_NS = 3 * S // 10, 2 * S  # but not behind such a pause, nor later than that
_COPY_NS = S // 2  # after a line a console prints the same one for the second time
_CONTEXT_LINES = 3  # before a banner: did somebody type something?
_DOWN_LINES = 20  # what a board still prints after it said that it stops
_STILL_NS = S // 2  # an unfinished line has all of the value that it stops in
_BUSY_NS = S // 50  # the longest pause between the lines of a busy port
# A board that is silent after an error has its incident already, unless it went on for long.
_FAULT_LINES, _WENT_ON_NS = 200, 60 * S
_ERRORS = ("error", "critical")
_LIKE_A_PROMPT = re.compile(rb"[$#>%:?] ?$")


@dataclass(frozen=True, slots=True)
class WatchOptions:
    """What a port's configuration says about its faults."""

    expect_faults: bool = False  # the firmware crashes on purpose: hits are notes
    ready: str = ""  # pattern of the line that ends a boot; the matcher must know it
    packs: tuple[str, ...] = ()  # rules to apply; empty: all
    bit_rate: int | None = None  # bit/s; None: no such thing on this port
    can_vanish: bool = False  # a device or a connection; a program may end, and a file
    is_saved: bool = False  # a saved log, in which stamps tell the time


class PortWatch:
    """Watches one port: fed with its lines and the time, it answers with what it found.

    Times are CLOCK_MONOTONIC and never go back. All of it is a function of the bytes and the times,
    not of how they are cut into chunks.
    """

    def __init__(
        self,
        port: str,
        matcher: Matcher,
        options: WatchOptions | None = None,
        boot: int = 0,
        ecosystems: Iterable[str] = (),
        boots_took_s: Iterable[float] = (),
    ) -> None:
        """Go on after boot `boot`; `boots_took_s`: how long earlier ones took, oldest first."""
        self.port = port
        self._options = options or WatchOptions()
        self._ecosystems = set(ecosystems)  # known to run there
        self._boots = Boots(boot)
        self._faults = Faults(port, self._options.packs, self._boots, self._ecosystems, self._tell)
        self._recent = Recent()
        self._replays = Replays(self._recent)
        self._seams = Seams(matcher.torn, is_saved=self._options.is_saved)
        self._unjudged = Unjudged()
        self._fed_ns = -_BUSY_NS  # when the newest lines came
        self._typed = Typed()
        self._rates = LineRates()
        self._out: list[Finding] = []
        slow = (self._options.bit_rate or _SLOW_BIT_RATE) < _SLOW_BIT_RATE
        self._quiet_ns = _SLOW_QUIET_NS if slow else QUIET_NS
        self._newest = Lines(1, 0, b"", 0, 0)
        self._view = b""  # of the lines that are being judged
        self._behind = b""  # the line after them
        self._heard_ns = self._begun_ns = 0
        # A start that is not told yet, its banner, the last line before it.
        self._held: tuple[Start, str, bytes] | None = None
        # The line in which a device said that it resets itself, and the one before it.
        self._announced = ("", b"")
        self._partial: tuple[Moment, bytes] | None = None
        self._is_still = False  # the partial line was judged as one that has all its values,
        self._is_stale = False  # and for good
        self._is_at_prompt = False
        self._down_seq: int | None = None  # line that announced an end or a sleep
        self._error_at: Moment | None = None  # the newest
        self._take(matcher)
        self._detectors.learn_boots(boots_took_s)

    @property
    def boot(self) -> int:
        """Return the number of the boot that lines belong to now."""
        return self._boots.number

    @property
    def judged_seq(self) -> int:
        """Return the last line that does not wait to be judged."""
        return self._last.seq

    @property
    def ecosystems(self) -> frozenset[str]:
        """Return what the port's banners have shown it to run."""
        return frozenset(self._ecosystems)

    @property
    def gauges(self) -> Mapping[str, float]:
        """Return the newest reading of each gauge that the rules define, by its name."""
        return self._detectors.gauges

    def fed(
        self, lines: Lines, begun_ns: int | None = None, *, may_wait: bool = False
    ) -> list[Finding]:
        """Take complete lines; `begun_ns`: when the first of them came, if that is earlier.

        If they `may_wait`, those of a busy port in which no rule hits are judged with what comes
        next, or at the next tick: most of the work is the same for a few lines and for many.
        """
        view = self._matcher.strip(lines.text)
        hits = self._matcher.scan(view)
        unjudged = self._unjudged
        if not unjudged.is_joined_by(lines.mono_ns):
            self._catch_up()
        begun_ns = lines.mono_ns if begun_ns is None else begun_ns
        unjudged.add(Scanned(lines, begun_ns, view, hits))
        is_busy, self._fed_ns = lines.mono_ns - self._fed_ns < _BUSY_NS, lines.mono_ns
        if may_wait and is_busy and not unjudged.is_full and self._may_wait(lines, hits):
            return []
        self._catch_up()
        return self._told()

    def _may_wait(self, lines: Lines, hits: list[tuple[int, int]]) -> bool:
        """Tell whether new lines say nothing, and nothing waits for them."""
        if self._held or self._partial or self._seams.has_kept or self._faults.is_waiting:
            return False
        if hits and not self._matcher.is_idle(hits):
            return False
        return self._faults.deadline >= lines.first_seq + lines.count

    def _catch_up(self) -> None:
        """Judge the lines that wait."""
        if not self._unjudged:
            return
        part = self._unjudged.take()
        self._begun_ns = part.begun_ns
        for piece in self._seams.pieces(part.lines, part.view, part.hits):
            self._feed(piece)

    def _feed(self, piece: Piece) -> None:
        """Judge lines; `piece.behind` is the line after them, as far as it matters."""
        lines, view, hits = piece.lines, piece.view, piece.hits
        mono_ns = lines.mono_ns
        begun_ns = min(self._begun_ns, mono_ns)
        if begun_ns - self._heard_ns >= _CAUSE_NS:
            self._settle(begun_ns)
        self._view = view
        self._behind = piece.behind
        self._recent.fed(lines, view)
        second = self._rates.fed(lines.first_seq, lines.count, view, mono_ns)
        if second:
            self._detected(self._detectors.second(second), self._last)
        self._detectors.heard(mono_ns)
        self._heard_ns = mono_ns
        self._partial = None
        self._is_at_prompt = False
        joints = self._seams.fed(view, self._matcher.scan, lines.text)
        if hits and not joints and self._nobody_asks(hits):
            hits = self._matcher.latest(view, hits)
        if hits or joints:
            self._judge(lines, view, hits, joints)
        if not self._detectors.is_plain(lines.text, view):
            before = partial(self._recent.said_before, lines.first_seq, view)
            self._detectors.not_plain(lines, before)
        self._newest = lines
        if self._faults.deadline < lines.first_seq + lines.count:
            self._faults.passed(self._last.seq, self._last)
        self._faults.tell_counted()
        if self._held:
            self._tell_start_if_due(self._last.seq)

    def _nobody_asks(self, hits: list[tuple[int, int]]) -> bool:
        """Tell whether no rule asks for what was found, and only one that hits later may."""
        return not self._faults.is_waiting and self._matcher.is_idle(hits)

    def _let_go(self) -> None:
        """Judge what waits, and a line that was kept back: what follows now is not its rest."""
        self._catch_up()
        if piece := self._seams.let_go():
            self._feed(piece)

    def partial(self, seq: int, text: bytes, mono_ns: int, utc_ns: int) -> list[Finding]:
        """Take a line that was not finished within 100 ms; it comes again when it grows or ends."""
        self._let_go()
        at = Moment(seq, mono_ns, utc_ns)
        self._detectors.heard(mono_ns)
        self._heard_ns = mono_ns
        self._partial = (at, text)
        self._is_stale = self._is_still = False
        self._detectors.partial(seq, text, mono_ns, partial(self._recent.said_before, seq, b""))
        self._judge_partial(at, text, is_stale=False, may_grow=True)
        return self._told()

    def tick(self, mono_ns: int, utc_ns: int) -> list[Finding]:
        """Let time pass; call it some 20 times a second."""
        self._catch_up()
        if self._seams.keeps(mono_ns):
            return self._told()
        self._let_go()
        self._settle(mono_ns)
        if second := self._rates.tick(mono_ns):
            self._detected(self._detectors.second(second), Moment(0, mono_ns, utc_ns))
        if not self._detectors.may_tell(mono_ns):
            return self._told()
        if self._detectors.is_silence_due(mono_ns) and not self._is_silence_explained():
            line, seq = self._last_said()
            faults = self._detectors.silence(line, seq, mono_ns)
            self._detected(faults, Moment(seq, mono_ns, utc_ns))
        at = Moment(self._last.seq, mono_ns, utc_ns)
        self._detected(self._detectors.tick(mono_ns), at)
        if self._detectors.is_boot_late(mono_ns, self._boots.passed) and not self._is_at_prompt:
            line, seq = self._last_said()
            is_in_kernel = self._boots.state == "kernel"
            late = list(self._detectors.boot_late(seq, line, mono_ns, is_in_kernel=is_in_kernel))
            if late and self._announcements.was_ready(self._boots.start, seq):
                self._ready(at)
            else:
                self._detected(late, at)
        return self._told()

    def marked(self, kind: str, mono_ns: int) -> None:
        """Note a marker: after a flash, a reset or a note restarts and noise are wanted."""
        self._catch_up()
        if kind == "open":
            self.opened(mono_ns)
        elif until_ns := self._detectors.marked(kind, mono_ns):
            self._boots.expect(until_ns)

    def opened(self, mono_ns: int) -> None:
        """Note that the port was opened; that alone resets many boards."""
        self._catch_up()
        self._boots.opened(mono_ns)
        self._detectors.opened(mono_ns)

    def lost(self, mono_ns: int) -> list[Finding]:
        """Note that the port is gone, or the log ends: nothing more comes for now."""
        self._lost(mono_ns)
        return self._told()

    def _lost(self, mono_ns: int) -> None:
        self._let_go()
        self._tell_start()
        self._faults.quiet(self._last.seq, replace(self._last, mono_ns=mono_ns))
        self._detected(self._detectors.tick(mono_ns), replace(self._last, mono_ns=mono_ns))
        self._detectors.lost()
        self._boots.lost()
        self._partial = None

    def port_state(
        self, state: PortState, problem: str, device: str, mono_ns: int, utc_ns: int
    ) -> list[Finding]:
        """Take a state of the port and its problem; `device` is its real path while it is open."""
        self._let_go()
        faults = self._detectors.port_state(
            state,
            problem,
            device,
            mono_ns,
            replace(self._last, mono_ns=self._heard_ns),
            is_going_down=self._boots.state == "shutdown",
        )
        if state != "up":
            self._lost(mono_ns)
        elif self._detectors.has_reset_itself(mono_ns):
            self._detectors.opened(mono_ns)  # its start is its own: it was gone before we opened it
        else:
            self.opened(mono_ns)
        self._detected(faults, Moment(self._last.seq, mono_ns, utc_ns))
        return self._told()

    def read_by(self, others: str, mono_ns: int, utc_ns: int) -> list[Finding]:
        """Take that other programs, by name, have the open port open too."""
        self._catch_up()
        seq = self._last.seq
        self._detected(self._detectors.read_by(others, seq), Moment(seq, mono_ns, utc_ns))
        return self._told()

    def wrote(self, data: bytes, mono_ns: int) -> None:
        """Note what was written to the board."""
        self._let_go()
        self._detectors.wrote()
        if self._typed.wrote(data, mono_ns):
            self._boots.going_down("restart", Moment(self._last.seq, mono_ns, 0))

    def counters(self, counters: Counters, mono_ns: int, utc_ns: int) -> list[Finding]:
        """Take the UART's error counters, about once a second."""
        self._catch_up()
        self._detected(self._detectors.counters(counters, mono_ns), Moment(0, mono_ns, utc_ns))
        return self._told()

    def swap(self, matcher: Matcher) -> None:
        """Go on with other rules; detectors learn anew."""
        self._let_go()
        self._faults.forget_patterns()
        ids = {use.pattern.source: number for number, use in enumerate(matcher.uses)}
        self._boots.renumber(
            {
                number: ids[use.pattern.source]
                for number, use in enumerate(self._matcher.uses)
                if use.boots and use.pattern.source in ids
            }
        )
        earlier = self._detectors
        self._take(matcher)
        self._detectors.go_on_from(earlier)

    def _take(self, matcher: Matcher) -> None:
        self._matcher = matcher
        self._faults.take(matcher)
        self._seams.known = matcher.torn
        self._announcements = Announced(matcher.uses, self._recent)
        self._own_ready = matcher.ready[self._options.ready] if self._options.ready else None
        self._detectors = PortDetectors(
            matcher.ruleset, self._options.bit_rate, can_vanish=self._options.can_vanish
        )
        self._rates.least_per_s = self._detectors.least_per_s

    @property
    def _last(self) -> Moment:
        """Return where the newest complete line stands."""
        newest = self._newest
        return Moment(newest.first_seq + newest.count - 1, newest.mono_ns, newest.utc_ns)

    def _told(self) -> list[Finding]:
        out, self._out = self._out, []
        return out

    # Lines in which something matched

    def _judge(
        self, lines: Lines, view: bytes, hits: list[tuple[int, int]], joints: list[Joint]
    ) -> None:
        """Go through the lines in which something matched, in their order."""
        hits.sort(key=end_of)
        readings, only_remembered = self._matcher.readings, self._matcher.only_remembered
        raw_lines = None if view is lines.text else lines.text.split(b"\n")
        torn = iter(joints)
        joint = next(torn, None)
        index = counted = 0  # the line's number in the chunk, and up to where LFs were counted
        for start, line_end, first_hit, ids in lines_with(view, hits):
            shown = view[start:line_end]
            while joint and joint.offset <= start:
                self._joint(lines, view, joint)
                joint = next(torn, None)
            index += count_lines(view[counted:start])
            counted = start
            seq = lines.first_seq + index
            if only_remembered.issuperset(ids) and self._is_noted(shown, start, ids, seq):
                continue
            reading = readings.get(shown, tuple(ids))
            if reading and not reading.uses:
                continue
            raw = shown if raw_lines is None else raw_lines[index]
            at = Moment(seq, lines.mono_ns, lines.utc_ns)
            there = hits[first_hit : first_hit + len(ids)]
            if reading or b"\r" not in shown or b"\r" not in shown.strip(b"\r"):
                found = self._found(at, shown, raw.rstrip(b"\r"), start, there, reading)
                self._line(found, shown, start)
                continue
            raws = raw.split(b"\r")
            for part, place, in_part in parts_with(view, start, line_end, there):
                found = self._found(at, view[part], raws[place], part.start, in_part)
                self._line(found, view[part], part.start)
        while joint:
            self._joint(lines, view, joint)
            joint = next(torn, None)

    def _is_noted(self, shown: bytes, offset: int, ids: list[int], seq: int) -> bool:
        """Note a line that rules ask for but that says nothing itself; False: judge it.

        In healthy output hardly anything else matches, and judging takes ten times as long.
        """
        before = offset - len(shown) - 1
        if before < 0 or self._view.startswith(shown, before):
            return False  # perhaps a copy
        if self._faults.is_waiting or self._held or len(shown) > MAX_KNOWN:
            return False
        text = shown.rstrip(b"\r")
        if b"\r" in text or is_of_listing(shown):
            return False
        self._faults.note(seq, ids, text)
        return True

    def _joint(self, lines: Lines, view: bytes, joint: Joint) -> None:
        """Judge a line that was torn, as the first of its pieces, once the last is there."""
        last = lines.first_seq + view.count(b"\n", 0, joint.offset)
        at = self._recent.begun_at(last - joint.pieces + 1, lines)
        if self._faults.deadline < last:
            self._faults.passed(last - 1, at)
        if self._held:
            self._tell_start_if_due(last - 1)
        # Of the others some may say that all of it is to be ignored.
        others = (each for each in joint.others.items() if self._matcher.uses[each[0]].ignores)
        there = [*joint.ends.items(), *others]
        found = self._found(at, joint.text, joint.text, 0, there)
        self._recent.torn = joint.pieces - 1
        self._line(replace(found, more=joint.pieces - 1), joint.text, joint.offset)
        self._recent.torn = 0

    def _line(self, found: FoundLine, shown: bytes, offset: int) -> None:
        """Judge one line; `offset` is where it starts in the newest chunk of the view."""
        at, reading = found.at, found.reading
        if self._faults.deadline < at.seq:
            self._faults.passed(at.seq - 1, at)
        if self._held:
            self._tell_start_if_due(at.seq - 1)
        if not reading.uses or (self._faults.is_flooded and self._faults.is_only_counted(found)):
            return
        is_copy = self._copied(at, shown, offset)
        if is_copy == "yes":
            return
        if reading.is_of_listing and self._replays.is_listed(shown, at.seq, offset):
            return
        if reading.shutdowns:
            self._going_down(reading.shutdowns, at, offset)
        banners: list[Banner] = []
        if reading.boots and is_copy == "no":
            banners = self._banners(reading, offset)
        if banners:
            self._banner(banners, at, offset, readable(reading.view.text)[:MAX_TITLE])
        # A cause proves no ecosystem: all kinds of firmware print `Reset cause:`.
        causes = [cause for each in reading.causes if (cause := reading.printed_cause(each))]
        if causes:
            self._boots.printed(next((c for c in causes if c != "unknown"), "unknown"), at)
        for told, source in reading.detectors:
            whole = self._seams.with_stamp(reading, self._line_before(offset))
            faults = self._detectors.line(told, source, whole, at, found.raw)
            self._detected(faults, at, found.raw)
        self._markers_of_ready(found)
        ignored = self._ignored(found, offset) if reading.rules else None
        is_unexplained = self._boots.is_announced and ignored is not None and not banners
        if is_unexplained and any(each.rule.severity in _ERRORS for each in reading.rules):
            self._unseen_start()
        self._faults.line(found, ignored)
        if self._held:
            self._tell_start_if_due(at.seq)

    def _copied(self, at: Moment, shown: bytes, offset: int) -> Copied:
        """Tell whether a line is a copy of the one before."""
        start = offset - len(shown) - 1
        if start >= 0 and not self._view.startswith(shown, start):
            return "no"
        is_late = at.seq - 1 <= self._last.seq and at.mono_ns - self._newest.mono_ns > _COPY_NS
        return "no" if is_late else copied(self._recent, shown, offset)

    def _judge_partial(
        self, at: Moment, text: bytes, *, is_stale: bool, may_grow: bool = False
    ) -> None:
        shown = strip_escapes(text)
        self._prompt(at, LineView(shown.rstrip(b"\r").rpartition(b"\r")[2][-MAX_RAW:]))
        hits = sorted(self._matcher.scan(shown), key=end_of)
        raws = text.split(b"\r") if hits else []
        for part, place, there in parts_with(shown, 0, len(shown), hits):
            found = self._found(at, shown[part], raws[place], part.start, there)
            self._markers_of_ready(found)
            ignored = self._ignored(found, self._recent.end) if found.reading.rules else None
            if ignored is not None:
                self._faults.partial(found, ignored, is_stale=is_stale, may_grow=may_grow)

    def _found(
        self,
        at: Moment,
        shown: bytes,
        raw: bytes,
        offset: int,
        hits: Sequence[tuple[int, int]],
        known: Reading | None = None,
    ) -> FoundLine:
        """Check what Hyperscan found but could not be sure of, unless the line is known."""
        if known:
            return FoundLine(at, raw, known, {})
        first = 0
        ends: dict[int, int] = {}
        for number, end in hits:
            ends.setdefault(number, end - offset)
        if len(shown) > MAX_RAW:  # a line without end: look around what was found first
            ends = self._sure_ends(shown, ends)
            first = max(0, next(iter(ends.values())) - MAX_RAW // 2)
        view = LineView(shown[first : first + MAX_RAW].rstrip(b"\r"))
        before = unanswered()
        uses: list[tuple[int, Uses]] = []
        for number in sorted(ends):
            use = self._matcher.uses[number]
            if use.pattern.is_exact or view.search(use.pattern):
                uses.append((number, use))
        reading = Reading(view, uses, tuple([number for number, _ in hits]))
        is_whole = len(shown) <= MAX_KNOWN and b"\r" not in shown.strip(b"\r")
        if is_whole and unanswered() == before:
            self._matcher.readings.keep(shown, reading)
        places = {number: end - first for number, end in ends.items()}
        return FoundLine(at, raw[first : first + MAX_RAW], reading, places)

    def _sure_ends(self, shown: bytes, ends: dict[int, int]) -> dict[int, int]:
        """Return where patterns end in a long line, what Hyperscan was not sure of last."""
        sure, unsure = {}, {}
        for number, end in ends.items():
            pattern = self._matcher.uses[number].pattern
            if pattern.is_exact:
                sure[number] = end
            elif match := pattern.find(shown):
                sure[number] = match.end()
            else:
                unsure[number] = end
        return dict(sorted(sure.items(), key=end_of)) | unsure

    def _ignored(self, found: FoundLine, offset: int) -> frozenset[str] | None:
        """Return the rules that are not to look at the line; None: none may."""
        reading = found.reading
        ignored: set[str] = set()
        for ignore in reading.ignores:
            if not ignore.rules:
                return None
            ignored.update(ignore.rules)
        text = reading.view.text
        if self._typed.is_echo(text, found.at.mono_ns) or self._recent.is_replay(text, offset):
            return None
        if reading.is_text_command:
            return None
        if not self._matcher.torn.unsure.isdisjoint(reading.patterns):
            behind = self._recent.line_behind(offset, self._behind)
            ignored |= self._seams.denied(reading, self._line_before(offset), text, behind)
        return frozenset(ignored)

    # Boots

    def _banners(self, reading: Reading, offset: int) -> list[Banner]:
        return [
            Banner(number, marker, marker.cause or reading.printed_cause(marker))
            for number, use in reading.boots
            for marker in use.boots
            if not (marker.is_makeshift and self._ecosystems - {marker.ecosystem})
            and not self._comes_after(marker.unless_after, offset)
        ]

    def _comes_after(self, sources: tuple[str, ...], offset: int) -> bool:
        if not sources:
            return False
        lines = self._recent.lines_before(offset, 2 * _CONTEXT_LINES)
        # A console may double all, and a tear may leave the space at the end of a line alone.
        lines = [line for line, _ in groupby(lines) if says_something(line[:MAX_RAW])]
        if any(self._has(line, sources) for line in lines[-_CONTEXT_LINES:]):
            return True
        pairs = pairwise(lines[-_CONTEXT_LINES - 2 :])
        return any(
            (joined := self._seams.joined(first, second))
            and self._has(joined, sources)
            and not self._has(first, sources)  # too far away by itself
            for first, second in pairs
        )

    def _has(self, line: bytes, sources: tuple[str, ...]) -> bool:
        return self._matcher.readings.has(line[:MAX_RAW], sources)

    def _going_down(self, shutdowns: Sequence[Shutdown], at: Moment, offset: int) -> None:
        for shutdown in shutdowns:
            if shutdown.after and not self._comes_after(shutdown.after, offset):
                continue
            self._boots.going_down(shutdown.leads_to, at)
            self._detectors.goes_down()
            self._down_seq = at.seq

    def _banner(self, banners: list[Banner], at: Moment, offset: int, text: str) -> None:
        banners.sort(key=lambda banner: banner.marker.stage)
        at = replace(at, times=2) if prints_twice(self._recent, offset) else at
        self._ecosystems.update(banner.marker.ecosystem for banner in banners)
        if banners[0].marker.stage == 0:
            self._unseen_start()  # the reset that was announced before took place
            self._announced = (text, self._line_before(offset))
            self._recent.forget_stamps(offset)  # whether a banner follows or not
        if self._boots.banner(banners, at):
            self._recent.forget_stamps(offset)
            self._began(at, text, self._line_before(offset))
        elif banners[0].marker.state == "kernel":
            self._recent.forget_stamps(offset)
            self._detectors.kernel_starts(at)

    def _unseen_start(self) -> None:
        """Take an announced reset as a start of which no banner was seen."""
        if at := self._boots.unseen():
            self._began(Moment(at.seq + 1, at.mono_ns, at.utc_ns), *self._announced)

    def _line_before(self, offset: int) -> bytes:
        return next(iter(self._recent.lines_before(offset, 1)), b"")

    def _began(self, at: Moment, banner: str, before: bytes) -> None:
        self._tell_start()
        self._faults.booted(at)
        if self._boots.start:
            self._held = (self._boots.start, banner, before)
        self._down_seq = self._error_at = None
        self._detectors.board_starts(at)

    def _tell_start_if_due(self, seq: int) -> None:
        """Tell a start once the device gave its cause, or when it is late to do so."""
        if self._held is None:
            return
        start = self._held[0]
        if start.printed not in (None, "unknown") or seq >= start.at.seq + _CAUSE_LINES:
            self._tell_start()

    def _tell_start(self) -> None:
        if self._held is None:
            return
        start, marker, before = self._held
        self._held = None
        faults = list(self._detectors.started(start, before))
        if faults and not start.was_panic and self._announcements.explains(start):
            faults = list(self._detectors.started(start, before))
        self._out.append(
            Boot(
                port=self.port,
                number=start.number,
                seq=start.at.seq,
                ecosystem=start.ecosystem,
                cause=start.cause,
                marker=marker,
                mono_ns=start.at.mono_ns,
                utc_ns=start.at.utc_ns,
                is_expected=start.is_expected,
            )
        )
        self._detected(faults, start.at, boot=start.number)

    def _prompt(self, at: Moment, view: LineView) -> None:
        for prompt, patterns in self._matcher.prompts:
            if view.has(patterns):
                self._is_at_prompt = True
                self._faults.prompted(at)
                self._detectors.prompted(is_ready=prompt.is_ready)
                if prompt.is_ready and self._own_ready is None:
                    self._ready(at, is_waiting=True)

    def _markers_of_ready(self, found: FoundLine) -> None:
        if self._own_ready is not None:
            if self._own_ready in found.reading.patterns:
                self._ready(found.at)
        elif found.reading.ready:
            self._ecosystems.update(ready.ecosystem for ready in found.reading.ready)
            self._faults.prompted(found.at)
            self._ready(found.at)

    def _ready(self, at: Moment, *, is_waiting: bool = False) -> None:
        is_news = self._boots.ready()
        if is_news or (is_waiting and self._boots.went_on(at)):
            self._tell(Ready(self.port, at.seq, self._boots.number, at.mono_ns, at.utc_ns))
        if is_news:
            self._detectors.ready(at)

    # Time, silence, answers

    def _settle(self, mono_ns: int) -> None:
        """Decide what silence decides."""
        pause_ns = mono_ns - self._heard_ns
        is_late = self._held and mono_ns - self._held[0].at.mono_ns >= _CAUSE_MOST_NS
        if is_late or pause_ns >= _CAUSE_NS:
            self._tell_start()
        if self._partial and not self._is_still and pause_ns >= _STILL_NS:
            self._is_still = True
            self._judge_partial(*self._partial, is_stale=False)
        if pause_ns < self._quiet_ns:
            return
        if self._partial and not self._is_stale:
            self._is_stale = True
            self._judge_partial(*self._partial, is_stale=True)
        if self._faults.is_waiting:
            at = replace(self._last, mono_ns=self._heard_ns + self._quiet_ns)
            self._faults.quiet(self._last.seq, at)

    def _is_silence_explained(self) -> bool:
        if self._is_at_prompt or self._boots.state == "shutdown":
            return True
        if self._partial and _LIKE_A_PROMPT.search(strip_escapes(self._partial[1])):
            return True
        seq, error = self._last.seq, self._error_at
        if self._down_seq is not None and seq - self._down_seq <= _DOWN_LINES:
            return True
        return (
            error is not None
            and seq - error.seq <= _FAULT_LINES
            and self._heard_ns - error.mono_ns < _WENT_ON_NS
        )

    def _last_said(self) -> tuple[bytes, int]:
        if self._partial and self._partial[1].strip():
            at, text = self._partial
            return strip_escapes(text)[:MAX_RAW], at.seq
        line, seq = self._recent.last_line()
        return line[:MAX_RAW], seq

    def _detected(
        self, faults: Iterable[Fault], at: Moment, raw: bytes = b"", boot: int | None = None
    ) -> None:
        """Tell faults of detectors, of the newest boot unless `boot` says of which."""
        for fault in faults:
            told = fault.detector
            title = readable(fault.title.encode("utf-8", errors="backslashreplace"))[:MAX_TITLE]
            self._tell(
                Hit(
                    port=self.port,
                    trigger=told.id,
                    severity=fault.severity,
                    tier="specific",
                    title=title,
                    key=fault.key or normalise(title),
                    seq=fault.seq,
                    block_first=fault.first_seq or fault.seq,
                    boot=self._boots.number if boot is None else boot,
                    mono_ns=at.mono_ns,
                    utc_ns=at.utc_ns,
                    raw=(fault.raw or raw)[:MAX_RAW],
                    fields=dict(fault.fields),
                    knowledge=told.knowledge,
                    holdoff_s=told.holdoff_s,
                )
            )

    def _tell(self, finding: Finding) -> None:
        """Answer with a finding, behind the start that it belongs to."""
        self._tell_start()
        if not isinstance(finding, Hit):
            self._out.append(finding)
            return
        if finding.trigger in self._matcher.detectors:
            self._out.append(finding)
            return
        at = Moment(finding.seq, finding.mono_ns, finding.utc_ns)
        if finding.severity == "critical":
            self._boots.faulted(at)
        if finding.severity in _ERRORS:
            self._error_at = at
            self._detectors.boot_is_explained()
        shown = replace(finding, severity="note") if self._options.expect_faults else finding
        self._out.append(shown)
        self._detected(self._detectors.rule_hit(finding, at), at, finding.raw)
