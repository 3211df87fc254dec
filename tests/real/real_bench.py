"""One running daemon for all real boards: reading its rules takes longer than most faults."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from running_daemon import RunningDaemon

PORTS = (
    "uboot", "untouched", "script", "resets", "crashes", "mcu",
    "storm", "sysrq", "oom", "segfault", "overrun", "init", "no-root",
)  # fmt: skip
_ESCAPE = re.compile(rb"\x1b\[[0-9;?]*[A-Za-z]")  # BusyBox asks the terminal where its cursor is


def devices(folder: Path) -> dict[str, str]:
    """Return where each port waits for its board."""
    return {port: str(folder / f"tty-{port}") for port in PORTS}


class RealBench:
    """The daemon and what is plugged into it."""

    def __init__(self, daemon: RunningDaemon, folder: Path) -> None:
        self.daemon = daemon
        self._folder = folder

    @contextmanager
    def plugged(self, boards: dict[str, str]) -> Iterator[None]:
        """Connect pty devices to ports for the block, once the daemon has them open."""
        links = {Path(devices(self._folder)[port]): device for port, device in boards.items()}
        for link, device in links.items():
            link.symlink_to(device)
        try:
            self.daemon.wait_for(lambda: self._up() >= boards.keys(), f"open ports {[*boards]}")
            yield
        finally:
            for link in links:
                link.unlink()  # the kernel gives the same pty to the next board

    def printed(self, port: str, text: bytes, times: int = 1) -> None:
        """Wait until the log of a port holds `text` so often."""
        self.daemon.wait_for(
            lambda: self.daemon.saved(port).count(text) >= times, f"{port}: {text!r}"
        )

    def type(self, port: str, text: str) -> None:
        """Send a line."""
        status, body = self.daemon.post(f"/v1/ports/{port}/send", {"text": text + "\r"})
        assert status == 200, body

    def settled(self, ports: Iterable[str]) -> None:
        """Wait until each port has incidents, all have settled, and all reports are written."""

        def all_settled() -> bool:
            found = {port: self.daemon.incidents(port) for port in ports}
            return all(own and all(i["is_settled"] for i in own) for own in found.values())

        self.daemon.wait_for(all_settled, f"settled incidents of {[*ports]}")
        self.daemon.wait_for(
            lambda: not self.daemon.rows("SELECT 1 FROM queue WHERE state != 'done'"), "reports"
        )

    def report(self, incident: Any) -> Any:
        """Return the report of an incident; it concludes something and what it quotes is there."""
        report = self.daemon.get(f"/v1/reports/{incident['id']}")
        assert report["conclusions"], report
        for conclusion in report["conclusions"]:
            assert conclusion["evidence"], conclusion
            for evidence in conclusion["evidence"]:
                line = _ESCAPE.sub(b"", self.line(evidence["port"], evidence["seq"]))
                text = line.decode(errors="backslashreplace")
                assert " ".join(evidence["quote"].split()) in " ".join(text.split())
        return report

    def line(self, port: str, seq: int) -> bytes:
        """Return a line of a port's log."""
        return self.daemon.saved(port).split(b"\n")[seq - 1]

    def _up(self) -> set[str]:
        return {p["name"] for p in self.daemon.get("/v1/ports")["ports"] if p["state"] == "up"}
