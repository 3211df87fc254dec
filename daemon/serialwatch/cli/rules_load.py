"""The rules that a command works with."""

from __future__ import annotations

import difflib
from collections.abc import Sequence
from pathlib import Path

import click

from serialwatch.bundled import search_path
from serialwatch.cli.errors import WRONG_USE, CliError
from serialwatch.cli.tables import safe
from serialwatch.tomlfile import TomlError
from serialwatch.triggers.database_cache import DatabaseCache, default_folder
from serialwatch.triggers.matcher import Matcher
from serialwatch.triggers.rules import load_rules
from serialwatch.triggers.ruleset import RuleSet


def load_installed(folders: Sequence[Path] = ()) -> RuleSet:
    """Return the rules that are installed; what is broken is left out and told on stderr.

    Raises:
        CliError: nothing at all can be used.

    """
    loaded = load_all(folders)
    for problem in loaded.problems:
        click.echo(f"serialwatch: left out: {safe(problem)}", err=True)
    return loaded


def load_all(folders: Sequence[Path] = ()) -> RuleSet:
    """Return the rules that are installed and those of the folders, and what is wrong with them.

    Raises:
        CliError: nothing at all can be used.

    """
    try:
        return load_rules([*reversed(search_path("rules")), *folders], _cache().database)
    except TomlError as exc:
        raise CliError("\n".join(exc.problems), WRONG_USE) from exc


def matcher_of(ruleset: RuleSet) -> Matcher:
    """Return the compiled rules."""
    return Matcher(ruleset, (), _cache().database)


def unknown_rule(ruleset: RuleSet, rule_id: str) -> CliError:
    """Return what to tell somebody who names a rule that there is not."""
    known = [*(r.id for r in ruleset.rules), *(d.id for d in ruleset.detectors)]
    close = difflib.get_close_matches(rule_id, known, n=3)
    close += [each for each in known if rule_id and rule_id in each and each not in close][:3]
    hint = f"did you mean {' or '.join(close[:3])}?" if close else "`serialwatch rules list`"
    return CliError(f"no rule {rule_id!r}: {hint}", WRONG_USE)


def _cache() -> DatabaseCache:
    return DatabaseCache(default_folder())
