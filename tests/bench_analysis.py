"""A saved stream through the real triggers, incidents and analyst, in this process."""

from __future__ import annotations

import functools
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from bench_incident import START_UTC_NS
from serialwatch.agent.knowledge import Knowledge, load_knowledge
from serialwatch.agent.offline.analyst import investigate
from serialwatch.agent.offline.case import Surroundings
from serialwatch.agent.offline.reading import NOWHERE
from serialwatch.agent.skills.registry import Registry, load_skills
from serialwatch.agent.workers.direct import DirectTools
from serialwatch.agent.workers.tools import RunTools
from serialwatch.bundled import bundled_dir
from serialwatch.incidents.incidents import Incidents
from serialwatch.records import Boot, Finding, Incident, Line, Lines, Report
from serialwatch.triggers.matcher import Matcher
from serialwatch.triggers.rules import load_rules
from serialwatch.triggers.watch import PortWatch

S = 1_000_000_000


@dataclass(frozen=True)
class Seen:
    """What a stream led to."""

    lines: list[Line]
    incidents: list[Incident]  # as they stand in the end

    def of(self, trigger: str) -> Incident:
        """Return the incident with that primary trigger."""
        return next(i for i in self.incidents if i.trigger == trigger)


def get_ready() -> None:
    """Load everything, which takes too long for a loop; call it from a fixture."""
    matcher()
    skills()
    knowledge()


@functools.cache
def matcher() -> Matcher:
    """Return the bundled rules, compiled once."""
    return Matcher(load_rules([bundled_dir("config/rules")]))


@functools.cache
def skills() -> Registry:
    """Return the bundled skills."""
    return load_skills([bundled_dir("skills")])


@functools.cache
def knowledge() -> Knowledge:
    """Return the bundled knowledge base."""
    return load_knowledge([bundled_dir("config/knowledge")])


@functools.cache
def watched(stream: bytes | Path, port: str = "dut1", line_ms: int = 20) -> Seen:
    """Return what the daemon would have seen, one line each `line_ms`, then two minutes more."""
    data = stream.read_bytes() if isinstance(stream, Path) else stream
    watch = PortWatch(port, matcher())
    incidents = Incidents(next_id=17)
    now = {}
    raws = data.rstrip(b"\n").split(b"\n")
    boots: list[Boot] = []

    def take(findings: Sequence[Finding], at_ns: int) -> None:
        for finding in findings:
            if isinstance(finding, Boot):
                boots.append(finding)
            for change in incidents.found(finding):
                now[change.incident.id] = change.incident
        for change in incidents.tick(at_ns, START_UTC_NS + at_ns):
            now[change.incident.id] = change.incident

    for seq, raw in enumerate(raws, start=1):
        at_ns = seq * line_ms * 1_000_000
        lines = Lines(seq, 1, raw + b"\n", at_ns, START_UTC_NS + at_ns)
        take(watch.fed(lines), at_ns)
        incidents.lines(port, 1, at_ns)
        take(watch.tick(at_ns, START_UTC_NS + at_ns), at_ns)
    end_ns = len(raws) * line_ms * 1_000_000
    for later_ns in range(0, 130 * S, S // 2):
        at_ns = end_ns + later_ns
        take(watch.tick(at_ns, START_UTC_NS + at_ns), at_ns)
    return Seen(_lines(raws, port, boots, line_ms), list(now.values()))


async def reported(
    seen: Seen, incident: Incident, around: Surroundings = NOWHERE
) -> tuple[Report, RunTools]:
    """Return the baseline's report on an incident of a stream."""
    async with DirectTools(incident.port, seen.lines, skills(), knowledge()) as direct:
        tools = direct.open("run-1", incident.id)
        return await investigate(incident, tools, "settled", None, around), tools


def _lines(raws: Sequence[bytes], port: str, boots: Sequence[Boot], line_ms: int) -> list[Line]:
    lines = []
    for seq, raw in enumerate(raws, start=1):
        at_ns = seq * line_ms * 1_000_000
        number = max((b.number for b in boots if b.seq <= seq), default=0)
        line = Line(port, seq, raw.rstrip(b"\r"), number, START_UTC_NS + at_ns, 0, at_ns)
        lines.append(replace(line, last_utc_ns=line.utc_ns))
    return lines
