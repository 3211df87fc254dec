"""How often, when last, and on which boards."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

from serialwatch.agent.offline.case import name
from serialwatch.agent.questions.rule_lookup import (
    ANY_FAULT,
    EVENT_NAMES,
    MAX_BOOTS,
    MAX_PORTS,
    MAX_TOLD,
    USUAL_HOURS,
    Lookup,
    concluded,
    ends_of,
    plural,
    stem,
    told_of,
)
from serialwatch.wire import Json, utc_ns


async def how_often(look: Lookup) -> None:
    """Count boots, incidents or lines."""
    asked = look.asked
    if asked.event == "reset":
        await _count_boots(look)
    elif asked.event or ANY_FAULT.fullmatch(asked.topic):
        await _count_incidents(look)
    else:
        await _count_lines(look)


async def _count_boots(look: Lookup, *, is_which: bool = False) -> None:
    draft, when = look.draft, look.when("as far as the log goes back")
    counts: Counter[str] = Counter()
    for port in look.ports[:MAX_PORTS]:
        boots = await look.boots(port)
        counts[port] = len(boots)
        named = boots[:MAX_TOLD][::-1]
        stats = await look.stats(port)
        lines = await look.read(port, [boot.seq for boot in named])
        if not boots:
            if stats is not None:
                ends = await look.read(port, ends_of(stats))
                draft.say(f"{port} did not boot{when}.", ends, results=[look.last_id])
            continue
        times = ", ".join(f"{draft.at(b.utc_ns)} (boot {b.number})" for b in named)
        more = "the newest: " if len(boots) > len(named) else ""
        draft.know(*(b.number for b in named))
        for boot, line in zip(named, lines, strict=False):
            draft.mark(line, f"boot #{boot.number}")
        expected = sum(boot.is_expected for boot in boots)
        note = "; that was expected" if len(boots) == 1 else f"; {expected:,} of them were expected"
        draft.know(expected)
        note = note if expected else ""
        counted = draft.count(len(boots), "time")
        counted = f"at least {counted}" if len(boots) == MAX_BOOTS else counted
        draft.say(f"{port} booted {counted}{when}{note}; {more}{times}.", lines)
    look.leave_out_ports()
    total = sum(counts.values())
    look.reply("Yes" if total else "No")
    who = look.ports[0] if len(look.ports) == 1 else "The boards"
    draft.title = (
        f"{who} booted {draft.count(total, 'time')}{when}." if total
        else f"{who} did not boot{when}."
    )  # fmt: skip
    if is_which:
        booted = [port for port, number in counts.items() if number]
        draft.title = f"{_listed(booted) or 'None of the boards'} booted{when}."


async def _count_incidents(look: Lookup) -> None:
    draft, asked = look.draft, look.asked
    found, call = await look.incidents()
    when = look.when(f"in the last {USUAL_HOURS} hours")
    what = EVENT_NAMES[asked.event]
    draft.title = f"{draft.count(len(found), what, plural(what))} {look.where()}{when}."
    look.reply("Yes" if found else "No")
    lines = await look.first_lines(found[:MAX_TOLD])
    for row in found[:MAX_TOLD]:
        look.tell_incident(row, lines.get(row["id"]), call)
    look.leave_out_incidents(found[MAX_TOLD:])
    if not found:
        draft.say(draft.title, results=[call.id])
    look.point_to_reports(found)


async def _count_lines(look: Lookup) -> None:
    draft, topic = look.draft, look.asked.topic
    word = stem(topic)
    when = look.when(f"in the last {USUAL_HOURS} hours")
    total, is_complete = 0, len(look.ports) <= MAX_PORTS
    for port in look.ports[:MAX_PORTS]:
        stats = await look.stats(port, word)
        is_complete &= stats is None or bool(stats.get("is_complete", True))
        if stats is None or not stats["lines"]:
            continue
        total += int(stats["lines"])
        await tell_lines(look, port, word, stats)
    found, call = await look.incidents()
    fitting = await look.about(found, word)
    look.leave_out_ports()
    lines = await look.first_lines(fitting[:MAX_TOLD])
    for row in fitting[:MAX_TOLD]:
        look.tell_incident(row, lines.get(row["id"]), call)
    look.leave_out_incidents(fitting[MAX_TOLD:])
    shown = name(word, 60)
    draft.title = (
        f"{draft.count(total, 'line')} {look.where()}{when} with {shown!r}, "
        f"{draft.count(len(fitting), 'incident')}."
    )
    draft.know(shown)
    look.reply("Yes" if total or fitting else "No" if is_complete else "Not as far as was read")
    if not total and not fitting:
        draft.title = f"Nothing {look.where()}{when} has {shown!r}."
        draft.say(draft.title, results=[call.id])


async def tell_lines(look: Lookup, port: str, word: str, stats: Json) -> None:
    """Tell how many lines have a word, with the first and the last of them."""
    draft, result = look.draft, look.last_id
    ends = sorted({n for s in stats["shapes"] for n in (s["first"], s["last"])})
    lines = [
        x for n in dict.fromkeys(ends[:1] + ends[-1:]) if (x := look.tools.ledger.get((port, n)))
    ]
    counted = draft.count(int(stats["lines"]), "line")
    times = [draft.at(line.utc_ns) for line in lines]
    span = f", the first at {times[0]}, the last at {times[-1]}" if len(lines) > 1 else ""
    kinds = draft.count(len(stats["shapes"]), "kind")
    of = f" of {kinds}" if len(stats["shapes"]) > 1 else ""
    least = "" if stats.get("is_complete", True) else "at least "
    draft.know(name(word, 60))
    claim = f"{port}: {least}{counted}{of} with {name(word, 60)!r}{span}."
    draft.say(claim, lines, results=[result])


async def last_boot(look: Lookup) -> None:
    """Tell when each board booted last."""
    draft = look.draft
    told: list[str] = []
    for port in look.ports[:MAX_PORTS]:
        boots = await look.boots(port)
        if not boots:
            draft.unknowns.append(f"when {port} booted: no boot was seen")
            continue
        is_first = look.asked.turn == "first"
        boot = boots[-1 if is_first else 0]
        if is_first and len(boots) == MAX_BOOTS:
            draft.not_checked.append(f"boots before boot {boot.number} of {port}")
        lines = await look.read(port, [boot.seq])
        at = draft.at(boot.utc_ns)
        draft.know(boot.number, boot.seq)
        for line in lines:
            draft.mark(line, f"boot #{boot.number}")
        ready = ""
        if boot.ready_utc_ns is not None:
            seconds = f"{(boot.ready_utc_ns - boot.utc_ns) / 1e9:.1f}"
            draft.know(seconds)
            ready = f"; it was ready {seconds} s later"
        turn = "first" if is_first else "last"
        told.append(f"{port} {turn} booted at {at} {told_of(boot)}")
        draft.say(f"{told[-1]}{ready}.", lines)
    look.leave_out_ports()
    if 0 < len(told) <= 2:
        draft.title = f"{'; '.join(told)}."
    elif told:
        draft.title = f"{draft.count(len(told), 'board')} with a boot in their log."
    else:
        draft.title = f"No boot was seen {look.where()}."


async def which_ports(look: Lookup) -> None:
    """Tell which boards had something."""
    draft, asked = look.draft, look.asked
    if asked.event == "reset":
        await _count_boots(look, is_which=True)  # an incident is no boot
        return
    found, call = await look.incidents()
    word = "" if not asked.topic or ANY_FAULT.fullmatch(asked.topic) else stem(asked.topic)
    fitting = await look.about(found, word) if word else found
    when = look.when(f"in the last {USUAL_HOURS} hours")
    newest = {row["port"]: row for row in reversed(fitting)}
    lines = await look.first_lines(list(newest.values()))
    for port, row in newest.items():
        number = sum(other["port"] == port for other in fitting)
        at = draft.at(utc_ns(row["fault_at"]))
        draft.say(
            f"{port}: {draft.count(number, 'incident')}, the last at {at}: {concluded(row)}.",
            [lines.get(row["id"])],
            results=[look.told_in.get(row["id"], call.id)],
        )
    named = set(newest)
    if word:
        for port in look.ports[:MAX_PORTS]:
            stats = await look.stats(port, word)
            if stats is not None and stats["lines"]:
                named.add(port)
                await tell_lines(look, port, word, stats)
        look.leave_out_ports()
    what = f" {name(asked.topic, 60)!r}" if word else " an incident"
    what = f" a {EVENT_NAMES[asked.event]}" if asked.event else what
    draft.know(name(asked.topic, 60))
    if named:
        draft.title = f"{_listed(sorted(named))} had{what}{when}."
    else:
        draft.title = f"No board had{what}{when}."
        draft.say(draft.title, results=[call.id])


def _listed(ports: Sequence[str]) -> str:
    *others, last = ports or [""]
    return f"{', '.join(others)} and {last}" if others else last
