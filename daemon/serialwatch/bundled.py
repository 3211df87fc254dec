"""Find rules, knowledge, roles and skills: those that ship with serialwatch, and people's own."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Literal

Kind = Literal["rules", "knowledge", "roles", "skills"]

_PACKAGE = Path(__file__).resolve().parent
_BUNDLED = {
    "rules": "config/rules",
    "knowledge": "config/knowledge",
    "roles": "config/roles",
    "skills": "skills",
}


def bundled_dir(name: str) -> Path:
    """Return the folder `name` ("skills", "config/rules", "systemd") of this installation.

    A wheel carries it under `serialwatch/_bundled`, a checkout at its top level.

    Raises:
        FileNotFoundError: neither has it; the installation is damaged.

    """
    for root in (_PACKAGE / "_bundled", _PACKAGE.parent.parent):
        if (folder := root / name).is_dir():
            return folder
    raise FileNotFoundError(f"{name}: not in this installation of serialwatch; install it again")


def search_path(kind: Kind) -> list[Path]:
    """Return the folders that hold `kind`, the one that wins first; own ones may not exist."""
    own = "rules.d" if kind == "rules" else kind
    folders = [Path("/etc/serialwatch") / own]
    if os.geteuid() != 0:
        home = os.environ.get("XDG_CONFIG_HOME") or Path.home() / ".config"
        folders.append(Path(home) / "serialwatch" / own)
    return [*folders, bundled_dir(_BUNDLED[kind])]
