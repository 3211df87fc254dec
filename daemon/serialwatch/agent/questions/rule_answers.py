"""What rules answer to a question: they call the skills that tell, and put it into sentences."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from datetime import datetime
from functools import partial
from typing import Any

from serialwatch.agent.archive import Archive
from serialwatch.agent.offline.case import name
from serialwatch.agent.questions import yes_no
from serialwatch.agent.questions.answer_draft import AnswerDraft
from serialwatch.agent.questions.question import Question
from serialwatch.agent.questions.rule_counts import how_often, last_boot, tell_lines, which_ports
from serialwatch.agent.questions.rule_faults import tell_of_incident, what_happened, why
from serialwatch.agent.questions.rule_lookup import (
    MAX_CITED,
    USUAL_HOURS,
    Lookup,
    concluded,
    ends_of,
    gravity,
    incident_of,
    matched,
    stem,
)
from serialwatch.agent.skills.results import why_not
from serialwatch.agent.workers.tools import Tools
from serialwatch.records import Line, NextStep
from serialwatch.store.boots import load_boots
from serialwatch.store.incidents import load_incidents
from serialwatch.wire import Json

MAX_PAGES = 8  # that are compared for a word
MAX_EXPLAINED = 230  # characters of a page's own explanation
ALIKE = 0.75  # of the best page's score: the boards decide between these
MAX_HITS = 2  # of a rule that are told beside its page
LOOKED_AT = 10  # boots and incidents of a board, for its systems

# As far as bench PCs see them; a board that shows what it runs goes before.
_WIDESPREAD = ("linux", "cortexm", "esp", "uboot", "zephyr", "freertos", "arduino", "stm32")


async def answer_by_rules(
    question: Question, ports: Sequence[str], tools: Tools, archive: Archive, now: datetime
) -> AnswerDraft:
    """Return what rules answer; `ports` are those of the bench, `now` has the asker's zone."""
    draft = AnswerDraft(now.tzinfo, now)
    draft.know(*ports)
    look = Lookup(question, ports, tools, archive, draft)
    await _answered(look)
    for call in tools.calls:
        if not call.is_good:
            draft.not_checked.append(f"what {call.skill} would have told: {why_not(call.result)}")
    return draft


async def _answered(look: Lookup) -> None:
    asked = look.asked
    match asked.kind:
        case "status" if asked.is_past and asked.asks in ("good", "bad") and look.is_of_a_time:
            await what_happened(look)
            if asked.asks == "good":
                look.draft.reply = yes_no.opposite(look.draft.reply)
        case "what_happened":
            await (how_often(look) if asked.event == "reset" else what_happened(look))
        case "why":
            await why(look, status)
        case "status":
            await status(look)
        case "how_often":
            await how_often(look)
        case "last_boot":
            await last_boot(look)
        case "which_ports":
            await which_ports(look)
        case "boot_diff":
            await boot_diff(look, look.ports[0])
        case "printed":
            await printed(look)
        case "compare":
            await compare(look)
        case "incident":
            await tell_of_incident(look, asked.incident or 0)
        case "knowledge":
            await knowledge(look)


async def boot_diff(look: Lookup, port: str) -> None:
    """Tell how a boot of a board differs from the last good one."""
    draft, asked = look.draft, look.asked
    params: Json = {"port": port}
    params |= {"boot": asked.boot} if asked.boot is not None and not asked.is_from_boot else {}
    params |= {"base": asked.base} if asked.base is not None else {}
    call = await look.call("boot-compare", params)
    output = call.result.output
    if not call.is_good or output.get("no_data"):
        error = call.result.metadata.get("error", {})
        why = output.get("why") or error.get("detail") or "the boots could not be compared"
        draft.title = f"{port}: {why}."
        draft.know(why)
        look.say_bare(draft.title)
        return
    here, base = output["boot"], output["base"]
    known = look.any_line_of(port, base["number"])
    pair = f"boot {here['number']} of {port} against boot {base['number']}"
    for kind, key in (("New", "new"), ("Missing", "missing")):
        rows = sorted(output.get(key, ()), key=_mildness)[:3]
        for row in rows:
            line = look.tools.ledger.get((port, row.get("seq") or row.get("base_seq") or 0))
            draft.mark(line, kind.lower())
            draft.say(f"{kind}: {name(row['text'], 160)}.", [line], results=[call.id])
    for row in output.get("slower", ())[:1]:
        line = look.tools.ledger.get((port, row["after_seq"]))
        longer = f"took {row['took_s']} s, in boot {base['number']} {row['base_took_s']} s"
        draft.say(
            f"What came after {name(row['after'], 100)!r} {longer}.",
            [line, *known],
            results=[call.id],
        )
    found = output.get("found", {})
    new, gone = int(found.get("new", 0)), int(found.get("missing", 0))
    if new or gone:
        draft.title = (
            f"{pair[0].upper()}{pair[1:]}: {draft.count(new, 'new kind')} of line, "
            f"{draft.count(gone, 'missing one')}."
        )
    else:
        draft.title = f"{pair[0].upper()}{pair[1:]}: no line is new or missing."
    draft.know(here["number"], base["number"])
    draft.say(
        f"It was compared with boot {base['number']}: {base['why']}.", known, results=[call.id]
    )
    if asked.span is not None:
        more = 'name two, such as "compare boots 6 and 7"'
        draft.not_checked.append(f"other boots {asked.span.words}: {more}")
        draft.know(more)
    if output.get("flashed_between"):
        draft.unknowns.append("whether new lines are meant: it was flashed between the two")


async def printed(look: Lookup) -> None:
    """Tell what a board printed, perhaps about something."""
    draft, port, topic = look.draft, look.ports[0], look.asked.topic
    when = look.when("")
    params: Json = {"port": port, "limit": MAX_CITED, **await look.window(port)}
    if topic:
        params["match"] = matched(topic)
        stats = await look.stats(port, topic, "as far as the log goes back")
        if stats is not None and stats["lines"]:
            await tell_lines(look, port, topic, stats)
            params |= {"last": max(s["last"] for s in stats["shapes"])}
    call = await look.call("log-read", params)
    rows = call.result.output.get("lines") or []
    lines = [x for row in rows if (x := look.tools.ledger.get((port, row["seq"]))) is not None]
    for line in lines:
        draft.mark(line)
    shown = name(topic, 60)
    draft.know(shown)
    look.reply("Yes" if lines else "No")
    if not lines:
        what = f" with {shown!r}" if topic else ""
        draft.title = f"{port} printed no line{what}{when}."
        draft.say(draft.title, results=[call.id])
    elif not topic:
        draft.title = f"The last lines of {port}{when}."
        draft.say(f"{port} printed these lines.", [lines[0], lines[-1]], results=[call.id])
    else:
        counted = draft.count(int(stats["lines"]) if stats else len(lines), "line")
        draft.title = f"{port} printed {counted} with {shown!r}{when}."


async def compare(look: Lookup) -> None:
    """Tell how two boards stand and what they had."""
    draft = look.draft
    pair = look.ports[:2]
    told = []
    for port in pair:
        stats = await look.stats(port)  # first: what is told below is then as new, or newer
        counted_in = look.last_id
        await _tell_status(look, port)
        found, call = await look.incidents(only=port, is_event=False)
        lines = await look.first_lines(found[:1])
        number = draft.count(len(found), "incident")
        when = look.when(f"in the last {USUAL_HOURS} hours")
        if found:
            row = found[0]
            claim = f"{port} had {number}{when}, the last: {concluded(row)}."
            draft.say(claim, [lines.get(row["id"])], results=[call.id])
        told.append(f"{port} had {number}" if found else f"{port} had none")
        if stats is not None:
            levels = stats.get("levels") or {}
            bad = sum(int(levels.get(level, 0)) for level in ("error", "critical"))
            counted = draft.count(int(stats["lines"]), "line")
            looks = draft.count(bad, "of them looks", "of them look") if bad else "none looks"
            words = f"{port} printed {counted}{when}, {looks} like errors."
            draft.say(words, await look.read(port, ends_of(stats)), results=[counted_in])
    draft.title = f"{', '.join(told)}{look.when('in the last 24 hours')}."
    draft.know(USUAL_HOURS)


async def status(look: Lookup) -> None:
    """Tell how one board, or each, stands now."""
    draft = look.draft
    if len(look.asked.ports) == 1:
        port = look.ports[0]
        output = await _tell_status(look, port)
        if output is None:
            draft.title = f"How {port} stands could not be read."
            look.reply(yes_no.UNKNOWN)
            return
        opened = sorted(output.get("incidents") or [], key=gravity, reverse=True)
        lines = await _open_lines(look, port, opened)
        for row in opened[:3]:
            claim = f"Open: {name(row['title'], 120)} (#{row['id']})."
            draft.say(claim, [lines.get(row["id"])], results=[look.status_id])
        if opened:
            worst = opened[0]
            draft.severity = worst["severity"]
            number = draft.count(len(opened), "open incident")
            draft.title = f"{port} is {output['state']}, with {number}: {name(worst['title'], 80)}."
            look.point_to_reports(opened)
        else:
            draft.title = (
                f"{port} is {output['state']}, no incident is open; {output['verdict']['text']}."
            )
        await _reply(look, output, opened)
        return
    call = await look.call("port-status", {"all": True})
    rows = [r for r in call.result.output.get("ports", ()) if r["port"] in look.ports]
    down = [row["port"] for row in rows if row["state"] != "up"]
    open_all = sum(int(row.get("open_incidents") or 0) for row in rows)
    for row in rows[:8]:
        age = (
            f", last byte {_span(row['last_rx_age_s'])} ago"
            if row.get("last_rx_age_s") is not None
            else ""
        )
        draft.know(age)
        open_now = int(row.get("open_incidents") or 0)
        number = draft.count(open_now, "open incident") if open_now else "no open incident"
        trouble = (
            "" if row["place"] in ("nothing", "unknown") else f"; {row['place']}: {row['why']}"
        )
        draft.say(f"{row['port']} is {row['state']}{age}, {number}{trouble}.", results=[call.id])
    up = draft.count(len(rows) - len(down), "board is", "boards are")
    number = draft.count(open_all, "open incident") if open_all else "no open incident"
    draft.title = f"{up} up, {number}"
    draft.title += f"; not up: {', '.join(down)}." if down else "."
    if open_all:
        draft.steps.append(NextStep("`serialwatch incidents` lists what is open"))
    if not look.asked.is_past:
        look.reply(yes_no.of_boards(look.asked.asks, rows, is_any=look.asked.is_any))


async def _reply(look: Lookup, output: Mapping[str, Any], opened: Sequence[Json]) -> None:
    """Put the answer first, and let the title speak of what was asked."""
    draft, asked, port = look.draft, look.asked, look.ports[0]
    if not asked.asks or asked.is_past:  # what is told here is how it stands now
        return
    halted = None
    for row in opened if asked.asks in ("up", "down") else ():
        incident = await look.past(partial(incident_of, number=row["id"]))
        if incident is not None and incident.outcome == "halted":
            halted = halted or row
    look.reply(yes_no.of_board(asked.asks, output, has_halted=halted is not None))
    if asked.asks == "silent" and output["state"] == "up":
        age_s = output.get("last_rx_age_s")
        came = f"the last byte came {_span(age_s)} ago" if age_s is not None else "nothing came yet"
        draft.title = f"{port} is up, {came}."
    elif asked.asks.endswith("link"):
        draft.title = f"{port}: {output['verdict']['text']}."
    elif halted is not None and output["state"] == "up":
        draft.title = f"{port} halted: {name(halted['title'], 80)}; its port is up."


async def _tell_status(look: Lookup, port: str) -> Mapping[str, Any] | None:
    call = await look.call("port-status", {"port": port})
    output = call.result.output
    look.status_id = call.id
    if not call.is_good or output.get("no_data"):
        return None
    last = output.get("last_line") or {}
    line = look.tools.ledger.get((port, last.get("seq", 0)))
    age_s = output.get("last_rx_age_s")
    age = f", the last byte came {_span(age_s)} ago" if age_s is not None else ", nothing came yet"
    look.draft.know(age)
    rate = f" at {output['bit_rate']} bit/s" if output.get("bit_rate") else ""
    state = output.get("problem") or ""
    why = f" ({name(state, 100)})" if state else ""
    look.draft.say(f"{port} is {output['state']}{rate}{why}{age}.", [line], results=[call.id])
    verdict = output["verdict"]
    if verdict["place"] not in ("nothing", "unknown"):
        claim = f"Its counters point to {verdict['place']}: {verdict['text']}."
        look.draft.say(claim, [line], results=[call.id], kind="inference")
    return output


async def _open_lines(look: Lookup, port: str, rows: Sequence[Json]) -> dict[int, Line]:
    found: dict[int, int] = {}
    for row in rows[:3]:
        incident = await look.past(partial(incident_of, number=row["id"]))
        if incident is not None and incident.first_seq:
            found[row["id"]] = incident.first_seq
    lines = {line.seq: line for line in await look.read(port, found.values())}
    return {number: lines[seq] for number, seq in found.items() if seq in lines}


async def knowledge(look: Lookup) -> None:
    """Tell what pages and memory say of a word or a board."""
    draft, asked = look.draft, look.asked
    query = asked.topic or " ".join(asked.ports)
    if asked.topic:
        words = re.sub(r"(?<=\w)[./](?=\w)", " ", query)[:300]
        call = await look.call("knowledge-query", {"query": words, "limit": MAX_PAGES})
        pages = [p for p in call.result.output.get("pages", ()) if _is_near(p, query)]
        own = [page for page in pages if page["id"] == query.replace(".", "/")]  # a rule's id
        alike = own or _by_system(pages, await _systems(look))
        for page in alike[:1]:
            draft.title = f"{name(page['title'], 110)}."
            pid = page["id"]
            draft.say(f"{page['title']}.", results=[call.id], knowledge=[pid])
            await _explain(look, pid)
            for cause in page["causes"][:4]:
                check = f"; check: {cause['check']}" if cause.get("check") else ""
                draft.say(f"Possible cause: {cause['text']}{check}.", results=[call.id],
                          knowledge=[pid])  # fmt: skip
            if ids := [str(other["id"]) for other in alike[1:]]:
                draft.say(f"Pages of other systems fit, too: {', '.join(ids)}.", results=[call.id],
                          knowledge=ids)  # fmt: skip
            draft.steps += [NextStep(text) for text in page["do"][:2]]
            draft.steps += [NextStep(f"do not {text}") for text in page["never"][:1]]
    port = {"port": asked.ports[0]} if asked.ports else {}
    call = await look.call("memory-search", {"query": query[:300], **port})
    for memory in call.result.output.get("memories", ())[:3]:
        body = f"{name(str(memory['title']), 80)}: {name(str(memory['body']), 140)}"
        who = "a person noted" if memory["source"] == "human" else "concluded"
        line = await _evidence_line(look, memory)
        draft.say(f"Remembered ({who}{_age(memory)}): {body}", [line], results=[call.id])
        draft.title = draft.title or f"The bench remembers: {name(str(memory['title']), 90)}"
    if _RULE_ID.fullmatch(query):
        await _tell_hits(look, query)
    if asked.ports and not asked.topic:
        found, history = await look.incidents()
        lines = await look.first_lines(found[:3])
        for row in found[:3]:
            look.tell_incident(row, lines.get(row["id"]), history)
        draft.title = draft.title or f"{draft.count(len(found), 'incident')} {look.where()}."
    if not draft.conclusions:
        draft.title = f"Nothing is known about {name(query, 60)!r}: no page, no memory."
        draft.know(name(query, 60))
        look.say_bare(draft.title)


async def _tell_hits(look: Lookup, rule: str) -> None:
    """Tell what a rule has found on the bench, if it has."""
    found, call = await look.incidents()
    hits = [row for row in found if row["trigger"] == rule]
    lines = await look.first_lines(hits[:MAX_HITS])
    for row in hits[:MAX_HITS]:
        look.tell_incident(row, lines.get(row["id"]), call)
    if hits:
        times = look.draft.count(len(hits), "incident")
        look.draft.title = look.draft.title or f"{times} {look.where()}{look.when(look.usual)}."
        look.leave_out_incidents(hits[MAX_HITS:])


async def _explain(look: Lookup, page_id: str) -> None:
    """Tell how a page begins its explanation, in whole sentences."""
    call = await look.call("knowledge-query", {"id": page_id})
    body = str(call.result.output.get("page", {}).get("body", ""))
    text = " ".join(body.strip().partition("\n\n")[0].split())
    told = ""
    for sentence in re.split(r"(?<=[.!?]) (?=[A-Z`])", text):
        if len(told) + len(sentence) > MAX_EXPLAINED:
            break
        told = f"{told} {sentence}".strip()
    if told:
        look.draft.say(told, results=[call.id], knowledge=[page_id])


async def _systems(look: Lookup) -> frozenset[str]:
    """Return the systems that the boards which are meant, or those of the bench, have shown."""
    found = await look.past(partial(_shown_systems, ports=look.asked.ports or look.ports))
    return found or frozenset()


def _shown_systems(archive: Archive, ports: Sequence[str]) -> frozenset[str]:
    if (db := archive.database) is None:
        return frozenset()
    shown: set[str] = set()
    for port in ports:
        shown.update(boot.ecosystem for boot in load_boots(db, port, limit=LOOKED_AT))
        shown.update(one.ecosystem for one in load_incidents(db, port=port, limit=LOOKED_AT))
    return frozenset(shown - {""})


def _by_system(pages: Sequence[Json], shown: frozenset[str]) -> list[Json]:
    """Return the pages that fit about as well as the best, those of the boards' systems first.

    Behind them come pages that hold for all systems, then those of the most widespread.
    """
    least = ALIKE * max((page["score"] for page in pages), default=0)
    alike = [page for page in pages if page["score"] >= least]

    def rank(page: Json) -> int:
        systems = set(page["ecosystem"].split()) - {"any"}
        if systems & shown:
            return 0
        places = [n for n, system in enumerate(_WIDESPREAD, 2) if system in systems]
        return min(places, default=2 + len(_WIDESPREAD)) if systems else 1

    first = min(alike, key=lambda page: (rank(page), -page["score"]), default=None)
    if first is None:
        return []
    return [first, *(page for page in alike if page["ecosystem"] != first["ecosystem"])]


async def _evidence_line(look: Lookup, memory: Json) -> Line | None:
    for ref in memory.get("evidence", ())[:1]:
        port, _, seq = str(ref).partition(":L")
        if seq.isdigit():
            return next(iter(await look.read(port, [int(seq)])), None)
    return None


def _age(memory: Json) -> str:
    return f", {memory['age']}" if memory.get("age") else ""


def _span(seconds: float | None) -> str:
    for unit, length in (("d", 86400), ("h", 3600), ("min", 60)):
        if seconds is not None and seconds >= length:
            return f"{int(seconds // length)} {unit}"
    return f"{seconds or 0:.0f} s"


def _is_near(page: Json, query: str) -> bool:
    """Tell whether a page is about what was asked, not only the best of bad ones."""
    text = f"{page['id']} {page['title']} {' '.join(c['text'] for c in page['causes'])}".lower()
    words = [w for w in re.findall(r"[a-z0-9]{3,}", stem(query.lower())) if w not in _SMALL]
    return bool(words) and sum(w in text for w in words) * 2 >= len(words)


_RULE_ID = re.compile(r"[a-z0-9_-]+\.[a-z0-9_]+")
_SMALL = frozenset({"the", "and", "for", "with", "are", "was", "what", "how"})


def _mildness(row: Json) -> int:
    return -("note", "warning", "error", "critical").index(row.get("level", "note"))
