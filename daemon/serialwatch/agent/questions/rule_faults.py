"""What happened and why: incidents as their reports explain them, and boots without one."""

from __future__ import annotations

import re
from collections.abc import Awaitable, Callable, Mapping, Sequence
from functools import partial

from serialwatch.agent.offline.case import name
from serialwatch.agent.questions.rule_lookup import (
    EVENT_NAMES,
    MAX_TOLD,
    USUAL_DAYS,
    USUAL_HOURS,
    Lookup,
    concluded,
    ends_of,
    fits,
    gravity,
    incident_of,
    plural,
    report_of,
    told_of,
)
from serialwatch.agent.questions.yes_no import of_incidents
from serialwatch.agent.workers.tools import Call
from serialwatch.records import Incident, Line, NextStep, Report
from serialwatch.store.boots import BootRow
from serialwatch.wire import Json, utc_ns


async def what_happened(look: Lookup) -> None:
    """Tell which incidents there were, and what boards did."""
    draft, where = look.draft, look.where()
    found, call = await look.incidents()
    when = look.when(look.usual)
    look.reply(of_incidents(found, is_now=look.asked.is_now and not look.is_of_a_time))
    if not found:
        await _nothing_happened(look, call, when)
        return
    if len(found) == 1 and found[0].get("report"):
        await tell_of_incident(look, int(found[0]["id"]))
        if len(look.ports) == 1:
            await look.tell_boots(look.ports[0])
        return
    ranked = sorted(found, key=gravity, reverse=True)
    worst, lead = ranked[0], look.leading(found)
    shown = _shown(look, ranked, lead)
    lines = await look.first_lines(shown)
    draft.severity = worst["severity"]
    for row in shown:
        look.tell_incident(row, lines.get(row["id"]), call, _relation(row, lead))
    what = EVENT_NAMES[look.asked.event]
    counted = draft.count(len(found), what, plural(what))
    if len(found) == 1:
        draft.title = concluded(found[0])
    elif lead is not None:
        which = "nearest" if look.moment else look.asked.turn
        at = draft.at(utc_ns(lead["fault_at"]))
        draft.title = f"{at}: {concluded(lead)}; the {which} of {counted} {where}{when}"
    else:
        alike = sum(row["severity"] == worst["severity"] for row in found)
        the_worst = (
            "the worst" if alike == 1
            else f"{draft.count(alike, 'of them')[:-1]} {worst['severity']}, such as"
        )  # fmt: skip
        draft.title = f"{counted} {where}{when}; {the_worst}: {concluded(worst)}"
    look.leave_out_incidents([row for row in found if row not in shown])
    if len(look.ports) == 1:
        await look.tell_boots(look.ports[0])
    look.point_to_reports(shown)


def _shown(look: Lookup, ranked: Sequence[Json], lead: Json | None) -> list[Json]:
    """Return the incidents that are told: what is asked for first, the worst among them."""
    if look.moment is not None:
        order = sorted(ranked, key=look.distance_s)
    else:
        order = list(ranked) if lead is None else [lead, *(r for r in ranked if r is not lead)]
    shown = order[:MAX_TOLD]
    if ranked[0] not in shown:
        shown[-1] = ranked[0]
    return sorted(shown, key=lambda row: (row is not lead, utc_ns(row["fault_at"])))


def _relation(row: Json, lead: Json | None) -> str:
    """Return how an incident stands in time to the one that leads."""
    if lead is None or row is lead:
        return ""
    is_before = utc_ns(row["fault_at"]) < utc_ns(lead["fault_at"])
    return "Before it, " if is_before else "After it, "


async def _nothing_happened(look: Lookup, call: Call, when: str) -> None:
    draft = look.draft
    wanted = f"{EVENT_NAMES[look.asked.event]}"
    if len(look.ports) != 1:
        names = draft.count(len(look.ports), "board")
        draft.title = f"No {wanted} was noticed on any of {names}{when}."
        draft.say(draft.title, results=[call.id])
        return
    port = look.ports[0]
    stats = await look.stats(port)
    lines = [] if stats is None else await look.read(port, ends_of(stats))
    if stats is None or not lines:
        draft.title = f"{port} printed nothing{when}, and no {wanted} was noticed."
        if look.is_long:
            draft.title = f"No {wanted} was noticed on {port}{when}."
        draft.say(draft.title, results=[call.id])
        return
    counted = draft.count(int(stats["lines"]), "line")
    last = f", the last at {draft.at(lines[-1].utc_ns)}"
    if not stats.get("is_complete", True):  # the count ended before the time did
        counted, last = f"more than {counted}", ""
    ago = f" in the last {USUAL_HOURS} hours" if look.is_long else ""
    more = "" if look.is_long else f"; it printed {counted}"
    draft.title = f"No {wanted} was noticed on {port}{when}{more}."
    draft.say(f"It printed {counted}{ago}{last}.", lines, results=[look.last_id])
    await look.tell_boots(port)
    draft.not_checked.append("lines that no rule knows as a fault")


async def why(look: Lookup, how_it_stands: Callable[[Lookup], Awaitable[None]]) -> None:
    """Tell what the incident that fits best was, and why it came.

    A board that is silent now for no reason that is known gets told how it stands.
    """
    asked, port = look.asked, look.ports[0]
    found, call = await look.incidents(is_event=False)
    fitting = [row for row in found if fits(row, asked.event)]
    if not fitting and asked.event == "reset":
        await _why_no_fault(look, port)
        return
    may_stop = fitting or [row for row in found if fits(row, "crash")]
    if asked.event == "hang" and not may_stop and not look.is_of_a_time:
        await how_it_stands(look)
        look.draft.title = f"No hang of {port} was noticed: {look.draft.title}"
        return
    serious = [row for row in found if row["severity"] != "note"]
    chosen = look.leading(fitting or serious or found)
    chosen = chosen or next(iter(fitting or serious or found), None)
    if fitting and asked.event == "reset" and look.moment is not None:
        boot = await _boot_at(look, port)
        before = [row for row in fitting if boot is not None and _is_before(row, boot)]
        if before:
            chosen = look.leading(before)
        elif (
            boot is not None
            and chosen is not None
            and look.seconds_from_moment(boot.utc_ns) < look.distance_s(chosen)
        ):
            await _why_no_fault(look, port)
            return
    if chosen is None:
        event = EVENT_NAMES[asked.event]
        when = look.when(f" in the last {USUAL_DAYS} days".lstrip())
        look.draft.title = f"No {event} of {port} was noticed{when}: nothing to explain."
        look.draft.know(USUAL_DAYS)
        await look.tell_boots(port)
        look.say_bare(look.draft.title)
        return
    await tell_of_incident(look, int(chosen["id"]), is_why=True)
    rest = [row for row in fitting if row is not chosen]
    if look.leading(found) is not None:
        at = look.draft.at(utc_ns(chosen["fault_at"]))
        look.draft.title = f"{at}: {look.draft.title}"
        by_time = sorted(rest, key=lambda row: abs(_apart_ns(row, chosen)))
        lines = await look.first_lines(by_time[:2])
        for row in by_time[:2]:
            look.tell_incident(row, lines.get(row["id"]), call, _relation(row, chosen))
        rest = by_time[2:]
    if rest:
        more = look.draft.count(len(rest), "other incident")
        named = ", ".join(f"#{row['id']}" for row in rest[:MAX_TOLD])
        and_more = ", ..." if len(rest) > MAX_TOLD else ""
        look.draft.not_checked.append(
            f"{more}{_FITTING[asked.event]} ({named}{and_more}): `serialwatch incidents --all`"
        )


_FITTING = {
    "": "",
    "reset": " with a reset",
    "hang": " with a hang",
    "crash": ", critical or a crash",
}


def _apart_ns(row: Json, other: Json) -> int:
    return utc_ns(row["fault_at"]) - utc_ns(other["fault_at"])


async def _boot_at(look: Lookup, port: str) -> BootRow | None:
    """Return the boot nearest to the moment that is asked about."""
    boots = await look.boots(port)
    return min(boots, key=lambda boot: look.seconds_from_moment(boot.utc_ns), default=None)


def _is_before(row: Json, boot: BootRow) -> bool:
    """Tell whether an incident may have ended in that boot."""
    if row["trigger"].startswith("boot."):
        return bool(row.get("boot") == boot.number)
    return bool(row.get("boot") == boot.number - 1)


async def _why_no_fault(look: Lookup, port: str) -> None:
    """Tell of a boot before which no fault was noticed."""
    draft = look.draft
    boots = await look.boots(port)
    if not boots:
        draft.title = f"No boot of {port} was seen{look.when('')}."
        await look.stats(port)
        look.say_bare(draft.title)
        return
    boot = boots[0]
    if look.moment is not None:
        boot = await _boot_at(look, port) or boot
    elif look.asked.turn == "first":
        boot = boots[-1]
    lines = await look.read(port, [boot.seq - 1, boot.seq])
    at = draft.at(boot.utc_ns)
    draft.know(boot.number)
    draft.title = f"{port} booted at {at}, and no fault was noticed before it."
    first = next((line for line in lines if line.seq == boot.seq), None)
    before = next((line for line in lines if line.seq == boot.seq - 1), None)
    draft.mark(first, f"boot #{boot.number}")
    draft.say(f"It booted at {at} {told_of(boot)}.", [first])
    if boot.is_expected:
        draft.say("The boot was expected: a flash, a reset or a mark came before it.", [first])
    draft.say("This is the last line before it; it names no fault.", [before])
    if boot.number > 2:
        await _tell_difference(look, port, boot.number - 1, boot.seq)
    draft.verdict, draft.confidence = "inconclusive", 0.3
    draft.unknowns.append("not enough information to say why: the log shows no fault before it")


async def tell_of_incident(look: Lookup, number: int, *, is_why: bool = False) -> None:
    """Tell what is known of one incident."""
    draft = look.draft
    incident = await look.past(partial(incident_of, number=number))
    if incident is None:
        draft.title = f"There is no incident {number}."
        draft.know(number)
        draft.unknowns.append("which incidents there are: `serialwatch incidents --all`")
        return
    report = await look.past(partial(report_of, number=number))
    history = await look.call(
        "incident-history", {"class": incident.trigger, "port": incident.port, "limit": 8}
    )
    draft.know(number, incident.boot, incident.title)
    draft.severity, draft.fault_class = incident.severity, incident.trigger
    lines = await look.cited_lines(incident, report)
    fault = lines.get((incident.port, incident.first_seq))
    draft.mark(fault, "first fault line")
    at = draft.at(incident.fault_utc_ns)
    if report is None:
        draft.title = incident.title
        draft.say(f"{at}: {incident.title}.", [fault], results=[history.id])
        draft.unknowns.append("its cause: there is no report yet")
    else:
        _tell_report(look, incident, report, lines)
    if is_why and incident.boot > 1:
        await _tell_difference(look, incident.port, incident.boot, incident.first_seq)
    _tell_recurrence(look, incident, history, fault)
    await _tell_remembered(look, incident, report, fault)
    if draft.verdict == "inconclusive":
        draft.unknowns.append("not enough information to say why")
    draft.steps.append(NextStep(f"`serialwatch report {number}` has the whole report"))


def _tell_report(
    look: Lookup, incident: Incident, report: Report, lines: Mapping[tuple[str, int], Line]
) -> None:
    draft = look.draft
    draft.title, draft.verdict, draft.confidence = (
        report.title, report.verdict, report.confidence,
    )  # fmt: skip
    # What its report says was checked when it was written.
    draft.know(report.title, *(c.claim for c in report.conclusions))
    draft.know(*report.unknowns, *report.not_checked, *(h.text for h in report.hypotheses))
    for told in report.conclusions[:6]:
        read = [lines.get((e.port, e.seq)) for e in told.evidence]
        draft.say(told.claim, read, knowledge=told.knowledge, kind=told.kind)
    if incident.outcome:
        end = lines.get((incident.port, incident.outcome_seq))
        draft.mark(end, f"the board {incident.outcome}")
    draft.hypotheses += [h for h in report.hypotheses if h.status == "open"][:3]
    draft.unknowns += report.unknowns[:3]
    draft.not_checked += report.not_checked[:3]


async def _tell_difference(look: Lookup, port: str, boot: int, before_seq: int) -> None:
    """Tell what a boot printed before `before_seq` that the last good one did not."""
    call = await look.call("boot-compare", {"port": port, "boot": boot})
    output = call.result.output
    if not call.is_good or output.get("no_data"):
        return
    base = output["base"]["number"]
    fresh = [
        row for row in output.get("new", ())
        if row["seq"] < before_seq and row.get("level") in ("warning", "error", "critical")
    ]  # fmt: skip
    for row in fresh[:2]:
        line = look.tools.ledger.get((port, row["seq"]))
        times = f", {row['count']} times" if row.get("count", 1) > 1 else ""
        look.draft.mark(line, "new in this boot")
        look.draft.say(
            f"Before it, and not in boot {base}: {name(row['text'], 120)}{times}.",
            [line, *look.any_line_of(port, base)],
            results=[call.id],
        )


def _tell_recurrence(look: Lookup, incident: Incident, history: Call, fault: Line | None) -> None:
    draft = look.draft
    same = [
        row for row in history.result.output.get("recurrence", ())
        if row["fingerprint"] == incident.fingerprint
    ]  # fmt: skip
    if same:
        others = [n for n in same[0]["ids"] if n != incident.id][:5]
        named = ", ".join(f"#{n}" for n in others)
        draft.know(*others)
        times = draft.count(same[0]["times"], "time")
        draft.say(
            f"The same fault came {times} on this port; also {named}.",
            [fault],
            results=[history.id],
        )


async def _tell_remembered(
    look: Lookup, incident: Incident, report: Report | None, fault: Line | None
) -> None:
    """Tell what a person has said about this fault, unless the report has it."""
    words = re.findall(r"[a-z0-9]{2,}", f"{incident.trigger} {incident.ecosystem}".lower())
    call = await look.call(
        "memory-search", {"query": " ".join(dict.fromkeys(words)), "port": incident.port}
    )
    known = " ".join(c.claim for c in report.conclusions) if report else ""
    for memory in call.result.output.get("memories", ()):
        body = name(str(memory["body"]), 160)
        if memory["source"] == "human" and body not in known:
            words_of = f"A person noted{_age(memory)}: {body}"
            look.draft.say(words_of, [fault], results=[call.id])


def _age(memory: Json) -> str:
    return f", {memory['age']}" if memory.get("age") else ""
