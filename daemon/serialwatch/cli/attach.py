"""`serialwatch attach`: a terminal on a port."""

from __future__ import annotations

import asyncio
import os

import click

from serialwatch.cli.client import find_daemon
from serialwatch.cli.errors import WRONG_USE, CliError
from serialwatch.cli.options import PORT, Number, json_option, socket_option


@click.command()
@click.argument("port", type=PORT)
@click.option("--read-only", is_flag=True, help="Never send anything.")
@click.option("--steal", is_flag=True, help="Take the write lease, whoever has it.")
@click.option("--raw", is_flag=True, help="Let every escape of the board reach the terminal.")
@click.option(
    "-n",
    "--lines",
    type=Number(min=0),
    default=20,
    show_default=True,
    help="How many of the last lines are shown first.",
)
@json_option
@socket_option
def attach(
    port: str,
    read_only: bool,
    steal: bool,
    raw: bool,
    lines: int,
    as_json: bool,
    socket: str | None,
) -> int:
    """Attach this terminal to PORT. Nothing is sent but what is typed.

    Ctrl-T q leaves, Ctrl-T ? lists the other keys; `~.` at the start of a line leaves too. With
    --json, what comes is printed as one object a line and nothing can be typed.
    """
    if read_only and steal:
        raise click.UsageError("--read-only and --steal exclude each other")
    # Imported late: a shell that completes PORT does not need the client.
    from serialwatch.cli.attachment import Wish, attached, print_json

    daemon = find_daemon(socket)
    wish = Wish(daemon.path, port, lines, read_only or as_json, steal and not as_json, raw)
    if as_json:
        try:
            return asyncio.run(print_json(daemon, wish))
        except KeyboardInterrupt:
            return 0
    if not os.isatty(0):
        raise CliError(
            "attach needs a terminal: use `serialwatch logs -f` to follow, "
            "`serialwatch send` to write, or --json",
            WRONG_USE,
        )
    return asyncio.run(attached(daemon, wish))
