"""What the PC's own kernel says about USB and serial adapters, as far as we may read it.

/dev/kmsg where it can be opened, else `journalctl`, for which membership in group systemd-journal
is enough: a service with ProtectKernelLogs= reads the journal's files, not the kernel's buffer.
"""

from __future__ import annotations

import asyncio
import contextlib
import errno
import json
import logging
import os
import re
import shutil
import subprocess
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

log = logging.getLogger(__name__)

KMSG = Path("/dev/kmsg")
MAX_TEXT = 200  # characters of a message that are kept
MAX_RECORD = 8192  # bytes; the kernel's are shorter
RECORDS_A_TURN = 100  # the loop gets its turn between
ROW_LIMIT = 64 * 1024  # bytes of one row of journalctl
FIRST_WAIT_S = 5.0  # before journalctl is started again
LAST_WAIT_S = 300.0
_JOURNALCTL = ("--dmesg", "--follow", "--lines=0", "--output=json", "--no-pager", "--quiet")
_OURS = re.compile(
    r"usb|tty|hub |xhci|ehci|ohci|uhci|dwc|serial|brltty|over-?current", re.IGNORECASE
)
_WORD = re.compile(r"[\w.:-]+")
_USB_DEVICE = re.compile(r"\d+-[\d.]+|usb\d+")
_PCI = re.compile(r"[0-9a-f]{4}:[0-9a-f]{2}:[0-9a-f]{2}\.\d")


@dataclass(frozen=True, slots=True)
class KernelMessage:
    """One message of the PC's kernel."""

    utc_ns: int
    text: str  # printable, at most 200 characters


class HostPlace:
    """Where a tty is: what the kernel calls it, its adapter and all that it hangs on.

    `place` is its path in sysfs.
    """

    def __init__(self, place: str) -> None:
        parts = Path(place).parts
        self.tty = parts[-1] if parts else ""
        self._names = {
            part for part in parts if _USB_DEVICE.fullmatch(part) or _PCI.fullmatch(part)
        }
        self._names |= {name for part in set(self._names) if (name := _hub_port(part))}

    def is_meant(self, text: str, *, by_tty: bool) -> bool:
        """Tell whether a message is about it; `by_tty`: the number of its tty is still its own."""
        for word in _WORD.findall(text):
            name = word.rstrip(":.,")
            if name in self._names or name.partition(":")[0] in self._names:
                return True
            if by_tty and self.tty and name == self.tty:
                return True
        return False


def _hub_port(device: str) -> str:
    """Return what the kernel calls the hub's port that a device is plugged into: 1-2-port3."""
    hub, dot, port = device.rpartition(".")
    if dot and "-" in hub:
        return f"{hub}-port{port}"
    bus, dash, port = device.partition("-")
    return f"usb{bus}-port{port}" if dash else ""


def parse_kmsg(record: bytes, now_utc_ns: int, now_mono_ns: int) -> KernelMessage | None:
    """Return the message of a record of /dev/kmsg, None if it is none or not about adapters."""
    head, _, rest = record.partition(b";")
    fields = head.split(b",")
    if len(fields) < 3 or not fields[0].isdigit() or not fields[2].isdigit():
        return None
    if int(fields[0]) >> 3:  # not the kernel's: somebody wrote it there
        return None
    text = _clean(rest.partition(b"\n")[0].decode("utf-8", errors="replace"))
    if not _OURS.search(text):
        return None
    return KernelMessage(now_utc_ns - now_mono_ns + int(fields[2]) * 1000, text)


def parse_journal(row: bytes) -> KernelMessage | None:
    """Return the message of a row of `journalctl --output=json`, as `parse_kmsg` does."""
    try:
        told = json.loads(row)
        text, at_us = told["MESSAGE"], int(told["__REALTIME_TIMESTAMP"])
    except (ValueError, KeyError, TypeError):
        return None
    if isinstance(text, list):  # what is not UTF-8 comes as numbers
        with contextlib.suppress(ValueError, TypeError):
            text = bytes(text).decode("utf-8", errors="replace")
    if not isinstance(text, str):
        return None
    text = _clean(text)
    return KernelMessage(at_us * 1000, text) if _OURS.search(text) else None


class HostKernel:
    """Follows the kernel's messages from now on."""

    def __init__(
        self,
        on_message: Callable[[KernelMessage], None],
        kmsg: Path = KMSG,
        journalctl: str | None = None,
    ) -> None:
        """Prepare; `journalctl` is the program, None: the one that is installed."""
        self._on_message = on_message
        self._kmsg = kmsg
        self._journalctl = journalctl
        self.lost = 0  # messages that came faster than they were read
        self.source = ""  # what is read; "" while nothing is

    async def run(self) -> None:
        """Tell messages until cancelled; without anything that may be read, just wait."""
        try:
            fd = os.open(self._kmsg, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
        except OSError as exc:
            log.debug("%s: cannot be read: %s", self._kmsg, exc.strerror)
        else:
            await self._follow_kmsg(fd)
            return
        program = self._journalctl or shutil.which("journalctl")
        if program is None:
            log.info("what this PC's kernel says of adapters cannot be read")
            await asyncio.Event().wait()
            return
        wait_s = FIRST_WAIT_S
        while True:
            began = time.monotonic()
            try:
                await self._follow_journal(program)
            finally:
                self.source = ""
            if time.monotonic() - began > LAST_WAIT_S:
                wait_s = FIRST_WAIT_S
            await asyncio.sleep(wait_s)
            wait_s = min(2 * wait_s, LAST_WAIT_S)

    async def _follow_kmsg(self, fd: int) -> None:
        loop = asyncio.get_running_loop()
        try:
            with contextlib.suppress(OSError):  # a pipe, in a test
                os.lseek(fd, 0, os.SEEK_END)
            self.source = str(self._kmsg)
            ended = loop.create_future()
            loop.add_reader(fd, self._read_kmsg, fd, ended)
            await ended
        finally:
            self.source = ""
            loop.remove_reader(fd)
            os.close(fd)

    def _read_kmsg(self, fd: int, ended: asyncio.Future[None]) -> None:
        for _ in range(RECORDS_A_TURN):
            try:
                record = os.read(fd, MAX_RECORD)
            except BlockingIOError:
                return
            except OSError as exc:
                if exc.errno == errno.EPIPE:  # overwritten before we came
                    self.lost += 1
                    continue
                if exc.errno == errno.EINVAL:  # longer than any should be
                    continue
                record = b""
            if not record:
                if not ended.done():
                    ended.set_result(None)
                return
            message = parse_kmsg(record, time.time_ns(), time.monotonic_ns())
            if message is not None:
                self._on_message(message)

    async def _follow_journal(self, program: str) -> None:
        """Return when journalctl ends."""
        child = await asyncio.create_subprocess_exec(
            program,
            *_JOURNALCTL,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            limit=ROW_LIMIT,
        )
        assert child.stdout is not None
        self.source = program
        try:
            while True:
                try:
                    row = await child.stdout.readline()
                except ValueError:  # longer than `ROW_LIMIT`: that part of it is dropped
                    self.lost += 1
                    continue
                if not row:
                    return
                message = parse_journal(row)
                if message is not None:
                    self._on_message(message)
        finally:
            with contextlib.suppress(ProcessLookupError):
                child.kill()
            await child.wait()


def _clean(text: str) -> str:
    """Return text without what could steer a terminal; a device names itself in some messages."""
    shown = text if len(text) <= MAX_TEXT else text[: MAX_TEXT - 1] + "…"
    return "".join(c if c.isprintable() else "?" for c in shown)
