"""How lines, results and calls look in a prompt: each line of a device behind the run's mark."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any

from serialwatch.agent.text.device_text import MAX_SHOWN, readable, shortened
from serialwatch.agent.workers.tools import Call
from serialwatch.records import Line

MAX_RESULT = 1320  # characters of a skill's result, 600 tokens of console text


def marked(nonce: str, ref: str, text: str) -> str:
    """Return one line behind the mark; the mark cannot occur in the text itself."""
    safe = shortened(one_line(text), MAX_SHOWN).replace(nonce, f"{nonce[:2]}·{nonce[2:]}")
    return f"{nonce}:{ref}| {safe}"


def marked_text(nonce: str, ref: str, text: str) -> str:
    """Return each line of a text behind the mark."""
    return "\n".join(
        marked(nonce, ref, part) for line in text.splitlines() for part in cut(line) or [""]
    )


def marked_line(nonce: str, line: Line) -> str:
    """Return a line of a log behind the mark."""
    return marked(nonce, f"{line.port}:L{line.seq}", readable(line.raw))


def result_text(call: Call, nonce: str, limit: int = MAX_RESULT) -> str:
    """Return what the model gets for a call: each line of it marked, cut to a size."""
    result = call.result
    head = f"{call.id or 'no result'} {shortened(one_line(call.skill), 60)}: {result.status}"
    if result.status != "success":
        error = result.metadata.get("error", {})
        told = {k: error[k] for k in ("code", "message", "detail", "hint") if error.get(k)}
        body = json.dumps({**told, **result.output}, ensure_ascii=False, default=str)
        lines = [marked(nonce, call.id, part) for part in cut(body)]
        return "\n".join([head, *within(lines, limit)])
    output = dict(result.output)
    rows = output.pop("lines", None)
    lines = []
    if isinstance(rows, list) and all(isinstance(r, dict) and "seq" in r for r in rows):
        port = str(output.get("port", ""))
        lines = [marked(nonce, f"{port}:L{row['seq']}", _row_text(row)) for row in rows]
    elif rows is not None:
        output["lines"] = rows
    rest = json.dumps(output, ensure_ascii=False, default=str)
    lines += [marked(nonce, call.id, part) for part in cut(rest)]
    return "\n".join([head, *within(lines, limit, f"; `result-read` {call.id} has them")])


def note_of(call: Call) -> str:
    """Return a call in one line, for the notes: what was asked, and whether there was an answer."""
    params = one_line(", ".join(f"{key}={value}" for key, value in call.params.items()))
    found = "nothing there" if call.result.output.get("no_data") else call.result.status
    told = call.result.metadata.get("summary")
    more = f": {one_line(told)}" if isinstance(told, str) and told else ""
    line = f"{call.id or '-'} {one_line(call.skill)}({shortened(params, 80)}) -> {found}{more}"
    return shortened(line, 200)


def within(lines: Sequence[str], limit: int, hint: str = "") -> list[str]:
    """Return as many lines as fit: from the beginning, and the last few."""
    if sum(map(len, lines)) <= limit:
        return list(lines)
    tail: list[str] = []
    size = 0
    for line in reversed(lines):
        if size + len(line) > limit // 4:
            break
        tail.insert(0, line)
        size += len(line)
    head: list[str] = []
    for line in lines[: len(lines) - len(tail)]:
        if size + len(line) > limit:
            break
        head.append(line)
        size += len(line)
    left_out = len(lines) - len(head) - len(tail)
    return [*head, f"({left_out} lines left out{hint})", *tail]


def cut(text: str) -> list[str]:
    """Break a long text into pieces that fit a line."""
    return [text[at : at + MAX_SHOWN] for at in range(0, len(text), MAX_SHOWN)]


def one_line(text: str) -> str:
    """Return `text` without anything that could begin another line or hide."""
    return "".join(c if c.isprintable() else " " for c in text)


def _row_text(row: Mapping[str, Any]) -> str:
    times = row.get("times")
    more = f"  (x{times}, to L{row.get('last_seq')})" if times else ""
    return f"{row.get('text', '')}{more}"
