"""Where rules, knowledge, roles and skills are looked for."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from serialwatch.bundled import search_path


def denied_below(folder: Path, real: Callable[..., Any]) -> Callable[..., Any]:
    """Return `real`, refusing what is below a folder, as the kernel does to people without rights.

    The tests may run as root, to whom nothing is refused.
    """

    def guarded(path: Any, *args: Any, **kwargs: Any) -> Any:
        if Path(path).is_relative_to(folder):
            raise PermissionError(13, "Permission denied", str(path))
        return real(path, *args, **kwargs)

    return guarded


def test_the_systems_own_come_first_even_if_they_are_not_there_yet(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("serialwatch.bundled.SYSTEM_DIR", tmp_path)

    assert search_path("rules")[0] == tmp_path / "rules.d"
    assert search_path("skills")[0] == tmp_path / "skills"


def test_what_only_the_systems_daemon_may_read_is_left_out(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("serialwatch.bundled.SYSTEM_DIR", tmp_path)
    monkeypatch.setattr(os, "scandir", denied_below(tmp_path, os.scandir))
    found = search_path("rules")

    assert tmp_path / "rules.d" not in found
    assert found[-1].name == "rules"
