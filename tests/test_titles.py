"""Titles without numbers, and fingerprints."""

from __future__ import annotations

import time

import pytest

from serialwatch.titles import MAX_TITLE, duration, fingerprint, normalise, readable


@pytest.mark.parametrize(
    ("title", "normal"),
    [
        ("IRQ 33 was disabled: nobody cared", "IRQ NUM was disabled: nobody cared"),
        ("page fault at ffff888012345678", "page fault at ADDR"),
        ("page fault at 0000000012345678", "page fault at ADDR"),
        ("PC 80001234 LR 8000123c", "PC ADDR LR ADDR"),
        ("read of 0x3ffb1234", "read of ADDR"),
        ("read of 0x10", "read of NUM"),
        ("lost 1234567 bytes of 9", "lost NUM bytes of NUM"),
        ("link 10.0.0.1 aa:bb:cc:dd:ee:ff fe80::1ff:fe23:4567:890a", "link IP MAC IP"),
        ("in foo_bar+0x12/0x34 [mod]", "in foo_bar [mod]"),
        ("in foo_bar+0x123456/0x234567", "in foo_bar"),
        ("assert at /home/me/src/kernel/mutex.c:123", "assert at mutex.c:LINE"),
        ("assert at main.cpp:12:7", "assert at main.cpp:LINE"),
        ("lockup - CPU#1 stuck for 22s! [cat:1234]", "lockup - CPU stuck for NUMs! [cat:NUM]"),
        ("CPU: 0 PID: 12", "CPU PID: NUM"),
        ("error -110, 3.3 V", "error -NUM, NUM.NUM V"),
        ("no line for 45 s from it", "no line for NUM s from it"),
        ("no line for 60 d 4 h from it", "no line for NUM s from it"),
        ("came back 2.3 s later", "came back NUM s later"),
        ("retry 3 min_rate 5 sensors", "retry NUM min_rate NUM sensors"),
        ("eth0 and mmcblk1p2 on stm32", "eth0 and mmcblk1p2 on stm32"),
        ("a facade in its third decade", "a facade in its third decade"),
        ("std::vector at 12:34:56", "std::vector at NUM:NUM:NUM"),
        ("temp  21 °C\t☃", "temp NUM C"),
    ],
)
def test_a_title_loses_what_differs_each_time(title: str, normal: str) -> None:
    assert normalise(title) == normal


def test_a_normalised_title_is_short() -> None:
    assert len(normalise("word " * 1000)) <= MAX_TITLE


def test_a_title_made_to_be_slow_is_not() -> None:
    started = time.process_time()
    for title in ("ab:" * 5000, "a/" * 5000, "1" * 20000, "0f" * 20000, "a.b+" * 5000, ":" * 9999):
        normalise(title)

    assert time.process_time() - started < 2  # backtracking would take minutes


def test_a_fingerprint_ignores_numbers_but_not_rule_title_or_firmware() -> None:
    one = fingerprint("linux.oops", "oops in foo+0x12/0x34, CPU 1", "6.1.0")

    assert one == fingerprint("linux.oops", "oops in foo+0x40/0x50, CPU 3", "6.1.0")
    assert len(one) == 16
    assert one != fingerprint("linux.panic", "oops in foo+0x12/0x34, CPU 1", "6.1.0")
    assert one != fingerprint("linux.oops", "oops in bar+0x12/0x34, CPU 1", "6.1.0")
    assert one != fingerprint("linux.oops", "oops in foo+0x12/0x34, CPU 1", "6.2.0")


def test_a_title_of_any_characters_has_a_fingerprint() -> None:
    assert len(fingerprint("x.y", "lone \udc80 surrogate \x00", "")) == 16


@pytest.mark.parametrize(
    ("seconds", "told"),
    [
        (0, "0 s"),
        (0.42, "0.4 s"),
        (9.96, "10 s"),
        (59.4, "59 s"),
        (59.6, "1 min"),
        (150, "2 min 30 s"),
        (3599.9, "1 h"),
        (11_520, "3 h 12 min"),
        (86_399, "1 d"),
        (5_198_400, "60 d 4 h"),
    ],
)
def test_a_time_is_told_in_two_units_at_most(seconds: float, told: str) -> None:
    assert duration(seconds) == told


@pytest.mark.parametrize(
    ("raw", "text"),
    [
        (b"  plain text\r\n", "plain text"),
        (b"tab\there", "tab here"),
        ("gone: \u009b31m".encode(), "gone: \\x9b31m"),
        ("next line \u0085".encode(), "next line \\x85"),
        ("abc\u202ecba".encode(), "abc\\x202ecba"),
        (b"not utf-8 \x9b5n", "not utf-8 \\x9b5n"),
        ("21 \u00b0C".encode(), "21 \u00b0C"),
    ],
)
def test_what_a_board_prints_is_harmless_in_a_title_and_nothing_of_it_is_lost(
    raw: bytes, text: str
) -> None:
    assert readable(raw) == text
    assert readable(raw).isprintable()
