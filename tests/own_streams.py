"""The streams of `logs/`: what boards print, written by us, with what must be found in each.

`logs/FAMILY/INDEX.tsv` has a row a stream: id (the file is `FAMILY/<id>.log`), expected (triggers of
severity warning and above, the primary one first; `none`), first_fault_line (1-based, `-` where no
line carries the fault), boots (starts seen in the file).
"""

from __future__ import annotations

import csv
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

LOGS = Path(__file__).parent / "logs"


@dataclass(frozen=True, slots=True)
class Stream:
    """A stream and what it must give."""

    id: str
    family: str
    expected: tuple[str, ...]  # triggers from warning up, the primary one first
    first_fault_line: int  # 0: none
    boots: int

    @property
    def data(self) -> bytes:
        """Return its bytes."""
        return (LOGS / self.family / f"{self.id}.log").read_bytes()


def own_streams() -> Iterator[Stream]:
    """Return all streams, by family and name."""
    for path in sorted(LOGS.glob("*/INDEX.tsv")):
        with path.open() as index:
            for row in csv.DictReader(index, delimiter="\t"):
                expected = row["expected"].split(",") if row["expected"] != "none" else []
                line = row["first_fault_line"].replace("-", "0")
                yield Stream(
                    row["id"], path.parent.name, tuple(expected), int(line), int(row["boots"])
                )


STREAMS = tuple(own_streams())
