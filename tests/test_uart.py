"""What the kernel's serial calls are asked, and what their answers mean."""

from __future__ import annotations

import errno
import fcntl
import os
import struct
import sys
import termios
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from serialwatch_drivers import opener, uart
from serialwatch_drivers.port import ModemLines, UartCounters

TIOCGICOUNT = 0x545D
TCGETS2 = 0x802C542A


@pytest.fixture
def slave() -> Iterator[int]:
    board, slave = os.openpty()
    yield slave
    os.close(slave)
    os.close(board)


@pytest.fixture
def kernel(monkeypatch: pytest.MonkeyPatch) -> Kernel:
    """Answers to ioctls that a pty does not have."""
    made = Kernel()
    monkeypatch.setattr(fcntl, "ioctl", made.ioctl)
    return made


class Kernel:
    def __init__(self) -> None:
        self.answers: dict[int, bytes | OSError] = {}
        self.asked: list[tuple[int, bytes]] = []
        self._real = fcntl.ioctl

    def ioctl(self, fd: int, request: int, *more: Any) -> Any:
        self.asked.append((request, bytes(more[0]) if more else b""))
        if request not in self.answers:
            return self._real(fd, request, *more)
        answer = self.answers[request]
        if isinstance(answer, OSError):
            raise answer
        if more and isinstance(more[0], bytearray):
            more[0][: len(answer)] = answer
        return answer


def test_a_rate_that_the_driver_did_not_take_is_refused(slave: int, kernel: Kernel) -> None:
    kernel.answers[TCGETS2] = struct.pack("4I20s2I", 0, 0, 0, 0, b"", 9600, 9600)

    with pytest.raises(ValueError, match="3000000 bit/s is not possible, the driver took 9600"):
        uart.check_rate(slave, 3_000_000)


def test_a_rate_that_the_driver_took_nearly_is_fine(slave: int, kernel: Kernel) -> None:
    kernel.answers[TCGETS2] = struct.pack("4I20s2I", 0, 0, 0, 0, b"", 923_076, 923_076)

    uart.check_rate(slave, 921_600)


def test_a_machine_that_cannot_say_the_rate_is_believed(slave: int, kernel: Kernel) -> None:
    kernel.answers[TCGETS2] = OSError(errno.ENOTTY, "Inappropriate ioctl for device")

    uart.check_rate(slave, 115_200)


@pytest.mark.parametrize("bit_rate", [50, 9600, 74_880, 115_200, 250_000, 1_500_000, 3_000_000])
def test_a_rate_of_any_kind_reads_back(slave: int, bit_rate: int) -> None:
    fd = opener.open_raw(os.ttyname(slave), uart.raw_settings(bit_rate, line_errors=False))
    uart.check_rate(fd, bit_rate)
    os.close(fd)

    settings = struct.unpack("4I20s2I", fcntl.ioctl(slave, TCGETS2, bytes(44)))
    assert settings[5:] == (bit_rate, bit_rate)
    assert termios.tcgetattr(slave)[3] == 0


@pytest.mark.parametrize(
    ("found", "dtr", "rts", "left"),
    [
        (0b0110, False, True, 0b0100),
        (0b0000, True, False, 0b0010),
        (0x166, False, False, 0x160),
        (0x160, True, True, 0x166),
    ],
)
def test_both_lines_change_in_one_call(
    slave: int, kernel: Kernel, found: int, dtr: bool, rts: bool, left: int
) -> None:
    kernel.answers[termios.TIOCMGET] = found.to_bytes(4, sys.byteorder)
    kernel.answers[termios.TIOCMSET] = b""

    uart.set_modem_lines(slave, dtr=dtr, rts=rts)

    assert kernel.asked[-1] == (termios.TIOCMSET, left.to_bytes(4, sys.byteorder))
    assert [request for request, _ in kernel.asked] == [termios.TIOCMGET, termios.TIOCMSET]


def test_modem_lines_are_read_by_their_names(slave: int, kernel: Kernel) -> None:
    kernel.answers[termios.TIOCMGET] = (0x126).to_bytes(4, sys.byteorder)

    told = uart.read_modem_lines(slave)

    assert told == ModemLines(cts=True, dsr=True, dcd=False, dtr=True, rts=True)
    assert [request for request, _ in kernel.asked] == [termios.TIOCMGET]


def test_a_tty_without_modem_lines_has_none(slave: int) -> None:
    assert uart.read_modem_lines(slave) is None


@pytest.mark.parametrize(
    ("lines", "how", "bit"),
    [
        ({"dtr": True, "rts": None}, termios.TIOCMBIS, 2),
        ({"dtr": False, "rts": None}, termios.TIOCMBIC, 2),
        ({"dtr": None, "rts": True}, termios.TIOCMBIS, 4),
        ({"dtr": None, "rts": False}, termios.TIOCMBIC, 4),
    ],
)
def test_one_line_leaves_the_other(
    slave: int, kernel: Kernel, lines: dict[str, bool | None], how: int, bit: int
) -> None:
    kernel.answers[how] = b""

    uart.set_modem_lines(slave, **lines)

    assert kernel.asked == [(how, bit.to_bytes(4, sys.byteorder))]


def test_a_line_that_cannot_be_set_because_the_port_is_gone_is_an_error(
    slave: int, kernel: Kernel
) -> None:
    kernel.answers[termios.TIOCMBIS] = OSError(errno.EIO, "Input/output error")

    with pytest.raises(OSError, match="Input/output error"):
        uart.set_modem_lines(slave, dtr=True, rts=None)


def test_closing_wait_is_the_only_thing_that_changes(slave: int, kernel: Kernel) -> None:
    found = bytes(range(72))
    kernel.answers[termios.TIOCGSERIAL] = found
    kernel.answers[termios.TIOCSSERIAL] = OSError(errno.EPERM, "Operation not permitted")

    uart.set_no_closing_wait(slave)

    request, settings = kernel.asked[-1]
    assert request == termios.TIOCSSERIAL
    assert settings[:72] == found[:40] + b"\xff\xff" + found[42:]


def tty_of_driver(sysfs: Path, name: str, driver: str) -> str:
    made = sysfs / "bus/usb-serial/drivers" / driver
    made.mkdir(parents=True, exist_ok=True)
    tty = sysfs / "class/tty" / name / "device"
    tty.mkdir(parents=True)
    (tty / "driver").symlink_to(made)
    return f"/dev/{name}"


@pytest.mark.parametrize(
    ("driver", "line_errors", "counts"),
    [
        ("ftdi_sio", False, "ftdi_sio"),
        ("cdc_acm", False, "cdc_acm"),
        ("cp210x", False, None),
        ("cp210x", True, "cp210x"),
        ("pl2303", True, None),
        ("ch341-uart", True, None),
    ],
)
def test_only_drivers_that_count_are_believed(
    tmp_path: Path, driver: str, line_errors: bool, counts: str | None
) -> None:
    path = tty_of_driver(tmp_path, "ttyUSB0", driver)

    assert uart.find_counting_driver(path, line_errors=line_errors, sysfs=tmp_path) == counts


@pytest.mark.parametrize("name", ["ttyS1", "ttyAMA0"])
@pytest.mark.parametrize(("kind", "counts"), [("4", "8250"), ("0", None)])
def test_an_on_board_uart_counts_if_there_is_one(
    tmp_path: Path, name: str, kind: str, counts: str | None
) -> None:
    tty = tmp_path / "class/tty" / name
    tty.mkdir(parents=True)
    (tty / "type").write_text(f"{kind}\n")

    found = uart.find_counting_driver(f"/dev/{name}", line_errors=False, sysfs=tmp_path)

    assert found == counts


def test_a_tty_that_sysfs_does_not_know_does_not_count(tmp_path: Path) -> None:
    assert uart.find_counting_driver("/dev/pts/3", line_errors=True, sysfs=tmp_path) is None


def test_the_counters_of_an_on_board_uart_have_all_five(slave: int, kernel: Kernel) -> None:
    kernel.answers[TIOCGICOUNT] = struct.pack("20i", 1, 2, 3, 4, 900, 80, 5, 6, 7, 8, 9, *[0] * 9)

    assert uart.read_counters(slave, "8250") == UartCounters(
        framing=5, overrun=6, parity=7, breaks=8, buffer_overrun=9
    )


def test_a_counter_that_a_driver_never_counts_is_absent_and_not_zero(
    slave: int, kernel: Kernel
) -> None:
    kernel.answers[TIOCGICOUNT] = struct.pack("20i", 1, 2, 3, 4, 900, 80, 5, 6, 7, 8, 0, *[0] * 9)

    counters = uart.read_counters(slave, "ftdi_sio")

    assert counters is not None
    assert counters.overrun == 6
    assert counters.buffer_overrun is None


def test_a_tty_without_counters_answers_none(slave: int) -> None:
    assert uart.read_counters(slave, "8250") is None
