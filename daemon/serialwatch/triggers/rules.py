"""Rule packs: TOML files that say what a fault, a boot and a prompt look like.

A pack holds any number of these tables; every pattern is a regular expression on one line of the
match view (escapes gone; `^` also stands behind any known stamp or logger prefix):

    [[rule]]      a fault                    [[boot]]      a banner of a starting device
    [[detector]]  a fault without a line     [[cause]]     a line that tells why it started
    [[ready]]     a boot that is finished    [[shutdown]]  a line after which a restart is meant
    [[prompt]]    an unfinished line           [[ignore]]    never a fault
"""

from __future__ import annotations

import os
import re
import stat
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import hyperscan as hs
from pydantic import ValidationError

from serialwatch.tomlfile import TomlError, TomlFile, parse_toml, read_toml
from serialwatch.triggers import ruleset as rs
from serialwatch.triggers.pack_tables import (
    DETECTORS,
    TABLES,
    DetectorTable,
    RuleTable,
    Table,
)
from serialwatch.triggers.pattern_tree import PatternError
from serialwatch.triggers.patterns import (
    Pattern,
    check_compiles,
    compile_database,
    compile_pattern,
    compile_scanned,
    hit_everywhere,
    scanned_patterns,
)
from serialwatch.triggers.ruleset import RuleSet

MAX_FILE = 4 * 1024 * 1024  # bytes of a pack

Compile = Callable[[tuple[Pattern, ...]], hs.Database]
RuleFiles = tuple[tuple[str, int, int, int], ...]  # path, time of change, size, inode


def load_rules(dirs: Iterable[Path], compiled: Compile = compile_database) -> RuleSet:
    """Load every `*.toml` of the folders; folders may be missing, a later one wins.

    A folder may also be a single pack. A rule or detector whose id an earlier folder had takes its
    place, which `RuleSet.replaced` tells; what is broken is left out and told in
    `RuleSet.problems`.

    Raises:
        TomlError: nothing at all could be used.

    """
    return RuleFolders(dirs, compiled).load()


class RuleFolders:
    """The packs of some folders, read again and again; a later folder wins.

    A pack that was good and is broken now is used on as it was.
    """

    def __init__(self, dirs: Iterable[Path], compiled: Compile = compile_database) -> None:
        self._folders = list(dirs)
        self._compiled = compiled
        self._good: dict[Path, TomlFile] = {}  # what was without any problem last
        self.broken: frozenset[Path] = frozenset()  # what was not, at the last load

    def state(self) -> RuleFiles:
        """Return what tells one state of the files from another."""
        found: list[tuple[str, int, int, int]] = []
        for path in self._paths():
            try:
                about = path.stat()
            except OSError:
                continue  # gone since it was listed
            found.append((str(path), about.st_mtime_ns, about.st_size, about.st_ino))
        return tuple(found)

    def load(self) -> RuleSet:
        """Read all packs; what is broken is told in `RuleSet.problems`.

        Raises:
            TomlError: nothing at all could be used.

        """
        problems = [
            f"{folder}: cannot be read: Permission denied"
            for folder in self._folders
            if folder.is_dir() and not os.access(folder, os.R_OK | os.X_OK)
        ]
        files: dict[Path, TomlFile] = {}
        unread: list[Path] = []
        for path in self._paths():
            try:
                files[path] = self._read(path)
            except TomlError as exc:
                problems += self._told(path, exc.problems)
                unread.append(path)
                if path in self._good:
                    files[path] = self._good[path]
        packs, loaded = self._merge(files)
        broken = {path: pack.problems for path, pack in packs.items() if pack.problems}
        for path, told in broken.items():
            problems += self._told(path, told)
        if any(path in self._good for path in broken):
            packs, loaded = self._merge(
                files | {p: f for p, f in self._good.items() if p in broken}
            )
        if not (loaded.rules or loaded.detectors or loaded.boots):
            where = ", ".join(map(str, self._folders)) or "no folder given"
            raise TomlError(problems or [f"{where}: no rules there"])
        self._good = {path: pack.file for path, pack in packs.items() if not pack.problems}
        self.broken = frozenset([*unread, *broken])
        return replace(loaded, problems=(*problems, *_dangling(loaded)))

    def _paths(self) -> list[Path]:
        found: dict[Path, None] = {}  # where a pack is named once more, there
        for folder in self._folders:
            is_pack = folder.suffix == ".toml" and not folder.is_dir()
            for path in [folder] if is_pack else sorted(folder.glob("*.toml")):
                found.pop(path, None)
                found[path] = None
        return list(found)

    def _read(self, path: Path) -> TomlFile:
        _check_file(path)
        return replace(read_toml(path), path=f"{path.absolute().parent.name}/{path.name}")

    def _merge(self, files: Mapping[Path, TomlFile]) -> tuple[dict[Path, _Pack], RuleSet]:
        packs: dict[Path, _Pack] = {}
        taken: dict[Path, dict[str, str]] = {}  # by folder: ids and where they stand
        for path in self._paths_in_order(files):
            packs[path] = _checked(files[path], taken.setdefault(path.parent, {}))
        return packs, _merged(list(packs.values()), self._compiled)

    def _paths_in_order(self, files: Mapping[Path, TomlFile]) -> list[Path]:
        return [path for path in self._paths() if path in files]

    def _told(self, path: Path, problems: list[str]) -> list[str]:
        if path not in self._good:
            return problems
        return [f"{problem} (the pack is used as it was before)" for problem in problems]


def _check_file(path: Path) -> None:
    """Raise TomlError for what is no ordinary file: a pipe would be read for ever."""
    try:
        about = path.stat()
    except OSError:
        return  # reading it tells why
    if not stat.S_ISREG(about.st_mode):
        raise TomlError([f"{path}: not a file"])
    if about.st_size > MAX_FILE:
        raise TomlError(
            [f"{path}: {about.st_size} bytes, {MAX_FILE} are plenty; split it into more packs"]
        )


def parse_rules(text: str, path: str = "rules.toml") -> RuleSet:
    """Load one pack from its text; `path` is for messages.

    Raises:
        TomlError: anything in it is broken.

    """
    pack = _checked(parse_toml(text, path), {})
    loaded = _merged([pack], compile_database)
    if problems := [*pack.problems, *_dangling(loaded)]:
        raise TomlError(problems)
    return loaded


@dataclass(slots=True)
class _Found:
    """One good table and where it stands."""

    table: Table
    name: str  # "rule mine.my_rule"
    kind: str
    number: int


@dataclass(slots=True)
class _Pack:
    file: TomlFile
    found: list[_Found] = field(default_factory=list)
    problems: list[str] = field(default_factory=list)


def _checked(file: TomlFile, seen: dict[str, str]) -> _Pack:
    """Check each table of a file by itself; `seen` holds ids and where they stand."""
    pack = _Pack(file)
    for kind, tables in file.data.items():
        if kind not in TABLES or not isinstance(tables, list):
            known = ", ".join(f"[[{name}]]" for name in TABLES)
            where = _place(file, kind, 0)
            told = (
                f"write [[{kind}]], with two brackets" if kind in TABLES else f"not one of {known}"
            )
            pack.problems.append(f"{where}: {kind}: {told}")
            continue
        for number, table in enumerate(tables):
            _check_table(pack, kind, number, table, seen)
    return pack


def _check_table(pack: _Pack, kind: str, number: int, given: Any, seen: dict[str, str]) -> None:
    file = pack.file
    model = TABLES[kind]
    name = kind
    if isinstance(given, dict) and isinstance(given.get("id"), str):
        name = f"{kind} {given['id']}"
    if kind == "detector" and isinstance(given, dict):
        if given.get("kind") not in DETECTORS:
            known = ", ".join(DETECTORS)
            where = _place(file, kind, number, "kind")
            pack.problems.append(f"{name} ({where}): kind must be one of {known}")
            return
        model = DETECTORS[given["kind"]][0]
    try:
        table = model.model_validate(given)
    except ValidationError as exc:
        pack.problems += file.problems(exc, kind, number)
        return
    problem = _pattern_problem(file, name, kind, number, table)
    table_id = getattr(table, "id", "")
    if not problem and table_id in seen:
        problem = f"{name} ({_place(file, kind, number)}): the id is taken by {seen[table_id]}"
    if problem:
        pack.problems.append(problem)
        return
    if table_id:
        seen[table_id] = file.path
    pack.found.append(_Found(table, name, kind, number))


def _pattern_problem(file: TomlFile, name: str, kind: str, number: int, table: Table) -> str | None:
    named = [(compile_scanned, *n) for n in table.scanned()]
    named += [(compile_pattern, *n) for n in table.read()]
    for compiled, key, pattern in named:
        try:
            compiled(pattern)
        except PatternError as exc:
            return f"{name} ({_place(file, kind, number, key)}): {exc}"
    try:
        table.check()
    except PatternError as exc:
        return f"{name} ({_place(file, kind, number)}): {exc}"
    return None


def _merged(packs: list[_Pack], compiled: Compile) -> RuleSet:
    """Put the packs together without what is too much for Hyperscan, or too little."""
    loaded = _put_together(packs)
    patterns = scanned_patterns(loaded.scanned())
    if not patterns:
        return loaded
    try:
        suspects = {patterns[number].source for number in hit_everywhere(compiled(patterns))}
    except hs.HyperscanError:
        suspects = {pattern.source for pattern in patterns}  # it does not say which
    if not suspects:
        return loaded
    for pack in packs:
        pack.found = [found for found in pack.found if _compiles(pack, found, suspects)]
    return _that_compile(packs, compiled)


def _that_compile(packs: list[_Pack], compiled: Compile) -> RuleSet:
    """Put so many packs together, the first first, as Hyperscan takes at once."""
    for pack in reversed(packs):
        loaded = _put_together(packs)
        patterns = scanned_patterns(loaded.scanned())
        try:
            if patterns:
                compiled(patterns)
        except hs.HyperscanError as exc:
            pack.found = []
            pack.problems.append(f"{pack.file.path}:1: too much beside the other packs: {exc}")
        else:
            return loaded
    return _put_together(packs)


def _compiles(pack: _Pack, found: _Found, suspects: set[str]) -> bool:
    for key, pattern in found.table.scanned():
        if pattern not in suspects:
            continue
        try:
            check_compiles(compile_pattern(pattern))
        except PatternError as exc:
            where = _place(pack.file, found.kind, found.number, key)
            pack.problems.append(f"{found.name} ({where}): {exc}")
            return False
    return True


def _place(file: TomlFile, *where: str | int) -> str:
    return f"{file.path}:{file.line_of(*where)}"


def _put_together(packs: list[_Pack]) -> RuleSet:
    rules: dict[str, rs.Rule] = {}
    detectors: dict[str, rs.Detector] = {}
    replaced: dict[str, str] = {}
    rest: dict[str, list[Any]] = {kind: [] for kind in TABLES}
    for pack in packs:
        lines = _header_lines(pack.file)
        for found in pack.found:
            source = f"{pack.file.path}:{lines.get((found.kind, found.number), 1)}"
            table = found.table
            if isinstance(table, RuleTable):
                _put(rules, table.made(source), replaced)
            elif isinstance(table, DetectorTable):
                _put(detectors, _detector(table, source), replaced)
            else:
                rest[found.kind].append(table.made(source))
    return RuleSet(
        rules=tuple(rules.values()),
        boots=tuple(rest["boot"]),
        causes=tuple(rest["cause"]),
        ready=tuple(rest["ready"]),
        prompts=tuple(rest["prompt"]),
        ignores=tuple(rest["ignore"]),
        shutdowns=tuple(rest["shutdown"]),
        detectors=tuple(detectors.values()),
        replaced=tuple(replaced.items()),
    )


def _put(known: dict[str, Any], fresh: Any, replaced: dict[str, str]) -> None:
    """Add a rule or detector; one of its id that is not the same is noted."""
    before = known.get(fresh.id)
    if before and replace(before, source="") != replace(fresh, source=""):
        replaced[fresh.id] = before.source
    known[fresh.id] = fresh


def _header_lines(file: TomlFile) -> dict[tuple[str, int], int]:
    lines: dict[tuple[str, int], int] = {}
    counts: dict[str, int] = {}
    for number, line in enumerate(file.text.split("\n"), 1):
        if header := re.match(r"\s*\[\[\s*(\w+)\s*\]\]", line):
            counts[header[1]] = counts.get(header[1], -1) + 1
            lines[header[1], counts[header[1]]] = number
    return lines


def _detector(table: DetectorTable, source: str) -> Any:
    made = DETECTORS[table.kind][1]
    return made(**table.model_dump(exclude={"kind"}), source=source)


def _dangling(loaded: RuleSet) -> Iterator[str]:
    """Tell which names lead nowhere; what has them still works."""
    rules = {rule.id: rule for rule in loaded.rules}
    for rule in loaded.rules:
        if rule.parent and rule.parent not in rules:
            yield f"rule {rule.id} ({rule.source}): parent {rule.parent} is no rule"
        elif rule.id in _ancestors(rule, rules):
            yield f"rule {rule.id} ({rule.source}): is its own parent"
    for ignore in loaded.ignores:
        for missing in (r for r in ignore.rules if r not in rules):
            yield f"ignore ({ignore.source}): {missing} is no rule"
    for detector in loaded.detectors:
        if isinstance(detector, rs.InterruptStormDetector | rs.RateDetector):
            for missing in (r for r in detector.rules if r not in rules):
                yield f"detector {detector.id} ({detector.source}): {missing} is no rule"


def _ancestors(rule: rs.Rule, rules: dict[str, rs.Rule]) -> set[str]:
    found: set[str] = set()
    while (parent := rules.get(rule.parent)) and parent.id not in found:
        found.add(parent.id)
        rule = parent
    return found
