"""A skill's folder: read and judged without importing anything of it."""

from __future__ import annotations

import ast
import json
import os
import re
import stat
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, get_args

from jsonschema import Draft202012Validator
from jsonschema.exceptions import SchemaError
from jsonschema.protocols import Validator

from serialwatch.agent.front_matter import FrontMatterError, parse_front_matter
from serialwatch.agent.skills.files import folder_sha
from serialwatch.agent.skills.skill import CAPABILITIES, ParamsValidator, Skill
from serialwatch.agent.skills.when import When, WhenError, parse_when
from serialwatch.records import Risk
from serialwatch.wire import Json

MAX_NAME = 48  # characters; a function name of 64 holds namespace and name
MAX_FILE = 256 * 1024  # bytes of one file of a skill
MAX_FOLDERS = 500  # looked at below one root
MAX_DEPTH = 4
TIMEOUT_S = (0.1, 60.0)  # what a skill may ask for
LONG_S = (1.0, 600.0)  # ... once it has said that it is a long job
MAX_HINT = 200  # characters
DEFAULT_TIMEOUT_S: Mapping[Risk, float] = {"L1": 5.0, "L2": 15.0, "L3": 15.0}

_NAME = re.compile(r"[a-z0-9]+(?:-[a-z0-9]+)*")


@dataclass(frozen=True, slots=True)
class Finding:
    """Something that is wrong with a skill, or could be better."""

    path: Path
    code: str  # SW001 .. SW061
    text: str
    is_error: bool
    line: int = 1


@dataclass(frozen=True, slots=True)
class SkillText:
    """A skill's folder as read, usable or not."""

    folder: Path
    skill: Skill | None
    findings: tuple[Finding, ...]


def read_skills(root: Path) -> Iterator[SkillText]:
    """Read every skill below `root`, by name; one that leads out of it is refused."""
    if not root.is_dir():
        return
    inside = root.resolve()
    for folder in _folders(root):
        if not folder.resolve().is_relative_to(inside):
            finding = Finding(folder, "SW001", "a link that leads out of the skills folder", True)
            yield SkillText(folder, None, (finding,))
        else:
            yield _read(folder.resolve())


def _folders(root: Path, depth: int = 1) -> Iterator[Path]:
    looked = 0
    try:
        entries = sorted(root.iterdir())
    except OSError:
        yield root  # reading it tells what is wrong
        return
    for entry in entries:
        if entry.name.startswith((".", "__")) or not entry.is_dir():
            continue
        if (looked := looked + 1) > MAX_FOLDERS:
            return
        if any((entry / name).exists() for name in ("SKILL.md", "main.py", "schema.json")):
            yield entry
        elif depth < MAX_DEPTH and not entry.is_symlink():
            yield from _folders(entry, depth + 1)


def _read(folder: Path) -> SkillText:
    reading = _Reading(folder)
    try:
        skill = reading.skill()
    except OSError as exc:
        reading.error("SW001", str(exc))
        skill = None
    if any(f.is_error and f.code in _FATAL for f in reading.findings):
        skill = None
    return SkillText(folder, skill, tuple(reading.findings))


_FATAL = frozenset({"SW001", "SW020", "SW030", "SW031", "SW051"})  # such a skill is not loaded


class _Reading:
    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.findings: list[Finding] = []

    def error(
        self, code: str, text: str, path: Path | None = None, key: str = "", line: int = 0
    ) -> None:
        """Note what is wrong; the line is that of `key` where it is not known."""
        path = path or self.folder / "SKILL.md"
        at = line or line_of(path, rf"^\s*[\"']?{re.escape(key)}[\"']?\s*:" if key else "")
        self.findings.append(Finding(path, code, text, True, at))

    def skill(self) -> Skill | None:
        head, body = self._skill_md()
        about = self._about(head)
        risk = self._risk(about)
        self._safe(risk)
        schema, validator = self._schema(about.get("params", "schema.json"))
        has_main = self._main()
        if self.findings and any(f.code in _FATAL for f in self.findings):
            return None
        return Skill(
            name=self.folder.name,
            description=" ".join(str(head["description"]).split()),
            body=body,
            version=about.get("version", "0.0.0"),
            namespace=about.get("namespace", self.folder.name.partition("-")[0]),
            tags=frozenset(about.get("tags", "").replace(",", " ").split()),
            risk=risk,
            timeout_s=self._timeout_s(about, risk),
            long_s=self._long_s(about),
            is_idempotent=about.get("idempotent") == "true",
            allowed=self._allowed(head, risk),
            roles=frozenset(about.get("roles", "*").replace(",", " ").split()),
            when=self._when(about),
            when_not=about.get("when-not", ""),
            folder=self.folder,
            sha=folder_sha(self.folder),
            params=schema,
            has_main=has_main,
            hints=failure_hints(body),
            validator=validator,
            any_boot=about.get("any-boot") == "true",
        )

    def _skill_md(self) -> tuple[Mapping[str, Any], str]:
        path = self.folder / "SKILL.md"
        if not path.is_file():
            self.error("SW001", "no SKILL.md")
            return {}, ""
        try:
            read = parse_front_matter(path.read_bytes().decode())
        except (FrontMatterError, UnicodeDecodeError) as exc:
            self.error("SW001", f"front matter: {exc}")
            return {}, ""
        self._spec(read.head)
        return read.head, read.body

    def _spec(self, head: Mapping[str, Any]) -> None:
        """Check what the Agent Skills specification fixes."""
        name, description = head.get("name"), head.get("description")
        if not isinstance(name, str) or not _NAME.fullmatch(name) or len(name) > MAX_NAME:
            self.error(
                "SW001", f"name: a-z, 0-9 and single hyphens, at most {MAX_NAME}", key="name"
            )
        elif name != self.folder.name:
            self.error(
                "SW002",
                f"name {name!r} is not that of its folder, {self.folder.name!r}",
                key="name",
            )
        if not isinstance(description, str) or not 1 <= len(description.strip()) <= 1024:
            self.error("SW001", "description: 1 to 1024 characters", key="description")
        for key, limit in (("license", 200), ("compatibility", 500), ("allowed-tools", 500)):
            if not isinstance(head.get(key, ""), str) or len(head.get(key, "")) > limit:
                self.error("SW001", f"{key}: a text of at most {limit} characters", key=key)

    def _about(self, head: Mapping[str, Any]) -> dict[str, str]:
        about = head.get("metadata", {})
        if not isinstance(about, dict):
            self.error("SW001", "metadata: must be a mapping", key="metadata")
            return {}
        for key, value in about.items():
            if not isinstance(value, str):
                self.error(
                    "SW006", f"metadata {key}: must be a quoted text, not {value!r}", key=str(key)
                )
        return {str(k): v if isinstance(v, str) else _plain(v) for k, v in about.items()}

    def _risk(self, about: Mapping[str, str]) -> Risk:
        said = about.get("risk")
        if said is None:
            self.error("SW010", "metadata risk is missing: taken as L3", key="metadata")
            return "L3"
        for risk in get_args(Risk):
            if said == risk:
                return risk  # type: ignore[no-any-return]  # get_args() is untyped
        self.error("SW001", f"metadata risk: L1, L2 or L3, not {said!r}", key="risk")
        return "L3"

    def _timeout_s(self, about: Mapping[str, str], risk: Risk) -> float:
        if (said := about.get("timeout-s")) is None:
            return DEFAULT_TIMEOUT_S[risk]
        low, high = TIMEOUT_S
        if re.fullmatch(r"\d+(?:\.\d+)?", said) and low <= float(said) <= high:
            return float(said)
        self.error(
            "SW008", f"metadata timeout-s: {low} to {high} seconds, not {said!r}", key="timeout-s"
        )
        return DEFAULT_TIMEOUT_S[risk]

    def _long_s(self, about: Mapping[str, str]) -> float:
        if (said := about.get("long-s")) is None:
            return 0.0
        low, high = LONG_S
        if re.fullmatch(r"\d+(?:\.\d+)?", said) and low <= float(said) <= high:
            return float(said)
        self.error(
            "SW009", f"metadata long-s: {low:g} to {high:g} seconds, not {said!r}", key="long-s"
        )
        return 0.0

    def _allowed(self, head: Mapping[str, Any], risk: Risk) -> frozenset[str]:
        by_risk = frozenset(name for name, least in CAPABILITIES.items() if least <= risk)
        if "allowed-tools" not in head:
            return by_risk
        asked = frozenset(head["allowed-tools"].split())
        for name in sorted(asked - CAPABILITIES.keys()):
            self.error("SW006", f"allowed-tools: there is no {name!r}", key="allowed-tools")
        for name in sorted((asked & CAPABILITIES.keys()) - by_risk):
            self.error(
                "SW012",
                f"allowed-tools: {name} needs {CAPABILITIES[name]}, not {risk}",
                key="allowed-tools",
            )
        return asked & by_risk

    def _when(self, about: Mapping[str, str]) -> When:
        try:
            return parse_when(about.get("when", ""))
        except WhenError as exc:
            self.error("SW042", f"metadata when: {exc}", key="when")
            return When(())

    def _schema(self, name: str) -> tuple[Mapping[str, Any], Validator]:
        nothing: Json = {"type": "object", "additionalProperties": False, "properties": {}}
        path = self.folder / name
        if Path(name).name != name:
            self.error("SW020", f"metadata params: a file of the folder, not {name!r}")
        elif path.is_file():
            try:
                schema = json.loads(path.read_bytes())
                Draft202012Validator.check_schema(schema)
            except (ValueError, RecursionError, SchemaError) as exc:
                line = getattr(exc, "lineno", None) or 1
                self.error("SW020", f"no JSON Schema: {_first_line(exc)}", path, line=line)
            else:
                if _is_closed_object(schema):
                    return schema, ParamsValidator(schema)
                self.error("SW020", "type must be object, additionalProperties false", path)
        elif (self.folder / "main.py").is_file():
            self.error("SW020", f"no {name} beside main.py", path)
        return nothing, ParamsValidator(nothing)

    def _main(self) -> bool:
        path = self.folder / "main.py"
        if not path.is_file():
            return False
        try:
            tree = ast.parse(path.read_bytes(), str(path))
        except (SyntaxError, ValueError, RecursionError) as exc:
            line = getattr(exc, "lineno", None) or 1
            self.error("SW030", f"syntax: {_first_line(exc)}", path, line=line)
            return False
        runs = [n for n in tree.body if getattr(n, "name", "") == "run"]
        if not runs or not isinstance(runs[-1], ast.AsyncFunctionDef):
            line = runs[-1].lineno if runs else 1
            self.error("SW031", "no `async def run(ctx, params)`", path, line=line)
        elif len(runs[-1].args.posonlyargs + runs[-1].args.args) != 2:
            why = "run takes exactly `ctx` and `params`"
            self.error("SW031", why, path, line=runs[-1].lineno)
        return True

    def _safe(self, risk: Risk) -> None:
        """Check that only its owner, whom we trust, can change the skill."""
        trusted = {0, os.geteuid(), Path(__file__).stat().st_uid}
        for path in (self.folder, *self.folder.rglob("*")):
            if not path.resolve().is_relative_to(self.folder):
                self.error("SW051", "a link that leads out of the folder", path)
                continue
            now = path.stat()
            if now.st_mode & stat.S_IWOTH:
                self.error("SW051", "anybody may write to it (chmod o-w)", path)
            if risk != "L1" and now.st_uid not in trusted:
                self.error("SW051", f"owned by uid {now.st_uid}, not by root or the daemon", path)
            if path.is_file() and now.st_size > MAX_FILE:
                self.error("SW001", f"larger than {MAX_FILE} bytes", path)


def line_of(path: Path, regex: str) -> int:
    """Return the first line of a file in which `regex` matches, 1 if none does."""
    if not regex or not path.is_file():
        return 1
    text = path.read_bytes()[:MAX_FILE].decode(errors="replace")
    found = re.search(regex, text, re.MULTILINE)
    return text.count("\n", 0, found.start()) + 1 if found else 1


def failure_hints(body: str) -> Mapping[str, str]:
    """Return what the section `## If it fails` says, by failure code."""
    section = re.search(r"^## If it fails\s*$(.*?)(?=^#{1,2} |\Z)", body, re.MULTILINE | re.DOTALL)
    if section is None:
        return {}
    found = re.finditer(r"^- ((?:`[a-z_]+`(?:, | or |, or )?)+):?\s(.*?)(?=^- |^$|\Z)",
                        section[1], re.MULTILINE | re.DOTALL)  # fmt: skip
    return {
        code: " ".join(hint[2].split())[:MAX_HINT]
        for hint in found
        for code in re.findall(r"`([a-z_]+)`", hint[1])
    }


def _is_closed_object(schema: object) -> bool:
    return (
        isinstance(schema, dict)
        and schema.get("type") == "object"
        and schema.get("additionalProperties") is False
    )


def _plain(value: object) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)


def _first_line(exc: BaseException) -> str:
    text = exc.message if isinstance(exc, SchemaError) else str(exc)
    return text.partition("\n")[0][:200]
