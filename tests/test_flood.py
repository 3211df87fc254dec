"""Rules that hit nearly every line: counted to the last one, looked at for the first ones."""

from __future__ import annotations

from functools import cache

from serialwatch.incidents.incidents import Incidents
from serialwatch.records import BlockEnd, Boot, Finding, Hit, Lines
from serialwatch.triggers.flood import MAX_KEYS, MOST_HITS, MOST_NEW_KEYS
from serialwatch.triggers.matcher import Matcher
from serialwatch.triggers.rules import parse_rules
from serialwatch.triggers.watch import PortWatch

S = 1_000_000_000
T0 = 1000 * S

RULES = r"""
[[rule]]
id = "mine.stuck"
title = "valve {n} is stuck"
severity = "error"
match = ['valve \d+ stuck', 'valve \d+ is stuck']
fields = ['valve (?P<n>\d+)', 'state (?P<state>\w+)']
unless = ['\bsimulated\b']
key = ["n"]
severity_when = [{ match = 'on fire', severity = "critical" }]

[[rule]]
id = "mine.dry"
title = "pump ran dry"
severity = "warning"
match = ['pump ran dry']
unless = ['\bsimulated\b']
block = { start = 'pump ran dry', max_lines = 5 }

[[rule]]
id = "mine.low"
title = "the tank is low"
severity = "error"
match = ['tank is low']

[[rule]]
id = "mine.often"
title = "lost"
severity = "error"
match = ['message \d lost']
count = { n = 10, in_s = 5 }

[[rule]]
id = "mine.seen"
title = "the motor stopped beside a dry pump"
severity = "error"
match = ['motor stopped']
needs = { match = 'pump ran dry', within_lines = 3 }

[[boot]]
ecosystem = "mine"
stage = 1
match = ['^Mine boot ROM']
"""


@cache
def matcher() -> Matcher:
    return Matcher(parse_rules(RULES))


class Port:
    """A port whose lines all come within a second, and the incidents of it."""

    def __init__(self, at_once: int = 50) -> None:
        self.watch = PortWatch("dut1", matcher())
        self.incidents = Incidents(1)
        self.found: list[Finding] = []
        self.seq = 1
        self._at_once = at_once

    def prints(self, lines: list[str], at_s: float = 0.0) -> None:
        for n in range(0, len(lines), self._at_once):
            part = lines[n : n + self._at_once]
            text = "".join(f"{line}\r\n" for line in part).encode()
            at_ns = T0 + int(at_s * S)
            self._take(self.watch.fed(Lines(self.seq, len(part), text, at_ns, at_ns)))
            self.seq += len(part)
        nothing_more_ns = T0 + int(at_s * S) + S // 50
        self._take(self.watch.tick(nothing_more_ns, nothing_more_ns))

    def stops_within(self, line: str, at_s: float) -> None:
        """Print a part of a line, and nothing more for a moment."""
        at_ns = T0 + int(at_s * S)
        self._take(self.watch.partial(self.seq, line.encode(), at_ns, at_ns))

    def lost(self, at_s: float) -> None:
        self._take(self.watch.lost(T0 + int(at_s * S)))

    def hits(self, trigger: str) -> list[Hit]:
        return [f for f in self.found if isinstance(f, Hit) and f.trigger == trigger]

    def _take(self, findings: list[Finding]) -> None:
        for finding in findings:
            self.found.append(finding)
            self.incidents.found(finding)


def test_a_flood_is_counted_to_its_last_line_in_few_hits() -> None:
    port = Port()
    port.prints(["pump ran dry", "tick"] * 2000)
    hits = port.hits("mine.dry")
    (incident,) = port.incidents.open()

    assert len(hits) < MOST_HITS + 4000 / 50 + 1
    assert sum(hit.count for hit in hits) == 2000
    assert (incident.count, incident.hits[0].count) == (2000, 2000)
    assert (incident.hits[0].last_seq, hits[-1].seq) == (3999, 3999)
    assert hits[-1].raw == b"pump ran dry"


def test_lines_that_come_in_pairs_before_a_flood_take_nothing_from_its_count() -> None:
    port = Port()
    for told in (["pump ran dry"] * 400, ["valve 1 stuck"] * 400) * 3:
        port.prints(["tick", "tick", "tock", "tock", *told])

    assert sum(hit.count for hit in port.hits("mine.dry")) == 1200
    assert sum(hit.count for hit in port.hits("mine.stuck")) == 1200


def test_each_fault_of_a_flood_is_told_for_itself_and_counted_for_itself() -> None:
    port = Port()
    port.prints([f"valve {n % 7} stuck, state open" for n in range(1400)])
    port.prints(["valve 99 stuck, state shut"])
    counts = dict.fromkeys("0123456", 0)
    for hit in port.hits("mine.stuck")[:-1]:
        counts[hit.key] += hit.count

    assert counts == dict.fromkeys("0123456", 200)
    assert port.hits("mine.stuck")[-1].key == "99"
    assert port.hits("mine.stuck")[-1].fields == {"n": "99", "state": "shut"}


def test_a_worse_case_is_told_in_the_midst_of_a_flood() -> None:
    port = Port()
    port.prints(["valve 1 stuck"] * 500 + ["valve 1 stuck and on fire"] + ["valve 1 stuck"] * 500)

    assert [h.seq for h in port.hits("mine.stuck") if h.severity == "critical"] == [501]
    assert sum(h.count for h in port.hits("mine.stuck")) == 1001


def test_ever_new_faults_have_a_limit_and_are_counted_all_the_same() -> None:
    port = Port(at_once=500)
    port.prints([f"valve {n} stuck" for n in range(5000)])
    hits = port.hits("mine.stuck")

    assert len({hit.key for hit in hits}) == MOST_HITS + MOST_NEW_KEYS <= MAX_KEYS
    assert sum(hit.count for hit in hits) == 5000


def test_what_is_no_hit_is_none_in_a_flood() -> None:
    port = Port()
    port.prints(["pump ran dry", "pump ran dry (simulated)", "pump runs dry"] * 500)

    assert sum(hit.count for hit in port.hits("mine.dry")) == 500


def test_another_rule_sees_the_lines_of_a_flood() -> None:
    port = Port()
    port.prints(["pump ran dry"] * 500 + ["motor stopped"])

    assert [hit.seq for hit in port.hits("mine.seen")] == [501]


def test_a_rule_that_counts_by_itself_hits_as_often_as_ever() -> None:
    port = Port()
    port.prints(["message 1 lost"] * 1000)

    assert len(port.hits("mine.often")) == 100


def test_a_block_goes_on_to_its_end_and_a_new_second_is_looked_at_again() -> None:
    port = Port()
    port.prints(["pump ran dry"] * 500)
    port.prints(["pump ran dry"], at_s=1.5)
    ends = [f for f in port.found if isinstance(f, BlockEnd)]

    assert any(end.reason == "length" for end in ends)
    assert port.hits("mine.dry")[-1].opens_block


def test_a_line_that_was_judged_unfinished_is_counted_once() -> None:
    port = Port()
    port.prints([f"tank is low: {n}" for n in range(600)])
    port.stops_within("tank is low", at_s=0.3)
    port.prints(["tank is low now"], at_s=0.4)

    assert sum(hit.count for hit in port.hits("mine.low")) == 601


def test_what_was_counted_is_told_before_the_boot_that_follows_it() -> None:
    port = Port(at_once=1000)
    port.prints(["pump ran dry"] * 400 + ["Mine boot ROM 1.0", "pump ran dry"])
    port.prints(["ready"] * 20, at_s=0.5)
    boot = next(n for n, f in enumerate(port.found) if isinstance(f, Boot))
    before = [f for f in port.found[:boot] if isinstance(f, Hit)]

    assert sum(hit.count for hit in before) == 400
    assert {hit.boot for hit in before} == {0}
    assert sum(hit.count for hit in port.hits("mine.dry")) == 401


def test_a_port_that_vanishes_leaves_nothing_untold() -> None:
    port = Port()
    port.prints(["pump ran dry"] * 450)
    port.lost(0.5)

    assert sum(hit.count for hit in port.hits("mine.dry")) == 450
