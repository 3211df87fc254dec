"""Who may have a port released, before anything is closed."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from bench_api import FakeBench, client, serving
from serialwatch.api.bench import Who
from serialwatch.api.rights import Policy


async def post(tmp_path: Path, address: str) -> tuple[int, str]:
    async with client(tmp_path) as http, http.post(address, json={}) as answer:
        return answer.status, (await answer.json())["error"]["message"]


@pytest.fixture
def never(monkeypatch: pytest.MonkeyPatch) -> None:
    """Fail if the bench is asked to release or take back anything."""

    async def release(*args: object) -> None:
        raise AssertionError(args)

    monkeypatch.setattr(FakeBench, "release", release, raising=False)
    monkeypatch.setattr(FakeBench, "take_back", release, raising=False)


@pytest.mark.usefixtures("never")
@pytest.mark.parametrize("what", ["release", "take_back"])
async def test_who_may_only_view_releases_nothing(tmp_path: Path, what: str) -> None:
    own = Policy(is_system=False, uid=os.geteuid(), pid=os.getppid())
    async with serving(tmp_path, policy=own) as bench:
        status, words = await post(tmp_path, f"/v1/ports/dut1/{what}")

    assert status == 403
    assert words.endswith("may only view")
    assert bench.audits == []


@pytest.mark.usefixtures("never")
async def test_a_port_on_which_somebody_else_types_is_not_released(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with serving(tmp_path) as bench:
        assert bench.server is not None
        monkeypatch.setattr(bench.server.consoles, "writer", lambda port: Who(4242, "jo", 17))
        status, words = await post(tmp_path, "/v1/ports/dut1/release")

    assert (status, words) == (409, "jo (pid 17) is typing on dut1")


@pytest.mark.usefixtures("never")
async def test_an_unknown_port_is_not_released(tmp_path: Path) -> None:
    async with serving(tmp_path):
        status, _ = await post(tmp_path, "/v1/ports/dut9/release")

    assert status == 404
