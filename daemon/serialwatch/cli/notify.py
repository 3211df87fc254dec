"""`serialwatch notify`: whether the programs that are told of reports do their work."""

from __future__ import annotations

import asyncio
import json
import tempfile
import time
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

import click

from serialwatch.cli.errors import FAULT, WRONG_USE, CliError
from serialwatch.cli.options import config_file, json_option, one_file
from serialwatch.cli.tables import console, safe, width_of, wrapped
from serialwatch.config import NotifyConfig, load_config
from serialwatch.config_file import found_config, usual_config
from serialwatch.notify.command import tell
from serialwatch.records import Report
from serialwatch.tomlfile import TomlError
from serialwatch.wire import Json, report_to_json

_SAID = 200  # characters of the last line that a program prints


@dataclass(frozen=True, slots=True)
class Tried:
    """What came of one program."""

    command: Sequence[str]
    ok: bool
    problem: str  # "" if there is none
    said: str  # its last line
    ms: int


@click.group()
def notify() -> None:
    """Try out the programs that are told of reports."""


@notify.command("test", short_help="Send a test notification through each program.")
@config_file
@json_option
def test_notify(path: Path | None, named: Path | None, as_json: bool) -> int:
    """Run each program of [[notify]] once, with a test report as JSON on its standard input.

    PATH is the configuration; else it is your own, else the system's. The programs run as you
    here, and as the service's user for the service. Exits with 1 if one fails.
    """
    path = one_file(path, named)
    try:
        told = load_config(path).notify
    except TomlError as exc:
        raise CliError("\n".join(exc.problems), WRONG_USE) from exc
    if not told:
        where = path or found_config()
        begin = "" if where else "there is no configuration: `serialwatch config init` makes one\n"
        raise CliError(
            f"{begin}{safe(where or usual_config())}: nobody is told of reports; write there e.g.\n"
            '    [[notify]]\n    command = ["/usr/local/bin/tell-the-lab"]',
            WRONG_USE,
        )
    tried = []
    for each in told:
        tried.append(asyncio.run(_tried(each)))
        if not as_json:
            _show(tried[-1])
    is_good = all(each.ok for each in tried)
    if as_json:
        rows = [asdict(each) for each in tried]
        click.echo(json.dumps({"ok": is_good, "programs": rows}, indent=2))
    return 0 if is_good else FAULT


async def _tried(told: NotifyConfig) -> Tried:
    began_s = time.monotonic()
    # A file, not a pipe: what the program leaves running may keep that open.
    with tempfile.TemporaryFile() as output:
        try:
            problem = await tell(told.command, json.dumps(_body(told)).encode(), output.fileno())
        except OSError as exc:
            problem = f"cannot be started: {exc.strerror}"
        output.seek(0)
        said = _last_line(output.read())
    took_ms = round((time.monotonic() - began_s) * 1000)
    return Tried(told.command, not problem, problem, said, took_ms)


def _body(told: NotifyConfig) -> Json:
    """Return what a program gets for a report, and that it is none."""
    report = Report(
        incident=0,
        revision=1,
        made_by="serialwatch notify test",
        title="A test: nothing has happened",
        fault_class="unknown",
        severity=told.severity,
        verdict="inconclusive",
        confidence=0.0,
    )
    return {"port": "test", "report": report_to_json(report), "is_test": True}


def _last_line(output: bytes) -> str:
    lines = output.decode(errors="backslashreplace").strip().splitlines()
    return safe(lines[-1].strip())[:_SAID] if lines else ""


def _show(tried: Tried) -> None:
    out = console()
    program = safe(" ".join(tried.command))
    words = f"{program}: took it in {tried.ms} ms" if tried.ok else f"{program}: {tried.problem}"
    if tried.said and not tried.ok:
        words += f"; it said: {tried.said}"
    for number, line in enumerate(
        wrapped("good    " if tried.ok else "failed  ", words, width_of(out))
    ):
        if number == 0:
            line.stylize("green" if tried.ok else "bold red", 0, 6)
        out.print(line)
