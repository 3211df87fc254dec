"""A skill's own test cases, `evals/evals.json`: read, and held against what the skill answered."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, get_args

from serialwatch.agent.skills.results import SENTENCES, error_code
from serialwatch.agent.skills.when import is_slow
from serialwatch.records import SkillResult, SkillStatus

MAX_LOG = 1024 * 1024  # bytes of a log that a case brings along

_KEYS = frozenset({"name", "log", "args", "expect"})
_EXPECTED = frozenset({"status", "error", "no_data", "contains", "matches"})


class EvalsError(ValueError):
    """Cases cannot be read; the message names the file, the case and what is wrong."""

    def __init__(self, path: Path, problem: str) -> None:
        super().__init__(f"{path}: {problem}")
        self.problem = problem


@dataclass(frozen=True, slots=True)
class Expected:
    """What a case expects; None or empty: anything."""

    status: str | None
    error: str | None
    no_data: bool | None
    contains: Mapping[str, Any]  # by JSON pointer into the output
    matches: Mapping[str, re.Pattern[str]]


@dataclass(frozen=True, slots=True)
class Case:
    """One call of the skill, and what has to come of it."""

    name: str
    log: bytes  # of the port of the run
    args: Mapping[str, Any]
    expected: Expected

    def problems(self, result: SkillResult) -> list[str]:
        """Return what is not as expected, nothing if all is."""
        return list(_problems(self.expected, result))


def evals_path(folder: Path) -> Path:
    """Return where a skill has its cases."""
    return folder / "evals" / "evals.json"


def read_cases(folder: Path) -> list[Case]:
    """Return the cases of a skill, none if it has no file of them.

    Raises:
        EvalsError: they cannot be read.

    """
    path = evals_path(folder)
    if not path.is_file():
        return []
    try:
        read = json.loads(path.read_bytes())
    except (ValueError, RecursionError) as exc:
        raise EvalsError(path, f"no JSON: {exc}") from exc
    rows = read.get("cases") if isinstance(read, dict) else None
    if not isinstance(rows, list) or not rows:
        raise EvalsError(path, 'must be {"cases": [...]} with one case or more')
    cases = []
    for number, row in enumerate(rows, 1):
        try:
            cases.append(_case(row, folder))
        except (ValueError, OSError) as exc:
            name = row.get("name") if isinstance(row, dict) else None
            raise EvalsError(path, f"case {name or number}: {exc}") from exc
    names = [case.name for case in cases]
    if twice := next((name for name in names if names.count(name) > 1), None):
        raise EvalsError(path, f"case {twice}: a second one of that name")
    return cases


def at_pointer(value: Any, pointer: str) -> Any:
    """Return what stands at a JSON pointer.

    Raises:
        LookupError: nothing does.

    """
    for part in pointer.split("/")[1:]:
        key = part.replace("~1", "/").replace("~0", "~")
        if isinstance(value, Mapping):
            value = value[key]
        elif isinstance(value, list) and re.fullmatch(r"-?\d+", key):
            value = value[int(key)]
        else:
            raise LookupError(key)
    return value


def _case(row: object, folder: Path) -> Case:
    if not isinstance(row, dict):
        raise ValueError("must be an object")
    if unknown := row.keys() - _KEYS:
        raise ValueError(f"unknown key {min(unknown)!r}; known: {', '.join(sorted(_KEYS))}")
    name, args, expect = row.get("name"), row.get("args", {}), row.get("expect")
    if not isinstance(name, str) or not name:
        raise ValueError("name: a text")
    if not isinstance(args, dict):
        raise ValueError("args: an object")
    if not isinstance(expect, dict) or not expect:
        raise ValueError("expect: an object that expects something")
    return Case(name, _log(row.get("log"), folder), args, _expected(expect))


def _log(told: object, folder: Path) -> bytes:
    if told is None:
        return b""
    if isinstance(told, list) and all(isinstance(line, str) for line in told):
        return "".join(f"{line}\n" for line in told).encode()
    if not isinstance(told, str):
        raise ValueError("log: a list of lines, a text, or a file of the folder")
    if "\n" in told:
        return told.encode()
    path = (folder / told).resolve()
    if not path.is_relative_to(folder.resolve()):
        raise ValueError(f"log: {told!r} is not in the skill's folder")
    if path.stat().st_size > MAX_LOG:
        raise ValueError(f"log: {told} is larger than {MAX_LOG} bytes")
    return path.read_bytes()


def _expected(told: Mapping[str, Any]) -> Expected:
    if unknown := told.keys() - _EXPECTED:
        known = ", ".join(sorted(_EXPECTED))
        raise ValueError(f"expect: unknown key {min(unknown)!r}; known: {known}")
    status, error, no_data = (told.get(key) for key in ("status", "error", "no_data"))
    if status is not None and status not in get_args(SkillStatus):
        raise ValueError(f"expect status: {' or '.join(get_args(SkillStatus))}, not {status!r}")
    if error is not None and error not in SENTENCES:
        raise ValueError(f"expect error: {error!r} is no code of a failure")
    if no_data is not None and not isinstance(no_data, bool):
        raise ValueError("expect no_data: true or false")
    contains, matches = told.get("contains", {}), told.get("matches", {})
    for key, pairs in (("contains", contains), ("matches", matches)):
        if not isinstance(pairs, dict) or not all(p == "" or p[0] == "/" for p in pairs):
            raise ValueError(f'expect {key}: an object by JSON pointer, such as "/lines/0/text"')
    return Expected(status, error, no_data, contains, {p: _regex(m) for p, m in matches.items()})


def _regex(text: object) -> re.Pattern[str]:
    if not isinstance(text, str) or is_slow(text):
        raise ValueError(f"expect matches: {text!r} is no regular expression, or a slow one")
    try:
        return re.compile(text)
    except re.error as exc:
        raise ValueError(f"expect matches: {text!r}: {exc}") from exc


def _problems(expected: Expected, result: SkillResult) -> list[str]:
    told: list[str] = []
    error = error_code(result)
    if expected.status is not None and result.status != expected.status:
        why = f" ({error}: {result.metadata['error'].get('detail', '')})" if error else ""
        told.append(f"status: {expected.status} expected, {result.status} came{why}")
    if expected.error is not None and error != expected.error:
        told.append(f"error: {expected.error} expected, {error or 'none'} came")
    no_data = bool(result.metadata.get("no_data", result.output.get("no_data", False)))
    if expected.no_data is not None and no_data != expected.no_data:
        words = {True: "nothing", False: "data"}
        told.append(f"no_data: {words[expected.no_data]} expected, {words[no_data]} came")
    for pointer, wanted in (*expected.contains.items(), *expected.matches.items()):
        try:
            value = at_pointer(result.output, pointer)
        except LookupError:
            told.append(f"{pointer}: nothing is there")
            continue
        if isinstance(wanted, re.Pattern):
            if not wanted.search(_text(value)):
                told.append(f"{pointer}: {_text(value)[:120]!r} does not match {wanted.pattern!r}")
        elif not _contains(value, wanted):
            told.append(f"{pointer}: {_text(value)[:120]!r} does not contain {wanted!r}")
    return told


def _contains(value: Any, wanted: Any) -> bool:
    if isinstance(value, str) and isinstance(wanted, str):
        return wanted in value
    if isinstance(value, list):
        return wanted in value
    if isinstance(value, Mapping) and isinstance(wanted, Mapping):
        return all(key in value and _contains(value[key], w) for key, w in wanted.items())
    return type(value) is type(wanted) and bool(value == wanted)


def _text(value: Any) -> str:
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)
