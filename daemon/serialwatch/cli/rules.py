"""`serialwatch rules`: what is recognised, and whether the rules hold what they promise."""

from __future__ import annotations

import dataclasses
import difflib
import json
from pathlib import Path

import click

from serialwatch.agent.knowledge import load_knowledge
from serialwatch.bundled import search_path
from serialwatch.cli.errors import FAULT, WRONG_USE, CliError
from serialwatch.cli.options import json_option
from serialwatch.cli.tables import SEVERITY_STYLES, Column, Row, console, safe, table, width_of
from serialwatch.tomlfile import TomlError
from serialwatch.triggers.check import check_rules, explain_rule
from serialwatch.triggers.rules import load_rules
from serialwatch.triggers.ruleset import RuleSet

_COLUMNS = (
    Column("ID"),
    Column("SEVERITY"),
    Column("TIER", leaves=1),
    Column("WHAT", least=40),
    Column("FROM", leaves=2),
)


@click.group()
def rules() -> None:
    """Check, list and explain the rules that recognise faults."""


@rules.command(short_help="Check all rules and their examples.")
@click.argument("folders", nargs=-1, type=click.Path(path_type=Path, exists=True, file_okay=False))
@json_option
def check(folders: tuple[Path, ...], as_json: bool) -> int:
    """Compile all rules and run every example and counterexample against all of them.

    FOLDERS are checked together with the rules that are installed.
    """
    loaded = _loaded(folders)
    problems = [*check_rules(loaded), *_pages_missing(loaded)]
    if as_json:
        click.echo(json.dumps({"rules": len(loaded.rules), "problems": problems}, indent=2))
        return FAULT if problems else 0
    for problem in problems:
        click.echo(f"serialwatch: {safe(problem)}", err=True)
    examples = sum(len(rule.examples) + len(rule.counterexamples) for rule in loaded.rules)
    verdict = f"{len(problems)} problems" if problems else "all good"
    click.echo(
        f"{len(loaded.rules)} rules, {len(loaded.detectors)} detectors, {examples} examples: "
        f"{'1 problem' if len(problems) == 1 else verdict}"
    )
    return FAULT if problems else 0


@rules.command("list", short_help="List rules and detectors.")
@click.argument("words", nargs=-1)
@json_option
def list_rules(words: tuple[str, ...], as_json: bool) -> int:
    """List rules and detectors, those whose id or title holds all WORDS."""
    loaded = load_installed()
    found = [
        *((rule.id, rule.severity, rule.tier, rule.title, rule.source) for rule in loaded.rules),
        *((d.id, d.severity, "detector", _what(d), d.source) for d in loaded.detectors),
    ]
    wanted = [
        entry
        for entry in sorted(found)
        if all(word.lower() in f"{entry[0]} {entry[3]}".lower() for word in words)
    ]
    if as_json:
        names = ("id", "severity", "tier", "title", "source")
        click.echo(json.dumps([dict(zip(names, e, strict=True)) for e in wanted], indent=2))
        return 0
    out = console()
    if not wanted:
        out.print(f"no rule has {' and '.join(map(safe, words))} in its id or title")
        return 0
    rows = [Row(tuple(map(safe, e)), styles=("", SEVERITY_STYLES[e[1]])) for e in wanted]
    for line in table(_COLUMNS, rows, width_of(out)):
        out.print(line)
    return 0


@rules.command(short_help="Say what a rule or detector finds.")
@click.argument("rule", metavar="ID")
@json_option
def explain(rule: str, as_json: bool) -> None:
    """Say what a rule or detector finds, and what belongs to it."""
    loaded = load_installed()
    found = loaded.rule(rule) or loaded.detector(rule)
    if found is None:
        known = [*(r.id for r in loaded.rules), *(d.id for d in loaded.detectors)]
        close = difflib.get_close_matches(rule, known, n=3)
        hint = f"did you mean {' or '.join(close)}?" if close else "`serialwatch rules list`"
        raise CliError(f"no rule {rule!r}: {hint}", WRONG_USE)
    if as_json:
        click.echo(json.dumps(dataclasses.asdict(found), indent=2))
        return
    click.echo(explain_rule(loaded, rule))


def load_installed() -> RuleSet:
    """Return the rules that are installed; what is broken is left out and told on stderr.

    Raises:
        CliError: nothing at all can be used.

    """
    loaded = _loaded(())
    for problem in loaded.problems:
        click.echo(f"serialwatch: left out: {safe(problem)}", err=True)
    return loaded


def _loaded(folders: tuple[Path, ...]) -> RuleSet:
    try:
        return load_rules([*reversed(search_path("rules")), *folders])
    except TomlError as exc:
        raise CliError("\n".join(exc.problems), WRONG_USE) from exc


def _pages_missing(loaded: RuleSet) -> list[str]:
    """Return which knowledge pages are named but not there."""
    pages = load_knowledge(search_path("knowledge"))
    named = [*loaded.rules, *loaded.detectors]
    return [
        f"rule {each.id} ({each.source}): there is no knowledge page {each.knowledge!r}"
        for each in named
        if each.knowledge and pages.get(each.knowledge) is None
    ]


def _what(detector: object) -> str:
    """Return the first sentence of a detector's description."""
    return (type(detector).__doc__ or "").split("\n")[0].rstrip(".")
