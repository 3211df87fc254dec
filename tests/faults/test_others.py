"""Faults whose tests run with all others: here they give the table its row."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest
from fault_bed import Tell

pytestmark = pytest.mark.faults

TESTS = Path(__file__).resolve().parent.parent
ROWS = (
    (
        11,
        "two adapters with one serial number",
        "test_identity.py",
        "serial or twin or unique or ambig",
    ),
    (13, "rights that udev sets late", "test_hot_plug.py", "rights"),
    (18, "escapes that would harm a terminal", "test_screen.py", ""),
    (18, "escapes in our own output", "test_untrusted.py", ""),
    (
        23,
        "a fault that comes and goes",
        "test_incidents.py",
        "flood or holdoff or repeated or again",
    ),
)


@pytest.mark.parametrize(("row", "fault", "file", "names"), ROWS)
def test_a_row_that_other_tests_hold(
    row: int, fault: str, file: str, names: str, tell: Tell
) -> None:
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", str(TESTS / file)]
    done = subprocess.run(
        [*command, *(["-k", names] if names else [])],
        cwd=TESTS.parent, capture_output=True, text=True, check=False,
    )  # fmt: skip
    dots = "".join(re.findall(r"^[.sxF]+(?= *\[|$)", done.stdout, re.MULTILINE))
    tell(row, fault, f"{dots.count('.')} of {len(dots)} tests of {file} pass")

    assert done.returncode == 0, done.stdout
    assert dots.count(".") > 0
