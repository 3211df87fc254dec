"""`serialwatch rules new`: a rule from a line of a log."""

from __future__ import annotations

import dataclasses
import json
import re
import sys
from pathlib import Path

import click

from serialwatch.cli.errors import FAULT, WRONG_USE, CliError, tell
from serialwatch.cli.options import json_option
from serialwatch.cli.rules_load import load_installed, matcher_of
from serialwatch.cli.tables import safe
from serialwatch.cli.waiting import told_while_waiting
from serialwatch.records import SEVERITIES, Severity
from serialwatch.tomlfile import TomlError
from serialwatch.triggers.check import check_rule
from serialwatch.triggers.proposal import Proposal, propose
from serialwatch.triggers.rules import parse_rules
from serialwatch.triggers.ruleset import RuleSet
from serialwatch.whole_file import write_whole

MAX_PASTED = 16 * 1024  # bytes: a line

_ID = re.compile(r"[a-z0-9_]+\.[a-z0-9_]+")


@click.command("new", short_help="Propose a rule for a line of a log.")
@click.argument("line", required=False)
@click.option("--id", "rule_id", default="", metavar="PACK.WORD", help="Else made of its words.")
@click.option("--severity", type=click.Choice(SEVERITIES), default="error", show_default=True)
@click.option(
    "--counterexample",
    "counterexamples",
    multiple=True,
    metavar="LINE",
    help="A line that looks alike and is no fault.",
)
@click.option(
    "--write",
    "path",
    type=click.Path(path_type=Path, dir_okay=False),
    metavar="FILE",
    help="Add it to this pack.",
)
@json_option
def new_rule(
    line: str | None,
    rule_id: str,
    severity: Severity,
    counterexamples: tuple[str, ...],
    path: Path | None,
    as_json: bool,
) -> int:
    """Propose a rule for a LINE that was pasted from a log; without one it is read from stdin.

    Numbers and addresses are generalised and become fields. The rule is checked against all
    others before it is printed; it exits with 1 if they do not get along.
    """
    if rule_id and not _ID.fullmatch(rule_id):
        raise CliError(
            f"--id {safe(rule_id)!r}: an id is PACK.WORD, in lowercase letters, digits and _, "
            "such as plant.dry_run",
            WRONG_USE,
        )
    pasted = _pasted(line)
    installed = load_installed()
    proposal = _proposed(installed, pasted, rule_id, severity, counterexamples)
    problems = _problems(installed, proposal)
    is_asked = not counterexamples and line is not None and not as_json and sys.stdin.isatty()
    if is_asked and not problems and (asked := _asked()):
        proposal = dataclasses.replace(proposal, counterexamples=(asked,))
        problems = _problems(installed, proposal)
    text = proposal.toml()
    if path is not None and not problems:
        _write(path, text, proposal)
    if as_json:
        written = str(path) if path is not None and not problems else ""
        told = {"toml": text, "problems": problems, "written": written}
        click.echo(json.dumps(dataclasses.asdict(proposal) | told, indent=2))
    else:
        click.echo(text, nl=False)
        for problem in problems:
            tell(safe(problem))
        if path is not None and problems:
            tell(f"{path}: not written")
        elif path is not None:
            tell(f"{path}: {proposal.id} added")
    return FAULT if problems else 0


def _pasted(line: str | None) -> str:
    """Return the line: the argument, else the first line of stdin that is not empty."""
    if line is None:
        if sys.stdin.isatty():
            click.echo("Paste the line, then press Enter:", err=True)
            line = sys.stdin.buffer.readline(MAX_PASTED).decode("utf-8", errors="surrogateescape")
        else:
            with told_while_waiting("-"):
                text = sys.stdin.buffer.read(MAX_PASTED).decode("utf-8", errors="surrogateescape")
            line = next((each for each in text.split("\n") if each.strip()), "")
    if not line.strip():
        raise CliError("no line to make a rule of: `serialwatch rules new 'LINE'`", WRONG_USE)
    if "\n" in line.strip():
        raise CliError("a rule is about one line; paste the one that tells the fault", WRONG_USE)
    return line[:MAX_PASTED]


def _asked() -> str:
    """Ask for a counterexample, "" if there is none."""
    words = "A line that looks alike and is no fault (Enter: none)"
    return str(click.prompt(words, default="", show_default=False, err=True)).strip()


def _proposed(
    installed: RuleSet,
    pasted: str,
    rule_id: str,
    severity: Severity,
    counterexamples: tuple[str, ...],
) -> Proposal:
    try:
        proposal = propose(pasted, rule_id, severity, counterexamples)
    except ValueError as exc:
        raise CliError(f"{safe(pasted)[:80]!r}: {exc}", WRONG_USE) from exc
    if rule_id:
        return proposal
    return dataclasses.replace(proposal, id=_free_id(installed, proposal.id))


def _free_id(installed: RuleSet, wanted: str) -> str:
    free, number = wanted, 1
    while installed.rule(free) or installed.detector(free):
        number += 1
        free = f"{wanted}_{number}"
    return free


def _problems(installed: RuleSet, proposal: Proposal) -> list[str]:
    """Return what is wrong with the new rule among the others."""
    try:
        own = parse_rules(proposal.toml(), "new rule")
    except TomlError as exc:
        raise CliError("\n".join(exc.problems), WRONG_USE) from exc
    (rule,) = own.rules
    if installed.rule(rule.id) or installed.detector(rule.id):
        return [f"{rule.id}: there is such a rule; choose another --id"]
    return check_rule(installed, matcher_of(installed), own)


def _write(path: Path, text: str, proposal: Proposal) -> None:
    try:
        before = path.read_text(encoding="utf-8") if path.exists() else ""
        if before.strip():
            parse_rules(before, str(path))  # its own faults by its own line numbers
        gap = "\n" if before.endswith("\n") else "\n\n"
        whole = before + gap + text if before.strip() else text
        parse_rules(whole, str(path))
        path.parent.mkdir(parents=True, exist_ok=True)
        write_whole(path, whole)
    except TomlError as exc:
        raise CliError("\n".join([*exc.problems, f"{path}: not written"]), WRONG_USE) from exc
    except (OSError, UnicodeDecodeError) as exc:
        reason = exc.strerror if isinstance(exc, OSError) else "not UTF-8"
        raise CliError(f"{path}: {proposal.id} cannot be added: {reason}", WRONG_USE) from exc
