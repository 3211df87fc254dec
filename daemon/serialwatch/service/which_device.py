"""Which device a port has open: what stays the same as long as it is the same one."""

from __future__ import annotations

from pathlib import Path

from serialwatch_drivers.identity import SYSFS, Identified, usb_ttys
from serialwatch_drivers.port import Port


def device_words(port: Port | None, sysfs: Path = SYSFS) -> str:
    """Return what tells an open device from another at the same path, "" if none is open.

    A USB adapter is known by its kind and serial number, or by its socket if it has no number.
    Reads files: not for the loop.
    """
    if port is None:
        return ""
    identity = port.identity if isinstance(port, Identified) else None
    if identity is None:
        return port.device
    if not identity.place:  # of a pty: another one may get its name at once
        return f"{port.device} {identity.number} {identity.node[1]}"
    name = Path(identity.place).name
    for tty in usb_ttys(sysfs):
        if tty.tty == name:
            which = tty.serial or f"in {tty.usb_device}"
            return f"usb {tty.vendor}:{tty.product} {which} if{tty.interface_number}.{tty.port}"
    return identity.place
