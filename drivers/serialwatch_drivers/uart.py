"""What the kernel lets us set and ask of a UART: termios, bit rate, modem lines, counters.

Every call here may wait for a USB transfer: not for the loop.
"""

from __future__ import annotations

import errno
import fcntl
import os
import struct
import termios
from pathlib import Path
from typing import Literal

from serialwatch_drivers.opener import Settings
from serialwatch_drivers.port import ModemLines, UartCounters

_SYSFS = Path("/sys")

_TCGETS2 = 0x802C542A
_BOTHER = 0o010000  # the bit rate is a number, not a constant
_NCCS2 = 19
_TERMIOS2 = struct.Struct("4I20s2I")  # iflag oflag cflag lflag, line and cc, ispeed ospeed

_UINT = struct.Struct("I")
_TIOCM_DTR = 0x002
_TIOCM_RTS = 0x004
_TIOCM_CTS = 0x020
_TIOCM_DCD = 0x040
_TIOCM_DSR = 0x100
_TIOCSBRK = 0x5427
_TIOCCBRK = 0x5428
_TIOCGICOUNT = 0x545D
# cts dsr rng dcd rx tx frame overrun parity brk buf_overrun, nine reserved
_ICOUNT = struct.Struct("20I")

_SERIAL_STRUCT_BYTES = 128  # more than struct serial_struct has on any machine
_CLOSING_WAIT_AT = 40  # its closing_wait, u16
_CLOSING_WAIT_NONE = 65535

_RATE_TOLERANCE = 0.03  # beyond it an 8N1 receiver begins to misread

CountingDriver = Literal["8250", "ftdi_sio", "cp210x", "cdc_acm"]
_COUNTING_USB: tuple[CountingDriver, ...] = ("ftdi_sio", "cp210x", "cdc_acm")


def raw_settings(bit_rate: int, *, line_errors: bool) -> Settings:
    """Return what makes a tty a plain pipe of bytes, 8N1, in one call.

    Nothing of termios is left as found: BRKINT would flush input at a break, HUPCL would drop DTR
    at close, IXON would swallow 0x13. `check_rate` has to follow.
    """
    iflag = termios.INPCK if line_errors else 0
    cflag = termios.CS8 | termios.CREAD | termios.CLOCAL
    control = [0] * termios.NCCS
    # With VMIN 0 an empty read would look like a hang-up. (It does not block: O_NONBLOCK.)
    control[termios.VMIN] = 1
    speed = getattr(termios, f"B{bit_rate}", None)
    if speed is not None:
        return [iflag, 0, cflag, 0, speed, speed, control]
    # termios refuses a rate without a constant, and with it pyserial on glibc 2.42 and later.
    line_and_control = bytes([0, *control[:_NCCS2]])
    return _TERMIOS2.pack(iflag, 0, cflag | _BOTHER, 0, line_and_control, bit_rate, bit_rate).hex()


def check_rate(fd: int, bit_rate: int) -> None:
    """See that the driver runs at `bit_rate`, or near enough.

    Raises:
        ValueError: the driver cannot do it.

    """
    try:
        actual = _TERMIOS2.unpack(fcntl.ioctl(fd, _TCGETS2, bytes(_TERMIOS2.size)))[6]
    except OSError:
        return  # not on this machine: termios has set it, and cannot say more
    if actual and abs(actual - bit_rate) > bit_rate * _RATE_TOLERANCE:
        raise ValueError(f"{bit_rate} bit/s is not possible, the driver took {actual}")


def set_no_closing_wait(fd: int) -> None:
    """Let close() return at once with bytes unsent, where the driver can and we may."""
    settings = bytearray(_SERIAL_STRUCT_BYTES)
    try:
        fcntl.ioctl(fd, termios.TIOCGSERIAL, settings)
        struct.pack_into("H", settings, _CLOSING_WAIT_AT, _CLOSING_WAIT_NONE)
        fcntl.ioctl(fd, termios.TIOCSSERIAL, settings)
    except OSError:
        pass  # EPERM without root; ENOTTY, EINVAL from drivers that have no such thing


def set_modem_lines(fd: int, *, dtr: bool | None, rts: bool | None) -> None:
    """Set both lines in one call (an ESP32 resets on the moment between two); None leaves one.

    Does nothing where there are no such lines.
    """
    try:
        if dtr is not None and rts is not None:
            (lines,) = _UINT.unpack(fcntl.ioctl(fd, termios.TIOCMGET, bytes(_UINT.size)))
            lines = lines | _TIOCM_DTR if dtr else lines & ~_TIOCM_DTR
            lines = lines | _TIOCM_RTS if rts else lines & ~_TIOCM_RTS
            fcntl.ioctl(fd, termios.TIOCMSET, _UINT.pack(lines))
        elif dtr is not None:
            _set_line(fd, _TIOCM_DTR, is_on=dtr)
        elif rts is not None:
            _set_line(fd, _TIOCM_RTS, is_on=rts)
    except OSError as exc:
        if exc.errno not in (errno.ENOTTY, errno.EINVAL):
            raise


def read_modem_lines(fd: int) -> ModemLines | None:
    """Return how the modem lines stand, None where there are none."""
    try:
        (lines,) = _UINT.unpack(fcntl.ioctl(fd, termios.TIOCMGET, bytes(_UINT.size)))
    except OSError:
        return None
    return ModemLines(
        cts=bool(lines & _TIOCM_CTS),
        dsr=bool(lines & _TIOCM_DSR),
        dcd=bool(lines & _TIOCM_DCD),
        dtr=bool(lines & _TIOCM_DTR),
        rts=bool(lines & _TIOCM_RTS),
    )


def start_break(fd: int) -> None:
    """Hold the transmit line low. Does nothing where the driver cannot."""
    _switch_break(fd, _TIOCSBRK)


def end_break(fd: int) -> None:
    """Let the transmit line go."""
    _switch_break(fd, _TIOCCBRK)


def unsent_bytes(fd: int) -> int:
    """Return how many bytes the driver still has to send."""
    (count,) = _UINT.unpack(fcntl.ioctl(fd, termios.TIOCOUTQ, bytes(_UINT.size)))
    return int(count)


def find_counting_driver(
    path: str, *, line_errors: bool, sysfs: Path = _SYSFS
) -> CountingDriver | None:
    """Return the driver of the tty `path` if its error counters mean something.

    Others answer too, and their zeros say nothing: ch341 reports no errors at all, pl2303 does not
    count them, cp210x only with INPCK (`line_errors`).
    """
    tty = sysfs / "class/tty" / os.path.basename(path)
    if tty.name.startswith(("ttyS", "ttyAMA")):  # 8250 and PL011 keep them in the same place
        return "8250" if _attribute(tty / "type") not in {"", "0"} else None
    driver = os.path.basename(os.path.realpath(tty / "device/driver"))
    for known in _COUNTING_USB:
        if driver == known and (line_errors or driver != "cp210x"):
            return known
    return None


def read_counters(fd: int, driver: CountingDriver) -> UartCounters | None:
    """Return what `driver` has counted since the device appeared, None if it does not answer."""
    try:
        answer = fcntl.ioctl(fd, _TIOCGICOUNT, bytes(_ICOUNT.size))
    except OSError:
        return None
    counts = _ICOUNT.unpack(answer)
    return UartCounters(
        framing=counts[6],
        overrun=counts[7],
        parity=counts[8],
        breaks=counts[9],
        buffer_overrun=counts[10] if driver == "8250" else None,  # the USB drivers leave it at 0
    )


def _set_line(fd: int, line: int, *, is_on: bool) -> None:
    fcntl.ioctl(fd, termios.TIOCMBIS if is_on else termios.TIOCMBIC, _UINT.pack(line))


def _switch_break(fd: int, how: int) -> None:
    try:
        fcntl.ioctl(fd, how)
    except OSError as exc:
        if exc.errno not in (errno.ENOTTY, errno.EINVAL):
            raise


def _attribute(path: Path) -> str:
    try:
        return path.read_text().strip()
    except OSError:
        return ""
