"""What a driver promises: bytes are pushed, errors have kinds, nothing is sent unasked.

A driver is an `Opener` found through the entry-point group `serialwatch.drivers`; the name of the
entry point is the scheme of the device it opens (`tty` for a plain path).
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Literal, Protocol, runtime_checkable

OpenProblem = Literal["absent", "busy", "denied", "broken"]


class PortError(Exception):
    """A port cannot be used. `device` is the path or URL as it was asked for."""

    def __init__(self, device: str, problem: str) -> None:
        super().__init__(f"{device}: {problem}")
        self.device = device
        self.problem = problem


class PortOpenError(PortError):
    """The port could not be opened; `kind` says why, `holder` who has it if it is busy."""

    def __init__(self, device: str, kind: OpenProblem, problem: str, holder: str = "") -> None:
        super().__init__(device, problem)
        self.kind = kind
        self.holder = holder


class PortLostError(PortError):
    """The port was open and hung up: unplugged, or the far end closed."""


class PortWriteError(PortError):
    """Not all bytes could be written; `sent` is how many the kernel took."""

    def __init__(self, device: str, problem: str, sent: int) -> None:
        super().__init__(device, problem)
        self.sent = sent


@dataclass(frozen=True, slots=True)
class PortOptions:
    """How to open a device. `dtr` and `rts`: None leaves the line as it is found."""

    bit_rate: int = 115200  # bit/s
    dtr: bool | None = None
    rts: bool | None = None
    allow_unstable: bool = False  # a by-id link that any adapter of its kind would have is fine
    open_delay_s: float = 0.0  # after the device has appeared
    line_errors: bool = False  # set INPCK: cp210x counts errors only then, bad bytes become NUL


@dataclass(frozen=True, slots=True)
class UartCounters:
    """Errors since the device appeared; None: this driver does not count them."""

    overrun: int | None
    framing: int | None
    parity: int | None
    breaks: int | None
    buffer_overrun: int | None


@dataclass(frozen=True, slots=True)
class ModemLines:
    """How the lines beside the data stand: the board drives the first three, we the others."""

    cts: bool
    dsr: bool
    dcd: bool
    dtr: bool
    rts: bool


OnBytes = Callable[[bytes, int], None]  # data (never empty), CLOCK_MONOTONIC ns; on the loop
OnLost = Callable[[PortLostError], None]  # once, on the loop


class Port(Protocol):
    """An open device."""

    @property
    def device(self) -> str:
        """The path that was opened, links and identities resolved."""

    @property
    def far_end(self) -> str | None:
        """What the other side may open (`pty:`), None where there is no such thing."""

    async def write(self, data: bytes) -> None:
        """Hand `data` to the kernel.

        Raises:
            PortWriteError: the device does not take it within 5 s, or is gone.

        """

    async def set_lines(self, *, dtr: bool | None = None, rts: bool | None = None) -> None:
        """Set modem lines; None leaves one alone. Does nothing where there are none."""

    async def send_break(self, duration_s: float = 0.25) -> None:
        """Send a break condition. Does nothing where there is none."""

    async def counters(self) -> UartCounters | None:
        """Return the driver's error counters, None where it has none."""

    def pause(self) -> None:
        """Stop reading; the kernel's buffer fills."""

    def resume(self) -> None:
        """Read again."""

    def close(self) -> None:
        """Begin to close; no callback comes after this. Never blocks."""

    async def wait_closed(self) -> None:
        """Return when the descriptor is closed and the device may be opened again."""


@runtime_checkable
class WithModemLines(Protocol):
    """A port that can tell how its modem lines stand."""

    async def modem_lines(self) -> ModemLines | None:
        """Return how they stand, None where there are none."""


Opener = Callable[[str, PortOptions, OnBytes, OnLost], Awaitable[Port]]
