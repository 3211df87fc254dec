"""All skills: found in their folders and put into a registry.

A broken skill is kept aside with what is wrong with it; the others load.
"""

from __future__ import annotations

import difflib
import logging
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from serialwatch.agent.skill import Skill
from serialwatch.agent.skill_folder import Finding, read_skills

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Broken:
    """A skill that cannot be used."""

    name: str
    folder: Path
    findings: tuple[Finding, ...]


@dataclass(frozen=True, slots=True)
class Registry:
    """All skills at one moment; never changed, a run keeps the one it began with."""

    skills: Mapping[str, Skill]
    broken: tuple[Broken, ...] = ()
    shadowed: tuple[Skill, ...] = ()  # another of the same name came first

    def get(self, name: str) -> Skill | None:
        """Return the skill `name`, None if there is none."""
        return self.skills.get(name)

    def similar(self, name: str) -> tuple[str, ...]:
        """Return names that `name` may have meant, best first."""
        return tuple(difflib.get_close_matches(name, self.skills, n=3))


def load_skills(dirs: Sequence[Path], versions: Mapping[str, str] | None = None) -> Registry:
    """Return the skills below `dirs`; of two with one name the one of the earlier folder wins.

    `versions` names a version for some of them and overrides that order. Folders that do not exist
    are skipped.
    """
    skills: dict[str, Skill] = {}
    shadowed: list[Skill] = []
    broken: list[Broken] = []
    wanted = versions or {}
    for root in dirs:
        seen: set[str] = set()
        for read in read_skills(root):
            found = read.skill
            if found is not None and found.name in seen:
                again = Finding(read.folder, "SW002", f"a second {found.name} in {root}", True)
                broken.append(Broken(found.name, read.folder, (again,)))
            elif found is None:
                errors = tuple(f for f in read.findings if f.is_error)
                broken.append(Broken(read.folder.name, read.folder, errors))
            else:
                seen.add(found.name)
                _keep(found, skills, shadowed, wanted)
    for bad in broken:
        log.warning("skill %s is left out: %s", bad.folder, "; ".join(f.text for f in bad.findings))
    for skill in shadowed:
        log.info("skill %s %s is not used: %s has another", skill.folder, skill.version,
                 skills[skill.name].folder)  # fmt: skip
    return Registry(skills, tuple(broken), tuple(shadowed))


def _keep(
    found: Skill, skills: dict[str, Skill], shadowed: list[Skill], wanted: Mapping[str, str]
) -> None:
    before = skills.get(found.name)
    if before is None:
        skills[found.name] = found
    elif wanted.get(found.name) == found.version != before.version:
        skills[found.name] = found
        shadowed.append(before)
    else:
        shadowed.append(found)
