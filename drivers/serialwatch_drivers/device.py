"""How a device is written: a plain path, or `scheme:body`, some with `?option=value` behind."""

from __future__ import annotations

import re
from dataclasses import dataclass

from serialwatch_drivers.port import PortOpenError

REMOTE = ("socket", "rfc2217")  # schemes
_SCHEME = re.compile(r"([a-z][a-z0-9]*):(.*)", re.DOTALL)


@dataclass(frozen=True, slots=True)
class DeviceName:
    """A device as it was asked for, taken apart."""

    scheme: str  # the entry point of its driver; `tty` for a plain path
    body: str  # what follows the scheme and its colon

    @property
    def is_remote(self) -> bool:
        """Whether a server on the network has the board."""
        return self.scheme in REMOTE


def parse_device(device: str) -> DeviceName:
    """Take a device apart. A path needs no scheme: `/dev/ttyUSB0` is `tty:/dev/ttyUSB0`."""
    match = _SCHEME.fullmatch(device)
    if match is None:
        return DeviceName("tty", device)
    return DeviceName(match[1], match[2])


def split_options(device: str, defaults: dict[str, int]) -> tuple[str, dict[str, int]]:
    """Return the body of `device` without its options, and every option with its number.

    What follows the last `?` are options, so a file with a `?` in its name is written with one
    more at the end.

    Raises:
        PortOpenError: an option that is not in `defaults`, or is no number from 0 up (`broken`).

    """
    body, mark, query = parse_device(device).body.rpartition("?")
    if not mark:
        return query, dict(defaults)
    found = dict(defaults)
    for part in filter(None, query.split("&")):
        option, _, value = part.partition("=")
        if option not in defaults:
            known = ", ".join(sorted(defaults))
            raise PortOpenError(device, "broken", f"unknown option {option!r} (known: {known})")
        if not (value.isascii() and value.isdigit()):
            problem = f"option {option}: {value!r} is not a number from 0 up"
            raise PortOpenError(device, "broken", problem)
        found[option] = int(value)
    return body, found
