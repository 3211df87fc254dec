"""Which adapter is which: names that survive a replug, and the paths they lead to today."""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path

from serialwatch_drivers.device import parse_device
from serialwatch_drivers.port import PortOpenError

_SYSFS = Path("/sys")
_DEV = Path("/dev")


@dataclass(frozen=True, slots=True)
class UsbTty:
    """A tty of a USB adapter."""

    tty: str  # ttyUSB0
    interface: str  # 1-2.3:1.0
    vendor: str  # four hex digits
    product: str  # four hex digits
    serial: str  # "" if the adapter has none
    interface_number: int
    port: int  # counts from 0 where one interface has several

    @property
    def usb_device(self) -> str:
        """The adapter's place: 1-2.3."""
        return self.interface.partition(":")[0]


def stable_name(path: str, dev: Path = _DEV, sysfs: Path = _SYSFS) -> str | None:
    """Return the link that leads to this adapter after a replug too, None if there is none.

    It is the by-id link if that can mean only this adapter, else the by-path link, which names the
    socket it is plugged into.
    """
    by_id = _links_to(path, dev / "serial/by-id")
    by_path = _links_to(path, dev / "serial/by-path")
    if by_id and not _may_mean_another(path, dev, sysfs):
        return by_id[0]
    return by_path[0] if by_path else None


def resolve(device: str, sysfs: Path = _SYSFS, dev: Path = _DEV) -> str:
    """Return the path that `device` leads to now.

    `usb:1-2.3:1.0` is a place, `usbid:VID:PID:SERIAL[:IF]` an adapter wherever it is plugged in
    (`IF`: the interface number, if it has several ttys). Anything else is a path already.

    Raises:
        PortOpenError: nothing fits (`absent`), several do or the name makes no sense (`broken`).

    """
    name = parse_device(device)
    if name.scheme == "usb":
        found = [tty for tty in usb_ttys(sysfs) if name.body in {tty.interface, tty.usb_device}]
    elif name.scheme == "usbid":
        found = _with_identity(device, name.body, usb_ttys(sysfs))
    else:
        return name.body
    if not found:
        raise PortOpenError(device, "absent", "open failed: no such USB adapter is plugged in")
    if len(found) > 1:
        what = ", ".join(f"{tty.tty} (usb:{tty.interface})" for tty in found)
        raise PortOpenError(device, "broken", f"open failed: this name fits several ttys: {what}")
    return str(dev / found[0].tty)


def usb_ttys(sysfs: Path = _SYSFS) -> list[UsbTty]:
    """Return every tty of every USB adapter, ordered by place."""
    found = []
    for entry in (sysfs / "class/tty").glob("tty*/device"):
        node = entry.resolve()
        for folder in (node, *node.parents):
            if (folder / "bInterfaceNumber").exists():
                found.append(_usb_tty(entry.parent.name, node, folder))
                break
    return sorted(found, key=lambda tty: (tty.interface, tty.port))


def _usb_tty(tty: str, node: Path, interface: Path) -> UsbTty:
    usb_device = interface.parent
    return UsbTty(
        tty=tty,
        interface=interface.name,
        vendor=_attribute(usb_device / "idVendor"),
        product=_attribute(usb_device / "idProduct"),
        serial=_attribute(usb_device / "serial"),
        interface_number=int(_attribute(interface / "bInterfaceNumber") or "0", 16),
        port=int(_attribute(node / "port_number") or "0"),
    )


def _with_identity(device: str, body: str, ttys: list[UsbTty]) -> list[UsbTty]:
    vendor, _, rest = body.lower().partition(":")
    product, _, wanted = rest.partition(":")
    if not _is_hex(vendor) or not _is_hex(product):
        problem = "write usbid:VID:PID:SERIAL, VID and PID as four hex digits (see lsusb)"
        raise PortOpenError(device, "broken", problem)
    wanted = body[len(vendor) + len(product) + 2 :]
    if not wanted:
        problem = "an empty serial number fits any adapter of this kind (use usb: and its place)"
        raise PortOpenError(device, "broken", problem)
    same_kind = [tty for tty in ttys if (tty.vendor, tty.product) == (vendor, product)]
    # A serial number may hold colons (an ESP32 has its MAC address there): try the whole first.
    found = [tty for tty in same_kind if tty.serial == wanted]
    serial, colon, number = wanted.rpartition(":")
    if not found and colon and serial and number.isdigit():
        found = [
            tty for tty in same_kind if tty.serial == serial and tty.interface_number == int(number)
        ]
    return found


def _may_mean_another(path: str, dev: Path, sysfs: Path) -> bool:
    """Tell whether another adapter has, or after a replug may get, the by-id link of this one."""
    ttys = usb_ttys(sysfs)
    own = next((tty for tty in ttys if tty.tty == Path(os.path.realpath(path)).name), None)
    if own is not None:
        return not own.serial or sum(_by_id_key(tty) == _by_id_key(own) for tty in ttys) > 1
    # Without sysfs (in a container): an adapter without a by-id link has lost it to its twin.
    return any(
        not _links_to(str(link), dev / "serial/by-id")
        for link in (dev / "serial/by-path").glob("*-usb*")
    )


def _by_id_key(tty: UsbTty) -> tuple[str, str, str, int, int]:
    return tty.vendor, tty.product, tty.serial, tty.interface_number, tty.port


def _links_to(path: str, folder: Path) -> list[str]:
    try:
        links = sorted(folder.iterdir())
    except OSError:
        return []
    real = os.path.realpath(path)
    return [str(link) for link in links if os.path.realpath(link) == real]


def _is_hex(text: str) -> bool:
    return len(text) == 4 and all(c in "0123456789abcdef" for c in text)


def _attribute(path: Path) -> str:
    try:
        return path.read_text(errors="replace").strip()
    except OSError:
        return ""
