"""The process that opens ttys: echo off at once, one lock, no hang, no descriptor too many."""

from __future__ import annotations

import errno
import fcntl
import os
import signal
import sys
import termios
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor

import pytest

from bench_cable import Cable
from serialwatch_drivers import opening, uart

RAW = uart.raw_attributes(115200, line_errors=False)
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


def test_it_ends_with_whoever_started_it(fresh_opener: int) -> None:
    process = opening._process
    assert process is not None

    opening.stop_opener()

    assert process.returncode == 0
