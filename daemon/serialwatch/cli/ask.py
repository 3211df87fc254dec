"""`serialwatch ask`: a question about the bench, answered as it is found out."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator

import click
from rich.cells import cell_len
from rich.text import Text

from serialwatch.cli.client import Daemon, find_daemon
from serialwatch.cli.errors import FAULT, WRONG_USE, CliError
from serialwatch.cli.options import PORT, json_option, socket_option
from serialwatch.cli.tables import (
    KEPT_SPACE,
    SEVERITY_STYLES,
    console,
    safe,
    say,
    shorten,
    width_of,
    wrapped,
)
from serialwatch.cli.times import clock, local_now
from serialwatch.records import Conclusion, Report
from serialwatch.wire import Json, report_from_json, utc_ns

MAX_QUESTION = 2_000  # characters, as the daemon takes them
_STEP = 46  # columns of what was called, where there are many
_TOLD = 24  # columns of what it found
_LABEL = 14  # columns of the names below the answer
_SHOWN = 12  # lines of the log below an answer


@click.command()
@click.argument("question", metavar="QUESTION", nargs=-1)
@click.option("-p", "--port", "named", type=PORT, help="The port it is about.")
@click.option("--stored", is_flag=True, help="Earlier answers; with the id of one, all of it.")
@json_option
@socket_option
def ask(
    question: tuple[str, ...], named: str | None, stored: bool, as_json: bool, socket: str | None
) -> int:
    """Ask about the bench: `serialwatch ask "why did dut1 reboot last night?" [PORT]`.

    Each skill that is called is told as it happens, then comes the answer; [dut1:L48212] is a line
    of the log that shows it. Without a model rules answer what they can: what happened, why,
    how often, which boards, the last boot, what changed, what was printed, an incident. Where it
    is not clear which board is meant, you are asked.
    """
    if stored:
        return _show_stored(find_daemon(socket), question, as_json)
    text, port = _split(question, named)
    now = local_now()
    offset = now.utcoffset()
    body = {
        "question": text,
        "port": port,
        "utc_offset_s": int(offset.total_seconds() if offset else 0),
    }
    daemon = find_daemon(socket)
    answer = _answer(daemon, body, as_json)
    choices = answer.get("choices") or ()
    if choices and not (port or as_json) and _is_interactive():
        body["port"] = click.prompt("Which one", type=click.Choice(choices), show_choices=False)
        answer = _answer(daemon, body, as_json)
    return 0 if answer["is_answered"] else FAULT


def _is_interactive() -> bool:
    return sys.stdin.isatty() and sys.stdout.isatty()


def _answer(daemon: Daemon, body: Json, as_json: bool) -> Json:
    """Ask, show what comes, and return the answer."""
    out = console()
    for message in daemon.post_rows("/v1/ask", body):
        kind = message["kind"]
        if kind == "beat":
            continue
        if as_json:
            click.echo(json.dumps(message))
        if kind == "step" and not as_json:
            out.print(step_line(message, width_of(out)))
            out.file.flush()  # also in a pipe: it may take a minute until the next one
        elif kind == "answer":
            if not as_json:
                for line in answer_lines(message, width_of(out)):
                    out.print(line)
            return message
        elif kind == "error":
            hint = f": {safe(message['hint'])}" if message.get("hint") else ""
            raise CliError(f"not answered: {safe(message['message'])}{hint}")
    raise CliError("the daemon ended before it could answer: ask again")


def _show_stored(daemon: Daemon, words: tuple[str, ...], as_json: bool) -> int:
    if len(words) > 1:
        raise CliError("--stored takes the id of one answer, or nothing", WRONG_USE)
    session = words[0] if words else None
    found = daemon.get("/v1/answers", {"session": session})["answers"]
    if as_json:
        click.echo(json.dumps({"answers": found}, indent=2))
        return 0
    out = console()
    width = width_of(out)
    if not found:
        if session:
            hint = "`serialwatch ask --stored` lists those that there are"
            raise CliError(f"no answer {safe(session)!r}: {hint}")
        say('no answers yet: ask, e.g. `serialwatch ask "what happened last night?"`')
        return 0
    if session:
        out.print(safe(found[0]["question"]))
        for line in answer_lines(found[0], width):
            out.print(line)
        return 0
    now = local_now()
    for row in found:
        at = clock(utc_ns(row["asked_at"]), now)
        for line in wrapped(f"{row['session_id']}  {at}  ", safe(row["question"]), width):
            out.print(line)
        for line in wrapped("    ", safe(row["report"]["title"]), width):
            out.print(line)
    return 0


def _split(words: tuple[str, ...], named: str | None) -> tuple[str, str]:
    """Return question and port: `ask "why did it reset?" dut1` names the port last."""
    port = named or ""
    if len(words) == 2 and " " in words[0].strip() and " " not in words[1] and not port:
        text, port = words
    else:
        text = " ".join(words)
    text = text.strip()
    if not text:
        raise CliError(
            'no question: write it in quotes, e.g. "what happened last night?"', WRONG_USE
        )
    if len(text) > MAX_QUESTION:
        raise CliError(f"a question of {len(text)} characters: {MAX_QUESTION} at most", WRONG_USE)
    return text, port


def step_line(step: Json, width: int | None) -> Text:
    """Return one skill call as a line."""
    called = f"▸ {safe(step['skill'])} {safe(step['params'])}".rstrip()
    told, took = safe(step["told"]), f"{step['ms']} ms"
    style = "" if step["status"] == "success" else "yellow"
    if width is None:
        return Text.assemble(called, "   ", (told, style), f"   {took}")
    room = max(width - max(cell_len(took), 6) - 2, 20)
    left = max(min(_STEP, room - _TOLD - 3), 12)
    called = shorten(called, left)
    told = shorten(told, max(room - left - 3, 8))
    gap = " " * max(width - left - 3 - cell_len(told) - cell_len(took) - 2, 0)
    pad = " " * (left - cell_len(called))
    return Text.assemble(called, pad, "   ", (told, style), gap, "  ", took)


def answer_lines(message: Json, width: int | None) -> Iterator[Text]:
    """Return the answer as lines of at most `width` columns."""
    report = report_from_json(message["report"])
    yield Text()
    style = SEVERITY_STYLES[report.severity] or "bold"
    same = [c for c in report.conclusions if c.claim.rstrip(".") == report.title.rstrip(".")]
    title = safe(report.title)
    if same:
        title += f" [{_refs(same[0])}]".replace(" ", KEPT_SPACE).replace(KEPT_SPACE, " ", 1)
    yield from wrapped("", title, width, style)
    for told in report.conclusions:
        refs = f"[{_refs(told)}]".replace(" ", KEPT_SPACE)
        if told in same:
            continue
        yield from wrapped("  ", f"{safe(told.claim)} {refs}", width)
    yield from _log_lines(report, width)
    facts = list(_facts(report, message))
    if facts:
        yield Text()
    for label, texts in facts:
        name = label
        for text in texts:
            yield from wrapped(f"{name:<{_LABEL}}", safe(text), width)
            name = ""


def _refs(told: Conclusion) -> str:
    parts = [evidence.ref for evidence in told.evidence]
    parts += [f"knowledge {safe(page)}" for page in told.knowledge]
    if not told.evidence and not told.knowledge:
        parts += [f"result {safe(ref)}, no line" for ref in told.results]
    return " ".join(parts) or "no evidence"


def _log_lines(report: Report, width: int | None) -> Iterator[Text]:
    """Return the lines that the answer rests on, in the order of time."""
    entries = report.timeline[-_SHOWN:]
    if not entries:
        return
    now = local_now()
    rows = [(clock(e.utc_ns, now), f"{e.port}:L{e.seq}", e) for e in entries]
    at_width = max(len(at) for at, _, _ in rows)
    ref_width = max(len(ref) for _, ref, _ in rows)
    yield Text()
    for at, ref, entry in rows:
        note = f"   ← {safe(entry.note)}" if entry.note else ""
        start = f"  {at:<{at_width}}  {ref:<{ref_width}}  "
        text = safe(entry.text).replace("\t", " ")
        if width is not None:
            text = shorten(text, max(width - cell_len(start) - cell_len(note), 8))
        yield Text.assemble(start, text, (note, "bold"))


def _facts(report: Report, message: Json) -> Iterator[tuple[str, list[str]]]:
    if report.verdict == "inconclusive" and report.conclusions:
        yield "Sure?", ["no: the lines do not decide it"]
    possible = [h.text for h in report.hypotheses if h.status == "open"][:3]
    if possible:
        yield "Also possible", possible
    if report.unknowns:
        yield "Not known", list(report.unknowns)
    if report.not_checked:
        yield "Not checked", list(report.not_checked)
    if report.next_steps:
        yield (
            "Next",
            [
                step.text if step.risk == "L1" else f"{step.text} (risk {step.risk})"
                for step in report.next_steps
            ],
        )
    if message.get("examples"):
        yield "Ask e.g.", list(message["examples"])
    yield "Made by", [_cost(report, message)]


def _cost(report: Report, message: Json) -> str:
    cost = report.cost
    skills = f"{cost.skills} skill{'' if cost.skills == 1 else 's'}"
    parts = [report.made_by if report.made_by != "rules" else "rules", skills]
    if cost.model_calls:
        calls = f"{cost.model_calls} model call{'' if cost.model_calls == 1 else 's'}"
        parts += [calls, f"{cost.tokens:,} tokens"]
    parts.append(f"{cost.seconds:.1f} s")
    words = ", ".join(parts)
    if not cost.model:
        words += f"; no model was asked ({cost.reason})" if not cost.model_calls else (
            f"; the model's answer was not used: {cost.reason}"
        )  # fmt: skip
    if report.claims.dropped:
        number = report.claims.dropped
        words += f"; {number} claim{'' if number == 1 else 's'} without evidence dropped"
    return f"{words}; run {message['run_id']}"
