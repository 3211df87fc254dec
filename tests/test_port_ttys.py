"""The pty of a port: what terminal programs see and send, and what never reaches the board."""

from __future__ import annotations

import asyncio
import fcntl
import os
import re
import subprocess
import sys
import termios
import tty
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import ExitStack, asynccontextmanager, contextmanager, suppress
from pathlib import Path
from typing import Any, cast

import pytest

from bench_cable import within_s
from serialwatch.agent.workers.sandbox import landlock_abi
from serialwatch.api.bench import AuditEntry, Bench, BenchError, Who
from serialwatch.config import PortConfig, load_config
from serialwatch.service import port_ttys as port_ttys_module
from serialwatch.service.port_ttys import PortTtys
from serialwatch.service.tty_pair import TtyPair
from serialwatch.tomlfile import TomlError

COOKED = termios.ECHO | termios.ICANON | termios.ISIG
LINE = b"[    1.234567] a line of a board that prints a lot\r\n"


class Board:
    """Everything behind the ptys: what the board got, and what was told."""

    def __init__(self) -> None:
        self.got = bytearray()
        self.sources: set[str] = set()
        self.lost = 0
        self.audits: list[AuditEntry] = []
        self.writer: Who | None = None
        self.problem: BenchError | None = None
        self.news = asyncio.Event()
        self.may_take = asyncio.Event()
        self.may_take.set()

    async def write(self, port: str, data: bytes, source: str) -> int:
        await self.may_take.wait()
        if self.problem is not None:
            raise self.problem
        self.got += data
        self.sources.add(source)
        self.news.set()
        return 1

    def lost_at_client(self, port: str, lost_bytes: int) -> None:
        self.lost += lost_bytes

    def audit(self, entry: AuditEntry) -> None:
        self.audits.append(entry)

    async def has(self, end: bytes) -> None:
        async with asyncio.timeout(5):
            while not self.got.endswith(end):
                self.news.clear()
                await self.news.wait()


class Offered:
    """The ptys of dut1 (may be written) and dut2 (may not)."""

    def __init__(self, ttys: PortTtys, board: Board, folder: Path) -> None:
        self.ttys = ttys
        self.board = board
        self.folder = folder

    @contextmanager
    def opened(self, port: str = "dut1") -> Iterator[int]:
        """Open a pty as a program does that sets nothing."""
        fd = os.open(self.folder / port, os.O_RDWR | os.O_NOCTTY | os.O_NONBLOCK)
        try:
            yield fd
        finally:
            with suppress(OSError):
                os.close(fd)

    async def is_open(self, count: int = 1, port: str = "dut1") -> None:
        """Wait until so many programs are known to have the pty open."""
        async with asyncio.timeout(5):
            while len(self.ttys._ports[port].used) != count:
                await asyncio.sleep(0)


@asynccontextmanager
async def offering(folder: Path, **more: Any) -> AsyncIterator[Offered]:
    board = Board()
    ttys = PortTtys(folder / "tty", cast(Bench, board), lambda _: board.writer, None)
    ttys.configure(
        {
            "dut1": PortConfig(device="x", name="dut1", pty="write"),
            "dut2": PortConfig(device="y", name="dut2"),
            "dut3": PortConfig(device="z", name="dut3", pty="off"),
        }
    )
    task = asyncio.create_task(ttys.run())
    async with asyncio.timeout(5):
        while not ttys.path("dut2"):
            await asyncio.sleep(0)
    try:
        yield Offered(ttys, board, folder / "tty")
    finally:
        task.cancel()
        await asyncio.wait([task])


async def read(fd: int, count: int) -> bytes:
    got = b""
    async with asyncio.timeout(5):
        while len(got) < count:
            with suppress(BlockingIOError):
                got += os.read(fd, 65536)
            await asyncio.sleep(0)
    return got


def set_flags(fd: int, on: int, off: int = 0) -> None:
    """Set local flags as a program does that knows nothing of EXTPROC."""
    settings = termios.tcgetattr(fd)
    settings[3] = (settings[3] & ~(off | 0o200000)) | on
    termios.tcsetattr(fd, termios.TCSANOW, settings)


async def until(is_so: Callable[[], bool]) -> None:
    async with asyncio.timeout(5):
        while not is_so():
            await asyncio.sleep(0)


def the_pair(offered: Offered) -> TtyPair:
    (pair,) = offered.ttys._ports["dut1"].used
    return pair


async def types_only(offered: Offered, fd: int, data: bytes) -> None:
    """Set the pty raw and type: nothing else may come before it, ever."""
    set_flags(fd, 0, COOKED)
    await until(lambda: not the_pair(offered)._is_echoing)
    os.write(fd, data)
    await offered.board.has(data)
    assert offered.board.got == data


async def test_a_program_sees_what_the_board_prints_and_types_exactly_once(tmp_path: Path) -> None:
    everything = bytes(range(256))
    async with offering(tmp_path) as offered:
        with offered.opened() as fd:
            await offered.is_open()
            offered.ttys.on_bytes("dut1", everything)
            seen = await read(fd, 256)
            os.write(fd, everything)
            await offered.board.has(everything[-1:])

    assert seen == everything
    assert bytes(offered.board.got) == everything
    assert offered.board.sources == {"pty"}
    assert [(e.action, e.bytes, set(e.detail)) for e in offered.board.audits] == [
        ("pty", 256, {"sha256"})
    ]


async def test_a_port_that_is_read_only_takes_nothing(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level("INFO")
    async with offering(tmp_path) as offered:
        with offered.opened("dut2") as fd:
            await offered.is_open(port="dut2")
            for number in range(1, 4):
                os.write(fd, b"reboot\r")
                await until(lambda n=number: offered.ttys._ports["dut2"].dropped_bytes == 7 * n)
            offered.ttys.on_bytes("dut2", b"still here")
            seen = await read(fd, 10)

    assert seen == b"still here"
    assert offered.board.got == b""
    assert caplog.text.count("what a terminal program types is dropped") == 1
    assert 'does not say pty = "write"' in caplog.text


async def test_off_means_that_there_is_none(tmp_path: Path) -> None:
    async with offering(tmp_path) as offered:
        assert sorted(os.listdir(offered.folder)) == ["dut1", "dut2"]
        assert offered.ttys.path("dut3") == ""


async def test_what_a_cooked_program_would_echo_never_reaches_the_board(tmp_path: Path) -> None:
    async with offering(tmp_path) as offered:
        with offered.opened() as fd:
            await offered.is_open()
            set_flags(fd, COOKED)
            for _ in range(100):
                offered.ttys.on_bytes("dut1", LINE + b"\x03\x04 login: ")
            seen = await read(fd, 100 * len(LINE))
            os.write(fd, b"a prompt of its own $ ")
            await until(lambda: the_pair(offered).dropped_bytes >= 22)
            await types_only(offered, fd, b"typed")

    assert b"login: " in seen


async def test_a_program_that_turns_echo_on_and_off_all_the_time_types_nothing(
    tmp_path: Path,
) -> None:
    async with offering(tmp_path) as offered:
        with offered.opened() as fd:
            await offered.is_open()
            for number in range(300):
                set_flags(fd, COOKED if number % 2 else 0, 0 if number % 2 else COOKED)
                offered.ttys.on_bytes("dut1", LINE)
                if number % 3 == 0:
                    await asyncio.sleep(0)
                with suppress(BlockingIOError):
                    os.read(fd, 65536)
            await types_only(offered, fd, b"typed")


async def test_a_shell_on_the_pty_talks_to_itself(tmp_path: Path) -> None:
    async with offering(tmp_path) as offered:
        with offered.opened() as fd:
            await offered.is_open()
            set_flags(fd, COOKED)
            await until(lambda: the_pair(offered)._is_echoing)
            shell = subprocess.Popen(["sh", "-i"], stdin=fd, stdout=fd, stderr=fd)
            try:
                offered.ttys.on_bytes("dut1", b"U-Boot 2023.01\n" * 20)
                await until(lambda: the_pair(offered).dropped_bytes > 20 * 20)
            finally:
                shell.kill()
                shell.wait()
            await types_only(offered, fd, b"typed")


async def test_two_programs_at_once_see_everything_each(tmp_path: Path) -> None:
    async with offering(tmp_path) as offered:
        with offered.opened() as one:
            await offered.is_open(1)
            with offered.opened() as two:
                await offered.is_open(2)
                offered.ttys.on_bytes("dut1", LINE)
                seen = await read(one, len(LINE)), await read(two, len(LINE))
                os.write(one, b"a")
                await offered.board.has(b"a")
                os.write(two, b"b")
                await offered.board.has(b"b")
            await offered.is_open(1)
            offered.ttys.on_bytes("dut1", b"on")
            rest = await read(one, 2)

    assert seen == (LINE, LINE)
    assert rest == b"on"
    assert offered.board.got == b"ab"


async def test_the_link_has_moved_on_before_another_pty_is_made(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    led_to: list[str] = []
    async with offering(tmp_path) as offered:
        link = offered.folder / "dut1"
        first = os.readlink(link)

        def made(*given: Any) -> TtyPair:
            led_to.append(os.readlink(link))
            return TtyPair(*given)

        monkeypatch.setattr(port_ttys_module, "TtyPair", made)
        with offered.opened():
            await offered.is_open(1)

    assert len(led_to) == 1
    assert led_to[0] != first


async def test_more_programs_than_there_are_ptys_share_the_last(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(port_ttys_module, "MAX_PAIRS", 1)
    async with offering(tmp_path) as offered:
        with offered.opened() as one, offered.opened() as two:
            await offered.is_open(1)
            for fd in (one, two):
                os.write(fd, b"x")
            await offered.board.has(b"xx")
        assert "1 programs have it open; one more shares" in caplog.text
        await offered.is_open(0)
        with offered.opened() as three:
            await offered.is_open(1)
            offered.ttys.on_bytes("dut1", b"new")
            assert await read(three, 3) == b"new"


async def test_who_opens_it_later_sees_nothing_stale(tmp_path: Path) -> None:
    async with offering(tmp_path) as offered:
        offered.ttys.on_bytes("dut1", b"before anybody came")
        with offered.opened() as fd:
            await offered.is_open()
            offered.ttys.on_bytes("dut1", b"unread")
        await offered.is_open(0)
        with offered.opened() as fd:
            await offered.is_open()
            offered.ttys.on_bytes("dut1", b"now")
            assert await read(fd, 3) == b"now"


async def test_one_that_writes_and_closes_at_once_is_heard(tmp_path: Path) -> None:
    async with offering(tmp_path) as offered:
        with offered.opened() as fd:
            os.write(fd, b"reboot\r")
        await offered.board.has(b"reboot\r")

    assert offered.board.got == b"reboot\r"


async def test_a_program_that_does_not_read_costs_nobody_anything(tmp_path: Path) -> None:
    async with offering(tmp_path) as offered:
        with offered.opened() as slow, offered.opened("dut2"):
            await offered.is_open()
            for _ in range(100):
                offered.ttys.on_bytes("dut1", LINE * 100)
            lost = offered.board.lost
            seen = b""
            while b"the end" not in seen:
                offered.ttys.on_bytes("dut1", b"the end")
                seen += await read(slow, 1)

    printed = 100 * 100 * len(LINE)
    assert lost > printed - 200_000
    assert len(seen) <= 200_000


async def test_a_board_that_takes_nothing_makes_the_program_wait(tmp_path: Path) -> None:
    async with offering(tmp_path) as offered:
        offered.board.may_take.clear()
        with offered.opened() as fd:
            await offered.is_open()
            sent = 0
            for _ in range(3000):
                try:
                    sent += os.write(fd, b"0123456789" * 10)
                except BlockingIOError:
                    break
                await asyncio.sleep(0)
            else:
                pytest.fail("nothing ever waits")
            offered.board.may_take.set()
            async with asyncio.timeout(5):
                while len(offered.board.got) < sent:
                    await asyncio.sleep(0)

    assert bytes(offered.board.got) == (b"0123456789" * (sent // 10 + 1))[:sent]


@pytest.mark.parametrize("why", ["lease", "absent"])
async def test_what_cannot_be_written_now_is_dropped(tmp_path: Path, why: str) -> None:
    async with offering(tmp_path) as offered:
        if why == "lease":
            offered.board.writer = Who(1000, "jo", 4121)
        else:
            offered.board.problem = BenchError("not_now", "port dut1 is absent")
        with offered.opened() as fd:
            await offered.is_open()
            os.write(fd, b"lost")
            await until(lambda: offered.ttys._ports["dut1"].dropped_bytes == 4)
            offered.board.writer = offered.board.problem = None
            os.write(fd, b"sent")
            await offered.board.has(b"sent")

    assert offered.board.got == b"sent"


async def test_what_follows_a_hole_in_a_text_is_dropped_until_a_pause(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("serialwatch.service.port_ttys.QUIET_S", 60.0)
    async with offering(tmp_path) as offered:
        offered.board.problem = BenchError("failed", "1 of 6 bytes were taken in 5 s", sent=1)
        port = offered.ttys._ports["dut1"]
        with ExitStack() as programs:
            pasting = programs.enter_context(offered.opened())
            await offered.is_open(1)
            other = programs.enter_context(offered.opened())
            await offered.is_open(2)
            os.write(pasting, b"set a ")
            await until(lambda: port.dropped_bytes == 5)
            offered.board.problem = None
            os.write(pasting, b"1; run a\r")
            await until(lambda: port.dropped_bytes == 5 + 9)
            os.write(other, b"typed elsewhere")
            await offered.board.has(b"typed elsewhere")
            ((pair, (_, end_s)),) = port.deaf.items()
            port.deaf[pair] = 0.0, end_s  # as if nothing had come for so long
            os.write(pasting, b" typed later")
            await offered.board.has(b"later")

    assert offered.board.got == b"typed elsewhere typed later"


async def test_a_break_and_another_bit_rate_change_nothing(tmp_path: Path) -> None:
    async with offering(tmp_path) as offered:
        with offered.opened() as fd:
            await offered.is_open()
            termios.tcsendbreak(fd, 0)
            settings = termios.tcgetattr(fd)
            settings[4] = settings[5] = termios.B9600
            termios.tcsetattr(fd, termios.TCSANOW, settings)
            os.write(fd, b"x")
            await offered.board.has(b"x")

    assert offered.board.got == b"x"


async def test_a_lock_that_a_program_leaves_does_not_keep_the_next_out(tmp_path: Path) -> None:
    async with offering(tmp_path) as offered:
        with offered.opened() as fd:
            await offered.is_open()
            fcntl.ioctl(fd, termios.TIOCEXCL)
            fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        await offered.is_open(0)
        with offered.opened() as fd:
            fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
            assert fcntl.ioctl(fd, 0x80045440, b"\0\0\0\0") == b"\0\0\0\0"  # TIOCGEXCL


async def test_a_pty_is_raw_when_it_is_opened_whatever_was_set_before(tmp_path: Path) -> None:
    async with offering(tmp_path) as offered:
        with offered.opened() as fd:
            await offered.is_open()
            set_flags(fd, COOKED)
        await offered.is_open(0)
        with offered.opened() as fd:
            settings = termios.tcgetattr(fd)

    assert not settings[3] & COOKED
    assert not settings[1] & termios.OPOST


async def test_the_link_is_there_while_it_runs_and_gone_after(tmp_path: Path) -> None:
    async with offering(tmp_path) as offered:
        link = offered.folder / "dut1"
        mode = os.stat(link).st_mode & 0o777
        assert os.readlink(link).startswith("/dev/pts/")
        with offered.opened() as fd:
            await offered.is_open()
            tty.setraw(fd)
            assert os.readlink(link).startswith("/dev/pts/")

    assert mode == 0o600
    assert os.listdir(offered.folder) == []


async def test_a_link_that_a_killed_daemon_left_is_removed(tmp_path: Path) -> None:
    (tmp_path / "tty").mkdir()
    (tmp_path / "tty/old").symlink_to("/dev/pts/0")
    async with offering(tmp_path) as offered:
        assert sorted(os.listdir(offered.folder)) == ["dut1", "dut2"]


async def test_a_group_may_open_it(tmp_path: Path) -> None:
    gid = os.getegid()

    class Access:
        view_gid = write_gid = gid

    ttys = PortTtys(tmp_path / "tty", cast(Bench, Board()), lambda _: None, Access())
    ttys.configure({"dut1": PortConfig(device="x", name="dut1")})
    task = asyncio.create_task(ttys.run())
    async with asyncio.timeout(5):
        while not ttys.path("dut1"):
            await asyncio.sleep(0)
    found = os.stat(ttys.path("dut1"))
    task.cancel()
    await asyncio.wait([task])

    assert (found.st_gid, found.st_mode & 0o777) == (gid, 0o660)


async def test_a_new_configuration_leaves_open_ptys_alone(tmp_path: Path) -> None:
    async with offering(tmp_path) as offered:
        with offered.opened() as fd:
            await offered.is_open()
            offered.ttys.configure(
                {
                    "dut1": PortConfig(device="other", name="dut1", pty="write"),
                    "dut2": PortConfig(device="y", name="dut2", pty="off"),
                    "dut4": PortConfig(device="n", name="dut4"),
                }
            )
            listed = sorted(os.listdir(offered.folder))
            offered.ttys.on_bytes("dut1", b"still here")
            seen = await within_s(5, read(fd, 10))

    assert listed == ["dut1", "dut4"]
    assert seen == b"still here"


async def test_without_ptys_people_are_told_and_nothing_else_suffers(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    (tmp_path / "tty").write_text("in the way")
    ttys = PortTtys(tmp_path / "tty", cast(Bench, Board()), lambda _: None, None)
    ttys.configure({"dut1": PortConfig(device="x", name="dut1")})
    task = asyncio.create_task(ttys.run())
    async with asyncio.timeout(5):
        while "no pty for terminal programs" not in caplog.text:
            await asyncio.sleep(0)
    ttys.on_bytes("dut1", b"x")
    task.cancel()
    await asyncio.wait([task])

    assert ttys.path("dut1") == ""


SKILL = """
import os, sys
from pathlib import Path
from serialwatch.agent.workers.sandbox import Limits, confine
confine([Path("/usr")], [], Limits(cpu_s=5))
try:
    os.write(os.open(sys.argv[1], os.O_WRONLY | os.O_NOCTTY), b"reboot")
except PermissionError:
    print("refused")
"""


@pytest.mark.skipif(not landlock_abi(), reason="this kernel has no Landlock")
async def test_a_skill_cannot_type_even_where_terminal_programs_may(tmp_path: Path) -> None:
    async with offering(tmp_path) as offered:
        skill = await asyncio.create_subprocess_exec(
            *(sys.executable, "-c", SKILL, offered.folder / "dut1"),
            stdout=asyncio.subprocess.PIPE,
        )
        said, _ = await within_s(20, skill.communicate())

    assert said == b"refused\n"
    assert offered.board.got == b""


@pytest.mark.parametrize(
    ("keys", "words"),
    [
        ('pty = "write"\nwrite = false', 'pty = "write" contradicts write = false'),
        ('pty = "both"', "pty"),
    ],
)
def test_a_configuration_that_makes_no_sense_is_refused(
    tmp_path: Path, keys: str, words: str
) -> None:
    path = tmp_path / "c.toml"
    path.write_text(f'[port.dut1]\ndevice = "pty:"\n{keys}\n')

    with pytest.raises(TomlError, match=re.escape(words)):
        load_config(path)
