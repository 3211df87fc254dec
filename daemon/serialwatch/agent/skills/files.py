"""The files of a skill and their common hash."""

from __future__ import annotations

import hashlib
from pathlib import Path


def folder_sha(folder: Path) -> str:
    """Return the SHA-256 of all files of a skill, their names included."""
    whole = hashlib.sha256()
    for path in skill_files(folder):
        content = path.read_bytes()
        whole.update(f"{path.relative_to(folder)}\0{len(content)}\0".encode())
        whole.update(content)
    return whole.hexdigest()


def skill_files(folder: Path) -> list[Path]:
    """Return the files of a skill in a fixed order, hidden ones and compiled Python left out."""
    return sorted(
        path
        for path in folder.rglob("*")
        if path.is_file()
        and not any(
            part.startswith(".") or part == "__pycache__" for part in path.relative_to(folder).parts
        )
    )
