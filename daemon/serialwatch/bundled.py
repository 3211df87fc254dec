"""Find rules, knowledge, roles and skills: those that ship with serialwatch, and people's own."""

from __future__ import annotations

import logging
import os
from pathlib import Path
from typing import Literal

log = logging.getLogger(__name__)

SYSTEM_DIR = Path("/etc/serialwatch")

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
    """Return the folders that hold `kind`, the one that wins first; own ones may not exist.

    What the system's daemon alone may read is left out: other people have commands to run, too.
    """
    of_system, of_user = _own_dirs(kind)
    folders = [of_system] if _is_open(of_system) else []
    if os.geteuid() != 0:
        folders.append(of_user)
    return [*folders, bundled_dir(_BUNDLED[kind])]


def told_search_path(kind: Kind) -> list[str]:
    """Return what `search_path` looks at, the folder that wins first, each with what it is."""
    of_system, of_user = _own_dirs(kind)
    is_root = os.geteuid() == 0
    return [
        f"{of_system} ({_state(of_system)})",
        f"{of_user} ({'not read as root' if is_root else _state(of_user)})",
        f"{bundled_dir(_BUNDLED[kind])} (shipped)",
    ]


def _own_dirs(kind: Kind) -> tuple[Path, Path]:
    """Return the system's folder and the user's."""
    own = "rules.d" if kind == "rules" else kind
    home = os.environ.get("XDG_CONFIG_HOME") or Path.home() / ".config"
    return SYSTEM_DIR / own, Path(home) / "serialwatch" / own


def _state(folder: Path) -> str:
    try:
        os.scandir(folder).close()
    except FileNotFoundError:
        return "no such folder"
    except OSError as exc:
        return f"not read: {exc.strerror}"
    return "read"


def _is_open(folder: Path) -> bool:
    """Tell whether we may look into a folder, which may be made later."""
    try:
        os.scandir(folder).close()
    except PermissionError:
        log.info("%s is left out: permission denied", folder)
        return False
    except OSError:
        return True
    return True
