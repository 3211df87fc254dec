"""`serialwatch analyze`: a saved log, without a daemon."""

from __future__ import annotations

import asyncio
import gc
import json
import signal
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from pathlib import Path
from types import FrameType

import click
from rich.console import Console
from rich.text import Text

from serialwatch.agent.knowledge import Knowledge, load_knowledge
from serialwatch.agent.skills.registry import Registry, load_skills
from serialwatch.bundled import bundled_dir, search_path
from serialwatch.cli.errors import WRONG_USE, tell
from serialwatch.cli.options import json_option
from serialwatch.cli.rules_load import load_installed, matcher_of
from serialwatch.cli.show_analysis import show_faults, show_report, shown_name
from serialwatch.cli.tables import console, counted, safe, shorten
from serialwatch.cli.waiting import told_while_waiting
from serialwatch.records import SEVERITIES, Severity
from serialwatch.saved.analysis import Analysis, most_severe, read_log, report_on
from serialwatch.saved.log import SavedLog, logs_below, open_log, readable_twice
from serialwatch.triggers.matcher import Matcher
from serialwatch.wire import Json, report_to_json

_LONG_BYTES = 8_000_000  # from that size on a log is worth a progress bar
_STEP_BYTES = 1_000_000  # between two moves of the bar
_CTRL_C_WIDTH = 3  # columns for `^C` and the cursor behind it
_MOST_NAMES = 5  # of files that were skipped


@dataclass(slots=True)
class _Worst:
    """The most severe fault of several logs."""

    name: str = ""
    found: Analysis | None = None

    def see(self, name: str, found: Analysis) -> None:
        """Take what was found in a log; the first of equals stays."""
        if _rank(found) > (_rank(self.found) if self.found else -1):
            self.name, self.found = name, found


@dataclass(frozen=True, slots=True)
class _Reader:
    """Reads logs with the rules and skills that are installed."""

    matcher: Matcher
    registry: Registry
    knowledge: Knowledge
    line: int

    def found(self, name: str) -> Analysis:
        """Analyze one log; an OSError says why that cannot be."""
        began_s = time.monotonic()
        with _opened(name) as log:
            with _watched(name, log) as progress:
                pipeline = read_log(log, self.matcher, progress)
            done = report_on(pipeline, log, self.registry, self.knowledge, began_s, self.line)
            return replace(asyncio.run(done), damage=log.damage)


@click.command()
@click.argument(
    "files",
    nargs=-1,
    required=True,
    type=click.Path(readable=False, allow_dash=True),  # what cannot be read is told below
    metavar="FILE…",
)
@click.option(
    "--fail-on",
    type=click.Choice(SEVERITIES[1:]),
    help="Exit with 1 if there is an incident so severe.",
)
@click.option(
    "--line",
    type=click.IntRange(min=1),
    metavar="N",
    help="Explain the fault at this line instead of the worst; for one log.",
)
@json_option
def analyze(
    files: tuple[str, ...], fail_on: Severity | None, line: int | None, as_json: bool
) -> int:
    """Find the faults in saved console logs, and explain the worst.

    FILE may be a folder, which is searched for logs, or `-` for standard input. What gzip, zstd,
    xz or bzip2 packed is unpacked. Lines are numbered as in the file.
    """
    reader = _Reader(
        matcher_of(load_installed()),
        load_skills([bundled_dir("skills")]),
        load_knowledge(search_path("knowledge")),
        line or 0,
    )
    gc.freeze()  # rules are many objects, which the collector would walk again and again
    out = _Out(as_json)
    logs = list(_logs(files, out))
    out.is_alone = len(logs) == 1 and not out.has_failed
    if line and len(logs) != 1:
        raise click.UsageError(f"--line is for one log; there are {len(logs)}")
    fails = False
    for name in logs:
        try:
            found = reader.found(name)
        except OSError as exc:
            out.fail(name, exc.strerror or str(exc))
            continue
        out.tell(name, found)
        if found.damage:
            out.note_damage(name, found.damage)
        if line and found.reported is None:
            out.note_no_fault(name, found)
        fails |= fail_on is not None and any(
            SEVERITIES.index(i.severity) >= SEVERITIES.index(fail_on) for i in found.incidents
        )
    out.sum_up()
    return WRONG_USE if out.has_failed else int(fails)


class _Out:
    """Tells what was found, as long as somebody reads it; the verdict counts all the same."""

    def __init__(self, as_json: bool) -> None:
        self.is_alone = True  # one log was asked for
        self.has_failed = False
        self._as_json = as_json
        self._is_read = True
        self._worst = _Worst()
        self._read = self._with_faults = 0

    def fail(self, name: str, why: str) -> None:
        """Tell that a log cannot be read."""
        self.has_failed = True
        with self._reader():
            if self._as_json and self._is_read:
                click.echo(json.dumps({"file": name, "error": why}))
        self.word(f"{shown_name(name) or repr(name)}: {why}")

    def note_damage(self, name: str, damage: str) -> None:
        """Tell that a log was only read up to some place."""
        self.has_failed = True
        self.word(f"{shown_name(name)}: {damage}; what could be unpacked is analyzed")

    def note_no_fault(self, name: str, found: Analysis) -> None:
        """Tell that there is no fault at the line that was named."""
        self.has_failed = True
        places = [
            f"{i.block_first}" if i.block_first == i.end_seq else f"{i.block_first}-{i.end_seq}"
            for i in found.incidents
        ]
        more = len(places) - _MOST_NAMES
        rest = f" and {more} more" if more > 0 else ""
        listed = f"there are some at {', '.join(places[:_MOST_NAMES])}{rest}" if places else "none"
        self.word(f"{shown_name(name)}: no fault at line {found.line}: {listed}")

    def word(self, words: str) -> None:
        """Tell something beside what was found."""
        with suppress(OSError):  # closed or full: what was found is what matters
            tell(words)

    def tell(self, name: str, found: Analysis) -> None:
        """Tell what was found in a log."""
        with self._reader():
            if self._as_json and self._is_read:
                click.echo(json.dumps(_json(name, found)))
            elif self._is_read:
                show_faults(name, found, is_alone=self.is_alone)
                if found.report and self.is_alone:
                    show_report(name, found, found.report)
        self._worst.see(name, found)
        self._read += 1
        self._with_faults += bool(found.incidents)

    def sum_up(self) -> None:
        """After several logs, tell of the worst fault."""
        if self._as_json or self.is_alone or not self._read or not self._is_read:
            return
        with self._reader():
            faults = f"faults in {self._with_faults} of them" if self._with_faults else "no fault"
            words = f"{counted(self._read, 'log')}: {faults}"
            found = self._worst.found
            if found is None or found.report is None:
                console().print(Text(words, "bold"))
                return
            words += f"; the worst is in {shown_name(self._worst.name)}"
            console().print(Text(f"{words}\n", "bold"))
            show_report(self._worst.name, found, found.report)

    @contextmanager
    def _reader(self) -> Iterator[None]:
        """Note when nobody reads any more."""
        try:
            yield
        except (BrokenPipeError, SystemExit):  # rich raises the latter
            self._is_read = False


def _logs(names: Sequence[str], out: _Out) -> Iterator[str]:
    """Return the logs that were asked for, folders searched."""
    for name in names:
        if name == "-" or not Path(name).is_dir() or not name:
            yield name
            continue
        try:
            folder = logs_below(Path(name))
        except OSError as exc:
            out.fail(name, exc.strerror or str(exc))
            continue
        for refused in folder.unread:
            out.fail(str(refused.filename), refused.strerror or str(refused))
        if folder.skipped:
            named = ", ".join(safe(path.name) for path in folder.skipped[:_MOST_NAMES])
            more = len(folder.skipped) - _MOST_NAMES
            rest = f" and {more} more" if more > 0 else ""
            out.word(f"{safe(name)}: skipped what is no log: {named}{rest}")
        if not folder.logs:
            out.fail(name, "no log in this folder")
        yield from map(str, folder.logs)


def _opened(name: str) -> SavedLog:
    if name == "-" and sys.stdin.closed:
        raise OSError("it has been read already")
    with told_while_waiting(name):
        return readable_twice(sys.stdin.buffer) if name == "-" else open_log(name)


@contextmanager
def _watched(name: str, log: SavedLog) -> Iterator[Callable[[int], None]]:
    """Return what is to be called as reading goes on: it moves a bar and hears Ctrl-C.

    Python raises in whatever runs; that may be a call from Hyperscan, which must not raise.
    """
    asked_to_stop: list[int] = []

    def stop(signum: int, _frame: FrameType | None) -> None:
        asked_to_stop.append(signum)

    before = signal.signal(signal.SIGINT, stop)
    try:
        with _bar(name, log) as move:

            def progress(size: int) -> None:
                if asked_to_stop:
                    raise KeyboardInterrupt
                move(size)

            yield progress
    finally:
        signal.signal(signal.SIGINT, before)


@contextmanager
def _bar(name: str, log: SavedLog) -> Iterator[Callable[[int], None]]:
    """Show how far a long log is read, if there is a terminal to show it in."""
    err = Console(file=sys.stderr)
    if not err.is_terminal or log.stored_bytes < _LONG_BYTES:
        yield lambda _: None
        return
    from rich.progress import BarColumn, DownloadColumn, Progress, TextColumn, TimeRemainingColumn

    columns = (
        TextColumn("{task.description}", markup=False), BarColumn(), DownloadColumn(),
        TimeRemainingColumn(),
    )  # fmt: skip
    # A `^C` that is shown behind the bar must not wrap: the row above would stay on the screen.
    err.width = max(err.width - _CTRL_C_WIDTH, _CTRL_C_WIDTH)
    with Progress(*columns, console=err, transient=True) as bar:
        task = bar.add_task(shorten(shown_name(name), 30), total=log.stored_bytes)
        unseen = 0

        def move(size: int) -> None:
            nonlocal unseen
            unseen += size
            if unseen >= _STEP_BYTES:
                unseen = 0
                bar.update(task, completed=log.read_bytes)

        yield move


def _json(name: str, found: Analysis) -> Json:
    return {
        "file": name,
        "lines": found.lines,
        "boots": found.boots,
        "incidents": [
            {
                "rule": i.trigger,
                "severity": i.severity,
                "title": i.title,
                "first_line": i.first_seq,
                "block_first": i.block_first,
                "last_line": i.end_seq,
                "count": i.count,
                "fields": dict(i.fields),
            }
            for i in found.incidents
        ],
        "report": report_to_json(found.report) if found.report else None,
    } | ({"damage": found.damage} if found.damage else {})


def _rank(found: Analysis) -> int:
    chosen = most_severe(found.incidents)
    return SEVERITIES.index(chosen.severity) if chosen else -1
