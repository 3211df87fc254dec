"""Ports for adapters that nobody named and `[discover]` covers."""

from __future__ import annotations

import asyncio
import datetime as dt
import json
import logging
import os
from collections.abc import Awaitable, Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

from serialwatch.capture.discover import Discovered, Look, look, port_of
from serialwatch.capture.path_watch import tty_nodes, ttys_change
from serialwatch.config import PORT_NAME, Config, DiscoverConfig
from serialwatch.service.look_up import InThread
from serialwatch.service.ports import Ports
from serialwatch.whole_file import write_whole
from serialwatch_drivers.device import parse_device
from serialwatch_drivers.identity import TWINS, Twins, UsbTty, resolve, usb_ttys
from serialwatch_drivers.port import PortOpenError

log = logging.getLogger(__name__)

LOOK_S = 30.0  # between two looks though nothing came: a login may have ended
SETTLE_S = 0.2  # while udev is still busy with an adapter
SETTLES = 25  # looks at an adapter that udev does not finish
MAX_DISCOVERED = 64  # ports
FORGET_DAYS = 30  # after which an adapter that was not seen is no port any more, at a start

_Selects = tuple[str, str, str, str]


@dataclass(slots=True)
class _Known:
    found: Discovered
    selects: _Selects  # of its pattern
    seen: str  # the day when it was there last, UTC


class Discovery:
    """Knows the ports that were discovered, and looks for more."""

    def __init__(
        self,
        ports: Ports,
        in_thread: InThread,
        path: Path,
        root: Path = Path("/"),
        twins: Twins = TWINS,
    ) -> None:
        self._ports = ports
        self._in_thread = in_thread
        self._path = path  # where they are kept
        self._root = root
        self._twins = twins
        self._known: dict[str, _Known] = {}  # by name of its port
        self._kept = ""  # what is in the file
        self._told: dict[str, str] = {}  # by tty: why it was left alone

    def restore(self) -> None:
        """Take up what an earlier run had discovered: it is a port whether it is there or not."""
        try:
            text = self._path.read_text(encoding="utf-8")
            found = [_from_row(row) for row in json.loads(text)["ports"]]
        except FileNotFoundError:
            return
        except (OSError, ValueError, KeyError, TypeError) as exc:
            log.error("%s: ports that were discovered are not known: %s", self._path, exc)
            return
        first_day = (_today() - dt.timedelta(days=FORGET_DAYS)).isoformat()
        for known in found[:MAX_DISCOVERED]:
            if known.seen >= first_day:
                self._known[known.found.name] = known
        self._kept = text

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
            selects = _selects(config.discover[found.pattern])
            self._known[found.name] = _Known(found, selects, _today().isoformat())
        for tty in self._told.keys() - seen.left_alone.keys():
            del self._told[tty]
        for tty, why in seen.left_alone.items():
            self._tell(tty, f"it is {why}")
        await self._keep({found.name for found in seen.found})
        return seen

    def extended(self, config: Config) -> Config:
        """Return a configuration with the ports that were discovered and that it still covers."""
        devices = {port.device for port in config.port.values()}
        for name, known in list(self._known.items()):
            found = known.found
            pattern = config.discover.get(found.pattern)
            if (
                pattern is None
                or _selects(pattern) != known.selects
                or (name in config.port and config.port[name].device != found.device)
                or (name not in config.port and found.device in devices)
            ):
                del self._known[name]
        more = {
            name: port_of(known.found, config.discover[known.found.pattern])
            for name, known in self._known.items()
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

    async def _keep(self, there: set[str]) -> None:
        """Write down which ports there are, and that these adapters are there today."""
        there |= {port.config.name for port in self._ports if port.reader.state == "up"}
        for name in there & self._known.keys():
            self._known[name].seen = _today().isoformat()
        text = json.dumps({"ports": [_to_row(known) for known in self._known.values()]})
        if text == self._kept or not (self._kept or self._known):
            return
        try:
            await self._in_thread(partial(write_whole, self._path, text))
        except OSError as exc:
            log.error("%s: a restart would not know them: %s", self._path, exc.strerror)
        self._kept = text  # else it would be told again and again

    def _tell(self, tty: str, why: str) -> None:
        if self._told.get(tty) != why:
            self._told[tty] = why
            log.info("%s: not opened, though [discover] covers it: %s", tty, why)


def _to_row(known: _Known) -> dict[str, Any]:
    found = known.found
    return {
        "name": found.name,
        "device": found.device,
        "pattern": found.pattern,
        "tty": found.tty,
        "selects": known.selects,
        "seen": known.seen,
    }


def _from_row(row: dict[str, Any]) -> _Known:
    """Raises ValueError, KeyError or TypeError if it is none of ours."""
    name, device, pattern, tty = (str(row[key]) for key in ("name", "device", "pattern", "tty"))
    if not PORT_NAME.fullmatch(name) or parse_device(device).scheme not in ("usb", "usbid"):
        raise ValueError(f"{name!r} at {device!r} was never discovered")
    usb, driver, serial, place = map(str, row["selects"])
    seen = dt.date.fromisoformat(row["seen"]).isoformat()
    return _Known(Discovered(name, device, pattern, tty), (usb, driver, serial, place), seen)


def _today() -> dt.date:
    return dt.datetime.now(dt.UTC).date()


def _kind(tty: UsbTty) -> tuple[str, str, str, int, int]:
    return tty.vendor, tty.product, tty.serial, tty.interface_number, tty.port


def _selects(pattern: DiscoverConfig) -> _Selects:
    return pattern.usb, pattern.driver, pattern.serial, pattern.place
