"""This PC as the checks see it: folders below a root, and what no file tells."""

from __future__ import annotations

import ctypes
import grp
import os
import platform
import pwd
import shutil
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Literal

from serialwatch.config import Config
from serialwatch_drivers.claims import Process, processes
from serialwatch_drivers.identity import UsbTty, usb_ttys

State = Literal["good", "note", "wrong"]

_TIME_ERROR = 5  # of adjtimex: nothing keeps the clock


@dataclass(frozen=True, slots=True)
class Finding:
    """What one check found."""

    check: str  # its name
    state: State  # note: worth knowing, wrong: something will not work
    text: str
    remedy: str = ""


@dataclass(frozen=True, slots=True)
class Caller:
    """Who asks; `groups` are those of this login, `entered` those of the user's entry."""

    uid: int
    user: str
    groups: frozenset[int]
    entered: frozenset[int]


def text(path: Path) -> str:
    """Return what a file holds, without space around it; "" if it cannot be read."""
    try:
        return path.read_text(errors="replace").strip()
    except OSError:
        return ""


def this_caller() -> Caller:
    """Return who runs this command."""
    uid = os.geteuid()
    try:
        user = pwd.getpwuid(uid)
        entered = os.getgrouplist(user.pw_name, user.pw_gid)
        name = user.pw_name
    except (KeyError, OSError):
        entered, name = [], f"uid {uid}"
    return Caller(uid, name, frozenset([*os.getgroups(), os.getegid()]), frozenset(entered))


def group_name(gid: int) -> str:
    """Return the name of a group, its number if it has none."""
    try:
        return grp.getgrgid(gid).gr_name
    except KeyError:
        return str(gid)


def glibc_version() -> tuple[int, int]:
    """Return the version of glibc, (0, 0) with another C library."""
    name, number = platform.libc_ver()
    parts = number.split(".")
    if name != "glibc" or len(parts) < 2 or not (parts[0] + parts[1]).isdigit():
        return 0, 0
    return int(parts[0]), int(parts[1])


def installed(package: str) -> str:
    """Return the version of an installed package, "" if it is not there."""
    try:
        return version(package)
    except PackageNotFoundError:
        return ""


def ask_clock() -> bool | None:
    """Tell whether something keeps the clock right, as the kernel sees it; None: it does not say.

    The kernel is asked only: `modes` of the request is 0.
    """
    try:
        answer = ctypes.CDLL(None).adjtimex(ctypes.create_string_buffer(512))
    except (OSError, AttributeError):
        return None
    return None if answer < 0 else answer != _TIME_ERROR


@dataclass
class Machine:
    """What the checks look at. Tests give another root and other answers."""

    config: Config
    config_problems: Sequence[str] = ()
    config_path: str = ""
    root: Path = Path("/")
    caller: Caller = field(default_factory=this_caller)
    libc: tuple[int, int] = field(default_factory=glibc_version)
    pyserial: str = field(default_factory=lambda: installed("pyserial"))
    is_clock_kept: bool | None = field(default_factory=ask_clock)
    daemon_pid: int = 0  # of the one that answers, which may have ports open; 0: none
    state_dir: Path | None = None
    free_bytes: int | None = None  # None: asked of the disk of `state_dir`

    @cached_property
    def processes(self) -> Sequence[Process]:
        """Every process."""
        return list(processes(self.root / "proc"))

    @cached_property
    def usb_ttys(self) -> Sequence[UsbTty]:
        """Every tty of a USB adapter."""
        return usb_ttys(self.root / "sys")

    @cached_property
    def ttys(self) -> Sequence[str]:
        """The names of all ttys that may be a serial port."""
        folder = self.root / "sys/class/tty"
        found = [tty.tty for tty in self.usb_ttys]
        for entry in sorted(folder.glob("ttyS*")) + sorted(folder.glob("ttyAMA*")):
            if text(entry / "type") not in ("", "0") or entry.name.startswith("ttyAMA"):
                found.append(entry.name)
        return found

    @cached_property
    def configured(self) -> Mapping[str, str]:
        """Return the tty of each configured port whose path leads to one now, by its port."""
        found = {}
        for name, port in self.config.port.items():
            if port.device.startswith("/dev/"):
                real = os.path.realpath(self.path(port.device))
                if Path(real).name in self.ttys:
                    found[name] = Path(real).name
        return found

    def path(self, absolute: str) -> Path:
        """Return a path of the machine below its root."""
        return self.root / absolute.lstrip("/")

    def is_running(self, command: str) -> bool:
        """Tell whether a program runs; the kernel cuts names to 15 characters."""
        return any(process.command == command[:15] for process in self.processes)

    def free(self) -> int | None:
        """Return how much room there is for logs, None if that cannot be told."""
        if self.free_bytes is not None or self.state_dir is None:
            return self.free_bytes
        folder = self.state_dir
        while not folder.exists() and folder != folder.parent:
            folder = folder.parent
        try:
            return shutil.disk_usage(folder).free
        except OSError:
            return None
