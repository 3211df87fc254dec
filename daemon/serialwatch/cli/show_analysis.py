"""What `serialwatch analyze` shows to people: the faults of a log, and a report on the worst."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from pathlib import Path

from rich.console import Console
from rich.text import Text

from serialwatch.cli.show_report import About, outcome_words, report_lines
from serialwatch.cli.tables import (
    SEVERITY_STYLES,
    Column,
    Row,
    console,
    counted,
    plural,
    safe,
    shorten,
    table,
    width_of,
    wrapped,
)
from serialwatch.cli.times import local_now
from serialwatch.records import SEVERITIES, HitCount, Incident, Report
from serialwatch.saved.analysis import PORT, Analysis
from serialwatch.triggers.view import strip_escapes

_MOST_ROWS = 20  # of a file in a terminal
_LEAST_NAME = 12  # columns of a file's name
_HEADING = 52  # columns that the heading of a report takes beside the name
_CONTEXT = 3, 8  # lines before and after a fault that are shown
_COLUMNS = (
    Column("SEVERITY"),
    Column("LINE", is_right=True),
    Column("WHAT", least=30),
    Column("COUNT", is_right=True, leaves=1),
    Column("BOOT", is_right=True, leaves=2),
)
_NO_FAULT = (
    "No fault was recognised.",
    "Is one missing? `serialwatch rules new 'LINE'` makes a rule of the line that tells it.",
)
_EMPTY = ("It is empty: was it saved at all?",)
_ECOSYSTEMS = {
    "arduino": "Arduino", "circuitpython": "CircuitPython", "cortexm": "Cortex-M",
    "esp": "ESP-IDF", "esp8266": "ESP8266", "freertos": "FreeRTOS", "grub": "GRUB",
    "linux": "Linux", "lua": "Lua", "nrf": "nRF", "rockchip": "Rockchip", "threadx": "ThreadX",
    "mcuboot": "MCUboot", "micropython": "MicroPython", "nuttx": "NuttX", "opensbi": "OpenSBI",
    "optee": "OP-TEE", "qnx": "QNX", "riot": "RIOT", "rtems": "RTEMS", "rtthread": "RT-Thread",
    "stm32": "STM32", "tfa": "TF-A", "uboot": "U-Boot", "uefi": "UEFI", "vxworks": "VxWorks",
    "zephyr": "Zephyr", "tock": "Tock", "crazyflie": "Crazyflie", "libretiny": "LibreTiny",
    "riscv": "RISC-V", "silabs": "Silicon Labs",
    "alios": "AliOS Things", "espruino": "Espruino", "flipper": "Flipper",
    "nanoclr": "nanoFramework", "cros": "Chromium EC", "liteos": "LiteOS", "litex": "LiteX",
    "opentitan": "OpenTitan", "pebble": "PebbleOS", "wolfboot": "wolfBoot",
}  # fmt: skip


def show_faults(name: str, found: Analysis, *, is_alone: bool) -> None:
    """Print the summary line of a log and the table of its faults."""
    out = console()
    width = width_of(out)
    for line in _summary(name, found, out, width):
        out.print(line)
    if not found.incidents:
        if is_alone:
            out.print(Text())
            for words in _NO_FAULT if found.size else _EMPTY:
                out.print(Text(words))
        return
    out.print(Text())
    shown = _worth_a_row(found.incidents, None if width is None else _MOST_ROWS)
    for line in table(_COLUMNS, [_row(i) for i in shown], width and width - 2):
        out.print(Text.assemble("  ", line))
    if len(shown) < len(found.incidents):
        left = len(found.incidents) - len(shown)
        out.print(Text(f"  and {left:,} more, none of them worse: `--json` has all"))
    out.print(Text())


def show_report(name: str, found: Analysis, report: Report) -> None:
    """Print the report on a fault of a log, with the log around it."""
    out = console()
    width = width_of(out)
    chosen = found.reported
    assert chosen is not None  # the report is on it
    file = shown_name(Path(name).name)
    if width is not None:
        file = shorten(file, max(_LEAST_NAME, width - _HEADING))
    about = About(
        port=PORT,
        shown=f"{file}, line {chosen.first_seq or chosen.block_first:,}",
        boot=chosen.boot,
        first_sign=chosen.first_sign,
        outcome=chosen.outcome,
        outcome_cause=chosen.outcome_cause,
    )
    for line in report_lines(report, about, local_now(), width):
        out.print(line)
    out.print(Text())
    for line in _context(found, chosen, report, width):
        out.print(line)
    out.print(Text())
    words = f"`serialwatch rules explain {chosen.trigger}` · `--json` has all of it, for scripts"
    if len(found.incidents) > 1:
        words += " · `--line N` explains what is at another line"
    for line in wrapped("More: ", words, width):
        out.print(line)


def shown_name(name: str) -> str:
    """Return a log's name for people."""
    return "standard input" if name == "-" else safe(name)


def _summary(name: str, found: Analysis, out: Console, width: int | None) -> Iterator[Text]:
    """Return the summary: one line, or two where one has no room."""
    facts = [
        counted(found.lines, "line"),
        _size(found.size),
        counted(found.boots, "boot"),
        *(_ECOSYSTEMS.get(e, e) for e in found.ecosystems),
    ]
    told = Text(f"{', '.join(facts)}; ")
    counts = Counter(i.severity for i in found.incidents)
    for number, severity in enumerate(s for s in reversed(SEVERITIES) if counts[s]):
        words = severity if severity == "critical" else plural(counts[severity], severity)
        told.append(", " if number else "")
        told.append(f"{counts[severity]} {words}", SEVERITY_STYLES[severity])
    if not counts:
        told.append("no fault")
    took = f"{found.seconds:.2f} s"
    title = Text.assemble((shown_name(name), "bold"))
    line = Text.assemble(title, ": ", told)
    if width is None:
        yield line.append(f", {took}")
    elif line.cell_len + len(took) + 2 <= width:
        yield line.append(" " * (width - line.cell_len - len(took)) + took)
    else:
        title.append(f"{took:>{max(2 + len(took), width - title.cell_len)}}")
        yield title
        for part in told.wrap(out, width - 2):
            yield Text.assemble("  ", part)


def _worth_a_row(incidents: Sequence[Incident], most: int | None) -> Sequence[Incident]:
    """Return the worst incidents, in the order of the log."""
    if most is None or len(incidents) <= most:
        return incidents
    by_severity = sorted(incidents, key=lambda i: -SEVERITIES.index(i.severity))
    kept = {i.id for i in by_severity[:most]}
    return [i for i in incidents if i.id in kept]


def _row(incident: Incident) -> Row:
    first, last = incident.block_first, incident.end_seq
    where = f"{first:,}" if first == last else f"{first:,}–{last:,}"
    boot = f"#{incident.boot}" if incident.boot else "-"
    cells = (incident.severity, where, incident.title, f"{incident.count:,}", boot)
    return Row(cells, note=_consequences(incident), styles=(SEVERITY_STYLES[incident.severity],))


def _consequences(incident: Incident) -> str:
    """Return what else was found with the fault, and how it ended, in order; "" for nothing."""
    told = [(h.first_seq, f"{h.title} (L{h.first_seq:,})") for h in _others(incident)[:2]]
    earlier = [text for seq, text in told if 0 < seq < incident.block_first]
    later = [(seq, text) for seq, text in told if text not in earlier]
    if incident.outcome:
        became = f"the board {outcome_words(incident.outcome, incident.outcome_cause)}"
        later.append((incident.outcome_seq or incident.end_seq, became))
        later.sort(key=lambda each: each[0] or incident.block_first)
    parts = [f"before it: {', '.join(map(safe, earlier))}"] if earlier else []
    if later:
        parts.append(", then ".join(safe(text) for _, text in later))
    return f"└ {'; then '.join(parts)}" if parts else ""


def _others(incident: Incident) -> list[HitCount]:
    own = incident.trigger
    return [
        hit
        for hit in incident.hits
        if hit.trigger != own and hit.severity != "note" and hit.tier != "generic"
    ]


def _context(
    found: Analysis, chosen: Incident, report: Report, width: int | None
) -> Iterator[Text]:
    """Return the log around the fault; lines that the report cites have a mark."""
    before, after = _CONTEXT
    at = chosen.first_seq or chosen.block_first
    cited = {e.seq for conclusion in report.conclusions for e in conclusion.evidence}
    lines = [line for line in found.around if at - before <= line.seq <= at + after]
    if not lines:
        return
    yield Text("The log there (> is cited above)", "bold")
    digits = len(str(lines[-1].seq))
    for line in lines:
        mark = ">" if line.seq in cited or line.seq == at else " "
        text = strip_escapes(line.raw).decode("utf-8", "backslashreplace").replace("\t", " ")
        shown = f"{mark} {line.seq:>{digits}}  {safe(text)}".rstrip()
        yield Text(
            f"  {shown if width is None else shorten(shown, width - 2)}",
            SEVERITY_STYLES[chosen.severity] if line.seq == at else "",
        )


def _size(size: int) -> str:
    for limit, unit in ((1_000_000_000, "GB"), (1_000_000, "MB"), (1000, "kB")):
        if size >= limit:
            return f"{size / limit:.1f} {unit}"
    return f"{size} B"
