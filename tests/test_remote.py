"""Ports of other machines: exact both ways, back after each outage, no line touched."""

from __future__ import annotations

import asyncio
import errno
import socket
import struct
import termios
import threading
import time
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from bench_cable import Cable, within_s
from bench_ser2net import free_port, needs_ser2net, ser2net
from serialwatch.capture import reader as reader_module
from serialwatch.config import load_config
from serialwatch.tomlfile import TomlError
from serialwatch_drivers import rfc2217 as rfc2217_module
from serialwatch_drivers import tcp as tcp_module
from serialwatch_drivers.find import find_opener
from serialwatch_drivers.port import (
    Port,
    PortLostError,
    PortOpenError,
    PortOptions,
    PortWriteError,
    UartCounters,
)
from serialwatch_drivers.tcp import connect_error, is_refusal
from serialwatch_drivers.telnet import Telnet, doubled
from test_reader import bench_on

EVERYTHING = bytes(range(256)) * 8
ACCEPTERS = {"socket": "tcp", "rfc2217": "telnet(rfc2217),tcp"}
_TCP_REPAIR = 19  # not in Python's socket module


class Opened:
    """An open port and what it pushed."""

    def __init__(self) -> None:
        self.data = bytearray()
        self.lost: asyncio.Queue[PortLostError] = asyncio.Queue()
        self.port: Port

    async def has(self, count: int) -> None:
        async with asyncio.timeout(10):
            while len(self.data) < count:
                await asyncio.sleep(0.001)


@asynccontextmanager
async def opened(device: str, options: PortOptions | None = None) -> AsyncIterator[Opened]:
    made = Opened()
    made.port = await find_opener(device)(
        device,
        options or PortOptions(),
        lambda data, _: made.data.extend(data),
        made.lost.put_nowait,
    )
    try:
        yield made
    finally:
        made.port.close()
        await made.port.wait_closed()


async def received(cable: Cable, count: int) -> bytes:
    got = b""
    async with asyncio.timeout(10):
        while len(got) < count:
            got += cable.received()
            await asyncio.sleep(0.001)
    return got


@contextmanager
def listening() -> Iterator[socket.socket]:
    with socket.create_server(("127.0.0.1", 0)) as server:
        server.settimeout(5)
        yield server


def url(server: socket.socket, scheme: str = "socket") -> str:
    return f"{scheme}://127.0.0.1:{server.getsockname()[1]}"


async def refused(device: str) -> PortOpenError:
    with pytest.raises(PortOpenError) as caught:
        async with opened(device):
            pass
    return caught.value


# With a real ser2net


@needs_ser2net
@pytest.mark.parametrize("scheme", ACCEPTERS)
async def test_every_byte_value_passes_both_ways(cable: Cable, tmp_path: Path, scheme: str) -> None:
    async with (
        ser2net(tmp_path, cable, ACCEPTERS[scheme]) as server,
        opened(f"{scheme}://127.0.0.1:{server.port}") as made,
    ):
        await cable.prints_all(EVERYTHING * 20)
        await made.has(len(EVERYTHING) * 20)
        await made.port.write(EVERYTHING)
        got = await received(cable, len(EVERYTHING))

    assert bytes(made.data) == EVERYTHING * 20
    assert got == EVERYTHING


@needs_ser2net
@pytest.mark.parametrize("scheme", ACCEPTERS)
async def test_opening_and_closing_sends_the_board_nothing(
    cable: Cable, tmp_path: Path, scheme: str
) -> None:
    async with ser2net(tmp_path, cable, ACCEPTERS[scheme]) as server:
        for _ in range(3):
            async with opened(f"{scheme}://127.0.0.1:{server.port}") as made:
                size = len(made.data)
                cable.prints(b"Hit any key to stop autoboot:  3 ")
                await made.has(size + 33)

    assert cable.received() == b""


@needs_ser2net
@pytest.mark.parametrize("scheme", ACCEPTERS)
async def test_who_comes_second_is_told_that_the_port_is_in_use(
    cable: Cable, tmp_path: Path, scheme: str
) -> None:
    async with ser2net(tmp_path, cable, ACCEPTERS[scheme]) as server:
        device = f"{scheme}://127.0.0.1:{server.port}"
        async with opened(device):
            exc = await refused(device)

    assert exc.kind == "busy"
    assert "Port already in use" in exc.problem


@needs_ser2net
@pytest.mark.parametrize("scheme", ACCEPTERS)
async def test_a_server_that_restarts_is_connected_again_and_lines_go_on(
    cable: Cable, tmp_path: Path, scheme: str, caplog: pytest.LogCaptureFixture
) -> None:
    async with (
        ser2net(tmp_path, cable, ACCEPTERS[scheme]) as server,
        bench_on(f"{scheme}://127.0.0.1:{server.port}") as bench,
    ):
        bench.reader.number_from(1, 0)
        await bench.up()
        cable.prints(b"one\r\nhalf a li")
        await bench.has_bytes(14)
        server.stop()
        await bench.heard.until(lambda: bench.reader.state == "absent")
        problem = bench.reader.problem
        await server.start()
        await bench.up()
        cable.prints(b"two\r\n")
        await bench.has_line(b"two")

    assert "the peer closed" in problem or "broke" in problem
    assert bench.heard.lines == {1: b"one", 2: b"half a li", 3: b"two"}
    assert cable.received() == b""


@needs_ser2net
async def test_a_server_that_is_gone_for_long_costs_few_tries_and_two_lines_of_log(
    cable: Cable,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    caplog.set_level("INFO", "serialwatch")
    monkeypatch.setattr(reader_module, "FIRST_WAIT_S", 0.25 / 40)  # 10 s in 0.25 s
    monkeypatch.setattr(reader_module, "REMOTE_WAIT_S", 2.0 / 40)
    async with (
        ser2net(tmp_path, cable, "tcp") as server,
        bench_on(f"socket://127.0.0.1:{server.port}") as bench,
    ):
        bench.reader.number_from(1, 0)
        await bench.up()
        server.stop()
        await bench.heard.until(lambda: bench.reader.state == "absent")
        began_s = time.monotonic()
        async with asyncio.timeout(10):
            while bench.reader._tries < 7:
                await asyncio.sleep(0.005)
        took_s = time.monotonic() - began_s
        await server.start()
        await bench.up()
    told = [r.message for r in caplog.records if r.name == "serialwatch.capture.reader"]

    # The first at once, then 0.25, 0.5, 1, 2, 2 s later, give or take a tenth.
    assert took_s >= 0.9 * (0.25 + 0.5 + 1 + 2 + 2) / 40
    assert len(told) == 3  # up, absent, back
    tries = bench.reader.stats.opens["absent"] + 1
    assert told[-1].startswith("dut1: back on ")
    assert told[-1].endswith(f" s after {tries} tries")


@needs_ser2net
async def test_a_board_that_prints_while_the_connection_is_made_loses_nothing(
    cable: Cable, tmp_path: Path
) -> None:
    printed = b"".join(b"line %d\r\n" % number for number in range(400))
    async with ser2net(tmp_path, cable, ACCEPTERS["rfc2217"]) as server:
        printing = asyncio.create_task(cable.prints_all(printed))
        async with opened(f"rfc2217://127.0.0.1:{server.port}") as made:
            await printing
            await made.has(len(printed))

    assert bytes(made.data) == printed


@needs_ser2net
async def test_rfc2217_sets_the_bit_rate_and_tells_what_its_server_does_not_do(
    cable: Cable, tmp_path: Path
) -> None:
    async with ser2net(tmp_path, cable, ACCEPTERS["rfc2217"]) as server:
        device = f"rfc2217://127.0.0.1:{server.port}"
        async with opened(device, PortOptions(bit_rate=9600)) as made:
            speed = termios.tcgetattr(cable._slave)[5]
            # A pty has no break, and ser2net says so.
            with pytest.raises(PortWriteError, match="break failed: remote rejected"):
                await made.port.send_break(0.01)

    assert speed == termios.B9600


# What a server of RFC 2217 is asked for


class FakeServer:
    """Agrees to everything, and keeps what it was asked."""

    def __init__(self, server: socket.socket, deaf_to: bytes = b"", *, greets: bool = True) -> None:
        self._greets = greets
        self.settings: list[bytes] = []  # of COM-PORT-OPTION
        self._deaf_to = deaf_to
        self._conn: socket.socket
        self.data = bytearray()
        self._goes_on = threading.Event()
        self._goes_on.set()
        self._server = server
        self._thread = threading.Thread(target=self._serve)
        self._thread.start()

    def end(self) -> None:
        self._thread.join()

    def tells(self, setting: bytes) -> None:
        self._conn.sendall(b"\xff\xfa\x2c" + doubled(setting) + b"\xff\xf0")

    def stall(self) -> None:
        self._goes_on.clear()

    def go_on(self) -> None:
        self._goes_on.set()

    def _serve(self) -> None:
        conn, _ = self._server.accept()
        self._conn = conn
        if self._greets:
            conn.sendall(b"\xff\xfd\x2c\xff\xfb\x2c")
        yes = {b"\xfb": b"\xfd", b"\xfd": b"\xfb"}  # WILL: DO, DO: WILL

        def option(command: bytes, what: bytes) -> None:
            if command in yes:
                conn.sendall(b"\xff" + yes[command] + what)

        def suboption(body: bytes) -> None:
            self.settings.append(body[1:])
            if body[1:2] == self._deaf_to:
                return
            answer = bytes((body[0], body[1] + 100)) + body[2:]
            conn.sendall(b"\xff\xfa" + doubled(answer) + b"\xff\xf0")

        telnet = Telnet(option, suboption)
        with conn:
            conn.settimeout(5)
            while data := conn.recv(65536):
                self._goes_on.wait(5)
                self.data += telnet.feed(data)


_BIT_RATE, _BITS, _PARITY, _STOP, _CONTROL = b"\x01", b"\x02", b"\x03", b"\x04", b"\x05"
_TELL = b"\x0a"


async def test_rfc2217_touches_no_line_and_purges_nothing_at_open() -> None:
    with listening() as server:
        fake = FakeServer(server)
        async with opened(url(server, "rfc2217")):
            pass
        fake.end()

    assert fake.settings == [
        _BIT_RATE + struct.pack("!I", 115200),
        _BITS + b"\x08",
        _PARITY + b"\x01",
        _STOP + b"\x01",
        _CONTROL + b"\x01",  # no flow control
        _TELL + b"\x1e",  # breaks, and errors of framing, parity and overrun
    ]
    assert fake.data == b""


async def test_rfc2217_counts_the_errors_that_its_server_tells() -> None:
    told = (0x02, 0x08 | 0x61, 0x18, 0x08, 0x60)  # overrun, framing, break, framing, idle

    async def counted(made: Opened, wanted: UartCounters) -> None:
        async with asyncio.timeout(10):
            while await made.port.counters() != wanted:
                await asyncio.sleep(0.001)

    with listening() as server:
        fake = FakeServer(server)
        async with opened(url(server, "rfc2217")) as made:
            await counted(made, UartCounters(0, 0, 0, 0, None))  # all that come count
            for state in told:
                fake.tells(bytes((0x6A, state)))
            fake.tells(b"\x6a")  # without a state
            await counted(made, UartCounters(1, 3, 0, 1, None))
        fake.end()

    assert (made.data, fake.data) == (b"", b"")


async def test_a_server_that_tells_no_errors_has_no_counters() -> None:
    with listening() as server:
        fake = FakeServer(server, deaf_to=_TELL)
        async with opened(url(server, "rfc2217")) as made:
            async with asyncio.timeout(10):
                while not any(body[:1] == _TELL for body in fake.settings):
                    await asyncio.sleep(0.001)
            assert await made.port.counters() is None
        fake.end()


async def test_rfc2217_sets_lines_that_are_configured_or_asked_for() -> None:
    with listening() as server:
        fake = FakeServer(server)
        async with opened(url(server, "rfc2217"), PortOptions(dtr=True)) as made:
            await made.port.set_lines(rts=False)
            await made.port.send_break(0.01)
        fake.end()

    dtr_on, rts_off, break_on, break_off = b"\x08", b"\x0c", b"\x05", b"\x06"
    asked = [body[1:] for body in fake.settings if body[:1] == _CONTROL]
    assert asked == [b"\x01", dtr_on, rts_off, break_on, break_off]


async def test_closing_rfc2217_waits_for_nothing_but_the_end_of_its_reader(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    slept_s: list[float] = []  # pyserial sleeps 0.3 s when it closes
    monkeypatch.setattr(rfc2217_module, "_END_LIMIT_S", 1000.0)
    with listening() as server:
        fake = FakeServer(server)
        async with opened(url(server, "rfc2217")) as made:
            clock = SimpleNamespace(time=time.time, sleep=slept_s.append)
            monkeypatch.setattr("serial.rfc2217.time", clock)
            made.port.close()
            await within_s(20, made.port.wait_closed())
        fake.end()

    assert slept_s == []


@pytest.mark.parametrize("garbage", [b"", b"\xfe\x80\xff\xfb\x01\xff\xfd\x03"])
async def test_a_raw_server_is_not_taken_for_one_of_rfc2217_and_its_board_gets_nothing(
    garbage: bytes, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(rfc2217_module, "GREETING_S", 0.1)
    got: list[bytes] = []

    def board(server: socket.socket) -> None:
        conn, _ = server.accept()
        with conn:
            conn.settimeout(5)
            conn.sendall(b"Hit any key to stop autoboot: 2 \xff\xff" + garbage)
            while data := conn.recv(65536):
                got.append(data)

    with listening() as server:
        thread = threading.Thread(target=board, args=(server,))
        thread.start()
        exc = await refused(url(server, "rfc2217"))
        thread.join()

    assert got == []
    assert exc.kind == "broken"
    assert "does not speak RFC 2217 (a raw port is socket://" in exc.problem


@pytest.mark.parametrize("suffix", ["", "?ask=1"])
async def test_a_server_that_waits_to_be_asked_is_asked_if_that_was_wished(
    suffix: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(rfc2217_module, "GREETING_S", 0.1)
    with listening() as server:
        fake = FakeServer(server, greets=False)
        address = url(server, "rfc2217") + suffix
        if suffix:
            async with opened(address) as made:
                made.port.close()
                await within_s(20, made.port.wait_closed())
        else:
            await refused(address)
        fake.end()

    assert bool(fake.settings) is bool(suffix)


# Why there is no connection


@pytest.mark.parametrize(("suffix", "is_advised"), [("", True), ("?ask=1", False)])
def test_who_has_asked_a_server_is_not_advised_to_ask_it(suffix: str, is_advised: bool) -> None:
    device, exc = f"rfc2217://lab2:3001{suffix}", ValueError("does not seem to support RFC2217")
    line: Any = SimpleNamespace(is_refused=False, early=b"")
    told = rfc2217_module._open_error(device, line, exc)

    assert ("?ask=1" in told.problem) is is_advised
    assert "RFC 2217" in told.problem


@pytest.mark.parametrize("scheme", ACCEPTERS)
async def test_nobody_listens(scheme: str) -> None:
    exc = await refused(f"{scheme}://127.0.0.1:{free_port()}")

    assert exc.kind == "absent"
    assert "Connection refused (does its server run" in exc.problem


@pytest.mark.parametrize(
    ("cause", "kind", "words"),
    [
        (socket.gaierror(socket.EAI_NONAME, "Name or service not known"), "absent", "not known"),
        (socket.gaierror(socket.EAI_AGAIN, "try again"), "absent", "no name server answers"),
        (TimeoutError(), "absent", "is the host up?"),
        (OSError(errno.EHOSTUNREACH, "No route to host"), "absent", "the network between?"),
        (OSError(errno.ENETUNREACH, "Network is unreachable"), "absent", "the network between?"),
        (PermissionError(errno.EPERM, "Operation not permitted"), "denied", "firewall"),
        (OSError(errno.EMFILE, "Too many open files"), "broken", "Too many open files"),
    ],
)
def test_why_there_is_no_connection(cause: OSError, kind: str, words: str) -> None:
    exc = connect_error("socket://lab2:3001", cause)

    assert exc.kind == kind
    assert words in exc.problem
    assert str(exc).startswith("socket://lab2:3001: connect failed: ")


@pytest.mark.parametrize(
    "device",
    [
        "socket://",
        "socket://lab2",
        "socket://lab2:0",
        "socket://lab2:x",
        "socket://lab2:99999",
        "socket://lab2:3001/x",
        "socket://lab2:3001?x=1",
        "socket:lab2:3001",
        "socket://me@lab2:3001",
        "rfc2217://lab2",
    ],
)
async def test_what_is_no_address_is_refused(device: str) -> None:
    exc = await refused(device)

    assert exc.kind == "broken"
    assert "must be " in exc.problem


@pytest.mark.parametrize(
    ("device", "is_one"),
    [
        ("socket://lab2:3001", True),
        ("rfc2217://192.168.7.2:3001", True),
        ("rfc2217://[fe80::1]:3001", True),
        ("socket://lab2", False),
        ("socket:lab2:3001", False),
        ("rfc2217://lab2:70000", False),
        ("rfc2217://lab2:3001/x", False),
    ],
)
def test_the_configuration_is_checked_for_addresses(
    tmp_path: Path, device: str, is_one: bool
) -> None:
    path = tmp_path / "c.toml"
    path.write_text(f'[port.dut1]\ndevice = "{device}"\n')

    if is_one:
        assert load_config(path).port["dut1"].device == device
    else:
        with pytest.raises(TomlError, match=r"c\.toml:2: .* must be \w+://HOST:PORT"):
            load_config(path)


async def test_a_name_is_resolved() -> None:
    with listening() as server:
        async with opened(f"socket://localhost:{server.getsockname()[1]}"):
            pass


@pytest.mark.skipif(not Path("/proc/net/if_inet6").exists(), reason="no IPv6 here")
async def test_an_address_of_ipv6_is_fine() -> None:
    with socket.create_server(("::1", 0), family=socket.AF_INET6) as server:
        async with opened(f"socket://[::1]:{server.getsockname()[1]}"):
            pass


# How a connection ends


async def test_what_a_short_lived_server_says_is_not_lost() -> None:
    said = b"U-Boot 2023.01\r\n=> " * 40
    with listening() as server:

        def serve() -> None:
            conn, _ = server.accept()
            with conn:
                conn.sendall(said)

        thread = threading.Thread(target=serve)
        thread.start()
        async with opened(url(server)) as made:
            lost = await within_s(5, made.lost.get())
        thread.join()

    assert bytes(made.data) == said
    assert str(lost) == f"{url_of(made)}: the peer closed the connection"


def url_of(made: Opened) -> str:
    return made.port.device


@pytest.mark.parametrize(
    ("said", "is_one"),
    [
        (b"", True),
        (b"Port already in use\r\n", True),
        (b"Device open failure: Object was already in use\r\n", True),
        (b"U-Boot 2023.01\r\n", False),
        (b"Port already in use\r\n" + b"x" * 400, False),
    ],
)
def test_a_refusal_is_told_from_what_a_board_says(said: bytes, is_one: bool) -> None:
    assert is_refusal(said) is is_one


async def test_a_reset_connection_is_told_as_such() -> None:
    with listening() as server:
        async with opened(url(server)) as made:
            conn, _ = server.accept()
            conn.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
            conn.close()
            lost = await within_s(5, made.lost.get())

    assert str(lost).endswith("the connection broke: Connection reset by peer")


async def test_a_peer_that_goes_without_a_word_is_noticed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tcp_module, "KEEP_IDLE_S", 1)
    monkeypatch.setattr(tcp_module, "KEEP_EVERY_S", 1)
    with listening() as server:
        async with opened(url(server)) as made:
            conn, _ = server.accept()
            with conn:
                try:
                    conn.setsockopt(socket.IPPROTO_TCP, _TCP_REPAIR, 1)  # closes without a word
                except PermissionError:
                    pytest.skip("needs CAP_NET_ADMIN")
            lost = await within_s(5, made.lost.get())

    assert str(lost).endswith("the connection broke: Connection reset by peer")


@pytest.mark.parametrize("scheme", ACCEPTERS)
async def test_the_kernel_asks_a_silent_peer(scheme: str) -> None:
    with listening() as server:
        fake = FakeServer(server) if scheme == "rfc2217" else None
        async with opened(url(server, scheme)) as made:
            port: Any = made.port
            sock = port._sock if fake is None else port._line._socket
            asked = [
                sock.getsockopt(socket.IPPROTO_TCP, option)
                for option in (
                    socket.TCP_KEEPIDLE,
                    socket.TCP_KEEPINTVL,
                    socket.TCP_KEEPCNT,
                    socket.TCP_USER_TIMEOUT,
                )
            ]
            is_on = sock.getsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE)
        if fake is not None:
            fake.end()

    assert (asked, is_on) == ([10, 3, 3, 20_000], 1)


async def test_a_peer_that_takes_nothing_fails_the_write_and_says_how_much_was_taken() -> None:
    with listening() as server:
        async with opened(url(server)) as made:
            conn, _ = server.accept()
            with conn:
                made.port._writer._limit_s = 0.1  # type: ignore[attr-defined]
                with pytest.raises(PortWriteError, match=r"were taken in 0\.1 s") as caught:
                    await made.port.write(b"x" * 50_000_000)

    assert 0 < caught.value.sent < 50_000_000


async def test_rfc2217_tells_how_much_of_a_write_was_taken(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(rfc2217_module, "WRITE_LIMIT_S", 0.1)
    with listening() as server:
        fake = FakeServer(server)
        async with opened(url(server, "rfc2217")) as made:
            fake.stall()
            with pytest.raises(PortWriteError, match=r"were taken in 0\.1 s") as caught:
                await made.port.write(EVERYTHING * 20_000)
            fake.go_on()
            sent = caught.value.sent
            async with asyncio.timeout(10):
                while len(fake.data) < sent:
                    await asyncio.sleep(0.001)
        fake.end()

    assert 0 < sent < len(EVERYTHING) * 20_000
    assert bytes(fake.data[:sent]) == (EVERYTHING * 20_000)[:sent]


# Telnet


def commands(data: bytes, sizes: int) -> tuple[bytes, list[tuple[bytes, bytes]], list[bytes]]:
    options: list[tuple[bytes, bytes]] = []
    settings: list[bytes] = []
    telnet = Telnet(lambda command, what: options.append((command, what)), settings.append)
    plain = b"".join(telnet.feed(data[at : at + sizes]) for at in range(0, len(data), sizes))
    return plain, options, settings


@pytest.mark.parametrize("sizes", [1, 2, 3, 7, 1000])
def test_telnet_is_read_in_chunks_of_any_size(sizes: int) -> None:
    data = (
        b"a\xff\xffb\xff\xfb\x00c\xff\xfa\x2c\x6a\xff\xff\x01\xff\xf0d\xff\xf1e\xff\xfd\x01"
        + doubled(EVERYTHING)
    )

    plain, options, settings = commands(data, sizes)

    assert plain == b"a\xffbcde" + EVERYTHING
    assert options == [(b"\xfb", b"\x00"), (b"\xfd", b"\x01")]
    assert settings == [b"\x2c\x6a\xff\x01"]


def test_a_setting_that_never_ends_does_not_swallow_the_console() -> None:
    plain, _, settings = commands(b"a\xff\xfa" + b"x" * 10_000 + b"end", 1000)

    assert plain.endswith(b"end")
    assert settings == []
