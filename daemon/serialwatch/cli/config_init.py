"""`serialwatch config init`: a configuration to begin with, which names this PC's adapters."""

from __future__ import annotations

import json
import os
import socket
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import click

from serialwatch.bundled import bundled_dir
from serialwatch.cli.errors import CliError
from serialwatch.cli.options import config_file, json_option, one_file
from serialwatch.cli.tables import safe, say
from serialwatch.config import Config
from serialwatch.config_file import found_config, usual_config
from serialwatch.doctor.machine import Machine, text
from serialwatch.whole_file import write_whole
from serialwatch_drivers.claims import claim_of
from serialwatch_drivers.identity import UsbTty, stable_name

# What people call the adapters and boards of a maker, by its vendor number.
_KINDS = {
    "0403": "ftdi",
    "0451": "ti",
    "0483": "st",
    "067b": "pl2303",
    "0d28": "daplink",
    "0955": "nvidia",
    "10c4": "cp210x",
    "1366": "jlink",
    "1a86": "wch",
    "1fc9": "nxp",
    "2341": "arduino",
    "2e8a": "pico",
    "303a": "esp",
}
_REFERENCE = "# One table a port."  # with it the example begins to explain what a port may say
_OWN = """\
# serialwatch on {host}: begun by `serialwatch config init`, now it is yours. Check it with
# `serialwatch config check`. Every key that is commented out shows its default.
"""
_FOUND = """\
# The adapters that were plugged in. Call them after your boards: people and reports will write
# dut1:L48213. Each is opened as soon as a daemon runs; take out what is no board's console.
"""
_NOTHING_FOUND = """\
# No adapter was plugged in. `serialwatch doctor` tells the name of one, for a table as below.
"""


@dataclass(frozen=True, slots=True)
class Adapter:
    """A serial port that this PC has."""

    name: str  # of its port in the configuration
    device: str  # its name there
    tty: str  # as it is called now
    words: str  # what it says that it is
    claim: str = ""  # why it is no board's console, "" if nothing says so


@click.command("init", short_help="Write a configuration for this PC.")
@config_file
@click.option("--force", is_flag=True, help="Write over a file that is there.")
@json_option
def init_config(path: Path | None, named: Path | None, force: bool, as_json: bool) -> None:
    """Write a commented configuration that names the adapters of this PC.

    It goes to PATH, else where `serialwatch run` looks for it; `-` prints it. No port is opened,
    and what is a login, a modem or the like is left out.
    """
    target = one_file(path, named) or usual_config()
    adapters = find_adapters()
    written = config_text(adapters)
    if str(target) != "-":
        _write(target, written, force)
    if as_json:
        click.echo(json.dumps(_json(target, adapters, written), indent=2))
    elif str(target) == "-":
        click.echo(written, nl=False)
    else:
        _tell(target, adapters)


def find_adapters(root: Path = Path("/")) -> list[Adapter]:
    """Return the adapters that are plugged in, each kind in the order of its places."""
    machine = Machine(Config(), root=root)
    found = [_usb_adapter(tty, machine) for tty in machine.usb_ttys]
    known = {each.tty for each in found}
    found += [
        _linked_adapter(tty, root) for tty in _linked(root) if tty not in known
    ]  # of a container, whose /sys has no USB
    kinds = Counter(each.name for each in found if not each.claim)
    count: Counter[str] = Counter()
    named = []
    for each in found:
        if not each.claim and kinds[each.name] > 1:
            count[each.name] += 1
            each = replace(each, name=f"{each.name}{count[each.name]}")  # noqa: PLW2901
        named.append(each)
    taken = {each.tty for each in named}
    for tty in machine.ttys:
        if tty not in taken:  # a UART of the PC itself
            claim = claim_of(tty, root) or "not taken by itself: it may be anything"
            named.append(Adapter(tty.lower(), f"/dev/{tty}", tty, "a UART of the PC", claim))
    return named


def config_text(adapters: Sequence[Adapter]) -> str:
    """Return a configuration with these adapters, and the explanation of every key."""
    example = (bundled_dir("config") / "serialwatch.toml").read_text(encoding="utf-8")
    general, mark, reference = example.partition(_REFERENCE)
    body = general.partition("\n\n")[2]  # without what it says of itself as an example
    ports = list(_tables(adapters))
    return "\n".join([_OWN.format(host=safe(socket.gethostname())), body + "\n".join(ports),
                      f"{mark}{reference}"])  # fmt: skip


def told_ports(adapters: Sequence[Adapter]) -> str:
    """Return e.g. "2 ports: ftdi, esp"."""
    names = [each.name for each in adapters if not each.claim]
    if not names:
        return "no adapter is plugged in"
    return f"{len(names)} port{'s'[: len(names) != 1]}: {', '.join(names)}"


def _tables(adapters: Sequence[Adapter]) -> Iterator[str]:
    taken = [each for each in adapters if not each.claim]
    yield _FOUND if taken else _NOTHING_FOUND
    for each in taken:
        yield f"# {each.words}; it was {each.tty}"
        yield f"[port.{each.name}]"
        yield f"device = {json.dumps(each.device)}"
        yield "bit_rate = 115200\n"
    for each in adapters:
        if each.claim:
            yield f"# Left out: {each.device}, {each.words}: {each.claim}"
    if len(taken) < len(adapters):
        yield ""


def _usb_adapter(tty: UsbTty, machine: Machine) -> Adapter:
    dev, sysfs = machine.path("dev"), machine.path("sys")
    link = stable_name(str(dev / tty.tty), dev, sysfs)
    device = tty.place if link is None else f"/dev/{Path(link).relative_to(dev)}"
    if not device.isascii():
        device = tty.place
    node = Path(os.path.realpath(sysfs / "class/tty" / tty.tty / "device"))
    folder = next((each for each in node.parents if (each / "idVendor").exists()), node)
    said = " ".join(filter(None, (text(folder / "manufacturer"), text(folder / "product"))))
    words = [said or f"{tty.vendor}:{tty.product}"]
    words.append(f"serial number {tty.serial}" if tty.serial else "no serial number")
    words.append(f"at {tty.usb_device}")
    kind = _KINDS.get(tty.vendor, "usb")
    return Adapter(kind, device, tty.tty, safe(", ".join(words)), safe(_claim(tty.tty, machine)))


def _claim(tty: str, machine: Machine) -> str:
    return claim_of(tty, machine.root)


def _linked_adapter(tty: str, root: Path) -> Adapter:
    dev = root / "dev"
    link = stable_name(str(dev / tty), dev, root / "sys")
    if link is None:
        words = "several adapters may have its name, see `serialwatch doctor`"
        return Adapter(tty.lower(), f"/dev/{tty}", tty, "an adapter", words)
    device = f"/dev/{Path(link).relative_to(dev)}"
    return Adapter("usb", device, tty, "an adapter", safe(claim_of(tty, root)))


def _linked(root: Path) -> list[str]:
    """Return the ttys to which udev's links lead."""
    found = set()
    for folder in ("by-id", "by-path"):
        for link in (root / "dev/serial" / folder).glob("*"):
            found.add(Path(os.path.realpath(link)).name)
    return sorted(found)


def _write(target: Path, written: str, force: bool) -> None:
    if os.path.lexists(target) and not force:
        raise CliError(f"{safe(target)}: is there already: --force writes over it")
    try:
        target.parent.mkdir(parents=True, exist_ok=True)
        write_whole(target, written)
    except OSError as exc:
        remedy = " (root may: sudo)" if isinstance(exc, PermissionError) else ""
        raise CliError(f"{safe(target)}: cannot be written: {exc.strerror}{remedy}") from exc


def _json(target: Path, adapters: Sequence[Adapter], written: str) -> dict[str, object]:
    ports = [
        {"name": a.name, "device": a.device, "tty": a.tty, "what": a.words}
        for a in adapters
        if not a.claim
    ]
    left_out = [
        {"device": a.device, "tty": a.tty, "what": a.words, "why": a.claim}
        for a in adapters
        if a.claim
    ]
    told: dict[str, object] = {"path": str(target), "ports": ports, "left_out": left_out}
    return told | ({"toml": written} if str(target) == "-" else {})


def _tell(target: Path, adapters: Sequence[Adapter]) -> None:
    click.echo(f"{safe(target)}: {told_ports(adapters)}")
    for each in adapters:
        if each.claim:
            say(f"  left out: {each.tty}, {each.words}: {each.claim}")
        else:
            click.echo(f"  {each.name:<8}  {each.device}")
    is_usual = target == found_config()
    is_any = any(not each.claim for each in adapters)
    click.echo(
        f"{'Call the ports there after your boards' if is_any else 'Name a port there'}, then\n"
        f"  serialwatch config check{'' if is_usual else f' {safe(target)}'}\n"
        f"  serialwatch run{'' if is_usual else f' -c {safe(target)}'}"
    )
