"""Files of this user's cache: what took time to make, for the next start."""

from __future__ import annotations

import hashlib
import os
import stat
import tempfile
from contextlib import suppress
from pathlib import Path

_DIGEST = hashlib.sha256().digest_size


def default_folder() -> Path:
    """Return where this user's compiled rules are kept."""
    if given := os.environ.get("CACHE_DIRECTORY"):  # systemd's
        return Path(given) / "rules"
    home = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    return Path(home) / "serialwatch" / "rules"


def read_kept(path: Path, most_bytes: int) -> bytes | None:
    """Return what was kept there if it is whole and nobody else could have written it."""
    with suppress(OSError), path.open("rb") as file:
        about = os.fstat(file.fileno())
        is_ours = about.st_uid in (0, os.geteuid()) and not about.st_mode & 0o022
        if not (is_ours and stat.S_ISREG(about.st_mode) and about.st_size < most_bytes):
            return None
        text = file.read()
        if hashlib.sha256(text[_DIGEST:]).digest() == text[:_DIGEST]:
            return text[_DIGEST:]
    return None


def keep(path: Path, body: bytes, most_files: int) -> None:
    """Keep it, and of the files with that suffix the newest.

    Raises:
        OSError: it cannot be written.

    """
    folder = path.parent
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    handle, name = tempfile.mkstemp(dir=folder, suffix=".new")
    try:
        with os.fdopen(handle, "wb") as file:
            file.write(hashlib.sha256(body).digest() + body)
        Path(name).replace(path)
    except OSError:
        Path(name).unlink(missing_ok=True)
        raise
    kept = sorted(folder.glob(f"*{path.suffix}"), key=lambda p: p.stat().st_mtime)
    for old in kept[:-most_files]:
        old.unlink(missing_ok=True)
