"""What a role may use and see is enforced where skills run, not only told."""

from __future__ import annotations

import time
from collections.abc import AsyncIterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from sqlite_utils import Database

from serialwatch.agent.ctx.context import CtxServer
from serialwatch.agent.role import Role, load_role
from serialwatch.agent.skills.results import RefusedError
from serialwatch.agent.workers.worker import Workers
from serialwatch.bundled import bundled_dir
from serialwatch.store.memories import write_memory
from serialwatch.store.memory_gate import NewMemory
from skill_run import bundled_registry, opened_database, opened_run

ROLES = bundled_dir("config/roles")
DETECTIVE, ASSISTANT = (load_role([ROLES], n) for n in ("log-detective", "bench-assistant"))


@pytest.fixture(autouse=True, scope="module")
def skills_read_once() -> None:
    """Read the skills where no loop waits for it."""
    bundled_registry()


@pytest.fixture
def db(tmp_path: Path) -> Any:
    with opened_database(tmp_path / "serialwatch.db") as made:
        yield made


def run_as(tmp_path: Path, role: Role | None, **about: Any) -> Any:
    return opened_run(
        [bundled_dir("skills")],
        db_path=tmp_path / "serialwatch.db",
        role=role,
        port="dut1",
        user="anna",
        **about,
    )


def remember(db: Database, scope: str, name: str) -> None:
    memory = NewMemory(
        "preference", f"weak supply of {scope}", f"the supply of {scope} is weak", 4, "human",
        scope, name,  # type: ignore[arg-type]  # one of the scopes
    )  # fmt: skip
    write_memory(db, memory, time.time_ns())


@pytest.fixture
async def workers() -> AsyncIterator[Workers]:
    async with Workers() as made:
        yield made


async def test_a_skill_of_another_role_does_not_run(tmp_path: Path, workers: Workers) -> None:
    params = {"text": "esr 0x96000004"}
    with run_as(tmp_path, ASSISTANT) as ctx:
        refused = await workers.run("register-decode", params, ctx)
    with run_as(tmp_path, DETECTIVE) as ctx:
        good = await workers.run("register-decode", params, ctx)

    assert refused.metadata["error"]["code"] == "denied"
    assert "none of the skills of the role bench-assistant" in str(refused.metadata["error"])
    assert good.status == "success"


def test_a_skill_above_the_risk_of_a_role_is_refused(tmp_path: Path) -> None:
    with run_as(tmp_path, replace(DETECTIVE, risk="L1")) as ctx:
        assert "this run may use L1 at most" in ctx.refusal("report-write", "L2")
        assert ctx.refusal("log-read", "L1") == ""
    with run_as(tmp_path, None, max_risk="L1") as ctx:
        assert ctx.refusal("report-write", "L2")


async def test_each_role_sees_the_memories_of_its_own_scopes(tmp_path: Path, db: Database) -> None:
    for scope, name in (("bench", ""), ("port", "dut1"), ("user", "anna"), ("user", "jo")):
        remember(db, scope, name)

    assert await seen(tmp_path, DETECTIVE) == {("bench", ""), ("port", "dut1")}
    assert await seen(tmp_path, ASSISTANT) == {
        ("bench", ""), ("port", "dut1"), ("user", "anna"),
    }  # fmt: skip
    assert await seen(tmp_path, replace(ASSISTANT, memory_read=frozenset())) == set()


async def seen(tmp_path: Path, role: Role) -> set[tuple[str, str]]:
    with run_as(tmp_path, role) as ctx:
        body = (await ctx.answer("memory.search", {"query": "weak supply", "limit": 20})).body
    return {(memory["scope"], memory["scope_name"]) for memory in body["memories"]}


async def test_a_role_adds_to_its_own_scopes_only(tmp_path: Path) -> None:
    kept: list[dict[str, Any]] = []

    async def write(body: dict[str, Any]) -> dict[str, Any]:
        kept.append(body)
        return {"id": 1}

    memory = {"type": "preference", "title": "short reports", "body": "anna wants short reports"}
    with run_as(tmp_path, ASSISTANT, write_memory=write) as ctx:
        await _written(ctx, memory | {"scope": "bench"})
        with pytest.raises(RefusedError, match="the role bench-assistant may add to bench"):
            await _written(ctx, memory | {"scope": "port"})
    with run_as(tmp_path, DETECTIVE, write_memory=write) as ctx:
        await _written(ctx, memory | {"scope": "port"})

    assert [body["scope"] for body in kept] == ["bench", "port"]


async def _written(ctx: CtxServer, memory: dict[str, Any]) -> None:
    await ctx.answer("memory.write", {"skill": "memory-write", "memory": memory})
