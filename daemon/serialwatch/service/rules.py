"""The rules while the daemon runs: loaded, compiled, and looked after for changes.

All of this blocks and belongs into the thread for it.
"""

from __future__ import annotations

import difflib
import gc
import logging
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import hyperscan as hs

from serialwatch.bundled import search_path, told_search_path
from serialwatch.config import Config, DiscoverConfig, PortConfig
from serialwatch.tomlfile import TomlError
from serialwatch.triggers.cache_file import default_folder
from serialwatch.triggers.database_cache import DatabaseCache
from serialwatch.triggers.matcher import Matcher
from serialwatch.triggers.pattern_tree import PatternError
from serialwatch.triggers.patterns import check_compiles, compile_scanned
from serialwatch.triggers.rules import RuleFiles, RuleFolders
from serialwatch.triggers.ruleset import RuleSet

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Compiled:
    """Rules that can be searched with, and what is wrong with them."""

    matcher: Matcher
    problems: Sequence[str]  # of packs
    port_problems: Sequence[str]  # of what the configuration says about ports


class RuleBook:
    """The rule packs of this machine."""

    def __init__(self) -> None:
        self._cache = DatabaseCache(default_folder())
        self._folders = RuleFolders(reversed(search_path("rules")), self._cache.database)
        self._loaded: RuleFiles = ()
        self._looked_at: RuleFiles = ()
        self._told = ""  # where rules are looked for
        self._replacements: frozenset[str] = frozenset()
        self._broken: frozenset[Path] = frozenset()

    def compile(self, config: Config) -> Compiled:
        """Load and compile all packs; one that is broken now is used as it was.

        Raises:
            TomlError: nothing at all could be used.

        """
        # Before they are read: what changes meanwhile is seen as a change.
        self._loaded = self._looked_at = self._folders.state()
        if (where := ", ".join(told_search_path("rules"))) != self._told:
            self._told = where
            log.info("rules are looked for in %s", where)
        # What is made here stays; looking through it for garbage would hold up the loop.
        is_collecting = gc.isenabled()
        gc.disable()
        try:
            return self._compiled(config)
        finally:
            if is_collecting:
                gc.enable()

    @property
    def is_changing(self) -> bool:
        """Tell whether the last look showed other files than those that were loaded."""
        return self._looked_at != self._loaded

    def has_changed(self) -> bool:
        """Tell whether the files are other ones than those that were loaded.

        To be asked again and again: a file that is still being written does not count yet.
        """
        try:
            state = self._folders.state()
        except OSError:  # e.g. no descriptor is left; they are in use as they are
            return False
        before, self._looked_at = self._looked_at, state
        return self.is_changing and self._looked_at == before

    def _tell_changes(self, ruleset: RuleSet) -> None:
        """Log which rules took the place of others, and which packs are in order again."""
        replacements = frozenset(ruleset.replacements())
        for told in sorted(replacements - self._replacements):
            log.warning("rules: %s", told)
        self._replacements = replacements
        for path in sorted(self._broken - self._folders.broken):
            log.info("rules: %s is %s", path, "in order again" if path.exists() else "gone")
        self._broken = self._folders.broken

    def _compiled(self, config: Config) -> Compiled:
        self._cache.recall()
        ruleset = self._folders.load()
        self._tell_changes(ruleset)
        ready = []
        port_problems = []
        packs = {rule.pack for rule in ruleset.rules}
        for table, name, port in _watched(config):
            place = f'{table} "{name}"'
            try:
                if port.ready:
                    check_compiles(compile_scanned(port.ready))
                    ready.append(port.ready)
            except PatternError as exc:
                line = config.place_of(table, name, "ready")
                port_problems.append(f"{line}{place}: ready: {exc}")
            if missing := sorted(set(port.rules) - packs):
                line = config.place_of(table, name, "rules")
                port_problems += [f"{line}{place}: rules: {_no_pack(n, packs)}" for n in missing]
        try:
            matcher = Matcher(ruleset, ready, self._cache.database)
        except hs.HyperscanError as exc:  # with the ports' own patterns it is too much
            raise TomlError([f"the rules are too much for Hyperscan together: {exc}"]) from exc
        return Compiled(matcher, ruleset.problems, port_problems)


def _watched(config: Config) -> Iterator[tuple[str, str, PortConfig | DiscoverConfig]]:
    """Yield what is said about ports, with its table and name, as far as somebody has written it.

    A port that was discovered has it from its pattern, where it is told once.
    """
    written = config.port if config.source is None else config.source.data.get("port", {})
    yield from (("port", name, port) for name, port in config.port.items() if name in written)
    yield from (("discover", name, pattern) for name, pattern in config.discover.items())


def _no_pack(named: str, packs: set[str]) -> str:
    close = difflib.get_close_matches(named, packs, n=3)
    hint = f"did you mean {' or '.join(close)}?" if close else "`serialwatch rules list`"
    return f"no rule of a pack {named!r}: {hint}"
