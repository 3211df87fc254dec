"""`serialwatch report`: what was found out about an incident."""

from __future__ import annotations

import json

import click

from serialwatch.cli.client import Daemon, find_daemon
from serialwatch.cli.errors import CliError
from serialwatch.cli.log_source import DaemonLogs
from serialwatch.cli.options import Number, json_option, socket_option
from serialwatch.cli.report_context import Stretch, read_stretches, stretches
from serialwatch.cli.report_diff import diff_json, diff_lines
from serialwatch.cli.show_report import About, Earlier, report_lines, report_markdown
from serialwatch.cli.tables import console, say, width_of
from serialwatch.cli.times import local_now
from serialwatch.records import Report
from serialwatch.wire import Json, incident_from_json, report_from_json, utc_ns

MAX_REVISIONS = 50  # that are compared; the newest
_NAMED = 5  # earlier incidents that are told with port and day


@click.command()
@click.argument("incident", type=Number(min=1), metavar="ID")
@click.option("--revision", metavar="N", type=Number(min=1), help="An earlier revision.")
@click.option("--diff", "is_diff", is_flag=True, help="What each revision changed, or N did.")
@click.option(
    "--context",
    metavar="N",
    type=Number(0, 50),
    help="The cited lines too, with N lines before and after each.",
)
@click.option("--markdown", is_flag=True, help="Print Markdown, e.g. for an issue.")
@json_option
@socket_option
def report(
    incident: int,
    revision: int | None,
    is_diff: bool,
    context: int | None,
    markdown: bool,
    as_json: bool,
    socket: str | None,
) -> None:
    """Show the report of an incident.

    The first revision comes within a second of the fault; later ones when it has settled, when its
    outcome is known, and when a model has looked at it. --diff tells what each of them added.
    """
    if markdown and as_json:
        raise click.UsageError("--markdown and --json exclude each other")
    if is_diff and (markdown or context is not None):
        raise click.UsageError("--diff goes with --revision and --json only")
    daemon = find_daemon(socket)
    if is_diff:
        _show_diff(_revisions(daemon, incident, revision), as_json)
        return
    body = daemon.get(f"/v1/reports/{incident}", {"revision": revision})
    if as_json:
        click.echo(json.dumps(body, indent=2))
        return
    found = report_from_json(body)
    about = about_of(daemon, daemon.get(f"/v1/incidents/{incident}"))
    around: list[Stretch] = []
    if context is not None:
        around = read_stretches(stretches(found, context), DaemonLogs(daemon))
    if markdown:
        click.echo(report_markdown(found, about, local_now(), around), nl=False)
        return
    out = console()
    for line in report_lines(found, about, local_now(), width_of(out), around):
        out.print(line)


def _revisions(daemon: Daemon, incident: int, revision: int | None) -> list[Report]:
    """Return the reports to compare, in order."""
    newest = report_from_json(daemon.get(f"/v1/reports/{incident}", {"revision": revision}))
    first = max(1, newest.revision - 1) if revision else max(1, newest.revision - MAX_REVISIONS)
    earlier = [
        report_from_json(daemon.get(f"/v1/reports/{incident}", {"revision": number}))
        for number in range(first, newest.revision)
    ]
    return [*earlier, newest]


def _show_diff(reports: list[Report], as_json: bool) -> None:
    if as_json:
        click.echo(json.dumps(diff_json(reports), indent=2))
        return
    out = console()
    if len(reports) < 2:
        say(f"incident {reports[0].incident} has one revision: there is nothing to compare")
        return
    for line in diff_lines(reports, width_of(out)):
        out.print(line)


def about_of(daemon: Daemon, body: Json) -> About:
    """Return what is told of an incident beside its report."""
    incident = incident_from_json(body)
    started = body.get("boot_started_at")
    return About(
        port=incident.port,
        boot=incident.boot,
        fault_utc_ns=incident.fault_utc_ns,
        first_sign=incident.first_sign,
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
