"""Our own regular expressions: a board must not be able to hold up the loop with a long line."""

from __future__ import annotations

import importlib
import pkgutil
import re
import time
from collections.abc import Iterator
from types import ModuleType

import pytest

import serialwatch.capture
import serialwatch.triggers
import serialwatch_drivers
from serialwatch.lines import MAX_LINE

SHORT, LONG = MAX_LINE // 4, MAX_LINE
UNITS = (
    b"A", b"a", b"0", b"f", b" ", b"\t", b"\r", b"\n", b"x", b"0x", b"[", b"]", b"(", b"<", b":",
    b"-", b".", b"_", b"/", b"=", b"#", b"\x1b", b"\x1b[", b"a ", b"a:", b"1.", b"a.", b"1:", b"[1]",
    b"\xff",
)  # fmt: skip
TRIES = 5
FLOOR_S = 0.002  # below it nothing is held up, and nothing can be compared


def of_console_bytes() -> Iterator[re.Pattern[bytes]]:
    """Yield the expressions for bytes in what runs on the loop."""
    modules: list[ModuleType] = [
        importlib.import_module(name) for name in ("serialwatch.lines", "serialwatch.cli.escapes")
    ]
    for package in (serialwatch.capture, serialwatch.triggers, serialwatch_drivers):
        for found in pkgutil.walk_packages(package.__path__, f"{package.__name__}."):
            modules.append(importlib.import_module(found.name))
    seen: set[re.Pattern[bytes]] = set()
    for module in modules:
        for value in vars(module).values():
            if isinstance(value, re.Pattern) and isinstance(value.pattern, bytes):
                seen.add(value)
    yield from sorted(seen, key=lambda pattern: pattern.pattern)


def took_s(pattern: re.Pattern[bytes], text: bytes) -> float:
    began = time.process_time()
    pattern.sub(b"", text)
    return time.process_time() - began


def is_steep(pattern: re.Pattern[bytes], unit: bytes) -> bool:
    """Tell whether four times the text takes more than eight times as long, each time."""
    long, short = unit * (LONG // len(unit)), unit * (SHORT // len(unit))
    return all(
        took_s(pattern, long) > max(FLOOR_S, 8 * took_s(pattern, short)) for _ in range(TRIES)
    )


@pytest.mark.parametrize("pattern", list(of_console_bytes()), ids=str)
def test_a_line_of_one_kind_of_bytes_is_searched_in_linear_time(pattern: re.Pattern[bytes]) -> None:
    assert [unit for unit in UNITS if is_steep(pattern, unit)] == []
