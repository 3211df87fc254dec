"""`rules test`: which rule hits which line, and why one does not."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import pytest

from bench_cli import Cli

RULES = r"""
[[rule]]
id = "mine.valve"
title = "valve {n} is stuck"
severity = "error"
match = ['valve \d+ is stuck']
fields = 'valve (?P<n>\d+)'
unless = ['simulated']
unless_near = { match = 'valve test begins', before = 2, after = 0 }
block = { end = 'valve dump ends', max_lines = 10 }
key = ["n"]

[[rule]]
id = "mine.pump"
title = "the pump is dry"
severity = "error"
match = ['pump is dry']
needs = { match = 'flow is \d+ l', within_lines = 1 }

[[rule]]
id = "mine.heat"
title = "it is hot"
severity = "warning"
match = ['heat of \d+ degrees']
count = { n = 3, in_s = 60 }

[[rule]]
id = "mine.gated"
title = "short"
severity = "error"
ecosystem = ["plant"]
match = ['shaft off']

[[rule]]
id = "mine.vague"
title = "stuck"
severity = "error"
match = ['is stuck fast']

[[rule]]
id = "mine.sharp"
title = "stuck fast for good"
severity = "error"
parent = "mine.vague"
match = ['gear is stuck fast']

[[rule]]
id = "mine.door"
title = "a door"
severity = "error"
match = ['door \d is open', 'door \d is broken']
needs = { match = 'alarm rings', within_lines = 1, only = 'door \d is open' }
unless_near = { match = 'painting', before = 0, after = 1 }

[[ignore]]
match = 'from the manual'
rules = ["mine.valve"]
"""

LOG = b"""all is well
valve 3 is stuck
valve dump: 1 2 3
valve dump ends
valve 4 is stuck (simulated)
from the manual: valve 5 is stuck
valve test begins
valve 6 is stuck
pump is dry
nothing to see
heat of 80 degrees
shaft off
the gear is stuck fast
door 1 is open
door 2 is broken
the painting of it begins
"""


@pytest.fixture
def cli(tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> Cli:
    monkeypatch.setattr("serialwatch.cli.rules_load.search_path", lambda _: [tmp_path / "rules.d"])
    (tmp_path / "rules.d").mkdir()
    (tmp_path / "rules.d" / "mine.toml").write_text(RULES)
    (tmp_path / "a.log").write_bytes(LOG)
    return Cli(tmp_path / "sw", capsys)


def tried(cli: Cli, tmp_path: Path, rule: str) -> Any:
    return json.loads(cli("rules", "test", str(tmp_path / "a.log"), "--rule", rule, "--json").out)


def test_each_hit_is_told_with_its_fields_and_its_block(cli: Cli, tmp_path: Path) -> None:
    result = cli("rules", "test", str(tmp_path / "a.log"))
    told = json.loads(cli("rules", "test", str(tmp_path / "a.log"), "--json").out)

    assert result.code == 0
    assert [(hit["line"], hit["rule"]) for hit in told["hits"]] == [
        (2, "mine.valve"),
        (13, "mine.sharp"),
    ]
    first = told["hits"][0]
    assert first["fields"] == {"n": "3"}
    assert first["block"] == [2, 4]
    assert first["text"] == "valve 3 is stuck"
    assert first["incident"] == "mine.valve"
    assert told["lines"] == 16
    assert "valve 3 is stuck" in result.out
    assert "2–4" in result.out
    assert "n=3" in result.out


@pytest.mark.parametrize(
    ("rule", "line", "stopped_by", "why"),
    [
        ("mine.valve", 5, "unless", "`unless` has `simulated`"),
        ("mine.valve", 6, "ignore", "[[ignore]] (rules.d/mine.toml:"),
        ("mine.valve", 8, "unless_near", "`valve test begins`, which L7 matches"),
        ("mine.pump", 9, "needs", r"`needs` `flow is \d+ l` within 1 line;"),
        ("mine.door", 14, "needs", "`needs` `alarm rings`"),
        ("mine.heat", 11, "count", "3 hits of one key within 60 s count as one"),
        ("mine.gated", 12, "ecosystem", "only on ports that showed plant"),
        ("mine.vague", 13, "sharper", "mine.sharp, which is sharper"),
    ],
)
def test_what_stopped_a_rule_is_named(
    cli: Cli, tmp_path: Path, rule: str, line: int, stopped_by: str, why: str
) -> None:
    misses = {miss["line"]: miss for miss in tried(cli, tmp_path, rule)["misses"]}

    assert misses[line]["stopped_by"] == stopped_by
    assert why in misses[line]["why"]


def test_a_pattern_that_matches_but_for_its_start_is_told(cli: Cli, tmp_path: Path) -> None:
    with (tmp_path / "rules.d" / "mine.toml").open("a") as pack:
        pack.write(
            "[[rule]]\nid = 'mine.paint'\ntitle = 'paint'\nseverity = 'error'\n"
            "match = ['^painting of']\nexamples = ['painting of it']\n"
        )
    (near,) = tried(cli, tmp_path, "mine.paint")["near"]
    shown = cli("rules", "test", str(tmp_path / "a.log"), "--rule", "mine.paint").out

    assert (near["line"], near["not_at_start"]) == (16, True)
    assert "it is not at the start of the line, as the  ^  asks for" in shown


def test_what_a_rule_needs_stops_only_the_patterns_that_need_it(cli: Cli, tmp_path: Path) -> None:
    misses = {
        miss["line"]: miss["stopped_by"] for miss in tried(cli, tmp_path, "mine.door")["misses"]
    }

    assert misses == {14: "needs", 15: "unless_near"}


def test_a_line_that_nearly_matches_is_shown_with_what_differs(cli: Cli, tmp_path: Path) -> None:
    (tmp_path / "a.log").write_bytes(b"something else\nvalve 7 is stopped\n")
    result = cli("rules", "test", str(tmp_path / "a.log"), "--rule", "mine.valve")
    (near,) = tried(cli, tmp_path, "mine.valve")["near"]

    assert result.code == 1
    assert (near["line"], near["matches"]) == (2, r"valve \d+ is st")
    assert (near["then_wants"], near["line_has"]) == ("uck", "opped")
    assert "then wants  uck  where the line has  opped" in result.out


def test_a_log_in_which_nothing_comes_near_says_so(cli: Cli, tmp_path: Path) -> None:
    (tmp_path / "a.log").write_bytes(b"\x1b[31mred\x1b[0m\n\xff\xfe\n")
    result = cli("rules", "test", str(tmp_path / "a.log"), "--rule", "mine.pump")

    assert result.code == 1
    assert "no line comes near a pattern of mine.pump" in result.out


def test_boots_are_told_and_bytes_of_a_board_are_shown_safely(cli: Cli, tmp_path: Path) -> None:
    (tmp_path / "rules.d" / "boot.toml").write_text(
        "[[boot]]\necosystem = 'plant'\nmatch = 'Plant OS \\d'\nstage = 1\n"
    )
    (tmp_path / "a.log").write_bytes(
        b"Plant OS 1\nshaft off\nvalve 1 is stuck \x1b]0;evil\x07\xff\n"
    )
    result = cli("rules", "test", str(tmp_path / "a.log"))
    told = json.loads(cli("rules", "test", str(tmp_path / "a.log"), "--json").out)

    assert told["boots"][0]["line"] == 1
    assert told["boots"][0]["ecosystem"] == "plant"
    assert {hit["rule"] for hit in told["hits"]} == {"mine.gated", "mine.valve"}
    assert "boot #1 at L1: plant, for an unknown cause\n" in result.out
    assert "\x1b" not in result.out


def test_rules_that_are_not_installed_can_be_tried(cli: Cli, tmp_path: Path) -> None:
    (tmp_path / "draft").mkdir()
    (tmp_path / "draft" / "d.toml").write_text(
        "[[rule]]\nid = 'draft.well'\ntitle = 'well'\nseverity = 'error'\nmatch = ['all is well']\n"
    )
    result = cli("rules", "test", str(tmp_path / "a.log"), "--with", str(tmp_path / "draft"))

    assert "draft.well" in result.out


def test_a_broken_draft_in_this_folder_is_named_with_the_folder(
    cli: Cli, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "draft").mkdir()
    (tmp_path / "draft" / "d.toml").write_text("[[rule]]\nid = 'draft.well'\n")
    monkeypatch.chdir(tmp_path / "draft")
    result = cli("rules", "test", str(tmp_path / "a.log"), "--with", ".")

    assert "left out: draft/d.toml:1: " in result.err


def test_a_log_that_cannot_be_read_is_told(cli: Cli, tmp_path: Path) -> None:
    result = cli("rules", "test", str(tmp_path / "missing.log"))

    assert (result.code, result.out) == (2, "")
    assert "missing.log: No such file or directory" in result.err


def test_standard_input_is_named_as_such(
    cli: Cli, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with (tmp_path / "a.log").open() as stdin:
        monkeypatch.setattr(sys, "stdin", stdin)
        result = cli("rules", "test", "-")

    assert result.out.startswith("standard input: 16 lines, ")


def test_a_detector_without_a_hit_is_not_said_to_have_patterns(cli: Cli, tmp_path: Path) -> None:
    with (tmp_path / "rules.d" / "mine.toml").open("a") as pack:
        pack.write('\n[[detector]]\nid = "mine.quiet"\nkind = "silence"\nseverity = "error"\n')
    result = cli("rules", "test", str(tmp_path / "a.log"), "--rule", "mine.quiet")

    assert result.code == 1
    assert "mine.quiet is a detector" in result.out
    assert "comes near a pattern" not in result.out


def test_titles_are_the_last_column_so_that_only_they_may_be_broken(
    cli: Cli, tmp_path: Path
) -> None:
    rows = cli("rules", "test", str(tmp_path / "a.log")).out.splitlines()

    assert any(row.split() == ["LINE", "BLOCK", "RULE", "SEVERITY", "WHAT"] for row in rows)
    assert any(row.endswith("  error     valve 3 is stuck") for row in rows)


def test_near_misses_are_told_beside_hits_and_case_is_named(cli: Cli, tmp_path: Path) -> None:
    (tmp_path / "a.log").write_bytes(
        b"valve 3 is stuck\nvalve dump ends\nvalve abc is stuck\nValve 4 is stuck\nvalve 5 is stale\n"
    )
    near = tried(cli, tmp_path, "mine.valve")["near"]
    result = cli("rules", "test", str(tmp_path / "a.log"), "--rule", "mine.valve")

    assert [(each["line"], each["differs_in_case"]) for each in near] == [(4, True), (5, False)]
    assert "only upper and lower case differ: begin the pattern with  (?i)" in result.out
    assert result.code == 0


def test_a_draft_that_is_no_toml_is_named_by_its_own_path(cli: Cli, tmp_path: Path) -> None:
    draft = tmp_path / "d.toml"
    draft.write_text('[[rule]]\nmatch = ["a\\d"]\n')
    tested = cli("rules", "test", str(tmp_path / "a.log"), "--with", str(draft))
    checked = cli("rules", "check", str(draft))

    for told in (tested.err, checked.err):
        assert f"{draft}:2: not TOML: unescaped " in told
        assert "in single quotes, '...', a `\\` stands for itself" in told


def test_a_backspace_in_a_pattern_is_taken_for_a_slip(cli: Cli, tmp_path: Path) -> None:
    draft = tmp_path / "d.toml"
    draft.write_text(RULES.replace("mine.", "other.").replace("['pump is dry']", '["\\bpump"]'))

    assert "it holds a backspace" in cli("rules", "check", str(draft)).err
