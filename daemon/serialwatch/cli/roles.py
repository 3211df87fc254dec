"""`serialwatch roles`: who the agent is to be, and what each role may use."""

from __future__ import annotations

import json
from pathlib import Path

import click

from serialwatch.agent.role import (
    LIMITS,
    Role,
    RoleProblem,
    Roles,
    check_skills,
    describe,
    load_roles,
    tokens_in,
)
from serialwatch.agent.skills.registry import find_skills
from serialwatch.bundled import search_path
from serialwatch.cli.errors import WRONG_USE, CliError, tell
from serialwatch.cli.options import ListGroup, json_option
from serialwatch.cli.tables import Column, Row, console, safe, table, width_of, wrapped

_COLUMNS = (
    Column("ROLE"),
    Column("TAKES"),
    Column("SKILLS", is_right=True),
    Column("RISK"),
    Column("TOKENS", is_right=True, leaves=1),
    Column("WHAT", least=30),
    Column("FROM", leaves=2),
)


@click.group(cls=ListGroup)
def roles() -> None:
    """List, show and check the agent's roles.

    Your own copies in /etc/serialwatch/roles, or roles below your own configuration folder, win
    over those that ship: <name>/ROLE.md.
    """


@roles.command("list")
@json_option
def list_roles(as_json: bool = False) -> None:
    """List the roles the agent has, and those that are broken."""
    found, problems = _installed()
    if as_json:
        click.echo(json.dumps(
            {
                "roles": [describe(found.found[name]) for name in sorted(found.found)],
                "problems": [_problem(each) for each in problems],
                "shadowed": [str(role.path) for role in found.shadowed],
            },
            indent=2,
        ))  # fmt: skip
        return
    _tell(problems)
    rows = [_row(found.found[name]) for name in sorted(found.found)]
    if not rows:
        raise CliError(f"no role can be used: put one into {search_path('roles')[0]}/NAME/ROLE.md")
    out = console()
    for line in table(_COLUMNS, rows, width_of(out)):
        out.print(line)


@roles.command(short_help="Show a role: what it is told and what it may use.")
@click.argument("name")
@json_option
def show(name: str, as_json: bool) -> None:
    """Show what a role is told in each phase, what that costs, and what it may use."""
    found, problems = _installed()
    role = found.get(name)
    if role is None:
        _tell([each for each in problems if each.path.parent.name == name])
        known = ", ".join(sorted(found.found)) or "none"
        raise CliError(f"no role {safe(name)!r}: there are {known}", WRONG_USE)
    if as_json:
        click.echo(json.dumps(describe(role), indent=2))
        return
    out = console()
    width = width_of(out)
    out.print(f"{role.name} · takes {', '.join(sorted(role.origin))} · {safe(role.path)}")
    limits = ", ".join(f"{key} {role.limit(key, most):g}" for key, (_, most) in LIMITS.items())
    facts = [
        ("what", role.description),
        ("skills", " ".join(role.skills)),
        ("risk", f"{role.risk} at most"),
        ("memory", f"sees {_scopes(role.memory_read)}; adds to {_scopes(role.memory_write)}"),
        ("limits", f"{limits} (a smaller one of the configuration counts)"),
    ]
    for key, value in facts:
        for line in wrapped(f"  {key:<8}", safe(value), width):
            out.print(line)
    for key, text in role.sections.items():
        out.print(f"\n{safe(key)}, about {tokens_in(text)} tokens")
        for row in text.splitlines():
            for line in wrapped("  ", safe(row), width):
                out.print(line)


@roles.command(short_help="Check roles: sizes, sections, skills, limits.")
@click.argument("folders", nargs=-1, type=click.Path(path_type=Path, exists=True, file_okay=False))
@json_option
def check(folders: tuple[Path, ...], as_json: bool) -> int:
    """Check every role; FOLDERS hold roles, or are one; else all that are installed are checked.

    Each problem has its file and line. It exits with 2 if there is one.
    """
    roots = [f.resolve().parent if (f / "ROLE.md").is_file() else f.resolve() for f in folders]
    found, problems = _checked(roots or search_path("roles"))
    wanted = [f.resolve() for f in folders]
    problems = [p for p in problems if not wanted or any(p.path.is_relative_to(f) for f in wanted)]
    checked = [
        role for role in (*found.found.values(), *found.shadowed)
        if not wanted or any(role.path.is_relative_to(f) for f in wanted)
    ]  # fmt: skip
    if folders and not checked and not problems:
        raise CliError(f"{safe(folders[0])}: no role: there is no NAME/ROLE.md", WRONG_USE)
    if as_json:
        click.echo(json.dumps([_problem(each) for each in problems], indent=2))
        return WRONG_USE if problems else 0
    _tell(problems)
    if not folders and found.for_origin("incidents") is None:
        tell("no role takes incidents: no model is asked about them")
    number = len(checked)
    click.echo(
        f"{number} role{'' if number == 1 else 's'} in order, {len(problems) or 'no'} problems"
    )
    return WRONG_USE if problems else 0


def _installed() -> tuple[Roles, list[RoleProblem]]:
    return _checked(search_path("roles"))


def _checked(dirs: list[Path]) -> tuple[Roles, list[RoleProblem]]:
    found = load_roles(dirs)
    skills = find_skills(search_path("skills")).skills
    problems = list(found.problems)
    for role in (*found.found.values(), *found.shadowed):
        problems += check_skills(
            role,
            {name: skill.risk for name, skill in skills.items()},
            {name: skill.roles for name, skill in skills.items()},
        )
    return found, problems


def _tell(problems: list[RoleProblem]) -> None:
    for each in problems:
        tell(safe(each.words))


def _problem(each: RoleProblem) -> dict[str, str | int]:
    return {"path": str(each.path), "line": each.line, "text": each.text}


def _row(role: Role) -> Row:
    size = tokens_in(role.text("method", ()))
    cells = (
        role.name,
        " ".join(sorted(role.origin)),
        str(len(role.skills)),
        role.risk,
        str(size),
        safe(role.description),
        str(role.path.parent.parent),
    )
    return Row(cells)


def _scopes(scopes: frozenset[str]) -> str:
    return " ".join(sorted(scopes)) or "nothing"
