"""What is read of an incident by the fixed plan: its lines, numbers, page, memories, registers."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from serialwatch.agent.case import Case, Decoded, Recalled, Surroundings
from serialwatch.agent.device_text import readable
from serialwatch.agent.knowledge import Cause, Page
from serialwatch.agent.queue import Phase
from serialwatch.agent.reflexes.choose import register_lines
from serialwatch.agent.tools import Call, Tools
from serialwatch.records import Incident, Line
from serialwatch.wire import iso

BEFORE = 40  # lines read before the fault's block
AFTER = 60  # and after it
WHOLE = 320  # lines; a longer block is read at its two ends
MAX_TEXT = 1000  # characters of a line that is decoded
NOWHERE = Surroundings()  # nothing is known beside the log


async def read_case(
    incident: Incident, tools: Tools, phase: Phase, around: Surroundings = NOWHERE
) -> Case:
    """Read by the fixed plan: the lines around the fault, numbers, page, memory, registers."""
    async with asyncio.TaskGroup() as tasks:
        reads = [
            tasks.create_task(tools.call("log-read", params), name="log-read")
            for params in _windows(incident)
        ]
        stats = tasks.create_task(tools.call("log-stats", _stats_of(incident)), name="log-stats")
        page = tasks.create_task(_page(incident, tools), name="knowledge-query")
        memory = tasks.create_task(
            tools.call("memory-search", _memory_of(incident)), name="memory-search"
        )
        neighbours = [
            tasks.create_task(
                tools.call("log-read", _line_of(other)), name=f"log-read {other.port}"
            )
            for other in around.neighbours[:4]
        ]
    lines = _lines(incident.port, tools.ledger)
    case = Case(
        incident,
        phase,
        lines,
        page=page.result(),
        recalled=_recalled(memory.result()),
        recalled_result=memory.result().id,
        neighbour_lines={
            other.id: line
            for other in around.neighbours
            if (line := tools.ledger.get((other.port, other.first_seq))) is not None
        },
        around=around,
    )
    del reads, stats, neighbours
    return replace(case, decoded=await _decoded(case, tools))


def _windows(incident: Incident) -> list[dict[str, Any]]:
    """Return the parameters of the reads that show the fault and what is around it."""
    port = incident.port
    first = incident.block_first or incident.first_seq
    if not first:
        return _windows_by_time(incident)
    last = max(incident.last_seq, incident.outcome_seq, incident.first_seq)
    start, end = max(1, first - BEFORE), last + AFTER
    if end - start <= WHOLE:
        return [{"port": port, "first": start, "last": end, "limit": WHOLE}]
    half = WHOLE // 2
    return [
        {"port": port, "first": start, "last": start + half, "limit": half},
        {"port": port, "first": end - half, "last": end, "limit": half},
    ]


def _windows_by_time(incident: Incident) -> list[dict[str, Any]]:
    """No line carries the fault: read what came before it, and what came after."""
    at = iso(incident.opened_utc_ns + 1000)  # ISO has microseconds
    before = {"port": incident.port, "until": at, "limit": BEFORE}
    return [before, {"port": incident.port, "since": at, "limit": BEFORE}]


def _stats_of(incident: Incident) -> dict[str, Any]:
    if not incident.first_seq:
        return {"port": incident.port, "until": iso(incident.opened_utc_ns + 1000)}
    last = max(incident.last_seq, incident.outcome_seq, incident.first_seq)
    return {"port": incident.port, "first": max(1, incident.first_seq - 1000), "last": last}


def _memory_of(incident: Incident) -> dict[str, Any]:
    """Return a query made of our own words: never of what a board printed."""
    words = re.findall(r"[a-z0-9]{2,}", f"{incident.trigger} {incident.ecosystem}".lower())
    return {"query": " ".join(dict.fromkeys(words)), "port": incident.port}


def _line_of(incident: Incident) -> dict[str, Any]:
    first = incident.first_seq
    return {"port": incident.port, "first": first, "last": first, "limit": 1}


def _lines(port: str, ledger: Mapping[tuple[str, int], Line]) -> tuple[Line, ...]:
    return tuple(sorted((x for x in ledger.values() if x.port == port), key=lambda x: x.seq))


async def _page(incident: Incident, tools: Tools) -> Page | None:
    if not incident.knowledge:
        return None
    call = await tools.call("knowledge-query", {"id": incident.knowledge})
    found = call.result.output.get("page") if call.is_good else None
    if not isinstance(found, dict):
        return None
    return Page(
        id=str(found.get("id", "")),
        title=str(found.get("title", "")),
        ecosystem=str(found.get("ecosystem", "")),
        causes=tuple(
            Cause(str(c.get("text", "")), str(c.get("likely", "")), str(c.get("check", "")))
            for c in found.get("causes", ())
        ),
        do=tuple(map(str, found.get("do", ()))),
        never=tuple(map(str, found.get("never", ()))),
        body=str(found.get("body", "")),
        path=Path(),
    )


async def _decoded(case: Case, tools: Tools) -> tuple[Decoded, ...]:
    """Have the fault registers decoded that the lines from the fault on show."""
    lines = register_lines([x for x in case.lines if x.seq >= case.incident.block_first])
    async with asyncio.TaskGroup() as tasks:
        asked = [
            (
                line,
                tasks.create_task(
                    tools.call("register-decode", {"text": readable(line.raw)[:MAX_TEXT]}),
                    name=f"register-decode L{line.seq}",
                ),
            )
            for line in lines
        ]
    every = (found for line, call in asked for found in _decoded_in(line, call.result()))
    first: dict[tuple[str, str, str], Decoded] = {}
    for decoded in every:
        first.setdefault((decoded.name, decoded.value, decoded.meaning), decoded)
    return tuple(first.values())


def _decoded_in(line: Line, call: Call) -> Iterator[Decoded]:
    rows = call.result.output.get("registers") if call.is_good else None
    for row in rows or ():
        if row["known"]:
            yield Decoded(
                name=str(row["register"]),
                value=str(row["value"]),
                line=line,
                meaning=str(row["meaning"]),
                fields={str(k): str(v) for k, v in row["fields"].items()},
                result=call.id,
            )


def _recalled(call: Call) -> tuple[Recalled, ...]:
    found = call.result.output.get("memories") if call.is_good else None
    return tuple(
        Recalled(
            title=str(memory.get("title", "")),
            body=str(memory.get("body", "")),
            age=str(memory.get("age", "")),
            fingerprint=str(memory.get("fingerprint", "")),
            source=str(memory.get("source", "")),
            evidence=tuple(map(str, memory.get("evidence", ()))),
        )
        for memory in found or ()
        if isinstance(memory, Mapping)
    )
