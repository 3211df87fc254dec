"""Where the daemon can be reached, and who may come near."""

from __future__ import annotations

import logging
import os
from pathlib import Path

from serialwatch.config import Config, run_dir

log = logging.getLogger(__name__)


def socket_of(config: Config) -> Path:
    """Return where the API's socket is."""
    return run_dir(config) / "serialwatch.sock"


def make_folder(folder: Path, gid: int | None) -> None:
    """Make the folder of the socket, open to the group that may look."""
    if folder.is_dir():
        return
    folder.mkdir(mode=0o750, parents=True)
    if gid is not None and os.geteuid() == 0:
        os.chown(folder, -1, gid)


def read_token(path: str) -> str:
    """Return what whoever may view over TCP has to know, "" for nobody."""
    if not path:
        return ""
    try:
        return Path(path).read_text(encoding="utf-8").strip()
    except OSError as exc:
        log.error("%s: the token cannot be read: %s; nobody may view over TCP", path, exc.strerror)
        return ""
