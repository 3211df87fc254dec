"""Skills that are taken up while the agent runs: changed folders are loaded again.

Every version in use is copied below `kept_dir` and runs from there, so that a run keeps the skills
it began with, and a change that breaks a skill leaves its last good version at work.
"""

from __future__ import annotations

import asyncio
import logging
import os
import shutil
import tempfile
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import Executor
from dataclasses import dataclass, replace
from pathlib import Path

from serialwatch.agent.skills.files import folder_sha, skill_files
from serialwatch.agent.skills.registry import Broken, Registry, find_skills, load_skills
from serialwatch.agent.skills.skill import Skill

LOOK_S = 5.0
MAX_FILES = 20_000  # looked at below all folders

Stamp = tuple[str, int, int, int]  # path, mode, size, time of the last change

log = logging.getLogger(__name__)


class SkillWatch:
    """The skills below some folders. Every method but `run` blocks: call it in a thread."""

    def __init__(self, dirs: Sequence[Path], versions: Mapping[str, str], kept_dir: Path) -> None:
        self._dirs = dirs
        self._versions = versions
        self._kept_dir = kept_dir
        self._stamp: frozenset[Stamp] = frozenset()
        self._used: dict[str, _Used] = {}
        self._told: set[tuple[Path, str]] = set()  # what is broken, and was said
        self._can_keep = True

    def load(self) -> Registry:
        """Return the skills as they are at the start; copies that nobody needs go."""
        self._stamp = _stamp(self._dirs)
        found = load_skills(self._dirs, self._versions)
        self._told = {(bad.folder, bad.words) for bad in found.broken}
        self._used = self._kept(found)
        needed = {used.copy.folder.parent for used in self._used.values()}
        for old in set(self._kept_dir.glob("*")) - needed:
            shutil.rmtree(old, ignore_errors=True)
        return self._with_copies(found)

    def look(self) -> Registry | None:
        """Return the skills anew if something has changed, else None."""
        stamp = _stamp(self._dirs)
        if stamp == self._stamp:
            return None
        written = {Path(path) for path, *_ in stamp ^ self._stamp}
        self._stamp = stamp
        found = find_skills(self._dirs, self._versions)
        is_broken = {bad.folder for bad in found.broken}
        good = {name: used for name, used in self._used.items() if used.origin in is_broken}
        for bad in found.broken:
            self._tell_once(bad, [used for used in good.values() if used.origin == bad.folder])
        before, self._used = self._used, self._kept(found) | good
        self._tell(before)
        touched = (n for n, used in before.items() if _is_any_below(written, used.origin))
        return replace(self._with_copies(found), touched=frozenset(touched))

    async def run(self, swap: Callable[[Registry], None], executor: Executor) -> None:
        """Look every few seconds, until cancelled; `swap` takes what is new."""
        loop = asyncio.get_running_loop()
        while True:
            await asyncio.sleep(LOOK_S)
            if (registry := await loop.run_in_executor(executor, self.look)) is not None:
                swap(registry)

    def _with_copies(self, found: Registry) -> Registry:
        return replace(found, skills={name: used.copy for name, used in self._used.items()})

    def _kept(self, found: Registry) -> dict[str, _Used]:
        return {n: _Used(skill.folder, self._copy(skill)) for n, skill in found.skills.items()}

    def _copy(self, skill: Skill) -> Skill:
        """Return the skill as it runs: from its copy, or from its own folder if there is none."""
        folder = self._kept_dir / skill.sha[:16] / skill.name
        if not self._can_keep:
            return skill
        try:
            if not folder.is_dir() or folder_sha(folder) != skill.sha:
                _copy_files(skill.folder, folder)
        except FileNotFoundError:  # it is being changed at this very moment
            self._stamp = frozenset()
            return skill
        except OSError as exc:
            log.warning("skills run from their own folders: a copy cannot be kept: %s", exc)
            self._can_keep = False
            return skill
        return replace(skill, folder=folder)

    def _tell_once(self, bad: Broken, used: Sequence[_Used]) -> None:
        if (bad.folder, bad.words) in self._told:
            return
        self._told.add((bad.folder, bad.words))
        if used:
            log.warning("skill %s: its change is broken, version %s stays in use: %s",
                        bad.folder, used[0].copy.version, bad.words)  # fmt: skip
        else:
            log.warning("skill %s is left out: %s", bad.folder, bad.words)

    def _tell(self, before: Mapping[str, _Used]) -> None:
        for name in sorted(before.keys() | self._used.keys()):
            old, new = before.get(name), self._used.get(name)
            if new is None:
                log.info("skill %s is gone", name)
            elif old is None or old.copy.sha != new.copy.sha:
                what = "changed" if old else "new"
                log.info("skill %s %s is %s", name, new.copy.version, what)


@dataclass(frozen=True, slots=True)
class _Used:
    origin: Path  # the skill's folder
    copy: Skill  # as it runs


def _is_any_below(paths: Iterable[Path], folder: Path) -> bool:
    return any(path.is_relative_to(folder) for path in paths)


def _stamp(dirs: Sequence[Path]) -> frozenset[Stamp]:
    """Return what tells whether a file was written, added or removed."""
    return frozenset(_files(dirs))


def _files(dirs: Sequence[Path]) -> Iterator[Stamp]:
    looked = 0
    for root in dirs:
        for folder, subfolders, names in os.walk(root.resolve()):
            subfolders[:] = [n for n in subfolders if not n.startswith((".", "__"))]
            for name in (*names, "."):
                if (looked := looked + 1) > MAX_FILES:
                    return
                path = os.path.join(folder, name)
                try:
                    now = os.stat(path)
                except OSError:
                    continue
                if name == ".":  # what is in a folder tells of itself
                    yield path, now.st_mode, 0, 0
                else:
                    yield path, now.st_mode, now.st_size, now.st_mtime_ns


def _copy_files(source: Path, target: Path) -> None:
    """Copy a skill; `target` is there as a whole or not at all."""
    target.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=target.parent) as made:
        whole = Path(made) / target.name
        for path in skill_files(source):
            copy = whole / path.relative_to(source)
            copy.parent.mkdir(parents=True, exist_ok=True)
            copy.write_bytes(path.read_bytes())
        shutil.rmtree(target, ignore_errors=True)
        whole.rename(target)
