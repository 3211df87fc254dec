"""Incidents while the daemon runs: kept, stored, told, and handed to the agent."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Iterable, Mapping
from typing import Literal, Protocol

from serialwatch.incidents.incidents import Incidents
from serialwatch.metrics import Metrics
from serialwatch.records import (
    OWN_PORT,
    SEVERITIES,
    Finding,
    Hit,
    Incident,
    IncidentChange,
    Lines,
    Severity,
)
from serialwatch.store import incidents as incident_rows
from serialwatch.store import ports as port_rows
from serialwatch.store.database import Database

log = logging.getLogger(__name__)

Phase = Literal["opened", "settled", "outcome"]
PHASES: Mapping[str, Phase] = {"opened": "opened", "settled": "settled", "outcome": "outcome"}


class Listener(Protocol):
    """Whoever wants to know what happens; may neither block nor raise."""

    def on_hit(self, hit: Hit) -> None:
        """Take a hit."""

    def on_incident(self, change: IncidentChange) -> None:
        """Take a change of an incident."""


Wake = Callable[[Incident, Phase, int], None]  # incident, phase, id of its row in the queue


class Faults:
    """All incidents of the bench and what follows from a change of one."""

    def __init__(self, db: Database, metrics: Metrics, listener: Listener, wake: Wake) -> None:
        # Until the database tells what earlier runs used: numbers that none of them has.
        self.incidents = Incidents(int(time.time()))
        self.searched: dict[str, int] = {}  # by port: the last line that was searched
        self._db = db
        self._metrics = metrics
        self._listener = listener
        self._wake = wake
        self._next_queue_id = int(time.time())
        self._stored: dict[str, int] = {}  # by port: `searched` as the database has it

    def restore(self, left: incident_rows.Left) -> None:
        """Take up what an earlier run left."""
        self.incidents = Incidents(left.next_id)
        self._next_queue_id = left.next_queue_id
        changes = self.incidents.restore(
            left.unresolved,
            left.mutes,
            left.history,
            mono_ns=time.monotonic_ns(),
            utc_ns=time.time_ns(),
        )
        self._changed(changes)

    def take_queue_id(self) -> int:
        """Return an id for the agent's queue that nobody else has."""
        self._next_queue_id += 1
        return self._next_queue_id - 1

    def lines(self, lines: Lines, port: str, findings: Iterable[Finding]) -> None:
        """Take a block of lines, and what was found in it and in those before."""
        self.incidents.lines(port, lines.count, lines.mono_ns)
        self.found(findings)

    def judged(self, port: str, seq: int) -> None:
        """Note that a port was searched up to a line, and all was taken that was found there."""
        self.searched[port] = seq

    def found(self, findings: Iterable[Finding]) -> None:
        """Take what a trigger found."""
        for finding in findings:
            if isinstance(finding, Hit):
                self._metrics.count_hit(
                    finding.port, finding.trigger, finding.severity, finding.count
                )
                self._listener.on_hit(finding)
            changes = self.incidents.found(finding)
            if isinstance(finding, Hit) and any(c.what == "opened" for c in changes):
                waited_s = (time.monotonic_ns() - finding.mono_ns) / 1e9
                self._metrics.wake_seconds.observe(max(0.0, waited_s))
            self._changed(changes)

    def own_fault(self, trigger: str, title: str, severity: Severity = "error") -> None:
        """Report a fault of the daemon itself."""
        self.found(
            [
                Hit(
                    port=OWN_PORT,
                    trigger=trigger,
                    severity=severity,
                    tier="specific",
                    title=title[:160],
                    key=trigger,
                    seq=0,
                    block_first=0,
                    boot=0,
                    mono_ns=time.monotonic_ns(),
                    utc_ns=time.time_ns(),
                    knowledge=trigger.replace(".", "/"),
                )
            ]
        )

    def look_again(self, trigger: str) -> None:
        """Have an own fault that is still open looked at once more: there is more to tell of it."""
        for incident in self.incidents.open():
            if (incident.port, incident.trigger) != (OWN_PORT, trigger):
                continue
            if incident.state != "muted":
                queue_id = self.take_queue_id()
                self._store(incident, "outcome", queue_id, 0)
                self._wake(incident, "outcome", queue_id)

    def tick(self) -> None:
        """Let time pass."""
        self._changed(self.incidents.tick(time.monotonic_ns(), time.time_ns()))

    def changed(self, changes: Iterable[IncidentChange]) -> None:
        """Take changes that a person or the agent made."""
        self._changed(changes)

    def store_positions(self) -> None:
        """Store how far each port was searched, so that a restart goes on there."""
        moved = {
            port: seq
            for port, searched in self.searched.items()
            if (seq := self.incidents.matched(port, searched)) != self._stored.get(port)
        }
        if moved and self._db.healthy:
            self._stored.update(moved)
            self._db.post(lambda db: port_rows.store_positions(db, moved))

    def store_anew(self) -> None:
        """Store what is open in a database that was begun anew."""
        self._stored.clear()
        for incident in self.incidents.open():
            self._store(incident, None, 0, 0)

    def count_open(self) -> None:
        """Bring the gauge of open incidents up to date."""
        numbers = self.incidents.count_open()
        for severity in SEVERITIES:
            self._metrics.incidents_open.labels(severity).set(numbers[severity])

    def _changed(self, changes: Iterable[IncidentChange]) -> None:
        for change in changes:
            incident = change.incident
            phase = None if incident.state == "muted" else PHASES.get(change.what)
            queue_id = 0
            if phase:
                queue_id = self.take_queue_id()
            if change.what == "opened":
                self._metrics.incidents.labels(incident.port, incident.severity).inc()
                if incident.state != "muted":  # the title may hold the board's words
                    log.info("%s: incident %d opened: %s, %s, at L%d", incident.port, incident.id,
                             incident.trigger, incident.severity, incident.first_seq)  # fmt: skip
            elif change.was is not None and incident.state != "muted":
                log.info("%s: incident %d is now %s, %s, at L%d; it was %s, %s", incident.port,
                         incident.id, incident.trigger, incident.severity, incident.first_seq,
                         change.was.trigger, change.was.severity)  # fmt: skip
            searched = self.searched.get(incident.port, 0)
            position = self.incidents.matched(incident.port, searched) if searched else 0
            self._store(incident, phase, queue_id, position)
            self._listener.on_incident(change)
            if phase:
                self._wake(incident, phase, queue_id)

    def _store(self, incident: Incident, phase: Phase | None, queue_id: int, position: int) -> None:
        matched = {incident.port: position} if position else {}
        self._db.keep(
            lambda db: incident_rows.save_change(
                db, incident, queue_id=queue_id, queue_phase=phase, matched=matched
            ),
            f"incident {incident.id}",
            replaces=phase is None,
        )
