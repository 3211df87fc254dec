"""Sends at the pace of a board that loses what comes too fast."""

from __future__ import annotations

import asyncio
import json
import os
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest

from bench_api import FakeBench, client, serving
from bench_cable import Cable, within_s
from bench_cli import Cli, threaded_bench
from serialwatch.api import paced_send
from serialwatch.api.paced_send import characters
from test_attach import attached

ECHOING: dict[str, Any] = {"wait_echo": True}


class SlowBoard:
    """A board with room for one character: what comes at once with another is lost."""

    def __init__(self, cable: Cable) -> None:
        self.got = b""
        self.lost = b""
        self.deaf_to = 0  # so many characters that come next are lost
        self.keeps_still_at = b""  # got and not shown
        self.shows: Callable[[bytes], bytes] = lambda character: character
        self._cable = cable
        self._changed = asyncio.Event()
        asyncio.get_running_loop().add_reader(cable.board, self._read)

    def prints(self, data: bytes) -> None:
        self._cable.prints(data)

    async def until(self, is_so: Callable[[], bool]) -> None:
        async with asyncio.timeout(10):
            while not is_so():
                self._changed.clear()
                await self._changed.wait()

    def close(self) -> None:
        asyncio.get_running_loop().remove_reader(self._cable.board)

    def _read(self) -> None:
        data = os.read(self._cable.board, 4096)
        self._changed.set()
        if self.deaf_to:
            self.deaf_to -= 1
            self.lost += data
            return
        first = characters(data)[0]
        self.got += first
        self.lost += data[len(first) :]
        if first != self.keeps_still_at:
            self.prints(self.shows(b"\r\n" if first in b"\r\n" else first))


@asynccontextmanager
async def slow_board(bench: FakeBench) -> AsyncIterator[SlowBoard]:
    board = SlowBoard(bench.by_name["dut1"].cable)
    try:
        yield board
    finally:
        board.close()


async def sends(tmp_path: Path, body: dict[str, Any]) -> tuple[int, Any]:
    async with client(tmp_path) as http, http.post("/v1/ports/dut1/send", json=body) as answer:
        return answer.status, await answer.json()


@pytest.fixture
def impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(paced_send, "ECHO_LIMIT_S", 0.05)


# What reaches the board


async def test_a_line_that_a_slow_board_loses_reaches_it_whole_behind_its_echoes(
    tmp_path: Path,
) -> None:
    line = b"setenv bootdelay 3\r"
    async with serving(tmp_path) as bench, slow_board(bench) as board:
        await sends(tmp_path, {"hex": line.hex()})
        await board.until(lambda: len(board.got + board.lost) == len(line))
        at_once, board.got, board.lost = board.got, b"", b""
        status, told = await sends(tmp_path, {"hex": line.hex()} | ECHOING)

        assert len(at_once) < len(line)
        assert (board.got, board.lost) == (line, b"")
        assert (status, told["bytes"], told["echoed"]) == (200, len(line), len(line))
        entry = bench.audits[-1]
        assert (entry.action, entry.bytes, entry.result) == ("send", len(line), "ok")
        assert entry.detail == {"hex": line.hex()}


async def test_a_board_that_sleeps_through_the_first_characters_is_told_and_gets_no_enter(
    tmp_path: Path, impatient: None
) -> None:
    async with serving(tmp_path) as bench, slow_board(bench) as board:
        board.deaf_to = 2
        status, told = await sends(tmp_path, {"text": "mesg n\r"} | ECHOING)

        error = told["error"]
        assert (status, error["code"]) == (502, "echo_mismatch")
        assert error["message"] == (
            "port dut1: 0 of 7 characters came back, then not `m` within 0.05 s: nothing came"
        )
        assert "goes without --wait-echo" in error["hint"]
        assert (board.got, board.lost) == (b"", b"m")
        assert (bench.audits[0].bytes, bench.audits[0].result) == (1, error["message"])


async def test_a_character_that_is_lost_on_the_way_stops_the_rest(
    tmp_path: Path, impatient: None
) -> None:
    async with serving(tmp_path) as bench, slow_board(bench) as board:
        board.shows = lambda shown: b"X" if board.got == b"roo" else shown
        _, told = await sends(tmp_path, {"text": "root\r"} | ECHOING)

        assert told["error"]["message"] == (
            "port dut1: 2 of 5 characters came back, then not `o` within 0.05 s: `X` came instead"
        )
        assert board.got == b"roo"
        assert board.got + board.lost == b"roo"


async def test_what_the_board_prints_around_an_echo_does_no_harm(tmp_path: Path) -> None:
    async with serving(tmp_path) as bench, slow_board(bench) as board:
        board.shows = lambda shown: b"\x1b[1m[    2.948528] scsi 1:0\r\n" + shown + b" \r\x1b[0m"
        status, _ = await sends(tmp_path, {"text": "Grüße\r"} | ECHOING)

        assert (status, board.got) == (200, "Grüße\r".encode())


async def test_a_letter_of_an_escape_is_no_echo(tmp_path: Path, impatient: None) -> None:
    async with serving(tmp_path) as bench, slow_board(bench) as board:
        board.shows = lambda shown: b"\x1b[?2004" if shown == b"2" else b"\x1b[?2004h"
        first = await sends(tmp_path, {"text": "h"} | ECHOING)
        second = await sends(tmp_path, {"text": "2"} | ECHOING)

        assert [status for status, _ in (first, second)] == [502, 502]
        assert "then not `h` within" in first[1]["error"]["message"]


async def test_control_characters_are_not_waited_for(tmp_path: Path) -> None:
    async with serving(tmp_path) as bench, slow_board(bench) as board:
        board.shows = lambda shown: b"" if shown < b" " and shown != b"\r\n" else shown
        status, told = await sends(tmp_path, {"hex": "030901787f0d"} | ECHOING)
        await board.until(lambda: len(board.got + board.lost) == 6)

        assert (status, told["echoed"]) == (200, 2)


async def test_the_next_line_waits_until_the_command_has_ended(tmp_path: Path) -> None:
    async with serving(tmp_path) as bench, slow_board(bench) as board:
        left = 0
        early: list[bytes] = []
        loop = asyncio.get_running_loop()

        def runs() -> None:
            nonlocal left
            left -= 1
            board.prints(b"bootdelay=%d\r\n" % left if left else b"=> ")
            if left:
                loop.call_soon(runs)

        def shows(shown: bytes) -> bytes:
            nonlocal left
            if left:
                early.append(shown)
            if shown == b"\r\n":
                left = 200
                loop.call_soon(runs)
            return shown

        board.shows = shows
        status, _ = await sends(tmp_path, {"text": "printenv\nboot\r"} | ECHOING)

        assert (status, early, board.got) == (200, [], b"printenv\nboot\r")


async def test_while_a_command_runs_in_silence_nothing_is_sent(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("SILENCE_S", "QUESTION_S", "LOOK_S"):
        monkeypatch.setattr(paced_send, name, 0.01)
    looks: list[float | None] = []
    needed = paced_send.silence_needed

    def noted(*args: Any) -> float | None:
        looks.append(needed(*args))
        return looks[-1]

    monkeypatch.setattr(paced_send, "silence_needed", noted)
    async with serving(tmp_path) as bench, slow_board(bench) as board:
        board.prints(b"=> ")
        async with asyncio.timeout(5):
            while bench.recent("dut1") != b"=> ":
                await asyncio.sleep(0)
        async with asyncio.TaskGroup() as tasks:
            sending = tasks.create_task(sends(tmp_path, {"text": "sleep 3\nver\r"} | ECHOING))
            async with asyncio.timeout(10):
                while len(looks) < 10:
                    await asyncio.sleep(0)
            meanwhile = board.got + board.lost
            board.prints(b"=> ")
        status, _ = sending.result()

        assert meanwhile == b"sleep 3\n"
        assert (status, board.got, board.lost) == (200, b"sleep 3\nver\r", b"")


async def test_a_command_that_does_not_end_is_told(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(paced_send, "PROMPT_LIMIT_S", 0.1)
    async with serving(tmp_path) as bench, slow_board(bench) as board:
        board.prints(b"=> ")
        async with asyncio.timeout(5):
            while bench.recent("dut1") != b"=> ":
                await asyncio.sleep(0)
        status, told = await sends(tmp_path, {"text": "run it\nver\r"} | ECHOING)

        assert (status, told["error"]["code"]) == (502, "echo_mismatch")
        assert told["error"]["message"] == (
            "port dut1: no prompt `=>` within 0.1 s: "
            "7 of 11 bytes were sent, 7 of 11 characters came back"
        )
        assert board.got == b"run it\n"


@pytest.mark.parametrize(
    ("heard", "prompt", "needed"),
    [
        (b"\r\nbootdelay=3\r\n=> ", b"=> ", 0.1),
        (b"\r\n", b"=> ", None),  # e.g. sleep
        (b"\r\nLoading: ####", b"=> ", 2.0),
        (b"\r\nReally scrub? <y/N>", b"=> ", 2.0),
        (b"\r\nroot@b:~# [   12.948528] usb 1-1: new device\r\n", b"root@b:~# ", 0.1),
        (b"\r\nroot@b:/tmp# ", b"root@b:~# ", 0.1),  # behind `cd /tmp`
        (b"\r\n> ", b"", 0.1),  # the prompt was printed before we came
        (b"\r\n", b"", 2.0),
        (b"", b"=> ", None),
    ],
)
def test_the_board_waits_for_a_line_where_its_prompt_stands(
    heard: bytes, prompt: bytes, needed: float | None
) -> None:
    assert paced_send.silence_needed(heard, prompt, 0.1) == needed


async def test_a_pause_follows_each_character_and_each_line(tmp_path: Path) -> None:
    async with serving(tmp_path) as bench:
        writes: list[tuple[float, bytes]] = []
        loop, write = asyncio.get_running_loop(), bench.write

        async def noted(port: str, data: bytes, source: Any) -> int:
            writes.append((loop.time(), data))
            return await write(port, data, source)

        bench.write = noted  # type: ignore[method-assign]
        body = {"text": "a\rbü", "delay_char_ms": 10, "delay_line_ms": 30}
        status, told = await sends(tmp_path, body)
        pauses = [after[0] - before[0] for before, after in pairwise(writes)]

        assert (status, "echoed" in told) == (200, False)
        assert [data for _, data in writes] == [b"a", b"\r", b"b", "ü".encode()]
        assert [p >= least for p, least in zip(pauses, (0.01, 0.04, 0.01), strict=True)] == [
            True, True, True,
        ]  # fmt: skip


def test_bytes_are_cut_into_the_characters_that_a_board_shows() -> None:
    assert characters("aü✓\r".encode() + b"\xc3\xff") == [
        b"a", b"\xc3\xbc", b"\xe2\x9c\x93", b"\r", b"\xc3", b"\xff",
    ]  # fmt: skip


@pytest.mark.parametrize(
    "body",
    [
        {"delay_char_ms": -1},
        {"delay_char_ms": "5"},
        {"delay_line_ms": True},
        {"delay_line_ms": 60_001},
        {"wait_echo": 1},
    ],
)
async def test_a_pace_that_makes_no_sense_is_refused_and_nothing_is_sent(
    tmp_path: Path, body: dict[str, Any]
) -> None:
    async with serving(tmp_path) as bench:
        status, told = await sends(tmp_path, {"text": "x"} | body)

        assert (status, told["error"]["code"]) == (400, "bad_request")
        assert next(iter(body)) in told["error"]["message"]
        assert bench.by_name["dut1"].cable.received() == b""


# Who else wants the port meanwhile


@asynccontextmanager
async def half_way(tmp_path: Path, bench: FakeBench) -> AsyncIterator[tuple[SlowBoard, Any]]:
    """Send `abcdef`; the board has got `abc` and has not shown the last of it yet."""
    async with slow_board(bench) as board, asyncio.TaskGroup() as tasks:
        board.keeps_still_at = b"c"
        sending = tasks.create_task(sends(tmp_path, {"text": "abcdef"} | ECHOING))
        await board.until(lambda: board.got == b"abc")
        yield board, sending
        await within_s(5, sending)


async def test_nobody_types_in_between_and_the_lease_is_free_afterwards(tmp_path: Path) -> None:
    async with serving(tmp_path) as bench, attached(tmp_path) as viewer:
        async with half_way(tmp_path, bench) as (board, sending):
            taken = await viewer.until("lease")
            await viewer.ws.send_bytes(b"x")
            refused = await viewer.until("error")
            status, told = await sends(tmp_path, {"text": "y"})
            again, _ = await sends(tmp_path, {"text": "y"} | ECHOING)
            board.prints(b"c")
            await within_s(5, sending)
        freed = await viewer.until("lease")
        await viewer.ws.send_bytes(b"z")

        assert (taken["why"], taken["yours"], freed["why"]) == ("taken", False, "released")
        assert f"(pid {os.getpid()}) is typing on dut1" in refused["message"]
        assert (status, again) == (409, 409)
        assert f"(pid {os.getpid()}) is sending to dut1" in told["error"]["message"]
        assert (await viewer.until("lease"))["yours"]
        assert (board.got, sending.result()[0]) == (b"abcdef", 200)


async def test_whoever_takes_over_ends_the_send(tmp_path: Path) -> None:
    async with serving(tmp_path) as bench, attached(tmp_path) as viewer:
        async with half_way(tmp_path, bench) as (board, sending):
            await viewer.ws.send_str('{"steal": true}')
            await within_s(5, sending)
        status, told = sending.result()

        assert (status, board.got) == (409, b"abc")
        assert "has taken over dut1: 3 of 6 bytes were sent" in told["error"]["message"]
        assert bench.audits[-1].bytes == 3


async def test_one_that_types_may_send_too_and_keeps_the_lease(tmp_path: Path) -> None:
    async with serving(tmp_path) as bench, attached(tmp_path) as viewer, slow_board(bench) as board:
        await viewer.ws.send_bytes(b"x")
        await board.until(lambda: board.got == b"x")
        status, _ = await sends(tmp_path, {"text": "yz"} | ECHOING)
        await viewer.ws.send_str('{"marker": {"text": "after"}}')
        await viewer.until_note()

        assert (status, board.got) == (200, b"xyz")
        assert [body["why"] for what, body in viewer.told if what == "lease"] == ["taken"]


async def test_a_send_ends_when_whoever_asked_for_it_has_left(tmp_path: Path) -> None:
    async with serving(tmp_path) as bench, slow_board(bench) as board:
        board.keeps_still_at = b"c"
        async with client(tmp_path) as http:
            asking = asyncio.create_task(
                http.post("/v1/ports/dut1/send", json={"text": "abcdef"} | ECHOING)
            )
            await board.until(lambda: board.got == b"abc")
            asking.cancel()
            await asyncio.wait([asking])
        async with asyncio.timeout(5):
            while not bench.audits:
                await asyncio.sleep(0)

        assert bench.audits[0].bytes == 3
        assert bench.audits[0].result == (
            "whoever sent it has left: 3 of 6 bytes were sent, 2 of 6 characters came back"
        )
        assert board.got == b"abc"


async def test_a_port_that_is_lost_half_way_is_told(tmp_path: Path) -> None:
    async with serving(tmp_path) as bench:
        async with half_way(tmp_path, bench) as (_, sending):
            bench.change("dut1", state="absent")
        status, told = sending.result()

        assert status == 409
        assert told["error"]["message"].startswith("port dut1 is absent: 3 of 6 bytes were sent")


async def test_a_daemon_that_stops_ends_a_send_and_notes_how_far_it_came(tmp_path: Path) -> None:
    async with serving(tmp_path) as bench, slow_board(bench) as board:
        board.keeps_still_at = b"c"
        async with client(tmp_path) as http:
            asking = asyncio.create_task(
                http.post("/v1/ports/dut1/send", json={"text": "abcdef"} | ECHOING)
            )
            await board.until(lambda: board.got == b"abc")
            assert bench.server is not None
            await within_s(5, bench.server.stop())
            told = await (await within_s(5, asking)).json()

        assert told["error"]["message"].startswith("the daemon stops: 3 of 6 bytes were sent")
        assert (bench.audits[0].bytes, bench.audits[0].result) == (3, told["error"]["message"])


# The command


def test_send_waits_for_the_echo_when_it_is_asked_to(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with threaded_bench(tmp_path) as threaded:
        board = threaded.do(lambda: SlowBoard(threaded.bench.by_name["dut1"].cable))
        cli = Cli(tmp_path / "sw", capsys)
        own = ("send", "dut1", "--socket", str(cli.socket))
        shown = cli(*own, "--wait-echo", "--delay-char", "1", "md 0")
        told = cli(*own, "--wait-echo", "--json", "x")
        threaded.do(board.close)

    assert shown.code == 0
    assert shown.out.splitlines()[:2] == [
        "sent exactly 5 bytes to dut1: 6d 64 20 30 0d",
        "the board has shown all of it",
    ]
    assert json.loads(told.out)["echoed"] == 2
    assert (board.got, board.lost) == (b"md 0\rx\r", b"")


def test_an_echo_that_does_not_come_is_one_line_and_a_fault(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], impatient: None
) -> None:
    with threaded_bench(tmp_path):
        cli = Cli(tmp_path / "sw", capsys)
        shown = cli("send", "dut1", "--socket", str(cli.socket), "--wait-echo", "root")

    assert (shown.code, shown.out) == (1, "")
    assert shown.err.startswith(
        "serialwatch: port dut1: 0 of 5 characters came back, then not `r` within 0.05 s: nothing "
    )
    assert shown.err.count("\n") == 1
