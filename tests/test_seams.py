"""Lines torn in two: what a pattern finds across the seam, and what it may not."""

from __future__ import annotations

import pytest

from serialwatch.bundled import bundled_dir
from serialwatch.records import Boot, Finding, Hit, Lines
from serialwatch.triggers.matcher import Matcher
from serialwatch.triggers.rules import load_rules
from serialwatch.triggers.watch import PortWatch

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
