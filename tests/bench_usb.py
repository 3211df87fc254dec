"""A bench of USB adapters for tests: a /dev and a /sys, laid out as the kernel and udev do."""

from __future__ import annotations

import asyncio
import contextlib
import os
import shutil
from pathlib import Path

import pytest

from serialwatch.capture import path_watch
from serialwatch_drivers.identity import Twins, refuse_ambiguous, resolve, stable_name


class UsbBench:
    """A /dev and a /sys with USB adapters in them, laid out as the kernel and udev do."""

    def __init__(self, folder: Path) -> None:
        self.dev = folder / "dev"
        self.sysfs = folder / "sys"
        for name in ("by-id", "by-path"):
            (self.dev / "serial" / name).mkdir(parents=True)
        (self.sysfs / "class/tty").mkdir(parents=True)
        self.twins = Twins()
        self._nodes: dict[str, Path] = {}

    def plug(
        self,
        tty: str,
        interface: str,
        *,
        kind: str = "1a86:7523",
        serial: str = "",
        by_id: str = "",
        port: int = 0,
        driver: str = "",
        leads_to: str = "",
    ) -> str:
        vendor, product = kind.split(":")
        usb_device = self.sysfs / "devices/pci0000:00/usb1" / interface.partition(":")[0]
        folder = usb_device / interface
        node = folder if tty.startswith("ttyACM") else folder / tty
        node.mkdir(parents=True, exist_ok=True)
        if driver:
            driver_folder = self.sysfs / "bus/usb-serial/drivers" / driver
            driver_folder.mkdir(parents=True, exist_ok=True)
            (node / "driver").unlink(missing_ok=True)
            (node / "driver").symlink_to(driver_folder)
        (usb_device / "idVendor").write_text(f"{vendor}\n")
        (usb_device / "idProduct").write_text(f"{product}\n")
        if serial:
            (usb_device / "serial").write_text(f"{serial}\n")
        number = int(interface.rpartition(".")[2])
        (folder / "bInterfaceNumber").write_text(f"{number:02x}\n")
        if node is not folder:
            (node / "port_number").write_text(f"{port}\n")
        (node / "tty" / tty).mkdir(parents=True)
        (node / "tty" / tty / "dev").write_text(f"188:{tty.strip('tyUSBACM')}\n")
        self._nodes[tty] = node
        (node / "tty" / tty / "device").symlink_to(node)
        (self.sysfs / "class/tty" / tty).symlink_to(node / "tty" / tty)
        device = self.dev / tty
        if leads_to:
            device.symlink_to(leads_to)
        else:
            device.touch()
        place = interface.partition("-")[2]
        (self.dev / f"serial/by-path/pci-0000:00:14.0-usb-0:{place}-port{port}").symlink_to(device)
        if by_id:
            link = self.dev / "serial/by-id" / by_id
            link.unlink(missing_ok=True)  # udev: the last one wins
            link.symlink_to(device)
        return str(device)

    def unplug(self, tty: str) -> None:
        """Take the tty away, and its links as udev does."""
        (self.sysfs / "class/tty" / tty).unlink()
        shutil.rmtree(self._nodes.pop(tty))
        device = self.dev / tty
        for folder in ("by-id", "by-path"):
            for link in (self.dev / "serial" / folder).iterdir():
                if os.readlink(link) == str(device):
                    link.unlink()
        device.unlink()

    def link(self, by_id: str, tty: str) -> str:
        """Let a by-id link lead to a tty, as udev does when one of twins is gone."""
        link = self.dev / "serial/by-id" / by_id
        link.unlink(missing_ok=True)
        link.symlink_to(self.dev / tty)
        return str(link)

    def name(self, path: str) -> str | None:
        found = stable_name(path, self.dev, self.sysfs)
        return found and found.removeprefix(f"{self.dev}/serial/")

    def find(self, device: str) -> str:
        return resolve(device, self.sysfs, self.dev, self.twins).removeprefix(f"{self.dev}/")

    def refuse(self, by_id: str, *, allow_unstable: bool = False) -> None:
        refuse_ambiguous(
            str(self.dev / "serial/by-id" / by_id),
            allow_unstable=allow_unstable,
            sysfs=self.sysfs,
            dev=self.dev,
            twins=self.twins,
        )


class Looks:
    """Looks for devices that are away: each comes after something was told, or after a while."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.count = 0
        self._loop = asyncio.get_running_loop()
        self._more = asyncio.Event()
        arm = path_watch._FolderWatch.arm

        def counted(watch: path_watch._FolderWatch) -> float:
            left_s = arm(watch)
            with contextlib.suppress(RuntimeError):  # the loop is closed
                self._loop.call_soon_threadsafe(self._add)
            return left_s

        monkeypatch.setattr(path_watch._FolderWatch, "arm", counted)

    async def beyond(self, count: int) -> None:
        """Return when there were more than `count` looks."""
        async with asyncio.timeout(10):
            while self.count <= count:
                self._more.clear()
                await self._more.wait()

    def _add(self) -> None:
        self.count += 1
        self._more.set()
