"""Which consoles end their lines with CR, and which only draw one line again and again."""

from __future__ import annotations

import random

import pytest

from log_feed import chunked
from serialwatch.lines import AUTO_LF_AFTER, YOUNG_BYTES, Splitter
from serialwatch.redraws import AUTO_CR_AFTER, FIRST_LINES, LOOK_AFTER

BOOT = b"U-Boot SPL 2023.01 (Jun 22 2026)\rTrying to boot from MMC1\rFailed to load image\rhang\r"
KERNEL = b"".join(b"[    0.%06d] CPU%d: failed to come online\r" % (n * 731, n) for n in range(4))
CODES = b"ROM:3b1c09af\rBFV:0142500d\rLCV:02108421\rROM:3b1c09af\rBFV:0142500d\rLCV:02108421\r"
DRAWN_AGAIN = {
    "names of numbers": b"".join(b"\rsent:%d lost:%d rate:%dk" % (n, n, n) for n in range(40)),
    "countdown": b"\r".join(b"Hit any key to stop autoboot: %d" % n for n in range(9, 0, -1)),
    "hashes": b"".join(b"\rLoading: " + b"#" * n + b" %d KiB/s" % n for n in range(40)),
    "spinner": b"".join(b"\r%c waiting for link" % b"-\\|/"[n % 4] for n in range(60)),
    "flash": b"".join(b"\rErasing at 0x%x -- %d%% complete." % (n << 16, n) for n in range(99))
    + b"".join(b"\rWriting at 0x%x -- %d%% complete." % (n << 16, n) for n in range(9)),
    "bad blocks": b"\rErasing at 0x40000 -- 12% complete.\rSkipping bad block at 0x60000" * 20,
    "apt": b"".join(b"(Reading database ... %d%%\r" % n for n in range(0, 100, 5)),
    "dd": b"".join(b"\r%d bytes (%d MB, %d MiB) copied, %d s, 9 MB/s" % (n, n, n, n) for n in range(9)),
    "curl": b"".join(b"\r %2d  100M %2d %dk    0     0  1024k" % (n, n, n) for n in range(40)),
    "wget": b"".join(b"\rrootfs.img  %d%%[==>   ] %d.2M  500KB/s  eta %ds" % (n, n, n) for n in range(30)),
    "jobs": b"".join(
        b"\r[ ***  ] (%d of 3) A start job is running for dev-sd%c.device (%ds / 1min 30s)"
        % (n % 3, b"abc"[n % 3], n)
        for n in range(40)
    ),
    "edited command": b"".join(b"\r=> " + b"setenv bootargs console=ttyS0"[:n] for n in range(29)),
    "history": b"\rroot@board:~# dmesg\x1b[K\rroot@board:~# ls /\x1b[K\rroot@board:~# cat x\x1b[K" * 9,
    "menu": b"\x1b[2J\x1b[1;1H*** Boot Menu ***\r\x1b[3;3HNormal\r\x1b[4;3HRescue\r\x1b[5;3HShell",
    "screen": b"\x1b[Hone screen\x1b[K\rof an editor\x1b[K\rwith words\x1b[K\rin lines\x1b[K" * 5,
    "xmodem": b"CCCCCC\r\x15\rCCC\r",
    "wrong bit rate": random.Random(3).randbytes(900).replace(b"\n", b"") + b"\r" * 9,
}  # fmt: skip


def turns(chunks: list[bytes], splitter: Splitter | None = None) -> list[tuple[int, str]]:
    """Return after which bytes, and to what, a console turns out to end its lines."""
    splitter = splitter or Splitter()
    found, at = [], 0
    for chunk in chunks:
        rest = chunk
        while (turn := splitter.turn(rest)) is not None:
            splitter.feed(rest[:turn])
            splitter = splitter.turned()
            rest = rest[turn:]
            found.append((at + len(chunk) - len(rest), splitter.eol))
        if rest:
            splitter.feed(rest)
        at += len(chunk)
    return found


@pytest.mark.parametrize("name", DRAWN_AGAIN)
@pytest.mark.parametrize("before", [b"", b"a line\r\nand another\n"])
def test_a_line_that_is_drawn_again_ends_no_lines(name: str, before: bytes) -> None:
    drawn = DRAWN_AGAIN[name][: AUTO_CR_AFTER - 1]

    assert turns([before + drawn + b"\r\nready\r\n" + drawn]) == []


@pytest.mark.parametrize("lines", [BOOT, KERNEL, CODES])
def test_a_console_of_crs_is_known_when_it_has_said_three_different_things(lines: bytes) -> None:
    third = len(b"\r".join(lines.split(b"\r")[:FIRST_LINES])) + 1

    assert turns([lines]) == [(third, "cr")]
    assert turns([lines[:third]]) == []
    assert turns([lines[:third], b"\n"]) == []
    assert turns([lines.replace(b"\r", b"\r\n")]) == turns([lines.replace(b"\r", b"\n\r")]) == []


def test_behind_an_lf_it_takes_six_lines_and_some_size() -> None:
    noise, app = b"\xf0\x0a\x91", b"".join(b"%s value\r" % word for word in WORDS)
    (at, eol), *others = turns([noise + app])

    assert (eol, others) == ("cr", [])
    assert LOOK_AFTER <= at - len(noise) < LOOK_AFTER + 20


def test_later_only_a_long_line_with_crs_is_taken_for_lines() -> None:
    before = b"a line of text\n" * (YOUNG_BYTES // 15 + 1)
    app = b"".join(b"%s value\r" % word for word in WORDS) * 12

    ((at, eol),) = turns([before + app])

    assert eol == "cr"
    assert AUTO_CR_AFTER <= at - len(before) < AUTO_CR_AFTER + 20


def test_a_console_that_ends_lines_with_lf_again_is_no_longer_one_of_crs() -> None:
    bar = b"".join(b"\r%d of 500 blocks" % n for n in range(500))
    first = bar + b"\r\none\r\ntwo\r\n\r\nthree\r\n" + bar[:900] + b"\r\n"
    assert [eol for _, eol in turns([first])] == ["cr", "lf"]

    at = turns([first])[1][0]
    assert first[:at].endswith(b"three\r\n")
    assert turns([b"a\r\nb\r\nc\r\nd\r\ne\r\n"], Splitter("cr")) == [(12, "lf")]


def test_the_next_time_it_takes_four_times_as_many_lines_each() -> None:
    bar = b"".join(b"\r%d of 500 blocks" % n for n in range(500))
    lines = b"ready\r\n" * (AUTO_LF_AFTER - 1)

    assert [eol for _, eol in turns([(bar + b"\r\n" + lines) * 3])] == ["cr", "lf", "cr"]
    assert [eol for _, eol in turns([(bar + b"\r\n" + lines * 6) * 2])] == ["cr", "lf", "cr", "lf"]


@pytest.mark.parametrize("text", [b"23.4 C\r\n\n\n\n\n\n", b"\n\r23.4 C", b"a\r\nb\r\nc\r\nd\r"])
def test_blank_lines_and_single_lfs_say_nothing(text: bytes) -> None:
    assert [eol for _, eol in turns([BOOT + b"ok\r" + (text + b"\r") * 20])] == ["cr"]


def test_no_chunking_changes_what_a_console_turns_out_to_be() -> None:
    rng = random.Random(5)
    seen = set()
    for _ in range(120):
        data = _console_of_both(rng)
        wanted = turns([data])
        seen.update((number, eol) for number, (_, eol) in enumerate(wanted))

        assert turns(chunked(rng, data)) == wanted

    assert {(0, "cr"), (1, "lf"), (2, "cr")} <= seen


def _console_of_both(rng: random.Random) -> bytes:
    pieces = [
        BOOT, BOOT.replace(b"\r", b"\n"), KERNEL.replace(b"\r", b"\r\n"), KERNEL, b"\r", b"\n",
        b"\r\n", b"text", b"\x1b[K", *DRAWN_AGAIN.values(), b"x" * 300, b"line\n" * 9,
        b"%s value\r" % rng.choice(WORDS), b"word\r" * 900, b"a line of text\n" * 1200,
    ]  # fmt: skip
    return b"".join(rng.choice(pieces) for _ in range(rng.randint(1, 14)))


WORDS = [
    b"amber", b"brick", b"cedar", b"delta", b"ember", b"flint", b"grove", b"haven", b"ivory",
    b"jolly", b"karst", b"lemon", b"maple", b"north", b"ocean", b"pearl", b"quartz", b"river",
    b"stone", b"tulip", b"umbra", b"valve", b"water", b"xenon", b"yield", b"zebra", b"angle",
    b"basin", b"cabin", b"dough", b"eagle", b"fable", b"giant", b"hazel", b"index", b"joint",
]  # fmt: skip
