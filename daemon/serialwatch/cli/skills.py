"""`serialwatch skills`: what the agent can do, and whether its skills are in order."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import click

from serialwatch.agent.skills.choice import tokens_of, tool_of
from serialwatch.agent.skills.folder import Finding, read_skills
from serialwatch.agent.skills.lint import REMEDIES, lint_skills
from serialwatch.agent.skills.registry import Registry, find_skills
from serialwatch.agent.skills.skill import Skill
from serialwatch.bundled import search_path
from serialwatch.cli.errors import WRONG_USE, CliError, tell
from serialwatch.cli.options import json_option
from serialwatch.cli.skills_load import (
    config_option,
    installed,
    one_of,
    read_config,
    resting,
    rests,
    status_of,
)
from serialwatch.cli.skills_new import new_skill
from serialwatch.cli.skills_run import run_skill, test_skills
from serialwatch.cli.tables import Column, Row, console, safe, say, table, width_of, wrapped
from serialwatch.wire import Json

_COLUMNS = (
    Column("SKILL"),
    Column("RISK"),
    Column("VERSION"),
    Column("TOKENS", is_right=True, leaves=1),
    Column("WHAT", least=40),
    Column("FROM", leaves=2),
)


@click.group()
def skills() -> None:
    """List, show, check, write, run and test the agent's skills."""


skills.add_command(new_skill)
skills.add_command(run_skill)
skills.add_command(test_skills)


@skills.command(short_help="Check skills against the list of what makes a good one.")
@click.argument("folders", nargs=-1, type=click.Path(path_type=Path, exists=True, file_okay=False))
@click.option("--strict", is_flag=True, help="Take warnings for errors.")
@json_option
def lint(folders: tuple[Path, ...], strict: bool, as_json: bool) -> int:
    """Check every skill; FOLDERS are skills or hold them, else all that are installed are checked.

    Each finding has a file and line, a code and what to do. It exits with 2 if there is an error.
    """
    wanted = [folder.resolve() for folder in folders]
    roots = [f.parent if (f / "SKILL.md").is_file() else f for f in wanted]
    for folder, root in zip(folders, roots, strict=True):
        if not any(read_skills(root)):
            raise CliError(
                f"{safe(folder)}: no skill: name a skill's folder, or one that holds such folders",
                WRONG_USE,
            )
    findings = [f for f in lint_skills(roots or search_path("skills")) if _is_in(f.path, wanted)]
    has_errors = any(finding.is_error or strict for finding in findings)
    if as_json:
        click.echo(json.dumps([_as_json(finding) for finding in findings], indent=2))
        return WRONG_USE if has_errors else 0
    for finding in findings:
        kind = "error" if finding.is_error or strict else "warning"
        words = f"{finding.path}:{finding.line}: {kind} {finding.code}: {finding.text}"
        tell(f"{safe(words)}: {REMEDIES[finding.code]}")
    loaded = find_skills(roots or search_path("skills"))
    checked = [s for s in (*loaded.skills.values(), *loaded.shadowed) if _is_in(s.folder, wanted)]
    skills = "1 skill" if len(checked) == 1 else f"{len(checked)} skills"
    told = "1 finding" if len(findings) == 1 else f"{len(findings) or 'no'} findings"
    click.echo(f"{skills}, {told}")
    return WRONG_USE if has_errors else 0


def _is_in(path: Path, folders: Sequence[Path]) -> bool:
    return not folders or any(path.is_relative_to(folder) for folder in folders)


def _as_json(finding: Finding) -> Json:
    return {
        "path": str(finding.path),
        "line": finding.line,
        "code": finding.code,
        "text": finding.text,
        "do": REMEDIES[finding.code],
        "is_error": finding.is_error,
    }


@skills.command("list", short_help="The skills the agent has, and those that are broken.")
@config_option
@json_option
def list_skills(config_path: Path | None, as_json: bool) -> None:
    """List the skills the agent has, other versions of them, and those that are broken."""
    config = read_config(config_path)
    registry, rest = installed(config), resting(config)
    found = [
        skill for name in sorted(registry.skills) for skill in registry.versions(name)
    ]  # fmt: skip
    if as_json:
        body = [_row(registry, skill) | {"rests": rests(rest, skill)} for skill in found]
        broken = [
            {"name": b.name, "folder": str(b.folder), "problems": [f.text for f in b.findings]}
            for b in registry.broken
        ]
        told = {"skills": body, "broken": broken, "warnings": list(registry.warnings)}
        click.echo(json.dumps(told, indent=2))
        return
    out = console()
    rows = [_listed(registry, skill, rests(rest, skill)) for skill in found]
    rows += [
        Row(
            (b.name, "-", "-", "-", f"broken: {safe(b.findings[0].text)}", str(b.folder.parent)),
            "a daemon that runs stays with the last version that was in order, if it knew one",
        )
        for b in registry.broken
    ]
    if not rows:
        say(f"no skills: put a folder with a SKILL.md into {search_path('skills')[0]}")
        return
    for line in table(_COLUMNS, rows, width_of(out)):
        out.print(line)


def _listed(registry: Registry, skill: Skill, why_rests: str) -> Row:
    is_used = registry.skills[skill.name] is skill
    what = _first_sentence(skill.description) if is_used else status_of(registry, skill)
    tokens = str(tokens_of(tool_of(skill))) if is_used else "-"
    note = status_of(registry, skill) if is_used and skill.name in registry.reasons else ""
    cells = (skill.name, skill.risk, skill.version, tokens, what, str(skill.folder.parent))
    return Row(cells, safe("; ".join(filter(None, (why_rests, note)))))


def _row(registry: Registry, skill: Skill) -> Json:
    return {
        "name": skill.name,
        "version": skill.version,
        "risk": skill.risk,
        "description": skill.description,
        "folder": str(skill.folder),
        "is_used": registry.skills[skill.name] is skill,
        "status": status_of(registry, skill),
        "tokens": tokens_of(tool_of(skill)),
    }


@skills.command(short_help="Show a skill as the model sees it.")
@click.argument("name")
@config_option
@json_option
def show(name: str, config_path: Path | None, as_json: bool) -> None:
    """Show what the model sees of a skill and what that costs, its rights, limits and versions.

    NAME is that of a skill, or its folder.
    """
    config = read_config(config_path)
    registry, name = one_of(config, name)
    skill = registry.skills[name]
    why_rests = rests(resting(config), skill)
    if as_json:
        click.echo(json.dumps(_shown(registry, skill) | {"rests": why_rests}, indent=2))
        return
    out = console()
    width = width_of(out)
    tool = tool_of(skill)
    out.print(f"{skill.name} {skill.version} · {skill.risk} · {safe(status_of(registry, skill))}")
    facts = [("not called", why_rests)] if why_rests else []
    facts += [
        ("what", skill.description),
        ("may use", ", ".join(sorted(skill.allowed)) or "nothing of the bench"),
        ("limits", _limits(skill)),
        ("roles", ", ".join(sorted(skill.roles)).replace("*", "any")),
        ("tags", ", ".join(sorted(skill.tags)) or "none"),
        ("folder", str(skill.folder)),
        ("hash", skill.sha[:16]),
    ]
    facts += [
        ("also there", f"{other.version} in {other.folder.parent}, {status_of(registry, other)}")
        for other in registry.versions(name)[1:]
    ]
    for key, value in facts:
        for line in wrapped(f"  {key:<12}", safe(value), width):
            out.print(line)
    out.print("\nParameters")
    required = skill.params.get("required", ())
    for param, about in skill.params.get("properties", {}).items():
        for line in wrapped(f"  {param:<12}", safe(_parameter(about, param in required)), width):
            out.print(line)
    if not skill.params.get("properties"):
        out.print("  none")
    if (example := skill.example()) is not None:
        out.print(f"  for example {safe(json.dumps(example, ensure_ascii=False))}")
    if skill.hints:
        out.print("\nIf it fails")
    for code, hint in skill.hints.items():
        for line in wrapped(f"  {code:<16}", safe(hint), width):
            out.print(line)
    out.print(f"\nThe model sees, in about {tokens_of(tool)} tokens of each prompt")
    for row in json.dumps(tool["function"], indent=1, ensure_ascii=False).splitlines():
        out.print(f"  {safe(row)}")


def _shown(registry: Registry, skill: Skill) -> Json:
    return {
        **_row(registry, skill),
        "allowed": sorted(skill.allowed),
        "roles": sorted(skill.roles),
        "tags": sorted(skill.tags),
        "timeout_s": skill.timeout_s,
        "long_s": skill.long_s,
        "is_idempotent": skill.is_idempotent,
        "sha": skill.sha,
        "hints": dict(skill.hints),
        "tool": tool_of(skill),
        "versions": [_row(registry, each) for each in registry.versions(skill.name)],
        "text": skill.body,
    }


def _limits(skill: Skill) -> str:
    long = f", {skill.long_s:g} s as a long job" if skill.long_s else ""
    again = "may be called again" if skill.is_idempotent else "done once a run"
    return f"{skill.timeout_s:g} s{long}; {again}"


def _parameter(about: Mapping[str, Any], is_required: bool) -> str:
    kind = about.get("type") or ("one of " + ", ".join(map(str, about.get("enum", ()))))
    kind = " or ".join(kind) if isinstance(kind, list) else str(kind)
    told = [kind, "required" if is_required else "", str(about.get("description", ""))]
    if "default" in about:
        told.append(f"Default {json.dumps(about['default'])}.")
    if examples := about.get("examples"):
        told.append(f"E.g. {json.dumps(examples[0], ensure_ascii=False)}.")
    return f"{', '.join(filter(None, told[:2]))}. {' '.join(filter(None, told[2:]))}"


def _first_sentence(text: str) -> str:
    return safe(text.split(". ", maxsplit=1)[0].rstrip("."))
