"""`serialwatch attach`, driven through a terminal."""

from __future__ import annotations

import asyncio
import json
import os
import re
import signal
import subprocess
import sys
import termios
from contextlib import suppress
from pathlib import Path

import pyte
import pytest

from bench_api import FakeBench, client, incident, serving
from bench_cable import within_s
from bench_cli import COMMAND, Terminal, in_terminal
from serialwatch.api.bench import BenchError
from serialwatch.cli.attached_view import AttachedView
from serialwatch.records import IncidentChange
from test_screen import DANGEROUS

RESTORED = b"\x0f\x1b[?2004l\x1b[0m\x1b[?25h"


def args(tmp_path: Path, *more: str) -> list[str]:
    """Return the command line that attaches to dut1."""
    return ["attach", "dut1", "--socket", str(tmp_path / "sw"), *more]


async def received(bench: FakeBench, wanted: bytes) -> None:
    """Wait until the board has received exactly this."""
    got = b""
    async with asyncio.timeout(10):
        while len(got) < len(wanted):
            got += bench.by_name["dut1"].cable.received()
            await asyncio.sleep(0)
    assert got == wanted


async def leaves(terminal: Terminal) -> None:
    """Press Ctrl-T q and wait for the end."""
    terminal.type(b"\x14q")
    assert await terminal.exit_code() == 0


async def test_header_scrollback_live_and_a_good_end(tmp_path: Path) -> None:
    async with serving(tmp_path) as bench:
        bench.by_name["dut1"].cable.prints(b"U-Boot 2023.01\r\n=> ")
        await bench_has(bench, b"=> ")
        async with in_terminal(*args(tmp_path)) as terminal:
            before = terminal.settings()
            start = await terminal.until("── live ──")
            bench.by_name["dut1"].cable.prints(b"md 0\r\n")
            live = await terminal.until("md 0\r\n")
            await leaves(terminal)
            end = await terminal.until("left dut1; it is still being watched")

            assert terminal.settings() == before
        text = start.decode()
        assert text.index("dut1 · usb-Test_dut1 · 115200 8N1 · up") < text.index(
            "Ctrl-T q to leave"
        )
        assert "you may write (first key takes the lease)" in text
        assert text.index("── what came last ──") < text.index("U-Boot 2023.01\r\n=> ")
        assert all(len(line) <= 80 for line in text.replace("\x1b[2m", "").splitlines())
        assert live.endswith(b"=> md 0\r\n")
        assert RESTORED in end
        assert bench.by_name["dut1"].cable.received() == b""


async def bench_has(bench: FakeBench, data: bytes) -> None:
    """Wait until the bench has read this."""
    async with asyncio.timeout(5):
        while not bench.recent("dut1").endswith(data):
            await asyncio.sleep(0)


async def test_enter_sends_one_cr_and_control_keys_reach_the_board(tmp_path: Path) -> None:
    async with serving(tmp_path) as bench, in_terminal(*args(tmp_path)) as terminal:
        await terminal.until("── live")
        terminal.type(b"\r")
        await received(bench, b"\r")
        terminal.type(b"\x03\x04\x1a\x11\x13\x1c\x7f\t\x1b[A\xc3\xbc\x14\x14")
        await received(bench, b"\x03\x04\x1a\x11\x13\x1c\x7f\t\x1b[A\xc3\xbc\x14")
        await leaves(terminal)


async def test_what_was_typed_just_before_leaving_still_arrives(tmp_path: Path) -> None:
    async with serving(tmp_path) as bench, in_terminal(*args(tmp_path)) as terminal:
        await terminal.until("── live")
        terminal.type(b"reboot\r\x14q")

        assert await terminal.exit_code() == 0
        await received(bench, b"reboot\r")


async def test_tilde_dot_at_the_start_of_a_line_leaves(tmp_path: Path) -> None:
    async with serving(tmp_path) as bench, in_terminal(*args(tmp_path)) as terminal:
        await terminal.until("── live")
        terminal.type(b"a~.\r")
        await received(bench, b"a~.\r")
        terminal.type(b"~.")

        assert await terminal.exit_code() == 0
        assert bench.by_name["dut1"].cable.received() == b""


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGHUP, signal.SIGINT, signal.SIGQUIT])
async def test_the_terminal_is_restored_after_a_signal(
    tmp_path: Path, number: signal.Signals
) -> None:
    async with serving(tmp_path), in_terminal(*args(tmp_path)) as terminal:
        before = terminal.settings()
        await terminal.until("── live")
        assert terminal.settings() != before
        os.kill(terminal.child.pid, number)

        assert await terminal.exit_code() == 0
        assert terminal.settings() == before
        assert RESTORED in await terminal.until("ended by a signal")


async def test_the_terminal_is_restored_when_the_daemon_stops(tmp_path: Path) -> None:
    async with serving(tmp_path) as bench, in_terminal(*args(tmp_path)) as terminal:
        before = terminal.settings()
        await terminal.until("── live")
        assert bench.server is not None
        await bench.server.stop()

        assert await terminal.exit_code() == 1
        assert terminal.settings() == before
        await terminal.until("the daemon stops")
        await bench.server.start()


async def test_nothing_dangerous_reaches_the_screen(tmp_path: Path) -> None:
    async with serving(tmp_path) as bench, in_terminal(*args(tmp_path)) as terminal:
        await terminal.until("── live")
        for data in DANGEROUS.values():
            bench.by_name["dut1"].cable.prints(data + b"\r\n")
        bench.by_name["dut1"].cable.prints(b"\x1b[32mthe end\x1b[0m")
        shown = await terminal.until("\x1b[32mthe end\x1b[0m")
        await leaves(terminal)

        assert b"\x1b]" not in shown
        assert b"\x1bP" not in shown
        assert b"\x1b[6n" not in shown
        assert b"\x1b[c" not in shown
        assert b"\x1b[?" not in shown
        assert b"\x0e" not in shown
        assert bench.by_name["dut1"].cable.received() == b""


async def test_raw_lets_everything_through_and_restores_more(tmp_path: Path) -> None:
    async with serving(tmp_path) as bench, in_terminal(*args(tmp_path, "--raw")) as terminal:
        await terminal.until("── live")
        bench.by_name["dut1"].cable.prints(b"\x1b]0;title\x07\x1b[?1000h\x0e\xff.")
        shown = await terminal.until(".")
        await leaves(terminal)
        end = await terminal.until("left dut1")

        assert shown.endswith(b"\x1b]0;title\x07\x1b[?1000h\x0e\xff.")
        assert b"\x1b[?1000l" in end


async def test_help_break_marker_and_unknown_commands(tmp_path: Path) -> None:
    async with serving(tmp_path) as bench, in_terminal(*args(tmp_path)) as terminal:
        await terminal.until("── live")
        terminal.type(b"\x14?")
        await terminal.until("Ctrl-T b  send a break")
        terminal.type(b"\x14z")
        await terminal.until("no command Ctrl-T z")
        terminal.type(b"\x14b")
        await terminal.until("send a break?")
        terminal.type(b"n")
        await terminal.until("no break")
        assert bench.breaks == []
        terminal.type(b"\x14by")
        await terminal.until("break sent")
        terminal.type(b"\x14mnew  \x7fx\x7fboard\r")
        await terminal.until("marker by")
        terminal.type(b"\x14mnothing\x1b")
        await terminal.until("no marker")
        await leaves(terminal)

        assert bench.breaks == [("dut1", 0.25)]
        assert [m.text for m in bench.markers if m.kind == "note"] == ["new board"]
        assert bench.by_name["dut1"].cable.received() == b""


async def test_two_people_share_a_port_and_one_takes_over(tmp_path: Path) -> None:
    async with serving(tmp_path) as bench, in_terminal(*args(tmp_path)) as one:
        await one.until("── live")
        one.type(b"a")
        await one.until("the write lease is yours")
        async with in_terminal(*args(tmp_path)) as two:
            await two.until("is typing; Ctrl-T w takes over")
            await two.until("── live")
            two.type(b"b")
            await two.until("not done: ")
            two.type(b"\x14w")
            await two.until("the write lease is yours")
            await one.until("has taken over")
            two.type(b"c")
            await received(bench, b"ac")
            await leaves(two)
        await one.until("has left: the write lease is free")
        await leaves(one)


async def test_steal_takes_the_lease_at_once(tmp_path: Path) -> None:
    address = "/v1/attach/dut1"
    async with serving(tmp_path), client(tmp_path) as http, http.ws_connect(address) as ws:
        await ws.send_bytes(b"a")
        while "lease" not in json.loads((await within_s(5, ws.receive())).data):
            pass
        async with in_terminal(*args(tmp_path, "--steal")) as terminal:
            await terminal.until("the write lease is yours")
            await leaves(terminal)


async def test_read_only_never_sends(tmp_path: Path) -> None:
    async with serving(tmp_path) as bench, in_terminal(*args(tmp_path, "--read-only")) as terminal:
        await terminal.until("read-only: attached with --read-only")
        await terminal.until("── live")
        terminal.type(b"x\r\x14w\x14by")
        await terminal.until("not done: attached with --read-only")
        await leaves(terminal)

        assert bench.by_name["dut1"].cable.received() == b""
        assert bench.breaks == []


async def test_our_messages_stand_on_lines_of_their_own(tmp_path: Path) -> None:
    async with serving(tmp_path) as bench, in_terminal(*args(tmp_path)) as terminal:
        await terminal.until("── live")
        bench.by_name["dut1"].cable.prints(b"login: ")
        await terminal.until("login: ")
        assert bench.server is not None
        bench.server.on_incident(IncidentChange("opened", incident(17)))
        opened = await terminal.until("serialwatch report 17 ──")
        again = await terminal.until("login: ")
        bench.change("dut1", state="absent", problem="unplugged")
        gone = await terminal.until("stays attached ──")
        bench.change("dut1", state="up", problem="")
        await terminal.until("dut1 is back ──")
        await leaves(terminal)

        assert opened.startswith(b"\r\n\x1b[2m")
        assert "── dut1 is absent: unplugged; this".encode() in gone
        assert again.startswith(b"\x1b[22m\r\n")
        assert (
            "── incident 17: critical: U-Boot took a synchronous… → serialwatch".encode() in opened
        )


async def test_a_terminal_that_is_stopped_is_told_how_much_it_has_missed(tmp_path: Path) -> None:
    async with serving(tmp_path) as bench, in_terminal(*args(tmp_path)) as terminal:
        await terminal.until("── live")
        line = b"[    1.234567] a line of a board that prints a lot and does not stop\r\n"
        while bench.lost.get("dut1", 0) < 100_000:  # nobody reads the terminal meanwhile
            await bench.by_name["dut1"].cable.prints_all(line * 100)
        bench.by_name["dut1"].cable.prints(b"the end")
        await terminal.until("bytes skipped: this terminal was too slow")
        await terminal.until("the end")
        await leaves(terminal)


async def test_keys_work_while_the_screen_hangs(tmp_path: Path) -> None:
    async with serving(tmp_path) as bench, in_terminal(*args(tmp_path)) as terminal:
        before = terminal.settings()
        await terminal.until("── live")
        await bench.by_name["dut1"].cable.prints_all(b"x" * 500_000)
        terminal.type(b"y")
        await received(bench, b"y")
        terminal.type(b"\x14q")

        assert await terminal.exit_code() == 0
        assert terminal.settings() == before


async def test_json_prints_what_comes_and_never_sends(tmp_path: Path) -> None:
    async with serving(tmp_path) as bench:
        child = await asyncio.create_subprocess_exec(
            *COMMAND,
            *args(tmp_path, "--json"),
            stdin=asyncio.subprocess.DEVNULL,
            stdout=asyncio.subprocess.PIPE,
        )
        assert child.stdout is not None
        hello = json.loads(await within_s(20, child.stdout.readline()))
        bench.by_name["dut1"].cable.prints(b"\xffU-Boot\r\n")
        row = json.loads(await within_s(5, child.stdout.readline()))
        child.send_signal(signal.SIGINT)

        assert await within_s(5, child.wait()) == 0
        assert hello["hello"]["may_write"] is False
        assert row == {"text": "\\xffU-Boot\\x0d\\x0a", "raw_base64": "/1UtQm9vdA0K"}


async def test_without_a_terminal_it_says_what_to_use_instead(tmp_path: Path) -> None:
    async with serving(tmp_path):
        child = await asyncio.create_subprocess_exec(
            *COMMAND,
            *args(tmp_path),
            stdin=asyncio.subprocess.DEVNULL,
            stderr=asyncio.subprocess.PIPE,
        )
        assert child.stderr is not None
        told = await within_s(20, child.stderr.read())

        assert await child.wait() == 2
        assert told.startswith(b"serialwatch: attach needs a terminal: use `serialwatch logs -f`")


async def test_an_unknown_port_or_no_daemon_is_one_line(tmp_path: Path) -> None:
    async with serving(tmp_path):
        socket = str(tmp_path / "sw")
        async with in_terminal("attach", "dut9", "--socket", socket) as terminal:
            await terminal.until("serialwatch: no port 'dut9': there are dut1, dut2")
            assert await terminal.exit_code() == 1
    missing = ("--socket", str(tmp_path / "none"))
    async with in_terminal("attach", "dut1", *missing, columns=400) as terminal:
        await terminal.until(f"serialwatch: no daemon at {tmp_path / 'none'}: start it with")
        assert await terminal.exit_code() == 1


async def test_the_header_says_why_a_port_is_not_up(tmp_path: Path) -> None:
    async with serving(tmp_path) as bench:
        bench.change("dut1", state="absent", problem="unplugged")
        async with in_terminal(*args(tmp_path)) as terminal:
            header = await terminal.until("── live")
            await leaves(terminal)

    assert b"absent: unplugged" in header


async def test_a_wide_terminal_has_the_header_in_one_line(tmp_path: Path) -> None:
    async with serving(tmp_path), in_terminal(*args(tmp_path), columns=200) as terminal:
        screen = pyte.Screen(200, 24)
        pyte.ByteStream(screen).feed(await terminal.until("── live"))
        await leaves(terminal)

        assert screen.display[0].startswith("dut1 · usb-Test_dut1 · 115200 8N1 · up ")
        assert screen.display[0].rstrip().endswith("Ctrl-T ? for help, Ctrl-T q to leave")
    assert sys.executable


async def test_help_is_one_block_that_fits_the_terminal_as_it_is_now(tmp_path: Path) -> None:
    async with serving(tmp_path) as bench, in_terminal(*args(tmp_path)) as terminal:
        await terminal.until("── live")
        bench.by_name["dut1"].cable.prints(b"login: ")
        await terminal.until("login: ")
        termios.tcsetwinsize(terminal.fd, (24, 40))
        terminal.type(b"\x14?")
        shown = await terminal.until("send Ctrl-T itself")
        await leaves(terminal)

        assert shown.count(b"login: ") == 0
        rows = re.sub(r"\x1b\[\d*m", "", shown.decode()).split("\r\n")
        assert len(rows) > 6
        assert max(map(len, rows)) <= 40


async def test_scrollback_that_clears_the_screen_leaves_the_header_there(tmp_path: Path) -> None:
    async with serving(tmp_path) as bench:
        old = b"\x1b[2J\x1b[1;1H\x1bMtop\r\n\x1b[5Aup\x1b[31mred\x1b[0m\x1b[K\r\n\x1b[H=> \x1b[2"
        bench.by_name["dut1"].cable.prints(old)
        await bench_has(bench, old[-10:])
        async with in_terminal(*args(tmp_path), columns=100) as terminal:
            screen = pyte.Screen(100, 24)
            shown = await terminal.until("── live ──")
            pyte.ByteStream(screen).feed(shown)
            bench.by_name["dut1"].cable.prints(b"Jmd 0\r\n")
            live = await terminal.until("md 0\r\n")
            await leaves(terminal)

    rows = [row.rstrip() for row in screen.display]
    assert rows[0].startswith("dut1 · usb-Test_dut1")
    assert rows.index("top") < rows.index("upred") < rows.index("=>")
    assert b"\x1b[31mred\x1b[0m\x1b[K" in shown
    assert live.endswith(b"\x1b[2Jmd 0\r\n")  # what is printed now may clear it


async def test_dtr_and_rts_are_set_when_they_are_asked_for_and_not_else(tmp_path: Path) -> None:
    async with serving(tmp_path) as bench, in_terminal(*args(tmp_path)) as terminal:
        await terminal.until("── live")
        terminal.type(b"\x14d")
        await terminal.until("DTR: 1 sets it on, 0 off")
        terminal.type(b"1")
        await terminal.until("DTR set on")
        terminal.type(b"\x14r0")
        await terminal.until("RTS set off")
        terminal.type(b"\x14rx")
        await terminal.until("RTS is left as it is")
        await leaves(terminal)

        assert bench.lines == [("dut1", True, None), ("dut1", None, False)]
        assert bench.by_name["dut1"].cable.received() == b""


async def test_what_was_not_done_is_not_told_as_done(tmp_path: Path) -> None:
    async with serving(tmp_path) as bench, in_terminal(*args(tmp_path)) as one:
        await one.until("── live")
        one.type(b"a")
        await one.until("the write lease is yours")
        async with in_terminal(*args(tmp_path)) as two:
            await two.until("── live")
            two.type(b"\x14by")
            told = await two.until("is typing on dut1: take over")
            two.type(b"\x14d1\x14z")
            told += await two.until("no command Ctrl-T z")
            await leaves(two)
        await leaves(one)

        assert b"break sent" not in told
        assert b"DTR set on" not in told
        assert (bench.breaks, bench.lines) == ([], [])


async def test_a_prompt_from_before_a_loss_is_not_shown_again(tmp_path: Path) -> None:
    async with serving(tmp_path) as bench, in_terminal(*args(tmp_path)) as terminal:
        await terminal.until("── live")
        bench.by_name["dut1"].cable.prints(b"=> ")
        await terminal.until("=> ")
        bench.change("dut1", state="absent", problem="hung up")
        lost = await terminal.until("this stays attached")
        bench.change("dut1", state="up", problem="")
        back = await terminal.until("dut1 is back ──")
        bench.by_name["dut1"].cable.prints(b"U-Boot\r\n")
        back += await terminal.until("U-Boot\r\n")
        await leaves(terminal)

        assert lost.startswith(b"\r\n")
        assert b"=> " not in lost + back


async def test_the_terminal_is_restored_when_the_daemon_is_killed(tmp_path: Path) -> None:
    async with serving(tmp_path) as bench, in_terminal(*args(tmp_path)) as terminal:
        before = terminal.settings()
        await terminal.until("── live")
        assert bench.server is not None
        for connection in list(bench.server._runner.server.connections):
            connection.transport.abort()

        assert await terminal.exit_code() == 1
        assert terminal.settings() == before
        assert RESTORED in await terminal.until("the daemon has closed the connection")


async def test_the_terminal_is_restored_after_a_fault_of_ours(tmp_path: Path) -> None:
    (tmp_path / "planted").mkdir()
    (tmp_path / "planted/sitecustomize.py").write_text(
        "from serialwatch.cli import attached_view\n"
        "def broken(self, data): raise ZeroDivisionError('planted')\n"
        "attached_view.AttachedView.board = broken\n"
    )
    env = {"PYTHONPATH": str(tmp_path / "planted")}
    async with serving(tmp_path) as bench, in_terminal(*args(tmp_path), env=env) as terminal:
        before = terminal.settings()
        await terminal.until("── live")
        bench.by_name["dut1"].cable.prints(b"x")

        assert await terminal.exit_code() == 1
        assert terminal.settings() == before
        assert RESTORED in await terminal.until("a fault of its own: ZeroDivisionError: planted")


async def test_the_terminal_is_restored_when_nobody_reads_what_is_shown(tmp_path: Path) -> None:
    async with serving(tmp_path) as bench:
        keys, far = os.openpty()
        before = termios.tcgetattr(far)
        child = await asyncio.create_subprocess_exec(
            *COMMAND, *args(tmp_path), stdin=far, stdout=asyncio.subprocess.PIPE
        )
        assert child.stdout is not None
        await within_s(20, child.stdout.readuntil(b"Ctrl-T q to leave"))
        child._transport.get_pipe_transport(1).close()  # type: ignore[attr-defined]
        async with asyncio.timeout(10):
            while child.returncode is None:
                bench.by_name["dut1"].cable.prints(b"x")
                await asyncio.sleep(0.01)
        after = termios.tcgetattr(far)
        os.close(keys)
        os.close(far)

    assert child.returncode == 0
    assert after == before


class SlowBoard:
    """A board that takes what is sent to it when it is let."""

    def __init__(self, bench: FakeBench) -> None:
        self.got = bytearray()
        self.takes = asyncio.Event()
        self.asked = asyncio.Event()
        bench.write = self.write  # type: ignore[method-assign]

    async def write(self, port: str, data: bytes, source: str) -> int:
        """Take it, as `Bench.write` does."""
        self.asked.set()
        await self.takes.wait()
        self.got += data
        return 1


async def paste(terminal: Terminal, data: bytes) -> None:
    """Type as much as the terminal takes, as often as it does; what it shows is kept."""
    os.set_blocking(terminal.fd, False)
    while data:
        try:
            data = data[os.write(terminal.fd, data) :]
        except BlockingIOError:
            await asyncio.sleep(0)
    os.set_blocking(terminal.fd, True)


async def test_a_paste_waits_for_a_slow_board_and_arrives_whole(tmp_path: Path) -> None:
    text = b"".join(b"%07d\n" % number for number in range(150_000))
    async with serving(tmp_path) as bench, in_terminal(*args(tmp_path)) as terminal:
        board = SlowBoard(bench)
        await terminal.until("── live")
        pasting = asyncio.ensure_future(paste(terminal, text))
        await terminal.until("1,048,576 bytes wait for dut1: the keyboard is read again")
        board.takes.set()
        await within_s(20, pasting)
        async with asyncio.timeout(20):
            while len(board.got) < len(text):
                await asyncio.sleep(0)
        await leaves(terminal)

    assert board.got == text


async def test_ctrl_t_works_while_a_paste_waits(tmp_path: Path) -> None:
    async with serving(tmp_path) as bench, in_terminal(*args(tmp_path)) as terminal:
        board = SlowBoard(bench)
        await terminal.until("── live")
        await paste(terminal, b"x" * 600_000)
        await within_s(5, board.asked.wait())
        terminal.type(b"\x14?")
        await terminal.until("send Ctrl-T itself")
        terminal.type(b"\x14q")
        assert await terminal.exit_code() == 0
        told = await terminal.until("not sent)")
        board.takes.set()

    assert re.search(rb"\(59\d,\d{3} to 600,000 bytes typed last were not sent\)", told)


async def test_what_comes_after_refused_keys_is_not_sent_either(tmp_path: Path) -> None:
    async with serving(tmp_path) as bench, in_terminal(*args(tmp_path)) as terminal:
        board = SlowBoard(bench)
        await terminal.until("── live")
        await paste(terminal, b"x" * 20_000)
        await within_s(5, board.asked.wait())
        bench.change("dut1", state="absent", problem="unplugged")
        board.takes.set()
        await terminal.until("not done: port dut1 is absent")
        await terminal.until("bytes that were typed after that")
        bench.change("dut1", state="up", problem="")
        await terminal.until("dut1 is back")
        terminal.type(b"y")
        async with asyncio.timeout(5):
            while not board.got.endswith(b"y"):
                await asyncio.sleep(0)
        await leaves(terminal)

    assert len(board.got) < 20_000


async def test_a_paste_that_a_board_stops_taking_ends_and_has_no_hole(tmp_path: Path) -> None:
    text = b"".join(b"%07d\n" % number for number in range(5_000))
    async with serving(tmp_path) as bench, in_terminal(*args(tmp_path)) as terminal:
        board = SlowBoard(bench)
        take = bench.write

        async def fail(port: str, data: bytes, source: str) -> int:
            board.asked.set()
            await board.takes.wait()
            board.got += data[:1]
            bench.write = take  # type: ignore[method-assign]
            raise BenchError("failed", "1 of 1024 bytes were taken in 5 s", sent=1)

        bench.write = fail  # type: ignore[method-assign]
        await terminal.until("── live")
        await paste(terminal, text)
        await within_s(5, board.asked.wait())
        board.takes.set()
        await terminal.until("not done: 1 of 1024 bytes were taken in 5 s")
        await terminal.until("bytes that were typed after that")
        terminal.type(b"and on")
        async with asyncio.timeout(5):
            while not board.got.endswith(b"and on"):
                await asyncio.sleep(0)
        await leaves(terminal)

    assert board.got == b"0and on"


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGSEGV])
async def test_the_terminal_is_restored_when_it_is_killed(
    tmp_path: Path, number: signal.Signals
) -> None:
    async with serving(tmp_path) as bench, in_terminal(*args(tmp_path)) as terminal:
        before = terminal.settings()
        await terminal.until("── live")
        assert terminal.settings() != before
        os.killpg(terminal.child.pid, number)

        assert await terminal.exit_code() == -number
        assert RESTORED in await terminal.until("serialwatch attach has died")
        assert terminal.settings() == before
        assert bench.server is not None
        async with asyncio.timeout(5):
            while bench.server.consoles.attached("dut1"):
                await asyncio.sleep(0)


async def test_a_terminal_that_somebody_else_has_set_is_left_as_it_is(tmp_path: Path) -> None:
    async with serving(tmp_path), in_terminal(*args(tmp_path)) as terminal:
        await terminal.until("── live")
        own = termios.tcgetattr(terminal.slave)
        own[6][termios.VMIN] = 7
        termios.tcsetattr(terminal.slave, termios.TCSANOW, own)
        (guard,) = children(terminal.child.pid)
        terminal.child.kill()
        await terminal.exit_code()
        async with asyncio.timeout(5):
            while Path(f"/proc/{guard}").exists() and state_of(guard) != "Z":
                await asyncio.sleep(0)

        assert termios.tcgetattr(terminal.slave) == own


CHANGED_WHILE_THE_GUARD_STARTS = """
import os, signal, sys, termios
from serialwatch.cli.terminal import raw_keys

def changed(setsid=os.setsid):
    own = termios.tcgetattr(0)
    own[6][termios.VMIN] = 7
    termios.tcsetattr(0, termios.TCSANOW, own)
    setsid()

os.setsid = changed
with raw_keys(0, b"restored"):
    os.kill(os.getpid(), signal.SIGKILL)
"""


def test_nor_is_one_that_somebody_else_sets_while_the_guard_starts() -> None:
    master, slave = os.openpty()
    child = subprocess.Popen([sys.executable, "-c", CHANGED_WHILE_THE_GUARD_STARTS], stdin=slave)
    os.close(slave)
    with suppress(OSError):  # comes when the guard has ended, too
        while os.read(master, 4096):
            pass

    assert child.wait(10) == -signal.SIGKILL
    assert termios.tcgetattr(master)[6][termios.VMIN] == 7
    os.close(master)


def children(pid: int) -> list[int]:
    """Return the children of a process."""
    return [int(n) for n in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]


def state_of(pid: int) -> str:
    """Return the letter for the state of a process, "Z" if it has ended."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(") ")[2][0]
    except (FileNotFoundError, ProcessLookupError):
        return "Z"


async def test_nothing_is_left_behind_after_a_good_end(tmp_path: Path) -> None:
    async with serving(tmp_path), in_terminal(*args(tmp_path)) as terminal:
        await terminal.until("── live")
        (guard,) = children(terminal.child.pid)
        await leaves(terminal)

        assert not Path(f"/proc/{guard}").exists()
        assert b"has died" not in await terminal.until("left dut1")


async def test_a_stopped_attach_gives_the_terminal_back_until_it_goes_on(tmp_path: Path) -> None:
    async with serving(tmp_path) as bench, in_terminal(*args(tmp_path)) as terminal:
        before = terminal.settings()
        await terminal.until("── live")
        raw = terminal.settings()
        terminal.child.send_signal(signal.SIGTSTP)
        async with asyncio.timeout(5):
            while state_of(terminal.child.pid) != "T":
                await asyncio.sleep(0)
        assert terminal.settings() == before
        terminal.child.send_signal(signal.SIGCONT)
        async with asyncio.timeout(5):
            while terminal.settings() != raw:
                await asyncio.sleep(0)
        terminal.type(b"y")
        await received(bench, b"y")
        await leaves(terminal)


@pytest.mark.parametrize(
    ("parts", "is_left"),
    [
        ((b"\x1b[?1049h",), True),
        ((b"\x1b[?10", b"49;25h"), True),
        ((b"\x1b[?25;47h",), True),
        ((b"\x1b[?1049h", b"\x1b[?1049l"), False),
        ((b"\x1b[?1048h",), False),
    ],
)
def test_the_other_screen_is_left_if_the_board_has_not_left_it(
    parts: tuple[bytes, ...], is_left: bool
) -> None:
    view = AttachedView(lambda _: None, is_raw=True, has_colour=False, width=lambda: 80)
    for part in parts:
        view.board(part)

    assert view.restore.startswith(b"\x1b[?1049l") is is_left


async def test_nobody_types_on_a_port_that_is_released(tmp_path: Path) -> None:
    async with serving(tmp_path) as bench, in_terminal(*args(tmp_path)) as terminal:
        bench.change("dut1", state="released")
        await terminal.until("── live")
        terminal.type(b"x\x14w\x14by")
        told = await terminal.until("not done: port dut1 is released")
        await leaves(terminal)

        assert b"lease is yours" not in told
        assert (bench.markers, bench.breaks) == ([], [])


async def test_it_is_told_that_a_port_is_back_after_it_was_taken_out(tmp_path: Path) -> None:
    async with serving(tmp_path) as bench, in_terminal(*args(tmp_path)) as terminal:
        await terminal.until("── live")
        taken_out = bench.by_name.pop("dut1")
        assert bench.server is not None
        bench.server.on_state("dut1")
        await terminal.until("port dut1 is no longer configured")
        bench.by_name["dut1"] = taken_out
        bench.change("dut1", state="opening")
        bench.change("dut1", state="up")
        await terminal.until("dut1 is back ──")
        await leaves(terminal)
