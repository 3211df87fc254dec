"""The skills that a command works with."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar

import click

from serialwatch.agent.skills.registry import Registry, find_skills
from serialwatch.agent.skills.skill import Skill
from serialwatch.bundled import search_path
from serialwatch.cli.errors import WRONG_USE, CliError
from serialwatch.cli.tables import safe
from serialwatch.config import Config, load_config
from serialwatch.tomlfile import TomlError

F = TypeVar("F", bound=Callable[..., Any])


def config_option(command: F) -> F:
    """Add -c: the configuration may name versions of skills."""
    return click.option(
        "-c",
        "--config",
        "config_path",
        type=click.Path(path_type=Path),
        metavar="FILE",
        help="The configuration; else the system's, if there is one.",
    )(command)


def read_config(path: Path | None) -> Config:
    """Return the configuration.

    Raises:
        CliError: it cannot be used.

    """
    try:
        return load_config(path)
    except TomlError as exc:
        raise CliError("\n".join(exc.problems), WRONG_USE) from exc


def installed(config: Config) -> Registry:
    """Return the skills that the agent has; a version that is named in vain is told."""
    registry = find_skills(search_path("skills"), config.agent.skill_versions)
    for warning in registry.warnings:
        click.echo(f"serialwatch: {safe(warning)}", err=True)
    return registry


def one_of(config: Config, name: str) -> tuple[Registry, str]:
    """Return the skills, and the name of the one that is meant by its name or its folder.

    Raises:
        CliError: there is none, or it is broken.

    """
    folder = Path(name)
    is_folder = "/" in name or (folder / "SKILL.md").is_file()
    if is_folder:
        folder = folder.resolve()
        name = folder.name
        registry = find_skills([folder.parent, *search_path("skills")])
        bad = [broken for broken in registry.broken if broken.folder == folder]
    else:
        registry = installed(config)
        bad = [broken for broken in registry.broken if broken.name == name]
    found = registry.skills.get(name)
    if found is not None and (not is_folder or found.folder == folder):
        return registry, name
    if bad:
        raise CliError(f"{safe(bad[0].folder)}: broken: {safe(bad[0].words)}")
    if is_folder:
        raise CliError(f"{safe(folder)}: no skill: there is no SKILL.md", WRONG_USE)
    close = registry.similar(name)
    hint = f"did you mean {' or '.join(close)}?" if close else "`serialwatch skills list`"
    raise CliError(f"no skill {safe(name)!r}: {hint}", WRONG_USE)


def status_of(registry: Registry, skill: Skill) -> str:
    """Return whether a version is in use, and why where there are several."""
    used = registry.skills.get(skill.name) is skill
    why = registry.reasons.get(skill.name, "")
    if used:
        return f"in use: {why}" if why else "in use"
    return f"not in use: {why}"
