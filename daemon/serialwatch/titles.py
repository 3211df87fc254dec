"""Titles: times in them for people, and what makes two of them the same fault."""

from __future__ import annotations

import hashlib
import re

from serialwatch.wire import show

MAX_TITLE = 120  # characters of a normalised title
_MAX_INPUT = 512  # what lies behind would be cut away anyway, and searching it could take long

_HEX = re.compile(
    r"""\b(?: 0x[0-9a-f]{6,}                             # an address as programs print it
          | [0-9a-f]{16} | [0-9a-f]{8}                   # a register as a dump prints it
          | (?=[0-9]*[a-f])(?=[a-f]*[0-9])[0-9a-f]{6,}   # other hex: neither a word nor a count
        )\b""",
    re.IGNORECASE | re.VERBOSE,
)
_MAC = re.compile(r"\b(?:[0-9a-f]{2}[:-]){5}[0-9a-f]{2}\b", re.IGNORECASE)
_IPV4 = re.compile(r"\b\d{1,3}(?:\.\d{1,3}){3}\b")
_GROUPS = r"[0-9a-f]{1,4}(?::[0-9a-f]{1,4}){0,6}"
_IPV6 = re.compile(
    rf"(?<![\w:])(?: (?:[0-9a-f]{{1,4}}:){{7}}[0-9a-f]{{1,4}}"
    rf" | {_GROUPS} :: (?:{_GROUPS})? | :: {_GROUPS} )(?![\w:])",
    re.IGNORECASE | re.VERBOSE,
)
_OFFSET = re.compile(r"([A-Za-z_$][\w.$]*)\+(?:0x[0-9a-f]+|ADDR)(?:/(?:0x[0-9a-f]+|ADDR))?")
_SOURCE = re.compile(
    r"(?:[\w.+-]*/)*([\w+-]+\.(?:cc|cpp|cxx|c|hpp|hh|h|S|s|rs|py|lua|go|js|ino|zig)):\d+(?::\d+)?\b"
)
_CPU = re.compile(r"\bCPU\s?[#:]?\s?\d+\b", re.IGNORECASE)
_DURATION = re.compile(r"(?<![\w.])\d+(?:\.\d+)? (?:s|min|h|d)\b(?: \d+ (?:s|min|h)\b)?")
_NUMBER = re.compile(r"(?<![A-Za-z_0-9])(?:0x[0-9a-fA-F]+|\d+)")  # digits of a name (eth0) stay
_SPACE = re.compile(r"\s+")
_UNITS = ((86400, "d", 3600, "h"), (3600, "h", 60, "min"), (60, "min", 1, "s"))  # in seconds


def readable(raw: bytes) -> str:
    """Return bytes of a line as text for a title: controls spelled out, no space around."""
    return show(raw.strip()).replace("\t", " ").strip()


def duration(seconds: float) -> str:
    """Return a time in at most two units: `0.4 s`, `45 s`, `12 min`, `3 h 12 min`, `60 d 4 h`."""
    if seconds < 9.95:
        return f"{seconds:.1f}".removesuffix(".0") + " s"
    for size, unit, part, part_unit in _UNITS:
        # What rounds up to the next unit is told in that one: 59.9 s are 1 min.
        whole, rest = divmod(round(seconds / part), size // part)
        if whole:
            return f"{whole} {unit} {rest} {part_unit}" if rest else f"{whole} {unit}"
    return f"{seconds:.0f} s"


def normalise(title: str) -> str:
    """Return the title without what differs from one time to the next, at most 120 characters.

    Addresses become ADDR, IP and MAC; offsets and line numbers go; CPUs and other numbers become
    CPU and NUM, times `NUM s`. A name keeps its digits: `eth0` and `eth1` are two devices.
    """
    text = _HEX.sub("ADDR", title[:_MAX_INPUT])
    text = _IPV6.sub("IP", _IPV4.sub("IP", _MAC.sub("MAC", text)))
    text = _OFFSET.sub(r"\1", text)
    text = _SOURCE.sub(r"\1:LINE", text)
    text = _CPU.sub("CPU", text)
    text = _NUMBER.sub("NUM", _DURATION.sub("NUM s", text))
    text = text.encode("ascii", errors="ignore").decode()
    return _SPACE.sub(" ", text).strip()[:MAX_TITLE]


def fingerprint(trigger: str, title: str, firmware: str) -> str:
    """Return 16 hex digits that the same fault has on another day and on another board."""
    parts = "\0".join((trigger, normalise(title), firmware))
    return hashlib.sha256(parts.encode("utf-8", errors="backslashreplace")).hexdigest()[:16]
