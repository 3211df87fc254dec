"""`rules`, `skills` and `config`: what ships is in order, and what is wrong is told."""

from __future__ import annotations

import json
import tomllib
from pathlib import Path

import pytest

from bench_cli import Cli
from serialwatch.bundled import bundled_dir
from serialwatch.config import load_config


@pytest.fixture
def cli(tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> Cli:
    """Run commands as somebody who has no files of their own."""
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "home"))
    return Cli(tmp_path / "sw", capsys)


RULE = """
[[rule]]
id = "mine.broke"
title = "it broke"
severity = "error"
tier = "specific"
match = ['{match}']
examples = ['{example}']
"""


@pytest.fixture
def alone(monkeypatch: pytest.MonkeyPatch) -> None:
    """Install no rules: what is checked is checked by itself."""
    monkeypatch.setattr("serialwatch.cli.rules_load.search_path", lambda _: [])


def mine(tmp_path: Path, match: str, example: str) -> str:
    """Write a rule of one's own; return its folder."""
    folder = tmp_path / "rules.d"
    folder.mkdir()
    (folder / "mine.toml").write_text(RULE.format(match=match, example=example))
    return str(folder)


def test_the_rules_that_ship_hold_what_they_promise(cli: Cli) -> None:
    result = cli("rules", "check", "--json")
    told = json.loads(result.out)

    assert told["problems"] == []
    assert (result.code, result.err) == (0, "")
    assert told["rules"] >= 60


@pytest.mark.usefixtures("alone")
def test_an_example_that_is_not_found_fails_the_check(tmp_path: Path, cli: Cli) -> None:
    folder = mine(tmp_path, "zonk [0-9]", "ZONK 5")
    result = cli("rules", "check", folder)

    assert result.code == 1
    assert result.err.startswith("serialwatch: rule mine.broke (rules.d/mine.toml:2): example")
    assert result.out.endswith(": 1 problem\n")


def test_a_pattern_that_cannot_be_searched_for_is_told_with_its_place(
    tmp_path: Path, cli: Cli
) -> None:
    folder = mine(tmp_path, "zonk (?=x)", "zonk x")
    result = cli("rules", "check", folder)

    assert result.code == 2
    assert "serialwatch: rule mine.broke (rules.d/mine.toml:7): Hyperscan cannot" in result.err
    assert "look-ahead `(?=`; match the line and use `unless` instead" in result.err


def test_rules_are_listed_by_words_and_explained(cli: Cli) -> None:
    listed = cli("rules", "list", "irq", "nobody")
    told = json.loads(cli("rules", "list", "--json").out)
    explained = cli("rules", "explain", "linux.irq_nobody_cared")

    assert [line.split()[0] for line in listed.out.splitlines()] == [
        "ID",
        "linux.irq_nobody_cared",
    ]
    assert {"pack", "id", "severity", "tier", "title", "source", "replaces"} == set(told[0])
    assert "boot.loop" in {entry["id"] for entry in told}
    assert "nobody cared" in explained.out
    assert json.loads(cli("rules", "explain", "boot.loop", "--json").out)["id"] == "boot.loop"
    assert cli("rules", "list", "zonk").out == "no rule has zonk in its id or title\n"


def test_rules_are_listed_by_pack_and_severity(cli: Cli) -> None:
    told = json.loads(
        cli("rules", "list", "--pack", "uboot", "--severity", "critical", "--json").out
    )

    assert {(each["pack"], each["severity"]) for each in told} == {("uboot", "critical")}
    assert "uboot.sync_abort" in {each["id"] for each in told}
    assert "the pack zonk" in cli("rules", "list", "--pack", "zonk").out


def test_an_explanation_fills_in_its_placeholders(cli: Cli) -> None:
    rule = cli("rules", "explain", "linux.irq_nobody_cared").out
    detector = cli("rules", "explain", "boot.loop").out
    listed = cli("rules", "list", "boot.loop").out
    told = json.loads(cli("rules", "explain", "linux.irq_nobody_cared", "--json").out)

    assert "{irq} is '74' in the example" in rule
    assert told["placeholders"] == {"irq": "74"}
    assert "3 unexpected starts within 2 min" in detector
    assert "`" not in detector.splitlines()[0]
    assert "3 unexpected starts within 2 min" in listed


def test_an_unknown_id_suggests_the_nearest(cli: Cli) -> None:
    for args in (("explain", "linux.irq_nobody"), ("test", "/dev/null", "--rule", "irq_nobody")):
        result = cli("rules", *args)

        assert result.code == 2
        assert "linux.irq_nobody_cared" in result.err


@pytest.mark.usefixtures("alone")
def test_a_pattern_without_plain_text_is_warned_about(tmp_path: Path, cli: Cli) -> None:
    folder = mine(tmp_path, "[A-Z]{2}[0-9]{3}[A-Z]{2}[0-9]{3}[A-Z]", "QQ123QQ123Q")
    result = cli("rules", "check", folder)

    assert result.code == 0
    assert "warning: rule mine.broke (rules.d/mine.toml:2): `[A-Z]{2}" in result.err
    assert "holds no plain text" in result.err
    assert len(json.loads(cli("rules", "check", folder, "--json").out)["warnings"]) == 1


@pytest.mark.usefixtures("alone")
@pytest.mark.parametrize(
    ("rows", "told"),
    [
        ("ecosystem = ['Linux']", "so it never hits; is 'linux' meant? known are "),
        ("ecosystem = ['yocto']", "no [[boot]] shows the ecosystem 'yocto', so it never hits; "),
        ("count = { n = 3, in_s = 5 }", "it counts, so an example must have 3 lines that match"),
        ("unless_near = 'x'", "rule.0.unless_near: must be a table, not 'x'"),
        ("severity_when = { severity = 'note' }", "rule.0.severity_when: must be an array, not "),
    ],
)
def test_a_rule_that_can_never_hit_is_told_with_the_reason(
    tmp_path: Path, cli: Cli, rows: str, told: str
) -> None:
    folder = mine(tmp_path, "zonk [0-9]", "zonk 5")
    pack = tmp_path / "rules.d" / "mine.toml"
    pack.write_text(f"{pack.read_text()}{rows}\n")
    result = cli("rules", "check", folder)

    assert result.code in (1, 2)
    assert told in result.err


@pytest.mark.usefixtures("alone")
def test_what_keeps_an_example_from_its_rule_is_told(tmp_path: Path, cli: Cli) -> None:
    folder = mine(tmp_path, r"\x1b\[31mzonk", "zonk")
    assert "escapes are taken out of a line" in cli("rules", "check", folder).err

    pack = tmp_path / "rules.d" / "mine.toml"
    pack.write_text(RULE.format(match="zonk [0-9]", example="ZONK 5"))
    assert "--rule ID --with PACK` tells why" in cli("rules", "check", folder).err


@pytest.mark.usefixtures("alone")
def test_a_table_in_single_brackets_is_told_with_two(tmp_path: Path, cli: Cli) -> None:
    folder = mine(tmp_path, "zonk [0-9]", "zonk 5")
    pack = tmp_path / "rules.d" / "mine.toml"
    pack.write_text(pack.read_text().replace("[[rule]]", "[rule]"))

    assert (
        "mine.toml:2: rule: write [[rule]], with two brackets" in cli("rules", "check", folder).err
    )


def test_the_skills_that_ship_are_in_order_and_listed(cli: Cli) -> None:
    checked = cli("skills", "lint")
    listed = cli("skills", "list")
    told = json.loads(cli("skills", "list", "--json").out)

    assert (checked.code, checked.err) == (0, "")
    assert "log-read" in listed.out
    assert "register-decode" in {skill["name"] for skill in told["skills"]}
    assert told["broken"] == []


def test_a_broken_skill_is_told_and_fails_the_lint(tmp_path: Path, cli: Cli) -> None:
    folder = tmp_path / "skills" / "bad-skill"
    folder.mkdir(parents=True)
    (folder / "SKILL.md").write_text("no front matter")
    result = cli("skills", "lint", str(tmp_path / "skills"))

    assert result.code == 2
    assert ": error SW" in result.err
    assert json.loads(cli("skills", "lint", "--json", str(tmp_path / "skills")).out)[0]["is_error"]


def test_a_good_configuration_is_said_to_be_good(tmp_path: Path, cli: Cli) -> None:
    path = tmp_path / "sw.toml"
    path.write_text('[port.dut1]\ndevice = "/dev/serial/by-id/x"\n')

    assert cli("config", "check", str(path)).out == f"{path}: good, 1 port\n"
    assert json.loads(cli("config", "check", str(path), "--json").out)["ok"] is True


def test_a_wrong_configuration_is_told_line_by_line(tmp_path: Path, cli: Cli) -> None:
    path = tmp_path / "sw.toml"
    path.write_text('[port.dut1]\ndevice = "/dev/x"\nbit_rate = "115k2"\n[zonk]\n')
    result = cli("config", "check", str(path))
    told = cli("config", "check", str(path), "--json")

    assert (result.code, result.out) == (2, "")
    lines = result.err.splitlines()
    assert all(line.startswith(f"serialwatch: {path}:") for line in lines)
    assert len(lines) == 2
    assert told.code == 2
    assert len(json.loads(told.out)["problems"]) == 2
    assert cli("config", "show", str(path)).code == 2


@pytest.mark.parametrize(
    ("device", "told"),
    [
        ("command:nosuchprog -x", "'nosuchprog': no such program"),
        ("command:sh -c 'a", "not a command: No closing quotation"),
        ("replay:/nonexistent", "'/nonexistent': no such file"),
        ("replay:/etc/passwd?foo=1", "unknown option 'foo' (known: bit_rate, loop)"),
    ],
)
def test_a_device_that_can_never_be_opened_is_told(
    tmp_path: Path, cli: Cli, device: str, told: str
) -> None:
    path = tmp_path / "x.toml"
    path.write_text(f'[port.a]\ndevice = "{device}"\n[port.b]\ndevice = "command:sh -c true"\n')
    result = cli("config", "check", str(path))

    assert (result.code, result.err.count('port "')) == (2, 1)
    assert f'x.toml:2: port "a": {device}: {told}' in result.err


def test_what_is_shown_is_a_configuration_that_means_the_same(tmp_path: Path, cli: Cli) -> None:
    path = tmp_path / "sw.toml"
    path.write_text(
        '[port.dut1]\ndevice = "/dev/x"\nreset = [{rts = true, ms = 100}, {rts = false}]\n'
        "[port.dut2]\ndevice = 'command:echo \"a\\\\b\" ü'\nreset = {command = ['a b', '-c']}\n"
        "[[notify]]\ncommand = ['mail']\n[discover.ftdi]\nusb = '0403:6001'\n"
    )
    shown = cli("config", "show", str(path))
    again = tmp_path / "again.toml"
    again.write_text(shown.out)

    assert tomllib.loads(shown.out)["port"]["dut1"]["reset"][0] == {"rts": True, "ms": 100}
    assert load_config(again) == load_config(path)
    assert json.loads(cli("config", "show", str(path), "--json").out) == tomllib.loads(shown.out)


def test_the_file_may_be_named_as_run_names_it(tmp_path: Path, cli: Cli) -> None:
    path = tmp_path / "sw.toml"
    path.write_text('[port.dut1]\ndevice = "/dev/x"\n')

    assert cli("config", "check", "-c", str(path)).out == f"{path}: good, 1 port\n"
    assert cli("config", "show", "-c", str(path)).out == cli("config", "show", str(path)).out
    assert cli("config", "check", "-c", str(path), str(path)).code == 2


def test_a_folder_without_a_skill_is_not_said_to_be_in_order(tmp_path: Path, cli: Cli) -> None:
    result = cli("skills", "lint", str(tmp_path))

    assert result.code == 2
    assert result.err.startswith(f"serialwatch: {tmp_path}: no skill: ")


@pytest.mark.parametrize("args", [("rules", "list", "esp"), ("skills", "list")])
def test_what_something_does_is_cut_last_in_a_narrow_terminal(
    cli: Cli, monkeypatch: pytest.MonkeyPatch, args: tuple[str, ...]
) -> None:
    module = f"serialwatch.cli.{args[0]}"
    monkeypatch.setattr(f"{module}.width_of", lambda _: 80)
    lines = cli(*args).out.splitlines()

    where = lines[0].index("WHAT")
    assert max(len(line) - where for line in lines) >= 40
    assert "FROM" not in lines[0]
    assert max(map(len, lines)) <= 80


def test_an_explanation_breaks_between_words(cli: Cli, monkeypatch: pytest.MonkeyPatch) -> None:
    whole = cli("rules", "explain", "freertos.stack_overflow").out
    monkeypatch.setattr("serialwatch.cli.rules.width_of", lambda _: 80)
    lines = cli("rules", "explain", "freertos.stack_overflow").out.splitlines()

    assert whole.split() == " ".join(lines).split()
    assert all(len(line) <= 80 or len(line[13:].split()) == 1 for line in lines)
    assert all(line[:1] != " " or line[12] == " " for line in lines)


@pytest.mark.parametrize("args", [("rules", "list"), ("rules", "explain", "linux.panic")])
def test_a_broken_pack_is_told_wherever_rules_are_used(
    tmp_path: Path, cli: Cli, monkeypatch: pytest.MonkeyPatch, args: tuple[str, ...]
) -> None:
    own = tmp_path / "rules.d"
    own.mkdir()
    (own / "mine.toml").write_text("[[rule")
    monkeypatch.setattr(
        "serialwatch.cli.rules_load.search_path", lambda _: [own, bundled_dir("config/rules")]
    )
    (tmp_path / "a.log").write_text("all is well\n")

    told = f"serialwatch: left out: {own}/mine.toml:1: not TOML: "
    for each in (args, ("analyze", f"{tmp_path}/a.log")):
        result = cli(*each)
        assert result.code == 0
        assert result.err.startswith(told)


def test_a_configuration_without_ports_is_not_just_good(tmp_path: Path, cli: Cli) -> None:
    path = tmp_path / "sw.toml"
    path.touch()

    assert "no ports yet: add [port.dut1]" in cli("config", "check", str(path)).out


def test_what_a_detector_has_stands_in_one_column(cli: Cli) -> None:
    rows = cli("rules", "explain", "link.silence").out.splitlines()[1:]
    starts = {row.index(row.split(maxsplit=1)[1]) for row in rows if row[2] != " "}

    assert any(row.startswith("  stuck_severity ") for row in rows)
    assert len(starts) == 1


def test_a_wrong_id_in_a_pack_is_told_in_one_sentence(cli: Cli, tmp_path: Path) -> None:
    (tmp_path / "mine.toml").write_text(RULE.format(match="x", example="x").replace(".broke", ""))
    result = cli("rules", "check", str(tmp_path))

    assert result.code == 2
    assert "mine.toml:3: rule.0.id: must match pattern '" in result.err


@pytest.mark.parametrize(
    ("name", "why"),
    [
        ("mine.txt", "no pack of rules: its name must end in .toml"),
        ("none", "no such file or folder"),
    ],
)
def test_what_is_no_folder_of_rules_is_told(cli: Cli, tmp_path: Path, name: str, why: str) -> None:
    (tmp_path / "mine.txt").write_text("")
    result = cli("rules", "check", str(tmp_path / name))

    assert (result.code, result.err) == (2, f"serialwatch: {tmp_path / name}: {why}\n")


def test_a_pack_alone_is_checked_and_not_what_lies_beside_it(cli: Cli, tmp_path: Path) -> None:
    folder = mine(tmp_path, "zonk [0-9]", "ZONK 5")
    (tmp_path / "rules.d/broken.toml").write_text("[[rule]]\n")
    result = cli("rules", "check", f"{folder}/mine.toml")

    assert result.code == 1
    assert "(rules.d/mine.toml:" in result.err
    assert "broken.toml" not in result.err
    assert f"  {folder}/mine.toml (read)\n" in result.out


def test_no_id_at_all_brings_no_guess(cli: Cli) -> None:
    assert cli("rules", "explain", "").err == "serialwatch: no rule '': `serialwatch rules list`\n"


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ('[port.a]\ndevice = "foo://x:1"\n', ":2: port \"a\": foo://x:1: no driver for 'foo'"),
        (
            '[port.a]\ndevice = "/x"\nrules = ["linus"]\n',
            ":3: port \"a\": rules: no rule of a pack 'linus': did you mean linux",
        ),
        (
            '[port.a]\ndevice = "/x"\nreset = {command = ["/does/not/exist"]}\n',
            ':3: port "a": reset: /does/not/exist: no such program',
        ),
        ('[port.a]\ndevice = "com1"\n', ':2: port "a": com1: a device is a whole path such as'),
        ('[port.a]\ndevice = "command:"\n', ':2: port "a": command:: what to run is missing'),
        ('[port.a]\ndevice = "/dev/null"\n', ':2: port "a": /dev/null: not a serial device: the'),
        ('[port.a]\ndevice = "/"\n', ':2: port "a": /: not a serial device (a saved log is'),
        (
            '[port.a]\ndevice = "/x"\n[api]\nlisten = "0.0.0.0:9808"\n',
            ":4: api.listen: 0.0.0.0:9808: open to the network without TLS",
        ),
        (
            '\ufeff[port.a]\ndevice = "com1"\n',  # as Notepad saves it
            ':2: port "a": com1: a device is a whole path such as',
        ),
        (
            '[[notify]]\ncommand = ["/does/not/exist"]\n',
            ":2: notify.0.command: /does/not/exist: no such program",
        ),
    ],
)
def test_a_checked_configuration_names_nothing_that_is_not_there(
    cli: Cli, tmp_path: Path, text: str, told: str
) -> None:
    path = tmp_path / "bench.toml"
    path.write_text(text, encoding="utf-8")
    result = cli("config", "check", str(path))

    assert result.code == 2
    assert f"{path}{told}" in result.err


def test_all_that_is_wrong_is_told_at_once_in_the_order_of_the_file(
    cli: Cli, tmp_path: Path
) -> None:
    path = tmp_path / "bench.toml"
    path.write_text(
        "[log]\nkeep_bytes = []\n"
        '[port.a]\ndevice = "com1"\n'
        '[port.b]\ndevice = "/x"\neol = "x"\nrules = ["linus"]\n'
        '[port.c]\ndevice = "usb:x"\n[port.D]\ndevice = "/y"\n'
        '[port.e]\ndevice = "/z"\nrules = ["linus"]\n'
        "[discover.x]\nusbb = 1\n[other]\n"
    )
    result = cli("config", "check", str(path))

    told = [row.split(": ")[1] for row in result.err.splitlines()]
    assert told == [f"{path}:{line}" for line in (2, 4, 7, 10, 11, 15, 17, 18)]


@pytest.mark.parametrize("port", ["1", "[1]", "{a = 1}", '{a = {device = 1}, b = ""}', "{a = {}}"])
@pytest.mark.parametrize("notify", ["1", "[1]", "[{}]", "{}"])
def test_a_configuration_of_other_shapes_is_told(
    cli: Cli, tmp_path: Path, port: str, notify: str
) -> None:
    path = tmp_path / "bench.toml"
    path.write_text(f"agent = 3\nport = {port}\nnotify = {notify}\nlog = {{keep_days = [[]]}}\n")
    result = cli("config", "check", str(path))

    assert result.code == 2
    assert f"{path}:2: port" in result.err
    assert f"{path}:3: notify" in result.err


@pytest.mark.parametrize(
    ("args", "told"),
    [
        (("memory", "--state", "nowhere"), "nowhere/serialwatch.db: there is no database"),
        (("runs", "--state", "nowhere"), "nowhere/serialwatch.db: there is no database"),
        (("roles", "--json"), '"log-detective"'),
    ],
)
def test_a_list_that_need_not_be_named_has_its_options_all_the_same(
    cli: Cli, args: tuple[str, ...], told: str
) -> None:
    result = cli(*args)
    named = cli(args[0], "list", *args[1:])

    assert told in result.out + result.err
    assert result == named
