"""`make eval-agent`: how well the offline analyst explains faults, as a table by tag, or as JSON.

It plays the cases of `agent_cases/` (see `agent_case.py`) and judges their reports:

class      the class of the report is the one that is expected
in three   it, or one that is as right, is the class or among the first three hypotheses
recall     of the lines that must be cited, those that are
precision  of the lines that are cited, those that must or may be
forbidden  claims that the case forbids
dropped    claims that the verifier had to drop
false      incidents from warning up where the case is a healthy board
ms         from the wake to the report, 95 of 100

Below the table it says how the verifier judges claims that are made up, and true ones, by kind.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import re
import sys
import tempfile
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from agent_case import Case, Told, load_cases, told
from bench_analysis import get_ready
from made_up_claims import CAUGHT, REFUSED, figures, made_grounds, told_figures, weighed
from serialwatch.agent.proof.verifier import verify
from serialwatch.agent.text.device_text import readable
from serialwatch.records import Line, Report

FIRST, IN_THREE = 0.80, 0.95  # least shares
QUICK_MS = 1000


@dataclass
class Judged:
    """What was right and wrong in one case."""

    name: str
    tags: tuple[str, ...]
    is_null: bool = False
    is_first: bool = False
    is_in_three: bool = False
    must: int = 0
    found: int = 0
    cited: int = 0
    relevant: int = 0
    forbidden: int = 0
    unverified: int = 0
    dropped: int = 0
    alarms: int = 0
    is_verdict_right: bool = False
    is_order_right: bool = True
    is_told: bool = True
    ms: float = 0.0
    misses: list[str] = field(default_factory=list)


def judge(case: Case, told: Told) -> Judged:
    """Compare a report with what the case expects."""
    expect = case.expect
    judged = Judged(case.name, case.tags, is_null=bool(expect.get("null")))
    if judged.is_null:
        alarms = [i for i in told.played.incidents.values() if i.severity != "note"]
        judged.alarms = len(alarms)
        judged.misses += [f"a false report: {i.trigger}: {i.title}" for i in alarms]
        return judged
    if told.report is None or told.tools is None or told.incident is None:
        judged.misses.append("no incident")
        return judged
    report = told.report
    judged.ms = told.seconds * 1000
    _judge_class(judged, expect, report)
    _judge_evidence(judged, expect, report, told.played.lines)
    _judge_words(judged, expect, report)
    again = verify(report, told.tools.ledger, told.tools.results, told.incident, told.tools.pages)
    judged.unverified = len(again.dropped) + len(again.changed)
    judged.dropped = report.claims.dropped
    judged.misses += [f"does not hold: {no.id} {no.code} {no.why}" for no in again.dropped]
    judged.misses += [f"does not hold: {no.id} {no.code} {no.why}" for no in again.changed]
    if report.claims.dropped:
        judged.misses.append(f"{report.claims.dropped} claims dropped")
    verdicts = expect.get("verdict", [report.verdict])
    judged.is_verdict_right = report.verdict in verdicts
    if not judged.is_verdict_right:
        judged.misses.append(f"verdict {report.verdict}, not {' or '.join(verdicts)}")
    return judged


def _judge_class(judged: Judged, expect: Any, report: Report) -> None:
    right = {expect["class"], *expect.get("ranked_ok", ())}
    judged.is_first = report.fault_class == expect["class"]
    ranked = [report.fault_class]
    ranked += [h.fault_class for h in report.hypotheses if h.status != "refuted"]
    judged.is_in_three = bool(right & set(list(dict.fromkeys(ranked))[:3]))
    if not judged.is_first:
        judged.misses.append(f"class {report.fault_class}, not {expect['class']}")


def _judge_evidence(
    judged: Judged, expect: Any, report: Report, lines: dict[str, list[Line]]
) -> None:
    by_ref = {(x.port, x.seq): readable(x.raw) for port in lines.values() for x in port}
    cited = {(e.port, e.seq) for c in report.conclusions for e in c.evidence}
    texts = [by_ref.get(ref, "") for ref in cited]
    must, may = expect.get("must_cite", ()), expect.get("may_cite", ())
    judged.must = len(must)
    for pattern in must:
        if any(re.search(pattern, text) for text in texts):
            judged.found += 1
        else:
            judged.misses.append(f"does not cite {pattern!r}")
    judged.cited = len(cited)
    for text in texts:
        if any(re.search(pattern, text) for pattern in (*must, *may)):
            judged.relevant += 1
        else:
            judged.misses.append(f"cites what says nothing of it: {text[:70]!r}")
    order = [(e.utc_ns, e.port, e.seq, e.text) for e in report.timeline]
    for earlier, later in expect.get("chain", ()):
        first = next((at for *at, text in order if re.search(earlier, text)), None)
        then = next((at for *at, text in reversed(order) if re.search(later, text)), None)
        if first is None or then is None or first >= then:
            judged.is_order_right = False
            judged.misses.append(f"the timeline does not show {earlier!r} before {later!r}")


def _judge_words(judged: Judged, expect: Any, report: Report) -> None:
    claims = [report.title, *(c.claim for c in report.conclusions)]
    held = [h.text for h in report.hypotheses if h.status == "confirmed"]
    steps = [step.text for step in report.next_steps]
    for pattern in expect.get("must_not_claim", ()):
        for text in (*claims, *held):
            if re.search(pattern, text):
                judged.forbidden += 1
                judged.misses.append(f"says {pattern!r}, which is forbidden: {text}")
    for pattern in expect.get("must_not_advise", ()):
        for text in steps:
            if re.search(pattern, text) and not text.startswith("do not "):
                judged.forbidden += 1
                judged.misses.append(f"advises {pattern!r}, which is forbidden: {text}")
    said = "\n".join((*claims, *held))
    for pattern in expect.get("must_claim", ()):
        if not re.search(pattern, said):
            judged.is_told = False
            judged.misses.append(f"does not say {pattern!r}")
    open_words = "\n".join((*report.unknowns, *report.not_checked))
    for pattern in expect.get("must_leave_open", ()):
        if not re.search(pattern, open_words):
            judged.is_told = False
            judged.misses.append(f"does not leave open {pattern!r}")
    wanted = expect.get("next_steps_any", ())
    if wanted and not any(re.search(p, text) for p in wanted for text in steps):
        judged.is_told = False
        judged.misses.append(f"no next step has any of {wanted}")


def row(name: str, cases: Sequence[Judged]) -> dict[str, Any]:
    """Return one line of the table."""
    faults = [j for j in cases if not j.is_null]
    times = sorted(j.ms for j in faults)
    return {
        "tag": name,
        "cases": len(cases),
        "class": _share(sum(j.is_first for j in faults), len(faults)),
        "in_three": _share(sum(j.is_in_three for j in faults), len(faults)),
        "recall": _share(sum(j.found for j in faults), sum(j.must for j in faults)),
        "precision": _share(sum(j.relevant for j in faults), sum(j.cited for j in faults)),
        "verdict": _share(sum(j.is_verdict_right for j in faults), len(faults)),
        "order": _share(sum(j.is_order_right for j in faults), len(faults)),
        "told": _share(sum(j.is_told for j in faults), len(faults)),
        "forbidden": sum(j.forbidden for j in faults),
        "unverified": sum(j.unverified for j in faults),
        "dropped": sum(j.dropped for j in faults),
        "false": sum(j.alarms for j in cases),
        "ms": round(times[int(0.95 * (len(times) - 1))], 1) if times else None,
    }


def _share(part: int, whole: int) -> float | None:
    return round(part / whole, 3) if whole else None


def table(judged: Sequence[Judged]) -> list[dict[str, Any]]:
    """Return the rows of all tags, the whole last."""
    by_tag: defaultdict[str, list[Judged]] = defaultdict(list)
    for one in judged:
        for tag in one.tags:
            by_tag[tag].append(one)
    return [row(tag, cases) for tag, cases in sorted(by_tag.items())] + [row("all", judged)]


def unmet(whole: dict[str, Any]) -> list[str]:
    """Return which gates the last row of a table does not pass."""
    least = {"class": FIRST, "in_three": IN_THREE}
    most = {"forbidden": 0, "unverified": 0, "dropped": 0, "false": 0, "ms": QUICK_MS}
    missed = [f"{k} {whole[k]} < {v}" for k, v in least.items() if (whole[k] or 0) < v]
    return missed + [f"{k} {whole[k]} > {v}" for k, v in most.items() if (whole[k] or 0) > v]


def unmet_claims(claims: Mapping[str, float]) -> list[str]:
    """Return which gates the verifier does not pass."""
    missed = [f"made-up claims caught {claims['caught']} < {CAUGHT}"]
    refused = [f"true claims refused {claims['refused']} > {REFUSED}"]
    return missed * (claims["caught"] < CAUGHT) + refused * (claims["refused"] > REFUSED)


async def judge_all(cases: Iterable[Case]) -> list[Judged]:
    """Play and judge cases."""
    with tempfile.TemporaryDirectory(prefix="serialwatch-eval-") as name:
        return [judge(case, await told(case, Path(name))) for case in cases]


def main() -> None:
    """Print the table; exit 1 if a gate is not passed."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("cases", nargs="?", default="*", help="names, with * for any letters")
    parser.add_argument("--json", action="store_true", help="print JSON alone")
    asked = parser.parse_args()
    get_ready()
    judged = asyncio.run(judge_all(load_cases(asked.cases)))
    rows = table(judged)
    missed = unmet(rows[-1])
    true, false = weighed(made_grounds())
    claims = figures(true, false)
    missed += unmet_claims(claims)
    misses = {j.name: j.misses for j in judged if j.misses}
    if asked.json:
        print(json.dumps({"tags": rows, "claims": claims, "misses": misses, "unmet": missed}))
    else:
        _print(rows, misses, told_figures(true, false), missed)
    sys.exit(1 if missed else 0)


def _print(
    rows: list[dict[str, Any]],
    misses: dict[str, list[str]],
    claims: list[str],
    missed: list[str],
) -> None:
    print("  ".join(f"{name:>{max(len(name), 9)}}" for name in rows[0]))
    for line in rows:
        cells = ("-" if value is None else str(value) for value in line.values())
        print("  ".join(f"{c:>{max(len(n), 9)}}" for n, c in zip(line, cells, strict=True)))
    for name, words in misses.items():
        print(f"{name}:", *words, sep="\n    ")
    print("", *claims, sep="\n")
    for gate in missed:
        print(f"not met: {gate}")


if __name__ == "__main__":
    main()
