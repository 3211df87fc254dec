"""Lines torn in two: what a pattern finds across the seam, and what it may not."""

from __future__ import annotations

from datetime import timedelta

import pytest

from disguises import OTHER_STAMPS, STAMPS, START
from serialwatch.bundled import bundled_dir
from serialwatch.records import Boot, Finding, Hit, Lines
from serialwatch.triggers.matcher import Matcher
from serialwatch.triggers.rules import load_rules
from serialwatch.triggers.watch import PortWatch, WatchOptions

S = 1_000_000_000
PUTTY = b"[2026-06-22 03:58:12] "
SYSLOG = b"Jun 22 03:58:12 bench console[412]: "


@pytest.fixture(scope="module")
def matcher() -> Matcher:
    return Matcher(load_rules([bundled_dir("config/rules")]))


def found(matcher: Matcher, *chunks: bytes) -> list[Finding]:
    watch = PortWatch("dut1", matcher)
    out: list[Finding] = []
    seq = 1
    for chunk in chunks:
        out += watch.fed(Lines(seq, chunk.count(b"\n"), chunk, S, S))
        seq += chunk.count(b"\n")
    return out + watch.lost(20 * S)


def errors(findings: list[Finding]) -> list[tuple[str, int]]:
    return [
        (f.trigger, f.seq)
        for f in findings
        if isinstance(f, Hit) and f.severity in ("error", "critical")
    ]


@pytest.mark.parametrize("prefix", [b"", PUTTY, SYSLOG])
@pytest.mark.parametrize("is_cut", [False, True])
def test_a_torn_fault_is_in_the_first_of_its_lines(
    matcher: Matcher, prefix: bytes, is_cut: bool
) -> None:
    lines = [
        prefix + text + b"\n"
        for text in (
            b"app: all is well",
            b"Kernel panic - not sync",
            b"ing: Fatal exception in interrupt",
        )
    ]
    chunks = lines if is_cut else [b"".join(lines)]

    assert errors(found(matcher, *chunks)) == [("linux.panic", 2)]


def test_a_torn_banner_begins_a_boot(matcher: Matcher) -> None:
    whole = found(matcher, b"hello\nets Jul 29 2019 12:21:46\n\nrst:0x1 (POWERON_RESET)\n")
    torn = found(matcher, b"hello\nets Jul 29 2019 12:21:46\n\nrst:0x1 (POWER\nON_RESET)\n")

    assert [f.seq for f in whole if isinstance(f, Boot)] == [2]
    assert [f.seq for f in torn if isinstance(f, Boot)] == [2]


@pytest.mark.parametrize(
    "pair",
    [
        (b"mmc0: error", b"failed to find a word"),
        (b"the kernel", b"panic is what people do"),
        (b"Kernel panic - not sync", b"[    1.204411] ing: it has a stamp of its own"),
    ],
)
def test_two_whole_lines_make_no_fault(matcher: Matcher, pair: tuple[bytes, bytes]) -> None:
    assert errors(found(matcher, b"ready\n" + b"".join(line + b"\n" for line in pair))) == []


@pytest.mark.parametrize(
    ("halves", "is_told"),
    [
        ((b'{"StatusPRM":{"Baudrate":115200,"RestartR', b'eason":"Exception"}}'), False),
        ((b"HAL_ADC_Start error: n", b"o error"), False),
        ((b"SQUASHFS error: Can't find a SQUASHFS superblo", b"ck on mtdblock3"), False),
        ((b"SQUASHFS error: zlib decompression fai", b"led, data probably corrupt"), True),
        ((b"SQUASHFS error: zlib decompression failed", b"and the next line is one"), True),
    ],
)
@pytest.mark.parametrize("prefix", [b"", PUTTY])
@pytest.mark.parametrize("is_cut", [False, True])
def test_half_of_a_line_is_no_fault_if_the_whole_of_it_is_none(
    matcher: Matcher, halves: tuple[bytes, bytes], is_told: bool, prefix: bytes, is_cut: bool
) -> None:
    lines = [prefix + text + b"\n" for text in (b"ready", *halves)]

    assert bool(errors(found(matcher, *(lines if is_cut else [b"".join(lines)])))) == is_told


def test_a_fault_that_the_rest_of_its_line_may_deny_waits_for_the_next_tick(
    matcher: Matcher,
) -> None:
    watch = PortWatch("dut1", matcher)
    text = b"SQUASHFS error: zlib decompression failed\n"
    at_once = watch.fed(Lines(1, 1, text, S, S))
    too_early = watch.tick(S + S // 100, S)

    assert (at_once, too_early) == ([], [])
    assert errors(watch.tick(S + S // 50, S)) == [("linux.squashfs_error", 1)]


def test_a_torn_line_on_a_console_of_crlf_is_joined_too(matcher: Matcher) -> None:
    text = b"app: all is well\r\nKernel panic - not sync\r\ning: Fatal exception\r\n"

    assert errors(found(matcher, text)) == [("linux.panic", 2)]


@pytest.mark.parametrize("prefix", [b"", PUTTY, SYSLOG])
@pytest.mark.parametrize("is_cut", [False, True])
def test_a_line_in_three_pieces_is_in_the_first_of_them(
    matcher: Matcher, prefix: bytes, is_cut: bool
) -> None:
    texts = (b"app: all is well", b"Kernel pa", b"nic - not sync", b"ing: Fatal exception")
    lines = [prefix + text + b"\n" for text in texts]

    assert errors(found(matcher, *(lines if is_cut else [b"".join(lines)]))) == [("linux.panic", 2)]


@pytest.mark.parametrize(
    ("halves", "trigger"),
    [
        ((b"[  201.118003] remoteproc0: crash detected in im", b"x-rproc: type watchdog"), "linux.rproc_crash"),
        ((b"WDG: T12 SL0 FL431 FT", b"3 FA0 FTP180 FLR80a14c9"), "chibios.watchdog_report"),
        ((b"++ Mbed", b"OS Error Info ++"), "mbed.error"),
        ((b"++ MbedOS Error Info ", b"++"), "mbed.error"),
        ((b"(0) assertion failed at function:rt_mutex_tak", b"e, line number:1271 "), "rtthread.hardfault"),
        ((b"[0000.233] C> LOADER: Could n", b"ot read binary 6."), "uboot.first_stage_error"),
        ((b'assertion "head - tail <= RIN', b'G_LEN" failed: file "ring.c", line 71'), "newlib.assert"),
        ((b"free(", b"): invalid next size (fast)"), "user.glibc_abort"),
    ],
)  # fmt: skip
def test_a_line_may_be_torn_in_a_name_a_number_or_a_bracket(
    matcher: Matcher, halves: tuple[bytes, bytes], trigger: str
) -> None:
    text = b"app: all is well\n" + b"".join(half + b"\n" for half in halves)

    assert (trigger, 2) in errors(found(matcher, text))


@pytest.mark.parametrize(
    "pair",
    [
        (b"Internal errors 0x0", b"baro: 101029 Pa"),
        (b"Internal errors 0x0", b"12:31:00 loop 413 Hz"),
        (b"erofs (device dm-2): mounted", b"the app failed to decompress"),
    ],
)
def test_a_number_at_the_end_of_a_line_is_whole(
    matcher: Matcher, pair: tuple[bytes, bytes]
) -> None:
    assert errors(found(matcher, b"ready\n" + b"".join(line + b"\n" for line in pair))) == []


def test_what_comes_behind_a_torn_line_is_counted_from_its_last_piece(matcher: Matcher) -> None:
    text = b"""U-Boot 2010.03 (Mar 11 2013 - 16:20:05) MPC83XX
NAND:  Machine check in kerne
l mode.
Caused by (from msr): regs 07d3bc58 Unknown values in msr
"""

    assert [trigger for trigger, _ in errors(found(matcher, text))] == ["uboot.abort"]


@pytest.mark.parametrize(("is_saved", "is_told"), [(False, True), (True, False)])
def test_stamps_of_whole_seconds_may_differ_in_a_saved_line(
    matcher: Matcher, is_saved: bool, is_told: bool
) -> None:
    watch = PortWatch("dut1", matcher, WatchOptions(is_saved=is_saved))
    halves = (
        b"[2026-06-22 03:58:12] SQUASHFS error: Can't find a SQUASHFS superblo\n",
        b"[2026-06-22 03:58:13] ck on mtdblock3\n",
    )
    findings: list[Finding] = []
    for seq, half in enumerate(halves, 1):
        findings += watch.tick(seq * S, seq * S)
        findings += watch.fed(Lines(seq, 1, half, seq * S, seq * S))

    assert bool(errors(findings + watch.lost(20 * S))) == is_told


def test_a_critical_line_that_ends_in_a_colon_waits_for_its_value(matcher: Matcher) -> None:
    listed = b"msh />memtrace\nMemory block wrong:\n 0\n"
    damaged = b"Memory block wrong:\naddress: 0x20001a40\n"

    assert errors(found(matcher, listed)) == []
    assert errors(found(matcher, damaged)) == [("rtthread.heap_corrupt", 1)]


def test_the_line_that_explains_a_fault_may_be_torn(matcher: Matcher) -> None:
    text = b"""Traceback (most recent call last):
  File "/root/poll.py", line 212, in <module>
    main()
Keyboard
Interrupt
"""

    assert errors(found(matcher, b"poll: 12 registers\n" + text)) == []
    assert errors(found(matcher, b"poll: 12 registers\n" + text[: text.index(b"Keyb")]))


@pytest.mark.parametrize("prefix", [b"", PUTTY, SYSLOG])
def test_a_space_that_was_torn_off_is_no_line_between_a_command_and_its_answer(
    matcher: Matcher, prefix: bytes
) -> None:
    lines = (
        b"gateway>info",
        b"MFG String:",
        b" ",
        b"AppBuilder MFG Code: 1",
        b"Reset info: 0x06 (SW )",
    )
    text = b"".join(prefix + line + b"\n" for line in lines)

    assert not any(isinstance(f, Boot) for f in found(matcher, text * 3))


@pytest.mark.parametrize("name", [*STAMPS, *OTHER_STAMPS])
@pytest.mark.parametrize("is_cut", [False, True])
def test_a_line_torn_by_a_logger_is_one_whatever_its_stamps_are(
    matcher: Matcher, name: str, is_cut: bool
) -> None:
    stamp = {**STAMPS, **OTHER_STAMPS}[name]
    texts = (b"hello world: all is well", b"Kernel panic - not sync", b"ing: Fatal exception")
    lines = [
        stamp(START + timedelta(seconds=number)) + text + b"\n" for number, text in enumerate(texts)
    ]

    assert errors(found(matcher, *(lines if is_cut else [b"".join(lines)]))) == [("linux.panic", 2)]


@pytest.mark.parametrize("stamp", [b"12:00:01 ", b"[12:00:01.123] ", SYSLOG])
@pytest.mark.parametrize("halves", [(b"ing: Fatal",), (b"i", b"ng: Fatal")])
def test_where_the_board_writes_the_time_the_second_half_has_none(
    matcher: Matcher, stamp: bytes, halves: tuple[bytes, ...]
) -> None:
    lines = (stamp + b"hello", stamp + b"Kernel panic - not sync", *halves, stamp + b"bye")

    assert errors(found(matcher, b"\n".join((*lines, b"")))) == [("linux.panic", 2)]


@pytest.mark.parametrize("is_cut", [False, True])
def test_a_logger_may_say_something_before_it_logs(matcher: Matcher, is_cut: bool) -> None:
    texts = (b"hello", b"all is well", b"Kernel panic - not sync", b"ing: Fatal exception")
    lines = [b"Welcome to minicom 2.9\n", *(PUTTY + text + b"\n" for text in texts)]

    assert errors(found(matcher, *(lines if is_cut else [b"".join(lines)]))) == [("linux.panic", 4)]


@pytest.mark.parametrize(
    ("halves", "trigger"),
    [
        ((b"Kernel \x1b", b"[0mpanic - not syncing: x"), "linux.panic"),
        ((b"Kernel \x1b[0;1", b"mpanic - not syncing: x"), "linux.panic"),
        ((b"Kernel pan\x1b[", b"0mic - not syn", b"cing: x"), "linux.panic"),
        ((b"!!!", b"!!!!!!! Excep", b"tion  !!!!!!!!!!"), "alios.exception"),
        ((b"H", b"AL", b"_SD_Init failed"), "stm32.hal_failed"),
        ((b"[  440.118001] md/r", b"aid1:m", b"d2: Disk failure on sdb3, disabling device."), "linux.raid_fail"),
        ((b"*", b"*", b"* FATAL ***", b"fatal source: 9 (RTEMS_FATAL_SOURCE_EXCEPTION)"), "rtems.fatal"),
    ],
)  # fmt: skip
@pytest.mark.parametrize("prefix", [b"", PUTTY])
@pytest.mark.parametrize("is_cut", [False, True])
def test_a_line_may_be_torn_in_an_escape_or_a_row_of_marks_or_into_single_letters(
    matcher: Matcher, halves: tuple[bytes, ...], trigger: str, prefix: bytes, is_cut: bool
) -> None:
    lines = [prefix + text + b"\n" for text in (b"app: all is well", *halves)]
    told = errors(found(matcher, *(lines if is_cut else [b"".join(lines)])))

    assert (trigger, 2) in told


def test_a_ruler_above_a_torn_line_is_no_part_of_it(matcher: Matcher) -> None:
    text = b"hello\n!!!\n!!!!!!!!!! Excep\ntion  !!!!!!!!!!\n"

    assert errors(found(matcher, text)) == [("alios.exception", 3)]


@pytest.mark.parametrize(
    ("before", "boots"), [(b"SYS: ----", [2]), (b"a line without a tag", []), (b"", [])]
)
def test_a_line_that_lacks_the_tag_of_all_others_may_go_on_from_one(
    matcher: Matcher, before: bytes, boots: list[int]
) -> None:
    text = before + b"\nSYS: Cr\nazyflie 2.1 is up and running!\nSYS: Build 6\n"

    assert [f.seq for f in found(matcher, text) if isinstance(f, Boot)] == boots


def test_a_line_in_pieces_is_as_old_as_its_first_one(matcher: Matcher) -> None:
    watch = PortWatch("dut1", matcher, WatchOptions(is_saved=True))
    out = watch.fed(Lines(1, 1, b"Kernel panic - not sync\n", 5 * S, 5 * S))
    out += watch.fed(Lines(2, 1, b"ing: Fatal exception\n", 6 * S, 6 * S)) + watch.lost(20 * S)

    assert [f.mono_ns for f in out if isinstance(f, Hit) and f.trigger == "linux.panic"] == [5 * S]
