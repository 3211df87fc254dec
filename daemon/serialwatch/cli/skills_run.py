"""`serialwatch skills run|test`: a skill at work in its sandbox, without a daemon."""

from __future__ import annotations

import asyncio
import contextlib
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import click

from serialwatch.agent.archive import Archive, logs_below
from serialwatch.agent.skills.evals import Case, EvalsError, read_cases
from serialwatch.agent.skills.registry import Registry
from serialwatch.agent.skills.skill import Skill
from serialwatch.cli.errors import FAULT, WRONG_USE, CliError, tell
from serialwatch.cli.options import json_option
from serialwatch.cli.rules_load import load_installed, matcher_of
from serialwatch.cli.skills_load import config_option, installed, one_of, read_config
from serialwatch.cli.tables import safe
from serialwatch.config import Config, state_dir
from serialwatch.records import Line
from serialwatch.saved.log import open_log
from serialwatch.saved.skill_trial import PORT, SkillTrials, Trial, lines_of
from serialwatch.triggers.matcher import Matcher
from serialwatch.wire import Json

MAX_LOG = 64_000_000  # bytes of a log: its lines are kept in memory


@click.command("run", short_help="Run one skill on a saved log or a state folder.")
@click.argument("name")
@click.option("--args", "args_json", default="{}", metavar="JSON", help="Its parameters.")
@click.option("--log", "log_path", type=click.Path(path_type=Path, dir_okay=False, exists=True),
              metavar="FILE", help="A saved log, as the log of the port.")  # fmt: skip
@click.option("--port", metavar="PORT", help=f"The port; {PORT} with --log.")
@click.option("--state", type=click.Path(path_type=Path, file_okay=False), metavar="DIR",
              help="The daemon's state folder; else where the configuration says.")  # fmt: skip
@config_option
@json_option
def run_skill(
    name: str,
    args_json: str,
    log_path: Path | None,
    port: str | None,
    state: Path | None,
    config_path: Path | None,
    as_json: bool,
) -> int:
    """Run the skill NAME, or the one in the folder NAME, and print what the model would get.

    It runs in a real worker with its sandbox. What it writes is shown and goes nowhere; of a skill
    that acts on a board (L3) you see what it would propose. It exits with 1 if the skill fails.
    """
    if log_path is not None and state is not None:
        raise click.UsageError("--log and --state exclude each other")
    config = read_config(config_path)
    registry, name = one_of(config, name)
    args = _args(args_json, registry.skills[name])
    if log_path is not None:
        port = port or PORT
        lines = _lines(log_path, port)
        trial = asyncio.run(_run(registry, config, name, args, lines, port))
    else:
        past = _state(config, state, port or "") if port or state else ()
        trial = asyncio.run(_run(registry, config, name, args, past, port or ""))
    if as_json:
        click.echo(json.dumps(_as_json(trial), indent=2, ensure_ascii=False))
    else:
        click.echo(trial.as_shown)
        for written in trial.wrote:
            body = json.dumps(written["body"], indent=1, ensure_ascii=False)
            verb = "propose" if written["what"] == "action" else "write"
            click.echo(f"would {verb} ({written['what']}): {safe(body)}")
    return FAULT if trial.call.result.status == "failure" else 0


async def _run(
    registry: Registry,
    config: Config,
    name: str,
    args: Mapping[str, Any],
    past: Archive | Sequence[Line],
    port: str,
) -> Trial:
    elfs = {key: about.elf for key, about in config.port.items() if about.elf}
    async with SkillTrials(registry, elfs=elfs) as trials:
        archive = past if isinstance(past, Archive) else trials.archive_of(past, port)
        try:
            return await trials.call(name, args, archive, port)
        finally:
            archive.close()


def _as_json(trial: Trial) -> Json:
    result = trial.call.result
    return {
        "status": result.status,
        "output": result.output,
        "new_memories": list(result.new_memories),
        "metadata": result.metadata,
        "wrote": trial.wrote,
    }


def _args(text: str, skill: Skill) -> dict[str, Any]:
    try:
        args = json.loads(text)
    except (ValueError, RecursionError) as exc:
        raise CliError(f"--args: no JSON: {exc}{_example(skill)}", WRONG_USE) from exc
    if not isinstance(args, dict):
        raise CliError(f"--args: must be a JSON object{_example(skill)}", WRONG_USE)
    return args


def _example(skill: Skill) -> str:
    example = skill.example()
    return f"; for example {json.dumps(example)}" if example is not None else ""


def _lines(path: Path, port: str) -> list[Line]:
    try:
        with open_log(path) as log:
            data = log.read(MAX_LOG + 1)
    except OSError as exc:
        raise CliError(f"{safe(path)}: cannot be read: {exc.strerror or exc}") from exc
    if len(data) > MAX_LOG:
        raise CliError(f"{safe(path)}: larger than {MAX_LOG // 1_000_000} MB: cut it first")
    return lines_of(data, _matcher(), port)


def _state(config: Config, state: Path | None, port: str) -> Archive:
    folder = state or state_dir(config)
    logs = folder / "log"
    there = sorted(each.name for each in logs.glob("*/"))
    if not folder.is_dir() or (port and port not in there):
        known = f"there are {', '.join(map(safe, there))}" if there else "there is no log at all"
        raise CliError(f"{safe(logs)}: no log of port {safe(port)!r}: {known}")
    return Archive(logs_below(logs), folder / "serialwatch.db")


def _matcher() -> Matcher:
    return matcher_of(load_installed())


@dataclass(frozen=True, slots=True)
class _Outcome:
    skill: str
    case: str
    problems: tuple[str, ...]


@click.command("test", short_help="Run the test cases that skills bring along.")
@click.argument("names", nargs=-1)
@config_option
@json_option
def test_skills(names: tuple[str, ...], config_path: Path | None, as_json: bool) -> int:
    """Run evals/evals.json of the skills NAMES (or folders), else of all that are installed.

    It exits with 1 if a case fails.
    """
    config = read_config(config_path)
    wanted = [one_of(config, name) for name in dict.fromkeys(names)]
    if not wanted:
        registry = installed(config)
        wanted = [(registry, name) for name in sorted(registry.skills)]
    outcomes, without = asyncio.run(_test(wanted))
    failed = [outcome for outcome in outcomes if outcome.problems]
    if as_json:
        rows = [
            {"skill": o.skill, "case": o.case, "ok": not o.problems, "problems": list(o.problems)}
            for o in outcomes
        ]
        click.echo(json.dumps({"cases": rows, "without": without}, indent=2, ensure_ascii=False))
        return FAULT if failed else 0
    for outcome in outcomes:
        click.echo(
            f"{'FAIL' if outcome.problems else 'ok  '} {outcome.skill}: {safe(outcome.case)}"
        )
        for problem in outcome.problems:
            click.echo(f"       {safe(problem)}")
    for name in without:
        tell(f"{name}: no test cases: add evals/evals.json")
    click.echo(f"{len(outcomes) - len(failed)} of {len(outcomes)} cases passed")
    return FAULT if failed else 0


async def _test(wanted: Sequence[tuple[Registry, str]]) -> tuple[list[_Outcome], list[str]]:
    outcomes: list[_Outcome] = []
    without: list[str] = []
    matcher: Matcher | None = None
    async with contextlib.AsyncExitStack() as opened:
        of_registry: dict[int, SkillTrials] = {}
        for registry, name in wanted:
            skill = registry.skills[name]
            try:
                cases = read_cases(skill.folder)
            except EvalsError as exc:
                outcomes.append(_Outcome(name, "evals.json", (exc.problem,)))
                continue
            if not cases and skill.has_main:
                without.append(name)
            if matcher is None and any(case.log for case in cases):
                matcher = _matcher()
            if (trials := of_registry.get(id(registry))) is None:
                trials = await opened.enter_async_context(SkillTrials(registry))
                of_registry[id(registry)] = trials
            for case in cases:
                problems = await _problems(trials, name, case, matcher)
                outcomes.append(_Outcome(name, case.name, problems))
    return outcomes, without


async def _problems(
    trials: SkillTrials, name: str, case: Case, matcher: Matcher | None
) -> tuple[str, ...]:
    lines = lines_of(case.log, matcher) if matcher is not None and case.log else []
    archive = trials.archive_of(lines)
    try:
        trial = await trials.call(name, case.args, archive, PORT)
    finally:
        archive.close()
    return tuple(case.problems(trial.call.result))
