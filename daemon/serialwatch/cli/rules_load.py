"""The rules that a command works with."""

from __future__ import annotations

import difflib
from collections.abc import Sequence
from pathlib import Path

from serialwatch.bundled import search_path
from serialwatch.cli.errors import WRONG_USE, CliError, tell
from serialwatch.cli.tables import safe
from serialwatch.tomlfile import TomlError
from serialwatch.triggers.cache_file import default_folder
from serialwatch.triggers.database_cache import DatabaseCache
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
        tell(f"left out: {safe(problem)}")
    return loaded


def packs_at(paths: Sequence[Path]) -> list[Path]:
    """Return the paths, which are packs or folders of packs.

    Raises:
        CliError: a path is neither.

    """
    for path in paths:
        if not path.exists():
            raise CliError(f"{safe(str(path))}: no such file or folder", WRONG_USE)
        if path.suffix != ".toml" and not path.is_dir():
            raise CliError(
                f"{safe(str(path))}: no pack of rules: its name must end in .toml", WRONG_USE
            )
    return list(paths)


def load_all(folders: Sequence[Path] = ()) -> RuleSet:
    """Return the rules that are installed and those of the folders, and what is wrong with them.

    Raises:
        CliError: nothing at all can be used.

    """
    cache = _cache()
    cache.recall()
    try:
        return load_rules([*reversed(search_path("rules")), *folders], cache.database)
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
