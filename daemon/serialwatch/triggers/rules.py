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
import string
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Annotated, Any, Literal

import hyperscan as hs
from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, ValidationError

from serialwatch.records import BootCause, Severity, Tier
from serialwatch.tomlfile import TomlError, TomlFile, parse_toml, read_toml
from serialwatch.triggers import ruleset as rs
from serialwatch.triggers.pattern_tree import PatternError
from serialwatch.triggers.patterns import (
    check_compiles,
    compile_database,
    compile_pattern,
    compile_scanned,
    scanned_patterns,
)
from serialwatch.triggers.ruleset import RuleSet


def load_rules(dirs: Iterable[Path]) -> RuleSet:
    """Load every `*.toml` of the folders; folders may be missing, a later one wins.

    A rule or detector whose id an earlier folder had takes its place. What is broken is left out
    and told in `RuleSet.problems`.

    Raises:
        TomlError: nothing at all could be used.

    """
    folders = list(dirs)
    packs: list[_Pack] = []
    problems: list[str] = []
    for folder in folders:
        seen: dict[str, str] = {}
        if folder.is_dir() and not os.access(folder, os.R_OK | os.X_OK):
            problems.append(f"{folder}: cannot be read: Permission denied")
        for path in sorted(folder.glob("*.toml")):
            try:
                read = read_toml(path)
            except TomlError as exc:
                problems += exc.problems
            else:
                packs.append(_checked(replace(read, path=f"{folder.name}/{path.name}"), seen))
    loaded = _merged(packs)
    problems += loaded.problems
    if not (loaded.rules or loaded.detectors or loaded.boots):
        where = ", ".join(map(str, folders)) or "no folder given"
        raise TomlError(problems or [f"{where}: no rules there"])
    return replace(loaded, problems=tuple(problems))


def parse_rules(text: str, path: str = "rules.toml") -> RuleSet:
    """Load one pack from its text; `path` is for messages.

    Raises:
        TomlError: anything in it is broken.

    """
    loaded = _merged([_checked(parse_toml(text, path), {})])
    if loaded.problems:
        raise TomlError(list(loaded.problems))
    return loaded


# The tables as they stand in a file. Each names its patterns: those that are looked for in the
# stream of lines, and those that are only read in a line that was found.

_Named = tuple[str, str]  # the key it stands under, the pattern
_Id = Annotated[str, Field(pattern=r"^[a-z0-9_]+\.[a-z0-9_]+$", max_length=64)]


def _one_or_many(value: object) -> object:
    return [value] if isinstance(value, str) else value


_Strings = Annotated[tuple[str, ...], BeforeValidator(_one_or_many)]
_SomeStrings = Annotated[tuple[str, ...], Field(min_length=1), BeforeValidator(_one_or_many)]
_Causes = dict[str, BootCause | Literal["software"]]
_Seconds = Annotated[float, Field(ge=0, le=604_800)]
_Away = Annotated[int, Field(ge=0, le=1000)]  # lines


class _Table(BaseModel):
    model_config = ConfigDict(extra="forbid")

    def scanned(self) -> Iterator[_Named]:
        yield from ()

    def read(self) -> Iterator[_Named]:
        yield from ()

    def check(self) -> None:
        """Raise PatternError for what only the whole table shows."""


class _Block(_Table):
    start: _Strings = ()
    back_lines: _Away = 5
    end: _Strings = ()
    max_lines: Annotated[int, Field(ge=1, le=5000)] = 200


class _Needs(_Table):
    match: _SomeStrings
    within_lines: _Away = 20


class _Near(_Table):
    match: _SomeStrings
    before: _Away = 5
    after: _Away = 5


class _Count(_Table):
    n: Annotated[int, Field(ge=2, le=100_000)]
    in_s: _Seconds


class _SeverityWhen(_Table):
    severity: Severity
    state: rs.DeviceState | None = None
    match: str | None = None


class _Rule(_Table):
    id: _Id
    title: Annotated[str, Field(min_length=1, max_length=160)]
    severity: Severity
    tier: Tier = "specific"
    ecosystem: _Strings = ()
    match: _SomeStrings
    fields: _Strings = ()
    unless: _Strings = ()
    block: _Block | None = None
    parent: str = ""
    continues: bool = False
    needs: _Needs | None = None
    unless_near: _Near | None = None
    count: _Count | None = None
    severity_when: tuple[_SeverityWhen, ...] = ()
    key: _Strings = ()
    holdoff_s: _Seconds = 300.0
    knowledge: str = ""
    examples: _Strings = ()
    counterexamples: _Strings = ()

    def scanned(self) -> Iterator[_Named]:
        yield from _named("match", self.match)
        if self.block:
            yield from _named("block", (*self.block.start, *self.block.end))
        if self.needs:
            yield from _named("needs", self.needs.match)
        if self.unless_near:
            yield from _named("unless_near", self.unless_near.match)

    def read(self) -> Iterator[_Named]:
        yield from _named("fields", self.fields)
        yield from _named("unless", self.unless)
        yield from _named("severity_when", [w.match for w in self.severity_when if w.match])

    def check(self) -> None:
        groups = {name for p in self.fields for name in compile_pattern(p).regex.groupindex}
        for name in (*_placeholders(self.title), *self.key):
            if name not in groups:
                raise PatternError(
                    f"{{{name}}} is no field: give `fields` a group `(?P<{name}>...)`"
                )

    def made(self, source: str) -> rs.Rule:
        block, needs, near, count = self.block, self.needs, self.unless_near, self.count
        when = tuple(rs.SeverityWhen(w.severity, w.state, w.match) for w in self.severity_when)
        plain = self.model_dump(exclude={"block", "needs", "unless_near", "count", "severity_when"})
        return rs.Rule(
            **plain,
            block=rs.Block(**block.model_dump()) if block else None,
            needs=rs.Needs(**needs.model_dump()) if needs else None,
            unless_near=rs.Near(**near.model_dump()) if near else None,
            count=rs.Count(**count.model_dump()) if count else None,
            severity_when=when,
            source=source,
        )


class _Boot(_Table):
    match: _SomeStrings
    ecosystem: str
    stage: Annotated[int, Field(ge=0, le=5)]
    alone: bool = False
    window_s: _Seconds = 10.0
    state: rs.DeviceState | None = None
    cause: BootCause | None = None
    fields: _Strings = ()
    causes: _Causes = {}
    unless_after: _Strings = ()
    again_after: _Strings = ()

    def scanned(self) -> Iterator[_Named]:
        yield from _named("match", self.match)

    def read(self) -> Iterator[_Named]:
        yield from _named("fields", self.fields)
        yield from _named("causes", self.causes)
        yield from _named("unless_after", self.unless_after)

    def check(self) -> None:
        _check_causes(self.fields, self.causes)

    def made(self, source: str) -> rs.BootMarker:
        plain = self.model_dump(exclude={"alone", "causes"})
        starts = self.alone or self.stage == 1
        return rs.BootMarker(
            **plain, is_start_alone=starts, causes=tuple(self.causes.items()), source=source
        )


class _Cause(_Table):
    match: _SomeStrings
    ecosystem: str
    fields: _SomeStrings
    causes: Annotated[_Causes, Field(min_length=1)]

    def scanned(self) -> Iterator[_Named]:
        yield from _named("match", self.match)

    def read(self) -> Iterator[_Named]:
        yield from _named("fields", self.fields)
        yield from _named("causes", self.causes)

    def check(self) -> None:
        _check_causes(self.fields, self.causes)

    def made(self, source: str) -> rs.ResetCause:
        causes = tuple(self.causes.items())
        return rs.ResetCause(self.ecosystem, self.match, self.fields, causes, source)


class _Ready(_Table):
    match: _SomeStrings
    ecosystem: str

    def scanned(self) -> Iterator[_Named]:
        yield from _named("match", self.match)

    def made(self, source: str) -> rs.ReadyMarker:
        return rs.ReadyMarker(self.ecosystem, self.match, source)


class _Prompt(_Table):
    match: _SomeStrings
    ecosystem: str
    ready: bool

    def read(self) -> Iterator[_Named]:
        yield from _named("match", self.match)

    def made(self, source: str) -> rs.Prompt:
        return rs.Prompt(self.ecosystem, self.match, self.ready, source)


class _Ignore(_Table):
    match: _SomeStrings
    rules: _Strings = ()

    def scanned(self) -> Iterator[_Named]:
        yield from _named("match", self.match)

    def made(self, source: str) -> rs.Ignore:
        return rs.Ignore(self.match, self.rules, source)


class _Shutdown(_Table):
    match: _SomeStrings
    ecosystem: str
    leads_to: Literal["restart", "off", "sleep"]
    after: _Strings = ()

    def scanned(self) -> Iterator[_Named]:
        yield from _named("match", self.match)

    def read(self) -> Iterator[_Named]:
        yield from _named("after", self.after)

    def made(self, source: str) -> rs.Shutdown:
        return rs.Shutdown(self.ecosystem, self.match, self.leads_to, self.after, source)


class _Detector(_Table):
    id: _Id
    kind: str
    severity: Severity
    holdoff_s: _Seconds = 300.0
    knowledge: str = ""


class _Counter(_Detector):
    counters: Annotated[
        tuple[Literal["overrun", "framing", "parity", "breaks", "buffer_overrun"], ...],
        Field(min_length=1),
    ]
    min_events: Annotated[int, Field(ge=1)] = 1
    in_s: _Seconds = 10.0
    error_per_min: Annotated[int, Field(ge=1)] | None = None


class _BootLoop(_Detector):
    starts: Annotated[int, Field(ge=2)] = 3
    in_s: _Seconds = 120.0
    not_ready_in_s: _Seconds = 180.0


class _Storm(_Detector):
    lines_per_s: Annotated[int, Field(ge=1)] = 50
    shape_s: Annotated[int, Field(ge=1, le=60)] = 3
    load: Annotated[float, Field(gt=0, le=1)] = 0.8
    load_s: Annotated[int, Field(ge=1, le=60)] = 5


class _InterruptStorm(_Detector):
    match: _SomeStrings
    fields: _SomeStrings
    per_s: Annotated[int, Field(ge=1)] = 20_000
    baseline: Annotated[float, Field(gt=1)] = 10.0
    baseline_per_s: Annotated[int, Field(ge=1)] = 2_000
    lines_per_s: Annotated[int, Field(ge=1)] = 50
    rules: _Strings = ()
    rule_hits: Annotated[int, Field(ge=1)] = 3

    def scanned(self) -> Iterator[_Named]:
        yield from _named("match", self.match)

    def read(self) -> Iterator[_Named]:
        yield from _named("fields", self.fields)

    def check(self) -> None:
        for pattern in self.fields:
            if not {"irq", "count"} <= compile_pattern(pattern).regex.groupindex.keys():
                raise PatternError("`fields` must have the groups `irq` and `count`")


class _Silence(_Detector):
    limit_s: _Seconds = 30.0
    times: Annotated[float, Field(ge=1)] = 10.0
    stuck_after: _Strings = ()
    stuck_s: _Seconds = 30.0
    stuck_severity: Severity = "error"

    def read(self) -> Iterator[_Named]:
        yield from _named("stuck_after", self.stuck_after)


_DETECTORS: dict[str, tuple[type[_Detector], type[rs.Told]]] = {
    "boot_loop": (_BootLoop, rs.BootLoopDetector),
    "counter": (_Counter, rs.CounterDetector),
    "interrupt_storm": (_InterruptStorm, rs.InterruptStormDetector),
    "silence": (_Silence, rs.SilenceDetector),
    "storm": (_Storm, rs.StormDetector),
}
_TABLES: dict[str, type[_Table]] = {
    "rule": _Rule,
    "detector": _Detector,
    "boot": _Boot,
    "cause": _Cause,
    "ready": _Ready,
    "prompt": _Prompt,
    "ignore": _Ignore,
    "shutdown": _Shutdown,
}


def _named(key: str, patterns: Iterable[str]) -> Iterator[_Named]:
    for pattern in patterns:
        yield key, pattern


def _placeholders(title: str) -> list[str]:
    try:
        parts = list(string.Formatter().parse(title))
    except ValueError as exc:
        raise PatternError(f"title: {exc}; write {{{{ for a brace") from exc
    for _, name, spec, conversion in parts:
        if name is not None and (not name.isidentifier() or spec or conversion):
            raise PatternError(f"title: {{{name}}} must be the plain name of a field")
    return [name for _, name, _, _ in parts if name]


def _check_causes(fields: Iterable[str], causes: _Causes) -> None:
    has_group = any("cause" in compile_pattern(p).regex.groupindex for p in fields)
    if causes and not has_group:
        raise PatternError("`causes` needs `fields` with a group `(?P<cause>...)`")


@dataclass(slots=True)
class _Found:
    """One good table and where it stands."""

    table: _Table
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
        if kind not in _TABLES or not isinstance(tables, list):
            known = ", ".join(f"[[{name}]]" for name in _TABLES)
            where = _place(file, kind, 0)
            pack.problems.append(f"{where}: {kind}: not one of {known}")
            continue
        for number, table in enumerate(tables):
            _check_table(pack, kind, number, table, seen)
    return pack


def _check_table(pack: _Pack, kind: str, number: int, given: Any, seen: dict[str, str]) -> None:
    file = pack.file
    model = _TABLES[kind]
    name = kind
    if isinstance(given, dict) and isinstance(given.get("id"), str):
        name = f"{kind} {given['id']}"
    if kind == "detector" and isinstance(given, dict):
        if given.get("kind") not in _DETECTORS:
            known = ", ".join(_DETECTORS)
            where = _place(file, kind, number, "kind")
            pack.problems.append(f"{name} ({where}): kind must be one of {known}")
            return
        model = _DETECTORS[given["kind"]][0]
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


def _pattern_problem(
    file: TomlFile, name: str, kind: str, number: int, table: _Table
) -> str | None:
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


def _merged(packs: list[_Pack]) -> RuleSet:
    """Put the packs together without what is too much for Hyperscan; it does not say which."""
    loaded = _put_together(packs)
    try:
        compile_database(scanned_patterns(loaded.scanned()))
    except hs.HyperscanError:
        for pack in packs:
            pack.found = [found for found in pack.found if _compiles(pack, found)]
        loaded = _put_together(packs)
    problems = [problem for pack in packs for problem in pack.problems]
    return replace(loaded, problems=(*problems, *_dangling(loaded)))


def _compiles(pack: _Pack, found: _Found) -> bool:
    for key, pattern in found.table.scanned():
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
    rest: dict[str, list[Any]] = {kind: [] for kind in _TABLES}
    for pack in packs:
        lines = _header_lines(pack.file)
        for found in pack.found:
            source = f"{pack.file.path}:{lines.get((found.kind, found.number), 1)}"
            table = found.table
            if isinstance(table, _Rule):
                rules[table.id] = table.made(source)
            elif isinstance(table, _Detector):
                detectors[table.id] = _detector(table, source)
            elif isinstance(table, _Boot | _Cause | _Ready | _Prompt | _Ignore | _Shutdown):
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
    )


def _header_lines(file: TomlFile) -> dict[tuple[str, int], int]:
    lines: dict[tuple[str, int], int] = {}
    counts: dict[str, int] = {}
    for number, line in enumerate(file.text.split("\n"), 1):
        if header := re.match(r"\s*\[\[\s*(\w+)\s*\]\]", line):
            counts[header[1]] = counts.get(header[1], -1) + 1
            lines[header[1], counts[header[1]]] = number
    return lines


def _detector(table: _Detector, source: str) -> Any:
    made = _DETECTORS[table.kind][1]
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
        if isinstance(detector, rs.InterruptStormDetector):
            for missing in (r for r in detector.rules if r not in rules):
                yield f"detector {detector.id} ({detector.source}): {missing} is no rule"


def _ancestors(rule: rs.Rule, rules: dict[str, rs.Rule]) -> set[str]:
    found: set[str] = set()
    while (parent := rules.get(rule.parent)) and parent.id not in found:
        found.add(parent.id)
        rule = parent
    return found
