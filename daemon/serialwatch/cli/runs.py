"""`serialwatch runs`: what the agent did, step by step, and answers to what it asks."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar

import click

from serialwatch.cli.client import find_daemon, part
from serialwatch.cli.errors import FAULT, CliError
from serialwatch.cli.options import PORT, ListGroup, Number, json_option, socket_option
from serialwatch.cli.run_ids import no_run, one_id
from serialwatch.cli.show_run import run_lines, run_row, runs_table
from serialwatch.cli.tables import console, safe, say, width_of
from serialwatch.cli.times import local_now
from serialwatch.store.database import Job, StoreError
from serialwatch.store.read import read_once
from serialwatch.store.run_json import exported, read_run, read_runs
from serialwatch.wire import Json

F = TypeVar("F", bound=Callable[..., Any])
T = TypeVar("T")


def _state_option(command: F) -> F:
    return click.option(
        "--state",
        type=click.Path(path_type=Path, file_okay=False),
        metavar="DIR",
        help="Read the database in this state folder; no daemon is needed.",
    )(command)


@click.group(cls=ListGroup)
def runs() -> None:
    """Show what the agent did: each run with its rounds, skill calls and results.

    A run has one id, in the journal, in the API and in the database. An incident has a run of the
    offline analyst for each of its phases, and one of a model if there is any.
    """


@runs.command("list", short_help="Runs, the newest first.")
@click.option("--port", type=PORT, default="", help="Of one port only.")
@click.option("--incident", type=Number(min=1), metavar="ID", help="Of one incident only.")
@click.option(
    "-n",
    "limit",
    metavar="N",
    type=Number(1, 1000),
    default=30,
    show_default=True,
    help="At most so many.",
)
@_state_option
@json_option
@socket_option
def list_runs(
    port: str = "",
    incident: int | None = None,
    limit: int = 30,
    state: Path | None = None,
    as_json: bool = False,
    socket: str | None = None,
) -> None:
    """List runs: whose they are, how they ended, and what they took."""
    if state is not None:
        found = _read(state, lambda db: read_runs(db, incident_id=incident, port=port, limit=limit))
    else:
        wanted = {"port": port or None, "incident": incident, "limit": limit}
        found = find_daemon(socket).get("/v1/runs", wanted)["runs"]
    if as_json:
        click.echo(json.dumps(found, indent=2))
        return
    out = console()
    if not found:
        of = f" of incident {incident}" if incident else f" of port {safe(port)}" if port else ""
        say(f"no runs{of} yet: an incident or a question (`serialwatch ask`) makes one")
        return
    now = local_now()
    for line in runs_table([run_row(run, now) for run in found], width_of(out)):
        out.print(line)


@runs.command(short_help="One run: plan, rounds, calls, results, rejections.")
@click.argument("run_id", metavar="RUN")
@click.option("--prompts", is_flag=True, help="The messages too, as they were sent.")
@_state_option
@json_option
@socket_option
def show(run_id: str, prompts: bool, state: Path | None, as_json: bool, socket: str | None) -> None:
    """Show a run step by step; its id, or as much of its beginning as is clear.

    In prompts, lines behind the run's mark were printed by a device; secrets were hidden before
    they were sent, and are hidden here.
    """
    body = _run(run_id, state, socket)
    if as_json:
        if not prompts:
            body = {**body, "messages": []}
        click.echo(json.dumps(body, indent=2))
        return
    out = console()
    for line in run_lines(body, local_now(), width_of(out), with_prompts=prompts):
        out.print(line)


@runs.command(short_help="Answer what a run asks; it goes on then.")
@click.argument("run_id", metavar="RUN")
@click.argument("text")
@json_option
@socket_option
def answer(run_id: str, text: str, as_json: bool, socket: str | None) -> None:
    """Give the answer for which a run waits (`runs list` shows its question)."""
    if not text.strip():
        raise click.UsageError('TEXT is empty: write the answer in quotes, e.g. "it was unplugged"')
    daemon = find_daemon(socket)
    body = daemon.post(f"/v1/runs/{part(_whole_id(run_id, None, socket))}/answer", {"text": text})
    if as_json:
        click.echo(json.dumps(body, indent=2))
        return
    click.echo(f"answered: {safe(body['question'])}")
    click.echo(f"run {safe(body['run'])} goes on: `serialwatch runs show {safe(body['run'])}`")


@runs.command(short_help="A whole run as JSON, for a file.")
@click.argument("run_id", metavar="RUN")
@_state_option
@click.option("--json", "is_short", is_flag=True, help="Print it on one line.")
@socket_option
def export(run_id: str, state: Path | None, is_short: bool, socket: str | None) -> None:
    """Print all of a run as one JSON object, for a file: `runs export RUN > run.json`.

    Messages stand once each under their hash, and rounds name them; results have hashes as well.
    Passwords, keys and the like are hidden in all of it, as they were from the model.
    """
    # Imported late: only this command needs the configuration and the secrets' shapes.
    from serialwatch.agent.models.redaction import Redactor
    from serialwatch.cli.skills_load import read_config

    body = _run(run_id, state, socket)
    hide = Redactor(read_config(None).agent.redact_patterns).hide_all
    messages = body.pop("messages")  # hidden already, when they were sent
    whole = exported({**hide(body), "messages": messages})
    click.echo(json.dumps(whole, indent=None if is_short else 1))


@runs.command(short_help="Play a run again and tell the first difference.")
@click.argument("run_id", metavar="RUN")
@click.option(
    "--mode",
    type=click.Choice(["strict", "skills"]),
    default="strict",
    show_default=True,
    help="strict: build each prompt again and compare; skills: run each skill again.",
)
@click.option(
    "--state",
    type=click.Path(path_type=Path, file_okay=False),
    metavar="DIR",
    help="The daemon's state folder; else where the configuration says.",
)
@click.option(
    "-c",
    "--config",
    "config_path",
    type=click.Path(path_type=Path),
    metavar="FILE",
    help="The configuration; else the system's, if there is one.",
)
@json_option
def replay(
    run_id: str, mode: str, state: Path | None, config_path: Path | None, as_json: bool
) -> int:
    """Play a run again from what is stored, on this PC; no model is asked.

    With `strict` the recorded answers and results go in, and each prompt must come out as it was.
    With `skills` the recorded calls run once more on the stored log. It exits with 1 where
    something differs.
    """
    # Imported late: the loop and the client behind it take a second.
    from serialwatch.cli.runs_replay import skills_again, strictly

    done = (strictly if mode == "strict" else skills_again)(run_id, state, config_path)
    if as_json:
        click.echo(json.dumps(done.body, indent=2))
    else:
        for line in done.lines:
            click.echo(line)
    return 0 if done.is_same else FAULT


def _run(run_id: str, state: Path | None, socket: str | None) -> Json:
    whole = _whole_id(run_id, state, socket)
    if state is None:
        return find_daemon(socket).get(f"/v1/runs/{part(whole)}")
    body = _read(state, lambda db: read_run(db, whole))
    if body is None:
        raise no_run(run_id)
    return body


def _whole_id(run_id: str, state: Path | None, socket: str | None) -> str:
    """Return the id that begins so; what is clear need not be typed."""
    if len(run_id) >= 12:
        return run_id
    if state is not None:
        found = _read(state, lambda db: read_runs(db, limit=1000))
    else:
        found = find_daemon(socket).get("/v1/runs", {"limit": 1000})["runs"]
    return one_id(run_id, [str(run["id"]) for run in found])


def _read(state: Path, job: Job[T]) -> T:
    try:
        return read_once(state / "serialwatch.db", job)
    except StoreError as exc:
        raise CliError(str(exc)) from exc
