"""What decoding a register gives."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field


@dataclass(frozen=True, slots=True)
class Decoded:
    """A register's value, taken apart by its manual."""

    register: str
    value: int
    known: bool  # False: the manual has no such value
    meaning: str  # one sentence
    source: str  # the manual
    fields: Mapping[str, str] = field(default_factory=dict)  # in the manual's words, by field
    bits: tuple[str, ...] = ()  # names of the flags that are set


def unknown(register: str, value: int, what: str, source: str) -> Decoded:
    """Return that the manual has no meaning for a value."""
    return Decoded(
        register, value, False, f"{what}: unknown, the manual does not define it.", source
    )


def flags(value: int, names: Mapping[int, tuple[str, str]]) -> dict[str, str]:
    """Return the flags of `names` (by bit number: name and text) that are set in `value`."""
    return {name: text for bit, (name, text) in names.items() if value >> bit & 1}


def stray(value: int, known: int) -> str:
    """Return the bits of `value` outside the mask `known`, "" if there are none."""
    rest = value & ~known
    return f"reserved bits 0x{rest:x} are set too" if rest else ""
