"""`serialwatch analyze`: a saved log, without a daemon."""

from __future__ import annotations

import asyncio
import json
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import BinaryIO

import click
from rich.text import Text

from serialwatch.agent.knowledge import load_knowledge
from serialwatch.agent.skills import load_skills
from serialwatch.analysis import PORT, Analysis, most_severe, open_log, readable_twice
from serialwatch.analysis import analyze as analyze_log
from serialwatch.bundled import bundled_dir, search_path
from serialwatch.cli.errors import WRONG_USE, CliError
from serialwatch.cli.options import json_option
from serialwatch.cli.rules import load_installed
from serialwatch.cli.show_report import About, report_lines
from serialwatch.cli.tables import SEVERITY_STYLES, Column, Row, console, safe, table, width_of
from serialwatch.cli.times import local_now
from serialwatch.records import SEVERITIES, Incident, Severity
from serialwatch.triggers.matcher import Matcher
from serialwatch.wire import Json, report_to_json


@click.command()
@click.argument("files", nargs=-1, required=True, metavar="FILE…")
@click.option(
    "--fail-on",
    type=click.Choice(SEVERITIES[1:]),
    help="Exit with 1 if there is an incident so severe.",
)
@json_option
def analyze(files: tuple[str, ...], fail_on: Severity | None, as_json: bool) -> int:
    """Find the faults in saved console logs; `-` reads standard input.

    The lines of the report are numbered as in the file.
    """
    matcher = Matcher(load_installed())
    registry = load_skills([bundled_dir("skills")])
    knowledge = load_knowledge(search_path("knowledge"))
    fails, is_read = False, True
    for name in files:
        with _opened(name) as source:
            found = asyncio.run(analyze_log(source, matcher, registry, knowledge))
        try:
            if is_read and as_json:
                click.echo(json.dumps(_json(name, found)))
            elif is_read:
                _show(name, found)
        except (BrokenPipeError, SystemExit):  # rich raises the latter; the verdict still counts
            is_read = False
        fails |= fail_on is not None and any(
            SEVERITIES.index(i.severity) >= SEVERITIES.index(fail_on) for i in found.incidents
        )
    return 1 if fails else 0


@contextmanager
def _opened(name: str) -> Iterator[BinaryIO]:
    """Open a log; whatever the system says against it, then or later, is told with its name."""
    try:
        with readable_twice(sys.stdin.buffer) if name == "-" else open_log(name) as source:
            yield source
    except OSError as exc:
        if isinstance(exc, BrokenPipeError):
            raise
        raise CliError(f"{safe(name) or repr(name)}: {exc.strerror or exc}", WRONG_USE) from exc


def _json(name: str, found: Analysis) -> Json:
    return {
        "file": name,
        "lines": found.lines,
        "boots": found.boots,
        "incidents": [
            {
                "rule": i.trigger,
                "severity": i.severity,
                "title": i.title,
                "first_line": i.first_seq,
                "block_first": i.block_first,
                "last_line": i.last_seq,
                "count": i.count,
                "fields": dict(i.fields),
            }
            for i in found.incidents
        ],
        "report": report_to_json(found.report) if found.report else None,
    }


def _show(name: str, found: Analysis) -> None:
    out = console()
    width = width_of(out)
    what = f", {' and '.join(found.ecosystems)}" if found.ecosystems else ""
    lines = f"{found.lines:,} line{'' if found.lines == 1 else 's'}"
    out.print(
        Text(
            f"{safe(name)}: {lines}, {_size(found.size)}, "
            f"{found.boots} boot{'' if found.boots == 1 else 's'}{what}, {found.seconds:.2f} s"
        )
    )
    out.print(Text())
    if not found.incidents:
        out.print(
            Text("No fault was recognised. Is one missing? `serialwatch rules list` shows all.")
        )
        return
    columns = [
        Column("SEVERITY"), Column("LINE", is_right=True), Column("WHAT", least=20),
        Column("COUNT", is_right=True), Column("BOOT", is_right=True),
    ]  # fmt: skip
    rows = [_row(i) for i in found.incidents]
    for line in table(columns, rows, width):
        out.print(line)
    chosen = most_severe(found.incidents)
    if found.report is None or chosen is None:
        return
    out.print(Text())
    about = About(port=PORT, boot=chosen.boot, outcome=chosen.outcome)
    for line in report_lines(found.report, about, local_now(), width):
        out.print(line)
    out.print(Text())
    out.print(
        Text(
            f"serialwatch analyze {safe(name)} --json   for scripts\n"
            f"serialwatch rules explain {chosen.trigger}"
        )
    )


def _row(incident: Incident) -> Row:
    first, last = incident.block_first, incident.last_seq
    where = f"{first:,}" if first == last else f"{first:,}–{last:,}"
    boot = f"#{incident.boot}" if incident.boot else "-"
    cells = (incident.severity, where, incident.title, str(incident.count), boot)
    return Row(cells, styles=(SEVERITY_STYLES.get(incident.severity, ""),))


def _size(size: int) -> str:
    if size < 1000:
        return f"{size} B"
    if size < 1_000_000:
        return f"{size / 1000:.1f} kB"
    return f"{size / 1_000_000:.1f} MB"
