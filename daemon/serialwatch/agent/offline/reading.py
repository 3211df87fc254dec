"""What is read of an incident by the fixed plan: its lines, numbers, page, memories, registers."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from serialwatch.agent.knowledge import Cause, Page
from serialwatch.agent.offline.case import (
    Case,
    Compared,
    Decoded,
    Earlier,
    History,
    OwnState,
    Recalled,
    Recurrence,
    Surroundings,
)
from serialwatch.agent.offline.reflexes.choose import register_lines
from serialwatch.agent.offline.reflexes.own import knows_why
from serialwatch.agent.offline.suspects import is_shared, leading
from serialwatch.agent.queue import Phase
from serialwatch.agent.recall import needs_no_check, query_for, recalled_of
from serialwatch.agent.text.device_text import readable
from serialwatch.agent.workers.tools import Call, Tools
from serialwatch.records import OWN_PORT, Incident, Line
from serialwatch.wire import iso, utc_ns

BEFORE = 40  # lines read before the fault's block
AFTER = 60  # and after it
MAX_EARLIER = 12  # incidents of the port that are looked at
MAX_BESIDE = 3  # incidents of a board beside it
MAX_LEADING = 3  # of them whose line is read
MAX_STARTS = 6  # restarts that are read
MAX_PAGES = 4
MAX_DIFFERENT = 8  # lines that are new or missing in a boot
WHOLE = 320  # lines; a longer block is read at its two ends
MAX_TEXT = 1000  # characters of a line that is decoded
NOWHERE = Surroundings()  # nothing is known beside the log


async def read_case(
    incident: Incident, tools: Tools, phase: Phase, around: Surroundings = NOWHERE
) -> Case:
    """Read by the fixed plan: the lines around the fault, numbers, page, memory, registers."""
    memory = await tools.call("memory-search", query_for(incident))
    recalled = _recalled(memory)
    checked = needs_no_check(incident, recalled)
    is_own = incident.port == OWN_PORT  # which has no log
    async with asyncio.TaskGroup() as tasks:
        reads = [
            tasks.create_task(tools.call("log-read", params), name="log-read")
            for params in (*_windows(incident), *_starts(incident))
            if not is_own
        ]
        if "log-stats" not in checked and not is_own:
            tasks.create_task(tools.call("log-stats", _stats_of(incident)), name="log-stats")
        pages = {
            trigger: tasks.create_task(_page(page_id, tools), name=f"knowledge-query {page_id}")
            for trigger, page_id in _pages_of(incident).items()
        }
        history = tasks.create_task(
            tools.call("incident-history", {"port": incident.port, "limit": MAX_EARLIER}),
            name="incident-history",
        )
        neighbours = [
            tasks.create_task(
                tools.call("log-read", _line_of(other)), name=f"log-read {other.port}"
            )
            for other in around.neighbours[:4]
        ]
        beside = {
            other.id: tasks.create_task(
                tools.call("incident-history", {"port": other.port, "limit": MAX_BESIDE}),
                name=f"incident-history {other.port}",
            )
            for other in around.neighbours[:MAX_LEADING]
        }
        own = (
            tasks.create_task(tools.call("port-status", {"port": OWN_PORT}), name="port-status")
            if is_own
            else None
        )
    lines = _lines(incident.port, tools.ledger)
    case = Case(
        incident,
        phase,
        lines,
        page=pages[incident.trigger].result() if incident.trigger in pages else None,
        recalled=recalled,
        recalled_result=memory.id,
        neighbour_lines={
            other.id: line
            for other in around.neighbours
            if (line := tools.ledger.get((other.port, other.first_seq))) is not None
        },
        neighbour_results={of: task.result().id for of, task in beside.items()},
        around=around,
        pages={trigger: page for trigger, task in pages.items() if (page := task.result())},
        history=_history(history.result(), incident),
        own=_own_state(own.result()) if own is not None else OwnState(),
    )
    if knows_why(case.own) and case.page is not None:
        page = replace(case.page, causes=())
        case = replace(case, page=page, pages={**case.pages, incident.trigger: page})
    del reads, neighbours
    # What is read from here on lies elsewhere in the log: it is none of the lines around the fault.
    decoded = await _decoded(case, tools)
    checked = needs_no_check(incident, recalled, case)  # the lines may speak against it
    is_wanted = "boot-compare" not in checked and _is_comparable(incident, phase)
    compared = await _compared(incident, tools) if is_wanted else None
    earlier_lines = await _lines_of(leading(case), case, tools)
    more = await _pages_of_roots(case, tools)
    return replace(
        case,
        decoded=decoded,
        compared=compared,
        earlier_lines=earlier_lines,
        pages={**more, **case.pages},
    )


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


def _starts(incident: Incident) -> list[dict[str, Any]]:
    """Return the parameters of the reads that show each restart of one that came several times."""
    is_restart = incident.trigger.endswith((".unexpected_reboot", "boot.loop"))
    if not is_restart or incident.count < 2 or not incident.hits:
        return []
    return [
        {"port": incident.port, "first": max(1, seq - 2), "last": seq + 12, "limit": 15}
        for seq in incident.hits[0].samples[1:MAX_STARTS]
    ]


def _windows_by_time(incident: Incident) -> list[dict[str, Any]]:
    """No line carries the fault: read what came before it, and what came after."""
    at = iso(incident.fault_utc_ns + 1000)  # ISO has microseconds
    before = {"port": incident.port, "until": at, "limit": BEFORE}
    return [before, {"port": incident.port, "since": at, "limit": BEFORE}]


def _stats_of(incident: Incident) -> dict[str, Any]:
    if not incident.first_seq:
        return {"port": incident.port, "until": iso(incident.fault_utc_ns + 1000)}
    last = max(incident.last_seq, incident.outcome_seq, incident.first_seq)
    return {"port": incident.port, "first": max(1, incident.first_seq - 1000), "last": last}


def _line_of(incident: Incident) -> dict[str, Any]:
    first = incident.first_seq
    return {"port": incident.port, "first": first, "last": first, "limit": 1}


def _lines(port: str, ledger: Mapping[tuple[str, int], Line]) -> tuple[Line, ...]:
    return tuple(sorted((x for x in ledger.values() if x.port == port), key=lambda x: x.seq))


def _pages_of(incident: Incident) -> dict[str, str]:
    """Return which pages to read, by trigger: that of the incident, and of what else failed."""
    pages = {incident.trigger: incident.knowledge} if incident.knowledge else {}
    for hit in incident.hits:
        if hit.severity != "note" and len(pages) < MAX_PAGES:
            pages.setdefault(hit.trigger, hit.knowledge or hit.trigger)
    return pages


async def _pages_of_roots(case: Case, tools: Tools) -> dict[str, Page]:
    """Read the pages of what may have led to the incident, outside of it."""
    roots = [e.trigger for e in leading(case)][:MAX_LEADING]
    roots += [i.trigger for i in case.around.neighbours[:MAX_LEADING] if is_shared(i.trigger)]
    wanted = [trigger for trigger in dict.fromkeys(roots) if trigger not in case.pages]
    async with asyncio.TaskGroup() as tasks:
        asked = {
            trigger: tasks.create_task(_page(trigger, tools), name=f"knowledge-query {trigger}")
            for trigger in wanted
        }
    return {trigger: page for trigger, task in asked.items() if (page := task.result())}


async def _page(page_id: str, tools: Tools) -> Page | None:
    call = await tools.call("knowledge-query", {"id": page_id})
    found = call.result.output.get("page") if call.is_good else None
    if not isinstance(found, dict):
        return None
    return Page(
        id=str(found.get("id", "")),
        title=str(found.get("title", "")),
        ecosystem=str(found.get("ecosystem", "")),
        causes=tuple(map(_cause, found.get("causes", ()))),
        do=tuple(map(str, found.get("do", ()))),
        never=tuple(map(str, found.get("never", ()))),
        body=str(found.get("body", "")),
        path=Path(),
    )


def _cause(found: Mapping[str, Any]) -> Cause:
    return Cause(
        str(found.get("text", "")),
        str(found.get("likely", "")),
        str(found.get("check", "")),
        *(tuple(map(str, found.get(name, ()))) for name in ("rules", "lines", "unless")),
    )


def _own_state(call: Call) -> OwnState:
    facts = call.result.output if call.is_good else {}
    return OwnState(facts, call.id) if "disk" in facts else OwnState()


def _history(call: Call, incident: Incident) -> History:
    """Return the incidents before this one, and how regularly the same fault came."""
    output = call.result.output if call.is_good else {}
    earlier = [
        Earlier(
            id=int(row["id"]),
            trigger=str(row["trigger"]),
            title=str(row["title"]),
            first_seq=int(row.get("first_seq") or 0),
            boot=int(row.get("boot") or 0),
            opened_utc_ns=utc_ns(str(row["opened_at"])),
            outcome=str(row.get("outcome") or ""),
            fingerprint=str(row.get("fingerprint") or ""),
        )
        for row in output.get("incidents", ())
        if row["id"] != incident.id
    ]
    recurrence: Recurrence | None = None
    for row in output.get("recurrence", ()):
        if row["fingerprint"] == incident.fingerprint:
            gaps = row["interval_s"]
            boots = row.get("boots", {})
            recurrence = Recurrence(
                int(row["times"]),
                gaps["shortest"],
                gaps["median"],
                gaps["longest"],
                int(boots.get("with", 0)),
                int(boots.get("of", 0)),
            )
    return History(
        tuple(e for e in earlier if e.opened_utc_ns <= incident.opened_utc_ns),
        recurrence,
        call.id,
    )


def _is_comparable(incident: Incident, phase: Phase) -> bool:
    """Tell whether an earlier boot can show what was new in this one; the first report is quick."""
    is_of_the_boot = not incident.trigger.startswith(("boot.", "link.", "rate."))
    is_of_the_boot &= not incident.trigger.endswith(".unexpected_reboot")
    return phase != "opened" and incident.boot > 1 and incident.first_seq > 0 and is_of_the_boot


async def _compared(incident: Incident, tools: Tools) -> Compared | None:
    """Return what differs before the fault; lines of the fault itself are new in any case."""
    params = {"port": incident.port, "boot": incident.boot, "limit": MAX_DIFFERENT}
    call = await tools.call("boot-compare", params)
    output = call.result.output if call.is_good else {}
    if not output or output.get("no_data"):
        return None

    def lines(rows: Iterable[Mapping[str, Any]], key: str) -> tuple[Line, ...]:
        found = (tools.ledger.get((incident.port, int(row[key]))) for row in rows if row.get(key))
        return tuple(line for line in found if line is not None)

    before = incident.block_first or incident.first_seq
    parting = output.get("divergence") or {}
    here = lines([parting.get("here") or {}], "seq")
    there = lines([parting.get("base") or {}], "base_seq")
    is_before = bool(here and there and here[0].seq <= incident.first_seq)
    is_before &= not any(_tells_another_boot(x) for x in (*here, *there))
    return Compared(
        base=int(output["base"]["number"]),
        is_good=output["base"].get("is_good") is True,
        new=tuple(
            x
            for x in lines(output.get("new", ()), "seq")
            if x.seq < before and not _tells_another_boot(x)
        ),
        missing=tuple(
            x for x in lines(output.get("missing", ()), "base_seq") if not _tells_another_boot(x)
        ),
        parting=(here[0], there[0]) if is_before else None,
        result=call.id,
    )


def _tells_another_boot(line: Line) -> bool:
    """Tell whether a line says how the boot before ended, or is a prompt with what came behind."""
    return _NO_DIFFERENCE.search(readable(line.raw)) is not None


_NO_DIFFERENCE = re.compile(
    r"\b(?:re)?(?:set|start|boot)s?\b.{0,30}\b(?:cause|reason|status|by|generated)\b|\brst[:_ ]"
    r"|\b(?:cause|reason)\b.{0,30}\breset|\w+ reset \(rst_|brown-?out|^\S+ login:",
    re.IGNORECASE,
)


async def _lines_of(earlier: Iterable[Earlier], case: Case, tools: Tools) -> dict[int, Line]:
    """Return the first line of each earlier incident that may have led to this one."""
    port = case.incident.port
    wanted = [one for one in earlier if one.first_seq][:MAX_LEADING]
    async with asyncio.TaskGroup() as tasks:
        for one in wanted:
            if case.line(one.first_seq) is None:
                params = {"port": port, "first": one.first_seq, "last": one.first_seq, "limit": 1}
                tasks.create_task(tools.call("log-read", params), name=f"log-read {one.first_seq}")
    found = {one.id: tools.ledger.get((port, one.first_seq)) for one in wanted}
    return {of: line for of, line in found.items() if line is not None}


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
    return tuple(recalled_of(row) for row in found or () if isinstance(row, Mapping))
