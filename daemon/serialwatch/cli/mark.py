"""`serialwatch mark`: a named point in a port's log."""

from __future__ import annotations

import json

import click

from serialwatch.cli.client import find_daemon, part
from serialwatch.cli.not_on_disk import not_on_disk
from serialwatch.cli.options import PORT, json_option, socket_option


@click.command()
@click.argument("port", type=PORT)
@click.argument("text", nargs=-1, required=True)
@click.option(
    "--kind",
    type=click.Choice(("note", "flash", "reset")),
    default="note",
    show_default=True,
    help="flash and reset: the boot that follows is expected.",
)
@json_option
@socket_option
def mark(port: str, text: tuple[str, ...], kind: str, as_json: bool, socket: str | None) -> None:
    """Set a marker before the next line of PORT."""
    words = {"text": " ".join(text), "kind": kind}
    body = find_daemon(socket).post(f"/v1/ports/{part(port)}/mark", words)
    if as_json:
        click.echo(json.dumps(body))
        return
    click.echo(f"marker {body['id']} is set before {port}:L{body['seq']}{not_on_disk(body)}")
