"""`serialwatch approvals`: what the agent wants to do to a board, and a person's word on it."""

from __future__ import annotations

import json
import time

import click

from serialwatch.cli.approval_ids import APPROVAL, one_approval
from serialwatch.cli.client import Daemon, find_daemon, part
from serialwatch.cli.errors import FAULT, tell
from serialwatch.cli.options import PORT, ListGroup, Number, json_option, socket_option
from serialwatch.cli.show_approval import approval_lines, approvals_table
from serialwatch.cli.tables import console, safe, say, width_of
from serialwatch.cli.times import local_now
from serialwatch.wire import Json

DONE_S = 100.0  # the agent has 90
LOOK_S = 0.1
ID_LENGTH = 4


@click.group(cls=ListGroup)
def approvals() -> None:
    """Decide on actions that the agent proposes: to send to a board, or to reset it.

    Nothing is sent before somebody who may write to ports approves it here; then exactly that is
    done, once. What nobody decides within 15 minutes is expired.
    """


@approvals.command("list", short_help="Actions that wait for a person.")
@click.option("--all", "is_all", is_flag=True, help="Those that are over, too.")
@click.option("--port", type=PORT, help="For one port only.")
@click.option("--incident", type=Number(min=1), metavar="ID", help="About one incident only.")
@json_option
@socket_option
def list_approvals(
    is_all: bool = False,
    port: str | None = None,
    incident: int | None = None,
    as_json: bool = False,
    socket: str | None = None,
) -> None:
    """List actions, the newest first."""
    wanted = {"port": port, "incident": incident, "state": "all" if is_all else None}
    found = find_daemon(socket).get("/v1/approvals", wanted)["approvals"]
    if as_json:
        click.echo(json.dumps(found, indent=2))
        return
    out = console()
    if not found:
        say(
            "no action was proposed yet: the agent proposes one where a report needs it"
            if is_all
            else "no action waits for a person; `serialwatch approvals list --all` lists the others"
        )
        return
    for line in approvals_table(found, local_now(), width_of(out)):
        out.print(line)


@approvals.command(short_help="One action: its exact effect, and why.")
@click.argument("approval", metavar="ID", type=APPROVAL)
@json_option
@socket_option
def show(approval: str, as_json: bool, socket: str | None) -> None:
    """Show exactly what an action would do, byte for byte, and what is known around it."""
    daemon = find_daemon(socket)
    body = daemon.get(f"/v1/approvals/{part(_whole_id(approval, daemon))}")
    if as_json:
        click.echo(json.dumps(body, indent=2))
        return
    _print(body)


@approvals.command(short_help="Let an action be done, once.")
@click.argument("approval", metavar="ID", type=APPROVAL)
@click.option("-m", "note", default="", metavar="WORDS", help="A note, kept with it.")
@json_option
@socket_option
def approve(approval: str, note: str, as_json: bool, socket: str | None) -> int:
    """Approve an action; it is done at once, and what came of it is told."""
    daemon, whole = find_daemon(socket), approval.upper()
    if len(whole) < ID_LENGTH:  # what begins so now may not be what was shown
        raise click.UsageError(f"{approval}: to approve takes the whole ID of what `show` shows")
    stands = "may be approved by now; then it"
    try:
        body = _decided(daemon, whole, "approve", note)
        stands = "is approved and"
        end_s = time.monotonic() + DONE_S
        while body["state"] in ("approved", "executing") and time.monotonic() < end_s:
            time.sleep(LOOK_S)
            body = daemon.get(f"/v1/approvals/{part(whole)}")
    except KeyboardInterrupt:
        tell(
            f"{whole} {stands} will be done all the same; while nothing of it is done yet, "
            f"`serialwatch approvals deny {whole}` takes it back"
        )
        raise
    if as_json:
        click.echo(json.dumps(body, indent=2))
    else:
        click.echo(f"{safe(body['id'])} {safe(body['state'])}: {safe(body['result'])}")
    return 0 if body["state"] == "done" else FAULT


@approvals.command(short_help="Refuse an action.")
@click.argument("approval", metavar="ID", type=APPROVAL)
@click.option("-m", "note", default="", metavar="WORDS", help="Why; the agent is told.")
@json_option
@socket_option
def deny(approval: str, note: str, as_json: bool, socket: str | None) -> None:
    """Refuse an action; nothing is sent. What was approved is taken back if none of it is done."""
    daemon = find_daemon(socket)
    body = _decided(daemon, _whole_id(approval, daemon), "deny", note)
    if as_json:
        click.echo(json.dumps(body, indent=2))
        return
    is_late = body["state"] != "denied"  # somebody had approved it
    click.echo(f"{safe(body['id'])} {'taken back' if is_late else 'denied'}: nothing was sent")


def _decided(daemon: Daemon, whole_id: str, decision: str, note: str) -> Json:
    return daemon.post(f"/v1/approvals/{part(whole_id)}", {"decision": decision, "note": note})


def _whole_id(approval: str, daemon: Daemon) -> str:
    if len(approval) >= ID_LENGTH:
        return approval.upper()
    found = daemon.get("/v1/approvals", {"state": "all", "limit": 1000})["approvals"]
    return one_approval(approval, found)


def _print(body: Json) -> None:
    out = console()
    for line in approval_lines(body, local_now(), width_of(out)):
        out.print(line)
