"""Results that are too long for the caller: kept under an id, and read in parts."""

from __future__ import annotations

import json
from pathlib import Path

from serialwatch.agent.skills.results import MAX_KEPT, MAX_OUTPUT
from serialwatch.agent.workers.worker import Workers
from skill_maker import make_skill
from skill_run import opened_run

LONG = """
return SkillResult('success', {'rows': [{'n': n, 't': f'{n:05}' * 8} for n in range(900)]})
"""
READ_ALL = """
parts, start = [], 0
while start is not None:
    part = await ctx.results.read(params['id'], start=start, limit=5000)
    parts.append(part['text'])
    start = part['next']
text = ''.join(parts)
rows = __import__('json').loads(text)['rows']
return SkillResult('success', {
    'parts': len(parts), 'chars': part['chars'], 'got': len(text), 'rows': len(rows),
    'last': rows[-1],
})
"""
MATCH = """
found = await ctx.results.read(params['id'], match='00777')
return SkillResult('success', found)
"""
WHICH = {
    "type": "object",
    "additionalProperties": False,
    "properties": {"id": {"type": "string"}},
}


async def test_a_parked_result_is_read_whole_in_parts(tmp_path: Path) -> None:
    make_skill(tmp_path, "a-b", LONG)
    make_skill(tmp_path, "c-d", READ_ALL, schema=WHICH)
    make_skill(tmp_path, "e-f", MATCH, schema=WHICH)
    async with Workers() as workers:
        with opened_run([tmp_path]) as ctx:
            long = await workers.run("a-b", {}, ctx)
            ref = long.metadata["truncated"]["ref"]
            whole = await workers.run("c-d", {"id": ref}, ctx)
            found = await workers.run("e-f", {"id": ref}, ctx)
            size = len(json.dumps(ctx.results[ref], ensure_ascii=False))

    assert len(json.dumps(long.output)) <= MAX_OUTPUT < size <= MAX_KEPT
    assert whole.output["got"] == whole.output["chars"]
    assert (whole.output["rows"], whole.output["last"]["n"]) == (900, 899)
    assert whole.output["parts"] > 10
    assert found.output["text"].strip() == '"t": "' + "00777" * 8 + '"'


async def test_a_result_that_is_not_there_names_those_that_are(tmp_path: Path) -> None:
    make_skill(tmp_path, "a-b")
    make_skill(tmp_path, "c-d", READ_ALL, schema=WHICH)
    async with Workers() as workers:
        with opened_run([tmp_path]) as ctx:
            await workers.run("a-b", {}, ctx)
            result = await workers.run("c-d", {"id": "R9"}, ctx)

    assert result.metadata["error"]["code"] == "precondition"
    assert result.metadata["error"]["detail"] == "there is no result 'R9'; there is: R1"
