"""`serialwatch logs --verify`: are the saved logs sound, and what is wrong where they are not."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from contextlib import ExitStack
from pathlib import Path

import click

from serialwatch.cli.errors import CliError
from serialwatch.cli.saved_logs import saved_ports, unreadable
from serialwatch.cli.tables import counted, safe
from serialwatch.config import Config, load_config, state_dir
from serialwatch.store.log_check import CheckedFile, check_port, repair
from serialwatch.store.log_format import log_files
from serialwatch.store.state_dir import StateBusy, StateError, StateLock, is_held
from serialwatch.tomlfile import TomlError

_MOST_FAULTS = 10  # that are told of one file


def verify_logs(names: Sequence[str], state: Path | None, *, repair: bool, as_json: bool) -> int:
    """Check the logs of some ports, all if none are named; return 1 if one is not sound.

    Raises:
        CliError: there is no such log, or it cannot be repaired.

    """
    folder = state or _configured()
    logs = folder / "log"
    known = saved_ports(logs)
    ports = list(names) or known
    for port in ports:
        if port not in known:
            there = ", ".join(map(safe, known)) or "none"
            raise CliError(f"{safe(logs / port)}: no saved log: there are {there}")
    if not ports:
        raise CliError(f"{logs}: no saved logs (--state names another folder)")
    with ExitStack() as held:
        is_live = is_held(folder)
        if repair and not is_live:
            try:
                held.enter_context(StateLock(folder))  # no daemon may start meanwhile
            except StateBusy:
                is_live = True
            except StateError as exc:
                raise CliError(str(exc)) from exc
        wrong = 0
        for port in ports:
            checked = _checked(logs / port, port, is_live=is_live, is_repaired=repair)
            wrong += _tell(port, checked, as_json=as_json)
    return 1 if wrong else 0


def _configured() -> Path:
    try:
        return state_dir(load_config(None))
    except TomlError:
        return state_dir(Config())


def _checked(
    folder: Path, port: str, *, is_live: bool, is_repaired: bool
) -> Iterator[tuple[CheckedFile, str]]:
    """Yield each file and what was done about it."""
    try:
        for found in check_port(folder, port, is_live=is_live):
            yield found, _mend(found, port) if is_repaired and found.faults else ""
    except OSError as exc:
        raise unreadable(folder, exc) from exc


def _mend(found: CheckedFile, port: str) -> str:
    if found.is_open:
        return "left alone: the daemon writes it"
    if found.path not in log_files(found.path.parent):
        return "left alone: there is nothing to make it from"
    try:
        kept = repair(found.path, port)
    except OSError as exc:
        raise CliError(f"{safe(found.path)}: the index cannot be written: {exc.strerror}") from exc
    return f"repaired: {kept} records kept, the rest made from the log"


def _tell(port: str, checked: Iterator[tuple[CheckedFile, str]], *, as_json: bool) -> int:
    """Write what was found; return how many files are not sound."""
    files = size = wrong = 0
    first = last = 0
    for found, done in checked:
        files += 1
        size += found.log_bytes
        first = first or found.first_seq
        last = max(last, found.last_seq)
        wrong += bool(found.faults) and not done.startswith("repaired")
        if as_json:
            click.echo(json.dumps(_json(port, found, done)))
            continue
        for fault in found.faults[:_MOST_FAULTS]:
            click.echo(f"{safe(found.path)}: {fault}")
        if more := len(found.faults[_MOST_FAULTS:]):
            click.echo(f"{safe(found.path)}: and {more} more")
        for note in found.notes if found.faults or "lost" in "".join(found.notes) else ():
            click.echo(f"{safe(found.path)}: note: {note}")
        if done:
            click.echo(f"{safe(found.path)}: {done}")
    if not as_json:
        verdict = "sound" if not wrong else f"{wrong} of {counted(files, 'file')} not sound"
        remedy = "; --repair makes their indexes anew" if wrong else ""
        lines = f"L{first} to L{last}" if last else "no line"
        click.echo(f"{port}: {verdict}: {counted(files, 'file')}, {size:,} bytes, {lines}{remedy}")
    return wrong


def _json(port: str, found: CheckedFile, done: str) -> dict[str, object]:
    return {
        "port": port,
        "file": str(found.path),
        "bytes": found.log_bytes,
        "records": found.records,
        "first": found.first_seq,
        "last": found.last_seq,
        "faults": found.faults,
        "notes": found.notes,
        "done": done,
    }
