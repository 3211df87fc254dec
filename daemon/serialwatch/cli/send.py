"""`serialwatch send`: exactly these bytes to a board."""

from __future__ import annotations

import json

import click

from serialwatch.cli.client import find_daemon, part
from serialwatch.cli.errors import CliError
from serialwatch.cli.options import PORT, Number, json_option, socket_option
from serialwatch.cli.tables import safe

_SHOWN = 16  # bytes that are repeated in hex
_MAX_MS = 60_000


@click.command()
@click.argument("port", type=PORT)
@click.argument("text", nargs=-1, required=True)
@click.option("--hex", "is_hex", is_flag=True, help="TEXT is pairs of hex digits: 03, or 41 0d.")
@click.option("--no-newline", is_flag=True, help="Do not press Enter (CR) after TEXT.")
@click.option(
    "--wait-echo",
    is_flag=True,
    help="Send each character when the board has shown the one before; stop if it does not.",
)
@click.option(
    "--delay-char",
    "char_ms",
    type=Number(min=0, max=_MAX_MS),
    default=0,
    metavar="MS",
    help="Wait so long after each character.",
)
@click.option(
    "--delay-line",
    "line_ms",
    type=Number(min=0, max=_MAX_MS),
    default=0,
    metavar="MS",
    help="Wait so long after each line; with --wait-echo until the board is silent for so long at "
    "its prompt (100 if not given).",
)
@json_option
@socket_option
def send(
    port: str,
    text: tuple[str, ...],
    is_hex: bool,
    no_newline: bool,
    wait_echo: bool,
    char_ms: int,
    line_ms: int,
    as_json: bool,
    socket: str | None,
) -> None:
    """Send TEXT and Enter (one CR) to PORT; with --hex the bytes alone.

    A boot ROM or boot loader that is too slow for a whole line gets it at its own pace, e.g.
    `send dut1 --wait-echo "$(cat env.txt)"`. Ctrl-C ends that.
    """
    data = bytes_of(text, is_hex=is_hex, no_newline=no_newline)
    pace = {"delay_char_ms": char_ms, "delay_line_ms": line_ms, "wait_echo": wait_echo}
    is_paced = any(pace.values())
    body = find_daemon(socket).post(
        f"/v1/ports/{part(port)}/send",
        {"hex": data.hex()} | (pace if is_paced else {}),
        is_long=is_paced,
    )
    if as_json:
        click.echo(json.dumps(body))
        return
    count = body["bytes"]
    shown = data[:_SHOWN].hex(" ") + (" …" if len(data) > _SHOWN else "")
    click.echo(f"sent exactly {count} byte{'' if count == 1 else 's'} to {port}: {shown}")
    if wait_echo:
        click.echo("the board has shown all of it")
    elif server := body.get("server"):
        click.echo(f"on the way to {safe(server)}, which passes it on to the board")
    if body["before_seq"]:
        click.echo(f"the answer begins at {port}:L{body['before_seq']}")


def bytes_of(text: tuple[str, ...], *, is_hex: bool, no_newline: bool) -> bytes:
    """Return what is sent for the words of a command line.

    Raises:
        CliError: --hex, and it is none.

    """
    words = " ".join(text)
    if is_hex:
        try:
            return bytes.fromhex(words)
        except ValueError as exc:
            raise CliError(f"--hex: {words!r} is not pairs of hex digits", 2) from exc
    return words.encode("utf-8", errors="surrogateescape") + (b"" if no_newline else b"\r")
