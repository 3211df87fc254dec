"""Where the daemon can be reached, and who may come near."""

from __future__ import annotations

import errno
import logging
import os
import stat
from pathlib import Path

from serialwatch.config import Config, run_dir

log = logging.getLogger(__name__)


def socket_of(config: Config) -> Path:
    """Return where the API's socket is."""
    return run_dir(config) / "serialwatch.sock"


def make_folder(folder: Path, gid: int | None) -> None:
    """Make the folder of the socket, open to the group that may look.

    Raises:
        OSError: it cannot be made, or somebody else could put sockets and ttys there, too.

    """
    is_new = not folder.is_dir()
    folder.mkdir(mode=0o750, parents=True, exist_ok=True)
    if strange := strangers_place(folder):
        problem = f"{strange} belongs to another user: take it away, or set run_dir in [daemon]"
        raise OSError(errno.EPERM, problem)
    if is_new and gid is not None and os.geteuid() == 0:
        os.chown(folder, -1, gid)


def strangers_place(folder: Path) -> Path | None:
    """Return what another user owns on the way to `folder` where everybody may make folders.

    In `/tmp` anybody may have made it before us, and could then take away what we put there.
    """
    for place in (folder.absolute(), *folder.absolute().parents):
        is_for_all = place.parent.stat().st_mode & (stat.S_ISVTX | stat.S_IWOTH)
        owners = {place.lstat().st_uid, place.stat().st_uid}
        if is_for_all == stat.S_ISVTX | stat.S_IWOTH and not owners <= {0, os.geteuid()}:
            return place
    return None


def read_token(path: str) -> str:
    """Return what whoever may view over TCP has to know, "" for nobody."""
    if not path:
        return ""
    try:
        return Path(path).read_text(encoding="utf-8").strip()
    except OSError as exc:
        log.error("%s: the token cannot be read: %s; nobody may view over TCP", path, exc.strerror)
        return ""
