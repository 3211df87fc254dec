"""Find the files that ship with serialwatch: rules, knowledge, roles, skills, units."""

from __future__ import annotations

from pathlib import Path

_PACKAGE = Path(__file__).resolve().parent


def bundled_dir(kind: str) -> Path:
    """Return the folder `kind` ("skills", "config", "config/rules", "systemd") of this copy.

    A wheel carries it under `serialwatch/_bundled`, a checkout at its top level.

    Raises:
        FileNotFoundError: neither has it; the installation is damaged.

    """
    for root in (_PACKAGE / "_bundled", _PACKAGE.parent.parent):
        if (folder := root / kind).is_dir():
            return folder
    raise FileNotFoundError(f"{kind}: not in this installation of serialwatch; install it again")


def own_dirs(kind: str, *, is_root: bool, config_home: Path) -> list[Path]:
    """Return where a person puts own copies of `kind`, the one that wins last.

    `kind` is "rules.d", "knowledge", "skills" or "roles"; folders may not exist.
    """
    dirs = [Path("/etc/serialwatch") / kind]
    if not is_root:
        dirs.append(config_home / "serialwatch" / kind)
    return dirs
