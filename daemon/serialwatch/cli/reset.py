"""`serialwatch reset`: reset a board the way its configuration says."""

from __future__ import annotations

import json

import click

from serialwatch.cli.client import find_daemon, part
from serialwatch.cli.options import PORT, json_option, socket_option
from serialwatch.cli.tables import safe


@click.command()
@click.argument("port", type=PORT)
@json_option
@socket_option
def reset(port: str, as_json: bool, socket: str | None) -> None:
    """Reset the board on PORT as `reset` in its configuration says."""
    body = find_daemon(socket).post(f"/v1/ports/{part(port)}/reset")
    if as_json:
        click.echo(json.dumps(body))
        return
    since = f"; what it prints begins at {port}:L{body['before_seq']}" if body["before_seq"] else ""
    click.echo(f"{port} was reset: {safe(body['how'])}{since}")
