"""What of a board's output reaches the terminal."""

from __future__ import annotations

import random
import re

import pyte
import pytest

from serialwatch.cli.escapes import Allowed, EscapeFilter, line_text

# All that may come out: text, five controls, and sequences that move, erase or colour.
SAFE = re.compile(
    r"(?:[\x20-\x7e\u00a0-\U0010ffff\a\b\t\n\r]"
    r"|\x1b\[[0-9;:]*m"
    r"|\x1b\[\d{0,4}(?:;\d{0,4})?[ABCDEFGHIKLMPSXZ@`abdefr]"
    r"|\x1b\[[012]?J|\x1b\[\d{0,4}T|\x1b\[[su]|\x1b\[\?25[hl]|\x1b[78DEM])*"
)
DANGEROUS = {
    "title": b"\x1b]0;evil\x07",
    "title ended by ST": b"\x1b]2;evil\x1b\\",
    "clipboard": b"\x1b]52;c;cm0gLXJmIC8K\x07",
    "link": b"\x1b]8;;http://evil\x1b\\",
    "colour query": b"\x1b]11;?\x07",
    "device string": b'\x1bP$q"p\x1b\\',
    "terminfo query": b"\x1bP+q544e\x1b\\",
    "program command": b"\x1b_Gi=1,a=q;AAAA\x1b\\",
    "privacy message": b"\x1b^x\x1b\\",
    "start of string": b"\x1bXx\x1b\\",
    "cursor report": b"\x1b[6n",
    "status report": b"\x1b[5n",
    "private report": b"\x1b[?15n",
    "device attributes": b"\x1b[c",
    "device attributes 2": b"\x1b[>c",
    "device attributes 3": b"\x1b[=0c",
    "version query": b"\x1b[>q",
    "identify": b"\x1bZ",
    "answerback": b"\x05",
    "window report": b"\x1b[21t",
    "window resize": b"\x1b[8;1;1t",
    "print screen": b"\x1b[5i",
    "mode query": b"\x1b[?1$p",
    "terminal parameters": b"\x1b[0x",
    "shift out": b"\x0e",
    "shift in": b"\x0f",
    "line drawing": b"\x1b(0",
    "line drawing G1": b"\x1b)0",
    "character set": b"\x1b%@",
    "bracketed paste": b"\x1b[?2004h",
    "mouse": b"\x1b[?1000h\x1b[?1006h",
    "focus": b"\x1b[?1004h",
    "alternate screen": b"\x1b[?1049h",
    "application keys": b"\x1b[?1h\x1b=",
    "keyboard lock": b"\x1b[2h",
    "local echo": b"\x1b[12l",
    "kitty keys": b"\x1b[>1u\x1b[?u",
    "key modifiers": b"\x1b[>4;2m",
    "leds": b"\x1b[1q",
    "full reset": b"\x1bc",
    "soft reset": b"\x1b[!p",
    "screen alignment": b"\x1b#8",
    "history erase": b"\x1b[3J",
    "highlight tracking": b"\x1b[1;2;3;4;5T",
    "huge count": b"\x1b[99999999b",
    "C1 CSI": b"\x9b6n",
    "C1 CSI in UTF-8": b"\xc2\x9b6n",
    "C1 OSC in UTF-8": b"\xc2\x9d0;evil\x07",
    "C1 DCS": b"\x90q",
    "single shift": b"\x1bN\x1bO",
    "right to left": "\u202egnp.exe\u2066".encode(),
    "NUL and DEL": b"\x00\x7f",
    "overlong ESC": b"\xc0\x9b\xe0\x80\x9b\xf0\x80\x80\x9b",
    "CSI in CSI": b"\x1b[1\x1b[6n",
    "newline in CSI": b"\x1b[6\nn",
    "long CSI": b"\x1b[" + b"1;" * 200 + b"n",
    "intermediate": b"\x1b[ q\x1b[2 q\x1b[1;1;1;1*y",
}


def shown(data: bytes, allowed: Allowed = Allowed.SCREEN) -> bytes:
    """Return what one chunk gives."""
    return EscapeFilter(allowed).feed(data)


@pytest.mark.parametrize("data", DANGEROUS.values(), ids=DANGEROUS.keys())
def test_a_dangerous_sequence_does_not_get_through_wherever_it_is_split(data: bytes) -> None:
    whole = shown(b"<" + data + b">")

    assert SAFE.fullmatch(whole.decode())
    for at in range(len(data) + 2):
        escapes = EscapeFilter(Allowed.SCREEN)
        text = b"<" + data + b">"
        assert escapes.feed(text[:at]) + escapes.feed(text[at:]) == whole


@pytest.mark.parametrize("data", DANGEROUS.values(), ids=DANGEROUS.keys())
def test_text_goes_on_after_a_dangerous_sequence(data: bytes) -> None:
    assert shown(data + b"\r\nlogin: ").endswith(b"\r\nlogin: ")


@pytest.mark.parametrize(
    "data",
    [
        b"plain text\r\n\twith tabs\x08\x07",
        "Überhitzung: 80 °C – \u2713 \U0001f525".encode(),
        b"\x1b[0;32mI (31) boot: ESP-IDF\x1b[0m\r\n",
        b"\x1b[38;2;255;100;0m\x1b[4:3mx\x1b[m",
        b"\x1b[2J\x1b[H\x1b[10;20Hmenu\x1b[K\x1b[1;5r\x1b7\x1b8\x1b[?25l\x1b[?25h",
        b"\x1b[A\x1b[2C\x1b[3@\x1b[P\x1b[L\x1b[M\x1b[X\x1bM",
    ],
)
def test_what_boards_print_in_earnest_gets_through_unchanged(data: bytes) -> None:
    assert shown(data) == data
    escapes = EscapeFilter(Allowed.SCREEN)
    assert b"".join(escapes.feed(data[i : i + 1]) for i in range(len(data))) == data


def test_bytes_that_are_no_utf8_are_shown_as_replacements() -> None:
    assert shown(b"a\xffb\xe2\x82c\xf5").decode() == "a\ufffdb\ufffdc\ufffd"


def test_noise_that_begins_a_string_costs_one_line_at_most() -> None:
    assert shown(b"abc\x1b]noise\r\nnext line\r\n") == b"abc\r\nnext line\r\n"
    assert shown(b"\x1bP" + b"x" * 5000).endswith(b"x" * 900)


def test_random_bytes_in_random_chunks_give_nothing_dangerous_and_never_depend_on_the_chunks() -> (
    None
):
    chance = random.Random(4711)
    pieces = [*DANGEROUS.values(), b"\x1b", b"[", b"]", b"\x1b[", b"6", b"n", b"\\", b"\x07", b";"]
    for _ in range(300):
        data = b"".join(
            chance.choice(pieces) if chance.random() < 0.6 else chance.randbytes(3)
            for _ in range(30)
        )
        whole = shown(data)
        escapes, parts, at = EscapeFilter(Allowed.SCREEN), [], 0
        while at < len(data):
            step = chance.randint(1, 5)
            parts.append(escapes.feed(data[at : at + step]))
            at += step

        assert b"".join(parts) == whole
        assert SAFE.fullmatch(whole.decode()), whole


def test_a_terminal_looks_the_same_with_and_without_the_filter() -> None:
    data = (
        b"U-Boot 2023.01\r\n=> \x1b[1;31mprintenv\x1b[0m\r\nbootdelay=2\x1b[K\r\n"
        b"\x1b[2;1H\x1b[L  menu entry \x1b[7mone\x1b[0m\x1b[4;3Hend"
    )
    plain, filtered = pyte.Screen(60, 10), pyte.Screen(60, 10)
    pyte.ByteStream(plain).feed(data)
    pyte.ByteStream(filtered).feed(shown(b"\x1b]0;title\x07" + data + b"\x1b[?2004h"))

    assert filtered.display == plain.display
    assert (filtered.cursor.x, filtered.cursor.y) == (plain.cursor.x, plain.cursor.y)


@pytest.mark.parametrize(
    ("raw", "colour", "text"),
    [
        (b"\x1b[38;5;1mE\x1b[0m", False, "E"),
        (b"\x1b[38;5;1mE\x1b[0m", True, "\x1b[38;5;1mE\x1b[0m\x1b[0m"),
        (b"\r 10%\r 50%\r100%\r", False, "100%"),
        (b"\x1b[2J\x1b[Hx\x08y", True, "xy"),
        (b"a\x1b]0;evil\x07b", True, "ab"),
        (b"tab\tstays\x00", False, "tab\tstays"),
        (b"", False, ""),
        (b"Kernel panic\r\0", False, "Kernel panic"),  # telnet's fill, a bell, a colour's end
        (b"Kernel panic\r\x07", False, "Kernel panic"),
        (b"\x1b[31mKernel panic\r\x1b[0m", True, "\x1b[31mKernel panic\x1b[0m"),
        (b"panic\r ", False, "panic"),
        (b" 99%\r\x1b[K", False, ""),
        (b" 99%\r    ", False, "    "),
        (b" 99%\r\x1b[Kdone\r", False, "done"),
    ],
)
def test_a_line_of_a_log_keeps_at_most_its_colours(raw: bytes, colour: bool, text: str) -> None:
    assert line_text(raw, colour=colour) == text
