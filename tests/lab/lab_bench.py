"""The bench of the lab's PC: the service, its ports, and boards to plug in."""

from __future__ import annotations

import itertools
import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from lab_board import Board
from lab_pc import LabPc, wait_for
from lab_qemu import LabError, Qemu

from serialwatch.wire import utc_ns

READY_LIMIT_S = 300.0  # the first start compiles the rules
STATE_LIMIT_S = 60.0

CONFIG = """\
[port.dut1]
device = "/dev/serial/by-id/usb-QEMU_QEMU_USB_SERIAL_DUT0001-if00-port0"

[port.acm]
device = "/dev/serial/by-id/usb-Lab_Gadget_ACM0001-if00"
"""

_LINE = re.compile(r"boot (\d+) line (\d+): all is well")


@dataclass(frozen=True, slots=True)
class Printed:
    """A line of a board's log; numbers are 0 where it is not a whole line of the board's."""

    seq: int
    utc_s: float
    boot: int
    number: int


class LabBench:
    """A PC with the service, and its boards."""

    def __init__(self, qemu: Qemu, pc: LabPc, boards: Sequence[str]) -> None:
        self.qemu = qemu
        self.pc = pc
        self.boards = {name: Board(qemu.folder / f"{name}.sock", qemu.resets) for name in boards}

    def close(self) -> None:
        """Switch the boards off."""
        for board in self.boards.values():
            board.power_off()

    def unasked(self) -> int:
        """Return how many bytes boards behind adapters got that nobody had asked for."""
        return sum(board.unasked for board in self.boards.values())

    def plug(self, socket: str, serial: str, board: str = "dut1") -> float:
        """Plug in the adapter of a board, which boots by that; return when, as time.monotonic()."""
        at_s = self.qemu.plug(_adapter(board), board, socket, serial)
        self.boards[board].power_on()
        return at_s

    def pull(self, board: str = "dut1", device: str = "") -> float:
        """Pull out the adapter of a board, or what it is plugged into; return when."""
        self.boards[board].power_off()
        wait_for(lambda: self.qemu.is_quiet(board), f"{board} quiet")
        return self.qemu.pull(device or _adapter(board))

    def configure(self, text: str) -> None:
        """Write the configuration."""
        self.pc.put("/etc/serialwatch/serialwatch.toml", text.encode())

    def wait_until_ready(self) -> None:
        """Wait until the service has told systemd that it is up."""
        is_active = ("systemctl", "is-active", "serialwatch")
        wait_for(lambda: self.pc.run(*is_active).code == 0, "the service", READY_LIMIT_S)

    def wait_until_watching(self) -> None:
        """Wait until the rules are in use: what comes before is only captured."""
        wait_for(lambda: self.port("dut1"), "an answer of the API", READY_LIMIT_S)
        wait_for(
            lambda: any("watching" in entry.text for entry in self.pc.journal()),
            "rules",
            READY_LIMIT_S,
        )

    def port(self, name: str) -> dict[str, Any]:
        """Return a port as the API shows it; {} while nobody answers."""
        answer = self.pc.get("/v1/ports")
        ports = answer["ports"] if answer else []
        return next((port for port in ports if port["name"] == name), {})

    def wait_for_state(self, name: str, *states: str) -> dict[str, Any]:
        """Return the port once it is in one of these states."""
        seen: dict[str, Any] = {}

        def is_so() -> bool:
            seen.update(self.port(name))
            return seen.get("state") in states

        try:
            wait_for(is_so, f"{name} {' or '.join(states)}", STATE_LIMIT_S)
        except LabError as exc:
            raise LabError(f"{exc}: {seen.get('state')}: {seen.get('problem')}") from exc
        return seen

    def printed(self, name: str, first: int = 1) -> list[Printed]:
        """Return the complete lines of a port's log from number `first` on."""
        rows = self.pc.get_rows(f"/v1/logs/{name}?first={first}")
        return [_printed(row) for row in rows if row["complete"]]

    def next_line(self, name: str) -> int:
        """Return the number of the first line that is not complete yet."""
        port = wait_for(lambda: self.port(name), "an answer of the API", READY_LIMIT_S)
        return int(port["next_seq"])

    def wait_for_lines(self, name: str, first: int, count: int = 1) -> list[Printed]:
        """Return the lines from `first` on once there are so many whole ones."""

        def enough() -> list[Printed] | None:
            lines = self.printed(name, first)
            return lines if sum(line.number > 0 for line in lines) >= count else None

        return wait_for(enough, f"{count} lines of {name} from {first} on", STATE_LIMIT_S)


def missing(lines: Sequence[Printed]) -> int:
    """Return how many lines of each boot, from its first whole one to its last, are not there."""
    whole = [line for line in lines if line.number]
    return sum(
        after.number - before.number - 1
        for before, after in itertools.pairwise(whole)
        if before.boot == after.boot
    )


def since_s(port: dict[str, Any]) -> float:
    """Return since when a port is in its state, as UTC of the PC."""
    return utc_ns(port["since"]) / 1e9


def _adapter(board: str) -> str:
    return f"adapter-{board}"


def _printed(row: dict[str, Any]) -> Printed:
    match = _LINE.fullmatch(row["text"])
    boot, number = (int(match[1]), int(match[2])) if match else (0, 0)
    return Printed(row["seq"], utc_ns(row["at"]) / 1e9, boot, number)
