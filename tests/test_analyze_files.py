"""What boards print as terminal programs and loggers save it: the same is found."""

import asyncio
import functools
import gzip
import io
import re
from collections.abc import Callable

import pytest

from serialwatch.agent.knowledge import load_knowledge
from serialwatch.agent.skills.registry import load_skills
from serialwatch.bundled import bundled_dir
from serialwatch.saved.analysis import Analysis, analyze, eol_of
from serialwatch.saved.log import open_log
from serialwatch.triggers.matcher import Matcher
from serialwatch.triggers.rules import load_rules

# A boot, a fault in line 6 and what follows it.
LINES = (
    "U-Boot 2023.10 (Nov 02 2023 - 08:00:00 +0000)",
    "Starting kernel ...",
    "[    0.000000] Booting Linux on physical CPU 0x0000000000 [0x411fd070]",
    "[    1.204100] random: crng init done",
    "[   11.998000] eth0: link becomes ready, 100 Mbit/s",
    "[   12.000001] Unable to handle kernel NULL pointer dereference at virtual address 0000000000000010",
    "[   12.000201] pc : sensor_irq+0x14/0x80",
    "[   12.000301] ---[ end trace 0000000000000000 ]---",
    "[   12.000401] Kernel panic - not syncing: Oops: Fatal exception in interrupt",
    "[   12.000501] ---[ end Kernel panic - not syncing: Oops: Fatal exception in interrupt ]---",
)
TEXT = "".join(f"{line}\n" for line in LINES)


@functools.cache
def matcher() -> Matcher:
    return Matcher(load_rules([bundled_dir("config/rules")]))


@functools.cache
def tools() -> tuple[object, object]:
    return load_skills([bundled_dir("skills")]), load_knowledge([bundled_dir("config/knowledge")])


def analyzed(data: bytes | str) -> Analysis:
    raw = data.encode() if isinstance(data, str) else data
    return asyncio.run(analyze(io.BytesIO(raw), matcher(), *tools()))


def clocked(form: str, kernel: bool = True) -> Callable[[int, str], str]:
    """Return what puts a time before a line; the n-th line comes 3 n seconds after 10:00."""

    def prefixed(n: int, line: str) -> str:
        told = line if kernel else re.sub(r"^\[ *[\d.]+\] ", "", line)
        return form.format(m=n * 3 // 60, s=n * 3 % 60, n=n * 3, line=told)

    return prefixed


LOGGERS: dict[str, Callable[[int, str], str]] = {
    "plain": lambda n, line: line,
    "dmesg": lambda n, line: f"<{n % 8}>{line}",
    "dmesg -T": clocked("[Tue Aug 12 10:{m:02}:{s:02} 2025] {line}", kernel=False),
    "dmesg -x": clocked("kern  :err   : {line}"),
    "minicom -C": lambda n, line: line,
    "minicom, ctrl-A n": clocked("[2024-05-01 10:{m:02}:{s:02}] {line}"),
    "minicom, with tenths": clocked("[2024-05-01 10:{m:02}:{s:02}.250] {line}"),
    "tio -t": clocked("[10:{m:02}:{s:02}.250] {line}"),
    "tio, older": clocked("[tio 10:{m:02}:{s:02}] {line}"),
    "tio iso8601": clocked("[2024-05-01T10:{m:02}:{s:02}.250Z] {line}"),
    "screen -L": lambda n, line: f"{line}\r",
    "pyterm": clocked("2024-05-01 10:{m:02}:{s:02},250 # {line}"),
    "pyterm, with a level": clocked("2024-05-01 10:{m:02}:{s:02},250 - INFO # {line}"),
    "Arduino IDE": clocked("10:{m:02}:{s:02}.250 -> {line}"),
    "Pronterface": clocked("10:{m:02}:{s:02}.250 : {line}"),
    "RTT viewer": lambda n, line: f"00> {line}",
    "journalctl": clocked("May 01 10:{m:02}:{s:02} gw kernel: {line}", kernel=False),
    "journalctl, a console's": clocked("May 01 10:{m:02}:{s:02} gw picocom[812]: {line}"),
    "journalctl -o short-iso": clocked("2024-05-01T10:{m:02}:{s:02}+0200 gw kernel: {line}"),
    "journalctl -o short-precise": clocked("May 01 10:{m:02}:{s:02}.123456 gw kernel: {line}"),
    "syslog": clocked("May  1 10:{m:02}:{s:02} gw kernel: {line}"),
    "rsyslog": clocked("2024-05-01T10:{m:02}:{s:02}.123456+02:00 gw kernel: {line}"),
    "logread": clocked("Wed May  1 10:{m:02}:{s:02} 2024 kern.crit kernel: {line}"),
    "ts": clocked("May 01 10:{m:02}:{s:02} {line}"),
    "ts -s": clocked("00:{m:02}:{s:02} {line}"),
    "grabserial -t": clocked("[{n}.250000 0.000012] {line}"),
    "colours": lambda n, line: f"\x1b[1;32m{line}\x1b[0m",
}


@pytest.mark.parametrize("name", LOGGERS)
def test_what_a_logger_puts_before_a_line_changes_nothing(name: str) -> None:
    text = "".join(f"{LOGGERS[name](n, line)}\n" for n, line in enumerate(LINES))
    found = analyzed(text)

    (incident,) = [i for i in found.incidents if i.severity != "note"]
    assert (incident.trigger, incident.severity) == ("linux.oops", "critical")
    assert (incident.first_seq, incident.block_first) == (6, 6)
    assert "linux.panic" in {hit.trigger for hit in incident.hits}
    assert (found.lines, found.boots) == (10, 1)


def test_putty_writes_its_header_into_the_log() -> None:
    header = "=~=~=~=~=~=~=~=~=~=~=~= PuTTY log 2024.05.01 10:00:00 =~=~=~=~=~=~=~=~=~=~=~=\r\n"
    found = analyzed(header + TEXT.replace("\n", "\r\n"))

    assert [(i.trigger, i.first_seq) for i in found.incidents] == [("linux.oops", 7)]


@pytest.mark.parametrize(
    ("end", "lines"), [("\n", 10), ("\r\n", 10), ("\r\r\n", 10), ("\r", 10), ("\n\n", 20)]
)
def test_however_lines_end_they_are_counted_as_by_an_editor(end: str, lines: int) -> None:
    found = analyzed(TEXT.replace("\n", end))

    assert found.lines == lines
    assert [i.first_seq for i in found.incidents] == [11 if lines == 20 else 6]


@pytest.mark.parametrize(
    ("data", "eol"),
    [
        (b"", "lf"),
        (b"one\rtwo\rthree", "cr"),
        (b"one\r\n\r\ntwo\r\n", "lf"),
        (b"autoboot: 3\r2\r1\r0\nboot\n", "lf"),
        (b"1 %\r2 %\r3 %\r4 %\r" * 5 + b"\none\ntwo\nthree\n", "lf"),
        (b"=~=~= PuTTY log =~=~=\r\n" + b"a line\r" * 30, "cr"),
        (b"a line that is long\r" * 500 + b"and then LF\n" * 20, "cr"),
    ],
)
def test_cr_ends_lines_where_it_must(data: bytes, eol: str) -> None:
    assert eol_of(data) == eol


@pytest.mark.parametrize("encoding", ["utf-8-sig", "latin-1", "utf-16", "utf-16-le", "utf-16-be"])
@pytest.mark.parametrize("end", ["\n", "\r\n"])
def test_in_any_encoding_the_same_is_found(tmp_path, encoding: str, end: str) -> None:
    text = TEXT.replace("U-Boot 2023.10", "U-Boot 2023.10 für Bäume").replace("\n", end)
    (tmp_path / "a.log").write_bytes(text.encode(encoding))
    with open_log(tmp_path / "a.log") as log:
        found = asyncio.run(analyze(log, matcher(), *tools()))

    assert [(i.trigger, i.first_seq) for i in found.incidents] == [("linux.oops", 6)]
    assert (found.lines, found.boots) == (10, 1)
    assert found.report.title.startswith("Kernel oops")


# What takes time is told where time is known, and only there.

STORM = "".join(f"[{100 + n / 200:12.6f}] eth0: rx queue {n} is full\n" for n in range(2000))


def test_a_line_200_times_a_second_is_a_flood_where_stamps_say_so() -> None:
    assert [i.trigger for i in analyzed(STORM).incidents] == ["rate.flood"]


@pytest.mark.parametrize("pattern", [r"^\[.*?\] ", r"\.\d+"], ids=["no stamps", "spread out"])
def test_without_a_time_nothing_is_a_flood(pattern: str) -> None:
    assert analyzed(re.sub(pattern, "", STORM, flags=re.MULTILINE)).incidents == ()


def talking(pause_s: int) -> str:
    lines = [f"[{n / 2:12.6f}] sensor: {n} readings\n" for n in range(400)]
    return "".join(lines) + f"[{200 + pause_s:12.6f}] sensor: late\n"


@pytest.mark.parametrize(("pause_s", "triggers"), [(3, []), (900, ["link.silence"])])
def test_a_board_that_falls_silent_is_told(pause_s: int, triggers: list[str]) -> None:
    text = talking(pause_s)

    assert [i.trigger for i in analyzed(text).incidents] == triggers
    assert analyzed(re.sub(r"\[.*?\] ", "", text)).incidents == ()


def test_between_two_sessions_of_putty_no_board_was_silent() -> None:
    header = "=~=~=~=~=~=~=~=~=~=~=~= PuTTY log 2024.05.01 10:00:00 =~=~=~=~=~=~=~=~=~=~=~=\n"
    lines = talking(900).splitlines(keepends=True)
    found = analyzed(header + "".join(lines[:-1]) + header + lines[-1])

    assert found.incidents == ()
    assert found.lines == 403


def test_how_fast_a_board_restarts_is_told_only_where_it_is_known() -> None:
    boot = "\nU-Boot 2023.10 (Nov 02 2023 - 08:00:00 +0000)\nDRAM:  512 MiB\nresetting ...\n" + (
        "no environment, loading defaults\n" * 60
    )
    (known,) = analyzed("".join(f"[10:00:{n // 4:02}] {x}\n" for n, x in enumerate((boot * 6).split("\n")) if n < 230)).incidents  # fmt: skip
    (unknown,) = analyzed(boot * 6).incidents

    assert known.trigger == unknown.trigger == "boot.loop"
    assert re.search(r"starts in \d+ s", known.title)
    assert re.search(r"starts in \d+ lines", unknown.title)
    assert "seconds" in known.fields
    assert "seconds" not in unknown.fields


# Long logs


def test_a_report_on_a_fault_that_fills_the_log_reads_a_part_of_it() -> None:
    line = "[{:12.6f}] mmc0: Timeout waiting for hardware interrupt.\n"
    found = analyzed("".join(line.format(100 + n / 10) for n in range(3000)))

    assert found.incidents[0].count == 3000
    assert found.report is not None
    assert {e.seq for c in found.report.conclusions for e in c.evidence} <= set(range(1, 3001))


def test_lines_of_a_report_are_the_files_own_behind_a_very_long_line() -> None:
    found = analyzed("x" * 100_000 + "\n" + TEXT)

    assert found.incidents[0].first_seq == 7
    assert {e.seq for c in found.report.conclusions for e in c.evidence} <= set(range(7, 12))
    assert [line.seq for line in found.around] == list(range(1, 12))
    assert found.around[0].raw == b"x" * len(found.around[0].raw)


def test_a_packed_log_gives_what_the_log_gives(tmp_path) -> None:
    (tmp_path / "a.log").write_bytes(gzip.compress(TEXT.encode() * 30))
    with open_log(tmp_path / "a.log") as log:
        packed = asyncio.run(analyze(log, matcher(), *tools()))
    plain = analyzed(TEXT * 30)

    assert [(i.trigger, i.first_seq) for i in packed.incidents] == [
        (i.trigger, i.first_seq) for i in plain.incidents
    ]
