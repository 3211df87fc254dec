"""Where rules of one's own are looked for is said, also where there are none."""

from __future__ import annotations

import json
import logging
from pathlib import Path

import pytest

from bench_cli import Cli
from serialwatch import bundled
from serialwatch.bundled import told_search_path
from serialwatch.config import load_config
from serialwatch.service.rules import RuleBook

PUMP = """
[[rule]]
id = "mine.pump"
title = "the pump is dry"
severity = "error"
match = ['pump is dry']
examples = ['pump is dry']
"""


@pytest.fixture(autouse=True)
def own_folders(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Have no rules but those of one small pack."""
    monkeypatch.setattr(bundled, "SYSTEM_DIR", tmp_path / "etc")
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "home"))
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine" / "pump.toml").write_text(PUMP)
    for user in ("cli.rules_load", "service.rules"):
        monkeypatch.setattr(f"serialwatch.{user}.search_path", lambda _: [tmp_path / "mine"])


@pytest.fixture
def cli(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> Cli:
    return Cli(tmp_path / "no.sock", capsys)


def test_root_is_told_that_the_rules_of_its_home_are_not_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "etc" / "rules.d").mkdir(parents=True)
    monkeypatch.setattr(bundled.os, "geteuid", lambda: 0)

    assert told_search_path("rules")[:2] == [
        f"{tmp_path}/etc/rules.d (read)",
        f"{tmp_path}/home/serialwatch/rules.d (not read as root)",
    ]
    monkeypatch.setattr(bundled.os, "geteuid", lambda: 1000)
    assert told_search_path("rules")[1] == f"{tmp_path}/home/serialwatch/rules.d (no such folder)"


def test_the_daemon_logs_it_once(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO)
    book = RuleBook()
    for _ in range(2):
        book.compile(load_config(None, ()))
    told = [message for message in caplog.messages if "rules are looked for in" in message]

    assert len(told) == 1
    assert f"{tmp_path}/etc/rules.d (no such folder)" in told[0]


def test_rules_check_tells_it(tmp_path: Path, cli: Cli) -> None:
    result = cli("rules", "check", str(tmp_path / "mine"))
    as_json = json.loads(cli("rules", "check", "--json").out)

    assert f"  {tmp_path}/mine (read)\n  {tmp_path}/etc/rules.d (no such folder)\n" in result.out
    assert f"{tmp_path}/etc/rules.d (no such folder)" in as_json["folders"]


def test_a_rule_that_takes_anothers_place_is_told_everywhere(
    tmp_path: Path, cli: Cli, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    own = tmp_path / "own"
    own.mkdir()
    (own / "p.toml").write_text(PUMP.replace("pump is dry", "pump ran dry"))
    detector = '[[detector]]\nid = "mine.quiet"\nkind = "silence"\nseverity = "error"\n'
    (tmp_path / "mine" / "q.toml").write_text(detector)
    (own / "q.toml").write_text(detector + "limit_s = 5\n")
    told = "rule mine.pump (own/p.toml:2): replaces mine.pump (mine/pump.toml:2)"
    checked = cli("rules", "check", str(own))
    same = cli("rules", "check", str(tmp_path / "mine"))
    for user in ("cli.rules_load", "service.rules"):
        monkeypatch.setattr(f"serialwatch.{user}.search_path", lambda _: [own, tmp_path / "mine"])
    listed = cli("rules", "list")
    rows = {row["id"]: row for row in json.loads(cli("rules", "list", "--json").out)}
    book = RuleBook()
    for _ in range(2):
        book.compile(load_config(None, ()))

    assert (checked.code, same.err) == (0, "")
    assert f"warning: {told}" in checked.err
    assert "detector mine.quiet (own/q.toml:1): replaces mine.quiet (mine/q.toml:1)" in checked.err
    assert "replaces mine.pump (mine/pump.toml:2)" in listed.out
    assert rows["mine.pump"]["replaces"] == "mine/pump.toml:2"
    assert caplog.messages.count(f"rules: {told}") == 1


def test_a_pack_that_is_good_again_is_logged_once(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO)
    path = tmp_path / "mine" / "pump.toml"
    book = RuleBook()
    for text in (PUMP, PUMP + "[[rule", PUMP, PUMP):
        path.write_text(text)
        book.compile(load_config(None, ()))

    assert caplog.messages.count(f"rules: {path} is in order again") == 1
