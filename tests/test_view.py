from __future__ import annotations

import random

import pytest

from serialwatch.triggers.view import Stripper, strip_escapes


def test_clean_text_is_handed_on_as_it_is() -> None:
    text = b"[    1.000000] plain text, a tab\t, a caret ^ and a class [^a]\r\r\n"

    assert strip_escapes(text) is text
    assert Stripper()(text) is text


@pytest.mark.parametrize(
    ("raw", "view"),
    [
        (b"\x1b[0;31mE (10) x: y\x1b[0m\r\n", b"E (10) x: y\r\n"),
        (b"[\x1b[1;31mFAILED\x1b[0m] Failed to start\n", b"[FAILED] Failed to start\n"),
        (b"^[[0;32m[  OK  ]^[[0m ready\n", b"[  OK  ] ready\n"),
        (b"\x1b]0;title\x07Kernel panic\n", b"Kernel panic\n"),
        (b"\x1b]8;;http://x\x1b\\Kernel panic\n", b"Kernel panic\n"),
        (b"\x1bP1$r0m\x1b\\Kernel panic\n", b"Kernel panic\n"),
        (b"\x1b(B\x1b7Kernel\x1b[2K\x1b[1G panic\n", b"Kernel panic\n"),
        (b"Ker\x00nel\x00 panic\x7f\n", b"Kernel panic\n"),
        (b"autoboot:  2 \x08\x08\x08 1\n", b"autoboot:  2  1\n"),
        (b"\x0cform\x0b feed\x07\n", b"form feed\n"),
        ("Gerät läuft: 24 °C\n".encode(), "Gerät läuft: 24 °C\n".encode()),
        (b"\xff\xfe broken \x9b utf-8\n", b"\xff\xfe broken \x9b utf-8\n"),
    ],
)
def test_escapes_and_controls_are_gone(raw: bytes, view: bytes) -> None:
    strip = Stripper()

    assert strip_escapes(raw) == view
    assert strip(raw) == view
    assert strip(b"clean\n") == b"clean\n"


@pytest.mark.parametrize(
    "raw",
    [
        b"\x1b]0;never ended Kernel panic\n",
        b"\x1bPnever ended Kernel panic\n",
        b"\x1b\x1b Kernel panic\n",
    ],
)
def test_an_escape_that_never_ends_hides_nothing(raw: bytes) -> None:
    assert b"Kernel panic\n" in strip_escapes(raw)


def test_an_escape_cut_by_a_line_end_takes_nothing_of_the_next_line() -> None:
    assert strip_escapes(b"red\x1b[31\r\nmore\n") == b"red\r\nmore\n"
    assert strip_escapes(b"osc\x1b]0;x\nKernel panic\x07\n") == b"osc]0;x\nKernel panic\n"


def test_lines_and_carriage_returns_are_kept_whatever_the_bytes() -> None:
    rng, strip = random.Random(3), Stripper()
    odd = b"\x1b\x1b[]PX^_;0m\x07\\\x00\x08ab^[\r\n\n"
    for _ in range(3000):
        raw = bytes(rng.choice(odd) for _ in range(rng.randint(0, 40)))
        view = strip_escapes(raw)

        assert strip(raw) == view
        assert view.count(b"\n") == raw.count(b"\n")
        assert view.count(b"\r") == raw.count(b"\r")
        assert not set(view) & (set(range(32)) - {9, 10, 13})
        assert b"\n".join(map(strip_escapes, raw.split(b"\n"))) == view
