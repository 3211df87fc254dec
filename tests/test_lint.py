from __future__ import annotations

import json
import re
from pathlib import Path

import pytest

from serialwatch.agent.skills import lint
from serialwatch.agent.skills.lint import lint_skills
from serialwatch.bundled import bundled_dir
from skill_maker import make_skill

A_TEXT = {
    "type": "object",
    "additionalProperties": False,
    "properties": {"what": {"description": "What.", "type": "string", "examples": ["x"]}},
    "examples": [{"what": "x"}],
}


def test_a_good_skill_has_no_finding(tmp_path: Path) -> None:
    make_skill(tmp_path, "a-b")

    assert _codes(tmp_path) == set()


def test_the_bundled_skills_have_no_finding() -> None:
    assert lint_skills([bundled_dir("skills")]) == []


def test_nothing_there_is_no_finding(tmp_path: Path) -> None:
    assert lint_skills([tmp_path / "missing"]) == []


@pytest.mark.parametrize(
    ("old", "new", "code"),
    [
        ("name: a-b", "name: c-d", "SW002"),
        ("Use when", "Good when", "SW003"),
        ("Do NOT use", "Not", "SW004"),
        ("Does something.", "Does something. " + "x" * 600, "SW005"),
        ("metadata:", "metadata:\n  author: me", "SW006"),
        ('version: "1.0.0"', "version: 1.0", "SW006"),
        ('version: "1.0.0"', 'version: "1.0"', "SW007"),
        ('timeout-s: "5"', "timeout-s: '600'", "SW008"),
        ('  timeout-s: "5"\n', "", "SW008"),
        ("metadata:", "metadata:\n  long-s: '900'", "SW009"),
        ("metadata:", "allowed-tools: accept\nmetadata:", "SW009"),
        ("metadata:", "allowed-tools: ports\nmetadata:\n  long-s: '60'", "SW009"),
        ('  params-why: "a test needs no more"\n', "", "SW025"),
        ("## If it fails", "## Else", "SW044"),
        ("`denied`", "denied", "SW044"),
        ("`denied`", "`denied`, `lost`", "SW045"),
        ('  risk: "L1"\n', "", "SW010"),
        ('idempotent: "true"', 'idempotent: "false"', "SW011"),
        ("metadata:", "allowed-tools: report.submit\nmetadata:", "SW012"),
        ("metadata:", "allowed-tools: shell.run\nmetadata:", "SW006"),
        ('risk: "L1"', 'risk: "L3"', "SW013"),
        ("metadata:", "tools: all\nmetadata:", "SW001"),
        ("Text.", "x\n" * 600, "SW040"),
        ("Text.", "x " * 12000, "SW040"),
        ("Text.", "[more](references/none.md)", "SW041"),
        ("metadata:", "metadata:\n  when: 'sometimes'", "SW042"),
        ("metadata:", "metadata:\n  when: 'line ~ (a+)+b'", "SW042"),
        ("Text.", "AKIA" + "Z" * 16, "SW050"),
    ],
)
def test_a_head_or_text_is_judged(tmp_path: Path, old: str, new: str, code: str) -> None:
    path = make_skill(tmp_path, "a-b") / "SKILL.md"
    assert old in path.read_text()
    path.write_text(path.read_text().replace(old, new, 1))

    assert code in _codes(tmp_path)


@pytest.mark.parametrize(
    ("code_text", "code"),
    [
        ("open('x')", "SW032"),
        ("X = print('x')", "SW032"),
        ("for i in ():\n    pass", "SW032"),
        ("import subprocess", "SW033"),
        ("from urllib.request import urlopen", "SW033"),
        ("async def run(ctx, params):\n    os.system('x')", "SW033"),
        ("async def run(ctx, params):\n    time.sleep(1)", "SW034"),
        ("async def run(ctx, params):\n    eval('x')", "SW033"),
        ("from serialwatch.agent.workers.worker import Workers", "SW035"),
        ("from serialwatch import wire", "SW035"),
        ("token = 'abcdefghijkl'", "SW050"),
    ],
)
def test_code_is_judged(tmp_path: Path, code_text: str, code: str) -> None:
    path = make_skill(tmp_path, "a-b") / "main.py"
    path.write_text(f"{path.read_text()}\n{code_text}\n")

    assert code in _codes(tmp_path)


def test_tables_and_regexes_at_the_top_are_fine(tmp_path: Path) -> None:
    path = make_skill(tmp_path, "a-b") / "main.py"
    path.write_text(
        "import re\n\n_A = re.compile('x')\n_B = {n: str(n) for n in range(3)}\n\n\n"
        "class Row:\n    pass\n\n\n_C = (Row(), frozenset({1}))\n" + path.read_text()
    )

    assert _codes(tmp_path) == set()


def test_a_module_beside_main_is_judged_too(tmp_path: Path) -> None:
    (make_skill(tmp_path, "a-b") / "table.py").write_text("import socket\n")

    assert _codes(tmp_path) == {"SW033"}


@pytest.mark.parametrize(
    ("about", "code"),
    [
        ({"type": "string"}, "SW021"),
        ({"description": "x", "type": "string"}, "SW024"),
        ({"description": "x", "type": "array", "items": {"type": "string"}}, "SW024"),
        ({"description": "x", "type": "integer", "examples": ["7"]}, "SW023"),
        ({"description": "x", "type": "integer", "examples": [7]}, "SW026"),
        ({"description": "x", "type": "integer", "default": "7"}, "SW023"),
        ({"description": "x" * 4000, "type": "integer"}, "SW022"),
        (
            {"description": "x", "type": "array", "items": {"properties": {"a": {"type": "null"}}}},
            "SW021",
        ),
    ],
)
def test_a_schema_is_judged(tmp_path: Path, about: dict[str, object], code: str) -> None:
    schema = {"type": "object", "additionalProperties": False, "properties": {"what": about}}
    make_skill(tmp_path, "a-b", schema=schema)

    assert code in _codes(tmp_path)


def test_an_example_has_to_fit(tmp_path: Path) -> None:
    make_skill(tmp_path, "a-b", schema={**A_TEXT, "examples": [{"what": "x"}, {"what": 1}]})

    (finding,) = lint_skills([tmp_path])

    assert (finding.code, finding.path.name) == ("SW023", "schema.json")
    assert "example 2: /what" in finding.text


def test_a_skill_that_writes_bounds_its_texts(tmp_path: Path) -> None:
    make_skill(tmp_path, "a-b", schema=A_TEXT, risk="L2")
    bounded = json.loads(json.dumps(A_TEXT))
    bounded["properties"]["what"]["maxLength"] = 9
    make_skill(tmp_path, "c-d", schema=bounded, risk="L2")

    (finding,) = lint_skills([tmp_path])

    assert (finding.code, finding.path.parent.name) == ("SW014", "a-b")


def test_two_skills_for_the_same_thing_say_when_not(tmp_path: Path) -> None:
    make_skill(tmp_path, "a-b", when="trigger in (x.y)")
    make_skill(tmp_path, "c-d", when="trigger in (x.y)", when_not="something else")

    (finding,) = lint_skills([tmp_path])

    assert (finding.code, finding.is_error) == ("SW043", False)
    assert "x.y" in finding.text


def test_values_that_are_all_named_need_no_example(tmp_path: Path) -> None:
    schema = {
        "type": "object",
        "additionalProperties": False,
        "properties": {
            "level": {"description": "How bad.", "enum": ["warning", "error"]},
            "all": {"description": "All of them.", "type": "boolean"},
            "rows": {"description": "Rows.", "type": "array", "items": {"type": "integer"}},
        },
        "examples": [{"level": "error", "rows": [1]}],
    }
    make_skill(tmp_path, "a-b", schema=schema)

    assert _codes(tmp_path) == set()


@pytest.mark.parametrize(("count", "found"), [(1, True), (2, False), (5, False), (6, True)])
def test_two_to_five_parameters(tmp_path: Path, count: int, found: bool) -> None:
    names = {f"p{n}": {"description": "x", "enum": ["x"]} for n in range(count)}
    schema = {**A_TEXT, "properties": names, "examples": [{}]}
    path = make_skill(tmp_path, "a-b", schema=schema) / "SKILL.md"
    path.write_text(path.read_text().replace('  params-why: "a test needs no more"\n', ""))

    assert _codes(tmp_path) == ({"SW025"} if found else set())


def test_a_skill_without_cases_is_warned_about(tmp_path: Path) -> None:
    (make_skill(tmp_path, "a-b") / "evals" / "evals.json").unlink()

    (finding,) = lint_skills([tmp_path])

    assert (finding.code, finding.is_error) == ("SW060", False)


def test_cases_that_cannot_be_read_are_an_error(tmp_path: Path) -> None:
    (make_skill(tmp_path, "a-b") / "evals" / "evals.json").write_text('{"cases": [{"name": "x"}]}')

    (finding,) = lint_skills([tmp_path])

    assert (finding.code, finding.is_error) == ("SW061", True)
    assert "case x: expect" in finding.text


def test_a_text_to_read_needs_neither_parameters_nor_cases(tmp_path: Path) -> None:
    folder = make_skill(tmp_path, "a-b")
    for path in ("main.py", "schema.json", "evals/evals.json"):
        (folder / path).unlink()

    assert _codes(tmp_path) == set()


@pytest.mark.parametrize(
    ("path", "old", "new", "line_with"),
    [
        ("SKILL.md", '"1.0.0"', '"1.0"', "version:"),
        ("SKILL.md", "denied", "lost", "`lost`"),
        ("main.py", "import os", "import socket", "import socket"),
        ("main.py", "    return", "    time.sleep(1)\n    return", "time.sleep"),
        ("schema.json", '"description": "What.",', "", '"what":'),
    ],
)
def test_a_finding_names_its_line(
    tmp_path: Path, path: str, old: str, new: str, line_with: str
) -> None:
    folder = make_skill(tmp_path, "a-b", schema=A_TEXT)
    (folder / "schema.json").write_text(json.dumps(A_TEXT, indent=1))
    changed = (folder / path).read_text().replace(old, new, 1)
    (folder / path).write_text(changed)

    finding = lint_skills([tmp_path])[0]

    assert finding.path == folder / path
    assert line_with in changed.splitlines()[finding.line - 1]


def test_every_code_has_a_remedy() -> None:
    folder = Path(lint.__file__).parent
    source = (folder / "lint.py").read_text() + (folder / "folder.py").read_text()

    assert set(re.findall(r"SW\d{3}", source)) == lint.REMEDIES.keys()


def _codes(root: Path) -> set[str]:
    return {finding.code for finding in lint_skills([root])}
