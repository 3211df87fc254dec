"""What a detector found; the port's watch makes a hit of it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from serialwatch.records import Severity
from serialwatch.triggers.ruleset import Told


@dataclass(frozen=True, slots=True)
class Fault:
    """A fault that no single line carries."""

    detector: Told
    severity: Severity
    title: str
    key: str = ""
    seq: int = 0  # a line that shows it, 0 for none
    first_seq: int = 0  # the first line that belongs to it
    raw: bytes = b""  # that line
    fields: Mapping[str, str] = field(default_factory=dict)
