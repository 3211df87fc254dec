"""TOML with line numbers: every complaint about a file names the place."""

from __future__ import annotations

import re
import tomllib
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pydantic import ValidationError


class TomlError(Exception):
    """A TOML file cannot be used; each of `problems` names file, line and what is wrong."""

    def __init__(self, problems: list[str]) -> None:
        super().__init__("\n".join(problems))
        self.problems = problems


@dataclass(frozen=True, slots=True)
class TomlFile:
    """A parsed file that still knows where its keys stand."""

    path: str
    text: str
    data: dict[str, Any]

    def line_of(self, *where: str | int) -> int:
        """Return the line (from 1) of a key such as ("rule", 3, "match"), of its table if unknown.

        Integers count the tables of an array of tables from 0.
        """
        return _line_of(self.text, where)

    def _at(self, where: tuple[str | int, ...]) -> Any:
        node: Any = self.data
        for part in where:
            node = node[part]
        return node

    def problems(self, exc: ValidationError, *prefix: str | int) -> list[str]:
        """Return pydantic's findings as lines of "file:line: key: what is allowed"."""
        told = []
        found = [((*prefix, *_real_keys(self._at(prefix), error)), error) for error in exc.errors()]
        for where, error in found:
            if error["type"] == "dataclass_type" and any(
                len(other) > len(where) and other[: len(where)] == where for other, _ in found
            ):
                continue  # the other form of a union was meant; its own problem says more
            key = ".".join(str(part) for part in where)
            told.append(f"{self.path}:{self.line_of(*where)}: {key}: {_words(error)}")
        return list(dict.fromkeys(told))


def read_toml(path: Path) -> TomlFile:
    """Read and parse a file.

    Raises:
        TomlError: missing, not readable, not UTF-8 or not TOML.

    """
    try:
        text = path.read_text(encoding="utf-8-sig")  # Notepad begins with a mark
    except FileNotFoundError as exc:
        raise TomlError([f"{path}: no such file"]) from exc
    except OSError as exc:
        raise TomlError([f"{path}: cannot be read: {exc.strerror}"]) from exc
    except UnicodeDecodeError as exc:
        line = exc.object[: exc.start].count(b"\n") + 1
        raise TomlError([f"{path}:{line}: not UTF-8"]) from exc
    return parse_toml(text, str(path))


def parse_toml(text: str, path: str) -> TomlFile:
    """Parse TOML; `path` is for messages.

    Raises:
        TomlError: not TOML.

    """
    try:
        return TomlFile(path, text, tomllib.loads(text))
    except tomllib.TOMLDecodeError as exc:
        line = re.search(r"at line (\d+)", str(exc))
        at = line.group(1) if line else str(text.count("\n") + 1)
        words = re.sub(r" \(at (line \d+, column (\d+)|end of document)\)", r"", str(exc))
        told = f"{words[:1].lower()}{words[1:]}"
        if "'\\' in a string" in words:
            told += "; in single quotes, '...', a `\\` stands for itself"
        raise TomlError([f"{path}:{at}: not TOML: {told}"]) from exc
    except (RecursionError, ValueError) as exc:  # thousands of brackets, or of digits
        raise TomlError([f"{path}:1: not TOML that can be read: {exc}"]) from exc


_HEADER = re.compile(r"^\s*(\[\[?)\s*([^\]#]+?)\s*\]\]?\s*(?:#.*)?$")
_KEY = re.compile(
    r"^\s*((?:[A-Za-z0-9_-]+|\"[^\"]*\"|'[^']*')(?:\s*\.\s*(?:[A-Za-z0-9_-]+|\"[^\"]*\"))*)\s*="
)
_NAME = re.compile(r"\"[^\"]*\"|'[^']*'|[^.\s\"']+")


def _line_of(text: str, where: tuple[str | int, ...]) -> int:
    table: list[str | int] = []
    counts: dict[str, int] = {}
    best, best_depth, first_below = 1, 0, 0
    for number, line in enumerate(text.split("\n"), 1):
        if header := _HEADER.match(line):
            names = _names(header.group(2))
            table = list(names)
            if header.group(1) == "[[":
                name = ".".join(names)
                counts[name] = counts.get(name, -1) + 1
                table.append(counts[name])
            here = table
        elif key := _KEY.match(line):
            here = [*table, *_names(key.group(1))]
        else:
            continue
        depth = len(here)
        if depth > best_depth and tuple(here) == where[:depth]:
            best, best_depth = number, depth
        if not first_below and depth > len(where) and tuple(here)[: len(where)] == where:
            first_below = number  # [a.b] makes `a`, too
    return first_below if first_below and best_depth < len(where) else best


def _names(dotted: str) -> list[str]:
    return [part.strip("\"'") for part in _NAME.findall(dotted)]


def _real_keys(node: Any, error: Any) -> tuple[str | int, ...]:
    """Leave out what pydantic adds to a place for unions, e.g. "list[ResetStep]"."""
    keys: list[str | int] = []
    for part in error["loc"]:
        is_key = isinstance(node, dict) and part in node
        is_index = isinstance(node, list) and isinstance(part, int)
        if is_key or is_index:
            node = node[part]
            keys.append(part)
    if error["type"] == "missing":
        keys.append(error["loc"][-1])
    return tuple(keys)


_PLAIN = {
    "bool_type": "true or false",
    "int_type": "a whole number",
    "string_type": "a string",
    "list_type": "an array",
    "dataclass_type": "a table",
    "dict_type": "a table",
    "model_type": "a table",
    "model_attributes_type": "a table",
    "tuple_type": "an array",
    "string_too_short": "a string that is not empty",
    "too_short": "an array that is not empty",
}


def _words(error: Any) -> str:
    given = error.get("input")
    kind = error["type"]
    context = error.get("ctx", {})
    if kind in {"extra_forbidden", "unexpected_keyword_argument"}:
        return "unknown key"
    if kind == "missing":
        return "missing"
    if kind == "value_error":
        return str(context.get("error", error["msg"]))
    words = f"be {_PLAIN[kind]}" if kind in _PLAIN else re.sub(r"^\w+ should ", "", error["msg"])
    return f"must {words}, not {given!r}"[:300]
