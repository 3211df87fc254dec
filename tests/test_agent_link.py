"""The core's end of the agent: how a process that it started comes to its end."""

from __future__ import annotations

import asyncio
import logging
import os
import socket
import sys
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

from bench_cable import within_s
from serialwatch.agent.core_link import CoreError, CoreLink
from serialwatch.service import agent_link
from serialwatch.service.agent_link import AgentLink
from serialwatch.store.database import StoreError
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


async def heard(link: AgentLink) -> None:
    began_s = link.last_beat_s
    async with asyncio.timeout(5):
        while link.last_beat_s == began_s:
            await asyncio.sleep(0)


async def stop(running: asyncio.Task[None]) -> None:
    running.cancel()
    with suppress(asyncio.CancelledError):
        await within_s(5, running)


async def test_an_agent_that_is_not_up_yet_is_not_waited_for(
    link: AgentLink, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    script = f"""#!{sys.executable} -IS
import socket, sys, time
core = socket.socket(fileno=int(sys.argv[4]))
core.sendall({pack({"kind": "beat"})!r})
time.sleep(1000)
"""
    agent_is(script, tmp_path, monkeypatch)
    running, pid = await started(link)
    await heard(link)
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
core.sendall({pack({"kind": "up"})!r})
while core.recv(100):
    pass
open({str(done)!r}, "w").close()
"""
    agent_is(script, tmp_path, monkeypatch)
    running, _ = await started(link)
    await heard(link)
    await stop(running)

    assert done.exists()


async def test_an_agent_is_not_blamed_for_a_time_in_which_we_stood_still(
    link: AgentLink, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    still_s = [0.0]
    monkeypatch.setattr(agent_link, "stood_still_s", lambda *_: still_s[0])
    monkeypatch.setattr(agent_link, "BEAT_S", 1.0)
    agent_is("#!/bin/sh\nexec sleep 1000\n", tmp_path, monkeypatch)
    running, _ = await started(link)
    link.last_beat_s -= 100
    still_s[0] = 100.0
    await heard(link)  # it counts from now

    assert not running.done()
    await stop(running)


async def test_a_database_that_is_full_is_not_told_by_each_who_needs_it(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    async def answer(_op: str, _body: Json) -> Any:
        raise StoreError(tmp_path, "cannot be written: database or disk is full")

    core, agent = socket.socketpair()
    _, writer = await asyncio.open_connection(sock=core)
    reader, agent_writer = await asyncio.open_connection(sock=agent)
    asking = CoreLink(reader, agent_writer)
    asks = asyncio.create_task(asking.ask("run", {}), name="ask")
    caplog.set_level("INFO")
    async with asyncio.timeout(5):
        while not asking._asked:
            await asyncio.sleep(0)
        await AgentLink(list, answer)._reply({"id": 1, "op": "run"}, writer)
        orders = asyncio.create_task(_consumed(asking), name="orders")
        with pytest.raises(CoreError) as refused:
            await asks
    writer.close()
    await orders
    await asking.close()

    assert refused.value.level == logging.DEBUG
    assert caplog.records == []


async def _consumed(link: CoreLink) -> None:
    async for _ in link.orders():
        pass
