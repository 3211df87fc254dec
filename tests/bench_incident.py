"""Lines and incidents for tests of the agent, made from what boards print."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from serialwatch.records import HitCount, Incident, Line, Outcome, Severity, Tier

START_UTC_NS = 1_782_000_000_000_000_000
STEP_NS = 10_000_000  # 10 ms from one line to the next


def lines_of(
    text: str,
    port: str = "dut1",
    *,
    first: int = 1,
    boot_at: str = "",
    boot: int = 1,
    step_ns: int = STEP_NS,
) -> list[Line]:
    """Return the lines of `text`; each that has the pattern `boot_at` begins another boot."""
    lines: list[Line] = []
    for seq, raw in enumerate(text.strip("\n").split("\n"), start=first):
        if boot_at and lines and re.search(boot_at, raw):
            boot += 1
        at = START_UTC_NS + seq * step_ns
        lines.append(Line(port, seq, raw.encode(), boot, at, at, seq * step_ns))
    return lines


def line_with(lines: Sequence[Line], pattern: str) -> Line:
    """Return the first line that has the pattern."""
    return next(line for line in lines if re.search(pattern.encode(), line.raw))


def incident_at(
    lines: Sequence[Line],
    fault: str,
    *,
    trigger: str,
    last: str = "",
    first: str = "",
    title: str = "",
    severity: Severity = "critical",
    tier: Tier = "specific",
    fields: Mapping[str, str] | None = None,
    outcome: Outcome | None = None,
    outcome_at: str = "",
    hits: Sequence[tuple[str, str]] = (),
    id: int = 17,
    **more: Any,
) -> Incident:
    """Return a settled incident whose fault line has the pattern `fault`.

    `hits` are more triggers, each with the pattern of its line.
    """
    line = line_with(lines, fault)
    end = line_with(lines, last) if last else line
    counts = [_count(trigger, line, severity, tier, title, fields or {})]
    counts += [_count(t, line_with(lines, p), severity, tier, t, {}) for t, p in hits]
    incident = Incident(
        id=id,
        port=line.port,
        state="open",
        trigger=trigger,
        severity=severity,
        tier=tier,
        title=title or trigger,
        key="",
        fingerprint=f"{trigger}-print",
        ecosystem=trigger.partition(".")[0],
        knowledge=trigger.replace(".", "/"),
        fields=fields or {},
        boot=line.boot,
        first_seq=line.seq,
        block_first=line_with(lines, first).seq if first else line.seq,
        last_seq=end.seq,
        opened_mono_ns=line.mono_ns,
        opened_utc_ns=line.utc_ns,
        last_mono_ns=end.mono_ns,
        last_utc_ns=end.utc_ns,
        count=1,
        hits=tuple(counts),
        is_settled=True,
        outcome=outcome,
        outcome_seq=line_with(lines[end.seq - lines[0].seq :], outcome_at).seq if outcome_at else 0,
    )
    return replace(incident, **more)


def _count(
    trigger: str,
    line: Line,
    severity: Severity,
    tier: Tier,
    title: str,
    fields: Mapping[str, str],
) -> HitCount:
    return HitCount(
        trigger=trigger,
        severity=severity,
        tier=tier,
        title=title or trigger,
        first_seq=line.seq,
        last_seq=line.seq,
        first_utc_ns=line.utc_ns,
        last_utc_ns=line.utc_ns,
        count=1,
        samples=(line.seq,),
        fields=fields,
    )
