"""Judge skills beyond what loading them needs: `serialwatch skills lint`.

SW001  SKILL.md, or what it says, cannot be read       SW021  a parameter without description
SW002  name is not that of the folder, or taken        SW022  a long schema (costs tokens)
SW003  description does not say `Use when`             SW023  a default or example that does
SW004  ... nor `Do NOT use`                                   not fit the schema
SW005  a long description (costs tokens)               SW030  main.py has a syntax error
SW006  an unknown key, or metadata that is no text     SW031  no `async def run(ctx, params)`
SW007  version is no semantic version                  SW032  importing main.py does something
SW008  timeout-s out of range                          SW033  imports what it can never use
SW010  risk is missing                                 SW034  time.sleep
SW011  an L1 skill that is not idempotent              SW035  imports more of serialwatch than
SW012  a capability above the risk                            its records
SW013  an L3 skill for every role                      SW040  a long body
SW014  a free text in a skill that writes              SW041  a link to nothing
SW020  no JSON Schema of a closed object               SW042  `when` cannot be read, or is slow
SW050  something that looks like a secret              SW043  the same `when` as another skill
SW051  others may change it, or a link leads out
"""

from __future__ import annotations

import ast
import json
import re
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from jsonschema import Draft202012Validator

from serialwatch.agent.front_matter import Document, parse_front_matter
from serialwatch.agent.skill import Skill
from serialwatch.agent.skill_files import skill_files
from serialwatch.agent.skill_folder import Finding, read_skills
from serialwatch.agent.when import is_slow

MAX_DESCRIPTION = 600  # characters
MAX_SCHEMA = 750  # tokens, examples not counted: they are not sent; a report's own is the longest
MAX_BODY_LINES = 500
CHARS_A_TOKEN = 3.8

HEAD_KEYS = frozenset(
    {"name", "description", "license", "compatibility", "allowed-tools", "metadata"}
)
METADATA_KEYS = frozenset(
    {
        "serialwatch-api", "version", "namespace", "tags", "risk", "timeout-s", "idempotent",
        "params", "when", "when-not", "roles",
    }
)  # fmt: skip


def lint_skills(dirs: Sequence[Path]) -> list[Finding]:
    """Return what is wrong with the skills below `dirs`, and what could be better."""
    findings: list[Finding] = []
    skills: list[Skill] = []
    for root in dirs:
        for read in read_skills(root):
            findings += read.findings
            if read.skill is not None:
                skills.append(read.skill)
                findings += _Linting(read.skill).findings()
    return [*findings, *_overlaps(skills)]


class _Linting:
    """One skill that loads."""

    def __init__(self, skill: Skill) -> None:
        self._skill = skill
        self._md = skill.folder / "SKILL.md"
        self._document = parse_front_matter(self._md.read_text())

    def findings(self) -> Iterator[Finding]:
        yield from self._head(self._document)
        yield from self._risk()
        yield from self._params()
        yield from self._body(self._document)
        for path in skill_files(self._skill.folder):
            if path.suffix == ".py":
                yield from _code(path)
            yield from _secrets(path)

    def _error(self, code: str, text: str, path: Path | None = None) -> Finding:
        return Finding(path or self._md, code, text, True)

    def _head(self, document: Document) -> Iterator[Finding]:
        about = document.head.get("metadata", {})
        for key in sorted(document.head.keys() - HEAD_KEYS):
            yield self._error("SW001", f"{key}: no key of the Agent Skills specification")
        for key in sorted(about.keys() - METADATA_KEYS):
            yield self._error("SW006", f"metadata {key}: unknown")
        said = self._skill.description
        if "use when" not in said.lower():
            yield self._error("SW003", "description: say `Use when ...`")
        if "do not use" not in said.lower():
            yield self._error("SW004", "description: say `Do NOT use ...`")
        if len(said) > MAX_DESCRIPTION:
            text = f"description: {len(said)} characters; {MAX_DESCRIPTION} are enough"
            yield Finding(self._md, "SW005", text, False)
        if not _VERSION.fullmatch(self._skill.version) or "version" not in about:
            yield self._error("SW007", 'metadata version: such as "1.2.0"')
        for regex in self._skill.when.regexes:
            if is_slow(regex):
                yield self._error("SW042", f"metadata when: {regex!r} repeats a repetition")

    def _risk(self) -> Iterator[Finding]:
        skill = self._skill
        if skill.risk == "L1" and not skill.is_idempotent:
            yield self._error("SW011", 'a skill that only reads must be idempotent: "true"')
        if skill.risk == "L3" and "*" in skill.roles:
            yield self._error("SW013", "metadata roles: an L3 skill names the roles it is for")
        if skill.risk != "L1":
            for pointer, about in _properties(skill.params):
                if about.get("type") == "string" and not about.keys() & _BOUNDS:
                    text = f"{pointer}: a text needs enum, pattern or maxLength"
                    yield self._error("SW014", text, skill.folder / "schema.json")

    def _params(self) -> Iterator[Finding]:
        path = self._skill.folder / "schema.json"
        for pointer, about in _properties(self._skill.params):
            if not str(about.get("description", "")).strip():
                yield self._error("SW021", f"{pointer}: no description", path)
            if "default" in about and not _fits(about["default"], about):
                yield self._error("SW023", f"{pointer}: the default does not fit", path)
        for number, example in enumerate(self._skill.params.get("examples", ()), 1):
            for problem in self._skill.problems(example):
                text = f"example {number}: {problem.pointer} {problem.message}"
                yield self._error("SW023", text, path)
        sent = {k: v for k, v in self._skill.params.items() if k != "examples"}
        tokens = len(json.dumps(sent, separators=(",", ":"))) / CHARS_A_TOKEN
        if tokens > MAX_SCHEMA:
            text = f"about {tokens:.0f} tokens; {MAX_SCHEMA} are enough"
            yield Finding(path, "SW022", text, False)

    def _body(self, document: Document) -> Iterator[Finding]:
        if (count := document.body.count("\n") + 1) > MAX_BODY_LINES:
            yield Finding(self._md, "SW040", f"{count} lines of text", False)
        for target in _LINK.findall(document.body):
            if "://" not in target and not (self._skill.folder / target.split("#")[0]).exists():
                yield self._error("SW041", f"a link to {target!r}, which does not exist")


_VERSION = re.compile(r"\d+\.\d+\.\d+(?:[-+][0-9A-Za-z.+-]+)?")
_LINK = re.compile(r"\]\(([^)#\s][^)\s]*)\)")
_BOUNDS = frozenset({"enum", "const", "pattern", "maxLength", "format"})


def _properties(schema: Any, pointer: str = "") -> Iterator[tuple[str, Mapping[str, Any]]]:
    """Yield every property of a schema and of the schemas inside it, with where it is."""
    if not isinstance(schema, Mapping):
        return
    for name, about in schema.get("properties", {}).items():
        if isinstance(about, Mapping):
            yield f"{pointer}/{name}", about
            yield from _properties(about, f"{pointer}/{name}")
    yield from _properties(schema.get("items"), f"{pointer}/*")


def _fits(value: object, schema: Mapping[str, Any]) -> bool:
    return not any(Draft202012Validator(schema).iter_errors(value))


_NEVER = frozenset(
    {"socket", "subprocess", "multiprocessing", "ctypes", "serial", "pty", "requests", "urllib",
     "http", "aiohttp", "importlib", "threading"}
)  # fmt: skip  # a skill's process may start nothing and connect to nothing
_OF_OS = frozenset({"system", "popen", "fork", "kill", "execv", "execve", "spawnv", "posix_spawn"})
_PURE = frozenset(
    {"compile", "frozenset", "set", "dict", "tuple", "list", "sorted", "range", "len", "field",
     "TypeVar", "NewType", "MappingProxyType", "Counter", "namedtuple", "join", "Path", "int",
     "str", "float", "bytes", "getLogger", "fromkeys",
        "items",
        "values", "maketrans"}
)  # fmt: skip


def _code(path: Path) -> Iterator[Finding]:
    try:
        tree = ast.parse(path.read_bytes())
    except (SyntaxError, ValueError, RecursionError):
        yield Finding(path, "SW030", "a syntax error", True)
        return
    classes = {node.name for node in tree.body if isinstance(node, ast.ClassDef)}
    for node in tree.body:
        if what := _does_something(node, _PURE | classes):
            yield Finding(path, "SW032", f"line {node.lineno}: {what} when imported", True)
    for any_node in ast.walk(tree):
        yield from _imports(path, any_node)
        if isinstance(any_node, ast.Attribute) and isinstance(any_node.value, ast.Name):
            where = f"line {any_node.lineno}"
            match any_node.value.id, any_node.attr:
                case "time", "sleep":
                    yield Finding(path, "SW034", f"{where}: time.sleep; await asyncio.sleep", True)
                case "os", name if name in _OF_OS:
                    yield Finding(path, "SW033", f"{where}: os.{name} is never allowed", True)


def _imports(path: Path, node: ast.AST) -> Iterator[Finding]:
    if isinstance(node, ast.Import):
        names = [alias.name for alias in node.names]
    elif isinstance(node, ast.ImportFrom) and node.module and not node.level:
        names = [node.module]
        if node.module == "serialwatch":
            names = [f"serialwatch.{alias.name}" for alias in node.names]
    else:
        return
    for name in names:
        if name.split(".")[0] in _NEVER:
            yield Finding(path, "SW033", f"imports {name}, which no skill may use", True)
        if name.split(".")[0] == "serialwatch" and name != "serialwatch.records":
            yield Finding(
                path, "SW035", f"imports {name}; only serialwatch.records is for it", True
            )


def _does_something(node: ast.stmt, pure: frozenset[str] | set[str]) -> str:
    """Return what a statement of a module does beyond naming things, "" if nothing."""
    if isinstance(node, (ast.For, ast.While, ast.With, ast.Delete)):
        return "a statement runs"
    if isinstance(node, ast.Expr) and not isinstance(node.value, ast.Constant):
        return "an expression runs"
    if isinstance(node, (ast.Assign, ast.AnnAssign, ast.AugAssign)) and node.value is not None:
        for part in ast.walk(node.value):
            if isinstance(part, ast.Call) and _called(part) not in pure:
                return f"{_called(part) or 'something'}() runs"
    return ""


def _called(call: ast.Call) -> str:
    if isinstance(call.func, ast.Attribute):
        return call.func.attr
    return call.func.id if isinstance(call.func, ast.Name) else ""


_SECRET = re.compile(
    rb"AKIA[0-9A-Z]{16}|-----BEGIN [A-Z ]*PRIVATE KEY|\bgh[pousr]_[A-Za-z0-9]{36}"
    rb"|\bsk-[A-Za-z0-9_-]{20,}|(?i:password|passwd|secret|token)\s*[=:]\s*[\"'][^\"'\s]{8,}[\"']"
)


def _secrets(path: Path) -> Iterator[Finding]:
    if found := _SECRET.search(path.read_bytes()):
        line = path.read_bytes().count(b"\n", 0, found.start()) + 1
        yield Finding(path, "SW050", f"line {line}: looks like a secret", True)


def _overlaps(skills: Sequence[Skill]) -> Iterator[Finding]:
    for at, skill in enumerate(skills):
        for other in skills[:at]:
            shared = sorted(name for _, name in skill.when.names & other.when.names)
            if shared and other.name != skill.name and not (skill.when_not and other.when_not):
                text = f"the same `when` as {other.name} ({', '.join(shared)}): say `when-not`"
                yield Finding(skill.folder / "SKILL.md", "SW043", text, False)
