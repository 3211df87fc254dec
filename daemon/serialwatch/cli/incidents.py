"""`serialwatch incidents`: list faults, and say that one is dealt with."""

from __future__ import annotations

import json
from collections.abc import Mapping
from datetime import datetime
from types import MappingProxyType

import click

from serialwatch.cli.client import Daemon, find_daemon
from serialwatch.cli.errors import CliError
from serialwatch.cli.not_on_disk import not_on_disk
from serialwatch.cli.options import PORT, Number, json_option, socket_option
from serialwatch.cli.tables import SEVERITY_STYLES, Column, Row, console, safe, say, table, width_of
from serialwatch.cli.times import clock, local_now, parse_span, parse_when
from serialwatch.records import SEVERITIES, Incident
from serialwatch.wire import Json, incident_from_json, iso

_NONE: Mapping[str, str] = MappingProxyType({})
_COLUMNS = (
    Column("ID", is_right=True),
    Column("WHEN"),
    Column("PORT"),
    Column("SEVERITY"),
    Column("WHAT", least=30),
    Column("COUNT", is_right=True, leaves=2),
    Column("BOOT", leaves=1),
    Column("STATE"),
)


@click.group(invoke_without_command=True)
@click.option("--port", type=PORT, help="Of one port only.")
@click.option("--all", "is_all", is_flag=True, help="Resolved ones too.")
@click.option("--severity", type=click.Choice(SEVERITIES), help="At least this severe.")
@click.option("--since", help="Opened since: 2h, yesterday, 03:58, 2026-06-22.")
@click.option(
    "-n",
    "limit",
    metavar="N",
    type=Number(1, 10_000),
    default=100,
    show_default=True,
    help="At most so many.",
)
@json_option
@socket_option
@click.pass_context
def incidents(
    ctx: click.Context,
    port: str | None,
    is_all: bool,
    severity: str | None,
    since: str | None,
    limit: int,
    as_json: bool,
    socket: str | None,
) -> None:
    """List the faults that were noticed, the newest first."""
    ctx.obj = socket
    if ctx.invoked_subcommand is not None:
        return
    wanted: dict[str, str | int | None] = {
        "port": port,
        "severity": severity,
        "limit": limit,
        "state": "all" if is_all else None,
        "since": _since(since),
    }
    daemon = find_daemon(socket)
    found = daemon.get("/v1/incidents", wanted)["incidents"]
    if as_json:
        click.echo(json.dumps(found, indent=2))
        return
    out = console()
    if not found:
        say(_nothing(is_all))
        return
    waiting = {str(row["incident"]): str(row["id"]) for row in _waiting(daemon)}
    now = local_now()
    rows = [incident_row(incident_from_json(body), now, body, waiting) for body in found]
    for line in table(_COLUMNS, rows, width_of(out)):
        out.print(line)


@incidents.command()
@click.argument("incident", type=Number(min=1), metavar="ID")
@json_option
@socket_option
@click.pass_obj
def resolve(outer: str | None, incident: int, as_json: bool, socket: str | None) -> None:
    """Say that an incident is dealt with."""
    body = find_daemon(socket or outer).post(f"/v1/incidents/{incident}/resolve")
    _tell(body, as_json, f"incident {incident} is resolved")


@incidents.command(short_help="Let this fault count silently.")
@click.argument("incident", type=Number(min=1), metavar="ID")
@click.option("--for", "span", metavar="TIME", help="30m, 2h, 1d; else until unmuted.")
@json_option
@socket_option
@click.pass_obj
def mute(
    outer: str | None, incident: int, span: str | None, as_json: bool, socket: str | None
) -> None:
    """Let this fault count silently: it neither wakes the agent nor notifies."""
    try:
        for_s = None if span is None else parse_span(span)
    except ValueError as exc:
        raise click.UsageError(f"--for: {exc}") from exc
    body = find_daemon(socket or outer).post(f"/v1/incidents/{incident}/mute", {"for_s": for_s})
    until = f"for {span}" if span else f"until `serialwatch incidents unmute {incident}`"
    _tell(body, as_json, f"the fault of incident {incident} is muted {until}")


@incidents.command()
@click.argument("incident", type=Number(min=1), metavar="ID")
@json_option
@socket_option
@click.pass_obj
def unmute(outer: str | None, incident: int, as_json: bool, socket: str | None) -> None:
    """Undo `mute`."""
    body = find_daemon(socket or outer).post(f"/v1/incidents/{incident}/unmute")
    _tell(body, as_json, f"the fault of incident {incident} is no longer muted")


def incident_row(
    incident: Incident, now: datetime, body: Json, waiting: Mapping[str, str] = _NONE
) -> Row:
    """Return a row of the table; `waiting` has an action for a person to decide, by incident."""
    cells = (
        str(incident.id),
        clock(incident.fault_utc_ns, now),
        incident.port,
        incident.severity,
        safe(incident.title),
        str(incident.count),
        f"#{incident.boot}" if incident.boot else "-",
        incident.state,
    )
    notes = [] if body.get("on_disk", True) else ["not on disk yet"]
    if action := waiting.get(str(incident.id)):
        notes.append(f"an action waits for you: `serialwatch approvals show {safe(action)}`")
    return Row(cells, "; ".join(notes), ("", "", "", SEVERITY_STYLES[incident.severity]))


def _waiting(daemon: Daemon) -> list[Json]:
    try:
        found = daemon.get("/v1/approvals", {"state": "pending"})["approvals"]
    except CliError:  # an older daemon
        return []
    return list(found)


def _since(since: str | None) -> str | None:
    if since is None:
        return None
    try:
        return iso(parse_when(since, local_now()))
    except ValueError as exc:
        raise click.UsageError(f"--since: {exc}") from exc


def _nothing(is_all: bool) -> str:
    if is_all:
        return "no incidents yet: a fault on a watched port opens one"
    return "no open incidents; `serialwatch incidents --all` lists resolved ones"


def _tell(body: Json, as_json: bool, words: str) -> None:
    click.echo(json.dumps(body, indent=2) if as_json else f"{words}{not_on_disk(body)}")
