"""Which adapter is which: names that survive a replug, and the paths they lead to today."""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol, runtime_checkable

from serialwatch_drivers.device import parse_device
from serialwatch_drivers.port import PortOpenError

SYSFS = Path("/sys")
DEV = Path("/dev")

_Key = tuple[str, str, str, int, int]


@dataclass(frozen=True, slots=True)
class Identity:
    """What tells a device from another that has, or had, the same name."""

    node: tuple[int, int]  # file system and inode
    number: int  # major and minor
    place: str  # in sysfs; "" for what is not in there, e.g. ptys


@runtime_checkable
class Identified(Protocol):
    """A port of a device that can be told from others."""

    @property
    def identity(self) -> Identity | None:
        """What tells the device that is open from another at the same path."""


def identify(path: str | int, sysfs: Path = SYSFS) -> Identity | None:
    """Return the identity of the device at a path, or of an open descriptor; None: it is gone."""
    try:
        found = os.stat(path)
    except OSError:
        return None
    number = found.st_rdev
    link = sysfs / f"dev/char/{os.major(number)}:{os.minor(number)}"
    place = os.path.realpath(link) if os.path.lexists(link) else ""
    return Identity((found.st_dev, found.st_ino), number, place)


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

    @property
    def place(self) -> str:
        """The name that means this tty and no other: usb:1-2.3:1.0-port0."""
        return f"usb:{self.interface}-port{self.port}"


def stable_name(path: str, dev: Path = DEV, sysfs: Path = SYSFS) -> str | None:
    """Return the link that leads to this adapter after a replug too, None if there is none.

    It is the by-id link if that can mean only this adapter, else the by-path link, which names the
    socket it is plugged into.
    """
    by_id = _links_to(path, dev / "serial/by-id")
    by_path = _links_to(path, dev / "serial/by-path")
    if by_id and not _may_mean_another(path, dev, sysfs):
        return by_id[0]
    return by_path[0] if by_path else None


class Twins:
    """Adapters that said they were the same as another, seen at the same time.

    From then on their name means neither: when one is unplugged, the other is not taken for it.
    """

    def __init__(self) -> None:
        self._keys: set[_Key] = set()

    def look(self, ttys: Sequence[UsbTty]) -> None:
        """Note the twins among `ttys`."""
        counts = Counter(_by_id_key(tty) for tty in ttys)
        self._keys.update(key for key, count in counts.items() if count > 1 and key[2])

    def __contains__(self, tty: UsbTty) -> bool:
        return _by_id_key(tty) in self._keys


TWINS = Twins()


def resolve(device: str, sysfs: Path = SYSFS, dev: Path = DEV, twins: Twins = TWINS) -> str:
    """Return the path that `device` leads to now.

    `usb:1-2.3:1.0` is a place (`usb:1-2.3:1.0-port1` if an interface has several ttys),
    `usbid:VID:PID:SERIAL[:IF]` an adapter wherever it is plugged in (`IF`: the interface number, if
    it has several ttys). Anything else is a path already.

    Raises:
        PortOpenError: nothing fits (`absent`), several do or the name makes no sense (`broken`).

    """
    name = parse_device(device)
    if name.scheme not in ("usb", "usbid"):
        return name.body
    ttys = usb_ttys(sysfs)
    twins.look(ttys)
    if name.scheme == "usb":
        found = [
            tty
            for tty in ttys
            if name.body in {tty.interface, tty.usb_device, tty.place.removeprefix("usb:")}
        ]
    else:
        found = _with_identity(device, name.body, ttys)
    if not found:
        raise PortOpenError(device, "absent", "open failed: no such USB adapter is plugged in")
    if len(found) > 1:
        what = ", ".join(f"{tty.tty} ({tty.place})" for tty in found)
        raise PortOpenError(device, "broken", f"open failed: this name fits several ttys: {what}")
    if name.scheme == "usbid" and found[0] in twins:
        raise PortOpenError(device, "broken", _of_two(found[0], sysfs, dev))
    return str(dev / found[0].tty)


def refuse_ambiguous(
    path: str,
    *,
    allow_unstable: bool,
    sysfs: Path = SYSFS,
    dev: Path = DEV,
    twins: Twins = TWINS,
) -> None:
    """Refuse a by-id link that may lead to another adapter than the one that was meant.

    Raises:
        PortOpenError: several adapters have the link's name, or had it (`broken`); or, unless
            `allow_unstable`, an adapter without a serial number has it: any of its kind would.

    """
    if Path(path).parent != dev / "serial/by-id":
        return
    ttys = usb_ttys(sysfs)
    twins.look(ttys)
    own = _tty_at(path, ttys)
    if own is None:
        if os.path.exists(path) and not ttys and _may_mean_another(path, dev, sysfs):
            problem = "open failed: an adapter without a link of its own is plugged in, so this one"
            problem += " may be its: use a link in /dev/serial/by-path"
            raise PortOpenError(path, "broken", problem)
        return
    same = [tty for tty in ttys if _by_id_key(tty) == _by_id_key(own)]
    if len(same) > 1:
        what = " or ".join(_stable_place(tty, sysfs, dev) for tty in same)
        count = f"{len(same)} adapters say that they are this one"
        serial = f"serial number {own.serial!r}" if own.serial else "without a serial number"
        problem = f"open failed: {count} ({serial}): use {what}"
        raise PortOpenError(path, "broken", problem)
    if own in twins:
        raise PortOpenError(path, "broken", _of_two(own, sysfs, dev))
    if not own.serial and not allow_unstable:
        problem = "open failed: the adapter has no serial number, so any of its kind gets this link"
        place = _stable_place(own, sysfs, dev)
        problem += f": use {place}, or say allow_unstable = true"
        raise PortOpenError(path, "broken", problem)


def is_twin(path: str, opened: str, sysfs: Path = SYSFS, twins: Twins = TWINS) -> bool:
    """Tell whether two devices say that they are the same adapter, and are not."""
    ttys = usb_ttys(sysfs)
    twins.look(ttys)
    one, other = _tty_at(path, ttys), _tty_at(opened, ttys)
    if one is None or other is None or one == other:
        return False
    return _by_id_key(one) == _by_id_key(other)


def _of_two(tty: UsbTty, sysfs: Path, dev: Path) -> str:
    place = _stable_place(tty, sysfs, dev)
    return (
        f"open failed: two adapters with serial number {tty.serial!r} were plugged in, and which "
        f"of them this is cannot be told: use {place} if it is the right one"
    )


def _stable_place(tty: UsbTty, sysfs: Path, dev: Path) -> str:
    """Return the by-path link of a tty, or its place where udev has made none."""
    by_path = _links_to(str(dev / tty.tty), dev / "serial/by-path")
    return by_path[0] if by_path else tty.place


def _tty_at(path: str, ttys: Sequence[UsbTty]) -> UsbTty | None:
    name = Path(os.path.realpath(path)).name
    return next((tty for tty in ttys if tty.tty == name), None)


def usb_ttys(sysfs: Path = SYSFS) -> list[UsbTty]:
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
    own = _tty_at(path, ttys)
    if own is not None:
        return not own.serial or sum(_by_id_key(tty) == _by_id_key(own) for tty in ttys) > 1
    # Without sysfs (in a container): an adapter without a by-id link has lost it to its twin.
    return any(
        not _links_to(str(link), dev / "serial/by-id")
        for link in (dev / "serial/by-path").glob("*-usb*")
    )


def _by_id_key(tty: UsbTty) -> _Key:
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
