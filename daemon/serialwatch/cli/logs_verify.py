"""`serialwatch logs --verify`: are the saved logs sound, and what is wrong where they are not."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator, Sequence
from contextlib import ExitStack
from pathlib import Path

import click

from serialwatch.cli.errors import CliError
from serialwatch.cli.saved_logs import saved_ports, unreadable
from serialwatch.cli.tables import counted, safe
from serialwatch.config import Config, load_config, state_dir
from serialwatch.store.log_check import CheckedFile, check_port
from serialwatch.store.log_format import log_files
from serialwatch.store.log_repair import repair
from serialwatch.store.state_dir import StateBusy, StateError, StateLock, is_held
from serialwatch.tomlfile import TomlError

_MOST_FAULTS = 10  # that are told of one file


def verify_logs(names: Sequence[str], state: Path | None, *, repair: bool, as_json: bool) -> int:
    """Check the logs of some ports, all if none are named; return 1 if one is not sound.

    Raises:
        CliError: there is no such log, or one cannot be read.
        click.UsageError: it is not known where the logs are.

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
        failed: CliError | None = None
        for port in ports:
            checked = _checked(logs / port, port, is_live=is_live, is_repaired=repair)
            try:
                wrong += _tell(port, checked, as_json=as_json)
            except CliError as exc:  # the others are looked at all the same
                if failed is not None:
                    click.echo(f"serialwatch: {failed}", err=True)
                failed = exc
    if failed is not None:
        raise failed
    return 1 if wrong else 0


def _configured() -> Path:
    if os.environ.get("SERIALWATCH_SOCKET"):
        raise click.UsageError(
            "--verify reads files, and $SERIALWATCH_SOCKET does not tell where that daemon keeps "
            "its own: name its state folder with --state"
        )
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
    if not _is_mendable(found):
        return "left alone: there is nothing to make it from"
    try:
        kept = repair(found.path, port)
    except OSError as exc:
        return f"not repaired: the index cannot be written: {exc.strerror}"
    return f"repaired: {kept} records kept, the rest made from the log"


def _is_mendable(found: CheckedFile) -> bool:
    """Tell whether there is a log from which an index can be made."""
    return not found.is_unreadable and found.path in log_files(found.path.parent)


def _tell(port: str, checked: Iterator[tuple[CheckedFile, str]], *, as_json: bool) -> int:
    """Write what was found; return how many files are not sound."""
    files = size = wrong = mendable = 0
    first = last = 0
    for found, done in checked:
        files += 1
        size += found.log_bytes
        first = first or found.first_seq
        last = max(last, found.last_seq)
        is_damaged = bool(found.faults) and not done.startswith("repaired")
        wrong += is_damaged or bool(found.missing)
        mendable += is_damaged and not done and not found.is_open and _is_mendable(found)
        if as_json:
            click.echo(json.dumps(_json(port, found, done)))
            continue
        faults = [*found.missing, *found.faults]
        for fault in faults[:_MOST_FAULTS]:
            click.echo(f"{safe(found.path)}: {fault}")
        if more := len(faults[_MOST_FAULTS:]):
            click.echo(f"{safe(found.path)}: and {more} more")
        for note in found.notes if faults or "lost" in "".join(found.notes) else ():
            click.echo(f"{safe(found.path)}: note: {note}")
        if done:
            click.echo(f"{safe(found.path)}: {done}")
    if not as_json:
        verdict = "sound" if not wrong else f"{wrong} of {counted(files, 'file')} not sound"
        remedy = "; --repair makes their indexes anew" if mendable else ""
        if 0 < mendable < wrong:
            remedy = f"; --repair makes the indexes of {mendable} anew"
        lines = f"L{first} to L{last}" if last else "no line"
        told = f"{verdict}: {counted(files, 'file')}, {size:,} bytes, {lines}{remedy}"
        click.echo(f"{safe(port)}: {told if files else 'no log files'}")
    return wrong


def _json(port: str, found: CheckedFile, done: str) -> dict[str, object]:
    return {
        "port": port,
        "file": str(found.path),
        "bytes": found.log_bytes,
        "records": found.records,
        "first": found.first_seq,
        "last": found.last_seq,
        "faults": [*found.missing, *found.faults],
        "notes": found.notes,
        "done": done,
    }
