"""A real U-Boot in QEMU's `virt` machine, its console on a pty."""

from __future__ import annotations

import asyncio
import json
import shutil
from pathlib import Path
from typing import Any

QEMU = "qemu-system-aarch64"
FIRMWARE = Path("/usr/lib/u-boot/qemu_arm64/u-boot.bin")
CRASH = "md.l 0xffffffffff000000 4"  # reads where nothing is mapped
START_S = 10.0


def missing() -> str:
    """Return what to install for the real board, "" if it is all there."""
    if shutil.which(QEMU) is None or not FIRMWARE.exists():
        return "apt install qemu-system-arm u-boot-qemu"
    return ""


class UBoot:
    """The machine, started paused: QEMU drops what it prints while nobody has the pty open."""

    def __init__(self) -> None:
        self.device = ""  # the pty to watch
        self._process: asyncio.subprocess.Process | None = None
        self._qmp: tuple[asyncio.StreamReader, asyncio.StreamWriter] | None = None

    async def start(self, folder: Path) -> None:
        """Start the machine, paused; `folder` takes its control socket.

        Raises:
            OSError, TimeoutError: QEMU does not start.

        """
        socket = folder / "qmp"
        self._process = await asyncio.create_subprocess_exec(
            QEMU, "-M", "virt", "-cpu", "cortex-a53", "-nographic", "-monitor", "none",
            "-nic", "none", "-serial", "pty", "-bios", str(FIRMWARE), "-S",
            "-qmp", f"unix:{socket},server=on,wait=off",
            stdin=asyncio.subprocess.DEVNULL,
            stdout=asyncio.subprocess.DEVNULL,
            stderr=asyncio.subprocess.DEVNULL,
        )  # fmt: skip
        async with asyncio.timeout(START_S):
            self._qmp = await self._connect(socket)
            await self._command("qmp_capabilities")
            for chardev in await self._command("query-chardev"):
                if chardev["label"] == "serial0":
                    self.device = chardev["filename"].removeprefix("pty:")

    async def power_on(self) -> None:
        """Let the CPU run; call it once the port is open."""
        async with asyncio.timeout(START_S):
            await self._command("cont")

    async def stop(self) -> None:
        """Switch it off."""
        if self._qmp is not None:
            self._qmp[1].close()
        if self._process is not None and self._process.returncode is None:
            self._process.kill()
            await self._process.wait()

    async def _connect(self, socket: Path) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        while True:
            try:
                reader, writer = await asyncio.open_unix_connection(socket)
            except (FileNotFoundError, ConnectionRefusedError):
                if self._process is not None and self._process.returncode is not None:
                    raise OSError(f"{QEMU} ended with status {self._process.returncode}") from None
                await asyncio.sleep(0.02)
            else:
                await reader.readline()  # its greeting
                return reader, writer

    async def _command(self, name: str) -> Any:
        if self._qmp is None:
            raise OSError("not started")
        reader, writer = self._qmp
        writer.write(json.dumps({"execute": name}).encode() + b"\n")
        await writer.drain()
        while line := await reader.readline():
            answer = json.loads(line)
            if "return" in answer:
                return answer["return"]
            if "error" in answer:
                raise OSError(f"{name}: {answer['error']['desc']}")
        raise OSError(f"{QEMU} closed its control socket")
