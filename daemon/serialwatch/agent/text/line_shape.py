"""What a console line says beside its time and numbers: how bad it looks, and its shape."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Generic, TypeVar

from serialwatch.records import Severity

MAX_SHAPE = 160  # characters
MAX_REMEMBERED = 10_000  # lines of one scan; then it begins anew

T = TypeVar("T")


def untimed(text: str) -> str:
    """Return a line without the times that loggers and kernels put before it."""
    return _ESP.sub(r"\1 \2", _TIMES.sub("", text))


def shape(text: str) -> str:
    """Return a line without its time, its numbers replaced by `<n>` and `<x>` (hexadecimal)."""
    plain = _NUMBER.sub("<n>", _HEX.sub("<x>", untimed(text)))
    return " ".join(plain.split())[:MAX_SHAPE]


def level_of(text: str) -> Severity:
    """Return how bad a line looks by its level mark or its words; a guess, no rule's verdict."""
    for level, pattern in _LEVELS:
        if pattern.search(text):
            return level
    return "note"


class Remembered(Generic[T]):
    """What a function says of a line, remembered by the line without its digits.

    For functions to which all digits, and all numbers after 0x, are alike, as they are to `shape`.
    """

    def __init__(self, of: Callable[[bytes], T]) -> None:
        self._of = of
        self._known: dict[bytes, T] = {}

    def __call__(self, raw: bytes) -> T:
        """Return what the function says of a line."""
        key = (_HEX_BYTES.sub(b"0x0", raw) if b"0x" in raw else raw).translate(_DIGITS)
        if (known := self._known.get(key)) is not None:
            return known
        if len(self._known) >= MAX_REMEMBERED:
            self._known.clear()
        found = self._known[key] = self._of(raw)
        return found


_DIGITS = bytes.maketrans(b"123456789", b"000000000")
_HEX_BYTES = re.compile(rb"\b0x[0-9a-fA-F]+\b")
_TIMES = re.compile(
    r"^(?:\s*(?:"
    r"\[\s*\d+\.\d+\s*\](?:\[\s*[TC]\d+\])?"  # Linux, with caller
    r"|\[\d\d:\d\d:\d\d[.,]\d{3},\d{3}\]"  # Zephyr
    r"|\[?\d{4}-\d\d-\d\d[ T]\d\d:\d\d:\d\d(?:[.,]\d+)?\]?"  # host loggers
    r"|\d\d:\d\d:\d\d[.,]\d+ ->"  # Arduino IDE
    r"|[A-Z][a-z]{2} [ \d]\d \d\d:\d\d:\d\d"  # syslog
    r"|\d\d>"  # RTT viewer
    r"))+\s*"
)
_ESP = re.compile(r"^([EWIDV]) \(\d+\) (\S)")
_HEX = re.compile(r"\b0x[0-9a-fA-F]+\b|\b(?=[0-9a-fA-F]*\d)[0-9a-fA-F]{6,}\b")
_NUMBER = re.compile(r"\d+")
_LEVELS: tuple[tuple[Severity, re.Pattern[str]], ...] = (
    (
        "critical",
        re.compile(
            r"\bpanic|\boops\b|\bfatal\b|\bBUG:|guru meditation|\bhard ?fault|watchdog.{0,20}reset"
            r"|synchronous abort|\bassert(?:ion)? fail|<[0-2]>|\b(?:emerg|alert|crit)\b",
            re.IGNORECASE,
        ),
    ),
    (
        "error",
        re.compile(
            r"^\W*E \(\d+\)|<err>|<3>|\b(?:err|errors?|fail|failed|failure|fault|abort(?:ed)?"
            r"|timed out|timeout|corrupt(?:ed)?|overrun|overflow|cannot|unable to)\b",
            re.IGNORECASE,
        ),
    ),
    (
        "warning",
        re.compile(r"^\W*W \(\d+\)|<wrn>|<4>|\bwarn(?:ing)?\b|\bdeprecated\b", re.IGNORECASE),
    ),
)


def kernel_s(text: str) -> float | None:
    """Return the kernel's time of a line in seconds, None if none begins it."""
    found = _KERNEL_TIME.match(text)
    return float(found[1]) if found else None


_KERNEL_TIME = re.compile(r"\[ *(\d{1,7}\.\d{3,6})\]")
