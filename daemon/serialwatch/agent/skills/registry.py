"""All skills: found in their folders and put into a registry.

A broken skill is kept aside with what is wrong with it; the others load.
"""

from __future__ import annotations

import difflib
import logging
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from serialwatch.agent.skills.folder import Finding, read_skills
from serialwatch.agent.skills.skill import Skill

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Broken:
    """A skill that cannot be used."""

    name: str
    folder: Path
    findings: tuple[Finding, ...]

    @property
    def words(self) -> str:
        """Return what is wrong, in one line."""
        return "; ".join(finding.text for finding in self.findings)


@dataclass(frozen=True, slots=True)
class Registry:
    """All skills at one moment; never changed, a run keeps the one it began with."""

    skills: Mapping[str, Skill]
    broken: tuple[Broken, ...] = ()
    shadowed: tuple[Skill, ...] = ()  # other versions of those in use
    reasons: Mapping[str, str] = field(default_factory=dict)  # why this version, where several are
    warnings: tuple[str, ...] = ()  # about versions that were named and are not there
    touched: frozenset[str] = frozenset()  # whose files were written since the registry before

    def get(self, name: str) -> Skill | None:
        """Return the skill `name`, None if there is none."""
        return self.skills.get(name)

    def similar(self, name: str) -> tuple[str, ...]:
        """Return names that `name` may have meant, best first."""
        close = difflib.get_close_matches(name, self.skills, n=3)
        close += [k for k in sorted(self.skills) if len(name) > 2 and name in k and k not in close]
        return tuple(close[:3])

    def versions(self, name: str) -> tuple[Skill, ...]:
        """Return every version of a skill, the one in use first."""
        used = self.skills.get(name)
        others = (skill for skill in self.shadowed if skill.name == name)
        return (*((used,) if used else ()), *others)


def load_skills(dirs: Sequence[Path], versions: Mapping[str, str] | None = None) -> Registry:
    """Return the skills below `dirs` as `find_skills` does, and log what is wrong with them."""
    registry = find_skills(dirs, versions)
    for bad in registry.broken:
        log.warning("skill %s is left out: %s", bad.folder, bad.words)
    for skill in registry.shadowed:
        log.info("skill %s %s is not used: %s has another", skill.folder, skill.version,
                 registry.skills[skill.name].folder)  # fmt: skip
    for warning in registry.warnings:
        log.warning("%s", warning)
    return registry


def find_skills(dirs: Sequence[Path], versions: Mapping[str, str] | None = None) -> Registry:
    """Return the skills below `dirs`; of two with one name the one of the earlier folder wins.

    `versions` names a version for some of them and overrides that order. Folders that do not exist
    are skipped.
    """
    found: dict[str, list[Skill]] = {}
    broken: list[Broken] = []
    for root in dirs:
        seen: set[str] = set()
        for read in read_skills(root):
            skill = read.skill
            if skill is None:
                errors = tuple(f for f in read.findings if f.is_error)
                broken.append(Broken(read.folder.name, read.folder, errors))
            elif skill.name in seen:
                again = Finding(read.folder, "SW002", f"a second {skill.name} in {root}", True)
                broken.append(Broken(skill.name, read.folder, (again,)))
            else:
                seen.add(skill.name)
                found.setdefault(skill.name, []).append(skill)
    return _chosen(found, broken, versions or {})


def _chosen(
    found: Mapping[str, Sequence[Skill]], broken: Sequence[Broken], wanted: Mapping[str, str]
) -> Registry:
    skills: dict[str, Skill] = {}
    shadowed: list[Skill] = []
    reasons: dict[str, str] = {}
    for name, versions in found.items():
        named = next((s for s in versions if s.version == wanted.get(name)), None)
        used = skills[name] = named or versions[0]
        shadowed += [skill for skill in versions if skill is not used]
        if len(versions) > 1:
            by_order = f"{used.folder.parent} comes first"
            reasons[name] = "named by agent.skill_versions" if named else by_order
    warnings = tuple(
        _no_such_version(name, version, found.get(name, ()))
        for name, version in wanted.items()
        if all(skill.version != version for skill in found.get(name, ()))
    )
    return Registry(skills, tuple(broken), tuple(shadowed), reasons, warnings)


def _no_such_version(name: str, version: str, there: Sequence[Skill]) -> str:
    if not there:
        return f"agent.skill_versions names {name} {version}: there is no such skill"
    known = ", ".join(f"{skill.version} in {skill.folder.parent}" for skill in there)
    return (
        f"agent.skill_versions names {name} {version}: there is no such version, only {known}; "
        f"{there[0].version} is used"
    )
