"""`serialwatch logs`: what ports have printed, and what they print now."""

from __future__ import annotations

import heapq
import json
import os
import queue
import re
import sys
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

import click

from serialwatch.api.logs import LogQuery, line_to_json
from serialwatch.cli.errors import CliError, tell
from serialwatch.cli.escapes import line_text
from serialwatch.cli.options import PORT, Number, json_option, socket_option
from serialwatch.cli.times import exact, local_now, parse_when
from serialwatch.line import Line

if TYPE_CHECKING:
    from serialwatch.cli.log_search import LinePattern
    from serialwatch.cli.log_source import LogSource

_LOOK_S = 5.0  # between two looks at why nothing comes
_UNASKED = 200  # lines that are shown if nothing says which
_UNASKED_FOLLOWED = 10
_SEARCHED = 100_000  # newest lines in which -f looks for them: what comes now must not wait
_FAR = 10**15  # lines or boots: no log has so many
_REFERENCE = re.compile(r"([^:]+)(?::L(\d+)(?:-L?(\d+))?)?")  # dut1, dut1:L5, dut1:L5-L9


@dataclass(frozen=True, slots=True)
class Wanted:
    """A port, and which of its lines."""

    port: str
    query: LogQuery


@click.command()
@click.argument("ports", nargs=-1, type=PORT, metavar="PORT…")
@click.option("-f", "--follow", is_flag=True, help="Go on with what is printed now.")
@click.option("-n", "newest", metavar="N", help="The last N lines, or all.")
@click.option("--since", metavar="TIME", help="10m, 2h, 03:58, yesterday, 2026-06-22T03:58:12Z.")
@click.option("--until", metavar="TIME", help="Likewise.")
@click.option("--grep", "text", metavar="TEXT", help="Lines that hold TEXT, as shown or printed.")
@click.option("-E", "--regex", is_flag=True, help="TEXT is a regular expression.")
@click.option(
    "--boot",
    type=Number(-_FAR, _FAR),
    help="Boot 7 is 7, the current one 0, the one before it -1.",
)
@click.option("--marker", metavar="MARKER", help="From a marker on: its number, or its text.")
@click.option("-t", "--timestamps", is_flag=True, help="Time and number of each line.")
@click.option("--raw", is_flag=True, help="The bytes as they came: escapes, line ends and all.")
@click.option(
    "--state",
    type=click.Path(path_type=Path, exists=True, file_okay=False),
    help="Read the logs in this state folder; no daemon is needed.",
)
@click.option("--verify", is_flag=True, help="Hold the indexes of the logs against the logs.")
@click.option("--repair", is_flag=True, help="With --verify: make wrong indexes anew.")
@json_option
@socket_option
def logs(
    ports: tuple[str, ...],
    follow: bool,
    newest: str | None,
    since: str | None,
    until: str | None,
    text: str | None,
    regex: bool,
    boot: int | None,
    marker: str | None,
    timestamps: bool,
    raw: bool,
    state: Path | None,
    verify: bool,
    repair: bool,
    as_json: bool,
    socket: str | None,
) -> int:
    """Show what PORTs have printed; dut1:L48211-L48236 is a part of it.

    Without -n and the like the last 200 lines are shown. Several ports are merged by time.
    """
    if verify:
        asked = (follow, newest, since, until, text, boot is not None, marker, raw, socket)
        if any(asked):
            raise click.UsageError("--verify looks at whole logs: only --repair, --state, --json")
        from serialwatch.cli.logs_verify import verify_logs

        return verify_logs(ports, state, repair=repair, as_json=as_json)
    if repair:
        raise click.UsageError("--repair needs --verify")
    if not ports:
        raise click.UsageError("which PORT? `serialwatch ports` names them")
    if raw and (as_json or timestamps):
        raise click.UsageError("--raw is the bytes alone: neither --json nor -t go with it")
    if text == "" or marker == "":
        option = "--grep" if text == "" else "--marker"
        raise click.UsageError(f"{option} is empty: leave it out, or say what to look for")
    if regex and text is None:
        raise click.UsageError("-E needs --grep TEXT")
    base = LogQuery(
        since_utc_ns=_when(since, "--since"),
        until_utc_ns=_when(until, "--until"),
        boot=boot,
        text=b"" if regex or not text else text.encode("utf-8", errors="surrogateescape"),
        marker=marker or "",
        has_boots=as_json,  # a line of text does not show it
        has_ends=raw,
    )
    if base.since_utc_ns and base.until_utc_ns and base.since_utc_ns > base.until_utc_ns:
        raise click.UsageError(f"--since {since} is later than --until {until}")
    wanted = [_reference(port, base) for port in ports]
    if follow and any(w.query.last is not None or w.query.until_utc_ns for w in wanted):
        raise click.UsageError("-f has no end: neither --until nor line numbers go with it")
    if follow and boot:
        raise click.UsageError("-f goes on with the current boot: of all boots only --boot 0 fits")
    limit = _limit(newest, wanted, follow=follow, is_search=text is not None)
    choice = _Choice(
        limit=limit,
        pattern=_pattern(text) if regex and text else None,
        is_brief=follow and newest is None and limit is not None,
    )
    source = _source(state, socket)
    printer = _Printer([w.port for w in wanted], as_json=as_json, with_time=timestamps, is_raw=raw)
    with ExitStack() as stack:
        if choice.pattern is not None:
            stack.enter_context(choice.pattern.limited())
        _show(source, wanted, choice, printer, follow=follow)
        if printer.count == 0 and limit != 0 and not (follow or as_json):
            tell(_nothing(ports, text, is_regex=regex))
    return 0


def _show(
    source: LogSource,
    wanted: Sequence[Wanted],
    choice: _Choice,
    printer: _Printer,
    *,
    follow: bool,
) -> None:
    try:
        starts = [_next_seq(source, w.port) for w in wanted] if follow else [None] * len(wanted)
        printer.history(_history(source, wanted, starts, choice))
        ports = list(dict.fromkeys(w.port for w in wanted if _has_no_end(w.query)))
        problems = source.problems(ports) if ports else {}
        for port, problem in problems.items():
            if problem:
                tell(_stopped(port, problem))
        if follow:
            threading.Thread(target=_tell_changes, args=(source, problems), daemon=True).start()
            printer.live(choice.of(_live(source, wanted, starts)))
    except KeyboardInterrupt:
        if not follow:  # that is the way to end -f
            raise


def _source(state: Path | None, socket: str | None) -> LogSource:
    # What is not needed is not imported: it is half of the time to the first line.
    if state is None:
        from serialwatch.cli.client import find_daemon
        from serialwatch.cli.log_source import DaemonLogs

        return DaemonLogs(find_daemon(socket))
    from serialwatch.cli.saved_logs import SavedLogs

    return SavedLogs(state)


@dataclass(frozen=True, slots=True)
class _Choice:
    """Which of the lines are shown."""

    limit: int | None  # the newest of each port; None: all
    pattern: LinePattern | None
    is_brief: bool  # nobody asked for any

    def of(self, lines: Iterator[Line]) -> Iterator[Line]:
        """Return those that match."""
        pattern = self.pattern
        return lines if pattern is None else filter(pattern.matches, lines)


class _Printer:
    """Writes lines; an unfinished one, such as a prompt, is written over when it goes on."""

    def __init__(
        self, ports: Sequence[str], *, as_json: bool, with_time: bool, is_raw: bool
    ) -> None:
        self._as_json = as_json
        self._is_raw = is_raw
        self._with_time = with_time
        self._is_terminal = sys.stdout.isatty()
        self._has_colour = self._is_terminal and "NO_COLOR" not in os.environ
        self._prefix = max(map(len, ports)) if len(set(ports)) > 1 else 0
        self._is_open = False  # an unfinished line stands at the bottom
        self._now = local_now()
        self.count = 0

    def history(self, lines: Iterator[Line]) -> None:
        """Write lines that are there already."""
        for line in lines:
            self.count += 1
            self._write(line)
            if self.count == 1:
                sys.stdout.flush()  # the others may take a while

    def live(self, lines: Iterator[Line]) -> None:
        """Write lines as they come."""
        sys.stdout.flush()
        for line in lines:
            if self._as_json or line.is_complete:
                self._write(line)
            elif self._is_terminal and not self._prefix and not self._is_raw:
                self._write_unfinished(line)
            sys.stdout.flush()

    def _write(self, line: Line) -> None:
        if self._is_raw:
            sys.stdout.buffer.write(line.raw + line.end)
            return
        if self._as_json:
            sys.stdout.write(json.dumps(line_to_json(line)) + "\n")
            return
        if self._is_open:
            sys.stdout.write("\r\x1b[K")
            self._is_open = False
        sys.stdout.write(self._text(line) + "\n")

    def _write_unfinished(self, line: Line) -> None:
        from shutil import get_terminal_size

        from serialwatch.cli.tables import shorten

        # One row of the terminal at most: only that much can be written over.
        width = get_terminal_size().columns - 1
        text = shorten(self._text(line, has_colour=False), width)
        sys.stdout.write("\r\x1b[K" + text)
        self._is_open = True

    def _text(self, line: Line, *, has_colour: bool | None = None) -> str:
        prefix = f"{line.port:<{self._prefix}}  " if self._prefix else ""
        if self._with_time:
            prefix += f"{exact(line.utc_ns, self._now)}  L{line.seq}  "
        is_coloured = self._has_colour if has_colour is None else has_colour
        return prefix + line_text(line.raw, colour=is_coloured)


def _history(
    source: LogSource, wanted: Sequence[Wanted], starts: Sequence[int | None], choice: _Choice
) -> Iterator[Line]:
    """Return the lines of all ports in the order of time, up to where following will begin."""
    found: list[Iterator[Line]] = []
    for each, start in zip(wanted, starts, strict=True):
        query = each.query if start is None else replace(each.query, last=start - 1)
        if start is not None and choice.is_brief:
            query = replace(query, first=max(start - _SEARCHED, 0))
        if choice.pattern is None:
            lines = source.lines(each.port, replace(query, newest=choice.limit))
        else:
            from serialwatch.cli.log_search import matching

            lines = matching(source, each.port, query, choice.pattern, choice.limit)
        found.append(lines)
    return found[0] if len(found) == 1 else heapq.merge(*found, key=lambda line: line.utc_ns)


def _live(
    source: LogSource, wanted: Sequence[Wanted], starts: Sequence[int | None]
) -> Iterator[Line]:
    """Return lines as they come, of several ports from a thread each."""
    follows = [
        source.follow(each.port, start or 1, each.query.text, has_ends=each.query.has_ends)
        for each, start in zip(wanted, starts, strict=True)
    ]
    if len(follows) == 1:
        yield from follows[0]
        return
    lines: queue.Queue[Line | CliError] = queue.Queue(maxsize=1000)
    for each, follow in zip(wanted, follows, strict=True):
        threading.Thread(
            target=_pump, args=(follow, lines), name=f"follow {each.port}", daemon=True
        ).start()
    while isinstance(item := lines.get(), Line):
        yield item
    raise item


def _pump(follow: Iterator[Line], lines: queue.Queue[Line | CliError]) -> None:
    try:
        for line in follow:
            lines.put(line)
    except CliError as exc:
        lines.put(exc)


def _next_seq(source: LogSource, port: str) -> int:
    """Return the number of the first line that is not complete yet."""
    newest = next(iter(source.lines(port, LogQuery(newest=1, has_boots=False))), None)
    if newest is None:
        return 1
    return newest.seq + 1 if newest.is_complete else newest.seq


def _reference(text: str, base: LogQuery) -> Wanted:
    match = _REFERENCE.fullmatch(text)
    if match is None:
        raise click.UsageError(f"{text!r} must be a port, or lines of one such as dut1:L5-L9")
    port, first, last = match.groups()
    if first is None:
        return Wanted(port, base)
    if last is not None and int(last) < int(first):
        raise click.UsageError(f"{text}: the last line comes before the first")
    return Wanted(
        port, replace(base, first=min(int(first), _FAR), last=min(int(last or first), _FAR))
    )


def _limit(
    newest: str | None, wanted: Sequence[Wanted], *, follow: bool, is_search: bool
) -> int | None:
    """Return how many of the newest lines are shown; None: all."""
    if newest is not None:
        if newest == "all":
            return None
        if not newest.isascii() or not newest.isdigit():
            raise click.UsageError(f"-n {newest}: must be a number of lines, or all")
        return min(int(newest), _FAR)
    unlimited = [replace(w.query, text=b"", has_boots=True, has_ends=False) for w in wanted]
    has_range = any(query != LogQuery() for query in unlimited)
    if has_range or (is_search and not follow):
        return None
    return _UNASKED_FOLLOWED if follow else _UNASKED


def _when(text: str | None, option: str) -> int | None:
    if text is None:
        return None
    try:
        return parse_when(text, local_now())
    except ValueError as exc:
        raise click.UsageError(f"{option}: {exc}") from exc


def _pattern(text: str) -> LinePattern:
    from serialwatch.cli.log_search import LinePattern

    try:
        return LinePattern(re.compile(text.encode("utf-8", errors="surrogateescape")), text)
    except re.error as exc:
        raise click.UsageError(f"--grep {text}: not a regular expression: {exc}") from exc


def _has_no_end(query: LogQuery) -> bool:
    """Tell whether what is printed now is wanted, too."""
    return query.last is None and query.until_utc_ns is None and query.boot in (None, 0)


def _tell_changes(source: LogSource, problems: dict[str, str]) -> None:
    """Tell when the log of a port that is followed stops or goes on: lines alone would not."""
    while True:
        time.sleep(_LOOK_S)
        try:
            now = source.problems(problems)
        except CliError:
            return  # who follows says so
        for port, problem in now.items():
            if bool(problem) != bool(problems[port]):
                tell(_stopped(port, problem) if problem else f"{port}: its log goes on")
        problems = now


def _stopped(port: str, problem: str) -> str:
    from serialwatch.spelling import show

    told = show(problem.encode("utf-8", errors="backslashreplace"))
    return f"{port}: what it prints now is not in its log: {told}"


def _nothing(ports: Sequence[str], text: str | None, *, is_regex: bool) -> str:
    names = ", ".join(ports)
    if text is not None:
        has_case = not is_regex and text.lower() != text.upper()
        hint = "; `-E --grep '(?i)TEXT'` ignores upper and lower case" if has_case else ""
        return f"no such line of {names}{hint}"
    return f"nothing of {names} is there: its board has not printed, or not then"
