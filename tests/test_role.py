from __future__ import annotations

from pathlib import Path

import pytest

from serialwatch.agent.role import RoleError, load_role
from serialwatch.agent.skills import load_skills
from serialwatch.bundled import bundled_dir

ROLES = bundled_dir("config/roles")
CHARS_A_TOKEN = 3.8  # of prose


def written(folder: Path, text: str) -> Path:
    (folder / "mine").mkdir()
    (folder / "mine" / "ROLE.md").write_text(text)
    return folder


def test_the_log_detective_fits_its_budget() -> None:
    role = load_role([ROLES], "log-detective")

    assert len(role.sections["core"]) / CHARS_A_TOKEN < 250
    for phase in ("method", "style"):
        assert len(role.text(phase, ["linux.oops", "linux"])) / CHARS_A_TOKEN < 600


def test_the_log_detective_has_skills_that_exist() -> None:
    role = load_role([ROLES], "log-detective")

    assert set(role.skills) <= load_skills([bundled_dir("skills")]).skills.keys()
    assert "report-write" in role.skills


def test_sections_come_by_phase_and_by_incident() -> None:
    role = load_role([ROLES], "log-detective")
    method = role.text("method", ["linux.oops", "linux"])
    style = role.text("style", ["boot.loop", "boot"])

    assert role.sections["core"] in method
    assert role.sections["core"] in style
    assert role.sections["method"] in method
    assert role.sections["on:linux"] in method
    assert role.sections["style"] not in method
    assert role.sections["on:boot.loop"] in style


def test_an_own_role_comes_before_the_bundled_one(tmp_path: Path) -> None:
    (tmp_path / "log-detective").mkdir()
    own = "---\nname: log-detective\nskills: log-read\n---\n\n## core\n\nMine.\n"
    (tmp_path / "log-detective" / "ROLE.md").write_text(own)
    role = load_role([tmp_path, ROLES], "log-detective")

    assert role.sections == {"core": "Mine."}
    assert role.skills == ("log-read",)


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("no head at all", "the first line must be `---`"),
        ("---\nname: mine\n---\n\n## method\n\nx\n", "a section `## core` is missing"),
    ],
)
def test_a_broken_role_says_what_is_wrong(tmp_path: Path, text: str, told: str) -> None:
    with pytest.raises(RoleError, match=told):
        load_role([written(tmp_path, text)], "mine")


def test_a_role_that_is_not_there_is_named(tmp_path: Path) -> None:
    with pytest.raises(RoleError, match=r"nobody/ROLE\.md: no such role"):
        load_role([tmp_path], "nobody")
