"""Where the configuration is. Quickly imported: a shell that completes names asks it, too."""

from __future__ import annotations

import os
from pathlib import Path

from serialwatch.bundled import SYSTEM_DIR

SYSTEM_CONFIG = SYSTEM_DIR / "serialwatch.toml"


def found_config() -> Path | None:
    """Return the file that is read if none is named: the user's own, else the system's, or none."""
    usual = usual_config()
    return usual if usual != SYSTEM_CONFIG and usual.exists() else system_config()


def usual_config() -> Path:
    """Return where the configuration belongs: the system's place for root, else the user's own."""
    if is_system():
        return SYSTEM_CONFIG
    home = os.environ.get("XDG_CONFIG_HOME") or Path.home() / ".config"
    return Path(home) / "serialwatch" / SYSTEM_CONFIG.name


def system_config() -> Path | None:
    """Return the system's file, None if there is none or it is not for us."""
    try:
        return SYSTEM_CONFIG if SYSTEM_CONFIG.exists() else None
    except PermissionError:  # people who have a daemon of their own; the system's must read it
        return SYSTEM_CONFIG if is_system() else None


def is_system() -> bool:
    """Tell whether this is the machine's daemon, started by root or by systemd, or a user's own."""
    return os.geteuid() == 0 or "STATE_DIRECTORY" in os.environ
