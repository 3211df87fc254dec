"""Adapters that nobody named, but that `[discover]` covers: which they are, and their names.

Nothing is opened here. A tty that is a login, the PC's console, a modem or the like is left alone.
"""

from __future__ import annotations

import hashlib
import os
import re
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass, fields
from fnmatch import fnmatchcase
from pathlib import Path

from serialwatch.config import MAX_PORT_NAME, DiscoverConfig, PortConfig
from serialwatch_drivers.claims import claim_of, udev_properties
from serialwatch_drivers.identity import TWINS, Twins, UsbTty, usb_ttys

_OF_BOTH = [f.name for f in fields(PortConfig) if f.name in DiscoverConfig.__dataclass_fields__]


@dataclass(frozen=True, slots=True)
class Discovered:
    """A tty that a pattern covers."""

    name: str  # of its port; the same whenever the adapter is there
    device: str
    pattern: str  # name of the pattern
    tty: str  # as it is called now


@dataclass(frozen=True, slots=True)
class Look:
    """What one look at the adapters has shown."""

    found: tuple[Discovered, ...]
    left_alone: Mapping[str, str]  # by tty that a pattern covers: why it is not taken
    is_complete: bool  # False: udev is still busy with some


def look(
    patterns: Mapping[str, DiscoverConfig],
    taken: Collection[str],
    root: Path = Path("/"),
    twins: Twins = TWINS,
) -> Look:
    """Return the ttys that a pattern covers and nobody has; `taken` are ttys, e.g. ttyUSB0."""
    sysfs = root / "sys"
    ttys = usb_ttys(sysfs)
    twins.look(ttys)
    found: dict[str, Discovered] = {}
    left_alone: dict[str, str] = {}
    is_complete = True
    for tty in ttys:
        pattern = next((n for n, p in patterns.items() if fits(p, tty, sysfs)), None)
        if pattern is None or tty.tty in taken:
            continue
        if not os.path.lexists(root / "dev" / tty.tty) or not _is_settled(tty, root):
            is_complete = False
        elif claim := claim_of(tty.tty, root):
            left_alone[tty.tty] = claim
        else:
            for name, device in _names(pattern, tty, sysfs, twins):
                if name not in found:
                    found[name] = Discovered(name, device, pattern, tty.tty)
                    break
    return Look(tuple(found.values()), left_alone, is_complete)


def fits(pattern: DiscoverConfig, tty: UsbTty, sysfs: Path) -> bool:
    """Tell whether a pattern covers a tty: all that it says must be so."""
    node = sysfs / "class/tty" / tty.tty / "device"
    asked = (
        (pattern.usb.lower(), f"{tty.vendor}:{tty.product}"),
        (pattern.driver, os.path.basename(os.path.realpath(node / "driver"))),
        (pattern.serial, tty.serial),
        (pattern.place, tty.usb_device),
    )
    said = [(wanted, there) for wanted, there in asked if wanted]
    return bool(said) and all(fnmatchcase(there, wanted) for wanted, there in said)


def port_of(found: Discovered, pattern: DiscoverConfig) -> PortConfig:
    """Return the configuration of a port that was discovered."""
    of_both = {name: getattr(pattern, name) for name in _OF_BOTH}
    return PortConfig(name=found.name, device=found.device, **of_both)


def _is_settled(tty: UsbTty, root: Path) -> bool:
    """Tell whether udev has dealt with a tty: before that a login may still be started on it."""
    return not (root / "run/udev/data").exists() or udev_properties(tty.tty, root) is not None


def _names(pattern: str, tty: UsbTty, sysfs: Path, twins: Twins) -> Iterator[tuple[str, str]]:
    """Yield names for the port and what leads to it: by serial number, else by place."""
    part = _part(tty, sysfs)
    if tty.serial and tty not in twins and not tty.port:
        number = f":{tty.interface_number}" if part else ""
        device = f"usbid:{tty.vendor}:{tty.product}:{tty.serial}{number}"
        yield _shortened(f"{pattern}-{tty.serial}{part}"), device
    place = tty.usb_device.replace(".", "_")
    yield _shortened(f"{pattern}-at-{place}{part}"), tty.place


def _part(tty: UsbTty, sysfs: Path) -> str:
    """Return what tells the ttys of one adapter apart, by what it has and not by what is up yet."""
    node = Path(os.path.realpath(sysfs / "class/tty" / tty.tty / "device"))
    count = ""
    for folder in node.parents:
        try:
            count = (folder / "bNumInterfaces").read_text().strip()
            break
        except OSError:
            continue
    part = f"-{tty.interface_number}" if count.isdigit() and int(count) > 1 else ""
    return f"{part}-p{tty.port}" if tty.port else part


def _shortened(name: str) -> str:
    plain = re.sub(r"[^a-z0-9_]+", "-", name.lower()).strip("-")
    if plain == name.lower() and len(plain) <= MAX_PORT_NAME:
        return plain
    # Two that differ only in what had to go must not become one.
    mark = hashlib.sha256(name.encode(errors="replace")).hexdigest()[:6]
    return f"{plain[: MAX_PORT_NAME - 7].rstrip('-')}-{mark}"
