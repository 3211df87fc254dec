"""An emulated machine for tests: QEMU, started paused, its console on a pty."""

from __future__ import annotations

import json
import socket
import subprocess
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

LIMIT_S = 20.0


class Machine:
    """QEMU with `arguments`; `device` is the pty to watch.

    It starts paused: QEMU drops what a board prints while nobody has the pty open.
    """

    def __init__(self, folder: Path, name: str, arguments: Sequence[str | Path]) -> None:
        control = folder / f"{name}.qmp"
        self._console = folder / f"{name}.console"
        self._stderr = folder / f"{name}.stderr"
        with self._stderr.open("wb") as stderr:
            self._process = subprocess.Popen(
                [
                    *arguments,
                    "-S", "-nodefaults", "-display", "none",
                    "-chardev", f"pty,id=console,logfile={self._console}",
                    "-serial", "chardev:console",
                    "-qmp", f"unix:{control},server=on,wait=off",
                ],
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                stderr=stderr,
            )  # fmt: skip
        self._socket = socket.socket(socket.AF_UNIX)
        self._socket.settimeout(LIMIT_S)
        try:
            self._wait_for(lambda: self._socket.connect_ex(str(control)) == 0, "control socket")
            self._answers = self._socket.makefile("rb")
            self._answers.readline()  # its greeting
            self._command("qmp_capabilities")
            consoles = [c for c in self._command("query-chardev") if c["label"] == "console"]
            self.device = consoles[0]["filename"].removeprefix("pty:")
        except BaseException:
            self.close()
            raise

    def printed(self) -> bytes:
        """Return every byte that the console has sent."""
        return self._console.read_bytes()

    def run(self) -> None:
        """Let the CPU run; call it once somebody has the pty open."""
        self._command("cont")

    def pause(self) -> None:
        """Stop the CPU where it is; it costs nothing then."""
        self._command("stop")

    def reset(self) -> None:
        """Push the reset button."""
        self._command("system_reset")

    def save(self, path: Path) -> None:
        """Pause it and write its whole state to `path`."""
        self._command("stop")
        self._command("migrate", uri=f"exec:cat >{path}")
        self._wait_for(
            lambda: self._command("query-migrate").get("status") == "completed", "a saved state"
        )

    def load(self, path: Path) -> None:
        """Take over a saved state; the machine was started with `-incoming defer`."""
        self._command("migrate-incoming", uri=f"exec:cat {path}")
        self._wait_for(
            lambda: self._command("query-status")["status"] != "inmigrate", "a loaded state"
        )

    def close(self) -> None:
        """Switch it off."""
        self._process.kill()
        self._process.wait()
        self._socket.close()
        if hasattr(self, "_answers"):
            self._answers.close()

    def _command(self, name: str, **arguments: str) -> Any:
        question = {"execute": name, "arguments": arguments}
        self._socket.sendall(json.dumps(question).encode() + b"\n")
        for line in self._answers:
            answer = json.loads(line)
            if "return" in answer:
                return answer["return"]
            assert "error" not in answer, f"{name}: {answer['error']['desc']}"
        raise AssertionError(f"{name}: QEMU closed its control socket\n{self._stderr.read_text()}")

    def _wait_for(self, what: Callable[[], bool], name: str) -> None:
        end = time.monotonic() + LIMIT_S
        while not what():
            assert self._process.poll() is None, f"QEMU ended\n{self._stderr.read_text()}"
            assert time.monotonic() < end, f"no {name} within {LIMIT_S} s"
            time.sleep(0.02)
