"""One incident while it can still grow: its hits, its root cause, its outcome."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field

from serialwatch.records import (
    SEVERITIES,
    TIERS,
    Hit,
    HitCount,
    Incident,
    Lead,
    Outcome,
    Ready,
    Severity,
    State,
)
from serialwatch.titles import fingerprint

S = 1_000_000_000  # ns
SETTLE_NS = 5 * S  # after the last hit or block end
SETTLE_MAX_NS = 60 * S  # after opening, whatever still comes
REBOOT_NS = 120 * S  # a first-stage boot within this is what the fault led to
QUIET_NS = 60 * S  # of silence: halted; of ordinary lines: continued

MAX_SAMPLES = 20  # line numbers kept of one trigger: the oldest half and the newest
MAX_APART = 10  # lines between two rules' first lines of one fault
MAX_KEYS = 256  # keys counted one by one in an incident; a later one is never its root cause

_RANKS = {severity: rank for rank, severity in enumerate(SEVERITIES)}
_TIER_RANKS = {tier: rank for rank, tier in enumerate(TIERS)}
_RESTART = ".unexpected_reboot"
_CONSEQUENCES = frozenset({"boot.loop", "boot.not_finished", "link.silence", "link.port_vanished"})


def severity_rank(severity: Severity) -> int:
    """Return 0 (note) to 3 (critical)."""
    return _RANKS[severity]


def is_fault(hit: Hit) -> bool:
    """Tell whether the hit says that something failed, not only that someone should look."""
    return hit.severity in {"error", "critical"}


def tells_a_consequence(hit: Hit) -> bool:
    """Tell whether the hit only says how a fault went on: a loop, a reboot, silence."""
    return hit.trigger in _CONSEQUENCES or hit.trigger.endswith(_RESTART)


@dataclass(slots=True)
class _Tally:
    """The hits of one trigger."""

    first: Hit
    severity: Severity
    last_seq: int
    last_utc_ns: int
    count: int
    samples: list[int] = field(default_factory=list)
    _record: HitCount | None = None  # as it was told last

    def add(self, hit: Hit) -> None:
        self._record = None
        self.count += hit.count
        self.last_seq = max(self.last_seq, hit.seq)
        self.last_utc_ns = hit.utc_ns
        if severity_rank(hit.severity) > severity_rank(self.severity):
            self.severity = hit.severity
        self.sample(hit.seq)

    def sample(self, seq: int) -> None:
        if seq:
            if len(self.samples) == MAX_SAMPLES:
                del self.samples[MAX_SAMPLES // 2]
            self.samples.append(seq)

    def record(self) -> HitCount:
        if self._record is None:
            self._record = HitCount(
                trigger=self.first.trigger,
                severity=self.severity,
                tier=self.first.tier,
                title=self.first.title,
                first_seq=self.first.seq,
                last_seq=self.last_seq,
                first_utc_ns=self.first.utc_ns,
                last_utc_ns=self.last_utc_ns,
                count=self.count,
                samples=tuple(self.samples),
                fields=dict(self.first.fields),
                knowledge=self.first.knowledge,
            )
        return self._record


class OpenIncident:
    """An unresolved incident of one port. Times are CLOCK_MONOTONIC of this run of the daemon."""

    def __init__(self, id: int, hit: Hit, mono_ns: int, firmware: str) -> None:
        """Open it for `hit` at `mono_ns`, which may be later than the hit."""
        self.id = id
        self.port = hit.port
        self.primary = hit  # the first hit of the trigger that is the root cause
        self.firmware = firmware
        self.fingerprint = fingerprint(hit.trigger, hit.title, firmware)
        self.opened_mono_ns = self.last_mono_ns = hit.mono_ns
        self.opened_utc_ns = self.last_utc_ns = hit.utc_ns
        self.last_seq = hit.seq
        self.is_settled = False
        self.is_worse = False  # since it settled; it settles once more then
        self.open_blocks: set[str] = set()  # triggers
        self.recent_ns = mono_ns  # the last hit or block end that counts as activity
        self.again_ns = mono_ns  # likewise; once it has settled, of its root cause only
        self.phase: State = "open"  # as the agent has it; open, investigating or reported
        self.muted_until_utc_ns: int | None = None
        self.linked: tuple[int, ...] = ()
        self.seen_before: tuple[int, ...] = ()

        self.up_seq = 0  # line in which a later boot was ready: what it came from is past
        self._boot = 0  # of the last hit that is more than a consequence
        self.fault_ns: int | None = None  # the last hit that awaits an outcome
        self.is_decided = True  # what became of the last fault is known
        self.outcome: Outcome | None = None
        self.outcome_cause = ""
        self.outcome_seq = 0
        self._outcomes: set[Outcome] = set()

        self.told_ns: int | None = None  # the last `changed`
        self.untold_seq: int | None = None  # first line that no change has told yet, 0: no line

        self._began_ns = mono_ns
        self._block_end_ns = mono_ns
        self._watched_ns = mono_ns  # silence before this was not observed
        self._tallies: dict[str, _Tally] = {}
        self._counts: dict[tuple[str, str], int] = {}
        self._has_clear_fault = False  # one that a sharp rule found,
        self._clear_at: tuple[int, int] | None = None  # and where the first that is a cause stands
        self._severity = hit.severity
        self.add(hit)
        self._told = Lead(self.primary.trigger, self._severity)

    @classmethod
    def restored(cls, incident: Incident, mono_ns: int, utc_ns: int) -> OpenIncident:
        """Take up an incident of an earlier run, as settled.

        Its times are moved to this run's clock by how long ago they were in UTC.
        """

        def moved(at_utc_ns: int) -> int:
            return mono_ns - max(0, utc_ns - at_utc_ns)

        primary = Hit(
            port=incident.port,
            trigger=incident.trigger,
            severity=incident.hits[0].severity if incident.hits else incident.severity,
            tier=incident.tier,
            title=incident.title,
            key=incident.key,
            seq=incident.first_seq,
            block_first=incident.block_first,
            boot=incident.boot,
            mono_ns=moved(incident.opened_utc_ns),
            utc_ns=incident.opened_utc_ns,
            fields=incident.fields,
            ecosystem=incident.ecosystem,
            knowledge=incident.knowledge,
        )
        self = cls(incident.id, primary, mono_ns, incident.firmware)
        self._tallies = dict(_tallies(primary, incident.hits))
        self._has_clear_fault, self._clear_at = False, None
        for tally in self._tallies.values():
            self._know(tally.first)
        self._counts = {(primary.trigger, primary.key): incident.count}
        self._severity = incident.severity
        self._told = Lead(primary.trigger, incident.severity)
        self.fingerprint = incident.fingerprint
        self.last_seq = incident.last_seq
        self.last_mono_ns = moved(incident.last_utc_ns)
        self.last_utc_ns = incident.last_utc_ns
        self.is_settled = True
        self.open_blocks.clear()
        self.recent_ns = self.again_ns = self.last_mono_ns
        self.phase = incident.state if incident.state in {"investigating", "reported"} else "open"
        self.muted_until_utc_ns = incident.muted_until_utc_ns
        self.linked, self.seen_before = incident.linked, incident.seen_before
        self.outcome = incident.outcome
        self._outcomes = {incident.outcome} if incident.outcome else set()
        self.outcome_cause = incident.outcome_cause
        self.outcome_seq = incident.outcome_seq
        self.fault_ns = self.last_mono_ns if severity_rank(incident.severity) >= 2 else None
        self.is_decided = (
            self.fault_ns is None
            or incident.outcome is not None
            or mono_ns - self.fault_ns > REBOOT_NS
        )
        self.untold_seq = None
        return self

    def add(self, hit: Hit) -> bool:
        """Count a hit; return whether it made another one the root cause."""
        self._count(hit)
        tally = self._tallies.get(hit.trigger)
        before = tally.severity if tally is not None else None
        if tally is None:
            self._tallies[hit.trigger] = tally = _Tally(
                hit, hit.severity, hit.seq, hit.utc_ns, hit.count
            )
            tally.sample(hit.seq)
            self._know(hit)
        else:
            tally.add(hit)
        is_news = tally.severity != before  # else it changes neither the worst nor the root cause
        if is_news:
            known, self._severity = self._severity, self._worst()
            if self.is_settled and severity_rank(self._severity) > severity_rank(known):
                self.is_worse = True
                self._began_ns = hit.mono_ns
        self.last_mono_ns = max(self.last_mono_ns, hit.mono_ns)
        self.last_utc_ns = hit.utc_ns
        self.untold_seq = self.untold_seq or (hit.seq if hit.count == 1 else hit.block_first)
        if hit.severity != "note" and not tells_a_consequence(hit):
            self._boot = max(self._boot, hit.boot)
            if hit.seq > self.up_seq:
                self.up_seq = 0
        if is_fault(hit) and not tells_a_consequence(hit):
            self.fault_ns = hit.mono_ns
            self.is_decided = False
        elif hit.trigger == "link.port_vanished":
            self.is_decided = True  # the silence that follows is the cable's
        if hit.severity != "note" and not self._is_silenced(hit):
            self.recent_ns = max(self.recent_ns, hit.mono_ns)
            if not self.is_complete or self.is_root(hit):
                self.again_ns = max(self.again_ns, hit.mono_ns)
        if self.is_complete:
            return False
        self.last_seq = max(self.last_seq, hit.seq)
        if hit.opens_block:
            self.open_blocks.add(hit.trigger)
        return is_news and not self.is_settled and self._choose()

    def end_block(self, trigger: str, last_seq: int, mono_ns: int) -> None:
        """Note that the lines of one fault are complete."""
        self.open_blocks.discard(trigger)
        self._block_end_ns = max(self._block_end_ns, mono_ns)
        self.recent_ns = max(self.recent_ns, mono_ns)
        if not self.is_complete or trigger == self.primary.trigger:
            self.again_ns = max(self.again_ns, mono_ns)
        if not self.is_complete:
            self.last_seq = max(self.last_seq, last_seq)

    @property
    def is_complete(self) -> bool:
        """Tell whether what there is to report of it has been told."""
        return self.is_settled and not self.is_worse

    def settle(self) -> None:
        """Note that nothing more is expected; only something worse will be told again."""
        self.is_settled = True
        self.is_worse = False
        self.open_blocks.clear()

    def is_due(self, mono_ns: int) -> bool:
        """Tell whether nothing more is to be expected of what began it or made it worse."""
        if mono_ns - self._began_ns >= SETTLE_MAX_NS:
            return True
        return not self.open_blocks and mono_ns - self.recent_ns >= SETTLE_NS

    def is_fresh_fault(self, mono_ns: int) -> bool:
        """Tell whether something failed here so recently that a reboot would come of it."""
        return self.fault_ns is not None and mono_ns - self.fault_ns <= REBOOT_NS

    def came_up(self, ready: Ready) -> None:
        """Note that the board is ready; if it has started since, this fault is past."""
        if ready.boot > self._boot and not self.open_blocks:
            self.up_seq = self.up_seq or ready.seq

    def goes_on_with(self, hit: Hit) -> bool:
        """Tell whether its root cause came again just now, and a hit is what it prints then.

        What it prints may have other words, but a sharp fault that was never part of it and comes
        in a later boot is one of its own.
        """
        if self.fault_ns is None or hit.mono_ns - self.again_ns > SETTLE_NS or self.is_past(hit):
            return False
        is_new = hit.boot > self.primary.boot and hit.trigger not in self._tallies
        if is_new and is_fault(hit) and hit.tier == "specific" and not hit.continues:
            return False
        return severity_rank(hit.severity) <= severity_rank(self._severity)

    def is_root(self, hit: Hit) -> bool:
        """Tell whether a hit is what this incident began with once more."""
        return (hit.trigger, hit.key) == (self.primary.trigger, self.primary.key)

    def is_left_by(self, hit: Hit) -> bool:
        """Tell whether a fault that was a lesser one of this incident now comes by itself.

        An error may still come ahead of the root cause, as in each round of a loop.
        """
        if not self.is_complete or not is_fault(hit) or tells_a_consequence(hit):
            return False
        alone_ns = SETTLE_NS if hit.severity == "critical" else REBOOT_NS
        return hit.mono_ns - self.again_ns > alone_ns

    def is_past(self, hit: Hit) -> bool:
        """Tell whether the board has started and got ready between this fault and a hit.

        That tells them apart even in a log that tells no time.
        """
        return 0 < self.up_seq < hit.seq

    def has_restarted(self, hit: Hit) -> bool:
        """Tell whether this is a restart for no known reason that a loop began with."""
        return (
            hit.trigger == "boot.loop"
            and self.primary.trigger.endswith(".unexpected_reboot")
            and hit.mono_ns - self.last_mono_ns <= REBOOT_NS
        )

    def outcome_by_lines(self, line_ns: int, mono_ns: int) -> Outcome | None:
        """Judge by the port's last line whether the board halted or went on; None: not known."""
        if self.fault_ns is None or self.is_decided:
            return None
        fault_ns = max(self.fault_ns, self._block_end_ns)
        if mono_ns - max(fault_ns, line_ns, self._watched_ns) >= QUIET_NS:
            self.is_decided = True
            # An idle board is silent too: only after a critical fault does silence tell.
            return "halted" if self._severity == "critical" else None
        return "continued" if line_ns - fault_ns >= QUIET_NS else None

    def decide(self, outcome: Outcome, cause: str, seq: int) -> bool:
        """Take the outcome of the last fault; return whether it is new for this incident.

        A board that halts and reboots in turn has two outcomes, however often it does so.
        """
        self.is_decided = True
        if outcome == "continued" and (restart := self._restart()):
            outcome, cause, seq = "rebooted", restart.fields.get("cause", ""), restart.seq
        if self.outcome == outcome:
            return False
        self.outcome, self.outcome_cause, self.outcome_seq = outcome, cause, seq
        self.untold_seq = self.untold_seq or 0
        is_new = outcome not in self._outcomes
        self._outcomes.add(outcome)
        return is_new

    def _restart(self) -> Hit | None:
        """Return the restart that came of its root cause, if nobody had asked for one."""
        firsts = (t.first for name, t in self._tallies.items() if name.endswith(_RESTART))
        later = [f for f in firsts if f.seq >= self.primary.seq and f is not self.primary]
        return min(later, key=_position, default=None)

    @property
    def severity(self) -> Severity:
        """Return the worst of its hits; a vague rule beside a better one does not count."""
        return self._severity

    def record(self, state: State | None = None, resolved_by: str = "") -> Incident:
        """Return how it stands now."""
        primary = self.primary
        return Incident(
            id=self.id,
            port=self.port,
            state=state or ("muted" if self.muted_until_utc_ns is not None else self.phase),
            trigger=primary.trigger,
            severity=self._severity,
            tier=primary.tier,
            title=primary.title,
            key=primary.key,
            fingerprint=self.fingerprint,
            ecosystem=primary.ecosystem,
            knowledge=primary.knowledge,
            fields=dict(primary.fields),
            boot=primary.boot,
            first_seq=primary.seq,
            block_first=self._block_first(),
            last_seq=self.last_seq,
            opened_mono_ns=self.opened_mono_ns,
            opened_utc_ns=self.opened_utc_ns,
            last_mono_ns=self.last_mono_ns,
            last_utc_ns=self.last_utc_ns,
            count=self._counts.get((primary.trigger, primary.key), 1),
            hits=tuple(t.record() for t in sorted(self._tallies.values(), key=self._place)),
            # What got worse is told anew when it has settled; a restart must know that too.
            is_settled=self.is_complete,
            outcome=self.outcome,
            outcome_cause=self.outcome_cause,
            outcome_seq=self.outcome_seq,
            linked=self.linked,
            seen_before=self.seen_before,
            firmware=self.firmware,
            muted_until_utc_ns=self.muted_until_utc_ns,
            resolved_by=resolved_by,
        )

    def told_anew(self) -> Lead | None:
        """Note that it is told now; return as what it was told before, None if as the same."""
        was, self._told = self._told, Lead(self.primary.trigger, self._severity)
        return was if was != self._told else None

    def refingerprint(self, firmware: str) -> bool:
        """Take the build and the root cause into the fingerprint; return whether it changed."""
        before = self.fingerprint
        self.firmware = firmware
        self.fingerprint = fingerprint(self.primary.trigger, self.primary.title, firmware)
        return self.fingerprint != before

    def _block_first(self) -> int:
        """Return the first line of the fault; the vaguer rule may have seen an earlier one."""
        primary = self.primary
        parent = self._tallies.get(primary.parent)
        if parent and 0 < primary.block_first - parent.first.block_first <= MAX_APART:
            return parent.first.block_first or primary.block_first
        return primary.block_first

    def _count(self, hit: Hit) -> None:
        key = hit.trigger, hit.key
        if key in self._counts or len(self._counts) < MAX_KEYS:
            self._counts[key] = self._counts.get(key, 0) + hit.count

    def _know(self, first: Hit) -> None:
        """Note the first hit of another trigger."""
        if not is_fault(first) or first.tier == "generic":
            return
        self._has_clear_fault = True
        if not tells_a_consequence(first):
            at = _position(first)
            self._clear_at = at if self._clear_at is None else min(self._clear_at, at)

    def _follows(self, hit: Hit) -> bool:
        """Tell whether a trigger only goes on with a fault that was printed before it.

        Which one was found first says nothing: some rules wait for the lines that follow.
        """
        if tells_a_consequence(hit):
            return True
        return hit.continues and self._clear_at is not None and self._clear_at < _position(hit)

    def _leading(self) -> set[str]:
        """Return the first crash after lesser faults only, or those of them that may lead to it.

        A fault that takes no board down, as of a program or a bus, did not cause a crash that
        comes within the same seconds unless it is known to; one that nothing is known of leads.
        """
        firsts = sorted((t.first for t in self._tallies.values() if _is_clear(t)), key=_position)
        crash = next((f for f in firsts if self._tallies[f.trigger].severity == "critical"), None)
        if crash is None or crash.led_by is None:
            return set()
        known = [*crash.led_by]
        for other in firsts:  # one line may be told by a vague rule and by its sharper one
            of_it = (other.trigger, other.parent)
            if other.led_by and (crash.trigger in of_it or crash.parent == other.trigger):
                known += other.led_by
        led_by: set[str] = set()
        for lesser in reversed(firsts[: firsts.index(crash)]):  # what led to one led to the crash
            if is_any(lesser.trigger, known):
                led_by.add(lesser.trigger)
                known += lesser.led_by or ()
        return led_by or {crash.trigger}

    def may_lead_to(self, hit: Hit) -> bool:
        """Tell whether a crash may come of this incident, not only after it."""
        return (
            hit.led_by is None
            or self._severity == "critical"
            or any(is_any(trigger, hit.led_by) for trigger in self._tallies)
        )

    def _choose(self) -> bool:
        """Find the root cause; return whether it is another one than before."""
        leading = self._leading()
        best = max(self._tallies.values(), key=lambda tally: self._merit(tally, leading))
        refined = {best.first.trigger}
        while sharper := [
            t
            for t in self._tallies.values()
            if t.first.parent == best.first.trigger
            and t.first.trigger not in refined
            and t.severity != "note"
        ]:
            best = max(sharper, key=lambda tally: self._merit(tally, leading))
            refined.add(best.first.trigger)
        changed = best.first.trigger != self.primary.trigger
        self.primary = best.first
        return changed

    def _merit(self, tally: _Tally, leading: set[str]) -> tuple[bool, bool, bool, int, int, int]:
        """Rank as a root cause: a fault, what leads, no consequence, a sharp rule, early."""
        first = tally.first
        return (
            severity_rank(tally.severity) >= 2,
            first.trigger in leading,
            not self._follows(first) and not self._is_silenced(first),
            _TIER_RANKS[first.tier],
            -first.mono_ns,
            -first.seq,
        )

    def _is_silenced(self, hit: Hit) -> bool:
        return hit.tier == "generic" and self._has_clear_fault

    def _worst(self) -> Severity:
        heard = [t.severity for t in self._tallies.values() if not self._is_silenced(t.first)]
        return max(heard, key=severity_rank)

    def _place(self, tally: _Tally) -> tuple[bool, bool, int, int]:
        """Order for people: the root cause, then by line, then what no line carries."""
        first = tally.first
        return first.trigger != self.primary.trigger, not first.seq, first.seq, first.utc_ns


def is_any(trigger: str, known: Iterable[str]) -> bool:
    """Tell whether a trigger is one of `known`, of which `pack.*` is a whole pack and `*` all."""
    return any(
        trigger == one or (one.endswith("*") and trigger.startswith(one[:-1])) for one in known
    )


def _is_clear(tally: _Tally) -> bool:
    """Tell whether something failed there, not only how it went on, told by a sharp rule."""
    first = tally.first
    is_sharp = first.tier != "generic" and not tells_a_consequence(first)
    return is_sharp and severity_rank(tally.severity) >= 2


def _position(hit: Hit) -> tuple[int, int]:
    return hit.mono_ns, hit.seq


def _tallies(primary: Hit, counts: Iterable[HitCount]) -> Iterable[tuple[str, _Tally]]:
    for count in counts:
        first = Hit(
            port=primary.port,
            trigger=count.trigger,
            severity=count.severity,
            tier=count.tier,
            title=count.title,
            key="",  # not stored; needed for the root cause only
            seq=count.first_seq,
            block_first=count.first_seq,
            boot=primary.boot,
            mono_ns=primary.mono_ns,
            utc_ns=count.first_utc_ns,
            fields=count.fields,
            knowledge=count.knowledge,
        )
        tally = _Tally(first, count.severity, count.last_seq, count.last_utc_ns, count.count)
        tally.samples = list(count.samples)
        yield count.trigger, tally
