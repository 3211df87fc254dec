"""`serialwatch doctor`: what is wrong with this PC's set-up, and what helps."""

from __future__ import annotations

import json
import socket
from collections.abc import Iterable, Iterator
from dataclasses import asdict
from pathlib import Path

import click

from serialwatch.bundled import bundled_dir
from serialwatch.cli.client import find_daemon, listener
from serialwatch.cli.errors import FAULT
from serialwatch.cli.options import json_option
from serialwatch.cli.tables import console, safe, width_of, wrapped
from serialwatch.config import Config, load_config, state_dir
from serialwatch.config_file import found_config
from serialwatch.doctor import ports, system
from serialwatch.doctor.machine import Finding, Machine
from serialwatch.tomlfile import TomlError

_STYLES = {"good": "green", "note": "yellow", "wrong": "bold red"}


@click.command()
@click.option(
    "-c", "--config", "path", type=click.Path(path_type=Path), help="The configuration file."
)
@json_option
def doctor(path: Path | None, as_json: bool) -> int:
    """Check this PC's set-up: rights, adapters, other programs, disk, clock, service.

    It reads only, opens no port and needs no daemon. Exits with 1 if something is wrong.
    """
    findings = list(examine(machine_of(path), bundled_dir("systemd")))
    is_wrong = any(finding.state == "wrong" for finding in findings)
    if as_json:
        told = [asdict(finding) for finding in findings]
        click.echo(json.dumps({"ok": not is_wrong, "findings": told}, indent=2))
    else:
        _show(findings)
    return FAULT if is_wrong else 0


def machine_of(path: Path | None) -> Machine:
    """Return this PC with the configuration at `path`, None for the system's or none."""
    config, problems = Config(), []
    try:
        config = load_config(path)
    except TomlError as exc:
        problems = list(exc.problems)
    return Machine(
        config,
        problems,
        str(path or found_config() or ""),
        daemon_pid=_daemon_pid(),
        state_dir=state_dir(config),
    )


def examine(machine: Machine, shipped: Path) -> Iterator[Finding]:
    """Yield what every check finds; `shipped` is the folder of units and rules."""
    rules = shipped / "60-serialwatch.rules"
    yield from system.check_config(machine)
    yield from ports.check_ports(machine)
    yield from ports.check_rights(machine)
    yield from ports.check_twins(machine)
    yield from ports.check_claims(machine)
    yield from ports.check_readers(machine)
    yield from ports.check_modem_manager(machine, rules)
    yield from ports.check_brltty(machine, rules)
    yield from ports.check_latency(machine)
    yield from system.check_rates(machine)
    yield from system.check_container(machine)
    yield from system.check_kernel_log(machine)
    yield from system.check_clock(machine)
    yield from system.check_disk(machine)
    yield from system.check_unit(machine, shipped)


def _show(findings: Iterable[Finding]) -> None:
    out = console()
    width = width_of(out)
    count = {"good": 0, "note": 0, "wrong": 0}
    for finding in findings:
        count[finding.state] += 1
        first = f"{finding.state:5}  {finding.check:12}  "
        for number, line in enumerate(wrapped(first, safe(finding.text), width)):
            if number == 0:
                line.stylize(_STYLES[finding.state], 0, len(finding.state))
            out.print(line)
        if finding.remedy:
            for line in wrapped(" " * len(first) + "→ ", safe(finding.remedy), width):
                out.print(line)
    parts = [f"{count['wrong']} wrong", f"{count['note']} to know", f"{count['good']} good"]
    out.print(f"\n{', '.join(parts)}")


def _daemon_pid() -> int:
    """Return the pid of the daemon that the commands would talk to, 0 if there is none."""
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as probe:
        probe.setblocking(False)
        try:
            probe.connect(str(find_daemon(None, is_quiet=True).path))
            return listener(probe)[0]
        except OSError:
            return 0
