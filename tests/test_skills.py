from __future__ import annotations

import logging
import os
from pathlib import Path

import pytest

from serialwatch.agent.skills.folder import failure_hints
from serialwatch.agent.skills.registry import Registry, load_skills
from skill_maker import make_skill

CHOICE = {
    "type": "object",
    "additionalProperties": False,
    "properties": {
        "level": {"description": "How bad.", "enum": ["warning", "error"], "default": "error"},
        "limit": {"description": "How many.", "type": "integer", "minimum": 1},
        "where": {
            "description": "Where.",
            "type": "object",
            "additionalProperties": False,
            "properties": {"a/b": {"description": "Odd.", "type": "string"}},
        },
    },
    "required": ["limit"],
}


def test_a_folder_is_a_skill(tmp_path: Path) -> None:
    make_skill(tmp_path, "uart-triage", tags="uart, rx", timeout_s="2.5", when="trigger in (a.b)")

    skill = load_skills([tmp_path]).skills["uart-triage"]

    assert (skill.version, skill.risk, skill.timeout_s) == ("1.0.0", "L1", 2.5)
    assert (skill.namespace, skill.tags) == ("uart", {"uart", "rx"})
    assert skill.when.names == {("trigger", "a.b")}
    assert skill.has_main
    assert skill.is_idempotent


def test_loading_imports_nothing(tmp_path: Path) -> None:
    folder = make_skill(tmp_path, "a-b")
    mark = tmp_path / "imported"
    (folder / "main.py").write_text(f"open({str(mark)!r}, 'w')\nasync def run(ctx, params): pass\n")

    assert "a-b" in load_skills([tmp_path]).skills
    assert not mark.exists()


def test_a_broken_skill_is_told_and_the_others_load(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    make_skill(tmp_path, "good-one")
    (make_skill(tmp_path, "bad-python") / "main.py").write_text("async def run(ctx, params:\n")
    (make_skill(tmp_path, "bad-entry") / "main.py").write_text("def run(ctx, params): pass\n")
    (make_skill(tmp_path, "bad-schema") / "schema.json").write_text('{"type": "objekt"}')
    (make_skill(tmp_path, "open-schema") / "schema.json").write_text('{"type": "object"}')
    (make_skill(tmp_path, "no-schema") / "schema.json").unlink()
    (make_skill(tmp_path, "no-text") / "SKILL.md").unlink()
    make_skill(tmp_path, "bad-risk", risk="L4")

    registry = load_skills([tmp_path])

    assert list(registry.skills) == ["good-one"]
    codes = {broken.name: broken.findings[0].code for broken in registry.broken}
    assert codes == {
        "bad-python": "SW030",
        "bad-entry": "SW031",
        "bad-schema": "SW020",
        "open-schema": "SW020",
        "no-schema": "SW020",
        "no-text": "SW001",
        "bad-risk": "SW001",
    }
    assert sum(record.levelno == logging.WARNING for record in caplog.records) == 7


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("name: x\n", "first line"),
        ("---\nname: x\n--- \nmore\n", "exactly"),
        ("---\nname: [\n---\n", "line"),
        ("---\n- a\n---\n", "key: value"),
    ],
)
def test_a_head_that_cannot_be_read_is_told(tmp_path: Path, text: str, says: str) -> None:
    (make_skill(tmp_path, "a-b") / "SKILL.md").write_text(text)

    (broken,) = load_skills([tmp_path]).broken

    assert says in broken.findings[0].text


def test_a_rule_inside_the_description_does_not_end_the_head(tmp_path: Path) -> None:
    folder = make_skill(tmp_path, "a-b")
    text = (folder / "SKILL.md").read_text()
    (folder / "SKILL.md").write_text(text.replace("Does something.", ">-\n  Does --- much ---\n "))

    assert "--- much ---" in load_skills([tmp_path]).skills["a-b"].description


def test_the_earlier_folder_wins_and_the_other_is_kept_as_shadowed(tmp_path: Path) -> None:
    make_skill(tmp_path / "etc", "log-read", version="2.0.0")
    make_skill(tmp_path / "bundled", "log-read", version="1.0.0")
    dirs = [tmp_path / "etc", tmp_path / "missing", tmp_path / "bundled"]

    registry = load_skills(dirs)

    assert registry.skills["log-read"].version == "2.0.0"
    assert [skill.version for skill in registry.shadowed] == ["1.0.0"]


def test_a_version_can_be_named(tmp_path: Path) -> None:
    make_skill(tmp_path / "etc", "log-read", version="2.0.0")
    make_skill(tmp_path / "bundled", "log-read", version="1.0.0")

    registry = load_skills([tmp_path / "etc", tmp_path / "bundled"], {"log-read": "1.0.0"})

    assert registry.skills["log-read"].version == "1.0.0"


def test_a_missing_risk_is_the_highest(tmp_path: Path) -> None:
    folder = make_skill(tmp_path, "a-b")
    text = (folder / "SKILL.md").read_text()
    (folder / "SKILL.md").write_text(text.replace('  risk: "L1"\n', ""))

    assert load_skills([tmp_path]).skills["a-b"].risk == "L3"


def test_capabilities_are_those_asked_for_and_never_above_the_risk(tmp_path: Path) -> None:
    make_skill(tmp_path, "all-of-them")
    make_skill(tmp_path, "just-one", head="allowed-tools: log.lines report.submit\n")
    make_skill(tmp_path, "a-writer", risk="L2")

    skills = load_skills([tmp_path]).skills

    assert "log.stats" in skills["all-of-them"].allowed
    assert "report.submit" not in skills["all-of-them"].allowed
    assert skills["just-one"].allowed == {"log.lines"}
    assert "report.submit" in skills["a-writer"].allowed


def test_what_anybody_may_write_to_is_refused(tmp_path: Path) -> None:
    (make_skill(tmp_path, "a-b") / "main.py").chmod(0o666)

    (broken,) = load_skills([tmp_path]).broken

    assert broken.findings[0].code == "SW051"


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can give a file away")
def test_a_skill_that_writes_must_belong_to_us(tmp_path: Path) -> None:
    for name, risk in (("a-b", "L1"), ("c-d", "L2")):
        os.chown(make_skill(tmp_path, name, risk=risk) / "main.py", 12345, 12345)

    registry = load_skills([tmp_path])

    assert list(registry.skills) == ["a-b"]
    assert "uid 12345" in registry.broken[0].findings[0].text


def test_a_link_that_leads_out_is_refused(tmp_path: Path) -> None:
    outside = make_skill(tmp_path / "elsewhere", "out-side")
    root = tmp_path / "skills"
    folder = make_skill(root, "a-b")
    (folder / "more.py").symlink_to(outside / "main.py")
    (root / "out-side").symlink_to(outside)

    registry = load_skills([root])

    assert not registry.skills
    assert {broken.name for broken in registry.broken} == {"a-b", "out-side"}


def test_a_second_skill_of_that_name_in_one_root_is_left_out(tmp_path: Path) -> None:
    make_skill(tmp_path / "group-a", "log-read", version="1.0.0")
    make_skill(tmp_path / "group-b", "log-read", version="2.0.0")

    registry = load_skills([tmp_path])

    assert registry.skills["log-read"].version == "1.0.0"
    assert [broken.folder for broken in registry.broken] == [tmp_path / "group-b" / "log-read"]


def test_the_hash_follows_every_file(tmp_path: Path) -> None:
    folder = make_skill(tmp_path, "a-b")
    before = _sha(tmp_path)
    (folder / "__pycache__").mkdir()
    (folder / "__pycache__" / "main.pyc").write_bytes(b"x")
    same = _sha(tmp_path)
    (folder / "table.py").write_text("A = 1\n")
    with_table = _sha(tmp_path)

    assert before == same != with_table


def test_a_skill_without_main_is_text(tmp_path: Path) -> None:
    folder = make_skill(tmp_path, "a-b")
    (folder / "main.py").unlink()
    (folder / "schema.json").unlink()

    assert not load_skills([tmp_path]).skills["a-b"].has_main


def test_parameters_are_judged_with_pointer_message_and_what_is_allowed(tmp_path: Path) -> None:
    make_skill(tmp_path, "a-b", schema=CHOICE)
    skill = load_skills([tmp_path]).skills["a-b"]

    problems = {p.pointer: p for p in skill.problems({"level": "bad", "x": 1, "limit": "7"})}

    assert problems["/level"].allowed == ("warning", "error")
    assert problems["/limit"].allowed == ("integer",)
    assert problems[""].allowed == ("level", "limit", "where")
    assert "'x' was unexpected" in problems[""].message
    assert [p.pointer for p in skill.problems({"limit": 1, "where": {"a/b": 1}})] == ["/where/a~1b"]
    assert not skill.problems({"limit": 1})


def test_defaults_stand_where_nothing_is_said(tmp_path: Path) -> None:
    make_skill(tmp_path, "a-b", schema=CHOICE)
    skill = load_skills([tmp_path]).skills["a-b"]

    assert skill.with_defaults({"limit": 1}) == {"limit": 1, "level": "error"}
    assert skill.with_defaults({"level": "warning"}) == {"level": "warning"}


def test_a_name_that_was_meant_is_found(tmp_path: Path) -> None:
    make_skill(tmp_path, "log-read")

    assert load_skills([tmp_path]).similar("logread") == ("log-read",)
    assert Registry({}).similar("log-read") == ()


def _sha(root: Path) -> str:
    return load_skills([root]).skills["a-b"].sha


@pytest.mark.parametrize(
    ("section", "hints"),
    [
        ("- `timeout`: ask for less.", {"timeout": "ask for less."}),
        ("- `crashed`, `bad_result`: leave it.", {"crashed": "leave it.", "bad_result": "leave it."}),
        ("- `crashed` or `timeout`: wait.\n  Then go on.", dict.fromkeys(
            ("crashed", "timeout"), "wait. Then go on.")),
        ("Text before.\n\n- `denied`: a\n- `expired`: b\n\nText after.", {"denied": "a", "expired": "b"}),
        ("- `denied`: a\n\n## More\n\n- `expired`: b", {"denied": "a"}),
        ("- denied: a", {}),
        ("- `denied`: " + "x" * 300, {"denied": "x" * 200}),
    ],
)  # fmt: skip
def test_hints_are_read_from_the_text(section: str, hints: dict[str, str]) -> None:
    assert failure_hints(f"# A\n\nText.\n\n## If it fails\n\n{section}\n") == hints


def test_a_text_without_the_section_has_no_hints() -> None:
    assert failure_hints("# A\n\n- `denied`: a\n") == {}
