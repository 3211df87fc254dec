"""`make eval`: how well faults are found, as a table by family, and as JSON with --json.

It runs `serialwatch analyze` over `tests/logs/`, or over a folder of the same form given as argument
(`INDEX.tsv` with the columns id, expected, first_fault_line, boots or resets, and perhaps ecosystem;
see `tests/own_streams.py`).

recall      of the streams with a fault: one of the expected triggers is an incident
primary     of those: it is the trigger that is expected first
precision   of the incidents of severity error and critical: their trigger is expected there
first line  of the faults that were found: the fault line is right to 5 lines, or in the block
boots       streams whose starts were counted right
alarms      incidents from warning up in healthy streams, for 100,000 lines of them
"""

from __future__ import annotations

import argparse
import csv
import json
import subprocess
import sys
from collections import defaultdict
from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from own_streams import LOGS

NEAR = 5  # lines


@dataclass
class Score:
    """What was counted over some streams."""

    streams: int = 0
    with_fault: int = 0
    found: int = 0
    primary: int = 0
    incidents: int = 0  # of severity error and critical
    right: int = 0
    placed: int = 0
    boots: int = 0
    clean_lines: int = 0
    alarms: int = 0
    misses: list[str] = field(default_factory=list)

    def row(self, name: str) -> dict[str, Any]:
        return {
            "family": name,
            "streams": self.streams,
            "recall": _share(self.found, self.with_fault),
            "primary": _share(self.primary, self.found),
            "precision": _share(self.right, self.incidents),
            "first_line": _share(self.placed, self.found),
            "boots": _share(self.boots, self.streams),
            "clean_lines": self.clean_lines,
            "alarms_per_100k": _per_100k(self.alarms, self.clean_lines),
        }


def _share(part: int, whole: int) -> float | None:
    return round(part / whole, 3) if whole else None


def _per_100k(alarms: int, lines: int) -> float | None:
    return round(alarms * 100_000 / lines, 2) if lines else None


def analyze(files: Iterable[Path]) -> dict[Path, dict[str, Any]]:
    """Return what `serialwatch analyze --json` says of each file."""
    paths = list(files)
    command = [sys.executable, "-m", "serialwatch", "analyze", "--json", *map(str, paths)]
    told = subprocess.run(command, capture_output=True, check=True, text=True).stdout
    found = map(json.loads, told.splitlines())
    return dict(zip(paths, found, strict=True))


def judge(row: dict[str, str], found: dict[str, Any], score: Score) -> None:
    """Count one stream."""
    name = row["id"]
    listed = [trigger.strip() for trigger in row["expected"].split(",")]
    expected = listed if listed != ["none"] else []
    boots = int(row["boots"] if "boots" in row else row["resets"])
    alarms = [i for i in found["incidents"] if i["severity"] != "note"]
    score.streams += 1
    if found["boots"] == boots:
        score.boots += 1
    else:
        score.misses.append(f"{name}: {found['boots']} boots, not {boots}")
    for incident in alarms:
        if incident["severity"] in ("error", "critical"):
            score.incidents += 1
            if incident["rule"] in expected:
                score.right += 1
            else:
                at = f"line {incident['first_line']}"
                score.misses.append(f"{name}: {incident['rule']} ({at}) is not expected")
    if not expected:
        score.clean_lines += found["lines"]
        score.alarms += len(alarms)
        for incident in alarms:
            score.misses.append(f"{name}: {incident['rule']} in a healthy stream")
        return
    score.with_fault += 1
    faults = [i for i in alarms if i["rule"] in expected]
    if not faults:
        score.misses.append(f"{name}: {expected[0]} was not found")
        return
    score.found += 1
    score.primary += any(i["rule"] == expected[0] for i in faults)
    if row["first_fault_line"] == "-" or any(
        abs(i["first_line"] - int(row["first_fault_line"])) <= NEAR
        or i["block_first"] <= int(row["first_fault_line"]) <= i["last_line"]
        for i in faults
    ):
        score.placed += 1
    else:
        lines = ", ".join(str(i["first_line"]) for i in faults)
        score.misses.append(f"{name}: found in line {lines}, not {row['first_fault_line']}")


def main() -> None:
    """Print the scores; exit 1 if a fault was missed or a healthy stream alarmed."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("folder", nargs="?", type=Path, default=LOGS)
    parser.add_argument("--json", action="store_true", help="print JSON alone")
    asked = parser.parse_args()
    scores: defaultdict[str, Score] = defaultdict(Score)
    for index in sorted(asked.folder.rglob("INDEX.tsv")):
        with index.open() as file:
            rows = list(csv.DictReader(file, delimiter="\t"))
        found = analyze(index.parent / f"{row['id']}.log" for row in rows)
        for row, told in zip(rows, found.values(), strict=True):
            for name in (row.get("ecosystem", index.parent.name), "all"):
                judge(row, told, scores[name])
    whole = scores.pop("all")
    table = [score.row(name) for name, score in scores.items()] + [whole.row("all")]
    if asked.json:
        print(json.dumps({"families": table, "misses": whole.misses}))
    else:
        print("  ".join(f"{name:>{max(len(name), 11)}}" for name in table[0]))
        for line in table:
            cells = ("-" if value is None else str(value) for value in line.values())
            print("  ".join(f"{c:>{max(len(n), 11)}}" for n, c in zip(line, cells, strict=True)))
        print(*whole.misses, sep="\n")
    sys.exit(1 if whole.misses else 0)


if __name__ == "__main__":
    main()
