from __future__ import annotations

from pathlib import Path

import pytest

from serialwatch.bundled import bundled_dir
from serialwatch.tomlfile import TomlError
from serialwatch.triggers.check import check_rules, explain_rule
from serialwatch.triggers.rules import load_rules, parse_rules
from serialwatch.triggers.ruleset import BootMarker, CounterDetector

RULE = """
[[rule]]
id = "mine.{word}"
title = "valve {{n}} is stuck"
severity = "error"
match = ['valve \\d stuck']
fields = 'valve (?P<n>\\d)'
examples = ['valve 3 stuck']
"""
VALVE = RULE.format(word="valve")


def problem_of(text: str) -> str:
    with pytest.raises(TomlError) as caught:
        parse_rules(text, "rules.d/mine.toml")
    return str(caught.value)


def test_a_full_rule_keeps_all_that_was_written() -> None:
    text = """
    [[rule]]
    id = "linux.irq_nobody_cared"
    title = "IRQ {irq} was disabled: nobody cared"
    severity = "critical"
    tier = "specific"
    ecosystem = ["linux"]
    match = ['irq \\d+: nobody cared']
    fields = 'irq (?P<irq>\\d+)'
    unless = ['irqpoll enabled']
    block = { start = 'cut here', back_lines = 5, end = 'Disabling IRQ #\\d', max_lines = 200 }
    continues = false
    needs = { match = 'handlers:', within_lines = 20 }
    unless_near = { match = 'selftest', before = 5, after = 6 }
    count = { n = 3, in_s = 10 }
    severity_when = [{ state = "shutdown", severity = "note" }]
    key = ["irq"]
    holdoff_s = 300
    knowledge = "linux/irq_nobody_cared"
    examples = ['irq 33: nobody cared']
    counterexamples = ['genirq: irqpoll enabled for irq 33']
    """
    rule = parse_rules(text).rules[0]

    assert (rule.id, rule.pack, rule.family, rule.key) == (
        "linux.irq_nobody_cared",
        "linux",
        "linux",
        ("irq",),
    )
    assert rule.match == (r"irq \d+: nobody cared",)
    assert rule.block
    assert (rule.block.start, rule.block.back_lines) == (("cut here",), 5)
    assert rule.needs
    assert rule.needs.within_lines == 20
    assert rule.unless_near
    assert (rule.unless_near.before, rule.unless_near.after) == (5, 6)
    assert rule.count
    assert (rule.count.n, rule.count.in_s) == (3, 10)
    assert rule.severity_when[0].state == "shutdown"
    assert rule.source == "rules.toml:2"


def test_markers_and_detectors_are_loaded() -> None:
    text = """
    [[boot]]
    ecosystem = "esp"
    match = 'rst:0x[0-9a-f]+ \\('
    stage = 1
    fields = 'rst:(?P<cause>0x[0-9a-f]+)'
    causes = { '0x1' = "power_on", '0xc' = "software" }

    [[detector]]
    id = "link.rx_overrun_host"
    kind = "counter"
    severity = "warning"
    counters = ["overrun"]
    """
    loaded = parse_rules(text)

    marker = loaded.boots[0]
    assert isinstance(marker, BootMarker)
    assert marker.causes == (("0x1", "power_on"), ("0xc", "software"))
    assert marker.is_start_alone
    assert isinstance(loaded.detectors[0], CounterDetector)
    assert loaded.detectors[0].in_s == 10


def test_look_ahead_is_refused_with_rule_file_line_and_remedy() -> None:
    text = VALVE.replace(r"valve \d stuck']", r"valve(?= \d)']")

    assert problem_of(text) == (
        "rule mine.valve (rules.d/mine.toml:6): Hyperscan cannot do look-ahead `(?=`; "
        "match the line and use `unless` instead"
    )


@pytest.mark.parametrize(
    ("change", "told"),
    [
        (("severity", "severty"), "rules.d/mine.toml:5: rule.0.severty: unknown key"),
        (('"error"', '"bad"'), "rules.d/mine.toml:5: rule.0.severity: must be"),
        (("mine.valve", "Mine"), "rules.d/mine.toml:3: rule.0.id:"),
        (("{n}", "{m}"), "{m} is no field"),
        (("{n}", "{n:d}"), "must be the plain name of a field"),
        (("{n}", "{n"), "title: "),
        (
            (r"(?P<n>\d)", r"(?P<n>\d"),
            "rule mine.valve (rules.d/mine.toml:7): a `(` is never closed",
        ),
        (("fields", "needs = { match = 'a', only = 'b' }\nfields"), "'b' is none of the patterns"),
        (("[[rule]]", "[[rules]]"), "rules.d/mine.toml:2: rules: not one of [[rule]], "),
    ],
)
def test_a_mistake_names_its_place(change: tuple[str, str], told: str) -> None:
    assert told in problem_of(VALVE.replace(*change))


def test_a_detector_of_no_known_kind_lists_the_kinds() -> None:
    text = '[[detector]]\nid = "mine.x"\nkind = "magic"\nseverity = "note"\n'

    told = problem_of(text)
    assert told.startswith("detector mine.x (rules.d/mine.toml:3): kind must be one of ")
    assert "boot_loop, counter, " in told


def test_names_that_lead_nowhere_are_told() -> None:
    assert "parent mine.gone is no rule" in problem_of(VALVE + 'parent = "mine.gone"\n')
    assert "is its own parent" in problem_of(VALVE + 'parent = "mine.valve"\n')
    assert "mine.gone is no rule" in problem_of(
        VALVE + "[[ignore]]\nmatch = 'x'\nrules = ['mine.gone']\n"
    )


def test_a_broken_rule_is_left_out_and_the_rest_goes_on(tmp_path: Path) -> None:
    (tmp_path / "good.toml").write_text(VALVE)
    broken = RULE.format(word="other").replace(r"stuck']", r"stuck+']")
    (tmp_path / "mixed.toml").write_text(RULE.format(word="third") + broken)
    (tmp_path / "torn.toml").write_text("[[rule")
    loaded = load_rules([tmp_path, tmp_path / "missing"])

    assert [rule.id for rule in loaded.rules] == ["mine.valve", "mine.third"]
    assert len(loaded.problems) == 2
    assert "torn.toml:1: not TOML" in loaded.problems[0]
    assert "rule mine.other" in loaded.problems[1]
    assert "no fixed end" in loaded.problems[1]


def test_what_is_too_much_for_hyperscan_alone_is_left_out_alone(tmp_path: Path) -> None:
    huge = RULE.format(word="huge").replace(r"valve \d stuck", r"a.{1,40000}b")
    (tmp_path / "mine.toml").write_text(VALVE + huge)
    loaded = load_rules([tmp_path])

    assert [rule.id for rule in loaded.rules] == ["mine.valve"]
    assert "200 is plenty" in loaded.problems[0]


def test_the_same_id_twice_in_a_folder_is_an_error_and_in_a_later_folder_wins(
    tmp_path: Path,
) -> None:
    ours, own = tmp_path / "rules", tmp_path / "rules.d"
    ours.mkdir()
    own.mkdir()
    (ours / "a.toml").write_text(VALVE + VALVE)
    (own / "a.toml").write_text(VALVE.replace('"error"', '"note"'))
    loaded = load_rules([ours, own])

    assert [rule.severity for rule in loaded.rules] == ["note"]
    assert "the id is taken by rules/a.toml" in loaded.problems[0]


def test_no_rules_at_all_is_an_error_that_names_the_folder(tmp_path: Path) -> None:
    with pytest.raises(TomlError, match="no rules there"):
        load_rules([tmp_path])


def test_an_example_that_is_not_found_is_told() -> None:
    loaded = parse_rules(VALVE.replace("'valve 3 stuck'", "'valve 3 stuck', 'valve three'"))

    assert check_rules(loaded) == [
        "rule mine.valve (rules.toml:2): example 'valve three' is not found by it, but by nothing: "
        "`serialwatch rules test FILE --rule ID --with PACK` tells why"
    ]


def test_an_example_that_another_rule_hits_is_told() -> None:
    other = RULE.format(word="other").replace(r"valve \d stuck", r"\d stuck")
    told = check_rules(parse_rules(VALVE + other))

    assert told[0] == (
        "rule mine.valve (rules.toml:2): example 'valve 3 stuck' also hits mine.other; make that "
        "one sharper, or let one be the `parent` of the other (rules.toml:10)"
    )


def test_an_example_may_hit_the_vaguer_rule_that_it_sharpens_or_a_lower_tier() -> None:
    vaguer = RULE.format(word="vague").replace(r"valve \d stuck", "stuck$")
    vaguer = vaguer.replace("'valve 3 stuck'", "'valve 12 stuck'").replace("valve {n}", "it")
    generic = RULE.format(word="word").replace("valve \\d stuck", "stuc[k]$") + 'tier = "generic"\n'
    generic = generic.replace("'valve 3 stuck'", "'pump 4 stuck'").replace("valve {n}", "it")
    vaguer = vaguer.replace("stuck$']", "(?:1\\d|[1-3]) stuck$']")
    sharper = VALVE + 'parent = "mine.vague"\n'

    assert check_rules(parse_rules(sharper + generic + vaguer)) == []


def test_a_counterexample_that_hits_is_told() -> None:
    loaded = parse_rules(VALVE + "counterexamples = ['valve 4 stuck in the story']\n")

    assert "counterexample 'valve 4 stuck in the story' hits it" in check_rules(loaded)[0]


def test_a_title_with_an_empty_field_and_a_missing_example_are_told() -> None:
    hollow = VALVE.replace(r"fields = 'valve (?P<n>\d)'", r"fields = 'pump (?P<n>\d)'")

    assert (
        "leaves a field of the title empty: 'valve ? is stuck'"
        in check_rules(parse_rules(hollow))[0]
    )
    bare = VALVE.replace("examples = ['valve 3 stuck']\n", "")
    assert "needs an example" in check_rules(parse_rules(bare))[0]


def test_every_bundled_pack_is_without_problems() -> None:
    loaded = load_rules([bundled_dir("config/rules")])

    assert loaded.problems == ()
    assert {
        "boot.loop",
        "link.silence",
        "link.rx_overrun_host",
        "link.framing_errors",
        "rate.flood",
        "rate.interrupt_storm",
    } <= {detector.id for detector in loaded.detectors}


def test_a_rule_and_a_detector_are_explained_in_words() -> None:
    loaded = load_rules([bundled_dir("config/rules")])
    rule = explain_rule(loaded, "linux.irq_nobody_cared")
    detector = explain_rule(loaded, "boot.loop")

    assert rule.startswith("linux.irq_nobody_cared: ")
    assert "severity   critical" in rule
    assert "nobody cared" in rule
    assert "knowledge  linux/irq_nobody_cared" in rule
    assert "3 unexpected starts within 2 min" in detector
    with pytest.raises(KeyError):
        explain_rule(loaded, "no.such")


def test_the_example_of_a_gated_rule_is_tried_on_a_port_of_its_ecosystem() -> None:
    gated = VALVE + 'ecosystem = ["plant"]\n'

    assert check_rules(parse_rules(gated)) == []
