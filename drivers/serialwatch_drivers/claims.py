"""What else wants a tty: a login, the kernel's console, a modem, a receiver. Reads, never opens."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

_GETTYS = {"agetty", "getty", "mgetty", "mingetty", "fgetty", "login"}
_WAITERS = {"gpsd", "pppd", "chat", "wvdial", "lircd", "upsd", "slattach", "hciattach"}
_MODEM_DRIVERS = {"option", "qcserial", "sierra", "ipw", "hso", "navman", "garmin_gps", "opticon"}
_OTHER_THINGS = re.compile(
    r"modem|\bgps\b|gnss|u-blox|zig-?bee|z-?wave|conbee|skyconnect|\blte\b|wwan|\bups\b|receipt"
    r"|barcode|scanner|smart ?card",
    re.IGNORECASE,
)
_GPS_VENDORS = {"1546", "091e"}  # u-blox, Garmin


@dataclass(frozen=True, slots=True)
class Process:
    """A process as far as everybody may see it."""

    pid: int
    command: str  # comm
    arguments: tuple[str, ...]
    tty: str  # major:minor of its controlling terminal, "0:0" if it has none


def processes(proc: Path) -> Iterator[Process]:
    """Yield every process."""
    try:
        names = os.listdir(proc)
    except OSError:
        return
    for name in filter(str.isdigit, names):
        try:
            command = (proc / name / "comm").read_bytes().decode(errors="replace").strip()
            line = (proc / name / "cmdline").read_bytes().decode(errors="replace")
            state = (proc / name / "stat").read_bytes().rpartition(b")")[2].split()
        except OSError:
            continue  # it has ended
        number = int(state[4]) if len(state) > 4 else 0
        terminal = f"{number >> 8 & 0xFFF}:{number & 0xFF | number >> 12 & 0xFFF00}"
        yield Process(int(name), command, tuple(filter(None, line.split("\0"))), terminal)


def udev_properties(tty: str, root: Path = Path("/")) -> Mapping[str, str] | None:
    """Return what udev knows of a tty, None if it has not dealt with it."""
    number = _text(root / "sys/class/tty" / tty / "dev")
    try:
        rows = (root / "run/udev/data" / f"c{number}").read_text(errors="replace").splitlines()
    except OSError:
        return None
    return dict(row[2:].split("=", 1) for row in rows if row.startswith("E:") and "=" in row)


def claim_of(tty: str, root: Path = Path("/")) -> str:
    """Return what a tty is for, or who uses it, if it is no board's console; "" if nothing says so.

    Such a tty is opened only if somebody names it.
    """
    if tty in _text(root / "sys/class/tty/console/active").split():
        return "the console of this PC's kernel"
    number = _text(root / "sys/class/tty" / tty / "dev")
    for process in processes(root / "proc"):
        uses = any(arg in {tty, f"/dev/{tty}"} for arg in process.arguments)
        if (uses and process.command in _GETTYS) or (number and process.tty == number):
            return f"a login ({_shown(process.command)}, pid {process.pid})"
        if uses and process.command in _WAITERS:
            return f"{process.command} (pid {process.pid})"
    node = root / "sys/class/tty" / tty / "device"
    driver = os.path.basename(os.path.realpath(node / "driver"))
    if driver in _MODEM_DRIVERS:
        return f"a device of driver {driver}"
    for folder in (Path(os.path.realpath(node)), *Path(os.path.realpath(node)).parents):
        if (folder / "idVendor").exists():
            return _claim_of_device(folder)
    return ""


def _claim_of_device(usb_device: Path) -> str:
    words = " ".join(_text(usb_device / name) for name in ("manufacturer", "product"))
    if found := _OTHER_THINGS.search(words):
        return f"something else by its own words ({found[0]})"
    if _text(usb_device / "idVendor") in _GPS_VENDORS:
        return "a satellite receiver"
    if next(usb_device.glob("*/net/*"), None):
        return "a modem: it is a network card too"
    return ""


def _shown(command: str) -> str:
    return "".join(c if c.isprintable() else "?" for c in command)


def _text(path: Path) -> str:
    try:
        return path.read_text(errors="replace").strip()
    except OSError:
        return ""
