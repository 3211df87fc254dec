"""Checks of the serial ports and of what else wants them."""

from __future__ import annotations

import os
import re
import stat
from collections.abc import Iterator
from pathlib import Path

from serialwatch.doctor.machine import Finding, Machine, group_name, text
from serialwatch_drivers.claims import claim_of, udev_properties
from serialwatch_drivers.device import parse_device
from serialwatch_drivers.holder import find_readers
from serialwatch_drivers.identity import Twins, UsbTty, refuse_ambiguous, resolve, stable_name
from serialwatch_drivers.port import PortOpenError

_UDEV_RULES = "60-serialwatch.rules"
_INSTALL_RULES = "sudo cp {} /etc/udev/rules.d/ && sudo udevadm control --reload"
_RULE_FOLDERS = ("etc/udev/rules.d", "run/udev/rules.d", "usr/lib/udev/rules.d", "lib/udev/rules.d")
_BRLTTY_KINDS = {"1a86", "10c4", "0403"}  # vendors whose adapters are in braille displays, too


def check_ports(machine: Machine) -> Iterator[Finding]:
    """Check that each configured port leads to one adapter."""
    dev, sysfs = machine.path("dev"), machine.path("sys")
    for name, port in machine.config.port.items():
        try:
            device = parse_device(port.device)
            if device.scheme in ("usb", "usbid"):
                path = resolve(port.device, sysfs, dev, Twins())
            elif device.scheme == "tty" and device.body.startswith("/"):
                path = str(machine.path(device.body))
                allowed = port.allow_unstable
                refuse_ambiguous(path, allow_unstable=allowed, sysfs=sysfs, dev=dev, twins=Twins())
            else:
                continue
        except PortOpenError as exc:
            problem = exc.problem.removeprefix("open failed: ")
            if exc.kind == "absent":
                yield Finding("ports", "note", f"{name}: {port.device}: {problem}")
            else:
                what, _, remedy = problem.rpartition(": ")
                told = f"{name}: {port.device}: {what}".replace(str(dev), "/dev")
                yield Finding("ports", "wrong", told, remedy.replace(str(dev), "/dev"))
            continue
        if not os.path.exists(path):
            told = f"{name}: {port.device} is not there now"
            yield Finding("ports", "note", told, "plug it in; it is opened by itself then")


def check_rights(machine: Machine) -> Iterator[Finding]:
    """Check that the devices may be opened by whoever asks."""
    if machine.caller.uid == 0:
        yield Finding("rights", "good", "root may open every serial port")
        return
    told: set[int] = set()
    is_fine = False
    for tty in machine.ttys:
        try:
            found = machine.path(f"dev/{tty}").stat()
        except OSError:
            continue
        needed = stat.S_IRGRP | stat.S_IWGRP
        if found.st_gid in machine.caller.groups and found.st_mode & needed == needed:
            is_fine = True
        elif found.st_gid not in told and not found.st_mode & stat.S_IWOTH:
            told.add(found.st_gid)
            yield _denied(machine, tty, found.st_gid, found.st_mode & needed == needed)
    if is_fine and not told:
        yield Finding("rights", "good", f"{machine.caller.user} may open the serial ports")


def _denied(machine: Machine, tty: str, gid: int, is_enough: bool) -> Finding:
    user, group = machine.caller.user, group_name(gid)
    text = f"{user} may not open /dev/{tty}: it belongs to group {group}"
    if not is_enough:
        return Finding(
            "rights", "wrong", f"{text}, which may not write to it", "see your udev rules"
        )
    if gid in machine.caller.entered:
        return Finding(
            "rights", "wrong", f"{text}, which {user} is in since this login", "log in again"
        )
    remedy = f"sudo usermod -aG {group} {user}, then log in again"
    return Finding("rights", "wrong", text, remedy)


def check_modem_manager(machine: Machine, rules: Path | None) -> Iterator[Finding]:
    """Check that ModemManager, which types AT commands into new ports, leaves them alone."""
    if not machine.is_running("ModemManager"):
        yield Finding("modemmanager", "good", "ModemManager does not run")
        return
    open_to_it = []
    for tty in machine.usb_ttys:
        told = udev_properties(tty.tty, machine.root) or {}
        if "1" not in (told.get("ID_MM_PORT_IGNORE"), told.get("ID_MM_DEVICE_IGNORE")):
            open_to_it.append(tty.tty)
    remedy = f"{_INSTALL_RULES.format(rules or _UDEV_RULES)}, then plug the adapters in again"
    if open_to_it:
        names = ", ".join(open_to_it)
        text = f"ModemManager runs and may type AT commands into {names}"
        yield Finding("modemmanager", "wrong", text, remedy)
    elif _is_installed(machine):
        yield Finding("modemmanager", "good", "ModemManager runs and leaves the adapters alone")
    elif not machine.usb_ttys:
        text = "ModemManager runs and would type AT commands into adapters that are plugged in"
        yield Finding("modemmanager", "note", text, remedy)


def check_brltty(machine: Machine, rules: Path | None) -> Iterator[Finding]:
    """Check that brltty, a driver of braille displays, does not take adapters away."""
    files = [
        file
        for folder in _RULE_FOLDERS
        for file in sorted(machine.path(folder).glob("*brltty*.rules"))
        if re.search(r'(?i)ID_VENDOR_ID\}|PRODUCT\}=="(?:1a86|10c4|403)/', text(file))
    ]
    remedy = f"{_INSTALL_RULES.format(rules or _UDEV_RULES)} (or: sudo apt remove brltty)"
    taken = _taken_adapters(machine)
    if taken:
        told = f"adapters are plugged in that have no tty: {', '.join(taken)}"
        is_it = machine.is_running("brltty") or bool(files)
        yield Finding("brltty", "wrong" if is_it else "note", told, remedy if is_it else "")
    elif files and not _is_installed(machine):
        told = f"{files[0].name} gives CH340, CP210x or FTDI adapters to brltty"
        yield Finding("brltty", "wrong" if machine.is_running("brltty") else "note", told, remedy)
    else:
        yield Finding("brltty", "good", "brltty takes no adapter")


def _taken_adapters(machine: Machine) -> list[str]:
    """Return serial adapters that the kernel sees and that have no tty."""
    have = {tty.usb_device for tty in machine.usb_ttys}
    found = []
    for device in sorted(machine.path("sys/bus/usb/devices").glob("*/idVendor")):
        folder, kind = device.parent, f"{text(device)}:{text(device.parent / 'idProduct')}"
        known = {"1a86:7523", "1a86:5523", "10c4:ea60", "0403:6001", "0403:6010", "0403:6011"}
        if kind in known and folder.name not in have:
            found.append(f"{kind} at usb:{folder.name}")
    return found


def _is_installed(machine: Machine) -> bool:
    return any(machine.path(f"{folder}/{_UDEV_RULES}").exists() for folder in _RULE_FOLDERS)


def check_claims(machine: Machine) -> Iterator[Finding]:
    """Check that no login, kernel console or other program uses the configured ports."""
    names = {tty: name for name, tty in machine.configured.items()}
    clear = True
    for tty in machine.ttys:
        claim = claim_of(tty, machine.root)
        if not claim:
            continue
        if tty in names:
            clear = False
            remedy = "name another port in the configuration"
            if claim.startswith("a login"):
                remedy = f"sudo systemctl disable --now serial-getty@{tty}.service"
            elif claim.startswith("the console"):
                remedy = f"take console={tty} out of the kernel's command line"
            yield Finding("logins", "wrong", f"{names[tty]}: /dev/{tty} is {claim}", remedy)
        elif not machine.configured or tty.startswith("ttyUSB"):
            yield Finding("logins", "note", f"/dev/{tty} is {claim}")
    if clear and machine.ttys:
        yield Finding("logins", "good", "no login or console on the ports of the configuration")


def check_twins(machine: Machine) -> Iterator[Finding]:
    """Check that adapters can be told from each other."""
    dev, sysfs = machine.path("dev"), machine.path("sys")
    by_key: dict[tuple[str, str, str, int, int], list[UsbTty]] = {}
    for tty in machine.usb_ttys:
        key = (tty.vendor, tty.product, tty.serial, tty.interface_number, tty.port)
        by_key.setdefault(key, []).append(tty)
    for (vendor, product, serial, _, _), ttys in by_key.items():
        places = [stable_name(str(dev / tty.tty), dev, sysfs) or tty.place for tty in ttys]
        places = [place.replace(str(dev), "/dev") for place in places]
        if len(ttys) < 2 and serial:
            yield Finding("adapters", "good", f"{ttys[0].tty} is {places[0]}")
            continue
        names = ", ".join(tty.tty for tty in ttys)
        if len(ttys) > 1:
            what = f"serial number {serial!r}" if serial else "no serial number"
            told = f"{names} ({vendor}:{product}) cannot be told apart: {what}"
        else:
            told = f"{names} ({vendor}:{product}) has no serial number: only its place names it"
        yield Finding("adapters", "note", told, f"use {' and '.join(places)}")


def check_latency(machine: Machine) -> Iterator[Finding]:
    """Tell which FTDI adapters hand over bytes late."""
    folder = machine.path("sys/bus/usb-serial/devices")
    late = [
        f"{timer.parent.name} ({text(timer)} ms)"
        for timer in sorted(folder.glob("*/latency_timer"))
        if text(timer).isdigit() and int(text(timer)) > 2
    ]
    if late:
        told = f"FTDI adapters hand over bytes late: {', '.join(late)}; times of lines are as wrong"
        remedy = "echo 1 | sudo tee /sys/bus/usb-serial/devices/ttyUSB*/latency_timer"
        yield Finding("latency", "note", told, remedy)


def check_readers(machine: Machine) -> Iterator[Finding]:
    """Check that no other program has the ports open."""
    numbers = {}
    for tty in machine.ttys:
        major, _, minor = text(machine.path(f"sys/class/tty/{tty}/dev")).partition(":")
        if major.isdigit() and minor.isdigit():
            numbers[os.makedev(int(major), int(minor))] = tty
    names = {tty: name for name, tty in machine.configured.items()}
    ours = f"(pid {machine.daemon_pid},"
    is_clear = True
    for number, who in find_readers(numbers, machine.path("proc")).items():
        others = ", ".join(w for w in re.split(r"(?<=\)), ", who) if ours not in w)
        if not others:
            continue
        tty = numbers[number]
        is_clear = False
        told = f"/dev/{tty} is open in {others}"
        if tty in names:
            remedy = "close it there: two programs share the bytes of a port"
            yield Finding("openers", "wrong", f"{names[tty]}: {told}", remedy)
        else:
            yield Finding("openers", "note", told)
    if is_clear and numbers:
        seen = "" if machine.caller.uid == 0 else " (as far as you may see: root sees all)"
        yield Finding("openers", "good", f"no other program has a port open{seen}")
