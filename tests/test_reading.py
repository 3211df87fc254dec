"""Lines that come again: known, and still judged by what is around them."""

from __future__ import annotations

import pytest

from serialwatch.records import Hit, Lines
from serialwatch.triggers import patience
from serialwatch.triggers.matcher import Matcher
from serialwatch.triggers.patterns import compile_pattern
from serialwatch.triggers.reading import MAX_KNOWN, MOST_KNOWN, Reading
from serialwatch.triggers.rules import parse_rules
from serialwatch.triggers.watch import PortWatch

S = 1_000_000_000

RULES = r"""
[[rule]]
id = "mine.dry"
title = "pump {n} ran dry"
severity = "error"
match = '^pump \d ran dry'
fields = 'pump (?P<n>\d)'
unless = 'simulated'
severity_when = [{ severity = "note", state = "boot" }]
unless_near = { match = '^test of pumps', before = 1, after = 0 }

[[rule]]
id = "mine.slow"
title = "slow"
severity = "error"
match = '^(a.*)(b.*)(c.*)(d.*)zzz'

[[boot]]
ecosystem = "mine"
match = 'Mine ROM'
stage = 1
"""


class Port:
    """A port whose lines are judged."""

    def __init__(self) -> None:
        self.matcher = Matcher(parse_rules(RULES))
        self._watch = PortWatch("dut1", self.matcher)
        self._seq = 1

    def says(self, *lines: bytes) -> list[Hit]:
        text = b"".join(line + b"\n" for line in lines)
        now_ns = (10 + 20 * self._seq) * S
        found = self._watch.fed(Lines(self._seq, len(lines), text, now_ns, now_ns))
        self._seq += len(lines)
        found += self._watch.tick(now_ns + 10 * S, now_ns + 10 * S)
        return [each for each in found if isinstance(each, Hit) and each.trigger[:5] == "mine."]

    def known(self, line: bytes) -> Reading | None:
        ids = tuple(number for number, _ in sorted(self.matcher.scan(line + b"\n")))
        return self.matcher.readings.get(line, ids)


def test_a_line_that_comes_again_is_not_searched_again() -> None:
    port = Port()
    first = port.says(b"pump 1 ran dry")
    known = port.known(b"pump 1 ran dry")
    second = port.says(b"pump 1 ran dry")

    assert known
    assert port.known(b"pump 1 ran dry") is known
    assert [hit.title for hit in first + second] == ["pump 1 ran dry"] * 2
    assert second[0].fields is first[0].fields


def test_what_stands_around_a_known_line_still_counts() -> None:
    port = Port()
    found = port.says(b"pump 1 ran dry", b"test of pumps", b"pump 1 ran dry", b"", b"Mine ROM")
    found += port.says(b"pump 1 ran dry", b"pump 1 ran dry, simulated")

    assert [(hit.seq, hit.severity) for hit in found] == [(1, "error"), (6, "note")]


def test_a_search_that_was_not_made_is_made_when_the_line_comes_again(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    port = Port()
    now_s = 1000.0
    monkeypatch.setattr(patience.time, "monotonic", lambda: now_s)
    for _ in range(5):
        compile_pattern(r"^(a.*)(b.*)(c.*)(d.*)zzz").find(b"abcd" * 900)

    assert port.says(b"abcdzzz") == []
    assert port.known(b"abcdzzz") is None
    now_s += patience.GIVEN_UP_S
    assert [hit.trigger for hit in port.says(b"abcdzzz")] == ["mine.slow"]


def test_no_more_lines_are_known_than_fit() -> None:
    port = Port()
    port.says(b"pump 1 ran dry" + b"." * MAX_KNOWN)
    assert port.known(b"pump 1 ran dry" + b"." * MAX_KNOWN) is None
    port.says(*(b"pump 1 ran dry %d" % number for number in range(2 * MOST_KNOWN + 1)))

    assert port.known(b"pump 1 ran dry 0") is None
    assert port.known(b"pump 1 ran dry %d" % (MOST_KNOWN + 1))
