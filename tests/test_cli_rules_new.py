"""`rules new`: a rule from a pasted line, checked before it is shown."""

from __future__ import annotations

import io
import json
import random
import sys
import tomllib
from pathlib import Path

import pytest

from bench_cli import Cli
from serialwatch.bundled import bundled_dir
from serialwatch.triggers.check import check_rules, hits_of
from serialwatch.triggers.matcher import Matcher
from serialwatch.triggers.proposal import propose
from serialwatch.triggers.rules import parse_rules

LINE = "E (3012) pump: dry run at 2400 rpm, valve 7, temp=85.5 C on 0x3ffb1234"


@pytest.fixture
def cli(tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> Cli:
    """Run commands as somebody who has no files of their own."""
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "home"))
    return Cli(tmp_path / "sw", capsys)


def pasted(monkeypatch: pytest.MonkeyPatch, text: bytes) -> None:
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(text)))


def test_numbers_are_generalised_fields_named_and_the_example_filled_in(cli: Cli) -> None:
    result = cli("rules", "new", LINE, "--id", "plant.dry_run", "--severity", "critical")
    (rule,) = tomllib.loads(result.out)["rule"]

    assert result.code == 0
    assert rule["id"] == "plant.dry_run"
    assert rule["severity"] == "critical"
    assert rule["title"] == "dry run at {rpm} rpm, valve {valve}, temp={temp} C on {address}"
    assert rule["match"] == [
        r"dry run at \d+ rpm, valve \d+, temp=\d+\.\d+ C on 0x[0-9a-fA-F]",
    ]
    assert rule["key"] == ["valve"]
    assert rule["examples"] == [LINE]
    assert "# counterexamples" in result.out
    other = (
        LINE.replace("2400", "17").replace("3ffb1234", "40081234").replace("valve 7", "valve 12")
    )
    (hit,) = hits_of(Matcher(parse_rules(result.out)), other)
    assert hit.fields == {"rpm": "17", "valve": "12", "temp": "85.5", "address": "0x40081234"}


def test_the_line_may_come_from_stdin(cli: Cli, monkeypatch: pytest.MonkeyPatch) -> None:
    pasted(monkeypatch, b"\n\n" + LINE.encode() + b"\r\nanother line\n")
    told = json.loads(cli("rules", "new", "--json").out)

    assert told["id"] == "mine.dry_run_rpm_valve"
    assert told["problems"] == []
    assert told["example"] == LINE


def test_a_counterexample_is_taken_over_and_checked(cli: Cli) -> None:
    good = cli("rules", "new", LINE, "--counterexample", "dry run protection is armed")
    bad = cli("rules", "new", LINE, "--counterexample", LINE.replace("2400", "1"))

    assert tomllib.loads(good.out)["rule"][0]["counterexamples"] == ["dry run protection is armed"]
    assert good.code == 0
    assert bad.code == 1
    assert "hits it" in bad.err


def test_a_line_that_a_rule_finds_already_is_told(cli: Cli) -> None:
    result = cli("rules", "new", "irq 74: nobody cared (try booting with irqpoll)")

    assert result.code == 1
    assert "linux.irq_nobody_cared finds 'irq 74: nobody cared" in result.err
    assert "parent = 'linux.irq_nobody_cared'" in result.err


class Keys(io.StringIO):
    """What a person types in a terminal."""

    def isatty(self) -> bool:
        return True


def test_a_line_that_is_found_already_is_told_before_anything_is_asked(
    cli: Cli, monkeypatch: pytest.MonkeyPatch
) -> None:
    keys = Keys("irq 75: somebody cared\n")
    monkeypatch.setattr(sys, "stdin", keys)
    result = cli("rules", "new", "irq 74: nobody cared (try booting with irqpoll)")

    assert result.code == 1
    assert "(Enter: none)" not in result.out + result.err
    assert keys.tell() == 0


def test_the_question_stays_out_of_what_is_printed(
    cli: Cli, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys, "stdin", Keys("dry run protection is armed\n"))
    result = cli("rules", "new", LINE)

    assert "(Enter: none)" in result.err
    assert tomllib.loads(result.out)["rule"][0]["counterexamples"] == [
        "dry run protection is armed"
    ]


def test_it_is_added_to_a_pack_and_never_twice(cli: Cli, tmp_path: Path) -> None:
    path = tmp_path / "rules.d" / "mine.toml"
    first = cli("rules", "new", LINE, "--write", str(path))
    second = cli("rules", "new", "the shaft is off by 3 mm", "--write", str(path))
    before = path.read_text()
    again = cli("rules", "new", LINE, "--write", str(path))

    assert (first.code, second.code, again.code) == (0, 0, 2)
    assert [rule.id for rule in parse_rules(before).rules] == [
        "mine.dry_run_rpm_valve",
        "mine.shaft_off_mm",
    ]
    assert "the id is taken" in again.err
    assert path.read_text() == before
    assert check_rules(parse_rules(before)) == []


def test_a_pack_that_is_broken_is_not_touched(cli: Cli, tmp_path: Path) -> None:
    path = tmp_path / "mine.toml"
    path.write_text("[[rule\n")
    result = cli("rules", "new", LINE, "--write", str(path))

    assert result.code == 2
    assert f"{path}:1: not TOML" in result.err
    assert path.read_text() == "[[rule\n"


@pytest.mark.parametrize(
    ("line", "told"),
    [("", "no line"), ("0x12 34 56", "holds no word"), ("a\nb", "about one line")],
)
def test_what_is_no_line_of_words_is_refused(cli: Cli, line: str, told: str) -> None:
    result = cli("rules", "new", line)

    assert result.code == 2
    assert told in result.err


def test_an_id_that_is_none_is_refused(cli: Cli) -> None:
    result = cli("rules", "new", LINE, "--id", "Mine")

    assert result.code == 2
    assert "id" in result.err


def test_a_short_line_is_anchored() -> None:
    assert propose("valve stuck", "mine.x", "error").match == "^valve stuck$"
    assert (
        propose("\x1b[31m[   12.000000] valve 3\x1b[0m\r\n", "mine.x", "error").match
        == r"^valve \d"
    )


def test_every_proposal_finds_its_own_line() -> None:
    rng = random.Random(3)
    words = [
        "pump",
        "irq",
        "can't",
        "at",
        "(x)",
        "{y}",
        "[z]",
        "a|b",
        "^",
        "$5",
        "\\",
        "ü",
        "\x07",
    ]
    numbers = [
        "0x3ffb",
        "12",
        "1.5",
        "10.0.0.1",
        "de:ad:be:ef:00:01",
        "deadbeef1",
        "eth0",
        "7/8",
        "-3",
    ]
    lines = [
        " ".join(rng.choice(rng.choice((words, numbers))) for _ in range(rng.randint(1, 30)))
        for _ in range(50)
    ]
    lines = [f"broken {line}" for line in lines]
    lines += [f"{'x' * 300} broke", "broken \udcff\udcfe 5", f"broken {'7 ' * 200}"]
    for line in lines:
        ruleset = parse_rules(propose(line, "mine.x", "error").toml())

        assert check_rules(ruleset) == [], line


def test_examples_of_rules_that_ship_become_rules() -> None:
    text = (bundled_dir("config/rules") / "linux.toml").read_text()
    for rule in tomllib.loads(text)["rule"][:30]:
        example = rule["examples"]
        line = (example if isinstance(example, str) else example[0]).split("\n")[0]
        if "\n" in str(example) or not line.strip():
            continue
        ruleset = parse_rules(propose(line, "mine.x", "error").toml())

        assert [p for p in check_rules(ruleset) if "is not found by it" in p] == []


def test_a_pack_that_is_broken_already_is_told_by_its_own_line(cli: Cli, tmp_path: Path) -> None:
    path = tmp_path / "mine.toml"
    path.write_text("# mine\nbroken = [")
    result = cli("rules", "new", LINE, "--write", str(path))

    assert result.code == 2
    assert f"{path}:2: not TOML" in result.err
    assert path.read_text() == "# mine\nbroken = ["


def test_an_id_of_another_form_is_refused_with_the_form(cli: Cli) -> None:
    result = cli("rules", "new", LINE, "--id", "Pump")

    assert result.code == 2
    assert result.err == (
        "serialwatch: --id 'Pump': an id is PACK.WORD, in lowercase letters, digits and _, "
        "such as plant.dry_run\n"
    )


@pytest.mark.parametrize(
    ("line", "match", "key"),
    [
        ("valve stuck (V12) for 3000 ms", r"valve stuck \(V\d+\) for \d+ ms", ("v",)),
        ("T=2026-11-30T10:00:00Z no water", r"T=\d+-\d+-\d+T\d+:\d+:\d+Z no water", ()),
        ("firmware v1.2.3 crashed", r"firmware v\d+\.\d+\.\d+ crashed", ()),
        ("can0: bus-off on stm32", r"can\d+: bus-off on stm32", ("can",)),
        ("task_12 sleeps too long", r"task_\d+ sleeps too long", ("task",)),
        (f"pump fault $({'x' * 300})", "^pump fault", ()),
    ],
)
def test_a_number_is_generalised_whole_or_not_at_all(
    line: str, match: str, key: tuple[str, ...]
) -> None:
    proposal = propose(line, "", "error")

    assert (proposal.match, proposal.key) == (match, key)


@pytest.mark.parametrize(
    ("line", "rule_id", "title"),
    [
        ("défaut 0x12 du réseau", "mine.defaut_du_reseau", "défaut {defaut} du réseau"),
        ("Kühlkörper 3: zu heiß", "mine.kuhlkorper_zu_hei", "Kühlkörper {kuhlkorper}: zu heiß"),
        ("temp\udcff fault 7", "mine.temp_fault", "temp… fault {fault}"),
    ],
)
def test_words_with_accents_stay_whole(line: str, rule_id: str, title: str) -> None:
    proposal = propose(line, "", "error")

    assert (proposal.id, proposal.title) == (rule_id, title)


@pytest.mark.parametrize(
    ("line", "key"),
    [
        ("app: lost 3 of 17 packets (17.6 %)", ()),
        ("Pumpe steht trocken bei 2400 U/min", ()),
        ("failed with value 3 after 12 tries", ()),
        ("cpu 93 % busy", ()),
        ("motor stalled on channel 3, axis=2, at 80 C", ("channel", "axis")),
        ("port 3 down, port 4 up", ("port", "port2")),
    ],
)
def test_only_a_number_that_says_which_thing_is_part_of_the_key(
    line: str, key: tuple[str, ...]
) -> None:
    assert propose(line, "mine.x", "error").key == key


@pytest.mark.parametrize(
    ("line", "other"),
    [
        (
            "session 6fa459ea-ee8a-3ca4-894e-db77e160355e of aa:bb:cc:dd:ee:f0 died",
            "session 00000000-1111-4222-8333-abcdefabcdef of 00:11:22:33:44:55 died",
        ),
        ("$PUMP,3,ERR*4F", "$PUMP,7,ERR*A0"),
        (
            "peer 00-11-22-33-44-55 at 10.0.0.1 left us",
            "peer aa-bb-cc-dd-ee-ff at 10.0.0.77 left us",
        ),
    ],
)
def test_what_is_one_token_is_generalised_as_one(line: str, other: str) -> None:
    matcher = Matcher(parse_rules(propose(line, "mine.x", "error").toml()))

    assert [hit.trigger for hit in hits_of(matcher, line)] == ["mine.x"]
    assert [hit.trigger for hit in hits_of(matcher, other)] == ["mine.x"]


def test_a_line_without_ascii_words_is_told_how_to_look_for_its_bytes(cli: Cli) -> None:
    result = cli("rules", "new", "温度 12")

    assert result.code == 2
    assert r"match = ['\xe6\xb8\xa9\xe5\xba\xa6 12']" in result.err
