"""Small files that others read, or that must survive a crash of ours: all of it, or what was."""

from __future__ import annotations

from pathlib import Path


def write_whole(path: Path, text: str) -> None:
    """Put `text` in the place of what a file holds, at once.

    Raises:
        OSError: it cannot be written; the file is as it was.

    """
    fresh = path.with_name(path.name + ".new")
    fresh.write_text(text, encoding="utf-8")
    fresh.replace(path)
