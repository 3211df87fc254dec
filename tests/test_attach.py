"""Attached clients: many watch, one types, and none holds the others up."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import sys
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import aiohttp
import pytest

from bench_api import NOT_A_DAEMON, FakeBench, client, incident, serving
from bench_cable import within_s
from serialwatch.api import attach as attach_module
from serialwatch.api.attach import last_lines
from serialwatch.api.attached import Limits
from serialwatch.api.bench import BenchError
from serialwatch.api.rights import Policy
from serialwatch.records import IncidentChange

QUICK = Limits(stalled_s=1.0, lease_s=0.5, ping_s=0.1)


class Console:
    """A client that keeps what it gets."""

    def __init__(self, ws: aiohttp.ClientWebSocketResponse) -> None:
        self.ws = ws
        self.data = b""
        self.told: list[tuple[str, Any]] = []

    async def take(self) -> None:
        """Take the next message."""
        message = await self.ws.receive()
        if message.type is aiohttp.WSMsgType.BINARY:
            self.data += message.data
        elif message.type is aiohttp.WSMsgType.TEXT:
            ((what, body),) = json.loads(message.data).items()
            self.told.append((what, body))
        else:
            raise ConnectionError(message)

    async def until(self, what: str) -> Any:
        """Take messages up to the next one called `what`; return its body."""
        async with asyncio.timeout(5):
            seen = len(self.told)
            while not any(name == what for name, _ in self.told[seen:]):
                await self.take()
        return self.told[-1][1]

    async def until_bytes(self, end: bytes, limit_s: float = 5) -> None:
        """Take messages until what the board has printed ends like this."""
        async with asyncio.timeout(limit_s):
            while not self.data.endswith(end):
                await self.take()

    async def until_size(self, size: int) -> None:
        """Take messages until the board has printed so many bytes."""
        async with asyncio.timeout(20):
            while len(self.data) < size:
                await self.take()

    async def until_note(self) -> Any:
        """Take messages until a person's marker comes; return it."""
        while (marker := await self.until("marker"))["kind"] != "note":
            pass
        return marker


@asynccontextmanager
async def attached(tmp_path: Path, query: str = "", port: str = "dut1") -> AsyncIterator[Console]:
    """Attach to a port; the hello has been taken."""
    async with client(tmp_path) as http, http.ws_connect(f"/v1/attach/{port}{query}") as ws:
        console = Console(ws)
        await console.until("hello")
        yield console


async def received(bench: FakeBench, count: int, port: str = "dut1") -> bytes:
    """Return what the board got, as soon as it is so many bytes."""
    got = b""
    async with asyncio.timeout(5):
        while len(got) < count:
            got += bench.by_name[port].cable.received()
            await asyncio.sleep(0)
    return got


async def test_a_client_gets_the_last_lines_and_then_what_comes_without_a_seam(
    tmp_path: Path,
) -> None:
    async with serving(tmp_path) as bench:
        cable = bench.by_name["dut1"].cable
        async with attached(tmp_path) as first:
            cable.prints(b"one\r\ntwo\r\nthree\r\n=> ")
            await first.until_bytes(b"=> ")
            async with attached(tmp_path, "?lines=2") as second:
                hello = second.told[0][1]
                cable.prints(b"md\r\nfour\r\n")
                await second.until_bytes(b"four\r\n")

        assert hello["scrollback"] == len(b"two\r\nthree\r\n=> ")
        assert second.data == b"two\r\nthree\r\n=> md\r\nfour\r\n"
        assert first.data.startswith(b"one\r\ntwo")


@pytest.mark.parametrize(
    ("data", "lines", "tail"),
    [
        (b"a\nb\nc\n", 2, b"b\nc\n"),
        (b"a\nb\nc", 1, b"b\nc"),
        (b"a\nb\n", 0, b""),
        (b"a\nb", 0, b"b"),
        (b"a\nb", -1, b"a\nb"),
        (b"a\nb\n", 9, b"a\nb\n"),
        (b"a\rb\rc\r", 1, b"c\r"),
        (b"", 5, b""),
    ],
)
def test_the_last_lines_are_found(data: bytes, lines: int, tail: bytes) -> None:
    assert last_lines(data, lines) == tail


async def test_the_hello_says_how_the_port_stands_and_what_one_may(tmp_path: Path) -> None:
    async with serving(tmp_path), attached(tmp_path) as console:
        hello = console.told[0][1]

        assert hello["port"]["name"] == "dut1"
        assert hello["port"]["state"] == "up"
        assert (hello["rights"], hello["may_write"], hello["lease"]) == ("admin", True, {})
        assert hello["scrollback"] == 0


async def test_every_byte_value_passes_both_ways(tmp_path: Path) -> None:
    everything = bytes(range(256))
    async with serving(tmp_path) as bench, attached(tmp_path) as console:
        bench.by_name["dut1"].cable.prints(everything)
        await console.until_bytes(everything)
        await console.ws.send_bytes(everything)

        assert console.data == everything
        assert await received(bench, 256) == everything


async def test_attaching_and_leaving_sends_nothing(tmp_path: Path) -> None:
    async with serving(tmp_path) as bench:
        for query in ("", "?read_only=1", "?steal=1", "?lines=0"):
            async with attached(tmp_path, query) as console:
                bench.by_name["dut1"].cable.prints(b"x")
                await console.until_bytes(b"x")

        assert bench.by_name["dut1"].cable.received() == b""


async def test_the_first_key_takes_the_lease_and_everybody_is_told(tmp_path: Path) -> None:
    async with serving(tmp_path) as bench, attached(tmp_path) as one, attached(tmp_path) as two:
        await one.ws.send_bytes(b"a")
        mine, theirs = await one.until("lease"), await two.until("lease")
        await two.ws.send_bytes(b"b")
        refusal = await two.until("error")

        assert (mine["why"], mine["yours"], theirs["yours"]) == ("taken", True, False)
        assert theirs["holder"]["uid"] == os.geteuid()
        assert refusal["code"] == "not_now"
        assert f"(pid {os.getpid()}) is typing on dut1" in refusal["message"]
        assert await received(bench, 1) == b"a"
        assert [m.kind for m in bench.markers] == ["attach"]


async def test_a_refusal_is_told_once_not_for_each_key(tmp_path: Path) -> None:
    async with serving(tmp_path), attached(tmp_path) as one, attached(tmp_path) as two:
        await one.ws.send_bytes(b"a")
        await two.until("lease")
        for _ in range(5):
            await two.ws.send_bytes(b"b")
        await two.ws.send_str('{"marker": {"text": "after the keys"}}')
        await two.until_note()

        assert [what for what, _ in two.told].count("error") == 1


async def test_keys_that_were_on_their_way_behind_refused_ones_are_dropped_and_told(
    tmp_path: Path,
) -> None:
    async with serving(tmp_path) as bench, attached(tmp_path) as console:
        await console.ws.send_bytes(b"ok\r")
        await console.until("lease")
        writing, go_on = asyncio.Event(), asyncio.Event()
        take = bench.write

        async def fail(port: str, data: bytes, source: str) -> int:
            writing.set()
            await go_on.wait()
            bench.write = take  # type: ignore[method-assign]
            raise BenchError("failed", "1 of 6 bytes were taken in 5 s", sent=1)

        bench.write = fail  # type: ignore[method-assign]
        for part in (b"set a ", b"1; run a", b"\r"):
            await console.ws.send_bytes(part)
        await within_s(5, writing.wait())
        go_on.set()
        told = await console.until("error")
        dropped = await console.until("refused")
        await console.ws.send_bytes(b"typed later")

        assert (told["message"], told["until"]) == ("1 of 6 bytes were taken in 5 s", 1)
        assert dropped == {"bytes": len(b"1; run a\r")}
        assert await received(bench, 14) == b"ok\rtyped later"


async def test_the_same_refusal_again_is_no_error_but_drops_what_follows_too(
    tmp_path: Path,
) -> None:
    async with serving(tmp_path) as bench, attached(tmp_path) as console:
        bench.change("dut1", state="absent", problem="unplugged")
        await console.ws.send_bytes(b"x")
        await console.ws.send_bytes(b"yz")

        assert (await console.until("error"))["until"] == 1
        assert await console.until("refused") == {"bytes": 2}  # the ping is answered
        await console.ws.send_bytes(b"x")
        assert await console.until("refused") == {"bytes": 1, "until": 2}
        assert bench.by_name["dut1"].cable.received() == b""


async def test_the_lease_can_be_stolen_and_its_old_holder_types_no_more(tmp_path: Path) -> None:
    async with serving(tmp_path) as bench, attached(tmp_path) as one, attached(tmp_path) as two:
        await one.ws.send_bytes(b"a")
        await one.until("lease")
        await two.ws.send_str('{"steal": true}')
        lost = await one.until("lease")
        await one.ws.send_bytes(b"x")
        await one.until("error")
        await two.ws.send_bytes(b"b")

        assert (lost["why"], lost["yours"]) == ("stolen", False)
        assert lost["before"]["client"] != lost["holder"]["client"]
        assert await received(bench, 2) == b"ab"


async def test_no_line_is_lost_while_the_lease_goes_to_and_fro(tmp_path: Path) -> None:
    async with serving(tmp_path) as bench, attached(tmp_path) as one, attached(tmp_path) as two:
        printed = b""
        for number in range(100):
            line = b"line %d of a board that prints on\r\n" % number
            bench.by_name["dut1"].cable.prints(line)
            printed += line
            await (one, two)[number % 2].ws.send_str('{"steal": true}')
            await one.until("lease")
        await one.until_size(len(printed))
        await two.until_size(len(printed))

        assert one.data == two.data == printed
        assert bench.by_name["dut1"].cable.received() == b""


async def test_steal_can_be_asked_for_when_attaching(tmp_path: Path) -> None:
    async with serving(tmp_path), attached(tmp_path) as one:
        await one.ws.send_bytes(b"a")
        await one.until("lease")
        async with attached(tmp_path, "?steal=1") as two:
            assert (await two.until("lease"))["yours"]


async def test_the_lease_is_free_when_its_holder_leaves_or_gives_it_back(tmp_path: Path) -> None:
    async with serving(tmp_path) as bench, attached(tmp_path) as one:
        async with attached(tmp_path) as two:
            await two.ws.send_bytes(b"a")
            await one.until("lease")
        left = await one.until("lease")
        await one.ws.send_bytes(b"b")
        await one.until("lease")
        await one.ws.send_str('{"lease": false}')
        given = await one.until("lease")

        assert (left["why"], left["holder"]) == ("released", {})
        assert (given["why"], given["holder"]) == ("released", {})
        assert await received(bench, 2) == b"ab"


@pytest.mark.parametrize("query", ["?read_only=1", ""])
async def test_whoever_may_not_write_is_refused(tmp_path: Path, query: str) -> None:
    async with serving(tmp_path) as bench:
        if not query:
            bench.change("dut1", may_write=False)
        async with attached(tmp_path, query) as console:
            hello = console.told[0][1]
            await console.ws.send_bytes(b"x")
            refusal = await console.until("error")
            for control in ('{"break": 0.25}', '{"lines": {"dtr": true}}', '{"steal": true}'):
                await console.ws.send_str(control)
            await console.ws.send_str('{"marker": {"text": "end"}}')
            await console.until("marker")

        assert not hello["may_write"]
        assert refusal["message"] == hello["why_not"]
        assert bench.by_name["dut1"].cable.received() == b""
        assert (bench.breaks, bench.lines) == ([], [])


async def test_break_lines_and_marker_are_done_and_audited(tmp_path: Path) -> None:
    async with serving(tmp_path) as bench, attached(tmp_path) as console:
        for control in (
            '{"break": 0.5}',
            '{"lines": {"dtr": true, "rts": false}}',
            '{"marker": {"text": "  new\\u001b board "}}',
        ):
            await console.ws.send_str(control)
        marker = await console.until_note()

        assert bench.breaks == [("dut1", 0.5)]
        assert bench.lines == [("dut1", True, False)]
        assert marker["text"] == "new\\x1b board"
        assert [(e.action, dict(e.detail)) for e in bench.audits] == [
            ("attach", {"lease": "taken"}),
            ("break", {"seconds": "0.5"}),
            ("lines", {"dtr": "on", "rts": "off"}),
            ("mark", {"text": "new\\x1b board"}),
        ]


@pytest.mark.parametrize(
    "control",
    [
        "nonsense",
        "[]",
        "{}",
        '{"break": 0}',
        '{"break": 60}',
        '{"break": true}',
        '{"break": "long"}',
        '{"lines": {}}',
        '{"lines": {"cts": true}}',
        '{"lines": {"dtr": 1}}',
        '{"marker": {"text": " "}}',
        '{"lease": 1, "steal": 1}',
        '{"run": "rm"}',
    ],
)
async def test_a_wrong_control_message_is_refused_and_harms_nothing(
    tmp_path: Path, control: str
) -> None:
    async with serving(tmp_path) as bench, attached(tmp_path) as console:
        await console.ws.send_str(control)

        assert (await console.until("error"))["code"] == "bad_request"
        assert (bench.breaks, bench.lines, bench.markers) == ([], [], [])


async def test_what_is_typed_is_audited_by_length_and_hash_not_by_content(tmp_path: Path) -> None:
    async with serving(tmp_path) as bench:
        async with attached(tmp_path) as console:
            await console.ws.send_bytes(b"secret")
            await console.ws.send_bytes(b"\r")
            await received(bench, 7)
        async with asyncio.timeout(5):
            while len(bench.audits) < 2:
                await asyncio.sleep(0)

        entry = bench.audits[1]
        assert (entry.action, entry.bytes, set(entry.detail)) == ("attach", 7, {"sha256"})
        assert "secret" not in str(bench.audits)


async def test_another_persons_send_does_not_mix_with_what_is_typed(tmp_path: Path) -> None:
    async with serving(tmp_path) as bench, attached(tmp_path) as console, client(tmp_path) as http:
        await console.ws.send_bytes(b"a")
        await console.until("lease")
        async with http.post("/v1/ports/dut1/send", json={"text": "b"}) as answer:
            assert answer.status == 200  # the same person may
        assert await received(bench, 2) == b"ab"

        assert bench.server is not None
        assert (writer := bench.server.consoles.writer("dut1")) is not None
        assert writer.uid == os.geteuid()


async def test_the_session_survives_an_unplug(tmp_path: Path) -> None:
    async with serving(tmp_path) as bench, attached(tmp_path) as console:
        bench.change("dut1", state="absent", problem="unplugged")
        gone = await console.until("state")
        await console.ws.send_bytes(b"x")
        refusal = await console.until("error")
        bench.change("dut1", state="up", problem="")
        back = await console.until("state")
        bench.by_name["dut1"].cable.prints(b"U-Boot\r\n")
        await console.until_bytes(b"U-Boot\r\n")

        assert (gone["state"], gone["problem"], back["state"]) == ("absent", "unplugged", "up")
        assert refusal["message"] == "port dut1 is absent"


async def test_an_incident_is_told_to_those_who_watch_its_port(tmp_path: Path) -> None:
    async with serving(tmp_path) as bench, attached(tmp_path) as console:
        assert bench.server is not None
        bench.server.on_incident(IncidentChange("changed", incident(16)))
        bench.server.on_incident(IncidentChange("opened", incident(17, port="dut2")))
        bench.server.on_incident(IncidentChange("opened", incident(18)))

        assert (await console.until("incident"))["id"] == 18


async def test_who_is_attached_is_listed(tmp_path: Path) -> None:
    async with serving(tmp_path), attached(tmp_path) as one, client(tmp_path) as http:
        await one.ws.send_bytes(b"a")
        await one.until("lease")
        async with http.get("/v1/ports") as answer:
            ports = (await answer.json())["ports"]

        (listed,) = ports[0]["attached"]
        assert (listed["pid"], listed["has_lease"]) == (os.getpid(), True)
        assert ports[1]["attached"] == []


async def test_a_client_that_does_not_read_loses_only_its_own_bytes_and_is_told_how_many(
    tmp_path: Path,
) -> None:
    block = bytes(range(256)) * 16
    async with serving(tmp_path) as bench, attached(tmp_path) as quick:
        async with client(tmp_path) as http, http.ws_connect("/v1/attach/dut1") as slow:
            for number in range(1280):  # 5 MB
                await bench.by_name["dut1"].cable.prints_all(block)
                if number % 16 == 15:
                    await quick.until_size((number + 1) * len(block))
            await bench.by_name["dut1"].cable.prints_all(b"the end")
            await quick.until_bytes(b"the end", limit_s=30)
            late = Console(slow)
            await late.until_bytes(b"the end", limit_s=30)
        logged = bench.by_name["dut1"].log_path.read_bytes()

        assert logged == block * 1280 + b"the end"
        assert quick.data == logged
        lost = sum(body for what, body in late.told if what == "lag")
        assert lost > 1_000_000
        assert lost + len(late.data) == len(logged)
        assert bench.lost == {"dut1": lost}


STOPPED = """
import asyncio, sys, aiohttp
async def main():
    connector = aiohttp.UnixConnector(sys.argv[1])
    async with aiohttp.ClientSession("http://sw", connector=connector) as http:
        async with http.ws_connect("/v1/attach/dut1") as ws:
            await ws.receive()
            await ws.send_bytes(b"a")
            print("attached", flush=True)
            async for _ in ws:
                pass
asyncio.run(main())
"""


@asynccontextmanager
async def another_process(tmp_path: Path) -> AsyncIterator[asyncio.subprocess.Process]:
    """Attach a process that types one key and then reads what comes."""
    child = await asyncio.create_subprocess_exec(
        sys.executable, "-c", STOPPED, str(tmp_path / "sw"), stdout=asyncio.subprocess.PIPE
    )
    assert child.stdout is not None
    try:
        assert await within_s(20, child.stdout.readline()) == b"attached\n"
        yield child
    finally:
        child.kill()
        await child.wait()


async def test_a_stopped_client_loses_the_lease_and_then_its_connection(tmp_path: Path) -> None:
    async with serving(tmp_path, limits=QUICK) as bench, attached(tmp_path) as watcher:
        assert bench.server is not None
        async with another_process(tmp_path) as child:
            await watcher.until("lease")
            os.kill(child.pid, signal.SIGSTOP)
            expired = await watcher.until("lease")
            await watcher.ws.send_bytes(b"b")
            taken = await watcher.until("lease")
            async with asyncio.timeout(10):
                while len(bench.server.consoles.attached("dut1")) > 1:
                    bench.by_name["dut1"].cable.prints(b"tick\r\n")
                    await watcher.take()
                    await asyncio.sleep(0)
            os.kill(child.pid, signal.SIGCONT)

        assert (expired["why"], expired["before"]["pid"]) == ("expired", child.pid)
        assert taken["yours"]


async def test_a_stopped_client_under_a_flood_is_cut_off_and_the_capture_is_whole(
    tmp_path: Path,
) -> None:
    block = b"0123456789abcdef" * 256
    async with serving(tmp_path, limits=QUICK) as bench, attached(tmp_path) as quick:
        assert bench.server is not None
        async with another_process(tmp_path) as child:
            os.kill(child.pid, signal.SIGSTOP)
            printed = 0
            async with asyncio.timeout(20):
                while len(bench.server.consoles.attached("dut1")) > 1:
                    await bench.by_name["dut1"].cable.prints_all(block)
                    printed += 1
                    if printed % 8 == 0:
                        await quick.until_size(printed * len(block))
            os.kill(child.pid, signal.SIGCONT)
        await quick.until_size(printed * len(block))

        assert bench.by_name["dut1"].log_path.read_bytes() == block * printed
        assert quick.data == block * printed


async def test_a_slow_but_living_client_stays(tmp_path: Path) -> None:
    async with serving(tmp_path, limits=QUICK) as bench, attached(tmp_path) as slow:
        until_s = time.monotonic() + 2 * QUICK.stalled_s
        while time.monotonic() < until_s:
            await bench.by_name["dut1"].cable.prints_all(b"x" * 100 * 1024)
            await slow.take()

        assert bench.server is not None
        assert len(bench.server.consoles.attached("dut1")) == 1
        assert bench.lost["dut1"] > 0


async def test_clients_killed_in_mid_stream_leave_nothing_behind(tmp_path: Path) -> None:
    async with serving(tmp_path) as bench:
        assert bench.server is not None
        for _ in range(50):
            async with client(tmp_path) as http:
                ws = await http.ws_connect("/v1/attach/dut1")
                await ws.receive()
                bench.by_name["dut1"].cable.prints(b"x" * 2000)
                response = ws._response
                assert response.connection is not None
                assert response.connection.transport is not None
                response.connection.transport.abort()
        async with asyncio.timeout(5):
            while bench.server.consoles.attached("dut1"):
                await asyncio.sleep(0)

        assert bench.server.consoles._clients == {}
        assert bench.server.consoles._leases == {}


async def test_48_clients_attach_at_once(tmp_path: Path) -> None:
    async with serving(tmp_path) as bench, client(tmp_path) as http:
        sockets = await within_s(
            20, asyncio.gather(*(http.ws_connect("/v1/attach/dut1") for _ in range(48)))
        )
        consoles = [Console(ws) for ws in sockets]
        for console in consoles:
            await console.until("hello")
        bench.by_name["dut1"].cable.prints(b"for all\r\n")
        for console in consoles:
            await console.until_bytes(b"for all\r\n")

        assert [console.told[0][0] for console in consoles] == ["hello"] * 48
        for ws in sockets:
            await ws.close()


async def test_there_is_a_limit_to_how_many_attach(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(attach_module, "MAX_CLIENTS", 1)
    async with serving(tmp_path), attached(tmp_path), client(tmp_path) as http:
        with pytest.raises(aiohttp.WSServerHandshakeError) as refused:
            await http.ws_connect("/v1/attach/dut2")

        assert refused.value.status == 409


async def test_an_unknown_port_is_refused_before_the_handshake(tmp_path: Path) -> None:
    async with serving(tmp_path), client(tmp_path) as http:
        with pytest.raises(aiohttp.WSServerHandshakeError) as refused:
            await http.ws_connect("/v1/attach/dut9")

        assert refused.value.status == 404


async def test_a_process_of_the_daemon_may_watch_but_not_type(tmp_path: Path) -> None:
    own = Policy(is_system=False, uid=os.geteuid(), pid=os.getppid())
    async with serving(tmp_path, policy=own) as bench, attached(tmp_path) as console:
        await console.ws.send_bytes(b"x")
        await console.until("error")
        await console.ws.send_str('{"marker": {"text": "x"}}')
        refusal = await console.until("error")

        assert refusal["message"].endswith("may only view")
        assert bench.by_name["dut1"].cable.received() == b""
        assert bench.markers == []
    assert own.pid != NOT_A_DAEMON


async def test_malformed_frames_end_that_client_and_no_other(tmp_path: Path) -> None:
    handshake = (
        b"GET /v1/attach/dut1 HTTP/1.1\r\nHost: sw\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n"
        b"Sec-WebSocket-Key: AAAAAAAAAAAAAAAAAAAAAA==\r\nSec-WebSocket-Version: 13\r\n\r\n"
    )
    async with serving(tmp_path) as bench, attached(tmp_path) as other:
        for frame in (b"\xff\xff\xff\xff", b"\x81\xfe\xff\xff\x00", b"\x82\xff" + b"\x7f" * 8):
            reader, writer = await asyncio.open_unix_connection(str(tmp_path / "sw"))
            writer.write(handshake + frame)
            writer.write_eof()
            await within_s(5, reader.read())
            writer.close()
        bench.by_name["dut1"].cable.prints(b"still here\r\n")
        await other.until_bytes(b"still here\r\n")

        assert bench.by_name["dut1"].cable.received() == b""


async def test_a_fault_of_ours_in_one_client_leaves_the_others_alone(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with serving(tmp_path) as bench, attached(tmp_path) as other:

        async def broken(port: str, data: bytes, source: str) -> int:
            raise ZeroDivisionError("planted")

        monkeypatch.setattr(bench, "write", broken)
        async with attached(tmp_path) as victim:
            await victim.ws.send_bytes(b"x")
            with pytest.raises(ConnectionError):
                await victim.until("nothing")
        bench.by_name["dut1"].cable.prints(b"still here\r\n")
        await other.until_bytes(b"still here\r\n")

    assert "planted" in caplog.text


async def test_who_is_attached_to_a_port_that_is_gone_is_told(tmp_path: Path) -> None:
    async with serving(tmp_path) as bench, attached(tmp_path) as console:
        gone = bench.by_name.pop("dut1")
        assert bench.server is not None
        bench.server.on_state("dut1")
        told = await console.until("error")
        bench.by_name["dut1"] = gone

    assert told["message"] == "port dut1 is no longer configured"


async def test_a_message_of_brackets_is_refused_like_any_other(tmp_path: Path) -> None:
    async with serving(tmp_path), attached(tmp_path) as console:
        await console.ws.send_str("[" * 100_000)

        assert (await console.until("error"))["code"] == "bad_request"
