"""What is seen of console bytes is what `logs` and `attach` would show of them."""

from __future__ import annotations

import random

import pytest

from serialwatch.cli.escapes import Allowed, EscapeFilter, line_text
from serialwatch.plain import holds, plain

FAILED = b"[\x1b[0;1;31mFAILED\x1b[0m] Failed to start \x1b[0;1;39mfoo.service\x1b[0m - bar."
PIECES = [
    b"a", b"Kernel panic", b" ", b"\t", b"\x1b", b"\x1b[", b"\x1b[0;31m", b"\x1b[2", b"K", b"m",
    b"\x1b]0;", b"title", b"\x07", b"\x1b\\", b"\x1bP", b"\x18", b"\x1a", b"\x1b(", b"0", b"\x1b#8",
    b"\x00", b"\x08", b"\x7f", b"\xc3\xbc", b"\xe2\x82\xac", b"\xe2\x80\x8e", b"\xe2\x81\xa6",
    b"\xc2\x9b", b"\xf3\xa0\x81\xa1", b"\xd8\x9c", b"\x1b7", b"\x1b^", b"[", b"]",
]  # fmt: skip


def test_it_is_what_the_terminal_is_shown() -> None:
    rng = random.Random(12)
    for _ in range(3000):
        raw = b"".join(rng.choices(PIECES, k=rng.randrange(12)))
        assert plain(raw) == EscapeFilter(Allowed.TEXT).feed(raw), raw


def test_line_ends_stay_and_end_a_sequence_that_is_cut_short() -> None:
    assert plain(b"a\x1b[3\r\nb\x1b]0;t\nc\x1b\n") == b"a\r\nb\nc\n"


@pytest.mark.parametrize(
    "text", [b"[FAILED]", b"Failed to start foo.service - bar.", b"\x1b[0;1;31m", b"FAILED"]
)
def test_a_text_is_found_as_it_came_and_as_it_is_shown(text: bytes) -> None:
    assert holds(FAILED, text)
    assert not holds(FAILED, b"[OK]")
    assert line_text(FAILED, colour=False).startswith("[FAILED] Failed to start foo.service")
