"""The process that opens ttys: echo off at once, one lock, no hang, no descriptor too many."""

from __future__ import annotations

import errno
import fcntl
import os
import signal
import socket
import subprocess
import sys
import termios
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from bench_cable import Cable
from serialwatch_drivers import opener, opening, uart

RAW = uart.raw_settings(115200, line_errors=False)
NEVER_S = 10.0  # longer than any of this takes


@pytest.fixture
def fresh_opener() -> Iterator[int]:
    """Return the process of an opener that a test may harm."""
    kept = opening._control, opening._process
    opening._control = opening._process = None
    opening.start_opener()
    assert opening._process is not None
    yield opening._process.pid
    opening.stop_opener()
    opening._control, opening._process = kept


@pytest.fixture
def cooked() -> Iterator[tuple[int, str]]:
    """Return a board's end and the path of a tty with echo on, as the kernel makes it."""
    board, slave = os.openpty()
    os.set_blocking(board, False)
    yield board, os.ttyname(slave)
    os.close(board)
    os.close(slave)


def test_a_tty_comes_open_raw_locked_and_not_inherited(cooked: tuple[int, str]) -> None:
    board, path = cooked

    fd = opening.open_raw(path, RAW)

    assert termios.tcgetattr(fd)[3] == 0
    assert not os.get_inheritable(fd)
    assert not os.get_blocking(fd)
    os.write(board, b"hit any key\r\n")
    assert os.read(fd, 100) == b"hit any key\r\n"
    with pytest.raises(BlockingIOError):
        os.read(board, 100)
    with pytest.raises(BlockingIOError):
        opening.open_raw(path, RAW)
    os.close(fd)
    os.close(opening.open_raw(path, RAW))  # nobody else kept it, nor its lock


def test_a_tty_that_another_program_has_locked_is_left_as_it_is(cooked: tuple[int, str]) -> None:
    owner = os.open(cooked[1], os.O_RDWR | os.O_NOCTTY)
    fcntl.flock(owner, fcntl.LOCK_EX | fcntl.LOCK_NB)
    before = termios.tcgetattr(owner)

    with pytest.raises(BlockingIOError):
        opening.open_raw(cooked[1], RAW)

    assert termios.tcgetattr(owner) == before
    os.close(owner)


@pytest.mark.parametrize(
    ("path", "number"), [("/dev/nowhere", errno.ENOENT), ("/dev/null", errno.ENOTTY)]
)
def test_what_cannot_be_opened_says_why(path: str, number: int) -> None:
    with pytest.raises(OSError, match=os.strerror(number)) as raised:
        opening.open_raw(path, RAW)

    assert raised.value.errno == number


@pytest.fixture
def only_the_opener(monkeypatch: pytest.MonkeyPatch) -> None:
    """Fail a test in which this process has to open the tty itself."""

    def refuse(path: str, _attributes: object) -> int:
        raise AssertionError(f"{path} was opened in this process")

    monkeypatch.setattr(opener, "open_raw", refuse)


@pytest.mark.usefixtures("only_the_opener")
def test_the_opener_needs_no_lock_but_the_ports(cable: Cable) -> None:
    with open(os.devnull) as known_to_all:
        fcntl.flock(known_to_all, fcntl.LOCK_EX | fcntl.LOCK_NB)

        os.close(opening.open_raw(str(cable.path), RAW))


@pytest.mark.usefixtures("only_the_opener")
def test_ports_that_open_at_once_do_not_hinder_each_other(tmp_path: Path) -> None:
    cables = [Cable(tmp_path, f"board{n}") for n in range(32)]
    with ThreadPoolExecutor(len(cables)) as pool:
        fds = list(pool.map(lambda cable: opening.open_raw(str(cable.path), RAW), cables))

    assert {os.ttyname(fd) for fd in fds} == {os.path.realpath(each.path) for each in cables}
    for fd, each in zip(fds, cables, strict=True):
        os.close(fd)
        each.close()


@pytest.mark.usefixtures("only_the_opener")
def test_a_descriptor_for_which_there_is_no_room_is_told(
    cable: Cable, monkeypatch: pytest.MonkeyPatch
) -> None:
    receive = socket.recv_fds

    def lose(sock: socket.socket, size: int, most: int) -> tuple[bytes, list[int], int, object]:
        answer, fds, flags, address = receive(sock, size, most)
        for fd in fds:
            os.close(fd)
        return answer, [], flags | socket.MSG_CTRUNC, address

    monkeypatch.setattr(socket, "recv_fds", lose)

    with pytest.raises(OSError, match="Too many open files"):
        opening.open_raw(str(cable.path), RAW)


def test_an_opener_that_was_killed_is_replaced(fresh_opener: int, cable: Cable) -> None:
    os.kill(fresh_opener, signal.SIGKILL)
    assert opening._process is not None
    opening._process.wait()

    os.close(opening.open_raw(str(cable.path), RAW))

    assert opening._process.pid != fresh_opener


def test_an_opener_killed_while_it_is_asked_is_replaced(fresh_opener: int, cable: Cable) -> None:
    os.kill(fresh_opener, signal.SIGSTOP)
    control = opening._control
    assert control is not None
    with ThreadPoolExecutor(1) as pool:
        fd = pool.submit(opening.open_raw, str(cable.path), RAW)
        while not int.from_bytes(fcntl.ioctl(control, termios.TIOCOUTQ, bytes(4)), sys.byteorder):
            assert not fd.done()
        os.kill(fresh_opener, signal.SIGKILL)

        os.close(fd.result(NEVER_S))


def test_without_a_process_to_be_had_it_is_opened_here(
    cooked: tuple[int, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse() -> None:
        raise BlockingIOError(errno.EAGAIN, "Resource temporarily unavailable")

    monkeypatch.setattr(opening, "start_opener", refuse)

    fd = opening.open_raw(cooked[1], RAW)

    assert termios.tcgetattr(fd)[3] == 0
    os.close(fd)


def test_it_goes_before_others_where_it_may(fresh_opener: int, cable: Cable) -> None:
    code = "import os; os.setpriority(os.PRIO_PROCESS, 0, -20)"
    may = subprocess.run([sys.executable, "-c", code], stderr=subprocess.DEVNULL).returncode == 0

    os.close(opening.open_raw(str(cable.path), RAW))

    usual = os.getpriority(os.PRIO_PROCESS, 0)
    assert os.getpriority(os.PRIO_PROCESS, fresh_opener) == (-20 if may else usual)


def test_it_ends_with_whoever_started_it(fresh_opener: int) -> None:
    process = opening._process
    assert process is not None

    opening.stop_opener()

    assert process.returncode == 0
