"""`serialwatch ports`: the state of every port."""

from __future__ import annotations

import json
import time
from collections.abc import Sequence
from dataclasses import replace

import click

from serialwatch.api.bench import PortView, port_from_json, port_to_json
from serialwatch.cli.client import find_daemon
from serialwatch.cli.options import json_option, socket_option
from serialwatch.cli.tables import Column, Row, amount, console, safe, say, table, width_of
from serialwatch.cli.times import span
from serialwatch.verdict import judged

_COLUMNS = (
    Column("PORT"),
    Column("STATE"),
    Column("DEVICE", least=24),
    Column("BIT RATE", is_right=True, leaves=2),
    Column("LINES", is_right=True),
    Column("LAST", is_right=True),
    Column("ERRORS"),
    Column("BOOT", leaves=1),
    Column("INCIDENTS"),
)
_NOTHING = (
    "no ports: start the daemon with `serialwatch run --port dut1=/dev/serial/by-id/…`, "
    "or add [port.dut1] to its configuration"
)


@click.command()
@json_option
@socket_option
def ports(as_json: bool, socket: str | None) -> None:
    """Show the state of every port."""
    body = find_daemon(socket).get("/v1/ports")
    if as_json:
        click.echo(json.dumps(body["ports"], indent=2))
        return
    views = [port_from_json(port) for port in body["ports"]]
    out = console()
    if not views:
        say(_NOTHING)
        return
    columns, rows = _with_boards(views, rows_of(views, time.time_ns()))
    for line in table(columns, rows, width_of(out)):
        out.print(line)


def rows_of(views: Sequence[PortView], now_utc_ns: int) -> list[Row]:
    """Return the table's rows."""
    return [_row(view, now_utc_ns) for view in views]


def _with_boards(
    views: Sequence[PortView], rows: Sequence[Row]
) -> tuple[Sequence[Column], Sequence[Row]]:
    """Return the table with the boards on the ports, if the configuration names any."""
    if not any(view.board for view in views):
        return _COLUMNS, rows
    named = [
        replace(row, cells=(row.cells[0], safe(view.board) or "-", *row.cells[1:]))
        for view, row in zip(views, rows, strict=True)
    ]
    return (_COLUMNS[0], Column("BOARD", leaves=3), *_COLUMNS[1:]), named


def short_device(device: str) -> str:
    """Return a device as people tell them apart, e.g. `usb-FTDI_FT232R_A50285BI-if00-port0`."""
    return safe(device.removeprefix("/dev/serial/by-id/").removeprefix("/dev/serial/by-path/"))


def why_not_up(view: PortView) -> str:
    """Return why a port is not up and what helps, "" if it is."""
    if view.state == "busy" and view.holder:
        return safe(f"held by {view.holder}: close it there; it is taken back by itself")
    return "" if view.state == "up" else safe(view.problem)


def _row(view: PortView, now_utc_ns: int) -> Row:
    lines = view.rx_lines
    state: str = view.state
    if state in ("up", "released"):
        state += f" {_since(view.since_utc_ns, now_utc_ns)}"
    cells = (
        view.name,
        state,
        short_device(view.device),
        str(view.bit_rate) if view.bit_rate else "-",
        amount(lines) if lines else "-",
        _since(view.last_rx_utc_ns, now_utc_ns) if view.last_rx_utc_ns else "-",
        _errors(view),
        f"#{view.boot}" if view.boot else "-",
        f"{view.open_incidents} open" if view.open_incidents else "-",
    )
    notes = [
        why_not_up(view),
        _back(view, now_utc_ns),
        _where(view),
        f"log: {safe(view.log_problem)}" if view.log_problem else "",
    ]
    return Row(cells, note="; ".join(filter(None, notes)))


def _where(view: PortView) -> str:
    """Return where the fault of an open port lies, "" if nothing says that there is one."""
    verdict = judged(port_to_json(view))
    if view.state != "up" or verdict["is_weak"] or view.log_problem:
        return ""
    return safe(f"board, cable or PC? {verdict['place']}: {verdict['text']}")


def _back(view: PortView, now_utc_ns: int) -> str:
    if not view.back_utc_ns:
        return ""
    return f"comes back in {span(max(0, view.back_utc_ns - now_utc_ns) / 1e9)}"


def _errors(view: PortView) -> str:
    if view.state == "flapping" and view.reconnects:
        return f"{amount(view.reconnects)} plugs"
    counts = [(number, kind) for kind, number in view.uart_errors.items() if number]
    parts = [f"{amount(n)} {kind if n == 1 else _plural(kind)}" for n, kind in counts]
    lost = sum(n for place, n in view.lost_bytes.items() if place != "client")
    if lost:
        parts.append(f"{amount(lost)} bytes lost")
    return ", ".join(parts) or "-"


def _plural(kind: str) -> str:
    return (
        kind
        if kind.endswith("s")
        else {"framing": "framing", "parity": "parity"}.get(kind, f"{kind}s")
    )


def _since(then_utc_ns: int, now_utc_ns: int) -> str:
    return span((now_utc_ns - then_utc_ns) / 1e9)
