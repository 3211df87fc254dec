"""Judge skills beyond what loading them needs: `serialwatch skills lint`.

`REMEDIES` has every code, and what to do about it.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from jsonschema import Draft202012Validator

from serialwatch.agent.front_matter import Document, parse_front_matter
from serialwatch.agent.skills.choice import CHARS_A_TOKEN, tokens_of, tool_of
from serialwatch.agent.skills.evals import EvalsError, evals_path, read_cases
from serialwatch.agent.skills.files import skill_files
from serialwatch.agent.skills.folder import Finding, line_of, read_skills
from serialwatch.agent.skills.results import SENTENCES
from serialwatch.agent.skills.skill import Skill
from serialwatch.agent.skills.when import is_slow

MAX_DESCRIPTION = 600  # characters
PARAMS = (2, 5)  # so many parameters a model fills in well
MAX_SCHEMA = 250  # tokens of what a model sees of a schema ...
MAX_LONG_SCHEMA = 750  # ... with a reason: a report's own is the longest
MAX_EXAMPLES = 3  # calls that the schema shows
MAX_BODY_LINES = 500
MAX_BODY_TOKENS = 5000

REMEDIES: Mapping[str, str] = {
    "SW001": "write SKILL.md as the Agent Skills specification has it: `skills new` shows one",
    "SW002": "give folder and skill one name, and each name to one skill of a root",
    "SW003": "say in the description when to call it: `Use when ...`",
    "SW004": "say in the description when not to: `Do NOT use for ... (use ...)`",
    "SW005": "shorten it: the description is sent with every prompt",
    "SW006": "take a key or name from docs/skills.md, its value a quoted text",
    "SW007": 'state `version: "1.2.0"`, and raise it when the skill changes',
    "SW008": 'state `timeout-s: "5"`, within 0.1 to 60 s',
    "SW009": 'state `long-s: "300"`, within 1 to 600 s, and allow `accept`; or neither',
    "SW010": "state `risk: L1` (reads), L2 (writes here) or L3 (acts on a board)",
    "SW011": 'make it so that a second call changes nothing, and state `idempotent: "true"`',
    "SW012": "raise the risk, or leave the capability out",
    "SW013": "name the roles that may have it: `roles: log-detective`",
    "SW014": "bound the text: enum, pattern or maxLength",
    "SW020": "write a JSON Schema with type object and additionalProperties false",
    "SW021": "say what it means, its unit, and what happens when it is left out",
    "SW022": "shorten descriptions, drop parameters: it is sent with every prompt",
    "SW023": "correct the value or the schema",
    "SW024": "add `examples` to the parameter: a list of values",
    "SW025": "keep two to five parameters, or say in `params-why` why not",
    "SW026": "add `examples` to the schema: one to three complete calls",
    "SW030": "correct the syntax",
    "SW031": "define `async def run(ctx: SkillContext, params: dict[str, Any]) -> SkillResult`",
    "SW032": "move it into a function: importing a skill must do nothing",
    "SW033": "do without: the process of a skill may start nothing and connect to nothing",
    "SW034": "`await asyncio.sleep(...)`, or do not wait at all",
    "SW035": "import serialwatch.records only; the bench is reached through `ctx`",
    "SW040": "move parts of it to references/ and link them",
    "SW041": "correct the link or add the file",
    "SW042": "write `trigger|class|tag in (a, b.*)` or `line ~ REGEX`, joined by `and`, `or`",
    "SW043": "say in `when-not` what each of the two is not for",
    "SW044": 'add `## If it fails` with lines such as "- `timeout`: ask for fewer lines"',
    "SW045": "begin each line with codes of failures in backquotes",
    "SW050": "take the secret out, and change it: it was in a file",
    "SW051": "give the files to root or the daemon's user, and chmod o-w",
    "SW060": "add evals/evals.json with a case that finds something and one that does not",
    "SW061": "correct the cases as docs/skills.md has them",
}  # by code

HEAD_KEYS = frozenset(
    {"name", "description", "license", "compatibility", "allowed-tools", "metadata"}
)
METADATA_KEYS = frozenset(
    {
        "serialwatch-api", "version", "namespace", "tags", "risk", "timeout-s", "long-s",
        "idempotent", "params", "params-why", "when", "when-not", "roles", "any-boot",
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
        yield from self._body(self._document)
        if self._skill.has_main:
            yield from self._limits()
            yield from self._params()
            yield from self._hints()
            yield from self._evals()
        for path in skill_files(self._skill.folder):
            if path.suffix == ".py":
                yield from _code(path)
            yield from _secrets(path)

    def _error(self, code: str, text: str, key: str = "") -> Finding:
        line = line_of(self._md, rf"^\s*{re.escape(key)}\s*:" if key else "")
        return Finding(self._md, code, text, True, line)

    def _warning(self, code: str, text: str, key: str = "") -> Finding:
        return replace(self._error(code, text, key), is_error=False)

    @property
    def _about(self) -> Mapping[str, Any]:
        about: Mapping[str, Any] = self._document.head.get("metadata", {})
        return about

    def _head(self, document: Document) -> Iterator[Finding]:
        for key in sorted(document.head.keys() - HEAD_KEYS):
            yield self._error("SW001", f"{key}: no key of the Agent Skills specification", key)
        for key in sorted(self._about.keys() - METADATA_KEYS):
            yield self._error("SW006", f"metadata {key}: unknown", key)
        said = self._skill.description
        if "use when" not in said.lower():
            yield self._error("SW003", "description: says not when to use it", "description")
        if "do not use" not in said.lower():
            yield self._error("SW004", "description: says not when not to use it", "description")
        if len(said) > MAX_DESCRIPTION:
            text = f"description: {len(said)} characters; {MAX_DESCRIPTION} are enough"
            yield self._warning("SW005", text, "description")
        if not _VERSION.fullmatch(self._skill.version) or "version" not in self._about:
            yield self._error("SW007", "metadata version: no semantic version", "version")
        for regex in self._skill.when.regexes:
            if is_slow(regex):
                yield self._error("SW042", f"metadata when: {regex!r} repeats a repetition", "when")

    def _limits(self) -> Iterator[Finding]:
        if "timeout-s" not in self._about:
            yield self._error("SW008", "metadata timeout-s is missing", "metadata")
        says_accept = "accept" in str(self._document.head.get("allowed-tools", "")).split()
        if says_accept and not self._skill.long_s:
            yield self._error("SW009", "accept without metadata long-s", "allowed-tools")
        if self._skill.long_s and "accept" not in self._skill.allowed:
            yield self._error("SW009", "metadata long-s without accept", "long-s")

    def _risk(self) -> Iterator[Finding]:
        skill = self._skill
        if skill.risk == "L1" and not skill.is_idempotent:
            yield self._error("SW011", "L1, and not idempotent", "idempotent")
        if skill.risk == "L3" and "*" in skill.roles:
            yield self._error("SW013", "L3, and for every role", "roles")
        if skill.risk != "L1":
            for pointer, about in _properties(skill.params):
                if about.get("type") == "string" and not about.keys() & _BOUNDS:
                    yield self._of_schema("SW014", f"{pointer}: a text without bounds", pointer)

    def _of_schema(self, code: str, text: str, pointer: str, is_error: bool = True) -> Finding:
        path = self._skill.folder / "schema.json"
        name = pointer.rpartition("/")[2]
        return Finding(path, code, text, is_error, line_of(path, rf'"{re.escape(name)}"\s*:'))

    def _params(self) -> Iterator[Finding]:
        top = self._skill.params.get("properties", {})
        why = str(self._about.get("params-why", "")).strip()
        if not PARAMS[0] <= len(top) <= PARAMS[1] and not why:
            text = f"{len(top)} parameters, and no metadata params-why"
            yield self._of_schema("SW025", text, "properties")
        for pointer, about in _properties(self._skill.params):
            if not str(about.get("description", "")).strip():
                yield self._of_schema("SW021", f"{pointer}: no description", pointer)
            if "default" in about and not _fits(about["default"], about):
                yield self._of_schema("SW023", f"{pointer}: the default does not fit", pointer)
            for example in _list(about.get("examples")):
                if not _fits(example, about):
                    text = f"{pointer}: the example {example!r} does not fit"
                    yield self._of_schema("SW023", text, pointer)
        shown = {name for call in _list(self._skill.params.get("examples")) for name in call}
        for name, about in top.items():
            if isinstance(about, Mapping) and not _tells_values(about, name in shown):
                yield self._of_schema("SW024", f"/{name}: no examples", name)
        yield from self._calls(bool(top))
        most = MAX_LONG_SCHEMA if why else MAX_SCHEMA
        tokens = tokens_of(tool_of(self._skill)["function"]["parameters"])
        if tokens > most:
            text = f"about {tokens} tokens; {most} are enough"
            yield self._of_schema("SW022", text, "properties", is_error=False)

    def _calls(self, has_params: bool) -> Iterator[Finding]:
        examples = _list(self._skill.params.get("examples"))
        if (has_params and not examples) or len(examples) > MAX_EXAMPLES:
            text = f"{len(examples) or 'no'} calls as examples"
            yield self._of_schema("SW026", text, "properties")
        for number, example in enumerate(examples, 1):
            for problem in self._skill.problems(example):
                text = f"example {number}: {problem.pointer} {problem.message}"
                yield self._of_schema("SW023", text, "examples")

    def _hints(self) -> Iterator[Finding]:
        if not self._skill.hints:
            yield self._error("SW044", "it says not what to do when it fails")
        for code in sorted(self._skill.hints.keys() - SENTENCES.keys()):
            line = line_of(self._md, rf"^- .*`{re.escape(code)}`")
            yield Finding(self._md, "SW045", f"If it fails: no code {code!r}", True, line)

    def _evals(self) -> Iterator[Finding]:
        path = evals_path(self._skill.folder)
        try:
            if not read_cases(self._skill.folder):
                yield Finding(path, "SW060", "no test cases", False)
        except EvalsError as exc:
            yield Finding(path, "SW061", exc.problem, True)

    def _body(self, document: Document) -> Iterator[Finding]:
        if (count := document.body.count("\n") + 1) > MAX_BODY_LINES:
            yield self._warning("SW040", f"{count} lines of text")
        elif (tokens := len(document.body) / CHARS_A_TOKEN) > MAX_BODY_TOKENS:
            yield self._warning("SW040", f"about {tokens:.0f} tokens of text")
        for target in _LINK.findall(document.body):
            if "://" not in target and not (self._skill.folder / target.split("#")[0]).exists():
                line = line_of(self._md, re.escape(f"]({target}"))
                yield Finding(self._md, "SW041", f"a link to {target!r}, which does not exist",
                              True, line)  # fmt: skip


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


def _tells_values(about: Mapping[str, Any], is_in_a_call: bool) -> bool:
    """Return whether a parameter shows values, or names all that there are.

    Of an array or object a whole call shows enough.
    """
    kind = about.get("type")
    return bool(
        _list(about.get("examples")) or about.keys() & {"enum", "const"} or kind == "boolean"
    ) or (is_in_a_call and kind in ("array", "object"))


def _list(value: object) -> list[Any]:
    return value if isinstance(value, list) else []


def _fits(value: object, schema: Mapping[str, Any]) -> bool:
    return not any(Draft202012Validator(schema).iter_errors(value))


_NEVER = frozenset(
    {"socket", "subprocess", "multiprocessing", "ctypes", "serial", "pty", "requests", "urllib",
     "http", "aiohttp", "importlib", "threading"}
)  # fmt: skip  # a skill's process may start nothing and connect to nothing
_OF_OS = frozenset({"system", "popen", "fork", "kill", "execv", "execve", "spawnv", "posix_spawn"})
_OF_BUILTINS = frozenset({"exec", "eval", "__import__"})
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
    except (SyntaxError, ValueError, RecursionError) as exc:
        yield Finding(path, "SW030", "a syntax error", True, getattr(exc, "lineno", None) or 1)
        return
    classes = {node.name for node in tree.body if isinstance(node, ast.ClassDef)}
    for node in tree.body:
        if what := _does_something(node, _PURE | classes):
            yield Finding(path, "SW032", f"{what} when imported", True, node.lineno)
    for any_node in ast.walk(tree):
        yield from _imports(path, any_node)
        if isinstance(any_node, ast.Attribute) and isinstance(any_node.value, ast.Name):
            match any_node.value.id, any_node.attr:
                case "time", "sleep":
                    yield Finding(path, "SW034", "time.sleep", True, any_node.lineno)
                case "os", name if name in _OF_OS:
                    yield Finding(path, "SW033", f"os.{name}", True, any_node.lineno)
        elif isinstance(any_node, ast.Name) and any_node.id in _OF_BUILTINS:
            yield Finding(path, "SW033", f"{any_node.id}()", True, any_node.lineno)


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
            yield Finding(path, "SW033", f"imports {name}", True, node.lineno)
        if name.split(".")[0] == "serialwatch" and name != "serialwatch.records":
            yield Finding(path, "SW035", f"imports {name}", True, node.lineno)


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
        yield Finding(path, "SW050", "looks like a secret", True, line)


def _overlaps(skills: Sequence[Skill]) -> Iterator[Finding]:
    for at, skill in enumerate(skills):
        for other in skills[:at]:
            shared = sorted(name for _, name in skill.when.names & other.when.names)
            if shared and other.name != skill.name and not (skill.when_not and other.when_not):
                path = skill.folder / "SKILL.md"
                text = f"the same `when` as {other.name} ({', '.join(shared)})"
                yield Finding(path, "SW043", text, False, line_of(path, r"^\s*when\s*:"))
