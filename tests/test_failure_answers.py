"""What a caller is told when a skill fails, so that it can act on it; and what rests or repeats."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator, Sequence
from pathlib import Path

import pytest
import pytest_asyncio

from serialwatch.agent.skills.registry import load_skills
from serialwatch.agent.skills.resting import Resting, read_resting, write_resting
from serialwatch.agent.skills.results import SENTENCES, error_code
from serialwatch.agent.workers.circuit import FAILURES, WITHIN_S, Circuits
from serialwatch.agent.workers.worker import Quota, Workers
from serialwatch.records import SkillResult
from skill_maker import make_skill
from skill_run import opened_run

PARAMS = {
    "type": "object",
    "additionalProperties": False,
    "properties": {
        "level": {"description": "How bad.", "enum": ["warning", "error"]},
        "limit": {"description": "How many.", "type": "integer", "minimum": 1, "maximum": 9},
        "at": {"description": "When.", "type": "string", "pattern": "^-?[0-9]+$"},
    },
    "required": ["limit"],
    "examples": [{"level": "error", "limit": 3}],
}


@pytest_asyncio.fixture
async def workers() -> AsyncIterator[Workers]:
    async with Workers() as made:
        yield made


@pytest.mark.parametrize("code", SENTENCES)
def test_every_sentence_says_what_happened_and_what_to_do(code: str) -> None:
    told = SENTENCES[code].replace(";", ".").split(". ")  # type: ignore[index]
    does = ("use", "ask", "call", "correct", "do not", "work", "write", "go on", "read", "see")

    assert len(told) >= 2
    assert any(part.lower().startswith(does) or " and call" in part for part in told[1:])


@pytest.mark.parametrize(
    ("params", "pointer", "message", "allowed"),
    [
        ({"limit": 1, "level": "bad"}, "/level", "'bad' is not one of", ["warning", "error"]),
        ({"limit": "1"}, "/limit", "'1' is not of type 'integer'", ["integer"]),
        ({"limit": 99}, "/limit", "99 is greater than the maximum", ["maximum: 9"]),
        ({"limit": 1, "at": "noon"}, "/at", "'noon' does not match", ["pattern: ^-?[0-9]+$"]),
        ({}, "", "'limit' is a required property", ["limit"]),
        ({"limit": 1, "x": 1}, "", "'x' was unexpected", ["level", "limit", "at"]),
    ],
)
async def test_bad_parameters_are_named_with_what_is_allowed_and_an_example(
    tmp_path: Path, params: dict[str, object], pointer: str, message: str, allowed: list[str]
) -> None:
    make_skill(tmp_path, "a-b", schema=PARAMS)
    with opened_run([tmp_path]) as ctx:
        result = await Workers().run("a-b", params, ctx)

    (problem,) = result.output["problems"]
    assert error_code(result) == "invalid_args"
    assert (problem["pointer"], problem["allowed"]) == (pointer, allowed)
    assert message in problem["message"]
    assert result.output["example"] == {"level": "error", "limit": 3}


async def test_an_unknown_skill_is_told_with_the_similar_names(tmp_path: Path) -> None:
    make_skill(tmp_path, "log-read")
    with opened_run([tmp_path]) as ctx:
        near = await Workers().run("log.reads", {}, ctx)
        far = await Workers().run("zzz", {}, ctx)

    assert near.metadata["error"]["detail"] == "similar: log-read"
    assert "detail" not in far.metadata["error"]


async def test_a_full_quota_says_when_it_is_free_again(workers: Workers, tmp_path: Path) -> None:
    make_skill(tmp_path, "a-b")
    with opened_run([tmp_path], quota=Quota(1)) as ctx:
        await workers.run("a-b", {}, ctx)
        refused = await workers.run("a-b", {}, ctx)

    assert error_code(refused) == "quota_minute"
    assert refused.output["free_in_s"] in (59, 60)
    assert "free again in" in refused.metadata["error"]["detail"]


def test_a_quota_knows_when_it_is_free() -> None:
    quota = Quota(2)
    free = []
    for now_s in (0, 10, 20):
        quota.take(now_s)
        free.append(quota.free_in_s(now_s))

    assert free == [0, 50, 40]


async def test_the_hint_of_the_skill_comes_with_its_failure(
    workers: Workers, tmp_path: Path
) -> None:
    path = make_skill(tmp_path, "a-b", "raise ValueError('x')") / "SKILL.md"
    path.write_text(
        path.read_text().split("Text.")[0]
        + "# A\n\nText.\n\n## If it fails\n\n- `crashed`: leave it, and read\n  the log instead.\n"
    )
    with opened_run([tmp_path]) as ctx:
        crashed = await workers.run("a-b", {}, ctx)
        bad = await workers.run("a-b", {"x": 1}, ctx)

    assert crashed.metadata["error"]["hint"] == "leave it, and read the log instead."
    assert "hint" not in bad.metadata["error"]


async def test_a_skill_that_crashes_three_times_rests_until_it_changes(
    workers: Workers, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    folder = make_skill(tmp_path, "a-b", "os._exit(3)")
    with opened_run([tmp_path]) as ctx:
        codes = [error_code(await workers.run("a-b", {}, ctx)) for _ in range(FAILURES + 1)]
        told = (await workers.run("a-b", {}, ctx)).metadata["error"]["detail"]
    (folder / "main.py").write_text((folder / "main.py").read_text().replace("os._exit(3)",
                                    "return SkillResult('success', {})"))  # fmt: skip
    with opened_run([tmp_path]) as ctx:
        changed = await workers.run("a-b", {}, ctx)

    assert codes == ["crashed", "crashed", "crashed", "circuit_open"]
    assert "failed 3 times within 10 minutes (crashed, crashed, crashed)" in told
    assert changed.status == "success"
    assert sum("rests until" in record.message for record in caplog.records) == 1


async def test_a_limit_that_the_caller_set_is_not_the_skills_fault(
    workers: Workers, tmp_path: Path
) -> None:
    make_skill(tmp_path, "a-b", "while True: pass")
    with opened_run([tmp_path]) as ctx:
        codes = [error_code(await workers.run("a-b", {}, ctx, 0.05)) for _ in range(FAILURES + 1)]

    assert codes == ["timeout"] * (FAILURES + 1)


async def test_a_skill_that_rests_can_be_enabled_again(
    workers: Workers, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO)
    make_skill(tmp_path, "a-b", "os._exit(3)")
    with opened_run([tmp_path]) as ctx:
        for _ in range(FAILURES):
            await workers.run("a-b", {}, ctx)
        workers.enable(["a-b", "c-d"])
        again = error_code(await workers.run("a-b", {}, ctx))

    assert again == "crashed"
    assert [r.message for r in caplog.records if "again" in r.message] == [
        "skill a-b is in use again"
    ]


def test_failures_long_ago_do_not_count(tmp_path: Path) -> None:
    make_skill(tmp_path, "a-b")
    skill = load_skills([tmp_path]).skills["a-b"]
    circuits = Circuits()
    for at_s in (0.0, 1.0, WITHIN_S):
        circuits.failed(skill, "timeout", at_s)
    before = circuits.refusal(skill)
    circuits.failed(skill, "timeout", WITHIN_S + 1)
    circuits.failed(skill, "crashed", WITHIN_S + 2)

    assert before == ""
    assert "timeout, timeout, crashed" in circuits.refusal(skill)


WRITES = """
path = ctx.data_dir / 'count'
count = int(path.read_text()) + 1 if path.exists() else 1
path.write_text(str(count))
return SkillResult(params.get('status', 'success'), {'count': count})
"""
WORDS = {
    "type": "object",
    "additionalProperties": False,
    "properties": {
        "status": {"enum": ["success", "require_more"], "default": "success"},
        "n": {"type": "integer"},
    },
}


async def _written(workers: Workers, root: Path, *calls: dict[str, object]) -> list[SkillResult]:
    (root / "data").mkdir()
    make_skill(root / "skills", "a-b", WRITES, schema=WORDS, risk="L2", idempotent="false")
    with opened_run([root / "skills"], data_dir=root / "data") as ctx:
        return [await workers.run("a-b", call, ctx) for call in calls]


async def test_the_same_call_that_writes_is_done_once(workers: Workers, tmp_path: Path) -> None:
    results = await _written(workers, tmp_path, {"n": 1}, {"status": "success", "n": 1}, {"n": 2})

    assert [r.output["count"] for r in results] == [1, 1, 2]
    assert [r.metadata.get("repeated") for r in results] == [None, True, None]
    assert results[0].metadata["result"] == results[1].metadata["result"]


async def test_what_was_not_done_is_done_again(workers: Workers, tmp_path: Path) -> None:
    results = await _written(workers, tmp_path, *[{"status": "require_more"}] * 2)

    assert [r.output["count"] for r in results] == [1, 2]


async def test_another_run_does_it_itself(workers: Workers, tmp_path: Path) -> None:
    (tmp_path / "data").mkdir()
    make_skill(tmp_path / "skills", "a-b", WRITES, schema=WORDS, risk="L2")
    counts = []
    for run_id in ("run-1", "run-2"):
        with opened_run([tmp_path / "skills"], data_dir=tmp_path / "data", run_id=run_id) as ctx:
            counts.append((await workers.run("a-b", {}, ctx)).output["count"])

    assert counts == [1, 2]


async def test_calls_of_skills_share_quota_and_taint(workers: Workers, tmp_path: Path) -> None:
    make_skill(tmp_path, "a-b", "await ctx.call('c-d', {})\nreturn SkillResult('success', {})")
    make_skill(tmp_path, "c-d", "await ctx.call('e-f', {})\nreturn SkillResult('success', {})")
    make_skill(tmp_path, "e-f", "await ctx.incidents()\nreturn SkillResult('success', {})")
    with opened_run([tmp_path], quota=Quota(5)) as ctx:
        deep = await workers.run("a-b", {}, ctx)
        alone = await workers.run("e-f", {}, ctx)
        one_is_left = await workers.run("c-d", {}, ctx)
        none_is_left = await workers.run("e-f", {}, ctx)

    assert (deep.metadata["taint"], alone.metadata["taint"]) == ("dut", "dut")
    assert one_is_left.status == "success"  # it let the refusal of its own call pass
    assert error_code(none_is_left) == "quota_minute"


@pytest.mark.parametrize(
    ("metadata", "code"),
    [
        ("{'error': {}}", "precondition"),
        ("{'error': [1]}", "precondition"),
        ("{'error': {'code': 'no_such'}, 'summary': 'no card'}", "precondition"),
        ("{'error': {'code': 'precondition', 'detail': 'no card'}}", "precondition"),
    ],
)
async def test_a_failure_that_a_skill_words_badly_has_a_code(
    workers: Workers, tmp_path: Path, metadata: str, code: str
) -> None:
    make_skill(tmp_path, "a-b", f"return SkillResult('failure', {{}}, (), {metadata})")
    with opened_run([tmp_path]) as ctx:
        result = await workers.run("a-b", {}, ctx)

    error = result.metadata["error"]
    assert error_code(result) == code
    assert error.get("detail", "no card") == "no card"


async def test_a_skill_cannot_say_what_only_we_may(workers: Workers, tmp_path: Path) -> None:
    claims = "{'accepted': 'J1', 'repeated': True, 'taint': 'host', 'error': 1, 'x': 2}"
    code = f"await ctx.incidents()\nreturn SkillResult('success', {{}}, (), {claims})"
    make_skill(tmp_path, "a-b", code)
    with opened_run([tmp_path]) as ctx:
        metadata = (await workers.run("a-b", {}, ctx)).metadata

    assert metadata["taint"] == "dut"
    assert metadata.keys() == {"result", "taint", "elapsed_ms", "x"}


async def test_waiting_for_us_is_not_the_skills_fault(workers: Workers, tmp_path: Path) -> None:
    make_skill(tmp_path, "a-b", "await ctx.ports()", timeout_s="0.5")
    never = asyncio.Event()

    async def ports() -> dict[str, object]:
        await never.wait()
        return {}

    with opened_run([tmp_path], ask_ports=ports) as ctx:
        codes = {error_code(await workers.run("a-b", {}, ctx)) for _ in range(FAILURES + 1)}

    assert codes == {"timeout"}


def test_what_rests_is_told_and_comes_back_from_its_file(tmp_path: Path) -> None:
    make_skill(tmp_path / "skills", "a-b")
    skill = load_skills([tmp_path / "skills"]).skills["a-b"]
    told: list[Sequence[Resting]] = []
    circuits = Circuits(told.append)
    for n in range(FAILURES):
        circuits.failed(skill, "timeout", float(n))
    write_resting(tmp_path / "resting.json", told[-1])
    circuits.enable(["a-b"])

    ((rest,), nothing) = told
    assert nothing == []
    assert rest.why == "failed 3 times within 10 minutes (timeout, timeout, timeout)"
    assert read_resting(tmp_path / "resting.json") == {("a-b", skill.sha): rest}
    assert read_resting(tmp_path / "none.json") == {}
