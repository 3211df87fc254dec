"""A role: who the model is to be, as sections that are given when they are needed."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from serialwatch.agent.front_matter import FrontMatterError, parse_front_matter

MAX_SITUATIONS = 2  # sections `on:...` in one prompt


class RoleError(Exception):
    """A role cannot be used; the message names the file and what is wrong."""

    def __init__(self, path: Path, problem: str) -> None:
        super().__init__(f"{path}: {problem}")


@dataclass(frozen=True, slots=True)
class Role:
    """What ROLE.md says."""

    name: str
    skills: tuple[str, ...]  # it may use
    sections: Mapping[str, str]  # by heading: core, method, style, on:linux, ...

    def text(self, phase: str, tags: Iterable[str]) -> str:
        """Return the sections for a phase (`method` or `style`) and an incident with `tags`."""
        situations = [f"on:{tag}" for tag in tags if f"on:{tag}" in self.sections]
        wanted = ["core", phase, *situations[:MAX_SITUATIONS]]
        return "\n\n".join(self.sections[key] for key in wanted if key in self.sections)


def load_role(dirs: Sequence[Path], name: str) -> Role:
    """Return the role `name` of the first of `dirs` that has it.

    Raises:
        RoleError: none has it, or it lacks a name or its core.

    """
    for root in dirs:
        path = root / name / "ROLE.md"
        if path.is_file():
            return _read(path)
    raise RoleError(Path(name) / "ROLE.md", "no such role")


def _read(path: Path) -> Role:
    try:
        document = parse_front_matter(path.read_text(encoding="utf-8"))
    except (OSError, UnicodeDecodeError, FrontMatterError) as exc:
        raise RoleError(path, str(exc)) from exc
    parts = re.split(r"^## +(\S+) *$", document.body, flags=re.MULTILINE)
    sections = {key: text.strip() for key, text in zip(parts[1::2], parts[2::2], strict=True)}
    if not sections.get("core"):
        raise RoleError(path, "a section `## core` is missing")
    return Role(
        name=str(document.head.get("name", path.parent.name)),
        skills=tuple(str(document.head.get("skills", "")).split()),
        sections=sections,
    )
