"""Skill folders for tests."""

from __future__ import annotations

import json
import textwrap
from collections.abc import Mapping
from pathlib import Path
from typing import Any

DESCRIPTION = "Does something. Use when a test wants it. Do NOT use elsewhere."
FAILS = "\n## If it fails\n\n- `denied`: go on without.\n"
CASES = {"cases": [{"name": "runs", "expect": {"status": "success"}}]}
NO_PARAMS: Mapping[str, Any] = {"type": "object", "additionalProperties": False, "properties": {}}


def make_skill(
    root: Path,
    name: str,
    run: str = "return SkillResult('success', {})",
    *,
    schema: Mapping[str, Any] = NO_PARAMS,
    head: str = "",
    **metadata: str,
) -> Path:
    """Write a skill whose `run` has these statements; `metadata` keys are given with `_`."""
    about = {"serialwatch-api": "1", "version": "1.0.0", "risk": "L1", "idempotent": "true",
             "timeout-s": "5", "params-why": "a test needs no more"}  # fmt: skip
    about |= {key.replace("_", "-"): value for key, value in metadata.items()}
    lines = "\n".join(f"  {key}: {json.dumps(value)}" for key, value in about.items())
    folder = root / name
    folder.mkdir(parents=True)
    (folder / "SKILL.md").write_text(
        f"---\nname: {name}\ndescription: {DESCRIPTION}\n{head}metadata:\n{lines}\n---\n\nText.\n{FAILS}"
    )
    (folder / "schema.json").write_text(json.dumps(schema))
    (folder / "evals").mkdir()
    (folder / "evals" / "evals.json").write_text(json.dumps(CASES))
    (folder / "main.py").write_text(
        "import asyncio\nimport os\n\nfrom serialwatch.records import SkillResult\n\n\n"
        "async def run(ctx, params):\n"
        + textwrap.indent(textwrap.dedent(run).strip(), "    ")
        + "\n"
    )
    return folder
