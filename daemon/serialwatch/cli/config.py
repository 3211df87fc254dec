"""`serialwatch config`: whether the configuration is right, and what it comes to."""

from __future__ import annotations

import json
import os
import shlex
import shutil
from collections.abc import Sequence
from pathlib import Path

import click

from serialwatch.api.listen import ApiBindError, loopback
from serialwatch.cli.config_init import init_config
from serialwatch.cli.errors import WRONG_USE, CliError
from serialwatch.cli.options import config_file, json_option, one_file
from serialwatch.config import (
    Config,
    DiscoverConfig,
    PortConfig,
    ResetCommand,
    config_to_json,
    load_config,
    read_config,
)
from serialwatch.config_file import found_config
from serialwatch.tomlfile import TomlError, TomlFile, read_toml
from serialwatch_drivers.device import parse_device, split_options
from serialwatch_drivers.find import find_opener
from serialwatch_drivers.port import PortOpenError
from serialwatch_drivers.tty import why_no_tty


@click.group()
def config() -> None:
    """Write, check and show the configuration."""


config.add_command(init_config)


@config.command(short_help="Check a configuration.")
@config_file
@click.option("--port", "ports", multiple=True, metavar="NAME=DEVICE", help="As for run.")
@json_option
def check(path: Path | None, named: Path | None, ports: tuple[str, ...], as_json: bool) -> int:
    """Check a configuration file: the one at PATH, else your own, else the system's."""
    path = one_file(path, named)
    try:
        loaded, problems = read_config(path, ports)
        if problems := [*problems, *_beside(path, loaded)]:
            raise TomlError(sorted(problems, key=_line))
    except TomlError as exc:
        if not as_json:
            raise CliError("\n".join(exc.problems), WRONG_USE) from exc
        click.echo(json.dumps({"ok": False, "problems": exc.problems}, indent=2))
        return WRONG_USE
    if as_json:
        click.echo(json.dumps({"ok": True, "problems": []}))
        return 0
    count = len(loaded.port)
    words = f"{count} port{'' if count == 1 else 's'}"
    if loaded.discover:
        words += f" and those of {', '.join(f'[discover.{name}]' for name in loaded.discover)}"
    elif not count:
        words = 'no ports yet: add [port.dut1] with device = "/dev/serial/by-id/…"'
    click.echo(f"{_where(path)}: good, {words}")
    return 0


@config.command()
@config_file
@click.option("--port", "ports", multiple=True, metavar="NAME=DEVICE", help="As for run.")
@json_option
def show(path: Path | None, named: Path | None, ports: tuple[str, ...], as_json: bool) -> None:
    """Show a configuration with its defaults, as TOML."""
    path = one_file(path, named)
    try:
        loaded = load_config(path, ports)
    except TomlError as exc:
        raise CliError("\n".join(exc.problems), WRONG_USE) from exc
    body = config_to_json(loaded)
    click.echo(json.dumps(body, indent=2) if as_json else as_toml(loaded), nl=as_json)


def as_toml(loaded: Config) -> str:
    """Return the configuration in the form of its file."""
    body = config_to_json(loaded)
    lines: list[str] = []
    for name in ("daemon", "api", "log", "agent"):
        lines += [f"[{name}]", *_keys(body[name]), ""]
    for notify in body["notify"]:
        lines += ["[[notify]]", *_keys(notify), ""]
    for name, port in body["port"].items():
        lines += [f"[port.{name}]", *_keys(port), ""]
    for name, pattern in body["discover"].items():
        lines += [f"[discover.{name}]", *_keys(pattern), ""]
    return "\n".join(lines)


def _keys(values: dict[str, object]) -> list[str]:
    return [f"{key} = {_value(value)}" for key, value in values.items()]


def _value(value: object) -> str:
    if isinstance(value, dict):
        return "{" + ", ".join(f"{k} = {_value(v)}" for k, v in value.items()) + "}"
    if isinstance(value, list):
        return "[" + ", ".join(map(_value, value)) + "]"
    # Strings, numbers and booleans are written the same way in JSON and in TOML.
    return json.dumps(value, ensure_ascii=False)


def _beside(path: Path | None, loaded: Config) -> list[str]:
    """Return what is wrong with what a configuration names: drivers, programs, rules."""
    source = path or found_config()
    file = TomlFile("--port", "", {}) if source is None else read_toml(source)
    told = []
    for name, port in loaded.port.items():
        is_written = name in file.data.get("port", {})
        place = f"{file.path}:{file.line_of('port', name, 'device')}" if is_written else "--port"
        try:
            find_opener(port.device)
        except PortOpenError as exc:
            told.append(f'{place}: port "{name}": {exc}')
        if problem := _no_device(port.device):
            told.append(f'{place}: port "{name}": {port.device}: {problem}')
        if isinstance(port.reset, ResetCommand):
            line = file.line_of("port", name, "reset")
            told += _no_program(f'{file.path}:{line}: port "{name}": reset', port.reset.command)
    if loaded.api.listen:
        try:
            loopback(loaded.api.listen)
        except ApiBindError as exc:
            told.append(f"{file.path}:{file.line_of('api', 'listen')}: api.listen: {exc}")
    for number, notify in enumerate(loaded.notify):
        line = file.line_of("notify", number, "command")
        told += _no_program(f"{file.path}:{line}: notify.{number}.command", notify.command)
    watched: list[PortConfig | DiscoverConfig] = [*loaded.port.values(), *loaded.discover.values()]
    if any(each.rules or each.ready for each in watched):
        from serialwatch.service.rules import RuleBook  # takes a second

        told += RuleBook().compile(loaded).port_problems
    return told


def _no_device(device: str) -> str:
    """Return why nothing can be opened under this name, ever; "" if something may."""
    name = parse_device(device)
    if name.scheme == "tty" and not os.path.isabs(name.body):
        return "a device is a whole path such as /dev/serial/by-id/… (doctor shows what there is)"
    if name.scheme in ("command", "replay") and not name.body.strip():
        return f"what to {'run' if name.scheme == 'command' else 'play'} is missing"
    if name.scheme == "command":
        return _no_command(name.body)
    if name.scheme == "tty" and os.path.exists(name.body):
        return why_no_tty(name.body)
    return _no_replay(device) if name.scheme == "replay" else ""


def _no_command(body: str) -> str:
    try:
        words = shlex.split(body)
    except ValueError as exc:
        return f"not a command: {exc}"
    return "" if shutil.which(words[0]) else f"{words[0]!r}: no such program, or none to be run"


def _no_replay(device: str) -> str:
    try:
        path, _ = split_options(device, {"bit_rate": 0, "loop": 0})
    except PortOpenError as exc:
        return str(exc).removeprefix(f"{device}: ")
    return "" if Path(path).exists() else f"{path!r}: no such file"


def _no_program(place: str, command: Sequence[str]) -> list[str]:
    if shutil.which(command[0]):
        return []
    return [f"{place}: {command[0]}: no such program, or none that may be run"]


def _line(problem: str) -> int:
    """Return the line that a problem is told with, 0 if with none."""
    number = problem.partition(": ")[0].rpartition(":")[2]
    return int(number) if number.isdecimal() else 0


def _where(path: Path | None) -> str:
    if path is not None:
        return str(path)
    return str(found_config() or "no file, the defaults")
