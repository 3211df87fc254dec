"""The core's end of the agent: how a process that it started comes to its end."""

from __future__ import annotations

import asyncio
import os
import sys
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

from bench_cable import within_s
from serialwatch.service import agent_link
from serialwatch.service.agent_link import AgentLink
from serialwatch.wire import Json, pack


@pytest.fixture
def link(monkeypatch: pytest.MonkeyPatch) -> AgentLink:
    """A link that would wait for ever for its process to end."""
    monkeypatch.setattr(agent_link, "STOP_S", 1000.0)

    async def answer(_op: str, _body: Json) -> Any:
        return {}

    return AgentLink(list, answer)


def agent_is(script: str, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Let this script be started in place of Python and the agent."""
    path = folder / "agent"
    path.write_text(script)
    path.chmod(0o755)
    monkeypatch.setattr(sys, "executable", str(path))


async def started(link: AgentLink) -> tuple[asyncio.Task[None], int]:
    running = asyncio.create_task(link.run(), name="agent")
    async with asyncio.timeout(5):
        while link.pid is None:
            await asyncio.sleep(0)
    return running, link.pid


async def stop(running: asyncio.Task[None]) -> None:
    running.cancel()
    with suppress(asyncio.CancelledError):
        await within_s(5, running)


async def test_an_agent_that_is_not_up_yet_is_not_waited_for(
    link: AgentLink, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    agent_is("#!/bin/sh\nexec sleep 1000\n", tmp_path, monkeypatch)
    running, pid = await started(link)
    await stop(running)

    with pytest.raises(ProcessLookupError):
        os.kill(pid, 0)


async def test_an_agent_that_is_up_ends_in_order(
    link: AgentLink, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    done = tmp_path / "done"
    script = f"""#!{sys.executable} -IS
import socket, sys
core = socket.socket(fileno=int(sys.argv[4]))
core.sendall({pack({"kind": "beat"})!r})
while core.recv(100):
    pass
open({str(done)!r}, "w").close()
"""
    agent_is(script, tmp_path, monkeypatch)
    running, _ = await started(link)
    began_s = link.last_beat_s
    async with asyncio.timeout(5):
        while link.last_beat_s == began_s:
            await asyncio.sleep(0)
    await stop(running)

    assert done.exists()
