"""From hits to incidents: what belongs together, what was its cause, what became of it."""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from serialwatch.incidents.known_faults import KnownFaults
from serialwatch.incidents.open_incident import (
    SETTLE_NS,
    OpenIncident,
    S,
    is_fault,
    severity_rank,
    tells_a_consequence,
)
from serialwatch.records import (
    OWN_PORT,
    TIERS,
    BlockEnd,
    Boot,
    Finding,
    Hit,
    Incident,
    IncidentChange,
    IncidentWhat,
    Ready,
    Severity,
)

BETTER_LINES = 60  # a vague match this near a better one is part of the same fault
BETTER_NS = 10 * S
LINKED_NS = 1 * S  # two ports failing within this have something in common
MAX_LINKED = 16  # incidents that one is linked with: those most like it, then the nearest
CHANGED_NS = 1 * S  # between two `changed` of one incident
RESOLVED_NS = 24 * 3600 * S  # without a hit
RESTORED_HOLDOFF_NS = 300 * S  # of incidents of an earlier run
MAX_OPEN = 200  # unresolved incidents a port; then the oldest is resolved
MAX_KEYS = 4096  # a port; then the key unseen for longest is forgotten
MAX_HELD = 100  # vague matches a port that wait for a better one; then they count
SWEEP_NS = 1 * S
OWN_CAUSE_LINES = 16  # behind its banner a start tells what reset the board
_RESETS = {  # by the cause of a start: how rules end that find where it is told
    "watchdog": ("wdt_reset", "watchdog_report", "_wdt", "_watchdog"),
    "brownout": (".brownout",),
}
_NO_CRASH = ("rate.", "link.")  # a panic long after one of these does not go on with it


@dataclass(slots=True)
class _Key:
    """Where a fault of one trigger and key was counted last."""

    incident: OpenIncident
    mono_ns: int
    holdoff_ns: int


@dataclass(slots=True)
class _Better:
    """The last fault of one tier."""

    incident: OpenIncident
    hit: Hit
    lines: int  # of the port by then


@dataclass(slots=True)
class _Held:
    """A vague match that waits for a better one."""

    hit: Hit
    lines: int  # of the port by then


@dataclass(slots=True)
class _Port:
    name: str
    firmware: str = ""
    lines: int = 0
    line_ns: int = 0  # of the last line
    boot: int = 0  # the last one that began
    start: Boot | None = None  # likewise
    current: OpenIncident | None = None  # not yet settled
    live: dict[int, OpenIncident] = field(default_factory=dict)  # unresolved, oldest first
    active: dict[int, OpenIncident] = field(default_factory=dict)  # of `live`: need the time
    keys: dict[tuple[str, str], _Key] = field(default_factory=dict)  # seen longest ago first
    blocks: dict[str, OpenIncident] = field(default_factory=dict)  # by trigger
    better: list[_Better] = field(default_factory=list)  # one a tier
    held: list[_Held] = field(default_factory=list)
    stored: dict[str, int] = field(default_factory=dict)  # trigger: last line an earlier run saved


class Incidents:
    """All unresolved incidents of the bench.

    Fed with what the triggers found and with the time; answers with what changed. A port's
    firmware is learned from hits that have a field `firmware`.
    """

    def __init__(self, next_id: int) -> None:
        self._next_id = next_id
        self._ports: dict[str, _Port] = {}
        self._live: dict[int, OpenIncident] = {}
        self._known_faults = KnownFaults()
        self._opened: deque[OpenIncident] = deque(maxlen=256)  # newest last
        self._mono_ns = 0  # the last time that was fed in
        self._swept_ns = 0

    def restore(
        self,
        incidents: Iterable[Incident],
        mutes: Mapping[str, int],
        history: Mapping[str, Sequence[int]],
        *,
        mono_ns: int,
        utc_ns: int,
    ) -> list[IncidentChange]:
        """Take up what an earlier run left; what was not settled is settled now.

        Args:
            incidents: all that are not resolved.
            mutes: by fingerprint, until when (UTC); 0 is until unmuted.
            history: by fingerprint, ids of all incidents, newest first.
            mono_ns: now.
            utc_ns: now; tells how long ago the incidents were, in the clock of this run.

        """
        self._mono_ns = max(self._mono_ns, mono_ns)
        self._known_faults.remember(history)
        for fingerprint, until in mutes.items():
            until_mono_ns = mono_ns + until - utc_ns if until else None
            self._known_faults.mute(fingerprint, until, until_mono_ns)
        changes = []
        for incident in sorted(incidents, key=lambda i: i.id):
            self._next_id = max(self._next_id, incident.id + 1)
            if incident.state == "resolved":
                continue
            live = OpenIncident.restored(incident, mono_ns, utc_ns)
            live.muted_until_utc_ns = self._known_faults.muted_until_utc_ns(live.fingerprint)
            self._take_up(live, incident)
            if not incident.is_settled:
                changes.append(IncidentChange("settled", live.record()))
        return changes

    def found(self, finding: Finding) -> list[IncidentChange]:
        """Take what a trigger found; return what changed, in this order."""
        self._mono_ns = max(self._mono_ns, finding.mono_ns)
        port = self._port(finding.port)
        changes = self._passed(port, finding.mono_ns)
        if isinstance(finding, Hit):
            changes += self._hit(port, finding)
        elif isinstance(finding, BlockEnd):
            self._block_end(port, finding)
        elif isinstance(finding, Boot):
            changes += self._boot(port, finding)
        else:
            changes += self._ready(port, finding)
        return changes

    def lines(self, port: str, count: int, mono_ns: int) -> None:
        """Note that a port printed `count` lines, the last of them at `mono_ns`."""
        state = self._port(port)
        state.lines += count
        state.line_ns = max(state.line_ns, mono_ns)

    def tick(self, mono_ns: int, utc_ns: int) -> list[IncidentChange]:
        """Return what changed because time passed: to be called 20 times a second or so."""
        self._mono_ns = max(self._mono_ns, mono_ns)
        changes: list[IncidentChange] = []
        for port in self._ports.values():
            if port.active or port.held:
                changes += self._passed(port, mono_ns)
                changes += self._judged(port, mono_ns)
        if mono_ns - self._swept_ns >= SWEEP_NS:
            self._swept_ns = mono_ns
            for fingerprint in self._known_faults.unmute_expired(mono_ns):
                changes += self._all_changed(self._alike(fingerprint))
            changes += self._resolve_quiet(mono_ns)
        return changes

    @property
    def is_calm(self) -> bool:
        """Tell whether nothing changes soon only because time passes."""
        return not any(port.active or port.held for port in self._ports.values())

    def open(self) -> tuple[Incident, ...]:
        """Return all unresolved incidents, oldest first."""
        return tuple(self._live[key].record() for key in sorted(self._live))

    def count_open(self, port: str = "") -> Counter[Severity]:
        """Return how many are unresolved, of one port or all; cheap, however many there are."""
        of = self._port(port).live if port else self._live
        return Counter(live.severity for live in of.values())

    def get(self, id: int) -> Incident | None:
        """Return an unresolved incident; None if it is unknown or resolved."""
        live = self._live.get(id)
        return live.record() if live else None

    def resolve(self, id: int, who: str, utc_ns: int) -> list[IncidentChange]:
        """Close an incident for a person; no change if it is not open."""
        live = self._live.get(id)
        return [self._close(live, who)] if live else []

    def mute(self, id: int, who: str, until: int | None, utc_ns: int) -> list[IncidentChange]:
        """Mute an incident's fingerprint, till `until` (UTC, ns) or until unmuted.

        It changes every open incident with that fingerprint, and none if `id` is not open.
        """
        if (live := self._live.get(id)) is None:
            return []
        until_mono_ns = self._mono_ns + until - utc_ns if until else None
        self._known_faults.mute(live.fingerprint, until or 0, until_mono_ns)
        return [self._told("muted", each) for each in self._alike(live.fingerprint)]

    def unmute(self, id: int, who: str, utc_ns: int) -> list[IncidentChange]:
        """Let an incident's fingerprint wake and notify again."""
        live = self._live.get(id)
        if live is None or not self._known_faults.unmute(live.fingerprint):
            return []
        return self._all_changed(self._alike(live.fingerprint))

    def investigating(self, id: int) -> list[IncidentChange]:
        """Note that the agent looks into it; no change once a report is there."""
        live = self._live.get(id)
        if live is None or live.phase != "open":
            return []
        live.phase = "investigating"
        return self._changed(live, self._mono_ns)

    def reported(self, id: int) -> list[IncidentChange]:
        """Note that a report of it is published; no change for a further revision."""
        live = self._live.get(id)
        if live is None or live.phase == "reported":
            return []
        live.phase = "reported"
        return self._changed(live, self._mono_ns)

    def matched(self, port: str, seq: int) -> int:
        """Return the line up to which a port's search may be stored as done, at most `seq`.

        It is less than `seq` while a hit is known here only and a restart has to find it again.
        """
        state = self._port(port)
        untold = [held.hit.seq for held in state.held if held.hit.seq]
        untold += [live.untold_seq for live in state.active.values() if live.untold_seq]
        return min([seq, *(at - 1 for at in untold)])

    # Hits

    def _hit(self, port: _Port, hit: Hit) -> list[IncidentChange]:
        if hit.seq and hit.seq <= port.stored.get(hit.trigger, 0):
            return []  # an earlier run found and stored it; its position was behind
        changes = []
        if firmware := hit.fields.get("firmware"):
            port.firmware = firmware
        if port.held and hit.seq:
            changes += self._release_held(port, hit.mono_ns, hit.seq)
        changes += self._leave_past(port, hit)
        live = self._place(port, hit)
        if live is not None:
            self._add(port, live, hit)
            return changes + self._changed(live, hit.mono_ns)
        if hit.severity == "note":
            return changes
        if hit.tier == "generic" and len(port.held) < MAX_HELD:
            port.held.append(_Held(hit, port.lines))
            return changes
        return changes + self._open(port, hit, hit.mono_ns)

    def _leave_past(self, port: _Port, hit: Hit) -> list[IncidentChange]:
        """Settle an incident that the board has got over when another kind of fault comes."""
        current = port.current
        if current is None or hit.severity == "note" or not current.is_past(hit):
            return []
        if tells_a_consequence(hit) or self._known(port, hit) is current:
            return []
        current.settle()
        port.current = None
        return [self._told("settled", current)]

    def _place(self, port: _Port, hit: Hit) -> OpenIncident | None:
        """Find the incident that a hit belongs to, None if it would be one of its own."""
        known = self._known(port, hit)
        if known is not None and known.is_root(hit):
            return known
        if known is not None and port.current is None and not known.is_left_by(hit):
            return known
        if hit.severity != "note" and tells_a_consequence(hit):
            for live in reversed(port.live.values()):
                if live.is_fresh_fault(hit.mono_ns) or live.has_restarted(hit):
                    return live
        if port.current is not None or hit.severity == "note":
            return port.current
        return self._follow_up(port, hit)

    def _known(self, port: _Port, hit: Hit) -> OpenIncident | None:
        """Find where the same fault is counted, if it was last seen within its holdoff."""
        key = port.keys.get((hit.trigger, hit.key))
        if hit.severity == "note" or key is None or key.incident.id not in port.live:
            return None
        return key.incident if hit.mono_ns - key.mono_ns <= key.holdoff_ns else None

    def _follow_up(self, port: _Port, hit: Hit) -> OpenIncident | None:
        """Find a settled incident that a new fault only goes on with."""
        for live in reversed(port.live.values()):
            goes_on = hit.continues and not live.is_decided and live.is_fresh_fault(hit.mono_ns)
            if goes_on and not live.primary.trigger.startswith(_NO_CRASH):
                # A kernel's fault takes user space with it, not the other way round.
                is_of_it = live.primary.ecosystem in (hit.ecosystem, "linux")
                is_milder = severity_rank(hit.severity) <= severity_rank(live.severity)
                if (is_of_it or is_milder) and live.may_lead_to(hit):
                    return live
            if live.goes_on_with(hit):
                return live
        for better in port.better:
            if (
                better.incident.id in port.live
                and not better.incident.is_past(hit)
                and TIERS.index(better.hit.tier) > TIERS.index(hit.tier)
                and _is_near(better.hit, better.lines, hit, port.lines)
                and (
                    hit.tier == "generic"
                    or severity_rank(hit.severity) <= severity_rank(better.hit.severity)
                )
            ):
                return better.incident
        return None

    def _add(self, port: _Port, live: OpenIncident, hit: Hit) -> None:
        """Count a hit in an incident."""
        is_other_fault = live.add(hit)
        if not live.is_settled and (is_other_fault or live.firmware != port.firmware):
            self._refingerprint(live, port.firmware)
        _take_restart(live, hit, port.start)
        port.active[live.id] = live
        self._remember(port, live, hit)

    def _open(self, port: _Port, hit: Hit, mono_ns: int) -> list[IncidentChange]:
        live = OpenIncident(self._next_id, hit, mono_ns, port.firmware)
        self._next_id += 1
        self._live[live.id] = port.live[live.id] = port.active[live.id] = port.current = live
        self._recognise(live)
        _take_restart(live, hit, port.start)
        self._remember(port, live, hit)
        self._add_held(port, live)
        others = self._link(live)
        changes = [self._told("opened", live)]
        for other in others:
            changes += self._changed(other, mono_ns)
        if len(port.live) > MAX_OPEN:
            oldest = next(iter(port.live.values()))
            changes.append(self._close(oldest, f"serialwatch: more than {MAX_OPEN} were open"))
        return changes

    def _remember(self, port: _Port, live: OpenIncident, hit: Hit) -> None:
        """Remember where this kind of fault belongs, and what lies near it."""
        if hit.severity != "note":
            key = hit.trigger, hit.key
            port.keys.pop(key, None)
            port.keys[key] = _Key(live, hit.mono_ns, int(hit.holdoff_s * S))
            if len(port.keys) > MAX_KEYS:
                del port.keys[next(iter(port.keys))]
        if hit.opens_block:
            port.blocks[hit.trigger] = live
        if is_fault(hit) and hit.tier != "generic":
            port.better = [b for b in port.better if b.hit.tier != hit.tier]
            port.better.append(_Better(live, hit, port.lines))
            self._add_held(port, live)

    def _add_held(self, port: _Port, live: OpenIncident) -> None:
        """Give the vague matches that waited to the incident that explains them."""
        held, port.held = port.held, []
        for each in held:
            self._add(port, live, each.hit)

    def _release_held(self, port: _Port, mono_ns: int, seq: int) -> list[IncidentChange]:
        """Let vague matches count for which nothing better came in time."""
        first = port.held[0]
        is_late = (
            mono_ns - first.hit.mono_ns >= BETTER_NS
            or port.lines - first.lines >= BETTER_LINES
            or (0 < first.hit.seq < seq - BETTER_LINES)
        )
        if not is_late:
            return []
        port.held.pop(0)
        return self._open(port, first.hit, mono_ns)

    # Blocks, boots and time

    def _block_end(self, port: _Port, end: BlockEnd) -> None:
        live = port.blocks.pop(end.trigger, None)
        if live is not None and live.id in port.live:
            live.end_block(end.trigger, end.last_seq, end.mono_ns)

    def _boot(self, port: _Port, boot: Boot) -> list[IncidentChange]:
        port.boot, port.start = boot.number, boot
        changes = []
        for live in port.live.values():
            if not live.is_fresh_fault(boot.mono_ns):
                continue
            if self._later_crash(port, live):
                if not live.is_decided and live.decide("continued", "", 0):
                    changes.append(self._told("outcome", live))
                continue
            port.active[live.id] = live
            if live.decide("rebooted", boot.cause, boot.seq):
                changes.append(self._told("outcome", live))
        return changes

    def _later_crash(self, port: _Port, live: OpenIncident) -> bool:
        """Tell whether a crash that came well after a fault is what the board restarted of."""
        at_ns = (live.fault_ns or 0) + SETTLE_NS
        return any(
            other is not live
            and other.severity == "critical"
            and not other.primary.trigger.startswith(_NO_CRASH)
            and other.opened_mono_ns > at_ns
            for other in port.live.values()
        )

    def _ready(self, port: _Port, ready: Ready) -> list[IncidentChange]:
        changes = []
        for live in port.live.values() if ready.boot == port.boot else ():
            live.came_up(ready)
        for live in port.active.values():
            if not live.is_decided and live.decide("continued", "", ready.seq):
                changes.append(self._told("outcome", live))
        return changes

    def _passed(self, port: _Port, mono_ns: int) -> list[IncidentChange]:
        """Do what is due on one port."""
        changes = []
        if port.held:
            changes += self._release_held(port, mono_ns, 0)
        for live in list(port.active.values()):
            if not live.is_complete and live.is_due(mono_ns):
                live.settle()
                if port.current is live:
                    port.current = None
                changes.append(self._told("settled", live))
            if live.untold_seq is None:
                if live.is_decided and live.is_complete:
                    del port.active[live.id]
            elif live.told_ns is None or mono_ns - live.told_ns >= CHANGED_NS:
                changes += self._changed(live, mono_ns)
                if live.is_decided and live.is_complete:
                    del port.active[live.id]
        return changes

    def _judged(self, port: _Port, mono_ns: int) -> list[IncidentChange]:
        """Judge by the lines what became of the board.

        Never while something is found: the lines that it was found in are not counted yet.
        """
        changes = []
        for live in port.active.values():
            outcome = live.outcome_by_lines(port.line_ns, mono_ns)
            if outcome is not None and live.decide(outcome, "", 0):
                changes.append(self._told("outcome", live))
        return changes

    def _resolve_quiet(self, mono_ns: int) -> list[IncidentChange]:
        quiet = [i for i in self._live.values() if mono_ns - i.last_mono_ns >= RESOLVED_NS]
        return [self._close(live, "serialwatch: no hit for 24 h") for live in quiet]

    def _close(self, live: OpenIncident, who: str) -> IncidentChange:
        live.settle()
        live.untold_seq = None
        port = self._port(live.port)
        del self._live[live.id], port.live[live.id]
        port.active.pop(live.id, None)
        if port.current is live:
            port.current = None
        return IncidentChange("resolved", live.record("resolved", who), live.told_anew())

    # What changed

    def _changed(self, live: OpenIncident, mono_ns: int) -> list[IncidentChange]:
        """Tell a change, unless one was told within the last second; then later."""
        if live.untold_seq is None:
            live.untold_seq = 0
        if live.told_ns is not None and mono_ns - live.told_ns < CHANGED_NS:
            self._port(live.port).active[live.id] = live
            return []
        live.told_ns = mono_ns
        return [self._told("changed", live)]

    def _told(self, what: IncidentWhat, live: OpenIncident) -> IncidentChange:
        live.untold_seq = None
        return IncidentChange(what, live.record(), live.told_anew())

    def _link(self, live: OpenIncident) -> list[OpenIncident]:
        """Link it with what failed on other ports within the same second; return whom it joins."""
        if live.port == OWN_PORT:
            return []

        def apart(other: OpenIncident) -> tuple[bool, int]:
            is_unlike = other.primary.trigger != live.primary.trigger
            return is_unlike, abs(other.opened_mono_ns - live.opened_mono_ns)

        others = [
            other
            for other in self._opened
            if other.port != live.port
            and other.id in self._live
            and abs(other.opened_mono_ns - live.opened_mono_ns) <= LINKED_NS
        ]
        self._opened.append(live)
        live.linked = tuple(other.id for other in sorted(others, key=apart)[:MAX_LINKED])
        joined = [other for other in others if len(other.linked) < MAX_LINKED]
        for other in joined:
            other.linked = (*other.linked, live.id)
        return joined

    def _refingerprint(self, live: OpenIncident, firmware: str) -> None:
        before = live.fingerprint
        if live.refingerprint(firmware):
            self._known_faults.take_back(before, live.id)
            self._recognise(live)

    def _recognise(self, live: OpenIncident) -> None:
        """Look up whether its fingerprint was seen before or is muted."""
        live.seen_before = self._known_faults.enter(live.fingerprint, live.id)
        live.muted_until_utc_ns = self._known_faults.muted_until_utc_ns(live.fingerprint)

    def _alike(self, fingerprint: str) -> list[OpenIncident]:
        """Let all with a fingerprint know whether it is muted; return them."""
        alike = [live for live in self._live.values() if live.fingerprint == fingerprint]
        for live in alike:
            live.muted_until_utc_ns = self._known_faults.muted_until_utc_ns(fingerprint)
        return alike

    def _all_changed(self, alike: Iterable[OpenIncident]) -> list[IncidentChange]:
        return [change for live in alike for change in self._changed(live, self._mono_ns)]

    # State

    def _port(self, name: str) -> _Port:
        port = self._ports.get(name)
        if port is None:
            port = self._ports[name] = _Port(name)
        return port

    def _take_up(self, live: OpenIncident, incident: Incident) -> None:
        port = self._port(live.port)
        port.firmware = live.firmware or port.firmware
        self._live[live.id] = port.live[live.id] = port.active[live.id] = live
        key = incident.trigger, incident.key
        port.keys[key] = _Key(live, live.last_mono_ns, RESTORED_HOLDOFF_NS)
        for hits in incident.hits:
            port.stored[hits.trigger] = max(port.stored.get(hits.trigger, 0), hits.last_seq)


def _take_restart(live: OpenIncident, hit: Hit, start: Boot | None) -> None:
    """Take the start in which a board tells what reset it as the outcome of that fault."""
    if start is None or not is_fault(hit) or not 0 <= hit.seq - start.seq <= OWN_CAUSE_LINES:
        return
    if start.cause in _RESETS and hit.trigger.endswith(_RESETS[start.cause]):
        live.decide("rebooted", start.cause, start.seq)


def _is_near(better: Hit, better_lines: int, hit: Hit, lines: int) -> bool:
    """Tell whether a match lies within 60 lines and 10 s after a better one."""
    apart = hit.seq - better.seq if hit.seq and better.seq else lines - better_lines
    return apart <= BETTER_LINES and hit.mono_ns - better.mono_ns <= BETTER_NS
