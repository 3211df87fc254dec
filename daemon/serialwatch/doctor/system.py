"""Checks of the machine itself and of what of serialwatch is installed on it."""

from __future__ import annotations

import grp
import os
import termios
from collections.abc import Iterator
from pathlib import Path

from serialwatch.doctor.machine import Finding, Machine, text

_GLIBC_STRICT = (2, 42)  # refuses rates without a constant in the calls that pyserial 3.5 makes
_LEAST_FREE = 1_000_000_000
_UNITS = ("etc/systemd/system", "usr/local/lib/systemd/system", "usr/lib/systemd/system")
_FILES = {  # of the installation, and what is done about an old one
    "serialwatch.sysusers": "usr/lib/sysusers.d/serialwatch.conf",
    "serialwatch.tmpfiles": "usr/lib/tmpfiles.d/serialwatch.conf",
}


def check_config(machine: Machine) -> Iterator[Finding]:
    """Check the configuration file."""
    for problem in machine.config_problems:
        yield Finding("config", "wrong", problem, "see `serialwatch config check`")
    if not machine.config_problems:
        count = len(machine.config.port)
        where = machine.config_path or "no file, the defaults"
        yield Finding("config", "good", f"{where}: {count} port{'' if count == 1 else 's'}")


def check_container(machine: Machine) -> Iterator[Finding]:
    """Check that devices that are plugged in show up: in a container they mostly do not."""
    is_inside = any(machine.path(p).exists() for p in (".dockerenv", "run/.containerenv"))
    is_inside |= bool(text(machine.path("run/systemd/container")))
    mounts = text(machine.path("proc/self/mounts")).splitlines()
    kinds = [row.split()[2] for row in mounts if row.split()[1:2] == ["/dev"]]
    is_live = "devtmpfs" in kinds[-1:]
    if is_inside and not is_live:
        told = (
            "this is a container with a /dev of its own: what is plugged in later does not appear"
        )
        remedy = "run serialwatch on the PC itself, or mount its /dev (docker run -v /dev:/dev)"
        yield Finding("container", "wrong", told, remedy)
    elif is_inside:
        told = "this is a container that shares the PC's /dev"
        remedy = "udev's names need /run/udev too, and the container access to the devices' classes"
        yield Finding("container", "note", told, remedy)
    else:
        yield Finding("container", "good", "this is no container")


def check_clock(machine: Machine) -> Iterator[Finding]:
    """Check that the clock is right: times of lines are compared with other machines'."""
    keepers = [n for n in ("chronyd", "ntpd", "systemd-timesyncd") if machine.is_running(n)]
    if machine.path("run/systemd/timesync/synchronized").exists() or machine.is_clock_kept:
        yield Finding("clock", "good", "the clock is kept right")
    elif keepers:
        told = f"the clock is not right yet ({keepers[0]} runs)"
        yield Finding("clock", "note", told, "see `timedatectl` or `chronyc tracking`")
    elif machine.is_clock_kept is not None:
        told = "nothing keeps the clock right: times will not fit those of other machines"
        yield Finding("clock", "note", told, "sudo timedatectl set-ntp true")


def check_rates(machine: Machine) -> Iterator[Finding]:
    """Tell whether other programs can use the bit rates of the configuration."""
    odd = sorted(
        {p.bit_rate for p in machine.config.port.values() if not hasattr(termios, f"B{p.bit_rate}")}
    )
    if not odd or machine.libc < _GLIBC_STRICT or not machine.pyserial.startswith("3.5"):
        return
    version = ".".join(map(str, machine.libc))
    rates = ", ".join(map(str, odd))
    told = (
        f"glibc {version} with pyserial {machine.pyserial}: other programs cannot set {rates} bit/s"
    )
    yield Finding("bit rates", "note", told, "serialwatch sets them itself; attach to it instead")


def check_disk(machine: Machine) -> Iterator[Finding]:
    """Check that there is room for logs."""
    free = machine.free()
    if free is None:
        return
    where = machine.state_dir or Path("?")
    room = f"{free / 1e9:.1f} GB"
    if free < _LEAST_FREE:
        told = f"{where}: only {room} are left: logging stops when the disk is full"
        yield Finding("disk", "wrong", told, "make room, or lower keep_bytes in [log]")
    elif free < machine.config.log.keep_bytes - _size(where / "log"):
        told = f"{where}: {room} are left, and logs may grow to "
        told += f"{machine.config.log.keep_bytes / 1e9:.1f} GB"
        yield Finding("disk", "note", told, "lower keep_bytes in [log]")
    else:
        yield Finding("disk", "good", f"{where}: {room} are left")


def check_unit(machine: Machine, shipped: Path) -> Iterator[Finding]:
    """Check that what is installed of the service is of this version."""
    units = [machine.path(f"{folder}/serialwatch.service") for folder in _UNITS]
    unit = next((unit for unit in units if unit.exists()), None)
    if unit is None:
        told = "serialwatch is not installed as a service"
        remedy = "sudo serialwatch install, see README, As a service"
        yield Finding("service", "note", told, remedy)
        return
    pairs = [(shipped / "serialwatch.service", unit)]
    pairs += [(shipped / name, machine.path(place)) for name, place in _FILES.items()]
    pairs += [
        (shipped / "60-serialwatch.rules", machine.path("etc/udev/rules.d/60-serialwatch.rules"))
    ]
    is_clear = True
    for new, old in pairs:
        if old.exists() and text(old) != text(new):
            is_clear = False
            place = "/" + str(old.relative_to(machine.root))
            told = f"{place} is not that of this version"
            if place.endswith(".rules"):
                told += f", or has your own changes: compare it with {new}"
                remedy = "sudo serialwatch install --force puts in that of this version"
            else:
                told += " (your own changes belong in a drop-in)"
                remedy = "sudo serialwatch install"
            yield Finding("service", "note", told, remedy)
    if is_clear:
        yield Finding("service", "good", "the unit is of this version")
    yield from _service_user(machine)


def _service_user(machine: Machine) -> Iterator[Finding]:
    """Check that the service's user is in the groups that it needs."""
    members = {
        fields[0]: fields[3].split(",")
        for row in text(machine.path("etc/group")).splitlines()
        if len(fields := row.split(":")) == 4
    }
    if "serialwatch" in members and "serialwatch" not in members.get("dialout", ["serialwatch"]):
        told = "user serialwatch is not in group dialout; the unit adds it, other starts do not"
        yield Finding("service", "note", told, "sudo systemd-sysusers")


def check_kernel_log(machine: Machine) -> Iterator[Finding]:
    """Check that what the kernel says about adapters can be read."""
    if _can_read(machine.path("dev/kmsg")):
        yield Finding("kernel log", "good", "what the kernel says of adapters can be read")
        return
    journals = [machine.path("var/log/journal"), machine.path("run/log/journal")]
    gids = {folder.stat().st_gid for folder in journals if folder.is_dir()}
    groups = machine.caller.groups
    if groups & gids or any(_name(gid) in ("systemd-journal", "adm") for gid in groups):
        yield Finding("kernel log", "good", "the kernel's messages can be read from the journal")
    else:
        told = "what the kernel says of adapters cannot be read: reports go without it"
        remedy = f"sudo usermod -aG systemd-journal {machine.caller.user}, then log in again"
        yield Finding("kernel log", "note", told, remedy)


def _can_read(path: Path) -> bool:
    try:
        os.close(os.open(path, os.O_RDONLY | os.O_NONBLOCK))
    except OSError:
        return False
    return True


def _name(gid: int) -> str:
    try:
        return grp.getgrgid(gid).gr_name
    except KeyError:
        return ""


def _size(folder: Path) -> int:
    total = 0
    for file in folder.glob("*/*"):
        try:
            total += file.stat().st_size
        except OSError:
            continue
    return total
