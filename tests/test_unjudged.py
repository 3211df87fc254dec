"""Lines that say nothing wait for others, but never what is found for them."""

from __future__ import annotations

from functools import cache

from serialwatch.records import Finding, Hit, Lines
from serialwatch.triggers.matcher import Matcher
from serialwatch.triggers.rules import parse_rules
from serialwatch.triggers.watch import PortWatch

S = 1_000_000_000
MS = 1_000_000
PLAIN = b"a line in which nothing is found\n"
RULES = """
[[rule]]
id = "pump.died"
title = "pump died"
severity = "critical"
match = "^pump died now"

[[rule]]
id = "pump.hot"
title = "pump hot"
severity = "error"
match = "^pump hot"
needs = { match = "^degrees: ", within_lines = 3 }
"""


@cache
def matcher() -> Matcher:
    return Matcher(parse_rules(RULES))


class Busy:
    """A busy port, whose lines may wait."""

    def __init__(self) -> None:
        self.watch = PortWatch("dut1", matcher())
        self.now_ns = 10 * S
        self._seq = 1
        self.prints(PLAIN)  # is judged at once

    def prints(self, text: bytes, after_ns: int = 5 * MS) -> list[str]:
        self.now_ns += after_ns
        lines = Lines(self._seq, text.count(b"\n"), text, self.now_ns, self.now_ns)
        self._seq += lines.count
        return told(self.watch.fed(lines, may_wait=True))

    def tick(self, after_ns: int = 5 * MS) -> list[str]:
        self.now_ns += after_ns
        return told(self.watch.tick(self.now_ns, self.now_ns))


def told(findings: list[Finding]) -> list[str]:
    return [f"{f.trigger} L{f.seq}" for f in findings if isinstance(f, Hit)]


def test_lines_that_say_nothing_wait_for_a_tick_which_finds_what_was_torn() -> None:
    port = Busy()

    assert port.prints(PLAIN) == []
    assert port.prints(b"pump died\n") == []
    assert port.prints(b" now\n") == []
    assert port.watch.judged_seq == 1
    assert port.tick() == ["pump.died L3"]
    assert port.watch.judged_seq == 4


def test_on_a_port_that_is_not_busy_nothing_waits() -> None:
    port = Busy()

    assert port.prints(b"pump died\n", after_ns=100 * MS) == []
    assert port.watch.judged_seq == 2
    assert port.prints(b" now\n", after_ns=25 * MS) == ["pump.died L2"]


def test_a_line_that_a_rule_hits_is_told_at_once_with_its_number_and_time() -> None:
    port = Busy()
    port.prints(PLAIN * 7)
    port.now_ns += 5 * MS
    (hit,) = port.watch.fed(
        Lines(9, 2, PLAIN + b"pump died now\n", port.now_ns, port.now_ns), may_wait=True
    )

    assert isinstance(hit, Hit)
    assert (hit.seq, hit.mono_ns, hit.raw) == (10, port.now_ns, b"pump died now")
    assert port.watch.judged_seq == 10


def test_what_a_rule_asks_for_is_found_in_lines_that_waited_and_in_those_that_come() -> None:
    port = Busy()
    port.prints(b"degrees: 90\n" + PLAIN)
    assert port.prints(b"pump hot\n") == ["pump.hot L4"]

    port.prints(PLAIN * 5)
    assert port.prints(b"pump hot\n") == []
    assert port.prints(b"degrees: 91\n") == ["pump.hot L10"], "a rule waits for it: it may not wait"


def test_what_is_too_far_back_is_not_found_however_many_lines_waited_together() -> None:
    port = Busy()
    port.prints(b"degrees: 90\n" + PLAIN * 100)
    assert port.prints(PLAIN * 2 + b"pump hot\n") == []
    port.prints(PLAIN * 100 + b"degrees: 90\n" + PLAIN * 2)
    assert port.prints(b"pump hot\n") == ["pump.hot L209"]


def test_they_wait_neither_for_long_nor_for_many() -> None:
    port = Busy()
    for _ in range(5):
        port.prints(PLAIN, after_ns=15 * MS)
    assert port.watch.judged_seq == 5, "what came so long ago is not put together with this"

    port.prints(PLAIN * 600, after_ns=1 * MS)
    assert port.watch.judged_seq == 606, "16 KiB are enough"


def test_a_loss_of_the_port_and_other_rules_judge_what_waits() -> None:
    port = Busy()
    port.prints(b"pump died\n")
    port.prints(b" now\n")
    assert told(port.watch.lost(port.now_ns)) == ["pump.died L2"]

    port = Busy()
    port.prints(b"pump died\n")
    port.prints(b" now\n")
    port.watch.swap(Matcher(parse_rules("")))
    assert port.tick() == ["pump.died L2"]
