"""Titles without numbers, and fingerprints."""

from __future__ import annotations

import time

import pytest

from serialwatch.titles import MAX_TITLE, fingerprint, normalise


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
    started = time.monotonic()
    for title in ("ab:" * 5000, "a/" * 5000, "1" * 20000, "0f" * 20000, "a.b+" * 5000, ":" * 9999):
        normalise(title)

    assert time.monotonic() - started < 0.5


def test_a_fingerprint_ignores_numbers_but_not_rule_title_or_firmware() -> None:
    one = fingerprint("linux.oops", "oops in foo+0x12/0x34, CPU 1", "6.1.0")

    assert one == fingerprint("linux.oops", "oops in foo+0x40/0x50, CPU 3", "6.1.0")
    assert len(one) == 16
    assert one != fingerprint("linux.panic", "oops in foo+0x12/0x34, CPU 1", "6.1.0")
    assert one != fingerprint("linux.oops", "oops in bar+0x12/0x34, CPU 1", "6.1.0")
    assert one != fingerprint("linux.oops", "oops in foo+0x12/0x34, CPU 1", "6.2.0")


def test_a_title_of_any_characters_has_a_fingerprint() -> None:
    assert len(fingerprint("x.y", "lone \udc80 surrogate \x00", "")) == 16
