from __future__ import annotations

import asyncio
import os
import shlex
import signal
import subprocess
import sys
import threading
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from bench_cable import within_s
from bench_ear import Ear, watched_loop
from serialwatch_drivers import command, port_thread
from serialwatch_drivers.command import CommandPort, open_command
from serialwatch_drivers.port import PortOpenError, PortOptions, PortWriteError

DEFAULTS = PortOptions()
NEVER_S = 10.0


def shell(script: str) -> str:
    return f"command:sh -c {shlex.quote(script)}"


@asynccontextmanager
async def running(device: str, ear: Ear) -> AsyncIterator[CommandPort]:
    port = await open_command(device, DEFAULTS, ear.on_bytes, ear.on_lost)
    try:
        yield port
    finally:
        port.close()
        await within_s(NEVER_S, port.wait_closed())


async def test_what_a_program_prints_is_pushed_and_errors_with_it() -> None:
    ear = Ear()
    async with running(shell("printf 'out\\000\\377'; printf err >&2; exec cat"), ear) as port:
        assert await ear.hears(8) == b"out\x00\xfferr"
        assert port.far_end is None


async def test_what_is_written_reaches_the_program() -> None:
    ear = Ear()
    async with running("command:cat", ear) as port:
        await port.write(b"hello\x00\xff\n")
        await port.write(b"again")

        assert await ear.hears(13) == b"hello\x00\xff\nagain"


async def test_a_mebibyte_goes_through_whole_and_in_order() -> None:
    sent = os.urandom(1 << 20)
    ear = Ear()
    async with running("command:cat", ear) as port:
        await port.write(sent)

        assert await ear.hears(len(sent)) == sent
    assert max(ear.pieces) <= 65536


async def test_words_are_split_as_a_shell_does_and_no_shell_runs() -> None:
    ear = Ear()
    async with running("command:printf '%s|' 'a b' c\\ d $HOME * ';'", ear):
        await ear.loses()

    assert ear.data == b"a b|c d|$HOME|*|;|"


@pytest.mark.parametrize(
    ("script", "status"),
    [
        ("printf last; exit 3", "exit status 3"),
        ("printf last; exit 0", "exit status 0"),
        ("printf last; kill -SEGV $$", "killed by SIGSEGV"),
    ],
)
async def test_a_program_that_ends_is_lost_once_after_its_last_words(
    script: str, status: str
) -> None:
    ear = Ear()
    device = shell(script)
    async with running(device, ear) as port:
        lost = await ear.loses()
        await within_s(NEVER_S, port.wait_closed())

    assert str(lost) == f"{device}: the program ended: {status}"
    assert ear.data == b"last"
    assert len(ear.losses) == 1


async def test_the_last_words_are_kept_while_paused() -> None:
    ear = Ear()
    async with running(shell("head -c 60000 /dev/zero"), ear) as port:
        port.pause()
        await ear.loses()

    assert ear.data == bytes(60000)


async def test_a_program_that_closes_its_stdout_is_not_lost_until_it_ends(tmp_path: Path) -> None:
    ear = Ear()
    fifo = tmp_path / "go"
    os.mkfifo(fifo)
    async with running(shell(f"printf bye; exec >&- 2>&-; read x < {fifo}; exit 4"), ear):
        await ear.hears(3)
        spent = time.process_time()
        await asyncio.get_running_loop().run_in_executor(None, fifo.write_text, "go\n")
        lost = await ear.loses()

    assert "exit status 4" in str(lost)
    assert time.process_time() - spent < 0.5


async def test_close_ends_the_program_and_its_children_and_tells_nothing() -> None:
    ear = Ear()
    async with running(shell("sleep 1000 & echo $!; exec sleep 1000"), ear) as port:
        child = int(await _line(ear))
        port.close()
        with pytest.raises(PortWriteError, match="closed"):
            await port.write(b"x")
        await within_s(NEVER_S, port.wait_closed())

    assert port._process.returncode == -signal.SIGTERM  # it was asked, not killed
    assert ear.losses == []
    assert await _gone(child)


async def test_a_program_that_ignores_a_request_to_end_is_killed(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    ear = Ear()
    async with running(shell("trap '' TERM; echo up; while :; do sleep 1000; done"), ear) as port:
        await _line(ear)
        port._kill_after_s = 0.2
        with watched_loop() as loop:
            port.close()
            await within_s(NEVER_S, port.wait_closed())

    assert port._process.returncode == -signal.SIGKILL
    assert loop.worst_s < 0.25
    assert ear.losses == []


async def test_a_child_left_behind_ends_with_its_program() -> None:
    ear = Ear()
    async with running(shell("trap '' TERM; sleep 1000 & echo $!"), ear):
        await ear.loses()
        child = int(ear.data)

    assert await _gone(child)


async def test_a_program_that_does_not_read_fails_the_write_in_time() -> None:
    ear = Ear()
    async with running(shell("echo up; exec sleep 1000"), ear) as port:
        await _line(ear)
        port._writer._limit_s = 0.2

        with pytest.raises(PortWriteError) as raised:
            await port.write(bytes(1_000_000))

    assert 0 < raised.value.sent < 1_000_000


async def test_a_program_that_has_closed_its_stdin_fails_the_write() -> None:
    ear = Ear()
    async with running(shell("exec <&-; echo up; exec sleep 1000"), ear) as port:
        await _line(ear)

        with pytest.raises(PortWriteError, match="Broken pipe"):
            await port.write(b"x")


async def test_a_port_may_be_closed_from_its_own_callback() -> None:
    ports: list[CommandPort] = []
    ear = Ear()

    def close_at_once(data: bytes, mono_ns: int) -> None:
        ear.on_bytes(data, mono_ns)
        ports[0].close()

    port = await open_command(shell("echo x; exit 1"), DEFAULTS, close_at_once, ear.on_lost)
    ports.append(port)

    await within_s(NEVER_S, port.wait_closed())
    await ear.hears(2)
    assert ear.losses == []


@pytest.mark.parametrize(
    ("words", "kind", "problem"),
    [
        ("no-such-program -x", "absent", "'no-such-program': No such file or directory"),
        ("/etc/passwd", "denied", "'/etc/passwd': Permission denied (is it executable?)"),
        ("", "broken", "no program named"),
        ("  ", "broken", "no program named"),
        ("echo 'half", "broken", "not a command: No closing quotation"),
        ("echo \x00", "broken", "embedded null byte"),
    ],
)
async def test_a_program_that_cannot_start_says_why(words: str, kind: str, problem: str) -> None:
    with pytest.raises(PortOpenError) as raised:
        await open_command(f"command:{words}", DEFAULTS, Ear().on_bytes, Ear().on_lost)

    assert raised.value.kind == kind
    assert problem in str(raised.value)


async def test_a_start_that_hangs_blocks_nothing_and_what_starts_late_is_killed(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    let_go = threading.Event()
    started: list[subprocess.Popen[bytes]] = []

    def slow(*args: object, **more: object) -> subprocess.Popen[bytes]:
        let_go.wait(NEVER_S)
        started.append(real(*args, **more))  # type: ignore[call-overload]  # passed on as they came
        return started[0]

    real = subprocess.Popen
    monkeypatch.setattr(command.subprocess, "Popen", slow)
    monkeypatch.setattr(port_thread, "OPEN_LIMIT_S", 0.2)
    device = f"command:{sys.executable} -S -c 'import time; time.sleep(1000)'"

    with watched_loop() as loop, pytest.raises(PortOpenError, match="no answer within"):
        await open_command(device, DEFAULTS, Ear().on_bytes, Ear().on_lost)

    let_go.set()
    await within_s(NEVER_S, port_thread._hung[device].ended())
    assert loop.worst_s < 0.25
    assert started[0].returncode == -9


async def test_a_program_has_no_lines_no_break_and_no_counters() -> None:
    async with running("command:cat", Ear()) as port:
        await port.set_lines(dtr=True, rts=False)
        await port.send_break()

        assert await port.counters() is None
        assert port.device == "command:cat"


async def _line(ear: Ear) -> bytes:
    while b"\n" not in ear.data:
        await ear.hears(len(ear.data) + 1)
    return bytes(ear.data).partition(b"\n")[0]


async def _gone(pid: int) -> bool:
    """Tell that a process we did not start ourselves has ended, which takes the kernel a moment."""
    async with asyncio.timeout(5):
        while True:
            try:
                state = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
            except OSError:
                return True
            if state == "Z":
                return True
            await asyncio.sleep(0)
