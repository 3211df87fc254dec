"""Bytes that are no text are counted, whatever the chunks."""

from __future__ import annotations

import random
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest

from serialwatch.capture.invalid_bytes import InvalidBytes
from serialwatch.capture.ring import Ring, RingBudget
from serialwatch.config import PortConfig
from serialwatch.service.ports import Ports


@pytest.mark.parametrize(
    ("data", "invalid"),
    [
        (b"U-Boot 2024.01\r\n\x00\x1b[0m", 0),
        ("Grüße ✓".encode(), 0),
        (b"boot \xff\xfe\xc2 ok\r\n", 3),
        (b"\xe2\x9c", 0),  # its rest may come
        (b"\xe2\x9cA", 2),
        (b"\x80" * 50, 50),
        (b"\xed\xa0\x80", 3),  # half of a pair, which is no character
        (bytes(range(256)), 128),
    ],
)
def test_bytes_of_no_character_are_counted(data: bytes, invalid: int) -> None:
    counter = InvalidBytes()

    assert counter.fed(data) == invalid


def test_a_port_counts_them() -> None:
    listener: Any = SimpleNamespace(on_bytes=lambda *_: None, on_state=lambda *_: None)
    nothing = cast(Any, None)
    ports = Ports(Path("/nowhere"), nothing, nothing, nothing, listener, nothing)
    port = ports._read(PortConfig(device="pty:", name="dut1"), Ring("dut1", RingBudget()))
    for data in (b"boot \xff", b"\xfe\xc2 ok\r\n", b"\xe2\x9c", b"\x93"):
        ports.on_bytes(port.reader, data, 0)

    assert port.reader.stats.invalid_bytes == 3


def test_no_chunking_changes_the_number() -> None:
    chance = random.Random(5)
    text = "Grüße ✓ 漢字 ".encode()
    data = b"".join(chance.choice((text, chance.randbytes(7), b"plain ")) for _ in range(300))
    data += b"\n"
    whole = InvalidBytes().fed(data)

    assert 0 < whole < len(data)
    for size in (1, 2, 3, 5, 64):
        counter = InvalidBytes()
        counted = sum(counter.fed(data[at : at + size]) for at in range(0, len(data), size))
        assert counted == whole
