"""Find the driver of a device through the entry-point group `serialwatch.drivers`."""

from __future__ import annotations

from functools import cache
from importlib.metadata import EntryPoint, entry_points
from typing import cast

from serialwatch_drivers.device import parse_device
from serialwatch_drivers.port import Opener, PortOpenError

GROUP = "serialwatch.drivers"


def find_opener(device: str) -> Opener:
    """Return what opens `device`. The first call reads the installed packages' entry points.

    Raises:
        PortOpenError: no driver has this scheme, or it cannot be imported (`broken`).

    """
    scheme = parse_device(device).scheme
    drivers = _installed()
    if scheme not in drivers:
        known = ", ".join(sorted(drivers))
        problem = f"no driver for {scheme!r} (there are: {known}; a path needs none)"
        raise PortOpenError(device, "broken", problem)
    try:
        return cast(Opener, drivers[scheme].load())
    except (ImportError, AttributeError) as exc:
        problem = f"driver {scheme!r} cannot be loaded from {drivers[scheme].value!r}: {exc}"
        raise PortOpenError(device, "broken", problem) from exc


@cache
def _installed() -> dict[str, EntryPoint]:
    return {driver.name: driver for driver in entry_points(group=GROUP)}
