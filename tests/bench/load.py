"""`make bench`, second part: many faults, many rules, and mtail with the same rules.

`python tests/bench/load.py [--json] [--seconds 60]`
"""

from __future__ import annotations

import argparse
import gc
import io
import json
import os
import re
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from first_report import first_reports
from run import Figure, ordinary_text

from fault_load import fault_load
from many_rules import many_rules, mb_per_s
from own_streams import STREAMS
from serialwatch.bundled import bundled_dir
from serialwatch.saved.analysis import Pipeline, eol_of
from serialwatch.triggers.database_cache import DatabaseCache
from serialwatch.triggers.matcher import Matcher
from serialwatch.triggers.patterns import compile_database, compile_pattern
from serialwatch.triggers.rules import load_rules

SHIPPED = "config/rules"
ANALYZED = 50.0  # MB/s of a saved log
TIMES_MTAIL = 100
MTAIL_BYTES = 2_000_000  # mtail takes some seconds for it


def faults(seconds: float) -> Iterator[Figure]:
    with tempfile.TemporaryDirectory(prefix="serialwatch-load-") as name:
        load = fault_load(Path(name), ports=8, hits_per_s=1000, seconds=seconds)
    rate = load.hits / load.took_s
    wrong = abs(load.hits - load.counted) + abs(load.hits - load.stored)
    late_ms = load.lateness_s * 1000
    yield Figure("8 ports, hits", rate, "hits/s", ">= 990", rate >= 990)
    yield Figure("8 ports, hits: miscounted", wrong, "hits", "0", wrong == 0)
    yield Figure("open incidents of one port and key", load.most_open, "", "1", load.most_open == 1)
    yield Figure("8 ports, hits: bytes lost", load.missing_bytes, "B", "0", not load.missing_bytes)
    # The bound of a bucket: it was late by less.
    yield Figure("8 ports, hits: loop late, 99 %, at most", late_ms, "ms", "<= 50", late_ms <= 50)
    machine_ms = load.machine_late_s * 1000
    yield Figure("8 ports, hits: machine late, 99 %", machine_ms, "ms", "", True)
    yield Figure("8 ports, hits: CPU", load.cpu_s / load.took_s * 100, "% of a core", "", True)


def loading() -> Iterator[Figure]:
    with tempfile.TemporaryDirectory(prefix="serialwatch-rules-") as name:
        folder = Path(name)
        cold, warm = _load_s([bundled_dir(SHIPPED)], folder / "a")
        yield Figure("all packs: first load", cold, "s", "< 1", cold < 1)
        yield Figure("all packs: load", warm, "s", "< 1", warm < 1)
        pack = folder / "many"
        pack.mkdir()
        (pack / "many.toml").write_text(many_rules(2000))
        cold, warm = _load_s([pack], folder / "b")
        yield Figure("2,000 rules: first load", cold, "s", "", True)
        yield Figure("2,000 rules: load", warm, "s", "", True)


def _load_s(folders: list[Path], cache: Path) -> tuple[float, float]:
    """Return how long loading takes for the first time and later, each as in a fresh process."""
    took = []
    for _ in range(2):
        compile_pattern.cache_clear()
        compile_database.cache_clear()
        compiled = DatabaseCache(cache).database
        began = time.perf_counter()
        gc.disable()  # as the daemon does meanwhile
        Matcher(load_rules(folders, compiled), (), compiled)
        gc.enable()
        took.append(time.perf_counter() - began)
    return took[0], took[1]


def flood() -> Iterator[Figure]:
    """A port at 3 Mbit/s of which each line is a fault, of four kinds in turn."""
    lines = (
        f'[{n / 5000:12.6f}] irq {40 + n % 4}: nobody cared (try booting with "irqpoll")\r\n'
        for n in range(20_000)
    )
    text = "".join(lines).encode()
    speed = mb_per_s(Matcher(load_rules([bundled_dir(SHIPPED)])), text, chunk_ns=14 * 10**6)
    line_us = len(text) / 20_000 / speed
    yield Figure("every line a fault: each", line_us, "us", "< 50", line_us < 50)


def analyzing() -> Iterator[Figure]:
    """What `serialwatch analyze` makes of ordinary text, and of healthy boots one after the other."""
    matcher = Matcher(load_rules([bundled_dir(SHIPPED)]))
    text = ordinary_text(3, 9_000_000)
    speed = len(text) / min(_analysis_s(matcher, text) for _ in range(3)) / 1e6
    goal = f">= {ANALYZED:g}"
    yield Figure("analyze: ordinary text", speed, "MB/CPU s", goal, speed >= ANALYZED)
    boots = [s.data for s in STREAMS if s.id.endswith("clean") and eol_of(s.data) == "lf"]
    text = b"".join(boots)
    speed = len(text) / min(_analysis_s(matcher, text) for _ in range(3)) / 1e6
    yield Figure(f"analyze: {len(boots)} healthy boots in a row", speed, "MB/CPU s", "", True)


def _analysis_s(matcher: Matcher, text: bytes) -> float:
    began = time.process_time()
    Pipeline(matcher).read(io.BytesIO(text), lambda _: None)
    return time.process_time() - began


def doubling() -> Iterator[Figure]:
    text = ordinary_text(1, 8_000_000)
    speeds = []
    with tempfile.TemporaryDirectory(prefix="serialwatch-rules-") as name:
        for count in (1000, 2000):
            folder = Path(name) / str(count)
            folder.mkdir()
            (folder / "many.toml").write_text(many_rules(count))
            speeds.append(mb_per_s(Matcher(load_rules([bundled_dir(SHIPPED), folder])), text))
    lost = (1 - speeds[1] / speeds[0]) * 100
    yield Figure("1,000 rules more: matching", speeds[0], "MB/s", "", True)
    yield Figure("2,000 rules more: matching", speeds[1], "MB/s", "", True)
    yield Figure("doubled rules: slower by", lost, "%", "< 10", lost < 10)


def mtail() -> Iterator[Figure]:
    if shutil.which("mtail") is None:
        print("mtail not installed: not compared", file=sys.stderr)
        return
    text = ordinary_text(2, MTAIL_BYTES)
    ruleset = load_rules([bundled_dir(SHIPPED)])
    patterns = [pattern for rule in ruleset.rules for pattern in rule.match]
    theirs = _mtail_mb_per_s(patterns, text)
    ours = mb_per_s(Matcher(ruleset), text)
    times = ours / theirs
    yield Figure(f"mtail, {len(patterns)} patterns", theirs, "MB/s", "", True)
    yield Figure("the same rules and file here", ours, "MB/s", "", True)
    goal = f">= {TIMES_MTAIL}"
    yield Figure("times mtail's throughput", times, "", goal, times >= TIMES_MTAIL)


def _mtail_mb_per_s(patterns: list[str], text: bytes) -> float:
    """Return how fast mtail reads the text, its start taken off."""
    with tempfile.TemporaryDirectory(prefix="serialwatch-mtail-") as name:
        folder = Path(name)
        (folder / "progs").mkdir()
        program = ["counter hits by rule"]
        for number, pattern in enumerate(patterns):
            escaped = re.sub(r"(?<!\\)((?:\\\\)*)/", r"\1\\/", pattern)
            program.append(f'/{escaped}/ {{\n  hits["{number}"]++\n}}')
        (folder / "progs" / "rules.mtail").write_text("\n".join(program) + "\n")
        lines = text.splitlines(keepends=True)
        took = []
        for part in (lines[:10], lines):
            (folder / "console.log").write_bytes(b"".join(part))
            took.append(_mtail_s(folder))
    return len(text) / (took[1] - took[0]) / 1e6


def _mtail_s(folder: Path) -> float:
    """Return the CPU time of mtail on the log of a folder."""
    before = os.times()
    done = subprocess.run(
        ["mtail", "--one_shot", "--address", "127.0.0.1", "--port", "0", "--logtostderr",
         "--progs", folder / "progs", "--logs", folder / "console.log"],
        capture_output=True, text=True, timeout=600,
    )  # fmt: skip
    if done.returncode:
        raise SystemExit(f"mtail: {done.stderr[-2000:]}")
    after = os.times()
    return (
        after.children_user
        + after.children_system
        - (before.children_user + before.children_system)
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--json", action="store_true", help="print JSON alone")
    parser.add_argument("--seconds", type=float, default=60.0, help="of faults")
    asked = parser.parse_args()
    figures: list[Figure] = []
    for part in (
        loading(), flood(), analyzing(), doubling(), mtail(), first_reports(),
        faults(asked.seconds),
    ):  # fmt: skip
        for figure in part:
            figures.append(figure)
            if not asked.json:
                print(figure.row(), flush=True)
    if asked.json:
        print(json.dumps({"figures": [figure.__dict__ for figure in figures]}))
    sys.exit(0 if all(figure.is_met for figure in figures) else 1)


if __name__ == "__main__":
    main()
