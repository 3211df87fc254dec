"""`serialwatch memory`: what the bench remembers, why, and what a person has to say about it."""

from __future__ import annotations

import json
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar, get_args

import click

from serialwatch.cli.client import find_daemon
from serialwatch.cli.errors import CliError
from serialwatch.cli.options import PORT, ListGroup, Number, json_option, socket_option
from serialwatch.cli.show_memory import memory_row, memory_table, origin_lines, written_words
from serialwatch.cli.tables import console, safe, say, width_of
from serialwatch.cli.times import local_now
from serialwatch.store.database import Job, StoreError
from serialwatch.store.memory_find import find_memories, origin_to_json
from serialwatch.store.memory_gate import (
    MAX_LIST,
    MemoryFilter,
    MemoryScope,
    MemoryStatus,
    MemoryType,
)
from serialwatch.store.memory_origin import load_origin
from serialwatch.store.read import read_once
from serialwatch.wire import Json

F = TypeVar("F", bound=Callable[..., Any])
T = TypeVar("T")


class MemoryId(click.ParamType[int]):
    """A number of a memory, as 12 or M12."""

    name = "number"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> int:
        """Return it as a number."""
        digits = str(value).removeprefix("M").removeprefix("m")
        if not (digits.isascii() and digits.isdigit() and len(digits) < 19):
            self.fail(f"{value!r} is no memory: write its number, such as 12 or M12", param, ctx)
        return int(digits)


def _filter_options(command: F) -> F:
    for option in (
        click.option("--port", type=PORT, default="", help="What a run about this port would see."),
        click.option("--board", default="", help="What is known of a board."),
        click.option("--type", "kind", type=click.Choice(get_args(MemoryType)), help="Of a type."),
        click.option("--scope", type=click.Choice(get_args(MemoryScope)), help="Of a scope."),
        click.option(
            "--status",
            type=click.Choice([*get_args(MemoryStatus), "all"]),
            help="Else all but superseded ones.",
        ),
        click.option(
            "-n",
            "limit",
            metavar="N",
            type=Number(1, MAX_LIST),
            default=50,
            show_default=True,
            help="At most so many.",
        ),
    ):
        command = option(command)
    return command


_state_option = click.option(
    "--state",
    type=click.Path(path_type=Path, file_okay=False),
    metavar="DIR",
    help="Read the database in this state folder; no daemon is needed.",
)


@click.group(cls=ListGroup)
def memory() -> None:
    """What the bench remembers: what earlier incidents taught, and what people have said.

    A model's conclusions are unverified until a person or a second incident says the same.
    """


@memory.command("list", short_help="Memories, the weightiest first.")
@_filter_options
@_state_option
@json_option
@socket_option
def list_memories(
    port: str = "",
    board: str = "",
    kind: str | None = None,
    scope: str | None = None,
    status: str | None = None,
    limit: int = 50,
    state: Path | None = None,
    as_json: bool = False,
    socket: str | None = None,
) -> None:
    """List memories: what is known, where it holds, and who says so."""
    given = _given(port, board, kind, scope, status, limit)
    _show(_found("", given, state, socket), as_json, _nothing(given))


@memory.command(short_help="Memories that fit some words.")
@click.argument("words", nargs=-1, required=True)
@_filter_options
@_state_option
@json_option
@socket_option
def search(
    words: tuple[str, ...],
    port: str,
    board: str,
    kind: str | None,
    scope: str | None,
    status: str | None,
    limit: int,
    state: Path | None,
    as_json: bool,
    socket: str | None,
) -> None:
    """Search memories, the best fit first."""
    text = " ".join(words)
    found = _found(text, _given(port, board, kind, scope, status, limit), state, socket)
    _show(found, as_json, f"nothing is remembered about {safe(text)}: `serialwatch memory list`")


@memory.command(short_help="Let the bench remember something.")
@click.argument("text")
@click.option("--title", help="What it is about; else its beginning.")
@click.option("--port", type=PORT, help="It holds for this port; else for the bench.")
@click.option("--board", help="It holds for this board, whatever port it is on.")
@click.option("--mine", is_flag=True, help="It holds for your own questions only.")
@click.option(
    "--type",
    "kind",
    type=click.Choice(["fact", "preference"]),
    default="fact",
    show_default=True,
    help="What is so, or what you want.",
)
@click.option(
    "--priority",
    type=Number(0, 5),
    default=4,
    show_default=True,
    help="2: a month, 3: half a year, 4: for good, 5: told for every fault there.",
)
@json_option
@socket_option
def add(
    text: str,
    title: str | None,
    port: str | None,
    board: str | None,
    mine: bool,
    kind: str,
    priority: int,
    as_json: bool,
    socket: str | None,
) -> None:
    """Let the bench remember TEXT: `serialwatch memory add --port dut1 "its 5 V rail is weak"`."""
    if sum(map(bool, (port, board, mine))) > 1:
        raise click.UsageError("--port, --board and --mine exclude each other")
    body: dict[str, str | int | None]
    body = {"text": text, "title": title, "port": port, "board": board, "type": kind}
    body |= {"priority": priority, "scope": "user" if mine else None}
    given = {name: value for name, value in body.items() if value is not None}
    _tell(find_daemon(socket).post("/v1/memories", given), as_json)


@memory.command(short_help="Say what is so instead.")
@click.argument("number", type=MemoryId(), metavar="ID")
@click.argument("text")
@json_option
@socket_option
def correct(number: int, text: str, as_json: bool, socket: str | None) -> None:
    """Let TEXT take the place of a memory; the next incident of the kind begins with it."""
    body = find_daemon(socket).post(f"/v1/memories/{number}/correct", {"text": text})
    _tell(body, as_json)


@memory.command(short_help="Delete a memory.")
@click.argument("number", type=MemoryId(), metavar="ID")
@json_option
@socket_option
def forget(number: int, as_json: bool, socket: str | None) -> None:
    """Delete a memory; what it was stays in the audit."""
    body = find_daemon(socket).post(f"/v1/memories/{number}/forget")
    if as_json:
        click.echo(json.dumps(body, indent=2))
        return
    click.echo(f"M{number} is forgotten: {safe(body['title'])}")


@memory.command(short_help="Where a memory comes from, and where it was used.")
@click.argument("number", type=MemoryId(), metavar="ID")
@_state_option
@json_option
@socket_option
def why(number: int, state: Path | None, as_json: bool, socket: str | None) -> None:
    """Show where a memory comes from: its lines, incidents, skills, relations and uses."""
    body: Json | None
    if state is None:
        body = find_daemon(socket).get(f"/v1/memories/{number}")
    else:
        origin = _read(state, lambda db: load_origin(db, number))
        body = None if origin is None else origin_to_json(origin, state / "log")
    if body is None:
        raise CliError(f"no memory '{number}': `serialwatch memory list --state DIR` lists them")
    if as_json:
        click.echo(json.dumps(body, indent=2))
        return
    out = console()
    for line in origin_lines(body, local_now(), width_of(out)):
        out.print(line)


def _given(
    port: str, board: str, kind: str | None, scope: str | None, status: str | None, limit: int
) -> MemoryFilter:
    return MemoryFilter(port, kind or "", scope or "", status or "", limit, board)  # type: ignore[arg-type]  # click has checked


def _found(words: str, given: MemoryFilter, state: Path | None, socket: str | None) -> list[Json]:
    if state is not None:
        return _read(state, lambda db: find_memories(db, words, given, time.time_ns()))
    wanted = {
        "q": words or None,
        "port": given.port or None,
        "board": given.board or None,
        "type": given.type or None,
        "scope": given.scope or None,
        "status": given.status or None,
        "limit": given.limit,
    }
    found: list[Json] = find_daemon(socket).get("/v1/memories", wanted)["memories"]
    return found


def _read(state: Path, job: Job[T]) -> T:
    try:
        return read_once(state / "serialwatch.db", job)
    except StoreError as exc:
        raise CliError(str(exc)) from exc


def _show(found: list[Json], as_json: bool, nothing: str) -> None:
    if as_json:
        click.echo(json.dumps(found, indent=2))
        return
    out = console()
    if not found:
        say(nothing)
        return
    now = local_now()
    for line in memory_table([memory_row(body, now) for body in found], width_of(out)):
        out.print(line)


def _nothing(given: MemoryFilter) -> str:
    if given.port or given.board or given.type or given.scope or given.status:
        return "no such memories; `serialwatch memory list` has the others"
    return (
        "nothing is remembered yet: an incident that has settled leaves its conclusion here, "
        'and so does `serialwatch memory add "..."`'
    )


def _tell(body: Json, as_json: bool) -> None:
    click.echo(json.dumps(body, indent=2) if as_json else written_words(body))
