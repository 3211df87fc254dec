"""`serialwatch skills`: what the agent can do, and whether its skills are in order."""

from __future__ import annotations

import json
import logging
from pathlib import Path

import click

from serialwatch.agent.lint import lint_skills
from serialwatch.agent.skill_folder import read_skills
from serialwatch.agent.skills import load_skills
from serialwatch.bundled import search_path
from serialwatch.cli.errors import FAULT, WRONG_USE, CliError
from serialwatch.cli.options import json_option
from serialwatch.cli.tables import Column, Row, console, safe, table, width_of

_COLUMNS = (
    Column("SKILL"),
    Column("RISK"),
    Column("VERSION", leaves=1),
    Column("WHAT", least=50),
    Column("FROM", leaves=2),
)


@click.group()
def skills() -> None:
    """Check and list the agent's skills."""


@skills.command(short_help="Check every skill.")
@click.argument("folders", nargs=-1, type=click.Path(path_type=Path, exists=True, file_okay=False))
@json_option
def lint(folders: tuple[Path, ...], as_json: bool) -> int:
    """Check every skill; FOLDERS hold skills, else all that are installed are checked."""
    roots = list(folders) or search_path("skills")
    for folder in folders:
        if not list(read_skills(folder)):
            raise CliError(
                f"{safe(folder)}: no skill: name a folder that holds folders with a SKILL.md",
                WRONG_USE,
            )
    findings = lint_skills(roots)
    has_errors = any(finding.is_error for finding in findings)
    if as_json:
        found = [
            {"path": str(f.path), "code": f.code, "text": f.text, "is_error": f.is_error}
            for f in findings
        ]
        click.echo(json.dumps(found, indent=2))
        return FAULT if has_errors else 0
    for finding in findings:
        kind = "error" if finding.is_error else "warning"
        words = f"{finding.path}: {kind} {finding.code}: {finding.text}"
        click.echo(f"serialwatch: {safe(words)}", err=True)
    _hush()
    loaded = load_skills(roots)
    click.echo(f"{len(loaded.skills)} skills, {len(findings) or 'no'} findings")
    return FAULT if has_errors else 0


@skills.command("list")
@json_option
def list_skills(as_json: bool) -> None:
    """List the skills the agent has, and those that are broken."""
    _hush()
    registry = load_skills(search_path("skills"))
    found = sorted(registry.skills.values(), key=lambda skill: skill.name)
    if as_json:
        body = [
            {
                "name": s.name,
                "version": s.version,
                "risk": s.risk,
                "description": s.description,
                "folder": str(s.folder),
            }
            for s in found
        ]
        broken = [
            {"name": b.name, "folder": str(b.folder), "problems": [f.text for f in b.findings]}
            for b in registry.broken
        ]
        click.echo(json.dumps({"skills": body, "broken": broken}, indent=2))
        return
    out = console()
    rows = [
        Row((s.name, s.risk, s.version, _first_sentence(s.description), str(s.folder.parent)))
        for s in found
    ]
    rows += [
        Row((b.name, "-", "-", f"broken: {safe(b.findings[0].text)}", str(b.folder.parent)))
        for b in registry.broken
    ]
    if not rows:
        out.print(f"no skills: put a folder with a SKILL.md into {search_path('skills')[0]}")
        return
    for line in table(_COLUMNS, rows, width_of(out)):
        out.print(line)


def _hush() -> None:
    """Keep the loader's own log lines off the screen: the command says the same."""
    logging.getLogger("serialwatch.agent.skills").addHandler(logging.NullHandler())
    logging.getLogger("serialwatch.agent.skills").propagate = False


def _first_sentence(text: str) -> str:
    return safe(text.split(". ", maxsplit=1)[0].rstrip("."))
