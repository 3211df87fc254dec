"""Which skills rest, as the agent leaves it for commands to read: beside its copies of skills."""

from __future__ import annotations

import json
from collections.abc import Iterable
from dataclasses import asdict, dataclass
from pathlib import Path

from serialwatch.whole_file import write_whole

NAME = "resting.json"


@dataclass(frozen=True, slots=True)
class Resting:
    """A skill that failed too often."""

    name: str
    version: str
    sha: str
    why: str
    since: str  # UTC, ISO 8601


def write_resting(path: Path, skills: Iterable[Resting]) -> None:
    """Leave which skills rest now.

    Raises:
        OSError: it cannot be written.

    """
    path.parent.mkdir(parents=True, exist_ok=True)
    write_whole(path, json.dumps([asdict(skill) for skill in skills], indent=1))


def read_resting(path: Path) -> dict[tuple[str, str], Resting]:
    """Return the skills that rest by name and hash; none where nothing can be read."""
    try:
        rows = [Resting(**row) for row in json.loads(path.read_text())]
    except (OSError, ValueError, TypeError):
        return {}
    return {(row.name, row.sha): row for row in rows}
