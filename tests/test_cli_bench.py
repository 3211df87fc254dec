"""`ports`, `incidents`, `report`, `mark`, `send` and `reset` against a daemon."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from bench_api import STARTED_UTC_NS, incident
from bench_cli import Cli, Result, ThreadedBench, threaded_bench
from serialwatch.api.bench import IncidentView
from serialwatch.cli.incidents import _COLUMNS as INCIDENT_COLUMNS
from serialwatch.cli.incidents import incident_row
from serialwatch.cli.ports import _COLUMNS, rows_of
from serialwatch.cli.tables import table
from serialwatch.cli.times import local
from serialwatch.records import Marker
from test_show_report import REPORT


@pytest.fixture
def board(tmp_path: Path) -> Iterator[ThreadedBench]:
    """Serve a bench."""
    with threaded_bench(tmp_path) as found:
        yield found


@pytest.fixture
def cli(board: ThreadedBench, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> SocketCli:
    """Run commands against it."""
    return SocketCli(tmp_path / "sw", capsys)


class SocketCli(Cli):
    """Adds --socket to each command."""

    def __call__(self, *args: str) -> Result:
        """Run one command."""
        return super().__call__(*args, "--socket", str(self.socket))


def test_ports_are_shown_as_a_table_and_as_json(board: ThreadedBench, cli: SocketCli) -> None:
    board.prints(b"U-Boot\r\n")
    board.do(
        lambda: board.bench.change("dut2", state="busy", holder="picocom (pid 4121, uid 1000)")
    )
    shown = cli("ports")
    told = cli("ports", "--json")

    assert shown.code == 0
    lines = shown.out.splitlines()
    assert lines[0].split() == (
        ["PORT", "STATE", "DEVICE", "BIT", "RATE", "LINES", "LAST", "ERRORS", "BOOT", "INCIDENTS"]
    )
    assert lines[1].split()[:2] == ["dut1", "up"]
    assert "usb-Test_dut1" in lines[1]
    assert lines[2].startswith("dut2  busy")
    assert lines[3].strip() == (
        "held by picocom (pid 4121, uid 1000): close it there; it is taken back by itself"
    )
    ports = json.loads(told.out)
    assert [port["state"] for port in ports] == ["up", "busy"]
    assert ports[0]["last_rx_at"].endswith("Z")


def test_a_bench_without_ports_says_how_to_get_one(board: ThreadedBench, cli: SocketCli) -> None:
    kept = dict(board.bench.by_name)
    board.do(board.bench.by_name.clear)
    shown = cli("ports")
    board.do(lambda: board.bench.by_name.update(kept))

    assert shown.out.startswith("no ports: start the daemon with `serialwatch run --port dut1=")


def test_errors_and_losses_are_counted_in_words(board: ThreadedBench) -> None:
    view = board.bench.by_name["dut1"].view
    n = 1_000_000_000
    views = [
        replace(view, uart_errors={"overrun": 3, "framing": 0}, rx_lines=48_237),
        replace(view, uart_errors={"overrun": 1, "framing": 2}, lost_bytes={"log": 5, "client": 9}),
        replace(view, uart_errors={}, log_problem="No space left on device"),
        replace(view, state="flapping", reconnects=12, problem="hung up: 5 times within 30 s"),
        replace(view, state="absent", problem="/dev/x: no such device\x1b[2J"),
    ]
    lines = [line.plain for line in table(_COLUMNS, rows_of(views, STARTED_UTC_NS + 9 * n), None)]

    assert "  48.2k  " in lines[1]
    assert "  3 overruns  " in lines[1]
    assert lines[2].strip().startswith("board, cable or PC? PC: the UART's FIFO overran 3 times")
    assert "  1 overrun, 2 framing, 5 bytes lost  " in lines[3]
    assert lines[4].strip().startswith("board, cable or PC? PC: 5 bytes were given up")
    assert lines[6].strip() == "log: No space left on device"
    assert "  12 plugs  " in lines[7]
    assert lines[8].strip() == "hung up: 5 times within 30 s"
    assert lines[10].strip() == "/dev/x: no such device\\x1b[2J"


@pytest.mark.parametrize("width", [60, 80, 100, 120])
def test_the_table_fits_its_terminal_and_keeps_what_matters(
    board: ThreadedBench, width: int
) -> None:
    view = board.bench.by_name["dut1"].view
    views = [
        replace(view, device="/dev/serial/by-id/usb-FTDI_FT232R_A50285BI-if00-port0"),
        replace(view, state="busy", holder="picocom (pid 4121, uid 1000)"),
    ]
    lines = [line.plain for line in table(_COLUMNS, rows_of(views, STARTED_UTC_NS), width)]

    assert all(len(line) <= width for line in lines)
    assert "STATE" in lines[0]
    assert "INCIDENTS" in lines[0]
    assert ("BIT RATE" in lines[0]) is (width >= 80)


def test_incidents_are_listed_newest_first(board: ThreadedBench, cli: SocketCli) -> None:
    assert cli("incidents").out.startswith("no open incidents; ")
    assert cli("incidents", "--all").out.startswith("no incidents yet: a fault on a watched port")
    board.bench.kept = {
        16: IncidentView(incident(16, severity="warning", title="it \x1b[31mwas red")),
        17: IncidentView(incident(17, count=4), is_on_disk=False),
        18: IncidentView(incident(18, state="resolved")),
    }
    shown = cli("incidents")

    lines = shown.out.splitlines()
    assert [line.split()[0] for line in lines[1:]] == ["17", "not", "16"]
    assert lines[2].strip() == "not on disk yet"
    assert "it \\x1b[31mwas red" in lines[3]
    assert "\x1b" not in shown.out
    assert len(cli("incidents", "--all").out.splitlines()) == 5
    assert len(json.loads(cli("incidents", "--json", "--severity", "error").out)) == 1
    assert json.loads(cli("incidents", "--json", "--since", "1h").out) == []


def test_at_80_columns_what_failed_has_more_room_than_how_often() -> None:
    bodies = [
        incident(n, port="esp-climate", title="Guru Meditation: LoadProhibited") for n in (5, 6)
    ]
    now = local(bodies[0].opened_utc_ns)
    rows = [incident_row(body, now, {}) for body in bodies]
    lines = [line.plain for line in table(INCIDENT_COLUMNS, rows, 80)]

    assert all(len(line) <= 80 for line in lines)
    assert "Guru Meditation: LoadProhibited" in lines[1]
    assert "BOOT" not in lines[0]
    assert "STATE" in lines[0]


def test_incidents_are_resolved_and_muted(board: ThreadedBench, cli: SocketCli) -> None:
    board.bench.kept = {17: IncidentView(incident(17))}

    assert cli("incidents", "mute", "17", "--for", "2h").out == (
        "the fault of incident 17 is muted for 2h\n"
    )
    assert "until `serialwatch incidents unmute 17`" in cli("incidents", "mute", "17").out
    assert cli("incidents", "unmute", "17").code == 0
    assert json.loads(cli("incidents", "resolve", "17", "--json").out)["state"] == "resolved"
    assert cli("incidents", "resolve", "99").err == (
        "serialwatch: no incident '99': `serialwatch incidents --all` lists them\n"
    )


def test_a_report_is_shown_with_what_was_seen_before(board: ThreadedBench, cli: SocketCli) -> None:
    board.bench.kept = {
        9: IncidentView(incident(9, opened_utc_ns=STARTED_UTC_NS - 6 * 86400 * 10**9)),
        17: IncidentView(
            incident(17, seen_before=(9, 3)), boot_started_utc_ns=STARTED_UTC_NS - 60 * 10**9
        ),
    }
    board.bench.reports = {(17, 1): replace(REPORT, revision=1), (17, 2): REPORT}
    shown = cli("report", "17")

    assert "(boot #6, 1 min 0 s after its start)" in shown.out
    assert "Seen before      2 times on this bench: #9 (dut1, " in shown.out
    assert "), #3\n" in shown.out
    assert json.loads(cli("report", "17", "--json").out)["revision"] == 2
    assert json.loads(cli("report", "17", "--json", "--revision", "1").out)["revision"] == 1
    assert cli("report", "17", "--markdown").out.startswith("## U-Boot took")
    diff = cli("report", "17", "--diff").out
    assert diff.splitlines()[0] == "Revision 2, by the offline analyst"
    told = json.loads(cli("report", "17", "--diff", "--json").out)
    assert [(each["from"], each["to"]) for each in told] == [(1, 2)]
    assert "has one revision" in cli("report", "17", "--diff", "--revision", "1").out
    assert "dut1:L48209-L48214: the log no longer has" in cli("report", "17", "--context", "2").out
    assert cli("report", "17", "--diff", "--markdown").code == 2
    assert cli("report", "9").err.startswith("serialwatch: no report of incident 9 yet: the agent")


@pytest.mark.parametrize(
    ("args", "sent", "told"),
    [
        (("md.l", "0"), b"md.l 0\r", "sent exactly 7 bytes to dut1: 6d 64 2e 6c 20 30 0d\n"),
        (("--no-newline", "y"), b"y", "sent exactly 1 byte to dut1: 79\n"),
        (("--hex", "03", "0d0A"), b"\x03\r\n", "sent exactly 3 bytes to dut1: 03 0d 0a\n"),
        (("ü",), b"\xc3\xbc\r", "sent exactly 3 bytes to dut1: c3 bc 0d\n"),
        (("\udcff",), b"\xff\r", "sent exactly 2 bytes to dut1: ff 0d\n"),
        (("x" * 20,), b"x" * 20 + b"\r", f"sent exactly 21 bytes to dut1: {'78 ' * 16}…\n"),
        (("--", "-v"), b"-v\r", "sent exactly 3 bytes to dut1: 2d 76 0d\n"),
    ],
)
def test_send_sends_exactly_that_and_says_so(
    board: ThreadedBench, cli: SocketCli, args: tuple[str, ...], sent: bytes, told: str
) -> None:
    shown = Cli.__call__(cli, "send", "--socket", str(cli.socket), "dut1", *args)

    assert shown.out == told + "the answer begins at dut1:L1\n"
    assert board.do(board.bench.by_name["dut1"].cable.received) == sent


def test_send_does_not_say_that_a_board_behind_a_server_has_it(
    board: ThreadedBench, cli: SocketCli
) -> None:
    port = board.bench.by_name["dut1"]
    port.view = replace(port.view, device="rfc2217://lab2:3001")

    assert cli("send", "dut1", "--no-newline", "y").out == (
        "sent exactly 1 byte to dut1: 79\n"
        "on the way to rfc2217://lab2:3001, which passes it on to the board\n"
        "the answer begins at dut1:L1\n"
    )
    assert json.loads(cli("send", "dut1", "y", "--json").out)["server"] == "rfc2217://lab2:3001"


def test_send_answers_in_json(cli: SocketCli) -> None:
    assert json.loads(cli("send", "dut1", "x", "--json").out) == {
        "port": "dut1",
        "bytes": 2,
        "before_seq": 1,
    }


def test_mark_and_reset_do_it_and_say_so(board: ThreadedBench, cli: SocketCli) -> None:
    assert cli("mark", "dut1", "new", "board").out == "marker 1 is set before dut1:L1\n"
    assert json.loads(cli("mark", "dut1", "x", "--kind", "flash", "--json").out)["kind"] == "flash"
    assert cli("reset", "dut1").out == (
        "dut1 was reset: RTS for 100 ms; what it prints begins at dut1:L1\n"
    )
    assert cli("reset", "dut2").err == (
        "serialwatch: dut2 has no reset: set reset in [port.dut2]\n"
    )
    assert [marker.text for marker in board.bench.markers] == ["new board", "x"]
    assert board.bench.resets == ["dut1"]


def test_what_is_not_on_disk_yet_is_told_so(
    board: ThreadedBench, cli: SocketCli, monkeypatch: pytest.MonkeyPatch
) -> None:
    mark = board.bench.mark

    async def unsaved(*args: Any) -> Marker:
        return replace(await mark(*args), is_on_disk=False)

    monkeypatch.setattr(board.bench, "mark", unsaved)
    told = cli("mark", "dut1", "x")

    assert told.code == 0
    assert told.out.startswith("marker 1 is set before dut1:L1, but is not on disk yet: it is lost")
    assert json.loads(cli("mark", "dut1", "x", "--json").out)["on_disk"] is False
