"""`make lab`: the service on a real systemd and udev, with adapters that are plugged and pulled.

`python tests/lab/lab.py [--json] [--only NAME]… WHEEL`

A Debian in QEMU, see README.md beside this file. Exits with 1 if a figure misses its goal, with 2
if the lab itself does not work.
"""

from __future__ import annotations

import argparse
import json
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "bench"))

import lab_image
from lab_bench import CONFIG, LabBench
from lab_checks import CHECKS
from lab_pc import LabPc
from lab_qemu import LabError, Qemu
from run import Figure

BOARDS = ("dut1", "dut2")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("wheel", type=Path)
    parser.add_argument("--json", action="store_true", help="print JSON alone")
    parser.add_argument("--only", action="append", choices=[*CHECKS], help="of the checks")
    asked = parser.parse_args()
    if absent := lab_image.missing():
        print(f"the lab is not run: {absent}", file=sys.stderr)
        sys.exit(2)
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(128 + signal.SIGTERM))  # leave no QEMU behind
    began_s = time.monotonic()
    try:
        figures = _measured(asked.wheel, asked.only or [*CHECKS], is_quiet=asked.json)
    except LabError as exc:
        print(f"the lab does not work: {exc}", file=sys.stderr)
        sys.exit(2)
    took = Figure("the whole lab", time.monotonic() - began_s, "s", "", is_met=True)
    if asked.json:
        print(json.dumps({"figures": [figure.__dict__ for figure in (*figures, took)]}))
    else:
        print(took.row())
    sys.exit(0 if all(figure.is_met for figure in figures) else 1)


def _measured(wheel: Path, names: list[str], *, is_quiet: bool) -> list[Figure]:
    found = []
    image = lab_image.image()
    with tempfile.TemporaryDirectory(prefix="serialwatch-lab-") as name:
        folder = Path(name)
        subprocess.run(["cp", "--sparse=always", image / "disk", folder], check=True)
        lab_image.install(folder / "disk", wheel, {"config/serialwatch.toml": CONFIG})
        qemu = Qemu(image, folder, BOARDS)
        bench = None
        try:
            pc = LabPc(qemu)
            bench = LabBench(qemu, pc, BOARDS)
            pc.wait_until_up()
            for name in names:
                for figure in _checked(name, bench):
                    found.append(figure)
                    if not is_quiet:
                        print(figure.row(), flush=True)
        finally:
            if bench is not None:
                bench.close()
            qemu.close()
    return found


def _checked(name: str, bench: LabBench) -> Iterator[Figure]:
    """Run a check; one that cannot be finished is a miss, and the others go on."""
    began_s = time.monotonic()
    before = bench.unasked()
    try:
        yield from CHECKS[name](bench)
    except LabError as exc:
        print(f"    {exc}", file=sys.stderr)
        yield Figure(f"{name}: could not be finished", 1.0, "", "0", is_met=False)
    unasked = bench.unasked() - before
    yield Figure("  [bytes to boards that nobody sent]", unasked, "B", "0", unasked == 0)
    yield Figure(f"  [{name} took]", time.monotonic() - began_s, "s", "", is_met=True)


if __name__ == "__main__":
    main()
