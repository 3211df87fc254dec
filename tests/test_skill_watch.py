from __future__ import annotations

import asyncio
import logging
import os
import shutil
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from serialwatch.agent.skills.registry import Registry
from serialwatch.agent.skills.watch import SkillWatch
from serialwatch.agent.workers.worker import Workers
from skill_maker import make_skill
from skill_run import opened_run


class Bench:
    """A folder of skills, and what watches it."""

    def __init__(self, root: Path) -> None:
        self.skills = root / "skills"
        self.kept = root / "state" / "skills"
        self.skills.mkdir()
        self.watch = SkillWatch([root / "etc", self.skills], {}, self.kept)


@pytest.fixture
def bench(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> Bench:
    caplog.set_level(logging.INFO)
    return Bench(tmp_path)


def test_nothing_changed_is_nothing_new(bench: Bench) -> None:
    make_skill(bench.skills, "a-b")
    first = bench.watch.load()

    assert list(first.skills) == ["a-b"]
    assert bench.watch.look() is None


def test_a_new_folder_a_change_and_a_removal_are_taken_up(
    bench: Bench, caplog: pytest.LogCaptureFixture
) -> None:
    bench.watch.load()
    folder = make_skill(bench.skills, "a-b")
    new = _looked(bench)
    _change(folder / "SKILL.md", "1.0.0", "1.1.0")
    changed = _looked(bench)
    shutil.rmtree(folder)
    gone = _looked(bench)

    assert [r.skills["a-b"].version for r in (new, changed)] == ["1.0.0", "1.1.0"]
    assert gone.skills == {}
    assert [r.getMessage() for r in caplog.records] == [
        "skill a-b 1.0.0 is new", "skill a-b 1.1.0 is changed", "skill a-b is gone"
    ]  # fmt: skip


def test_compiled_python_is_no_change_and_rights_are(bench: Bench) -> None:
    folder = make_skill(bench.skills, "a-b")
    bench.watch.load()
    (folder / "__pycache__").mkdir()
    (folder / "__pycache__" / "main.pyc").write_bytes(b"x")
    same = bench.watch.look()
    (folder / "main.py").chmod(0o666)
    opened = _looked(bench)

    assert same is None
    assert [bad.findings[0].code for bad in opened.broken] == ["SW051"]


def test_what_was_touched_is_told(bench: Bench) -> None:
    for name in ("a-b", "c-d"):
        make_skill(bench.skills, name)
    first = bench.watch.load()
    os.utime(bench.skills / "a-b" / "SKILL.md", ns=(1, 1))
    second = _looked(bench)

    assert second.touched == {"a-b"}
    assert second.skills["a-b"].sha == first.skills["a-b"].sha


def test_a_change_of_the_same_length_is_seen(bench: Bench) -> None:
    folder = make_skill(bench.skills, "a-b")
    first = bench.watch.load()
    _change(folder / "SKILL.md", "1.0.0", "1.0.1")
    os.utime(folder / "SKILL.md", ns=(1, 1))

    assert _looked(bench).skills["a-b"].version == "1.0.1"
    assert first.skills["a-b"].version == "1.0.0"


def test_a_broken_change_keeps_the_last_good_version_and_is_told_once(
    bench: Bench, caplog: pytest.LogCaptureFixture
) -> None:
    folder = make_skill(bench.skills, "a-b")
    bench.watch.load()
    good = (folder / "main.py").read_text()
    (folder / "main.py").write_text("async def run(ctx, params:\n")
    broken = _looked(bench)
    make_skill(bench.skills, "c-d")
    still = _looked(bench)
    (folder / "main.py").write_text(good + "# mended\n")
    mended = _looked(bench)

    told = [r.getMessage() for r in caplog.records if r.levelno == logging.WARNING]
    assert broken.skills["a-b"].sha == still.skills["a-b"].sha != mended.skills["a-b"].sha
    assert (len(broken.broken), len(mended.broken)) == (1, 0)
    (only,) = told
    assert "a-b: its change is broken, version 1.0.0 stays in use: syntax" in only


def test_a_broken_change_does_not_bring_back_the_version_below(
    bench: Bench, tmp_path: Path
) -> None:
    make_skill(bench.skills, "a-b", version="1.0.0")
    own = make_skill(tmp_path / "etc", "a-b", version="2.0.0")
    bench.watch.load()
    (own / "schema.json").write_text("{")

    assert _looked(bench).skills["a-b"].version == "2.0.0"


async def test_a_run_keeps_the_skills_it_began_with(bench: Bench) -> None:
    folder = make_skill(bench.skills, "a-b", "return SkillResult('success', {'n': 1})")
    before = bench.watch.load()
    _change(folder / "main.py", "'n': 1", "'n': 2")
    after = _looked(bench)
    numbers = []
    async with Workers() as workers:
        for registry in (before, after):
            with opened_run([]) as ctx:
                ctx.registry = registry
                numbers.append((await workers.run("a-b", {}, ctx)).output.get("n"))

    assert numbers == [1, 2]


def test_copies_that_nobody_needs_go_at_the_next_start(bench: Bench) -> None:
    folder = make_skill(bench.skills, "a-b")
    bench.watch.load()
    _change(folder / "SKILL.md", "1.0.0", "1.1.0")
    _looked(bench)
    both = len(list(bench.kept.iterdir()))
    now = SkillWatch([bench.skills], {}, bench.kept).load()

    assert both == 2
    assert [p.name for p in bench.kept.iterdir()] == [now.skills["a-b"].sha[:16]]


def test_a_damaged_copy_is_made_again(bench: Bench) -> None:
    make_skill(bench.skills, "a-b")
    copy = bench.watch.load().skills["a-b"].folder
    (copy / "main.py").write_text("broken")
    again = SkillWatch([bench.skills], {}, bench.kept).load().skills["a-b"]

    assert again.folder == copy
    assert "SkillResult" in (copy / "main.py").read_text()


def test_without_room_for_copies_skills_run_from_their_own_folders(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    (tmp_path / "file").write_text("")
    folder = make_skill(tmp_path / "skills", "a-b")
    registry = SkillWatch([tmp_path / "skills"], {}, tmp_path / "file" / "skills").load()

    assert registry.skills["a-b"].folder == folder
    assert "a copy cannot be kept" in caplog.text


def _change(path: Path, old: str, new: str) -> None:
    text = path.read_text()
    assert old in text
    path.write_text(text.replace(old, new))


def _looked(bench: Bench) -> Registry:
    found = bench.watch.look()
    assert found is not None
    return found


async def test_what_changes_is_handed_over_while_the_agent_runs(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("serialwatch.agent.skills.watch.LOOK_S", 0.01)
    bench.watch.load()
    found: asyncio.Queue[Registry] = asyncio.Queue()
    with ThreadPoolExecutor(1) as thread:
        running = asyncio.ensure_future(bench.watch.run(found.put_nowait, thread))
        make_skill(bench.skills, "a-b")
        async with asyncio.timeout(5):
            while "a-b" not in (await found.get()).skills:
                pass
        running.cancel()
