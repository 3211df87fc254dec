"""Claims that are true and claims that are made up, seeded from own streams, and who lets them pass.

`make eval-agent` prints how many of each kind were caught, and how many true ones were refused.
"""

from __future__ import annotations

import asyncio
import random
import re
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace

from bench_analysis import get_ready, reported, watched
from own_streams import STREAMS
from serialwatch.agent.proof.verifier import verify
from serialwatch.agent.text.device_text import normal, readable
from serialwatch.agent.workers.tools import RunTools
from serialwatch.records import Conclusion, Evidence, Incident, Line, Report

CAUGHT, REFUSED = 0.95, 0.02  # least and most share
SEED = 5
MOST = 10  # incidents, each of another family of boards


@dataclass
class Ground:
    """An incident of a stream with all that was read of it."""

    incident: Incident
    report: Report
    tools: RunTools
    lines: list[Line]  # of the incident's port, with words, oldest first
    unread: list[Line]

    def at(self, line: Line) -> Evidence:
        return Evidence(line.port, line.seq, quoted(line))


@dataclass
class Tally:
    """Counts by kind."""

    all: Counter[str] = field(default_factory=Counter)
    caught: Counter[str] = field(default_factory=Counter)
    missed: list[str] = field(default_factory=list)

    def row(self, kind: str) -> str:
        return f"  {kind:34} {self.caught[kind]:5} of {self.all[kind]:5}"


def quoted(line: Line) -> str:
    return normal(readable(line.raw))[:100]


def made_grounds() -> list[Ground]:
    """Return an incident of one faulty stream of each family."""
    get_ready()
    return asyncio.run(_grounds())


async def _grounds() -> list[Ground]:
    found: list[Ground] = []
    families: Counter[str] = Counter()
    for stream in STREAMS:
        if not stream.expected or families[stream.family] or len(found) >= MOST:
            continue
        seen = watched(stream.data)
        incident = next((i for i in seen.incidents if i.trigger == stream.expected[0]), None)
        if incident is None or not incident.first_seq:
            continue
        report, tools = await reported(seen, incident)
        ledger = [line for line in tools.ledger.values() if re.search(rb"[a-zA-Z]{4}", line.raw)]
        lines = sorted((x for x in ledger if x.port == incident.port), key=lambda x: x.seq)
        unread = [x for x in seen.lines if (x.port, x.seq) not in tools.ledger]
        lines = [line for line in lines if len(quoted(line)) >= 12]
        if len(lines) >= 12:
            families[stream.family] += 1
            found.append(Ground(incident, report, tools, lines, unread))
    return found


def true_claims(ground: Ground, dice: random.Random) -> Iterator[tuple[str, Sequence[Conclusion]]]:
    """Return claims of which every word is carried."""
    for c in ground.report.conclusions:
        yield "the analyst's own", [c]
    for line in dice.sample(ground.lines, 8):
        said = quoted(line)
        yield "quotes a line", [claim(f"The board printed: {said[:150]}", ground.at(line))]
        loose = replace(ground.at(line), quote="  ".join(said.split(" ")))
        yield "with loose spaces", [claim("This line was printed.", loose)]
        part = said[3:60].strip()
        if len(part) >= 8 and re.search(r"[A-Za-z]{2}", part):
            yield "quotes a part", [claim("It said so.", Evidence(line.port, line.seq, part))]
        for number in re.findall(r"(?<![\w.])(?:0x[0-9a-f]+|\d+)(?![\w.])", said)[:1]:
            yield "uses a number of it", [claim(f"The value {number} was given.", ground.at(line))]
        off = Evidence(line.port, line.seq + dice.choice((-3, 2)), said)
        near = ground.tools.ledger.get((off.port, off.seq))
        if near is not None and re.search(r"[A-Za-z]", readable(near.raw)):
            yield "is a few lines off", [claim("It printed this.", off)]
        yield (
            "rests on another",
            [
                claim("It said so.", ground.at(line)),
                Conclusion("c2", "inference", "So it did.", rests_on=("c1",)),
            ],
        )
    for _ in range(4):
        one, other = sorted(dice.sample(ground.lines, 2), key=lambda x: x.seq)
        both = (ground.at(one), ground.at(other))
        span_s = (other.utc_ns - one.utc_ns) / 1e9
        yield "a time between lines", [claim(f"{span_s:.2f} s lay between the two.", *both)]
        yield "a count of lines", [claim(f"It came {other.seq - one.seq} lines later.", *both)]
        yield "names lines", [claim(f"See L{one.seq} and {other.port}:L{other.seq}.", *both)]


def false_claims(ground: Ground, dice: random.Random) -> Iterator[tuple[str, Sequence[Conclusion]]]:
    """Return claims that are made up in one way each."""
    incident = ground.incident
    for line in dice.sample(ground.lines, 8):
        cited, said = ground.at(line), quoted(line)
        beyond = replace(cited, seq=line.seq + 100_000 + dice.randrange(900_000))
        yield "a line that is not there", [claim("It said so.", beyond)]
        far = [x for x in ground.lines if abs(x.seq - line.seq) > 5 and said not in quoted(x)]
        if far:
            other = dice.choice(far)
            wrong = replace(cited, seq=other.seq)
            yield "the quote of another line", [claim("It said so.", wrong)]
        words = said.split()
        if len(words) >= 4:
            dice.shuffle(words)
            mixed = " ".join(words[::-1])
            if mixed not in said and mixed != said:
                yield "an altered quote", [claim("It said so.", replace(cited, quote=mixed))]
        made_up = dice.choice(["kernel panic - not syncing: made up", "the supply fell to 2.1 V"])
        yield "an invented quote", [claim("It said so.", replace(cited, quote=made_up))]
        for number in re.findall(r"(?<![\w.])(?:0x[0-9a-f]{3,}|\d{2,})(?![\w.])", said)[:2]:
            swapped = _swapped(number, dice)
            text = said.replace(number, swapped)[:150]
            yield "a swapped number", [claim(f"The board printed: {text}", cited)]
        address = f"0x{dice.randrange(0x10000000, 0xFFFFFFFF):08x}"
        yield "an invented address", [claim(f"The pointer {address} was bad.", cited)]
        times = dice.randrange(200, 9000)
        yield "an invented count", [claim(f"It happened {times} times.", cited)]
        late = f"{dice.randrange(40, 9000)}.{dice.randrange(1, 9)}{dice.randrange(1, 9)}"
        yield "an invented time", [claim(f"It came {late} s after the start.", cited)]
        name = f"{dice.choice(['task', 'worker', 'irq', 'spi'])}{dice.randrange(40, 999)}"
        yield "an invented name", [claim(f"The one to blame is {name}.", cited)]
        yield "another port", [claim("It said so.", replace(cited, port="dut9"))]
        yield "another port's name", [claim("The board on dut9 did the same.", cited)]
        yield (
            "an address of the net",
            [claim(f"See https://help{dice.randrange(99)}.example/fix for it.", cited)],
        )
        yield "a line of no read", [claim(f"L{line.seq + 70_000} shows it.", cited)]
        yield "finer than capture", [claim("It followed 250 ns later.", cited)]
    for line in ground.unread[:6]:
        yield "a line that was not read", [claim("It said so.", ground.at(line))]
    yield "memory alone", [Conclusion("c1", "cause", "It was the regulator.", results=("R1",))]
    yield (
        "a circle",
        [
            Conclusion("c1", "inference", "So it is.", rests_on=("c2",)),
            Conclusion("c2", "inference", "So it must be.", rests_on=("c1",)),
        ],
    )
    yield "an observation of nothing", [Conclusion("c1", "observation", "It got hot.")]
    last = ground.lines[-1]
    ends = incident.outcome_seq or (incident.last_seq + 1 if incident.is_settled else last.seq + 1)
    for line in [x for x in ground.lines if x.seq >= max(ends, incident.last_seq + 1)][:4]:
        late_cause = claim("That made it fail.", ground.at(line), kind="cause")
        yield "a cause after its effect", [late_cause]
    fault = next((x for x in ground.lines if x.seq == incident.first_seq), None)
    if fault is None:
        return
    at = ground.at(fault)
    if incident.outcome == "rebooted":
        for text in ("The board did not reset.", "No reset followed.", "It kept running."):
            yield "no reset, though it did", [claim(text, at)]
        yield "never back, though it was", [claim("The board never came back.", at)]
    following = next((x for x in ground.lines if x.seq == fault.seq + 1), None)
    if following is not None and following.boot == fault.boot:
        for text in ("It printed nothing after that.", "Then the board went silent."):
            yield "silence, though lines follow", [claim(text, at)]


def claim(text: str, *evidence: Evidence, kind: str = "observation") -> Conclusion:
    return Conclusion("c1", kind, text, evidence)  # type: ignore[arg-type]


def _swapped(number: str, dice: random.Random) -> str:
    digits = "0123456789abcdef" if number.startswith("0x") else "0123456789"
    start = 2 if number.startswith("0x") else 0
    while True:
        at = dice.randrange(start, len(number))
        other = dice.choice(digits)
        if other != number[at] and not (at == 0 and other == "0"):
            return number[:at] + other + number[at + 1 :]


Judge = Callable[[Ground, Sequence[Conclusion], bool], bool]


def holds(ground: Ground, said: Sequence[Conclusion], incident: Incident | None = None) -> bool:
    """Tell whether the verifier lets the last of the claims stand as it is."""
    draft = replace(
        ground.report,
        conclusions=tuple(said),
        timeline=(),
        hypotheses=(),
        unknowns=(),
        next_steps=(),
        not_checked=(),
    )
    tools = ground.tools
    checked = verify(draft, tools.ledger, tools.results, incident or ground.incident, tools.pages)
    kept = {c.id: c for c in checked.report.conclusions}
    last = kept.get(said[-1].id)
    if last is None or last.kind != said[-1].kind:
        return False
    # A citation that was put right is no lie any more.
    return all(e in said[-1].evidence or not e.quote for e in last.evidence) or all(
        quoted(tools.ledger[e.port, e.seq]).find(e.quote[:40]) >= 0 for e in last.evidence
    )


def weighed(grounds: Sequence[Ground]) -> tuple[Tally, Tally]:
    """Return the true claims with those of them that are refused, and the made-up ones."""
    dice = random.Random(SEED)
    true, false = Tally(), Tally()
    for ground in grounds:
        for kind, said in true_claims(ground, dice):
            true.all[kind] += 1
            if not holds(ground, said):
                true.caught[kind] += 1
                true.missed.append(f"{kind}: {said[-1]}")
        for kind, said in false_claims(ground, dice):
            false.all[kind] += 1
            if holds(ground, said):
                false.missed.append(f"{kind}: {said[-1]}")
            else:
                false.caught[kind] += 1
        seen = replace(ground.incident, seen_before=(3,))
        first = claim("This fault never happened before.", ground.at(ground.lines[0]))
        false.all["the first time, though it was seen"] += 1
        false.caught["the first time, though it was seen"] += not holds(ground, [first], seen)
    return true, false


def figures(true: Tally, false: Tally) -> dict[str, float]:
    """Return the figures that are to be told."""
    made_up, sound = false.all.total(), true.all.total()
    return {
        "made_up": made_up,
        "caught": round(false.caught.total() / made_up, 4),
        "true": sound,
        "refused": round(true.caught.total() / sound, 4),
    }


def told_figures(true: Tally, false: Tally) -> list[str]:
    """Return them as lines, by kind."""
    found = figures(true, false)
    return [
        f"{found['made_up']} made-up claims, {found['caught']:.1%} caught",
        *(false.row(kind) for kind in sorted(false.all)),
        f"{found['true']} true claims, {found['refused']:.1%} refused",
        *(true.row(kind) for kind in sorted(true.all)),
    ]
