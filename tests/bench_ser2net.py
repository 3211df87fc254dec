"""A real ser2net in front of a cable."""

from __future__ import annotations

import asyncio
import os
import shutil
import socket
import subprocess
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from bench_cable import Cable

SER2NET = shutil.which("ser2net", path=f"{os.environ.get('PATH', '')}:/usr/sbin:/sbin")
needs_ser2net = pytest.mark.skipif(SER2NET is None, reason="ser2net is not installed (apt)")


def free_port() -> int:
    """Return a TCP port that nobody listens on."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


class Ser2net:
    """One port of ser2net: `socket://` or `rfc2217://` by its `accepter`."""

    def __init__(self, folder: Path, cable: Cable, accepter: str, connector: str = "") -> None:
        self.port = free_port()
        self._config = folder / f"ser2net-{self.port}.yaml"
        # The link of the cable may lead to another pty later; ser2net opens it anew each time.
        self._config.write_text(
            f"connection: &board\n"
            f"  accepter: {accepter},127.0.0.1,{self.port}\n"
            f"  connector: serialdev,{cable.path},115200n81,local{connector}\n"
        )
        self._process: subprocess.Popen[bytes] | None = None

    async def start(self) -> None:
        """Run it; returns when it listens."""
        assert SER2NET is not None
        self._process = subprocess.Popen(
            [SER2NET, "-n", "-d", "-u", "-c", str(self._config)],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )
        async with asyncio.timeout(10):
            while not self._listens():
                assert self._process.poll() is None, "ser2net has ended"
                await asyncio.sleep(0.01)

    def stop(self) -> None:
        """End it: connections break."""
        if self._process is not None:
            self._process.kill()
            self._process.wait()
            self._process = None

    def _listens(self) -> bool:
        """Look without connecting: a connection opens the board's port."""
        wanted = f"0100007F:{self.port:04X}"
        rows = Path("/proc/net/tcp").read_text().splitlines()[1:]
        return any(row.split()[1] == wanted and row.split()[3] == "0A" for row in rows)


@asynccontextmanager
async def ser2net(
    folder: Path, cable: Cable, accepter: str, connector: str = ""
) -> AsyncIterator[Ser2net]:
    """Run ser2net for the block."""
    made = Ser2net(folder, cable, accepter, connector)
    await made.start()
    try:
        yield made
    finally:
        made.stop()
