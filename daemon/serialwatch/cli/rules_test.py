"""`serialwatch rules test`: which rule hits which line of a log, and why one does not."""

from __future__ import annotations

import json
import sys
from collections.abc import Sequence
from pathlib import Path

import click

from serialwatch.cli.errors import FAULT, WRONG_USE, CliError, tell
from serialwatch.cli.options import json_option
from serialwatch.cli.rules_load import load_installed, matcher_of, packs_at, unknown_rule
from serialwatch.cli.show_analysis import shown_name
from serialwatch.cli.tables import SEVERITY_STYLES, Column, Row, console, safe, say, table, width_of
from serialwatch.cli.waiting import told_while_waiting
from serialwatch.records import Boot, Hit
from serialwatch.saved.log import SavedLog, open_log, readable_twice
from serialwatch.saved.trial import MAX_BYTES, Miss, Near, Trial
from serialwatch.wire import Json

_SHOWN = 160  # characters of a line

_COLUMNS = (
    Column("LINE", is_right=True),
    Column("BLOCK", is_right=True, leaves=1),
    Column("RULE"),
    Column("SEVERITY"),
    Column("WHAT", least=30),  # the last: only it is broken where a pipe ends in a narrow terminal
)


@click.command("test", short_help="Say which rule hits which line of a log.")
@click.argument("file", type=click.Path(path_type=Path, allow_dash=True), metavar="FILE")
@click.option("--rule", "rule_id", metavar="ID", help="Only this one; and why it does not hit.")
@click.option(
    "--with",
    "paths",
    multiple=True,
    type=click.Path(path_type=Path),
    metavar="PATH",
    help="A pack that is not installed yet, or a folder of some.",
)
@json_option
def test_rules(file: Path, rule_id: str | None, paths: tuple[Path, ...], as_json: bool) -> int:
    """Say which rule hits which line of a saved log, with its fields and its block.

    With --rule: also why the rule does not hit a line that it might have. Exits with 1 if nothing
    was hit.
    """
    ruleset = load_installed(packs_at(paths))
    if rule_id and not (ruleset.rule(rule_id) or ruleset.detector(rule_id)):
        raise unknown_rule(ruleset, rule_id)
    trial = Trial(matcher_of(ruleset))
    try:
        with _opened(file) as log:
            trial.try_out(log)
            if log.damage:
                tell(f"{safe(str(file))}: {log.damage}; what could be unpacked is tried")
    except OSError as exc:
        raise CliError(f"{safe(str(file))}: {exc.strerror or exc}", WRONG_USE) from exc
    hits = [hit for hit in trial.hits if rule_id in (None, hit.trigger)]
    is_rule = rule_id is not None and ruleset.rule(rule_id) is not None
    misses = trial.misses(rule_id) if rule_id and is_rule else ()
    near = trial.near(rule_id) if rule_id and is_rule else ()
    if as_json:
        click.echo(json.dumps(_json(str(file), trial, hits, misses, near), indent=2))
    else:
        _show(shown_name(str(file)), trial, hits, rule_id)
        if rule_id and not is_rule and not hits:
            click.echo(
                f"{rule_id} is a detector: no pattern of it can miss a line; "
                f"`serialwatch rules explain {rule_id}` tells what it waits for"
            )
        elif rule_id and is_rule and (misses or near or not hits):
            _show_why_not(trial, rule_id, misses, near)
    return 0 if hits else FAULT


def _opened(file: Path) -> SavedLog:
    with told_while_waiting(str(file)):
        return readable_twice(sys.stdin.buffer) if str(file) == "-" else open_log(file)


def _json(
    name: str, trial: Trial, hits: Sequence[Hit], misses: Sequence[Miss], near: Sequence[Near]
) -> Json:
    return {
        "file": name,
        "lines": trial.lines,
        "boots": [
            {"boot": b.number, "line": trial.line_of(b.seq), "ecosystem": b.ecosystem}
            | {"cause": b.cause, "banner": b.marker}
            for b in trial.starts
        ],
        "hits": [
            {
                "line": trial.line_of(hit.seq),
                "rule": hit.trigger,
                "severity": hit.severity,
                "title": hit.title,
                "key": hit.key,
                "fields": dict(hit.fields),
                "block": list(trial.block_of(hit)),
                "boot": hit.boot,
                "incident": trial.incident_of(hit),
                "text": _text(hit.raw),
            }
            for hit in hits
        ],
        "misses": [
            {"line": trial.line_of(miss.seq), "stopped_by": miss.stopped_by, "why": miss.why}
            | {"text": _text(miss.text)}
            for miss in misses
        ],
        "near": [
            {"line": trial.line_of(each.seq), "pattern": each.pattern, "matches": each.matches}
            | {"then_wants": each.wants, "line_has": _text(each.has), "text": _text(each.text)}
            | {"differs_in_case": each.is_other_case, "not_at_start": each.is_elsewhere}
            for each in near
        ],
    }


def _show(name: str, trial: Trial, hits: Sequence[Hit], rule_id: str | None) -> None:
    out = console()
    count, boots = trial.lines, len(trial.starts)
    out.print(
        f"{name}: {count:,} line{'s'[: count != 1]}, {boots} boot{'s'[: boots != 1]}, "
        f"{len(hits)} hit{'s'[: len(hits) != 1]}{f' of {rule_id}' if rule_id else ''}"
    )
    for boot in trial.starts:
        line = trial.line_of(boot.seq)
        out.print(f"  boot #{boot.number} at L{line}: {boot.ecosystem}, {_cause(boot)}")
    if trial.is_cut:
        out.print(f"  only the first {MAX_BYTES // 1_000_000} MB were read")
    if hits:
        rows = [_row(trial, hit) for hit in hits]
        for text in table(_COLUMNS, rows, width_of(out)):
            out.print(text)


def _cause(boot: Boot) -> str:
    return "for an unknown cause" if boot.cause == "unknown" else boot.cause


def _show_why_not(trial: Trial, rule_id: str, misses: Sequence[Miss], near: Sequence[Near]) -> None:
    """Print which lines the rule does not hit, and why."""
    out = console()
    for miss in misses:
        out.print(f"L{trial.line_of(miss.seq)} is not hit: {safe(miss.why)}")
        out.print(f"    {_text(miss.text)}")
    for each in near:
        out.print(f"L{trial.line_of(each.seq)} is nearly hit by  {safe(each.pattern)}")
        out.print(f"    {_text(each.text)}")
        if each.is_other_case:
            out.print("    only upper and lower case differ: begin the pattern with  (?i)")
            continue
        if each.is_elsewhere:
            out.print("    it is not at the start of the line, as the  ^  asks for")
            continue
        out.print(f"    matches  {safe(each.matches)}")
        out.print(f"    then wants  {safe(each.wants)}  where the line has  {_text(each.has)}")
    if not (misses or near):
        say(f"no line comes near a pattern of {rule_id}: `serialwatch rules explain {rule_id}`")


def _row(trial: Trial, hit: Hit) -> Row:
    first, last = trial.block_of(hit)
    block = f"{first}–{last}" if first != last else str(first)
    fields = ", ".join(f"{name}={safe(value)}" for name, value in hit.fields.items())
    goes_to = trial.incident_of(hit)
    notes = [fields] if fields else []
    if goes_to and goes_to != hit.trigger:
        notes.append(f"counts in the incident of {goes_to}")
    elif not goes_to:
        notes.append("opens no incident: " + ("a note" if hit.severity == "note" else "too vague"))
    cells = (f"{trial.line_of(hit.seq)}", block, hit.trigger, hit.severity, safe(hit.title))
    return Row(cells, "; ".join(notes), ("", "", "", SEVERITY_STYLES[hit.severity]))


def _text(raw: bytes) -> str:
    return safe(raw.decode("utf-8", errors="backslashreplace"))[:_SHOWN]
