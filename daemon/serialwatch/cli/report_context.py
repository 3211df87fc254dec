"""The lines that a report cites, as they stand in the log, with what is around them."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import datetime

from rich.cells import cell_len
from rich.text import Text

from serialwatch.api.logs import LogQuery
from serialwatch.cli.errors import CliError
from serialwatch.cli.log_source import LogSource
from serialwatch.cli.tables import shorten
from serialwatch.cli.times import exact
from serialwatch.records import Line, Report
from serialwatch.wire import show

MAX_LINES = 400  # of all ranges


@dataclass(frozen=True, slots=True)
class Stretch:
    """Lines of one port without a hole, in which at least one is cited."""

    port: str
    first: int
    last: int
    lines: tuple[Line, ...] = ()  # fewer where the log no longer has them
    problem: str = ""


def stretches(report: Report, around: int) -> list[Stretch]:
    """Return what to read for a report: each cited line with so many on both sides."""
    found: list[Stretch] = []
    cited = sorted({(e.port, e.seq) for c in report.conclusions for e in c.evidence})
    for port, seq in cited:
        first, last = max(1, seq - around), seq + around
        before = found[-1] if found else None
        if before is not None and before.port == port and first <= before.last + 1:
            found[-1] = Stretch(port, before.first, last)
        else:
            found.append(Stretch(port, first, last))
    return found


def read_stretches(wanted: Sequence[Stretch], source: LogSource) -> list[Stretch]:
    """Return the stretches with their lines."""
    found: list[Stretch] = []
    left = MAX_LINES
    for each in wanted:
        last = min(each.last, each.first + left - 1)
        if last < each.first:
            break
        try:
            lines = tuple(source.lines(each.port, LogQuery(first=each.first, last=last)))
            problem = "" if lines else "the log no longer has these lines"
        except CliError as exc:
            lines, problem = (), str(exc)
        left -= len(lines)
        found.append(Stretch(each.port, each.first, each.last, lines, problem))
    return found


def context_lines(
    report: Report, found: Sequence[Stretch], now: datetime, width: int | None
) -> Iterator[Text]:
    """Return the stretches: `>` before a cited line, behind it the conclusions that cite it."""
    cited: dict[tuple[str, int], list[int]] = {}
    for number, conclusion in enumerate(report.conclusions, 1):
        for evidence in conclusion.evidence:
            numbers = cited.setdefault((evidence.port, evidence.seq), [])
            if number not in numbers:
                numbers.append(number)
    for at, each in enumerate(found):
        if at:
            yield Text("  ...")
        if each.problem:
            yield Text(f"  {each.port}:L{each.first}-L{each.last}: {each.problem}", "yellow")
        for line in each.lines:
            numbers = cited.get((line.port, line.seq), [])
            yield _row(line, numbers, now, width)


def _row(line: Line, numbers: Sequence[int], now: datetime, width: int | None) -> Text:
    mark = ">" if numbers else " "
    at = f"{exact(line.utc_ns, now)}  " if line.utc_ns else ""
    start = f"{mark} {at}{line.port}:L{line.seq}  "
    text = show(line.raw).replace("\t", " ")
    refs = f"  [{', '.join(map(str, numbers))}]" if numbers else ""
    if width is not None:
        text = shorten(text, max(8, width - cell_len(start) - cell_len(refs)))
    return Text.assemble(start, (text, "bold" if numbers else ""), refs)
