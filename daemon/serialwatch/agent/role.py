"""A role: who the agent is to be, as sections given when they are needed, and what it may use.

    ---
    name: log-detective
    description: Investigates an incident of one board.
    origin: incidents                   # what the entrance sends it
    skills: log-read report-write       # it may use, no others
    risk: L2                            # of a skill, at most; L3: it may propose actions on boards
    memory-read: bench port board       # scopes of memories that it sees
    memory-write: port                  # and that it may add to
    limits: {rounds: 8, tokens: 48000}  # of one run; they can only be narrower than the usual ones
    ---

    ## core                             # always given
    ## method                           # while it looks
    ## style                            # when it writes
    ## on:linux.oops                    # when it is about that; two of them at most

What a role may use is enforced where skills run; the sections only tell it.
"""

from __future__ import annotations

import math
import re
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal, get_args

from serialwatch.agent.front_matter import Document, FrontMatterError, parse_front_matter
from serialwatch.agent.models.tokens import PROSE_CHARS
from serialwatch.records import Risk
from serialwatch.store.memory_gate import MemoryScope

Origin = Literal["incidents", "questions", "schedules", "digest"]

MAX_SITUATIONS = 2  # sections `on:...` in one prompt
CORE_TOKENS = 250
SECTION_TOKENS = 350  # of any other
MAX_DESCRIPTION = 300  # characters
FILE = "ROLE.md"

# What one run may take at most, and at least to be of any use.
LIMITS: Mapping[str, tuple[int, int]] = {
    "rounds": (2, 8),
    "tokens": (8_000, 48_000),
    "seconds": (15, 90),
}
_KEYS = {
    *("name", "description", "origin", "skills", "risk", "memory-read", "memory-write", "limits"),
}
_NAME = re.compile(r"[a-z0-9][a-z0-9-]{0,47}")
_SECTION = re.compile(r"core|method|style|on:[a-z0-9_.-]{1,60}")


class RoleError(Exception):
    """A role cannot be used; the message names the file and what is wrong."""

    def __init__(self, path: Path, problem: str) -> None:
        super().__init__(f"{path}: {problem}")


@dataclass(frozen=True, slots=True)
class RoleProblem:
    """Something that is wrong with a role."""

    path: Path
    line: int  # from 1
    text: str

    @property
    def words(self) -> str:
        """Return it in one line, with its place."""
        return f"{self.path}:{self.line}: {self.text}"


@dataclass(frozen=True, slots=True)
class Role:
    """What ROLE.md says."""

    name: str
    skills: tuple[str, ...]  # it may use
    sections: Mapping[str, str]  # by heading: core, method, style, on:linux, ...
    description: str = ""
    origin: frozenset[Origin] = frozenset()
    risk: Risk = "L1"  # of a skill, at most
    memory_read: frozenset[MemoryScope] = frozenset()
    memory_write: frozenset[MemoryScope] = frozenset()
    limits: Mapping[str, int] = field(default_factory=dict)  # see LIMITS; the usual ones left out
    path: Path = Path()

    def text(self, phase: str, tags: Iterable[str]) -> str:
        """Return the sections for a phase (`method` or `style`) and an incident with `tags`."""
        situations = [f"on:{tag}" for tag in tags if f"on:{tag}" in self.sections]
        wanted = ["core", phase, *situations[:MAX_SITUATIONS]]
        return "\n\n".join(self.sections[key] for key in wanted if key in self.sections)

    def limit(self, name: str, usual: float) -> float:
        """Return a limit of a run: the usual one, unless the role's is narrower."""
        return min(self.limits.get(name, usual), usual)


@dataclass(frozen=True, slots=True)
class Roles:
    """All roles that can be used, and what is wrong with the others."""

    found: Mapping[str, Role]
    problems: tuple[RoleProblem, ...] = ()
    shadowed: tuple[Role, ...] = ()  # of the same name in a later folder

    def get(self, name: str) -> Role | None:
        """Return a role by its name, None if there is none."""
        return self.found.get(name)

    def for_origin(self, origin: Origin) -> Role | None:
        """Return the role that something of this origin goes to, None if none takes it.

        Of several that take it people's own come first.
        """
        return next((role for role in self.found.values() if origin in role.origin), None)


def load_role(dirs: Sequence[Path], name: str) -> Role:
    """Return the role `name` of the first of `dirs` that has it.

    Raises:
        RoleError: none has it, or it cannot be used.

    """
    for root in dirs:
        path = root / name / FILE
        if path.is_file():
            role, problems = read_role(path)
            if role is None:
                first = problems[0]
                raise RoleError(path, f"line {first.line}: {first.text}")
            return role
    raise RoleError(Path(name) / FILE, "no such role")


def load_roles(dirs: Sequence[Path]) -> Roles:
    """Return the roles below `dirs`; of two with one name the first that is in order wins."""
    found: dict[str, Role] = {}
    problems: list[RoleProblem] = []
    shadowed: list[Role] = []
    for root in dirs:
        for path in sorted(root.glob(f"*/{FILE}")):
            role, wrong = read_role(path)
            problems += wrong
            if role is None:
                continue
            if role.name in found:
                shadowed.append(role)
            else:
                found[role.name] = role
    return Roles(found, tuple(problems), tuple(shadowed))


def read_role(path: Path) -> tuple[Role | None, list[RoleProblem]]:
    """Return the role in a file, None if something is wrong with it."""
    try:
        text = path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as exc:
        words = exc.strerror or str(exc) if isinstance(exc, OSError) else "it is not UTF-8"
        return None, [RoleProblem(path, 1, f"cannot be read: {words}")]
    try:
        document = parse_front_matter(text)
    except FrontMatterError as exc:
        told = re.search(r"line (\d+): ", str(exc))
        at = int(told[1]) if told else 1
        return None, [RoleProblem(path, at, str(exc).replace(told[0] if told else "", ""))]
    reader = _Reader(path, text, document)
    role = reader.role()
    return (None if reader.problems else role), reader.problems


def check_skills(
    role: Role, risks: Mapping[str, Risk], roles_of: Mapping[str, Collection[str]]
) -> list[RoleProblem]:
    """Return what is wrong with the skills that a role names.

    `risks` has the risk of every skill there is, `roles_of` the roles that each is for.
    """
    text = role.path.read_text(encoding="utf-8").splitlines()
    found: list[RoleProblem] = []
    for name in role.skills:
        at = next((n for n, line in enumerate(text, 1) if re.search(rf"\b{name}\b", line)), 1)
        if name not in risks:
            problem = f"skills: there is no skill {name} (`serialwatch skills list`)"
        elif risks[name] > role.risk:
            problem = f"skills: {name} is {risks[name]}, and the role's risk is {role.risk} at most"
        elif not {"*", role.name} & set(roles_of.get(name, ("*",))):
            problem = f"skills: {name} is not for this role (its `metadata.roles`)"
        else:
            continue
        found.append(RoleProblem(role.path, at, problem))
    return found


def tokens_in(text: str) -> int:
    """Return about how many tokens a section costs in every prompt that has it."""
    return math.ceil(len(text) / PROSE_CHARS)


class _Reader:
    """Takes a role apart and collects what is wrong with it."""

    def __init__(self, path: Path, text: str, document: Document) -> None:
        self.problems: list[RoleProblem] = []
        self._path = path
        self._lines = text.removeprefix("\ufeff").replace("\r\n", "\n").split("\n")
        self._head = document.head
        self._body_line = document.body_line

    def role(self) -> Role:
        """Return what the file says, as far as it makes sense."""
        for key in sorted(self._head.keys() - _KEYS):
            known = ", ".join(sorted(_KEYS))
            self._wrong(key, f"unknown key {key!r}; known: {known}")
        name = self._text("name")
        if name and (not _NAME.fullmatch(name) or name != self._path.parent.name):
            folder = self._path.parent.name
            self._wrong("name", f"name: {name!r}, but its folder is {folder!r} (a-z, 0-9 and -)")
        description = self._text("description")
        if len(description) > MAX_DESCRIPTION:
            self._wrong("description", f"description: at most {MAX_DESCRIPTION} characters")
        skills = self._words("skills", ())
        if skills and "report-write" not in skills:
            self._wrong("skills", "skills: report-write is missing: nothing else ends the work")
        risk = self._head.get("risk", "L1")
        if risk not in get_args(Risk):
            self._wrong("risk", f"risk: L1, L2 or L3, not {risk!r}")
            risk = "L1"
        return Role(
            name=name,
            description=description,
            origin=frozenset(self._words("origin", get_args(Origin))),  # type: ignore[arg-type]  # checked
            skills=skills,
            risk=risk,
            memory_read=self._scopes("memory-read"),
            memory_write=self._scopes("memory-write"),
            limits=self._limits(),
            sections=self._sections(),
            path=self._path,
        )

    def _text(self, key: str) -> str:
        value = self._head.get(key)
        if isinstance(value, str) and value.strip() and value.isprintable():
            return value.strip()
        problem = "is missing" if key not in self._head else "must be a text of one line"
        self._wrong(key, f"{key}: {problem}")
        return ""

    def _words(self, key: str, allowed: Sequence[str], is_needed: bool = True) -> tuple[str, ...]:
        value = self._head.get(key, "")
        words = value.split() if isinstance(value, str) else value
        if not isinstance(words, list) or not all(isinstance(w, str) for w in words):
            self._wrong(key, f"{key}: words between spaces")
            return ()
        if not words and is_needed:
            self._wrong(key, f"{key}: is missing")
        for word in words:
            if allowed and word not in allowed:
                self._wrong(key, f"{key}: {word!r} is none of {', '.join(allowed)}")
            elif words.count(word) > 1:
                self._wrong(key, f"{key}: {word!r} stands there twice")
                break
        return tuple(dict.fromkeys(words))

    def _scopes(self, key: str) -> frozenset[MemoryScope]:
        found = self._words(key, get_args(MemoryScope), is_needed=False)
        return frozenset(found)  # type: ignore[arg-type]  # checked above

    def _limits(self) -> dict[str, int]:
        given = self._head.get("limits", {})
        if not isinstance(given, dict):
            self._wrong("limits", "limits: such as {rounds: 6, tokens: 16000, seconds: 60}")
            return {}
        limits: dict[str, int] = {}
        for key, value in given.items():
            if key not in LIMITS:
                self._wrong("limits", f"limits: {key!r} is none of {', '.join(LIMITS)}")
                continue
            least, most = LIMITS[key]
            if isinstance(value, bool) or not isinstance(value, int) or not least <= value <= most:
                self._wrong("limits", f"limits: {key}: {least} to {most}, not {value!r}")
                continue
            limits[key] = value
        return limits

    def _sections(self) -> dict[str, str]:
        sections: dict[str, str] = {}
        for at, key, text in self._parts():
            if not _SECTION.fullmatch(key):
                problem = f"section {key!r}: core, method, style, or on: and a tag or class"
                self.problems.append(RoleProblem(self._path, at, problem))
            elif key in sections:
                self.problems.append(RoleProblem(self._path, at, f"a second section {key}"))
            elif not text:
                self.problems.append(RoleProblem(self._path, at, f"section {key} is empty"))
            elif (size := tokens_in(text)) > (most := _most(key)):
                problem = f"section {key} has about {size} tokens, {most} at most: shorten it"
                self.problems.append(RoleProblem(self._path, at, problem))
            sections[key] = text
        for key in ("core", "method", "style"):
            if key not in sections:
                problem = f"a section `## {key}` is missing"
                last = len("\n".join(self._lines).rstrip().split("\n"))
                self.problems.append(RoleProblem(self._path, last, problem))
        return sections

    def _parts(self) -> Iterator[tuple[int, str, str]]:
        """Yield line, heading and text of each section."""
        starts = [
            (n, line[3:].strip())
            for n, line in enumerate(self._lines, start=1)
            if n >= self._body_line and line.startswith("## ")
        ]
        ends = [*(n for n, _ in starts[1:]), len(self._lines) + 1]
        for (start, key), end in zip(starts, ends, strict=False):
            yield start, key, "\n".join(self._lines[start : end - 1]).strip()

    def _wrong(self, key: str, text: str) -> None:
        at = next(
            (
                n
                for n, line in enumerate(self._lines, 1)
                if re.match(rf"{re.escape(key)}\s*:", line)
            ),
            1,
        )
        self.problems.append(RoleProblem(self._path, at, text))


def _most(key: str) -> int:
    return CORE_TOKENS if key == "core" else SECTION_TOKENS


def describe(role: Role) -> dict[str, Any]:
    """Return a role as `roles show --json` has it."""
    return {
        "name": role.name,
        "description": role.description,
        "origin": sorted(role.origin),
        "skills": list(role.skills),
        "risk": role.risk,
        "memory_read": sorted(role.memory_read),
        "memory_write": sorted(role.memory_write),
        "limits": {name: int(role.limit(name, most)) for name, (_, most) in LIMITS.items()},
        "sections": [
            {"name": key, "tokens": tokens_in(text), "text": text}
            for key, text in role.sections.items()
        ],
        "path": str(role.path),
    }
