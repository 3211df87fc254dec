"""Ports for adapters that nobody named and `[discover]` covers."""

from __future__ import annotations

import asyncio
import logging
import os
from collections.abc import Awaitable, Callable, Iterable, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path

from serialwatch.capture.discover import Discovered, Look, look, port_of
from serialwatch.capture.path_watch import tty_nodes, ttys_change
from serialwatch.config import Config, DiscoverConfig
from serialwatch.service.look_up import InThread
from serialwatch.service.ports import Ports
from serialwatch_drivers.device import parse_device
from serialwatch_drivers.identity import TWINS, Twins, UsbTty, resolve, usb_ttys
from serialwatch_drivers.port import PortOpenError

log = logging.getLogger(__name__)

LOOK_S = 30.0  # between two looks though nothing came: a login may have ended
SETTLE_S = 0.2  # while udev is still busy with an adapter
SETTLES = 25  # looks at an adapter that udev does not finish
MAX_DISCOVERED = 64  # ports


class Discovery:
    """Knows the ports that were discovered, and looks for more."""

    def __init__(
        self,
        ports: Ports,
        in_thread: InThread,
        root: Path = Path("/"),
        twins: Twins = TWINS,
    ) -> None:
        self._ports = ports
        self._in_thread = in_thread
        self._root = root
        self._twins = twins
        self._known: dict[str, Discovered] = {}  # by name of its port
        self._told: dict[str, str] = {}  # by tty: why it was left alone
        self._patterns: dict[str, DiscoverConfig] = {}

    async def look(self, config: Config) -> Look:
        """Look once, and remember what is found for `extended`."""
        devices = [port.device for port in config.port.values()]
        opened = [port.reader.port.device for port in self._ports if port.reader.port]
        seen = await self._in_thread(partial(self._look, config, devices, opened))
        for found in seen.found:
            if found.name in config.port or found.name in self._known:
                continue
            if len(self._known) >= MAX_DISCOVERED:
                self._tell(found.tty, f"there are {MAX_DISCOVERED} discovered ports already")
                continue
            log.info("%s: discovered: %s (%s)", found.name, found.device, found.tty)
            self._known[found.name] = found
        for tty in self._told.keys() - seen.left_alone.keys():
            del self._told[tty]
        for tty, why in seen.left_alone.items():
            self._tell(tty, f"it is {why}")
        return seen

    def extended(self, config: Config) -> Config:
        """Return a configuration with the ports that were discovered and that it still covers."""
        devices = {port.device for port in config.port.values()}
        for name, found in list(self._known.items()):
            pattern = config.discover.get(found.pattern)
            if (
                pattern is None
                or _selects(pattern) != _selects(self._patterns.get(found.pattern, pattern))
                or (name in config.port and config.port[name].device != found.device)
                or (name not in config.port and found.device in devices)
            ):
                del self._known[name]
        self._patterns = dict(config.discover)
        more = {
            name: port_of(found, config.discover[found.pattern])
            for name, found in self._known.items()
        }
        return replace(config, port=config.port | more)

    async def run(self, config: Callable[[], Config], add: Callable[[], Awaitable[None]]) -> None:
        """Look whenever an adapter comes, until cancelled; `add` opens what is new."""
        settles = 0
        while True:
            dev = self._root / "dev"
            before = tty_nodes(dev)
            limit_s = LOOK_S
            if config().discover:
                known = len(self._known)
                seen = await self.look(config())
                if len(self._known) > known:
                    await add()
                settles = 0 if seen.is_complete else settles + 1
                limit_s = SETTLE_S if 0 < settles <= SETTLES else LOOK_S
            try:
                async with asyncio.timeout(limit_s):
                    await ttys_change(dev, before)
            except TimeoutError:
                continue
            settles = 0

    def _look(self, config: Config, devices: Sequence[str], opened: Iterable[str]) -> Look:
        ttys = usb_ttys(self._root / "sys")
        taken = {Path(device).name for device in opened}
        for device in devices:
            taken.update(self._meant(device, ttys))
        return look(config.discover, taken, self._root, self._twins)

    def _meant(self, device: str, ttys: Sequence[UsbTty]) -> Iterable[str]:
        """Return the ttys that a configured device leads to, or may."""
        asked = parse_device(device)
        if asked.scheme == "tty":
            name = Path(os.path.realpath(asked.body)).name
            own = next((tty for tty in ttys if tty.tty == name), None)
            return [
                name,
                *(tty.tty for tty in ttys if own and _kind(tty) == _kind(own) and tty.serial),
            ]
        if asked.scheme not in ("usb", "usbid"):
            return []
        try:
            path = resolve(device, self._root / "sys", self._root / "dev", self._twins)
        except PortOpenError:
            wanted = asked.body.lower()
            return [
                tty.tty
                for tty in ttys
                if wanted.startswith(f"{tty.vendor}:{tty.product}:{tty.serial.lower()}")
                or tty.usb_device == asked.body
            ]
        return [Path(path).name]

    def _tell(self, tty: str, why: str) -> None:
        if self._told.get(tty) != why:
            self._told[tty] = why
            log.info("%s: not opened, though [discover] covers it: %s", tty, why)


def _kind(tty: UsbTty) -> tuple[str, str, str, int, int]:
    return tty.vendor, tty.product, tty.serial, tty.interface_number, tty.port


def _selects(pattern: DiscoverConfig) -> tuple[str, str, str, str]:
    return pattern.usb, pattern.driver, pattern.serial, pattern.place
