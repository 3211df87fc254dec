"""Memories for people: a table, and all that is known of one."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from datetime import datetime

from rich.text import Text

from serialwatch.cli.tables import Column, Row, safe, table, wrapped
from serialwatch.cli.times import clock
from serialwatch.wire import Json, utc_ns

COLUMNS = (
    Column("ID", is_right=True),
    Column("WHAT", least=30),
    Column("WHERE"),
    Column("BY"),
    Column("WEIGHT", is_right=True, leaves=2),
    Column("LEARNED", is_right=True, leaves=1),
    Column("USED", is_right=True, leaves=3),
    Column("LAST", leaves=4),
)
_LABEL = 15  # columns of "Evidence       "
_WAYS = {
    ("contradicts", "from"): "contradicted by",
    ("supersedes", "from"): "superseded by",
    ("supports", "from"): "supported by",
    ("duplicate_of", "from"): "nearly said again by",
    ("duplicate_of", "to"): "nearly the same as",
}


def memory_row(body: Json, now: datetime) -> Row:
    """Return a row of the table: the title, and below it what is known."""
    notes = [] if body["body"] == body["title"] else [safe(body["body"])]
    if body["status"] == "superseded":
        notes.append("(superseded: a person has corrected it)")
    elif body.get("is_disputed"):
        notes.append(f"(contradicted by another: `serialwatch memory why {body['id']}`)")
    return Row(
        (
            f"M{body['id']}",
            safe(body["title"]),
            _where(body),
            _who(body),
            str(body["priority"]),
            str(body["learned"]),
            str(body["used"]),
            clock(utc_ns(body["updated"]), now),
        ),
        " ".join(notes),
    )


def memory_table(rows: Sequence[Row], width: int | None) -> list[Text]:
    """Lay out the table."""
    return table(COLUMNS, rows, width)


def origin_lines(body: Json, now: datetime, width: int | None) -> Iterator[Text]:
    """Return all that is known of a memory."""
    memory = body["memory"]
    yield Text(
        f"M{memory['id']} · {memory['type'].replace('_', ' ')} · {_where(memory)} · "
        f"priority {memory['priority']}, {_status(memory)}"
    )
    yield from wrapped("", safe(memory["title"]), width, "bold")
    yield from wrapped("  ", safe(memory["body"]), width)
    yield Text()
    for label, items in _facts(body, now):
        name = label
        for item in items:
            yield from wrapped(f"{name:<{_LABEL}}", item, width)
            name = ""


def written_words(body: Json) -> str:
    """Return what became of what a person said, in one line."""
    number = body["id"]
    if old := body.get("supersedes"):
        words = f"M{number} takes the place of M{old}"
    elif body["is_new"]:
        words = f"remembered as M{number}"
    else:
        words = f"M{number} said so already: confirmed"
    if near := _numbers(body["near"]):
        words += f"; near it: {near}"
    if against := _numbers(body["contradicts"]):
        words += f"; it contradicts {against}: correct or forget what is wrong"
    return words


def _facts(body: Json, now: datetime) -> Iterator[tuple[str, list[str]]]:
    memory = body["memory"]
    created, updated = (clock(utc_ns(memory[k]), now) for k in ("created", "updated"))
    yield "Said by", [f"{_who(memory)}, {created}"]
    times = memory["learned"]
    if times > 1:
        yield "Learned", [f"{times} times, the last {updated}"]
    if incidents := body["incidents"]:
        yield "Incidents", [_incident(each, now) for each in incidents]
    if lines := body["lines"]:
        yield "Evidence", [_line(each) for each in lines]
    elif memory["source"] != "human":
        yield "Evidence", ["no line is cited"]
    if links := body["links"]:
        yield "Found with", [f"{safe(each['skill'])} ({safe(each['step'])})" for each in links]
    if relations := [_relation(each) for each in body["relations"]]:
        yield "Others", [" · ".join(relations)]
    yield "Used", _uses(body, now)
    if memory["tags"]:
        yield "Tags", [safe(" ".join(memory["tags"]))]
    yield "Kept", [_kept(memory, now)]


def _uses(body: Json, now: datetime) -> list[str]:
    used = body["memory"]["used"]
    if not used and not body["uses"]:
        return ["in no report or answer yet"]
    runs = []
    for use in body["uses"]:
        of = f", incident {use['incident']}" if use["incident"] else ""
        runs.append(f"run {use['run']}{of}, {clock(utc_ns(use['started']), now)}")
    return [f"in {used} {'run' if used == 1 else 'runs'} that led to a report or an answer", *runs]


def _where(body: Json) -> str:
    scope, name = body["scope"], safe(body["scope_name"])
    return {"bench": "bench", "port": name}.get(scope, f"{scope} {name}")


def _who(body: Json) -> str:
    if body["source"] == "human":
        return safe(body["by"]) or "a person"
    if body["source"] == "rule":
        return "rules"
    return "model, unverified" if body["status"] == "proposed" else "model"


def _status(memory: Json) -> str:
    status: str = memory["status"]
    return "unverified" if status == "proposed" else status


def _incident(each: Json, now: datetime) -> str:
    if not each["port"]:
        return f"#{each['id']}, no longer stored"
    at = clock(utc_ns(each["opened_at"]), now) if each["opened_at"] else ""
    return f"#{each['id']} {safe(each['port'])} {at}  {safe(each['title'])}"


def _line(each: Json) -> str:
    text = each["text"]
    shown = safe(text)[:200] if text is not None else "(no longer in the log)"
    return f"{safe(each['ref'])}  {shown}"


def _relation(each: Json) -> str:
    way = "to" if "to" in each else "from"
    return f"{_WAYS.get((each['kind'], way), each['kind'])} M{each[way]}"


def _kept(memory: Json, now: datetime) -> str:
    if memory["priority"] <= 1:
        return "for a day"
    if memory["status"] == "superseded":
        return "for 30 days after it was corrected"
    return f"until {clock(utc_ns(memory['expires']), now)}" if memory["expires"] else "for good"


def _numbers(ids: Sequence[int]) -> str:
    return ", ".join(f"M{each}" for each in ids)
