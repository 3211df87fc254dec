"""The skills that a command works with."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, TypeVar

import click

from serialwatch.agent.skills.registry import Registry, find_skills
from serialwatch.agent.skills.resting import NAME, Resting, read_resting
from serialwatch.agent.skills.skill import Skill
from serialwatch.bundled import search_path
from serialwatch.cli.errors import WRONG_USE, CliError, tell
from serialwatch.cli.tables import safe
from serialwatch.cli.times import clock, local_now
from serialwatch.config import Config, load_config, state_dir
from serialwatch.tomlfile import TomlError
from serialwatch.wire import utc_ns

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
        tell(safe(warning))
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


def resting(config: Config) -> Mapping[tuple[str, str], Resting]:
    """Return the skills that rest with the daemon of this configuration, by name and hash."""
    return read_resting(state_dir(config) / "skills" / NAME)


def rests(rest: Mapping[tuple[str, str], Resting], skill: Skill) -> str:
    """Return why a skill is not called now and what to do about it, "" if it is."""
    row = rest.get((skill.name, skill.sha))
    if row is None:
        return ""
    when = clock(utc_ns(row.since), local_now())
    return f"rests since {when}: {row.why}; mend it, or `touch {skill.folder}/main.py`"


def status_of(registry: Registry, skill: Skill) -> str:
    """Return whether a version is in use, and why where there are several."""
    used = registry.skills.get(skill.name) is skill
    why = registry.reasons.get(skill.name, "")
    if used:
        return f"in use: {why}" if why else "in use"
    return f"not in use: {why}"
