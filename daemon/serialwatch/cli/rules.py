"""`serialwatch rules`: what is recognised, and whether the rules hold what they promise."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Iterator, Sequence
from pathlib import Path

import click

from serialwatch.agent.knowledge import load_knowledge
from serialwatch.bundled import bundled_dir, search_path, told_search_path
from serialwatch.cli.errors import FAULT, WRONG_USE, tell
from serialwatch.cli.options import json_option
from serialwatch.cli.rules_load import (
    load_all,
    load_installed,
    matcher_of,
    packs_at,
    unknown_rule,
)
from serialwatch.cli.rules_new import new_rule
from serialwatch.cli.rules_test import test_rules
from serialwatch.cli.tables import (
    SEVERITY_STYLES,
    Column,
    Row,
    console,
    safe,
    say,
    table,
    width_of,
    wrapped,
)
from serialwatch.records import SEVERITIES, Severity
from serialwatch.triggers.check import (
    check_rules,
    detector_sentence,
    explain_rule,
    placeholders,
    unknown_ecosystems,
)
from serialwatch.triggers.patterns import compile_pattern
from serialwatch.triggers.ruleset import RuleSet

_LABEL_WIDTH = 13  # columns of an explanation before what it says
_COLUMNS = (
    Column("ID"),
    Column("SEVERITY"),
    Column("TIER", leaves=1),
    Column("WHAT", least=40),
    Column("FROM", leaves=2),
)


@click.group()
def rules() -> None:
    """Check, list, explain, try out and write the rules that recognise faults."""


rules.add_command(test_rules)
rules.add_command(new_rule)


@rules.command(short_help="Check all rules and their examples.")
@click.argument("paths", nargs=-1, type=click.Path(path_type=Path), metavar="[PATH…]")
@json_option
def check(paths: tuple[Path, ...], as_json: bool) -> int:
    """Compile all rules and run every example and counterexample against all of them.

    A PATH, a pack or a folder of packs, is checked together with the rules that are installed.
    Exits with 2 if a rule cannot be used, with 1 if one does not hold what its examples promise.
    """
    loaded = load_all(packs_at(paths))
    problems = [
        *check_rules(loaded, matcher_of(loaded)),
        *unknown_ecosystems(loaded),
        *_pages_missing(loaded),
    ]
    warnings = [*loaded.replacements(), *_without_literal(loaded)]
    code = WRONG_USE if loaded.problems else FAULT if problems else 0
    if as_json:
        told = {
            "rules": len(loaded.rules),
            "problems": problems,
            "warnings": warnings,
            "folders": _searched(paths),
        }
        click.echo(json.dumps(told, indent=2))
        return code
    for problem in problems:
        tell(safe(problem))
    for warning in warnings:
        tell(f"warning: {safe(warning)}")
    examples = sum(len(rule.examples) + len(rule.counterexamples) for rule in loaded.rules)
    verdict = f"{len(problems)} problems" if problems else "all good"
    click.echo(_looked_for(paths))
    click.echo(
        f"{len(loaded.rules)} rules, {len(loaded.detectors)} detectors, {examples} examples: "
        f"{'1 problem' if len(problems) == 1 else verdict}"
    )
    return code


@rules.command("list", short_help="List rules and detectors.")
@click.argument("words", nargs=-1)
@click.option("--pack", metavar="NAME", help="Only of this pack: what is before the dot of an id.")
@click.option("--severity", type=click.Choice(SEVERITIES), help="Only those so severe.")
@json_option
def list_rules(
    words: tuple[str, ...], pack: str | None, severity: Severity | None, as_json: bool
) -> int:
    """List rules and detectors, those whose id or title holds all WORDS."""
    loaded = load_installed()
    found = [
        *((rule.id, rule.severity, rule.tier, rule.title, rule.source) for rule in loaded.rules),
        *((d.id, d.severity, "detector", detector_sentence(d), d.source) for d in loaded.detectors),
    ]
    replaced = dict(loaded.replaced)
    wanted = [
        entry
        for entry in sorted(found)
        if all(word.lower() in f"{entry[0]} {entry[3]}".lower() for word in words)
        and pack in (None, entry[0].partition(".")[0])
        and severity in (None, entry[1])
    ]
    if as_json:
        names = ("id", "severity", "tier", "title", "source")
        told = [
            {"pack": e[0].partition(".")[0], **dict(zip(names, e, strict=True))}
            | {"replaces": replaced.get(e[0], "")}
            for e in wanted
        ]
        click.echo(json.dumps(told, indent=2))
        return 0
    out = console()
    if not wanted:
        asked = [f"{' and '.join(map(safe, words))} in its id or title"] if words else []
        asked += [f"the pack {safe(pack)}"] if pack else []
        asked += [f"the severity {severity}"] if severity else []
        say(f"no rule has {', '.join(asked) or 'been found'}")
        return 0
    rows = [
        Row(
            tuple(map(safe, e)),
            f"replaces {e[0]} ({safe(replaced[e[0]])})" if e[0] in replaced else "",
            ("", SEVERITY_STYLES[e[1]]),
        )
        for e in wanted
    ]
    for line in table(_COLUMNS, rows, width_of(out)):
        out.print(line)
    if out.is_terminal:
        click.echo(_looked_for(()))
    return 0


@rules.command(short_help="Say what a rule or detector finds.")
@click.argument("rule", metavar="ID")
@json_option
def explain(rule: str, as_json: bool) -> None:
    """Say what a rule or detector finds, and what belongs to it."""
    loaded = load_installed()
    found = loaded.rule(rule) or loaded.detector(rule)
    if found is None:
        raise unknown_rule(loaded, rule)
    if as_json:
        told = dataclasses.asdict(found)
        if one := loaded.rule(rule):
            told["placeholders"] = placeholders(loaded, one)
        elif detector := loaded.detector(rule):
            told["finds"] = detector_sentence(detector)
        click.echo(json.dumps(told, indent=2))
        return
    out = console()
    for line in explain_rule(loaded, rule).split("\n"):
        text = safe(line)
        lead = text[:_LABEL_WIDTH] if text.startswith("  ") else ""
        for row in wrapped(lead, text.removeprefix(lead), width_of(out)):
            out.print(row)


def _searched(paths: Sequence[Path]) -> list[str]:
    """Return where rules were looked for, what wins first."""
    return [*(f"{path} (read)" for path in reversed(paths)), *told_search_path("rules")]


def _looked_for(paths: Sequence[Path]) -> str:
    return "\n  ".join(["rules are looked for in", *map(safe, _searched(paths))])


def _without_literal(loaded: RuleSet) -> Iterator[str]:
    """Tell which patterns of one's own have no plain text that could be looked for first."""
    shipped = f"{bundled_dir('config/rules').name}/"
    for rule in loaded.rules:
        if rule.source.startswith(shipped):
            continue
        for pattern in rule.match:
            if not compile_pattern(pattern).longest_literal:
                yield (
                    f"rule {rule.id} ({rule.source}): `{pattern}` holds no plain text: "
                    "it is slow to look for, and hits what it should not; "
                    "add a word that the line always has"
                )


def _pages_missing(loaded: RuleSet) -> list[str]:
    """Return which knowledge pages are named but not there."""
    pages = load_knowledge(search_path("knowledge"))
    named = [*loaded.rules, *loaded.detectors]
    return [
        f"rule {each.id} ({each.source}): there is no knowledge page {each.knowledge!r}"
        for each in named
        if each.knowledge and pages.get(each.knowledge) is None
    ]
