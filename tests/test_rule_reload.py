"""Packs that change while the daemon runs, or that are broken."""

from __future__ import annotations

import gc
import os
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import hyperscan as hs
import pytest

from bench_cable import Cable
from running_daemon import RunningDaemon, running
from serialwatch.bundled import bundled_dir
from serialwatch.config import Config, load_config
from serialwatch.service.garbage import made_for_good
from serialwatch.service.rules import RuleBook
from serialwatch.tomlfile import TomlError
from serialwatch.triggers import database_cache
from serialwatch.triggers import patterns as patterns_module
from serialwatch.triggers.cache_file import keep
from serialwatch.triggers.database_cache import DatabaseCache
from serialwatch.triggers.matcher import Matcher
from serialwatch.triggers.patterns import (
    KnownPatterns,
    Pattern,
    compile_database,
    compile_pattern,
    compile_scanned,
)
from serialwatch.triggers.rules import RuleFolders, load_rules, parse_rules

RULE = """
[[rule]]
id = "mine.{word}"
title = "{word}"
severity = "error"
match = ['{match}']
"""


def rule(word: str, match: str = "") -> str:
    return RULE.format(word=word, match=match or f"{word} is broken")


def put(path: Path, text: str) -> None:
    """Write a file in one go, as most editors do; its time of change is a new one."""
    fresh = path.with_suffix(".part")
    fresh.write_text(text)
    fresh.replace(path)


@pytest.fixture
def book(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> RuleBook:
    monkeypatch.setattr("serialwatch.service.rules.search_path", lambda _: [tmp_path])
    (tmp_path / "a.toml").write_text(rule("pump"))
    (tmp_path / "b.toml").write_text(rule("valve"))
    return RuleBook()


def ids(folders: RuleFolders) -> list[str]:
    return sorted(rule.id for rule in folders.load().rules)


def test_no_garbage_is_looked_for_while_rules_are_loaded_for_good(book: RuleBook) -> None:
    looked = []

    def look(phase: str, _: object) -> None:
        looked.append(phase)

    gc.callbacks.append(look)
    try:
        with made_for_good():
            book.compile(Config())
            kept = [[] for _ in range(gc.get_threshold()[0] * 2)]
        held = gc.get_freeze_count()
    finally:
        gc.callbacks.remove(look)
        gc.unfreeze()

    assert looked == []
    assert held > len(kept)
    assert gc.isenabled()


def test_a_pack_that_breaks_is_used_as_it_was_and_the_others_go_on(tmp_path: Path) -> None:
    put(tmp_path / "a.toml", rule("pump"))
    put(tmp_path / "b.toml", rule("valve"))
    folders = RuleFolders([tmp_path])
    first = folders.load()
    put(tmp_path / "a.toml", rule("gear") + rule("pump", "pump(?= is)"))
    put(tmp_path / "b.toml", rule("shaft"))
    second = folders.load()
    put(tmp_path / "a.toml", "[[rule")
    third = folders.load()
    put(tmp_path / "a.toml", rule("gear"))
    last = folders.load()

    assert first.problems == ()
    assert [r.id for r in second.rules] == ["mine.pump", "mine.shaft"]
    (problem,) = second.problems
    assert "/a.toml:12): Hyperscan cannot do look-ahead" in problem
    assert "mine.pump" in problem
    assert problem.endswith("(the pack is used as it was before)")
    assert [r.id for r in third.rules] == ["mine.pump", "mine.shaft"]
    assert "not TOML" in third.problems[0]
    assert ([r.id for r in last.rules], last.problems) == (["mine.gear", "mine.shaft"], ())


def test_what_is_too_much_for_hyperscan_leaves_the_pack_as_it_was(tmp_path: Path) -> None:
    put(tmp_path / "a.toml", rule("pump"))
    put(tmp_path / "b.toml", rule("valve"))
    folders = RuleFolders([tmp_path])
    folders.load()
    put(tmp_path / "a.toml", rule("gear", r"\w\w"))
    loaded = folders.load()

    assert [r.id for r in loaded.rules] == ["mine.pump", "mine.valve"]
    assert "matches nearly everywhere" in loaded.problems[0]
    assert "the pack is used as it was before" in loaded.problems[0]


def test_packs_that_are_too_much_together_lose_the_last_of_them(tmp_path: Path) -> None:
    put(tmp_path / "a.toml", rule("pump") + rule("gear"))
    put(tmp_path / "b.toml", rule("valve"))

    def compiled(patterns: tuple[Pattern, ...]) -> hs.Database:
        if len(patterns) > 2:
            raise hs.HyperscanError("Too many patterns.")
        return compile_database(patterns)

    loaded = RuleFolders([tmp_path], compiled).load()

    assert [r.id for r in loaded.rules] == ["mine.pump", "mine.gear"]
    assert "/b.toml:1: too much beside the other packs: Too many" in loaded.problems[0]


def test_a_pack_that_is_deleted_is_gone(tmp_path: Path) -> None:
    put(tmp_path / "a.toml", rule("pump"))
    put(tmp_path / "b.toml", rule("valve"))
    folders = RuleFolders([tmp_path])
    folders.load()
    (tmp_path / "a.toml").unlink()

    assert ids(folders) == ["mine.valve"]
    (tmp_path / "b.toml").unlink()
    with pytest.raises(TomlError, match="no rules there"):
        folders.load()


def test_a_change_counts_once_the_files_have_stopped_changing(
    book: RuleBook, tmp_path: Path
) -> None:
    book.compile(Config())
    put(tmp_path / "b.toml", "")
    told = [book.has_changed()]
    put(tmp_path / "b.toml", rule("shaft"))
    told += [book.has_changed(), book.has_changed()]
    compiled = book.compile(Config())
    told.append(book.has_changed())

    assert told == [False, False, True, False]
    assert [r.id for r in compiled.matcher.ruleset.rules] == ["mine.pump", "mine.shaft"]


def test_an_added_a_deleted_and_a_broken_pack_are_changes(book: RuleBook, tmp_path: Path) -> None:
    def changes() -> bool:
        book.has_changed()
        return book.has_changed()

    book.compile(Config())
    told = [changes()]
    put(tmp_path / "c.toml", rule("gear"))
    told.append(changes())
    book.compile(Config())
    (tmp_path / "a.toml").unlink()
    told.append(changes())
    book.compile(Config())
    put(tmp_path / "c.toml", "[[")
    told.append(changes())
    compiled = book.compile(Config())
    told.append(changes())  # it is told once, not each second

    assert told == [False, True, True, True, False]
    assert "not TOML" in compiled.problems[0]


def patterns(*sources: str) -> tuple[Pattern, ...]:
    return tuple(map(compile_scanned, sources))


def found(database: hs.Database, text: bytes) -> list[int]:
    hits: list[int] = []
    scratch = hs.Scratch(database)
    database.scan(text, match_event_handler=lambda *hit: hits.append(hit[0]), scratch=scratch)
    return hits


def test_what_was_compiled_is_read_from_disk_and_finds_the_same(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    two = patterns("pump is broken", "valve \\d")
    DatabaseCache(tmp_path / "c").database(two)

    def never(_: object) -> hs.Database:
        raise AssertionError("compiled again")

    monkeypatch.setattr("serialwatch.triggers.database_cache.compile_database", never)
    database = DatabaseCache(tmp_path / "c").database(two)

    assert found(database, b"valve 7\npump is broken\n") == [1, 0]
    with pytest.raises(AssertionError, match="compiled again"):
        DatabaseCache(tmp_path / "c").database(patterns("valve \\d", "pump is broken"))


@pytest.mark.parametrize("damage", ["torn", "changed", "empty", "writable", "a folder"])
def test_a_file_that_is_not_whole_or_not_ours_is_compiled_anew(tmp_path: Path, damage: str) -> None:
    one = patterns("pump is broken")
    DatabaseCache(tmp_path).database(one)
    (path,) = tmp_path.glob("*.hsdb")
    body = path.read_bytes()
    if damage == "torn":
        path.write_bytes(body[:-100])
    elif damage == "changed":
        path.write_bytes(body[:-1] + bytes([body[-1] ^ 1]))
    elif damage == "empty":
        path.write_bytes(b"")
    elif damage == "writable":
        path.chmod(0o666)
    else:
        path.unlink()
        path.mkdir()

    assert found(DatabaseCache(tmp_path).database(one), b"pump is broken\n") == [0]
    if damage != "a folder":
        assert path.read_bytes() == body
        assert not path.stat().st_mode & 0o077


def test_a_cache_that_cannot_be_written_is_told_and_costs_nothing_else(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    (tmp_path / "file").touch()

    assert found(DatabaseCache(tmp_path / "file" / "c").database(patterns("pump")), b"pump\n") == [
        0
    ]
    assert "compiled rules are not kept" in caplog.text


def test_a_database_that_cannot_be_written_down_is_used_all_the_same(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def fails(_: object) -> bytes:
        raise hs.HyperscanError("no memory")

    monkeypatch.setattr(hs, "dumpb", fails)

    assert found(DatabaseCache(tmp_path).database(patterns("pump")), b"pump\n") == [0]
    assert "compiled rules are not kept" in caplog.text


def test_only_the_newest_databases_are_kept(tmp_path: Path) -> None:
    cache = DatabaseCache(tmp_path)
    for number in range(7):
        cache.database(patterns(f"pump {number}"))

    assert len(list(tmp_path.glob("*.hsdb"))) == 4


@pytest.fixture
def known(monkeypatch: pytest.MonkeyPatch) -> Callable[[], KnownPatterns]:
    """Return what lets this process know as little of patterns as a new one does."""

    def forget() -> KnownPatterns:
        new = KnownPatterns()
        monkeypatch.setattr(patterns_module, "known_patterns", new)
        monkeypatch.setattr(database_cache, "known_patterns", new)
        compile_pattern.cache_clear()
        patterns_module._stand_ins.cache_clear()
        return new

    return forget


def test_patterns_that_another_process_compiled_are_the_same_and_are_not_compiled_again(
    tmp_path: Path, known: Callable[[], KnownPatterns], monkeypatch: pytest.MonkeyPatch
) -> None:
    known()
    cache = DatabaseCache(tmp_path)
    compiled = load_rules([bundled_dir("config/rules")], cache.database)
    before = {source: compile_scanned(source) for source in compiled.scanned()}
    texts = {source: pattern.stand_ins for source, pattern in before.items()}
    (path,) = tmp_path.glob("*.patterns")
    written = path.stat()

    def never(source: str) -> Pattern:
        raise AssertionError(f"{source} is compiled again")

    monkeypatch.setattr(patterns_module, "parse", never)
    known()
    cache.recall()
    again = load_rules([bundled_dir("config/rules")], cache.database)

    assert again == compiled
    after = {source: compile_scanned(source) for source in again.scanned()}
    assert after == before
    assert {source: pattern.stand_ins for source, pattern in after.items()} == texts
    assert path.stat() == written


@pytest.mark.parametrize(
    "body", [b"[[1]]", b"{}", b"[[{}, []]]", b'[[{"source": 1}, 2]]', b"[", b""]
)
def test_kept_patterns_that_are_none_are_compiled_anew(
    tmp_path: Path, known: Callable[[], KnownPatterns], body: bytes
) -> None:
    known()
    DatabaseCache(tmp_path).database(patterns("pump"))
    (path,) = tmp_path.glob("*.patterns")
    keep(path, body, 2)
    known()
    cache = DatabaseCache(tmp_path)
    cache.recall()

    assert found(cache.database(patterns("pump")), b"pump\n") == [0]
    assert b"pump" in path.read_bytes()


def test_patterns_that_other_code_compiled_are_left_alone(
    tmp_path: Path, known: Callable[[], KnownPatterns], monkeypatch: pytest.MonkeyPatch
) -> None:
    known()
    DatabaseCache(tmp_path).database(patterns("pump"))
    (path,) = tmp_path.glob("*.patterns")
    monkeypatch.setattr(database_cache, "_COMPILERS", database_cache._COMPILERS[:-1])
    known()
    cache = DatabaseCache(tmp_path)
    cache.recall()
    cache.database(patterns("pump"))

    assert len(list(tmp_path.glob("*.patterns"))) == 2
    assert path.exists()


def test_hundreds_of_rules_of_one_pack_are_compiled_and_found() -> None:
    text = "".join(rule(f"r{n}", f"unit {n} failed$") for n in range(300))
    matcher = Matcher(parse_rules(text))

    ((number, _),) = matcher.scan(b"unit 277 failed\n")
    assert matcher.uses[number].rules[0].rule.id == "mine.r277"


SITE = """
from pathlib import Path
from serialwatch import bundled
before = bundled.search_path
bundled.search_path = lambda kind: [Path({own!r})] if kind == "rules" else before(kind)
"""


def with_own_rules(tmp_path: Path) -> dict[str, str]:
    """Let a daemon look for rules in a folder of this test alone, whoever runs it."""
    (tmp_path / "site").mkdir()
    (tmp_path / "site" / "sitecustomize.py").write_text(SITE.format(own=str(tmp_path / "rules.d")))
    (tmp_path / "rules.d").mkdir()
    (tmp_path / "rules.d" / "base.toml").write_text(rule("base"))
    return {
        "PYTHONPATH": os.pathsep.join([str(tmp_path / "site"), os.environ.get("PYTHONPATH", "")])
    }


def test_rules_change_while_a_daemon_runs_and_no_byte_is_lost(cable: Cable, tmp_path: Path) -> None:
    own = tmp_path / "rules.d" / "mine.toml"
    env = with_own_rules(tmp_path)
    printed = b""

    def prints(daemon: RunningDaemon, text: bytes) -> None:
        nonlocal printed
        cable.prints(text)
        printed += text
        daemon.wait_for(lambda: daemon.saved("dut1") == printed, "bytes")

    def triggers(daemon: RunningDaemon) -> set[str]:
        return {incident["trigger"] for incident in daemon.incidents("dut1")}

    with running(tmp_path, {"dut1": str(cable.path)}, env=env) as daemon:
        prints(daemon, b"the pump is broken\r\n")
        put(own, rule("pump", "pump is broken$"))
        daemon.wait_for(lambda: "rules read again" in daemon.log(), "new rule")
        prints(daemon, b"half a line: the pump ")
        put(own, rule("valve", "valve+") + rule("gear"))
        daemon.wait_for(lambda: "no fixed end" in daemon.log(), "complaint")
        problems = daemon.get("/healthz")["problems"]
        prints(daemon, b"is broken\r\n")
        daemon.wait_for(lambda: "mine.pump" in triggers(daemon), "incident of the rule that was")

    assert "rules left out: rule mine.valve (rules.d/mine.toml:6)" in problems[0]
    assert "the pack is used as it was before" in problems[0]
    assert cable.received() == b""


BENCH = """
[port.dut1]
device = "pty:"
ready = '(?=a)b'
[port.dut2]
device = "pty:"
rules = [
    "mine",
    "my",
]
[discover.any]
usb = "0403:*"
ready = '(?=a)b'
rules = ["your"]
"""


def test_what_is_wrong_with_ready_and_rules_of_ports_has_its_line(
    book: RuleBook, tmp_path: Path
) -> None:
    file = tmp_path / "bench.conf"
    file.write_text(BENCH)
    config = load_config(file)
    discovered = replace(config.port["dut1"], name="any-1", device="usb:1-2")
    told = book.compile(replace(config, port=config.port | {"any-1": discovered})).port_problems
    starts = [problem.partition(": Hyper")[0].partition(" of a pack")[0] for problem in told]

    assert starts == [
        f'{file}:4: port "dut1": ready',
        f'{file}:7: port "dut2": rules: no rule',
        f'{file}:13: discover "any": ready',
        f'{file}:14: discover "any": rules: no rule',
    ]
    assert book.compile(Config(port={"any-1": discovered})).port_problems[0].startswith("port")


def test_a_pack_that_a_port_names_and_that_goes_is_told_while_the_daemon_runs(
    cable: Cable, tmp_path: Path
) -> None:
    env = with_own_rules(tmp_path)
    pump = tmp_path / "rules.d" / "pump.toml"
    put(pump, rule("pump"))
    with running(tmp_path, {"dut1": str(cable.path)}, 'rules = ["pump"]\n', env) as daemon:
        pump.unlink()
        daemon.wait_for(lambda: "rules read again" in daemon.log(), "other rules")

        told = f"{daemon.config}:8: port \"dut1\": rules: no rule of a pack 'pump'"
        assert f"rules: {told}" in daemon.log()
        assert told in daemon.get("/healthz")["problems"][0]
