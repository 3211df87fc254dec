"""An action that waits for a person, as they see it: its exact effect first, words last."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from datetime import datetime

from rich.text import Text

from serialwatch.board_steps import bytes_of
from serialwatch.cli.ports import short_device
from serialwatch.cli.tables import Column, Row, counted, safe, table, wrapped
from serialwatch.cli.times import clock, span
from serialwatch.wire import Json, utc_ns

_COLUMNS = (
    Column("ID"),
    Column("STATE"),
    Column("WHEN", leaves=2),
    Column("PORT"),
    Column("WHAT", least=24),
    Column("SKILL", leaves=1),
    Column("ABOUT", leaves=3),
)
_STYLES = {"pending": "yellow", "unknown": "bold red", "failed": "red"}
_HEX_ROW = 16  # bytes
_NAMES = {0x0D: "\\r", 0x0A: "\\n", 0x09: "\\t", 0x5C: "\\\\"}


def approvals_table(rows: Sequence[Json], now: datetime, width: int | None) -> list[Text]:
    """Lay out `approvals list`."""
    return table(_COLUMNS, [_listed(row, now) for row in rows], width)


def approval_lines(row: Json, now: datetime, width: int | None) -> Iterator[Text]:
    """Return one action in lines of at most `width` columns."""
    state = str(row["state"])
    by = f"asked by {safe(row['role']) or 'the agent'} in run {safe(row['run'])}"
    by += f" (incident {row['incident']})" if row["incident"] else ""
    head = f"{safe(row['id'])}  {_stands(row, now)} · {by}"
    yield from wrapped("", head, width, _STYLES.get(state, ""))
    yield from _effect(row, width)
    if state == "pending":
        yield from _now(row, width)
    elif row["result"]:
        yield from wrapped("What came of it: ", safe(row["result"]), width)
    if row["note"]:
        yield from wrapped(f"{safe(row['decided_by'])} said: ", safe(row["note"]), width)
    if row["why"]:
        yield from wrapped("The agent's reason (its words): ", f'"{safe(row["why"])}"', width)
    lines = ", ".join(map(safe, row["evidence"]))
    yield from wrapped("Evidence it gave: ", lines or "none", width)
    if state == "pending":
        act = f"serialwatch approvals approve {safe(row['id'])}"
        yield from wrapped("approve: ", act, width)
        refuse = f'serialwatch approvals deny {safe(row["id"])} -m "why"'
        yield from wrapped("refuse:  ", refuse, width)


def escaped(data: bytes) -> str:
    """Return bytes so that each can be told: what is no plain letter is spelled out."""
    return "".join(
        _NAMES.get(byte) or (chr(byte) if 0x20 <= byte < 0x7F else f"\\x{byte:02x}")
        for byte in data
    )


def _listed(row: Json, now: datetime) -> Row:
    state = str(row["state"])
    cells = (
        safe(row["id"]),
        _stands(row, now) if state == "pending" else safe(state),
        clock(utc_ns(row["created"]), now),
        safe(row["port"]),
        safe("; ".join(map(str, row["effect"]))),
        safe(row["skill"]),
        f"incident {row['incident']}" if row["incident"] else "-",
    )
    return Row(cells, safe(row["result"]), ("", _STYLES.get(state, "")))


def _stands(row: Json, now: datetime) -> str:
    state = str(row["state"])
    if state == "pending":
        left_s = (utc_ns(row["expires"]) - round(now.timestamp() * 1e9)) / 1e9
        return f"pending, expires in {span(max(left_s, 0))}"
    by = f" by {safe(row['decided_by'])}" if row["decided_by"] else ""
    if state in ("approved", "denied"):
        return f"{state}{by}"
    return f"{safe(state)}{f', approved{by}' if by else ''}"


def _effect(row: Json, width: int | None) -> Iterator[Text]:
    is_over = row["state"] not in ("pending", "approved", "executing")
    first = "Was to" if is_over else "Would"
    about = "" if is_over else ", ".join(_about(row.get("now") or {}))
    for number, (step, words) in enumerate(zip(row["steps"], row["effect"], strict=True)):
        lead = first if not number else "then"
        more = f" ({about})" if about and not number else ""
        data = bytes_of(step)
        yield from wrapped("", f"{lead} {safe(words)}{more}{':' if data else ''}", width, "bold")
        if data:
            # Never shortened: what is not seen cannot be approved.
            yield from _in_pieces(escaped(data), width)
            for at in range(0, len(data), _HEX_ROW):
                yield Text(f"        {data[at : at + _HEX_ROW].hex(' ')}")


def _in_pieces(text: str, width: int | None) -> Iterator[Text]:
    room = max((width or len(text) + 4) - 4, 16)
    for at in range(0, len(text), room):
        yield Text(f"    {text[at : at + room]}")


def _about(now: Mapping[str, object]) -> Iterator[str]:
    if now.get("device"):
        yield short_device(str(now["device"]))
    if now.get("boot"):
        yield f"boot #{now['boot']}"
    if "attached" in now:
        attached = now["attached"]
        count = len(attached) if isinstance(attached, list) else 0
        yield counted(count, "terminal") + " attached" if count else "nobody attached"


def _now(row: Json, width: int | None) -> Iterator[Text]:
    now = row.get("now") or {}
    if not now:
        return
    words = []
    if now.get("state") != "up":
        words.append(f"The port is {safe(now.get('state'))} now: it cannot be done.")
    elif now.get("writer"):
        words.append(f"{safe(now['writer'])} is typing there now: it cannot be done before.")
    if now.get("boot") and now["boot"] != row["boot"]:
        words.append(f"The board has restarted since (it was boot #{row['boot']}).")
    line = now.get("last_line")
    words.append(
        f"The board's last line is `{safe(line)}` (L{now['last_seq']})."
        if line
        else "The board has printed nothing lately."
    )
    words.append("It is done once.")
    yield from wrapped("", " ".join(words), width)
