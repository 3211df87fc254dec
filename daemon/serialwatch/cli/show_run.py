"""A run of the agent for people: what it planned, asked, read and got, round by round."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from datetime import datetime
from typing import Any

from rich.cells import cell_len
from rich.text import Text

from serialwatch.cli.tables import Column, Row, amount, counted, safe, shorten, table, wrapped
from serialwatch.cli.times import clock
from serialwatch.wire import Json, utc_ns

_COLUMNS = (
    Column("RUN"),
    Column("WHEN", leaves=3),
    Column("PORT", leaves=4),
    Column("ABOUT"),
    Column("BY", least=14),
    Column("ROUNDS", is_right=True, leaves=2),
    Column("TOKENS", is_right=True),
    Column("TIME", is_right=True, leaves=1),
    Column("ENDED", least=8),
)
_ENDED = {
    "done": "report accepted",
    "partial": "a part of its draft held",
    "baseline": "the rules' report stands",
    "waiting": "waits for an answer",
    "failed": "failed",
    "cut short": "cut short",
    "running": "still going on",
}
_STYLES = {"waiting": "yellow", "failed": "red", "cut short": "yellow"}
_RESULT = 44  # columns of a call, where there are many
_TOLD = 30  # columns of what it gave, at least
MAX_VALUE = 80  # characters of one parameter
MAX_TOLD = 200  # characters of one result's line in a pipe


def run_row(run: Json, now: datetime) -> Row:
    """Return a row of `runs list`."""
    asked = str(run["question"])
    note = ""
    if asked:
        note = f'asks: {safe(asked)}  (`serialwatch runs answer {run["id"]} "..."`)'
    elif run["exit_status"] in {"baseline", "partial", "failed", "cut short"} and run["reason"]:
        note = safe(run["reason"]) if run["kind"] == "model" else ""
    cells = (
        safe(run["id"]),
        clock(utc_ns(run["started"]), now),
        safe(run["port"]) or "-",
        _about(run),
        _by(run),
        str(run["rounds"]) if run["kind"] == "model" else "-",
        amount(int(run["tokens"])) if run["tokens"] else "-",
        _took(run),
        safe(run["exit_status"]),
    )
    styles = ("",) * 8 + (_STYLES.get(str(run["exit_status"]), ""),)
    return Row(cells, note, styles)


def runs_table(rows: Sequence[Row], width: int | None) -> list[Text]:
    """Lay out `runs list`."""
    return table(_COLUMNS, rows, width)


def run_lines(
    body: Json, now: datetime, width: int | None, *, with_prompts: bool = False
) -> Iterator[Text]:
    """Return a run as lines of at most `width` columns."""
    run, state = body["run"], body["run"].get("state") or {}
    yield from _heading(body, now, width)
    yield from _plan(run, width)
    by_round: dict[int, list[Json]] = {}
    for call in body["skill_calls"]:
        by_round.setdefault(int(call["round"]), []).append(call)
    results = {str(row["id"]): row["body"] for row in body["results"]}
    told = {int(n): row for n, row in state.get("told", ())}
    if 0 in by_round:
        yield Text()
        yield Text("By the fixed plan" if body["rounds"] else "What was called", "bold")
        yield from _calls(sorted(by_round[0], key=_number), results, told, width)
    if body["rounds"]:
        yield Text()
        yield Text("Rounds", "bold")
        yield from _rounds(body, by_round, results, told, width, with_prompts)
    yield from _part("Hypotheses", _suspicions(state), width)
    yield from _part("Notes", [safe(note) for note in state.get("notes", ())], width)
    yield from _part("Not let pass by the verifier", _refusals(state), width)
    yield from _part("Questions to people", _inquiries(body), width)
    yield from _part("Actions proposed", _actions(body), width)
    yield from _part("Long jobs", _late(body), width)


def _heading(body: Json, now: datetime, width: int | None) -> Iterator[Text]:
    run = body["run"]
    parts = [f"Run {safe(run['id'])}", _about(run)]
    if run["phase"]:
        parts[-1] += f" ({safe(run['phase'])})"
    if run["port"]:
        parts.append(safe(run["port"]))
    parts += [_by(run), clock(utc_ns(run["started"]), now)]
    yield from wrapped("", " · ".join(parts), width, "bold")
    status = str(run["exit_status"])
    costs = [counted(len(body["skill_calls"]), "skill call")]
    if run["kind"] == "model":
        costs = [counted(run["rounds"], "round"), *costs, _tokens(run)]
    costs.append(_took(run))
    words = f"{safe(status)}: {_ENDED.get(status, 'ended')}" if run["kind"] == "model" else ""
    words = words or safe(status)
    yield from wrapped("", f"{words}; {', '.join(costs)}", width, _STYLES.get(status, ""))
    if run["reason"]:
        first = "because " if run["kind"] == "model" else "no model was asked: "
        yield from wrapped(first, safe(run["reason"]), width)
    for report in body.get("reports", ()):
        ref = f"serialwatch report {report['incident']} --revision {report['revision']}"
        yield from wrapped("→ ", f"{safe(report['title'])}   `{ref}`", width)
    endpoint = safe(run["base_url"])
    if endpoint:
        yield from wrapped("", f"asked {endpoint}, session {safe(run['session_id'])}", width)


def _tokens(run: Json) -> str:
    """Return what the models of a run were billed for, each of them if there were several."""
    state = run.get("state") or {}
    price = float(state.get("price") or 0)
    told = f"{int(run['tokens']):,} tokens{_cost(price)}"
    models = state.get("models") or {}
    if len(models) < 2:
        return told
    each = [
        f"{safe(model)} {int(row['tokens']):,}{_cost(float(row['price']))}"
        for model, row in models.items()
    ]
    return f"{told} ({', '.join(each)})"


def _cost(price: float) -> str:
    return f" for {price:.4f}" if price else ""


def _plan(run: Json, width: int | None) -> Iterator[Text]:
    steps = run.get("plan") or ()
    if not steps:
        return
    yield Text()
    why = (run.get("state") or {}).get("plan_why")
    yield from wrapped("Plan", f"  {safe(why)}" if why else "", width, "bold")
    for step in steps:
        task = safe(step.get("task", ""))
        hint = ", ".join(safe(step[key]) for key in ("skill_hint", "done_when") if step.get(key))
        more = f" ({hint})" if hint else ""
        first = f"  {step.get('step', '?')}. {safe(step.get('state', 'open')):<6}  "
        yield from wrapped(first, f"{task}{more}", width)


def _rounds(
    body: Json,
    by_round: Mapping[int, list[Json]],
    results: Mapping[str, Any],
    told: Mapping[int, Json],
    width: int | None,
    with_prompts: bool,
) -> Iterator[Text]:
    decisions = {
        int(row["round"]): row for row in (body["run"].get("state") or {}).get("decisions", ())
    }
    messages = {str(row["hash"]): row for row in body["messages"]}
    shown: dict[str, int] = {}
    for each in body["rounds"]:
        n = int(each["n"])
        took = f"{each['prompt_tokens']:,} + {each['completion_tokens']:,} tokens"
        took += f", {each['latency_ms']:,} ms, {safe(each['mode'])}"
        yield from wrapped(
            f"  {n}. ", f"{safe(each['kind'])}: {safe(each['outcome'])}   {took}", width
        )
        why = decisions.get(n, {}).get("why")
        if why:
            yield from wrapped("     why  ", safe(why), width)
        yield from _wanted(each, by_round.get(n, ()), width)
        yield from _calls(by_round.get(n, ()), results, told, width, "     ")
        if with_prompts:
            yield from _prompt(each, messages, shown)


def _wanted(each: Json, calls: Sequence[Json], width: int | None) -> Iterator[Text]:
    """Return what the model wanted that is no call of a skill, or its words if there is nothing."""
    response = each["response"]
    ran = {str(call["skill"]) for call in calls}
    others = [
        f"{safe(call['name'])} {shorten(safe(call['arguments']), 120)}"
        for call in response.get("calls", ())
        if call["name"] not in ran
    ]
    for other in others:
        yield from wrapped("     ", other, width)
    if not others and not calls and response.get("text"):
        yield from wrapped("     said ", shorten(safe(response["text"]), 240), width)


def _prompt(each: Json, messages: Mapping[str, Json], shown: dict[str, int]) -> Iterator[Text]:
    for at, hash_ in enumerate(each["prompt"], 1):
        message = messages.get(hash_)
        if message is None:
            yield Text(f"     [{at}] {safe(hash_)}: not stored any more", "yellow")
            continue
        head = f"     [{at}] {safe(message['role'])} {safe(hash_)}"
        if hash_ in shown:
            yield Text(f"{head}: as in round {shown[hash_]}", "bold")
            continue
        shown[hash_] = int(each["n"])
        yield Text(head, "bold")
        content = message["content"]
        for line in str(content.get("content") or "").split("\n"):
            yield Text(f"       {safe(line)}")
        for call in content.get("tool_calls", ()):
            function = call.get("function", {})
            yield Text(
                f"       call {safe(function.get('name'))} {safe(function.get('arguments'))}"
            )


def _calls(
    calls: Sequence[Json],
    results: Mapping[str, Any],
    told: Mapping[int, Json],
    width: int | None,
    indent: str = "  ",
) -> Iterator[Text]:
    for call in calls:
        ref = safe(call["result_id"]) or "-"
        called = f"{ref:<4} {safe(call['skill'])} {_params(call['args'])}".rstrip()
        is_good = call["status"] == "success"
        gave = _gave(call, results, told)
        took = f"{call['elapsed_ms']} ms"
        style = "" if is_good else "yellow"
        if width is None:
            yield Text.assemble(
                f"{indent}{called}   ", (shorten(gave, MAX_TOLD), style), f"   {took}"
            )
            continue
        room = max(width - len(indent) - cell_len(took) - 2, 24)
        left = min(max(cell_len(called), _RESULT), max(room - _TOLD - 2, 16))
        called = shorten(called, left)
        gave = shorten(gave, max(room - left - 2, 8))
        gap = " " * max(room - left - 2 - cell_len(gave), 0)
        pad = " " * (left - cell_len(called) + 2)
        yield Text.assemble(f"{indent}{called}{pad}", (gave, style), f"{gap}  {took}")


def _number(call: Json) -> int:
    """Return the number of a call's result: calls made at once are stored as they ended."""
    digits = str(call["result_id"]).removeprefix("R")
    return int(digits) if digits.isdecimal() else int(call["n"])


def _gave(call: Json, results: Mapping[str, Any], told: Mapping[int, Json]) -> str:
    """Return what a call gave in one line."""
    more = told.get(int(call["n"]), {})
    if call["status"] == "failure":
        error = more.get("error") or {}
        words = error.get("detail") or error.get("message") or ""
        return f"{safe(call['error_code'] or 'failed')}{': ' if words else ''}{safe(words)}"
    if more.get("summary"):
        return safe(more["summary"])
    if more.get("need"):
        return f"needs {safe(more['need'].get('question') or more['need'].get('kind'))}"
    return _in_short(results.get(str(call["result_id"])))


def _in_short(result: Any) -> str:
    """Return what a result holds, where its skill did not say it."""
    if not isinstance(result, Mapping):
        return "nothing stored"
    counts = [
        f"{len(value)} {safe(key)}"
        for key, value in result.items()
        if isinstance(value, (list, tuple)) and value
    ]
    words = [
        f"{safe(key)} {safe(value)}"
        for key, value in result.items()
        if isinstance(value, (str, int, float)) and not isinstance(value, bool) and value != ""
    ]
    return ", ".join([*counts[:3], *words[: 4 - len(counts[:3])]]) or "nothing there"


def _params(args: Mapping[str, Any]) -> str:
    first = {"port": args["port"], **args} if "port" in args else args
    return " ".join(f"{safe(key)}={_value(value)}" for key, value in first.items())


def _value(value: Any) -> str:
    if isinstance(value, (list, tuple)) and any(isinstance(v, (dict, list)) for v in value):
        return f"({len(value)})"
    if isinstance(value, (list, tuple)):
        return ",".join(map(safe, value))
    return shorten(safe(value), MAX_VALUE)


def _suspicions(state: Json) -> list[str]:
    return [
        f"{safe(row['status'])}: {safe(row['text'])} ({safe(row['fault_class'])})"
        for row in state.get("suspicions", ())
    ]


def _refusals(state: Json) -> list[str]:
    return [
        f"draft {row['draft']}, {safe(row['id'])}: {safe(row['code'])} "
        f"{'dropped' if row['is_dropped'] else 'changed'}: {safe(row['why'])}"
        for row in state.get("refused", ())
    ]


def _inquiries(body: Json) -> list[str]:
    told = []
    for row in body.get("inquiries", ()):
        if row["answer"]:
            who = safe(row["answered_by"]) or "somebody"
            told.append(f"{safe(row['question'])} → {who}: {safe(row['answer'])}")
        else:
            run = safe(row["run_id"])
            told.append(f'{safe(row["question"])} (open: `serialwatch runs answer {run} "..."`)')
    return told


def _actions(body: Json) -> list[str]:
    """Return what the run wanted to do to a board, and what became of it."""
    return [
        f"{safe(row['id'])} {safe(row['state'])}: {safe('; '.join(row['effect']))} "
        f"({safe(row['skill'])}){': ' if row['result'] else ''}{safe(row['result'])}"
        for row in body.get("approvals", ())
    ]


def _late(body: Json) -> list[str]:
    return [
        f"{safe(row['skill'])} {safe(row['job_id'])}: {safe(row['body'].get('status', '?'))}, "
        f"{_in_short(row['body'].get('output'))}"
        for row in body.get("late", ())
    ]


def _part(title: str, rows: Sequence[str], width: int | None) -> Iterator[Text]:
    if not rows:
        return
    yield Text()
    yield Text(title, "bold")
    for row in rows:
        yield from wrapped("  · ", row, width)


def _about(run: Json) -> str:
    if run["incident_id"]:
        return f"incident {run['incident_id']}"
    return "question"


def _by(run: Json) -> str:
    if run["kind"] == "model":
        return f"{safe(run['role'])}, {safe(run['model']) or 'a model'}"
    return "offline analyst" if run["incident_id"] else "rules"


def _took(run: Json) -> str:
    seconds = float(run["seconds"])
    return f"{seconds:.1f} s" if seconds or run["ended"] else "-"
