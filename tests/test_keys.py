"""Keys typed while attached."""

from __future__ import annotations

import pytest

from serialwatch.cli.keys import Command, Keys, Typed

KEYS = [
    (b"ls\r", [Typed(b"ls\r")]),
    (b"\x03", [Typed(b"\x03")]),
    (bytes(set(range(256)) - {0x14, 0x7E}), [Typed(bytes(set(range(256)) - {0x14, 0x7E}))]),
    (b"\x14q", [Command("q")]),
    (b"ab\x14?cd", [Typed(b"ab"), Command("?"), Typed(b"cd")]),
    (b"\x14\x14", [Typed(b"\x14")]),
    (b"\x14\x14q", [Typed(b"\x14q")]),
    (b"~.", [Command("q")]),
    (b"ls\r~.", [Typed(b"ls\r"), Command("q")]),
    (b"a~.", [Typed(b"a~.")]),
    (b"~/bin\r", [Typed(b"~/bin\r")]),
    (b"~~.", [Typed(b"~.")]),
    (b"\r~\x14b", [Typed(b"\r~"), Command("b")]),
    (b"\r\x14m~.", [Typed(b"\r"), Command("m"), Command("q")]),
    (b"~", []),
]


@pytest.mark.parametrize(("data", "meaning"), KEYS)
def test_commands_are_told_from_keys(data: bytes, meaning: list[Typed | Command]) -> None:
    assert Keys().feed(data) == meaning


@pytest.mark.parametrize(("data", "meaning"), KEYS)
def test_it_does_not_matter_how_keys_arrive(data: bytes, meaning: list[Typed | Command]) -> None:
    keys = Keys()
    found = [item for byte in data for item in keys.feed(bytes([byte]))]

    assert _joined(found) == _joined(meaning)


def _joined(items: list[Typed | Command]) -> list[Typed | Command]:
    joined: list[Typed | Command] = []
    for item in items:
        if joined and isinstance(item, Typed) and isinstance(last := joined[-1], Typed):
            joined[-1] = Typed(last.data + item.data)
        else:
            joined.append(item)
    return joined
