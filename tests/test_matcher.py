from __future__ import annotations

import gc

import pytest

from serialwatch.triggers.matcher import Matcher
from serialwatch.triggers.pattern_tree import PatternError
from serialwatch.triggers.rules import parse_rules
from serialwatch.triggers.ruleset import RuleSet

RULES = r"""
[[rule]]
id = "mine.oops"
title = "oops"
severity = "critical"
match = ['Oops: \d', 'BUG: ']
block = { start = 'cut here', end = 'end trace' }
needs = { match = 'BUG: ' }

[[rule]]
id = "mine.sharp_oops"
title = "sharp oops"
severity = "critical"
match = 'BUG: sharp'
parent = "mine.oops"

[[ready]]
ecosystem = "linux"
match = 'login: $'
"""


def sources(matcher: Matcher, text: bytes) -> list[tuple[str, int]]:
    return sorted((matcher.patterns[number].source, end) for number, end in matcher.scan(text))


def test_every_line_of_a_chunk_is_found_with_the_end_of_its_match() -> None:
    matcher = Matcher(parse_rules(RULES))

    assert sources(matcher, b"Oops: 1\nx\n<1>Oops: 2\r\nBUG: sharp\n") == [
        ("BUG: ", 27),
        ("BUG: sharp", 32),
        (r"Oops: \d", 7),
        (r"Oops: \d", 20),
    ]


def test_nothing_found_is_an_empty_list_each_time() -> None:
    matcher = Matcher(parse_rules(RULES))
    found = matcher.scan(b"Oops: 1\n")

    assert matcher.scan(b"fine\n") == []
    assert len(found) == 1, "an earlier answer must not change"


def test_patterns_that_rules_only_ask_for_are_known() -> None:
    matcher = Matcher(parse_rules(RULES))
    awaited = Matcher(parse_rules(RULES), ready=["cut here"])

    assert [matcher.patterns[number].source for number in matcher.only_remembered] == ["cut here"]
    assert not awaited.only_remembered, "a port waits for it"


def test_a_pattern_of_several_uses_is_scanned_once() -> None:
    matcher = Matcher(parse_rules(RULES))
    number = [p.source for p in matcher.patterns].index("BUG: ")

    assert len(matcher.patterns) == 6
    assert [c.rule.id for c in matcher.uses[number].rules] == ["mine.oops"]
    assert matcher.uses[number].is_remembered
    assert matcher.uses[number].rules[0].needs == {number}


def test_ancestors_are_followed() -> None:
    matcher = Matcher(parse_rules(RULES))
    number = [p.source for p in matcher.patterns].index("BUG: sharp")

    assert matcher.uses[number].rules[0].ancestors == {"mine.oops"}


def test_the_handler_lives_as_long_as_the_matcher() -> None:
    matcher = Matcher(parse_rules(RULES))
    for _ in range(200):
        gc.collect(0)
        assert len(matcher.scan(b"Oops: 1\n" * 50)) == 50


def test_two_matchers_of_one_rule_set_do_not_mix_their_hits() -> None:
    rules = parse_rules(RULES)
    one, two = Matcher(rules), Matcher(rules)

    assert len(one.scan(b"Oops: 1\n")) == 1
    assert two.scan(b"fine\n") == []


def test_no_rules_find_nothing() -> None:
    assert Matcher(RuleSet()).scan(b"Kernel panic\n") == []


def test_a_port_may_have_a_ready_pattern_of_its_own() -> None:
    matcher = Matcher(parse_rules(RULES), ready=["app: up$"])

    assert sources(matcher, b"app: up\n") == [("app: up$", 7)]
    assert matcher.ready == {"app: up$": 6}
    with pytest.raises(PatternError, match="look-ahead"):
        Matcher(parse_rules(RULES), ready=["app(?= up)"])
