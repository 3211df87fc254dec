"""What a skill leaves running is killed with it, also where the kernel lets it start processes."""

from __future__ import annotations

import asyncio
import socket
import sys
from pathlib import Path

from bench_cable import within_s
from serialwatch.agent.skills.results import error_code
from serialwatch.agent.workers.fork_client import ForkClient
from serialwatch.agent.workers.worker import Workers
from skill_maker import make_skill
from skill_run import opened_run

# A forkserver whose skills are not locked in: what they may do on a kernel without a filter.
UNLOCKED = """
import sys
from serialwatch.agent.workers import forkserver, skill_process
skill_process.confine = lambda *given: None
forkserver.main(int(sys.argv[1]))
"""

STUBBORN = """
import signal
signal.signal(signal.SIGTERM, signal.SIG_IGN)

def spin(name):
    (ctx.data_dir / name).write_text(str(os.getpid()))
    while True:
        pass

if os.fork() == 0:
    os.setsid()
    if os.fork() == 0:
        os.setsid()
        spin('grandchild')
    spin('child')
spin('skill')
"""


async def test_what_a_skill_forked_twice_is_killed_at_its_limit(tmp_path: Path) -> None:
    (tmp_path / "data").mkdir()
    make_skill(tmp_path / "skills", "a-b", STUBBORN)
    workers = Workers()
    workers._server = await _unlocked()
    try:
        with opened_run([tmp_path / "skills"], data_dir=tmp_path / "data") as ctx:
            result = await workers.run("a-b", {}, ctx, 0.8)
            async with asyncio.timeout(5):
                while workers.alive:
                    await asyncio.sleep(0)
    finally:
        await within_s(5, workers.stop())

    pids = [int(path.read_text()) for path in (tmp_path / "data").iterdir()]
    assert error_code(result) == "timeout"
    assert len(pids) == 3
    assert not [pid for pid in pids if Path(f"/proc/{pid}").exists()]


async def _unlocked() -> ForkClient:
    ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    ours.setblocking(False)
    with theirs:
        process = await asyncio.create_subprocess_exec(
            sys.executable, "-c", UNLOCKED, str(theirs.fileno()), pass_fds=[theirs.fileno()]
        )
    return ForkClient(process, ours)
