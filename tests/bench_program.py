"""Any program in a terminal of its own, for tests without a loop."""

from __future__ import annotations

import fcntl
import os
import select
import signal
import subprocess
import termios
from contextlib import suppress


class Program:
    """A terminal program in a terminal of its own."""

    def __init__(self, words: list[str], env: dict[str, str]) -> None:
        self._fd, far = os.openpty()
        termios.tcsetwinsize(far, (24, 80))
        self.seen = b""
        self._process = subprocess.Popen(
            words,
            stdin=far,
            stdout=far,
            stderr=far,
            env=os.environ | {"TERM": "xterm"} | env,
            start_new_session=True,
            preexec_fn=_take_terminal,
        )
        os.close(far)

    def type(self, data: bytes) -> None:
        os.write(self._fd, data)

    def look(self) -> None:
        """Take what it shows."""
        while select.select([self._fd], [], [], 0.02)[0]:
            try:
                self.seen += os.read(self._fd, 65536)
            except OSError:
                raise AssertionError(f"it has ended: {self.seen!r}") from None

    def close(self) -> None:
        with suppress(ProcessLookupError):
            os.killpg(self._process.pid, signal.SIGKILL)
        self._process.wait()
        os.close(self._fd)


def _take_terminal() -> None:
    fcntl.ioctl(0, termios.TIOCSCTTY, 0)
