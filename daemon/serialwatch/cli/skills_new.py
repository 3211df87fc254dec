"""`serialwatch skills new`: a folder to begin with, that lints clean and whose test passes."""

from __future__ import annotations

import json
import re
from pathlib import Path

import click

from serialwatch.agent.skills.folder import MAX_NAME
from serialwatch.agent.skills.lint import lint_skills
from serialwatch.bundled import SYSTEM_DIR, search_path
from serialwatch.cli.errors import FAULT, WRONG_USE, CliError
from serialwatch.cli.options import json_option
from serialwatch.cli.tables import safe

_NAME = re.compile(r"[a-z0-9]+(?:-[a-z0-9]+)+")

_SKILL_MD = """\
---
name: {name}
description: >-
  Finds the lines of a port's log that hold some words, and counts them. Use when {domain} trouble
  is suspected. Do NOT use to read a range of the log (use log-read).
license: Apache-2.0
compatibility: Requires serialwatch
allowed-tools: log.lines
metadata:
  serialwatch-api: "1"
  version: "0.1.0"
  namespace: {domain}
  tags: "{domain}"
  risk: L1
  timeout-s: "5"
  idempotent: "true"
  params: schema.json
  roles: "log-detective bench-assistant"
  when: "tag in ({domain})"
  when-not: "reading a range"
---

# {title}

`lines` are the newest lines that hold the words, oldest first, each with its number `seq` to cite.
`count` says how many came. `no_data: true`: searched, nothing there.

## If it fails

- `invalid_args`: give `words` as they stand in the log; a regular expression is none.
- `precondition`: the port has no log: look at another port.
- `timeout`: ask for fewer lines with `limit`.
"""

_SCHEMA = """\
{
  "$schema": "https://json-schema.org/draft/2020-12/schema",
  "type": "object",
  "additionalProperties": false,
  "properties": {
    "words": {
      "description": "What a line must hold; `|` between alternatives.",
      "type": "string", "minLength": 2, "maxLength": 200,
      "examples": ["timeout|failed"]
    },
    "limit": {
      "description": "Lines at most.",
      "type": "integer", "minimum": 1, "maximum": 100, "default": 20,
      "examples": [20]
    }
  },
  "required": ["words"],
  "examples": [{"words": "timeout|failed"}, {"words": "reset", "limit": 5}]
}
"""

_MAIN = '''\
"""Find lines of a log by their words."""

from __future__ import annotations

from typing import Any

from serialwatch.records import SkillContext, SkillResult


async def run(ctx: SkillContext, params: dict[str, Any]) -> SkillResult:
    """Return the newest lines that hold the words."""
    found = await ctx.log.lines(match=params["words"], limit=params["limit"])
    lines = found["lines"]
    return SkillResult(
        "success",
        {"port": found["port"], "count": len(lines), "lines": lines, "no_data": not lines},
        metadata={"no_data": not lines, "summary": f"{len(lines)} lines"},
    )
'''

_CASES = """\
{"cases": [
  {"name": "finds a line",
   "log": ["start", "mmc0: timeout waiting for the card", "end"],
   "args": {"words": "timeout"},
   "expect": {"status": "success", "no_data": false,
              "contains": {"/count": 1, "/lines/0/text": "mmc0"}}},
  {"name": "nothing there",
   "log": ["start", "end"],
   "args": {"words": "timeout"},
   "expect": {"status": "success", "no_data": true}}
]}
"""


@click.command("new", short_help="Begin a skill.")
@click.argument("name")
@click.option(
    "--dir",
    "root",
    type=click.Path(path_type=Path, file_okay=False),
    metavar="DIR",
    help="Where its folder goes; else your own skills folder.",
)
@json_option
def new_skill(name: str, root: Path | None, as_json: bool) -> int:
    """Make a folder for the skill NAME (`<domain>-<action>`): one that works, to be changed.

    docs/skills.md says how a skill is written.
    """
    if not _NAME.fullmatch(name) or len(name) > MAX_NAME:
        raise CliError(
            f"{safe(name)!r}: a skill is <domain>-<action>, such as uart-triage: a-z, 0-9 and "
            f"single hyphens, at most {MAX_NAME} characters",
            WRONG_USE,
        )
    folder = (root or search_path("skills")[-2]) / name
    if folder.exists():
        raise CliError(f"{safe(folder)}: is there already: take another name or --dir", WRONG_USE)
    try:
        _write(folder, name)
    except OSError as exc:
        words = f"{safe(folder)}: cannot be made: {exc.strerror} (is --dir yours?)"
        raise CliError(words) from exc
    findings = [f for f in lint_skills([folder.parent]) if f.path.is_relative_to(folder.resolve())]
    hides = next((d for d in search_path("skills") if (d / name / "SKILL.md").is_file()
                  and d.resolve() != folder.parent.resolve()), None)  # fmt: skip
    if as_json:
        told = {"folder": str(folder), "hides": str(hides / name) if hides else ""}
        click.echo(json.dumps({**told, "findings": [f.text for f in findings]}, indent=2))
    else:
        click.echo(f"{safe(folder)}: made; now change it, then\n")
        for verb in ("lint --strict", "test", "run"):
            more = """ --args '{"words": "timeout"}' --log FILE""" if verb == "run" else ""
            click.echo(f"  serialwatch skills {verb} {safe(folder)}{more}")
        if root is None:
            click.echo(
                "\nyour own daemon finds it there; for the system's an administrator copies it to "
                f"{SYSTEM_DIR / 'skills'}"
            )
        if hides:
            click.echo(
                f"\nit is a second version of {safe(hides / name)}; docs/skills.md, Versions"
            )
    return FAULT if findings else 0


def _write(folder: Path, name: str) -> None:
    domain, _, action = name.partition("-")
    title = f"{domain} {action.replace('-', ' ')}".capitalize()
    (folder / "evals").mkdir(parents=True)
    text = _SKILL_MD.format(name=name, domain=domain, title=title)
    (folder / "SKILL.md").write_text(text)
    (folder / "schema.json").write_text(_SCHEMA)
    (folder / "main.py").write_text(_MAIN)
    (folder / "evals" / "evals.json").write_text(_CASES)
