"""`serialwatch report`: what was found out about an incident."""

from __future__ import annotations

import json

import click

from serialwatch.cli.client import Daemon, find_daemon
from serialwatch.cli.errors import CliError
from serialwatch.cli.options import Number, json_option, socket_option
from serialwatch.cli.show_report import About, Earlier, report_lines, report_markdown
from serialwatch.cli.tables import console, width_of
from serialwatch.cli.times import local_now
from serialwatch.wire import Json, incident_from_json, report_from_json, utc_ns

_NAMED = 5  # earlier incidents that are told with port and day


@click.command()
@click.argument("incident", type=Number(min=1), metavar="ID")
@click.option("--revision", type=Number(min=1), help="An earlier revision.")
@click.option("--markdown", is_flag=True, help="Print Markdown.")
@json_option
@socket_option
def report(
    incident: int, revision: int | None, markdown: bool, as_json: bool, socket: str | None
) -> None:
    """Show the report of an incident."""
    if markdown and as_json:
        raise click.UsageError("--markdown and --json exclude each other")
    daemon = find_daemon(socket)
    body = daemon.get(f"/v1/reports/{incident}", {"revision": revision})
    if as_json:
        click.echo(json.dumps(body, indent=2))
        return
    found = report_from_json(body)
    about = about_of(daemon, daemon.get(f"/v1/incidents/{incident}"))
    if markdown:
        click.echo(report_markdown(found, about, local_now()), nl=False)
        return
    out = console()
    for line in report_lines(found, about, local_now(), width_of(out)):
        out.print(line)


def about_of(daemon: Daemon, body: Json) -> About:
    """Return what is told of an incident beside its report."""
    incident = incident_from_json(body)
    started = body.get("boot_started_at")
    return About(
        port=incident.port,
        boot=incident.boot,
        opened_utc_ns=incident.opened_utc_ns,
        boot_started_utc_ns=utc_ns(started) if started else 0,
        outcome=incident.outcome,
        outcome_cause=incident.outcome_cause,
        seen_before=tuple(
            _earlier(daemon, earlier) if place < _NAMED else Earlier(earlier)
            for place, earlier in enumerate(incident.seen_before)
        ),
        is_on_disk=bool(body.get("on_disk", True)),
    )


def _earlier(daemon: Daemon, incident_id: int) -> Earlier:
    try:
        body = daemon.get(f"/v1/incidents/{incident_id}")
    except CliError:  # too old: no longer stored
        return Earlier(incident_id)
    incident = incident_from_json(body)
    return Earlier(incident_id, incident.port, incident.opened_utc_ns)
