"""tio, picocom, minicom and screen on the pty of a port, as Debian ships them."""

from __future__ import annotations

import os
import select
import shutil
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from bench_cable import Cable
from bench_program import Program
from running_daemon import LIMIT_S, RunningDaemon, running

PROGRAMS = {
    "tio": ["tio", "--no-autoconnect", "PATH"],
    "picocom": ["picocom", "--quiet", "--nolock", "--baud", "115200", "PATH"],
    "minicom": ["minicom", "--noinit", "--device", "PATH", "--baudrate", "115200"],
    "screen": ["screen", "-S", "NAME", "PATH", "115200"],
}


def names() -> list[object]:
    """Return the programs; those that are not installed are skipped."""
    return [
        pytest.param(
            name,
            marks=pytest.mark.skipif(
                shutil.which(name) is None, reason=f"{name} is not installed (apt)"
            ),
        )
        for name in PROGRAMS
    ]


@contextmanager
def program(name: str, daemon: RunningDaemon, port: str) -> Iterator[Program]:
    session = f"{name}-{port}"
    words = {"PATH": str(daemon.folder / "run/tty" / port), "NAME": session}
    env = {"HOME": str(daemon.folder), "SCREENDIR": str(daemon.folder / "screens")}
    (daemon.folder / "screens").mkdir(mode=0o700, exist_ok=True)
    made = Program([words.get(word, word) for word in PROGRAMS[name]], env)
    try:
        yield made
    finally:
        if name == "screen":  # it has left a process behind that owns the port
            subprocess.run(
                ["screen", "-S", session, "-X", "quit"],
                env=os.environ | env,
                capture_output=True,
                timeout=LIMIT_S,
            )
        made.close()


@pytest.fixture(scope="module")
def cables(tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, Cable]]:
    folder = tmp_path_factory.mktemp("cables")
    made = {name: Cable(folder, name) for name in ("free", "shut")}
    yield made
    for cable in made.values():
        cable.close()


@pytest.fixture(scope="module")
def daemon(cables: dict[str, Cable]) -> Iterator[RunningDaemon]:
    """A daemon with two ports: `free` may be written by terminal programs, `shut` not."""
    folder = cables["free"].path.parent
    extra = f'[port.free]\ndevice = "{cables["free"].path}"\npty = "write"\n'
    with running(folder, {"shut": str(cables["shut"].path)}, extra) as made:
        yield made


@pytest.fixture(autouse=True)
def up(daemon: RunningDaemon) -> None:
    """Wait for ports and their ptys."""
    ports = [("shut", "up"), ("free", "up")]
    daemon.wait_for(
        lambda: [(p["name"], p["state"]) for p in daemon.get("/v1/ports")["ports"]] == ports
    )
    daemon.wait_for(lambda: all(p["tty"] for p in daemon.get("/v1/ports")["ports"]))


def shows(made: Program, cable: Cable, text: bytes) -> None:
    """Let the board print until the program shows it: it may still be starting."""
    end = time.monotonic() + LIMIT_S
    while text not in made.seen:
        assert time.monotonic() < end, made.seen
        cable.prints(b"\r\n" + text + b"\r\n")
        made.look()


def takes(cable: Cable, wanted: bytes) -> None:
    """Wait until the board has got this, and nothing else."""
    got = b""
    end = time.monotonic() + LIMIT_S
    while len(got) < len(wanted):
        assert time.monotonic() < end, got
        select.select([cable.board], [], [], 0.1)
        got += cable.received()
    assert got == wanted


@pytest.mark.parametrize("name", names())
def test_it_shows_the_board_and_types_exactly_once(
    daemon: RunningDaemon, cables: dict[str, Cable], name: str
) -> None:
    cable = cables["free"]
    with program(name, daemon, "free") as made:
        shows(made, cable, b"U-Boot-2023.01")
        made.type(b"printenv\r")
        takes(cable, b"printenv\r")
        shows(made, cable, b"bootdelay=2")

    assert cable.received() == b""


@pytest.mark.parametrize("name", names())
def test_on_a_port_that_is_read_only_nothing_reaches_the_board(
    daemon: RunningDaemon, cables: dict[str, Cable], name: str
) -> None:
    cable = cables["shut"]
    with program(name, daemon, "shut") as made:
        shows(made, cable, b"U-Boot-2023.01")
        made.type(b"reboot\r")
        shows(made, cable, b"still-running")
        made.type(b"reboot\r")
        shows(made, cable, b"and-running")

    assert cable.received() == b""
    assert "shut: what a terminal program types is dropped" in daemon.log()


@pytest.mark.skipif(
    shutil.which("tio") is None or shutil.which("picocom") is None,
    reason="tio or picocom is not installed (apt)",
)
def test_two_at_once_see_everything_and_both_may_type(
    daemon: RunningDaemon, cables: dict[str, Cable]
) -> None:
    cable = cables["free"]
    with program("picocom", daemon, "free") as one, program("tio", daemon, "free") as two:
        shows(one, cable, b"first-is-there")
        shows(two, cable, b"second-is-there")
        for number in range(50):
            cable.prints(b"line-%02d-of-fifty\r\n" % number)
        shows(one, cable, b"the-end")
        shows(two, cable, b"the-end")
        one.type(b"a\r")
        takes(cable, b"a\r")
        two.type(b"b\r")
        takes(cable, b"b\r")

    for number in range(50):
        assert b"line-%02d-of-fifty" % number in one.seen
        assert b"line-%02d-of-fifty" % number in two.seen
