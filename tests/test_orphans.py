"""What programs of the daemon leave behind."""

from __future__ import annotations

import asyncio
import ctypes
import os
from collections.abc import AsyncIterator
from pathlib import Path

import pytest_asyncio

from serialwatch.api.rights import descends, read_parent
from serialwatch.service.orphans import Orphans

PR_SET_CHILD_SUBREAPER = 36
LEAVES_ONE = "setsid sleep 60 <&- >&- & echo $!"


@pytest_asyncio.fixture
async def orphans() -> AsyncIterator[Orphans]:
    adopting = Orphans(settle_s=0.0)
    adopting.adopt()
    yield adopting
    adopting.close()
    ctypes.CDLL(None).prctl(PR_SET_CHILD_SUBREAPER, 0, 0, 0, 0)


async def left_behind() -> int:
    """Run a program that ends and leaves another one; return that one's number."""
    program = await asyncio.create_subprocess_exec(
        "sh", "-c", LEAVES_ONE, stdout=asyncio.subprocess.PIPE
    )
    told, _ = await program.communicate()
    return int(told)


async def test_what_a_program_leaves_behind_stays_a_descendant_and_is_taken_leave_of(
    orphans: Orphans,
) -> None:
    pid = await left_behind()

    assert descends(pid, os.getpid(), read_parent)
    os.kill(pid, 9)
    async with asyncio.timeout(5):
        while Path(f"/proc/{pid}").exists():
            await asyncio.sleep(0)


async def test_who_has_started_a_child_has_time_to_take_leave_of_it() -> None:
    watching = Orphans(settle_s=60.0)
    pid = os.posix_spawnp("sh", ["sh", "-c", "exit 7"], os.environ)
    os.waitid(os.P_PID, pid, os.WEXITED | os.WNOWAIT)
    watching._take_leave()
    watching.close()

    assert os.waitstatus_to_exitcode(os.waitpid(pid, os.WNOHANG)[1]) == 7
