"""The folder in which the socket and the ttys are put."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from serialwatch.service.places import make_folder


@pytest.fixture
def for_all(tmp_path: Path) -> Path:
    """Return a folder in which everybody may make folders, like /tmp."""
    folder = tmp_path / "tmp"
    folder.mkdir()
    folder.chmod(0o1777)
    return folder


@pytest.mark.parametrize("place", ["sw/serialwatch", "sw/link/serialwatch"])
def test_what_a_stranger_made_before_us_where_everybody_may_is_refused(
    for_all: Path, place: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    (for_all / "sw").mkdir()
    (for_all / "sw" / "link").symlink_to(for_all.parent)
    if os.geteuid() == 0:
        os.chown(for_all / "sw", 12345, -1)
    monkeypatch.setattr("os.geteuid", lambda: 1001)

    with pytest.raises(OSError, match=f"{for_all}/sw belongs to another user: take it away, or"):
        make_folder(for_all / place, None)


def test_so_is_a_link_of_a_stranger(for_all: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (for_all / "sw").symlink_to("/")
    if os.geteuid() == 0:
        os.chown(for_all / "sw", 12345, -1, follow_symlinks=False)
    monkeypatch.setattr("os.geteuid", lambda: 1001)

    with pytest.raises(OSError, match=f"{for_all}/sw belongs to another user"):
        make_folder(for_all / "sw" / "usr", None)


def test_a_folder_of_our_own_there_is_used_and_made(for_all: Path) -> None:
    make_folder(for_all / "sw" / "serialwatch", None)
    make_folder(for_all / "sw" / "serialwatch", None)

    assert (for_all / "sw" / "serialwatch").stat().st_mode & 0o777 == 0o750 & ~_umask()


def _umask() -> int:
    mask = os.umask(0)
    os.umask(mask)
    return mask
