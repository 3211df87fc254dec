"""Bundled skills that run in the agent itself: only they, and with the same answers."""

from __future__ import annotations

import asyncio
import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest

from bench_analysis import skills
from bench_incident import lines_of
from serialwatch.agent.archive import Archive
from serialwatch.agent.ctx.context import CtxServer
from serialwatch.agent.knowledge import Knowledge
from serialwatch.agent.skills.registry import Registry, load_skills
from serialwatch.agent.skills.results import error_code
from serialwatch.agent.workers.direct import LineLog
from serialwatch.agent.workers.own_skills import PLANNED, OwnSkills
from serialwatch.bundled import bundled_dir


@pytest.fixture(scope="module")
def own() -> OwnSkills:
    """Return the skills, imported."""
    skills()
    made = OwnSkills()
    made.load()
    return made


def ctx_of(archive: Archive, registry: Registry) -> CtxServer:
    return CtxServer(archive, registry, Knowledge({}), run_id="run-1", port="dut1")


@pytest.fixture
def archive() -> Iterator[Archive]:
    log = LineLog(lines_of("one\ntwo\nthree"))
    made = Archive({"dut1": log}.get)
    yield made
    made.close()


def copy_of(name: str, folder: Path, added: str) -> Registry:
    """Return the bundled skill `name` as somebody changed it."""
    shutil.copytree(bundled_dir("skills") / name, folder / name)
    main = folder / name / "main.py"
    main.write_text(f"{main.read_text()}\n{added}\n")
    return load_skills([folder])


def test_what_ships_is_its_own_and_so_is_a_copy_of_it(own: OwnSkills, tmp_path: Path) -> None:
    shutil.copytree(bundled_dir("skills") / "log-read", tmp_path / "log-read")
    copy = load_skills([tmp_path]).get("log-read")

    assert all(own.has(skill) for name in PLANNED if (skill := skills().get(name)))
    assert copy is not None
    assert own.has(copy)


def test_somebodys_version_of_a_skill_runs_elsewhere(own: OwnSkills, tmp_path: Path) -> None:
    changed = copy_of("log-read", tmp_path, "# mine").get("log-read")
    assert changed is not None

    assert not own.has(changed)


def test_a_skill_that_the_plan_does_not_call_runs_elsewhere(own: OwnSkills) -> None:
    other = skills().get("log-expand")
    assert other is not None

    assert not own.has(other)


async def test_lines_that_it_serves_count_as_read(own: OwnSkills, archive: Archive) -> None:
    ctx = ctx_of(archive, skills())
    result = await own.run("log-read", {"port": "dut1", "first": 2, "last": 3}, ctx)

    assert result.status == "success"
    assert sorted(seq for _, seq in ctx.ledger) == [2, 3]
    assert ctx.results[result.metadata["result"]] == result.output


@pytest.mark.parametrize(
    ("name", "params", "code"),
    [
        ("no-such-skill", {}, "unknown_skill"),
        ("log-read", {"port": "dut1", "limit": -4}, "invalid_args"),
        ("log-read", {"port": "dut9"}, "precondition"),
    ],
)
async def test_a_call_that_makes_no_sense_is_answered(
    own: OwnSkills, archive: Archive, name: str, params: dict[str, object], code: str
) -> None:
    result = await own.run(name, params, ctx_of(archive, skills()))

    assert error_code(result) == code


@pytest.mark.parametrize(
    ("body", "code"),
    [
        ("async def run(ctx, params): raise ValueError(params)", "crashed"),
        ("async def run(ctx, params): return SkillResult('maybe', {})", "bad_result"),
    ],
)
async def test_a_skill_that_breaks_is_a_failure_and_no_more(
    archive: Archive, tmp_path: Path, body: str, code: str
) -> None:
    registry = await asyncio.to_thread(copy_of, "log-read", tmp_path, body)
    result = await OwnSkills().run("log-read", {"port": "dut1"}, ctx_of(archive, registry))

    assert error_code(result) == code
