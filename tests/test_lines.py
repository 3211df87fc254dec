"""Where lines end: every rule, and that the borders of chunks never matter."""

from __future__ import annotations

import random

import pytest

from log_feed import chunked, console
from serialwatch.lines import LINE, MAX_LINE, Eol, Splitter, first_line_start
from serialwatch.redraws import AUTO_CR_AFTER


def split(data: bytes, eol: Eol = "lf") -> tuple[list[bytes], bytes]:
    """Return the lines without their ends, and the unfinished one, of one big chunk."""
    splitter = Splitter(eol)
    text, count = splitter.feed(data)
    lines = [line.rstrip(b"\r") for line in text.split(b"\n")[:-1]]
    assert len(lines) == count
    return lines, splitter.partial()


def test_lf_ends_a_line_and_crs_before_it_belong_to_the_end() -> None:
    assert split(b"a\nb\r\nc\r\r\n\n d") == ([b"a", b"b", b"c", b""], b" d")


def test_crs_before_lf_stay_in_the_text_and_a_lone_cr_ends_nothing() -> None:
    splitter = Splitter()

    assert splitter.feed(b" 10%\r 20%\r\r\nnext") == (b" 10%\r 20%\r\r\n", 1)


def test_cr_lf_in_two_chunks_makes_no_empty_line() -> None:
    for eol in ("lf", "cr"):
        splitter = Splitter(eol)

        assert splitter.feed(b"a\r")[1] + splitter.feed(b"\nb\r\n")[1] == 2


def test_on_a_cr_console_a_line_is_complete_with_its_first_cr() -> None:
    splitter = Splitter("cr")

    assert splitter.feed(b"login\r") == (b"login\n", 1)
    assert splitter.feed(b"\r\r") == (b"", 0)
    assert splitter.feed(b"\nb\n\nc\r\rd") == (b"b\n\nc\n", 3)
    assert splitter.partial() == b"d"


@pytest.mark.parametrize("eol", ["lf", "cr"])
def test_a_line_of_16_kib_is_cut_and_its_end_goes_with_it(eol: Eol) -> None:
    piece = b"x" * MAX_LINE

    assert split(piece + b"\nb\n", eol)[0] == [piece, b"b"]
    assert split(piece + b"\r\r\nb\n", eol)[0] == [piece, b"b"]
    assert split(piece + b"\r\n\nb\n", eol)[0] == [piece, b"", b"b"]
    assert split(piece[1:] + b"\r\nb\n", eol)[0] == [piece[1:], b"b"]
    assert split(piece + b"\ry\n", eol)[0] == [piece, b"y"]
    assert split(piece + b"yz", eol) == ([piece], b"yz")


def test_a_mebibyte_without_an_end_loses_nothing_and_is_not_kept() -> None:
    splitter = Splitter()
    text = bytearray()
    for _ in range(1024):
        text += splitter.feed(b"y" * 1024)[0]
        assert splitter.partial_bytes < MAX_LINE

    assert text.count(b"y") + splitter.partial_bytes == 1024 * 1024
    assert text.count(b"\n") == 64


def test_a_console_of_crs_alone_is_told_by_what_follows_a_cr_after_4_kib() -> None:
    bar = b"\r#" * (AUTO_CR_AFTER // 2)

    assert Splitter().turn(bar) is None
    assert Splitter().turn(bar + b"\r") is None
    assert Splitter().turn(bar + b"\r#") == AUTO_CR_AFTER + 1
    assert Splitter().turn(bar + b"###\r\r#") == AUTO_CR_AFTER + 5
    assert Splitter().turn(bar[1:] + b"\r#") == AUTO_CR_AFTER
    assert Splitter().turn(bar + b"\r\r\n##") is None
    assert Splitter().turn(bar[:-2] + b"\n" + bar) is None
    assert Splitter().turn(b"#" * 5000 + b"\r\n") is None
    assert Splitter().turn(b"#" * 5000 + b"\r#") == 5001
    assert Splitter("cr").turn(bar + b"\r#") is None


def test_a_cr_at_the_end_of_a_chunk_is_judged_with_the_next() -> None:
    for end, turn in ((b"\n", None), (b"#\n", 0)):
        splitter = Splitter()
        for part in (b"#" * 5000, b"\r"):
            assert splitter.turn(part) is None
            splitter.feed(part)

        assert splitter.turn(end + b"x" * 5000) == turn


def _by_bytes(data: bytes, eol: Eol) -> tuple[list[bytes], bytes, list[int]]:
    """The rules again, a byte at a time: lines, the unfinished one, where lines start."""
    lines: list[bytes] = []
    line = bytearray()
    in_end = False
    starts = [0]
    for at, byte in enumerate(data):
        if in_end:
            if byte == 13:
                continue
            in_end = False
            if byte == 10:
                starts.append(at + 1)
                continue
            starts.append(at)
        if byte == 10:
            lines.append(bytes(line).rstrip(b"\r"))
            line.clear()
            starts.append(at + 1)
        elif byte == 13 and eol == "cr":
            lines.append(bytes(line))
            line.clear()
            in_end = True
        else:
            line.append(byte)
            if len(line) == MAX_LINE:
                lines.append(bytes(line).rstrip(b"\r"))
                line.clear()
                in_end = True
    return lines, bytes(line), starts


@pytest.mark.parametrize("eol", ["lf", "cr"])
def test_no_chunking_changes_the_lines(eol: Eol) -> None:
    rng = random.Random(1)
    for _ in range(50):
        data = console(rng)
        lines, partial, _ = _by_bytes(data, eol)
        splitter = Splitter(eol)
        text, count = bytearray(), 0
        for chunk in chunked(rng, data):
            got, n = splitter.feed(chunk)
            assert got.count(b"\n") == n
            text += got
            count += n

        assert [x.rstrip(b"\r") for x in text.split(b"\n")[:-1]] == lines
        assert (splitter.partial(), count) == (partial, len(lines))
        assert splitter.filled == (len(partial) or splitter.filled)


@pytest.mark.parametrize("eol", ["lf", "cr"])
def test_the_pattern_finds_the_lines_of_the_splitter(eol: Eol) -> None:
    rng = random.Random(2)
    for _ in range(50):
        data = console(rng)
        lines, partial, starts = _by_bytes(data, eol)
        found = list(LINE[eol].finditer(data))

        assert [m.group().rstrip(b"\r\n") for m in found] == lines
        assert data[found[-1].end() if found else 0 :] == partial
        assert [m.start() for m in found] == starts[: len(found)]


@pytest.mark.parametrize("eol", ["lf", "cr"])
def test_the_first_line_start_is_found_from_the_state_alone(eol: Eol) -> None:
    rng = random.Random(3)
    for _ in range(25):
        data = console(rng)
        starts = _by_bytes(data, eol)[2]
        splitter = Splitter(eol)
        at = 0
        for chunk in chunked(rng, data):
            wanted = next((s for s in starts if at <= s < at + len(chunk)), None)
            got = first_line_start(chunk, splitter.filled, eol)

            assert (None if got is None else got + at) == wanted
            splitter.feed(chunk)
            at += len(chunk)


def test_no_chunking_changes_where_a_cr_console_is_found_out() -> None:
    rng = random.Random(4)
    for _ in range(50):
        data = console(rng)
        wanted = Splitter().turn(data)
        splitter = Splitter()
        at, got = 0, None
        for chunk in chunked(rng, data):
            found = splitter.turn(chunk)
            if found is not None:
                got = at + found
                break
            splitter.feed(chunk)
            at += len(chunk)

        assert got == wanted == _cr_switch_by_bytes(data)


def _cr_switch_by_bytes(data: bytes) -> int | None:
    starts = set(_by_bytes(data, "lf")[2])
    start = 0
    for at, byte in enumerate(data):
        if at in starts:
            start = at
        is_in_line = AUTO_CR_AFTER <= at - start < MAX_LINE  # not in the end of a cut one
        if is_in_line and data[at - 1] == 13 and byte not in b"\r\n":
            return at
    return None
